use super::*;
use crate::streaming::tests::{cases, trials};
use joulecast_model::base::precision::Mode;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{
    Conv2d, ConvTranspose2d, Groups, Linear, LocalResponseNorm, Matmul, Measured, Pair, PoolOp, Softmax,
};

fn shape(dims: &[u64]) -> Shape {
    Shape::new(dims).expect("a test shape")
}

fn trial(inputs: &[Shape], layer: Layer, phase: Phase, batch: u64) -> Trial {
    let case = LayerCase { inputs: inputs.to_vec(), layer };
    Trial::usual(case, phase, batch, Precision::Fp32, Mode::Training).expect("fits")
}

/// Values that look random, with distances between them so that no finite step changes which is largest.
fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1009) as f32 / 250.0 - 2.01).collect()
}

fn conv(channels: u64, groups: u64, stride: u64, dilation: u64) -> Layer {
    Layer::Conv2d(Conv2d {
        channels,
        kernel: Pair { h: 3, w: 2 },
        stride: Pair { h: stride, w: 1 },
        padding: Pair { h: 1, w: 2 },
        dilation: Pair { h: dilation, w: 1 },
        groups: Groups::Count(groups),
        bias: true,
    })
}

fn transposed(channels: u64, groups: u64, stride: u64) -> Layer {
    Layer::ConvTranspose2d(ConvTranspose2d {
        channels,
        kernel: Pair { h: 3, w: 2 },
        stride: Pair { h: stride, w: 1 },
        padding: Pair { h: 1, w: 0 },
        output_padding: Pair { h: 1, w: 0 },
        dilation: Pair { h: 1, w: 2 },
        groups: Groups::Count(groups),
        bias: true,
    })
}

fn forward(inputs: &[Shape], layer: Layer, batch: u64, given: Tensors) -> Tensors {
    run(&trial(inputs, layer, Phase::Forward, batch), &given).expect("runs")
}

#[test]
fn a_convolution_by_hand() {
    // One 2x2 window of ones with a hole, stride 1, no padding, on 1 2 3 / 4 5 6 / 7 8 9; bias 0.5.
    let layer = Layer::Conv2d(Conv2d {
        channels: 1,
        kernel: Pair::square(2),
        stride: Pair::square(1),
        padding: Pair::square(0),
        dilation: Pair::square(1),
        groups: Groups::Count(1),
        bias: true,
    });
    let x: Vec<f32> = (1..=9).map(|v| v as f32).collect();
    let given = Tensors { inputs: vec![x], parameters: vec![1.0, 0.0, 2.0, 3.0, 0.5], ..Tensors::default() };
    let output = forward(&[shape(&[1, 3, 3])], layer, 1, given).output;
    assert_eq!(output, [24.5, 30.5, 42.5, 48.5]);
}

#[test]
fn a_transposed_convolution_by_hand() {
    // 1 2 / 3 4 through a window of 1 10 / 100 1000 at stride 2: each element times the window, side by side; bias 0.5.
    let layer = Layer::ConvTranspose2d(ConvTranspose2d {
        channels: 1,
        kernel: Pair::square(2),
        stride: Pair::square(2),
        padding: Pair::square(0),
        output_padding: Pair::square(0),
        dilation: Pair::square(1),
        groups: Groups::Count(1),
        bias: true,
    });
    let parameters = vec![1.0, 10.0, 100.0, 1000.0, 0.5];
    let given = Tensors { inputs: vec![vec![1.0, 2.0, 3.0, 4.0]], parameters, ..Tensors::default() };
    let output = forward(&[shape(&[1, 2, 2])], layer, 1, given).output;
    let rows = [
        [1.5, 10.5, 2.5, 20.5],
        [100.5, 1000.5, 200.5, 2000.5],
        [3.5, 30.5, 4.5, 40.5],
        [300.5, 3000.5, 400.5, 4000.5],
    ];
    assert_eq!(output, rows.concat());
}

