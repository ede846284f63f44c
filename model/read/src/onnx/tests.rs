//! What exporters write for language models, layer for layer, built by hand after their output.

use super::wire::{
    Attribute, Dimension, Entry, Graph, Model, Node, Opset, Tensor, TensorShape, TensorType, ValueInfo, ValueType,
    element, metadata,
};
use super::{OnnxError, Options, read};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::Shape;
use joulecast_model::catalog;
use joulecast_model::net::layer::{Attention, Copied, Gradient, Layer, ScoreBias};
use joulecast_model::net::network::folding::{self, Folding};
use joulecast_model::net::network::{Network, ShapedLayer, ShapedNetwork};
use prost::Message as _;
use std::io::Cursor;

/// A model in the making.
struct Maker {
    graph: Graph,
    opset: i64,
    made: usize,
}

impl Maker {
    fn new(opset: i64) -> Self {
        Self { graph: Graph::default(), opset, made: 0 }
    }

    /// An input; names of open dimensions, or numbers.
    fn input(&mut self, name: &str, element: i32, dims: &[&str]) {
        let dim = |d: &&str| match d.parse() {
            Ok(size) => Dimension { size: Some(size), name: None },
            Err(_) => Dimension { size: None, name: Some(d.to_string()) },
        };
        let shape = Some(TensorShape { dims: dims.iter().map(dim).collect() });
        let kind = Some(ValueType { tensor: Some(TensorType { element, shape }) });
        self.graph.inputs.push(ValueInfo { name: name.into(), kind, ..ValueInfo::default() });
    }

    fn weight(&mut self, name: &str, dims: &[i64]) -> String {
        let tensor = Tensor { name: name.into(), data_type: element::FLOAT, dims: dims.to_vec(), ..Tensor::default() };
        self.graph.initializers.push(tensor);
        name.to_string()
    }

    fn ints(&mut self, values: &[i64]) -> String {
        self.constant(Tensor {
            data_type: element::INT64,
            dims: vec![values.len() as i64],
            raw: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            ..Tensor::default()
        })
    }

    fn index(&mut self, value: i64) -> String {
        let raw = value.to_le_bytes().to_vec();
        self.constant(Tensor { data_type: element::INT64, raw, ..Tensor::default() })
    }

    fn number(&mut self, value: f32) -> String {
        let raw = value.to_le_bytes().to_vec();
        self.constant(Tensor { data_type: element::FLOAT, raw, ..Tensor::default() })
    }

    fn constant(&mut self, tensor: Tensor) -> String {
        let value = Attribute { name: "value".into(), t: Some(Box::new(tensor)), kind: 4, ..Attribute::default() };
        self.add("Constant", &[], 1, vec![value]).remove(0)
    }

    fn op(&mut self, op: &str, inputs: &[&str]) -> String {
        self.add(op, inputs, 1, vec![]).remove(0)
    }

    fn op_with(&mut self, op: &str, inputs: &[&str], name: &str, ints: &[i64]) -> String {
        let attribute = match ints {
            [i] if name != "perm" && name != "axes" => {
                Attribute { name: name.into(), i: *i, kind: 2, ..Attribute::default() }
            }
            _ => Attribute { name: name.into(), ints: ints.to_vec(), kind: 7, ..Attribute::default() },
        };
        self.add(op, inputs, 1, vec![attribute]).remove(0)
    }

    fn add(&mut self, op: &str, inputs: &[&str], outputs: usize, attributes: Vec<Attribute>) -> Vec<String> {
        let made: Vec<String> = (0..outputs).map(|i| format!("t{}_{i}", self.made)).collect();
        self.graph.nodes.push(Node {
            name: format!("/{op}_{}", self.made),
            op: op.into(),
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            outputs: made.clone(),
            attributes,
            ..Node::default()
        });
        self.made += 1;
        made
    }

    /// `x.size(axis)` as traced: Shape, Gather, Unsqueeze.
    fn size(&mut self, x: &str, axis: i64) -> String {
        let (shape, at) = (self.op("Shape", &[x]), self.index(axis));
        let size = self.op_with("Gather", &[&shape, &at], "axis", &[0]);
        let zero = self.ints(&[0]);
        self.op("Unsqueeze", &[&size, &zero])
    }

    /// `x.view(batch, tokens, rest)` as traced.
    fn view(&mut self, x: &str, rest: &[i64]) -> String {
        let (batch, tokens) = (self.size(x, 0), self.size(x, 1));
        let rest: Vec<String> = rest.iter().map(|&d| self.ints(&[d])).collect();
        let parts: Vec<&str> = [&batch[..], &tokens].into_iter().chain(rest.iter().map(String::as_str)).collect();
        let shape = self.op_with("Concat", &parts, "axis", &[0]);
        self.op("Reshape", &[x, &shape])
    }

    fn linear(&mut self, x: &str, name: &str, dims: [i64; 2]) -> String {
        let weight = self.weight(&format!("onnx::MatMul_{}", self.made), &dims);
        let bias = self.weight(&format!("{name}.bias"), &dims[1..]);
        let product = self.op("MatMul", &[x, &weight]);
        self.op("Add", &[&bias, &product])
    }

    /// Layer norm before operator set 17.
    fn layer_norm(&mut self, x: &str, name: &str, features: i64) -> String {
        let mean = self.op_with("ReduceMean", &[x], "axes", &[-1]);
        let centred = self.op("Sub", &[x, &mean]);
        let two = self.number(2.0);
        let square = self.op("Pow", &[&centred, &two]);
        let variance = self.op_with("ReduceMean", &[&square], "axes", &[-1]);
        let epsilon = self.number(1e-12);
        let shifted = self.op("Add", &[&variance, &epsilon]);
        let deviation = self.op("Sqrt", &[&shifted]);
        let normal = self.op("Div", &[&centred, &deviation]);
        let (weight, bias) =
            (self.weight(&format!("{name}.weight"), &[features]), self.weight(&format!("{name}.bias"), &[features]));
        let scaled = self.op("Mul", &[&normal, &weight]);
        self.op("Add", &[&scaled, &bias])
    }

    fn bytes(mut self, outputs: &[&str]) -> Vec<u8> {
        let output = |name: &&str| ValueInfo { name: name.to_string(), kind: None, ..ValueInfo::default() };
        self.graph.outputs = outputs.iter().map(output).collect();
        let opsets = vec![Opset { domain: String::new(), version: self.opset }];
        Model { graph: Some(self.graph), opsets, ..Model::default() }.encode_to_vec()
    }
}

fn understood(bytes: Vec<u8>, options: &Options<'_>) -> Network {
    read(Cursor::new(bytes), options).unwrap_or_else(|e| panic!("{e}"))
}

fn attentions(network: &Network) -> Vec<Attention> {
    let of = |layer: &Layer| if let Layer::Attention(attention) = layer { Some(attention.clone()) } else { None };
    network.nodes.iter().filter_map(|n| of(&n.layer)).collect()
}

/// Kinds of the layers that run something.
fn kinds(network: &Network) -> Vec<&'static str> {
    let view = |layer: &Layer| match layer {
        Layer::Reshape(r) => !r.copy.moves(),
        Layer::Permute(p) => !p.copy,
        Layer::Slice(s) => !s.copy,
        layer => matches!(layer, Layer::Flatten(_)),
    };
    network.nodes.iter().filter(|n| !view(&n.layer)).map(|n| n.layer.kind()).collect()
}

fn totals(network: &Network) -> (u64, u64) {
    let shaped = ShapedNetwork::new(network, 1, Precision::Fp32, &[]).expect("fits");
    (shaped.parameters(), shaped.macs())
}

