//! Sums over rows, a number for each column, as PyTorch's reduction kernels take them: gradients of biases and of factors.

use super::kernels::ByWidth;
use crate::base::file::{FileError, within};
use crate::base::precision::{Phase, Precision};
use crate::base::shape::Shape;
use crate::base::units::Seconds;
use crate::device::gpu::Gpu;
use crate::kernel::setting::Layout;
use crate::kernel::work::Work;
use crate::net::layer::{Gradient, Layer};
use serde::Deserialize;
use std::ops::RangeInclusive;

/// Values that a thread reads at once.
const AT_ONCE: u64 = 4;
const THREADS: u64 = 512;
pub(super) const WARP: u64 = 32;
/// Values of a thread at least and at most where several blocks share a column.
const OF_A_THREAD: RangeInclusive<u64> = 16..=256;

/// What such kernels take on a board. Where columns are few, many blocks share each, and the last of them adds up what all have
/// left in memory, one after the other: that bounds them, not traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums {
    /// Cycles from a kernel's start to its end.
    latency: ByWidth,
    /// Share of the memory's bandwidth.
    of_bandwidth: f64,
    /// Cycles until the values have come that a thread reads at once.
    read: f64,
    /// Cycles more where blocks wait for each other.
    shared: f64,
    /// Cycles for each of the partial sums that a thread of the last block adds up, where every thread has a column and where
    /// some have none.
    partial: [f64; 2],
}

/// How many threads and blocks PyTorch takes: `setReduceConfig` of aten/src/ATen/native/cuda/Reduce.cuh, 2.11, for sums over
/// the slower of two dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    /// Values one after the other in a thread.
    per_thread: u64,
    /// Blocks that share columns; 1 where none does.
    sharing: u64,
    /// Rows of threads in a block.
    height: u64,
    /// Whether some threads of the last block along the columns have none.
    ragged: bool,
}

/// The largest power of two that is not above a number of at least 1.
fn power_of_two(number: u64) -> u64 {
    1 << number.ilog2()
}

impl Plan {
    /// Rows and columns are at least 1.
    fn of(rows: u64, columns: u64, gpu: &Gpu) -> Self {
        let together = [AT_ONCE, 2, 1].into_iter().find(|n| columns.is_multiple_of(*n)).unwrap_or(1);
        let (across, most) = (columns / together, THREADS / together);
        let within = |size: u64| if size < most { power_of_two(size) } else { most };
        let height = within(rows).min(most / within(across).min(WARP));
        let width = within(across).min(most / height);
        let divided = rows >= height * OF_A_THREAD.start() || rows >= *OF_A_THREAD.end();
        let alone = if divided { rows.div_ceil(height) } else { rows };
        let blocks = across.div_ceil(if divided { width } else { width * height });
        let at_once = gpu.sms.value * gpu.threads_per_sm / (width * height);
        let share = divided && alone >= *OF_A_THREAD.end() && blocks <= at_once;
        let sharing = if share {
            let wanted = at_once.div_ceil(blocks).min(alone.div_ceil(*OF_A_THREAD.start()));
            wanted.max(alone.div_ceil(*OF_A_THREAD.end()))
        } else {
            1
        };
        let per_thread = if share { rows.div_ceil(height * sharing) } else { alone };
        Self { per_thread, sharing, height, ragged: !across.is_multiple_of(width) }
    }
}

impl Sums {
    /// The time of summing so many rows of so many columns at a board's highest clock.
    pub fn over(&self, rows: u64, columns: u64, precision: Precision, gpu: &Gpu) -> Seconds {
        let (rows, columns) = (rows.max(1), columns.max(1));
        let plan = Plan::of(rows, columns, gpu);
        let clock = gpu.core_clock.boost.value.get();
        let bytes = rows as f64 * columns as f64 * precision.bytes() as f64;
        let traffic = bytes / (self.of_bandwidth * gpu.bandwidth.value.get());
        // Where there are more blocks than a board holds, traffic is longer.
        let reads = plan.per_thread as f64 / AT_ONCE as f64 * self.read / clock;
        let together = if plan.sharing > 1 {
            let each = self.partial[usize::from(plan.ragged)];
            self.shared + plan.sharing as f64 / plan.height as f64 * each
        } else {
            0.0
        };
        Seconds::new((self.latency.of(precision) + together) / clock + traffic.max(reads))
    }

