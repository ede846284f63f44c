//! Power limits and clocks that are worth a try.

use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::step::predictor::core_range;

/// Power limits are tried so far apart.
const CAP_STEP: Watts = Watts::new(5.0);
/// The lowest limit tried where the device's file does not say, as a share of the default one.
const LEAST_CAP: f64 = 0.4;
/// And below this share of the boost clock none: energy rises there on every known GPU.
const LEAST_CLOCK: f64 = 0.25;

/// The lowest limit to try.
pub fn least_cap(gpu: &Gpu) -> Watts {
    gpu.power.limit_minimum.as_ref().map_or(gpu.power.limit.value * LEAST_CAP, |p| p.value)
}

/// Limits to try, the default one not among them.
pub fn caps(gpu: &Gpu) -> Vec<Watts> {
    let (limit, least) = (gpu.power.limit.value, least_cap(gpu));
    let steps = ((limit - least) / CAP_STEP).ceil() as u64;
    (1..=steps).map(|i| (limit - CAP_STEP * i as f64).max(least)).collect()
}

/// At most so many clocks to try, from high to low, on the grid where that is known.
pub fn clocks(gpu: &Gpu, most: usize) -> Vec<Hertz> {
    let boost = gpu.core_clock.boost.value;
    let (low, high) = core_range(gpu);
    let low = low.max(boost * LEAST_CLOCK);
    let range = high - low;
    let step = match &gpu.core_clock.step {
        Some(step) => step.value * (range / step.value / most as f64).ceil().max(1.0),
        None => range / most as f64,
    };
    (0..=(range / step) as u64).map(|i| high - step * i as f64).filter(|clock| *clock != boost).collect()
}