#[test]
fn what_an_exporter_says_was_not_learned_is_no_parameter() {
    let parameters = |kind: &str| {
        let mut m = Maker::new(18);
        m.input("x", element::FLOAT, &["batch", "8"]);
        let factors = m.weight("factors", &[8]);
        let scaled = m.op("Mul", &["x", &factors]);
        for (name, key) in [("factors", metadata::KIND), ("x", metadata::RULE)] {
            let metadata = vec![
                Entry { key: "pkg.torch.onnx.original_node_name".into(), value: "n".into() },
                Entry { key: key.into(), value: kind.into() },
            ];
            m.graph.described.push(ValueInfo { name: name.into(), metadata, ..ValueInfo::default() });
        }
        totals(&understood(m.bytes(&[&scaled]), &Options::default())).0
    };
    assert_eq!([metadata::PARAMETER, "BUFFER", "CONSTANT_TENSOR"].map(parameters), [8, 0, 0]);
}

#[test]
fn a_bias_before_a_folded_batch_norm_is_there_again_behind_it() {
    let mut maker = Maker::new(18);
    maker.input("x", element::FLOAT, &["batch", "3", "8", "8"]);
    let mut x = "x".to_string();
    for (module, bias) in [("a", "a.bias"), ("b", "b.weight_bias")] {
        let weight = maker.weight(&format!("{module}.weight"), &[3, 3, 3, 3]);
        let bias = maker.weight(bias, &[3]);
        x = maker.op_with("Conv", &[&x, &weight, &bias], "pads", &[1, 1, 1, 1]);
        let entry = Entry { key: metadata::RULE.into(), value: "FuseBatchNormIntoConv".into() };
        maker.graph.nodes.last_mut().expect("just made").metadata.push(entry);
    }
    let folded = understood(maker.bytes(&[&x]), &Options { name: "n", ..Options::default() });
    let biases = |n: &Network| -> Vec<bool> {
        let of = |layer: &Layer| if let Layer::Conv2d(conv) = layer { Some(conv.bias) } else { None };
        n.nodes.iter().filter_map(|n| of(&n.layer)).collect()
    };
    let apart = folded.clone().with_folding(Folding::Unfold);
    assert_eq!(biases(&apart), [true, false]);
    assert_eq!(totals(&apart).0, 2 * 81 + 3 + 2 * 2 * 3);
    let written = Network::from_toml(&folded.to_toml()).expect("read again");
    assert_eq!(biases(&written.with_folding(Folding::Unfold)), [true, false]);
}

/// One layer of BERT as the tracing exporter writes it, operator set 14: 64 features, 4 heads.
fn bert() -> Vec<u8> {
    let mut m = Maker::new(14);
    for name in ["input_ids", "attention_mask", "token_type_ids"] {
        m.input(name, element::INT64, &["batch_size", "sequence_length"]);
    }
    // The mask: (1 - mask) times a large negative number, [batch, 1, 1, tokens].
    let (one, two) = (m.ints(&[1]), m.ints(&[2]));
    let mask = m.op("Unsqueeze", &["attention_mask", &one]);
    let mask = m.op("Unsqueeze", &[&mask, &two]);
    let mask = m.op_with("Cast", &[&mask], "to", &[1]);
    let (unit, low) = (m.number(1.0), m.number(-3.4e38));
    let mask = m.op("Sub", &[&unit, &mask]);
    let mask = m.op("Mul", &[&mask, &low]);
    // Positions: the first ones of a buffer of 512.
    let buffer: Vec<i64> = (0..512).collect();
    let buffer = m.ints(&buffer);
    let (zero, tokens) = (m.ints(&[0]), m.size("input_ids", 1));
    let positions = m.op("Slice", &[&buffer, &zero, &tokens, &zero, &one]);
    let words = m.weight("embeddings.word.weight", &[100, 64]);
    let table = m.weight("embeddings.position.weight", &[512, 64]);
    let types = m.weight("embeddings.type.weight", &[2, 64]);
    let x = m.op("Gather", &[&words, "input_ids"]);
    let t = m.op("Gather", &[&types, "token_type_ids"]);
    let p = m.op("Gather", &[&table, &positions]);
    let x = m.op("Add", &[&x, &t]);
    let x = m.op("Add", &[&x, &p]);
    let x = m.layer_norm(&x, "embeddings.LayerNorm", 64);
    let parts = ["query", "key", "value"].map(|name| {
        let part = m.linear(&x, name, [64, 64]);
        m.view(&part, &[4, 16])
    });
    let q = m.op_with("Transpose", &[&parts[0]], "perm", &[0, 2, 1, 3]);
    let k = m.op_with("Transpose", &[&parts[1]], "perm", &[0, 2, 3, 1]);
    let v = m.op_with("Transpose", &[&parts[2]], "perm", &[0, 2, 1, 3]);
    let scores = m.op("MatMul", &[&q, &k]);
    let four = m.number(4.0);
    let scores = m.op("Div", &[&scores, &four]);
    let scores = m.op("Add", &[&scores, &mask]);
    let weights = m.op_with("Softmax", &[&scores], "axis", &[-1]);
    let context = m.op("MatMul", &[&weights, &v]);
    let context = m.op_with("Transpose", &[&context], "perm", &[0, 2, 1, 3]);
    let context = m.view(&context, &[64]);
    let y = m.linear(&context, "output", [64, 64]);
    let y = m.op("Add", &[&y, &x]);
    let y = m.layer_norm(&y, "output.LayerNorm", 64);
    let h = m.linear(&y, "intermediate", [64, 256]);
    let root = m.number(std::f32::consts::SQRT_2);
    let e = m.op("Div", &[&h, &root]);
    let e = m.op("Erf", &[&e]);
    let e = m.op("Add", &[&e, &unit]);
    let e = m.op("Mul", &[&h, &e]);
    let half = m.number(0.5);
    let h = m.op("Mul", &[&e, &half]);
    let h = m.linear(&h, "dense", [256, 64]);
    let h = m.op("Add", &[&h, &y]);
    let h = m.layer_norm(&h, "LayerNorm", 64);
    // The first token, for a classifier.
    let first = m.index(0);
    let class = m.op_with("Gather", &[&h, &first], "axis", &[1]);
    let weight = m.weight("pooler.weight", &[64, 64]);
    let bias = m.weight("pooler.bias", &[64]);
    let class = m.op_with("Gemm", &[&class, &weight, &bias], "transB", &[1]);
    let class = m.op("Tanh", &[&class]);
    m.bytes(&[&h, &class])
}

#[test]
fn a_layer_of_bert() {
    let open = read(Cursor::new(bert()), &Options::default()).expect_err("the sequence is open");
    assert!(
        matches!(&open, OnnxError::Usage(why) if why.contains("sequence_length of input input_ids is open")),
        "{open}"
    );
    let network = understood(bert(), &Options { sequence: Some(32), ..Options::default() });
    assert_eq!(
        kinds(&network),
        [
            "embedding",
            "embedding",
            "add",
            "position_embedding",
            "layer_norm",
            "linear",
            "linear",
            "linear",
            "attention",
            "linear",
            "add",
            "layer_norm",
            "linear",
            "gelu",
            "linear",
            "add",
            "layer_norm",
            "linear",
            "tanh"
        ]
    );
    assert!(attentions(&network).iter().all(|a| !a.fused), "scores are divided by a step of their own");
    let norms = 3 * 128;
    let products = 4 * (64 * 64 + 64) + 2 * 64 * 256 + 256 + 64 + 64 * 64 + 64;
    let macs = 32 * (4 * 64 * 64 + 2 * 64 * 256) + 2 * 32 * 32 * 64 + 64 * 64;
    assert_eq!(totals(&network), (100 * 64 + 512 * 64 + 2 * 64 + norms + products, macs));
    assert_eq!(network.outputs.len(), 1, "the tokens are an output, too");
    assert!(network.notes.iter().any(|n| n.contains("attention_mask")), "{:?}", network.notes);
    let again = Network::from_toml(&network.to_toml()).expect("readable");
    assert_eq!(totals(&again), totals(&network));
    // A size per input, with the batch.
    let given = ["input_ids", "attention_mask", "token_type_ids"]
        .map(|n| (n.to_string(), Shape::new(&[1, 32]).expect("a shape")));
    assert_eq!(understood(bert(), &Options { inputs: &given, ..Options::default() }).nodes, network.nodes);
}

