//! What a step keeps in device memory.

mod batches;
mod buffers;
mod modules;
mod walk;

pub(crate) use batches::FootprintOverBatches;
pub use buffers::{BufferPlan, Gradients, Placed, Sum};

use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::{Shape, product};
use crate::base::units::Bytes;
use crate::kernel::setting::Algorithm;
use crate::kernel::sizes::ConvSizes;
use crate::kernel::work::Work;
use crate::law::choice::Choice;
use crate::net::layer::Layer;
use crate::net::network::{ShapedLayer, ShapedNetwork, Source};
use crate::step::autocast::Mixed;
use serde::Deserialize;
use walk::{MASK, Use, Walk};

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
    /// Whether training in 16 bits is mixed: see [`Mixed`].
    pub autocasts: bool,
    /// What convolutions are computed by, if asked for: its scratch memory is workspace.
    pub algorithm: Option<Algorithm>,
    /// What the library of products keeps as workspace: our own runner's is for all kernels, a framework's lies beside theirs.
    pub library_workspace: Bytes,
    /// What the driver and the framework's own kernels take before the first tensor.
    pub context: Bytes,
}

impl MemoryPolicy {
    /// How the layers of a network run where that is mixed; `None` where all of them have the network's precision.
    pub fn mixed(&self, network: &ShapedNetwork, mode: Mode) -> Option<Mixed> {
        Mixed::of(network, self.autocasts && mode == Mode::Training)
    }
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

/// Memory of a step of the network, whose convolutions run engines that a library chooses by `choices`, where these are known.
pub fn footprint(network: &ShapedNetwork, mode: Mode, policy: &MemoryPolicy, choices: &[Choice]) -> MemoryFootprint {
    let parameters = network.parameters();
    let width = network.precision().result_bytes();
    let narrow = width < FP32;
    let training = mode == Mode::Training;
    let mixed = policy.autocasts && training && narrow;
    // Beside master weights in 32 bits autocast converts those of products alone.
    let stored = |l: &ShapedLayer| match Mixed::narrows_parameters(l) {
        true => l.weight_bytes(network.precision()),
        false => 0,
    };
    let weights = match mixed {
        true => network.each(stored).fold(0, u64::saturating_add),
        false => network.weight_bytes(),
    };
    let both = if training && narrow { FP32 } else { 0 };
    let state = if training { network.optimizer().state_per_parameter() * FP32 } else { 0 };
    let gradient_width = if narrow && policy.narrow_gradients { width } else { FP32 };
    let peak = match policy.activations {
        Activations::Arena => planned(network, mode, gradient_width),
        Activations::Saved | Activations::Mirrored => Walk::new(network, mode, policy, choices).peak(gradient_width),
    };
    let cached = network.cache_bytes().saturating_mul(network.batch());
    MemoryFootprint {
        cache: Bytes::new(cached),
        weights: Bytes::new(weights.saturating_add(parameters.saturating_mul(both)).saturating_add(biases(network))),
        optimizer_state: Bytes::new(parameters.saturating_mul(state)),
        gradients: Bytes::new(peak.gradients),
        activations: Bytes::new(peak.activations),
        workspace: with_library(
            Bytes::new(peak.workspace).max(scratch(network, policy)).max(converted(network)),
            network,
            policy,
        ),
        context: policy.context,
    }
}

/// The largest workspace of a kernel and what the library of products keeps from the first one that runs.
fn with_library(kernel: Bytes, network: &ShapedNetwork, policy: &MemoryPolicy) -> Bytes {
    let is_product = |layer: &ShapedLayer| match &layer.case.layer {
        Layer::Linear(_) | Layer::Matmul(_) | Layer::LatentAttention(_) | Layer::Experts(_) => true,
        Layer::Attention(attention) => !attention.fused,
        _ => false,
    };
    match policy.activations {
        Activations::Arena => kernel.max(policy.library_workspace),
        _ if network.layers().iter().any(is_product) => kernel + policy.library_workspace,
        _ => kernel,
    }
}

/// The largest batch, a multiple of `multiple` and at most [`MOST_UNITS`] times it, whose step fits in memory; `None` where not even
/// the smallest does. `needed`: what a step of a batch keeps.
///
/// # Errors
/// Those of `needed`.
pub fn largest_batch<E>(
    memory: Bytes,
    multiple: u64,
    needed: impl Fn(u64) -> Result<Bytes, E>,
) -> Result<Option<u64>, E> {
    let fits = |units: u64| Ok(needed(units * multiple)? <= memory);
    Ok(largest(MOST_UNITS, fits)?.map(|units| units * multiple))
}

/// The largest number up to `most` that fits, where all smaller ones do; `None` where 1 does not.
///
/// # Errors
/// Those of `fits`.
pub fn largest<E>(most: u64, fits: impl Fn(u64) -> Result<bool, E>) -> Result<Option<u64>, E> {
    if most == 0 || !fits(1)? {
        return Ok(None);
    }
    let (mut low, mut high) = (1, 2);
    while high <= most && fits(high)? {
        (low, high) = (high, high * 2);
    }
    high = high.min(most + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok(Some(low))
}

/// No larger multiple is looked for by [`largest_batch`]: more may fit.
pub const MOST_UNITS: u64 = (1 << 24) - 1;

/// Bytes of all biases of scores: modules keep what they looked up for every query and key, or the backward pass needs it.
fn biases(network: &ShapedNetwork) -> u64 {
    let of = |layer: &ShapedLayer| match &layer.case.layer {
        Layer::Attention(attention) => attention.sizes(&layer.case.inputs).map_or(0, |s| attention.values_of_bias(&s)),
        _ => 0,
    };
    network.each(of).fold(0, u64::saturating_add).saturating_mul(network.precision().result_bytes())
}

/// Bytes of both scores of attention that keeps them in memory: products, and what softmax makes of them.
fn scores(network: &ShapedNetwork, layer: &ShapedLayer) -> u64 {
    let pairs = layer.case.layer.written_pairs(&layer.case.inputs).unwrap_or(0);
    product(&[2, pairs, network.batch(), network.precision().bytes()])
}

/// Bytes that a layer of several kernels has in memory between them, but for scores.
fn between(network: &ShapedNetwork, layer: &ShapedLayer) -> u64 {
    let bytes = layer.case.runs_in(network.precision()).bytes();
    product(&[layer.case.layer.between(&layer.case.inputs), network.batch(), bytes])
}

/// What our own runner takes: the plan of its buffers, what layers keep for their backward pass alone, and one workspace for
/// all of them.
fn planned(network: &ShapedNetwork, mode: Mode, gradient_width: u64) -> Use {
    let kept = || network.each(|layer| buffers::rounded(kept_by_runner(network, layer, mode)));
    let kept = if mode == Mode::Training { kept().fold(0, u64::saturating_add) } else { 0 };
    let buffers = network.buffers(mode, || BufferPlan::new(network, mode).bytes);
    Use {
        activations: buffers.saturating_add(kept),
        gradients: if mode == Mode::Training { network.parameters().saturating_mul(gradient_width) } else { 0 },
        workspace: workspace_by_runner(network, mode),
    }
}

/// Bytes that a layer keeps for its own backward pass.
fn kept_by_runner(network: &ShapedNetwork, layer: &ShapedLayer, mode: Mode) -> u64 {
    let elements = layer.output.elements().saturating_mul(network.batch());
    match &layer.case.layer {
        _ if mode == Mode::Inference => 0,
        Layer::Dropout(_) => elements.saturating_mul(MASK),
        Layer::LocalResponseNorm(_) => elements.saturating_mul(network.precision().bytes()),
        Layer::Attention(_) => scores(network, layer),
        _ => between(network, layer),
    }
}

/// Bytes of the one workspace of all layers.
fn workspace_by_runner(network: &ShapedNetwork, mode: Mode) -> u64 {
    let training = mode == Mode::Training;
    let made = |layer: &ShapedLayer| scores(network, layer).max(between(network, layer));
    let beside = |layer: &ShapedLayer| transforms(network, layer).max(if training { 0 } else { made(layer) });
    network.distinct(beside).max().unwrap_or(0)
}

/// The largest scratch memory of an algorithm that was asked for.
fn scratch(network: &ShapedNetwork, policy: &MemoryPolicy) -> Bytes {
    let Some(algorithm) = policy.algorithm else { return Bytes::ZERO };
    let of = |layer: &ShapedLayer| {
        let (Layer::Conv2d(conv), Some(input)) = (&layer.case.layer, layer.case.inputs.first()) else {
            return Bytes::ZERO;
        };
        match algorithm.supports(&layer.case.layer, &layer.case.inputs) {
            true => algorithm.workspace(conv, input, &layer.output, network.batch()),
            false => Bytes::ZERO,
        }
    };
    network.distinct(of).max().unwrap_or(Bytes::ZERO)
}

/// Workspace of the kernels of a layer in a phase in some precision: of a convolution what the engine takes that the library is
/// expected to choose, where that is known.
fn workspace(
    network: &ShapedNetwork,
    layer: &ShapedLayer,
    phase: Phase,
    precision: Precision,
    mode: Mode,
    choices: &[Choice],
) -> u64 {
    let choice = choices.iter().find(|choice| choice.is_for(phase, precision) && !choice.workspaces.is_empty());
    let sizes = || ConvSizes::of(&Work::of(layer, phase, network.batch(), precision, mode));
    match choice.and_then(|choice| Some(choice.workspace(&sizes()?))) {
        Some(bytes) => bytes.get(),
        None => transforms(network, layer),
    }
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

/// The largest input that is converted for a product in fp8.
fn converted(network: &ShapedNetwork) -> Bytes {
    if network.precision() != Precision::Fp8 {
        return Bytes::ZERO;
    }
    let elements = |layer: &ShapedLayer| match layer.case.runs_in(network.precision()) {
        Precision::Fp8 => layer.case.inputs.iter().map(|s| s.elements()).fold(0, u64::saturating_add),
        _ => 0,
    };
    let most = network.distinct(elements).max().unwrap_or(0);
    Bytes::new(most.saturating_mul(network.batch()).saturating_mul(Precision::Fp8.bytes()))
}

fn nodes(layer: &ShapedLayer) -> impl Iterator<Item = usize> + '_ {
    nodes_by_input(layer).map(|(_, k)| k)
}

/// The layers whose results a layer reads, each with the number of its input.
fn nodes_by_input(layer: &ShapedLayer) -> impl Iterator<Item = (usize, usize)> + '_ {
    layer.from.iter().enumerate().filter_map(|(input, s)| match s {
        Source::Node(k) => Some((input, *k)),
        Source::Input(_) => None,
    })
}

/// Whether the gradient of a layer's result is the gradient of each of its inputs: of a sum, and of a view but of a part,
/// around which a kernel writes zeros.
fn passes_on(network: &ShapedNetwork, layer: &ShapedLayer) -> bool {
    let computed = network.cost(layer, Phase::BackwardData, Mode::Training).is_some();
    !computed && (layer.case.layer.sums() || layer.case.layer.is_view(Mode::Training))
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
        footprint(&shaped(RESIDUAL, 1), mode, &MemoryPolicy { activations, ..MemoryPolicy::default() }, &[])
    }

