//! Maps whose constants belong to a channel: kernels of `channels.cu`.

use super::plan::{Plan, THREADS, View, divider, flat_grid, long, pointer};
use crate::DeviceError;
use crate::launch::{Address, Argument};

/// The tensors of one map; 0 where it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensors {
    pub x: Address,
    pub dy: Address,
    pub y: Address,
}

/// Plans `name` over a tensor; `own` are the operation's own parameters. `per_sample`: every sample has constants of
/// its own.
pub(super) fn map(
    plan: &mut Plan<'_>,
    name: &str,
    view: View,
    per_sample: bool,
    tensors: Tensors,
    own: Vec<Argument>,
) -> Result<(), DeviceError> {
    let mut arguments = vec![pointer(tensors.x), pointer(tensors.dy), pointer(tensors.y)];
    let lanes = plan.lanes();
    let (groups, rows) = if per_sample { (view.samples, view.area) } else { (1, view.positions()) };
    let aligned = view.channels.is_multiple_of(lanes) && groups <= u64::from(plan.limits.grid[2]);
    if view.last && aligned {
        let columns = view.channels / lanes;
        let across = columns.next_power_of_two().min(32);
        let down = THREADS / across;
        let blocks_across = columns.div_ceil(across);
        // Two waves of blocks keep every multiprocessor busy; more rows per thread pay for fetching the constants.
        let most = (plan.limits.spread() * 16).div_ceil(blocks_across * groups);
        let blocks_down = rows.div_ceil(down * 4).min(most).clamp(1, u64::from(plan.limits.grid[1]));
        arguments.extend([long(rows)?, long(view.channels)?]);
        arguments.extend(own);
        let name = format!("{name}_last");
        return plan.push(&name, [blocks_across, blocks_down, groups], [across, down, 1], arguments);
    }
    let n = view.values();
    let (channels, group) = match (per_sample, view.last) {
        (false, _) => (view.channels, 0),
        (true, false) => (view.channels.saturating_mul(view.samples), 0),
        (true, true) => (view.channels, view.channels.saturating_mul(view.area)),
    };
    arguments.push(long(n)?);
    for divisor in [view.inner(), channels, group] {
        arguments.extend(divider(divisor)?);
    }
    arguments.extend(own);
    let units = if tensors.x == 0 && tensors.dy == 0 { 4 } else { 2 };
    let (blocks, threads) = flat_grid(n.div_ceil(lanes), units, plan.limits);
    plan.push(&format!("{name}_flat"), [blocks, 1, 1], [threads, 1, 1], arguments)
}
