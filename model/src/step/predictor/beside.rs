//! Kernels of a step that belong to no layer: sums of gradients where branches join, conversions between precisions, and
//! updates of all parameters at once.

use crate::base::name::Name;
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::{MAX_DIMENSION, Shape};
use crate::base::units::{Bytes, Ops};
use crate::net::cost::{LayerCost, Site};
use crate::net::layer::{Activation, Add, Function, Layer, LayerOp as _, Linear, update_cost};
use crate::net::network::{ShapedLayer, ShapedNetwork, Source};
use crate::step::autocast::{Converted, Mixed};
use crate::step::framework::FusedUpdate;
use std::sync::LazyLock;

/// What a kernel computes, as a layer of its own.
pub(super) struct Beside<'a> {
    /// The layer whose result it is about.
    pub name: &'a Name,
    /// What it computes.
    pub layer: ShapedLayer,
    /// Operations and traffic.
    pub cost: LayerCost,
    /// What it works in.
    pub precision: Precision,
}

/// What an update at once is called.
static ALL_PARAMETERS: LazyLock<Name> = LazyLock::new(|| "all parameters".into());

/// Values of a row of what is converted.
const CONVERTED_ROW: u64 = 64;

/// A kernel that converts values of the step between 32 and 16 bits: each is read once and written once.
pub(super) fn conversion<'a>(name: &'a Name, converted: Converted, network: &ShapedNetwork) -> Option<Beside<'a>> {
    let values = converted.values;
    // In rows: no row as long as a whole map was measured, and laws reach as far as rows do.
    let rows = values.div_ceil(network.batch()).div_ceil(CONVERTED_ROW).clamp(1, MAX_DIMENSION);
    let shape = Shape::new(&[rows, CONVERTED_ROW]).ok()?;
    let layer = Layer::Activation(Activation { function: Function::Relu });
    let (wide, narrow) = (values.saturating_mul(4), values.saturating_mul(2));
    let cost = LayerCost {
        ops: Ops::new(values),
        read: Bytes::new(wide),
        written: Bytes::new(narrow),
        weights: if converted.learned { Bytes::new(wide) } else { Bytes::ZERO },
        ..LayerCost::default()
    };
    Some(Beside { name, layer: ShapedLayer::alone(layer, vec![shape], shape), cost, precision: Precision::Fp32 })
}

/// The gradient of a result that several layers read is the sum of theirs: an addition for each but the first. The
/// gradients of the network's inputs are not wanted.
pub(super) fn gradient_sums<'a>(network: &'a ShapedNetwork, mixed: Option<&Mixed>) -> Vec<Beside<'a>> {
    let layers = network.layers();
    let mut readers = vec![0u64; layers.len()];
    for source in layers.iter().flat_map(|l| l.from.iter()) {
        if let Source::Node(k) = source {
            readers[*k] += 1;
        }
    }
    let mut list = Vec::new();
    for ((i, made_by), readers) in layers.iter().enumerate().zip(readers).rev().filter(|(_, readers)| *readers > 1) {
        let precision = mixed.map_or(network.precision(), |m| m.result(i));
        let sum = Layer::Add(Add {});
        let inputs = vec![made_by.output; 2];
        let site =
            Site { batch: network.batch(), inputs: &inputs, output: made_by.output, precision, mode: Mode::Training };
        let Some(cost) = sum.cost(Phase::Forward, &site) else { continue };
        for _ in 1..readers {
            let layer = ShapedLayer::alone(sum.clone(), inputs.clone(), made_by.output);
            list.push(Beside { name: &made_by.name, layer, cost, precision });
        }
    }
    list
}