/// PyTorch's own function, as its exporters write it: queries and keys are scaled by the root of the factor. Its fused kernels
/// take a batch and heads, no further dimensions.
#[test]
fn attention_of_one_function_is_one_kernel() {
    let network = attention_of_one_function(&["batch", "4", "32", "16"], &[0, 1, 3, 2]);
    let found = attentions(&network);
    assert!(matches!(found[..], [Attention { heads: 4, fused: true, .. }]), "{found:?}");
    let network = attention_of_one_function(&["batch", "4", "9", "32", "16"], &[0, 1, 2, 4, 3]);
    let operands = ["cast", "cast", "cast", "elementwise", "reshape", "elementwise", "reshape"];
    let weights = ["matmul", "softmax", "elementwise", "reduce", "elementwise"];
    assert_eq!(kinds(&network), [&operands[..], &weights, &["reshape", "matmul", "cast"]].concat());
    assert_eq!(totals(&network), (0, 2 * 36 * 32 * 32 * 16));
}

/// What differs from head to head is added in the kernel; exporters look a table of distances up. A mask for all heads is none.
#[test]
fn a_bias_of_the_scores_is_in_attention() {
    let of = |bias: &[i64]| attention_with(|m| m.weight("bias", bias));
    let bias = |dims: &[i64]| attentions(&of(dims)).first().map(|a| (a.heads, a.fused, a.bias));
    // Windows of three by three tokens have 25 distances.
    let own = |unbatched| Some((4, true, Some(ScoreBias { heads: 4, parameters: 4 * 25, turned: false, unbatched })));
    assert_eq!(bias(&[1, 4, 9, 9]), own(false));
    assert_eq!(bias(&[4, 9, 9]), own(true));
    assert_eq!(bias(&[1, 1, 9, 9]), Some((4, true, None)));
    assert_eq!(totals(&of(&[1, 4, 9, 9])).0, 100);
}

/// As T5 does; other modules, which give their table another shape before, ask for its values side by side, which only some files
/// say.
#[test]
fn a_table_that_is_turned_and_not_copied_does_not_lie_along_the_keys() {
    let turned = |reshaped: bool, copied: bool, says: bool| {
        let network = attention_with(|m| {
            let table = m.weight("table", &[25, 4]);
            let count = if reshaped { vec![81] } else { vec![9, 9] };
            let places = m.constant(Tensor {
                data_type: element::INT64,
                dims: count,
                raw: (0_i64..81).flat_map(|place| (place % 25).to_le_bytes()).collect(),
                ..Tensor::default()
            });
            let mut bias = m.op("Gather", &[&table, &places]);
            if reshaped {
                let shape = m.ints(&[9, 9, 4]);
                bias = m.op("Reshape", &[&bias, &shape]);
            }
            bias = m.op_with("Transpose", &[&bias], "perm", &[2, 0, 1]);
            let mut asked = |x: &str| {
                let made = m.op("Contiguous", &[x]);
                m.graph.nodes.last_mut().expect("there").domain = "joulecast".into();
                made
            };
            if says {
                asked("x");
            }
            if copied {
                bias = asked(&bias);
            }
            let shape = m.ints(&[1, 4, 9, 9]);
            let bias = m.op("Reshape", &[&bias, &shape]);
            // What is masked keeps the order of the table.
            let (mask, none) = (m.op("Less", &[&bias, &bias]), m.number(-1e4));
            m.op("Where", &[&mask, &bias, &none])
        });
        let bias = attentions(&network).first().and_then(|attention| attention.bias).expect("there");
        assert_eq!((bias.heads, bias.parameters), (4, 100));
        bias.turned
    };
    assert!(turned(false, false, false), "looked up and turned");
    assert!(!turned(true, false, false), "not known, and seldom");
    assert!(turned(true, false, true), "the file would say it");
    assert!(!turned(true, true, true) && !turned(false, true, false), "copied");
}

fn attention_with(bias: impl FnOnce(&mut Maker) -> String) -> Network {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "4", "9", "16"]);
    let root = m.number(0.5);
    let turned = m.op_with("Transpose", &["x"], "perm", &[0, 1, 3, 2]);
    let (q, k) = (m.op("Mul", &["x", &root]), m.op("Mul", &[&turned, &root]));
    let bias = bias(&mut m);
    let scores = m.op("MatMul", &[&q, &k]);
    let scores = m.op("Add", &[&scores, &bias]);
    let weights = m.op_with("Softmax", &[&scores], "axis", &[-1]);
    let y = m.op("MatMul", &[&weights, "x"]);
    understood(m.bytes(&[&y]), &Options::default())
}

fn attention_of_one_function(dims: &[&str], turn: &[i64]) -> Network {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, dims);
    let root = m.number(0.5);
    let turned = m.op_with("Transpose", &["x"], "perm", turn);
    let (q, k) = (m.op("Mul", &["x", &root]), m.op("Mul", &[&turned, &root]));
    let scores = m.op("MatMul", &[&q, &k]);
    let weights = m.op_with("Softmax", &[&scores], "axis", &[-1]);
    let y = m.op("MatMul", &[&weights, "x"]);
    understood(m.bytes(&[&y]), &Options::default())
}

/// Rows of a map as sequences: each sample has several of them, which run side by side.
#[test]
fn rows_of_a_map_are_sequences_of_their_own() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "14", "32", "10"]);
    let rows = m.ints(&[-1, 32, 10]);
    let y = m.op("Reshape", &["x", &rows]);
    let y = m.op_with("Transpose", &[&y], "perm", &[1, 0, 2]);
    let (w, r) = (m.weight("rnn.W", &[2, 80, 10]), m.weight("rnn.R", &[2, 80, 20]));
    let b = m.weight("rnn.B", &[2, 160]);
    let y = m.op("LSTM", &[&y, &w, &r, &b]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    assert_eq!(kinds(&network), ["reshape", "lstm"]);
    let shaped = ShapedNetwork::new(&network, 4, Precision::Fp32, &[]).expect("fits");
    assert_eq!(shaped.layers().last().expect("layers").case.inputs, [Shape::new(&[14, 32, 10]).expect("a shape")]);
}

/// A group normalization as PyTorch's exporters write it, then an instance normalization.
#[test]
fn groups_of_channels_are_normalized_by_one_layer() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "64", "8", "8"]);
    let ones = Tensor { data_type: element::FLOAT, dims: vec![16], ..Tensor::default() };
    let (ones, zeros) = (m.constant(ones.clone()), m.constant(ones));
    let (apart, back) = (m.ints(&[0, 16, -1]), m.ints(&[1, 64, 8, 8]));
    let y = m.op("Reshape", &["x", &apart]);
    let y = m.op("InstanceNormalization", &[&y, &ones, &zeros]);
    let y = m.op("Reshape", &[&y, &back]);
    let (weight, bias) = (m.weight("norm.weight", &[64, 1, 1]), m.weight("norm.bias", &[64, 1, 1]));
    let y = m.op("Mul", &[&y, &weight]);
    let y = m.op("Add", &[&y, &bias]);
    let (weight, bias) = (m.weight("last.weight", &[64]), m.weight("last.bias", &[64]));
    let y = m.op("InstanceNormalization", &[&y, &weight, &bias]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    let norms: Vec<_> = network.nodes.iter().map(|n| &n.layer).collect();
    let [Layer::GroupNorm(first), Layer::GroupNorm(second)] = norms[..] else { panic!("{norms:?}") };
    assert_eq!((first.groups, first.affine, second.groups, second.affine), (16, true, 64, true));
    assert_eq!(totals(&network).0, 4 * 64);
}

