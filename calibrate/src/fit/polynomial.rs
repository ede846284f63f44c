//! Fitting one model: a layer kind, phase and precision on one chip.
//!
//! Lasso of ln(t / t_ref) on the candidate terms, penalty by grouped cross-validation, then least squares on the
//! selected terms. A fold is predicted by the very artifact that a fit without it would ship, so held-out
//! residuals are those a user would see.

use crate::fit::columns::Standardised;
use crate::fit::design::{Candidates, Richness};
use crate::fit::folds::grouped;
use crate::fit::lasso::{Columns, Linear, Standard, Target, penalties};
use crate::fit::waiting::FitBar;
use crate::rows::prepare::Row;
use anyhow::{Context, Result};
use joulecast_model::base::accuracy::{Accuracy, conformal_weighted};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{
    Bucket, Compiled, CrossValidation, Ellipsoid, EngineTerms, LayerModel, Range, Term,
};
use linfa_linalg::cholesky::{InverseC, SolveCInplace};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use std::collections::{BTreeSet, HashMap};

/// How models are fitted.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Candidate terms.
    pub richness: Richness,
    /// Seed of the folds.
    pub seed: u64,
    /// Number of folds.
    pub folds: usize,
    /// Exponents of the smooth roofline to choose from.
    pub exponents: &'static [u32],
    /// Most terms.
    pub most_terms: usize,
    /// Standard errors of the paired difference that the chosen penalty may lie behind the best.
    pub standard_errors: f64,
    /// Is told of every model of a recipe that was fitted.
    pub bar: Option<&'a FitBar>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            richness: Richness::Full,
            seed: 1,
            folds: 5,
            exponents: &[1, 2, 4],
            most_terms: 160,
            standard_errors: 1.0,
            bar: None,
        }
    }
}

/// Penalties on the path, and how far it goes down.
const PATH: (f64, usize) = (2e-4, 60);
/// Ridge of the final least squares, as a share of the rows' weight per standardised column.
const RIDGE: f64 = 1e-4;
/// Residuals beyond this many median deviations count linearly, not squared (Huber).
const HUBER: f64 = 2.0;
/// Fewest rows that say what is ordinary.
const FEWEST_TYPICAL: usize = 30;
/// Added to the diagonal of the sizes' correlation matrix.
const CORRELATION_RIDGE: f64 = 1e-3;

/// A model with what it predicted for rows it had not seen.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The model, fitted on all rows.
    pub model: LayerModel,
    /// For each row: the time predicted by a fit without its fold.
    pub held_out: Vec<Seconds>,
}

/// Fits the model of a key to rows of one phase, precision and chip.
///
/// # Errors
/// When there are no rows, or a least-squares fit fails.
pub fn fit(key: ModelKey, rows: &[&Row], options: &Options) -> Result<Fitted> {
    fit_from(key, rows, None, options)
}

/// The same for what a `base` leaves of the rows; the model is their sum, over the roofline with the base's exponent.
///
/// # Errors
/// As of [`fit`].
pub fn fit_from(key: ModelKey, rows: &[&Row], base: Option<&LayerModel>, options: &Options) -> Result<Fitted> {
    let mut task = Task::of(key, rows, base, options)?;
    let exponents = base.map_or(options.exponents.to_vec(), |b| vec![b.exponent]);
    task.best_of(&exponents)
}

/// The same for what `beside` leaves of the rows' logarithms, which is not part of the model.
///
/// # Errors
/// As of [`fit`].
pub(crate) fn fit_beside(key: ModelKey, rows: &[&Row], beside: Vec<f64>, options: &Options) -> Result<Fitted> {
    let mut task = Task::of(key, rows, None, options)?;
    task.offset = beside.into();
    task.best_of(options.exponents)
}

/// What rows differ by from what was expected of them.
pub(crate) struct Rest {
    /// Intercept and terms.
    pub terms: EngineTerms,
    /// For each row: what a fit without its fold adds to what was expected.
    pub held_out: Vec<f64>,
}

