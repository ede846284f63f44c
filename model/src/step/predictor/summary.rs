//! A step at many clocks and limits: its totals alone, kernels that are alike settled once.

use super::intervals::Outcome;
use super::operating_point::{Limits, OperatingPoint};
use super::step::Step;
use super::sums::{Seen, Sums};
use super::totals::Totals;
use super::{Estimate, PredictError};
use crate::base::units::{Hertz, Joules, Seconds, Watts};
use crate::device::clock::{Clocks, VoltageCurve};
use crate::law::calibration::Tier;
use crate::law::power::{ClockLaw, power, waiting_at};
use crate::net::cost::LayerCost;
use crate::step::framework::Stages;
use crate::step::memory::{MemoryFootprint, footprint};
use std::borrow::Cow;
use std::sync::OnceLock;

/// What a [`super::NetworkPrediction`] says of the whole step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Tier that most of the uncertainty of the time rests on.
    pub time_tier: Tier,
    /// What the law of power rests on.
    pub power_tier: Tier,
    /// Mean core clock while kernels run.
    pub clock: Hertz,
    /// Time of a step.
    pub time: Estimate<Seconds>,
    /// Mean power over the step.
    pub power: Estimate<Watts>,
    /// Energy of a step.
    pub energy: Estimate<Joules>,
    /// Whether the GPU waits for the host, however shortly.
    pub launch_bound: bool,
}

/// A step's kernels with how many there are of each, by the stretches over which a limit acts.
struct Grouped<'s, 'a> {
    step: Cow<'s, Step<'a>>,
    /// Positions of kernels, and how many of each.
    stretches: Vec<Vec<(usize, f64)>>,
    /// The stretches in sums, where kernels follow the voltage; made when another point than the default is first asked for.
    sums: OnceLock<Option<Vec<Sums>>>,
    host: Stages,
}

/// A step ready to be asked for its totals at many points.
pub struct Prepared<'s, 'a> {
    as_is: Grouped<'s, 'a>,
    /// The same with the least and the largest rise of the voltage that is likely.
    likely: OnceLock<Vec<Grouped<'s, 'a>>>,
    /// Operations and traffic of the step.
    pub cost: LayerCost,
    /// Device memory.
    pub memory: MemoryFootprint,
    /// Whether that is within the device's memory.
    pub fits_in_memory: bool,
}

impl<'a> Step<'a> {
    /// Ready to be asked for its totals at many points.
    pub fn prepare(&self) -> Prepared<'_, 'a> {
        let memory = footprint(self.network, self.setup.mode, &self.setup.framework.memory);
        Prepared {
            as_is: Grouped::of(Cow::Borrowed(self)),
            likely: OnceLock::new(),
            cost: self.kernels.iter().fold(LayerCost::default(), |sum, k| sum + k.cost),
            memory,
            fits_in_memory: memory.total() <= self.setup.gpu.memory.value,
        }
    }

    /// The step if the voltage rises as little, and as much, as is likely ([`VoltageCurve::likely`]), every kernel drawing
    /// what it does at the clock of the default; none where power does not follow the voltage.
    fn likely(&self) -> Result<Vec<Self>, PredictError> {
        let ClockLaw::Voltage(_) = self.clock_law else { return Ok(Vec::new()) };
        let gpu = self.setup.gpu;
        let clocks = self.clocks_under(&OperatingPoint::default().on(gpu)?);
        let with = |curve| {
            let mut step = self.clone();
            step.clock_law = ClockLaw::Voltage(curve);
            for (kernel, &core) in step.kernels.iter_mut().zip(&clocks) {
                let slowdown = kernel.slowdown(Clocks { core, memory: 1.0 });
                let drawn = kernel.power(gpu, self.clock_law, core, slowdown);
                let level = step.clock_law.level(kernel.clock(core));
                let (idle, otherwise) = (waiting_at(gpu, level), power(gpu, kernel.drives, level, slowdown));
                if otherwise > idle {
                    kernel.drives = kernel.drives.times(((drawn - idle) / (otherwise - idle)).max(0.0));
                }
            }
            step
        };
        Ok(VoltageCurve::likely(gpu).map(with).into())
    }

    /// Time and energy at limits, by how the voltage may rise: as little, and as much, as is likely.
    pub(super) fn by_voltage(&self, limits: &Limits) -> Result<Vec<Outcome>, PredictError> {
        let steps = self.likely()?;
        Ok(steps.iter().map(|step| Grouped::of(Cow::Borrowed(step)).outcome(limits)).collect())
    }
}

impl<'s, 'a> Grouped<'s, 'a> {
    fn of(step: Cow<'s, Step<'a>>) -> Self {
        let mut stretches = Vec::new();
        // The group of every kernel's first in the stretch, and the stretch.
        let mut group = vec![(0, 0); step.kernels.len()];
        for (i, range) in step.stretches().into_iter().enumerate() {
            let mut groups: Vec<(usize, f64)> = Vec::new();
            for at in range {
                let first = &mut group[step.kernels[at].repeats.unwrap_or(at)];
                if first.0 != i + 1 {
                    *first = (i + 1, groups.len());
                    groups.push((at, 0.0));
                }
                groups[first.1].1 += 1.0;
            }
            stretches.push(groups);
        }
        let host = step.kernels.iter().fold(Stages::default(), |sum, k| sum + Stages::of(k.phase, k.host));
        Self { step, stretches, sums: OnceLock::new(), host }
    }

