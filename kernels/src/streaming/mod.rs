//! Our own kernels for layers that are bound by memory bandwidth: which functions run for a trial, with which grids
//! and arguments. Pure: nothing here touches a GPU.

mod channels;
mod copies;
mod elementwise;
mod maps;
mod normalization;
mod optimizer;
mod plan;
mod pooling;
mod reductions;
mod source;

pub use copies::{
    accumulate, bias_address, bias_gradient_launches, bias_gradient_scratch, bias_launches, cast, copy, fill_constant,
    fill_normal, fma_burn, fma_burn_values,
};
pub use elementwise::DROPOUT_SEED;
pub(crate) use elementwise::dropout_threshold;
pub use normalization::{ALPHA, BETA, EPSILON, MOMENTUM};
pub use optimizer::{ADAM_EPSILON, BETA1, BETA2, MOMENTUM as OPTIMIZER_MOMENTUM, RATE, update_launches};
pub use plan::Limits;
pub use source::{Module, functions, module, source};

use crate::DeviceError;
use crate::launch::{KernelLaunch, Operands};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::Bytes;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::layer::{Layer, LayerOp, ShapeError};
use plan::{Format, Plan, View, unsupported};
use pooling::Pooling;

/// Whether our own kernels run this trial: everything but convolutions and matrix products, and every update.
pub fn covers(trial: &Trial) -> bool {
    let product =
        matches!(trial.case.layer, Layer::Conv2d(_) | Layer::ConvTranspose2d(_) | Layer::Linear(_) | Layer::Matmul(_));
    trial.phase == Phase::Update || !product
}

/// Why a trial of a kind that only frameworks are measured with cannot run.
const NO_KERNEL: &str = "there is no kernel of our own for it; it is measured through a framework";

/// Whether our own kernels compute this form of the layer: sums of equal shapes, products of equal shapes or with a
/// factor per channel, softmax and concatenation along their usual dimension, padding with zeros.
fn has_kernel(trial: &Trial) -> bool {
    let inputs = &trial.case.inputs;
    let equal = || inputs.iter().all(|s| Some(s) == inputs.first());
    match &trial.case.layer {
        Layer::Add(_) => equal(),
        Layer::Multiply(_) => {
            let per_channel = |a: &Shape, b: &Shape| b.as_map() == Some((a.axis(), 1, 1));
            equal() || matches!(inputs.as_slice(), [a, b] if per_channel(a, b))
        }
        Layer::Softmax(softmax) => !softmax.last && !softmax.middle,
        Layer::Concat(concat) => concat.axis.is_none(),
        Layer::Pad(pad) => !pad.mirrors,
        _ => true,
    }
}

/// The launches of a trial, in order; none where no kernel runs (a view, the gradient of a sum, dropout in inference).
///
/// # Errors
/// [`DeviceError::Unsupported`] for convolutions and matrix products, for int8, for inputs the layer does not take,
/// for sizes beyond the device's grid and where an operand that is needed has no address in `operands`' lists.
pub fn launches(trial: &Trial, operands: &Operands, device: &Limits) -> Result<Vec<KernelLaunch>, DeviceError> {
    let layer = &trial.case.layer;
    let cost = trial.cost().map_err(|e| does_not_fit(layer, &e))?;
    if !covers(trial) {
        return Err(unsupported(layer.kind(), "convolutions and matrix products run in vendor libraries"));
    }
    let mut plan = Plan::new(trial.precision, device)?;
    if cost.is_none() {
        return Ok(Vec::new());
    }
    if trial.phase == Phase::Update {
        let count = layer.parameters(&trial.case.inputs);
        return match trial.optimizer {
            Some(optimizer) => {
                let precision = if parameters_in_fp32(layer) { Precision::Fp32 } else { trial.precision };
                update_launches(optimizer, RATE, count, precision, operands, device)
            }
            None => Err(unsupported("update", "the trial names no optimizer")),
        };
    }
    let (input, output, view) = shapes(trial)?;
    let n = view.values();
    let (phase, mode) = (trial.phase, trial.mode);
    if !has_kernel(trial) {
        return Err(unsupported(layer.kind(), NO_KERNEL));
    }
    match layer {
        Layer::Activation(a) => elementwise::activation(&mut plan, a.function, phase, n, operands),
        Layer::Add(_) => elementwise::add(&mut plan, &operands.inputs, operands.output, n),
        Layer::Multiply(_) => {
            let same = trial.case.inputs.iter().all(|shape| *shape == input);
            elementwise::multiply(&mut plan, phase, view, same, operands)
        }
        Layer::Dropout(d) => elementwise::dropout(&mut plan, d.probability, phase, n, operands),
        Layer::BatchNorm(b) => normalization::batch_norm(&mut plan, b.affine, phase, mode, view, operands),
        Layer::LayerNorm(l) => normalization::layer_norm(&mut plan, l.affine, phase, mode, view, operands),
        Layer::Scale(s) => normalization::scale(&mut plan, s.bias, phase, view, operands),
        Layer::Softmax(_) => normalization::softmax(&mut plan, phase, view, operands),
        Layer::LocalResponseNorm(l) => {
            normalization::local_response_norm(&mut plan, l.size, phase, mode, view, operands)
        }
        Layer::Pool2d(_) | Layer::GlobalPool2d(_) | Layer::AdaptivePool2d(_) => match pooling(trial)? {
            Some(pooling) => pooling.launches(&mut plan, phase, operands),
            None => Ok(()),
        },
        Layer::Concat(_) => {
            let gather = phase == Phase::Forward;
            let (whole, addresses) = if gather {
                (operands.output, &operands.inputs)
            } else {
                (operands.grad_output, &operands.grad_inputs)
            };
            if addresses.len() != trial.case.inputs.len() {
                return Err(unsupported(layer.kind(), "an input has no address"));
            }
            let views = trial.case.inputs.iter().map(|shape| View::of(shape, trial.batch, trial.layout));
            let parts: Vec<_> = addresses.iter().copied().zip(views).collect();
            copies::concat(&mut plan, whole, &parts, gather)
        }
        Layer::Pad(p) => {
            let forward = phase == Phase::Forward;
            let (inner, outer) = if forward {
                (elementwise::input(operands, 0)?, operands.output)
            } else {
                (elementwise::grad_input(operands, 0)?, operands.grad_output)
            };
            let maps = ((inner, input), (outer, output));
            copies::pad(&mut plan, maps.0, maps.1, p.padding, trial.batch, trial.layout, forward)
        }
        Layer::Flatten(_) | Layer::Conv2d(_) | Layer::ConvTranspose2d(_) | Layer::Linear(_) | Layer::Matmul(_) => {
            Ok(())
        }
        other => Err(unsupported(other.kind(), NO_KERNEL)),
    }?;
    Ok(plan.launches)
}

