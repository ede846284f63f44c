//! Kernels that are bound by how threads take rows and windows: norms, rows of tables, softmaxes, products of few columns,
//! windows laid side by side.

use super::kernels::{ByWidth, CYCLES};
use super::sums::WARP;
use crate::base::file::{FileError, within};
use crate::base::precision::{Phase, Precision};
use crate::base::units::Seconds;
use crate::device::gpu::Gpu;
use crate::kernel::work::Work;
use crate::net::layer::{Elementwise, Layer};
use serde::Deserialize;

/// Cycles that a line of the first-level cache can take.
const CYCLES_PER_LINE: f64 = 100.0;
/// Norms over features by a block of threads for each row, however short that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowByRow {
    /// Cycles of a multiprocessor per row of a layer norm.
    cycles_per_row: ByWidth,
    /// Cycles from a kernel's start to its end of a layer norm and of a root mean square: of any, and per feature.
    latency: [(f64, f64); 2],
}

impl RowByRow {
    /// What a norm takes at least, forward at a board's highest clock; nothing of all other layers.
    pub fn least(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let input = work.input();
        let (features, cycles_per_row, (any, per_feature)) = match work.layer() {
            _ if work.phase != Phase::Forward => return Seconds::ZERO,
            Layer::LayerNorm(norm) => (norm.row(&input), self.cycles_per_row.of(work.precision), self.latency[0]),
            Layer::RmsNorm(norm) => (norm.row(&input), 0.0, self.latency[1]),
            _ => return Seconds::ZERO,
        };
        let rows = input.elements() / features.max(1) * work.batch;
        let (clock, sms) = (gpu.core_clock.boost.value.get(), gpu.sms.value as f64);
        let latency = any + per_feature * features as f64;
        Seconds::new(latency.max(cycles_per_row * rows as f64 / sms) / clock)
    }
}

/// Bytes that a thread fetches at once: rows of a table that are no multiple of them go through another kernel.
const FETCHED: u64 = 16;

/// Rows of a table by a block of threads for each, however short they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gather {
    /// Cycles of a multiprocessor per row.
    cycles_per_row: f64,
    /// Cycles of few rows.
    latency: f64,
    /// Of a table's gradient: cycles of sorting what was looked up, and of adding up one row after the other what is of one place.
    gradient: [f64; 2],
}

impl Gather {
    /// What fetching rows, and adding up their gradients, takes at least at a board's highest clock; nothing of all other layers.
    pub fn least(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let Layer::Embedding(table) = work.layer() else { return Seconds::ZERO };
        let rows = work.input().elements() * work.batch;
        let (clock, sms) = (gpu.core_clock.boost.value.get(), gpu.sms.value as f64);
        match work.phase {
            Phase::Forward => {
                let whole = table.features.saturating_mul(work.precision.bytes()).is_multiple_of(FETCHED);
                let cycles = self.latency + self.cycles_per_row * rows as f64 / sms;
                if whole { Seconds::new(cycles / clock) } else { Seconds::ZERO }
            }
            // Of distances between places: each is looked up by so many pairs as there are places, in a step, not in a sample.
            Phase::BackwardWeights if work.batch == 1 && table.vocabulary < rows => {
                let [sorting, each] = self.gradient;
                Seconds::new((sorting + each * (rows as f64).sqrt()) / clock)
            }
            _ => Seconds::ZERO,
        }
    }
}

/// Softmaxes whose rows lie across memory, as over tokens of `[heads, tokens, features]`: threads that are neighbours read values
/// that are not, so that lines of the first-level cache bound them. How PyTorch takes threads: `SpatialSoftMax_getBlockSize` of
/// aten/src/ATen/native/cuda/PersistentSoftmax.cuh and SoftMax.cu of pytorch/pytorch 2.11.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Columns {
    /// Cycles of a multiprocessor for each line that a warp touches.
    cycles_per_line: f64,
    /// Cycles of a short one.
    latency: f64,
}

