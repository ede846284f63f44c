//! What is checked: every kind, phase, precision and layout.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::{InvalidShape, Shape};
use joulecast_model::kernel::setting::{Algorithm, Layout};
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::ShapeError;
use joulecast_model::net::layer::{
    Activation, AdaptivePool2d, Add, BatchNorm, Concat, Conv2d, ConvTranspose2d, Dropout, Function, GlobalPool2d,
    Groups, Layer, LayerNorm, LayerOp, Linear, LocalResponseNorm, Matmul, Multiply, Optimizer, Pad, Pair, Pool2d,
    PoolOp, Scale, Softmax,
};

/// Trials that touch every kind, phase, precision and layout, at sizes that divide by nothing and at usual ones.
///
/// # Errors
/// Never for the sizes written here.
pub fn trials() -> Result<Vec<Trial>, ShapeError> {
    let mut trials = Vec::new();
    for precision in [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16] {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            for (case, batch) in cases()? {
                let product = matches!(
                    case.layer,
                    Layer::Conv2d(_) | Layer::ConvTranspose2d(_) | Layer::Linear(_) | Layer::Matmul(_)
                );
                // Only products know TF32; rows and matrices know no layout.
                let matrix = matches!(case.layer, Layer::Matmul(_));
                let map = !matrix && case.inputs.first().is_some_and(|s| s.as_map().is_some());
                if (precision == Precision::Tf32 && !product) || (layout == Layout::Nhwc && !map) {
                    continue;
                }
                for mode in [Mode::Inference, Mode::Training] {
                    for &phase in mode.phases() {
                        for optimizer in optimizers(phase) {
                            let trial = Trial {
                                layout,
                                optimizer,
                                ..Trial::usual(case.clone(), phase, batch, precision, mode)?
                            };
                            let learns = case.layer.parameters(&case.inputs) > 0;
                            let runs = phase != Phase::Update || (learns && layout == Layout::Nchw && !product);
                            let linear_update = phase == Phase::Update && matches!(case.layer, Layer::Linear(_));
                            if (runs || linear_update) && matches!(trial.cost(), Ok(Some(_))) {
                                trials.push(trial);
                            }
                        }
                    }
                }
            }
        }
    }
    let named = Algorithm::ALL.iter().filter(|a| **a != Algorithm::Heuristic);
    for (algorithm, phase) in named.flat_map(|a| [Phase::Forward, Phase::BackwardData].map(|p| (*a, p))) {
        let case = LayerCase { inputs: vec![Shape::map(16, 20, 20)?], layer: convolution(32, 3, 1, Groups::Count(1)) };
        let trial = Trial::usual(case, phase, 4, Precision::Fp32, Mode::Training)?;
        trials.push(Trial { algorithm, ..trial });
    }
    Ok(trials)
}

fn optimizers(phase: Phase) -> Vec<Option<Optimizer>> {
    match phase {
        Phase::Update => Optimizer::ALL.iter().copied().map(Some).collect(),
        _ => vec![None],
    }
}

fn convolution(channels: u64, kernel: u64, stride: u64, groups: Groups) -> Layer {
    Layer::Conv2d(Conv2d {
        channels,
        kernel: Pair::square(kernel),
        stride: Pair::square(stride),
        padding: Pair::square(kernel / 2),
        dilation: Pair::square(1),
        groups,
        bias: true,
    })
}

fn transposed(channels: u64, kernel: u64, stride: u64, groups: Groups) -> Layer {
    Layer::ConvTranspose2d(ConvTranspose2d {
        channels,
        kernel: Pair::square(kernel),
        stride: Pair::square(stride),
        padding: Pair::square((kernel - stride) / 2),
        output_padding: Pair::square((kernel - stride) % 2),
        dilation: Pair::square(1),
        groups,
        bias: true,
    })
}

fn pool(op: PoolOp, kernel: u64, stride: u64, padding: u64, ceil: bool) -> Layer {
    Layer::Pool2d(Pool2d {
        op,
        kernel: Pair::square(kernel),
        stride: Some(Pair::square(stride)),
        padding: Pair::square(padding),
        ceil,
    })
}

