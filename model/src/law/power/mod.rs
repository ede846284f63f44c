//! Power of kernels: a non-negative law of activity, the clock, and what the power limit does to both.
//!
//! `P(f) = P0(f) + (L - P0) sum_j c_j a_j d_j(f)`, P0 the power of a device that waits with a context, L its default limit,
//! a_j activities of the kernel (shares of peak arithmetic and bandwidth that its time implies, and how much of that time is
//! not launch), c_j >= 0. The form is that of Guerreiro et al. (HPCA 2018) with predicted utilisations in place of counters
//! (as in EnergAIzer). Over the clock d_j is V^2 f for occupied multiprocessors, V^2 times the rate for arithmetic and the
//! rate for traffic, with the device's voltage; P0(f) falls to idle power with the clock. Coefficients are shares of the
//! range between waiting and limit, so that one law serves devices that have no energy rows of their own.
//! Files from before that have an exponent: everything above waiting goes with that power of the clock.

mod correction;
mod waits;

pub use correction::{Correction, FLAGS, TRAITS, Traits, traits};
pub use waits::Waits;

use crate::base::number::Number;
use crate::base::precision::Precision;
use crate::base::units::{BytesPerSecond, Hertz, Seconds, Watts};
use crate::device::clock::{LEAKAGE, VoltageCurve};
use crate::device::gpu::Gpu;
use crate::kernel::family::Family;
use crate::kernel::load::{Amounts, Load, Roofline};

/// Names of the activities, in order. They are part of the calibration format.
pub const ACTIVITIES: [&str; 9] = [
    "busy",
    "memory",
    "memory_root",
    "vector",
    "vector_root",
    "tensor32",
    "tensor32_root",
    "tensor16",
    "tensor16_root",
];
/// How many there are.
pub const COUNT: usize = ACTIVITIES.len();

/// Power while waiting with a context over idle power (H200: 130 W over 80 W; H100 idle at 1980 and at 390 MHz: 1.66).
const CONTEXT: f64 = 1.6;
/// Share of the limit that idle is taken as where it is not known.
const UNKNOWN_IDLE: f64 = 0.1;
/// More than the peak bandwidth: traffic that the cache served.
const MOST_MEMORY: f64 = 1.2;

/// Activities of a kernel.
pub type Activities = [f64; COUNT];

/// A fitted law, without a device.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerModel {
    /// One coefficient per activity, as shares of the range between waiting and limit.
    pub coefficients: Activities,
    /// What these leave, where the rows showed something.
    pub correction: Option<Correction>,
    /// The bandwidth that shares of traffic are of; `None`: each board's own.
    pub bandwidth: Option<BytesPerSecond>,
    /// Exponent of the relative clock, in files from before power followed the voltage.
    pub exponent: Option<f64>,
    /// Kernels that were timed in bursts ran at the highest clock at which they alone drew so many times the limit.
    pub burst: Option<f64>,
    /// The clock falls where power would exceed this share of the limit.
    pub headroom: f64,
    /// Held-out log residuals of power: 5 % and 95 % quantiles.
    pub residuals: (f64, f64),
    /// Mean absolute percentage error on held-out shapes.
    pub mape: f64,
    /// Rows with energy that it was fitted to.
    pub rows: usize,
    /// Lowest and highest core clock of those rows, where known.
    pub clocks: Option<(Hertz, Hertz)>,
}

/// What a kernel does to power, given its launch floor and how long it takes at full clock.
pub fn activities(load: &Load<'_>, floor: Seconds, time: Seconds) -> Activities {
    activities_of(load, &load.amounts(), floor, time.get())
}

/// The same where so much is to be done in so many seconds.
fn activities_of<V: Number>(load: &Load<'_>, amounts: &Amounts<V>, floor: Seconds, time: V) -> [V; COUNT] {
    activities_where(load.occupancy_of(amounts), load, amounts, floor, time)
}

/// How many times as long as at least steps of a recurrent layer usually wait for each other: about the launch of a kernel.
const STEPS_WAIT: f64 = 8.0;

