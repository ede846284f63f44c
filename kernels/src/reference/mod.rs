//! What every layer computes, plainly: references on the CPU that the device's results are compared with.
//!
//! Tensors are vectors of fp32 in the order batch, channels, height, width (or batch, tokens, features), whatever the
//! trial's layout; sums are taken in fp64. Slow on purpose: nothing here is clever.

mod movement;
mod normalization;
mod pointwise;
mod pooling;
mod products;
mod update;

use crate::DeviceError;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::layer::{Layer, LayerOp};

/// Values of a layer's tensors, as [`crate::launch::Operands`] holds their addresses; empty where there is none.
/// Weights of a convolution are `[channels out, channels in per group, height, width]`, of a linear layer
/// `[features out, features in]`, each followed by the bias. `saved` holds a dropout's mask as 0 and 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors {
    /// Inputs.
    pub inputs: Vec<Vec<f32>>,
    /// Output.
    pub output: Vec<f32>,
    /// Gradient with respect to the output.
    pub grad_output: Vec<f32>,
    /// Gradients with respect to the inputs.
    pub grad_inputs: Vec<Vec<f32>>,
    /// Parameters.
    pub parameters: Vec<f32>,
    /// Gradients of the parameters.
    pub grad_parameters: Vec<f32>,
    /// Running mean, then running variance.
    pub running: Vec<f32>,
    /// What forward in training keeps for backward.
    pub saved: Vec<f32>,
    /// Fp32 master parameters.
    pub master: Vec<f32>,
    /// Optimizer state.
    pub state: Vec<f32>,
}

/// A tensor by its channels: the channels of a map, else the last dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    pub samples: usize,
    pub channels: usize,
    pub area: usize,
    map: bool,
}

impl Axes {
    pub fn of(shape: &Shape, batch: u64) -> Self {
        let channels = shape.axis() as usize;
        Self {
            samples: batch as usize,
            channels,
            area: shape.elements() as usize / channels,
            map: shape.as_map().is_some(),
        }
    }

    pub fn values(&self) -> usize {
        self.samples * self.channels * self.area
    }

    /// Index of channel `c` at position `s` of sample `n`.
    pub fn index(&self, n: usize, c: usize, s: usize) -> usize {
        if self.map { (n * self.channels + c) * self.area + s } else { (n * self.area + s) * self.channels + c }
    }

    /// Sample and position of every position of the batch.
    pub fn positions(&self) -> impl Iterator<Item = (usize, usize)> + Clone + use<> {
        let area = self.area;
        (0..self.samples * area).map(move |p| (p / area, p % area))
    }
}

/// Everything a trial writes, from everything it reads; what it does not write is empty. Where the phase runs no
/// kernel, everything is empty.
///
/// # Errors
/// [`DeviceError::Unsupported`] when the layer does not take these inputs or a tensor has the wrong length.
pub fn run(trial: &Trial, given: &Tensors) -> Result<Tensors, DeviceError> {
    let case = &trial.case;
    let wrong = |why: String| DeviceError::Unsupported { what: case.layer.kind().to_string(), why };
    if trial.cost().map_err(|e| wrong(e.to_string()))?.is_none() {
        return Ok(Tensors::default());
    }
    let output = case.output().map_err(|e| wrong(e.to_string()))?;
    check(trial, given, &output).map_err(|what| wrong(format!("{what} has the wrong number of values")))?;
    let (Some(input), phase) = (case.inputs.first(), trial.phase) else {
        return Err(wrong("there is no input".to_string()));
    };
    let axes = Axes::of(input, trial.batch);
    if phase == Phase::Update {
        return match trial.optimizer {
            Some(optimizer) => Ok(update::update(optimizer, given)),
            None => Err(wrong("the trial names no optimizer".to_string())),
        };
    }
    Ok(match &case.layer {
        Layer::Activation(a) => pointwise::activation(a.function, phase, given),
        Layer::Add(_) => pointwise::add(given),
        Layer::Multiply(_) => pointwise::multiply(phase, axes, given),
        Layer::Scale(s) => pointwise::scale(s.bias, phase, axes, given),
        Layer::Dropout(d) => pointwise::dropout(d.probability, phase, trial.layout, axes, given),
        Layer::BatchNorm(_) => normalization::batch_norm(phase, trial.mode, axes, given),
        Layer::LayerNorm(_) => normalization::layer_norm(phase, trial.mode, axes, given),
        Layer::Softmax(_) => normalization::softmax(phase, axes, given),
        Layer::LocalResponseNorm(l) => {
            normalization::local_response_norm(l.size as usize, phase, trial.mode, axes, given)
        }
        Layer::Pool2d(p) => pooling::pool(p.op, Some(&p.window()), phase, trial.batch, input, &output, given),
        Layer::GlobalPool2d(p) => pooling::pool(p.op, None, phase, trial.batch, input, &output, given),
        Layer::AdaptivePool2d(p) => pooling::pool(p.op, None, phase, trial.batch, input, &output, given),
        Layer::Concat(_) => movement::concat(phase, trial.batch, &case.inputs, &output, given),
        Layer::Pad(p) => movement::pad(p.padding, phase, trial.batch, input, &output, given),
        Layer::Conv2d(c) => products::conv2d(c, phase, trial.batch, input, &output, given),
        Layer::ConvTranspose2d(c) => products::conv_transpose2d(c, phase, trial.batch, input, &output, given),
        Layer::Linear(l) => products::linear(l, phase, axes, given),
        Layer::Matmul(_) => products::matmul(phase, trial.batch, &case.inputs, given),
        Layer::Flatten(_) => Tensors::default(),
        _ => return Err(wrong("there is no reference for it".to_string())),
    })
}

