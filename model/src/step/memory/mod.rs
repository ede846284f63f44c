//! What a step keeps in device memory: a walk over its forward and backward pass with every buffer's life.

mod arena;

pub use arena::overwrites;

use crate::base::precision::{Mode, Precision};
use crate::base::shape::Shape;
use crate::base::units::Bytes;
use crate::kernel::setting::Algorithm;
use crate::net::layer::{Function, Layer, PoolOp};
use crate::net::network::{ShapedLayer, ShapedNetwork, Source};
use serde::Deserialize;
use std::collections::HashMap;

/// How a framework treats memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// What becomes of activations.
    pub activations: Activations,
    /// Layers that overwrite their input.
    pub in_place: InPlace,
    /// Whether gradients of 16-bit parameters have 16 bits, not 32.
    pub narrow_gradients: bool,
    /// Whether rectifiers that are clipped at 6 are among them.
    pub clipped_in_place: bool,
    /// Whether a module's input stays until all of the module has run, as its caller's variable holds it. Modules are what
    /// dots in the names of layers say.
    pub modules_hold_input: bool,
    /// Bytes of the place of a maximum that max pooling finds for each result, and keeps in training; without it, it keeps
    /// input and result.
    pub pooling_index: Option<u64>,
    /// What convolutions are computed by, if asked for: its scratch memory is workspace.
    pub algorithm: Option<Algorithm>,
    /// What libraries keep as workspace.
    pub library_workspace: Bytes,
    /// What the driver and the framework's own kernels take before the first tensor.
    pub context: Bytes,
}

/// What becomes of activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activations {
    /// In training what some backward kernel reads is kept until then; the rest goes when nothing reads it any more.
    #[default]
    Saved,
    /// As our own runner does: buffers over an arena that only grows, and in training every result to the end.
    Arena,
    /// Every result has a buffer throughout, and in training one for its gradient.
    Mirrored,
}

/// Layers that overwrite their input where nothing else reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InPlace {
    /// Rectifiers, sigmoid and tanh, whose gradients can be told from their results.
    #[default]
    Activations,
    /// Also dropout, batch norm and scale.
    Elementwise,
}

/// Device memory of a step at the moment when most of it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFootprint {
    /// Parameters; in mixed precision in both widths.
    pub weights: Bytes,
    /// Gradients of the parameters that exist at that moment; none in inference.
    pub gradients: Bytes,
    /// Optimizer state; none in inference.
    pub optimizer_state: Bytes,
    /// Activations and their gradients, inputs of the network among them.
    pub activations: Bytes,
    /// Keys and values of attention that a language model keeps while it generates.
    pub cache: Bytes,
    /// Workspace of libraries, as far as it can be foreseen: what Winograd and Fourier transforms take only where they were
    /// asked for.
    pub workspace: Bytes,
    /// Driver and framework.
    pub context: Bytes,
}

impl MemoryFootprint {
    /// Their sum.
    pub fn total(&self) -> Bytes {
        self.allocated() + self.context
    }

    /// Without the context: what a framework's allocator counts.
    pub fn allocated(&self) -> Bytes {
        self.weights + self.gradients + self.optimizer_state + self.activations + self.cache + self.workspace
    }
}

/// Width of gradients and optimizer state.
const FP32: u64 = 4;
/// Channels that tensor cores take at once in TF32.
const TENSOR_CHANNELS: u64 = 4;
/// Width of an element of dropout's mask.
const MASK: u64 = 1;

/// Memory of a step of the network.
pub fn footprint(network: &ShapedNetwork, mode: Mode, policy: &MemoryPolicy) -> MemoryFootprint {
    let parameters = network.parameters();
    let width = network.precision().bytes();
    let narrow = width < FP32;
    let training = mode == Mode::Training;
    let both = if training && narrow { FP32 } else { 0 };
    let state = if training { network.optimizer().state_per_parameter() * FP32 } else { 0 };
    let gradient_width = if narrow && policy.narrow_gradients { width } else { FP32 };
    let peak = match policy.activations {
        Activations::Arena => arena::used(network, mode, gradient_width),
        _ => Walk::new(network, mode, policy).peak(gradient_width),
    };
    let cached = network.layers().iter().map(|l| match &l.case.layer {
        Layer::Attention(attention) => attention.cache_elements(&l.case.inputs),
        _ => 0,
    });
    let cached = cached.fold(0, u64::saturating_add).saturating_mul(network.batch()).saturating_mul(width);
    MemoryFootprint {
        cache: Bytes::new(cached),
        weights: Bytes::new(parameters.saturating_mul(width + both)),
        optimizer_state: Bytes::new(parameters.saturating_mul(state)),
        gradients: Bytes::new(peak.gradients),
        activations: Bytes::new(peak.activations),
        workspace: Bytes::new(peak.workspace).max(policy.library_workspace).max(scratch(network, policy)),
        context: policy.context,
    }
}