    /// The time of a bias's gradient where values of a row lie side by side; nothing of other work.
    pub fn bias_gradient(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let has_bias = match work.layer() {
            Layer::Linear(linear) => linear.bias,
            Layer::Conv2d(conv) => conv.bias && work.layout == Layout::Nhwc,
            _ => false,
        };
        if !has_bias || work.phase != Phase::BackwardWeights {
            return Seconds::ZERO;
        }
        self.of_results(work, work.output.axis(), gpu)
    }

    /// What the gradient of a layer's learned factors or summands takes at least where values of a row lie side by side: of
    /// factors the product with the layer's input is written first. Nothing of other work.
    pub fn least(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let (columns, multiplied) = match work.layer() {
            Layer::Scale(_) => (work.output.axis(), true),
            Layer::Elementwise(layer) if layer.parameters > 0 => (layer.parameters, layer.gradient != Gradient::Passes),
            _ => return Seconds::ZERO,
        };
        let is_map = work.inputs().first().is_some_and(Shape::is_map);
        if is_map && work.layout != Layout::Nhwc || work.phase != Phase::BackwardWeights {
            return Seconds::ZERO;
        }
        let values = (work.output.elements() * work.batch * work.precision.bytes()) as f64;
        // The product reads two tensors and writes one.
        let product = if multiplied { 3.0 * values / gpu.bandwidth.value.get() } else { 0.0 };
        self.of_results(work, columns, gpu) + Seconds::new(product)
    }

