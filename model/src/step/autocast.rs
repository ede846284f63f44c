//! Steps whose layers run in two precisions.
//!
//! Training in 16 bits as PyTorch's autocast runs it: parameters stay in 32 bits, each operation converts what it reads as its
//! kind asks for, and what is added to 32 bits has 32. Lists of operations: aten/src/ATen/autocast_mode.h of pytorch/pytorch.
//!
//! Regions that a module computes in 32 bits ([`Cast`]), in inference and in training that is not autocast: the widest input says
//! in what a layer computes (type promotion, c10/core/ScalarType.h there).

use crate::base::precision::{Phase, Precision};
use crate::net::layer::{Activation, Cast, Function, Layer, Width};
use crate::net::network::{ShapedLayer, ShapedNetwork, Source};

/// What autocast makes of an operation's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// All are converted to 16 bits, parameters too.
    Narrow,
    /// All are converted to 32 bits.
    Wide,
    /// The kernel reads 16 bits and writes 32.
    Widening,
    /// A parameter in 32 bits takes part in the arithmetic: so is the result.
    Promoted,
    /// The widest of the inputs says; others are converted within the kernel.
    Widest,
    /// As the first input is.
    AsRead,
    /// To 32 bits, or back to what a region was before.
    Cast(Width),
}

impl Policy {
    fn of(layer: &ShapedLayer) -> Self {
        let channels = layer.case.inputs.first().and_then(|s| s.dims().first()).copied();
        match &layer.case.layer {
            // A group for each channel is an instance norm, which runs as a batch norm.
            Layer::GroupNorm(norm) if channels == Some(norm.groups) => Self::AsRead,
            Layer::Matmul(matmul) if matmul.wide => Self::Widest,
            Layer::Matmul(_) | Layer::Attention(_) => Self::Narrow,
            other if multiplies_weights(other) => Self::Narrow,
            Layer::LayerNorm(_) | Layer::GroupNorm(_) => Self::Wide,
            Layer::Activation(Activation { function: Function::Softplus }) => Self::Wide,
            Layer::Elementwise(elementwise) if elementwise.wide => Self::Wide,
            Layer::Softmax(_) => Self::Widening,
            // Norms and sums take the type of their result (fp32_append_dtype and fp32_set_opt_dtype of the same file).
            Layer::Reduce(reduce) if reduce.norm || reduce.wide => Self::Widening,
            Layer::Embedding(_)
            | Layer::PositionEmbedding(_)
            | Layer::RelativePositionBias(_)
            | Layer::ClassToken(_)
            | Layer::RmsNorm(_)
            | Layer::Scale(_) => Self::Promoted,
            Layer::Elementwise(elementwise) if elementwise.parameters > 0 => Self::Promoted,
            Layer::Add(_) | Layer::Multiply(_) | Layer::Concat(_) | Layer::Elementwise(_) => Self::Widest,
            Layer::Cast(cast) => Self::Cast(cast.to),
            _ => Self::AsRead,
        }
    }

    /// Without autocast.
    fn promoting(layer: &ShapedLayer) -> Self {
        match &layer.case.layer {
            Layer::Cast(cast) => Self::Cast(cast.to),
            // Weights have the network's precision, and PyTorch refuses two types in a product.
            other if multiplies_weights(other) => Self::Narrow,
            _ => Self::Widest,
        }
    }
}

/// Whether a layer is products of what it reads and weights.
fn multiplies_weights(layer: &Layer) -> bool {
    matches!(
        layer,
        Layer::Conv2d(_)
            | Layer::Conv3d(_)
            | Layer::ConvTranspose2d(_)
            | Layer::Linear(_)
            | Layer::LatentAttention(_)
            | Layer::Experts(_)
            | Layer::Recurrent(_)
    )
}

/// How a layer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// What its kernels work in.
    works: Precision,
    /// What its result has.
    result: Precision,
    /// Of each input, whether kernels before it write a converted copy.
    copied: Vec<bool>,
    /// Of each input, whether its gradient is converted.
    returned: Vec<bool>,
    /// Whether it is a conversion for which a kernel runs.
    converts: bool,
}

/// What one kernel converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Converted {
    /// How many values.
    pub values: u64,
    /// Whether they are parameters or their gradients, which lie in memory, not in the second-level cache.
    pub learned: bool,
}

impl Converted {
    fn computed(values: u64) -> Self {
        Self { values, learned: false }
    }

