//! The step of a layout: stages one after the other, every GPU's energy.

use super::stage::Stage;
use super::{Flow, LayoutError, LayoutOf, StageOf};
use crate::base::precision::{Mode, Precision};
use crate::base::units::{Bytes, Joules, Ops, Seconds, Watts};
use crate::device::interconnect::Interconnect;
use crate::law::calibration::Tier;
use crate::law::power::Waits;
use crate::net::network::{Network, ShapedNetwork, ShapingError, Stored};
use crate::net::share::{Layout, Share, shares};
use crate::step::framework::Launch;
use crate::step::memory::{MOST_UNITS, MemoryFootprint, footprint, largest};
use crate::step::parallel::DevicePrediction;
use crate::step::predict::Predictor;
use crate::step::predictor::{Estimate, NetworkPrediction, OperatingPoint, PhaseTotal, Warning};

/// GPUs of one kind that serve a language model.
#[derive(Clone, Debug)]
pub struct Deployment<'p> {
    /// What predicts on a GPU.
    pub predictor: &'p Predictor,
    /// How many share what.
    pub layout: Layout,
    /// What joins all of them.
    pub interconnect: Interconnect,
    /// Storage and arithmetic.
    pub precision: Precision,
    /// What is stored in fewer bits.
    pub stored: Stored,
    /// Clocks and limit of every GPU.
    pub point: OperatingPoint,
}

/// What stages of a pipeline take, by what each takes of a microbatch.
fn through(stages: &[Stage], microbatches: u64, flow: Flow, of: impl Fn(&Stage) -> Seconds) -> Seconds {
    let all: Seconds = stages.iter().map(&of).sum();
    let slowest = stages.iter().map(&of).fold(Seconds::ZERO, Seconds::max);
    match flow {
        Flow::Alone => all + slowest * (microbatches - 1) as f64,
        Flow::Steady => all.max(slowest * microbatches as f64),
    }
}