/// The update of all parameters by kernels that each pass over many tensors, after a loss that is scaled or not; `None` where
/// nothing is learned.
pub(super) fn fused_update<'a>(network: &'a ShapedNetwork, fused: &FusedUpdate, scaled: bool) -> Option<Beside<'a>> {
    let parameters = network.parameters();
    let cost = update_cost(parameters, network.optimizer())?;
    let total = fused.passes(network.optimizer(), scaled).saturating_mul(cost.weights.get());
    let share = cost.written.to_f64() / (cost.read + cost.written).to_f64();
    let written = (total as f64 * share) as u64;
    let shape = Shape::new(&[parameters.min(MAX_DIMENSION)]).ok()?;
    let layer = Layer::Linear(Linear { features: 1, bias: false });
    let output = layer.output(&[shape]).ok()?;
    Some(Beside {
        name: &ALL_PARAMETERS,
        layer: ShapedLayer::alone(layer, vec![shape], output),
        precision: network.precision(),
        cost: LayerCost { read: Bytes::new(total - written), written: Bytes::new(written), ..cost },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::catalog;
    use crate::net::network::Network;
    use crate::step::predict::Predictor;

    fn shaped(net: &str) -> ShapedNetwork {
        let network = catalog::network(net).expect("in the zoo");
        ShapedNetwork::new(&network, 2, Precision::Fp32, &[]).expect("fits")
    }

    /// What a module computes in 32 bits moves 4 bytes a value in a network of 16, and both conversions run; in 32 bits neither.
    #[test]
    fn regions_in_32_bits_are_priced_in_32_bits() {
        let text = "schema = \"network/1\"\nname = \"a\"\ntitle = \"a\"\ninputs.x.shape = [32, 64]\nlayers = [\
             { name = \"up\", kind = \"cast\", to = \"wide\" }, { name = \"tanh\", kind = \"tanh\" }, \
             { name = \"down\", kind = \"cast\", to = \"narrow\" }, { name = \"relu\", kind = \"relu\" }]\n";
        let network = Network::from_toml(text).expect("valid");
        let predictor =
            Predictor::shipped(catalog::gpu("h200").expect("shipped"), catalog::framework("pytorch").expect("shipped"));
        let kernels = |precision, mode| {
            let shaped = ShapedNetwork::new(&network, 4, precision, &[]).expect("fits");
            let step = predictor.step(&shaped, mode).expect("runs");
            let forward = step.kernels.iter().filter(|k| k.phase == Phase::Forward);
            forward.map(|k| (k.kind, k.cost.written.get() / (4 * 32 * 64))).collect::<Vec<_>>()
        };
        let half = [("conversion", 2), ("tanh", 4), ("conversion", 2), ("relu", 2)];
        assert_eq!(kernels(Precision::Bf16, Mode::Inference), half);
        assert_eq!(kernels(Precision::Fp32, Mode::Inference), [("tanh", 4), ("relu", 4)]);
        // Under autocast the input has 32 bits, and so has what a region of it ends in.
        assert_eq!(kernels(Precision::Fp16, Mode::Training), [("tanh", 4), ("relu", 4)]);
        let launches = |precision| {
            let shaped = ShapedNetwork::new(&network, 4, precision, &[]).expect("fits");
            let step = predictor.step(&shaped, Mode::Inference).expect("runs");
            step.kernels.iter().map(|k| k.host.get()).sum::<f64>()
        };
        assert!(launches(Precision::Bf16) > 1.5 * launches(Precision::Fp32));
    }

    #[test]
    fn a_result_read_twice_has_one_sum_of_gradients() {
        // 16 blocks, whose input goes to the first convolution and to the shortcut.
        let network = shaped("resnet50");
        let sums = gradient_sums(&network, None);
        assert_eq!(sums.len(), 16);
        let elements = |dims: [u64; 3]| dims.iter().product::<u64>() * 2 * 4;
        // The last block's comes first: its input has 2048 channels.
        assert_eq!(sums[0].cost.read.get(), 2 * elements([2048, 7, 7]));
        assert_eq!(sums[0].cost.written.get(), elements([2048, 7, 7]));
        assert!(gradient_sums(&shaped("vgg16"), None).is_empty());
        // Nine inception modules, each of whose inputs four branches read.
        assert_eq!(gradient_sums(&shaped("googlenet"), None).len(), 27);
    }

    #[test]
    fn a_conversion_moves_six_bytes_a_value() {
        let network = shaped("vgg16");
        let name = "a".into();
        let of = |learned| conversion(&name, Converted { values: 1001, learned }, &network).expect("fits");
        let beside = of(false);
        assert_eq!((beside.cost.read.get(), beside.cost.written.get()), (4004, 2002));
        assert_eq!((beside.cost.weights.get(), of(true).cost.weights.get()), (0, 4004), "parameters come from memory");
        assert_eq!(beside.layer.output.dims(), [8, 64], "rows of a sample's part of a batch of two");
    }

    #[test]
    fn an_update_of_all_parameters_passes_over_them_as_often_as_the_framework_does() {
        let pytorch = catalog::framework("pytorch").expect("shipped");
        let fused = pytorch.fused_update.expect("updates all at once");
        let network = shaped("vgg16");
        let update = fused_update(&network, &fused, false).expect("learns");
        assert_eq!(update.cost.bytes().get(), network.parameters() * 4 * 8);
    }
}
