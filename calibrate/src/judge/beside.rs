//! A fit of one board's rows beside the shipped calibration, on the same rows: what measuring that board brought.
//!
//! The fit is judged by what it would ship: a fold of whole shapes is predicted by the calibration that the same fit makes of
//! the other folds' rows. The shipped calibration is taken as it is.

use crate::fit::folds::grouped;
use crate::fit::power;
use crate::rows::prepare::prepare_alike;
use anyhow::{Context, Result};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::law::lookup::find;
use joulecast_model::law::power::PowerModel;
use joulecast_model::law::time::time;
use joulecast_model::rows::measurement::{Measurement, Regime};
use joulecast_reports::beside::{Line, Score};
use std::collections::{BTreeMap, HashMap};

/// Folds of whole shapes, as fits have them.
pub const FOLDS: usize = 5;
/// Seed of the folds.
const SEED: u64 = 1;
/// Shorter kernels are mostly launch.
const LONG: Seconds = Seconds::from_us(20.0);

/// What predicts: the models of a GPU's chip, where there are any, over those of all chips.
#[derive(Clone, Copy)]
struct Basis<'a> {
    chip: Option<&'a Calibration>,
    all: &'a Calibration,
}

impl Basis<'_> {
    /// The burst of a trial as `predict` foresees the kernel; `None` where no model does.
    fn time(&self, measurement: &Measurement, gpu: &Gpu) -> Result<Option<Predicted>> {
        let work = measurement.work()?;
        let cost = work.cost()?.context("no kernel runs in this phase")?;
        let work = work.twin().unwrap_or(work);
        let computed = gpu.computes_in(work.precision).unwrap_or(work.precision);
        let found = find(self.chip, self.all, work.key(), work.family(), work.phase, computed);
        let Some(found) = found.map(|f| f.on_board(self.chip, &gpu.name)) else { return Ok(None) };
        let Some(view) = found.model.view(work, cost, gpu, None, self.chip) else { return Ok(None) };
        let timed = time(view.seen(), &found, self.all.siblings(found.tier));
        let (value, measured) = (timed.value.get(), measurement.time_s);
        let within = timed.edges.map(|(low, high)| (value * low..=value * high).contains(&measured));
        Ok(Some(Predicted { measured, predicted: value, within }))
    }

    fn power(&self) -> Option<&PowerModel> {
        self.chip.and_then(|c| c.power.as_ref()).or(self.all.power.as_ref())
    }
}

/// A measured value beside a predicted one.
#[derive(Clone, Copy, Debug)]
struct Predicted {
    measured: f64,
    predicted: f64,
    /// Whether the 90 % interval holds it; `None` where there is no interval.
    within: Option<bool>,
}

/// Pairs of both calibrations, row by row.
#[derive(Default)]
struct Tally {
    before: Vec<Predicted>,
    after: Vec<Predicted>,
}

fn score(pairs: &[Predicted]) -> Option<Score> {
    let accuracy = Accuracy::of(pairs.iter().map(|p| (p.measured, p.predicted)))?;
    let judged: Vec<bool> = pairs.iter().filter_map(|p| p.within).collect();
    let held = judged.iter().filter(|within| **within).count();
    let held = (!judged.is_empty()).then(|| 100.0 * held as f64 / judged.len() as f64);
    Some(Score { mape: accuracy.mape, median: accuracy.median, bias: accuracy.bias, held })
}

/// What a kind is told with.
fn kinds(key: ModelKey, family: Family) -> &'static str {
    match (key, family) {
        (ModelKey::Conv(_), _) => "convolutions",
        (_, Family::Gemm) => "matrix products",
        (_, Family::Stream) => "memory-bound kinds",
    }
}

/// Lines of the table, in order.
const LINES: [&str; 5] = ["convolutions", "matrix products", "memory-bound kinds", ALL, ALL_LONG];
const ALL: &str = "all";
const ALL_LONG: &str = "all above 20 us";
const POWER: &str = "power";

/// Times and power of a board's rows by the shipped calibration, and by fits that had not seen their shapes. `fit` makes a
/// calibration of the board's chip out of rows.
///
/// # Errors
/// When a fit fails, or a row is not of the catalog's GPUs.
pub fn lines(
    measurements: &[Measurement],
    gpu: &Gpu,
    fit: impl Fn(&[Measurement]) -> Result<Option<Calibration>>,
) -> Result<Vec<Line>> {
    let all = catalog::all_chips()?;
    let shipped = catalog::calibration_for(gpu)?;
    let shipped = Basis { chip: shipped.as_ref(), all: &all };
    // What is fitted is judged, but for algorithms that were asked for, of which nothing else speaks.
    let rows = prepare_alike(measurements)?;
    let prepared: HashMap<&str, (ModelKey, Family)> =
        rows.iter().map(|r| (r.row_id.as_str(), (r.model, r.family))).collect();
    let keys: Vec<String> = measurements.iter().map(|m| m.case.fold_key()).collect();
    let folds = grouped(&keys.iter().map(String::as_str).collect::<Vec<_>>(), FOLDS, SEED);
    let energies = power::rows(measurements, &rows)?.remove(&gpu.chip).unwrap_or_default();
    let power_folds: HashMap<&str, usize> = keys.iter().map(String::as_str).zip(folds.iter().copied()).collect();
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for number in 0..FOLDS {
        let seen: Vec<Measurement> =
            measurements.iter().zip(&folds).filter(|(_, f)| **f != number).map(|(m, _)| m.clone()).collect();
        let fitted = fit(&seen)?;
        let fitted = Basis { chip: fitted.as_ref(), all: &all };
        for (m, _) in measurements.iter().zip(&folds).filter(|(m, f)| **f == number && m.regime == Regime::Burst) {
            let Some((key, family)) = prepared.get(m.row_id.as_str()) else { continue };
            let of = |basis: Basis<'_>| basis.time(m, gpu).with_context(|| format!("row {}", m.row_id));
            let (Some(before), Some(after)) = (of(shipped)?, of(fitted)?) else { continue };
            let long = (m.time_s > LONG.get()).then_some(ALL_LONG);
            for line in [Some(kinds(*key, *family)), Some(ALL), long].into_iter().flatten() {
                let tally = tallies.entry(line).or_default();
                tally.before.push(before);
                tally.after.push(after);
            }
        }
        for row in energies.iter().filter(|r| power_folds.get(r.key.as_str()) == Some(&number)) {
            let of = |law: &PowerModel| {
                let (measured, predicted) = (row.measured(), row.foreseen(law));
                let (low, high) = law.residuals;
                let within = Some((low..=high).contains(&(measured / predicted).ln()));
                Predicted { measured, predicted, within }
            };
            let (Some(before), Some(after)) = (shipped.power(), fitted.power()) else { continue };
            let tally = tallies.entry(POWER).or_default();
            tally.before.push(of(before));
            tally.after.push(of(after));
        }
    }
    let line = |name: &&str| {
        let tally = tallies.get(name)?;
        let (before, after) = (score(&tally.before)?, score(&tally.after)?);
        Some(Line { rows_of: name.to_string(), rows: tally.before.len(), before, after })
    };
    Ok(LINES.iter().chain([&POWER]).filter_map(line).collect())
}

/// The line that sums up all times.
pub fn of_all(lines: &[Line]) -> Option<&Line> {
    lines.iter().find(|l| l.rows_of == ALL)
}

/// The line of power, where it was measured often enough.
pub fn of_power(lines: &[Line]) -> Option<&Line> {
    lines.iter().find(|l| l.rows_of == POWER)
}
