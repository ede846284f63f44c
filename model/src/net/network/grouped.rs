//! Attention that PyTorch's own function runs otherwise than a file says: heads that share keys and values in groups, and
//! biases of the scores that no fused kernel takes.
//!
//! Its function takes keys and values of fewer heads as they are (`enable_gqa`; transformers asks for that wherever there is no
//! mask). In 16 bits a fused kernel reads them so. In 32 bits none of the fused kernels does: keys and values are repeated, and
//! all is computed step by step. Exports hold the repetition in either case. A program that does not ask for groups and hands
//! over one head's keys has them repeated, and is computed step by step, in 16 bits, too. So is a bias whose keys do not lie
//! innermost (`check_last_dim_stride_equals_1_dense` of aten/src/ATen/native/transformers/sdp_utils_cpp.h, pytorch/pytorch 2.11).

use super::shaped::mark_gradients;
use super::{ShapedLayer, ShapedNetwork, Source, relocate};
use crate::base::shape::{InvalidShape, Shape};
use crate::net::layer::{Attention, Copied, Elementwise, Gradient, Layer, LayerOp as _, Reshape, Slice};
use crate::net::written_out::{self, Operand, Sizes};

/// Keys or values that a file repeats for groups of heads.
struct Repeated {
    /// Place of the layer that repeats them.
    at: usize,
    /// Places of views of its result, from the one that attention reads.
    views: Vec<usize>,
    /// Heads before.
    heads: u64,
}

fn reshape(dims: &[u64]) -> Reshape {
    Reshape { shape: dims.iter().map(|&n| n as i64).collect(), copy: Copied::Never }
}

fn view(dims: &[u64]) -> Layer {
    Layer::Reshape(reshape(dims))
}

/// Whether a layer repeats `[heads, 1, tokens, features]` to `[heads, group, tokens, features]`.
fn repeats(layer: &ShapedLayer) -> Option<u64> {
    let Layer::Elementwise(Elementwise { ops: 0, parameters: 0, output: Some(output), .. }) = &layer.case.layer else {
        return None;
    };
    match (layer.case.inputs.as_slice(), output.dims()) {
        ([input], &[heads, group, tokens, features]) if heads > 1 && group > 1 => {
            (input.dims() == [heads, 1, tokens, features]).then_some(heads)
        }
        _ => None,
    }
}

/// What a source repeats, where nothing else reads that or a view between.
fn repeated(layers: &[ShapedLayer], readers: &[Vec<usize>], source: Source) -> Option<Repeated> {
    let mut views = Vec::new();
    let Source::Node(mut at) = source else { return None };
    loop {
        let layer = &layers[at];
        if readers[at].len() != 1 {
            return None;
        }
        if let Some(heads) = repeats(layer) {
            return Some(Repeated { at, views, heads });
        }
        match (&layer.case.layer, &layer.from[..]) {
            (Layer::Reshape(reshape), &[Source::Node(before)]) if reshape.copy == Copied::Never => {
                views.push(at);
                at = before;
            }
            _ => return None,
        }
    }
}

/// Attention over all of its own tokens by PyTorch's function.
fn own(layer: &ShapedLayer) -> Option<&Attention> {
    match &layer.case.layer {
        Layer::Attention(attention) => {
            let whole = !attention.sinks && attention.window.is_none();
            let alone = attention.cached.is_none() && attention.context.is_none();
            (attention.fused && whole && alone).then_some(attention)
        }
        _ => None,
    }
}

/// The same with nothing added to its scores, which a fused kernel may run.
fn plain(layer: &ShapedLayer) -> Option<&Attention> {
    own(layer).filter(|attention| attention.bias.is_none())
}

/// The same with a bias that no fused kernel takes.
fn turned(layer: &ShapedLayer) -> Option<&Attention> {
    own(layer).filter(|attention| attention.bias.is_some_and(|bias| bias.turned))
}