/// A group normalization without a bias, in whose place PyTorch's exporter writes a zero.
#[test]
fn a_group_norm_without_a_bias_is_one_layer() {
    for groups in [1, 4] {
        let mut m = Maker::new(17);
        m.input("x", element::FLOAT, &["batch", "64", "8", "8"]);
        let filled = |dims: Vec<i64>| Tensor { data_type: element::FLOAT, dims, ..Tensor::default() };
        let (ones, zeros) = (m.constant(filled(vec![groups])), m.constant(filled(vec![groups])));
        let (apart, back) = (m.ints(&[0, groups, -1]), m.ints(&[1, 64, 8, 8]));
        let y = m.op("Reshape", &["x", &apart]);
        let y = m.op("InstanceNormalization", &[&y, &ones, &zeros]);
        let y = m.op("Reshape", &[&y, &back]);
        let (weight, zero) = (m.weight("norm.weight", &[64, 1, 1]), m.constant(filled(vec![1, 1, 1])));
        let y = m.op("Mul", &[&y, &weight]);
        let y = m.op("Add", &[&y, &zero]);
        let network = understood(m.bytes(&[&y]), &Options::default());
        let norms: Vec<_> = network.nodes.iter().map(|n| &n.layer).collect();
        let [Layer::GroupNorm(norm)] = norms[..] else { panic!("{norms:?}") };
        assert_eq!((norm.groups, norm.affine), (groups as u64, true));
    }
}

/// One layer of GPT-2 as the tracing exporter writes it, operator set 13: 64 features, 4 heads, tied tables.
fn gpt2() -> Vec<u8> {
    let mut m = Maker::new(13);
    m.input("input_ids", element::INT64, &["batch", "sequence"]);
    let wte = m.weight("transformer.wte.weight", &[100, 64]);
    let wpe = m.weight("transformer.wpe.weight", &[128, 64]);
    let (zero, one) = (m.index(0), m.index(1));
    let shape = m.op("Shape", &["input_ids"]);
    let tokens = m.op_with("Gather", &[&shape, &one], "axis", &[0]);
    let positions = m.op("Range", &[&zero, &tokens, &one]);
    let axis = m.ints(&[0]);
    let positions = m.op("Unsqueeze", &[&positions, &axis]);
    let x = m.op("Gather", &[&wte, "input_ids"]);
    let p = m.op("Gather", &[&wpe, &positions]);
    let x = m.op("Add", &[&x, &p]);
    let n = m.layer_norm(&x, "transformer.h.0.ln_1", 64);
    // Conv1D: rows of all samples times weights, then back.
    let rows = |m: &mut Maker, x: &str, name: &str, dims: [i64; 2]| {
        let flat = m.ints(&[-1, dims[0]]);
        let flat = m.op("Reshape", &[x, &flat]);
        let weight = m.weight(&format!("{name}.weight"), &dims);
        let bias = m.weight(&format!("{name}.bias"), &dims[1..]);
        let product = m.op("Gemm", &[&flat, &weight, &bias]);
        let (batch, tokens) = (m.size(x, 0), m.size(x, 1));
        let features = m.ints(&[dims[1]]);
        let shape = m.op_with("Concat", &[&batch, &tokens, &features], "axis", &[0]);
        m.op("Reshape", &[&product, &shape])
    };
    let qkv = rows(&mut m, &n, "transformer.h.0.attn.c_attn", [64, 192]);
    let split = m.ints(&[64, 64, 64]);
    let axis = Attribute { name: "axis".into(), i: 2, kind: 2, ..Attribute::default() };
    let parts = m.add("Split", &[&qkv, &split], 3, vec![axis]);
    let heads = |m: &mut Maker, x: &str, perm: &[i64]| {
        let view = m.view(x, &[4, 16]);
        m.op_with("Transpose", &[&view], "perm", perm)
    };
    let q = heads(&mut m, &parts[0], &[0, 2, 1, 3]);
    let k = heads(&mut m, &parts[1], &[0, 2, 3, 1]);
    let v = heads(&mut m, &parts[2], &[0, 2, 1, 3]);
    let scores = m.op("MatMul", &[&q, &k]);
    let four = m.number(4.0);
    let scores = m.op("Div", &[&scores, &four]);
    // The causal mask: a corner of a buffer.
    let buffer = Tensor { data_type: element::BOOL, dims: vec![1, 1, 128, 128], ..Tensor::default() };
    let buffer = m.constant(buffer);
    let (from, to, of) = (m.ints(&[0, 0]), m.size("input_ids", 1), m.ints(&[2, 3]));
    let to = m.op_with("Concat", &[&to, &to], "axis", &[0]);
    let mask = m.op("Slice", &[&buffer, &from, &to, &of]);
    let low = m.number(-3.4e38);
    let scores = m.op("Where", &[&mask, &scores, &low]);
    let weights = m.op_with("Softmax", &[&scores], "axis", &[-1]);
    let context = m.op("MatMul", &[&weights, &v]);
    let context = m.op_with("Transpose", &[&context], "perm", &[0, 2, 1, 3]);
    let context = m.view(&context, &[64]);
    let y = rows(&mut m, &context, "transformer.h.0.attn.c_proj", [64, 64]);
    let y = m.op("Add", &[&y, &x]);
    let n = m.layer_norm(&y, "transformer.h.0.ln_2", 64);
    let h = rows(&mut m, &n, "transformer.h.0.mlp.c_fc", [64, 256]);
    let [half, cube, root, small, unit] = [0.5, 3.0, 0.797_884_6, 0.044_715, 1.0].map(|v| m.number(v));
    let a = m.op("Mul", &[&h, &half]);
    let b = m.op("Pow", &[&h, &cube]);
    let b = m.op("Mul", &[&b, &small]);
    let b = m.op("Add", &[&h, &b]);
    let b = m.op("Mul", &[&b, &root]);
    let b = m.op("Tanh", &[&b]);
    let b = m.op("Add", &[&b, &unit]);
    let h = m.op("Mul", &[&a, &b]);
    let h = rows(&mut m, &h, "transformer.h.0.mlp.c_proj", [256, 64]);
    let h = m.op("Add", &[&y, &h]);
    let columns = m.op_with("Transpose", &[&wte], "perm", &[1, 0]);
    let logits = m.op("MatMul", &[&h, &columns]);
    m.bytes(&[&logits])
}

#[test]
fn a_layer_of_gpt_2() {
    let network = understood(gpt2(), &Options { sequence: Some(32), ..Options::default() });
    assert_eq!(
        kinds(&network),
        [
            "embedding",
            "position_embedding",
            "layer_norm",
            "linear",
            "attention",
            "linear",
            "add",
            "layer_norm",
            "linear",
            // NewGELUActivation of transformers: a half, a power and its factor, a sum, a factor, the tangent, one more.
            "elementwise",
            "elementwise",
            "elementwise",
            "add",
            "elementwise",
            "tanh",
            "elementwise",
            "multiply",
            "linear",
            "add",
            "linear"
        ]
    );
    let last = network.nodes.last().expect("layers");
    assert_eq!(last.tied, Some(0), "the table of words is used twice");
    let attention = network.nodes.iter().find(|n| matches!(n.layer, Layer::Attention(_))).expect("attention");
    assert_eq!(attention.from.len(), 1, "queries, keys and values lie side by side");
    let parameters = 100 * 64 + 128 * 64 + 2 * 128 + 64 * 192 + 192 + 64 * 64 + 64 + 2 * 64 * 256 + 256 + 64;
    let macs = 32 * (4 * 64 * 64 + 2 * 64 * 256 + 100 * 64) + 2 * 32 * 32 * 64;
    assert_eq!(totals(&network), (parameters, macs));
    assert_eq!(network.nodes[0].name, "transformer.wte");
}

