//! A stretch's kernels over the core clock, in sums: what all of them take together at any clocks costs no more than one.
//!
//! A kernel's time is `A / core + B / memory` ([`slowdown`](crate::device::clock::slowdown)), its power what its drives draw
//! at the level of its clock, so that time and energy of many kernels are the sums of few coefficients. They change where the
//! clock passes one that a kernel's time is of: there kernels that run no faster stay behind.

use super::Estimate;
use super::kernel::Kernel;
use super::operating_point::{Limits, highest_near};
use super::settle::ROUNDING;
use super::totals::Totals;
use crate::base::units::{Joules, Seconds, Watts};
use crate::device::clock::{Clocks, traffic_share};
use crate::law::calibration::Tier;
use crate::law::power::{AtClock, OverClock};
use crate::step::framework::Stages;
use std::ops::AddAssign;

/// A time, or another quantity that goes with it: what follows the core clock, and what the memory clock.
#[derive(Clone, Copy, Debug, Default)]
struct Split {
    core: f64,
    memory: f64,
}

impl Split {
    fn times(self, factor: f64) -> Self {
        Self { core: self.core * factor, memory: self.memory * factor }
    }

    /// At clocks whose inverses these are.
    fn at(self, core: f64, memory: f64) -> f64 {
        self.core * core + self.memory * memory
    }
}

impl AddAssign for Split {
    fn add_assign(&mut self, other: Self) {
        self.core += other.core;
        self.memory += other.memory;
    }
}

/// What is summed up alike of kernels that follow the clock and of those that do not.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    value: Split,
    p05: Split,
    p95: Split,
    /// Forward, backward, update.
    stages: [Split; 3],
    /// Widths of the intervals.
    tiers: [Split; Tier::ALL.len()],
}

impl Times {
    fn of(kernel: &Kernel<'_>, time: Split) -> Self {
        let Estimate { value, p05, p95 } = kernel.time;
        // A kernel that takes no time adds none.
        let (low, high) = if value > Seconds::ZERO { (p05 / value, p95 / value) } else { (0.0, 0.0) };
        let mut times = Self { value: time, p05: time.times(low), p95: time.times(high), ..Self::default() };
        let unit = Stages::of(kernel.phase, Seconds::new(1.0));
        times.stages = [unit.forward, unit.backward, unit.update].map(|stage| time.times(stage.get()));
        times.tiers[kernel.tier as usize] = time.times(high - low);
        times
    }
}

impl AddAssign<&Self> for Times {
    fn add_assign(&mut self, other: &Self) {
        self.value += other.value;
        self.p05 += other.p05;
        self.p95 += other.p95;
        self.stages.iter_mut().zip(other.stages).for_each(|(sum, more)| *sum += more);
        self.tiers.iter_mut().zip(other.tiers).for_each(|(sum, more)| *sum += more);
    }
}

/// Kernels that run at the clock that is set.
#[derive(Clone, Copy, Debug, Default)]
struct Following {
    times: Times,
    /// Drives times what they go with: those of the clock by time, of arithmetic and traffic by the time at the reference.
    clock: Split,
    arithmetic: f64,
    traffic: f64,
    /// Times of kernels below their reference less those above, and the same times the logarithm of the reference.
    below: Split,
    below_log: Split,
}

impl Following {
    /// A kernel below its reference, so many times.
    fn of(kernel: &Kernel<'_>, count: f64) -> Self {
        let time = kernel.time.value * count;
        let traffic = traffic_share(kernel.memory, kernel.time.value, 1.0);
        let split = Split { core: time.get() * (1.0 - traffic) * kernel.reference, memory: time.get() * traffic };
        let [clock, arithmetic, traffic] = kernel.drives.parts();
        Self {
            times: Times::of(kernel, split),
            clock: split.times(clock),
            arithmetic: arithmetic * time.get(),
            traffic: traffic * time.get(),
            below: split,
            below_log: split.times(kernel.reference.ln()),
        }
    }

    /// The same above its reference.
    fn above(self) -> Self {
        Self { below: self.below.times(-1.0), below_log: self.below_log.times(-1.0), ..self }
    }