/// The largest batch, a multiple of `multiple` and at most [`MOST_UNITS`] times it, whose step fits in memory; `None` where not even the smallest does.
/// `shaped` gives the network for a batch.
///
/// # Errors
/// Those of `shaped`.
pub fn largest_batch<E>(
    memory: Bytes,
    mode: Mode,
    policy: &MemoryPolicy,
    multiple: u64,
    shaped: impl Fn(u64) -> Result<ShapedNetwork, E>,
) -> Result<Option<u64>, E> {
    let fits = |units: u64| Ok(footprint(&shaped(units * multiple)?, mode, policy).total() <= memory);
    if !fits(1)? {
        return Ok(None);
    }
    let (mut low, mut high) = (1, 2);
    while high <= MOST_UNITS && fits(high)? {
        (low, high) = (high, high * 2);
    }
    high = high.min(MOST_UNITS + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok(Some(low * multiple))
}

/// No larger multiple is looked for by [`largest_batch`]: more may fit.
pub const MOST_UNITS: u64 = (1 << 24) - 1;

/// Bytes in use.
#[derive(Clone, Copy, Default)]
struct Use {
    activations: u64,
    gradients: u64,
    workspace: u64,
}

impl Use {
    fn total(&self) -> u64 {
        self.activations.saturating_add(self.gradients).saturating_add(self.workspace)
    }
}

/// A buffer, and how many still want it.
#[derive(Clone, Copy)]
struct Buffer {
    bytes: u64,
    holders: usize,
}

/// Results that modules hold.
struct Held {
    /// Per layer: whether its result is held.
    holds: Vec<bool>,
    /// Per layer: whose results are let go once it has run.
    until: Vec<Vec<usize>>,
}

/// The modules that a layer is in, from the outermost, by the dots in its name.
fn modules(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(at, _)| &name[..at])
}

/// Calls of modules: layers of a module one after the other, first and last. A module may be called again later, as a
/// rectifier that a block has one of is; views, which run nothing, end no call.
struct Calls {
    spans: Vec<(usize, usize)>,
    /// Per layer the calls that it is part of.
    of_layer: Vec<Vec<usize>>,
}

impl Calls {
    fn of(layers: &[ShapedLayer]) -> Self {
        let mut calls = Self { spans: Vec::new(), of_layer: Vec::with_capacity(layers.len()) };
        let mut open: HashMap<&str, usize> = HashMap::new();
        for (i, layer) in layers.iter().enumerate() {
            if layer.case.layer.is_view() {
                calls.of_layer.push(modules(&layer.name).filter_map(|m| open.get(m).copied()).collect());
            } else {
                let mut now = HashMap::new();
                for module in modules(&layer.name) {
                    let call = open.get(module).copied().unwrap_or_else(|| {
                        calls.spans.push((i, i));
                        calls.spans.len() - 1
                    });
                    now.insert(module, call);
                }
                calls.of_layer.push(now.values().copied().collect());
                open = now;
            }
            for &call in &calls.of_layer[i] {
                calls.spans[call].1 = i;
            }
        }
        calls
    }
}

struct Walk<'a> {
    network: &'a ShapedNetwork,
    training: bool,
    policy: &'a MemoryPolicy,
    /// Which buffer a layer's result lies in.
    lies_in: Vec<Option<usize>>,
    buffers: Vec<Buffer>,
    now: Use,
    peak: Use,
}

impl<'a> Walk<'a> {
    fn new(network: &'a ShapedNetwork, mode: Mode, policy: &'a MemoryPolicy) -> Self {
        let training = mode == Mode::Training;
        Self {
            network,
            training,
            policy,
            lies_in: Vec::new(),
            buffers: Vec::new(),
            now: Use::default(),
            peak: Use::default(),
        }
    }

