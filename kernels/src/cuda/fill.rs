//! Values in operands: random, since power and even time depend on them, and scaled so that nothing overflows.

use super::device::Gpu;
use super::layer::misfit;
use crate::DeviceError;
use crate::launch::{Address, Operands};
use crate::operands::{Sizes, parameter_width};
use crate::streaming;
use joulecast_model::base::precision::Precision;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::layer::Layer;

/// Standard deviation of the weights: sqrt(2 / inputs of one output), which keeps the size of activations through
/// rectified layers (He et al. 2015).
fn weight_deviation(trial: &Trial) -> f32 {
    let input = trial.case.inputs.first();
    let fan_in = match (&trial.case.layer, input.and_then(|s| s.as_map())) {
        (Layer::Conv2d(layer), Some((c, _, _))) => layer.filter(c),
        // Windows overlap: so many elements of the input meet in one of the output.
        (Layer::ConvTranspose2d(layer), Some((c, _, _))) => {
            c / layer.groups(c).max(1) * layer.kernel.area().div_ceil(layer.stride.area().max(1))
        }
        _ => input.map_or(1, |s| s.axis()),
    };
    (2.0 / fan_in.max(1) as f32).sqrt()
}

/// Fills tensors of a trial, whichever are there.
///
/// # Errors
/// When a launch fails.
pub fn operands(
    gpu: &mut Gpu,
    trial: &Trial,
    sizes: &Sizes,
    operands: &Operands,
    seed: u64,
) -> Result<(), DeviceError> {
    trial.case.output().map_err(|e| misfit(trial, &e))?;
    let storage = trial.precision;
    let width = storage.bytes();
    let mut seed = seed;
    let mut normal = |gpu: &mut Gpu, address: Address, bytes: u64, deviation: f32, precision: Precision| {
        seed = seed.wrapping_add(1);
        normal(gpu, address, bytes / precision.bytes(), deviation, seed, precision)
    };
    for (address, bytes) in operands.inputs.iter().zip(&sizes.inputs) {
        normal(gpu, *address, *bytes, 1.0, storage)?;
    }
    normal(gpu, operands.output, sizes.output, 1.0, storage)?;
    normal(gpu, operands.grad_output, sizes.grad_output, 1.0, storage)?;
    parameters(gpu, trial, sizes.parameters, operands.parameters, seed)?;
    let learned = if parameter_width(&trial.case.layer, storage) == 4 { Precision::Fp32 } else { storage };
    let mut normal = |gpu: &mut Gpu, address: Address, bytes: u64, deviation: f32, precision: Precision| {
        seed = seed.wrapping_add(1);
        self::normal(gpu, address, bytes / precision.bytes(), deviation, seed, precision)
    };
    normal(gpu, operands.grad_parameters, sizes.grad_parameters, 0.01, learned)?;
    normal(gpu, operands.master, sizes.master, weight_deviation(trial), Precision::Fp32)?;
    // Means, variances, second moments and reciprocal deviations are positive.
    let one = |gpu: &mut Gpu, address: Address, bytes: u64, word: u32| {
        if address == 0 || bytes < 4 { Ok(()) } else { gpu.set_words(address, word, bytes / 4) }
    };
    one(gpu, operands.running, sizes.running, 1f32.to_bits())?;
    one(gpu, operands.state, sizes.state, 1e-2f32.to_bits())?;
    let saved = streaming::saved(trial)?.get();
    let word = match (&trial.case.layer, width) {
        (Layer::Dropout(_), _) => 0x0001_0100,
        (Layer::LocalResponseNorm(_), 2) if storage == Precision::Fp16 => 0x3c00_3c00,
        (Layer::LocalResponseNorm(_), 2) => 0x3f80_3f80,
        _ => 1f32.to_bits(),
    };
    one(gpu, operands.saved, saved.next_multiple_of(4), word)
}

/// Fills a layer's parameters: weights N(0, 2 / fan-in) with their bias alike; factors of norms are 1.
///
/// # Errors
/// When a launch fails.
pub fn parameters(gpu: &mut Gpu, trial: &Trial, bytes: u64, address: Address, seed: u64) -> Result<(), DeviceError> {
    if bytes == 0 {
        return Ok(());
    }
    if streaming::parameters_in_fp32(&trial.case.layer) {
        return gpu.set_words(address, 1f32.to_bits(), bytes / 4);
    }
    let count = bytes / trial.precision.bytes();
    normal(gpu, address, count, weight_deviation(trial), seed, trial.precision)
}

/// Fills `count` elements with N(0, deviation^2).
///
/// # Errors
/// When the launch fails.
pub fn normal(
    gpu: &mut Gpu,
    address: Address,
    count: u64,
    deviation: f32,
    seed: u64,
    precision: Precision,
) -> Result<(), DeviceError> {
    if count == 0 || address == 0 {
        return Ok(());
    }
    for launch in streaming::fill_normal(precision, address, count, deviation, seed as u32, gpu.limits())? {
        gpu.launch(&launch)?;
    }
    Ok(())
}
