//! Windows of maps in NCHW through shared memory: kernels of `maps.cu`.

use super::plan::{Limits, Plan, THREADS, int, long};
use crate::DeviceError;
use crate::launch::Argument;
use joulecast_model::net::layer::{Pair, Window};

/// Shared memory of a block that lets seven of them share a multiprocessor of 228 KiB.
const USUAL: u64 = 31 << 10;
/// Shared memory that a block has on every device.
const MOST: u64 = 48 << 10;

/// Sizes of the maps that a launch reads and writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps {
    pub input: Pair,
    pub output: Pair,
}

pub(super) const ANY_FORM: u64 = 0;
const TWO_BY_TWO: u64 = 1;
pub(super) const THREE_BY_TWO: u64 = 2;
pub(super) const THREE_BY_ONE: u64 = 3;

/// Which of the windows that the kernels know when compiling: size by stride, as `pooling.cu` numbers them.
pub(super) fn form(window: Option<Window>) -> u64 {
    match window.map(|w| (w.kernel.h, w.kernel.w, w.stride.h, w.stride.w)) {
        Some((2, 2, 2, 2)) => TWO_BY_TWO,
        Some((3, 3, 2, 2)) => THREE_BY_TWO,
        Some((3, 3, 1, 1)) => THREE_BY_ONE,
        _ => ANY_FORM,
    }
}

/// How planes are cut into blocks: some planes each, or some rows of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tiling {
    together: u64,
    splits: u64,
    rows: u64,
    /// Where the parts of shared memory end.
    ends: Vec<u64>,
}

impl Tiling {
    /// For results of `height` rows; `values` gives how many values of how many bytes the parts of shared memory hold,
    /// for that many rows of a plane's result. `None` where not even one row fits.
    fn new(planes: u64, height: u64, limits: &Limits, values: impl Fn(u64) -> Vec<(u64, u64)>) -> Option<Self> {
        // A part begins anywhere in its first unit.
        let ends = |together: u64, rows: u64| -> Vec<u64> {
            let parts = values(rows).into_iter();
            let sizes = parts.map(|(count, bytes)| (together * count * bytes + 15).next_multiple_of(16));
            sizes.scan(0, |end, size| (*end += size, Some(*end)).1).collect()
        };
        let size = |together: u64, rows: u64| ends(together, rows).last().copied().unwrap_or(0);
        let busy = limits.spread() * 4;
        let wanted = busy.div_ceil(planes).min(height / 8).max(1);
        let fits = |rows: u64, most: u64| size(1, rows) <= most;
        let splits = (wanted..height).find(|splits| fits(height.div_ceil(*splits), USUAL)).unwrap_or(height);
        let rows = height.div_ceil(splits);
        if !fits(rows, MOST) {
            return None;
        }
        let splits = height.div_ceil(rows);
        let room = if splits == 1 { USUAL / size(1, rows).max(1) } else { 1 };
        let together = room.min(planes / busy).max(1);
        Some(Self { together, splits, rows, ends: ends(together, rows) })
    }

    /// Rows that a thread walks down one of `columns`: as few steps as possible, a start counting as two.
    fn walk(&self, columns: u64, rows: u64) -> u64 {
        let steps = |walk: u64| (self.together * columns * rows.div_ceil(walk)).div_ceil(THREADS) * (walk + 2);
        (1..=rows.min(32)).min_by_key(|walk| steps(*walk)).unwrap_or(1)
    }

    fn blocks(&self, planes: u64) -> u64 {
        planes.div_ceil(self.together) * self.splits
    }

    /// The arguments that all kernels share.
    fn arguments(&self, planes: u64, walk: u64) -> Result<Vec<Argument>, DeviceError> {
        Ok(vec![long(planes)?, int(self.together)?, int(self.splits)?, int(self.rows)?, int(walk)?])
    }

    fn shared(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }
}

/// Rows of a map that the windows of `rows` rows of results cover at most; all where those are all.
fn covered(window: Option<Window>, maps: Maps, rows: u64) -> u64 {
    if rows >= maps.output.h {
        return maps.input.h;
    }
    let all = match window {
        Some(window) => rows.saturating_sub(1) * window.stride.h + window.kernel.h,
        None => (rows * maps.input.h).div_ceil(maps.output.h) + 2,
    };
    all.min(maps.input.h)
}

/// Rows of windows over `rows` rows of a map at most; all where those are all.
fn covering(window: Option<Window>, maps: Maps, rows: u64) -> u64 {
    if rows >= maps.input.h {
        return maps.output.h;
    }
    let all = match window {
        Some(window) => (rows + window.kernel.h).div_ceil(window.stride.h) + 1,
        None => (rows * maps.output.h).div_ceil(maps.input.h) + 2,
    };
    all.min(maps.output.h)
}

fn sizes(maps: Maps, window: Option<Window>) -> Result<Vec<Argument>, DeviceError> {
    let window = window.map_or([0, 0, 1, 1, 0, 0], |window| {
        [window.kernel.h, window.kernel.w, window.stride.h, window.stride.w, window.padding.h, window.padding.w]
    });
    let (input, output) = (maps.input, maps.output);
    [input.h, input.w, output.h, output.w].into_iter().chain(window).map(int).collect()
}