/// Attention of a Llama with rotated positions and half as many heads of keys and values.
#[test]
fn a_layer_of_llama() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "32", "64"]);
    let two = m.number(2.0);
    let square = m.op("Pow", &["x", &two]);
    let mean = m.op_with("ReduceMean", &[&square], "axes", &[-1]);
    let epsilon = m.number(1e-5);
    let shifted = m.op("Add", &[&mean, &epsilon]);
    let root = m.op("Sqrt", &[&shifted]);
    let unit = m.number(1.0);
    let inverse = m.op("Div", &[&unit, &root]);
    let normal = m.op("Mul", &["x", &inverse]);
    let weight = m.weight("input_layernorm.weight", &[64]);
    let x = m.op("Mul", &[&weight, &normal]);
    let (cos, sin) = (m.weight("cos", &[1, 1, 32, 16]), m.weight("sin", &[1, 1, 32, 16]));
    let part = |m: &mut Maker, name: &str, heads: i64, rotated: bool| {
        let weight = m.weight(&format!("onnx::MatMul_{name}"), &[64, heads * 16]);
        let y = m.op("MatMul", &[&x, &weight]);
        let y = m.view(&y, &[heads, 16]);
        let y = m.op_with("Transpose", &[&y], "perm", &[0, 2, 1, 3]);
        if !rotated {
            return y;
        }
        let straight = m.op("Mul", &[&y, &cos]);
        let [zero, eight, all, axis] = [0, 8, i64::MAX, 3].map(|v| m.ints(&[v]));
        let first = m.op("Slice", &[&y, &zero, &eight, &axis]);
        let second = m.op("Slice", &[&y, &eight, &all, &axis]);
        let negative = m.op("Neg", &[&second]);
        let turned = m.op_with("Concat", &[&negative, &first], "axis", &[-1]);
        let turned = m.op("Mul", &[&turned, &sin]);
        m.op("Add", &[&straight, &turned])
    };
    let q = part(&mut m, "q", 4, true);
    let [k, v] = [("k", true), ("v", false)].map(|(name, rotated)| {
        let part = part(&mut m, name, 2, rotated);
        // Every head twice: unsqueeze, expand, reshape.
        let two = m.ints(&[2]);
        let wide = m.op("Unsqueeze", &[&part, &two]);
        let (batch, rest) = (m.size(&part, 0), m.ints(&[2, 2, 32, 16]));
        let shape = m.op_with("Concat", &[&batch, &rest], "axis", &[0]);
        let wide = m.op("Expand", &[&wide, &shape]);
        let heads = m.ints(&[4, 32, 16]);
        let shape = m.op_with("Concat", &[&batch, &heads], "axis", &[0]);
        m.op("Reshape", &[&wide, &shape])
    });
    let k = m.op_with("Transpose", &[&k], "perm", &[0, 1, 3, 2]);
    let scores = m.op("MatMul", &[&q, &k]);
    let quarter = m.number(0.25);
    let scores = m.op("Mul", &[&scores, &quarter]);
    let mask = m.ints(&[0]);
    let mask = m.op_with("Cast", &[&mask], "to", &[1]);
    let scores = m.op("Add", &[&scores, &mask]);
    let weights = m.op_with("Softmax", &[&scores], "axis", &[-1]);
    let y = m.op("MatMul", &[&weights, &v]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    let expected =
        ["cast", "reduce", "multiply", "cast", "scale", "linear", "rotary", "linear", "rotary", "linear", "attention"];
    let kinds: Vec<&str> = kinds(&network).into_iter().filter(|k| *k != "elementwise").collect();
    assert_eq!(kinds, expected);
    assert_eq!(totals(&network), (64 + 2 * 64 * 64, 32 * 2 * 64 * 64 + 2 * 32 * 32 * 64));
}

/// A root mean square of 64 features; the factors are the first operand where a module writes it out.
fn root_mean_square(m: &mut Maker, x: &str, written: bool, narrow: Option<i64>) -> String {
    let wide = narrow.map_or_else(|| x.to_string(), |_| m.op_with("Cast", &[x], "to", &[1]));
    let two = m.number(2.0);
    let square = m.op("Pow", &[&wide, &two]);
    let mean = m.op_with("ReduceMean", &[&square], "axes", &[-1]);
    let epsilon = m.number(1e-5);
    let shifted = m.op("Add", &[&mean, &epsilon]);
    let root = m.op("Sqrt", &[&shifted]);
    let inverse = m.op("Reciprocal", &[&root]);
    let normal = m.op("Mul", &[&wide, &inverse]);
    let weight = m.weight("norm.weight", &[64]);
    let back = |m: &mut Maker, y: String| match narrow {
        Some(to) => m.op_with("Cast", &[&y], "to", &[to]),
        None => y,
    };
    if written {
        let normal = back(m, normal);
        m.op("Mul", &[&weight, &normal])
    } else {
        let scaled = m.op("Mul", &[&normal, &weight]);
        back(m, scaled)
    }
}

#[test]
fn a_norm_of_a_function_is_one_kernel_and_one_that_is_written_out_many() {
    let written = ["cast", "elementwise", "reduce", "elementwise", "elementwise", "multiply", "cast", "scale", "relu"];
    for narrow in [None, Some(i64::from(element::BFLOAT16)), Some(i64::from(element::FLOAT16))] {
        for (out, expected) in [(false, &["rms_norm", "relu"][..]), (true, &written)] {
            let mut m = Maker::new(17);
            m.input("x", element::FLOAT, &["batch", "32", "64"]);
            let y = root_mean_square(&mut m, "x", out, narrow);
            let y = m.op("Relu", &[&y]);
            let network = understood(m.bytes(&[&y]), &Options::default());
            assert_eq!((totals(&network).0, &kinds(&network)[..]), (64, expected), "{narrow:?}");
            let file = Network::from_toml(&network.to_toml()).expect("read again");
            assert_eq!(kinds(&file), kinds(&network));
        }
    }
}

/// Gemma's: as a function's, but what converts back is what a module calls, and factors are of 32 bits.
#[test]
fn a_norm_that_is_converted_back_by_its_module_is_written_out() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "32", "64"]);
    let y = root_mean_square(&mut m, "x", false, Some(i64::from(element::BFLOAT16)));
    let entry = Entry { key: metadata::SCOPES.into(), value: "['', 'norm', 'type_as_3']".into() };
    m.graph.nodes.last_mut().expect("just made").metadata.push(entry);
    let y = m.op("Relu", &[&y]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    let written = ["cast", "elementwise", "reduce", "elementwise", "elementwise", "multiply", "scale", "cast", "relu"];
    assert_eq!((totals(&network).0, &kinds(&network)[..]), (64, &written[..]));
}

