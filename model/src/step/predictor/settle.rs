//! Which clocks a step's kernels run at: those that their times are of, and those that a limit leaves.

use super::kernel::{Board, Kernel};
use super::operating_point::{Limits, OperatingPoint, highest, highest_by_slope, highest_of_each, lowest_by_default};
use super::step::Step;
use super::summary::Order;
use super::{PredictError, Setup};
use crate::base::number::{LANES, Lanes, Number};
use crate::base::units::{Joules, Seconds, Watts};
use crate::device::clock::{Clocks, traffic_share};
use crate::law::power::{ClockLaw, OverClock, waiting};
use std::ops::Range;

/// How long power is averaged before the limit acts on it: on an H200 the clock falls 20 to 40 ms after a heavy layer
/// begins (MODELLING.md).
pub(super) const REACTION: Seconds = Seconds::from_ms(30.0);
/// Kernels of a measured step are taken to draw at most so many times what is predicted; what is missing then, the limit
/// must have let pass.
const MOST_DRAW: f64 = 1.3;
/// Times of others are of a board that kept the default limit: rounding must not undo that.
pub(super) const ROUNDING: f64 = 1e-9;
/// Steps of halving in the search for such a factor.
const HALVINGS: usize = 12;

impl Step<'_> {
    /// Makes kernels draw so many times as much above waiting.
    pub(super) fn scale_power(&mut self, factor: f64) {
        for kernel in &mut self.kernels {
            kernel.drives = kernel.drives.times(factor);
        }
        self.refer();
    }

    /// A measured time is of the clock at which that kernel, alone, kept a power: the default limit where others timed it for
    /// long; in a burst, which the limit is too slow for, so many times that, and it never runs faster. What would be held below
    /// [`lowest_by_default`] draws less than predicted.
    pub(super) fn refer(&mut self) {
        let gpu = self.setup.gpu;
        let Some(over) = OverClock::new(gpu, self.clock_law) else { return };
        let cap = (gpu.power.limit.value * self.burst.unwrap_or(self.held)).get();
        let (lowest, idle, full) = (lowest_by_default(gpu), waiting(gpu).get(), over.at(1.0));
        let mut above = Vec::with_capacity(self.kernels.len());
        for (i, kernel) in self.kernels.iter_mut().enumerate() {
            if kernel.repeats.is_some_and(|first| first < i) {
                continue;
            }
            kernel.reference = 1.0;
            if over.power_at(kernel.drives.parts(), 1.0, &full).0 > cap {
                above.push(i);
            }
        }
        for above in above.chunks(LANES) {
            let (clocks, powers) = self.references(above, &over, (lowest, cap));
            for (lane, &i) in above.iter().enumerate() {
                let kernel = &mut self.kernels[i];
                kernel.reference = clocks[lane];
                if self.burst.is_some() && kernel.reference < 1.0 {
                    kernel.fastest = kernel.reference;
                }
                let (drawn, allowed) = (powers[lane] - idle, cap - idle);
                if drawn > allowed {
                    kernel.drives = kernel.drives.times((allowed / drawn).max(0.0));
                }
            }
        }
        for i in 0..self.kernels.len() {
            if let Some(first) = self.kernels[i].repeats.filter(|first| *first < i) {
                let Kernel { reference, fastest, drives, .. } = self.kernels[first];
                let repeated = &mut self.kernels[i];
                (repeated.reference, repeated.fastest, repeated.drives) = (reference, fastest, drives);
            }
        }
    }

    /// The highest clocks at which some kernels, at most [`LANES`], draw no more than `cap` each, or `lowest`, and what they
    /// draw there.
    fn references(
        &self,
        kernels: &[usize],
        over: &OverClock,
        (lowest, cap): (f64, f64),
    ) -> ([f64; LANES], [f64; LANES]) {
        let drives =
            |lane: usize| kernels.get(lane).or(kernels.last()).map_or([0.0; 3], |&i| self.kernels[i].drives.parts());
        let each: [[f64; 3]; LANES] = std::array::from_fn(drives);
        let parts = std::array::from_fn(|part| Lanes(each.map(|parts| parts[part])));
        Lanes::by_widest(
            #[inline(always)]
            || {
                let together = highest_of_each(
                    lowest,
                    1.0,
                    #[inline(always)]
                    |core| {
                        let (power, slope) = over.power(parts, core);
                        (power - cap, slope)
                    },
                );
                let alone = |parts: [f64; 3]| {
                    let excess = |core: f64| {
                        let (power, slope) = over.power(parts, core);
                        (power - cap, slope)
                    };
                    highest_by_slope(lowest, 1.0, excess).unwrap_or(lowest)
                };
                let clocks = together.unwrap_or_else(|| Lanes(each.map(alone)));
                (clocks.0, over.power(parts, clocks).0.0)
            },
        )
    }

    /// Time and mean power of the kernels at the default.
    fn busy(&self) -> Result<(Seconds, Watts), PredictError> {
        let prediction = self.at(OperatingPoint::default())?;
        let time: Seconds = prediction.layers.iter().map(|l| l.time.value).sum();
        Ok((time, prediction.layers.iter().map(|l| l.energy).sum::<Joules>() / time))
    }

    fn scale_time(&mut self, factor: f64) {
        for kernel in &mut self.kernels {
            kernel.time = kernel.time.times(factor);
            kernel.memory = kernel.memory * factor;
        }
    }

    /// The step as somebody measured it at the default: kernels that are predicted to draw more than that wait in between,
    /// such as for input; kernels that are predicted to draw less draw more.
    ///
    /// # Errors
    /// None where [`Step::new`] had none.
    pub fn anchored(mut self, time: Seconds, power: Watts) -> Result<Self, PredictError> {
        let (predicted, _) = self.busy()?;
        self.scale_time(time / predicted);
        let (_, drawn) = self.busy()?;
        if drawn >= power {
            let idle = waiting(self.setup.gpu);
            let share = if drawn > idle { ((power - idle) / (drawn - idle)).clamp(0.0, 1.0) } else { 1.0 };
            self.scale_time(share);
            self.gap = time * (1.0 - share);
            return Ok(self);
        }
        let draws = |factor: f64, held: f64| -> Result<(Self, Watts), PredictError> {
            let mut step = self.clone();
            step.held = held;
            step.scale_power(factor);
            let (_, drawn) = step.busy()?;
            Ok((step, drawn))
        };
        let held = self.held;
        if draws(MOST_DRAW, held)?.1 >= power {
            least(1.0, MOST_DRAW, |factor| draws(factor, held), power)
        } else {
            least(held, 1.0, |held| draws(MOST_DRAW, held), power)
        }
    }

    /// Relative core clock of every kernel. The board sets one clock for a stretch as long as its limit takes to act: the
    /// highest, up to what is asked for, at which the stretch's mean power keeps the limit. Kernels that alone were held
    /// below it run faster beside lighter ones. Mean power rises with the clock (time falls, and what is above waiting
    /// rises), so that there is one such clock, and neither a higher clock nor a higher limit ever makes a step longer.
    pub(super) fn clocks_under(&self, limits: &Limits) -> Vec<f64> {
        let mut clocks = Vec::with_capacity(self.kernels.len());
        let settling = self.settling(limits);
        let (ends, stretches) = Order::of(&self.kernels).stretches(self);
        for (end, groups) in ends.into_iter().zip(stretches.each()) {
            clocks.resize(end, settling.core(groups));
        }
        clocks
    }

    /// What a limit makes of its stretches.
    pub(super) fn settling<'s>(&'s self, limits: &'s Limits) -> Settling<'s> {
        let over = OverClock::new(self.setup.gpu, self.clock_law);
        Settling { kernels: &self.kernels, setup: &self.setup, law: self.clock_law, held: self.held, limits, over }
    }
}