/// Whether one head's keys and values are handed over as they are to a function that was not asked to group heads, as attention
/// of vision models with one key (timm/layers/attention2d.py) does: no fused kernel takes operands that are repeated.
fn is_broadcast(layer: &ShapedLayer) -> bool {
    plain(layer).is_some_and(|attention| attention.kv_heads == Some(1) && attention.heads > 1 && !attention.causal)
}

impl ShapedNetwork {
    /// The network as PyTorch's own function runs its attention.
    #[must_use]
    pub fn grouping_heads(mut self) -> Self {
        if self.layers.iter().all(|layer| plain(layer).or(turned(layer)).is_none()) {
            return self;
        }
        let readers = self.readers();
        let layers = &self.layers;
        let found = |layer: &ShapedLayer| {
            if turned(layer).is_some() {
                return Some(None);
            }
            let attention = plain(layer)?;
            let grouped = attention.kv_heads.is_some_and(|heads| heads < attention.heads);
            let of = |k: usize| repeated(layers, &readers, *layer.from.get(k)?);
            let both = of(1).zip(of(2)).filter(|(keys, values)| !grouped && keys.heads == values.heads);
            (grouped || both.is_some()).then_some(both)
        };
        let places: Vec<(usize, Option<(Repeated, Repeated)>)> =
            layers.iter().enumerate().filter_map(|(i, layer)| Some((i, found(layer)?))).collect();
        if places.is_empty() {
            return self;
        }
        let fused = self.precision().is_narrow();
        let taken_as_it_is = |layer: &ShapedLayer| fused && plain(layer).is_some() && !is_broadcast(layer);
        let (kept, stepped): (Vec<_>, Vec<_>) = places.into_iter().partition(|&(i, _)| taken_as_it_is(&self.layers[i]));
        let mut made = self.layers.to_vec();
        let mut repeated = kept.into_iter().filter_map(|(i, both)| Some((i, both?)));
        let made = repeated.try_for_each(|(i, both)| taken(&mut made, i, both)).and_then(|()| {
            let places: Vec<(usize, bool)> = stepped.into_iter().map(|(i, both)| (i, both.is_some())).collect();
            if places.is_empty() { Ok(made) } else { in_steps(&made, &places) }
        });
        // Sizes of what has been given shapes before are sizes of parts of it.
        if let Ok(mut made) = made {
            mark_gradients(&mut made);
            self.set_layers(made);
        }
        self
    }
}

/// Takes keys and values as they are before they are repeated: what repeated them, and views of that, are views of them.
fn taken(layers: &mut [ShapedLayer], i: usize, (keys, values): (Repeated, Repeated)) -> Result<(), InvalidShape> {
    let heads = keys.heads;
    for repeated in [keys, values] {
        let rows = match *layers[repeated.at].output.dims() {
            [heads, _, tokens, features] => Shape::new(&[tokens, heads * features])?,
            _ => continue,
        };
        for at in std::iter::once(repeated.at).chain(repeated.views.iter().copied()) {
            let layer = &mut layers[at];
            if at != repeated.at {
                layer.case.inputs = vec![rows];
            }
            layer.case.layer = view(rows.dims());
            layer.output = rows;
        }
        let attention = &mut layers[i];
        for (input, source) in attention.case.inputs.iter_mut().zip(attention.from.iter()).skip(1) {
            let first = repeated.views.first().copied().unwrap_or(repeated.at);
            if *source == Source::Node(first) {
                *input = rows;
            }
        }
    }
    if let Layer::Attention(attention) = &mut layers[i].case.layer {
        attention.kv_heads = Some(heads);
    }
    Ok(())
}

/// The layers with attention at some places step by step; whether keys and values are repeated there already.
fn in_steps(layers: &[ShapedLayer], places: &[(usize, bool)]) -> Result<Vec<ShapedLayer>, InvalidShape> {
    let mut made: Vec<ShapedLayer> = Vec::with_capacity(layers.len() + 24 * places.len());
    let mut results: Vec<usize> = Vec::with_capacity(layers.len());
    let mut next = places.iter().peekable();
    for (i, layer) in layers.iter().enumerate() {
        let mut layer = layer.clone();
        relocate(&mut layer.from, &results);
        match next.next_if(|(at, _)| *at == i) {
            Some((_, repeated)) => written(&mut made, &layer, *repeated)?,
            None => made.push(layer),
        }
        results.push(made.len() - 1);
    }
    Ok(made)
}

