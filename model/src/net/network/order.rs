//! In which order the dimensions of maps lie in memory, as PyTorch hands them on.

use super::{ShapedLayer, Source};
use crate::base::precision::{Mode, Precision};
use crate::base::shape::Shape;
use crate::net::layer::Layer;
use std::collections::HashSet;

/// Marks layers that read a map in another order than maps usually have in that precision, and concatenations and point-wise
/// layers of parts of a result. `derived`: what is computed of learned values alone.
pub(super) fn mark(layers: &mut [ShapedLayer], derived: &[ShapedLayer], precision: Precision) {
    let own = modules(derived);
    let of_own_weights = |layer: &ShapedLayer| {
        let over_a_map = layer.case.inputs.first().is_some_and(|s| !s.is_sequence());
        convolves(&layer.case.layer) && over_a_map && own.contains(&*layer.name)
    };
    let any = !own.is_empty() && layers.iter().any(of_own_weights);
    let usual = precision.channels_last();
    // Of every result: whether its first dimension lies closest together (channels last), not its last one.
    let mut last: Vec<bool> = Vec::with_capacity(layers.len());
    // Whether it is a part of another result, where that lies.
    let mut part: Vec<bool> = Vec::with_capacity(layers.len());
    for layer in layers {
        let reads_part = layer.from.iter().any(|source| matches!(source, Source::Node(i) if part[*i]));
        let read = match layer.from.first() {
            Some(Source::Node(i)) => last[*i],
            Some(Source::Input(_)) => usual && layer.case.inputs.first().is_some_and(Shape::is_map),
            None => false,
        };
        layer.strays = match &layer.case.layer {
            Layer::Concat(_) => reads_part,
            Layer::Pad(pad) if pad.mirrors => read,
            _ => read != usual && layer.case.inputs.first().is_some_and(|s| s.is_map() && area(s) > 1),
        };
        layer.parted = reads_part && is_pointwise(&layer.case.layer);
        // Weights that a step computes have the usual order of their dimensions, whatever maps have.
        layer.channels_first = usual && layer.strays && of_own_weights(layer);
        part.push(match &layer.case.layer {
            Layer::Slice(slice) => !slice.copy,
            view => reads_part && view.is_view(Mode::Inference),
        });
        last.push(written(layer, read, usual, any));
    }
}

/// Modules that compute something of what they have learned, by their names: weights that are standardized.
fn modules(derived: &[ShapedLayer]) -> HashSet<&str> {
    derived.iter().filter_map(|layer| Some(layer.name.rsplit_once('.')?.0)).collect()
}

fn convolves(layer: &Layer) -> bool {
    matches!(layer, Layer::Conv2d(_) | Layer::Conv3d(_) | Layer::ConvTranspose2d(_))
}

/// Marks products over one row of each sample that lies in a result of several, as the last token's logits.
pub(super) fn mark_apart(layers: &mut [ShapedLayer]) {
    for i in 0..layers.len() {
        let source = match layers[i].from.first() {
            Some(Source::Node(source)) if matches!(layers[i].case.layer, Layer::Linear(_)) => &layers[*source].case,
            _ => continue,
        };
        let rows = source.inputs.first().map_or(0, |input| input.dims().first().copied().unwrap_or(0));
        let one = layers[i].case.inputs.first().is_some_and(|input| matches!(input.dims(), [1, _]));
        let lies = matches!(&source.layer, Layer::Slice(slice) if slice.axis == 0 && !slice.copy);
        layers[i].apart = lies && one && rows > 1;
    }
}

/// Whether a layer computes each value of its result from the values at the same place; what only fetches them may be a view.
fn is_pointwise(layer: &Layer) -> bool {
    match layer {
        Layer::Activation(_) | Layer::Add(_) | Layer::Multiply(_) | Layer::Scale(_) => true,
        Layer::Elementwise(elementwise) => elementwise.ops > 0,
        _ => false,
    }
}