    fn bytes(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.network.batch()).saturating_mul(self.network.precision().bytes())
    }

    fn peak(mut self, gradient_width: u64) -> Use {
        let inputs: u64 = self.network.inputs().iter().map(|s| s.elements()).sum();
        self.now.activations = self.bytes(inputs);
        self.forward();
        if self.training && self.policy.activations != Activations::Mirrored {
            self.backward(gradient_width);
        } else if self.training {
            // Gradients beside all results, and of all parameters.
            self.now.activations = self.now.activations.saturating_mul(2);
            self.now.gradients = self.network.parameters().saturating_mul(gradient_width);
            self.note(0);
        }
        self.peak
    }

    fn note(&mut self, workspace: u64) {
        let now = Use { workspace, ..self.now };
        if now.total() > self.peak.total() {
            self.peak = now;
        }
    }

    fn keep(&mut self, bytes: u64, holders: usize) -> usize {
        self.now.activations = self.now.activations.saturating_add(bytes);
        self.buffers.push(Buffer { bytes, holders });
        self.buffers.len() - 1
    }

    fn release(&mut self, buffer: usize) {
        let held = &mut self.buffers[buffer];
        held.holders = held.holders.saturating_sub(1);
        if held.holders == 0 {
            self.now.activations = self.now.activations.saturating_sub(held.bytes);
            held.bytes = 0;
        }
    }

    fn forward(&mut self) {
        let layers = self.network.layers();
        let mut held = self.held_by_modules();
        let mut readers = vec![0usize; layers.len()];
        for source in layers.iter().flat_map(|l| &l.from) {
            if let Source::Node(k) = source {
                readers[*k] += 1;
            }
        }
        for (i, layer) in layers.iter().enumerate() {
            let first = match layer.from.first() {
                Some(Source::Node(k)) => self.lies_in[*k].map(|b| (*k, b)),
                _ => None,
            };
            // The last layer's result is the caller's.
            let mut holders = readers[i].max(1) + usize::from(self.policy.activations == Activations::Mirrored);
            if self.training && saves_output(&layer.case.layer, self.policy) {
                holders += 1;
            }
            holders += usize::from(held.holds[i]);
            match first {
                Some((k, b)) if self.reuses(layer, &layers[k].case.layer, readers[k]) => {
                    self.buffers[b].holders += holders;
                    self.lies_in.push(Some(b));
                }
                _ => {
                    let bytes = self.bytes(layer.output.elements());
                    let buffer = self.keep(bytes, holders);
                    self.lies_in.push(Some(buffer));
                }
            }
            let beside = self.beside(layer);
            self.now.activations = self.now.activations.saturating_add(beside);
            self.note(transforms(self.network, layer));
            if !self.training {
                self.now.activations = self.now.activations.saturating_sub(beside);
            }
            for k in nodes(layer) {
                if let Some(b) = self.lies_in[k] {
                    // Kept for backward by one more holder.
                    if !(self.training && saves_inputs(&layer.case.layer, self.policy)) {
                        self.release(b);
                    }
                }
            }
            for k in std::mem::take(&mut held.until[i]) {
                if let Some(b) = self.lies_in[k] {
                    self.release(b);
                }
            }
        }
    }

    /// Which results modules hold, and after which layer they let go.
    fn held_by_modules(&self) -> Held {
        let layers = self.network.layers();
        let mut held = Held { holds: vec![false; layers.len()], until: vec![Vec::new(); layers.len()] };
        if !self.policy.modules_hold_input {
            return held;
        }
        let calls = Calls::of(layers);
        let mut until: Vec<Option<usize>> = vec![None; layers.len()];
        for (i, layer) in layers.iter().enumerate() {
            for k in nodes(layer) {
                let end = calls.of_layer[i].iter().map(|&c| calls.spans[c]).filter(|(start, _)| k < *start);
                until[k] = until[k].max(end.map(|(_, end)| end).max());
            }
        }
        for (k, end) in until.into_iter().enumerate() {
            if let Some(end) = end {
                held.holds[k] = true;
                held.until[end].push(k);
            }
        }
        held
    }

    /// Whether a layer's result lies where its input did.
    fn reuses(&self, layer: &ShapedLayer, maker: &Layer, readers: usize) -> bool {
        let view = match &layer.case.layer {
            Layer::Dropout(_) => !self.training,
            layer => layer.is_view(),
        };
        if view {
            return true;
        }
        let overwrites = match (&layer.case.layer, self.policy.in_place) {
            // No framework has one that overwrites.
            (Layer::Activation(a), _) if a.function == Function::Gelu => false,
            (Layer::Activation(a), _) => !self.training || by_its_result(a.function, self.policy),
            (Layer::Dropout(_) | Layer::BatchNorm(_) | Layer::Scale(_), InPlace::Elementwise) => true,
            _ => false,
        };
        overwrites && readers == 1 && !(self.training && saves_output(maker, self.policy))
    }

    /// What a layer makes beside its result, and keeps for backward.
    fn beside(&self, layer: &ShapedLayer) -> u64 {
        let elements = |n: u64, width: u64| n.saturating_mul(self.network.batch()).saturating_mul(width);
        match (&layer.case.layer, self.policy.pooling_index) {
            (Layer::Dropout(_), _) if self.training => elements(layer.output.elements(), MASK),
            (Layer::Pool2d(p), Some(width)) if p.op == PoolOp::Max => elements(layer.output.elements(), width),
            _ => 0,
        }
    }

    fn backward(&mut self, width: u64) {
        let layers = self.network.layers();
        let mut gradients: Vec<Option<usize>> = vec![None; layers.len()];
        for (i, layer) in layers.iter().enumerate().rev() {
            let gradient = match gradients[i].take() {
                Some(buffer) => buffer,
                None => self.keep(self.bytes(layer.output.elements()), 1),
            };
            let learned = layer.parameters().saturating_mul(width);
            self.now.gradients = self.now.gradients.saturating_add(learned);
            let cut = matches!(layer.case.layer, Layer::Slice(_));
            let passes_on = matches!(layer.case.layer, Layer::Add(_)) || layer.case.layer.is_view() && !cut;
            let mut made: Vec<(usize, usize)> = Vec::new();
            for (k, shape) in layer.from.iter().zip(&layer.case.inputs).filter_map(|(s, shape)| match s {
                Source::Node(k) => Some((*k, shape)),
                Source::Input(_) => None,
            }) {
                let buffer = if passes_on {
                    self.buffers[gradient].holders += 1;
                    gradient
                } else {
                    self.keep(self.bytes(shape.elements()), 1)
                };
                made.push((k, buffer));
            }
            self.note(transforms(self.network, layer));
            for (k, buffer) in made {
                gradients[k] = Some(match gradients[k] {
                    // A gradient that nothing else holds is added to where it lies.
                    Some(before) if self.buffers[before].holders == 1 => {
                        self.release(buffer);
                        before
                    }
                    Some(before) => {
                        let sum = self.keep(self.buffers[before].bytes, 1);
                        self.note(0);
                        self.release(before);
                        self.release(buffer);
                        sum
                    }
                    None => buffer,
                });
            }
            self.release(gradient);
            self.forget(i, layer);
        }
        self.note(0);
    }

    /// A layer's backward is done: what it kept goes.
    fn forget(&mut self, i: usize, layer: &ShapedLayer) {
        self.now.activations = self.now.activations.saturating_sub(self.beside(layer));
        if saves_inputs(&layer.case.layer, self.policy) {
            for k in nodes(layer) {
                if let Some(b) = self.lies_in[k] {
                    self.release(b);
                }
            }
        }
        if saves_output(&layer.case.layer, self.policy)
            && let Some(b) = self.lies_in[i]
        {
            self.release(b);
        }
    }
}

