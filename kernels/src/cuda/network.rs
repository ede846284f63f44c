//! A whole network as one list of launches over real buffers: forward, or a training step.
//!
//! Inference reuses a buffer once its last reader has run, as a framework's allocator does. Training keeps every
//! activation that backward reads and reuses the buffers of gradients.

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
use joulecast_model::step::memory::overwrites;

/// The launches of one step of a network.
pub struct Built {
    /// In order.
    pub steps: Vec<Step>,
    /// Scratch memory shared by all layers.
    pub workspace: Bytes,
}

/// Buffers that are taken and given back, over an arena that only grows.
#[derive(Default)]
struct Pool {
    free: Vec<(u64, Address)>,
}

impl Pool {
    fn take(&mut self, gpu: &mut Gpu, bytes: u64) -> Result<Address, DeviceError> {
        let fitting = self.free.iter().enumerate().filter(|(_, (size, _))| *size >= bytes);
        match fitting.min_by_key(|(_, (size, _))| *size).map(|(i, _)| i) {
            Some(i) => {
                let (size, address) = self.free.swap_remove(i);
                // What is left over stays free, cut at the arena's alignment.
                let used = bytes.next_multiple_of(512);
                if size > used {
                    self.free.push((size - used, address + used));
                }
                Ok(address)
            }
            None => gpu.arena().take(bytes),
        }
    }

    fn give(&mut self, address: Address, bytes: u64) {
        self.free.push((bytes.next_multiple_of(512), address));
    }
}

/// A buffer and how many readers it still has.
#[derive(Clone, Copy)]
struct Buffer {
    address: Address,
    bytes: u64,
    readers: usize,
    given_back: bool,
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
    pool: Pool,
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
    let address = gpu.arena().take(workspace)?;
    let mut builder =
        Builder { gpu, plans, trial, workspace: address, pool: Pool::default(), steps: Vec::new(), seed: 1 };
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

/// Layers without a kernel of their own in this mode: their output is their input.
fn is_view(layer: &Layer, mode: Mode) -> bool {
    matches!(layer, Layer::Flatten(_)) || (matches!(layer, Layer::Dropout(_)) && mode == Mode::Inference)
}

impl<'a> Builder<'a, '_> {
    fn bytes(&self, shape: Shape) -> u64 {
        self.trial.batch * shape.elements() * self.trial.precision.bytes()
    }

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

