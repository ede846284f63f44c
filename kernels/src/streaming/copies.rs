//! Concatenation, padding, whole copies, conversions, fills.

use super::maps::{self, Maps};
use super::plan::{Limits, Plan, View, flag, flat_grid, int, long, offset, pointer};
use super::pooling::row_grid;
use crate::DeviceError;
use crate::launch::{Address, Argument, KernelLaunch};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::{Shape, product};
use joulecast_model::kernel::setting::Layout;
use joulecast_model::net::layer::Pair;

/// Joins `parts` into `whole`, or (`gather` false) splits it into them. A part's view gives its channels.
pub(super) fn concat(
    plan: &mut Plan<'_>,
    whole: Address,
    parts: &[(Address, View)],
    gather: bool,
) -> Result<(), DeviceError> {
    const TOGETHER: usize = 4;
    let width = |view: &View| if view.last { view.channels } else { product(&[view.channels, view.area]) };
    let pitch: u64 = parts.iter().map(|(_, view)| width(view)).sum();
    let Some(rows) = parts.first().map(|(_, view)| if view.last { view.positions() } else { view.samples }) else {
        return Ok(());
    };
    let lanes = plan.lanes();
    let wide = parts.iter().all(|(_, view)| width(view).is_multiple_of(lanes));
    let mut start = 0;
    for group in parts.chunks(TOGETHER) {
        let mut arguments = vec![pointer(whole), long(pitch)?, long(rows)?, long(start)?, flag(gather), flag(wide)];
        for i in 0..TOGETHER {
            let (address, columns) = group.get(i).map_or((0, 0), |(address, view)| (*address, width(view)));
            arguments.extend([pointer(address), long(columns)?]);
        }
        let widest = group.iter().map(|(_, view)| width(view)).max().unwrap_or(0);
        let units = rows.saturating_mul(if wide { widest / lanes } else { widest });
        let (blocks, threads) = flat_grid(units, 4, plan.limits);
        plan.push("columns", [blocks, group.len() as u64, 1], [threads, 1, 1], arguments)?;
        start += group.iter().map(|(_, view)| width(view)).sum::<u64>();
    }
    Ok(())
}

/// Pads the maps at `inner` to those at `outer`, or (`forward` false) cuts them out again.
/// `padding` is top, bottom, left, right.
pub(super) fn pad(
    plan: &mut Plan<'_>,
    inner: (Address, Shape),
    outer: (Address, Shape),
    padding: [u64; 4],
    batch: u64,
    layout: Layout,
    forward: bool,
) -> Result<(), DeviceError> {
    let view = View::of(&inner.1, batch, layout);
    let wide = view.last && view.channels.is_multiple_of(plan.lanes());
    let (planes, pixel) = match (view.last, wide) {
        (true, true) => (view.samples, view.channels / plan.lanes()),
        (true, false) => (view.samples, view.channels),
        (false, _) => (product(&[view.samples, view.channels]), 1),
    };
    let size = |shape: &Shape| shape.as_map().map_or((1, 1), |(_, h, w)| (h, product(&[w, pixel])));
    let ((from, from_shape), (to, to_shape)) = if forward { (inner, outer) } else { (outer, inner) };
    let ((in_h, in_w), (h, w)) = (size(&from_shape), size(&to_shape));
    if !view.last {
        let tensors = [from, to].map(pointer);
        let maps = Maps { input: Pair { h: in_h, w: in_w }, output: Pair { h, w } };
        let sign = if forward { -1 } else { 1 };
        let corner = [padding[0], padding[2]].map(|by| i32::try_from(by).map(|by| sign * by));
        if let [Ok(top), Ok(left)] = corner
            && maps::window(plan, planes, tensors, maps, [top, left])?
        {
            return Ok(());
        }
    }
    let mut arguments = vec![pointer(from), pointer(to), long(planes)?];
    for value in [in_h, in_w, h, w] {
        arguments.push(long(value)?);
    }
    for value in [int(padding[0])?, int(padding[2].saturating_mul(pixel))?] {
        // Forward, the window begins outside of its source.
        let Argument::I32(value) = value else { continue };
        arguments.push(Argument::I64(if forward { -i64::from(value) } else { i64::from(value) }));
    }
    arguments.push(flag(wide));
    let (grid, block) = row_grid(plan, product(&[planes, h]), w, 4);
    plan.push("window", grid, block, arguments)
}

/// Copies `n` values: the ceiling that bandwidth-bound kernels are compared with.
///
/// # Errors
/// When the precision has no floating-point storage or the size is beyond the device's grid.
pub fn copy(
    precision: Precision,
    from: Address,
    to: Address,
    n: u64,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    let mut plan = Plan::new(precision, limits)?;
    plan.flat("copy", n, 4, vec![pointer(from), pointer(to), long(n)?])?;
    Ok(plan.launches)
}

/// Adds `n` values at `x` to those at `y`, in place: gradients of a tensor that feeds several layers.
///
/// # Errors
/// As [`copy`].
pub fn accumulate(
    precision: Precision,
    x: Address,
    y: Address,
    n: u64,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    let mut plan = Plan::new(precision, limits)?;
    super::elementwise::add(&mut plan, &[y, x], y, n)?;
    Ok(plan.launches)
}