    fn learned(values: u64) -> Self {
        Self { values, learned: true }
    }
}

/// How the layers of a network run where that is not all in one precision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixed {
    narrow: Precision,
    /// Whether autocast decides.
    autocast: bool,
    runs: Vec<Run>,
}

impl Mixed {
    /// Of a step, under autocast or with regions of 32 bits; `None` but in 16 bits, and where all is in the network's precision.
    pub fn of(network: &ShapedNetwork, autocast: bool) -> Option<Self> {
        let narrow = network.precision();
        let casts = || network.layers().iter().any(|layer| matches!(layer.case.layer, Layer::Cast(_)));
        if !matches!(narrow, Precision::Fp16 | Precision::Bf16) || !(autocast || casts()) {
            return None;
        }
        let mut runs: Vec<Run> = Vec::with_capacity(network.layers().len());
        for (i, layer) in network.layers().iter().enumerate() {
            let policy = if autocast { Policy::of(layer) } else { Policy::promoting(layer) };
            let stored = |source: &Source| match *source {
                Source::Input(_) if autocast => Precision::Fp32,
                Source::Input(_) => narrow,
                Source::Node(k) => runs.get(k).map_or(narrow, |r| r.result),
            };
            let read: Vec<Precision> = layer.from.iter().map(stored).collect();
            let first = read.first().copied().unwrap_or(narrow);
            let widest = if read.contains(&Precision::Fp32) { Precision::Fp32 } else { narrow };
            let (works, result) = match policy {
                Policy::Narrow => (narrow, narrow),
                Policy::Wide | Policy::Widening | Policy::Promoted => (Precision::Fp32, Precision::Fp32),
                Policy::Widest => (widest, widest),
                Policy::AsRead => (first, first),
                Policy::Cast(Width::Wide) => (Precision::Fp32, Precision::Fp32),
                Policy::Cast(Width::Narrow) if !autocast => (narrow, narrow),
                Policy::Cast(Width::Narrow) => {
                    let before = before_region(network, i).map_or(narrow, |source| stored(&source));
                    (before, before)
                }
            };
            let converts = matches!(policy, Policy::Cast(_)) && first != result;
            let copies = autocast && matches!(policy, Policy::Narrow | Policy::Wide);
            let differs: Vec<bool> = read.iter().map(|&p| p != works).collect();
            let node = |source: &Source| matches!(source, Source::Node(_));
            let returned = differs.iter().zip(layer.from.iter()).map(|(&d, source)| d && node(source)).collect();
            let copied = differs.into_iter().map(|d| d && copies).collect();
            runs.push(Run { works, result, copied, returned, converts });
        }
        Some(Self { narrow, autocast, runs })
    }

    /// Whether it is autocast.
    pub fn autocasts(&self) -> bool {
        self.autocast
    }

    /// Whether a layer's result lies where its input does, if it is a view.
    pub fn views(&self, layer: usize) -> bool {
        self.runs.get(layer).is_none_or(|r| !r.converts)
    }

    /// What the kernels of a layer work in.
    pub fn works(&self, layer: usize) -> Precision {
        self.runs.get(layer).map_or(self.narrow, |r| r.works)
    }

    /// What the result of a layer, and its gradient, have.
    pub fn result(&self, layer: usize) -> Precision {
        self.runs.get(layer).map_or(self.narrow, |r| r.result)
    }

    /// Whether a layer reads a converted copy of its input of that number, and keeps that for backward instead of it.
    pub fn copies(&self, layer: usize, input: usize) -> bool {
        self.runs.get(layer).and_then(|r| r.copied.get(input)).is_some_and(|&copied| copied)
    }

    /// Whether it converts its parameters.
    pub fn narrows_parameters(layer: &ShapedLayer) -> bool {
        Policy::of(layer) == Policy::Narrow
    }

