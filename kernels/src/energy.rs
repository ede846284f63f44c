//! From samples to energy: where the counter ticks, what was drawn between two ticks, and whether to believe it.
//!
//! The total energy counter is a staircase: it stands still for an update period (0.1 s on an H200) and then jumps.
//! Only its jumps say at which time it had which value, so energy is taken between two jumps ("ticks"), and power is
//! that energy over the time between them. Where a board has no counter, instantaneous power is integrated instead.

use crate::meter::{Sample, ThrottleTimes};
use crate::nvml::reasons;
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};

/// Usual length of the window of [`steady`].
pub const STEADY_WINDOW: Seconds = Seconds::new(1.5);
/// A counter that shows one value for longer is frozen: ten update periods of the slowest boards known.
const FROZEN: Seconds = Seconds::new(1.0);
/// Relative difference between counter and integral of power that is worth a warning.
const MISMATCH_WARN: f64 = 0.02;
/// Relative difference between counter and integral of power that makes a reading worthless.
const MISMATCH_REJECT: f64 = 0.05;
/// Relative difference between the powers of a window's halves up to which it is steady.
const STEADY: f64 = 0.01;
/// Limits differ when they differ by more than rounding.
const SAME_LIMIT: Watts = Watts::new(0.5);

/// How energy was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By the total energy counter, from tick to tick.
    CounterTicks,
    /// By integrating instantaneous power: the board has no counter.
    PowerIntegral,
}

impl Method {
    /// The name in the column `energy_method`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CounterTicks => "counter_ticks",
            Self::PowerIntegral => "power_integral",
        }
    }
}

/// Something to know about a reading that does not make it worthless.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warning {
    /// Counter and integral of power differ by this much, relative to the counter: over 2 %.
    CrossCheck(f64),
    /// The board tells no instantaneous power beside the counter, or has no counter.
    NoCrossCheck,
}

impl Warning {
    /// A stable name for files.
    pub fn name(self) -> &'static str {
        match self {
            Self::CrossCheck(_) => "power_cross_check_warning",
            Self::NoCrossCheck => "no_power_cross_check",
        }
    }
}

/// Why samples give no usable reading.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// Neither counter nor instantaneous power.
    #[error("the board has neither an energy counter nor instantaneous power")]
    NoSensor,
    /// The times of the samples do not ascend.
    #[error("the samples are not in order of time")]
    OutOfOrder,
    /// Fewer than two ticks.
    #[error("the energy counter ticked {0} times, two ticks are needed")]
    TooFewTicks(usize),
    /// The counter went down.
    #[error("the energy counter fell from {0} to {1}")]
    CounterFalling(Joules, Joules),
    /// The counter stood still.
    #[error("the energy counter stood still for {0}")]
    CounterFrozen(Seconds),
    /// The hardware cut the clock by temperature or power brake.
    #[error("the hardware held the clock back (temperature or power brake) for {0}")]
    HardwareThrottle(Seconds),
    /// Somebody else computed on the GPU.
    #[error("{0} other processes on the GPU")]
    OtherProcesses(u32),
    /// The enforced power limit changed.
    #[error("the enforced power limit changed from {0} to {1}")]
    LimitChanged(Watts, Watts),
    /// Counter and integral of instantaneous power disagree.
    #[error("the energy counter says {counter}, the integral of instantaneous power {integral}")]
    CrossCheck {
        /// Mean power by the counter.
        counter: Watts,
        /// Mean of the instantaneous power.
        integral: Watts,
    },
}

impl Rejection {
    /// A stable name for the column `flags`.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSensor => "no_power_sensor",
            Self::OutOfOrder => "samples_out_of_order",
            Self::TooFewTicks(_) => "too_few_ticks",
            Self::CounterFalling(..) => "counter_falling",
            Self::CounterFrozen(_) => "counter_frozen",
            Self::HardwareThrottle(_) => "hardware_throttle",
            Self::OtherProcesses(_) => "other_processes",
            Self::LimitChanged(..) => "limit_changed",
            Self::CrossCheck { .. } => "power_cross_check",
        }
    }
}

