//! A step whose kernels are known, at no clock yet.

use super::Setup;
use super::intervals::Width;
use super::kernel::Kernel;
use crate::base::number::Number as _;
use crate::base::units::Seconds;
use crate::law::calibration::Tier;
use crate::law::power::{ClockLaw, PowerModel};
use crate::net::network::ShapedNetwork;

/// Kernels whose logarithms are taken at once.
const AT_ONCE: usize = 4;

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
    /// independently, so that half-widths, each by its share of the time, add in squares. For each kernel in turn the place of the
    /// one that it is alike.
    pub(super) fn least_width(&self, alike: impl Iterator<Item = usize>) -> Width {
        let mut counts = vec![0.0; self.kernels.len()];
        alike.for_each(|place| counts[place] += 1.0);
        let (mut all, mut below, mut above) = (0.0, 0.0, 0.0);
        for (kernels, counts) in self.kernels.chunks(AT_ONCE).zip(counts.chunks(AT_ONCE)) {
            let mut ratios = [1.0; 2 * AT_ONCE];
            for (ratios, Kernel { time, .. }) in ratios.chunks_exact_mut(2).zip(kernels) {
                ratios.copy_from_slice(&[time.value / time.p05, time.p95 / time.value]);
            }
            let logs = f64::ln_of_each(ratios);
            for ((logs, kernel), count) in logs.chunks_exact(2).zip(kernels).zip(counts) {
                let time = kernel.time.value.get() * count;
                all += time;
                below += (time * logs[0]).powi(2);
                above += (time * logs[1]).powi(2);
            }
        }
        if all > 0.0 { Width(below.sqrt() / all, above.sqrt() / all) } else { Width::default() }
    }

    /// It with other kernels.
    pub(super) fn with_kernels(&self, kernels: Vec<Kernel<'a>>) -> Self {
        let Self { network, setup, law, clock_law, power_tier, held, burst, gap, kernels: _ } = *self;
        Self { network, setup, kernels, law, clock_law, power_tier, held, burst, gap }
    }
}
