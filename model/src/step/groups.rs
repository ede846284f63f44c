//! A step's kernels in few rows: those of one kind and phase together, and what bounds the step.

use crate::base::order::sort_by;
use crate::base::precision::{Phase, named_enum};
use crate::base::units::{Bytes, Joules, Ops, Seconds, Watts};
use crate::law::calibration::Tier;
use crate::step::predictor::{BoundBy, Estimate, LayerPrediction, NetworkPrediction};
use serde::{Deserialize, Serialize};

/// Kernels of one kind, of convolutions one class of them, and phase. Sums are over all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<'a> {
    /// The name of their models.
    pub kind: &'static str,
    /// Their phase.
    pub phase: Phase,
    /// How many there are.
    pub count: usize,
    /// The costliest of them.
    pub costliest: &'a LayerPrediction,
    /// Their time; edges are of errors that are all alike.
    pub time: Estimate<Seconds>,
    /// Their energy.
    pub energy: Joules,
    /// Roofline bounds of the direct algorithms.
    pub bound: Seconds,
    /// Operations of the direct algorithms.
    pub ops: Ops,
    /// Bytes of operands and results.
    pub bytes: Bytes,
    /// What bounds most of their time.
    pub bound_by: BoundBy,
    /// The tier that most of their time rests on.
    pub tier: Tier,
    /// Time of those that lie outside of what was measured.
    pub outside: Seconds,
    /// Their time by what bounds it, in the order of [`BoundBy::ALL`].
    by_bound: [Seconds; BoundBy::ALL.len()],
    /// Their time by tier, in the order of [`Tier::ALL`].
    by_tier: [Seconds; Tier::ALL.len()],
}

/// The one that has most time.
fn most<T: Copy>(all: &[T], times: &[Seconds], without: T) -> T {
    let pairs = all.iter().zip(times);
    pairs.max_by(|a, b| a.1.get().total_cmp(&b.1.get())).map_or(without, |(one, _)| *one)
}

impl<'a> Group<'a> {
    fn of(first: &'a LayerPrediction) -> Self {
        Self {
            kind: first.model(),
            phase: first.phase,
            count: 0,
            costliest: first,
            time: Estimate::default(),
            energy: Joules::ZERO,
            bound: Seconds::ZERO,
            ops: Ops::new(0),
            bytes: Bytes::ZERO,
            bound_by: first.bound_by,
            tier: first.tier,
            outside: Seconds::ZERO,
            by_bound: [Seconds::ZERO; BoundBy::ALL.len()],
            by_tier: [Seconds::ZERO; Tier::ALL.len()],
        }
    }

    fn add(&mut self, layer: &'a LayerPrediction) {
        let time = layer.time;
        self.count += 1;
        if time.value > self.costliest.time.value {
            self.costliest = layer;
        }
        self.time.value += time.value;
        self.time.p05 += time.p05;
        self.time.p95 += time.p95;
        self.energy += layer.energy;
        self.bound += layer.bound;
        self.ops += layer.ops;
        self.bytes += layer.read + layer.written;
        self.by_bound[layer.bound_by as usize] += time.value;
        self.by_tier[layer.tier as usize] += time.value;
        if !layer.in_domain && layer.tier != Tier::Roofline {
            self.outside += time.value;
        }
    }

    fn finished(self) -> Self {
        let bound_by = most(BoundBy::ALL, &self.by_bound, self.bound_by);
        let tier = most(Tier::ALL, &self.by_tier, self.tier);
        Self { bound_by, tier, ..self }
    }

    /// Mean power while they run.
    pub fn power(&self) -> Watts {
        self.energy / self.time.value
    }
}

/// A step's kernels by kind and phase, those that take longest first.
pub fn groups(layers: &[LayerPrediction]) -> Vec<Group<'_>> {
    let mut list: Vec<Group<'_>> = Vec::new();
    for layer in layers {
        let (kind, phase) = (layer.model(), layer.phase);
        let at = list.iter().position(|g| g.kind == kind && g.phase == phase).unwrap_or_else(|| {
            list.push(Group::of(layer));
            list.len() - 1
        });
        list[at].add(layer);
    }
    sort_by(&mut list, |a, b| b.time.value.get().total_cmp(&a.time.value.get()));
    list.into_iter().map(Group::finished).collect()
}

named_enum!(
    /// What a step waits for or is held by.
    Slow {
        /// Arithmetic at peak.
        Compute = "compute",
        /// Traffic at peak bandwidth.
        Memory = "memory",
        /// Kernels so short that launching them takes as long.
        Launch = "launch",
        /// What GPUs exchange.
        Exchange = "exchange",
        /// The host, which launches more slowly than kernels run.
        Host = "host",
        /// Samples, which come more slowly than a step takes.
        Input = "input",
    }
);