/// Windows that divide the input multiply two sizes in 32 bits.
fn indexed(maps: Maps, window: Option<Window>) -> bool {
    window.is_some() || [maps.input.h, maps.input.w, maps.output.h, maps.output.w].iter().all(|&size| size < 1 << 16)
}

/// Plans `name` over windows, where they fit into shared memory; says whether they do.
pub(super) fn pool(
    plan: &mut Plan<'_>,
    name: &str,
    planes: u64,
    tensors: &[Argument],
    maps: Maps,
    window: Option<Window>,
) -> Result<bool, DeviceError> {
    let bytes = plan.format.bytes;
    // Few large windows leave most of a block's threads idle: values of 32 bits are read faster from memory itself.
    if window.is_none() && bytes == 4 {
        return Ok(false);
    }
    let values = |rows: u64| vec![(covered(window, maps, rows) * maps.input.w, bytes), (rows * maps.output.w, bytes)];
    let tiling = Tiling::new(planes, maps.output.h, plan.limits, values).filter(|_| indexed(maps, window));
    let Some(tiling) = tiling else { return Ok(false) };
    let mut arguments = tensors.to_vec();
    arguments.extend(tiling.arguments(planes, tiling.walk(maps.output.w, tiling.rows))?);
    arguments.push(int(tiling.ends[0])?);
    arguments.extend(sizes(maps, window)?);
    arguments.push(int(form(window))?);
    plan.push_sharing(&format!("map_{name}"), tiling.blocks(planes), tiling.shared(), arguments)?;
    Ok(true)
}

/// Plans the gradient `name` of windows, likewise; `tensors` are x (null for a mean), dy, dx.
pub(super) fn pool_gradient(
    plan: &mut Plan<'_>,
    name: &str,
    planes: u64,
    tensors: [Argument; 3],
    maps: Maps,
    window: Option<Window>,
) -> Result<bool, DeviceError> {
    const BYTES_OF_PLACE: u64 = 2;
    let bytes = plan.format.bytes;
    let reads = tensors[0] != Argument::Pointer(0);
    let values = |rows: u64| {
        let windows = covering(window, maps, rows);
        let read = if reads { covered(window, maps, windows) * maps.input.w } else { 0 };
        let places = if reads { windows * maps.output.w } else { 0 };
        let results = (rows * maps.input.w, bytes);
        vec![(read, bytes), (windows * maps.output.w, bytes), (places, BYTES_OF_PLACE), results]
    };
    let tiling = Tiling::new(planes, maps.input.h, plan.limits, values).filter(|_| indexed(maps, window));
    let Some(tiling) = tiling else { return Ok(false) };
    let walk = if reads {
        tiling.walk(maps.output.w, covering(window, maps, tiling.rows))
    } else {
        tiling.walk(maps.input.w, tiling.rows)
    };
    let mut arguments = tensors.to_vec();
    arguments.extend(tiling.arguments(planes, walk)?);
    for end in &tiling.ends[..3] {
        arguments.push(int(*end)?);
    }
    arguments.extend(sizes(maps, window)?);
    arguments.push(int(form(window))?);
    plan.push_sharing(&format!("map_{name}"), tiling.blocks(planes), tiling.shared(), arguments)?;
    Ok(true)
}

/// Plans a map's window that begins at `corner` (row, column), zero outside of it, likewise.
pub(super) fn window(
    plan: &mut Plan<'_>,
    planes: u64,
    tensors: [Argument; 2],
    maps: Maps,
    corner: [i32; 2],
) -> Result<bool, DeviceError> {
    let (input, output) = (maps.input, maps.output);
    let bytes = plan.format.bytes;
    let values = |rows: u64| {
        let read = if rows < output.h { rows.min(input.h) } else { input.h };
        vec![(read * input.w, bytes), (rows * output.w, bytes)]
    };
    let Some(tiling) = Tiling::new(planes, output.h, plan.limits, values) else { return Ok(false) };
    let mut arguments = tensors.to_vec();
    arguments.extend(tiling.arguments(planes, tiling.walk(output.w, tiling.rows))?);
    for size in [tiling.ends[0], input.h, input.w, output.h, output.w] {
        arguments.push(int(size)?);
    }
    arguments.extend(corner.map(Argument::I32));
    plan.push_sharing("map_window", tiling.blocks(planes), tiling.shared(), arguments)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_all_rows_and_fit() {
        let limits = Limits::new(132);
        for (planes, height, width) in [(1, 1, 1), (3, 7, 7), (64, 112, 112), (20_000, 56, 56), (2, 3000, 2000)] {
            let values = |rows: u64| vec![((rows + 2).min(height) * width, 4), (rows * width, 4)];
            let tiling = Tiling::new(planes, height, &limits, values).expect("fits");
            assert!(tiling.rows * tiling.splits >= height && tiling.rows * (tiling.splits - 1) < height, "{tiling:?}");
            assert!(tiling.shared() <= MOST && (tiling.together == 1 || tiling.splits == 1), "{tiling:?}");
            assert!((1..=height).contains(&tiling.walk(width, tiling.rows)));
        }
        assert_eq!(Tiling::new(1, 9, &limits, |rows| vec![(rows * 20_000, 4)]), None);
    }
}