    /// What kernels around a layer convert in a phase of a step.
    pub fn converted(&self, network: &ShapedNetwork, i: usize, phase: Phase) -> Vec<Converted> {
        let (Some(run), Some(layer)) = (self.runs.get(i), network.layers().get(i)) else { return Vec::new() };
        let inputs = |which: &[bool]| -> Vec<Converted> {
            let shapes = layer.case.inputs.iter().zip(which).filter(|(_, which)| **which);
            shapes.map(|(shape, _)| Converted::computed(shape.elements().saturating_mul(network.batch()))).collect()
        };
        let cast = || inputs(if run.converts { &[true] } else { &[] });
        if !self.autocast {
            return match phase {
                Phase::Forward => cast(),
                Phase::BackwardData => inputs(&run.returned),
                Phase::BackwardWeights | Phase::Update => Vec::new(),
            };
        }
        // A kernel for the weights, and one for the bias.
        let parameters = || match (layer.parameters(), bias(layer)) {
            _ if !Self::narrows_parameters(layer) => Vec::new(),
            (0, _) => Vec::new(),
            (all, 0) => vec![Converted::learned(all)],
            (all, bias) => vec![Converted::learned(all - bias), Converted::learned(bias)],
        };
        match phase {
            Phase::Forward => {
                [parameters(), inputs(&run.copied), cast(), probabilities(network, layer), reordered(network, layer, 2)]
                    .concat()
            }
            Phase::BackwardData => {
                [inputs(&run.returned), probabilities(network, layer), reordered(network, layer, 3)].concat()
            }
            Phase::BackwardWeights => parameters(),
            Phase::Update => Vec::new(),
        }
    }
}

/// What the region in 32 bits that a conversion ends was computed from: along first inputs up to where it was made wide.
fn before_region(network: &ShapedNetwork, end: usize) -> Option<Source> {
    let mut at = *network.layers().get(end)?.from.first()?;
    loop {
        let Source::Node(k) = at else { return None };
        let layer = network.layers().get(k)?;
        let first = *layer.from.first()?;
        match layer.case.layer {
            Layer::Cast(Cast { to: Width::Wide }) => return Some(first),
            // Narrow already.
            Layer::Cast(_) => return Some(at),
            _ => at = first,
        }
    }
}

/// Values of a layer's bias.
fn bias(layer: &ShapedLayer) -> u64 {
    match &layer.case.layer {
        Layer::Linear(l) if l.bias => l.features,
        Layer::Conv2d(c) if c.bias => c.channels,
        Layer::Conv3d(c) if c.bias => c.channels,
        Layer::ConvTranspose2d(c) if c.bias => c.channels,
        _ => 0,
    }
}

/// What softmax leaves in 32 bits in attention that is written out, and the next product reads in 16.
fn probabilities(network: &ShapedNetwork, layer: &ShapedLayer) -> Vec<Converted> {
    let pairs = layer.case.layer.written_pairs(&layer.case.inputs);
    pairs.map(|pairs| Converted::computed(pairs.saturating_mul(network.batch()))).into_iter().collect()
}

/// What a copy of 32-bit values into another order of dimensions takes, in values that a conversion passes in that time: it
/// moves 8 bytes, not 6, at 0.44 of the bandwidth (`[sequences]` of the profile), not 0.8.
const REORDERED: f64 = 8.0 / 6.0 * 0.8 / 0.44;

