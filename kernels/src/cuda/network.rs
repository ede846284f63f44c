//! A whole network as one list of launches over real buffers, which lie where [`BufferPlan`] says: forward, or a training step.

use super::device::Gpu;
use super::failure::unsupported;
use super::fill;
use super::layer::{Plans, Prepared, kernel, misfit};
use super::step::Step;
use crate::launch::{Address, Operands};
use crate::operands::{Sizes, parameter_bytes, scratch, sizes};
use crate::runner::NetworkTrial;
use crate::{DeviceError, streaming};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::Bytes;
use joulecast_model::kernel::setting::Cache;
use joulecast_model::kernel::work::{Trial, Work};
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{Add, Layer, LayerOp, Optimizer};
use joulecast_model::net::network::{ShapedLayer, Source};
use joulecast_model::step::memory::{BufferPlan, Sum};

/// The launches of one step of a network.
pub struct Built {
    /// In order.
    pub steps: Vec<Step>,
    /// Scratch memory shared by all layers.
    pub workspace: Bytes,
}

/// Everything about one layer that the passes share.
struct Site<'a> {
    layer: &'a ShapedLayer,
    operands: Operands,
}

struct Builder<'a, 'b> {
    gpu: &'b mut Gpu,
    plans: &'b mut Plans,
    trial: &'a NetworkTrial<'a>,
    workspace: Address,
    plan: &'b BufferPlan,
    /// Where the plan's offsets begin.
    base: Address,
    steps: Vec<Step>,
    seed: u64,
}

/// Builds the launches of a network's step.
///
/// # Errors
/// When a layer cannot run, or the step does not fit in memory.
pub fn build(gpu: &mut Gpu, plans: &mut Plans, trial: &NetworkTrial<'_>) -> Result<Built, DeviceError> {
    let layers = trial.network.layers();
    let mut workspace = 0;
    for layer in layers {
        for phase in trial.mode.phases() {
            if trial.network.cost(layer, *phase, trial.mode).is_some() {
                workspace = workspace.max(Prepared::new(gpu, plans, &layer_trial(trial, layer, *phase))?.workspace());
            }
        }
    }
    let plan = BufferPlan::new(trial.network, trial.mode);
    let (address, base) = (gpu.arena().take(workspace)?, gpu.arena().take(plan.bytes)?);
    let mut builder = Builder { gpu, plans, trial, workspace: address, plan: &plan, base, steps: Vec::new(), seed: 1 };
    let sites = builder.forward()?;
    if trial.mode == Mode::Training {
        builder.backward(&sites)?;
        builder.update(&sites)?;
    }
    Ok(Built { steps: builder.steps, workspace: Bytes::new(workspace) })
}

/// A network's layer as a trial of its own.
fn layer_trial(trial: &NetworkTrial<'_>, layer: &ShapedLayer, phase: Phase) -> Trial {
    let fp32_update = phase == Phase::Update && streaming::parameters_in_fp32(&layer.case.layer);
    let precision = if fp32_update { Precision::Fp32 } else { trial.precision };
    let usual = Work::of(layer, phase, trial.batch, precision, trial.mode).into_owned();
    Trial { layout: trial.layout, cache: Cache::Hot, ..usual }
}