#[test]
fn products_by_hand() {
    let linear = Layer::Linear(Linear { features: 2, bias: true });
    let given = Tensors {
        inputs: vec![vec![1.0, 2.0, 3.0]],
        parameters: vec![1.0, 0.0, -1.0, 2.0, 2.0, 2.0, 10.0, 20.0],
        ..Tensors::default()
    };
    assert_eq!(forward(&[shape(&[3])], linear, 1, given).output, [8.0, 32.0]);
    let given = Tensors { inputs: vec![vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0, 8.0]], ..Tensors::default() };
    let squares = [shape(&[2, 2]); 2];
    assert_eq!(forward(&squares, Layer::Matmul(Matmul::default()), 1, given).output, [19.0, 22.0, 43.0, 50.0]);
}

#[test]
fn softmax_and_pooling_by_hand() {
    let given = Tensors { inputs: vec![vec![0.0, 3f32.ln()]], ..Tensors::default() };
    let output = forward(&[shape(&[2])], Layer::Softmax(Softmax::default()), 1, given).output;
    assert!((output[0] - 0.25).abs() < 1e-6 && (output[1] - 0.75).abs() < 1e-6);

    // 3x3 windows at stride 2 on a 4x4 map with padding 1, rounded up: windows begin at -1, 1, 3, and the last one
    // reaches the end of the padding at 5, so it counts 2 positions along each direction.
    let avg = Layer::Pool2d(joulecast_model::net::layer::Pool2d {
        op: PoolOp::Avg,
        kernel: Pair::square(3),
        stride: Some(Pair::square(2)),
        padding: Pair::square(1),
        ceil: true,
    });
    let x: Vec<f32> = (0..16).map(|v| v as f32).collect();
    let output = forward(&[shape(&[1, 4, 4])], avg, 1, Tensors { inputs: vec![x], ..Tensors::default() }).output;
    assert_eq!(output.len(), 9);
    assert_eq!(output[0], 10.0 / 9.0);
    assert_eq!(output[8], 15.0 / 4.0);
}

#[test]
fn equal_maxima_give_the_gradient_to_the_first() {
    let max = Layer::Pool2d(joulecast_model::net::layer::Pool2d {
        op: PoolOp::Max,
        kernel: Pair::square(2),
        stride: None,
        padding: Pair::square(0),
        ceil: false,
    });
    let given = Tensors {
        inputs: vec![vec![0.0, 1.0, 1.0, 1.0]],
        output: vec![1.0],
        grad_output: vec![5.0],
        ..Tensors::default()
    };
    let found = run(&trial(&[shape(&[1, 2, 2])], max, Phase::BackwardData, 1), &given).expect("runs");
    assert_eq!(found.grad_inputs, [[0.0, 5.0, 0.0, 0.0]]);
}

#[test]
fn response_norm_by_hand() {
    // Two channels, window 5: both squares in both sums.
    let given = Tensors { inputs: vec![vec![100.0, 200.0]], ..Tensors::default() };
    let layer = Layer::LocalResponseNorm(LocalResponseNorm { size: 5 });
    let found = forward(&[shape(&[2, 1, 1])], layer, 1, given);
    // d = 1 + 1e-4 / 5 * (10000 + 40000) = 2
    assert!((found.saved[0] - 2.0).abs() < 1e-6);
    assert!((found.output[1] - 200.0 / 2f32.powf(0.75)).abs() < 1e-4);
}

/// The tensors of a case with plausible values.
fn filled(trial: &Trial) -> Tensors {
    let batch = trial.batch as usize;
    let shapes = &trial.case.inputs;
    let parameters = trial.case.layer.parameters(shapes) as usize;
    let axis = shapes[0].axis() as usize;
    Tensors {
        inputs: shapes.iter().enumerate().map(|(i, s)| values(batch * s.elements() as usize, i)).collect(),
        grad_output: values(batch * trial.case.output().expect("fits").elements() as usize, 77),
        parameters: values(parameters, 33),
        running: vec![0.5; 2 * axis],
        ..Tensors::default()
    }
}