/// Scratch memory that the launches of a trial need, on any device: `Operands::scratch`.
///
/// # Errors
/// As [`launches`].
pub fn scratch(trial: &Trial) -> Result<Bytes, DeviceError> {
    let (_, _, view) = shapes(trial)?;
    let lanes = Format::of(trial.precision)?.lanes();
    let phase = trial.phase;
    if phase == Phase::Update {
        return Ok(Bytes::ZERO);
    }
    let bytes = match &trial.case.layer {
        Layer::BatchNorm(_) if phase == Phase::Forward && trial.mode == Mode::Inference => 0,
        Layer::BatchNorm(_) => normalization::batch_norm_scratch(phase, view, lanes),
        Layer::LayerNorm(l) => normalization::layer_norm_scratch(l.affine, phase, view, lanes),
        Layer::Scale(_) => normalization::scale_scratch(phase, view, lanes),
        Layer::Multiply(_) if phase == Phase::BackwardData => elementwise::multiply_scratch(view, lanes),
        _ => pooling(trial)?.map_or(0, |pooling| pooling.scratch(phase, lanes)),
    };
    Ok(Bytes::new(bytes))
}

/// Size of `Operands::saved`: what forward in training keeps for backward; zero where nothing is kept.
///
/// # Errors
/// As [`launches`].
pub fn saved(trial: &Trial) -> Result<Bytes, DeviceError> {
    let (_, _, view) = shapes(trial)?;
    let format = Format::of(trial.precision)?;
    let keeps = match trial.phase {
        Phase::Forward => trial.mode == Mode::Training,
        Phase::BackwardData | Phase::BackwardWeights => true,
        Phase::Update => false,
    };
    if !keeps {
        return Ok(Bytes::ZERO);
    }
    Ok(Bytes::new(match &trial.case.layer {
        Layer::BatchNorm(_) => 8 * view.channels,
        Layer::LayerNorm(_) => 8 * view.positions(),
        Layer::Dropout(_) => view.values(),
        Layer::LocalResponseNorm(_) => format.bytes * view.values(),
        _ => 0,
    }))
}

/// Whether a layer's parameters and their gradients are in fp32 whatever the precision.
pub fn parameters_in_fp32(layer: &Layer) -> bool {
    matches!(layer, Layer::BatchNorm(_) | Layer::LayerNorm(_) | Layer::Scale(_))
}

fn does_not_fit(layer: &Layer, error: &ShapeError) -> DeviceError {
    unsupported(layer.kind(), &error.to_string())
}

/// First input, output, and the first input's view.
fn shapes(trial: &Trial) -> Result<(Shape, Shape, View), DeviceError> {
    let case = &trial.case;
    let output = case.output().map_err(|e| does_not_fit(&case.layer, &e))?;
    let input = *case.inputs.first().ok_or_else(|| unsupported(case.layer.kind(), "there is no input"))?;
    if trial.batch == 0 {
        return Err(unsupported(case.layer.kind(), "a batch of 0 samples"));
    }
    Ok((input, output, View::of(&input, trial.batch, trial.layout)))
}

fn pooling(trial: &Trial) -> Result<Option<Pooling>, DeviceError> {
    let (input, output, view) = shapes(trial)?;
    let (op, window) = match &trial.case.layer {
        Layer::Pool2d(p) => (p.op, Some(p.window())),
        Layer::GlobalPool2d(p) => (p.op, None),
        Layer::AdaptivePool2d(p) => (p.op, None),
        _ => return Ok(None),
    };
    Ok(Some(Pooling { op, window, input, output, view }))
}

#[cfg(test)]
pub(crate) mod tests;
