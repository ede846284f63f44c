//! A step whose kernels are known, at no clock yet.

use super::intervals::Width;
use super::kernel::Kernel;
use super::{Estimate, Setup};
use crate::base::units::Seconds;
use crate::law::calibration::Tier;
use crate::law::power::{ClockLaw, PowerModel};
use crate::net::network::ShapedNetwork;

/// The kernels of a step, ready to be predicted at any clocks and power limit.
#[derive(Clone)]
pub struct Step<'a> {
    pub(super) network: &'a ShapedNetwork,
    pub(super) setup: Setup<'a>,
    pub(super) kernels: Vec<Kernel<'a>>,
    pub(super) law: &'a PowerModel,
    pub(super) clock_law: ClockLaw,
    pub(super) power_tier: Tier,
    /// Share of the limit that the board draws while that holds it back.
    pub(super) held: f64,
    /// Times are of bursts, in which a kernel may draw so many times the limit; else each was timed under the limit.
    pub(super) burst: Option<f64>,
    /// Time between kernels beyond what the framework's profile says.
    pub(super) gap: Seconds,
}

impl<'a> Step<'a> {
    /// Half-widths of the kernels' time at the least, at the clocks that their times are of: those that are alike err alike, others
    /// independently, so that deviations add in squares. For each kernel in turn the place of the one that it is alike.
    pub(super) fn least_width(&self, alike: impl Iterator<Item = usize>) -> Width {
        let mut counts = vec![0.0; self.kernels.len()];
        alike.for_each(|place| counts[place] += 1.0);
        let (mut all, mut below, mut above) = (0.0, 0.0, 0.0);
        for (kernel, count) in self.kernels.iter().zip(counts) {
            let Estimate { value, p05, p95 } = kernel.time.times(count);
            all += value.get();
            below += (value - p05).get().powi(2);
            above += (p95 - value).get().powi(2);
        }
        if all > 0.0 { Width(-(-below.sqrt() / all).ln_1p(), (above.sqrt() / all).ln_1p()) } else { Width::default() }
    }

    /// It with other kernels.
    pub(super) fn with_kernels(&self, kernels: Vec<Kernel<'a>>) -> Self {
        let Self { network, setup, law, clock_law, power_tier, held, burst, gap, kernels: _ } = *self;
        Self { network, setup, kernels, law, clock_law, power_tier, held, burst, gap }
    }
}
