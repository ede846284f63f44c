//! Models over all chips: one sparse polynomial of ln(t / t_ref) per kind, phase and arithmetic.
//!
//! Every source of a chip, in every precision, has an intercept of its own while slopes are fitted: what separates
//! chips is confounded with what separates their sizes and peaks, and only variation within a chip says how time
//! depends on a layer (the within estimator of panel regression). A chip that was not measured gets the median of the chips' intercepts. The penalty is the one
//! that transfers best: each chip in turn is predicted from the others. Where such predictions are much worse than
//! those of one efficiency, there is no model.

use crate::fit::design::{Candidates, Richness};
use crate::fit::efficiency::EFFICIENCY_EXPONENT;
use crate::fit::lasso::{Moments, penalties};
use crate::fit::least_squares::median;
use crate::fit::polynomial::{buckets, extent, range_of};
use crate::rows::prepare::{KERNEL_FLOOR, Row};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::features::MAX_VARIABLES;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{Compiled, CrossValidation, Ellipsoid, LayerModel, Range, Share};
use ndarray::{Array1, Array2, s};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// Rows of a source of a chip in a precision, at most: more would say nothing new of other chips.
const BLOCK_ROWS: usize = 600;
/// Fewer rows than this of all chips make no model.
const FEWEST_ROWS: usize = 40;
/// Penalties on the path, and how far it goes down.
const PATH: (f64, usize) = (3e-3, 18);
/// Penalty as a share of the largest where no second chip can choose it: what is chosen elsewhere, typically.
const SOLE_PENALTY: f64 = 0.03;
/// A model whose error on left-out chips is so many times an efficiency's is none. A handful of chips does not tell
/// smaller differences: demanding that the model be better lost 10 points on linear layers.
const DISTRUST: f64 = 1.5;
/// A column that deviates less than this within the blocks is no candidate.
const LEAST_DEVIATION: f64 = 1e-2;
/// ln(t / t_ref) stays between these quantiles of the fitted rows.
const RANGE: (f64, f64) = (0.02, 0.9);

/// How models over all chips are fitted.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Candidate terms.
    pub richness: Richness,
    /// Exponent of the smooth roofline.
    pub exponent: u32,
    /// Whether every source of every chip has an intercept of its own.
    pub within: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { richness: Richness::Physical, exponent: 2, within: true }
    }
}

/// Chips that are left out.
pub type Excluded<'e> = BTreeSet<&'e str>;

/// Rows of all chips in pools, ready to be fitted without some of the chips.
pub struct Universal<'a> {
    settings: Settings,
    pools: Vec<Pool<'a>>,
    fits: Mutex<HashMap<FitKey, Option<Arc<Fit>>>>,
}

/// Rows that share slopes.
struct Pool<'a> {
    key: ModelKey,
    phase: Phase,
    share: Share,
    candidates: Candidates,
    rows: Vec<&'a Row>,
    x: Array2<f64>,
    y: Array1<f64>,
    blocks: Vec<Block<'a>>,
}

/// Consecutive rows of one source of a chip in one precision.
struct Block<'a> {
    chip: &'a str,
    precision: Precision,
    from: usize,
    to: usize,
    moments: Moments,
    mean: (Array1<f64>, f64),
}

/// Slopes with an intercept per precision.
struct Fit {
    slopes: Array1<f64>,
    intercepts: BTreeMap<Precision, f64>,
    range: (f64, f64),
    /// Of every variable.
    low: [f64; MAX_VARIABLES],
    high: [f64; MAX_VARIABLES],
}

/// A row that a fit without its chip predicted.
#[derive(Clone, Copy)]
pub struct HeldOut<'a> {
    /// The row.
    pub row: &'a Row,
    /// Predicted time of its kernel.
    pub kernel: Seconds,
    /// ln(t / t_ref), measured less predicted.
    pub residual: f64,
}

/// Rows by chip, source and precision.
type Blocks<'a> = BTreeMap<(&'a str, &'a str, Precision), Vec<&'a Row>>;

/// A pool by its position, and which of its chips are left out.
type FitKey = (usize, Vec<String>);

/// Kind, phase, family and, where it matters, precision.
type PoolKey = (ModelKey, Phase, Family, Option<Precision>);