/// The largest scratch memory of an algorithm that was asked for.
fn scratch(network: &ShapedNetwork, policy: &MemoryPolicy) -> Bytes {
    let of = |layer: &ShapedLayer| {
        let (Layer::Conv2d(conv), Some(algorithm), Some(input)) =
            (&layer.case.layer, policy.algorithm, layer.case.inputs.first())
        else {
            return Bytes::ZERO;
        };
        match algorithm.supports(&layer.case.layer, &layer.case.inputs) {
            true => algorithm.workspace(conv, input, &layer.output, network.batch()),
            false => Bytes::ZERO,
        }
    };
    network.layers().iter().map(of).max().unwrap_or(Bytes::ZERO)
}

/// Workspace of a convolution whose kernels want channels last where its tensors have them first: both tensors in the
/// other order. Tensor cores do, as measured (data/measurements/h200: vgg16 in tf32); without them nothing is foreseen.
/// Groups do not run there, nor do 3x3 windows over the three channels of an image (mobilenet_v2, squeezenet1_1 in tf32).
fn transforms(network: &ShapedNetwork, layer: &ShapedLayer) -> u64 {
    let Layer::Conv2d(conv) = &layer.case.layer else { return 0 };
    let channels = layer.case.inputs.first().map_or(1, Shape::axis);
    let small = conv.kernel.area() == 1 || conv.kernel.area() <= 9 && channels < TENSOR_CHANNELS;
    if network.precision() != Precision::Tf32 || small || conv.groups(channels) > 1 {
        return 0;
    }
    let inputs: u64 = layer.case.inputs.iter().map(|s| s.elements()).sum();
    let elements = inputs.saturating_add(layer.output.elements());
    elements.saturating_mul(network.batch()).saturating_mul(network.precision().bytes())
}

