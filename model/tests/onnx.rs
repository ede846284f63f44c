//! ONNX files: those that PyTorch wrote against the zoo, and every network of the zoo there and back.

use joulecast_model::catalog;
use joulecast_model::cost::LayerCost;
use joulecast_model::network::{Network, ShapedNetwork};
use joulecast_model::onnx::{self, Options};
use joulecast_model::precision::{Mode, Phase, Precision};
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

/// What every kernel of a network computes and moves; views do nothing.
fn kernels(network: &ShapedNetwork, mode: Mode) -> Vec<(Phase, LayerCost)> {
    let phases = [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights, Phase::Update];
    let of = |phase| move |layer| network.cost(layer, phase, mode).map(|cost| (phase, cost));
    phases.iter().flat_map(|&phase| network.layers().iter().filter_map(of(phase))).collect()
}

#[test]
fn every_network_of_the_zoo_keeps_its_shapes_and_cost_through_onnx() {
    for name in catalog::network_names() {
        let network = catalog::network(name).expect(name);
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
}
