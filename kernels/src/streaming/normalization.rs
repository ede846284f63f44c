//! Batch norm, layer norm, scale, softmax, local response norm.

use super::channels::{self, Tensors};
use super::elementwise::{grad_input, input};
use super::plan::{Plan, THREADS, View, flag, int, long, offset, pointer};
use super::reductions::{self, Reduction};
use crate::DeviceError;
use crate::launch::{Address, Argument, Operands};
use joulecast_model::precision::{Mode, Phase};
use joulecast_model::shape::product;

/// Added to every variance, as frameworks do by default.
pub const EPSILON: f32 = 1e-5;
/// Weight of a batch's statistics in the running ones, as frameworks do by default.
pub const MOMENTUM: f32 = 0.1;
/// Local response norm: factor of the mean square, as in AlexNet.
pub const ALPHA: f32 = 1e-4;
/// Local response norm: exponent, as in AlexNet.
pub const BETA: f32 = 0.75;

const STATISTICS: Reduction = Reduction { name: "batch_norm_statistics", sums: 2, per_sample: false };
const GRADIENTS: Reduction = Reduction { name: "batch_norm_gradients", sums: 2, per_sample: false };
const LAYER_GRADIENTS: Reduction = Reduction { name: "layer_norm_gradients", sums: 2, per_sample: false };
const SCALE_GRADIENTS: Reduction = Reduction { name: "scale_gradients", sums: 2, per_sample: false };

/// Scale and shift, null where nothing is learned.
fn learned(affine: bool, address: Address, channels: u64) -> [Address; 2] {
    if affine { [address, offset(address, 4 * channels)] } else { [0, 0] }
}

/// Where mean and reciprocal standard deviation lie, `count` of each.
fn statistics(address: Address, count: u64) -> [Address; 2] {
    [address, offset(address, 4 * count)]
}

pub(super) fn batch_norm(
    plan: &mut Plan<'_>,
    affine: bool,
    phase: Phase,
    mode: Mode,
    view: View,
    operands: &Operands,
) -> Result<(), DeviceError> {
    let x = input(operands, 0)?;
    let channels = view.channels;
    let [scale, shift] = learned(affine, operands.parameters, channels).map(pointer);
    let [running_mean, running_variance] = statistics(operands.running, channels).map(pointer);
    let [mean, reciprocal] = statistics(operands.saved, channels).map(pointer);
    if phase == Phase::Forward {
        let tensors = Tensors { x, dy: 0, y: operands.output };
        if mode == Mode::Inference {
            let own = vec![running_mean, running_variance, scale, shift, Argument::F32(EPSILON)];
            return channels::map(plan, "batch_norm_inference", view, false, tensors, own);
        }
        let own = vec![
            long(view.inner())?,
            Argument::F32(view.positions() as f32),
            Argument::F32(EPSILON),
            Argument::F32(MOMENTUM),
            mean,
            reciprocal,
            running_mean,
            running_variance,
        ];
        reductions::reduce(plan, STATISTICS, view, Tensors { y: 0, ..tensors }, operands.scratch, own)?;
        return channels::map(plan, "batch_norm_normalize", view, false, tensors, vec![mean, reciprocal, scale, shift]);
    }
    let tensors = Tensors { x, dy: operands.grad_output, y: grad_input(operands, 0)? };
    let sums = pointer(operands.scratch);
    let parts = offset(operands.scratch, sums_bytes(channels));
    let [grad_scale, grad_shift] = learned(affine, operands.grad_parameters, channels).map(pointer);
    let own = vec![long(channels)?, mean, reciprocal, sums, grad_scale, grad_shift];
    reductions::reduce(plan, GRADIENTS, view, Tensors { y: 0, ..tensors }, parts, own)?;
    let per_value = Argument::F32(1.0 / view.positions() as f32);
    channels::map(plan, "batch_norm_backward", view, false, tensors, vec![mean, reciprocal, scale, sums, per_value])
}

/// Bytes of the two sums per channel that a batch norm's backward pass keeps between its kernels, aligned.
fn sums_bytes(channels: u64) -> u64 {
    (8 * channels).next_multiple_of(512)
}

pub(super) fn batch_norm_scratch(phase: Phase, view: View, lanes: u64) -> u64 {
    match phase {
        Phase::Forward => reductions::scratch(view, STATISTICS, lanes),
        _ => sums_bytes(view.channels) + reductions::scratch(view, GRADIENTS, lanes),
    }
}

pub(super) fn scale(
    plan: &mut Plan<'_>,
    bias: bool,
    phase: Phase,
    view: View,
    operands: &Operands,
) -> Result<(), DeviceError> {
    let with_shift = |address: Address| if bias { offset(address, 4 * view.channels) } else { 0 };
    match phase {
        Phase::Forward => {
            let tensors = Tensors { x: input(operands, 0)?, dy: 0, y: operands.output };
            let own = [operands.parameters, with_shift(operands.parameters)].map(pointer).to_vec();
            channels::map(plan, "scale", view, false, tensors, own)
        }
        Phase::BackwardData => {
            let tensors = Tensors { x: operands.grad_output, dy: 0, y: grad_input(operands, 0)? };
            channels::map(plan, "scale", view, false, tensors, vec![pointer(operands.parameters), pointer(0)])
        }
        _ => {
            let tensors = Tensors { x: input(operands, 0)?, dy: operands.grad_output, y: 0 };
            let own = [operands.grad_parameters, with_shift(operands.grad_parameters)].map(pointer).to_vec();
            reductions::reduce(plan, SCALE_GRADIENTS, view, tensors, operands.scratch, own)
        }
    }
}

