//! Data parallelism: the step waits for the slowest GPU and for the part of the all-reduce that backward cannot hide.

use super::Fabric;
use crate::base::precision::Phase;
use crate::base::units::{Bytes, Hertz, Joules, Ops, Seconds, Watts};
use crate::device::gpu::Gpu;
use crate::law::power::Waits;
use crate::net::network::ShapedNetwork;
use crate::step::framework::{Framework, Parallel};
use crate::step::predictor::{Estimate, HostOf, NetworkPrediction, PhaseTotal, Warning};
use std::collections::HashMap;

/// Gradients are summed in 32 bits, whatever the activations.
const GRADIENT_BYTES: u64 = 4;

/// GPUs of one kind, and the step that each of them would take alone over its part of the batch.
#[derive(Clone, Debug)]
pub struct Share<'a> {
    /// How many GPUs of the kind.
    pub count: u64,
    /// Their kind.
    pub gpu: &'a Gpu,
    /// The step over its part of the batch.
    pub alone: NetworkPrediction,
}

/// What GPUs of one kind do in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePrediction {
    /// Their kind.
    pub gpu: String,
    /// How many GPUs of the kind.
    pub count: u64,
    /// Samples that each takes.
    pub batch: u64,
    /// Mean core clock while kernels run.
    pub clock: Hertz,
    /// Time of each until it waits for the others or for gradients.
    pub time: Seconds,
    /// Mean power of each over the whole step.
    pub power: Estimate<Watts>,
    /// Energy of each over the whole step.
    pub energy: Estimate<Joules>,
    /// What of that it draws while it waits for the others, for gradients or for the host.
    pub waiting: Joules,
}

/// The sum of gradients over all GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Communication {
    /// What joins the GPUs, in words.
    pub interconnect: String,
    /// Bytes of gradients that each GPU gives.
    pub bytes: Bytes,
    /// Time of all all-reduces, hidden behind backward or not.
    pub time: Seconds,
    /// The part of it after the last gradient is known: what the step waits for.
    pub exposed: Seconds,
}

/// When a device has which gradients.
struct Timeline {
    /// Before the update.
    until_update: Seconds,
    update: Seconds,
    /// Per layer with parameters, from the last to the first: when its gradient is known, before the end of backward.
    gradients: Vec<(Seconds, Bytes)>,
}

impl Timeline {
    /// Waiting between kernels is spread over them evenly.
    fn of(network: &ShapedNetwork, alone: &NetworkPrediction) -> Self {
        let kernels: Seconds = alone.layers.iter().map(|l| l.time.value).sum();
        let stretch = alone.time.value / kernels;
        let mut backward: HashMap<&str, Seconds> = HashMap::new();
        let mut update = Seconds::ZERO;
        for layer in &alone.layers {
            let time = layer.time.value * stretch;
            match layer.phase {
                Phase::BackwardData | Phase::BackwardWeights => {
                    *backward.entry(&layer.name).or_insert(Seconds::ZERO) += time;
                }
                Phase::Update => update += time,
                Phase::Forward => {}
            }
        }
        // From the first layer to the last, so that each sum is what backward still has to do after a layer.
        let mut after = Seconds::ZERO;
        let mut gradients: Vec<(Seconds, Bytes)> = Vec::new();
        for layer in network.layers() {
            let parameters = layer.parameters();
            if parameters > 0 && !backward.is_empty() {
                gradients.push((after, Bytes::new(parameters.saturating_mul(GRADIENT_BYTES))));
            }
            after += backward.get(layer.name.as_str()).copied().unwrap_or(Seconds::ZERO);
        }
        gradients.reverse();
        Self { until_update: alone.time.value - update, update, gradients }
    }

    /// What a GPU takes to copy gradients into buckets and back.
    fn copies(&self, gpu: &Gpu, framework: &Framework) -> Seconds {
        let Parallel { copy_passes, copy_per_layer, .. } = framework.parallel;
        let bytes: Bytes = self.gradients.iter().map(|(_, bytes)| *bytes).sum();
        bytes / gpu.bandwidth.value * copy_passes as f64 + copy_per_layer * self.gradients.len() as f64
    }