    /// Sums of as many values as the work has results.
    fn of_results(&self, work: &Work<'_>, columns: u64, gpu: &Gpu) -> Seconds {
        self.over(work.output.elements() * work.batch / columns.max(1), columns, work.precision, gpu)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SumsFile {
    latency: [f64; 2],
    of_bandwidth: f64,
    read: f64,
    shared: f64,
    partial: [f64; 2],
    #[serde(rename = "source")]
    _source: String,
}

impl SumsFile {
    pub(super) fn read(self) -> Result<Sums, FileError> {
        const CYCLES: RangeInclusive<f64> = 0.0..=100_000.0;
        within("sums of_bandwidth", self.of_bandwidth, 0.01..=1.0)?;
        for (field, cycles) in [("read", self.read), ("shared", self.shared)] {
            within(&format!("sums {field}"), cycles, CYCLES)?;
        }
        self.partial.iter().try_for_each(|&cycles| within("sums partial", cycles, CYCLES).map(drop))?;
        Ok(Sums {
            latency: ByWidth::read("sums latency", self.latency, &CYCLES)?,
            of_bandwidth: self.of_bandwidth,
            read: self.read,
            shared: self.shared,
            partial: self.partial,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::catalog;
    use crate::net::case::LayerCase;

    fn sums() -> Sums {
        catalog::framework("pytorch").expect("shipped").sums.expect("in the profile")
    }

    #[test]
    fn blocks_and_threads_are_pytorch_s() {
        let gpu = catalog::gpu("h100").expect("shipped");
        let plan = |rows, columns| {
            let p = Plan::of(rows, columns, &gpu);
            (p.height, p.sharing, p.per_thread, p.ragged)
        };
        // Too few rows for blocks to share; 196 values for each thread at least; so many blocks as the board holds.
        assert_eq!(plan(4, 384), (4, 1, 4, false));
        assert_eq!(plan(784, 3072), (4, 1, 196, false));
        assert_eq!(plan(1020, 384), (4, 1, 255, false));
        assert_eq!(plan(1024, 384), (4, 16, 16, false));
        assert_eq!(plan(3136, 192), (4, 49, 16, true));
        assert_eq!(plan(73_728, 192), (4, 1056, 18, true));
        assert_eq!(plan(147_456, 512), (4, 528, 70, false));
        assert_eq!(plan(100_352, 96), (8, 784, 16, true));
        // An odd number of columns is read one by one.
        assert_eq!(plan(2401, 3), (256, 1, 10, true));
        // More values of a thread than 256 are never left.
        assert_eq!(plan(100_000_000, 384).1, 97_657);
    }

    #[test]
    fn sums_take_what_they_were_measured_to() {
        let gpu = catalog::gpu("h100").expect("shipped");
        let measured = [
            (73_728, 192, Precision::Bf16, 128.4),
            (147_456, 128, Precision::Bf16, 133.5),
            (147_456, 512, Precision::Fp16, 105.7),
            (401_408, 384, Precision::Bf16, 170.5),
            (50_176, 576, Precision::Fp16, 73.2),
            (3136, 192, Precision::Fp32, 12.6),
            (200_704, 576, Precision::Fp32, 200.8),
            (2048, 4608, Precision::Fp32, 23.4),
            (32, 1000, Precision::Fp32, 4.8),
        ];
        for (rows, columns, precision, us) in measured {
            let time = sums().over(rows, columns, precision, &gpu).to_us();
            assert!((time / us).ln().abs() < 0.3, "{rows} x {columns}: {time} us, measured {us}");
        }
    }

    fn work(kind: &str, fields: &str, dims: &[u64], phase: Phase) -> Work<'static> {
        let layer = Layer::from_table(kind, fields.parse().expect("a table")).expect("a kind").expect("fields");
        let case = LayerCase { inputs: vec![Shape::new(dims).expect("a shape")], layer };
        Work::usual(case, phase, 32, Precision::Bf16, Mode::Training).expect("runs")
    }

    #[test]
    fn gradients_of_biases_and_factors_are_sums_over_rows() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let sum = sums().over(6272, 384, Precision::Bf16, &gpu);
        let of = |bias: bool, phase| {
            sums().bias_gradient(&work("linear", &format!("features = 384\nbias = {bias}"), &[196, 384], phase), &gpu)
        };
        assert_eq!(of(true, Phase::BackwardWeights), sum);
        assert_eq!(of(true, Phase::BackwardData), Seconds::ZERO);
        assert_eq!(of(false, Phase::BackwardWeights), Seconds::ZERO);
        let least = |kind, fields, dims: &[u64], phase| sums().least(&work(kind, fields, dims, phase), &gpu);
        let factors = least("scale", "bias = false", &[196, 384], Phase::BackwardWeights);
        let product = 3.0 * 2.0 * 6272.0 * 384.0 / gpu.bandwidth.value.get();
        assert!((factors.get() - sum.get() - product).abs() < 1e-12);
        assert_eq!(least("scale", "bias = false", &[196, 384], Phase::BackwardData), Seconds::ZERO);
        // A table of all places is summed over samples alone.
        let places = "parameters = 75264\ngradient = \"passes\"";
        let table = least("elementwise", places, &[196, 384], Phase::BackwardWeights);
        assert_eq!(table, sums().over(32, 75_264, Precision::Bf16, &gpu));
        assert_eq!(least("gelu", "", &[196, 384], Phase::BackwardWeights), Seconds::ZERO);
        // Channels of a map lie side by side in the layout of 16 bits alone.
        let map = work("scale", "bias = false", &[384, 14, 14], Phase::BackwardWeights);
        assert_eq!(sums().least(&map, &gpu), factors);
        assert_eq!(sums().least(&Work { layout: Layout::Nchw, ..map }, &gpu), Seconds::ZERO);
    }
}