/// Group norm of maps wants channels first, where all around it have them last: result and input, backward both gradients and
/// the input once more, are copied.
fn reordered(network: &ShapedNetwork, layer: &ShapedLayer, copies: usize) -> Vec<Converted> {
    let map = layer.case.inputs.first().filter(|s| s.as_map().is_some());
    let Some(map) =
        map.filter(|_| matches!(layer.case.layer, Layer::GroupNorm(_)) && Policy::of(layer) == Policy::Wide)
    else {
        return Vec::new();
    };
    let values = map.elements().saturating_mul(network.batch());
    vec![Converted::computed((values as f64 * REORDERED) as u64); copies]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::network::Network;

    /// A block as vision transformers have it behind a convolution, and a head.
    const BLOCK: &str = r#"
schema = "network/1"
name = "block"
title = "block"
inputs.x.shape = [3, 8, 8]
layers = [
  { name = "patches", kind = "conv2d", channels = 16, kernel = 2, stride = 2 },
  { name = "norm_of_maps", kind = "batch_norm" },
  { name = "relu", kind = "relu" },
  { name = "rows", kind = "reshape", shape = [16, 16] },
  { name = "places", kind = "position_embedding" },
  { name = "norm", kind = "layer_norm" },
  { name = "wide", kind = "linear", features = 64 },
  { name = "gelu", kind = "gelu" },
  { name = "narrow", kind = "linear", features = 16 },
  { name = "sum", kind = "add", from = ["narrow", "places"] },
  { name = "softmax", kind = "softmax" },
]
"#;

    fn shaped() -> ShapedNetwork {
        let network = Network::from_toml(BLOCK).expect("valid");
        ShapedNetwork::new(&network, 2, Precision::Bf16, &[]).expect("fits")
    }

    fn at(network: &ShapedNetwork, name: &str) -> usize {
        network.layers().iter().position(|l| l.name == name).expect("a layer")
    }

    #[test]
    fn rows_stay_wide_behind_a_parameter_and_products_are_narrow() {
        let network = shaped();
        let mixed = Mixed::of(&network, true).expect("16 bits");
        let result = |name| mixed.result(at(&network, name));
        for name in ["patches", "norm_of_maps", "relu", "rows", "wide", "gelu", "narrow"] {
            assert_eq!(result(name), Precision::Bf16, "{name}");
        }
        for name in ["places", "norm", "sum", "softmax"] {
            assert_eq!(result(name), Precision::Fp32, "{name}");
        }
    }

    #[test]
    fn what_is_converted_is_what_autocast_converts() {
        let network = shaped();
        let mixed = Mixed::of(&network, true).expect("16 bits");
        let converted = |name, phase| -> Vec<u64> {
            mixed.converted(&network, at(&network, name), phase).iter().map(|c| c.values).collect()
        };
        // Weights and biases, then the image of two samples, of which no gradient is wanted.
        assert_eq!(converted("patches", Phase::Forward), [16 * 3 * 4, 16, 2 * 3 * 64]);
        assert_eq!(converted("patches", Phase::BackwardData), [0u64; 0]);
        assert_eq!(converted("patches", Phase::BackwardWeights), [16 * 3 * 4, 16]);
        // Rows in 16 bits are added to places in 32 by one kernel; backward their gradient is narrowed.
        assert_eq!(converted("places", Phase::Forward), [0u64; 0]);
        assert_eq!(converted("places", Phase::BackwardData), [2 * 16 * 16]);
        assert_eq!(converted("wide", Phase::Forward), [16 * 64, 64, 2 * 16 * 16]);
        assert_eq!(converted("wide", Phase::BackwardData), [2 * 16 * 16]);
        // Of the two that are summed one is narrow.
        assert_eq!(converted("sum", Phase::Forward), [0u64; 0]);
        assert_eq!(converted("sum", Phase::BackwardData), [2 * 16 * 16]);
        assert_eq!(converted("gelu", Phase::Forward), [0u64; 0]);
        let learned: Vec<bool> =
            mixed.converted(&network, at(&network, "wide"), Phase::Forward).iter().map(|c| c.learned).collect();
        assert_eq!(learned, [true, true, false]);
        assert!(mixed.copies(at(&network, "wide"), 0) && !mixed.copies(at(&network, "sum"), 0));
    }

    /// Rows divided by their norms: the norm reads 16 bits as they are, the quotient has 32.
    #[test]
    fn norms_are_wide_and_what_is_divided_by_them() {
        let text = "schema = \"network/1\"\nname = \"a\"\ntitle = \"a\"\nlayers = [{ name = \"q\", kind = \"linear\", features = 96 }, \
             { name = \"norm\", kind = \"reduce\", norm = true }, { name = \"mean\", kind = \"reduce\", from = \"q\" }, \
             { name = \"unit\", kind = \"elementwise\", ops = 1, from = [\"q\", \"norm\"] }, \
             { name = \"all\", kind = \"concat\", from = [\"unit\", \"q\"] }]\ninputs.x.shape = [8, 96]\noutputs = [\"mean\"]\n";
        let network = Network::from_toml(text).expect("valid");
        let network = ShapedNetwork::new(&network, 3, Precision::Fp16, &[]).expect("fits");
        let mixed = Mixed::of(&network, true).expect("16 bits");
        let result = |name| mixed.result(at(&network, name));
        assert_eq!(
            ["q", "norm", "mean", "unit"].map(result),
            [Precision::Fp16, Precision::Fp32, Precision::Fp16, Precision::Fp32]
        );
        assert!(!mixed.copies(at(&network, "norm"), 0));
    }

    /// A root mean square in 32 bits, as transformers writes it, behind a product, and one more over 32 bits.
    const REGION: &str = r#"
schema = "network/1"
name = "region"
title = "region"
inputs.x.shape = [8, 96]
layers = [
  { name = "product", kind = "linear", features = 96 },
  { name = "up", kind = "cast", to = "wide" },
  { name = "square", kind = "elementwise", wide = true },
  { name = "mean", kind = "reduce" },
  { name = "root", kind = "elementwise", wide = true },
  { name = "root.view", kind = "reshape", shape = [8, 1] },
  { name = "normed", kind = "multiply", from = ["up", "root.view"] },
  { name = "up_again", kind = "cast", to = "wide" },
  { name = "down", kind = "cast", to = "narrow" },
  { name = "scaled", kind = "scale", bias = false },
  { name = "next", kind = "linear", features = 8 },
]
"#;

    #[test]
    fn regions_in_32_bits_are_wide_between_their_conversions() {
        let network = Network::from_toml(REGION).expect("valid");
        let of = |precision, autocast| {
            let network = ShapedNetwork::new(&network, 3, precision, &[]).expect("fits");
            Mixed::of(&network, autocast).map(|mixed| (mixed, network))
        };
        assert!(of(Precision::Fp32, false).is_none() && of(Precision::Tf32, true).is_none());
        let (mixed, network) = of(Precision::Bf16, false).expect("16 bits");
        let result = |name| mixed.result(at(&network, name));
        for name in ["up", "square", "mean", "root", "root.view", "normed", "up_again"] {
            assert_eq!(result(name), Precision::Fp32, "{name}");
        }
        for name in ["product", "down", "scaled", "next"] {
            assert_eq!(result(name), Precision::Bf16, "{name}");
        }
        let all = |mixed: &Mixed, network: &ShapedNetwork, phase| -> Vec<(usize, u64)> {
            let each = (0..network.layers().len()).map(|i| mixed.converted(network, i, phase));
            each.enumerate().flat_map(|(i, all)| all.into_iter().map(move |c| (i, c.values))).collect()
        };
        let values = 3 * 8 * 96;
        let (up, again, down) = (at(&network, "up"), at(&network, "up_again"), at(&network, "down"));
        assert_eq!(all(&mixed, &network, Phase::Forward), [(up, values), (down, values)]);
        assert_eq!(all(&mixed, &network, Phase::BackwardData), [(up, values), (down, values)]);
        assert!(!mixed.autocasts() && mixed.views(again) && !mixed.views(up) && !mixed.views(down));
        assert!(!mixed.copies(down, 0), "its result is the copy");
        // Of a network without regions nothing is mixed.
        assert!(Mixed::of(&shaped(), false).is_none());
    }

    #[test]
    fn a_region_ends_in_the_type_that_it_began_with() {
        let once = REGION.replace("  { name = \"up_again\", kind = \"cast\", to = \"wide\" },\n", "");
        let network = Network::from_toml(&once).expect("valid");
        let network = ShapedNetwork::new(&network, 3, Precision::Bf16, &[]).expect("fits");
        let mixed = Mixed::of(&network, true).expect("autocast");
        // Autocast computes the product in 16 bits, and factors that are learned have 32.
        assert_eq!(mixed.result(at(&network, "down")), Precision::Bf16);
        assert_eq!(mixed.result(at(&network, "scaled")), Precision::Fp32);
        let wide = once.replace("kind = \"linear\", features = 96", "kind = \"layer_norm\"");
        let network = Network::from_toml(&wide).expect("valid");
        let network = ShapedNetwork::new(&network, 3, Precision::Bf16, &[]).expect("fits");
        let mixed = Mixed::of(&network, true).expect("autocast");
        assert_eq!(mixed.result(at(&network, "down")), Precision::Fp32);
        let down = at(&network, "down");
        assert!(mixed.converted(&network, down, Phase::Forward).is_empty() && mixed.views(down));
    }

    #[test]
    fn attention_that_is_written_out_narrows_its_probabilities() {
        let text = |fused: bool| {
            format!(
                "schema = \"network/1\"\nname = \"a\"\ntitle = \"a\"\nlayers = [{{ name = \"q\", kind = \"linear\", features = 96 }}, \
                 {{ name = \"a\", kind = \"attention\", heads = 4, fused = {fused} }}]\ninputs.x.shape = [8, 96]\n"
            )
        };
        let of = |fused| {
            let network = Network::from_toml(&text(fused)).expect("valid");
            let network = ShapedNetwork::new(&network, 3, Precision::Fp16, &[]).expect("fits");
            Mixed::of(&network, true).expect("16 bits").converted(&network, 1, Phase::Forward)
        };
        assert_eq!((of(true), of(false)), (vec![], vec![Converted::computed(4 * 8 * 8 * 3)]));
    }
}
