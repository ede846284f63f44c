//! Time of a matrix product by the best of the schedules that libraries have: a tile per thread block, the contraction in
//! steps, its parts on several blocks.

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
pub(super) struct Product {
    pub groups: u64,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    /// Bytes of an element of the operands.
    pub bytes: u64,
    /// Its arithmetic at the rate that its operands' alignment allows.
    pub compute: f64,
    /// Its traffic at peak bandwidth.
    pub memory: f64,
}

/// What blocks run on.
pub(super) struct Device {
    pub sms: f64,
    /// Core clock, Hz.
    pub clock: f64,
}

/// Seconds by the best schedule, without the launch: whole waves of blocks, each as long as its arithmetic, its loads from the
/// second-level cache or the latency of its steps takes; or the traffic where that takes longer.
pub(super) fn seconds(product: &Product, device: &Device) -> f64 {
    let splits = SPLITS.map(|split| product.split(split));
    let mut best = f64::INFINITY;
    for tile in TILES {
        let blocks = product.blocks(tile);
        for split in splits.iter().flatten() {
            best = best.min(by(product, device, (tile, blocks), split));
        }
    }
    best
}

/// A contraction whose parts are on several blocks.
#[derive(Clone, Copy)]
struct Split {
    parts: f64,
    /// Steps of a part, and how many elements of the contraction they go over.
    steps: f64,
    depth: f64,
}

impl Product {
    /// The contraction on so many blocks; `None` where their parts would be shorter than two steps.
    fn split(&self, parts: u64) -> Option<Split> {
        let shortest = parts == 1 || self.k / parts >= 2 * STEP_BYTES / self.bytes.max(1);
        let step = (STEP_BYTES / self.bytes.max(1)).max(1);
        let steps = self.k.div_ceil(parts).div_ceil(step) as f64;
        shortest.then_some(Split { parts: parts as f64, steps, depth: steps * step as f64 })
    }

    /// Tiles of its result.
    fn blocks(&self, (tm, tn): (u64, u64)) -> f64 {
        self.groups as f64 * self.m.div_ceil(tm) as f64 * self.n.div_ceil(tn) as f64
    }
}

fn by(p: &Product, device: &Device, ((tm, tn), blocks): ((u64, u64), f64), split: &Split) -> f64 {
    let Split { parts, steps, depth } = *split;
    let waves = (blocks * parts / device.sms).ceil();
    // One multiprocessor has its share of the peak.
    let useful = p.groups as f64 * p.m as f64 * p.n as f64 * p.k as f64;
    let arithmetic = p.compute * device.sms * (tm * tn) as f64 * depth / useful;
    let loads = (tm + tn) as f64 * depth * p.bytes as f64 / (CACHE_BYTES * device.clock);
    let block = arithmetic.max(loads).max(steps * STEP_S);
    // Partial sums are written and read in 32 bits, by the cache.
    let (joins, sums) =
        if parts > 1.0 { (JOIN_S, 8.0 * parts * p.groups as f64 * (p.m * p.n) as f64) } else { (0.0, 0.0) };
    let join = joins + sums / (CACHE_BYTES * device.clock * device.sms);
    (waves * block).max(p.memory) + join
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device { sms: 100.0, clock: 1e9 };

    /// In bf16, at 200 operations per clock and multiprocessor.
    fn product(m: u64, n: u64, k: u64) -> Product {
        let compute = 2.0 * (m * n * k) as f64 / (200.0 * 100.0 * 1e9);
        Product { groups: 1, m, n, k, bytes: 2, compute, memory: 0.0 }
    }

    #[test]
    fn whole_tiles_in_whole_waves_take_what_their_arithmetic_takes() {
        let full = product(1280, 1280 * 10, 4096);
        assert!((seconds(&full, &DEVICE) / full.compute - 1.0).abs() < 1e-9);
        // One row more is a row of tiles more, of a size that wastes least.
        let more = seconds(&product(1281, 12_800, 4096), &DEVICE) / full.compute;
        assert!((1.005..1.06).contains(&more), "{more}");
    }

    #[test]
    fn a_long_contraction_of_few_tiles_is_split() {
        let few = product(64, 64, 65_536);
        let alone = by(&few, &DEVICE, ((64, 64), few.blocks((64, 64))), &few.split(1).expect("whole"));
        assert!(seconds(&few, &DEVICE) < alone / 8.0);
        let short = Product { compute: 0.0, ..product(16, 16, 64) };
        let quick = Device { clock: 1e10, ..DEVICE };
        assert!((seconds(&short, &quick) - STEP_S).abs() < 1e-12, "one step, nothing to split");
    }

    #[test]
    fn traffic_bounds_from_below() {
        let read = Product { memory: 1.0, ..product(1, 4096, 4096) };
        assert!((seconds(&read, &DEVICE) - 1.0).abs() < 1e-12);
    }
}