/// Over the channels of maps a root mean square has no kernel of its own, with factors of every channel.
#[test]
fn a_root_mean_square_over_channels_runs_step_by_step() {
    let mut m = Maker::new(18);
    m.input("x", element::FLOAT, &["batch", "8", "14", "12"]);
    let (two, axes) = (m.number(2.0), m.ints(&[1]));
    let square = m.op("Pow", &["x", &two]);
    let mean = m.op("ReduceMean", &[&square, &axes]);
    let epsilon = m.number(1e-6);
    let shifted = m.op("Add", &[&mean, &epsilon]);
    let root = m.op("Sqrt", &[&shifted]);
    let inverse = m.op("Reciprocal", &[&root]);
    let normal = m.op("Mul", &["x", &inverse]);
    let (weight, shape) = (m.weight("norm.weight", &[8]), m.ints(&[1, -1, 1, 1]));
    let factors = m.op("Reshape", &[&weight, &shape]);
    let y = m.op("Mul", &[&normal, &factors]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    let steps = ["elementwise", "reduce", "elementwise", "elementwise", "multiply", "scale"];
    assert_eq!((totals(&network).0, &kinds(&network)[..]), (8, &steps[..]));
    let shaped = ShapedNetwork::new(&network, 2, Precision::Fp32, &[]).expect("fits");
    let reduced = shaped.layers().iter().find(|l| l.case.layer.kind() == "reduce").expect("there");
    assert_eq!(reduced.case.inputs[0].dims(), [168, 8]);
}

/// Distances of 64 values from their mean, and the mean of their squares.
fn distances_and_variance() -> (Maker, [String; 2]) {
    let mut m = Maker::new(18);
    m.input("x", element::FLOAT, &["batch", "32", "64"]);
    let axes = m.ints(&[-1]);
    let mean = m.op("ReduceMean", &["x", &axes]);
    let apart = m.op("Sub", &["x", &mean]);
    let squares = m.op("Mul", &[&apart, &apart]);
    let variance = m.op("ReduceMean", &[&squares, &axes]);
    (m, [apart, variance])
}

/// PyTorch has one kernel where exporters write the mean, the distances from it, their squares and those's mean.
#[test]
fn a_variance_is_one_kernel() {
    for unbiased in [false, true] {
        let (mut m, [_, mut variance]) = distances_and_variance();
        if unbiased {
            let (all, less) = (m.number(64.0), m.number(63.0));
            let sum = m.op("Mul", &[&variance, &all]);
            variance = m.op("Div", &[&sum, &less]);
        }
        let y = m.op("Mul", &["x", &variance]);
        let network = understood(m.bytes(&[&y]), &Options::default());
        let [first, second] =
            [0, 1].map(|i| network.nodes.iter().map(|n| &n.layer).filter(|l| l.kind() != "reshape").nth(i));
        assert!(matches!(first, Some(Layer::Reduce(reduce)) if reduce.variance), "{first:?}");
        assert_eq!(second.map(Layer::kind), Some("multiply"));
        let written = super::export::write(&network).expect("can be said");
        assert_eq!(kinds(&understood(written, &Options::default())), kinds(&network));
    }
    // Whose distances something else reads, too, is a norm that a module writes out.
    let (mut m, [apart, variance]) = distances_and_variance();
    let y = m.op("Div", &[&apart, &variance]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    assert_eq!(kinds(&network).iter().filter(|kind| **kind == "reduce").count(), 2);
}

/// `nn.Unfold` is exported as two look-ups of a padded map, `nn.Fold` as an operator.
#[test]
fn windows_are_laid_side_by_side_by_one_kernel_and_added_up_by_one() {
    let mut m = Maker::new(18);
    m.input("x", element::FLOAT, &["batch", "8", "4", "4"]);
    let pads = m.ints(&[0, 0, 1, 1, 0, 0, 1, 1]);
    let padded = m.op("Pad", &["x", &pads]);
    let rows = m.constant(Tensor {
        data_type: element::INT64,
        dims: vec![3, 2],
        raw: [0i64, 2, 1, 3, 2, 4].iter().flat_map(|v| v.to_le_bytes()).collect(),
        ..Tensor::default()
    });
    let down = m.op_with("Gather", &[&padded, &rows], "axis", &[2]);
    let across = m.op_with("Gather", &[&down, &rows], "axis", &[4]);
    let turned = m.op_with("Transpose", &[&across], "perm", &[0, 1, 2, 4, 3, 5]);
    let shape = m.ints(&[-1, 72, 4]);
    let windows = m.op("Reshape", &[&turned, &shape]);
    let (image, block) = (m.ints(&[4, 4]), m.ints(&[3, 3]));
    let ints = |name: &str, ints: &[i64]| Attribute {
        name: name.into(),
        ints: ints.to_vec(),
        kind: 7,
        ..Attribute::default()
    };
    let attributes = vec![ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])];
    let y = m.add("Col2Im", &[&windows, &image, &block], 1, attributes).remove(0);
    let network = understood(m.bytes(&[&y]), &Options::default());
    let layers: Vec<_> = network
        .nodes
        .iter()
        .filter_map(|n| if let Layer::Elementwise(layer) = &n.layer { Some(layer) } else { None })
        .collect();
    let [unfold, fold] = layers[..] else { panic!("{:?}", kinds(&network)) };
    // Maps of 16 bits, whose channels lie last, are copied before.
    assert_eq!(kinds(&network), ["reshape", "elementwise", "elementwise"]);
    assert_eq!(copied(&network)[0], [""; 0]);
    assert_eq!((unfold.im2col, unfold.col2im, fold.im2col, fold.col2im), (9, 0, 0, 9));
    let sizes = [unfold, fold].map(|layer| layer.output.map(|shape| shape.to_string()));
    assert_eq!(sizes, [Some("72x4".to_string()), Some("8x4x4".to_string())]);
}

/// A factor, and a shift that is added to the product, in one call.
#[test]
fn a_product_that_is_added_to_is_one_kernel() {
    let mut m = Maker::new(18);
    m.input("x", element::FLOAT, &["batch", "14", "14", "8"]);
    let (weight, bias, shape) = (m.weight("grn.weight", &[8]), m.weight("grn.bias", &[8]), m.ints(&[1, 1, 1, 8]));
    let (weight, bias) = (m.op("Reshape", &[&weight, &shape]), m.op("Reshape", &[&bias, &shape]));
    let (one, product) = (m.number(1.0), m.op("Mul", &[&weight, "x"]));
    let product = m.op("Mul", &[&product, &one]);
    let y = m.op("Add", &[&bias, &product]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    assert_eq!((totals(&network).0, &kinds(&network)[..]), (16, &["scale"][..]));
}

/// Conversions between real types say nothing in a file all of whose numbers have 32 bits.
#[test]
fn conversions_to_32_bits_are_none_where_all_have_them() {
    let of = |weights| {
        let mut m = Maker::new(17);
        m.input("x", element::FLOAT, &["batch", "32", "64"]);
        let y = m.op_with("Cast", &["x"], "to", &[1]);
        let y = m.op("Relu", &[&y]);
        let y = m.linear(&y, "fc", [64, 8]);
        m.graph.initializers.iter_mut().for_each(|tensor| tensor.data_type = weights);
        kinds(&understood(m.bytes(&[&y]), &Options::default()))
    };
    assert_eq!(of(element::FLOAT), ["relu", "linear"]);
    assert_eq!(of(element::BFLOAT16), ["cast", "relu", "linear"]);
}

/// A file that was made for one sample, with that batch in its constants.
#[test]
fn a_batch_in_constants_is_found() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["1", "16", "4", "4"]);
    let shape = m.ints(&[1, 16, 16]);
    let rows = m.op("Reshape", &["x", &shape]);
    let tokens = m.op_with("Transpose", &[&rows], "perm", &[0, 2, 1]);
    let token = m.weight("cls.weight", &[1, 1, 16]);
    let all = m.op_with("Concat", &[&token, &tokens], "axis", &[1]);
    let y = m.linear(&all, "fc", [16, 8]);
    let flat = m.ints(&[1, -1]);
    let y = m.op("Reshape", &[&y, &flat]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    assert_eq!(network.inputs[0].shape.dims(), [16, 4, 4]);
    assert_eq!(kinds(&network), ["class_token", "linear"]);
    assert_eq!(totals(&network), (16 + 16 * 8 + 8, 17 * 16 * 8));
}

