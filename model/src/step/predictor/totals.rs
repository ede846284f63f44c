//! Sums over the kernels of a step, the time in which none runs.

use super::intervals::Outcome;
use super::kernel::Kernel;
use super::{Estimate, LayerPrediction, Setup};
use crate::base::precision::Precision;
use crate::base::units::{Joules, Seconds, Watts};
use crate::law::calibration::Tier;
use crate::law::lookup::Substitute;
use crate::net::cost::LayerCost;
use crate::step::framework::{Cut, Launch, Stages};

/// Running sums over kernels.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) time: Estimate<Seconds>,
    pub(super) bound: Seconds,
    pub(super) energy: Joules,
    /// Time in which no kernel runs.
    pub(super) waiting: Seconds,
    /// That part of it in which the host has not launched the next.
    pub(super) for_host: Seconds,
    /// Whether the step lasts as long as the host takes, and whether as long as the slowest takes that is likely.
    pub(super) host_decides: (bool, bool),
    /// Time and energy of a step of the fastest and of the slowest host that is likely.
    pub(super) by_host: Option<[Outcome; 2]>,
    /// How far the clocks are from those that times are of, weighted by time.
    pub(super) moved: f64,
    /// What kernels take, by stage.
    pub(super) stages: Stages,
    /// What the host takes to launch them.
    pub(super) host: Stages,
    pub(super) cost: LayerCost,
    /// Widths of the kernels' intervals, in the order of tiers.
    pub(super) by_tier: [f64; Tier::ALL.len()],
    pub(super) outside: f64,
    /// What times are expected to err in the mean, summed.
    pub(super) errors: Seconds,
    /// Times of kernels by what stands in for their models, and by kind.
    pub(super) substituted: Vec<(Substitute, &'static str, f64)>,
}

impl Default for Estimate<Seconds> {
    fn default() -> Self {
        Self { value: Seconds::ZERO, p05: Seconds::ZERO, p95: Seconds::ZERO }
    }
}

impl Totals {
    /// Adds so many of a kernel, but for their operations and traffic.
    pub(super) fn add(&mut self, count: f64, layer: &LayerPrediction, kernel: &Kernel<'_>) {
        let Estimate { value: time, p05, p95 } = layer.time.times(count);
        self.time.value += time;
        self.time.p05 += p05;
        self.time.p95 += p95;
        self.stages = self.stages + Stages::of(layer.phase, time);
        self.bound += layer.bound * count;
        self.energy += layer.energy * count;
        self.errors += time * kernel.error;
        self.by_tier[layer.tier as usize] += (p95 - p05).get();
        if let Some(substitute) = kernel.substitute {
            let known = self.substituted.iter_mut().find(|(by, kind, _)| (*by, *kind) == (substitute, layer.kind));
            match known {
                Some((.., sum)) => *sum += time.get(),
                None => self.substituted.push((substitute, layer.kind, time.get())),
            }
        } else if !kernel.in_range {
            self.outside += time.get();
        }
    }

    /// Adds the time in which the GPU waits at `idle`: between kernels, and for a host that is slower than they are.
    pub(super) fn wait(
        &mut self,
        (kernels, cuts): (usize, &[Cut]),
        setup: &Setup<'_>,
        precision: Precision,
        idle: Watts,
    ) {
        let host = setup.framework.host.as_ref().filter(|_| setup.launch == Launch::Eager);
        let gap = setup.framework.dispatch + host.map_or(Seconds::ZERO, |h| h.gap_in(setup.mode));
        let gaps = gap * kernels as f64;
        let busy = self.time.value;
        let stages = |time: Seconds| self.stages * ((time + gaps) / busy);
        let for_host = |time: Seconds, slower: f64| {
            let scaled = setup.framework.scales_loss_in(precision);
            host.map_or(Seconds::ZERO, |h| {
                h.waited_for(stages(time), (self.host, cuts), slower, setup.mode, (precision, scaled))
            })
        };
        let waiting = |time: Seconds| gaps + for_host(time, 1.0);
        let with = |host: f64| {
            let waiting = gaps + for_host(busy, host);
            (busy + waiting, self.energy + idle * waiting)
        };
        let spread = host.map(|h| h.spread(setup.mode, precision));
        let by_host = spread.map(|spread| [with(1.0 / spread), with(spread)]);
        let decides = |slower| host.is_some_and(|h| h.decides(stages(busy), self.host, slower, setup.mode, precision));
        let host_decides = (decides(1.0), decides(spread.unwrap_or(1.0)));
        let longer = [busy, self.time.p05, self.time.p95].map(waiting);
        (self.for_host, self.by_host, self.host_decides) = (for_host(busy, 1.0), by_host, host_decides);
        self.waiting = longer[0];
        self.time.value += longer[0];
        self.time.p05 += longer[1];
        self.time.p95 += longer[2];
        self.energy += idle * self.waiting;
    }

    /// Adds time in which the GPU waits for something else.
    pub(super) fn idle(&mut self, time: Seconds, idle: Watts) {
        let total = &mut self.time;
        *total = Estimate { value: total.value + time, p05: total.p05 + time, p95: total.p95 + time };
        self.waiting += time;
        self.energy += idle * time;
        for outcome in self.by_host.iter_mut().flatten() {
            *outcome = (outcome.0 + time, outcome.1 + idle * time);
        }
    }

    /// What kernels' times are expected to err in the mean, as a share of the step: less where it lasts as long as something
    /// else does, as its interval is narrower then.
    pub(super) fn error(&self) -> f64 {
        let (kernels, step): (f64, f64) = (self.by_tier.iter().sum(), (self.time.p95 - self.time.p05).get());
        let counts = if kernels > 0.0 { (step / kernels).min(1.0) } else { 1.0 };
        counts * (self.errors / self.time.value)
    }

    /// The tier that most of the uncertainty rests on.
    pub(super) fn tier(&self) -> Tier {
        let widths = Tier::ALL.iter().zip(self.by_tier);
        widths.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Tier::Roofline, |(tier, _)| *tier)
    }
}
