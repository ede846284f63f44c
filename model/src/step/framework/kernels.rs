//! Kernels of a framework's own that neither traffic nor operations bound.

use crate::base::file::{FileError, quantity, within};
use crate::base::precision::{Phase, Precision};
use crate::base::units::{Bytes, Dimension, Seconds};
use crate::device::gpu::Gpu;
use crate::kernel::work::Work;
use crate::net::layer::{Interpolation, Layer};
use serde::Deserialize;
use std::ops::RangeInclusive;

/// Results that a multiprocessor can make in a cycle.
const PER_CYCLE: RangeInclusive<f64> = 0.001..=1000.0;
/// Cycles that a row of a kernel can take.
pub(super) const CYCLES: RangeInclusive<f64> = 1.0..=1e6;
/// Maps and results together up to this share of the second-level cache are read from it, beyond that and once the cache from
/// memory: `calibrate/tools/torch_copies.py --planes data/measurements/h100/torch_unusual.csv`, 3.0 % off in the mean, 4.2 from
/// 0.2 on and 3.5 from 0.4.
const HELD: f64 = 0.3;

/// A kernel that hardly fills a multiprocessor draws so much of what one draws that fills all: EfficientFormer v2's steps in 16
/// bits, nine tenths of which such kernels take, drew 145 W on an H100 that draws 115 when it waits and was foreseen to draw 370.
const LEAST_DRAWN: f64 = 0.05;

/// Numbers in 32 and in 16 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ByWidth([f64; 2]);

impl ByWidth {
    pub(super) fn read(field: &str, numbers: [f64; 2], bounds: &RangeInclusive<f64>) -> Result<Self, FileError> {
        numbers.iter().try_for_each(|&n| within(field, n, bounds.clone()).map(drop))?;
        Ok(Self(numbers))
    }

    pub(super) fn of(self, precision: Precision) -> f64 {
        self.0[usize::from(precision.is_narrow())]
    }
}

/// Cycles of all multiprocessors in a second of a board's highest clock.
fn cycles_per_second(gpu: &Gpu) -> f64 {
    gpu.sms.value as f64 * gpu.core_clock.boost.value.get()
}

/// Kernels that compute where each value's operands lie, one of which is repeated: that bounds them, not traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Broadcast {
    /// Results per multiprocessor and cycle.
    per_cycle: ByWidth,
    /// Cycles of one of few results.
    latency: ByWidth,
    filled: Filled,
}

/// Tensors that are given one value, as those that a padded map is copied into.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Filled {
    latency: Seconds,
    of_bandwidth: f64,
    /// Values per multiprocessor and cycle, at most.
    per_cycle: f64,
}

impl Filled {
    fn time(&self, values: f64, precision: Precision, gpu: &Gpu) -> Seconds {
        let bytes = values * precision.bytes() as f64;
        let written = Seconds::new(bytes / (gpu.bandwidth.value.get() * self.of_bandwidth));
        self.latency.max(written).max(Seconds::new(values / (self.per_cycle * cycles_per_second(gpu))))
    }
}

impl Broadcast {
    /// The time of adding a bias to so many results at a board's highest clock.
    pub fn bias(&self, results: f64, precision: Precision, gpu: &Gpu) -> Seconds {
        let latency = self.latency.of(precision) / gpu.core_clock.boost.value.get();
        Seconds::new(latency) + self.bias_beyond_latency(results, precision, gpu)
    }

    /// The same without the latency, which rows of layers with a bias have in them.
    pub fn bias_beyond_latency(&self, results: f64, precision: Precision, gpu: &Gpu) -> Seconds {
        Seconds::new(results / (self.per_cycle.of(precision) * cycles_per_second(gpu)))
    }

