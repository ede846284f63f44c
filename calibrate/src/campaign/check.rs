//! `calibrate check`: does the GPU compute what the layers mean, and how near do our kernels come to its ceilings?

use anyhow::Result;
use joulecast_kernels::cuda::{CudaRunner, ceilings, check};
use joulecast_kernels::{DeviceError, LayerRunner};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::Bytes;
use joulecast_model::kernel::setting::{Cache, Layout};
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::ShapeError;
use joulecast_model::net::layer::{
    Activation, AdaptivePool2d, Add, BatchNorm, Concat, Dropout, Function, GlobalPool2d, Layer, LayerNorm, Linear,
    LocalResponseNorm, Multiply, Optimizer, Pad, Pair, Pool2d, PoolOp, Scale, Softmax,
};
use joulecast_reports::check::{Bandwidth, Ceiling, Unlike};
use joulecast_reports::table::Table;
use std::time::{Duration, Instant};

/// Traffic at which kernels are compared with the copy.
const TRAFFIC: Bytes = Bytes::new(256 << 20);

/// A kernel is near the copy from this share of its bandwidth on.
const NEAR: f64 = 0.9;

/// Compares every kind, phase, precision and layout with the reference. Returns the report and whether all agree.
///
/// # Errors
/// When the device is lost.
pub fn agreement(runner: &mut CudaRunner) -> Result<(String, bool)> {
    let mut unlike = Vec::new();
    let (mut compared, mut trials, mut failed) = (0usize, 0usize, 0usize);
    let mut unsupported = 0usize;
    for trial in check::trials()? {
        let differs = |what: String, error: String| Unlike {
            kind: trial.case.layer.kind(),
            phase: trial.phase,
            precision: trial.precision,
            layout: trial.layout,
            mode: format!("{} {}", trial.mode, trial.algorithm),
            what,
            error,
        };
        match check::check(runner, &trial) {
            Ok(list) => {
                trials += 1;
                for one in list {
                    compared += one.values;
                    if one.worst > 1.0 {
                        failed += 1;
                        unlike.push(differs(one.tensor, format!("{:.2}", one.worst)));
                    }
                }
            }
            Err(error @ DeviceError::Lost(_)) => return Err(error.into()),
            Err(error) => {
                unsupported += 1;
                unlike.push(differs(error.to_string(), "not run".to_string()));
            }
        }
    }
    let summary = format!("{trials} trials, {compared} values compared: {failed} disagree, {unsupported} not run\n");
    let text = if failed + unsupported > 0 { Table::of(&unlike).to_text() + &summary } else { summary };
    Ok((text, failed == 0))
}

/// Copy bandwidth, multiply-add rate and square matrix products.
///
/// # Errors
/// When the device fails.
pub fn ceilings(runner: &mut CudaRunner) -> Result<String> {
    let mut list = Vec::new();
    let arithmetic = |name: String, rate: f64| Ceiling { name, value: format!("{:.1}", rate * 1e-12), unit: "TFLOP/s" };
    for mib in [64u64, 256, 1024, 4096] {
        ceilings::load_copy(runner, Precision::Fp32, Bytes::new(mib << 20))?;
        let rate = (mib << 20) as f64 / runner.median_time()?.get();
        let name = format!("copy, {mib} MiB of traffic");
        list.push(Ceiling { name, value: format!("{:.3}", rate * 1e-12), unit: "TB/s" });
    }
    let ops = ceilings::load_multiply_add(runner)?;
    let rate = ops as f64 / runner.median_time()?.get();
    list.push(arithmetic("fp32 multiply-add".into(), rate));
    for precision in [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16] {
        let trial = ceilings::square_product(precision)?;
        let Some(cost) = trial.cost()? else { continue };
        runner.load(&trial)?;
        let rate = cost.ops.to_f64() / runner.median_time()?.get();
        list.push(arithmetic(format!("{precision} matrix product, 8192, burst"), rate));
        let rate = cost.ops.to_f64() / sustained(runner)?;
        list.push(arithmetic(format!("{precision} matrix product, 8192, sustained"), rate));
    }
    Ok(Table::of(&list).to_text())
}

/// Seconds of one execution of what is loaded, after it ran for long enough that the power limit has acted.
fn sustained(runner: &mut CudaRunner) -> Result<f64> {
    const SETTLE: Duration = Duration::from_millis(700);
    let begun = Instant::now();
    while begun.elapsed() < SETTLE {
        runner.enqueue()?;
        runner.enqueue()?;
        runner.finished(true)?;
    }
    Ok(runner.median_time()?.get())
}