    #[test]
    fn mixed_precision_keeps_converted_copies() -> Result<(), Box<dyn std::error::Error>> {
        let text = "schema = \"network/1\"\nname = \"a\"\ntitle = \"a\"\ninputs.x.shape = [1024, 64]\nlayers = [\n\
                    { name = \"norm\", kind = \"layer_norm\" },\n{ name = \"a\", kind = \"linear\", features = 64 },\n\
                    { name = \"b\", kind = \"linear\", features = 64, from = [\"norm\"] },\n\
                    { name = \"sum\", kind = \"add\", from = [\"a\", \"b\"] }]\n";
        let pytorch = crate::catalog::framework("pytorch")?;
        let narrow = MemoryPolicy { autocasts: false, ..pytorch.memory };
        let of = |precision, policy: &MemoryPolicy| {
            let network = Network::from_toml(text)?;
            let shaped = ShapedNetwork::new(&network, 16, precision, &[])?;
            Ok::<_, Box<dyn std::error::Error>>(footprint(&shaped, Mode::Training, policy, &[]).activations.get())
        };
        // Most is in use where the second product's gradient of the norm lies beside the first's. All in 16 bits: the input, the
        // norm, the sum, its gradient and those two, 12 bytes a value. Mixed: the input and those two have 4 bytes each,
        // a copy of the norm stands for it.
        let values = 16 * 1024 * 64;
        assert_eq!(of(Precision::Fp16, &narrow)?, 12 * values);
        assert_eq!(of(Precision::Fp16, &pytorch.memory)?, 18 * values);
        assert_eq!(of(Precision::Fp32, &pytorch.memory)?, of(Precision::Fp32, &narrow)?);
        Ok(())
    }