#[test]
fn folded_batch_norms_are_found_and_unfolded() {
    // As TorchScript's export folds, as onnxscript's rewriter does, and a bias that the model has itself; and both exports
    // of a model that was not trained, whose bias is zero and left out.
    let mut maker = Maker::new(17);
    maker.input("x", element::FLOAT, &["batch", "3", "32", "32"]);
    let mut x = "x".to_string();
    for (weight, bias, inputs, rule) in [
        ("onnx::Conv_12", Some("onnx::Conv_13"), 3, None),
        ("b.weight", Some("b.weight_bias"), 8, None),
        ("c.weight", Some("c.bias"), 8, None),
        ("onnx::Conv_14", None, 8, None),
        ("d.weight", None, 8, Some((metadata::RULE, "FuseBatchNormIntoConv"))),
        (
            "e.weight",
            None,
            8,
            Some((metadata::CLASSES, "['my.Net', 'torch.nn.modules.batchnorm.BatchNorm2d', 'aten']")),
        ),
        ("f.weight", None, 8, Some((metadata::CLASSES, "['my.Net', 'torch.nn.modules.conv.Conv2d', 'aten']"))),
    ] {
        let w = maker.weight(weight, &[8, inputs, 3, 3]);
        let b = bias.map(|bias| maker.weight(bias, &[8]));
        let read: Vec<&str> = [Some(&x), Some(&w), b.as_ref()].into_iter().flatten().map(String::as_str).collect();
        let conv = maker.op("Conv", &read);
        if let (Some((key, value)), Some(node)) = (rule, maker.graph.nodes.last_mut()) {
            node.metadata.push(Entry { key: key.into(), value: value.into() });
        }
        x = maker.op("Relu", &[&conv]);
    }
    let bytes = maker.bytes(&[&x]);
    let folded = understood(bytes, &Options::default());
    assert_eq!(kinds(&folded), ["conv2d", "relu"].repeat(7));
    assert_eq!(folded.notes, [folding::open(5)]);
    let kept = folded.clone().with_folding(Folding::Keep);
    assert_eq!((kinds(&kept), &kept.notes[..]), (kinds(&folded), &[folding::kept(5)][..]));
    assert!(kept.nodes.iter().all(|n| !n.folded.holds()));
    let apart = folded.clone().with_folding(Folding::Unfold);
    let (with, without) = (["conv2d", "batch_norm", "relu"], ["conv2d", "relu"]);
    let expected = [&with[..], &with, &without, &with, &with, &with, &without].concat();
    assert_eq!(kinds(&apart), expected);
    assert_eq!(apart.notes, [folding::unfolded(5)]);
    let bias = |n: &Network| n.nodes.iter().filter(|n| matches!(&n.layer, Layer::Conv2d(c) if c.bias)).count();
    assert_eq!((bias(&folded), bias(&apart)), (3, 1));
    let none = understood(bert(), &Options { sequence: Some(16), ..Options::default() }).with_folding(Folding::Unfold);
    assert!(none.notes.contains(&folding::none()), "{:?}", none.notes);
    // A scale for each channel more than what folding left of two of them, both of the others.
    assert_eq!(totals(&apart).0, totals(&folded).0 + 2 * 8 + 3 * 16);
    // A profile that runs modules as written makes the same of it as asking does.
    let shape = |n: &Network| ShapedNetwork::new(n, 2, Precision::Fp32, &[]).expect("fits");
    let (asked, through) = (shape(&apart), catalog::framework("pytorch").expect("shipped").runs(shape(&folded)));
    let seen =
        |n: &ShapedNetwork| n.layers().iter().map(|l| (l.name.clone(), l.case.layer.clone())).collect::<Vec<_>>();
    assert_eq!(seen(&asked), seen(&through));
    assert_eq!(asked.notes(), through.notes());
}

/// Mish before operator set 18, and a hard sigmoid by its parts.
#[test]
fn activations_in_parts_are_one_kernel() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "8"]);
    let inner = m.op("Softplus", &["x"]);
    let inner = m.op("Tanh", &[&inner]);
    let x = m.op("Mul", &["x", &inner]);
    let [three, zero, six] = [3.0, 0.0, 6.0].map(|v| m.number(v));
    let shifted = m.op("Add", &[&x, &three]);
    let clipped = m.op("Clip", &[&shifted, &zero, &six]);
    let y = m.op("Div", &[&clipped, &six]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    assert_eq!(kinds(&network), ["mish", "hardsigmoid"]);
}

/// Copies of a network in 32 and in 16 bits: what is copied before which layer.
fn copied(network: &Network) -> [Vec<String>; 2] {
    [Precision::Fp32, Precision::Fp16].map(|precision| {
        let shaped = ShapedNetwork::new(network, 2, precision, &[]).expect("fits");
        let moves = |layer: &&ShapedLayer| matches!(&layer.case.layer, Layer::Reshape(r) if r.copy == Copied::Always);
        shaped.layers().iter().filter(moves).map(|l| l.name.to_string()).collect()
    })
}

/// Tokens of a patch embedding: in 32 bits they are columns of a map, so that each normalization copies them, and what is
/// added to them is read in another order; in 16 bits they are rows as they are.
#[test]
fn tokens_of_a_map_are_copied_where_its_channels_come_first() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "3", "32", "32"]);
    let patches = m.weight("patches.weight", &[64, 3, 4, 4]);
    let map = m.op_with("Conv", &["x", &patches], "strides", &[4, 4]);
    let shape = m.ints(&[0, 64, 64]);
    let rows = m.op("Reshape", &[&map, &shape]);
    let tokens = m.op_with("Transpose", &[&rows], "perm", &[0, 2, 1]);
    let normal = m.layer_norm(&tokens, "norm", 64);
    let inner = m.linear(&normal, "inner", [64, 64]);
    let sum = m.op("Add", &[&tokens, &inner]);
    let again = m.layer_norm(&sum, "again", 64);
    let y = m.linear(&again, "outer", [64, 8]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    let [first, last] = copied(&network);
    assert_eq!(first.len(), 3, "{first:?}");
    assert_eq!(last, [""; 0]);
    let written = Network::from_toml(&network.to_toml()).expect("read again");
    assert_eq!(copied(&written), [first, last]);
}

/// Windows of tokens are copied, and heads of queries before a product; a part of channels before a convolution.
#[test]
fn what_no_strides_express_is_copied() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "16", "16", "8"]);
    let [windows, rows] = [&[0, 4, 4, 4, 4, 8][..], &[-1, 16, 8]].map(|dims| m.ints(dims));
    let view = m.op("Reshape", &["x", &windows]);
    let turned = m.op_with("Transpose", &[&view], "perm", &[0, 1, 3, 2, 4, 5]);
    let gathered = m.op("Reshape", &[&turned, &rows]);
    let y = m.linear(&gathered, "fc", [8, 8]);
    let [first, last] = copied(&understood(m.bytes(&[&y]), &Options::default()));
    assert_eq!((first.len(), last.len()), (1, 1));

    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "16", "8", "8"]);
    let [zero, eight, axis] = [0, 8, 1].map(|v| m.ints(&[v]));
    let part = m.op("Slice", &["x", &zero, &eight, &axis]);
    let weight = m.weight("conv.weight", &[8, 8, 1, 1]);
    let y = m.op("Conv", &[&part, &weight]);
    let network = understood(m.bytes(&[&y]), &Options::default());
    assert_eq!(kinds(&network), ["slice", "conv2d"]);
    // Channels that lie last still do after the gaps between their parts are closed.
    let strays = |precision| {
        let shaped = ShapedNetwork::new(&network, 2, precision, &[]).expect("fits");
        shaped.layers().iter().any(|l| l.strays)
    };
    assert_eq!([Precision::Fp32, Precision::Fp16].map(strays), [false, false]);
}