/// What was drawn in a window, and what the board did in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// How.
    pub method: Method,
    /// Begin of the window in the time of the samples.
    pub start: Seconds,
    /// End of the window in the time of the samples.
    pub end: Seconds,
    /// Energy drawn in the window.
    pub energy: Joules,
    /// Energy over the window's length.
    pub power: Watts,
    /// Ticks that bound and divide the window; samples where there is no counter.
    pub ticks: usize,
    /// Mean of the instantaneous power over the same window: the cross-check. `None` without a counter, since it
    /// then is the power itself.
    pub power_integral: Option<Watts>,
    /// Mean core clock.
    pub core_mean: Option<Hertz>,
    /// Lowest core clock seen.
    pub core_min: Option<Hertz>,
    /// Mean memory clock.
    pub memory: Option<Hertz>,
    /// Temperature at the start in degrees Celsius.
    pub temperature_start_c: Option<f64>,
    /// Temperature at the end in degrees Celsius.
    pub temperature_end_c: Option<f64>,
    /// Clock event reasons seen, NVML's bits.
    pub reasons: Option<u64>,
    /// Time held back within the window.
    pub throttled: Option<ThrottleTimes>,
    /// Enforced power limit, the same all along.
    pub limit: Option<Watts>,
    /// What else to know.
    pub warnings: Vec<Warning>,
}

impl Reading {
    /// Length of the window.
    pub fn window(&self) -> Seconds {
        self.end - self.start
    }

    /// Clock event reasons by name, as in the column `reasons`.
    pub fn reason_names(&self) -> Option<String> {
        self.reasons.map(reasons::names)
    }
}

/// A moment at which the energy drawn so far is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// When.
    pub at: Seconds,
    /// Energy drawn so far, from an arbitrary but fixed origin.
    pub energy: Joules,
    /// Index of the first sample at or after it.
    pub sample: usize,
}

/// Energy between the first and the last tick of the counter (or the first and last sample where the board has none),
/// and what the board did meanwhile. `samples` are in order of time.
///
/// # Errors
/// [`Rejection`] where the samples do not support a reading: the first of its reasons that applies.
pub fn reading(samples: &[Sample]) -> Result<Reading, Rejection> {
    let (method, edges) = edges(samples)?;
    between(samples, method, &edges)
}

/// The last `window` seconds (at least, up to the next tick) as a reading, if power was steady in them: the powers of
/// the two halves, each fitted through its ticks, differ by at most 1 %. Sample every few milliseconds: at 10 ms the
/// uncertainty of the ticks' times alone comes near 1 %. `None` where it was not, where the samples do not reach
/// back far enough, and where [`reading`] would reject.
pub fn steady(samples: &[Sample], window: Seconds) -> Option<Reading> {
    let (method, edges) = edges(samples).ok()?;
    let last = edges.last()?;
    // Ticks are known to within half a sampling interval: a window of 15 periods must not need a sixteenth for that.
    let slack = window * 0.01;
    let first = edges.iter().rposition(|edge| last.at - edge.at >= window - slack)?;
    let edges = edges.get(first..)?;
    let middle = last.at - (last.at - edges.first()?.at) / 2.0;
    let half = (1..edges.len().checked_sub(1)?).min_by(|&a, &b| {
        let distance = |i: usize| edges.get(i).map_or(f64::INFINITY, |edge| (edge.at - middle).get().abs());
        distance(a).total_cmp(&distance(b))
    })?;
    let (before, after) = (slope(edges.get(..=half)?)?, slope(edges.get(half..)?)?);
    if (after - before).get().abs() > STEADY * slope(edges)?.get() {
        return None;
    }
    between(samples, method, edges).ok()
}