impl Deployment<'_> {
    /// How samples go through the stages: of a group of GPUs as many at once, as often. As many microbatches as stages, so that
    /// none is idle while tokens follow tokens; the last may have fewer samples and is taken as long.
    ///
    /// # Errors
    /// When the batch does not divide among the groups.
    pub fn microbatches(&self, batch: u64) -> Result<(u64, u64), LayoutError> {
        let groups = self.layout.data();
        if !batch.is_multiple_of(groups) || batch == 0 {
            return Err(LayoutError::Groups { batch, groups });
        }
        let each = batch / groups;
        let micro = each.div_ceil(self.layout.pipeline().min(each));
        Ok((micro, each.div_ceil(micro)))
    }

    /// [`Self::step`] where all GPUs have as much to do as the fullest.
    pub(super) fn step_of(&self, network: &Network, batch: u64, flow: Flow) -> Result<NetworkPrediction, LayoutError> {
        let shares = shares(network, &self.layout)?;
        let shaped = self.at_once(&shares, batch)?;
        let alone = shaped.iter().map(|share| self.predictor.step(share, Mode::Inference)?.at(self.point));
        let alone = alone.collect::<Result<_, _>>()?;
        self.together(batch, flow, &shares, self.parameters(network)?, alone)
    }

    /// [`Self::steps`] of the same.
    pub(super) fn steps_of(
        &self,
        network: &Network,
        batch: u64,
        flow: Flow,
        points: &[OperatingPoint],
    ) -> Result<Vec<NetworkPrediction>, LayoutError> {
        let shares = shares(network, &self.layout)?;
        let shaped = self.at_once(&shares, batch)?;
        let steps = shaped.iter().map(|share| self.predictor.step(share, Mode::Inference)?.at_each(points));
        let mut stages = steps.collect::<Result<Vec<_>, _>>()?.into_iter().map(Vec::into_iter).collect::<Vec<_>>();
        let parameters = self.parameters(network)?;
        let at =
            |_| self.together(batch, flow, &shares, parameters, stages.iter_mut().filter_map(Iterator::next).collect());
        points.iter().map(at).collect()
    }

    /// [`Self::stages`] of the same.
    pub(super) fn stages_of(
        &self,
        network: &Network,
        batch: u64,
        points: &[OperatingPoint],
        limits: &[f64],
    ) -> Result<Vec<Vec<NetworkPrediction>>, LayoutError> {
        let alone = Self { layout: self.layout.of_stage(), ..self.clone() };
        let parameters = self.parameters(network)?;
        let of = |share: &Share| {
            let (one, (micro, _)) = (std::slice::from_ref(share), alone.microbatches(batch)?);
            let shaped = self.shape(&share.network, micro)?;
            let steps = self.predictor.step(&shaped, Mode::Inference)?.at_each_within(points, limits)?;
            let at = |step| alone.together(batch, Flow::Steady, one, parameters, vec![step]);
            steps.into_iter().map(at).collect()
        };
        shares(network, &self.layout)?.iter().map(of).collect()
    }

    /// Of the whole network.
    fn parameters(&self, network: &Network) -> Result<u64, LayoutError> {
        Ok(ShapedNetwork::new(network, 1, self.precision, &[])?.parameters())
    }

    /// Shares with the shapes of a microbatch.
    fn at_once(&self, shares: &[Share], batch: u64) -> Result<Vec<ShapedNetwork>, LayoutError> {
        let (micro, _) = self.microbatches(batch)?;
        shares.iter().map(|share| self.shape(&share.network, micro)).collect()
    }

    /// A step of the whole from those of its stages' kernels alone.
    fn together(
        &self,
        batch: u64,
        flow: Flow,
        shares: &[Share],
        parameters: u64,
        alone: Vec<NetworkPrediction>,
    ) -> Result<NetworkPrediction, LayoutError> {
        let (micro, microbatches) = self.microbatches(batch)?;
        let gpu = self.predictor.gpu();
        let (laws, spinning, idle) = (self.interconnect.collectives(), Waits::spinning(gpu), Waits::idle(gpu));
        let tier = if self.interconnect.collectives.is_some() { Tier::Imported } else { Tier::Transferred };
        let runs = (self.precision.result_bytes().max(Precision::Bf16.bytes()), tier);
        let stages = shares.iter().zip(alone).map(|(share, alone)| Stage::of(share, alone, &laws, runs, &spinning));
        let mut stages: Vec<Stage> = stages.collect();
        let time = Estimate {
            value: through(&stages, microbatches, flow, |s| s.time.value),
            p05: through(&stages, microbatches, flow, |s| s.time.p05),
            p95: through(&stages, microbatches, flow, |s| s.time.p95),
        };
        // Of all groups' GPUs of a stage.
        let gpus = (self.layout.tensor() * self.layout.data()) as f64;
        let times = microbatches as f64;
        let rests = |s: &Stage| (time.value - s.time.value * times).max(Seconds::ZERO);
        let (mut energy, mut exchanging) =
            (Estimate { value: Joules::ZERO, p05: Joules::ZERO, p95: Joules::ZERO }, Joules::ZERO);
        let (mut low, mut high, mut resting) = (Joules::ZERO, Joules::ZERO, Seconds::ZERO);
        for stage in &stages {
            let (alone, exchanged, rest) = (&stage.alone, &stage.exchanged, rests(stage));
            let of = |kernels: Joules, spin: Watts, exchanged: Seconds, wait: Watts| {
                ((kernels + spin * exchanged) * times + wait * rest) * gpus
            };
            energy.value += of(alone.energy.value, spinning.value, exchanged.value, idle.value);
            energy.p05 += of(alone.energy.p05, spinning.p05, exchanged.p05, idle.p05);
            energy.p95 += of(alone.energy.p95, spinning.p95, exchanged.p95, idle.p95);
            exchanging += spinning.value * exchanged.value * (times * gpus);
            // Ends of power over times as they are foreseen.
            low += of(alone.power.p05 * alone.time.value, spinning.p05, exchanged.value, idle.p05);
            high += of(alone.power.p95 * alone.time.value, spinning.p95, exchanged.value, idle.p95);
            resting += rest;
        }
        let value = energy.value / time.value;
        let power = Estimate { value, p05: (low / time.value).min(value), p95: (high / time.value).max(value) };
        let memory = |stage: &Stage| MemoryFootprint {
            cache: Bytes::new(stage.alone.memory.cache.get().saturating_mul(microbatches)),
            ..stage.alone.memory
        };
        let of_stage = |stage: &Stage| StageOf {
            time: stage.time.value,
            parameters: stage.alone.parameters,
            memory: memory(stage),
        };
        let uses: Vec<StageOf> = stages.iter().map(of_stage).collect();
        let fits = |stage: &StageOf| stage.memory.total() <= gpu.memory.value;
        let slowest = stages.iter().max_by(|a, b| a.time.value.get().total_cmp(&b.time.value.get()));
        // There is a stage: a network without layers has no blocks.
        let (Some(slowest), Some(fullest)) = (slowest, uses.iter().max_by_key(|s| s.memory.total())) else {
            let name = shares.first().map_or(String::new(), |share| share.network.name.clone());
            return Err(crate::step::predictor::PredictError::Empty(name).into());
        };
        let all = self.layout.gpus() as f64;
        let total = |count: fn(&NetworkPrediction) -> u64| {
            let sum = stages.iter().fold(0u64, |sum, s| sum.saturating_add(count(&s.alone)));
            sum.saturating_mul(microbatches).saturating_mul(gpus as u64)
        };
        let exchanged: Seconds = stages.iter().map(|s| s.exchanged.value).sum();
        let layout = LayoutOf {
            layout: self.layout,
            interconnect: self.interconnect.name.clone(),
            micro,
            microbatches,
            bubble: resting / (time.value * stages.len() as f64),
            communication: exchanged,
            communication_energy: exchanging,
            stages: uses.clone(),
        };
        let first = &slowest.alone;
        let device = DevicePrediction {
            gpu: gpu.name.clone(),
            count: self.layout.gpus(),
            batch: micro * microbatches,
            clock: first.clock,
            time: slowest.time.value * times,
            power: power.times(1.0 / all),
            energy: energy.times(1.0 / all),
            waiting: (exchanging + idle.value * resting * gpus) * (1.0 / all),
        };
        let kernels: Seconds = stages.iter().flat_map(|s| &s.layers).map(|l| l.time.value).sum();
        let of_phases = stages.iter().map(|s| s.kernels.1 * (times * gpus));
        let phases = first.phases.first().map(|phase| PhaseTotal {
            time: stages.iter().map(|s| s.kernels.0).sum(),
            energy: of_phases.sum(),
            ..*phase
        });
        let (first, warnings) = (first.clone(), self.warnings(&stages, fullest));
        let bound = stages.iter().map(|s| s.alone.bound).sum();
        let [ops, read, written] = [total(|p| p.ops.get()), total(|p| p.read.get()), total(|p| p.written.get())];
        let layers = stages.iter_mut().flat_map(|s| std::mem::take(&mut s.layers)).collect();
        Ok(NetworkPrediction {
            batch,
            time,
            power,
            energy,
            waiting: 1.0 - (kernels / time.value),
            ops: Ops::new(ops),
            read: Bytes::new(read),
            written: Bytes::new(written),
            parameters,
            memory: fullest.memory,
            fits_in_memory: uses.iter().all(fits),
            bound,
            phases: phases.into_iter().collect(),
            devices: vec![device],
            by_voltage: Vec::new(),
            warnings,
            layers,
            layout: Some(layout),
            ..first
        })
    }

    /// A share with shapes, its values stored as they are here.
    fn shape(&self, share: &Network, batch: u64) -> Result<ShapedNetwork, LayoutError> {
        let shaped = self.predictor.shape(share, batch, self.precision, &[])?;
        Ok(shaped.storing(self.stored, share.head().map(|i| share.nodes[i].name.as_str())))
    }

    /// Shares of a network with shapes, of one sample.
    fn shaped(&self, network: &Network) -> Result<Vec<ShapedNetwork>, LayoutError> {
        let list = shares(network, &self.layout)?;
        list.iter().map(|share| self.shape(&share.network, 1)).collect()
    }

    /// Memory of the fullest GPU whose stage takes so many samples at once, so often; `None` where they cannot be counted.
    fn fullest(&self, shares: &[ShapedNetwork], (micro, microbatches): (u64, u64)) -> Option<MemoryFootprint> {
        let policy = &self.predictor.framework().memory;
        let of = |share: &ShapedNetwork| {
            let memory = footprint(&share.with_batch(micro).ok()?, Mode::Inference, policy, &[]);
            Some(MemoryFootprint { cache: Bytes::new(memory.cache.get().saturating_mul(microbatches)), ..memory })
        };
        let all: Option<Vec<MemoryFootprint>> = shares.iter().map(of).collect();
        all?.into_iter().max_by_key(MemoryFootprint::total)
    }

    /// Memory of the fullest GPU in a step of a network over a batch.
    ///
    /// # Errors
    /// As [`Self::step`]; a step that is too large to count.
    pub fn memory(&self, network: &Network, batch: u64) -> Result<MemoryFootprint, LayoutError> {
        let at_once = self.microbatches(batch)?;
        let (shares, large) = (self.shaped(network)?, ShapingError::Batch(batch));
        self.fullest(&shares, at_once).ok_or(LayoutError::Shape(large))
    }

    /// Memory of a GPU of each stage, which takes one sample at once.
    ///
    /// # Errors
    /// As [`Self::step`]; a step that is too large to count.
    pub fn memories(&self, network: &Network) -> Result<Vec<MemoryFootprint>, LayoutError> {
        let large = || LayoutError::Shape(ShapingError::Batch(1));
        let of = |share: &ShapedNetwork| self.fullest(std::slice::from_ref(share), (1, 1)).ok_or_else(large);
        self.shaped(network)?.iter().map(of).collect()
    }

    /// The largest batch whose step fits on every GPU: stages take equal microbatches, as many as stages where there are enough
    /// samples. `None` where not even one sample of each group does.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn largest_batch(&self, network: &Network) -> Result<Option<u64>, LayoutError> {
        let (shares, stages) = (self.shaped(network)?, self.layout.pipeline());
        let has = self.predictor.gpu().memory.value;
        let fits = |at_once| -> Result<bool, LayoutError> {
            Ok(self.fullest(&shares, at_once).is_some_and(|memory| memory.total() <= has))
        };
        let each = match largest(MOST_UNITS, |micro| fits((micro, stages)))? {
            Some(micro) => Some(micro * stages),
            None => largest(stages - 1, |microbatches| fits((1, microbatches)))?,
        };
        Ok(each.map(|each| each * self.layout.data()))
    }

    fn warnings(&self, stages: &[Stage], fullest: &StageOf) -> Vec<Warning> {
        let mut warnings: Vec<Warning> = Vec::new();
        for warning in stages.iter().flat_map(|s| &s.alone.warnings) {
            // Memory is that of all microbatches.
            if !matches!(warning, Warning::Memory { .. }) && !warnings.iter().any(|w| w.repeats(warning)) {
                warnings.push(warning.clone());
            }
        }
        if self.layout.gpus() > 1 && self.interconnect.collectives.is_none() {
            warnings.push(Warning::Exchanges { interconnect: self.interconnect.name.clone() });
        }
        if self.layout.pipeline() > 1 {
            warnings.push(Warning::Handing);
        }
        if self.layout.gpus() > 1 && self.predictor.launch() == Launch::Eager {
            warnings.push(Warning::LaunchedExchanges);
        }
        if !self.stored.is_usual() {
            warnings.push(Warning::Stored { weights: self.stored.weights, cache: self.stored.cache });
        }
        let gpu = self.predictor.gpu();
        if fullest.memory.total() > gpu.memory.value {
            let (name, has) = (gpu.name.clone(), gpu.memory.value);
            warnings.push(Warning::Memory { needed: fullest.memory.total(), gpu: name, has });
        }
        warnings
    }
}