    /// Time of all all-reduces, and when the last ends after backward.
    fn reduce(&self, gpus: u64, fabric: &Fabric, framework: &Framework) -> (Seconds, Seconds) {
        let bucket = framework.parallel.bucket;
        let (mut total, mut pending) = (Seconds::ZERO, Bytes::ZERO);
        // Times run from the end of backward, those before it are negative.
        let mut free = Seconds::new(f64::NEG_INFINITY);
        let mut send = |bytes: Bytes, known: Seconds| {
            let time = fabric.all_reduce(gpus, bytes);
            let begin = if framework.parallel.overlaps { Seconds::ZERO - known } else { Seconds::ZERO };
            free = free.max(begin) + time;
            total += time;
        };
        for (i, (known, bytes)) in self.gradients.iter().enumerate() {
            pending += *bytes;
            if bucket.is_some_and(|b| pending >= b) || i + 1 == self.gradients.len() {
                send(pending, *known);
                pending = Bytes::ZERO;
            }
        }
        (total, free.max(Seconds::ZERO))
    }
}

/// How much longer the slowest of so many alike takes than one of them, beside the slower of two, where they spread as normal
/// numbers do: within a tenth of the expected maximum over that of two (1.8 of four, 2.5 of eight, 5.7 of 1,024).
fn slowest_of(gpus: u64) -> f64 {
    (gpus as f64).log2().powf(0.75)
}

/// The step of GPUs that share a batch. Each of `shares` is the step of one GPU over its own part; all of the same
/// network, phases and precision. Faster GPUs wait with their context open; communication takes as much.
///
/// `None` without any GPU.
pub fn combine(
    shares: Vec<Share<'_>>,
    network: &ShapedNetwork,
    fabric: &Fabric,
    framework: &Framework,
) -> Option<NetworkPrediction> {
    let mut timelines: Vec<Timeline> = shares.iter().map(|s| Timeline::of(network, &s.alone)).collect();
    let gpus: u64 = shares.iter().map(|s| s.count).sum();
    let mut copies = vec![Seconds::ZERO; shares.len()];
    for ((timeline, share), copies) in timelines.iter_mut().zip(&shares).zip(&mut copies).filter(|_| gpus > 1) {
        *copies = timeline.copies(share.gpu, framework);
        timeline.until_update += *copies;
    }
    let slowest = (0..shares.len()).max_by(|a, b| {
        let time = |i: &usize| timelines[*i].until_update.get();
        time(a).total_cmp(&time(b))
    })?;
    let (communication, exposed) = timelines[slowest].reduce(gpus, fabric, framework);
    let most = |part: fn(&Timeline) -> Seconds| timelines.iter().map(part).fold(Seconds::ZERO, Seconds::max);
    let slowed = (communication - exposed).max(Seconds::ZERO) * framework.parallel.slowed_by_sums;
    let slower = if communication > Seconds::ZERO {
        shares[slowest].alone.time.value * (framework.parallel.slower_of_two * slowest_of(gpus))
    } else {
        Seconds::ZERO
    };
    copies.iter_mut().for_each(|copies| *copies += slowed);
    let time = most(|t| t.until_update) + slowed + slower + exposed + most(|t| t.update);
    // Launching goes on beside the kernels: the host decides where it takes longer than all of them and their sums.
    let launches = |s: &Share<'_>| {
        let layers = network.layers().iter().filter(|l| l.parameters() > 0).count() as f64;
        let sharing = framework.parallel.host_per_layer * layers;
        s.alone.host.as_ref().filter(|_| gpus > 1).map_or(Seconds::ZERO, |h| h.launches + sharing * h.factor)
    };
    let launches = shares.iter().map(launches).fold(Seconds::ZERO, Seconds::max);
    let for_host = (launches - time).max(Seconds::ZERO);
    let time = time + for_host;
    let wait = |edge: fn(&Estimate<Seconds>) -> Seconds| {
        shares.iter().map(|s| edge(&s.alone.time)).fold(Seconds::ZERO, Seconds::max)
    };
    let spread = fabric.spread();
    let time = Estimate {
        value: time,
        p05: (wait(|t| t.p05) + exposed / spread).min(time),
        p95: (wait(|t| t.p95) + exposed * spread + for_host).max(time),
    };

    let devices: Vec<DevicePrediction> = shares.iter().zip(copies).map(|(s, copies)| device(s, time, copies)).collect();
    let sum = |edge: fn(&DevicePrediction) -> f64| devices.iter().map(|d| edge(d) * d.count as f64).sum::<f64>();
    let energy = Estimate {
        value: Joules::new(sum(|d| d.energy.value.get())),
        p05: Joules::new(sum(|d| d.energy.p05.get())),
        p95: Joules::new(sum(|d| d.energy.p95.get())),
    };
    let power = Estimate {
        value: energy.value / time.value,
        p05: Watts::new(sum(|d| d.power.p05.get())),
        p95: Watts::new(sum(|d| d.power.p95.get())),
    };
    let total = |count: fn(&NetworkPrediction) -> u64| {
        shares.iter().fold(0u64, |sum, s| sum.saturating_add(count(&s.alone).saturating_mul(s.count)))
    };
    let mut warnings: Vec<Warning> = fabric.note.iter().cloned().collect();
    for share in &shares {
        let own = share.alone.warnings.iter().cloned();
        warnings.extend(own.map(|w| if shares.len() > 1 { w.of(&share.gpu.name) } else { w }));
    }
    let first = &shares[slowest].alone;
    let phases = first.phases.iter().enumerate().map(|(i, phase)| {
        let of = |s: &Share<'_>| s.alone.phases.get(i).map_or(Joules::ZERO, |p| p.energy * s.count as f64);
        PhaseTotal { energy: shares.iter().map(of).sum(), ..*phase }
    });
    let phases = phases.collect();
    // One machine has one host: where it decides for any of its GPUs, the others wait.
    let host = first.host.clone().map(|host| {
        let any = |flag: fn(&HostOf) -> bool| shares.iter().any(|s| s.alone.host.as_ref().is_some_and(flag));
        HostOf { decides: any(|h| h.decides) || for_host > Seconds::ZERO, may_decide: any(|h| h.may_decide), ..host }
    });
    let kernels: Seconds = first.layers.iter().map(|l| l.time.value).sum();
    Some(NetworkPrediction {
        batch: total(|p| p.batch),
        waiting: 1.0 - kernels / time.value,
        ops: Ops::new(total(|p| p.ops.get())),
        read: Bytes::new(total(|p| p.read.get())),
        written: Bytes::new(total(|p| p.written.get())),
        fits_in_memory: shares.iter().all(|s| s.alone.fits_in_memory),
        communication: Some(Communication {
            interconnect: fabric.name(gpus),
            bytes: timelines[slowest].gradients.iter().map(|g| g.1).sum(),
            time: communication,
            exposed,
        }),
        time,
        power,
        energy,
        host,
        devices,
        phases,
        warnings,
        ..first.clone()
    })
}

