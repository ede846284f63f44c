//! Fitting the power law to sustained rows: non-negative least squares on activities at the clock and the time that were
//! observed, then a sparse polynomial for what that leaves.
//!
//! The time of the sustained run itself counts, not what a kernel would take at that clock if it took its burst's at the full
//! one: bursts of heavy kernels are held, too, though less. Taking their rates as those of the full clock makes
//! power look nearly linear in the clock. And a held row's power is the limit, whatever the kernel: what it tells is at which
//! clock. Whichever draws more than the law says runs at a lower one, so that errors of power at the observed clock
//! go with that clock, and least squares of them find too flat a curve. Errors are therefore of what a kernel
//! would draw at the full clock, and [`likelihood`] compares curves by the density of what was observed: power, or the clock.

mod correction;

use crate::fit::folds::grouped;
use crate::fit::least_squares;
use crate::fit::polynomial::Options;
use crate::rows::prepare::Row;
use anyhow::Result;
use joulecast_model::base::accuracy::{Accuracy, conformal};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::units::{Hertz, Seconds, Watts};
use joulecast_model::catalog;
use joulecast_model::device::clock::{Clocks, VoltageCurve, slowdown};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::power::{
    Activities, COUNT, ClockLaw, Drives, PowerModel, Traits, drives, power, waiting, waiting_at,
};
use joulecast_model::rows::measurement::{Measurement, Regime};
use joulecast_model::step::predictor::highest;
use joulecast_reports::accuracy::Power;
use ndarray::{Array1, Array2};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Fewer rows give no law.
const FEWEST: usize = 60;
/// Power of bursts over the limit to choose from, the last being none.
const BURSTS: (f64, f64, usize) = (1.0, 0.05, 41);
/// Rounds of finding what held rows would draw at full clock.
const ROUNDS: usize = 8;
/// Shorter kernels do not compare curves: what they draw is launches, which the law knows little of.
const SHORTEST: Seconds = Seconds::from_us(20.0);
/// No row counts as drawing less, as a share of the range.
const LEAST: f64 = 1e-6;
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
    curve: VoltageCurve,
    power: Watts,
    /// Time over that of its trial's burst.
    slowdown: f64,
    /// Time of the burst, and what its traffic takes at the peak bandwidth.
    burst: (Seconds, Seconds),
    board: Gpu,
    /// That clock.
    core: Hertz,
}

impl PowerRow {
    /// How the voltage of its board is taken to follow the clock.
    pub fn curve(&self) -> VoltageCurve {
        self.curve
    }

    /// The range that shares are of: from waiting at the full clock to the limit.
    fn range(&self) -> f64 {
        self.board.power.limit.value.get() - waiting(&self.board).get()
    }

    /// Power above waiting at a clock at which this was drawn, as a share.
    fn above(&self, clock: f64) -> f64 {
        let level = ClockLaw::Voltage(self.curve).level(clock);
        (self.power.get() - waiting_at(&self.board, level).get()) / self.range()
    }

    /// What a law says of power above waiting at a clock, as a share; the time follows the clock from the observed one on.
    fn share(&self, drives: Drives, clock: f64) -> f64 {
        let (time, traffic) = self.burst;
        let to = |core| Clocks { core, memory: 1.0 };
        let moved = slowdown(traffic, time * self.slowdown, to(self.clock), to(clock));
        drives.share(ClockLaw::Voltage(self.curve).level(clock), self.slowdown * moved)
    }

    /// What it would draw above waiting at full clock in the time of its burst, by how a law follows the clock.
    fn demand(&self, drives: Drives) -> f64 {
        let (observed, full) = (self.share(drives, self.clock), drives.total());
        let above = self.above(self.clock);
        if self.is_held() && observed > 0.0 { above * full / observed } else { above }
    }

    /// Whether the power limit held it.
    fn is_held(&self) -> bool {
        self.clock < THROTTLED
    }

    /// ln of how much more it draws above waiting than a law says, and how fast that falls with the logarithm of the clock.
    fn excess(&self, law: &PowerModel) -> (f64, f64) {
        const STEP: f64 = 1e-4;
        let drives = law.drives(&self.activities, &self.traits);
        let at = |clock: f64| (self.above(clock).max(LEAST) / self.share(drives, clock).max(LEAST)).ln();
        let excess = at(self.clock);
        (excess, (excess - at(self.clock * (1.0 + STEP))) / STEP)
    }

