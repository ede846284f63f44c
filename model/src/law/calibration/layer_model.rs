//! A sparse polynomial model of one layer kind's time in one phase and precision.

use super::compiled::{Bounded, Compiled, Polynomial, Terms};
use super::later::Later;
use super::term::Term;
use crate::base::mark::Places;
use crate::base::number::{LANES, Lanes, Number as _};
use crate::base::precision::{Phase, Precision};
use crate::base::units::Seconds;
use crate::kernel::family::Family;
use crate::kernel::features::{MAX_VARIABLES, Variables, Wanted};
use crate::kernel::key::ModelKey;
use crate::kernel::load::Memory;

/// ln(t / t_ref) as a sum of standardised monomials of the family's variables, with
/// t_ref = (t_comp^p + t_mem^p + t0^p)^(1/p).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerModel {
    /// Whose kernels it predicts: a layer kind, a class of one, or several kinds together.
    pub key: ModelKey,
    /// Which kernel of the layer: forward, gradient of the data, gradient of the weights, or update.
    pub phase: Phase,
    /// Format of the operands of the rows.
    pub precision: Precision,
    /// The framework whose own kernels it is of; `None` for those of the vendor's library.
    pub framework: Option<String>,
    /// What a model of several kinds, phases and precisions was fitted to; empty for one of a single kind.
    pub covers: Vec<Cover>,
    /// Boards whose rows it was fitted to, where these are not all of the calibration's; else empty.
    pub boards: Vec<String>,
    /// Whether others published most of the rows that it was fitted to.
    pub imported: bool,
    /// The memory that its times and variables are over; `None`: of whatever board it predicts.
    pub memory: Option<Memory>,
    /// Which variables its terms are over: of products, or of what is bound by bandwidth.
    pub family: Family,
    /// p in t_ref: 1, 2 or 4, as cross-validation chose.
    pub exponent: u32,
    /// t0 in t_ref: the shortest kernels of that kind on that GPU.
    pub floor: Seconds,
    /// Value of the library covariate to predict with: the newest library measured.
    pub library: f64,
    /// The constant of ln(t / t_ref).
    pub intercept: f64,
    /// ln(t / t_ref) stays between these, the smallest of the fitted rows and their 99 % quantile: a polynomial knows
    /// no bounds.
    pub ratio_range: (f64, f64),
    /// Outside of what was measured it stays between these, the smallest and the 95 % quantile.
    pub ordinary_range: (f64, f64),
    /// Layers whose t_ref is shorter are outside: only the slow ones among them stood out of the measurement's own
    /// overhead, so that the fit knows nothing of the others.
    pub shortest: Seconds,
    /// The monomials that the Lasso selected, in its order.
    pub terms: Vec<Term>,
    /// What is added where the library runs a certain engine.
    pub engines: Vec<EngineTerms>,
    /// Variables are clamped to what the fitted rows had.
    pub clamp: Vec<Range>,
    /// In-domain means within what the fitted rows had.
    pub domain: Vec<Range>,
    /// Where the fitted rows' sizes lie within that box.
    pub sizes: Ellipsoid,
    /// Rows that it was fitted to.
    pub rows: usize,
    /// Errors on folds that the fit did not see; a fold holds whole shapes.
    pub cross_validation: CrossValidation,
    /// Quantiles of held-out log residuals by predicted time, shortest first.
    pub residuals: Vec<Bucket>,
    /// For evaluation; the default, wherever a model is made.
    pub compiled: Compiled,
}

/// What a model's rows by one engine of a library differ by from the model.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineTerms {
    /// The engine with its knobs, or the engine alone, with whatever knobs.
    pub engine: String,
    /// Rows by it.
    pub rows: usize,
    /// The constant of what is added to ln(t / t_ref).
    pub intercept: f64,
    /// Its monomials.
    pub terms: Later<Term>,
    /// Its sum stays between these, the smallest of the fitted rows and their 99 % quantile.
    pub range: (f64, f64),
    /// Variables are clamped to what its rows had.
    pub clamp: Later<Range>,
    /// For evaluation; the default, wherever they are made.
    pub compiled: Compiled,
}

