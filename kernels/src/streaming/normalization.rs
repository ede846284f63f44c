//! Batch norm, layer norm, scale, softmax, local response norm.

use super::channels::{self, Tensors};
use super::elementwise::{grad_input, input};
use super::plan::{Limits, Plan, THREADS, View, divider, flag, int, long, offset, pointer};
use super::reductions::{self, Reduction};
use crate::DeviceError;
use crate::launch::{Address, Argument, Operands};
use joulecast_model::base::precision::{Mode, Phase};
use joulecast_model::base::shape::product;

/// Added to every variance, as frameworks do by default.
pub const EPSILON: f32 = 1e-5;
/// Weight of a batch's statistics in the running ones, as frameworks do by default.
pub const MOMENTUM: f32 = 0.1;
/// Local response norm: factor of the mean square, as in AlexNet.
pub const ALPHA: f32 = 1e-4;
/// Local response norm: exponent, as in AlexNet.
pub const BETA: f32 = 0.75;

/// Positions of a map that a thread takes along all channels: 16 bytes would take too many registers in 16 bits.
const TOGETHER: u64 = 4;

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
    let [grad_scale, grad_shift] = learned(affine, operands.grad_parameters, view.channels).map(pointer);
    let own = vec![mean, reciprocal, grad_scale, grad_shift];
    let fused = learning_rows(view, plan.lanes(), plan.limits).filter(|_| affine);
    if let Some((shares, blocks)) = fused {
        let mut arguments = row_arguments(view, &[x, dy, dx])?;
        arguments.extend([scale, mean, reciprocal, pointer(operands.scratch)]);
        let [across, down] = shares.block;
        let name = format!("layer_norm_learned_{}", shares.ending);
        plan.push(&name, [blocks, 1, 1], [across, down, 1], arguments)?;
        return reductions::finish(plan, LAYER_GRADIENTS, view.channels, blocks, x, operands.scratch, own);
    }
    rows(plan, "layer_norm_backward", view, &[x, dy, dx], vec![scale, mean, reciprocal])?;
    if affine {
        reductions::reduce(plan, LAYER_GRADIENTS, view, Tensors { x, dy, y: 0 }, operands.scratch, own)?;
    }
    Ok(())
}

pub(super) fn layer_norm_scratch(affine: bool, phase: Phase, view: View, lanes: u64) -> u64 {
    if !affine || phase != Phase::BackwardData {
        return 0;
    }
    match learning_rows(view, lanes, &Limits::new(u32::MAX)) {
        Some((_, blocks)) => 4 * LAYER_GRADIENTS.sums * blocks * view.channels,
        None => reductions::scratch(view, LAYER_GRADIENTS, lanes),
    }
}

pub(super) fn softmax(plan: &mut Plan<'_>, phase: Phase, view: View, operands: &Operands) -> Result<(), DeviceError> {
    if phase == Phase::Forward {
        rows(plan, "softmax_forward", view, &[input(operands, 0)?, operands.output], Vec::new())
    } else {
        let tensors = [operands.output, operands.grad_output, grad_input(operands, 0)?];
        rows(plan, "softmax_backward", view, &tensors, Vec::new())
    }
}

/// How an operation of `rows.cu` lies on threads: which of its kernels, the block, rows a block takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowShares {
    ending: &'static str,
    block: [u64; 2],
    together: u64,
    /// Whether the block's threads hold a whole row in registers.
    held: bool,
}

/// As many threads per row as hold it in registers, `values` each; `threads` in a block that takes several rows.
fn row_shares(view: View, lanes: u64, values: u64, threads: u64) -> RowShares {
    const LONGEST: u64 = 512;
    let length = view.channels;
    if !view.last {
        let (ending, across, unit, each) =
            if view.area.is_multiple_of(TOGETHER) { ("channels", 8, TOGETHER, 8) } else { ("positions", 32, 1, 16) };
        let down = length.div_ceil(each).next_power_of_two().clamp(32 / across, LONGEST / across);
        return RowShares { ending, block: [across, down], together: across * unit, held: length <= down * each };
    }
    let ragged = !length.is_multiple_of(lanes);
    let units = if ragged { length.div_ceil(lanes) + 1 } else { length / lanes };
    let (ending, each) = match (ragged, units) {
        (true, _) => ("ragged", values / lanes),
        (false, 0..=16) => ("few", 2),
        (false, _) => ("units", values / lanes),
    };
    let width = units.div_ceil(each).next_power_of_two().clamp(8, LONGEST);
    let together = (threads / width).max(1);
    RowShares { ending, block: [width, together], together, held: units <= width * each }
}

