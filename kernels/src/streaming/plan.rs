//! What all launch plans share: storage formats, tensors seen as rows or maps, grids within the device's limits.

use crate::DeviceError;
use crate::launch::{Address, Argument, KernelLaunch};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::{Shape, product};
use joulecast_model::kernel::setting::Layout;

/// Threads of a block wherever nothing else decides.
pub(super) const THREADS: u64 = 256;

/// What a device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Largest grid in x, y and z.
    pub grid: [u32; 3],
}

impl Limits {
    /// The grids that CUDA allows since compute capability 3.0.
    pub const fn new(multiprocessors: u32) -> Self {
        Self { multiprocessors, grid: [i32::MAX as u32, 65535, 65535] }
    }

    /// Multiprocessors that plans count on: no more than 256, so that scratch memory has a bound on every device.
    pub(super) fn spread(&self) -> u64 {
        u64::from(self.multiprocessors.clamp(1, 256))
    }
}

/// How values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// End of the functions' names.
    pub suffix: &'static str,
    /// Bytes of a value.
    pub bytes: u64,
}

impl Format {
    pub const F32: Self = Self { suffix: "f32", bytes: 4 };

    pub fn of(precision: Precision) -> Result<Self, DeviceError> {
        match precision {
            Precision::Fp32 | Precision::Tf32 => Ok(Self::F32),
            Precision::Fp16 => Ok(Self { suffix: "f16", bytes: 2 }),
            Precision::Bf16 => Ok(Self { suffix: "bf16", bytes: 2 }),
            Precision::Int8 => Err(unsupported("int8", "our own kernels compute in fp32 on floating-point tensors")),
            Precision::Fp8 => Err(unsupported("fp8", "only products are computed in it")),
        }
    }

    /// Values in 16 bytes.
    pub fn lanes(self) -> u64 {
        16 / self.bytes
    }
}

/// A tensor seen by its channels: the channels of a map, else the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub samples: u64,
    pub channels: u64,
    /// Positions of a sample.
    pub area: u64,
    /// Whether channels are neighbours in memory.
    pub last: bool,
}

impl View {
    pub fn of(shape: &Shape, batch: u64, layout: Layout) -> Self {
        let channels = shape.axis();
        let is_map = shape.as_map().is_some();
        Self {
            samples: batch,
            channels,
            area: shape.elements() / channels,
            last: !is_map || shape.elements() == channels || layout == Layout::Nhwc,
        }
    }

    /// Positions of the batch.
    pub fn positions(&self) -> u64 {
        self.samples.saturating_mul(self.area)
    }

    /// Values of the batch.
    pub fn values(&self) -> u64 {
        product(&[self.samples, self.channels, self.area])
    }

    /// Values between two neighbouring channels of a position: the map's area, or 1 where channels come last.
    pub fn inner(&self) -> u64 {
        if self.last { 1 } else { self.area }
    }
}

/// A list of launches in the making.
pub(super) struct Plan<'a> {
    pub format: Format,
    pub limits: &'a Limits,
    pub launches: Vec<KernelLaunch>,
}

impl<'a> Plan<'a> {
    pub fn new(precision: Precision, limits: &'a Limits) -> Result<Self, DeviceError> {
        Ok(Self { format: Format::of(precision)?, limits, launches: Vec::new() })
    }

    pub fn lanes(&self) -> u64 {
        self.format.lanes()
    }

    /// Adds a launch of `name` in the plan's format.
    pub fn push(
        &mut self,
        name: &str,
        grid: [u64; 3],
        block: [u64; 3],
        arguments: Vec<Argument>,
    ) -> Result<(), DeviceError> {
        let function = format!("{name}_{}", self.format.suffix);
        self.push_plain(function, grid, block, arguments)
    }

    /// Adds a launch of `name` in the plan's format, whose blocks have that many bytes of shared memory.
    pub fn push_sharing(
        &mut self,
        name: &str,
        blocks: u64,
        shared: u64,
        arguments: Vec<Argument>,
    ) -> Result<(), DeviceError> {
        self.push(name, [blocks, 1, 1], [THREADS, 1, 1], arguments)?;
        if let Some(launch) = self.launches.last_mut() {
            // At most what every device has.
            launch.shared = shared as u32;
        }
        Ok(())
    }

    /// Adds a launch of a function by its whole name.
    pub fn push_plain(
        &mut self,
        function: String,
        grid: [u64; 3],
        block: [u64; 3],
        arguments: Vec<Argument>,
    ) -> Result<(), DeviceError> {
        let fits = grid.iter().zip(self.limits.grid).all(|(&size, limit)| (1..=u64::from(limit)).contains(&size));
        if !fits {
            return Err(unsupported(&function, &format!("a grid of {grid:?} blocks is beyond the device's limits")));
        }
        // The limits are of 32 bits, blocks come from this module: neither conversion loses anything.
        let small = |sizes: [u64; 3]| sizes.map(|s| s as u32);
        self.launches.push(KernelLaunch { function, grid: small(grid), block: small(block), shared: 0, arguments });
        Ok(())
    }