fn cases() -> Result<Vec<(LayerCase, u64)>, InvalidShape> {
    let mut cases = Vec::new();
    let mut add = |layer: Layer, inputs: Vec<Shape>, batch: u64| cases.push((LayerCase { inputs, layer }, batch));
    let (odd, even) = (Shape::map(7, 13, 11)?, Shape::map(32, 16, 16)?);
    for function in Function::ALL {
        add(Layer::Activation(Activation { function: *function }), vec![odd], 3);
        add(Layer::Activation(Activation { function: *function }), vec![even], 4);
    }
    for shape in [odd, even] {
        for affine in [true, false] {
            add(Layer::BatchNorm(BatchNorm { affine }), vec![shape], 5);
            add(Layer::LayerNorm(LayerNorm { affine }), vec![shape], 5);
        }
        for bias in [true, false] {
            add(Layer::Scale(Scale { bias }), vec![shape], 3);
        }
        for size in [5, 3] {
            add(Layer::LocalResponseNorm(LocalResponseNorm { size }), vec![shape], 2);
        }
        add(Layer::Softmax(Softmax::default()), vec![shape], 3);
        add(Layer::Dropout(Dropout { probability: 0.3 }), vec![shape], 3);
        add(Layer::Add(Add {}), vec![shape, shape], 3);
        add(Layer::Add(Add {}), vec![shape, shape, shape, shape], 3);
        add(Layer::Multiply(Multiply {}), vec![shape, shape], 3);
        add(Layer::Multiply(Multiply {}), vec![shape, Shape::map(shape.axis(), 1, 1)?], 3);
        add(Layer::Concat(Concat::default()), vec![shape, shape], 3);
        add(Layer::Pad(Pad { padding: [1, 0, 2, 1], mirrors: false }), vec![shape], 3);
        for op in [PoolOp::Max, PoolOp::Avg] {
            for (kernel, stride, padding, ceil) in
                [(2, 2, 0, false), (3, 2, 1, false), (3, 2, 0, true), (3, 1, 1, false)]
            {
                add(pool(op, kernel, stride, padding, ceil), vec![shape], 3);
            }
            add(Layer::GlobalPool2d(GlobalPool2d { op }), vec![shape], 3);
            add(Layer::AdaptivePool2d(AdaptivePool2d { op, output: Pair::square(5) }), vec![shape], 3);
        }
    }
    for features in [13, 256] {
        let row = Shape::new(&[features])?;
        let rows = Shape::new(&[9, features])?;
        add(Layer::BatchNorm(BatchNorm { affine: true }), vec![row], 33);
        add(Layer::LayerNorm(LayerNorm { affine: true }), vec![rows], 4);
        add(Layer::Softmax(Softmax::default()), vec![rows], 4);
        add(Layer::Linear(Linear { features: 24, bias: true }), vec![row], 16);
        add(Layer::Linear(Linear { features: 40, bias: false }), vec![rows], 8);
    }
    add(Layer::LayerNorm(LayerNorm { affine: true }), vec![Shape::new(&[3, 5000])?], 2);
    add(Layer::Softmax(Softmax::default()), vec![Shape::new(&[3, 5000])?], 2);
    // Rows for many threads and rows beyond their registers.
    for dims in [&[3, 768][..], &[1, 20_000], &[1, 20_001]] {
        add(Layer::LayerNorm(LayerNorm { affine: true }), vec![Shape::new(dims)?], 1);
        add(Layer::Softmax(Softmax::default()), vec![Shape::new(dims)?], 1);
    }
    for (channels, side, batch) in [(256, 8, 2), (600, 4, 1), (300, 5, 1)] {
        add(Layer::LayerNorm(LayerNorm { affine: true }), vec![Shape::map(channels, side, side)?], batch);
    }
    // Planes that share blocks, planes that several blocks share.
    for (map, batch) in [(Shape::map(550, 5, 7)?, 2), (Shape::map(1, 120, 101)?, 1)] {
        add(Layer::Pad(Pad { padding: [1, 0, 2, 1], mirrors: false }), vec![map], batch);
        for op in [PoolOp::Max, PoolOp::Avg] {
            for (kernel, stride, padding) in [(2, 2, 0), (3, 2, 1), (3, 1, 1), (4, 3, 2)] {
                add(pool(op, kernel, stride, padding, false), vec![map], batch);
            }
            add(Layer::AdaptivePool2d(AdaptivePool2d { op, output: Pair::square(5) }), vec![map], batch);
        }
    }
    add(Layer::Matmul(Matmul::default()), vec![Shape::new(&[3, 17, 32])?, Shape::new(&[3, 32, 24])?], 2);
    add(Layer::Matmul(Matmul::default()), vec![Shape::new(&[40, 16])?, Shape::new(&[16, 8])?], 3);
    for (channels, kernel, stride, groups) in [
        (16, 3, 1, Groups::Count(1)),
        (24, 1, 1, Groups::Count(1)),
        (24, 3, 2, Groups::Count(4)),
        (32, 3, 1, Groups::Depthwise),
        (32, 5, 2, Groups::Depthwise),
        (16, 7, 2, Groups::Count(1)),
    ] {
        add(convolution(channels, kernel, stride, groups), vec![even], 4);
    }
    for (channels, kernel, stride, groups) in [
        (16, 2, 2, Groups::Count(1)),
        (24, 3, 2, Groups::Count(1)),
        (16, 4, 2, Groups::Count(2)),
        (32, 4, 2, Groups::Depthwise),
    ] {
        add(transposed(channels, kernel, stride, groups), vec![even], 4);
    }
    Ok(cases)
}