    /// ln of its time over what is expected at its clock if its burst drew `burst` times the limit.
    fn off_pace(&self, law: &PowerModel, burst: f64) -> f64 {
        let drives = law.drives(&self.activities, &self.traits);
        let clock_law = ClockLaw::Voltage(self.curve);
        let limit = self.board.power.limit.value * burst;
        let drawn = |core: f64| power(&self.board, drives, clock_law.level(core), 1.0) / limit - 1.0;
        let reference = highest(self.clock.min(1.0), 1.0, drawn).unwrap_or(self.clock);
        let clock = |core| Clocks { core, memory: 1.0 };
        let (time, traffic) = self.burst;
        (self.slowdown / slowdown(traffic, time, clock(reference), clock(self.clock.min(reference)))).ln()
    }

    /// Measured power, as a share of the range.
    pub fn measured(&self) -> f64 {
        self.power.get() / self.range()
    }

    /// The limit, as a share of the range.
    fn limit(&self) -> f64 {
        self.board.power.limit.value.get() / self.range()
    }

    /// Waiting power at the full clock, as a share of the range.
    fn waiting(&self) -> f64 {
        self.limit() - 1.0
    }

    /// Power as it is before anything runs: the clock is not known, but the limit is.
    pub fn foreseen(&self, law: &PowerModel) -> f64 {
        let drawn = self.waiting() + law.drives(&self.activities, &self.traits).total();
        drawn.min(law.headroom * self.limit())
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
        let (Some(burst), Some(watts), Some(mhz)) =
            (bursts.get(&(m.gpu.as_str(), m.trial_id.as_str())), m.power_w, m.core_mhz_mean)
        else {
            continue;
        };
        let gpu = match gpus.entry(&m.gpu) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(catalog::gpu(&m.gpu)?),
        };
        let clock = mhz / gpu.core_clock.boost.value.to_mhz();
        let time = burst.kernel_time();
        by_chip.entry(gpu.chip.clone()).or_default().push(PowerRow {
            key: burst.key.to_string(),
            kind: burst.kind,
            precision: m.precision,
            activities: burst.activities,
            traits: burst.traits,
            clock,
            curve: VoltageCurve::of(gpu),
            power: Watts::new(watts),
            slowdown: Seconds::new(m.time_s) / time,
            burst: (time, burst.roofline.traffic()),
            board: gpu.clone(),
            core: Hertz::from_mhz(mhz),
        });
    }
    Ok(by_chip)
}

/// A law of all rows, and those without each fold.
struct Laws {
    of_all: PowerModel,
    without: Vec<PowerModel>,
    fold_of: Vec<usize>,
}

fn laws(rows: &[PowerRow], options: &Options) -> Result<Option<Laws>> {
    if rows.len() < FEWEST {
        return Ok(None);
    }
    let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
    let fold_of = grouped(&keys, options.folds, options.seed);
    let headroom = headroom(rows);
    let clocks = rows.iter().fold(None, |range: Option<(Hertz, Hertz)>, r| {
        Some(range.map_or((r.core, r.core), |(low, high)| (low.min(r.core), high.max(r.core))))
    });
    let law = |rows: &[&PowerRow]| PowerModel {
        coefficients: non_negative(rows),
        correction: None,
        bandwidth: None,
        exponent: None,
        burst: None,
        headroom,
        residuals: (0.0, 0.0),
        mape: 0.0,
        rows: rows.len(),
        clocks,
    };
    let outside = |fold: usize| -> Vec<&PowerRow> {
        rows.iter().zip(&fold_of).filter(|(_, f)| **f != fold).map(|(r, _)| r).collect()
    };
    let without: Vec<PowerModel> = (0..options.folds).map(|fold| law(&outside(fold))).collect();
    let of_all = law(&rows.iter().collect::<Vec<_>>());
    let (correction, held) = correction::Task::new(rows).fit(&of_all, &without, &fold_of)?;
    let corrected = |law: PowerModel, c| PowerModel { correction: Some(c), ..law };
    let without = without.into_iter().zip(held).map(|(law, c)| corrected(law, c)).collect();
    Ok(Some(Laws { of_all: corrected(of_all, correction), without, fold_of }))
}

/// Fits a law; `None` with too few rows. Also returns what laws without a row's fold foresee for it, as a share of the
/// range.
///
/// # Errors
/// When the law's correction has no solution.
pub fn fit(rows: &[PowerRow], options: &Options) -> Result<Option<(PowerModel, Vec<f64>)>> {
    let Some(laws) = laws(rows, options)? else { return Ok(None) };
    let Laws { of_all: model, without, fold_of } = laws;
    let model = PowerModel { burst: burst(rows, &model), ..model };
    let held_out: Vec<f64> = rows.iter().zip(&fold_of).map(|(row, &fold)| row.foreseen(&without[fold])).collect();
    let pairs = || rows.iter().zip(&held_out).map(|(r, p)| (r.measured(), *p));
    let residuals: Vec<f64> = pairs().map(|(m, p)| (m / p).ln()).collect();
    let (Some(accuracy), Some(residuals)) = (Accuracy::of(pairs()), conformal(&residuals, 0.9)) else {
        return Ok(None);
    };
    Ok(Some((PowerModel { residuals, mape: accuracy.mape, ..model }, held_out)))
}