/// Fits what logarithms that were expected of an engine's rows (`offset`) leave of them.
///
/// # Errors
/// As of [`fit`].
pub(crate) fn fit_rest(
    key: ModelKey,
    engine: &str,
    (rows, offset): (&[&Row], Vec<f64>),
    exponent: u32,
    options: &Options,
) -> Result<Rest> {
    let mut task = Task::of(key, rows, None, options)?;
    task.offset = offset.into();
    task.set_exponent(exponent);
    task.rest(engine)
}

/// Rows with weights, in folds, whatever is to be learned of them.
struct Folded {
    all: Standard,
    folds: Vec<Fold>,
}

/// A fold's own rows, and the columns of the others.
struct Fold {
    x: Array2<f64>,
    weights: Array1<f64>,
    others: Standard,
}

struct Task<'a> {
    key: ModelKey,
    rows: &'a [&'a Row],
    options: &'a Options<'a>,
    columns: Standardised,
    /// ln(t / t_ref) for the exponent in hand, less the base's.
    y: Array1<f64>,
    /// What other chips say, and that for each row, or what engines add beside the model.
    base: Option<&'a LayerModel>,
    offset: Array1<f64>,
    exponent: u32,
    /// Rows of each fold.
    folds: Vec<Vec<usize>>,
    /// The rows of a source together count as the square root of their number.
    weights: Array1<f64>,
}