    #[test]
    fn a_region_in_32_bits_has_a_copy_of_what_it_reads() -> Result<(), Box<dyn std::error::Error>> {
        let text = "schema = \"network/1\"\nname = \"a\"\ntitle = \"a\"\ninputs.x.shape = [1024, 64]\nlayers = [\n\
                    { name = \"relu\", kind = \"relu\" },\n{ name = \"up\", kind = \"cast\", to = \"wide\" },\n\
                    { name = \"gelu\", kind = \"gelu\" },\n{ name = \"down\", kind = \"cast\", to = \"narrow\" }]\n";
        let pytorch = crate::catalog::framework("pytorch")?;
        let bytes_a_value = |precision| {
            let shaped = ShapedNetwork::new(&Network::from_toml(text)?, 16, precision, &[])?;
            let activations = footprint(&shaped, Mode::Inference, &pytorch.memory, &[]).activations.get();
            Ok::<_, Box<dyn std::error::Error>>(activations / (16 * 1024 * 64))
        };
        // The input, and what the region's function reads and makes; in 32 bits the conversion is the rectifier's result.
        assert_eq!((bytes_a_value(Precision::Bf16)?, bytes_a_value(Precision::Fp32)?), (2 + 4 + 4, 4 + 4 + 4));
        Ok(())
    }

