//! A step whose kernels are known, at no clock yet.

use super::Setup;
use super::kernel::Kernel;
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
    /// It with other kernels.
    pub(super) fn with_kernels(&self, kernels: Vec<Kernel<'a>>) -> Self {
        let Self { network, setup, law, clock_law, power_tier, held, burst, gap, kernels: _ } = *self;
        Self { network, setup, kernels, law, clock_law, power_tier, held, burst, gap }
    }
}