/// A product over rows that are none as they lie: PyTorch copies them and adds the bias by another kernel.
#[test]
fn a_bias_over_turned_rows_is_added_apart() {
    let biased = |turns: bool| {
        let mut m = Maker::new(17);
        m.input("x", element::FLOAT, &["batch", "16", "16"]);
        let turned = m.op_with("Transpose", &["x"], "perm", &[0, 2, 1]);
        let y = m.linear(if turns { &turned } else { "x" }, "fc", [16, 8]);
        let network = understood(m.bytes(&[&y]), &Options::default());
        assert_eq!(totals(&network).0, 16 * 8 + 8);
        kinds(&network)
    };
    assert_eq!(biased(false), ["linear"]);
    assert_eq!(biased(true), ["reshape", "linear", "elementwise"]);
}

/// What automatic differentiation does about sums, factors and comparisons, and a single value that a module's attribute names.
#[test]
fn element_wise_layers_say_what_their_gradients_read() {
    let of = |build: &dyn Fn(&mut Maker) -> String| {
        let mut m = Maker::new(17);
        m.input("x", element::FLOAT, &["batch", "16", "8"]);
        let y = build(&mut m);
        let network = understood(m.bytes(&[&y]), &Options::default());
        let [node] = &network.nodes[..] else { panic!("one layer: {:?}", kinds(&network)) };
        let Layer::Elementwise(layer) = &node.layer else { panic!("{:?}", node.layer) };
        (layer.gradient, layer.parameters)
    };
    let scalar = |op: &'static str| {
        move |m: &mut Maker| {
            let c = m.number(0.3);
            m.op(op, &["x", &c])
        }
    };
    assert_eq!(of(&scalar("Mul")), (Gradient::Scales, 0));
    assert_eq!(of(&scalar("Add")), (Gradient::Passes, 0));
    assert_eq!(of(&scalar("Greater")), (Gradient::Absent, 0));
    assert_eq!(of(&scalar("Pow")), (Gradient::Powers, 0));
    let named = |name: &'static str, op: &'static str| {
        move |m: &mut Maker| {
            let w = m.weight(name, &[1]);
            m.op(op, &["x", &w])
        }
    };
    assert_eq!(of(&named("act.scale", "Mul")), (Gradient::Reads, 1));
    assert_eq!(of(&named("act.bias", "Add")), (Gradient::Passes, 1));
    assert_eq!(of(&named("/act/Constant.1", "Mul")), (Gradient::Scales, 0), "a number of the source text");
}

/// Norms of rows are spread over them by the kernel that divides.
#[test]
fn what_is_only_expanded_for_an_operator_runs_nothing() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "16", "8"]);
    let norm = m.op_with("ReduceL2", &["x"], "axes", &[-1]);
    let shape = m.op("Shape", &["x"]);
    let wide = m.op("Expand", &[&norm, &shape]);
    let y = m.op("Div", &["x", &wide]);
    assert_eq!(kinds(&understood(m.bytes(&[&y]), &Options::default())), ["reduce", "elementwise"]);
}

/// NFNets' convolutions: weights are normalized by the kernel of batch norms, whose statistics exporters write out.
#[test]
fn what_is_computed_of_weights_runs_once_a_step() {
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "3", "8", "8"]);
    let (weight, gain) = (m.weight("conv.weight", &[16, 3, 3, 3]), m.weight("conv.gain", &[16]));
    let (rows, one) = (m.ints(&[1, 16, 27]), m.number(1.0));
    let seen = m.op("Reshape", &[&weight, &rows]);
    let scale = m.op("Mul", &[&gain, &one]);
    let axes = m.ints(&[0, 2]);
    let mean = m.op("ReduceMean", &[&seen, &axes]);
    let apart = m.op("Sub", &[&seen, &mean]);
    let squares = m.op("Mul", &[&apart, &apart]);
    let variance = m.op("ReduceMean", &[&squares, &axes]);
    let flat = m.ints(&[16]);
    let (mean, variance) = (m.op("Reshape", &[&mean, &flat]), m.op("Reshape", &[&variance, &flat]));
    let bias = m.weight("conv.shift", &[16]);
    let normed = m.op_with("BatchNormalization", &[&seen, &scale, &bias, &mean, &variance], "training_mode", &[1]);
    let dims = m.ints(&[16, 3, 3, 3]);
    let standardized = m.op("Reshape", &[&normed, &dims]);
    let result = m.op("Conv", &["x", &standardized]);
    // A table of positions out of a small network, and one that nothing reads.
    let (places, w) = (m.weight("places", &[9, 2]), m.weight("cpb.weight", &[2, 36]));
    let (b, looked_up) = (m.weight("cpb.bias", &[36]), m.ints(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2]));
    let product = m.op("MatMul", &[&places, &w]);
    let table = m.op("Add", &[&b, &product]);
    let table = m.op("Relu", &[&table]);
    let table = m.op("Gather", &[&table, &looked_up]);
    let _unread = m.op("Sigmoid", &[&table]);
    let (shape, last) = (m.ints(&[1, 16, 27]), m.ints(&[2]));
    let table = m.op("Reshape", &[&table, &shape]);
    let table = m.op("ReduceSum", &[&table, &last]);
    let shape = m.ints(&[16, 1, 1]);
    let table = m.op("Reshape", &[&table, &shape]);
    let sum = m.op("Add", &[&result, &table]);
    let network = understood(m.bytes(&[&sum]), &Options { name: "n", ..Options::default() });
    let seen: Vec<(&str, String, bool)> = network
        .derived
        .iter()
        .map(|d| (d.case.layer.kind(), d.case.inputs.iter().map(|s| s.to_string()).collect(), d.wants_gradient))
        .collect();
    let expected = [
        ("elementwise", "16", true),
        ("batch_norm", "16x1x27", true),
        ("linear", "9x2", false),
        ("relu", "9x36", true),
        ("embedding", "12", true),
        ("reduce", "16x27", true),
    ];
    assert_eq!(seen, expected.map(|(kind, shapes, wants)| (kind, shapes.to_string(), wants)));
    assert!(
        network.notes.iter().any(|note| *note == joulecast_model::net::network::derived::each_step(6)),
        "{:?}",
        network.notes
    );
    assert!(matches!(&network.derived[2].case.layer, Layer::Linear(linear) if linear.bias && linear.features == 36));
}

/// A map whose channels lie last is copied where a module asks for values side by side, once, and nothing behind it strays.
#[test]
fn values_that_are_asked_for_side_by_side_are_copied() {
    let copies = |asked: bool| {
        let mut m = Maker::new(17);
        m.input("x", element::FLOAT, &["batch", "14", "14", "8"]);
        let map = m.op_with("Transpose", &["x"], "perm", &[0, 3, 1, 2]);
        let map = if asked {
            let made = m.op("Contiguous", &[&map]);
            m.graph.nodes.last_mut().expect("there").domain = "joulecast".into();
            // What lies so already is left alone.
            let again = m.op("Contiguous", &[&made]);
            m.graph.nodes.last_mut().expect("there").domain = "joulecast".into();
            again
        } else {
            map
        };
        let weight = m.weight("conv.weight", &[8, 8, 1, 1]);
        let y = m.op("Conv", &[&map, &weight]);
        let rows = m.op_with("Transpose", &[&y], "perm", &[0, 2, 3, 1]);
        let y = m.layer_norm(&rows, "norm", 8);
        copied(&understood(m.bytes(&[&y]), &Options::default()))
    };
    // Behind it channels lie first, so that rows of channels are copied once more; a result in 16 bits has them last.
    let [first, last] = copies(true);
    assert_eq!((first.len(), last.len()), (2, 1), "{first:?} {last:?}");
    assert_eq!(copies(false)[0], [""; 0]);
    let mut m = Maker::new(17);
    m.input("x", element::FLOAT, &["batch", "8"]);
    m.op("Contiguous", &["nothing"]);
    m.graph.nodes.last_mut().expect("there").domain = "joulecast".into();
    let y = m.op("Relu", &["x"]);
    let error = read(Cursor::new(m.bytes(&[&y])), &Options::default()).expect_err("no input");
    assert!(error.to_string().contains("nothing"), "{error}");
}
