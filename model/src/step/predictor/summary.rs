//! A step at many clocks and limits: its totals alone, kernels that are alike settled once.

use super::kernel::Kernel;
use super::operating_point::OperatingPoint;
use super::step::Step;
use super::totals::Totals;
use super::{Estimate, PredictError};
use crate::base::units::{Hertz, Joules, Seconds, Watts};
use crate::device::clock::Clocks;
use crate::law::calibration::Tier;
use crate::law::power::power;
use crate::net::cost::LayerCost;
use crate::step::framework::Stages;
use crate::step::memory::{MemoryFootprint, footprint};

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
    /// Whether the host, not the GPU, decides how long it takes.
    pub launch_bound: bool,
}

/// A step's kernels with how many there are of each, by the stretches over which a limit acts.
pub struct Prepared<'s, 'a> {
    step: &'s Step<'a>,
    stretches: Vec<Vec<(&'s Kernel<'a>, f64)>>,
    host: Stages,
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
        let mut stretches = Vec::new();
        // The group of every kernel's first in the stretch, and the stretch.
        let mut group = vec![(0, 0); self.kernels.len()];
        for (i, range) in self.stretches().into_iter().enumerate() {
            let mut groups: Vec<(&Kernel<'a>, f64)> = Vec::new();
            for at in range {
                let first = &mut group[self.kernels[at].repeats.unwrap_or(at)];
                if first.0 != i + 1 {
                    *first = (i + 1, groups.len());
                    groups.push((&self.kernels[at], 0.0));
                }
                groups[first.1].1 += 1.0;
            }
            stretches.push(groups);
        }
        let memory = footprint(self.network, self.setup.mode, &self.setup.framework.memory);
        Prepared {
            step: self,
            stretches,
            host: self.kernels.iter().fold(Stages::default(), |sum, k| sum + Stages::of(k.phase, k.host)),
            cost: self.kernels.iter().fold(LayerCost::default(), |sum, k| sum + k.cost),
            memory,
            fits_in_memory: memory.total() <= self.setup.gpu.memory.value,
        }
    }
}

impl Prepared<'_, '_> {
    /// The totals that [`Step::at`] gives.
    ///
    /// # Errors
    /// For clocks or a limit that the device does not take.
    pub fn at(&self, point: OperatingPoint) -> Result<Summary, PredictError> {
        let (step, setup) = (self.step, &self.step.setup);
        let limits = point.on(setup.gpu)?;
        let mut totals = Totals { host: self.host, ..Totals::default() };
        let mut clock = 0.0;
        for groups in &self.stretches {
            let core = step.settled(groups.iter().copied(), &limits);
            let level = step.law.level(step.clock_law, core);
            for &(kernel, count) in groups {
                let slowdown = kernel.slowdown(Clocks { core, memory: limits.memory });
                let time = kernel.time.times(slowdown * count);
                totals.energy += power(setup.gpu, kernel.drives, level, slowdown) * time.value;
                let sum = &mut totals.time;
                *sum = Estimate { value: sum.value + time.value, p05: sum.p05 + time.p05, p95: sum.p95 + time.p95 };
                totals.stages = totals.stages + Stages::of(kernel.phase, time.value);
                clock += core * time.value.get();
                totals.moved += kernel.moved(core, limits.memory) * time.value.get();
                *totals.by_tier.entry(kernel.tier).or_default() += (time.p95 - time.p05).get();
            }
        }
        clock /= totals.time.value.get();
        totals.wait(step.kernels.len(), setup, step.network.precision());
        totals.idle(step.gap, setup.gpu);
        let (_, (time, power, energy)) = step.intervals(&totals, point, limits.cap);
        Ok(Summary {
            time_tier: totals.tier(),
            power_tier: step.power_tier,
            clock: setup.gpu.core_clock.boost.value * clock,
            time,
            power,
            energy,
            launch_bound: totals.for_host > Seconds::ZERO,
        })
    }
}