    /// What a layer takes at least, at a board's highest clock, one of whose operands is repeated: learned values, a table, or
    /// forward a tensor of fewer elements than the result; or is a part of another result (`parted`), whose places are computed
    /// as well, backward where the operands are read again. Padding fills its result first, and copies what it pads into it place
    /// by place. Nothing of all other layers.
    pub fn least(&self, work: &Work<'_>, parted: bool, gpu: &Gpu) -> Seconds {
        let bound = || self.bias((work.output.elements() * work.batch) as f64, work.precision, gpu);
        let reads = || match work.phase {
            Phase::Forward => true,
            Phase::BackwardData => work.layer().saved().by_framework(true, true).inputs,
            Phase::BackwardWeights | Phase::Update => false,
        };
        if parted && reads() {
            return bound();
        }
        let constant = match (work.layer(), work.phase) {
            (Layer::Pad(pad), Phase::Forward) if !pad.mirrors => {
                let [values, padded] = [work.input(), work.output].map(|map| (map.elements() * work.batch) as f64);
                return self.filled.time(padded, work.precision, gpu) + self.bias(values, work.precision, gpu);
            }
            (Layer::Elementwise(layer), Phase::Forward | Phase::BackwardData) => layer.parameters > 0 || layer.repeated,
            (Layer::Add(_) | Layer::Multiply(_), Phase::Forward) => false,
            _ => return Seconds::ZERO,
        };
        let elements = work.output.elements();
        let forward = work.phase == Phase::Forward;
        let repeated =
            forward && work.inputs().len() > 1 && work.inputs().iter().any(|input| input.elements() < elements);
        if !(constant || repeated) {
            return Seconds::ZERO;
        }
        bound()
    }
}

/// Convolutions over sequences, whose channels come first in every precision: in 16 bits the library brings input and result
/// into another order and back, but for windows of one value, which are matrix products in either.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sequences {
    /// Share of the bandwidth at which they are reordered.
    reordered: f64,
}

impl Sequences {
    /// What a convolution takes besides its kernel; nothing for other layers, groups, windows of one value and 32 bits.
    pub fn reordering(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let Layer::Conv2d(conv) = work.layer() else { return Seconds::ZERO };
        let (input, channels) = (work.input(), work.input().axis());
        let over_a_sequence = input.is_sequence() && conv.kernel.h == 1 && conv.kernel.w > 1;
        let plain = conv.groups(channels) == 1;
        if !over_a_sequence || !plain || !work.precision.is_narrow() || work.phase == Phase::Update {
            return Seconds::ZERO;
        }
        let elements = (input.elements() + work.output.elements()) * work.batch;
        Bytes::new(2 * elements * work.precision.bytes()) / (gpu.bandwidth.value * self.reordered)
    }
}

/// Maps whose dimensions lie in another order than those of the network's precision usually do (`ShapedLayer::strays`): after
/// copies channels come first in 16 bits, and maps that were tokens have them last in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Maps {
    /// Copies that bring another dimension to the last place, as channels before a convolution.
    copied: Turned,
    /// Results per multiprocessor and cycle of linear interpolation over channels that lie last.
    last: f64,
    /// The same over channels that lie first, where there are enough results of a channel for all threads.
    first: f64,
    /// Cycles per channel of every sample there, from the second-level cache and from memory: each thread goes over all of them
    /// for its place.
    plane: [f64; 2],
    /// Share of the bandwidth at which the library turns maps of 16 bits whose channels lie first.
    reordered: f64,
    /// Of a norm over groups of such maps, which copies nothing: cycles of few results, results per multiprocessor and cycle.
    normalized: [f64; 2],
    /// Results per multiprocessor and cycle of a concatenation that reads a part of a result where it lies.
    concatenated: f64,
    /// Results per multiprocessor and cycle of padding that mirrors a map, and of its gradient, which adds up by atomics.
    mirrored: [f64; 2],
}

/// Copies of turned matrices: neighbours in the result lie far apart in what is read, where each brings along a sector whose
/// other values are wanted only a row of the result later. Short rows find them in the first-level cache, and so do narrow
/// matrices either way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turned {
    /// Values per multiprocessor and cycle where rows or columns are narrow.
    narrow: ByWidth,
    /// The same where rows of the result are short.
    short: ByWidth,
    /// The same where besides rows of what is read begin at multiples of [`EVEN`] values, which share places of the cache.
    even: f64,
    /// Where rows of the result are long.
    long: ByWidth,
}

/// Values of a row or a column up to which a matrix is narrow.
const NARROW: u64 = 32;
/// Values of a row of the result up to which it is short, and from which on it is long.
const SHORT: f64 = 96.0;
const LONG: f64 = 144.0;
/// What rows that share places of the cache are multiples of, in values.
const EVEN: u64 = 64;