impl EngineTerms {
    /// The variables that it reads.
    pub fn reads(&self) -> Wanted {
        self.polynomial().reads
    }

    /// Its sum before it is clamped.
    pub(crate) fn polynomial(&self) -> &Bounded {
        let polynomial = || Polynomial::new(self.intercept, &self.terms);
        self.compiled.get(|| Bounded::new(polynomial(), &self.clamp, variables_of(&self.terms).collect()))
    }

    /// What it adds to ln(t / t_ref) for these variables.
    pub fn log(&self, variables: &Variables) -> f64 {
        self.polynomial().of_one(&variables.values).clamp(self.range.0, self.range.1)
    }
}

/// The variables of terms, as often as they are there.
fn variables_of(terms: &[Term]) -> impl Iterator<Item = usize> {
    terms.iter().flat_map(|term| &term.factors).map(|factor| factor.variable)
}

/// The part of an engine's name before its knobs: `eng70` of `eng70{2=12,18=0}`.
pub fn engine_alone(engine: &str) -> &str {
    engine.split('{').next().unwrap_or(engine)
}

/// Intercept and terms as they are.
fn sum(intercept: f64, terms: &[Term], values: &[f64]) -> f64 {
    let term = |t: &Term| t.coefficient * (t.monomial(values) - t.mean) / t.scale;
    intercept + terms.iter().map(term).sum::<f64>()
}

/// A kind, phase and precision whose rows are in a model of several.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cover {
    /// Whose rows they are.
    pub key: ModelKey,
    /// Which kernel of the layer: forward, gradient of the data, gradient of the weights, or update.
    pub phase: Phase,
    /// Format of the operands of the rows.
    pub precision: Precision,
}

impl Cover {
    /// Whether it is what a model is for: one of what that was fitted to, of a model of several.
    pub(super) fn is_among(&self, own: &Self, covers: &[Self]) -> bool {
        if covers.is_empty() { self == own } else { covers.contains(self) }
    }
}

/// Range of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Position in [`Family::variables`].
    pub variable: usize,
    /// The smallest that fitted rows had.
    pub low: f64,
    /// The largest that fitted rows had.
    pub high: f64,
}

impl Range {
    /// How far a value lies outside of it; negative within.
    pub(crate) fn outside(&self, variables: &Variables) -> f64 {
        let value = variables.values[self.variable];
        (self.low - value).max(value - self.high)
    }
}

/// Centre and extent of the fitted rows' sizes: leverage of a new row without the rows themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ellipsoid {
    /// Positions of the variables that vary.
    pub variables: Vec<usize>,
    /// Means of these variables over the fitted rows.
    pub mean: Vec<f64>,
    /// Standard deviations of these variables over the fitted rows.
    pub scale: Vec<f64>,
    /// Inverse of their correlation matrix, row by row.
    pub inverse: Vec<f64>,
}

impl Ellipsoid {
    /// D^2 as a polynomial of the variables.
    pub(crate) fn distance(&self) -> Polynomial {
        let d = self.variables.len();
        let weight = |i: usize, j: usize| self.inverse[i * d + j] / (self.scale[i] * self.scale[j]);
        let mut terms = Terms::new(0.0, 3 * d * d);
        for (i, j) in (0..d).flat_map(|i| (0..d).map(move |j| (i, j))) {
            let (weight, at) = (weight(i, j), |i: usize| self.variables[i]);
            terms.push(weight * self.mean[i] * self.mean[j], []);
            terms.push(weight, [at(i), at(j)]);
            terms.push(-weight * self.mean[j], [at(i)]);
            terms.push(-weight * self.mean[i], [at(j)]);
        }
        terms.grouped()
    }

