//! Fitting the power law to sustained rows: non-negative least squares on activities at the clock that was observed, then a
//! sparse polynomial for what that leaves.

mod correction;

use crate::fit::folds::grouped;
use crate::fit::least_squares;
use crate::fit::polynomial::Options;
use crate::rows::prepare::Row;
use anyhow::Result;
use joulecast_model::base::accuracy::{Accuracy, conformal};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::units::Hertz;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::power::{Activities, COUNT, PowerModel, Traits, waiting};
use joulecast_model::rows::measurement::{Measurement, Regime};
use joulecast_reports::accuracy::Power;
use ndarray::{Array1, Array2};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Fewer rows give no law.
const FEWEST: usize = 60;
/// Exponents of the clock to choose from.
const EXPONENTS: [f64; 5] = [1.0, 1.5, 2.0, 2.5, 3.0];
/// Rows whose clock is below this share of the highest were held back by the power limit.
const THROTTLED: f64 = 0.97;

/// A sustained row ready for fitting.
#[derive(Clone, Debug)]
pub struct PowerRow {
    /// Cross-validation keeps rows with one key together.
    pub key: String,
    /// Layer kind.
    pub kind: &'static str,
    /// Precision.
    pub precision: Precision,
    activities: Activities,
    traits: Traits,
    /// Mean clock over the boost clock.
    clock: f64,
    /// That clock.
    core: Hertz,
    /// Power above waiting, as a share of the range up to the limit.
    share: f64,
    /// Waiting power over that range.
    waiting: f64,
}

impl PowerRow {
    fn predicted(&self, law: &PowerModel, clock: f64) -> f64 {
        self.waiting + law.drives(&self.activities, &self.traits).total() * clock.powf(law.exponent)
    }

    /// Power above waiting by the law alone at the clock that was observed.
    fn by_law(&self, law: &PowerModel) -> f64 {
        law.uncorrected(&self.activities).total() * self.clock.powf(law.exponent)
    }

    /// Measured power, as a share of the range.
    pub fn measured(&self) -> f64 {
        self.waiting + self.share
    }

    /// Power as it is before anything runs: the clock is not known, but the limit is.
    pub fn foreseen(&self, law: &PowerModel) -> f64 {
        self.predicted(law, 1.0).min(law.headroom * (1.0 + self.waiting))
    }
}

/// Sustained rows by chip, each with the full-clock time of its trial.
///
/// # Errors
/// When a row is of an unknown GPU.
pub fn rows(measurements: &[Measurement], times: &[Row]) -> Result<BTreeMap<String, Vec<PowerRow>>> {
    // Boards of one chip may have run the same trial.
    let bursts: HashMap<(&str, &str), &Row> = times
        .iter()
        .filter(|r| r.own && r.framework.is_none() && !r.model.is_asked_for())
        .map(|r| ((r.board.as_str(), r.trial_id.as_str()), r))
        .collect();
    let mut gpus: HashMap<&str, Gpu> = HashMap::new();
    let mut by_chip: BTreeMap<String, Vec<PowerRow>> = BTreeMap::new();
    let free = |m: &&Measurement| m.regime == Regime::Sustained && m.usable() && m.core_mhz_requested.is_none();
    for m in measurements.iter().filter(free) {
        let (Some(burst), Some(watts), Some(mhz)) = (bursts.get(&(m.gpu.as_str(), m.trial_id.as_str())), m.power_w, m.core_mhz_mean)
        else {
            continue;
        };
        let gpu = match gpus.entry(&m.gpu) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(catalog::gpu(&m.gpu)?),
        };
        let waiting = waiting(gpu).get();
        let range = gpu.power.limit.value.get() - waiting;
        by_chip.entry(gpu.chip.clone()).or_default().push(PowerRow {
            key: burst.key.clone(),
            kind: burst.kind,
            precision: m.precision,
            activities: burst.activities,
            traits: burst.traits,
            clock: mhz / gpu.core_clock.boost.value.to_mhz(),
            core: Hertz::from_mhz(mhz),
            share: (watts - waiting) / range,
            waiting: waiting / range,
        });
    }
    Ok(by_chip)
}