/// A step's kernels under a limit.
pub(super) struct Settling<'s> {
    kernels: &'s [Kernel<'s>],
    setup: &'s Setup<'s>,
    law: ClockLaw,
    /// [`Step::held`].
    held: f64,
    limits: &'s Limits,
    /// Where power follows the voltage.
    over: Option<OverClock>,
}

/// A kernel of a stretch that does not follow the core clock beyond one.
#[derive(Clone, Copy, Default)]
struct Held<V = f64> {
    /// Where it stays behind.
    fastest: V,
    own: Spent<V>,
    /// Its excess per clock beyond that.
    staying: V,
}

impl Settling<'_> {
    /// The relative core clock of a stretch of kernels, so many of each.
    pub(super) fn core(&self, groups: &[(usize, f64)]) -> f64 {
        let allowed = self.limits.cap * self.held;
        let Some(over) = &self.over else { return self.by_exponent(groups, allowed) };
        let most = allowed.get() * (1.0 + ROUNDING);
        let mut held = Vec::new();
        let following = self.parted(groups, over, most, &mut held);
        self.alone((following, &held), over, most)
    }

    /// The clock of one stretch, by itself.
    fn alone(&self, stretch: (Spent, &[Held]), over: &OverClock, most: f64) -> f64 {
        let limits = self.limits;
        let excess = |core| excess(stretch, over, core, most);
        highest_by_slope(limits.lowest, limits.ceiling, excess).unwrap_or(limits.lowest)
    }

    /// [`Self::core`] of several stretches, side by side.
    pub(super) fn cores<'g>(&self, stretches: impl ExactSizeIterator<Item = &'g [(usize, f64)]>) -> Vec<f64> {
        let (limits, allowed) = (self.limits, self.limits.cap * self.held);
        let Some(over) = &self.over else { return stretches.map(|groups| self.by_exponent(groups, allowed)).collect() };
        let most = allowed.get() * (1.0 + ROUNDING);
        let mut cores = vec![limits.ceiling; stretches.len()];
        let mut above: Vec<(usize, Spent, Range<usize>)> = Vec::new();
        let mut held = Vec::new();
        for (i, groups) in stretches.enumerate() {
            let begin = held.len();
            let following = self.parted(groups, over, most, &mut held);
            match excess((following, &held[begin..]), over, limits.ceiling, most).0 > 0.0 {
                true => above.push((i, following, begin..held.len())),
                false => held.truncate(begin),
            }
        }
        for above in above.chunks(LANES) {
            let stretches: [(Spent, &[Held]); LANES] = std::array::from_fn(|lane| {
                let (_, following, own) = &above[lane.min(above.len() - 1)];
                (*following, &held[own.clone()])
            });
            let together = if above.len() > 1 { self.together(&stretches, over, most) } else { None };
            for (lane, (i, ..)) in above.iter().enumerate() {
                let alone = || self.alone(stretches[lane], over, most);
                cores[*i] = together.map_or_else(alone, |together| together.0[lane]);
            }
        }
        cores
    }

    /// The clocks of stretches that draw too much at the highest one; `None` where they are not found side by side.
    fn together(&self, stretches: &[(Spent, &[Held]); LANES], over: &OverClock, most: f64) -> Option<Lanes> {
        let following = Spent::side_by_side(stretches.map(|(following, _)| following));
        let longest = stretches.iter().map(|(_, held)| held.len()).max().unwrap_or(0);
        let at = |place: usize| {
            let each = stretches.map(|(_, held)| held.get(place).copied().unwrap_or_default());
            Held {
                fastest: Lanes(each.map(|held| held.fastest)),
                own: Spent::side_by_side(each.map(|held| held.own)),
                staying: Lanes(each.map(|held| held.staying)),
            }
        };
        let held: Vec<Held<Lanes>> = (0..longest).map(at).collect();
        Lanes::by_widest(
            #[inline(always)]
            || {
                highest_of_each(
                    self.limits.lowest,
                    self.limits.ceiling,
                    #[inline(always)]
                    |core| excess((following, &held[..]), over, core, most),
                )
            },
        )
    }

    /// What of a stretch follows the core clock as far as it goes; the rest is added to those that stay behind.
    fn parted(&self, groups: &[(usize, f64)], over: &OverClock, most: f64, held: &mut Vec<Held>) -> Spent {
        let mut following = Spent::default();
        for &(at, count) in groups {
            let Kernel { fastest, .. } = self.kernels[at];
            let own = Spent::of(&self.kernels[at], count, self.limits.memory);
            if fastest >= self.limits.ceiling {
                following = following.plus(own);
            } else {
                if held.len() == held.capacity() {
                    held.reserve(self.kernels.len());
                }
                held.push(Held { fastest, own, staying: own.excess(over, fastest, most).0 / fastest });
            }
        }
        following
    }

    /// The same where power follows no voltage.
    fn by_exponent(&self, groups: &[(usize, f64)], allowed: Watts) -> f64 {
        let limits = self.limits;
        let excess = |core: f64| {
            let (mut time, mut energy) = (Seconds::ZERO, Joules::ZERO);
            let board = Board::new(self.setup.gpu, self.law, core);
            for &(at, count) in groups {
                let kernel = &self.kernels[at];
                let slowdown = kernel.slowdown(Clocks { core, memory: limits.memory });
                let t = kernel.time.value * (slowdown * count);
                time += t;
                energy += kernel.power(&board, slowdown) * t;
            }
            energy / time / allowed - 1.0 - ROUNDING
        };
        highest(limits.lowest, limits.ceiling, excess).unwrap_or(limits.lowest)
    }
}