    /// The distance D^2 from which on a row has more leverage than [`MOST_LEVERAGE`] times the mean.
    pub(crate) fn farthest(&self) -> f64 {
        MOST_LEVERAGE * (1.0 + self.variables.len() as f64) - 1.0
    }

    /// A row's leverage over the mean leverage of the fitted rows: (1 + D^2) / (1 + d), D the Mahalanobis distance
    /// in d variables.
    pub fn relative_leverage(&self, values: &[f64]) -> f64 {
        let d = self.variables.len();
        let mut z = [0.0; MAX_VARIABLES];
        for (i, z) in z[..d].iter_mut().enumerate() {
            *z = (values[self.variables[i]] - self.mean[i]) / self.scale[i];
        }
        let product = |row: &[f64]| row.iter().zip(&z).map(|(inverse, z)| inverse * z).sum::<f64>();
        let rows = self.inverse.chunks(d.max(1));
        let distance: f64 = z[..d].iter().zip(rows).map(|(z, row)| z * product(row)).sum();
        (1.0 + distance) / (1.0 + d as f64)
    }
}

/// The same of few variables, as it is worked out side by side; what is beyond their number is zero.
#[derive(Debug)]
pub(super) struct SideBySide {
    variables: [usize; LANES],
    mean: [f64; LANES],
    scale: [f64; LANES],
    inverse: [[f64; LANES]; LANES],
    /// 1 + d.
    count: f64,
}

impl SideBySide {
    /// `None` of more than there is room for.
    fn of(sizes: &Ellipsoid) -> Option<Self> {
        let d = sizes.variables.len();
        let mut of = Self {
            variables: [0; LANES],
            mean: [0.0; LANES],
            scale: [f64::INFINITY; LANES],
            inverse: [[0.0; LANES]; LANES],
            count: 1.0 + d as f64,
        };
        of.variables.get_mut(..d)?.copy_from_slice(&sizes.variables);
        of.mean[..d].copy_from_slice(&sizes.mean);
        of.scale[..d].copy_from_slice(&sizes.scale);
        let rows = of.inverse.iter_mut().zip(sizes.inverse.chunks(d.max(1)));
        rows.for_each(|(own, row)| own[..d].copy_from_slice(row));
        Some(of)
    }

    /// As [`Ellipsoid::relative_leverage`].
    fn relative_leverage(&self, values: &[f64; MAX_VARIABLES]) -> f64 {
        let mut at = [0.0; LANES];
        at.iter_mut().zip(&self.variables).for_each(|(at, variable)| *at = values[*variable]);
        Lanes::by_widest(
            #[inline(always)]
            || {
                let z = (Lanes(at) - Lanes(self.mean)) / Lanes(self.scale);
                let rows = z.0.iter().zip(&self.inverse);
                let product = rows.fold(Lanes([0.0; LANES]), |sum, (z, row)| sum + Lanes(*row) * *z);
                let [a, b, c, d, e, f, g, h] = (product * z).0;
                (1.0 + (((a + b) + (c + d)) + ((e + f) + (g + h)))) / self.count
            },
        )
    }
}

/// Accuracy on held-out folds of this chip's rows, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossValidation {
    /// Mean of 100 |predicted / measured - 1|.
    pub mape: f64,
    /// Root of the mean square of 100 (predicted / measured - 1).
    pub rmspe: f64,
    /// Median of 100 |predicted / measured - 1|.
    pub median: f64,
}

/// Held-out log residuals ln(measured / predicted) of rows predicted to take at most `up_to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Longest predicted time; infinite for the last.
    pub up_to: Seconds,
    /// Lower quantile of the split-conformal 90 % interval.
    pub low: f64,
    /// Upper quantile of the same interval.
    pub high: f64,
    /// Residuals that the quantiles are of.
    pub rows: usize,
}

/// A predicted logarithm with whether it is inside what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// ln(t / t_ref).
    pub log: f64,
    /// Whether every variable lies within the fitted rows.
    pub in_domain: bool,
}