/// Why a step takes as long as it does: parts of its time, the largest first, as shares of it.
pub fn slow(p: &NetworkPrediction) -> Vec<(Slow, f64)> {
    let time = p.time.value;
    let bound = |bound: BoundBy| match bound {
        BoundBy::Compute => Slow::Compute,
        BoundBy::Memory => Slow::Memory,
        BoundBy::Launch => Slow::Launch,
        BoundBy::Exchange => Slow::Exchange,
    };
    let kernels: Seconds = p.layers.iter().map(|l| l.time.value).sum();
    let waits = p.waiting.clamp(0.0, 1.0);
    let fed = p.fed.map_or(0.0, |fed| fed.waits / time).clamp(0.0, waits);
    let exposed = p.communication.as_ref().map_or(0.0, |c| c.exposed / time).clamp(0.0, waits - fed);
    let rest = waits - fed - exposed;
    let mut parts: Vec<(Slow, f64)> = Slow::ALL.iter().map(|slow| (*slow, 0.0)).collect();
    let mut add = |slow: Slow, share: f64| parts[slow as usize].1 += share;
    if kernels > Seconds::ZERO {
        // Layers of several GPUs may be one GPU's: they share what is no waiting.
        p.layers.iter().for_each(|l| add(bound(l.bound_by), (1.0 - waits) * (l.time.value / kernels)));
    }
    add(Slow::Input, fed);
    add(Slow::Exchange, exposed);
    add(if p.launch_bound { Slow::Host } else { Slow::Launch }, rest);
    parts.retain(|(_, share)| *share > 0.0);
    sort_by(&mut parts, |a, b| b.1.total_cmp(&a.1));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::{Mode, Precision};
    use crate::catalog;
    use crate::net::network::ShapedNetwork;
    use crate::step::predict::Predictor;

    fn predicted(
        gpu: &str,
        framework: &str,
        batch: u64,
        mode: Mode,
    ) -> Result<NetworkPrediction, Box<dyn std::error::Error>> {
        let network = ShapedNetwork::new(&catalog::network("resnet50")?, batch, Precision::Fp32, &[])?;
        Ok(Predictor::shipped(catalog::gpu(gpu)?, catalog::framework(framework)?).predict(&network, mode)?)
    }

    #[test]
    fn groups_hold_every_kernel_once() -> Result<(), Box<dyn std::error::Error>> {
        let p = predicted("v100", "cudnn", 32, Mode::Training)?;
        let list = groups(&p.layers);
        assert_eq!(list.iter().map(|g| g.count).sum::<usize>(), p.layers.len());
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        close(list.iter().map(|g| g.time.value.get()).sum(), p.layers.iter().map(|l| l.time.value.get()).sum());
        close(list.iter().map(|g| g.energy.get()).sum(), p.layers.iter().map(|l| l.energy.get()).sum());
        assert_eq!(list.iter().map(|g| g.ops.get()).sum::<u64>(), p.ops.get());
        let forward = |kind| list.iter().find(|g| g.kind == kind && g.phase == Phase::Forward);
        let threes = forward("conv2d_3x3").expect("there are some");
        // 16 blocks have a 3x3; those with a stride are no such products.
        assert_eq!((threes.count, threes.bound_by), (13, BoundBy::Compute));
        assert_eq!(forward("batch_norm").map(|g| (g.count, g.bound_by)), Some((53, BoundBy::Memory)));
        assert!(
            p.layers
                .iter()
                .filter(|l| l.model() == "conv2d_3x3")
                .all(|l| l.time.value <= list[0].costliest.time.value || l.phase != list[0].phase)
        );
        assert!(list.is_sorted_by(|a, b| a.time.value >= b.time.value));
        Ok(())
    }

    #[test]
    fn a_step_is_slow_for_reasons_that_add_up_to_it() -> Result<(), Box<dyn std::error::Error>> {
        for (gpu, framework, batch, first) in [("v100", "cudnn", 64, Slow::Compute), ("l4", "cudnn", 64, Slow::Memory)]
        {
            let parts = slow(&predicted(gpu, framework, batch, Mode::Inference)?);
            assert_eq!(parts.first().map(|(slow, _)| *slow), Some(first), "{gpu} {framework}: {parts:?}");
            assert!((parts.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9, "{parts:?}");
        }
        let tiny = ShapedNetwork::new(&catalog::network("lenet5")?, 1, Precision::Fp32, &[])?;
        for (framework, first) in [("cudnn", Slow::Launch), ("pytorch", Slow::Host)] {
            let alone = Predictor::shipped(catalog::gpu("h200")?, catalog::framework(framework)?);
            let parts = slow(&alone.predict(&tiny, Mode::Inference)?);
            assert_eq!(parts.first().map(|(slow, _)| *slow), Some(first), "{framework}: {parts:?}");
        }
        let p = predicted("v100", "cudnn", 64, Mode::Inference)?;
        let gpu = catalog::gpu("v100")?;
        let fed = crate::step::input::fed(p.clone(), 0.25 * p.samples_per_second(), &[&gpu]);
        assert_eq!(slow(&fed).first().map(|(slow, _)| *slow), Some(Slow::Input));
        Ok(())
    }

    #[test]
    fn a_lower_clock_makes_arithmetic_the_bound() -> Result<(), Box<dyn std::error::Error>> {
        let network = ShapedNetwork::new(&catalog::network("resnet50")?, 64, Precision::Fp32, &[])?;
        let predictor = Predictor::shipped(catalog::gpu("l4")?, catalog::framework("cudnn")?);
        let step = predictor.step(&network, Mode::Inference)?;
        let bound = |mhz| -> Result<f64, Box<dyn std::error::Error>> {
            let core_clock = Some(crate::base::units::Hertz::from_mhz(mhz));
            let p = step.at(crate::step::predictor::OperatingPoint { core_clock, ..Default::default() })?;
            Ok(slow(&p).iter().find(|(slow, _)| *slow == Slow::Compute).map_or(0.0, |(_, share)| *share))
        };
        assert!(bound(600.0)? > bound(2040.0)? + 0.2);
        Ok(())
    }
}