/// Fits a law; `None` with too few rows. Also returns what laws without a row's fold foresee for it, as a share of the
/// range.
///
/// # Errors
/// When the law's correction has no solution.
pub fn fit(rows: &[PowerRow], options: &Options) -> Result<Option<(PowerModel, Vec<f64>)>> {
    if rows.len() < FEWEST {
        return Ok(None);
    }
    let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
    let fold_of = grouped(&keys, options.folds, options.seed);
    let headroom = headroom(rows);
    let clocks = rows.iter().fold(None, |range: Option<(Hertz, Hertz)>, r| {
        Some(range.map_or((r.core, r.core), |(low, high)| (low.min(r.core), high.max(r.core))))
    });
    let mut best: Option<(f64, PowerModel, Vec<PowerModel>)> = None;
    for exponent in EXPONENTS {
        let law = |coefficients| PowerModel {
            coefficients,
            correction: None,
            exponent,
            headroom,
            residuals: (0.0, 0.0),
            mape: 0.0,
            rows: rows.len(),
            clocks,
        };
        let everything: Vec<&PowerRow> = rows.iter().collect();
        let mut without = Vec::new();
        let mut error = 0.0;
        for fold in 0..options.folds {
            let train: Vec<&PowerRow> = (0..rows.len()).filter(|&i| fold_of[i] != fold).map(|i| &rows[i]).collect();
            let model = law(non_negative(&train, exponent));
            for i in (0..rows.len()).filter(|&i| fold_of[i] == fold) {
                error += (rows[i].predicted(&model, rows[i].clock) / rows[i].measured() - 1.0).abs();
            }
            without.push(model);
        }
        if best.as_ref().is_none_or(|(e, ..)| error < *e) {
            best = Some((error, law(non_negative(&everything, exponent)), without));
        }
    }
    let Some((_, law, without)) = best else { return Ok(None) };
    let (correction, held) = correction::Task::new(rows).fit(&law, &without, &fold_of)?;
    let corrected = |law: PowerModel, c| PowerModel { correction: Some(c), ..law };
    let model = corrected(law, correction);
    let without: Vec<PowerModel> = without.into_iter().zip(held).map(|(law, c)| corrected(law, c)).collect();
    let held_out: Vec<f64> = rows.iter().zip(&fold_of).map(|(row, &fold)| row.foreseen(&without[fold])).collect();
    let pairs = || rows.iter().zip(&held_out).map(|(r, p)| (r.measured(), *p));
    let residuals: Vec<f64> = pairs().map(|(m, p)| (m / p).ln()).collect();
    let (Some(accuracy), Some(residuals)) = (Accuracy::of(pairs()), conformal(&residuals, 0.9)) else {
        return Ok(None);
    };
    Ok(Some((PowerModel { residuals, mape: accuracy.mape, ..model }, held_out)))
}

/// Held-out power by kind and precision, foreseen without knowing the clock.
pub fn lines(chip: &str, rows: &[PowerRow], held_out: &[f64]) -> Vec<Power> {
    let mut groups: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for (row, foreseen) in rows.iter().zip(held_out) {
        for key in [(row.kind, row.precision.name()), ("all", "all")] {
            groups.entry(key).or_default().push((row.measured(), *foreseen));
        }
    }
    let line = |((kind, precision), pairs): ((&str, &str), Vec<(f64, f64)>)| {
        let accuracy = Accuracy::of(pairs)?;
        Some(Power { chip: chip.into(), kind: kind.into(), precision: precision.into(), accuracy })
    };
    groups.into_iter().filter_map(line).collect()
}

/// The power at which throttled rows settle, as a share of the limit: their median.
fn headroom(rows: &[PowerRow]) -> f64 {
    let mut held: Vec<f64> =
        rows.iter().filter(|r| r.clock < THROTTLED).map(|r| r.measured() / (1.0 + r.waiting)).collect();
    held.sort_by(f64::total_cmp);
    held.get(held.len() / 2).copied().unwrap_or(1.0).min(1.0)
}

/// Least squares of relative errors with coefficients at least zero.
fn non_negative(rows: &[&PowerRow], exponent: f64) -> Activities {
    let n = rows.len();
    let x = Array2::from_shape_fn((n, COUNT), |(i, j)| {
        rows[i].activities[j] * rows[i].clock.powf(exponent) / rows[i].measured()
    });
    let y = Array1::from_iter(rows.iter().map(|r| r.share / r.measured()));
    let c = least_squares::non_negative(&x, &y);
    let mut coefficients = [0.0; COUNT];
    coefficients.iter_mut().zip(&c).for_each(|(to, from)| *to = *from);
    coefficients
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::law::power::TRAITS;

    #[test]
    fn a_known_law_is_found() {
        let mut known = [0.0; COUNT];
        (known[0], known[1], known[7]) = (0.3, 0.4, 0.9);
        let rows: Vec<PowerRow> = (0..200)
            .map(|i| {
                let mut list = [0.0; COUNT];
                (list[0], list[1]) = (f64::from(i % 7) / 7.0, 0.1 * f64::from(i % 10));
                list[7] = 0.005 * f64::from(i);
                let clock = if i % 3 == 0 { 0.8 } else { 1.0 };
                let share = known.iter().zip(&list).map(|(c, a)| c * a).sum::<f64>() * f64::powf(clock, 2.0);
                PowerRow {
                    key: format!("{i}"),
                    kind: "linear",
                    precision: Precision::Fp16,
                    activities: list,
                    traits: [0.0; TRAITS.len()],
                    clock,
                    core: Hertz::from_mhz(1980.0 * clock),
                    share,
                    waiting: 0.2,
                }
            })
            .collect();
        let (model, held_out) = fit(&rows, &Options::default()).expect("a solution").expect("enough rows");
        assert_eq!((model.exponent, held_out.len()), (2.0, rows.len()));
        for (found, known) in model.coefficients.iter().zip(known) {
            assert!((found - known).abs() < 0.02, "{model:?}");
        }
        assert!(fit(&rows[..10], &Options::default()).expect("no failure").is_none());
    }
}