/// Converts `n` fp32 values to the storage format of a precision, or (`to_storage` false) back.
///
/// # Errors
/// As [`copy`].
pub fn cast(
    precision: Precision,
    to_storage: bool,
    from: Address,
    to: Address,
    n: u64,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    let mut plan = Plan::new(precision, limits)?;
    let (blocks, threads) = flat_grid(n, 8, limits);
    let name = if to_storage { "cast_from_f32" } else { "cast_to_f32" };
    plan.push(name, [blocks, 1, 1], [threads, 1, 1], vec![pointer(from), pointer(to), long(n)?])?;
    Ok(plan.launches)
}

/// Fills `n` values with normal random numbers of mean 0 and the given standard deviation; value i depends on the
/// seed and i alone.
///
/// # Errors
/// As [`copy`].
pub fn fill_normal(
    precision: Precision,
    to: Address,
    n: u64,
    deviation: f32,
    seed: u32,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    let arguments = vec![pointer(to), long(n)?, Argument::F32(deviation), Argument::I32(seed as i32)];
    fill("fill_normal", precision, n, arguments, limits)
}

/// Fills `n` values with one value.
///
/// # Errors
/// As [`copy`].
pub fn fill_constant(
    precision: Precision,
    to: Address,
    n: u64,
    value: f32,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    fill("fill_constant", precision, n, vec![pointer(to), long(n)?, Argument::F32(value)], limits)
}

fn fill(
    name: &str,
    precision: Precision,
    n: u64,
    arguments: Vec<Argument>,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    let mut plan = Plan::new(precision, limits)?;
    let (blocks, threads) = flat_grid(n, 1, limits);
    plan.push(name, [blocks.min(limits.spread() * 32), 1, 1], [threads, 1, 1], arguments)?;
    Ok(plan.launches)
}

/// Keeps every fp32 unit busy with fused multiply-adds: the arithmetic ceiling. Returns the launch and its operations;
/// `out` takes [`fma_burn_values`] fp32 values.
///
/// # Errors
/// When the iterations are more than 2^30.
pub fn fma_burn(out: Address, iterations: u32, limits: &Limits) -> Result<(KernelLaunch, u64), DeviceError> {
    const OPERATIONS: u64 = 16;
    let mut plan = Plan::new(Precision::Fp32, limits)?;
    let threads = super::plan::THREADS;
    let blocks = fma_burn_values(limits) / threads;
    let arguments = vec![pointer(out), int(u64::from(iterations))?, Argument::F32(0.999_99), Argument::F32(1e-5)];
    plan.push_plain("fma_burn".to_string(), [blocks, 1, 1], [threads, 1, 1], arguments)?;
    let launch = plan.launches.remove(0);
    Ok((launch, blocks * threads * OPERATIONS * u64::from(iterations)))
}

/// Values that [`fma_burn`] writes.
pub fn fma_burn_values(limits: &Limits) -> u64 {
    u64::from(limits.multiprocessors.max(1)) * 8 * super::plan::THREADS
}

/// Adds a bias per channel to a tensor, in place: maps in either layout (a convolution's), else the last dimension.
/// The bias is in the storage format.
///
/// # Errors
/// As [`copy`].
pub fn bias_launches(
    shape: &Shape,
    batch: u64,
    layout: Layout,
    precision: Precision,
    tensor: Address,
    bias: Address,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    let mut plan = Plan::new(precision, limits)?;
    let view = View::of(shape, batch, layout);
    let tensors = super::channels::Tensors { x: tensor, dy: 0, y: tensor };
    super::channels::map(&mut plan, "bias", view, false, tensors, vec![pointer(bias)])?;
    Ok(plan.launches)
}

const BIAS_GRADIENT: super::reductions::Reduction =
    super::reductions::Reduction { name: "average", sums: 1, per_sample: false };

/// Gradient of a bias: the output's gradient summed over batch and positions, per channel, in the storage format.
/// `scratch` has [`bias_gradient_scratch`] bytes.
///
/// # Errors
/// As [`copy`].
#[expect(clippy::too_many_arguments, reason = "a tensor with its shape, two addresses and the device")]
pub fn bias_gradient_launches(
    shape: &Shape,
    batch: u64,
    layout: Layout,
    precision: Precision,
    grad_output: Address,
    grad_bias: Address,
    scratch: Address,
    limits: &Limits,
) -> Result<Vec<KernelLaunch>, DeviceError> {
    let mut plan = Plan::new(precision, limits)?;
    let view = View::of(shape, batch, layout);
    let tensors = super::channels::Tensors { x: grad_output, dy: 0, y: 0 };
    let own = vec![pointer(grad_bias), Argument::F32(1.0)];
    super::reductions::reduce(&mut plan, BIAS_GRADIENT, view, tensors, scratch, own)?;
    Ok(plan.launches)
}

/// Scratch memory of [`bias_gradient_launches`] in bytes, on any device.
///
/// # Errors
/// When the precision has no floating-point storage.
pub fn bias_gradient_scratch(
    shape: &Shape,
    batch: u64,
    layout: Layout,
    precision: Precision,
) -> Result<u64, DeviceError> {
    let lanes = super::plan::Format::of(precision)?.lanes();
    Ok(super::reductions::scratch(View::of(shape, batch, layout), BIAS_GRADIENT, lanes))
}

/// The address of a bias behind `weights` stored weights.
pub fn bias_address(parameters: Address, weights: u64, precision: Precision) -> Address {
    offset(parameters, weights * precision.bytes())
}
