//! Sums per channel, over batch and positions or over the positions of one sample: kernels of `reductions.cu`.

use super::channels::Tensors;
use super::plan::{Limits, Plan, THREADS, View, divider, flag, int, long, pointer};
use crate::DeviceError;
use crate::launch::{Address, Argument};

/// An operation of `reductions.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    /// Its name.
    pub name: &'static str,
    /// Accumulators.
    pub sums: u64,
    /// Over the positions of each sample; else over the whole batch.
    pub per_sample: bool,
}

/// How the work is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    grid: [u64; 3],
    block: [u64; 3],
    /// Whether 16-byte units are possible.
    wide: bool,
    /// Results.
    groups: u64,
}

/// Blocks that keep every multiprocessor busy. No more than all multiprocessors hold at once: a second, incomplete
/// wave of blocks would leave most of them idle. Those over columns take twice the registers.
fn busy(limits: &Limits) -> u64 {
    limits.spread() * 4
}

fn shares(view: View, per_sample: bool, lanes: u64, limits: &Limits) -> Shares {
    let groups = if per_sample { view.samples.saturating_mul(view.channels) } else { view.channels };
    let most = u64::from(limits.grid[1]);
    if view.last {
        let wide = view.channels.is_multiple_of(lanes);
        let columns = if wide { view.channels / lanes } else { view.channels };
        let (samples, rows) = if per_sample { (view.samples, view.area) } else { (1, view.positions()) };
        let across = columns.next_power_of_two().min(32);
        let down = THREADS / across;
        let blocks = columns.div_ceil(across);
        let parts = (busy(limits) / 2 / blocks.saturating_mul(samples)).min(rows.div_ceil(down * 8)).clamp(1, most);
        return Shares { grid: [blocks, parts, samples], block: [across, down, 1], wide, groups };
    }
    let wide = view.area.is_multiple_of(lanes);
    let values = if per_sample { view.area } else { view.positions() };
    let units = if wide { values / lanes } else { values };
    let width = match units {
        0..=128 => 8,
        129..=1024 => 32,
        _ => THREADS,
    };
    let blocks = groups.div_ceil(THREADS / width);
    let parts = (busy(limits) / blocks).min(units.div_ceil(width * 8)).clamp(1, most);
    Shares { grid: [blocks, parts, 1], block: [width, THREADS / width, 1], wide, groups }
}

/// Bytes of scratch memory that a reduction needs at most, on any device.
pub(super) fn scratch(view: View, reduction: Reduction, lanes: u64) -> u64 {
    let shares = shares(view, reduction.per_sample, lanes, &Limits::new(u32::MAX));
    if shares.grid[1] == 1 { 0 } else { 4 * reduction.sums * shares.grid[1] * shares.groups }
}

/// Plans a reduction; `own` are the operation's own parameters, `scratch` holds the parts' sums.
pub(super) fn reduce(
    plan: &mut Plan<'_>,
    reduction: Reduction,
    view: View,
    tensors: Tensors,
    scratch: Address,
    own: Vec<Argument>,
) -> Result<(), DeviceError> {
    let shares = shares(view, reduction.per_sample, plan.lanes(), plan.limits);
    let mut arguments = [tensors.x, tensors.dy, tensors.y, scratch].map(pointer).to_vec();
    let ending = if view.last {
        let rows = if reduction.per_sample { view.area } else { view.positions() };
        arguments.extend([long(rows)?, long(view.channels)?]);
        "columns"
    } else {
        let segments = if reduction.per_sample { 1 } else { view.samples };
        arguments.extend([long(segments)?, long(shares.groups)?, long(view.area)?]);
        arguments.extend(divider(if shares.wide { view.area / plan.lanes() } else { view.area })?);
        "runs"
    };
    arguments.push(flag(shares.wide));
    arguments.extend(own.iter().copied());
    plan.push(&format!("{}_{ending}", reduction.name), shares.grid, shares.block, arguments)?;
    let parts = shares.grid[1];
    if parts > 1 {
        finish(plan, reduction, shares.groups, parts, tensors.x, scratch, own)?;
    }
    Ok(())
}

/// Plans the kernel that joins what `parts` parts left in `scratch`.
pub(super) fn finish(
    plan: &mut Plan<'_>,
    reduction: Reduction,
    groups: u64,
    parts: u64,
    x: Address,
    scratch: Address,
    own: Vec<Argument>,
) -> Result<(), DeviceError> {
    let mut arguments = vec![pointer(x), pointer(scratch), long(groups)?, int(parts)?];
    arguments.extend(own);
    let name = format!("{}_finish", reduction.name);
    plan.push(&name, [groups.div_ceil(8), 1, 1], [8, THREADS / 8, 1], arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_enough_on_every_device() {
        for (samples, channels, area) in [(1, 64, 12544), (256, 64, 3136), (32, 2048, 49), (1, 3, 50176), (7, 65, 225)]
        {
            for last in [false, true] {
                let view = View { samples, channels, area, last };
                for per_sample in [false, true] {
                    let reduction = Reduction { name: "average", sums: 2, per_sample };
                    for multiprocessors in [1, 20, 80, 132, 256, 1000] {
                        let shares = shares(view, per_sample, 8, &Limits::new(multiprocessors));
                        let needed = if shares.grid[1] == 1 { 0 } else { 8 * shares.grid[1] * shares.groups };
                        assert!(scratch(view, reduction, 8) >= needed, "{view:?} on {multiprocessors}");
                    }
                }
            }
        }
    }

    #[test]
    fn few_channels_are_split_into_parts() {
        let view = View { samples: 64, channels: 64, area: 3136, last: false };
        let shares = shares(view, false, 4, &Limits::new(132));
        assert!(shares.grid[0] * shares.grid[1] >= 132, "{shares:?}");
    }
}