fn nodes(layer: &ShapedLayer) -> impl Iterator<Item = usize> + '_ {
    layer.from.iter().filter_map(|s| match s {
        Source::Node(k) => Some(*k),
        Source::Input(_) => None,
    })
}

/// Whether a function's gradient is told from its result, so that it may overwrite its input.
fn by_its_result(function: Function, policy: &MemoryPolicy) -> bool {
    match function {
        Function::Relu | Function::Sigmoid | Function::Tanh => true,
        Function::Relu6 => policy.clipped_in_place,
        _ => false,
    }
}

/// Whether a layer's backward reads its inputs.
fn saves_inputs(layer: &Layer, policy: &MemoryPolicy) -> bool {
    match layer {
        Layer::Add(_) | Layer::Concat(_) | Layer::Flatten(_) | Layer::Pad(_) | Layer::Dropout(_) => false,
        Layer::Softmax(_) | Layer::Reshape(_) | Layer::Permute(_) | Layer::Slice(_) => false,
        Layer::GlobalPool2d(p) => p.op == PoolOp::Max,
        Layer::AdaptivePool2d(p) => p.op == PoolOp::Max,
        Layer::Pool2d(p) => p.op == PoolOp::Max || policy.pooling_index.is_some(),
        Layer::Activation(a) => !by_its_result(a.function, policy),
        _ => true,
    }
}