impl<'a> Task<'a> {
    fn new(
        key: ModelKey,
        rows: &'a [&'a Row],
        base: Option<&'a LayerModel>,
        candidates: Candidates,
        options: &'a Options<'a>,
    ) -> Self {
        let offset = rows.iter().map(|r| base.map_or(0.0, |b| b.polynomial(&r.variables.values))).collect();
        let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
        let fold_of = grouped(&keys, options.folds, options.seed);
        let folds = (0..options.folds).map(|f| (0..rows.len()).filter(|&i| fold_of[i] == f).collect()).collect();
        let mut counts = HashMap::new();
        for row in rows {
            *counts.entry(row.source.as_str()).or_insert(0u32) += 1;
        }
        let weights = rows.iter().map(|r| 1.0 / f64::from(counts[r.source.as_str()]).sqrt()).collect();
        Self {
            key,
            rows,
            options,
            columns: Standardised::new(candidates, rows),
            y: Array1::zeros(rows.len()),
            base,
            offset,
            exponent: 1,
            folds,
            weights,
        }
    }

    fn of(key: ModelKey, rows: &'a [&'a Row], base: Option<&'a LayerModel>, options: &'a Options<'a>) -> Result<Self> {
        let first = rows.first().context("no rows")?;
        let candidates = Candidates::new(first.family, options.richness, rows.iter().map(|r| &r.variables));
        Ok(Self::new(key, rows, base, candidates.of(key), options))
    }

    /// The fit with the exponent that unseen rows are nearest with.
    fn best_of(&mut self, exponents: &[u32]) -> Result<Fitted> {
        let mut best: Option<(f64, u32, Vec<f64>)> = None;
        let folded = self.folded(&self.weights)?;
        for &exponent in exponents {
            self.set_exponent(exponent);
            let logs = self.path(&folded)?.held_out(self);
            let score = self.error_of(&logs);
            if best.as_ref().is_none_or(|(s, ..)| score < *s) {
                best = Some((score, exponent, logs));
            }
        }
        drop(folded);
        let (_, exponent, logs) = best.context("no exponent to choose from")?;
        self.set_exponent(exponent);
        self.fit(&logs)
    }

    fn set_exponent(&mut self, exponent: u32) {
        self.exponent = exponent;
        let log = |r: &&Row| r.log(exponent);
        self.y = self.rows.iter().map(log).collect::<Array1<f64>>() - &self.offset;
    }

    /// Mean absolute percentage error of predicted logarithms.
    fn error_of(&self, logs: &[f64]) -> f64 {
        let error =
            |(i, row): (usize, &&Row)| (row.time_of(logs[i] + self.offset[i], self.exponent) / row.time - 1.0).abs();
        self.rows.iter().enumerate().map(error).sum::<f64>() / self.rows.len() as f64
    }

    /// The second pass: Huber weights from the first's held-out logarithms, so that outliers stop pulling; then
    /// least squares on the selected terms, on everything and without each fold.
    fn fit(&self, first: &[f64]) -> Result<Fitted> {
        let mut held_out = vec![Seconds::ZERO; self.rows.len()];
        let made = |linear: &Linear, trained: &[usize]| self.artifact(linear, trained);
        let model = self.second_pass(first, made, |i, artifact| held_out[i] = self.rows[i].predicted(artifact))?;
        let model = LayerModel {
            cross_validation: cross_validation(self.rows, &held_out),
            residuals: intervals(self.rows, &held_out),
            ..model
        };
        Ok(Fitted { model, held_out })
    }

    /// The same for what an engine's rows leave of what was expected of them.
    fn rest(&self, engine: &str) -> Result<Rest> {
        let first = self.path(&self.folded(&self.weights)?)?.held_out(self);
        let mut held_out = vec![0.0; self.rows.len()];
        let made = |linear: &Linear, trained: &[usize]| self.engine_terms(engine, linear, trained);
        let terms = self.second_pass(&first, made, |i, terms| held_out[i] = terms.log(&self.rows[i].variables))?;
        Ok(Rest { terms, held_out })
    }

    /// What is `made` of the coefficients of all rows; `judge` is shown every row with what is made without its fold.
    fn second_pass<T>(
        &self,
        first: &[f64],
        made: impl Fn(&Linear, &[usize]) -> T,
        mut judge: impl FnMut(usize, &T),
    ) -> Result<T> {
        let weights = huber(&self.weights, &self.y, first);
        let path = self.path(&self.folded(&weights)?)?;
        for (rows, models) in self.folds.iter().zip(&path.folds) {
            let held: BTreeSet<usize> = rows.iter().copied().collect();
            let train: Vec<usize> = (0..self.rows.len()).filter(|i| !held.contains(i)).collect();
            if rows.is_empty() || train.is_empty() {
                continue;
            }
            let without = made(&refit(&self.columns.x, &self.y, &weights, &train, &path.support(models))?, &train);
            rows.iter().for_each(|&i| judge(i, &without));
        }
        let everything: Vec<usize> = (0..self.rows.len()).collect();
        let full = refit(&self.columns.x, &self.y, &weights, &everything, &path.support(&path.full))?;
        Ok(made(&full, &everything))
    }

    /// The monomials that a fit selected.
    fn terms(&self, linear: &Linear) -> Vec<Term> {
        let columns = &self.columns;
        let term = |j: usize| columns.candidates.term(j, linear.coefficients[j], columns.mean[j], columns.scale[j]);
        linear.support().into_iter().map(term).collect()
    }

    /// What an engine's rows add by these coefficients.
    fn engine_terms(&self, engine: &str, linear: &Linear, trained: &[usize]) -> EngineTerms {
        let terms = self.terms(linear);
        let rows: Vec<&Row> = trained.iter().map(|&i| self.rows[i]).collect();
        EngineTerms {
            engine: engine.to_string(),
            rows: rows.len(),
            intercept: linear.intercept,
            range: up_to_quantile(trained.iter().map(|&i| self.y[i]), 0.01),
            clamp: ranges_of(&terms, &rows).into(),
            terms: terms.into(),
            compiled: Compiled::default(),
        }
    }

    /// The folds with such weights, whatever is to be learned of them.
    fn folded(&self, weights: &Array1<f64>) -> Result<Folded> {
        let select = |rows: &Vec<usize>| (self.columns.x.select(Axis(0), rows), weights.select(Axis(0), rows));
        let held: Vec<(Array2<f64>, Array1<f64>)> = self.folds.iter().map(select).collect();
        let parts: Vec<Columns> = held.iter().map(|(x, w)| Columns::new(x.view(), w.view())).collect();
        let total = Columns::sum(parts.iter()).context("no folds")?;
        let fold =
            |((x, weights), part): (_, &Columns)| Fold { x, weights, others: total.without(part).standardised() };
        Ok(Folded { all: total.standardised(), folds: held.into_iter().zip(&parts).map(fold).collect() })
    }

    /// Lasso paths on everything and without each fold, and the penalty that cross-validation chooses.
    fn path(&self, Folded { all, folds }: &Folded) -> Result<Path> {
        let held: Vec<Array1<f64>> = self.folds.iter().map(|rows| self.y.select(Axis(0), rows)).collect();
        let target = |(fold, y): (&Fold, &Array1<f64>)| Target::new(fold.x.view(), y.view(), fold.weights.view());
        let parts: Vec<Target> = folds.iter().zip(&held).map(target).collect();
        let total = Target::sum(parts.iter()).context("no folds")?;
        let problem = all.problem(&total);
        let penalties = penalties(problem.largest_penalty(), PATH.0, PATH.1);
        let most = self.options.most_terms;
        let without = |(fold, part): (&Fold, &Target)| fold.others.problem(&total.without(part)).path(&penalties, most);
        let models: Vec<Vec<Linear>> = folds.iter().zip(&parts).map(without).collect();
        let errors: Vec<Vec<f64>> = models
            .iter()
            .zip(folds.iter().zip(&held))
            .map(|(models, (fold, y))| {
                models.iter().map(|m| weighted_square(m, fold.x.view(), y, &fold.weights)).collect()
            })
            .collect();
        let chosen = one_standard_error(&errors, self.options.standard_errors);
        let full = problem.path(&penalties[..=chosen], most);
        Ok(Path { folds: models, full, chosen })
    }

    /// The model that these rows' coefficients make, without its accuracy.
    fn artifact(&self, linear: &Linear, trained: &[usize]) -> LayerModel {
        let first = self.rows[trained[0]];
        let family = self.columns.candidates.family;
        let of_base = self.base.into_iter().flat_map(|base| base.terms.iter().cloned());
        let terms: Vec<Term> = self.terms(linear).into_iter().chain(of_base).collect();
        let shortest = self.shortest(trained);
        let domain = (0..family.variables().len()).filter(|&v| family.bounds_domain(v));
        let rows: Vec<&Row> = trained.iter().map(|&i| self.rows[i]).collect();
        LayerModel {
            key: self.key,
            phase: first.phase,
            precision: first.precision,
            framework: None,
            boards: Vec::new(),
            covers: Vec::new(),
            imported: 2 * trained.iter().filter(|&&i| self.rows[i].own).count() < trained.len(),
            memory: first.memory,
            family,
            exponent: self.exponent,
            floor: first.floor,
            library: trained.iter().map(|&i| self.rows[i].library).fold(f64::NEG_INFINITY, f64::max),
            intercept: linear.intercept + self.base.map_or(0.0, |b| b.intercept),
            ratio_range: up_to_quantile(trained.iter().map(|&i| self.log_of_model(i)), 0.01),
            ordinary_range: self.ordinary_range(trained, shortest),
            shortest,
            clamp: ranges_of(&terms, &rows),
            terms,
            engines: self.base.map_or(Vec::new(), |base| base.engines.clone()),
            domain: domain.map(|v| range_of(v, &rows)).collect(),
            sizes: extent(family, &rows),
            rows: trained.len(),
            cross_validation: CrossValidation::default(),
            residuals: Vec::new(),
            compiled: Compiled::default(),
        }
    }
}

