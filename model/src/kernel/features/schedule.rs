//! Time of a matrix product by the best of the schedules that libraries have: a tile per thread block, the contraction in
//! steps, its parts on several blocks.

use crate::base::number::Number;

/// Tiles per thread block, rows by columns; narrow ones for few rows or columns (the product's sides may be exchanged).
const TILES: [(u64, u64); 10] =
    [(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (64, 16), (16, 64)];
/// Over how many blocks a contraction may be split.
const SPLITS: [u64; 5] = [1, 2, 4, 8, 16];
/// Bytes of a row of an operand in one step of the contraction.
const STEP_BYTES: u64 = 128;
/// A step takes at least so long: a load from memory takes 0.6 us and some four steps are under way (`cp.async` and TMA
/// pipelines of CUTLASS have three to five stages).
const STEP_S: f64 = 0.15e-6;
/// Bytes that a multiprocessor gets of the second-level cache in a clock (64 at most; half of that where all read).
const CACHE_BYTES: f64 = 32.0;
/// Adding up what several blocks have, or waiting for them.
const JOIN_S: f64 = 1e-6;

/// A product on a device: `groups` times `m` x `k` by `k` x `n`, with times in seconds.
pub(super) struct Product<V> {
    pub groups: V,
    pub m: V,
    pub n: V,
    pub k: V,
    /// Bytes of an element of the operands.
    pub bytes: u64,
    /// Its arithmetic at the rate that its operands' alignment allows.
    pub compute: V,
    /// Its traffic at peak bandwidth.
    pub memory: V,
}

/// What blocks run on.
pub(super) struct Device {
    pub sms: f64,
    /// Core clock, Hz.
    pub clock: f64,
}

/// Seconds by the best schedule, without the launch: whole waves of blocks, each as long as its arithmetic, its loads from the
/// second-level cache or the latency of its steps takes; or the traffic where that takes longer.
#[inline(always)]
pub(super) fn seconds<V: Number>(product: &Product<V>, device: &Device) -> V {
    let splits = SPLITS.map(|parts| product.split(parts, device));
    let Product { groups, m, n, k, compute, memory, .. } = *product;
    // One multiprocessor has its share of the peak.
    let each = compute * device.sms / (groups * m * n * k);
    let load = product.bytes as f64 / (CACHE_BYTES * device.clock);
    let mut best = V::of(f64::INFINITY);
    for tile @ (tm, tn) in TILES {
        let (rows, columns) = (tm as f64, tn as f64);
        let waves = product.blocks(tile) / device.sms;
        let arithmetic_or_loads = (each * (rows * columns)).max(V::of((rows + columns) * load));
        for split in &splits {
            let block = (arithmetic_or_loads * split.depth).max(split.latency);
            let whole = (waves * split.parts).ceil() * block;
            best = best.min(whole.max(memory) + split.join);
        }
    }
    best
}

/// A contraction whose parts are on several blocks.
#[derive(Clone, Copy)]
struct Split<V> {
    parts: f64,
    /// How many elements of the contraction the steps of a part go over.
    depth: V,
    /// What its steps take at least.
    latency: V,
    /// Adding up the parts; without end where they would be shorter than two steps.
    join: V,
}

impl<V: Number> Product<V> {
    /// The contraction on so many blocks.
    #[inline(always)]
    fn split(&self, parts: u64, device: &Device) -> Split<V> {
        let step = (STEP_BYTES / self.bytes.max(1)).max(1) as f64;
        let shortest = (2 * STEP_BYTES / self.bytes.max(1)) as f64;
        let of = parts as f64;
        let steps = ((self.k / of).ceil() / step).ceil();
        // Partial sums are written and read in 32 bits, by the cache.
        let sums = self.groups * (self.m * self.n) * (8.0 * of);
        let join = match parts {
            1 => V::of(0.0),
            _ => {
                let time = sums / (CACHE_BYTES * device.clock * device.sms) + JOIN_S;
                V::of(shortest * of).at_most(self.k, time, V::of(f64::INFINITY))
            }
        };
        Split { parts: of, depth: steps * step, latency: steps * STEP_S, join }
    }

    /// Tiles of its result.
    #[inline(always)]
    fn blocks(&self, (tm, tn): (u64, u64)) -> V {
        self.groups * (self.m / tm as f64).ceil() * (self.n / tn as f64).ceil()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device { sms: 100.0, clock: 1e9 };

    /// In bf16, at 200 operations per clock and multiprocessor.
    fn product(m: f64, n: f64, k: f64) -> Product<f64> {
        let compute = 2.0 * m * n * k / (200.0 * 100.0 * 1e9);
        Product { groups: 1.0, m, n, k, bytes: 2, compute, memory: 0.0 }
    }

    #[test]
    fn whole_tiles_in_whole_waves_take_what_their_arithmetic_takes() {
        let full = product(1280.0, 1280.0 * 10.0, 4096.0);
        assert!((seconds(&full, &DEVICE) / full.compute - 1.0).abs() < 1e-9);
        // One row more is a row of tiles more, of a size that wastes least.
        let more = seconds(&product(1281.0, 12_800.0, 4096.0), &DEVICE) / full.compute;
        assert!((1.005..1.06).contains(&more), "{more}");
    }

    #[test]
    fn a_long_contraction_of_few_tiles_is_split() {
        let few = product(64.0, 64.0, 65_536.0);
        // One block of 64 x 64: its multiprocessor does all of the arithmetic.
        let alone = few.compute * DEVICE.sms;
        assert!(seconds(&few, &DEVICE) < alone / 8.0);
        let short = Product { compute: 0.0, ..product(16.0, 16.0, 64.0) };
        let quick = Device { clock: 1e10, ..DEVICE };
        assert!((seconds(&short, &quick) - STEP_S).abs() < 1e-12, "one step, nothing to split");
        assert_eq!(short.split(2, &quick).join, f64::INFINITY);
    }

    #[test]
    fn traffic_bounds_from_below() {
        let read = Product { memory: 1.0, ..product(1.0, 4096.0, 4096.0) };
        assert!((seconds(&read, &DEVICE) - 1.0).abs() < 1e-12);
    }
}