/// What one kind of GPU does in a step of a given time: its own work, copies of gradients, then waiting.
fn device(share: &Share<'_>, step: Estimate<Seconds>, copies: Seconds) -> DevicePrediction {
    let alone = &share.alone;
    let besides = (step.value - alone.time.value).max(Seconds::ZERO);
    let copies = copies.min(besides);
    let (copying, spinning) = (Waits::copying(share.gpu), Waits::spinning(share.gpu));
    let drawn = |of: fn(&Waits) -> Watts| of(&copying) * copies + of(&spinning) * (besides - copies);
    let idle = drawn(|w| w.value);
    let energy = Estimate {
        value: alone.energy.value + idle,
        p05: alone.energy.p05 + drawn(|w| w.p05),
        p95: alone.energy.p95 + drawn(|w| w.p95),
    };
    let power = energy.value / step.value;
    // Ends of its own power and of what it draws besides, over times as they are foreseen.
    let mean = |own: Watts, drawn: Joules| (own * alone.time.value + drawn) / (alone.time.value + besides);
    let power = Estimate {
        value: power,
        p05: mean(alone.power.p05, drawn(|w| w.p05)).min(power),
        p95: mean(alone.power.p95, drawn(|w| w.p95)).max(power),
    };
    DevicePrediction {
        gpu: share.gpu.name.clone(),
        count: share.count,
        batch: alone.batch,
        clock: alone.clock,
        time: alone.time.value,
        power,
        energy,
        waiting: idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Precision};
    use crate::catalog;
    use crate::step::predict::Predictor;

    struct Case {
        network: ShapedNetwork,
        framework: Framework,
        gpus: Vec<Gpu>,
    }

    impl Case {
        fn new(net: &str, framework: &str, gpus: &[&str]) -> Result<Self, Box<dyn std::error::Error>> {
            Ok(Self {
                network: ShapedNetwork::new(&catalog::network(net)?, 32, Precision::Fp32, &[])?,
                framework: catalog::framework(framework)?,
                gpus: gpus.iter().map(|name| catalog::gpu(name)).collect::<Result<_, _>>()?,
            })
        }

        fn alone(&self, gpu: &Gpu, mode: Mode) -> Result<NetworkPrediction, Box<dyn std::error::Error>> {
            Ok(Predictor::shipped(gpu.clone(), self.framework.clone()).predict(&self.network, mode)?)
        }

        fn of(&self, counts: &[u64], mode: Mode, over: &str) -> Result<NetworkPrediction, Box<dyn std::error::Error>> {
            let mut shares = Vec::new();
            for (gpu, &count) in self.gpus.iter().zip(counts) {
                shares.push(Share { count, gpu, alone: self.alone(gpu, mode)? });
            }
            let fabric = Fabric::from(catalog::interconnect(over)?);
            Ok(combine(shares, &self.network, &fabric, &self.framework).ok_or("no GPU")?)
        }
    }

    #[test]
    fn one_gpu_among_itself_is_the_gpu_alone() -> Result<(), Box<dyn std::error::Error>> {
        let case = Case::new("alexnet", "cudnn", &["v100"])?;
        let alone = case.alone(&case.gpus[0], Mode::Training)?;
        let one = case.of(&[1], Mode::Training, "nvlink2")?;
        assert!((one.time.value / alone.time.value - 1.0).abs() < 1e-9);
        assert!((one.energy.value / alone.energy.value - 1.0).abs() < 1e-9);
        assert_eq!(one.communication.map(|c| c.time), Some(Seconds::ZERO));
        Ok(())
    }

    #[test]
    fn a_step_waits_for_the_slowest_and_the_others_idle() -> Result<(), Box<dyn std::error::Error>> {
        let case = Case::new("alexnet", "cudnn", &["titan-x-pascal", "titan-x-maxwell"])?;
        let slow = case.alone(&case.gpus[1], Mode::Inference)?;
        let both = case.of(&[2, 2], Mode::Inference, "pcie3-host")?;
        assert!((both.time.value / slow.time.value - 1.0).abs() < 1e-9);
        assert_eq!(both.batch, 128);
        let fast = case.alone(&case.gpus[0], Mode::Inference)?;
        assert!(both.devices[0].energy.value > fast.energy.value);
        assert!(both.devices[0].power.value < fast.power.value);
        let idle = both.devices.iter().map(|d| d.waiting.get()).fold(0.0, f64::max);
        assert!(idle > 0.0 && both.devices.iter().all(|d| d.waiting < d.energy.value));
        let sum: f64 = both.devices.iter().map(|d| d.energy.value.get() * d.count as f64).sum();
        assert!((sum / both.energy.value.get() - 1.0).abs() < 1e-9);
        Ok(())
    }

    #[test]
    fn a_host_launches_what_sharing_takes_beside_its_step() -> Result<(), Box<dyn std::error::Error>> {
        let mut case = Case::new("mobilenet_v2", "pytorch", &["h200"])?;
        let launches = case.alone(&case.gpus[0], Mode::Training)?.host.ok_or("no host")?.launches;
        let layers = case.network.layers().iter().filter(|l| l.parameters() > 0).count() as f64;
        let two = case.of(&[2], Mode::Training, "nvlink4")?;
        assert!(two.host.as_ref().is_some_and(|h| h.decides));
        let more = two.time.value - launches;
        assert!((more / (Seconds::from_us(75.0) * layers) - 1.0).abs() < 1e-9, "{more:?}");
        assert!(two.time.p05 < two.time.value && two.time.p95 > two.time.value);
        // A GPU that is slow enough hides all of it, and one alone shares nothing.
        case.framework.parallel.host_per_layer = Seconds::ZERO;
        let free = case.of(&[2], Mode::Training, "nvlink4")?;
        assert!(free.time.value < two.time.value);
        let slow = Case::new("vgg16", "pytorch", &["t4"])?;
        let kernels = slow.of(&[2], Mode::Training, "pcie3")?;
        assert!(kernels.host.is_some_and(|h| !h.decides));
        Ok(())
    }

    #[test]
    fn copies_draw_what_kernels_do_and_waiting_for_others_less() -> Result<(), Box<dyn std::error::Error>> {
        let mut case = Case::new("vgg16", "pytorch", &["h200"])?;
        let gpu = case.gpus[0].clone();
        let alone = case.alone(&gpu, Mode::Training)?.time.value;
        let besides = |case: &Case| -> Result<(Seconds, Joules), Box<dyn std::error::Error>> {
            let two = case.of(&[2], Mode::Training, "nvlink4")?;
            Ok((two.time.value - alone, two.devices[0].waiting))
        };
        case.framework.parallel.slowed_by_sums = 0.0;
        let (whole, drawn) = besides(&case)?;
        (case.framework.parallel.copy_passes, case.framework.parallel.copy_per_layer) = (0, Seconds::ZERO);
        let (waits, spun) = besides(&case)?;
        let (copying, spinning) = (Waits::copying(&gpu).value, Waits::spinning(&gpu).value);
        assert!(waits > Seconds::ZERO && (spun / (spinning * waits) - 1.0).abs() < 1e-9, "{spun:?}");
        let copies = whole - waits;
        assert!(copies > Seconds::ZERO && (drawn / (copying * copies + spun) - 1.0).abs() < 1e-9, "{drawn:?}");
        Ok(())
    }

    /// A share of the step for each that may be the slowest, and of the sums that run beside kernels; nothing without sums.
    #[test]
    fn gpus_that_share_a_step_wait_for_the_slowest_and_run_beside_sums() -> Result<(), Box<dyn std::error::Error>> {
        let mut case = Case::new("vgg16", "pytorch", &["h200"])?;
        let alone = case.alone(&case.gpus[0], Mode::Training)?.time.value;
        let of = |case: &Case, gpus: u64| case.of(&[gpus], Mode::Training, "nvlink4");
        (case.framework.parallel.slower_of_two, case.framework.parallel.slowed_by_sums) = (0.0, 0.0);
        let (two, four) = (of(&case, 2)?, of(&case, 4)?);
        case.framework.parallel.slower_of_two = 0.1;
        let more = |other: &NetworkPrediction, gpus| {
            Ok::<_, Box<dyn std::error::Error>>(of(&case, gpus)?.time.value - other.time.value)
        };
        assert!((more(&two, 2)? / (alone * 0.1) - 1.0).abs() < 1e-9);
        assert!((more(&four, 4)? / (alone * 0.1) - 2f64.powf(0.75)).abs() < 1e-9);
        let inference = |gpus| case.of(&[gpus], Mode::Inference, "nvlink4").map(|p| p.time.value);
        assert_eq!(inference(4)?, inference(1)?);
        (case.framework.parallel.slower_of_two, case.framework.parallel.slowed_by_sums) = (0.0, 0.5);
        let sums = two.communication.as_ref().map(|c| c.time - c.exposed).ok_or("sums")?;
        let slowed = of(&case, 2)?;
        assert!(((slowed.time.value - two.time.value) / (sums * 0.5) - 1.0).abs() < 1e-9);
        // Kernels that a sum slows draw what copies do.
        let drawn = (slowed.energy.value - two.energy.value) / 2.0;
        assert!((drawn / (Waits::copying(&case.gpus[0]).value * (sums * 0.5)) - 1.0).abs() < 1e-9, "{drawn:?}");
        Ok(())
    }

    #[test]
    fn what_is_drawn_while_others_are_waited_for_is_less_sure() -> Result<(), Box<dyn std::error::Error>> {
        let case = Case::new("resnet50", "pytorch", &["h200"])?;
        let relative = |gpus: u64| -> Result<f64, Box<dyn std::error::Error>> {
            let energy = case.of(&[gpus], Mode::Training, "infiniband-fdr")?.energy;
            Ok((energy.p95 - energy.p05) / energy.value)
        };
        let widths = [1, 2, 8, 64, 1024, 65_536].map(relative);
        let widths: Vec<f64> = widths.into_iter().collect::<Result<_, _>>()?;
        assert!(widths.windows(2).all(|pair| pair[1] > 0.95 * pair[0]), "{widths:?}");
        Ok(())
    }

    #[test]
    fn backward_hides_what_a_framework_lets_it_hide() -> Result<(), Box<dyn std::error::Error>> {
        let exposed = |framework: &str, over: &str| -> Result<Communication, Box<dyn std::error::Error>> {
            let case = Case::new("resnet50", framework, &["v100"])?;
            Ok(case.of(&[4], Mode::Training, over)?.communication.ok_or("communication")?)
        };
        let hidden = exposed("pytorch", "nvlink2")?;
        assert_eq!(hidden.bytes.get(), 25_557_032 * 4);
        assert!(hidden.exposed < hidden.time * 0.7, "{hidden:?}");
        let mut case = Case::new("resnet50", "pytorch", &["v100"])?;
        (case.framework.parallel.slower_of_two, case.framework.parallel.slowed_by_sums) = (0.0, 0.0);
        let waits =
            case.of(&[4], Mode::Training, "nvlink2")?.time.value - case.of(&[1], Mode::Training, "nvlink2")?.time.value;
        let passes = Bytes::new(4 * 25_557_032 * 4) / case.gpus[0].bandwidth.value;
        let copies = waits - hidden.exposed;
        assert!(copies > passes && copies < passes + Seconds::from_us(8.0 * 120.0), "{copies:?}");
        let plain = exposed("caffe", "nvlink2")?;
        assert!((plain.exposed / plain.time - 1.0).abs() < 1e-9, "{plain:?}");
        let slow = exposed("pytorch", "pcie3-host")?;
        assert!(slow.exposed > hidden.exposed);
        Ok(())
    }
}