impl Task<'_> {
    /// Rows of single calls were kept where they took at least 1.5 times the shortest call: half of the overhead,
    /// and the kernel's floor, are the shortest kernels seen whatever their speed. The typical row decides.
    fn shortest(&self, rows: &[usize]) -> Seconds {
        let limit = |&i: &usize| (self.rows[i].overhead * 0.5 + self.rows[i].floor * 1.5).get();
        let mut limits: Vec<f64> = rows.iter().filter(|&&i| self.rows[i].overhead > Seconds::ZERO).map(limit).collect();
        if limits.len() * 2 < rows.len() {
            return Seconds::ZERO;
        }
        limits.sort_by(f64::total_cmp);
        Seconds::new(limits[limits.len() / 2])
    }

    /// What the model is to predict of a row: with the base's part, without what is beside the model.
    fn log_of_model(&self, i: usize) -> f64 {
        self.y[i] + if self.base.is_some() { self.offset[i] } else { 0.0 }
    }

    /// Where most of the rows' logarithms lie, short ones left out while enough others remain.
    fn ordinary_range(&self, rows: &[usize], shortest: Seconds) -> (f64, f64) {
        let long: Vec<usize> =
            rows.iter().copied().filter(|&i| self.rows[i].reference(self.exponent) >= shortest).collect();
        let typical = if long.len() >= FEWEST_TYPICAL { &long } else { rows };
        up_to_quantile(typical.iter().map(|&i| self.log_of_model(i)), 0.05)
    }
}