/// Threads of a block at most.
const BLOCK: u64 = 1024;
/// Up to so many columns, and from rows of so many values, threads share a row.
const SHARED_ROWS: u64 = 64;
/// Bytes of a line.
const LINE: u64 = 128;
/// A row is read for its maximum, its sum and its results, which are written.
const PASSES: u64 = 4;

impl Columns {
    /// What such a softmax takes at least, forward at a board's highest clock; nothing of all other layers.
    pub fn least(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let Layer::Softmax(softmax) = work.layer() else { return Seconds::ZERO };
        let input = work.input();
        let (row, apart) = (softmax.row(&input), softmax.apart(&input));
        if work.phase != Phase::Forward || apart < 2 || row == 0 {
            return Seconds::ZERO;
        }
        let columns = apart.min(BLOCK);
        let shared = if columns <= SHARED_ROWS && row >= SHARED_ROWS {
            1 << (BLOCK / columns).ilog2().min(row.ilog2())
        } else {
            1
        };
        let matrices = work.input().elements() / (row * apart).max(1) * work.batch;
        let blocks = matrices * apart.div_ceil(columns);
        let warps = (columns * shared).div_ceil(WARP);
        let rows_of_a_warp = shared.min(WARP);
        let lines = (rows_of_a_warp * apart * work.precision.bytes()).div_ceil(LINE).min(rows_of_a_warp);
        let touched = PASSES * row.div_ceil(shared) * warps * lines;
        let turns = (blocks as f64 / gpu.sms.value as f64).max(1.0);
        let cycles = self.latency + self.cycles_per_line * touched as f64 * turns;
        Seconds::new(cycles / gpu.core_clock.boost.value.get())
    }
}

/// Windows of maps laid side by side, a kernel for each sample of which a thread copies every window of a channel place by place,
/// and windows added up in their map (aten/src/ATen/native/cuda/im2col.cuh and Im2Col.cu of pytorch/pytorch 2.11): division of
/// places by steps bounds them, not memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Windows {
    /// Cycles of a kernel of few windows, and from one place of them to the next.
    latency: f64,
    cycles_per_place: f64,
    /// Cycles of a multiprocessor per value of windows that are laid side by side.
    cycles_per_value: f64,
    /// Cycles of a multiprocessor per value of a map that windows are added up in.
    cycles_per_sum: f64,
}

impl Windows {
    /// What laying windows side by side or adding them up takes at least at a board's highest clock, each of which is the
    /// gradient of the other; nothing of all other layers.
    pub fn least(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let Layer::Elementwise(Elementwise { im2col, col2im, .. }) = *work.layer() else { return Seconds::ZERO };
        let (map, windows) = match (im2col, col2im) {
            (0, 0) => return Seconds::ZERO,
            (_, 0) => (work.input(), work.output),
            _ => (work.output, work.input()),
        };
        let laid = match work.phase {
            Phase::Forward => im2col > 0,
            Phase::BackwardData => col2im > 0,
            Phase::BackwardWeights | Phase::Update => return Seconds::ZERO,
        };
        let (clock, sms) = (gpu.core_clock.boost.value.get(), gpu.sms.value as f64);
        let cycles = if laid {
            let places = im2col.max(col2im) as f64;
            self.latency + self.cycles_per_place * places + self.cycles_per_value * windows.elements() as f64 / sms
        } else {
            self.cycles_per_sum * map.elements() as f64 / sms
        };
        Seconds::new(cycles * work.batch as f64 / clock)
    }
}

/// Products of a few columns with a matrix as small, as between the heads of attention: tiles of the library's kernels are far
/// wider, so that rows decide how long they take. Cycles of a multiprocessor per row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NarrowProducts {
    forward: PerRow,
    backward: PerRow,
}

/// Columns up to which the first of two numbers holds, and the second.
const NARROW: [u64; 2] = [8, 16];
/// Bytes that rows are a multiple of where kernels of 16 bits and of TF32 take them whole.
const ALIGNED: u64 = 16;

