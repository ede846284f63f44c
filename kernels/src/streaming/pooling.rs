//! Pooling over windows, over adaptive windows and over whole maps.

use super::channels::{self, Tensors};
use super::elementwise::{grad_input, input};
use super::plan::{Plan, THREADS, View, flag, int, long, pointer, unsupported};
use super::reductions::{self, Reduction};
use crate::DeviceError;
use crate::launch::{Argument, Operands};
use joulecast_model::layer::{PoolOp, Window};
use joulecast_model::precision::Phase;
use joulecast_model::shape::{Shape, product};

/// A pooling over maps of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooling {
    pub op: PoolOp,
    /// `None`: windows that divide the input among the outputs.
    pub window: Option<Window>,
    pub input: Shape,
    pub output: Shape,
    pub view: View,
}

const AVERAGE: Reduction = Reduction { name: "average", sums: 1, per_sample: true };
const MAXIMUM: Reduction = Reduction { name: "maximum", sums: 1, per_sample: true };

impl Pooling {
    /// Whether one window covers the whole map.
    fn global(&self) -> bool {
        self.window.is_none() && matches!(self.output.as_map(), Some((_, 1, 1)))
    }

    fn reduction(&self) -> Reduction {
        match self.op {
            PoolOp::Avg => AVERAGE,
            PoolOp::Max => MAXIMUM,
        }
    }

    pub fn scratch(&self, phase: Phase, lanes: u64) -> u64 {
        if self.global() && phase == Phase::Forward {
            reductions::scratch(self.view, self.reduction(), lanes)
        } else {
            0
        }
    }

    pub fn launches(&self, plan: &mut Plan<'_>, phase: Phase, operands: &Operands) -> Result<(), DeviceError> {
        let share = Argument::F32(1.0 / self.view.area as f32);
        match (phase, self.op) {
            (Phase::Forward, op) if self.global() => {
                let tensors = Tensors { x: input(operands, 0)?, dy: 0, y: 0 };
                let mut own = vec![pointer(operands.output)];
                if op == PoolOp::Avg {
                    own.push(share);
                }
                reductions::reduce(plan, self.reduction(), self.view, tensors, operands.scratch, own)
            }
            (Phase::BackwardData, PoolOp::Avg) if self.global() => {
                let tensors = Tensors { x: 0, dy: 0, y: grad_input(operands, 0)? };
                channels::map(plan, "spread", self.view, true, tensors, vec![pointer(operands.grad_output), share])
            }
            _ => self.windowed(plan, phase, operands),
        }
    }

    fn windowed(&self, plan: &mut Plan<'_>, phase: Phase, operands: &Operands) -> Result<(), DeviceError> {
        let (Some((_, h, w)), Some((_, oh, ow))) = (self.input.as_map(), self.output.as_map()) else {
            return Err(unsupported("pooling", "needs a [channels, height, width] map"));
        };
        let view = self.view;
        let wide = view.last && view.channels.is_multiple_of(plan.lanes());
        let (planes, channels) = match (view.last, wide) {
            (true, true) => (view.samples, view.channels / plan.lanes()),
            (true, false) => (view.samples, view.channels),
            (false, _) => (product(&[view.samples, view.channels]), 1),
        };
        let op = match self.op {
            PoolOp::Max => "max",
            PoolOp::Avg => "avg",
        };
        let forward = phase == Phase::Forward;
        let (name, tensors) = match (forward, self.op) {
            (true, _) => ("forward", vec![input(operands, 0)?, operands.output]),
            // A mean's gradient does not read the maps.
            (false, PoolOp::Avg) => ("backward", vec![0, 0, operands.grad_output, grad_input(operands, 0)?]),
            (false, PoolOp::Max) => {
                ("backward", vec![input(operands, 0)?, operands.output, operands.grad_output, grad_input(operands, 0)?])
            }
        };
        let mut arguments: Vec<Argument> = tensors.into_iter().map(pointer).collect();
        arguments.push(long(planes)?);
        for size in [channels, h, w, oh, ow] {
            arguments.push(int(size)?);
        }
        let sizes = self.window.map_or([0, 0, 1, 1, 0, 0], |window| {
            [window.kernel.h, window.kernel.w, window.stride.h, window.stride.w, window.padding.h, window.padding.w]
        });
        for size in sizes {
            arguments.push(int(size)?);
        }
        arguments.push(flag(wide));
        let (height, width) = if forward { (oh, ow) } else { (h, w) };
        let (rows, columns) = (product(&[planes, height]), product(&[width, channels]));
        let (grid, block) = row_grid(plan, rows, columns, 1);
        plan.push(&format!("{op}_pool_{name}"), grid, block, arguments)
    }
}

/// Grid and block for `rows` rows of `columns` items, `each` rows per thread: threads lie along a row first, and rows
/// are split where there are too few of them to keep the device busy.
pub(super) fn row_grid(plan: &Plan<'_>, rows: u64, columns: u64, each: u64) -> ([u64; 3], [u64; 3]) {
    let across = columns.next_power_of_two().clamp(8, 64);
    let down = THREADS / across;
    let blocks = rows.div_ceil(down * each);
    let splits = (plan.limits.spread() * 8).div_ceil(blocks).min(columns.div_ceil(across)).max(1);
    ([blocks, splits.min(u64::from(plan.limits.grid[1])), 1], [across, down, 1])
}