/// Centre and extent of these rows' sizes. Sizes depend on each other (rows of a product are batch times area), so
/// the correlation matrix carries a small ridge.
pub(crate) fn extent(family: Family, rows: &[&Row]) -> Ellipsoid {
    let value = |r: usize, v: usize| rows[r].variables.values[v];
    let all = || 0..rows.len();
    let n = rows.len() as f64;
    let mean_of = |v: usize| all().map(|r| value(r, v)).sum::<f64>() / n;
    let scale_of = |v: usize, mean: f64| (all().map(|r| (value(r, v) - mean).powi(2)).sum::<f64>() / n).sqrt();
    let varying = family.sizes().into_iter().map(|v| (v, mean_of(v))).map(|(v, mean)| (v, mean, scale_of(v, mean)));
    let sizes: Vec<(usize, f64, f64)> = varying.filter(|(_, _, scale)| *scale > 1e-6).collect();
    let d = sizes.len();
    let z = Array2::from_shape_fn((rows.len(), d), |(r, c)| {
        let (v, mean, scale) = sizes[c];
        (value(r, v) - mean) / scale
    });
    let correlation = z.t().dot(&z) / n + Array2::<f64>::eye(d) * CORRELATION_RIDGE;
    let Ok(inverse) = correlation.invc() else { return Ellipsoid::default() };
    Ellipsoid {
        variables: sizes.iter().map(|s| s.0).collect(),
        mean: sizes.iter().map(|s| s.1).collect(),
        scale: sizes.iter().map(|s| s.2).collect(),
        inverse: inverse.iter().copied().collect(),
    }
}

/// Range of a variable over rows, at least one.
pub(crate) fn range_of(variable: usize, rows: &[&Row]) -> Range {
    let (low, high) = extremes(rows.iter().map(|r| r.variables.values[variable]));
    Range { variable, low, high }
}

/// Ranges of the variables that terms are of.
fn ranges_of(terms: &[Term], rows: &[&Row]) -> Vec<Range> {
    let used: BTreeSet<usize> = terms.iter().flat_map(|t| t.factors.iter().map(|f| f.variable)).collect();
    used.into_iter().map(|v| range_of(v, rows)).collect()
}

/// Solutions along the penalties.
struct Path {
    folds: Vec<Vec<Linear>>,
    full: Vec<Linear>,
    chosen: usize,
}

