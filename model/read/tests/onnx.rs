//! ONNX files: those that PyTorch wrote against the zoo, and every network of the zoo there and back.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::catalog;
use joulecast_model::net::cost::LayerCost;
use joulecast_model::net::layer::{Function, Layer};
use joulecast_model::net::network::{Network, ShapedLayer, ShapedNetwork};
use joulecast_read::onnx::{self, Options};
use std::fs::File;
use std::io::Cursor;

fn from_file(name: &str) -> Network {
    let path = format!("{}/tests/onnx/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    let options = Options { name, ..Options::default() };
    onnx::read(File::open(path).expect("the file is there"), &options).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn shaped(network: &Network) -> ShapedNetwork {
    ShapedNetwork::new(network, 2, Precision::Fp32, &[]).unwrap_or_else(|e| panic!("{}: {e}", network.name))
}

fn forward(network: &ShapedNetwork) -> LayerCost {
    network.layers().iter().filter_map(|l| network.cost(l, Phase::Forward, Mode::Inference)).sum()
}

/// Exported by PyTorch 2.11 (torchvision 0.26), operator set 17, open batch, weights taken out.
#[test]
fn what_pytorch_exports_is_what_the_zoo_defines() {
    for (file, zoo) in [
        ("alexnet", "alexnet"),
        ("googlenet", "googlenet_bn"),
        ("resnet50", "resnet50"),
        ("vgg16", "vgg16"),
        ("vit_b_16", "vit_b_16"),
    ] {
        let (imported, own) = (shaped(&from_file(file)), shaped(&catalog::network(zoo).expect(zoo)));
        assert_eq!(imported.parameters(), own.parameters(), "{file}");
        assert_eq!(imported.macs(), own.macs(), "{file}");
        let (a, b) = (forward(&imported).ops.get() as f64, forward(&own).ops.get() as f64);
        assert!((a / b - 1.0).abs() < 0.01, "{file}: {a} operations, the zoo has {b}");
    }
    // 17.56 * 10^9 for one image: patches 0.1156, twelve layers of 1.4539, the classifier 0.0008.
    assert_eq!(shaped(&from_file("vit_b_16")).macs() / 2, 17_563_828_224);
}

/// What every kernel of a network computes and moves; views do nothing. Copies into another shape are left out: a reader of ONNX
/// finds them by strides, which our views do not tell; so are gradients of element-wise layers, for operators that stand for
/// them have others.
fn kernels(network: &ShapedNetwork, mode: Mode) -> Vec<(Phase, LayerCost)> {
    let phases = [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights, Phase::Update];
    let of = |phase| {
        move |layer: &ShapedLayer| {
            let left_out = match layer.case.layer {
                Layer::Reshape(_) => true,
                Layer::Elementwise(_) => phase == Phase::BackwardData,
                _ => false,
            };
            network.cost(layer, phase, mode).filter(|_| !left_out).map(|cost| (phase, cost))
        }
    };
    phases.iter().flat_map(|&phase| network.layers().iter().filter_map(of(phase))).collect()
}

#[test]
fn every_network_of_the_zoo_keeps_its_shapes_and_cost_through_onnx() {
    let mut unwritten = Vec::new();
    for name in catalog::network_names() {
        let network = catalog::network(name).expect(name);
        if network.nodes.iter().any(|node| has_no_operator(&node.layer)) {
            let error = onnx::write(&network).expect_err(name).to_string();
            assert!(error.contains("layers.0."), "{name}: {error}");
            unwritten.push(name);
            continue;
        }
        let bytes = onnx::write(&network).unwrap_or_else(|e| panic!("{name}: {e}"));
        let options = Options { name, ..Options::default() };
        let again = onnx::read(Cursor::new(bytes), &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (before, after) = (shaped(&network), shaped(&again));
        assert_eq!(before.parameters(), after.parameters(), "{name}");
        let last = |net: &ShapedNetwork| net.layers().last().map(|l| l.output.elements());
        assert_eq!(last(&before), last(&after), "{name}");
        for mode in [Mode::Inference, Mode::Training] {
            let (before, after) = (kernels(&before, mode), kernels(&after, mode));
            for (a, b) in before.iter().zip(&after) {
                assert_eq!(a, b, "{name}, {mode}");
            }
            assert_eq!(before.len(), after.len(), "{name}, {mode}");
        }
    }
    assert_eq!(unwritten, ["deepseek_v3", "gemma2_9b", "gpt_oss_20b", "mixtral_8x7b", "qwen3_30b_a3b"]);
}

/// Layers of language models for which ONNX has nothing.
fn has_no_operator(layer: &Layer) -> bool {
    match layer {
        Layer::Experts(_) | Layer::LatentAttention(_) => true,
        Layer::Attention(attention) => {
            attention.window.is_some() || attention.sinks || attention.bias.is_some() || attention.context.is_some()
        }
        _ => false,
    }
}

/// Kinds that no network of the zoo has, or not with these fields.
#[test]
fn other_kinds_keep_their_cost_through_onnx() {
    let network = Network::from_toml(
        r#"
schema = "network/1"
name = "others"
title = "others"
layers = [
  { name = "first", kind = "relu" },
  { name = "over_channels", kind = "layer_norm" },
  { name = "pad", kind = "pad", padding = [0, 1, 0, 1] },
  { name = "plain", kind = "batch_norm", affine = false },
  { name = "groups", kind = "group_norm", groups = 2 },
  { name = "plain_groups", kind = "group_norm", groups = 4, affine = false },
  { name = "larger", kind = "resize", output = 18, interpolation = "linear" },
  { name = "up", kind = "conv_transpose2d", channels = 6, kernel = 3, stride = 2, padding = 1, output_padding = 1, groups = 2 },
  { name = "down", kind = "conv2d", channels = 4, kernel = [3, 4], stride = 2 },
  { name = "volume", kind = "reshape", shape = [2, 2, 17, 17] },
  { name = "frames", kind = "conv3d", channels = 4, kernel = [2, 3, 3], stride = [1, 1, 1], padding = [0, 1, 1], bias = false },
  { name = "flat", kind = "conv3d", channels = 4, kernel = [1, 3, 3], padding = [0, 1, 1], groups = "depthwise" },
  { name = "pooled", kind = "max_pool3d", kernel = 2, stride = 1, padding = [1, 0, 0] },
  { name = "mean_of_volumes", kind = "avg_pool3d", kernel = [2, 1, 1], ceil = true },
  { name = "map", kind = "reshape", shape = [4, 16, 16] },
  { name = "part", kind = "slice", axis = 1, size = 8, step = 2 },
  { name = "rows", kind = "reshape", shape = [4, 128] },
  { name = "over_rows", kind = "layer_norm", affine = false },
  { name = "partly_turned", kind = "rotary", heads = 4, rotated = 8 },
  { name = "both_ways", kind = "lstm", hidden = 6, bidirectional = true },
  { name = "one_way", kind = "gru", hidden = 5, bias = false },
  { name = "plainly", kind = "rnn", hidden = 5 },
  { name = "scores", kind = "softmax" },
  { name = "mean", kind = "reduce" },
  { name = "fc", kind = "linear", features = 3 },
]
inputs.x.shape = [4, 8, 8]
"#,
    )
    .expect("valid");
    let bytes = onnx::write(&network).expect("written");
    let again = onnx::read(Cursor::new(bytes), &Options::default()).expect("read");
    let (before, after) = (shaped(&network), shaped(&again));
    assert_eq!(before.parameters(), after.parameters());
    for mode in [Mode::Inference, Mode::Training] {
        assert_eq!(kernels(&before, mode), kernels(&after, mode), "{mode}");
    }
}

/// What computes element by element and is no kind of its own: as many operations over the same values, learned ones among them.
#[test]
fn elementwise_layers_keep_their_cost_through_onnx() {
    let text = |last: &str| {
        format!(
            r#"
schema = "network/1"
name = "pointwise"
title = "pointwise"
layers = [
  {{ name = "first", kind = "relu", from = "x" }},
  {{ name = "second", kind = "tanh", from = "x" }},
  {{ name = "less", kind = "elementwise", from = ["first", "second"] }},
  {{ name = "remainder", kind = "elementwise", ops = 2, from = ["less", "second"] }},
  {{ name = "largest", kind = "elementwise", from = ["remainder", "first", "second"] }},
  {{ name = "shrunk", kind = "elementwise", ops = 2 }},
  {{ name = "of_each", kind = "elementwise", parameters = 8 }},
  {{ name = "last", kind = "elementwise", {last} }},
]
inputs.x.shape = [4, 8]
"#
        )
    };
    let network = |last: &str| Network::from_toml(&text(last)).expect("valid");
    let through = |network: &Network| {
        let bytes = onnx::write(network).expect("written");
        onnx::read(Cursor::new(bytes), &Options::default()).expect("read")
    };
    let one = network("ops = 1");
    let (before, after) = (shaped(&one), shaped(&through(&one)));
    assert_eq!(before.parameters(), after.parameters());
    for mode in [Mode::Inference, Mode::Training] {
        assert_eq!(kernels(&before, mode), kernels(&after, mode), "{mode}");
    }
    let several = network("ops = 5");
    let ops = |network: &Network| {
        let costs = kernels(&shaped(network), Mode::Inference);
        costs.iter().map(|kernel| kernel.1.ops.get()).sum::<u64>()
    };
    assert_eq!(ops(&several), ops(&through(&several)));
    for unknown in ["ops = 0", "parameters = 3", "ops = 99", "output = [4, 1]"] {
        let error = onnx::write(&network(unknown)).expect_err(unknown).to_string();
        assert!(error.contains("last") && error.contains("elementwise with"), "{error}");
    }
}

#[test]
fn every_activation_is_itself_through_onnx() {
    let names: Vec<&str> = Function::ALL.iter().map(|f| f.name()).collect();
    let layers =
        names.iter().map(|name| format!("{{ name = \"of_{name}\", kind = \"{name}\" }}, ")).collect::<String>();
    let text =
        format!("schema = \"network/1\"\nname = \"a\"\ntitle = \"a\"\nlayers = [{layers}]\ninputs.x.shape = [4, 8]\n");
    let network = Network::from_toml(&text).expect("valid");
    let bytes = onnx::write(&network).expect("written");
    let again = onnx::read(Cursor::new(bytes), &Options::default()).expect("read");
    let kinds: Vec<&str> = again.nodes.iter().map(|node| node.layer.kind()).collect();
    assert_eq!(kinds, names);
}

/// Damaged, odd and hostile files: `tests/onnx/odd`.
#[test]
fn odd_files_are_refused_in_one_line() {
    let folder = format!("{}/tests/onnx/odd", env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str, options: &Options<'_>| {
        let file = File::open(format!("{folder}/{name}.onnx")).expect("the file is there");
        onnx::read(file, options).map_err(|e| e.to_string())
    };
    let mut expected = vec![
        ("absurd_dimension", "initializer w"),
        ("control_flow", "operator branch (If): control flow"),
        ("cycle", "cycle"),
        ("does_not_fit", "operator conv (Conv): weights for 4 channels"),
        ("empty", "no graph"),
        ("endless_range", "without an end"),
        ("made_twice", "tensor a is made twice"),
        ("mixes_samples", "does not grow with the batch"),
        ("negative_dimension", "a dimension of -8"),
        ("no_output", "output y"),
        ("not_onnx", "not an ONNX model"),
        ("nothing_makes", "reads ghost"),
        ("old_operator_set", "operator set 5"),
        ("open_size", "--input x=1x3x128x128"),
        ("truncated", "cut short"),
        ("two_gigabytes", "2147483648 bytes are announced"),
        ("unknown_domain", "operator r (Relu): not known, of domain my.company"),
        ("turns", "operator outer (Loop): control flow"),
        ("unknown_operator", "operator sampler (HoloSample)"),
    ];
    for (name, fragment) in &expected {
        let error = read(name, &Options::default()).expect_err(name);
        assert!(error.contains(fragment), "{name}: {error}");
        assert!(!error.contains(char::is_control) && error.len() < 400, "{name}: {error}");
    }
    for name in ["external_path", "known_course", "names", "similarities", "values_decide", "volumes"] {
        let network = read(name, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(Network::from_toml(&network.to_toml()).is_ok(), "{name}");
        expected.push((name, ""));
    }
    let skipped = read("unknown_operator", &Options { skip_unknown: true, ..Options::default() }).expect("skipped");
    assert_eq!(skipped.notes, ["left out: sampler (HoloSample)"]);
    let given = [
        ("height".to_string(), Shape::new(&[32]).expect("a size")),
        ("width".to_string(), Shape::new(&[16]).expect("a size")),
    ];
    let bound = read("open_size", &Options { inputs: &given, ..Options::default() }).expect("bound");
    assert_eq!(bound.inputs[0].shape.dims(), [3, 32, 16]);
    for shape in [&[1, 3, 32, 16][..], &[3, 32, 16]] {
        let given = [("x".to_string(), Shape::new(shape).expect("a shape"))];
        let bound = read("open_size", &Options { inputs: &given, ..Options::default() }).expect("bound");
        assert_eq!(bound.inputs[0].shape.dims(), [3, 32, 16]);
    }
    let mixed = read("similarities", &Options::default()).expect("read for one sample");
    assert!(mixed.notes.iter().any(|n| n.contains("read for one sample")), "{:?}", mixed.notes);
    let of = |limit| shaped(&read("values_decide", &Options { selected: limit, ..Options::default() }).expect("read"));
    let elements = |limit| of(limit).layers().last().map(|l| l.output.elements());
    assert!(elements(Some(2)) < elements(Some(5)), "a limit of what is selected");
    // Three turns, the branch that is taken, one part of three.
    let course = read("known_course", &Options::default()).expect("followed");
    let kinds: Vec<&str> = course.nodes.iter().map(|n| n.layer.kind()).filter(|k| *k != "reshape").collect();
    assert_eq!(kinds, ["relu", "relu", "relu", "sigmoid", "slice", "concat"]);
    let files = std::fs::read_dir(&folder).expect("the folder is there").count();
    assert_eq!(files, expected.len(), "every file is tested");
}