/// The same of what fills such a share of the multiprocessors.
#[inline(always)]
fn activities_where<V: Number>(
    occupancy: V,
    load: &Load<'_>,
    amounts: &Amounts<V>,
    floor: Seconds,
    time: V,
) -> [V; COUNT] {
    let none = V::of(0.0);
    let share = |part: V, most: f64| time.at_most(none, none, (part / time).between(0.0, most));
    let Roofline { stalls, waiting, .. } = load.roofline;
    let idle = floor + stalls + waiting * STEPS_WAIT;
    let busy = V::of(1.0) - share(V::of(idle.get()), 1.0);
    // What a kernel takes beyond its traffic and arithmetic is spent on the multiprocessors that it fills.
    let occupied = busy * occupancy;
    let traffic = amounts.memory + (amounts.second - stalls.get());
    let (compute, memory) = (share(amounts.compute - waiting.get(), 1.0), share(traffic, MOST_MEMORY));
    let mut list = [none; COUNT];
    list[..3].copy_from_slice(&[occupied, busy * memory, occupied * memory.sqrt()]);
    let at = match load.gpu.computes_in(load.work.precision).unwrap_or(load.work.precision) {
        _ if load.work.family() == Family::Stream => 3,
        Precision::Fp32 => 3,
        Precision::Tf32 => 5,
        Precision::Fp16 | Precision::Bf16 | Precision::Int8 | Precision::Fp8 => 7,
    };
    list[at] = busy * compute;
    list[at + 1] = occupied * compute.sqrt();
    list
}

/// Activities as those of a board of the same chip with another bandwidth: a byte costs the same energy on both, and a share
/// of a larger bandwidth is more bytes (H100 and H200, 107 trials that both ran: within a tenth).
pub fn over(activities: Activities, bandwidth: BytesPerSecond, reference: BytesPerSecond) -> Activities {
    with_bandwidth(activities, bandwidth, reference)
}

#[inline(always)]
fn with_bandwidth<V: Number>(
    activities: [V; COUNT],
    bandwidth: BytesPerSecond,
    reference: BytesPerSecond,
) -> [V; COUNT] {
    let ratio = bandwidth.get() / reference.get();
    let mut list = activities;
    (list[1], list[2]) = (list[1] * ratio, list[2] * ratio.sqrt());
    list
}

/// What drives an activity's power.
#[derive(Clone, Copy)]
enum Drive {
    /// Multiprocessors that are occupied, whatever they do: V^2 f.
    Clock,
    /// Operations: V^2 each.
    Arithmetic,
    /// Bytes: the memory keeps its voltage.
    Traffic,
}

/// What drives each of the [`ACTIVITIES`].
const DRIVES: [Drive; COUNT] = [
    Drive::Clock,
    Drive::Traffic,
    Drive::Clock,
    Drive::Arithmetic,
    Drive::Clock,
    Drive::Arithmetic,
    Drive::Clock,
    Drive::Arithmetic,
    Drive::Clock,
];

/// What a kernel takes above waiting, by what drives it, as shares of the range from there to the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drives([f64; 3]);

impl Drives {
    /// Of [`Self::parts`].
    pub(crate) fn of(parts: [f64; 3]) -> Self {
        Self(parts)
    }

    /// So many times as much.
    pub fn times(self, factor: f64) -> Self {
        Self(self.0.map(|d| d * factor))
    }

    /// What the clock, arithmetic and traffic drive.
    pub fn parts(self) -> [f64; 3] {
        self.0
    }

    /// At a clock at which the kernel takes `slowdown` times as long, as a share of the same range.
    pub fn share(self, level: Level, slowdown: f64) -> f64 {
        let Self([clock, arithmetic, traffic]) = self;
        match level {
            Level::Scaled(scale) => self.total() * scale,
            Level::Voltage { core, squared, .. } => {
                squared * (clock * core + arithmetic / slowdown) + traffic / slowdown
            }
        }
    }

    /// All of it.
    pub fn total(self) -> f64 {
        self.0.iter().sum()
    }
}

/// How power follows the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClockLaw {
    /// By the exponent of the law.
    Exponent(f64),
    /// By the device's voltage.
    Voltage(VoltageCurve),
}

/// A core clock as a law sees it; the same for all kernels that run at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// Everything is scaled alike.
    Scaled(f64),
    /// By the voltage.
    Voltage {
        /// The relative clock.
        core: f64,
        /// The square of the relative voltage.
        squared: f64,
        /// How far waiting power is from idle (0) to that at the boost clock (1).
        idle: f64,
    },
}

/// Power of a device that waits with a context at the boost clock.
pub fn waiting(gpu: &Gpu) -> Watts {
    let limit = gpu.power.limit.value;
    if let Some(waiting) = &gpu.power.waiting {
        return waiting.value;
    }
    let idle = gpu.power.idle.as_ref().map_or(limit * UNKNOWN_IDLE, |p| p.value);
    (idle * CONTEXT).min(limit)
}