/// Whether a layer's backward reads its result.
fn saves_output(layer: &Layer, policy: &MemoryPolicy) -> bool {
    match layer {
        Layer::Activation(_) => !saves_inputs(layer, policy),
        Layer::Softmax(_) | Layer::LocalResponseNorm(_) => true,
        Layer::Pool2d(p) => p.op == PoolOp::Max && policy.pooling_index.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::network::Network;

    const RESIDUAL: &str = r#"
schema = "network/1"
name = "r"
title = "r"
layers = [
  { name = "a", kind = "conv2d", channels = 4, kernel = 1 },
  { name = "relu", kind = "relu" },
  { name = "b", kind = "conv2d", channels = 4, kernel = 1 },
  { name = "c", kind = "conv2d", channels = 4, kernel = 1 },
  { name = "sum", kind = "add", from = ["c", "relu"] },
]
inputs.x.shape = [1, 2, 2]
"#;

    fn shaped(text: &str, batch: u64) -> ShapedNetwork {
        let net = Network::from_toml(text).expect("valid");
        ShapedNetwork::new(&net, batch, Precision::Fp32, &[]).expect("fits")
    }

    fn of(mode: Mode, activations: Activations) -> MemoryFootprint {
        footprint(&shaped(RESIDUAL, 1), mode, &MemoryPolicy { activations, ..MemoryPolicy::default() })
    }

    #[test]
    fn a_shortcut_keeps_its_tensor_alive() {
        // At c: the input (4), relu's buffer (16), b (16) and c (16).
        let inference = of(Mode::Inference, Activations::Saved);
        assert_eq!((inference.activations.get(), inference.gradients.get()), (4 * (4 + 48), 0));
    }

    #[test]
    fn a_module_holds_its_input() {
        // At block.c: x (4), a for its caller, b and c: without the caller, a is gone.
        let text = RESIDUAL
            .replace("\"relu\", kind", "\"block.relu\", kind")
            .replace("\"b\", kind", "\"block.b\", kind")
            .replace("\"c\", kind", "\"block.c\", kind")
            .replace("  { name = \"sum\", kind = \"add\", from = [\"c\", \"relu\"] },\n", "");
        let of = |modules_hold_input| {
            let policy = MemoryPolicy { modules_hold_input, ..MemoryPolicy::default() };
            footprint(&shaped(&text, 1), Mode::Inference, &policy).activations.get()
        };
        assert_eq!((of(false), of(true)), (4 * (4 + 2 * 16), 4 * (4 + 3 * 16)));
    }

    #[test]
    fn a_module_that_is_called_again_lets_go_in_between() {
        // One rectifier of the module, called twice, does not hold what it read first: as with a rectifier for each.
        let text = |second: &str| {
            RESIDUAL
                .replace("  { name = \"sum\", kind = \"add\", from = [\"c\", \"relu\"] },\n", "")
                .replace("\"relu\", kind = \"relu\"", "\"act.x\", kind = \"gelu\"")
                .replace("{ name = \"c\"", &format!("{{ name = \"{second}\", kind = \"gelu\" }}, {{ name = \"c\""))
        };
        let of = |text: &str| {
            let policy = MemoryPolicy { modules_hold_input: true, ..MemoryPolicy::default() };
            footprint(&shaped(text, 1), Mode::Inference, &policy).activations.get()
        };
        assert_eq!(of(&text("act.y")), of(&text("other.y")));
        assert_eq!(of(&text("act.y")), 4 * (4 + 2 * 16));
    }

    #[test]
    fn max_pooling_makes_indices_and_a_smooth_activation_another_buffer() {
        let layer = |line: &str| {
            format!(
                "schema = \"network/1\"\nname = \"n\"\ntitle = \"n\"\nlayers = [{line}]\ninputs.x.shape = [1, 2, 2]\n"
            )
        };
        let of =
            |text: &str, policy: &MemoryPolicy| footprint(&shaped(text, 1), Mode::Inference, policy).activations.get();
        let pooled = layer("{ name = \"a\", kind = \"max_pool2d\", kernel = 2 }");
        let indices = MemoryPolicy { pooling_index: Some(8), ..MemoryPolicy::default() };
        assert_eq!(of(&pooled, &indices) - of(&pooled, &MemoryPolicy::default()), 8);
        let chain = |kind: &str| {
            layer(&format!(
                "{{ name = \"a\", kind = \"conv2d\", channels = 4, kernel = 1 }}, {{ name = \"b\", kind = \"{kind}\" }}"
            ))
        };
        let policy = MemoryPolicy::default();
        assert_eq!(of(&chain("gelu"), &policy) - of(&chain("relu"), &policy), 4 * 16);
    }

    #[test]
    fn training_keeps_what_backward_reads() {
        // Forward at sum: input, relu's buffer for b and relu, b for c, c and sum: 4 + 4 * 16. Backward of b: input,
        // relu, b, the gradients of sum (still wanted by relu), of b and of relu's result: 4 + 5 * 16.
        let saved = of(Mode::Training, Activations::Saved);
        assert_eq!(saved.activations.get(), 4 * (4 + 5 * 16));
        // Input, a, b, c and sum to the end; gradients of sum (kept), b, and two of relu's result, of whose sum a third.
        let arena = of(Mode::Training, Activations::Arena);
        assert!(arena.activations > saved.activations, "{arena:?}");
        // Input, a, b, c and sum, and a gradient beside each; relu overwrites a.
        let mirrored = of(Mode::Training, Activations::Mirrored);
        assert_eq!(mirrored.activations.get(), 2 * 4 * (4 + 4 * 16));
        assert_eq!(mirrored.gradients.get(), shaped(RESIDUAL, 1).parameters() * 4);
    }

    #[test]
    fn the_optimizer_decides_what_is_kept_per_parameter() {
        use crate::net::layer::Optimizer;
        let state = |optimizer| {
            let network = shaped(RESIDUAL, 1).with_optimizer(optimizer);
            footprint(&network, Mode::Training, &MemoryPolicy::default()).optimizer_state.get()
        };
        let parameters = shaped(RESIDUAL, 1).parameters();
        assert_eq!(
            [Optimizer::Sgd, Optimizer::Momentum, Optimizer::Adam].map(state),
            [0, 4, 8].map(|w| w * parameters)
        );
    }

    #[test]
    fn the_largest_batch_fits_and_one_more_does_not() {
        let policy = MemoryPolicy::default();
        let memory = Bytes::new(10_000);
        let largest = |multiple| {
            let of = |batch| Ok::<_, ()>(shaped(RESIDUAL, batch));
            largest_batch(memory, Mode::Training, &policy, multiple, of).expect("no error")
        };
        let batch = largest(1).expect("fits");
        let total = |batch| footprint(&shaped(RESIDUAL, batch), Mode::Training, &policy).total();
        assert!(total(batch) <= memory && total(batch + 1) > memory, "{batch}");
        assert_eq!(largest(4), Some(batch / 4 * 4));
        let tiny = |batch| Ok::<_, ()>(shaped(RESIDUAL, batch));
        assert_eq!(largest_batch(Bytes::new(10), Mode::Training, &policy, 1, tiny), Ok(None));
    }
}