/// Bandwidth of every bandwidth-bound kernel at 256 MiB of traffic, beside the copy's.
///
/// # Errors
/// When the device fails.
pub fn bandwidths(runner: &mut CudaRunner) -> Result<String> {
    let mut list = Vec::new();
    ceilings::load_copy(runner, Precision::Fp32, TRAFFIC)?;
    let copy = TRAFFIC.to_f64() / runner.median_time()?.get();
    let (mut all, mut near) = (0, 0);
    for trial in streaming_trials()? {
        let Some(cost) = trial.cost()? else { continue };
        match runner.load(&trial) {
            Ok(_) => {}
            Err(error @ DeviceError::Lost(_)) => return Err(error.into()),
            Err(_) => continue,
        }
        let rate = cost.bytes().to_f64() / runner.median_time()?.get();
        all += 1;
        near += usize::from(rate >= NEAR * copy);
        list.push(Bandwidth {
            kind: trial.case.layer.kind(),
            phase: trial.phase,
            mode: trial.optimizer.map_or_else(|| trial.mode.to_string(), |o| o.to_string()),
            precision: trial.precision,
            layout: trial.layout,
            tb_per_s: rate * 1e-12,
            of_copy: rate / copy,
        });
    }
    Ok(Table::of(&list).to_text() + &format!("{near} of {all} within 10 % of the copy's {:.2} TB/s\n", copy * 1e-12))
}

/// Every bandwidth-bound kind and phase at 256 MiB of traffic.
fn streaming_trials() -> Result<Vec<Trial>, ShapeError> {
    let map = Shape::map(256, 56, 56)?;
    let factor = Shape::map(256, 1, 1)?;
    let rows = Shape::new(&[196, 768])?;
    let pool = |op, kernel, stride, padding| {
        let (kernel, stride, padding) = (Pair::square(kernel), Some(Pair::square(stride)), Pair::square(padding));
        Layer::Pool2d(Pool2d { op, kernel, stride, padding, ceil: false })
    };
    let activations = Function::ALL.iter().map(|&function| (Layer::Activation(Activation { function }), vec![map]));
    let others: Vec<(Layer, Vec<Shape>)> = vec![
        (Layer::BatchNorm(BatchNorm { affine: true }), vec![map]),
        (Layer::Scale(Scale { bias: true }), vec![map]),
        (Layer::LayerNorm(LayerNorm { affine: true }), vec![rows]),
        (Layer::LayerNorm(LayerNorm { affine: true }), vec![map]),
        (Layer::Softmax(Softmax::default()), vec![rows]),
        (Layer::LocalResponseNorm(LocalResponseNorm { size: 5 }), vec![map]),
        (Layer::Dropout(Dropout { probability: 0.5 }), vec![map]),
        (Layer::Add(Add {}), vec![map, map]),
        (Layer::Multiply(Multiply {}), vec![map, factor]),
        (Layer::Concat(Concat::default()), vec![map, map]),
        (Layer::Pad(Pad { padding: [1, 1, 1, 1], mirrors: false }), vec![map]),
        (pool(PoolOp::Max, 3, 2, 1), vec![map]),
        (pool(PoolOp::Max, 2, 2, 0), vec![map]),
        (pool(PoolOp::Avg, 3, 1, 1), vec![map]),
        (Layer::GlobalPool2d(GlobalPool2d { op: PoolOp::Avg }), vec![map]),
        (Layer::AdaptivePool2d(AdaptivePool2d { op: PoolOp::Avg, output: Pair::square(7) }), vec![map]),
        (Layer::Linear(Linear { features: 4096, bias: false }), vec![Shape::new(&[4096])?]),
    ];
    let mut trials = Vec::new();
    for (layer, inputs) in activations.chain(others) {
        for precision in [Precision::Fp32, Precision::Fp16] {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                let is_map = inputs.first().is_some_and(|s| s.as_map().is_some());
                if layout == Layout::Nhwc && !is_map {
                    continue;
                }
                for mode in [Mode::Inference, Mode::Training] {
                    for &phase in mode.phases() {
                        let product = matches!(layer, Layer::Linear(_));
                        if (phase == Phase::Update) != product {
                            continue;
                        }
                        let differs =
                            matches!(layer, Layer::BatchNorm(_) | Layer::Dropout(_) | Layer::LocalResponseNorm(_));
                        if mode == Mode::Training && phase == Phase::Forward && !differs {
                            continue;
                        }
                        let optimizers: &[Option<Optimizer>] = if product {
                            &[Some(Optimizer::Sgd), Some(Optimizer::Momentum), Some(Optimizer::Adam)]
                        } else {
                            &[None]
                        };
                        for &optimizer in optimizers {
                            let case = LayerCase { inputs: inputs.clone(), layer: layer.clone() };
                            let one = Trial {
                                layout,
                                cache: Cache::Cold,
                                optimizer,
                                ..Trial::usual(case, phase, 1, precision, mode)?
                            };
                            let fitting = one.footprint().ok().and_then(|b| TRAFFIC.get().checked_div(b.get()));
                            if let Some(batch) = fitting {
                                trials.push(Trial { batch: batch.max(1), ..one });
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(trials)
}