/// Plans an operation of `rows.cu`.
fn rows(
    plan: &mut Plan<'_>,
    name: &str,
    view: View,
    tensors: &[Address],
    own: Vec<Argument>,
) -> Result<(), DeviceError> {
    let mut shares = row_shares(view, plan.lanes(), 32, THREADS);
    if view.last && shares.block[0] > 32 {
        // Rows that wait for several warps do not wait for each other.
        (shares.block[1], shares.together) = (1, 1);
    }
    let mut arguments = row_arguments(view, tensors)?;
    arguments.extend(own);
    let [across, down] = shares.block;
    let grid = [view.positions().div_ceil(shares.together), 1, 1];
    plan.push(&format!("{name}_{}", shares.ending), grid, [across, down, 1], arguments)
}

fn row_arguments(view: View, tensors: &[Address]) -> Result<Vec<Argument>, DeviceError> {
    let mut arguments: Vec<Argument> = tensors.iter().copied().map(pointer).collect();
    arguments.extend([long(view.positions())?, int(view.channels)?, long(view.inner())?]);
    Ok(arguments)
}

/// The kernel that also sums the gradients of scale and shift while rows are in registers, and its blocks, which stay
/// for all rows; `None` where rows are too long or ragged.
fn learning_rows(view: View, lanes: u64, limits: &Limits) -> Option<(RowShares, u64)> {
    let mut shares = row_shares(view, lanes, 16, THREADS / 2);
    if !shares.held || shares.ending == "ragged" {
        return None;
    }
    if shares.ending == "few" {
        shares.ending = "units";
    }
    let groups = view.positions().div_ceil(shares.together);
    let threads = product(&shares.block);
    // The kernels' registers let 512 threads share a multiprocessor.
    let resident = (512 / threads).max(1);
    // What a block leaves is worth several rows.
    let rows = if shares.together == 1 { 4 } else { 2 };
    Some((shares, groups.div_ceil(rows).min(limits.spread() * resident)))
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
    let mut arguments: Vec<Argument> = if phase == Phase::Forward {
        let saved = if mode == Mode::Training { operands.saved } else { 0 };
        [x, operands.output, saved].map(pointer).to_vec()
    } else {
        let dx = grad_input(operands, 0)?;
        [x, operands.output, operands.grad_output, operands.saved, dx].map(pointer).to_vec()
    };
    let direction = if phase == Phase::Forward { "forward" } else { "backward" };
    let constants = [ALPHA, BETA].map(Argument::F32);
    // The kernels of the usual window know it when compiling.
    let usual = size == 5;
    if usual && view.last && view.channels.is_multiple_of(plan.lanes()) {
        arguments.push(long(view.values())?);
        arguments.extend(divider(view.channels / plan.lanes())?);
        arguments.extend(constants);
        let units = if phase == Phase::Forward { 2 } else { 1 };
        let blocks = (view.values() / plan.lanes()).div_ceil(THREADS * units);
        return plan.push(&format!("local_response_norm_last_{direction}"), [blocks, 1, 1], [THREADS, 1, 1], arguments);
    }
    let lanes = if usual { TOGETHER } else { plan.lanes() };
    let wide = !view.last && view.area.is_multiple_of(lanes);
    let (outer, inner) = if view.last { (view.positions(), 1) } else { (view.samples, view.area) };
    let units = if wide { inner / lanes } else { inner };
    let threads = |walk: u64| product(&[outer, view.channels.div_ceil(walk), units]);
    let enough = plan.limits.spread() * 1024;
    let walk = match (view.last, usual) {
        (true, _) => 1,
        (false, false) => view.channels.min(16),
        (false, true) => {
            if threads(16) >= enough {
                16
            } else {
                8
            }
        }
    };
    arguments.extend([long(outer)?, long(inner)?, int(view.channels)?, int(walk)?, int(size)?]);
    arguments.extend(constants);
    arguments.push(flag(wide));
    let form = if usual && !view.last { "walk_" } else { "" };
    let grid = [threads(walk).div_ceil(THREADS), 1, 1];
    plan.push(&format!("local_response_norm_{form}{direction}"), grid, [THREADS, 1, 1], arguments)
}