impl Path {
    fn model<'p>(&self, models: &'p [Linear]) -> Option<&'p Linear> {
        models.get(self.chosen).or(models.last())
    }

    fn support(&self, models: &[Linear]) -> Vec<usize> {
        self.model(models).map(Linear::support).unwrap_or_default()
    }

    /// What the Lasso itself predicts for the fold it has not seen.
    fn held_out(&self, task: &Task<'_>) -> Vec<f64> {
        let mut logs = vec![0.0; task.rows.len()];
        for (rows, models) in task.folds.iter().zip(&self.folds) {
            if let Some(model) = self.model(models) {
                for (&i, p) in rows.iter().zip(model.predict(task.columns.x.select(Axis(0), rows).view())) {
                    logs[i] = p;
                }
            }
        }
        logs
    }
}

/// From the smallest value to the one that a share of all exceed. The fast end is not cut: channels that suit the
/// hardware are rare among random shapes and common in networks.
fn up_to_quantile(values: impl Iterator<Item = f64>, above: f64) -> (f64, f64) {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let skip = (sorted.len() as f64 * above) as usize;
    (sorted[0], sorted[sorted.len() - 1 - skip])
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)))
}

/// Weights scaled down where a held-out residual is an outlier.
fn huber(w: &Array1<f64>, y: &Array1<f64>, predicted: &[f64]) -> Array1<f64> {
    let residuals: Vec<f64> = y.iter().zip(predicted).map(|(y, p)| (y - p).abs()).collect();
    let mut sorted = residuals.clone();
    sorted.sort_by(f64::total_cmp);
    let bound = HUBER * sorted[sorted.len() / 2].max(1e-6);
    w.iter().zip(&residuals).map(|(w, r)| w * (bound / r).min(1.0)).collect()
}

pub(crate) fn weighted_square(model: &Linear, x: ArrayView2<'_, f64>, y: &Array1<f64>, w: &Array1<f64>) -> f64 {
    let errors = (model.predict(x) - y).mapv(|e| e * e);
    (&errors * w).sum() / w.sum()
}

/// The largest penalty that is not worse than the best by more than so many standard errors of their paired
/// difference over the folds.
pub(crate) fn one_standard_error(errors: &[Vec<f64>], standard_errors: f64) -> usize {
    let length = errors.iter().map(Vec::len).min().unwrap_or(0);
    let usable: Vec<&Vec<f64>> = errors.iter().filter(|e| e.iter().all(|v| v.is_finite())).collect();
    let n = usable.len().max(1) as f64;
    let mean = |i: usize| usable.iter().map(|e| e[i]).sum::<f64>() / n;
    let Some(best) = (0..length).min_by(|&a, &b| mean(a).total_cmp(&mean(b))) else { return 0 };
    let tolerable = |i: usize| {
        let difference = mean(i) - mean(best);
        let spread: f64 = usable.iter().map(|e| (e[i] - e[best] - difference).powi(2)).sum();
        difference <= standard_errors * (spread / (n * (n - 1.0).max(1.0))).sqrt()
    };
    (0..=best).find(|&i| tolerable(i)).unwrap_or(best)
}

/// Least squares on the selected columns, with a small ridge.
pub(crate) fn refit(
    x: &Array2<f64>,
    y: &Array1<f64>,
    w: &Array1<f64>,
    rows: &[usize],
    support: &[usize],
) -> Result<Linear> {
    let weights = w.select(Axis(0), rows);
    let total = weights.sum();
    let targets = y.select(Axis(0), rows);
    let y_mean = (&targets * &weights).sum() / total;
    let mut coefficients = Array1::zeros(x.ncols());
    if support.is_empty() {
        return Ok(Linear { intercept: y_mean, coefficients });
    }
    let selected = x.select(Axis(1), support).select(Axis(0), rows);
    let mean = weights.dot(&selected) / total;
    let root = weights.mapv(f64::sqrt);
    let left = (&selected - &mean) * root.view().insert_axis(Axis(1));
    let right = (&targets - y_mean) * &root;
    // The ridge keeps these well conditioned: least squares on the rows themselves, which take ten times as long, differ from
    // the tenth digit on.
    let mut normal = left.t().dot(&left) + Array2::<f64>::eye(support.len()) * (RIDGE * total);
    let sought = left.t().dot(&right).insert_axis(Axis(1));
    let solved = normal.solvec_into(sought).context("least squares on the selected terms")?.remove_axis(Axis(1));
    for (&j, &value) in support.iter().zip(&solved) {
        coefficients[j] = value;
    }
    Ok(Linear { intercept: y_mean - solved.dot(&mean), coefficients })
}