/// Power of a device that waits with a context at a core clock.
pub fn waiting_at(gpu: &Gpu, level: Level) -> Watts {
    let full = waiting(gpu);
    match level {
        Level::Scaled(_) => full,
        Level::Voltage { idle: share, .. } => {
            // Some boards idle with their memory at a low clock, at which nothing runs.
            let least = full * (1.0 / CONTEXT);
            let idle = gpu.power.idle.as_ref().map_or(least, |idle| idle.value.max(least));
            idle + (full - idle) * share
        }
    }
}

/// What [`waiting`] rests on, in words.
pub fn waiting_source(gpu: &Gpu) -> String {
    match (&gpu.power.waiting, &gpu.power.idle) {
        (Some(waiting), _) => waiting.source.clone(),
        (None, Some(idle)) => format!("{CONTEXT} times idle; {}", idle.source),
        (None, None) => format!("not known: {CONTEXT} times {:.0} % of the limit", 100.0 * UNKNOWN_IDLE),
    }
}

/// What a kernel with these activities takes above waiting at full clock, by the coefficients of a law.
pub fn drives(coefficients: &Activities, activities: &Activities) -> Drives {
    Drives(parts(coefficients, activities))
}

#[inline(always)]
fn parts<V: Number>(coefficients: &Activities, activities: &[V; COUNT]) -> [V; 3] {
    let mut parts = [V::of(0.0); 3];
    for ((&c, &a), drive) in coefficients.iter().zip(activities).zip(DRIVES) {
        parts[drive as usize] = parts[drive as usize] + a * c;
    }
    parts
}

impl PowerModel {
    /// A kernel's activities on a board with this bandwidth, as the law sees them.
    pub fn seen(&self, activities: Activities, bandwidth: BytesPerSecond) -> Activities {
        self.bandwidth.map_or(activities, |reference| over(activities, bandwidth, reference))
    }

    /// What a kernel takes above waiting at full clock.
    pub fn drives(&self, activities: &Activities, traits: &Traits) -> Drives {
        self.uncorrected(activities).times(self.correction.as_ref().map_or(1.0, |c| c.factor(traits)))
    }

    /// [`Drives::parts`] of a kernel on its board, where so much is to be done in so many seconds: [`activities`], [`Self::seen`],
    /// [`traits`] and [`Self::drives`] in one.
    pub(crate) fn parts<V: Number>(
        &self,
        load: &Load<'_>,
        amounts: &Amounts<V>,
        (floor, time): (Seconds, V),
    ) -> [V; 3] {
        let occupied = load.occupancy_of(amounts);
        V::by_widest(
            #[inline(always)]
            || {
                let activities = activities_where(occupied, load, amounts, floor, time);
                let activities = match self.bandwidth {
                    Some(reference) => with_bandwidth(activities, load.gpu.bandwidth.value, reference),
                    None => activities,
                };
                let mut parts = parts(&self.coefficients, &activities);
                if let Some(correction) = &self.correction {
                    let factor = correction.factor_of(&correction::traits_of(load, amounts, activities[0], time));
                    parts.iter_mut().for_each(|part| *part = *part * factor);
                }
                parts
            },
        )
    }

    /// The same without the correction.
    pub fn uncorrected(&self, activities: &Activities) -> Drives {
        drives(&self.coefficients, activities)
    }
}

/// A device's power over the core clock where it follows the voltage, everything worked out that no clock changes: as
/// [`waiting_at`] and [`power`] say it, with what it changes by per clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverClock {
    curve: VoltageCurve,
    /// Waiting power that does not follow the clock, and what does per V^2 ([`LEAKAGE`] + clock).
    constant: f64,
    each: f64,
    /// What drives are shares of, W.
    pub range: f64,
}

/// Power at a core clock, W, and what it changes by per clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtClock<V = f64> {
    pub waiting: V,
    pub waiting_slope: V,
    /// The square of the relative voltage.
    pub squared: V,
    pub squared_slope: V,
}

