//! Power of kernels: a non-negative law of activity, the clock, and what the power limit does to both.
//!
//! `P(f) = P0 + (L - P0) (f / f_max)^g sum_j c_j a_j`, P0 the power of a device that waits with a context, L its default
//! limit, a_j activities of the kernel at full clock (shares of peak arithmetic and bandwidth that its predicted time
//! implies, and how much of that time is not launch), c_j >= 0. The form is that of Guerreiro et al. (HPCA 2018) with
//! predicted utilisations in place of counters (as in EnergAIzer) and V^2 f written as a power of the clock.
//! Coefficients are shares of the range between waiting and limit, so that one law serves devices that have no energy
//! rows of their own.

use crate::features::{Family, Workload};
use crate::gpu::Gpu;
use crate::precision::Precision;
use crate::units::{Seconds, Watts};

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

/// Power while waiting with a context over idle power (H200: 130 W over 80 W).
const CONTEXT: f64 = 1.6;
/// Share of the limit that idle is taken as where it is not known.
const UNKNOWN_IDLE: f64 = 0.1;
/// More than the peak bandwidth: traffic that the cache served.
const MOST_MEMORY: f64 = 1.2;
/// Kernels reach so much of the peak bandwidth when bound by it: that part of their time does not follow the clock.
const REACHED: f64 = 0.85;

/// Activities of a kernel.
pub type Activities = [f64; COUNT];

/// A fitted law, without a device.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerModel {
    /// One coefficient per activity, as shares of the range between waiting and limit.
    pub coefficients: Activities,
    /// Exponent of the relative clock.
    pub exponent: f64,
    /// The clock falls where power would exceed this share of the limit.
    pub headroom: f64,
    /// Held-out log residuals of power: 5 % and 95 % quantiles.
    pub residuals: (f64, f64),
    /// Mean absolute percentage error on held-out shapes.
    pub mape: f64,
    /// Rows behind it.
    pub rows: usize,
}

/// What a kernel does to power, given its launch floor and how long it takes at full clock.
pub fn activities(work: &Workload<'_>, floor: Seconds, time: Seconds) -> Activities {
    let share = |part: Seconds, most: f64| if time > Seconds::ZERO { (part / time).clamp(0.0, most) } else { 0.0 };
    let roofline = &work.roofline;
    let busy = 1.0 - share(floor, 1.0);
    // What a kernel takes beyond its traffic and arithmetic is spent on the multiprocessors that it fills.
    let occupied = busy * work.occupancy();
    let (compute, memory) = (share(roofline.compute, 1.0), share(roofline.memory + roofline.second, MOST_MEMORY));
    let mut list = [0.0; COUNT];
    list[..3].copy_from_slice(&[occupied, busy * memory, occupied * memory.sqrt()]);
    let at = match work.precision {
        _ if Family::of(work.layer, work.phase) == Family::Stream => 3,
        Precision::Fp32 => 3,
        Precision::Tf32 => 5,
        Precision::Fp16 | Precision::Bf16 | Precision::Int8 => 7,
    };
    list[at] = busy * compute;
    list[at + 1] = occupied * compute.sqrt();
    list
}

/// How much longer a kernel takes at a relative clock: the part bound by memory does not follow it.
pub fn stretch(memory: Seconds, time: Seconds, clock: f64) -> f64 {
    let fixed = if time > Seconds::ZERO { (memory / (time * REACHED)).min(1.0) } else { 0.0 };
    fixed + (1.0 - fixed) / clock
}

/// Power of a device that waits with a context.
pub fn waiting(gpu: &Gpu) -> Watts {
    let limit = gpu.power.limit.value;
    let idle = gpu.power.idle.as_ref().map_or(limit * UNKNOWN_IDLE, |p| p.value);
    (idle * CONTEXT).min(limit)
}

impl PowerModel {
    /// What a kernel takes above waiting at a relative clock, as a share of the range from there to the limit.
    pub fn share(&self, activities: &Activities, clock: f64) -> f64 {
        let full: f64 = self.coefficients.iter().zip(activities).map(|(c, a)| c * a).sum();
        full * clock.powf(self.exponent)
    }

    /// Power of a kernel on a device at a relative clock, whatever the limit.
    pub fn power(&self, gpu: &Gpu, activities: &Activities, clock: f64) -> Watts {
        let waiting = waiting(gpu);
        waiting + (gpu.power.limit.value - waiting) * self.share(activities, clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::toy;

    fn model() -> PowerModel {
        let mut coefficients = [0.0; COUNT];
        (coefficients[0], coefficients[1], coefficients[3]) = (0.3, 0.3, 0.9);
        PowerModel { coefficients, exponent: 2.0, headroom: 0.98, residuals: (-0.1, 0.1), mape: 7.0, rows: 500 }
    }

    #[test]
    fn work_takes_power_and_a_lower_clock_less_of_it() {
        let (gpu, model) = (toy(), model());
        let mut busy = [0.0; COUNT];
        assert_eq!(model.power(&gpu, &busy, 1.0), waiting(&gpu));
        (busy[0], busy[1], busy[3]) = (1.0, 1.0, 1.0);
        assert!(model.power(&gpu, &busy, 1.0) > gpu.power.limit.value);
        assert!(model.power(&gpu, &busy, 0.5) < model.power(&gpu, &busy, 1.0));
    }

    #[test]
    fn only_what_is_not_bound_by_memory_follows_the_clock() {
        let second = Seconds::new(1.0);
        assert_eq!(stretch(second, second, 0.5), 1.0);
        assert_eq!(stretch(Seconds::ZERO, second, 0.5), 2.0);
        assert_eq!(stretch(second * 0.425, second, 0.5), 1.5);
    }
}