/// sum(output * grad_output), in fp64.
fn loss(trial: &Trial, given: &Tensors) -> f64 {
    let forward = Trial { phase: Phase::Forward, ..trial.clone() };
    let output = run(&forward, given).expect("runs").output;
    output.iter().zip(&given.grad_output).map(|(&y, &g)| f64::from(y) * f64::from(g)).sum()
}

/// Gradients of the loss by central differences, for some of the values that `at` reaches.
fn compare(trial: &Trial, given: &Tensors, what: &str, gradient: &[f32], at: impl Fn(&mut Tensors) -> &mut Vec<f32>) {
    const STEP: f32 = 1.0 / 256.0;
    let stride = gradient.len().div_ceil(12);
    for i in (0..gradient.len()).step_by(stride) {
        let moved = |by: f32| {
            let mut tensors = given.clone();
            at(&mut tensors)[i] += by;
            loss(trial, &tensors)
        };
        let expected = (moved(STEP) - moved(-STEP)) / f64::from(2.0 * STEP);
        let found = f64::from(gradient[i]);
        let allowed = 2e-2 * (1.0 + expected.abs());
        assert!((found - expected).abs() <= allowed, "{what} {i}: {found} and {expected} in {trial:?}");
    }
}

/// Whether a case's function has a kink or a jump that a finite step may cross.
fn smooth(trial: &Trial) -> bool {
    match &trial.case.layer {
        Layer::Dropout(d) => d.probability < 1.0,
        // One value per channel: the normalized value does not depend on it but for the guard against division by 0.
        Layer::BatchNorm(_) | Layer::LayerNorm(_) => trial.case.inputs[0].elements() > 4,
        _ => true,
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let mut all = cases();
    for layer in [conv(6, 1, 1, 1), conv(6, 3, 2, 1), conv(4, 1, 2, 2)] {
        let channels = if matches!(&layer, Layer::Conv2d(c) if c.groups == Groups::Count(3)) { 3 } else { 2 };
        all.push(LayerCase { inputs: vec![shape(&[channels, 6, 5])], layer });
    }
    all.push(LayerCase { inputs: vec![shape(&[4, 3, 2])], layer: transposed(6, 2, 2) });
    all.push(LayerCase { inputs: vec![shape(&[4, 6])], layer: Layer::Linear(Linear { features: 5, bias: true }) });
    all.push(LayerCase { inputs: vec![shape(&[2, 3, 4]), shape(&[2, 4, 5])], layer: Layer::Matmul(Matmul::default()) });
    let mut compared = std::collections::BTreeSet::new();
    for case in all.iter().filter(|case| case.inputs[0].elements() < 1100) {
        let backward = trials(case, 2).into_iter().filter(|t| {
            t.precision == Precision::Fp32
                && t.layout == joulecast_model::kernel::setting::Layout::Nchw
                && t.mode == Mode::Training
                && t.optimizer.is_none()
                && t.phase != Phase::Forward
        });
        for trial in backward.filter(smooth) {
            let mut given = filled(&trial);
            let kept = run(&Trial { phase: Phase::Forward, ..trial.clone() }, &given).expect("runs");
            (given.output, given.saved) = (kept.output, kept.saved);
            let found = run(&trial, &given).expect("runs");
            for (k, gradient) in found.grad_inputs.iter().enumerate() {
                compare(&trial, &given, "input", gradient, |t| &mut t.inputs[k]);
                compared.insert((case.layer.kind(), "input"));
            }
            if !found.grad_parameters.is_empty() {
                compare(&trial, &given, "parameter", &found.grad_parameters, |t| &mut t.parameters);
                compared.insert((case.layer.kind(), "parameter"));
            }
        }
    }
    // Nothing flows back through a sum but the gradient itself.
    let left_out = |kind: &str| matches!(kind, "add" | "flatten") || Layer::measured(kind) != Measured::ByRunner;
    for kind in Layer::KINDS.iter().filter(|kind| !left_out(kind)) {
        assert!(compared.contains(&(*kind, "input")), "{kind} was not compared");
    }
    for kind in ["conv2d", "conv_transpose2d", "linear", "batch_norm", "layer_norm", "scale"] {
        assert!(compared.contains(&(kind, "parameter")), "{kind}'s parameters were not compared");
    }
}

#[test]
fn batch_norm_normalizes_and_moves_the_running_statistics() {
    let layer = Layer::BatchNorm(joulecast_model::net::layer::BatchNorm { affine: false });
    let given = Tensors { inputs: vec![vec![1.0, 3.0, 5.0, 7.0]], running: vec![0.0, 1.0], ..Tensors::default() };
    let found = forward(&[shape(&[1, 2, 2])], layer, 1, given);
    assert_eq!(found.saved[0], 4.0);
    assert!((found.saved[1] - 1.0 / 5f32.sqrt()).abs() < 1e-5);
    assert!((found.running[0] - 0.4).abs() < 1e-6);
    // The unbiased variance is 20 / 3.
    assert!((found.running[1] - (0.9 + 0.1 * 20.0 / 3.0)).abs() < 1e-5);
    let mean: f32 = found.output.iter().sum::<f32>() / 4.0;
    assert!(mean.abs() < 1e-6);
}

#[test]
fn adam_begins_with_a_step_of_the_learning_rate() {
    let layer = Layer::Linear(Linear { features: 1, bias: false });
    let mut trial = trial(&[shape(&[3])], layer, Phase::Update, 1);
    trial.optimizer = Some(joulecast_model::net::layer::Optimizer::Adam);
    let given = Tensors {
        master: vec![1.0; 3],
        grad_parameters: vec![0.5, -2.0, 0.0],
        state: vec![0.0; 6],
        ..Tensors::default()
    };
    let found = run(&trial, &given).expect("runs");
    for (weight, expected) in found.master.iter().zip([0.999, 1.001, 1.0]) {
        assert!((weight - expected).abs() < 1e-6, "{weight}");
    }
    assert!((found.state[1] + 0.2).abs() < 1e-6 && (found.state[4] - 0.004).abs() < 1e-6);
}

#[test]
fn wrong_lengths_are_errors() {
    let trial = trial(&[shape(&[3])], Layer::Softmax(Softmax::default()), Phase::Forward, 2);
    assert!(run(&trial, &Tensors { inputs: vec![vec![0.0; 5]], ..Tensors::default() }).is_err());
    assert!(run(&trial, &Tensors::default()).is_err());
    assert!(run(&trial, &Tensors { inputs: vec![vec![0.0; 6]], ..Tensors::default() }).is_ok());
}

#[test]
fn a_dropout_drops_its_share() {
    let layer = Layer::Dropout(joulecast_model::net::layer::Dropout { probability: 0.25 });
    let given = Tensors { inputs: vec![vec![3.0; 100_000]], ..Tensors::default() };
    let found = forward(&[shape(&[100_000])], layer, 1, given);
    let kept = found.saved.iter().sum::<f32>() / 1e5;
    // Five standard deviations of a mean of 100,000 draws are 0.007.
    assert!((kept - 0.75).abs() < 0.007, "{kept}");
    assert!(found.output.iter().zip(&found.saved).all(|(&y, &mask)| y == mask * 4.0));
}

#[test]
fn coarser_formats_and_longer_sums_tolerate_more() {
    let order = [Precision::Fp32, Precision::Fp16, Precision::Bf16].map(|p| tolerance(p, 100));
    assert!(order.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
    assert!(tolerance(Precision::Fp32, 10).1 < tolerance(Precision::Fp32, 1000).1);
    assert!(tolerance(Precision::Fp32, 100).1 < tolerance(Precision::Tf32, 100).1);
}