impl<'a> Universal<'a> {
    /// Pools rows, which must have been prepared alike (`rows::prepare_alike`).
    pub fn new(rows: impl IntoIterator<Item = &'a Row>, settings: Settings) -> Self {
        let mut pools: BTreeMap<PoolKey, Blocks<'_>> = BTreeMap::new();
        for row in rows {
            // Traffic is counted in bytes, so that memory-bound kinds are alike in all formats.
            let precision = (row.family == Family::Gemm).then_some(row.precision);
            let pool = pools.entry((row.model, row.phase, row.family, precision)).or_default();
            pool.entry((&row.chip, &row.source, row.precision)).or_default().push(row);
        }
        let pools = pools
            .into_par_iter()
            .map(|(key, blocks)| (key, shared(blocks)))
            .filter(|(_, blocks)| blocks.values().map(Vec::len).sum::<usize>() >= FEWEST_ROWS)
            .map(|((key, phase, family, _), blocks)| Pool::new(key, phase, family, blocks, &settings))
            .collect();
        Self { settings, pools, fits: Mutex::default() }
    }

    /// Models without the excluded chips, and their residuals on each other chip as if that were left out too.
    pub fn models(&self, excluded: &Excluded<'_>) -> Vec<LayerModel> {
        let held_out: Vec<Vec<HeldOut<'_>>> =
            (0..self.pools.len()).into_par_iter().map(|p| self.held_out(p, excluded)).collect();
        (0..self.pools.len())
            .into_par_iter()
            .flat_map(|p| {
                let Some(fit) = self.fit(p, excluded) else { return Vec::new() };
                let pool = &self.pools[p];
                // Where no second chip judges a model, the other kinds of its share do.
                let alike = |q: &usize| self.pools[*q].share == pool.share;
                let judges: Vec<&HeldOut<'_>> = match held_out[p].is_empty() {
                    true => (0..self.pools.len()).filter(alike).flat_map(|q| &held_out[q]).collect(),
                    false => held_out[p].iter().collect(),
                };
                // An efficiency does for memory-bound kinds that one chip alone has.
                let alone = held_out[p].is_empty() && pool.share == Share::Bandwidth;
                if alone || judges.is_empty() || Pool::constant_is_better(&held_out[p]) {
                    return Vec::new();
                }
                let times = |h: &&HeldOut<'_>| (h.row.time.get(), (h.kernel + h.row.overhead).get());
                let accuracy = Accuracy::of(judges.iter().map(times));
                let accuracy = accuracy.map_or_else(CrossValidation::default, |a| CrossValidation {
                    mape: a.mape,
                    rmspe: a.rmspe,
                    median: a.median,
                });
                let log = |h: &&HeldOut<'_>| (h.kernel, (h.row.time / (h.kernel + h.row.overhead)).ln()).into();
                let residuals = buckets(judges.iter().map(log).collect());
                let rows = pool.included(excluded);
                let domain = (0..pool.candidates.family.variables().len())
                    .filter(|&v| pool.candidates.family.bounds_domain(v))
                    .map(|v| range_of(v, &rows));
                let (domain, sizes) = (domain.collect::<Vec<_>>(), extent(pool.candidates.family, &rows));
                fit.intercepts
                    .keys()
                    .map(|&precision| LayerModel {
                        cross_validation: accuracy,
                        residuals: residuals.clone(),
                        domain: domain.clone(),
                        sizes: sizes.clone(),
                        rows: rows.iter().filter(|r| r.precision == precision).count(),
                        ..self.artifact(pool, &fit, precision)
                    })
                    .collect()
            })
            .collect()
    }

    /// Models without the excluded chips, without residuals and domain.
    pub fn unjudged(&self, excluded: &Excluded<'_>) -> Vec<LayerModel> {
        (0..self.pools.len())
            .filter_map(|p| Some((p, self.fit(p, excluded)?)))
            .flat_map(|(p, fit)| {
                let artifact = |&precision: &Precision| self.artifact(&self.pools[p], &fit, precision);
                fit.intercepts.keys().map(artifact).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Every row of a pool as predicted by a fit without its chip and the excluded ones.
    fn held_out(&self, pool: usize, excluded: &Excluded<'_>) -> Vec<HeldOut<'a>> {
        let mut list = Vec::new();
        let blocks = &self.pools[pool].blocks;
        for block in blocks.iter().filter(|b| !excluded.contains(b.chip)) {
            let mut without: Excluded<'_> = excluded.iter().copied().collect();
            without.insert(block.chip);
            let Some(fit) = self.fit(pool, &without) else { continue };
            let pool = &self.pools[pool];
            // A precision of one chip only is judged by the others' nearest.
            let model = self.artifact(pool, &fit, block.precision);
            for (row, y) in pool.rows[block.from..block.to].iter().zip(pool.y.slice(s![block.from..block.to])) {
                let expected = row.expected(&model);
                list.push(HeldOut { row, kernel: expected.time(), residual: y - expected.log });
            }
        }
        list
    }

    /// Every row of every pool as predicted by a fit without its chip and the excluded ones.
    pub fn all_held_out(&self, excluded: &Excluded<'_>) -> Vec<HeldOut<'a>> {
        (0..self.pools.len()).into_par_iter().flat_map_iter(|p| self.held_out(p, excluded)).collect()
    }

    /// The fit of a pool without the excluded chips; `None` where too few rows are left.
    fn fit(&self, pool: usize, excluded: &Excluded<'_>) -> Option<Arc<Fit>> {
        let here = |chip: &&&str| self.pools[pool].blocks.iter().any(|b| b.chip == **chip);
        let key = (pool, excluded.iter().filter(here).map(|c| c.to_string()).collect());
        if let Ok(fits) = self.fits.lock()
            && let Some(known) = fits.get(&key)
        {
            return known.clone();
        }
        let fit = self.pools[pool].fit(excluded, &self.settings).map(Arc::new);
        if let Ok(mut fits) = self.fits.lock() {
            fits.insert(key, fit.clone());
        }
        fit
    }

    /// The model that a fit makes for a precision, without its accuracy and domain.
    fn artifact(&self, pool: &Pool<'_>, fit: &Fit, precision: Precision) -> LayerModel {
        let selected: Vec<usize> = (0..fit.slopes.len()).filter(|&j| fit.slopes[j] != 0.0).collect();
        let terms: Vec<_> = selected.iter().map(|&j| pool.candidates.term(j, fit.slopes[j], 0.0, 1.0)).collect();
        let used: BTreeSet<usize> = terms.iter().flat_map(|t| t.factors.iter().map(|f| f.variable)).collect();
        let typical = || median(fit.intercepts.values().copied().collect());
        LayerModel {
            key: pool.key,
            phase: pool.phase,
            precision,
            framework: None,
            boards: Vec::new(),
            covers: Vec::new(),
            imported: false,
            memory: None,
            family: pool.candidates.family,
            exponent: self.settings.exponent,
            floor: KERNEL_FLOOR,
            library: pool.rows.iter().map(|r| r.library).fold(f64::NEG_INFINITY, f64::max),
            intercept: fit.intercepts.get(&precision).copied().unwrap_or_else(typical),
            ratio_range: fit.range,
            ordinary_range: fit.range,
            shortest: Seconds::ZERO,
            terms,
            engines: Vec::new(),
            clamp: used.into_iter().map(|v| Range { variable: v, low: fit.low[v], high: fit.high[v] }).collect(),
            domain: Vec::new(),
            sizes: Ellipsoid::default(),
            rows: 0,
            cross_validation: CrossValidation::default(),
            residuals: Vec::new(),
            compiled: Compiled::default(),
        }
    }
}

impl<'a> Pool<'a> {
    fn new(key: ModelKey, phase: Phase, family: Family, blocks: Blocks<'a>, settings: &Settings) -> Self {
        let all = blocks.values().flatten().map(|r| &r.variables);
        let candidates = Candidates::new(family, settings.richness, all).of(key);
        let thinned = |rows: &[&'a Row]| -> Vec<&'a Row> {
            rows.iter().copied().step_by(rows.len().div_ceil(BLOCK_ROWS).max(1)).collect()
        };
        let blocks: Vec<(&str, Precision, Vec<&Row>)> =
            blocks.into_iter().map(|((chip, _, precision), rows)| (chip, precision, thinned(&rows))).collect();
        let rows: Vec<&Row> = blocks.iter().flat_map(|b| b.2.iter().copied()).collect();
        let x = candidates.matrix(rows.iter().map(|r| &r.variables));
        let y: Array1<f64> = rows.iter().map(|r| r.log(settings.exponent)).collect();
        // Chips weigh the same; a source of a chip counts as the square root of its rows.
        let mut weight_of_chip: HashMap<&str, f64> = HashMap::new();
        for (chip, _, rows) in &blocks {
            *weight_of_chip.entry(chip).or_default() += (rows.len() as f64).sqrt();
        }
        let mut from = 0;
        let blocks = blocks
            .into_iter()
            .map(|(chip, precision, rows)| {
                let to = from + rows.len();
                let weight = 1.0 / (rows.len() as f64).sqrt() / weight_of_chip[chip];
                let weights = Array1::from_elem(rows.len(), weight);
                let moments = Moments::new(x.slice(s![from..to, ..]), y.slice(s![from..to]), weights.view());
                let mean = moments.means();
                let moments = if settings.within { moments.within() } else { moments };
                let block = Block { chip, precision, from, to, moments, mean };
                from = to;
                block
            })
            .collect();
        Self { key, phase, share: Share::of(key, family), candidates, rows, x, y, blocks }
    }

    fn included(&self, excluded: &Excluded<'_>) -> Vec<&'a Row> {
        let blocks = self.blocks.iter().filter(|b| !excluded.contains(b.chip));
        blocks.flat_map(|b| self.rows[b.from..b.to].iter().copied()).collect()
    }

    fn fit(&self, excluded: &Excluded<'_>, settings: &Settings) -> Option<Fit> {
        let rows = self.included(excluded);
        if rows.len() < FEWEST_ROWS {
            return None;
        }
        let chips: BTreeSet<&str> =
            self.blocks.iter().map(|b| b.chip).filter(|chip| !excluded.contains(chip)).collect();
        let total = self.moments(excluded)?;
        let problem = total.standardised_above(LEAST_DEVIATION);
        let path = penalties(problem.largest_penalty(), PATH.0, PATH.1);
        let penalty = match chips.len() {
            1 => SOLE_PENALTY * path[0],
            _ => path[self.best_penalty(&chips, excluded, &path)?],
        };
        let upper: Vec<f64> = path.iter().copied().filter(|p| *p > penalty).chain([penalty]).collect();
        let linear = problem.path(&upper, usize::MAX).pop()?;
        let (low, high) = ranges(&rows);
        let mut by_precision: BTreeMap<Precision, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
        for block in self.blocks.iter().filter(|b| !excluded.contains(b.chip)) {
            let (x, y) = &block.mean;
            let intercept = if settings.within { y - x.dot(&linear.coefficients) } else { linear.intercept };
            by_precision.entry(block.precision).or_default().entry(block.chip).or_default().push(intercept);
        }
        let of_chip = |list: &Vec<f64>| list.iter().sum::<f64>() / list.len() as f64;
        let intercepts =
            by_precision.into_iter().map(|(p, chips)| (p, median(chips.values().map(of_chip).collect()))).collect();
        let mut values: Vec<f64> = self
            .blocks
            .iter()
            .filter(|b| !excluded.contains(b.chip))
            .flat_map(|b| self.y.slice(s![b.from..b.to]).to_vec())
            .collect();
        values.sort_by(f64::total_cmp);
        let quantile = |q: f64| values[((values.len() - 1) as f64 * q) as usize];
        Some(Fit { slopes: linear.coefficients, intercepts, range: (quantile(RANGE.0), quantile(RANGE.1)), low, high })
    }

    /// Whether held-out rows are predicted much worse than by the median of the other chips' medians: by the mean over
    /// chips of their mean absolute percentage errors.
    fn constant_is_better(held_out: &[HeldOut<'_>]) -> bool {
        let mut by_chip: BTreeMap<&str, Vec<&HeldOut<'_>>> = BTreeMap::new();
        for h in held_out {
            by_chip.entry(&h.row.chip).or_default().push(h);
        }
        if by_chip.len() < 2 {
            return false;
        }
        let reference = |h: &HeldOut<'_>| h.row.reference(EFFICIENCY_EXPONENT);
        let log = |h: &&HeldOut<'_>| h.row.log(EFFICIENCY_EXPONENT);
        let medians: BTreeMap<&str, f64> =
            by_chip.iter().map(|(chip, rows)| (*chip, median(rows.iter().map(log).collect()))).collect();
        let error = |h: &HeldOut<'_>, kernel: Seconds| ((kernel + h.row.overhead) / h.row.time - 1.0).abs();
        let (mut constant, mut model) = (0.0, 0.0);
        for (chip, rows) in &by_chip {
            let others = medians.iter().filter(|(other, _)| *other != chip).map(|(_, m)| *m).collect();
            let efficiency = median(others).exp();
            let n = rows.len() as f64;
            constant += rows.iter().map(|h| error(h, reference(h) * efficiency)).sum::<f64>() / n;
            model += rows.iter().map(|h| error(h, h.kernel)).sum::<f64>() / n;
        }
        model > DISTRUST * constant
    }

    fn moments(&self, excluded: &Excluded<'_>) -> Option<Moments> {
        Moments::sum(self.blocks.iter().filter(|b| !excluded.contains(b.chip)).map(|b| &b.moments))
    }

    /// The penalty whose fits without a chip predict that chip best, but for a constant.
    fn best_penalty(&self, chips: &BTreeSet<&str>, excluded: &Excluded<'_>, path: &[f64]) -> Option<usize> {
        let mut errors = vec![0.0; path.len()];
        for &chip in chips {
            let mut without: Excluded<'_> = excluded.iter().copied().collect();
            without.insert(chip);
            let models = self.moments(&without)?.standardised_above(LEAST_DEVIATION).path(path, usize::MAX);
            let (low, high) = ranges(&self.included(&without));
            let own: Vec<usize> = self.blocks.iter().filter(|b| b.chip == chip).flat_map(|b| b.from..b.to).collect();
            let x: Vec<f64> = own
                .iter()
                .flat_map(|&i| {
                    let mut values = self.rows[i].variables.values;
                    for (v, value) in values.iter_mut().enumerate() {
                        *value = value.clamp(low[v], high[v]);
                    }
                    self.candidates.values(&values)
                })
                .collect();
            let x = Array2::from_shape_vec((own.len(), self.x.ncols()), x).ok()?;
            for (error, model) in errors.iter_mut().zip(&models) {
                let predicted = model.predict(x.view());
                let residuals: Vec<f64> = own.iter().zip(&predicted).map(|(&i, p)| self.y[i] - p).collect();
                let centre = median(residuals.clone());
                *error += residuals.iter().map(|r| (r - centre).abs()).sum::<f64>() / own.len() as f64;
            }
        }
        (0..path.len()).min_by(|&a, &b| errors[a].total_cmp(&errors[b]))
    }
}

/// Blocks without the rows of a chip whose sizes and classes no other chip's rows reach: what one chip alone ran says
/// nothing of what chips share, and stands so far out that it may bend the slopes for all of them. All rows where there is one
/// chip.
fn shared(mut blocks: Blocks<'_>) -> Blocks<'_> {
    let chips: BTreeSet<&str> = blocks.keys().map(|(chip, ..)| *chip).collect();
    if chips.len() < 2 {
        return blocks;
    }
    let reach: HashMap<&str, _> = chips
        .into_iter()
        .map(|chip| {
            let others = blocks.iter().filter(|((other, ..), _)| *other != chip).flat_map(|(_, rows)| rows);
            (chip, ranges(&others.copied().collect::<Vec<_>>()))
        })
        .collect();
    for ((chip, ..), rows) in &mut blocks {
        let (low, high) = &reach[chip];
        rows.retain(|row| {
            let within = |v: usize| (low[v]..=high[v]).contains(&row.variables.values[v]);
            (0..row.family.variables().len()).filter(|&v| row.family.bounds_domain(v)).all(within)
        });
    }
    blocks.retain(|_, rows| !rows.is_empty());
    blocks
}

/// Smallest and largest value of every variable.
fn ranges(rows: &[&Row]) -> ([f64; MAX_VARIABLES], [f64; MAX_VARIABLES]) {
    let (mut low, mut high) = ([f64::INFINITY; MAX_VARIABLES], [f64::NEG_INFINITY; MAX_VARIABLES]);
    for row in rows {
        for (v, &value) in row.variables.values.iter().enumerate() {
            low[v] = low[v].min(value);
            high[v] = high[v].max(value);
        }
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::prepare::testing::row;

    fn blocks(rows: &[Row]) -> Blocks<'_> {
        let mut blocks = Blocks::new();
        for row in rows {
            blocks.entry((&row.chip, &row.source, row.precision)).or_default().push(row);
        }
        blocks
    }

    #[test]
    fn what_one_chip_alone_reaches_does_not_bend_the_slopes_of_all() {
        let few = (0..7).map(|i| row("A", 1 << i, 0.1 * f64::from(i)));
        let own = |odd: f64| (0..12).map(move |i| row("B", 1 << i, 0.1 * f64::from(i) + if i > 6 { odd } else { 0.0 }));
        let odd: Vec<Row> = few.clone().chain(own(3.0)).collect();
        let left = shared(blocks(&odd));
        assert_eq!(left.values().map(Vec::len).collect::<Vec<_>>(), [7, 7], "both up to 64");
        // Ten times as many rows, so that there is a model.
        let many = |odd: f64| -> Vec<Row> { (0..10).flat_map(|_| few.clone().chain(own(odd))).collect() };
        let models = |rows: &[Row]| Universal::new(rows, Settings::default()).unjudged(&Excluded::new());
        let (plain, bent) = (models(&many(0.0)), models(&many(3.0)));
        assert!(!plain.is_empty());
        assert_eq!(plain[0].terms.len(), bent[0].terms.len());
        for (a, b) in plain[0].terms.iter().zip(&bent[0].terms) {
            assert_eq!(a.coefficient, b.coefficient);
        }
    }

    #[test]
    fn a_chip_without_others_keeps_all_of_its_rows() {
        let rows: Vec<Row> = (0..12).map(|i| row("A", 1 << i, 0.0)).collect();
        assert_eq!(shared(blocks(&rows)).values().map(Vec::len).sum::<usize>(), 12);
    }
}