    /// Adds an element-wise launch over `n` values: `units` 16-byte units per thread, smaller blocks for small
    /// tensors so that they reach more multiprocessors.
    pub fn flat(&mut self, name: &str, n: u64, units: u64, arguments: Vec<Argument>) -> Result<(), DeviceError> {
        let whole = n.div_ceil(self.lanes());
        let (blocks, threads) = flat_grid(whole, units, self.limits);
        self.push(name, [blocks, 1, 1], [threads, 1, 1], arguments)
    }
}

/// Blocks and threads for `work` items, `each` per thread.
pub(super) fn flat_grid(work: u64, each: u64, limits: &Limits) -> (u64, u64) {
    let busy = limits.spread() * 4;
    let threads = [THREADS, THREADS / 2, THREADS / 4]
        .into_iter()
        .find(|threads| work.div_ceil(threads * each) >= busy)
        .unwrap_or(THREADS / 4);
    (work.div_ceil(threads * each).max(1), threads)
}

/// A pointer argument.
pub(super) fn pointer(address: Address) -> Argument {
    Argument::Pointer(address)
}

/// An address that many bytes further; null stays null.
pub(super) fn offset(address: Address, bytes: u64) -> Address {
    if address == 0 { 0 } else { address + bytes }
}

/// A `long long` argument.
pub(super) fn long(value: u64) -> Result<Argument, DeviceError> {
    let fits = i64::try_from(value).map_err(|_| unsupported("this size", &format!("{value} values are too many")))?;
    Ok(Argument::I64(fits))
}

/// An `int` argument; sums of two such stay within 32 bits on the device.
pub(super) fn int(value: u64) -> Result<Argument, DeviceError> {
    const MOST: u64 = 1 << 30;
    if value > MOST {
        return Err(unsupported("this size", &format!("{value} is more than the {MOST} a kernel indexes by")));
    }
    Ok(Argument::I32(value as i32))
}

/// An `int` argument that is 0 or 1.
pub(super) fn flag(value: bool) -> Argument {
    Argument::I32(i32::from(value))
}

/// The three arguments of a kernel's `Divider`: divisor, multiplier, shift. A divisor of 0 is never divided by.
pub(super) fn divider(divisor: u64) -> Result<[Argument; 3], DeviceError> {
    let (multiplier, shift) = multiplier(divisor);
    // The bits of an unsigned factor; a shift is at most 62.
    Ok([long(divisor)?, Argument::I32(multiplier as i32), Argument::I32(shift as i32)])
}

/// Factor and shift by which numbers below 2^31 are divided: n * factor >> shift.
fn multiplier(divisor: u64) -> (u32, u32) {
    let divisor = divisor.clamp(1, 1 << 31);
    let shift = 31 + divisor.next_power_of_two().trailing_zeros();
    ((1u64 << shift).div_ceil(divisor) as u32, shift)
}

pub(super) fn unsupported(what: &str, why: &str) -> DeviceError {
    DeviceError::Unsupported { what: what.to_string(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_grids_cover_everything_once() {
        let limits = Limits::new(132);
        for each in [1, 2, 4] {
            for work in (1..2000).chain([65535, 1 << 20, (1 << 31) + 1, 1 << 33]) {
                let (blocks, threads) = flat_grid(work, each, &limits);
                assert!(blocks * threads * each >= work, "{work} items");
                assert!((blocks - 1) * threads * each < work, "{work} items leave a block idle");
            }
        }
    }

    #[test]
    fn multiplying_and_shifting_divides() {
        const LARGEST: u64 = (1 << 31) - 1;
        for divisor in (1..300).chain([3136, 50176, 65535, 65536, 65537, (1 << 30) + 1, LARGEST, 1 << 31, 1 << 40]) {
            let (multiplier, shift) = multiplier(divisor);
            let near = |n: u64| [n.saturating_sub(1), n, n + 1];
            for n in (0..70).flat_map(|i| near(divisor * i)).chain(near(LARGEST - LARGEST % divisor)).chain([LARGEST]) {
                if n <= LARGEST {
                    assert_eq!((n * u64::from(multiplier)) >> shift, n / divisor, "{n} / {divisor}");
                }
            }
        }
    }

    #[test]
    fn beyond_the_grid_is_an_error() {
        let limits = Limits::new(132);
        let mut plan = Plan::new(Precision::Fp32, &limits).expect("fp32");
        assert!(plan.push("copy", [1 << 31, 1, 1], [256, 1, 1], Vec::new()).is_err());
        assert!(plan.push("copy", [1, 65536, 1], [256, 1, 1], Vec::new()).is_err());
        assert!(plan.push("copy", [1, 65535, 1], [256, 1, 1], Vec::new()).is_ok());
    }
}