/// Whether a layer's result has its channels last, where what it reads has or has not. `own_weights`: whether convolutions of the
/// network take weights that the step computes.
fn written(layer: &ShapedLayer, read: bool, usual: bool, own_weights: bool) -> bool {
    let Some(input) = layer.case.inputs.first() else { return false };
    match &layer.case.layer {
        // A copy is contiguous in its own dimensions.
        Layer::Reshape(reshape) => !reshape.copy.moves() && read != turned(input, &layer.output),
        Layer::Permute(permute) => {
            let dims = permute.order.len();
            let ends = permute.order.first() != Some(&0) && permute.order.last() != Some(&(dims - 1));
            !permute.copy && read != ends
        }
        Layer::Slice(slice) => (!slice.copy || *input == layer.output) && read,
        // Either operand in that order makes the library run in it; sequences have no such order.
        convolution if convolves(convolution) => (usual && !layer.channels_first || read) && !input.is_sequence(),
        // The framework mirrors maps channels first, and copies those that lie otherwise.
        Layer::Pad(pad) if pad.mirrors => false,
        // It writes channels first; its rows hold the copy that brings them last again, which weights of such an order do not ask for.
        Layer::GroupNorm(_) => usual && read && !own_weights,
        Layer::LayerNorm(_)
        | Layer::RmsNorm(_)
        | Layer::Linear(_)
        | Layer::Matmul(_)
        | Layer::Attention(_)
        | Layer::LatentAttention(_)
        | Layer::Experts(_)
        | Layer::Embedding(_)
        | Layer::Recurrent(_) => false,
        _ => read,
    }
}

/// Whether a view brings the channels of a map from the first to the last place, or back.
fn turned(input: &Shape, output: &Shape) -> bool {
    let ends = |s: &Shape| (s.dims().first().copied(), s.dims().last().copied());
    let ((first, last), (to_first, to_last)) = (ends(input), ends(output));
    let short = |s: &Shape| (2..=3).contains(&s.dims().len());
    short(input) && short(output) && first != to_first && (first == to_last || last == to_first)
}