/// What kernels that follow the core clock take and spend, added up: by_core / clock + by_memory, and above waiting, as shares of
/// the range of power, V^2 (by_voltage + rising clock) + traffic.
#[derive(Clone, Copy, Default)]
struct Spent<V = f64> {
    by_core: V,
    by_memory: V,
    by_voltage: V,
    rising: V,
    traffic: V,
}

impl Spent {
    /// So many of a kernel, at a relative memory clock.
    fn of(kernel: &Kernel<'_>, count: f64, memory: f64) -> Self {
        let time = kernel.time.value.get() * count;
        let share = traffic_share(kernel.memory, kernel.time.value, 1.0);
        let (by_core, by_memory) = (time * (1.0 - share) * kernel.reference, time * share / memory);
        let [clock, arithmetic, traffic] = kernel.drives.parts();
        let (by_voltage, rising) = (clock * by_core + arithmetic * time, clock * by_memory);
        Self { by_core, by_memory, by_voltage, rising, traffic: traffic * time }
    }

    fn side_by_side(each: [Self; LANES]) -> Spent<Lanes> {
        let of = |part: fn(Self) -> f64| Lanes(each.map(part));
        Spent {
            by_core: of(|spent| spent.by_core),
            by_memory: of(|spent| spent.by_memory),
            by_voltage: of(|spent| spent.by_voltage),
            rising: of(|spent| spent.rising),
            traffic: of(|spent| spent.traffic),
        }
    }
}