/// Appends attention step by step; the last layer makes what it made, and has its name.
fn written(made: &mut Vec<ShapedLayer>, whole: &ShapedLayer, repeated: bool) -> Result<(), InvalidShape> {
    let sizes = own(whole).and_then(|attention| Some((attention, attention.sizes(&whole.case.inputs).ok()?)));
    let Some((attention, of)) = sizes else {
        made.push(whole.clone());
        return Ok(());
    };
    let (heads, tokens, keys, dimension) = (of.heads, of.tokens, of.new_keys, of.dimension);
    let (start, mut count) = (made.len(), 0);
    let mut then = |layer: Layer, from: Vec<Source>, inputs: Vec<Shape>, output: Shape| {
        count += 1;
        let name = format!("{}.{count}", whole.name).into();
        made.push(ShapedLayer { name, from: from.into(), ..ShapedLayer::alone(layer, inputs, output) });
        (Source::Node(made.len() - 1), output)
    };
    let mut operands: Vec<(Source, Shape)> =
        whole.from.iter().copied().zip(whole.case.inputs.iter().copied()).collect();
    if let [(source, packed)] = operands[..] {
        let (wide, narrow) = (heads * dimension, of.kv_heads * dimension);
        operands.clear();
        for (start, size) in [(0, wide), (wide, narrow), (wide + narrow, narrow)] {
            let part = Slice { axis: 1, start, size, step: 1, copy: false };
            let rows = Shape::new(&[tokens, size])?;
            operands.push(then(Layer::Slice(part), vec![source], vec![packed], rows));
        }
    }
    for (k, operand) in operands.iter_mut().enumerate() {
        let rows = if k == 0 { tokens } else { keys };
        if k > 0 && !repeated && of.kv_heads < heads {
            let (one, all) = (
                Shape::new(&[of.kv_heads, 1, rows, dimension])?,
                Shape::new(&[of.kv_heads, heads / of.kv_heads, rows, dimension])?,
            );
            let single = then(view(one.dims()), vec![operand.0], vec![operand.1], one);
            let copy = Elementwise { gradient: Gradient::Reads, ..Elementwise::of(0, Some(all)) };
            *operand = then(Layer::Elementwise(copy), vec![single.0], vec![one], all);
        }
        let seen = Shape::new(&[heads, rows, dimension])?;
        *operand = then(view(seen.dims()), vec![operand.0], vec![operand.1], seen);
    }
    // An export of a decoder says nothing of its mask where it repeats keys: groups of heads are decoders'.
    let causal = (attention.causal || repeated) && tokens == keys;
    let mut steps: Vec<(Source, Shape)> = Vec::new();
    let bias = attention.bias.map(|bias| bias.parameters);
    let copied = bias.is_some();
    for step in written_out::steps(Sizes { heads, tokens, keys, dimension, causal, copied, bias })? {
        let read: Vec<(Source, Shape)> = step
            .from
            .iter()
            .map(|from| match *from {
                Operand::Query => operands[0],
                Operand::Key => operands[1],
                Operand::Value => operands[2],
                Operand::Step(k) => steps[k],
            })
            .collect();
        let (from, inputs): (Vec<Source>, Vec<Shape>) = read.into_iter().unzip();
        let output = step.layer.output(&inputs).unwrap_or(whole.output);
        steps.push(then(step.layer, from, inputs, output));
    }
    let last = steps.last().copied().unwrap_or(operands[0]);
    // A program that got its heads side by side from a fused kernel joins them by a view.
    let joined = Reshape { copy: if copied { Copied::Always } else { Copied::Never }, ..reshape(whole.output.dims()) };
    then(Layer::Reshape(joined), vec![last.0], vec![last.1], whole.output);
    for layer in made.iter_mut().skip(start) {
        layer.tied = whole.tied && layer.case.layer.parameters(&layer.case.inputs) > 0;
    }
    if let Some(layer) = made.last_mut() {
        layer.name = whole.name.clone();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::base::precision::Precision;
    use crate::net::network::Network;

    fn shaped(layers: &str, precision: Precision) -> ShapedNetwork {
        let text = format!(
            "schema = \"network/1\"\nname = \"n\"\ntitle = \"N\"\nsource = \"test\"\ninputs.x.shape = [16, 96]\nlayers = [\n{layers}\n]\n"
        );
        ShapedNetwork::new(&Network::from_toml(&text).expect("a network"), 2, precision, &[]).expect("shapes")
    }

    /// Queries of six heads, keys and values of two, of eight features, which a file repeats three times.
    const REPEATED: &str = r#"
        { name = "q", kind = "linear", features = 48 },
        { name = "k", kind = "linear", features = 16, from = "x" },
        { name = "k1", kind = "reshape", shape = [2, 1, 16, 8] },
        { name = "k3", kind = "elementwise", ops = 0, output = [2, 3, 16, 8] },
        { name = "kr", kind = "reshape", shape = [16, 48] },
        { name = "v", kind = "linear", features = 16, from = "x" },
        { name = "v1", kind = "reshape", shape = [2, 1, 16, 8] },
        { name = "v3", kind = "elementwise", ops = 0, output = [2, 3, 16, 8] },
        { name = "vr", kind = "reshape", shape = [16, 48] },
        { name = "attention", kind = "attention", heads = 6, from = ["q", "kr", "vr"] },
        { name = "out", kind = "linear", features = 96 }"#;

    fn kinds(network: &ShapedNetwork) -> Vec<&'static str> {
        let runs = network.layers().iter().filter(|l| !l.case.layer.is_view(Mode::Inference));
        runs.map(|l| l.case.layer.kind()).collect()
    }

    /// Every layer reads what the layers before it make.
    fn holds_together(network: &ShapedNetwork) {
        for layer in network.layers() {
            for (source, input) in layer.from.iter().zip(&layer.case.inputs) {
                if let Source::Node(i) = source {
                    assert_eq!(network.layers()[*i].output, *input, "{}", layer.name);
                }
            }
            assert_eq!(layer.case.output().ok(), Some(layer.output), "{}", layer.name);
        }
    }

    #[test]
    fn a_fused_kernel_takes_keys_before_they_are_repeated() {
        let network = shaped(REPEATED, Precision::Bf16).grouping_heads();
        holds_together(&network);
        assert_eq!(kinds(&network), ["linear", "linear", "linear", "attention", "linear"]);
        let attention = network.layers().iter().find(|l| l.name == "attention").expect("there");
        assert_eq!(
            attention.case.inputs.iter().map(|s| s.dims().to_vec()).collect::<Vec<_>>(),
            [[16, 48], [16, 16], [16, 16]]
        );
        assert!(matches!(&attention.case.layer, Layer::Attention(a) if a.kv_heads == Some(2)));
    }

    #[test]
    fn in_32_bits_groups_are_repeated_and_attended_to_step_by_step() {
        let network = shaped(REPEATED, Precision::Tf32).grouping_heads();
        holds_together(&network);
        let kinds = kinds(&network);
        assert_eq!(kinds.iter().filter(|k| **k == "matmul").count(), 2);
        assert!(kinds.contains(&"softmax") && !kinds.contains(&"attention"));
        let scores = network.layers().iter().find(|l| l.case.layer.kind() == "matmul").expect("there");
        assert_eq!(scores.output.dims(), [6, 16, 16]);
        let last = &network.layers()[network.layers().len() - 2];
        assert_eq!((last.name.as_str(), last.output.dims()), ("attention", &[16, 48][..]));
    }

    /// Vision models with one head of keys hand it over as it is; language models, which are causal, ask for groups.
    #[test]
    fn one_head_for_all_is_repeated_and_attended_to_step_by_step() {
        let of = |causal| {
            let layers = format!(
                "{{ name = \"qkv\", kind = \"linear\", features = 64 }},\n\
                 {{ name = \"a\", kind = \"attention\", heads = 6, kv_heads = 1, causal = {causal} }}"
            );
            let network = shaped(&layers, Precision::Bf16).grouping_heads();
            holds_together(&network);
            kinds(&network).iter().filter(|k| **k == "matmul").count()
        };
        assert_eq!([of(false), of(true)], [2, 0]);
    }

    #[test]
    fn packed_groups_are_parted_and_repeated() {
        let network = shaped(
            "{ name = \"qkv\", kind = \"linear\", features = 80 },\n{ name = \"a\", kind = \"attention\", heads = 6, kv_heads = 2 }",
            Precision::Fp32,
        );
        assert_eq!(kinds(&network.clone().grouping_heads()).iter().filter(|k| **k == "matmul").count(), 2);
        let whole = network.grouping_heads();
        holds_together(&whole);
        let copies = whole.layers().iter().filter(|l| repeats(l).is_some()).count();
        assert_eq!(copies, 2);
    }

    /// In 16 bits, too; its learned values and its ties go with the kernel that adds it.
    #[test]
    fn a_turned_bias_is_added_step_by_step() {
        let of = |bias: &str, tied: &str| {
            shaped(
                &format!(
                    "{{ name = \"qkv\", kind = \"linear\", features = 144 }},\n\
                     {{ name = \"a\", kind = \"attention\", heads = 6, bias = {{ heads = 6, parameters = 30 }} }},\n\
                     {{ name = \"qkv2\", kind = \"linear\", features = 144 }},\n\
                     {{ name = \"b\", kind = \"attention\", heads = 6, bias = {{ heads = 6, parameters = 30{bias} }}{tied} }}"
                ),
                Precision::Bf16,
            )
        };
        let (along, turned) = (of("", ""), of(", turned = true", ""));
        assert_eq!(kinds(&along.clone().grouping_heads()), kinds(&along));
        let written = turned.clone().grouping_heads();
        holds_together(&written);
        let kinds = kinds(&written);
        assert_eq!(kinds.iter().filter(|kind| **kind == "attention").count(), 1, "the first is fused");
        assert_eq!(kinds.iter().filter(|kind| **kind == "matmul").count(), 2);
        assert_eq!(kinds.iter().filter(|kind| **kind == "reshape").count(), 4, "operands and result lie otherwise");
        assert_eq!(written.parameters(), turned.parameters());
        let added = written.layers().iter().find(|l| l.parameters() == 30 && l.name != "a").expect("there");
        assert_eq!((added.case.layer.kind(), added.output.dims()), ("elementwise", &[6, 16, 16][..]));
        let tied = of(", turned = true", ", tied = \"a\"").grouping_heads();
        assert_eq!(tied.parameters(), turned.parameters() - 30);
    }

    /// Nothing happens to heads of their own, to caches, and where others read what is repeated.
    #[test]
    fn other_attention_stays() {
        let own =
            "{ name = \"qkv\", kind = \"linear\", features = 144 },\n{ name = \"a\", kind = \"attention\", heads = 6 }";
        let cached = "{ name = \"qkv\", kind = \"linear\", features = 80 },\n{ name = \"a\", kind = \"attention\", heads = 6, kv_heads = 2, causal = true, cached = 4 }";
        let read = format!(
            "{REPEATED},\n{{ name = \"seen\", kind = \"reshape\", shape = [16, 48], from = \"k3\" }},\n\
             {{ name = \"sum\", kind = \"add\", from = [\"attention\", \"seen\"] }},\n\
             {{ name = \"end\", kind = \"concat\", from = [\"out\", \"sum\"] }}"
        );
        for layers in [own, cached, &read] {
            for precision in [Precision::Fp32, Precision::Fp16] {
                let network = shaped(layers, precision);
                assert_eq!(kinds(&network.clone().grouping_heads()), kinds(&network));
            }
        }
    }
}