impl OverClock {
    /// `None` of a law that power does not follow the voltage by.
    pub fn new(gpu: &Gpu, law: ClockLaw) -> Option<Self> {
        let ClockLaw::Voltage(curve) = law else { return None };
        let at = |core| waiting_at(gpu, law.level(core)).get();
        let (none, full) = (at(0.0), at(1.0));
        let idle = |core: f64| curve.squared(core).0 * (LEAKAGE + core);
        let each = (full - none) / (idle(1.0) - idle(0.0));
        let range = (gpu.power.limit.value - waiting(gpu)).get();
        Some(Self { curve, constant: none - each * idle(0.0), each, range })
    }

    /// At a relative core clock.
    #[inline(always)]
    pub fn at<V: Number>(&self, core: V) -> AtClock<V> {
        let (squared, squared_slope) = self.curve.squared(core);
        let leaks = core + LEAKAGE;
        AtClock {
            waiting: squared * self.each * leaks + self.constant,
            waiting_slope: (squared_slope * leaks + squared) * self.each,
            squared,
            squared_slope,
        }
    }

    /// Power of a kernel of such [`Drives::parts`] that is as fast at any clock, W, and what it changes by per clock.
    #[inline(always)]
    pub fn power<V: Number>(&self, drives: [V; 3], core: V) -> (V, V) {
        self.power_at(drives, core, &self.at(core))
    }

    /// The same where [`Self::at`] of the clock is known.
    #[inline(always)]
    pub fn power_at<V: Number>(&self, drives: [V; 3], core: V, at: &AtClock<V>) -> (V, V) {
        let AtClock { waiting, waiting_slope, squared, squared_slope } = *at;
        let [clock, arithmetic, traffic] = drives;
        let moving = clock * core + arithmetic;
        (
            waiting + (squared * moving + traffic) * self.range,
            waiting_slope + (squared_slope * moving + squared * clock) * self.range,
        )
    }
}

impl ClockLaw {
    /// A relative core clock as this law sees it.
    pub fn level(self, core: f64) -> Level {
        match self {
            Self::Exponent(exponent) => Level::Scaled(core.powf(exponent)),
            Self::Voltage(curve) => {
                Level::Voltage { core, squared: curve.relative(core).powi(2), idle: curve.idle_share(core) }
            }
        }
    }
}

/// Power of a kernel on a device, whatever the limit, at a core clock at which it takes `slowdown` times as long as at the
/// one that its drives are of.
pub fn power(gpu: &Gpu, drives: Drives, level: Level, slowdown: f64) -> Watts {
    AtLevel::new(gpu, level).power(drives, slowdown)
}

/// A device at a core clock, everything worked out that is the same for all kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtLevel {
    level: Level,
    waiting: Watts,
    /// What drives are shares of.
    range: Watts,
}

impl AtLevel {
    pub fn new(gpu: &Gpu, level: Level) -> Self {
        Self { level, waiting: waiting_at(gpu, level), range: gpu.power.limit.value - waiting(gpu) }
    }