/// What is missing or of the wrong length, by name.
fn check(trial: &Trial, given: &Tensors, output: &Shape) -> Result<(), &'static str> {
    let batch = trial.batch as usize;
    let shapes = &trial.case.inputs;
    let layer = &trial.case.layer;
    let parameters = layer.parameters(shapes) as usize;
    let all = |tensors: &[Vec<f32>]| {
        tensors.len() == shapes.len()
            && tensors.iter().zip(shapes).all(|(t, shape)| t.len() == batch * shape.elements() as usize)
    };
    let whole = batch * output.elements() as usize;
    let right = |name: &'static str, is: bool| if is { Ok(()) } else { Err(name) };
    match trial.phase {
        Phase::Update => {
            let state = trial.optimizer.map_or(0, |o| o.state_per_parameter() as usize) * parameters;
            right("master", given.master.len() == parameters)?;
            right("state", given.state.len() == state)?;
            return right("grad_parameters", given.grad_parameters.len() == parameters);
        }
        Phase::Forward => {}
        Phase::BackwardData | Phase::BackwardWeights => right("grad_output", given.grad_output.len() == whole)?,
    }
    // Data is computed from the parameters, and their gradients without them.
    let reads_parameters = trial.phase != Phase::BackwardWeights;
    right("parameters", !reads_parameters || given.parameters.len() == parameters)?;
    right("inputs", all(&given.inputs))?;
    if trial.phase == Phase::BackwardData {
        let axes = shapes.first().map(|shape| Axes::of(shape, trial.batch));
        let (saved, reads_output) = match (layer, axes) {
            (Layer::BatchNorm(_), Some(axes)) => (2 * axes.channels, false),
            (Layer::LayerNorm(_), Some(axes)) => (2 * axes.samples * axes.area, false),
            (Layer::Dropout(_), Some(axes)) => (axes.values(), false),
            (Layer::LocalResponseNorm(_), Some(axes)) => (axes.values(), true),
            (Layer::Activation(_) | Layer::Softmax(_), _) => (0, true),
            _ => (0, false),
        };
        right("saved", given.saved.len() == saved || saved == 0)?;
        right("output", !reads_output || given.output.len() == whole)?;
    }
    if let (Layer::BatchNorm(_), Phase::Forward, Some(shape)) = (layer, trial.phase, shapes.first()) {
        right("running", given.running.len() == 2 * shape.axis() as usize)?;
    }
    Ok(())
}

/// How far a device's result may lie from the reference: at most `relative` of the reference's magnitude plus
/// `absolute`, for sums of `reduction_length` products of values around 1, from inputs that are exact in the storage
/// format.
///
/// - Relative: the result is rounded to the storage format (half a unit in the last place: 2^-24, 2^-11, 2^-8), twice
///   where a stored intermediate takes part; exponentials and reciprocal roots on the device err by a few units of
///   fp32.
/// - Absolute: sums in fp32 wander. Partial sums are around sqrt(n) and each of n additions rounds by 2^-24 of that, so
///   the error is around 2^-24 n; TF32 rounds both factors of each product to 11 bits, n random errors of 2^-11
///   together are around 2^-11 sqrt(n). Eight times these leaves room for the tails of millions of results, and for
///   the transforms of Winograd's and Fourier's convolutions. A partial sum may also be stored on the way (sums of many
///   tensors, split reductions): twice the storage format's rounding of sqrt(n).
pub fn tolerance(precision: Precision, reduction_length: u64) -> (f64, f64) {
    let unit = |bits: i32| 2f64.powi(-bits);
    let (storage, factors) = match precision {
        Precision::Fp32 => (unit(24), unit(24)),
        Precision::Tf32 => (unit(24), unit(11)),
        Precision::Fp16 => (unit(11), unit(24)),
        Precision::Bf16 => (unit(8), unit(24)),
        Precision::Int8 => (unit(8), unit(8)),
        Precision::Fp8 => (unit(8), unit(4)),
    };
    let n = reduction_length.max(1) as f64;
    (2.0 * storage + 16.0 * unit(24), 8.0 * (unit(24) * n + factors * n.sqrt()) + 2.0 * storage * n.sqrt())
}

#[cfg(test)]
mod tests;