impl Turned {
    /// Values per multiprocessor and cycle where rows of so many values become rows of so many others.
    fn per_cycle(&self, precision: Precision, read: u64, written: u64) -> f64 {
        if read.min(written) <= NARROW {
            return self.narrow.of(precision);
        }
        let short = self.short.of(precision);
        let short = if read.is_multiple_of(EVEN) { short.min(self.even) } else { short };
        let way = ((written as f64 / SHORT).ln() / (LONG / SHORT).ln()).clamp(0.0, 1.0);
        short * (self.long.of(precision) / short).powf(way)
    }
}

impl Maps {
    /// What a copy takes at least that brings another dimension to the last place, forward at a board's highest clock; nothing of
    /// all other layers.
    pub fn least(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let copies = match work.layer() {
            Layer::Pad(pad) if pad.mirrors => return self.mirroring(work, gpu),
            Layer::Reshape(reshape) => reshape.copy.moves(),
            Layer::Permute(permute) => permute.copy,
            _ => false,
        };
        let input = work.input();
        let (before, after) = (input.dims(), work.output.dims());
        let turns = match (before.last(), after.last()) {
            // Rows stay together, or parts of them: heads side by side. The same dimensions with another one last are turned.
            (Some(a), Some(b)) if a.is_multiple_of(*b) || b.is_multiple_of(*a) => {
                let (mut sorted, mut others) = (before.to_vec(), after.to_vec());
                sorted.sort_unstable();
                others.sort_unstable();
                before != after && sorted == others && (a != b || before.iter().rev().eq(after))
            }
            _ => true,
        };
        if !(copies && turns && work.phase == Phase::Forward) {
            return Seconds::ZERO;
        }
        let (read, written) = (input.last(), work.output.last());
        let per_cycle = self.copied.per_cycle(work.precision, read, written);
        Seconds::new((work.output.elements() * work.batch) as f64 / (per_cycle * cycles_per_second(gpu)))
    }

    /// What padding takes that mirrors a map whose channels lie first, at a board's highest clock; the gradient is filled with zeros
    /// first, and of maps whose channels lie last it is copied from the order of the result's.
    fn mirroring(&self, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        let cycles = cycles_per_second(gpu);
        let results = (work.output.elements() * work.batch) as f64;
        let [forward, backward] = self.mirrored.map(|per_cycle| Seconds::new(results / (per_cycle * cycles)));
        if work.phase == Phase::Forward {
            return forward;
        }
        let channels = work.output.axis().max(1);
        let per_cycle = self.copied.per_cycle(work.precision, channels, work.output.elements() / channels);
        let turned =
            if work.precision.channels_last() { Seconds::new(results / (per_cycle * cycles)) } else { Seconds::ZERO };
        backward + turned
    }

    /// What a layer takes that reads such a map, given what it takes on a usual one, at a board's highest clock.
    /// `channels_first`: a convolution whose weights lie so, too.
    pub fn straying(&self, usual: Seconds, channels_first: bool, work: &Work<'_>, gpu: &Gpu) -> Seconds {
        if work.phase != Phase::Forward {
            return usual;
        }
        let (cycles, sms) = (cycles_per_second(gpu), gpu.sms.value as f64);
        match work.layer() {
            Layer::Pad(_) => {
                let (values, channels) = (work.input().elements(), work.input().axis().max(1));
                let per_cycle = self.copied.per_cycle(work.precision, channels, values / channels);
                usual + Seconds::new((values * work.batch) as f64 / (per_cycle * cycles))
            }
            // The library turns both maps, but for products.
            Layer::Conv2d(conv) if channels_first => {
                let values = if conv.kernel.is(1) { 0 } else { work.input().elements() + work.output.elements() };
                let bytes = Bytes::new(2 * values * work.batch * work.precision.bytes());
                usual + bytes / (gpu.bandwidth.value * self.reordered)
            }
            Layer::GroupNorm(_) if work.precision.channels_last() => {
                let results = (work.output.elements() * work.batch) as f64;
                let [latency, per_cycle] = self.normalized;
                usual.min(Seconds::new(latency / (cycles / sms) + results / (per_cycle * cycles)))
            }
            Layer::Conv2d(_) | Layer::ConvTranspose2d(_) if work.precision.channels_last() => {
                let (values, channels) = (work.input().elements(), work.input().axis().max(1));
                let per_cycle = self.copied.per_cycle(work.precision, values / channels, channels);
                usual + Seconds::new((values * work.batch) as f64 / (per_cycle * cycles))
            }
            Layer::Resize(resize) if resize.interpolation == Interpolation::Linear => {
                let results = (work.output.elements() * work.batch) as f64;
                if !work.precision.channels_last() {
                    return Seconds::new(results / (self.last * cycles));
                }
                let planes = (work.output.axis() * work.batch) as f64;
                let one_by_one = Seconds::new(planes * self.per_plane(work, gpu) / (cycles / sms));
                one_by_one.max(Seconds::new(results / (self.first * cycles)))
            }
            Layer::Concat(_) => {
                let results = (work.output.elements() * work.batch) as f64;
                usual.max(Seconds::new(results / (self.concatenated * cycles)))
            }
            _ => usual,
        }
    }

