//! Caffe's text files against the zoo's definitions of the same networks.

use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::Shape;
use joulecast_model::catalog;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_read::caffe;
use std::fmt::Write as _;

fn read(text: &str) -> Network {
    caffe::read(text, "net", &[]).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn shaped(network: &Network) -> ShapedNetwork {
    ShapedNetwork::new(network, 1, Precision::Fp32, &[]).unwrap_or_else(|e| panic!("{}: {e}", network.name))
}

/// Kinds, shapes and parameters of all layers but views.
fn kernels(network: &Network) -> Vec<(&'static str, Shape, u64)> {
    let shaped = shaped(network);
    let layers = shaped.layers().iter().filter(|l| l.case.layer.kind() != "flatten");
    layers.map(|l| (l.case.layer.kind(), l.output, l.parameters())).collect()
}

/// A file in the making.
struct File(String);

impl File {
    fn new(inputs: &str) -> Self {
        Self(format!("name: \"net\"\n{inputs}\n"))
    }

    fn layer(&mut self, name: &str, kind: &str, bottoms: &[&str], param: &str) {
        self.in_place(name, kind, bottoms, name, param);
    }

    fn in_place(&mut self, name: &str, kind: &str, bottoms: &[&str], top: &str, param: &str) {
        let bottoms: String = bottoms.iter().map(|b| format!("bottom: \"{b}\" ")).collect();
        let _ = writeln!(self.0, "layer {{ name: \"{name}\" type: \"{kind}\" {bottoms}top: \"{top}\" {param} }}");
    }

    /// A convolution and its rectifier, in place.
    fn convolution(&mut self, name: &str, bottom: &str, param: &str) {
        self.layer(name, "Convolution", &[bottom], &format!("convolution_param {{ {param} }}"));
        self.in_place(&format!("{name}/relu"), "ReLU", &[name], name, "");
    }

    fn pool(&mut self, name: &str, bottom: &str, param: &str) {
        self.layer(name, "Pooling", &[bottom], &format!("pooling_param {{ {param} }}"));
    }
}

#[test]
fn caffenet_is_the_zoos() {
    let mut file = File::new("input: 'data' input_dim: 10 input_dim: 3 input_dim: 227 input_dim: 227");
    file.convolution("conv1", "data", "num_output: 96 kernel_size: 11 stride: 4");
    file.pool("pool1", "conv1", "pool: MAX kernel_size: 3 stride: 2");
    file.layer("norm1", "LRN", &["pool1"], "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }");
    file.convolution("conv2", "norm1", "num_output: 256 pad: 2 kernel_size: 5 group: 2");
    file.pool("pool2", "conv2", "pool: MAX kernel_size: 3 stride: 2");
    file.layer("norm2", "LRN", &["pool2"], "lrn_param { local_size: 5 }");
    file.convolution("conv3", "norm2", "num_output: 384 pad: 1 kernel_size: 3");
    file.convolution("conv4", "conv3", "num_output: 384 pad: 1 kernel_size: 3 group: 2");
    file.convolution("conv5", "conv4", "num_output: 256 pad: 1 kernel_size: 3 group: 2");
    file.pool("pool5", "conv5", "pool: MAX kernel_size: 3 stride: 2");
    for (name, bottom, size) in [("fc6", "pool5", 4096), ("fc7", "fc6", 4096), ("fc8", "fc7", 1000)] {
        file.layer(name, "InnerProduct", &[bottom], &format!("inner_product_param {{ num_output: {size} }}"));
        if name != "fc8" {
            file.in_place(&format!("{name}/relu"), "ReLU", &[name], name, "");
            file.in_place(&format!("{name}/drop"), "Dropout", &[name], name, "dropout_param { dropout_ratio: 0.5 }");
        }
    }
    file.layer("prob", "Softmax", &["fc8"], "");
    assert_eq!(kernels(&read(&file.0)), kernels(&catalog::network("caffenet").expect("zoo")));
}

/// The table of the paper: Szegedy et al. 2014, table 1.
#[test]
fn googlenet_is_the_zoos() {
    let mut file = File::new(
        "layer { name: 'data' type: 'Input' top: 'data' input_param { shape: { dim: 10 dim: 3 dim: 224 dim: 224 } } }",
    );
    file.convolution("conv1", "data", "num_output: 64 pad: 3 kernel_size: 7 stride: 2");
    file.pool("pool1", "conv1", "pool: MAX kernel_size: 3 stride: 2");
    file.layer("norm1", "LRN", &["pool1"], "");
    file.convolution("conv2/reduce", "norm1", "num_output: 64 kernel_size: 1");
    file.convolution("conv2", "conv2/reduce", "num_output: 192 pad: 1 kernel_size: 3");
    file.layer("norm2", "LRN", &["conv2"], "");
    file.pool("pool2", "norm2", "pool: MAX kernel_size: 3 stride: 2");
    let mut last = "pool2".to_string();
    for (name, [one, r3, three, r5, five, pool]) in [
        ("3a", [64, 96, 128, 16, 32, 32]),
        ("3b", [128, 128, 192, 32, 96, 64]),
        ("4a", [192, 96, 208, 16, 48, 64]),
        ("4b", [160, 112, 224, 24, 64, 64]),
        ("4c", [128, 128, 256, 24, 64, 64]),
        ("4d", [112, 144, 288, 32, 64, 64]),
        ("4e", [256, 160, 320, 32, 128, 128]),
        ("5a", [256, 160, 320, 32, 128, 128]),
        ("5b", [384, 192, 384, 48, 128, 128]),
    ] {
        let part = |part: &str| format!("{name}/{part}");
        file.convolution(&part("1x1"), &last, &format!("num_output: {one} kernel_size: 1"));
        file.convolution(&part("3x3_reduce"), &last, &format!("num_output: {r3} kernel_size: 1"));
        file.convolution(&part("3x3"), &part("3x3_reduce"), &format!("num_output: {three} pad: 1 kernel_size: 3"));
        file.convolution(&part("5x5_reduce"), &last, &format!("num_output: {r5} kernel_size: 1"));
        file.convolution(&part("5x5"), &part("5x5_reduce"), &format!("num_output: {five} pad: 2 kernel_size: 5"));
        file.pool(&part("pool"), &last, "pool: MAX kernel_size: 3 stride: 1 pad: 1");
        file.convolution(&part("pool_proj"), &part("pool"), &format!("num_output: {pool} kernel_size: 1"));
        let parts = ["1x1", "3x3", "5x5", "pool_proj"].map(part);
        file.layer(&part("output"), "Concat", &parts.each_ref().map(String::as_str), "");
        last = part("output");
        if let Some(next) = match name {
            "3b" => Some("pool3"),
            "4e" => Some("pool4"),
            _ => None,
        } {
            file.pool(next, &last, "pool: MAX kernel_size: 3 stride: 2");
            last = next.to_string();
        }
    }
    file.pool("pool5", &last, "pool: AVE kernel_size: 7 stride: 1");
    file.in_place("drop", "Dropout", &["pool5"], "pool5", "dropout_param { dropout_ratio: 0.4 }");
    file.layer("fc", "InnerProduct", &["pool5"], "inner_product_param { num_output: 1000 }");
    file.layer("prob", "Softmax", &["fc"], "");
    let (own, zoo) = (shaped(&read(&file.0)), shaped(&catalog::network("googlenet").expect("zoo")));
    assert_eq!((own.parameters(), own.macs()), (zoo.parameters(), zoo.macs()));
}

#[test]
fn a_residual_block_in_the_old_notation_and_a_training_file() {
    let old = "input: 'x' input_dim: 1 input_dim: 8 input_dim: 6 input_dim: 6
        layers { name: 'c' type: CONVOLUTION bottom: 'x' top: 'c' convolution_param { num_output: 8 kernel_h: 1 kernel_w: 3 pad_h: 0 pad_w: 1 bias_term: false } }
        layers { name: 'sum' type: ELTWISE bottom: 'c' bottom: 'x' top: 'sum' }
        layers { name: 'ip' type: INNER_PRODUCT bottom: 'sum' top: 'ip' inner_product_param { num_output: 4 } }
        layers { name: 'loss' type: SOFTMAX_LOSS bottom: 'ip' bottom: 'label' top: 'loss' }";
    let error = caffe::read(old, "old", &[]).expect_err("nothing makes the label").to_string();
    assert!(error.contains("label"), "{error}");
    let network = read(&old.replace(" bottom: 'label'", ""));
    assert_eq!(shaped(&network).parameters(), 8 * 8 * 3 + 8 * 36 * 4 + 4);
    let kinds: Vec<&str> = network.nodes.iter().map(|n| n.layer.kind()).collect();
    assert_eq!(kinds, ["conv2d", "add", "flatten", "linear", "softmax"]);

    let training = "layer { name: 'a' type: 'Data' top: 'data' top: 'label' include { phase: TRAIN } }
        layer { name: 'b' type: 'Data' top: 'data' top: 'label' include { phase: TEST } }
        layer { name: 'n' type: 'BatchNorm' bottom: 'data' top: 'n' }
        layer { name: 's' type: 'Scale' bottom: 'n' top: 'n' scale_param { bias_term: true } }
        layer { name: 'c' type: 'Slice' bottom: 'n' top: 'a' top: 'b' slice_param { slice_point: 1 } }
        layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'label' top: 'l' }
        layer { name: 'acc' type: 'Accuracy' bottom: 'b' bottom: 'label' top: 'acc' include { phase: TEST } }";
    let open = caffe::read(training, "t", &[]).expect_err("no shape").to_string();
    assert!(open.contains("--input data=3x227x227"), "{open}");
    let given = [("data".to_string(), Shape::map(3, 4, 4).expect("a shape"))];
    let network = caffe::read(training, "t", &given).expect("valid");
    assert_eq!(network.notes, ["left out: acc (accuracy)"]);
    assert_eq!(shaped(&network).parameters(), 6);
    assert_eq!(network.outputs, [2], "the first part of the slice is read by nothing");
    assert_eq!(Network::from_toml(&network.to_toml()).expect("readable").nodes, network.nodes);
    let unknown = [("image".to_string(), Shape::map(3, 4, 4).expect("a shape"))];
    assert!(
        caffe::read(
            "input: 'x' input_shape { dim: 1 dim: 2 } layer { name: 'r' type: 'ReLU' bottom: 'x' top: 'r' }",
            "t",
            &unknown
        )
        .is_err()
    );
}