impl<V: Number> Spent<V> {
    /// Energy above so much power for their time, times the clock, and what it changes by per clock.
    #[inline(always)]
    fn excess(&self, over: &OverClock, core: V, most: f64) -> (V, V) {
        let at = over.at(core);
        let taken = self.by_core + self.by_memory * core;
        let moving = self.by_voltage + self.rising * core;
        let drawn = at.squared * moving + self.traffic;
        let rising = at.squared_slope * moving + at.squared * self.rising;
        let above = at.waiting - most;
        let slope = at.waiting_slope * taken + above * self.by_memory;
        (above * taken + drawn * core * over.range, slope + (drawn + rising * core) * over.range)
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self {
            by_core: self.by_core + other.by_core,
            by_memory: self.by_memory + other.by_memory,
            by_voltage: self.by_voltage + other.by_voltage,
            rising: self.rising + other.rising,
            traffic: self.traffic + other.traffic,
        }
    }

    /// None of it where a clock is above one.
    #[inline(always)]
    fn up_to(self, core: V, fastest: V) -> Self {
        let kept = |part| core.at_most(fastest, part, V::of(0.0));
        Self {
            by_core: kept(self.by_core),
            by_memory: kept(self.by_memory),
            by_voltage: kept(self.by_voltage),
            rising: kept(self.rising),
            traffic: kept(self.traffic),
        }
    }
}

/// Energy of a stretch above so much power for its time, times the clock, and what it changes by per clock: a polynomial between
/// the clocks beyond which kernels stay behind.
#[inline(always)]
fn excess<V: Number>((mut following, held): (Spent<V>, &[Held<V>]), over: &OverClock, core: V, most: f64) -> (V, V) {
    let mut behind = V::of(0.0);
    for Held { fastest, own, staying } in held {
        following = following.plus(own.up_to(core, *fastest));
        behind = behind + core.at_most(*fastest, V::of(0.0), *staying);
    }
    let (excess, slope) = following.excess(over, core, most);
    (excess + behind * core, slope + behind)
}

/// The turns at which stretches end of consecutive kernels that together take as long as the limit takes to act; a rest goes to the
/// last.
pub(super) fn ends_of(times: impl ExactSizeIterator<Item = Seconds>) -> Vec<usize> {
    let (mut ends, mut time, kernels) = (Vec::with_capacity(times.len()), Seconds::ZERO, times.len());
    for (turn, value) in times.enumerate() {
        time += value;
        if time >= REACTION {
            ends.push(turn + 1);
            time = Seconds::ZERO;
        }
    }
    match ends.last_mut() {
        Some(last) => *last = kernels,
        None => ends.push(kernels),
    }
    ends
}

/// The step at the least value that draws a power, of those from `low` to `high`.
fn least<S>(
    mut low: f64,
    mut high: f64,
    at: impl Fn(f64) -> Result<(S, Watts), PredictError>,
    power: Watts,
) -> Result<S, PredictError> {
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if at(middle)?.1 < power { low = middle } else { high = middle }
    }
    Ok(at(high)?.0)
}