/// Cycles per row by precision, of up to so many columns as [`NARROW`] says.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PerRow {
    fp32: [f64; 2],
    tf32: [f64; 2],
    /// In 16 bits of rows that are [`ALIGNED`], and of others.
    aligned: [f64; 2],
    fp16: f64,
    bf16: f64,
}

impl NarrowProducts {
    /// What such a product takes at least at a board's highest clock, forward and for the gradient of what it reads; nothing of all
    /// other layers.
    pub fn least(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let Layer::Linear(linear) = work.layer() else { return Seconds::ZERO };
        let each = match work.phase {
            Phase::Forward => &self.forward,
            Phase::BackwardData => &self.backward,
            Phase::BackwardWeights | Phase::Update => return Seconds::ZERO,
        };
        let (read, written) = (work.input().axis(), linear.features);
        let Some(wide) = NARROW.iter().position(|&columns| read.max(written) <= columns) else { return Seconds::ZERO };
        let aligned = |columns: u64| columns.saturating_mul(work.precision.bytes()).is_multiple_of(ALIGNED);
        let aligned = aligned(read) && aligned(written);
        let cycles = match work.precision {
            Precision::Tf32 if aligned => each.tf32[wide],
            Precision::Fp32 | Precision::Tf32 => each.fp32[wide],
            Precision::Fp16 | Precision::Bf16 if aligned => each.aligned[wide],
            Precision::Fp16 => each.fp16,
            Precision::Bf16 => each.bf16,
            Precision::Int8 | Precision::Fp8 => return Seconds::ZERO,
        };
        let rows = work.input().elements() / read.max(1) * work.batch;
        Seconds::new(cycles * rows as f64 / gpu.sms.value as f64 / gpu.core_clock.boost.value.get())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NarrowProductsFile {
    forward: PerRow,
    backward: PerRow,
    #[serde(rename = "source")]
    _source: String,
}

impl NarrowProductsFile {
    pub(super) fn read(self) -> Result<NarrowProducts, FileError> {
        let Self { forward, backward, .. } = self;
        for PerRow { fp32, tf32, aligned, fp16, bf16 } in [forward, backward] {
            for cycles in [fp32, tf32, aligned, [fp16, bf16]].concat() {
                within("cycles per row of narrow_products", cycles, CYCLES)?;
            }
        }
        Ok(NarrowProducts { forward, backward })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowByRowFile {
    cycles_per_row: [f64; 2],
    latency: [f64; 2],
    rms_latency: [f64; 2],
    #[serde(rename = "source")]
    _source: String,
}

impl RowByRowFile {
    pub(super) fn read(self) -> Result<RowByRow, FileError> {
        let latency = |field: &str, [any, per_feature]: [f64; 2]| -> Result<(f64, f64), FileError> {
            Ok((within(field, any, CYCLES)?, within(field, per_feature, 0.0..=*CYCLES.end())?))
        };
        Ok(RowByRow {
            cycles_per_row: ByWidth::read("layer_norm cycles_per_row", self.cycles_per_row, &CYCLES)?,
            latency: [
                latency("layer_norm latency", self.latency)?,
                latency("layer_norm rms_latency", self.rms_latency)?,
            ],
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GatherFile {
    cycles_per_row: f64,
    latency: f64,
    gradient: [f64; 2],
    #[serde(rename = "source")]
    _source: String,
}

impl GatherFile {
    pub(super) fn read(self) -> Result<Gather, FileError> {
        Ok(Gather {
            cycles_per_row: within("gather cycles_per_row", self.cycles_per_row, CYCLES)?,
            latency: within("gather latency", self.latency, CYCLES)?,
            gradient: [
                within("gather gradient", self.gradient[0], CYCLES)?,
                within("gather gradient", self.gradient[1], CYCLES)?,
            ],
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowsFile {
    latency: f64,
    cycles_per_place: f64,
    cycles_per_value: f64,
    cycles_per_sum: f64,
    #[serde(rename = "source")]
    _source: String,
}

impl WindowsFile {
    pub(super) fn read(self) -> Result<Windows, FileError> {
        let few = 0.01..=CYCLES_PER_LINE;
        Ok(Windows {
            latency: within("windows latency", self.latency, CYCLES)?,
            cycles_per_place: within("windows cycles_per_place", self.cycles_per_place, CYCLES)?,
            cycles_per_value: within("windows cycles_per_value", self.cycles_per_value, few.clone())?,
            cycles_per_sum: within("windows cycles_per_sum", self.cycles_per_sum, few)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnsFile {
    cycles_per_line: f64,
    latency: f64,
    #[serde(rename = "source")]
    _source: String,
}

impl ColumnsFile {
    pub(super) fn read(self) -> Result<Columns, FileError> {
        Ok(Columns {
            cycles_per_line: within("softmax_columns cycles_per_line", self.cycles_per_line, 0.01..=CYCLES_PER_LINE)?,
            latency: within("softmax_columns latency", self.latency, CYCLES)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernels::tests::work;
    use super::*;
    use crate::catalog;
    use crate::kernel::work::Trial;

    #[test]
    fn short_rows_are_normalized_one_by_one() {
        let (pytorch, gpu) = (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h200").expect("shipped"));
        let rows = pytorch.layer_norm.expect("in the profile");
        let of = |dims: &[u64], precision| rows.least(&work("layer_norm", "", dims, precision), &gpu).to_us();
        // 4 x 16384 rows of 1.09 ns.
        assert!((of(&[16384, 32], Precision::Fp16) - 71.5).abs() < 1.0, "{}", of(&[16384, 32], Precision::Fp16));
        assert_eq!(of(&[16384, 32], Precision::Fp16), of(&[16384, 96], Precision::Fp16));
        assert_eq!(
            of(&[32, 128, 128], Precision::Fp16),
            of(&[16384, 32], Precision::Fp16),
            "over the channels of a map"
        );
        assert!(of(&[16384, 32], Precision::Fp32) > 1.3 * of(&[16384, 32], Precision::Fp16));
        let gelu = work("gelu", "", &[16384, 32], Precision::Fp16);
        assert_eq!(rows.least(&gelu, &gpu), Seconds::ZERO);
        // One row: what a block takes from its first feature to its last.
        assert!((of(&[1, 8192], Precision::Bf16) - 10.7).abs() < 0.1, "{}", of(&[1, 8192], Precision::Bf16));
        let mean_square = rows.least(&work("rms_norm", "", &[1, 4096], Precision::Bf16), &gpu).to_us();
        assert!((mean_square - 5.01).abs() < 0.01, "{mean_square}");
        // Heads of queries are normalized over what one has.
        let heads = |dims: &[u64]| rows.least(&work("rms_norm", "", dims, Precision::Bf16), &gpu);
        assert_eq!(heads(&[64, 3, 256]), heads(&[1, 256]));
    }

    #[test]
    fn rows_of_a_table_are_fetched_one_by_one_whatever_their_width() {
        let (pytorch, gpu) =
            (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h100-sxm").expect("shipped"));
        let gather = pytorch.gather.expect("in the profile");
        let of = |rows: u64, features: u64, precision| {
            let fields = format!("vocabulary = 2209\nfeatures = {features}");
            let trial = Trial { batch: 1, ..work("embedding", &fields, &[rows], precision) };
            gather.least(&trial, &gpu).to_us()
        };
        // Swin v2's table of distances in windows of 24 x 24 positions: 201.1 us; in those of 12 x 12 14.1.
        assert!((of(331_776, 16, Precision::Fp32) - 201.1).abs() < 1.0, "{}", of(331_776, 16, Precision::Fp32));
        assert!((of(20_736, 4, Precision::Tf32) - 14.1).abs() < 0.3, "{}", of(20_736, 4, Precision::Tf32));
        assert_eq!(of(331_776, 16, Precision::Fp16), of(331_776, 8, Precision::Bf16));
        // 24 bytes are no multiple of what is fetched at once.
        assert_eq!(of(153_664, 12, Precision::Bf16), 0.0);
        assert_eq!(gather.least(&work("gelu", "", &[64, 16], Precision::Fp32), &gpu), Seconds::ZERO);
        // Distances of 14 x 14 places in 12 layers took 761 us and 113 of small kernels.
        let gradient = |rows: u64, vocabulary: u64, batch| {
            let fields = format!("vocabulary = {vocabulary}\nfeatures = 6");
            let trial = work("embedding", &fields, &[rows], Precision::Tf32);
            gather.least(&Trial { batch, phase: Phase::BackwardWeights, ..trial }, &gpu).to_us()
        };
        assert!((gradient(38_416, 729, 1) / 72.8 - 1.0).abs() < 0.05, "{}", gradient(38_416, 729, 1));
        assert!((gradient(153_664, 2535, 1) / 122.0 - 1.0).abs() < 0.05, "{}", gradient(153_664, 2535, 1));
        // Words of sentences are added up by another kernel.
        assert_eq!([gradient(512, 30_522, 1), gradient(38_416, 729, 2)], [0.0, 0.0]);
    }

    #[test]
    fn products_of_few_columns_have_a_price_per_row() {
        let (pytorch, gpu) =
            (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h100-sxm").expect("shipped"));
        let narrow = pytorch.narrow_products.expect("in the profile");
        let of = |columns: u64, batch, phase, precision| {
            let fields = format!("features = {columns}\nbias = false");
            let trial = Trial { batch, phase, ..work("linear", &fields, &[331_776, columns], precision) };
            narrow.least(&trial, &gpu).to_us()
        };
        let near = |found: f64, measured: f64| assert!((found / measured - 1.0).abs() < 0.1, "{found}, {measured}");
        // data/measurements/h100/torch_heads.csv
        near(of(4, 16, Phase::Forward, Precision::Fp16), 343.5);
        near(of(8, 16, Phase::Forward, Precision::Fp16), 240.8);
        near(of(16, 16, Phase::Forward, Precision::Bf16), 182.5);
        near(of(12, 16, Phase::BackwardData, Precision::Bf16), 511.6);
        near(of(8, 64, Phase::Forward, Precision::Tf32), 2301.6);
        near(of(16, 16, Phase::BackwardData, Precision::Tf32), 1538.5);
        near(of(8, 16, Phase::Forward, Precision::Fp32), 260.4);
        near(of(16, 64, Phase::BackwardData, Precision::Fp32), 1585.6);
        // Both sides decide which kernel takes it, and the wider of them how wide it is.
        let between = |read: u64, written: u64| {
            let fields = format!("features = {written}\nbias = false");
            let trial = Trial { batch: 16, ..work("linear", &fields, &[331_776, read], Precision::Fp16) };
            narrow.least(&trial, &gpu).to_us()
        };
        assert_eq!([between(4, 8), between(8, 4)], [of(4, 16, Phase::Forward, Precision::Fp16); 2]);
        assert_eq!(between(8, 16), of(16, 16, Phase::Forward, Precision::Fp16));
        assert_eq!([between(4, 32), between(32, 4)], [0.0, 0.0]);
        // Six columns of 4 bytes are no multiple of 16 bytes.
        assert_eq!(of(6, 16, Phase::Forward, Precision::Tf32), of(6, 16, Phase::Forward, Precision::Fp32));
        let zero = [of(17, 16, Phase::Forward, Precision::Fp16), of(4, 16, Phase::BackwardWeights, Precision::Fp16)];
        assert_eq!(zero, [0.0, 0.0]);
        assert_eq!(narrow.least(&work("gelu", "", &[64, 4], Precision::Fp32), &gpu), Seconds::ZERO);
    }

    #[test]
    fn windows_are_laid_side_by_side_sample_by_sample_and_added_up_in_one() {
        let (pytorch, gpu) =
            (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h100-sxm").expect("shipped"));
        let windows = pytorch.windows.expect("in the profile");
        let of = |dims: &[u64], fields: &str, batch, phase| {
            let trial = Trial { batch, phase, ..work("elementwise", fields, dims, Precision::Bf16) };
            windows.least(&trial, &gpu).to_us()
        };
        let near = |found: f64, measured: f64| assert!((found / measured - 1.0).abs() < 0.2, "{found}, {measured}");
        // VOLO's on an H100: 546 and 1,635 us at batch 64, 10.9 and 52.5 of one sample of 448 x 448.
        let (unfold, fold) = ("im2col = 9\noutput = [2304, 576]", "col2im = 9\noutput = [256, 48, 48]");
        near(of(&[256, 48, 48], unfold, 64, Phase::Forward), 546.0);
        near(of(&[2304, 576], fold, 64, Phase::Forward), 1635.0);
        near(of(&[384, 56, 56], "im2col = 9\noutput = [3456, 784]", 1, Phase::Forward), 10.9);
        near(of(&[3456, 784], "col2im = 9\noutput = [384, 56, 56]", 1, Phase::Forward), 52.5);
        // TNT's windows of 4 x 4.
        near(of(&[24, 56, 56], "im2col = 16\noutput = [384, 196]", 16, Phase::Forward), 93.7);
        near(of(&[3, 224, 224], "im2col = 256\noutput = [768, 196]", 64, Phase::Forward), 1980.0);
        // The gradient of one is the other.
        let phase = Phase::BackwardData;
        assert_eq!(of(&[256, 48, 48], unfold, 64, phase), of(&[2304, 576], fold, 64, Phase::Forward));
        assert_eq!(of(&[2304, 576], fold, 64, phase), of(&[256, 48, 48], unfold, 64, Phase::Forward));
        assert_eq!(of(&[256, 48, 48], "", 64, Phase::Forward), 0.0);
    }

    #[test]
    fn softmaxes_down_columns_are_bound_by_lines() {
        let (pytorch, gpu) =
            (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h100-sxm").expect("shipped"));
        let columns = pytorch.softmax_columns.expect("in the profile");
        let of = |dims: &[u64], fields: &str, batch: u64| {
            let trial = Trial { batch, ..work("softmax", fields, dims, Precision::Tf32) };
            columns.least(&trial, &gpu).to_us()
        };
        // CoaT's of one sample took 178 and 179 us on an H100, 13 the narrow ones.
        let middle = "middle = true";
        assert!((of(&[8, 9217, 16], middle, 1) / 178.0 - 1.0).abs() < 0.1, "{}", of(&[8, 9217, 16], middle, 1));
        assert!((of(&[8, 2305, 32], middle, 1) / 179.0 - 1.0).abs() < 0.1, "{}", of(&[8, 2305, 32], middle, 1));
        assert!((of(&[8, 145, 64], middle, 1) / 13.0 - 1.0).abs() < 0.15, "{}", of(&[8, 145, 64], middle, 1));
        // 128 blocks fill 132 multiprocessors once, 1,024 eight times.
        assert_eq!(of(&[8, 2305, 32], middle, 16), of(&[8, 2305, 32], middle, 1));
        assert!((of(&[8, 2305, 32], middle, 128) / of(&[8, 2305, 32], middle, 1) - 1024.0 / 132.0).abs() < 0.1);
        // Over channels of wide maps neighbours read neighbours.
        assert!(of(&[21, 256, 256], "", 1) < 10.0 && of(&[21, 256, 256], "", 1) > 2.0);
        assert_eq!(of(&[8, 2305, 32], "last = true", 1), 0.0);
        assert_eq!(of(&[2305, 32], "", 1), 0.0);
    }
}