/// Slack on the edges of a range, whose ends are rounded to six digits: a tenth of a percent of a size.
pub(crate) const EDGE: f64 = 1e-3;

/// More leverage than this many times the mean is outside of what was measured.
const MOST_LEVERAGE: f64 = 3.0;

impl LayerModel {
    /// Whether it predicts a kind in a phase and precision, through a framework's own kernels or the library's.
    pub fn is_for(&self, key: ModelKey, phase: Phase, precision: Precision, framework: Option<&str>) -> bool {
        let own = Cover { key: self.key, phase: self.phase, precision: self.precision };
        let asked = Cover { key, phase, precision };
        self.framework.as_deref() == framework && asked.is_among(&own, &self.covers)
    }

    /// First and last age of the libraries that the rows had ([`crate::kernel::features::library_age`]); `None` where the model does
    /// not depend on it.
    pub fn library_ages(&self) -> Option<(f64, f64)> {
        let age = self.family.position("library")?;
        let known = self.terms.iter().flat_map(|t| &t.factors).any(|f| f.variable == age);
        let range = self.clamp.iter().find(|r| r.variable == age && r.low < r.high).filter(|_| known)?;
        Some((range.low, range.high))
    }

    /// The variables that it reads where the library runs an engine: those of its terms, of that engine's terms, and of what
    /// was fitted.
    pub fn reads(&self, engine: Option<&str>) -> Wanted {
        self.reads_by(engine.and_then(|engine| self.engine(engine)))
    }

    /// The same with these terms of an engine.
    pub(crate) fn reads_by(&self, engine: Option<&EngineTerms>) -> Wanted {
        let own = self.polynomial_of().reads;
        engine.map_or(own, |engine| own.or(engine.reads()))
    }

    /// The same whatever engine runs.
    pub(crate) fn reads_of_all(&self) -> Wanted {
        self.engines.iter().fold(self.reads(None), |reads, engine| reads.or(engine.reads()))
    }

    /// The variables that say whether a kernel lies within what was fitted.
    pub(crate) fn bounding(&self) -> Wanted {
        self.compiled.bounding(|| {
            self.domain.iter().map(|range| range.variable).chain(self.sizes.variables.iter().copied()).collect()
        })
    }

    /// Intercept and terms as they are evaluated.
    pub(crate) fn polynomial_of(&self) -> &Bounded {
        let reads = || self.bounding().or(variables_of(&self.terms).collect());
        self.compiled.get(|| Bounded::new(Polynomial::new(self.intercept, &self.terms), &self.clamp, reads()))
    }

    /// The terms of an engine: with its knobs, or whatever knobs, where it has such.
    pub fn engine(&self, engine: &str) -> Option<&EngineTerms> {
        let places = self.compiled.places(|| {
            Places::of(self.engines.iter().enumerate().map(|(place, engine)| (engine.engine.as_str(), place)))
        });
        let named = |name: &str| places.of_key(name).map(|place| &self.engines[place]).find(|e| e.engine == name);
        named(engine).or_else(|| named(engine_alone(engine)))
    }

    /// ln(t / t_ref) for these variables and this t_ref, clamped to the fitted ranges, by an engine of the library where one
    /// is known or foreseen.
    pub fn ratio(&self, variables: &Variables, reference: Seconds, engine: Option<&str>) -> Ratio {
        self.ratio_by(variables, reference, engine.and_then(|engine| self.engine(engine)))
    }

    /// Whether a kernel of these variables and this t_ref lies within what was fitted.
    pub(crate) fn has_within(&self, variables: &Variables, reference: Seconds) -> bool {
        let values = &variables.values;
        reference >= self.shortest
            && self.domain.iter().all(|r| values[r.variable] >= r.low - EDGE && values[r.variable] <= r.high + EDGE)
            && self.leverage_of(values) <= MOST_LEVERAGE
    }

    /// [`Ellipsoid::distance`] of its sizes.
    pub(crate) fn distance(&self) -> &Bounded {
        self.compiled.distance(|| Bounded::new(self.sizes.distance(), &[], self.bounding()))
    }