    fn forward(&mut self) -> Result<Vec<Site<'a>>, DeviceError> {
        let network = self.trial.network;
        let layers = network.layers();
        let training = self.trial.mode == Mode::Training;
        let mut inputs = Vec::new();
        for shape in network.inputs() {
            let bytes = self.bytes(*shape);
            let address = self.gpu.arena().take(bytes)?;
            let (seed, precision) = (self.next_seed(), self.trial.precision);
            fill::normal(self.gpu, address, bytes / precision.bytes(), 1.0, seed, precision)?;
            inputs.push(address);
        }
        let mut readers = vec![0usize; layers.len()];
        for layer in layers {
            for source in &layer.from {
                if let Source::Node(i) = source {
                    readers[*i] += 1;
                }
            }
        }
        // Which buffer holds a layer's output; views share their input's.
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut holds: Vec<Option<usize>> = Vec::with_capacity(layers.len());
        let mut sites: Vec<Site<'a>> = Vec::with_capacity(layers.len());
        for (i, layer) in layers.iter().enumerate() {
            let read: Vec<Address> = layer
                .from
                .iter()
                .map(|source| match *source {
                    Source::Input(k) => inputs[k],
                    Source::Node(k) => sites[k].operands.output,
                })
                .collect();
            let first = match layer.from.first() {
                Some(Source::Node(k)) => holds[*k].map(|b| (*k, b)),
                _ => None,
            };
            let trial = layer_trial(self.trial, layer, Phase::Forward);
            let mut operands = Operands { inputs: read.clone(), ..Operands::default() };
            let view = is_view(&layer.case.layer, self.trial.mode);
            let maker = first.map(|(k, _)| &layers[k].case.layer);
            let alone = first.is_some_and(|(_, b)| buffers[b].readers == 1);
            if view || (alone && overwrites(&layer.case.layer, maker, self.trial.mode)) {
                operands.output = read.first().copied().unwrap_or(0);
                if let Some((_, b)) = first {
                    buffers[b].readers += readers[i];
                }
                holds.push(first.map(|(_, b)| b));
            } else {
                let bytes = self.bytes(layer.output);
                operands.output =
                    if training { self.gpu.arena().take(bytes)? } else { self.pool.take(self.gpu, bytes)? };
                buffers.push(Buffer { address: operands.output, bytes, readers: readers[i], given_back: false });
                holds.push(Some(buffers.len() - 1));
            }
            self.place_state(&trial, &mut operands)?;
            if !view {
                self.push(&trial, &operands)?;
            }
            if !training {
                self.release(layer, &holds, &mut buffers);
            }
            sites.push(Site { layer, operands });
        }
        Ok(sites)
    }

    /// Gives back the buffers whose last reader has run.
    fn release(&mut self, layer: &ShapedLayer, holds: &[Option<usize>], buffers: &mut [Buffer]) {
        for source in &layer.from {
            let Source::Node(k) = source else { continue };
            let Some(buffer) = holds[*k].map(|b| &mut buffers[b]) else { continue };
            buffer.readers = buffer.readers.saturating_sub(1);
            if buffer.readers == 0 && !buffer.given_back {
                buffer.given_back = true;
                self.pool.give(buffer.address, buffer.bytes);
            }
        }
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
        let precision = self.trial.precision;
        // Gradient of each layer's output with its size, once a reader has made it.
        let mut gradients: Vec<Option<Buffer>> = vec![None; sites.len()];
        for (i, site) in sites.iter().enumerate().rev() {
            let bytes = self.bytes(site.layer.output);
            let gradient = match gradients[i].take() {
                Some(gradient) => gradient,
                // Nobody reads it: an output of the network, whose gradient the loss gives.
                None => {
                    let address = self.pool.take(self.gpu, bytes)?;
                    let seed = self.next_seed();
                    fill::normal(self.gpu, address, bytes / precision.bytes(), 1e-3, seed, precision)?;
                    Buffer { address, bytes, readers: 1, given_back: false }
                }
            };
            self.layer_backward(site, gradient, &mut gradients)?;
        }
        Ok(())
    }

    /// Backward of one layer, whose output's gradient is complete.
    fn layer_backward(
        &mut self,
        site: &Site<'a>,
        gradient: Buffer,
        gradients: &mut [Option<Buffer>],
    ) -> Result<(), DeviceError> {
        let layer = site.layer;
        let mut operands = Operands { grad_output: gradient.address, ..site.operands.clone() };
        let network = self.trial.network;
        if network.cost(layer, Phase::BackwardWeights, Mode::Training).is_some() {
            self.push(&layer_trial(self.trial, layer, Phase::BackwardWeights), &operands)?;
        }
        let passes_on = is_view(&layer.case.layer, Mode::Training) || matches!(layer.case.layer, Layer::Add(_));
        let mut kept = false;
        if passes_on {
            for source in &layer.from {
                if let Source::Node(k) = source {
                    kept = true;
                    self.contribute(Buffer { readers: 2, ..gradient }, *k, layer, gradients)?;
                }
            }
        } else if network.cost(layer, Phase::BackwardData, Mode::Training).is_some() {
            for shape in &layer.case.inputs {
                let bytes = self.bytes(*shape);
                operands.grad_inputs.push(self.pool.take(self.gpu, bytes)?);
            }
            self.push(&layer_trial(self.trial, layer, Phase::BackwardData), &operands)?;
            for ((source, shape), address) in layer.from.iter().zip(&layer.case.inputs).zip(&operands.grad_inputs) {
                let made = Buffer { address: *address, bytes: self.bytes(*shape), readers: 1, given_back: false };
                match source {
                    Source::Node(k) => self.contribute(made, *k, layer, gradients)?,
                    Source::Input(_) => self.pool.give(made.address, made.bytes),
                }
            }
        }
        // A gradient that was passed on lives in several places; it is not reused within the step.
        if !kept && gradient.readers == 1 {
            self.pool.give(gradient.address, gradient.bytes);
        }
        Ok(())
    }

    /// Adds a gradient to that of a layer's output; the sum of two is a kernel of its own.
    fn contribute(
        &mut self,
        made: Buffer,
        target: usize,
        reader: &ShapedLayer,
        gradients: &mut [Option<Buffer>],
    ) -> Result<(), DeviceError> {
        let Some(before) = gradients[target] else {
            gradients[target] = Some(made);
            return Ok(());
        };
        let elements = made.bytes / self.trial.precision.bytes() / self.trial.batch.max(1);
        let shape = Shape::new(&[elements]).map_err(|e| unsupported(reader.name.clone(), e.to_string()))?;
        let sum = self.pool.take(self.gpu, made.bytes)?;
        let case = LayerCase { inputs: vec![shape, shape], layer: Layer::Add(Add {}) };
        let trial = Trial::usual(case, Phase::Forward, self.trial.batch, self.trial.precision, Mode::Training)
            .map_err(|e| unsupported(reader.name.clone(), e.to_string()))?;
        let operands = Operands { inputs: vec![before.address, made.address], output: sum, ..Operands::default() };
        for launch in streaming::launches(&trial, &operands, self.gpu.limits())? {
            let step = kernel(self.gpu, launch)?;
            self.steps.push(step);
        }
        for old in [before, made] {
            if old.readers == 1 {
                self.pool.give(old.address, old.bytes);
            }
        }
        gradients[target] = Some(Buffer { address: sum, bytes: made.bytes, readers: 1, given_back: false });
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