/// Mean power by least squares over all edges: times of ticks are known to half a sampling interval only, and the
/// first and last tick alone would bring all of that into the comparison of two halves.
fn slope(edges: &[Edge]) -> Option<Watts> {
    let origin = edges.first()?;
    let n = edges.len() as f64;
    let points = || edges.iter().map(|edge| ((edge.at - origin.at).get(), (edge.energy - origin.energy).get()));
    let (sum_t, sum_e) = points().fold((0.0, 0.0), |(t, e), point| (t + point.0, e + point.1));
    let (mean_t, mean_e) = (sum_t / n, sum_e / n);
    let squares: f64 = points().map(|(t, _)| (t - mean_t).powi(2)).sum();
    let products: f64 = points().map(|(t, e)| (t - mean_t) * (e - mean_e)).sum();
    (squares > 0.0).then(|| Watts::new(products / squares))
}

/// Where the energy drawn so far is known: the counter's ticks, each at the mean time of the samples before and after
/// the change; without a counter, the samples that have a power, with energy by the trapezoidal rule.
///
/// # Errors
/// [`Rejection`] for a counter that falls or stands still, without sensors, and for fewer than two ticks.
pub fn edges(samples: &[Sample]) -> Result<(Method, Vec<Edge>), Rejection> {
    if samples.windows(2).any(|pair| matches!(pair, [a, b] if b.at < a.at)) {
        return Err(Rejection::OutOfOrder);
    }
    if samples.iter().any(|s| s.counter.is_some()) {
        return Ok((Method::CounterTicks, ticks(samples)?));
    }
    let mut edges: Vec<Edge> = Vec::new();
    let mut before = Watts::ZERO;
    for (index, sample) in samples.iter().enumerate() {
        let Some(power) = sample.power else { continue };
        let energy =
            edges.last().map_or(Joules::ZERO, |edge| edge.energy + (before + power) * 0.5 * (sample.at - edge.at));
        edges.push(Edge { at: sample.at, energy, sample: index });
        before = power;
    }
    match edges.len() {
        0 => Err(Rejection::NoSensor),
        n @ 1 => Err(Rejection::TooFewTicks(n)),
        _ => Ok((Method::PowerIntegral, edges)),
    }
}

fn ticks(samples: &[Sample]) -> Result<Vec<Edge>, Rejection> {
    let mut edges = Vec::new();
    let mut before: Option<(Seconds, Joules)> = None;
    let mut since = Seconds::ZERO;
    for (index, sample) in samples.iter().enumerate() {
        let Some(counter) = sample.counter else { continue };
        match before {
            None => since = sample.at,
            Some((_, old)) if counter < old => return Err(Rejection::CounterFalling(old, counter)),
            Some((at, old)) if counter > old => {
                edges.push(Edge { at: (at + sample.at) / 2.0, energy: counter, sample: index });
                since = sample.at;
            }
            Some(_) if sample.at - since > FROZEN => return Err(Rejection::CounterFrozen(sample.at - since)),
            Some(_) => {}
        }
        before = Some((sample.at, counter));
    }
    if edges.len() < 2 { Err(Rejection::TooFewTicks(edges.len())) } else { Ok(edges) }
}