pub(crate) fn cross_validation(own: &[&Row], held_out: &[Seconds]) -> CrossValidation {
    let pairs = own.iter().zip(held_out).map(|(r, p)| (r.time.get(), p.get()));
    Accuracy::of(pairs).map_or_else(CrossValidation::default, |a| CrossValidation {
        mape: a.mape,
        rmspe: a.rmspe,
        median: a.median,
    })
}

/// Fewest residuals that quantiles of a bucket of their own are taken from.
const BUCKET: usize = 100;

/// How far a row was from what a model that had not seen it predicted.
#[derive(Clone, Copy, Debug)]
pub struct Residual {
    /// Predicted time.
    pub time: Seconds,
    /// ln(measured / predicted).
    pub log: f64,
    /// Rows of one shape share the weight of one: they err alike.
    pub weight: f64,
}

impl From<(Seconds, f64)> for Residual {
    fn from((time, log): (Seconds, f64)) -> Self {
        Self { time, log, weight: 1.0 }
    }
}

/// Held-out residuals of the kernels.
pub(crate) fn residuals(rows: &[&Row], held_out: &[Seconds]) -> Vec<Residual> {
    let mut shapes: HashMap<&str, f64> = HashMap::new();
    for row in rows {
        *shapes.entry(&row.key).or_default() += 1.0;
    }
    let residual = |(row, p): (&&Row, &Seconds)| Residual {
        time: *p - row.overhead,
        log: (row.time / *p).ln(),
        weight: 1.0 / shapes[row.key.as_str()],
    };
    rows.iter().zip(held_out).map(residual).collect()
}

/// Their quantiles by predicted time.
pub(crate) fn intervals(rows: &[&Row], held_out: &[Seconds]) -> Vec<Bucket> {
    buckets(residuals(rows, held_out))
}

/// Whether each row's time lies within the 90 % interval that the other folds' residuals make around what a model that
/// had not seen it predicted (cross-conformal; Vovk 2015).
pub fn held(rows: &[&Row], held_out: &[Seconds], options: &Options) -> Vec<bool> {
    let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
    let fold_of = grouped(&keys, options.folds, options.seed);
    let residuals = residuals(rows, held_out);
    let intervals: Vec<Vec<Bucket>> = (0..options.folds)
        .map(|fold| buckets(residuals.iter().zip(&fold_of).filter(|(_, f)| **f != fold).map(|(r, _)| *r).collect()))
        .collect();
    let within = |(residual, fold): (&Residual, &usize)| {
        let bucket = intervals[*fold].iter().find(|b| residual.time <= b.up_to);
        bucket.is_some_and(|b| (b.low..=b.high).contains(&residual.log))
    };
    residuals.iter().zip(&fold_of).map(within).collect()
}

/// Conformal quantiles by predicted time, in up to five buckets of equally many residuals.
pub fn buckets(mut residuals: Vec<Residual>) -> Vec<Bucket> {
    residuals.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
    let count = (residuals.len() / BUCKET).clamp(1, 5);
    let size = residuals.len().div_ceil(count);
    let chunks: Vec<&[Residual]> = residuals.chunks(size.max(1)).collect();
    let last = chunks.len().saturating_sub(1);
    chunks
        .iter()
        .enumerate()
        .filter_map(|(i, chunk)| {
            let (low, high) = conformal_weighted(chunk.iter().map(|r| (r.log, r.weight)).collect(), 0.9)?;
            let up_to = if i == last { Seconds::new(f64::INFINITY) } else { chunk.last()?.time };
            Some(Bucket { up_to, low: low.min(0.0), high: high.max(0.0), rows: chunk.len() })
        })
        .collect()
}