/// Kernels shorter than this are mostly launch.
const SHORT: Seconds = Seconds::from_us(20.0);

/// Held-out power by kind and precision, of all, of each board and of short and long kernels, foreseen without knowing the
/// clock.
pub fn lines(chip: &str, rows: &[PowerRow], held_out: &[f64]) -> Vec<Power> {
    let mut groups: BTreeMap<(String, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for (row, foreseen) in rows.iter().zip(held_out) {
        let length = if row.burst.0 < SHORT { "all below 20 us" } else { "all from 20 us" };
        let board = format!("all on {}", row.board.name);
        for key in [
            (row.kind.to_string(), row.precision.name()),
            ("all".into(), "all"),
            (length.into(), "all"),
            (board, "all"),
        ] {
            groups.entry(key).or_default().push((row.measured(), *foreseen));
        }
    }
    let line = |((kind, precision), pairs): ((String, &str), Vec<(f64, f64)>)| {
        let accuracy = Accuracy::of(pairs)?;
        Some(Power { chip: chip.into(), kind, precision: precision.into(), accuracy })
    };
    groups.into_iter().filter_map(line).collect()
}

/// The power at which throttled rows settle, as a share of the limit: their median.
fn headroom(rows: &[PowerRow]) -> f64 {
    let mut held: Vec<f64> = rows.iter().filter(|r| r.is_held()).map(|r| r.measured() / r.limit()).collect();
    held.sort_by(f64::total_cmp);
    held.get(held.len() / 2).copied().unwrap_or(1.0).min(1.0)
}

/// How many times the limit bursts draw: with that, times of held rows follow best from those of their bursts. `None` without
/// held rows, or where none of the bursts is seen to be held.
fn burst(rows: &[PowerRow], law: &PowerModel) -> Option<f64> {
    let held: Vec<&PowerRow> = rows.iter().filter(|r| r.is_held()).collect();
    let (least, step, count) = BURSTS;
    let candidates = (0..count).map(|i| least + step * i as f64);
    let error = |burst: f64| held.iter().map(|r| r.off_pace(law, burst).abs()).sum::<f64>();
    let best = candidates.min_by(|a, b| error(*a).total_cmp(&error(*b)))?;
    (!held.is_empty() && best < least + step * (count - 1) as f64).then_some(best)
}

/// Least squares of relative errors with coefficients at least zero, each row at full clock: what held rows would draw there
/// is by the law found before.
fn non_negative(rows: &[&PowerRow]) -> Activities {
    let mut coefficients = [0.0; COUNT];
    for _ in 0..ROUNDS {
        let demands: Vec<f64> = rows.iter().map(|r| r.demand(drives(&coefficients, &r.activities))).collect();
        let whole = |i: usize| demands[i] + rows[i].waiting();
        let x = Array2::from_shape_fn((rows.len(), COUNT), |(i, j)| rows[i].activities[j] / whole(i));
        let y = Array1::from_iter((0..rows.len()).map(|i| demands[i] / whole(i)));
        let c = least_squares::non_negative(&x, &y);
        coefficients.iter_mut().zip(&c).for_each(|(to, from)| *to = *from);
    }
    coefficients
}

/// How well held-out rows agree with laws if the voltage rises so much from its knee on: the mean logarithm of the density of
/// what was observed, of the clock where the limit held a row, else of the power. `None` with too few rows.
///
/// # Errors
/// When a law's correction has no solution.
pub fn likelihood(rows: &[PowerRow], curve: VoltageCurve, options: &Options) -> Result<Option<f64>> {
    let rows: Vec<PowerRow> = rows.iter().map(|r| PowerRow { curve, ..r.clone() }).collect();
    let Some(laws) = laws(&rows, options)? else { return Ok(None) };
    let counts = |r: &&PowerRow| r.burst.0 >= SHORTEST;
    let mut sum = 0.0;
    for (fold, law) in laws.without.iter().enumerate() {
        let of = |inside: bool| {
            rows.iter().zip(&laws.fold_of).filter(move |(_, f)| (**f == fold) == inside).map(|(r, _)| r).filter(counts)
        };
        let squares = |inside| of(inside).map(|r| r.excess(law).0.powi(2)).sum::<f64>();
        let variance = squares(false) / of(false).count() as f64;
        sum -= squares(true) / (2.0 * variance) + of(true).count() as f64 * variance.ln() / 2.0;
        // Of the clock: how fast what a kernel must draw changes with it.
        sum += of(true).filter(|r| r.is_held()).map(|r| r.excess(law).1.abs().ln()).sum::<f64>();
    }
    Ok(Some(sum / rows.iter().filter(counts).count() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::law::power::TRAITS;

    #[test]
    fn a_known_law_is_found() {
        let mut known = [0.0; COUNT];
        (known[0], known[1], known[7]) = (0.3, 0.4, 0.9);
        let board = catalog::gpu("h200").expect("shipped");
        let rows: Vec<PowerRow> = (0..200)
            .map(|i| {
                let mut list = [0.0; COUNT];
                (list[0], list[1]) = (f64::from(i % 7) / 7.0, 0.1 * f64::from(i % 10));
                list[7] = 0.005 * f64::from(i);
                let clock = if i % 3 == 0 { 0.8 } else { 1.0 };
                let curve = VoltageCurve::of(&board);
                let level = ClockLaw::Voltage(curve).level(clock);
                let held = if i % 3 == 0 { 1.1 } else { 1.0 };
                let share = drives(&known, &list).share(level, held);
                let watts = waiting_at(&board, level) + (board.power.limit.value - waiting(&board)) * share;
                PowerRow {
                    key: format!("{i}"),
                    kind: "linear",
                    precision: Precision::Fp16,
                    activities: list,
                    traits: [0.0; TRAITS.len()],
                    clock,
                    curve,
                    power: watts,
                    slowdown: held,
                    burst: (Seconds::from_us(100.0), Seconds::ZERO),
                    board: board.clone(),
                    core: Hertz::from_mhz(1980.0 * clock),
                }
            })
            .collect();
        let (model, held_out) = fit(&rows, &Options::default()).expect("a solution").expect("enough rows");
        assert_eq!((model.exponent, held_out.len()), (None, rows.len()));
        for (found, known) in model.coefficients.iter().zip(known) {
            assert!((found - known).abs() < 0.02, "{model:?}");
        }
        assert!(fit(&rows[..10], &Options::default()).expect("no failure").is_none());
    }

    /// Kernels draw a tenth more or less than their activities say, and the limit holds whichever draws most: its clock then
    /// goes with the error. Comparing errors of power at that clock finds no rise; densities find it.
    #[test]
    fn a_rise_is_found_although_the_limit_chose_the_clocks() {
        let board = catalog::gpu("h200").expect("shipped");
        let knee = VoltageCurve::of(&board).knee();
        let curve = |rise| VoltageCurve::new(knee, rise).expect("a curve");
        let limit = board.power.limit.value;
        let law = ClockLaw::Voltage(curve(0.4));
        let row = |i: u32| {
            let mut activities = [0.0; COUNT];
            // Two numbers that go on without repeating, one of them as an error.
            let (size, error) = (f64::from(i) * 0.618_034 % 1.0, f64::from(i) * 0.414_214 % 1.0);
            (activities[0], activities[3]) = (0.6 + 0.4 * size, 0.2 + 0.8 * size);
            let mut known = [0.0; COUNT];
            (known[0], known[3]) = (0.6, 0.7);
            let drawn = drives(&known, &activities).times(0.85 + 0.3 * error);
            let at = |core: f64| power(&board, drawn, law.level(core), 1.0 / core);
            let clock = highest(0.2, 1.0, |core| at(core) / limit - 1.0).expect("keeps the limit");
            PowerRow {
                key: format!("{i}"),
                kind: "linear",
                precision: Precision::Fp32,
                activities,
                traits: [0.0; TRAITS.len()],
                clock,
                curve: curve(0.4),
                power: at(clock),
                slowdown: 1.0 / clock,
                burst: (Seconds::from_us(100.0), Seconds::ZERO),
                board: board.clone(),
                core: Hertz::from_mhz(1980.0 * clock),
            }
        };
        let rows: Vec<PowerRow> = (0..400).map(row).collect();
        assert!(
            rows.iter().filter(|r| r.is_held()).count() > 100 && rows.iter().filter(|r| !r.is_held()).count() > 100
        );
        let options = Options { folds: 4, ..Options::default() };
        let of = |rise| likelihood(&rows, curve(rise), &options).expect("a solution").expect("enough rows");
        let found = [0.0, 0.2, 0.4, 0.7, 1.0].map(of);
        assert!(found[2] > found[1] && found[1] > found[0] && found[2] > found[3] && found[3] > found[4], "{found:?}");
    }
}