fn between(samples: &[Sample], method: Method, edges: &[Edge]) -> Result<Reading, Rejection> {
    let (Some(first), Some(last)) = (edges.first(), edges.last()) else {
        return Err(Rejection::TooFewTicks(edges.len()));
    };
    let window = last.at - first.at;
    if edges.len() < 2 || window <= Seconds::ZERO {
        return Err(Rejection::TooFewTicks(edges.len()));
    }
    let within = samples.get(first.sample..=last.sample).unwrap_or_default();
    let reasons_seen = within.iter().filter_map(|s| s.reasons).reduce(|a, b| a | b);
    let throttled = throttle_times(within);
    let brake = throttled.map_or(Seconds::ZERO, |t| t.hardware);
    if brake > Seconds::ZERO || reasons_seen.is_some_and(|bits| bits & reasons::HARDWARE != 0) {
        return Err(Rejection::HardwareThrottle(brake));
    }
    if let Some(others) = within.iter().filter_map(|s| s.others).max().filter(|&n| n > 0) {
        return Err(Rejection::OtherProcesses(others));
    }
    let limit = within.iter().find_map(|s| s.limit);
    if let Some(limit) = limit
        && let Some(other) = within.iter().filter_map(|s| s.limit).find(|l| (*l - limit).get().abs() > SAME_LIMIT.get())
    {
        return Err(Rejection::LimitChanged(limit, other));
    }
    let energy = last.energy - first.energy;
    let power = energy / window;
    let power_integral = match method {
        Method::CounterTicks => mean(samples, first.at, last.at, |s| s.power.map(Watts::get)).map(Watts::new),
        Method::PowerIntegral => None,
    };
    let warnings = match power_integral {
        None => vec![Warning::NoCrossCheck],
        Some(integral) => match (integral - power).get().abs() / power.get() {
            difference if difference <= MISMATCH_WARN => Vec::new(),
            difference if difference <= MISMATCH_REJECT => vec![Warning::CrossCheck(difference)],
            _ => return Err(Rejection::CrossCheck { counter: power, integral }),
        },
    };
    Ok(Reading {
        method,
        start: first.at,
        end: last.at,
        energy,
        power,
        ticks: edges.len(),
        power_integral,
        core_mean: mean(samples, first.at, last.at, |s| s.core.map(Hertz::get)).map(Hertz::new),
        core_min: within.iter().filter_map(|s| s.core).reduce(Hertz::min),
        memory: mean(samples, first.at, last.at, |s| s.memory.map(Hertz::get)).map(Hertz::new),
        temperature_start_c: within.iter().find_map(|s| s.temperature_c),
        temperature_end_c: within.iter().rev().find_map(|s| s.temperature_c),
        reasons: reasons_seen,
        throttled,
        limit,
        warnings,
    })
}

/// Differences of the throttle-time counters between the first and last sample that have them.
fn throttle_times(samples: &[Sample]) -> Option<ThrottleTimes> {
    let first = samples.iter().find_map(|s| s.throttled)?;
    let last = samples.iter().rev().find_map(|s| s.throttled)?;
    Some(ThrottleTimes {
        power: last.power - first.power,
        thermal: last.thermal - first.thermal,
        hardware: last.hardware - first.hardware,
    })
}

/// Time-weighted mean of a sensor from `from` to `to`: straight lines between samples, level before the first and
/// after the last one. `None` where no sample has the sensor.
fn mean(samples: &[Sample], from: Seconds, to: Seconds, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let points: Vec<(f64, f64)> =
        samples.iter().filter_map(|s| value(s).map(|v| (s.at.get(), v))).filter(|(_, v)| v.is_finite()).collect();
    let (from, to) = (from.get(), to.get());
    let at = |t: f64| {
        let next = points.partition_point(|(at, _)| *at < t);
        match (next.checked_sub(1).and_then(|i| points.get(i)), points.get(next)) {
            (Some(&(t0, v0)), Some(&(t1, v1))) if t1 > t0 => Some(v0 + (v1 - v0) * (t - t0) / (t1 - t0)),
            (_, Some(&(_, v))) | (Some(&(_, v)), None) => Some(v),
            (None, None) => None,
        }
    };
    let inner = points.iter().copied().filter(|&(t, _)| t > from && t < to);
    let line: Vec<(f64, f64)> = std::iter::once((from, at(from)?)).chain(inner).chain([(to, at(to)?)]).collect();
    let area: f64 = line.windows(2).map(|p| (p[1].0 - p[0].0) * (p[0].1 + p[1].1) / 2.0).sum();
    Some(area / (to - from))
}

#[cfg(test)]
mod tests;
