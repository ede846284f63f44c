//! Pooling over windows, over adaptive windows and over whole maps.

use super::channels::{self, Tensors};
use super::elementwise::{grad_input, input};
use super::maps::{self, ANY_FORM, Maps, THREE_BY_ONE, THREE_BY_TWO, form};
use super::plan::{Plan, THREADS, View, divider, flag, flat_grid, int, long, pointer, unsupported};
use super::reductions::{self, Reduction};
use crate::DeviceError;
use crate::launch::{Argument, Operands};
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::{Shape, product};
use joulecast_model::net::layer::{Pair, PoolOp, Window};

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
        if phase == Phase::Forward {
            return if self.global() { reductions::scratch(self.view, self.reduction(), lanes) } else { 0 };
        }
        match self.op {
            PoolOp::Max => product(&[self.view.samples, self.output.elements(), self.bytes_of_place()]),
            PoolOp::Avg => 0,
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
        let maps = Maps { input: Pair { h, w }, output: Pair { h: oh, w: ow } };
        if phase == Phase::Forward {
            let tensors = [input(operands, 0)?, operands.output].map(pointer);
            let name = if self.op == PoolOp::Max { "max_pool_forward" } else { "avg_pool_forward" };
            return self.forward(plan, name, &tensors, maps, self.window);
        }
        let (dy, dx) = (pointer(operands.grad_output), pointer(grad_input(operands, 0)?));
        let planes = product(&[self.view.samples, self.view.channels]);
        if self.op == PoolOp::Max {
            let x = pointer(input(operands, 0)?);
            let tensors = [x, dy, dx];
            if self.in_planes()
                && self.window_area() <= 1 << 16
                && maps::pool_gradient(plan, "max_pool_backward", planes, tensors, maps, self.window)?
            {
                return Ok(());
            }
            let places = pointer(operands.scratch);
            let large = flag(self.bytes_of_place() > 1);
            self.forward(plan, "max_pool_places", &[x, places, large], maps, self.window)?;
            return self.backward(plan, "max_pool_backward", &[dy, places, dx, large], maps);
        }
        match self.window {
            // With stride 1, every window divides by its whole area: the gradient is itself a mean over windows.
            Some(window) if window.stride == Pair::square(1) => {
                let Pair { h, w } = window.kernel;
                let padding = Pair { h: h - 1 - window.padding.h, w: w - 1 - window.padding.w };
                let maps = Maps { input: maps.output, output: maps.input };
                self.forward(plan, "avg_pool_forward", &[dy, dx], maps, Some(Window { padding, ..window }))
            }
            _ => {
                let tensors = [pointer(0), dy, dx];
                if self.in_planes()
                    && maps::pool_gradient(plan, "avg_pool_backward", planes, tensors, maps, self.window)?
                {
                    return Ok(());
                }
                self.backward(plan, "avg_pool_backward", &[dy, dx], maps)
            }
        }
    }

    /// Whether the positions of a channel are neighbours in memory.
    fn in_planes(&self) -> bool {
        !self.view.last
    }

    /// Positions of a window at most.
    fn window_area(&self) -> u64 {
        match (self.window, self.input.as_map(), self.output.as_map()) {
            (Some(window), ..) => window.kernel.area(),
            (None, Some((_, h, w)), Some((_, oh, ow))) => product(&[h / oh + 2, w / ow + 2]),
            _ => u64::MAX,
        }
    }

    /// Bytes that say where in a window its maximum lies.
    fn bytes_of_place(&self) -> u64 {
        if self.window_area() <= 256 { 1 } else { 4 }
    }

    /// A launch with one output column and some output rows per thread.
    fn forward(
        &self,
        plan: &mut Plan<'_>,
        name: &str,
        tensors: &[Argument],
        maps: Maps,
        window: Option<Window>,
    ) -> Result<(), DeviceError> {
        let planes = product(&[self.view.samples, self.view.channels]);
        if self.in_planes() && tensors.len() == 2 && maps::pool(plan, name, planes, tensors, maps, window)? {
            return Ok(());
        }
        let walks = matches!(form(window), THREE_BY_TWO | THREE_BY_ONE);
        let most = if walks { 8 } else { 1 };
        self.launch(plan, name, tensors, maps, window, maps.output.w, Rows::Walked { rows: maps.output.h, most })
    }

    /// A launch with the positions of dx that a stride's windows share, or some rows of a column, per thread.
    fn backward(&self, plan: &mut Plan<'_>, name: &str, tensors: &[Argument], maps: Maps) -> Result<(), DeviceError> {
        let Pair { h, w } = maps.input;
        let (columns, rows) = match self.window {
            Some(window) if form(self.window) != ANY_FORM => {
                let strides = |size: u64, padding: u64, stride: u64| (size - 1 + padding) / stride + 1;
                let across = strides(w, window.padding.w, window.stride.w);
                let (_, _, wide) = self.units(plan);
                (if wide { across } else { w }, Rows::Each(strides(h, window.padding.h, window.stride.h)))
            }
            _ => (w, Rows::Walked { rows: h, most: 8 }),
        };
        self.launch(plan, name, tensors, maps, self.window, columns, rows)
    }

    /// Planes, units of channels, whether a unit is 16 bytes.
    fn units(&self, plan: &Plan<'_>) -> (u64, u64, bool) {
        let view = self.view;
        let wide = view.last && view.channels.is_multiple_of(plan.lanes());
        match (view.last, wide) {
            (true, true) => (view.samples, view.channels / plan.lanes(), true),
            (true, false) => (view.samples, view.channels, false),
            (false, _) => (product(&[view.samples, view.channels]), 1, false),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn launch(
        &self,
        plan: &mut Plan<'_>,
        name: &str,
        tensors: &[Argument],
        maps: Maps,
        window: Option<Window>,
        columns: u64,
        rows: Rows,
    ) -> Result<(), DeviceError> {
        let (planes, channels, wide) = self.units(plan);
        let (input, output) = (maps.input, maps.output);
        // Rows are indexed by 32 bits; windows that divide the input multiply two sizes in them.
        int(product(&[input.w.max(output.w), self.view.channels]))?;
        if window.is_none() && [input.h, input.w, output.h, output.w].iter().any(|&size| size >= 1 << 16) {
            return Err(unsupported(name, "an adaptive window over a map of 65536 rows or columns"));
        }
        let mut arguments = tensors.to_vec();
        let sizes = window.map_or([0, 0, 1, 1, 0, 0], |window| {
            [window.kernel.h, window.kernel.w, window.stride.h, window.stride.w, window.padding.h, window.padding.w]
        });
        for size in [input.h, input.w, output.h, output.w].into_iter().chain(sizes) {
            arguments.push(int(size)?);
        }
        let (runs, walk) = match rows {
            Rows::Each(rows) => (rows, 1),
            Rows::Walked { rows, most } => {
                let threads = |walk: u64| product(&[planes, channels, columns, rows.div_ceil(walk)]);
                let enough = plan.limits.spread() * 2048;
                let walk = [8, 4, 2].into_iter().find(|&w| w <= most && threads(w) >= enough).unwrap_or(1);
                (rows.div_ceil(walk), walk)
            }
        };
        arguments.push(long(planes)?);
        for divisor in [channels, columns, runs] {
            arguments.extend(divider(divisor)?);
        }
        arguments.extend([int(walk)?, int(form(window))?, flag(wide)]);
        let (blocks, threads) = flat_grid(product(&[planes, channels, columns, runs]), 1, plan.limits);
        plan.push(name, [blocks, 1, 1], [threads, 1, 1], arguments)
    }
}

/// Rows of a plane: one piece of work each, or up to `most` together where enough threads remain.
#[derive(Clone, Copy, Debug)]
enum Rows {
    Each(u64),
    Walked { rows: u64, most: u64 },
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