pub(super) fn scale_scratch(phase: Phase, view: View, lanes: u64) -> u64 {
    if phase == Phase::BackwardWeights { reductions::scratch(view, SCALE_GRADIENTS, lanes) } else { 0 }
}

pub(super) fn layer_norm(
    plan: &mut Plan<'_>,
    affine: bool,
    phase: Phase,
    mode: Mode,
    view: View,
    operands: &Operands,
) -> Result<(), DeviceError> {
    let x = input(operands, 0)?;
    let [scale, shift] = learned(affine, operands.parameters, view.channels).map(pointer);
    let [mean, reciprocal] = statistics(operands.saved, view.positions()).map(pointer);
    if phase == Phase::Forward {
        let keep = if mode == Mode::Training { [mean, reciprocal] } else { [pointer(0); 2] };
        let own = vec![scale, shift, keep[0], keep[1], Argument::F32(EPSILON)];
        return rows(plan, "layer_norm_forward", view, &[x, operands.output], own);
    }
    let (dy, dx) = (operands.grad_output, grad_input(operands, 0)?);
    rows(plan, "layer_norm_backward", view, &[x, dy, dx], vec![scale, mean, reciprocal])?;
    if affine {
        let [grad_scale, grad_shift] = learned(true, operands.grad_parameters, view.channels).map(pointer);
        let own = vec![mean, reciprocal, grad_scale, grad_shift];
        reductions::reduce(plan, LAYER_GRADIENTS, view, Tensors { x, dy, y: 0 }, operands.scratch, own)?;
    }
    Ok(())
}

pub(super) fn layer_norm_scratch(affine: bool, phase: Phase, view: View, lanes: u64) -> u64 {
    if affine && phase == Phase::BackwardData { reductions::scratch(view, LAYER_GRADIENTS, lanes) } else { 0 }
}

pub(super) fn softmax(plan: &mut Plan<'_>, phase: Phase, view: View, operands: &Operands) -> Result<(), DeviceError> {
    if phase == Phase::Forward {
        rows(plan, "softmax_forward", view, &[input(operands, 0)?, operands.output], Vec::new())
    } else {
        let tensors = [operands.output, operands.grad_output, grad_input(operands, 0)?];
        rows(plan, "softmax_backward", view, &tensors, Vec::new())
    }
}

/// Plans an operation of `rows.cu`: as many threads per row as hold it in registers, 8 to 512.
fn rows(
    plan: &mut Plan<'_>,
    name: &str,
    view: View,
    tensors: &[Address],
    own: Vec<Argument>,
) -> Result<(), DeviceError> {
    let (count, length) = (view.positions(), view.channels);
    let mut arguments: Vec<Argument> = tensors.iter().copied().map(pointer).collect();
    arguments.extend([long(count)?, int(length)?, long(view.inner())?]);
    arguments.extend(own);
    if !view.last {
        let along = length.div_ceil(8).next_power_of_two().clamp(1, 16);
        return plan.push(&format!("{name}_channels"), [count.div_ceil(32), 1, 1], [32, along, 1], arguments);
    }
    let wide = length.is_multiple_of(plan.lanes());
    let threads = if wide { (length / plan.lanes()).div_ceil(4) } else { length.div_ceil(8) };
    let width = [8, 32, 128].into_iter().find(|&width| width >= threads).unwrap_or(512);
    let rows = if width <= 32 { THREADS / width } else { 1 };
    let ending = if wide { "units" } else { "values" };
    plan.push(&format!("{name}_{ending}"), [count.div_ceil(rows), 1, 1], [width, rows, 1], arguments)
}

pub(super) fn local_response_norm(
    plan: &mut Plan<'_>,
    size: u64,
    phase: Phase,
    mode: Mode,
    view: View,
    operands: &Operands,
) -> Result<(), DeviceError> {
    let x = input(operands, 0)?;
    let wide = !view.last && view.area.is_multiple_of(plan.lanes());
    let (outer, inner, walk) =
        if view.last { (view.positions(), 1, 1) } else { (view.samples, view.area, view.channels.min(16)) };
    let mut arguments: Vec<Argument> = if phase == Phase::Forward {
        let saved = if mode == Mode::Training { operands.saved } else { 0 };
        [x, operands.output, saved].map(pointer).to_vec()
    } else {
        let dx = grad_input(operands, 0)?;
        [x, operands.output, operands.grad_output, operands.saved, dx].map(pointer).to_vec()
    };
    arguments.extend([long(outer)?, long(inner)?, int(view.channels)?, int(walk)?, int(size)?]);
    arguments.extend([Argument::F32(ALPHA), Argument::F32(BETA), flag(wide)]);
    let units = if wide { inner / plan.lanes() } else { inner };
    let threads = product(&[outer, view.channels.div_ceil(walk), units]);
    let name = if phase == Phase::Forward { "local_response_norm_forward" } else { "local_response_norm_backward" };
    plan.push(name, [threads.div_ceil(THREADS), 1, 1], [THREADS, 1, 1], arguments)
}