fn area(shape: &Shape) -> u64 {
    shape.elements() / shape.dims().first().copied().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use crate::base::precision::Precision;
    use crate::net::network::{Network, ShapedNetwork};

    /// Names of the layers that read a map in the other order.
    fn straying(layers: &str, precision: Precision) -> Vec<String> {
        let text = format!(
            "schema = \"network/1\"\nname = \"n\"\ntitle = \"N\"\nsource = \"test\"\ninputs.x.shape = [32, 14, 14]\nlayers = [\n{layers}\n]\n"
        );
        let network = Network::from_toml(&text).expect("a network");
        let shaped = ShapedNetwork::new(&network, 2, precision, &[]).expect("shapes");
        shaped.layers().iter().filter(|l| l.strays).map(|l| l.name.to_string()).collect()
    }

    #[test]
    fn a_shuffle_hands_on_channels_first_and_a_group_norm_does_not() {
        let layers = r#"{ name = "a", kind = "conv2d", channels = 32, kernel = 3, padding = 1 },
            { name = "norm", kind = "group_norm", groups = 8 },
            { name = "act", kind = "relu" },
            { name = "b", kind = "conv2d", channels = 32, kernel = 3, padding = 1 },
            { name = "shuffled", kind = "reshape", shape = [32, 14, 14], copy = true },
            { name = "slice", kind = "slice", axis = 0, size = 16 },
            { name = "c", kind = "conv2d", channels = 32, kernel = 1 },
            { name = "d", kind = "conv2d", channels = 32, kernel = 1 }"#;
        assert_eq!(straying(layers, Precision::Fp16), ["slice", "c"], "a convolution brings channels last again");
        assert_eq!(straying(layers, Precision::Fp32), [""; 0]);
    }

    /// Standardized weights have the usual order, and so has what a group norm makes: 16 bits run with channels first from there on.
    #[test]
    fn weights_that_a_step_computes_leave_channels_first() {
        let of = |derived: &str, precision| {
            let text = format!(
                "schema = \"network/1\"\nname = \"n\"\ntitle = \"N\"\nsource = \"test\"\ninputs.x.shape = [32, 14, 14]\nlayers = [\n\
                 {{ name = \"stem\", kind = \"conv2d\", channels = 32, kernel = 3, padding = 1, bias = false }},\n\
                 {{ name = \"norm\", kind = \"group_norm\", groups = 8 }},\n\
                 {{ name = \"a\", kind = \"conv2d\", channels = 32, kernel = 3, padding = 1, bias = false }},\n\
                 {{ name = \"again\", kind = \"group_norm\", groups = 8 }},\n\
                 {{ name = \"b\", kind = \"conv2d\", channels = 32, kernel = 1, bias = false }},\n\
                 {{ name = \"act\", kind = \"relu\" }}]\n{derived}"
            );
            let network = Network::from_toml(&text).expect("a network");
            let shaped = ShapedNetwork::new(&network, 2, precision, &[]).expect("shapes");
            let of = |which: fn(&super::ShapedLayer) -> bool| {
                shaped.layers().iter().filter(|l| which(l)).map(|l| l.name.to_string()).collect::<Vec<_>>()
            };
            (of(|l| l.strays), of(|l| l.channels_first))
        };
        let norm = |name: &str| {
            format!("{{ name = \"{name}.BatchNormalization\", kind = \"batch_norm\", inputs = [[32, 1, 288]] }}")
        };
        let derived = format!("derived = [{}, {}, {}]\n", norm("stem"), norm("a"), norm("b"));
        let none: (Vec<String>, Vec<String>) = Default::default();
        let (strays, first) = of(&derived, Precision::Fp16);
        assert_eq!(
            (strays, first),
            (["a", "again", "b", "act"].map(Into::into).into(), ["a", "b"].map(Into::into).into())
        );
        assert_eq!(of(&derived, Precision::Fp32), none);
        assert_eq!(of("", Precision::Fp16), none);
    }

    #[test]
    fn parts_of_a_result_are_concatenated_where_they_lie() {
        let of = |copy: &str| {
            format!(
                r#"{{ name = "part", kind = "slice", axis = 0, size = 16{copy} }},
                {{ name = "view", kind = "reshape", shape = [16, 196] }},
                {{ name = "back", kind = "reshape", shape = [16, 14, 14] }},
                {{ name = "act", kind = "relu" }},
                {{ name = "plain", kind = "concat", from = ["act", "act"] }},
                {{ name = "joined", kind = "concat", from = ["plain", "back"] }}"#
            )
        };
        assert_eq!(straying(&of(""), Precision::Fp32), ["joined"]);
        assert_eq!(straying(&of(", copy = true"), Precision::Fp32), [""; 0]);
    }

    /// Mirrored maps have their channels first: a copy before the pad and one before the convolution in 16 bits.
    #[test]
    fn padding_that_mirrors_brings_channels_first() {
        let of = |mirrors: bool| {
            format!(
                r#"{{ name = "a", kind = "conv2d", channels = 32, kernel = 1 }},
                {{ name = "pad", kind = "pad", padding = [1, 1, 1, 1], mirrors = {mirrors} }},
                {{ name = "b", kind = "conv2d", channels = 32, kernel = 3 }}"#
            )
        };
        assert_eq!(straying(&of(true), Precision::Bf16), ["pad", "b"]);
        assert_eq!(straying(&of(true), Precision::Fp32), [""; 0]);
        assert_eq!(straying(&of(false), Precision::Bf16), [""; 0]);
    }

    #[test]
    fn point_wise_layers_read_parts_where_they_lie() {
        let of = |copy: &str| {
            let text = format!(
                "schema = \"network/1\"\nname = \"n\"\ntitle = \"N\"\ninputs.x.shape = [49, 64]\nlayers = [\n\
                 {{ name = \"gate\", kind = \"slice\", axis = 1, size = 32{copy} }},\n\
                 {{ name = \"view\", kind = \"reshape\", shape = [7, 7, 32] }},\n\
                 {{ name = \"silu\", kind = \"silu\" }},\n{{ name = \"double\", kind = \"multiply\", from = [\"silu\", \"silu\"] }},\n\
                 {{ name = \"product\", kind = \"multiply\", from = [\"double\", \"view\"] }},\n\
                 {{ name = \"norm\", kind = \"layer_norm\", from = \"view\" }}]\noutputs = [\"product\", \"norm\"]\n"
            );
            let network = Network::from_toml(&text).expect("a network");
            let shaped = ShapedNetwork::new(&network, 2, Precision::Fp32, &[]).expect("shapes");
            shaped.layers().iter().filter(|l| l.parted).map(|l| l.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(of(""), ["silu", "product"]);
        assert_eq!(of(", copy = true"), [""; 0]);
    }

    #[test]
    fn rows_of_samples_are_apart_where_each_keeps_one_of_several() {
        let of = |slice: &str| {
            let text = format!(
                "schema = \"network/1\"\nname = \"n\"\ntitle = \"N\"\ninputs.x.shape = [49, 64]\nlayers = [\n\
                 {{ name = \"all\", kind = \"linear\", features = 64 }},\n\
                 {{ name = \"part\", kind = \"slice\", {slice} }},\n\
                 {{ name = \"logits\", kind = \"linear\", features = 90 }}]\n"
            );
            let network = Network::from_toml(&text).expect("a network");
            let shaped = ShapedNetwork::new(&network, 2, Precision::Bf16, &[]).expect("shapes");
            shaped.layers().iter().filter(|l| l.apart).map(|l| l.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("axis = 0, start = 48, size = 1"), ["logits"]);
        for whole in ["axis = 0, start = 47, size = 2", "axis = 0, size = 1, copy = true", "axis = 1, size = 32"] {
            assert_eq!(of(whole), [""; 0], "{whole}");
        }
    }

    #[test]
    fn tokens_become_maps_with_channels_last_unless_they_are_copied() {
        let of = |copy: &str| {
            format!(
                r#"{{ name = "tokens", kind = "reshape", shape = [196, 32] }},
                {{ name = "linear", kind = "linear", features = 64 }},{copy}
                {{ name = "map", kind = "reshape", shape = [64, 14, 14] }},
                {{ name = "up", kind = "resize", output = 28, interpolation = "linear" }},
                {{ name = "conv", kind = "conv2d", channels = 32, kernel = 1 }}"#
            )
        };
        assert_eq!(straying(&of(""), Precision::Fp32), ["up", "conv"]);
        assert_eq!(straying(&of(""), Precision::Fp16), [""; 0]);
        let copied = of(r#"{ name = "copy", kind = "reshape", shape = [64, 196], copy = true },"#);
        assert_eq!(straying(&copied, Precision::Fp32), [""; 0]);
        assert_eq!(straying(&copied, Precision::Fp16), ["up", "conv"]);
    }

    #[test]
    fn a_view_that_permutes_turns_the_order_and_one_that_copies_does_not() {
        let of = |permute: &str| {
            format!(
                r#"{{ name = "tokens", kind = "reshape", shape = [196, 32] }},
                {{ name = "linear", kind = "linear", features = 64 }},
                {{ name = "turned", kind = "permute", {permute} }},
                {{ name = "map", kind = "reshape", shape = [64, 14, 14] }},
                {{ name = "conv", kind = "conv2d", channels = 32, kernel = 1 }}"#
            )
        };
        assert_eq!(straying(&of("order = [1, 0]"), Precision::Fp32), ["conv"]);
        assert_eq!(straying(&of("order = [1, 0], copy = true"), Precision::Fp32), [""; 0]);
        assert_eq!(straying(&of("order = [1, 0], copy = true"), Precision::Fp16), ["conv"]);
    }

    /// A convolution in 32 bits runs in the order of what it reads, over sequences in none but the usual one.
    #[test]
    fn a_convolution_hands_on_the_order_that_it_reads() {
        let of = |height: u64, width: u64| {
            format!(
                r#"{{ name = "tokens", kind = "reshape", shape = [196, 32] }},
                {{ name = "linear", kind = "linear", features = 64 }},
                {{ name = "map", kind = "reshape", shape = [64, {height}, {width}] }},
                {{ name = "conv", kind = "conv2d", channels = 32, kernel = 1 }},
                {{ name = "act", kind = "relu" }}"#
            )
        };
        assert_eq!(straying(&of(14, 14), Precision::Fp32), ["conv", "act"]);
        assert_eq!(straying(&of(1, 196), Precision::Fp32), ["conv"]);
    }

    #[test]
    fn what_is_over_one_position_has_no_order() {
        let layers = r#"{ name = "copy", kind = "reshape", shape = [32, 14, 14], copy = true },
            { name = "pool", kind = "global_avg_pool2d" },
            { name = "squeeze", kind = "conv2d", channels = 8, kernel = 1 }"#;
        assert_eq!(straying(layers, Precision::Bf16), ["pool"]);
    }
}