    /// As [`power`].
    pub fn power(&self, drives: Drives, slowdown: f64) -> Watts {
        self.waiting + self.range * drives.share(self.level, slowdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Phase};
    use crate::base::shape::Shape;
    use crate::device::gpu::testing::toy;
    use crate::kernel::work::Work;
    use crate::net::case::LayerCase;
    use crate::net::layer::{Cell, Layer, Recurrent};

    fn model() -> PowerModel {
        let mut coefficients = [0.0; COUNT];
        (coefficients[0], coefficients[1], coefficients[3]) = (0.3, 0.3, 0.9);
        PowerModel {
            coefficients,
            correction: None,
            bandwidth: None,
            exponent: None,
            burst: None,
            headroom: 0.98,
            residuals: (-0.1, 0.1),
            mape: 7.0,
            rows: 500,
            clocks: None,
        }
    }

    fn drawn(activities: &Activities, law: ClockLaw, core: f64, slowdown: f64) -> Watts {
        let model = model();
        power(&toy(), model.uncorrected(activities), law.level(core), slowdown)
    }

    fn voltage() -> ClockLaw {
        ClockLaw::Voltage(VoltageCurve::new(0.75, 0.2).expect("a valid curve"))
    }

    #[test]
    fn steps_that_wait_for_each_other_draw_no_power() {
        let case = |layers| LayerCase {
            inputs: vec![Shape::new(&[500, 64]).expect("a shape")],
            layer: Layer::Recurrent(Recurrent {
                cell: Cell::Lstm,
                hidden: 64,
                layers,
                bidirectional: false,
                bias: true,
            }),
        };
        let gpu = toy();
        let seen = |layers, time| {
            let work = Work::usual(case(layers), Phase::Forward, 1, Precision::Fp32, Mode::Inference).expect("fits");
            activities(&work.on(&gpu).expect("fits").expect("runs"), Seconds::from_us(3.0), Seconds::from_us(time))
        };
        // 500 and 1000 steps of 4 us.
        for (layers, time) in [(1, 2005.0), (2, 4010.0)] {
            let seen = seen(layers, time);
            assert!(seen.iter().all(|&a| a < 0.01), "{seen:?}");
        }
        let (short, long) = (seen(1, 2500.0), seen(1, 5000.0));
        assert!(long[0] > short[0] && short[0] > 0.0, "what takes longer than its steps computes: {short:?} {long:?}");
        assert!(short[1] < 0.01, "no traffic: {short:?}");
    }

    #[test]
    fn work_takes_power_and_a_lower_clock_less_of_it() {
        let gpu = toy();
        let mut busy = [0.0; COUNT];
        for law in [ClockLaw::Exponent(2.0), voltage()] {
            assert_eq!(drawn(&busy, law, 1.0, 1.0), waiting(&gpu));
        }
        (busy[0], busy[1], busy[3]) = (1.0, 1.0, 1.0);
        for law in [ClockLaw::Exponent(2.0), voltage()] {
            let full = drawn(&busy, law, 1.0, 1.0);
            assert!(full > gpu.power.limit.value);
            assert!(drawn(&busy, law, 0.5, 2.0) < full);
        }
    }

    #[test]
    fn power_over_the_clock_is_power_at_each_clock_and_so_is_its_slope() {
        let gpu = toy();
        let drives = Drives([0.3, 0.4, 0.2]);
        let over = OverClock::new(&gpu, voltage()).expect("follows the voltage");
        assert!(OverClock::new(&gpu, ClockLaw::Exponent(2.0)).is_none());
        for core in [0.2, 0.5, 0.74, 0.76, 0.9, 1.0, 1.1] {
            let level = voltage().level(core);
            let (found, slope) = over.power(drives.parts(), core);
            assert!((found / power(&gpu, drives, level, 1.0).get() - 1.0).abs() < 1e-14, "{core}");
            assert!((over.at(core).waiting / waiting_at(&gpu, level).get() - 1.0).abs() < 1e-14, "{core}");
            let near = (over.power(drives.parts(), core + 1e-6).0 - over.power(drives.parts(), core - 1e-6).0) / 2e-6;
            assert!((slope / near - 1.0).abs() < 1e-6, "{core}: {slope} {near}");
        }
    }

    #[test]
    fn a_byte_costs_the_same_on_boards_of_one_chip() {
        let (fast, slow) = (BytesPerSecond::new(4.8e12), BytesPerSecond::new(3.36e12));
        let mut full = [0.0; COUNT];
        full[1] = 1.0;
        let law = PowerModel { bandwidth: Some(fast), ..model() };
        let drawn = |law: &PowerModel, bandwidth| law.uncorrected(&law.seen(full, bandwidth)).total();
        assert!((drawn(&law, slow) / drawn(&law, fast) - 0.7).abs() < 1e-12, "0.7 of the bytes a second");
        assert_eq!(drawn(&model(), slow), drawn(&model(), fast), "a law in shares of each board's own");
    }

    #[test]
    fn what_follows_the_voltage_falls_faster_than_the_clock() {
        let waiting = |core| waiting_at(&toy(), voltage().level(core));
        let dynamic = |activities: &Activities, (core, slowdown)| {
            let power = drawn(activities, voltage(), core, slowdown) - waiting(core);
            power / (drawn(activities, voltage(), 1.0, 1.0) - waiting(1.0))
        };
        assert!(waiting(0.5) < waiting(1.0));
        let only = |index: usize| {
            let mut activities = [0.0; COUNT];
            activities[index] = 1.0;
            activities
        };
        let (clock, traffic, arithmetic) = (only(0), only(1), only(3));
        let squared = (1.1f64 / 1.2).powi(2);
        assert!((dynamic(&clock, (0.875, 1.0 / 0.875)) - 0.875 * squared).abs() < 1e-12);
        assert!((dynamic(&arithmetic, (0.875, 1.0 / 0.875)) - 0.875 * squared).abs() < 1e-12);
        assert!((dynamic(&arithmetic, (0.875, 1.0)) - squared).abs() < 1e-12);
        assert_eq!(dynamic(&traffic, (0.875, 1.0)), 1.0);
    }
}