    /// What share of a kernel's power above waiting it draws that reads such a map: interpolating has a thread for each place of
    /// a result's channel, which are few.
    pub fn drawn(&self, work: &Work<'_>, gpu: &Gpu) -> f64 {
        match work.layer() {
            Layer::Resize(resize)
                if resize.interpolation == Interpolation::Linear
                    && work.precision.channels_last()
                    && work.phase == Phase::Forward =>
            {
                let threads = (gpu.sms.value * gpu.threads_per_sm) as f64;
                (resize.output.area() as f64 / threads).clamp(LEAST_DRAWN, 1.0)
            }
            _ => 1.0,
        }
    }

    /// Cycles for a channel of a sample that is interpolated: more, the less of maps and results the cache holds.
    fn per_plane(&self, work: &Work<'_>, gpu: &Gpu) -> f64 {
        let [cached, beyond] = self.plane;
        let values = work.input().elements() + work.output.elements();
        let bytes = (values * work.batch * work.precision.bytes()) as f64;
        let passed = gpu.l2.as_ref().map_or(1.0, |l2| (bytes / l2.value.to_f64() - HELD).clamp(0.0, 1.0));
        cached + (beyond - cached) * passed
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnedFile {
    narrow: [f64; 2],
    short: [f64; 2],
    even: f64,
    long: [f64; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MapsFile {
    copied_per_cycle: TurnedFile,
    reordered: f64,
    normalized: [f64; 2],
    concatenated_per_cycle: f64,
    mirrored_per_cycle: [f64; 2],
    interpolated_per_cycle: [f64; 2],
    cycles_per_plane: [f64; 2],
    #[serde(rename = "source")]
    _source: String,
}

impl MapsFile {
    pub(super) fn read(self) -> Result<Maps, FileError> {
        let [first, last] = self.interpolated_per_cycle;
        for (field, value) in [
            ("even copied", self.copied_per_cycle.even),
            ("concatenated", self.concatenated_per_cycle),
            ("mirrored", self.mirrored_per_cycle[0]),
            ("mirrored", self.mirrored_per_cycle[1]),
            ("interpolated", first),
            ("interpolated", last),
        ] {
            within(&format!("maps {field}_per_cycle"), value, PER_CYCLE)?;
        }
        let [cached, beyond] = self.cycles_per_plane;
        within("maps cycles_per_plane", cached, CYCLES)?;
        within("maps cycles_per_plane", beyond, cached..=*CYCLES.end())?;
        let TurnedFile { narrow, short, even, long } = self.copied_per_cycle;
        let read = |name: &str, numbers| ByWidth::read(&format!("maps copied_per_cycle {name}"), numbers, &PER_CYCLE);
        let copied =
            Turned { narrow: read("narrow", narrow)?, short: read("short", short)?, even, long: read("long", long)? };
        let reordered = within("maps reordered", self.reordered, 0.01..=1.0)?;
        let [latency, per_cycle] = self.normalized;
        within("maps normalized", latency, CYCLES)?;
        within("maps normalized", per_cycle, PER_CYCLE)?;
        let normalized = self.normalized;
        let concatenated = self.concatenated_per_cycle;
        let mirrored = self.mirrored_per_cycle;
        Ok(Maps { copied, reordered, normalized, concatenated, mirrored, last, first, plane: self.cycles_per_plane })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BroadcastFile {
    per_cycle: [f64; 2],
    latency: [f64; 2],
    filled: FilledFile,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilledFile {
    latency: String,
    of_bandwidth: f64,
    per_cycle: f64,
}

impl BroadcastFile {
    pub(super) fn read(self) -> Result<Broadcast, FileError> {
        let FilledFile { latency, of_bandwidth, per_cycle } = self.filled;
        Ok(Broadcast {
            per_cycle: ByWidth::read("broadcast per_cycle", self.per_cycle, &PER_CYCLE)?,
            latency: ByWidth::read("broadcast latency", self.latency, &CYCLES)?,
            filled: Filled {
                latency: quantity("broadcast filled latency", &latency, Dimension::Time).map(Seconds::new)?,
                of_bandwidth: within("broadcast filled of_bandwidth", of_bandwidth, 0.01..=1.0)?,
                per_cycle: within("broadcast filled per_cycle", per_cycle, PER_CYCLE)?,
            },
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SequencesFile {
    reordered: f64,
    #[serde(rename = "source")]
    _source: String,
}

impl SequencesFile {
    pub(super) fn read(self) -> Result<Sequences, FileError> {
        Ok(Sequences { reordered: within("sequences reordered", self.reordered, 0.01..=1.0)? })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::base::shape::Shape;
    use crate::catalog;
    use crate::kernel::work::Trial;
    use crate::net::case::LayerCase;

    pub(in crate::step::framework) fn work(kind: &str, fields: &str, dims: &[u64], precision: Precision) -> Trial {
        let layer = Layer::from_table(kind, fields.parse().expect("a table")).expect("a kind").expect("fields");
        let case = LayerCase { inputs: vec![Shape::new(dims).expect("a shape")], layer };
        Work::usual(case, Phase::Forward, 4, precision, Mode::Inference).expect("runs")
    }

    #[test]
    fn a_repeated_operand_bounds_a_bias_by_results() {
        let (pytorch, gpu) = (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h200").expect("shipped"));
        let broadcast = pytorch.broadcast.expect("in the profile");
        let time = |results, precision| broadcast.bias(results, precision, &gpu).get();
        assert!((time(2e9, Precision::Fp16) / time(1e9, Precision::Bf16) - 2.0).abs() < 0.01);
        let beyond = |results| broadcast.bias_beyond_latency(results, Precision::Fp16, &gpu).get();
        assert!((beyond(1e6) + 4586.0 / 1980e6 - time(1e6, Precision::Fp16)).abs() < 1e-9, "{}", beyond(1e6));
        // 2.3 us of few results in 16 bits, 1.7 in 32.
        assert!(
            (time(1.0, Precision::Fp16) - 2.3e-6).abs() < 0.1e-6
                && (time(1.0, Precision::Fp32) - 1.7e-6).abs() < 0.1e-6
        );
        // 380 billion results a second in 16 bits on an H200, fewer in 32.
        assert!((time(380e9, Precision::Fp16) - 1.0).abs() < 0.02, "{}", time(380e9, Precision::Fp16));
        assert!(time(1e9, Precision::Tf32) > time(1e9, Precision::Fp16));
    }

    /// Two kernels: one over the result, one over what is padded.
    #[test]
    fn padding_fills_a_map_and_copies_into_it() {
        let (pytorch, gpu) = (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h200").expect("shipped"));
        let broadcast = pytorch.broadcast.expect("in the profile");
        let of = |dims: &[u64], mirrors: bool, precision| {
            let pad = work("pad", &format!("padding = [0, 0, 1, 1]\nmirrors = {mirrors}"), dims, precision);
            [Phase::Forward, Phase::BackwardData]
                .map(|phase| broadcast.least(&Trial { phase, ..pad.clone() }, false, &gpu).get())
        };
        // Measured: 239 and 1,013 us of maxvit_small_tf_512's first in bf16 (data/measurements/h200/torch_profile_24.csv).
        let [forward, backward] = of(&[4 * 384, 256, 256], false, Precision::Bf16);
        assert!((forward / 1252e-6 - 1.0).abs() < 0.06, "{forward}");
        assert_eq!(backward, 0.0);
        assert_eq!(of(&[384, 256, 256], true, Precision::Bf16)[0], 0.0);
        // Bandwidth bounds filling in 32 bits.
        let wide = of(&[384, 256, 256], false, Precision::Fp32)[0];
        let values = (4 * 384 * 257 * 257) as f64;
        let copied = broadcast.bias((4 * 384 * 256 * 256) as f64, Precision::Fp32, &gpu).get();
        assert!((wide - copied - 4.0 * values / (0.96 * 4.8e12)).abs() < 1e-6, "{wide} {copied}");
        // A microsecond beside the copy's latency.
        let few = of(&[1, 2, 2], false, Precision::Fp32)[0];
        assert!((few - 1e-6 - broadcast.bias(16.0, Precision::Fp32, &gpu).get()).abs() < 1e-12, "{few}");
    }

    #[test]
    fn a_layer_with_a_repeated_operand_takes_no_less_than_a_bias() {
        let (pytorch, gpu) = (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h200").expect("shipped"));
        let broadcast = pytorch.broadcast.expect("in the profile");
        let of_parts = |parted: bool, kind: &str, fields: &str, inputs: &[&[u64]]| {
            let layer = Layer::from_table(kind, fields.parse().expect("a table")).expect("a kind").expect("fields");
            let inputs = inputs.iter().map(|dims| Shape::new(dims).expect("a shape")).collect();
            let case = LayerCase { inputs, layer };
            let trial = Work::usual(case, Phase::Forward, 4, Precision::Fp16, Mode::Inference).expect("runs");
            let least = |trial: &Trial| broadcast.least(trial, parted, &gpu);
            (least(&trial), least(&Trial { phase: Phase::BackwardData, ..trial }))
        };
        let of = |kind: &str, fields: &str, inputs: &[&[u64]]| of_parts(false, kind, fields, inputs);
        let bias = broadcast.bias(f64::from(4 * 12 * 64 * 64), Precision::Fp16, &gpu);
        // Parts of other results, which the gradient of a rectifier does not read again.
        let one: &[&[u64]] = &[&[12, 64, 64]];
        assert_eq!(of_parts(true, "gelu", "", one), (bias, bias));
        assert_eq!(of_parts(true, "relu", "", one), (bias, Seconds::ZERO));
        let map: &[u64] = &[12, 64, 64];
        assert_eq!(of("elementwise", "parameters = 12", &[map]), (bias, bias));
        assert_eq!(of("elementwise", "repeated = true", &[map]), (bias, bias));
        assert_eq!(of("multiply", "", &[map, &[12, 1, 1]]), (bias, Seconds::ZERO));
        for (kind, fields, inputs) in [
            ("elementwise", "", &[map][..]),
            ("multiply", "", &[map, map]),
            ("add", "", &[map, map]),
            ("relu", "", &[map]),
        ] {
            assert_eq!(of(kind, fields, inputs).0, Seconds::ZERO, "{kind}");
        }
    }

    #[test]
    fn a_copy_that_brings_another_dimension_last_is_bound_by_its_values() {
        let (pytorch, gpu) = (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h200").expect("shipped"));
        let maps = pytorch.maps.expect("in the profile");
        let of = |kind: &str, fields: &str| maps.least(&work(kind, fields, &[768, 1500], Precision::Fp16), &gpu).get();
        // Whisper's tokens took 135 us for 16 samples on an H100: 136 billion values a second.
        let turned = of("reshape", "shape = [1500, 768]\ncopy = true");
        assert!((turned / (4.0 * 768.0 * 1500.0 / 134e9) - 1.0).abs() < 0.01, "{turned}");
        assert_eq!(of("permute", "order = [1, 0]\ncopy = true"), turned);
        assert_eq!(of("reshape", "shape = [2, 384, 1500]\ncopy = true"), 0.0);
        assert_eq!(of("reshape", "shape = [768, 3, 500]\ncopy = true"), 0.0);
        assert_eq!(of("relu", ""), 0.0);
    }

    #[test]
    fn sequences_are_reordered_in_16_bits_around_windows_of_several_values() {
        let (pytorch, gpu) = (catalog::framework("pytorch").expect("shipped"), catalog::gpu("h200").expect("shipped"));
        let sequences = pytorch.sequences.expect("in the profile");
        let of = |kernel: &str, dims: &[u64], precision| {
            let fields = format!("channels = 64\nkernel = {kernel}");
            sequences.reordering(&work("conv2d", &fields, dims, precision), &gpu).get()
        };
        // 4 samples of 32 x 100 values read and 64 x 98 written, each twice, two bytes.
        let bytes = 2.0 * 2.0 * 4.0 * (32.0 * 100.0 + 64.0 * 98.0);
        let expected = bytes / (0.44 * gpu.bandwidth.value.get());
        assert!((of("[1, 3]", &[32, 1, 100], Precision::Fp16) / expected - 1.0).abs() < 1e-9);
        assert_eq!(of("[1, 3]", &[32, 1, 100], Precision::Fp32), 0.0);
        assert_eq!(of("[1, 1]", &[32, 1, 100], Precision::Fp16), 0.0);
        assert_eq!(of("3", &[32, 10, 100], Precision::Fp16), 0.0);
    }

    /// A row of one is a multiple of the other's, which says nothing where the dimensions are the same in another order.
    #[test]
    fn turned_matrices_are_told_from_heads_side_by_side() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let copied = |from: &[u64], to: &str| {
            let copy = work("reshape", &format!("shape = {to}\ncopy = true"), from, Precision::Fp16);
            MAPS.least(&copy, &gpu) > Seconds::ZERO
        };
        assert!(copied(&[96, 8, 48], "[8, 48, 96]") && copied(&[64, 64, 8], "[64, 8, 64]"));
        assert!(!copied(&[96, 8, 48], "[8, 96, 48]") && !copied(&[96, 8, 48], "[96, 384]"));
    }

    #[test]
    fn straying_maps_are_copied_and_interpolated_otherwise() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let (cycles, sms) = (cycles_per_second(&gpu), gpu.sms.value as f64);
        let usual = Seconds::from_us(10.0);
        let takes = |trial: &Trial| MAPS.straying(usual, false, trial, &gpu).get();
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
        let conv = |precision| work("conv2d", "channels = 8\nkernel = 3", &[16, 20, 20], precision);
        let half = conv(Precision::Fp16);
        near(takes(&half), 1e-5 + (16 * 400 * half.batch) as f64 / (3.0 * cycles));
        near(takes(&conv(Precision::Fp32)), 1e-5);
        // Where weights lie as the map does the library turns what it reads and what it makes, but for products.
        let first = |trial: &Trial| MAPS.straying(usual, true, trial, &gpu).get();
        let turned = (2 * 2 * (16 * 400 + 8 * 324) * half.batch) as f64 / (0.5 * gpu.bandwidth.value.get());
        near(first(&half), 1e-5 + turned);
        near(first(&work("conv2d", "channels = 8\nkernel = 1", &[16, 20, 20], Precision::Bf16)), 1e-5);
        // A norm over groups that copies nothing, however long one takes that does.
        let norm = |side: u64, precision| work("group_norm", "groups = 4", &[16, side, side], precision);
        let few = (2000.0 * sms + (16 * 9 * half.batch) as f64 / 0.8) / cycles;
        near(takes(&norm(3, Precision::Fp16)), few);
        near(takes(&norm(3, Precision::Fp32)), 1e-5);
        near(takes(&norm(3000, Precision::Fp16)), 1e-5);
        near(takes(&Trial { phase: Phase::BackwardData, ..half.clone() }), 1e-5);
        let linear = |side: u64, precision| {
            work("resize", &format!("output = {side}\ninterpolation = \"linear\""), &[16, 20, 20], precision)
        };
        let planes = 16 * half.batch;
        near(takes(&linear(40, Precision::Fp32)), (planes * 1600) as f64 / (0.25 * cycles));
        near(takes(&linear(4, Precision::Fp16)), planes as f64 * 300.0 * sms / cycles);
        let of_batch =
            |batch: u64| takes(&Trial { batch, ..linear(4, Precision::Fp16) }) * cycles / sms / (16 * batch) as f64;
        // 416 values of two bytes for each of 16 channels: four fifths of the cache, and twice as much as it holds.
        let l2 = gpu.l2.as_ref().expect("known").value.to_f64();
        let share = |times: f64| (times * l2 / (16.0 * 416.0 * 2.0)) as u64;
        assert!((of_batch(share(0.8)) - 600.0).abs() < 1.0 && (of_batch(share(2.0)) - 900.0).abs() < 1e-9);
        near(takes(&linear(4000, Precision::Bf16)), (planes * 16_000_000) as f64 / cycles);
        // 14 x 14 threads on a board of 270,336.
        let drawn = |trial: &Trial| MAPS.drawn(trial, &gpu);
        assert_eq!(
            [drawn(&linear(14, Precision::Fp16)), drawn(&linear(14, Precision::Fp32)), drawn(&half)],
            [0.05, 1.0, 1.0]
        );
        near(drawn(&linear(300, Precision::Bf16)), 90_000.0 / (132.0 * 2048.0));
        near(takes(&work("resize", "output = 40", &[16, 20, 20], Precision::Fp16)), 1e-5);
        // Parts that lie in another result.
        let joined = |rows: u64| {
            let layer = Layer::from_table("concat", toml::Table::new()).expect("a kind").expect("fields");
            let case = LayerCase { inputs: vec![Shape::new(&[rows, 4000]).expect("a shape"); 2], layer };
            Work::usual(case, Phase::Forward, 4, Precision::Fp32, Mode::Inference).expect("runs")
        };
        near(takes(&joined(64)), (2 * 64 * 4000 * 4) as f64 / (0.5 * cycles));
        near(takes(&joined(1)), 1e-5);
    }

    #[test]
    fn padding_that_mirrors_is_bound_by_results() {
        let gpu = catalog::gpu("h200").expect("shipped");
        let of = |precision, phase| {
            let pad = |mirrors: bool| {
                work("pad", &format!("padding = [1, 1, 1, 1]\nmirrors = {mirrors}"), &[16, 20, 20], precision)
            };
            let least = |mirrors| MAPS.least(&Trial { phase, ..pad(mirrors) }, &gpu).get() * cycles_per_second(&gpu);
            assert_eq!(least(false), 0.0);
            least(true) / (16 * 22 * 22 * 4) as f64
        };
        assert!((of(Precision::Fp16, Phase::Forward) - 2.0).abs() < 1e-9);
        assert!((of(Precision::Fp32, Phase::BackwardData) - 4.0).abs() < 1e-9);
        // The gradient comes with its 16 channels last.
        assert!((of(Precision::Fp16, Phase::BackwardData) - 4.0 - 1.0 / 3.0).abs() < 1e-9);
    }

    const TURNED: Turned =
        Turned { narrow: ByWidth([1.5, 3.0]), short: ByWidth([1.0, 2.0]), even: 0.8, long: ByWidth([0.5, 0.4]) };
    const MAPS: Maps = Maps {
        copied: TURNED,
        last: 0.25,
        first: 1.0,
        plane: [300.0, 900.0],
        reordered: 0.5,
        normalized: [2000.0, 0.8],
        concatenated: 0.5,
        mirrored: [0.5, 0.25],
    };

    #[test]
    fn copies_of_turned_matrices_take_longer_where_their_rows_are_long() {
        let of = |precision, read, written| TURNED.per_cycle(precision, read, written);
        assert_eq!(of(Precision::Fp16, 49, 64), 2.0);
        assert_eq!(of(Precision::Fp32, 49, 48), 1.0);
        assert_eq!((of(Precision::Fp16, 128, 64), of(Precision::Fp32, 64, 33)), (0.8, 0.8));
        // Narrow ones are alike both ways, whatever shares places of the cache.
        assert_eq!((of(Precision::Fp16, 331_776, 8), of(Precision::Fp16, 8, 331_776)), (3.0, 3.0));
        assert_eq!((of(Precision::Fp32, 64, 32), of(Precision::Fp32, 32, 64)), (1.5, 1.5));
        assert!(
            (of(Precision::Fp16, 49, 256) - 0.4).abs() < 1e-12 && (of(Precision::Fp32, 64, 3136) - 0.5).abs() < 1e-12
        );
        // Halfway by ratios: the geometric mean.
        let between = of(Precision::Fp16, 49, (SHORT * LONG).sqrt() as u64);
        assert!((between / 0.8f64.sqrt() - 1.0).abs() < 0.03, "{between}");
        // What is long is so whatever is read.
        assert!((of(Precision::Bf16, 64, 1024) - of(Precision::Bf16, 49, 1024)).abs() < 1e-12);
    }
}