    /// Whatever the batch, for each of the layers.
    #[test]
    fn biases_of_scores_take_memory() -> Result<(), Box<dyn std::error::Error>> {
        let of = |bias: &str, batch, precision| {
            let layer = |name: &str| format!("{{ name = \"{name}\", kind = \"attention\", heads = 4{bias} }}");
            let text = format!(
                "schema = \"network/1\"\nname = \"a\"\ntitle = \"a\"\nlayers = [{}, {{ name = \"p\", kind = \"linear\", \
                 features = 96 }}, {}]\ninputs.x.shape = [512, 96]\n",
                layer("a"),
                layer("b")
            );
            let network = crate::net::network::Network::from_toml(&text)?;
            let shaped = ShapedNetwork::new(&network, batch, precision, &[])?;
            let policy = crate::catalog::framework("pytorch")?.memory;
            Ok::<_, Box<dyn std::error::Error>>(footprint(&shaped, Mode::Inference, &policy, &[]).weights.get())
        };
        for (precision, width) in [(Precision::Fp32, 4), (Precision::Bf16, 2)] {
            for batch in [1, 64] {
                let more = of(", bias = { heads = 2 }", batch, precision)? - of("", batch, precision)?;
                assert_eq!(more, 2 * 2 * 512 * 512 * width, "{precision} {batch}");
            }
        }
        Ok(())
    }

    #[test]
    fn scores_that_are_written_out_take_memory() -> Result<(), Box<dyn std::error::Error>> {
        let text = |fused: bool| {
            format!(
                "schema = \"network/1\"\nname = \"a\"\ntitle = \"a\"\nlayers = [{{ name = \"a\", kind = \"attention\", \
                 heads = 4, fused = {fused} }}]\ninputs.x.shape = [512, 96]\n"
            )
        };
        for (profile, mode) in ["cudnn", "pytorch"].iter().flat_map(|p| [(p, Mode::Inference), (p, Mode::Training)]) {
            let framework = crate::catalog::framework(profile)?;
            let of = |fused: bool| {
                let network = crate::net::network::Network::from_toml(&text(fused))?;
                let shaped = ShapedNetwork::new(&network, 8, Precision::Fp32, &[])?;
                Ok::<_, Box<dyn std::error::Error>>(footprint(&shaped, mode, &framework.memory, &[]).total().get())
            };
            // 4 heads of 512 x 512 pairs, 8 samples, 4 bytes, twice; our runner has a workspace anyway, a framework's library
            // of products takes one.
            let more = of(true)?.abs_diff(of(false)?);
            let least = if **profile == *"pytorch" { 96 << 20 } else { 32 << 20 };
            assert!((least..=least + (33 << 20)).contains(&more), "{profile} {mode}: {more}");
        }
        Ok(())
    }