    /// The same where it stays at a core clock.
    fn staying(&self, over: &OverClock, core: f64) -> Staying {
        let at = |split: Split| Split { core: split.core / core, memory: split.memory };
        let t = &self.times;
        let times = Times {
            value: at(t.value),
            p05: at(t.p05),
            p95: at(t.p95),
            stages: t.stages.map(at),
            tiers: t.tiers.map(at),
        };
        let AtClock { waiting, squared, .. } = over.at(core);
        let range = over.range;
        let fixed = squared * (self.clock.core + self.arithmetic) + self.traffic;
        let energy = Split {
            core: waiting * times.value.core + range * fixed,
            memory: waiting * times.value.memory + range * squared * self.clock.memory * core,
        };
        Staying { times, energy }
    }
}

impl AddAssign<&Self> for Following {
    fn add_assign(&mut self, other: &Self) {
        self.times += &other.times;
        self.clock += other.clock;
        self.arithmetic += other.arithmetic;
        self.traffic += other.traffic;
        self.below += other.below;
        self.below_log += other.below_log;
    }
}

/// Kernels that stay at the fastest clock that they run at.
#[derive(Clone, Copy, Debug, Default)]
struct Staying {
    times: Times,
    energy: Split,
}

impl AddAssign<&Self> for Staying {
    fn add_assign(&mut self, other: &Self) {
        self.times += &other.times;
        self.energy += other.energy;
    }
}

/// A stretch's kernels between two references.
#[derive(Clone, Copy, Debug, Default)]
struct Between {
    following: Following,
    staying: Staying,
}

/// A stretch in sums.
pub(super) struct Sums {
    /// Relative core clocks that kernels' times are of, rising.
    references: Vec<f64>,
    /// Below the first of these, between each and the next, and above the last.
    between: Vec<Between>,
    /// Mean power at so many parts of the usual core clock, of [`PARTS`]: about where a limit's clock lies.
    powers: [Watts; PARTS + 1],
}

const PARTS: usize = 32;