    fn sums(&self) -> Option<&[Sums]> {
        let sums = self.sums.get_or_init(|| {
            let step = &self.step;
            let of = |groups: &Vec<(usize, f64)>| {
                let kernels = groups.iter().map(|&(at, count)| (&step.kernels[at], count));
                Sums::of(kernels, step.setup.gpu, step.clock_law)
            };
            self.stretches.iter().map(of).collect()
        });
        sums.as_deref()
    }

    /// What [`Self::totals`] gives, kernel by kernel, by sums over them.
    fn summed(&self, limits: &Limits) -> Option<(Totals, f64)> {
        let (step, setup) = (&self.step, &self.step.setup);
        let mut totals = Totals { host: self.host, ..Totals::default() };
        let mut clock = 0.0;
        for sums in self.sums()? {
            let seen = |core| Seen::new(setup.gpu, step.clock_law, core);
            let core = sums.settled(limits, limits.cap * step.held, seen)?;
            let before = totals.time.value;
            sums.add_to(&mut totals, Clocks { core, memory: limits.memory }, seen(core)?);
            clock += core * (totals.time.value - before).get();
        }
        Some(self.waited(totals, clock))
    }

    /// Totals, and the mean of the relative core clock.
    fn totals(&self, limits: &Limits) -> (Totals, f64) {
        let (step, setup) = (&self.step, &self.step.setup);
        let mut totals = Totals { host: self.host, ..Totals::default() };
        let mut clock = 0.0;
        for groups in &self.stretches {
            let groups = groups.iter().map(|&(at, count)| (&step.kernels[at], count));
            let core = step.settled(groups.clone(), limits);
            for (kernel, count) in groups {
                let slowdown = kernel.slowdown(Clocks { core, memory: limits.memory });
                let time = kernel.time.times(slowdown * count);
                totals.energy += kernel.power(setup.gpu, step.clock_law, core, slowdown) * time.value;
                let sum = &mut totals.time;
                *sum = Estimate { value: sum.value + time.value, p05: sum.p05 + time.p05, p95: sum.p95 + time.p95 };
                totals.stages = totals.stages + Stages::of(kernel.phase, time.value);
                clock += core * time.value.get();
                totals.moved += kernel.moved(core, limits.memory) * time.value.get();
                *totals.by_tier.entry(kernel.tier).or_default() += (time.p95 - time.p05).get();
            }
        }
        self.waited(totals, clock)
    }

    /// With the time in which no kernel runs; `clock`: the core clock times the time of kernels, then over that time.
    fn waited(&self, mut totals: Totals, clock: f64) -> (Totals, f64) {
        let (step, setup) = (&self.step, &self.step.setup);
        let clock = clock / totals.time.value.get();
        let idle = waiting_at(setup.gpu, step.clock_law.level(clock));
        totals.wait(step.kernels.len(), setup, step.network.precision(), idle);
        totals.idle(step.gap, idle);
        (totals, clock)
    }

    fn outcome(&self, limits: &Limits) -> Outcome {
        let (totals, _) = self.totals(limits);
        (totals.time.value, totals.energy)
    }
}

impl<'s, 'a> Prepared<'s, 'a> {
    fn likely(&self) -> Result<&[Grouped<'s, 'a>], PredictError> {
        if let Some(likely) = self.likely.get() {
            return Ok(likely);
        }
        let steps = self.as_is.step.likely()?.into_iter();
        Ok(self.likely.get_or_init(|| steps.map(|step| Grouped::of(Cow::Owned(step))).collect()))
    }

    /// The totals that [`Step::at`] gives.
    ///
    /// # Errors
    /// For clocks or a limit that the device does not take.
    pub fn at(&self, point: OperatingPoint) -> Result<Summary, PredictError> {
        let limits = point.on(self.as_is.step.setup.gpu)?;
        if point == OperatingPoint::default() {
            return Ok(self.summary(point, &limits, self.as_is.totals(&limits), &[]));
        }
        // One sum over all kernels takes longer than further points by sums.
        let quick = |step: &Grouped<'_, '_>| step.summed(&limits).unwrap_or_else(|| step.totals(&limits));
        let outcome = |step: &Grouped<'_, '_>| {
            let (totals, _) = quick(step);
            (totals.time.value, totals.energy)
        };
        let likely: Vec<Outcome> = self.likely()?.iter().map(outcome).collect();
        Ok(self.summary(point, &limits, quick(&self.as_is), &likely))
    }

    /// What [`Self::at`] gives, kernel by kernel: the plain way, which sums are held to.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub fn plainly_at(&self, point: OperatingPoint) -> Result<Summary, PredictError> {
        let limits = point.on(self.as_is.step.setup.gpu)?;
        let likely: Vec<Outcome> = match point == OperatingPoint::default() {
            true => Vec::new(),
            false => self.likely()?.iter().map(|step| step.outcome(&limits)).collect(),
        };
        Ok(self.summary(point, &limits, self.as_is.totals(&limits), &likely))
    }

    fn summary(
        &self,
        point: OperatingPoint,
        limits: &Limits,
        (totals, clock): (Totals, f64),
        likely: &[Outcome],
    ) -> Summary {
        let step = &self.as_is.step;
        let (_, (time, power, energy)) = step.intervals(&totals, point, limits.cap, likely);
        Summary {
            time_tier: totals.tier(),
            power_tier: step.power_tier,
            clock: step.setup.gpu.core_clock.boost.value * clock,
            time,
            power,
            energy,
            launch_bound: totals.for_host > Seconds::ZERO,
        }
    }
}