#[test]
fn a_file_for_training_reads_its_own_data() {
    let text = "layer { name: 'd' type: 'Data' top: 'data' top: 'label' include { phase: TRAIN } transform_param { crop_size: 9 } }
        layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' convolution_param { num_output: 4 kernel_size: 3 } }
        layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'c' bottom: 'label' top: 'l' }";
    let network = read(text);
    assert_eq!(network.inputs[0].shape, Shape::map(3, 9, 9).expect("a shape"));
    assert_eq!(network.notes, ["input data: 3 channels are taken of its crops"]);
    assert_eq!(shaped(&network).parameters(), 4 * 27 + 4);
}

/// A fully convolutional network's end (github.com/shelhamer/fcn.berkeleyvision.org), and what other layers of caffe.proto make.
#[test]
fn every_other_layer_of_caffe_has_its_shape() {
    let made = |shape: &str, layer: &str| {
        let text = format!(
            "input: 'x' input_shape {{ dim: [1, {shape}] }} input: 'y' input_shape {{ dim: [1, 2, 20, 20] }} layer {{ name: 'n' bottom: 'x' top: 'n' {layer} }}"
        );
        let network = shaped(&read(&text));
        (network.layers().last().expect("a layer").output.to_string(), network.parameters())
    };
    for (shape, layer, output, parameters) in [
        (
            "2, 5, 5",
            "type: 'Deconvolution' convolution_param { num_output: 2 kernel_size: 8 stride: 4 group: 2 bias_term: false }",
            "2x24x24",
            2 * 64,
        ),
        ("2, 24, 24", "bottom: 'y' type: 'Crop' crop_param { axis: 2 offset: 1 }", "2x20x20", 0),
        ("4, 6, 6", "type: 'Im2col' convolution_param { kernel_size: 3 }", "36x4x4", 0),
        ("4, 6, 6", "type: 'MVN'", "4x6x6", 0),
        ("4, 6, 6", "type: 'Reduction' reduction_param { axis: 2 }", "4", 0),
        ("4, 6, 6", "type: 'Tile' tile_param { axis: 1 tiles: 3 }", "12x6x6", 0),
        ("4, 6, 6", "type: 'SPP' spp_param { pyramid_height: 3 }", "84", 0),
        ("4, 6, 6", "type: 'Swish'", "4x6x6", 0),
        ("4, 6, 6", "type: 'DepthwiseConvolution' convolution_param { num_output: 4 kernel_size: 3 }", "4x4x4", 40),
        ("4, 6, 6", "type: 'Interp' interp_param { height: 9 width: 9 }", "4x9x9", 0),
        ("4, 6, 5", "type: 'Permute' permute_param { order: 0 order: 2 order: 3 order: 1 }", "6x5x4", 0),
        ("7", "type: 'Embed' embed_param { input_dim: 10 num_output: 3 bias_term: false }", "7x3", 30),
    ] {
        assert_eq!(made(shape, layer), (output.to_string(), parameters), "{layer}");
    }
}

#[test]
fn activations_have_kinds_of_their_own() {
    for (of_caffe, kind) in
        [("ReLU", "relu"), ("ReLU6", "relu6"), ("TanH", "tanh"), ("Swish", "silu"), ("BNLL", "softplus")]
    {
        let text =
            format!("input: 'x' input_dim: [1, 3, 8, 8] layer {{ name: 'n' type: '{of_caffe}' bottom: 'x' top: 'n' }}");
        assert_eq!(shaped(&read(&text)).layers()[0].case.layer.kind(), kind);
    }
}

#[test]
fn an_unknown_layer_is_named() {
    let text = "input: 'x' input_dim: [1, 3, 8, 8] layer { name: 'p\\n' type: 'Python' bottom: 'x' top: 'p' }";
    let error = caffe::read(text, "t", &[]).expect_err("unknown").to_string();
    assert!(error.contains("Python") && error.contains("layer p") && !error.contains('\n'), "{error}");
}