    #[test]
    fn operations_that_read_no_input_for_their_gradient_keep_none() {
        let of = |gradient: &str| {
            let text = RESIDUAL.replace(
                "name = \"relu\", kind = \"relu\"",
                &format!("name = \"relu\", kind = \"elementwise\"{gradient}"),
            );
            let net = shaped(&text, 1);
            footprint(&net, Mode::Training, &MemoryPolicy::default(), &[]).activations.get()
        };
        // What `a` made, 16 values.
        assert_eq!(of("") - of(", gradient = \"scales\""), 4 * 16);
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
            footprint(&shaped(&text, 1), Mode::Inference, &policy, &[]).activations.get()
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
            footprint(&shaped(text, 1), Mode::Inference, &policy, &[]).activations.get()
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
        let of = |text: &str, policy: &MemoryPolicy| {
            footprint(&shaped(text, 1), Mode::Inference, policy, &[]).activations.get()
        };
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
            footprint(&network, Mode::Training, &MemoryPolicy::default(), &[]).optimizer_state.get()
        };
        let parameters = shaped(RESIDUAL, 1).parameters();
        assert_eq!(
            [Optimizer::Sgd, Optimizer::Momentum, Optimizer::Adam].map(state),
            [0, 4, 8].map(|w| w * parameters)
        );
    }

    #[test]
    fn the_largest_batch_fits_and_one_more_does_not() {
        let total = |batch| footprint(&shaped(RESIDUAL, batch), Mode::Training, &MemoryPolicy::default(), &[]).total();
        let memory = Bytes::new(10_000);
        let largest = |multiple| largest_batch(memory, multiple, |batch| Ok::<_, ()>(total(batch))).expect("no error");
        let batch = largest(1).expect("fits");
        assert!(total(batch) <= memory && total(batch + 1) > memory, "{batch}");
        assert_eq!(largest(4), Some(batch / 4 * 4));
        assert_eq!(largest_batch(Bytes::new(10), 1, |batch| Ok::<_, ()>(total(batch))), Ok(None));
    }

    /// The library of products takes its workspace where one runs, beside that of convolutions.
    #[test]
    fn products_bring_their_library_s_workspace() {
        let policy = MemoryPolicy { library_workspace: Bytes::new(1000), ..MemoryPolicy::default() };
        let of = |text: &str, policy: &MemoryPolicy| {
            footprint(&shaped(text, 1), Mode::Inference, policy, &[]).workspace.get()
        };
        let with_product = RESIDUAL.replace(
            "\n]",
            "\n  { name = \"flat\", kind = \"flatten\" },\n  { name = \"fc\", kind = \"linear\", features = 3 },\n]",
        );
        assert_eq!((of(RESIDUAL, &policy), of(&with_product, &policy)), (0, 1000));
        let arena = MemoryPolicy { activations: Activations::Arena, ..policy };
        assert_eq!(of(RESIDUAL, &arena), 1000, "our runner makes it with its handle");
    }

    /// A convolution whose engine keeps its input and its result in another order: beside what lives then.
    #[test]
    fn engines_that_are_foreseen_take_their_workspace() {
        let choice = |phase, input, output| Choice {
            phase,
            precisions: vec![Precision::Fp32],
            engines: vec!["eng1{2=3}".into()],
            asked: 1,
            right: 1.0,
            tree: crate::law::choice::Tree::from_text("0", 1).expect("a tree"),
            workspaces: [("eng1".to_string(), crate::law::choice::Workspace::new([input, output, 1.0, 0.0]))].into(),
        };
        let text = RESIDUAL.replace("shape = [1, 2, 2]", "shape = [1, 8, 8]");
        let of = |mode, choices: &[Choice]| footprint(&shaped(&text, 2), mode, &MemoryPolicy::default(), choices);
        let plain = of(Mode::Inference, &[]);
        assert_eq!(plain.workspace, Bytes::ZERO);
        // 4 channels of 64 places in and out, two samples, and 16 weights, of four bytes each.
        let forward = [choice(Phase::Forward, 1.0, 0.5)];
        let taken = of(Mode::Inference, &forward);
        assert_eq!(taken.workspace.get(), 4 * (4 * 64 * 2 + 4 * 64 + 16));
        assert_eq!(taken.activations, plain.activations);
        // Of both gradients the larger counts.
        let both = [choice(Phase::BackwardData, 0.0, 0.0), choice(Phase::BackwardWeights, 1.0, 1.0)];
        assert_eq!(of(Mode::Training, &both).workspace.get(), 4 * (2 * 4 * 64 * 2 + 16));
        // An algorithm that was asked for is none of them.
        let policy = MemoryPolicy { algorithm: Some(Algorithm::ImplicitGemm), ..MemoryPolicy::default() };
        let asked = |choices: &[Choice]| footprint(&shaped(&text, 2), Mode::Inference, &policy, choices);
        assert_eq!(asked(&forward), asked(&[]));
    }
}