impl Sums {
    /// Of kernels, so many of each; `None` where kernels are not faster up to a clock that their times are not of.
    pub(super) fn of<'k>(kernels: impl Iterator<Item = (&'k Kernel<'k>, f64)>, over: &OverClock) -> Option<Self> {
        let mut kernels: Vec<_> = kernels.collect();
        kernels.sort_by(|(a, _), (b, _)| a.reference.total_cmp(&b.reference));
        let mut references: Vec<f64> = kernels.iter().map(|(kernel, _)| kernel.reference).collect();
        references.dedup();
        let mut between = vec![Between::default(); references.len() + 1];
        let group = |kernel: &Kernel<'_>| references.partition_point(|r| *r < kernel.reference);
        // Each stays behind from its reference on: sums of those before from below, of those after from above.
        let (mut before, mut after) = (between.clone(), vec![Following::default(); between.len()]);
        for (kernel, count) in kernels {
            let at = group(kernel);
            let own = Following::of(kernel, count);
            after[at] += &own;
            if kernel.fastest == kernel.reference {
                before[at + 1].staying += &own.staying(over, kernel.fastest);
            } else if kernel.fastest == f64::INFINITY {
                before[at + 1].following += &own.above();
            } else {
                return None;
            }
        }
        let mut sum = Between::default();
        for (between, more) in between.iter_mut().zip(&before) {
            sum.following += &more.following;
            sum.staying += &more.staying;
            *between = sum;
        }
        let mut sum = Following::default();
        for (between, more) in between.iter_mut().zip(&after).rev() {
            sum += more;
            between.following += &sum;
        }
        let mut sums = Self { references, between, powers: [Watts::ZERO; PARTS + 1] };
        for part in 1..=PARTS {
            let core = part as f64 / PARTS as f64;
            let (time, energy) = sums.taken(Clocks { core, memory: 1.0 }, over);
            sums.powers[part] = energy / time;
        }
        Some(sums)
    }

    /// The highest core clock at which the stretch's mean power keeps what is allowed, as `Step::settled` finds it.
    pub(super) fn settled(&self, limits: &Limits, allowed: Watts, over: &OverClock) -> f64 {
        let (most, by_memory) = (allowed.get() * (1.0 + ROUNDING), 1.0 / limits.memory);
        // Energy above what is allowed for the time, times the clock.
        let excess = |core: f64| {
            let at = over.at(core);
            let Between { following, staying } = self.between(core);
            let (time, clock) = (following.times.value, following.clock);
            let taken = time.at(1.0, core * by_memory);
            let moving = clock.at(1.0, core * by_memory) + following.arithmetic;
            let drawn = at.squared * moving + following.traffic;
            let rising = at.squared_slope * moving + at.squared * clock.memory * by_memory;
            let still = staying.energy.at(1.0, by_memory) - most * staying.times.value.at(1.0, by_memory);
            let above = at.waiting - most;
            let slope =
                at.waiting_slope * taken + above * time.memory * by_memory + over.range * (drawn + rising * core);
            (above * taken + (over.range * drawn + still) * core, slope + still)
        };
        let near = self.near(allowed).filter(|near| limits.lowest < *near && *near < limits.ceiling);
        highest_near(near, limits.lowest, limits.ceiling, excess).unwrap_or(limits.lowest)
    }

    /// About the core clock at which so much is drawn, if the memory runs at its usual one.
    fn near(&self, allowed: Watts) -> Option<f64> {
        let above = self.powers.partition_point(|power| *power <= allowed);
        let (low, high) = (*self.powers.get(above.checked_sub(1)?)?, *self.powers.get(above)?);
        Some(((above - 1) as f64 + (allowed - low) / (high - low)) / PARTS as f64)
    }

    /// Time and energy at clocks.
    fn taken(&self, clocks: Clocks, over: &OverClock) -> (Seconds, Joules) {
        let Between { following, staying } = self.between(clocks.core);
        let (by_core, by_memory) = (1.0 / clocks.core, 1.0 / clocks.memory);
        let moving = following.times.value.at(by_core, by_memory);
        let AtClock { waiting, squared, .. } = over.at(clocks.core);
        let clock = following.clock.at(1.0, clocks.core * by_memory);
        let drawn = squared * (clock + following.arithmetic) + following.traffic;
        let energy = waiting * moving + over.range * drawn;
        (
            Seconds::new(moving + staying.times.value.at(1.0, by_memory)),
            Joules::new(energy + staying.energy.at(1.0, by_memory)),
        )
    }

    fn between(&self, core: f64) -> &Between {
        &self.between[self.references.partition_point(|r| *r < core)]
    }

    /// Adds the time that the stretch takes at clocks and its stages, which it gives, and the energy.
    pub(super) fn add_taken_to(&self, totals: &mut Totals, clocks: Clocks, over: &OverClock) -> Seconds {
        let (time, energy) = self.taken(clocks, over);
        (totals.time.value, totals.energy) = (totals.time.value + time, totals.energy + energy);
        let Between { following, staying } = self.between(clocks.core);
        let (by_core, by_memory) = (1.0 / clocks.core, 1.0 / clocks.memory);
        let stage = |i: usize| {
            let (moving, still) = (following.times.stages[i], staying.times.stages[i]);
            Seconds::new(moving.at(by_core, by_memory) + still.at(1.0, by_memory))
        };
        totals.stages = totals.stages + Stages { forward: stage(0), backward: stage(1), update: stage(2) };
        time
    }

    /// Adds what the stretch takes at clocks.
    pub(super) fn add_to(&self, totals: &mut Totals, clocks: Clocks, over: &OverClock) {
        let Between { following, staying } = self.between(clocks.core);
        let (by_core, by_memory) = (1.0 / clocks.core, 1.0 / clocks.memory);
        let (moving, still) = (&following.times, &staying.times);
        let both = |a: Split, b: Split| a.at(by_core, by_memory) + b.at(1.0, by_memory);
        let seconds = |a, b| Seconds::new(both(a, b));
        let time = self.add_taken_to(totals, clocks, over);
        totals.time.p05 += seconds(moving.p05, still.p05);
        totals.time.p95 += seconds(moving.p95, still.p95);
        for (width, (a, b)) in totals.by_tier.iter_mut().zip(moving.tiers.into_iter().zip(still.tiers)) {
            *width += both(a, b);
        }
        let core =
            following.below_log.at(by_core, by_memory) - clocks.core.ln() * following.below.at(by_core, by_memory);
        totals.moved += core + clocks.memory.ln().abs() * time.get();
    }
}
