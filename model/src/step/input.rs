//! What feeds a step: a host that reads, decodes and copies so many samples a second.

use crate::base::units::{Joules, Seconds, Watts};
use crate::device::gpu::Gpu;
use crate::law::power::Waits;
use crate::step::predictor::{Estimate, Fed, NetworkPrediction};

/// A step whose samples come at a rate: it takes what the GPUs or the input takes, whichever is longer, as the next
/// samples are prepared meanwhile. GPUs that wait draw what they draw with nothing to do. `gpus` are the kinds of the
/// prediction's devices, in their order; `samples_per_second` is above 0.
pub fn fed(step: NetworkPrediction, samples_per_second: f64, gpus: &[&Gpu]) -> NetworkPrediction {
    let input = Seconds::new(step.batch as f64 / samples_per_second);
    let longer = |busy: Seconds| busy.max(input);
    let busy = step.time.value;
    let time = Estimate { value: longer(busy), p05: longer(step.time.p05), p95: longer(step.time.p95) };
    let waits = time.value - busy;
    let share = busy / time.value;
    // A step that is busy for longer waits for less: ends go with ends.
    let later = |energy: Estimate<Joules>, idle: Waits| Estimate {
        value: energy.value + idle.value * waits,
        p05: energy.p05 + idle.p05 * (time.p05 - step.time.p05),
        p95: energy.p95 + idle.p95 * (time.p95 - step.time.p95),
    };
    let diluted = |power: Estimate<Watts>, idle: Waits| {
        let mean = |power: Watts, idle: Watts, busy: Seconds, time: Seconds| idle + (power - idle) * (busy / time);
        Estimate {
            value: mean(power.value, idle.value, busy, time.value),
            p05: mean(power.p05, idle.p05, step.time.p05, time.p05),
            p95: mean(power.p95, idle.p95, step.time.p95, time.p95),
        }
    };
    let mut devices = step.devices;
    let mut idle = Waits { p05: Watts::ZERO, value: Watts::ZERO, p95: Watts::ZERO };
    let (mut low, mut high) = (Watts::ZERO, Watts::ZERO);
    for (device, gpu) in devices.iter_mut().zip(gpus) {
        let (count, own) = (device.count as f64, Waits::idle(gpu));
        device.energy = later(device.energy, own);
        device.waiting += own.value * waits;
        device.power = diluted(device.power, own);
        idle = Waits {
            p05: idle.p05 + own.p05 * count,
            value: idle.value + own.value * count,
            p95: idle.p95 + own.p95 * count,
        };
        low += device.power.p05 * count;
        high += device.power.p95 * count;
    }
    let energy = later(step.energy, idle);
    NetworkPrediction {
        time,
        energy,
        power: Estimate { value: energy.value / time.value, p05: low, p95: high },
        waiting: 1.0 - share * (1.0 - step.waiting),
        fed: Some(Fed { samples_per_second, waits }),
        devices,
        ..step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Precision};
    use crate::catalog;
    use crate::law::power::waiting;
    use crate::net::network::ShapedNetwork;
    use crate::step::predict::Predictor;

    #[test]
    fn a_step_takes_what_is_longer_and_the_gpu_waits_for_the_rest() -> Result<(), Box<dyn std::error::Error>> {
        let (gpu, framework) = (catalog::gpu("v100")?, catalog::framework("cudnn")?);
        let network = ShapedNetwork::new(&catalog::network("alexnet")?, 64, Precision::Fp32, &[])?;
        let alone = Predictor::shipped(gpu.clone(), framework).predict(&network, Mode::Inference)?;
        let rate = alone.samples_per_second();
        let enough = fed(alone.clone(), 2.0 * rate, &[&gpu]);
        assert_eq!(enough.fed.map(|f| f.waits), Some(Seconds::ZERO));
        assert!((enough.energy.value / alone.energy.value - 1.0).abs() < 1e-12);
        let half = fed(alone.clone(), 0.5 * rate, &[&gpu]);
        assert!((half.samples_per_second() / rate - 0.5).abs() < 1e-12);
        assert!((half.waiting - 0.5 - 0.5 * alone.waiting).abs() < 1e-12);
        let power = (alone.power.value + waiting(&gpu)) * 0.5;
        assert!((half.power.value / power - 1.0).abs() < 1e-9);
        assert!((half.devices[0].energy.value / half.energy.value - 1.0).abs() < 1e-12);
        assert!((half.energy.value / (power * half.time.value) - 1.0).abs() < 1e-9);
        assert!(half.time.p05 <= half.time.value && half.time.value <= half.time.p95);
        assert!(half.power.p05 <= half.power.value && half.power.value <= half.power.p95);
        // No end of one figure contradicts the others.
        let slack = 1.0 + 1e-9;
        assert!(half.energy.p95 <= half.power.p95 * half.time.p95 * slack, "{:?} {:?}", half.energy, half.power);
        assert!(half.energy.p05 * slack >= half.power.p05 * half.time.p05, "{:?} {:?}", half.energy, half.power);
        Ok(())
    }
}