impl<'a> Builder<'a, '_> {
    fn next_seed(&mut self) -> u64 {
        self.seed += 1000;
        self.seed
    }

    fn push(&mut self, trial: &Trial, operands: &Operands) -> Result<(), DeviceError> {
        let prepared = Prepared::new(self.gpu, self.plans, trial)?;
        let steps = prepared.bind(self.gpu, operands, self.workspace)?;
        self.steps.extend(steps);
        Ok(())
    }

    /// Fills a tensor that no kernel writes with normal values.
    fn given(&mut self, at: Address, shape: Shape, deviation: f32) -> Result<(), DeviceError> {
        let (seed, count) = (self.next_seed(), self.trial.batch * shape.elements());
        fill::normal(self.gpu, at, count, deviation, seed, self.trial.precision)
    }

    fn forward(&mut self) -> Result<Vec<Site<'a>>, DeviceError> {
        let network = self.trial.network;
        for (at, shape) in self.plan.inputs.iter().zip(network.inputs()) {
            self.given(self.base + at, *shape, 1.0)?;
        }
        let mut sites: Vec<Site<'a>> = Vec::with_capacity(network.layers().len());
        for (layer, placed) in network.layers().iter().zip(&self.plan.forward) {
            let inputs = layer.from.iter().map(|source| match *source {
                Source::Input(k) => self.base + self.plan.inputs[k],
                Source::Node(k) => sites[k].operands.output,
            });
            let mut operands =
                Operands { inputs: inputs.collect(), output: self.base + placed.output, ..Operands::default() };
            let trial = layer_trial(self.trial, layer, Phase::Forward);
            self.place_state(&trial, &mut operands)?;
            if placed.runs {
                self.push(&trial, &operands)?;
            }
            sites.push(Site { layer, operands });
        }
        Ok(sites)
    }

    /// Parameters, saved state and optimizer state of a layer, filled.
    fn place_state(&mut self, trial: &Trial, operands: &mut Operands) -> Result<(), DeviceError> {
        let seed = self.next_seed();
        let training = self.trial.mode == Mode::Training;
        let learned = parameter_bytes(trial);
        let update = Trial { phase: Phase::Update, optimizer: Some(Optimizer::Momentum), ..trial.clone() };
        let forward = sizes(trial).map_err(|e| misfit(trial, &e))?;
        let mut extra = sizes(&update).map_err(|e| misfit(trial, &e))?;
        if !training {
            extra = Sizes::default();
        }
        let saved = if training { streaming::saved(trial)?.get() } else { 0 };
        let mut most = 0;
        for phase in self.trial.mode.phases() {
            most = most.max(scratch(&Trial { phase: *phase, ..trial.clone() })?);
        }
        let arena = self.gpu.arena();
        let mut take = |bytes: u64| if bytes == 0 { Ok(0) } else { arena.take(bytes) };
        operands.parameters = take(learned)?;
        operands.running = take(forward.running)?;
        operands.saved = take(saved)?;
        operands.scratch = take(most)?;
        operands.grad_parameters = take(extra.grad_parameters)?;
        operands.state = take(extra.state)?;
        operands.master = if extra.master > 0 { take(extra.master)? } else { operands.parameters };
        let filled = Sizes {
            parameters: learned,
            running: forward.running,
            master: extra.master,
            state: extra.state,
            ..Sizes::default()
        };
        let state = Operands { inputs: Vec::new(), output: 0, grad_output: 0, saved: 0, ..operands.clone() };
        fill::operands(self.gpu, trial, &filled, &state, seed)
    }

    fn backward(&mut self, sites: &[Site<'a>]) -> Result<(), DeviceError> {
        let network = self.trial.network;
        for gradients in &self.plan.backward {
            let site = &sites[gradients.layer];
            let operands = Operands {
                grad_output: self.base + gradients.output,
                grad_inputs: gradients.inputs.iter().map(|at| self.base + at).collect(),
                ..site.operands.clone()
            };
            if gradients.given {
                self.given(operands.grad_output, site.layer.output, 1e-3)?;
            }
            if network.cost(site.layer, Phase::BackwardWeights, Mode::Training).is_some() {
                self.push(&layer_trial(self.trial, site.layer, Phase::BackwardWeights), &operands)?;
            }
            if !operands.grad_inputs.is_empty() {
                self.push(&layer_trial(self.trial, site.layer, Phase::BackwardData), &operands)?;
            }
            for sum in &gradients.sums {
                self.sum(sum, site.layer)?;
            }
        }
        Ok(())
    }

    /// The sum of two gradients of a tensor that several layers read, of which `reader` is one.
    fn sum(&mut self, sum: &Sum, reader: &ShapedLayer) -> Result<(), DeviceError> {
        let elements = sum.bytes / self.trial.precision.bytes() / self.trial.batch.max(1);
        let shape = Shape::new(&[elements]).map_err(|e| unsupported(reader.name.clone(), e.to_string()))?;
        let case = LayerCase { inputs: vec![shape, shape], layer: Layer::Add(Add {}) };
        let trial = Trial::usual(case, Phase::Forward, self.trial.batch, self.trial.precision, Mode::Training)
            .map_err(|e| unsupported(reader.name.clone(), e.to_string()))?;
        let inputs = sum.terms.iter().map(|at| self.base + at).collect();
        let operands = Operands { inputs, output: self.base + sum.output, ..Operands::default() };
        for launch in streaming::launches(&trial, &operands, self.gpu.limits())? {
            let step = kernel(self.gpu, launch)?;
            self.steps.push(step);
        }
        Ok(())
    }

    /// The optimizer's step, with a rate of 0: thousands of steps on one batch would drive the weights to where
    /// activations overflow, and values change power and time.
    fn update(&mut self, sites: &[Site<'a>]) -> Result<(), DeviceError> {
        for site in sites {
            let layer = &site.layer.case.layer;
            let count = layer.parameters(&site.layer.case.inputs);
            if count == 0 {
                continue;
            }
            let fp32 = streaming::parameters_in_fp32(layer);
            let precision = if fp32 { Precision::Fp32 } else { self.trial.precision };
            let limits = *self.gpu.limits();
            let launches =
                streaming::update_launches(Optimizer::Momentum, 0.0, count, precision, &site.operands, &limits)?;
            for launch in launches {
                let step = kernel(self.gpu, launch)?;
                self.steps.push(step);
            }
        }
        Ok(())
    }
}