    /// [`Ellipsoid::relative_leverage`] of its sizes.
    fn leverage_of(&self, values: &[f64; MAX_VARIABLES]) -> f64 {
        let known = self.compiled.sizes(|| SideBySide::of(&self.sizes));
        known.as_ref().map_or_else(|| self.sizes.relative_leverage(values), |sizes| sizes.relative_leverage(values))
    }

    /// As [`Self::ratio`], by these terms of an engine.
    pub(crate) fn ratio_by(&self, variables: &Variables, reference: Seconds, engine: Option<&EngineTerms>) -> Ratio {
        let by_engine = engine.map_or(0.0, |engine| engine.log(variables));
        let in_domain = self.has_within(variables, reference);
        let (low, high) = if in_domain { self.ratio_range } else { self.ordinary_range };
        let log = self.polynomial_of().of_one(&variables.values).clamp(low, high);
        Ratio { log: log + by_engine, in_domain }
    }

    /// The size that lies farthest above what was fitted, and how far, 0 where none does; `None` where one lies outside, on
    /// either side, that is not among those `moving`.
    pub(crate) fn farthest_above(&self, variables: &Variables, moving: Wanted) -> Option<(usize, f64)> {
        let mut farthest = (0, 0.0);
        for range in &self.domain {
            let value = variables.values[range.variable];
            let (below, above) = (range.low - value - EDGE, value - range.high - EDGE);
            if below.max(above) > 0.0 && !moving.has(range.variable) {
                return None;
            }
            if above > farthest.1 {
                farthest = (range.variable, above);
            }
        }
        Some(farthest)
    }

    /// Whether one of some sizes lies outside of what was fitted and no nearer to it than that of other variables.
    pub(crate) fn comes_no_nearer(&self, sizes: Wanted, from: &Variables, to: &Variables) -> bool {
        let mut asked = self.domain.iter().filter(|r| sizes.has(r.variable));
        asked.any(|r| r.outside(to) > EDGE && r.outside(to) >= r.outside(from))
    }

    /// The sum of intercept and terms as it is, wherever the values lie.
    pub fn polynomial(&self, values: &[f64]) -> f64 {
        sum(self.intercept, &self.terms, values)
    }

    /// The conformal quantiles for a predicted time.
    pub fn bucket(&self, time: Seconds) -> Option<&Bucket> {
        self.residuals.iter().find(|b| time <= b.up_to).or(self.residuals.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leverage_grows_with_the_distance_from_the_rows() {
        let sizes = Ellipsoid {
            variables: vec![0, 2],
            mean: vec![1.0, 2.0],
            scale: vec![2.0, 1.0],
            inverse: vec![1.0, 0.0, 0.0, 1.0],
        };
        assert!((sizes.relative_leverage(&[1.0, 9.0, 2.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert!((sizes.relative_leverage(&[5.0, 9.0, 0.0]) - 3.0).abs() < 1e-12);
        assert_eq!(Ellipsoid::default().relative_leverage(&[]), 1.0);
        let skewed = Ellipsoid { inverse: vec![1.5, -0.5, -0.5, 1.25], ..sizes };
        let sides = SideBySide::of(&skewed).expect("few");
        for values in [[1.0, 9.0, 2.0], [5.0, 9.0, 0.0], [-3.0, 9.0, 4.0]] {
            let mut all = [0.0; 256];
            all[..values.len()].copy_from_slice(&values);
            let some = std::array::from_fn(|i| all[i]);
            assert!((sides.relative_leverage(&some) - skewed.relative_leverage(&values)).abs() < 1e-12);
            let leverage = (1.0 + skewed.distance().at(&all)) / 3.0;
            assert!((leverage - skewed.relative_leverage(&values)).abs() < 1e-12);
        }
        assert_eq!((1.0 + skewed.farthest()) / 3.0, MOST_LEVERAGE);
    }
}
