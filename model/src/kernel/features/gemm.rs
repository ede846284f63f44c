//! Variables of kernels that multiply matrices: convolutions as implicit GEMM, linear layers, batched products.

use super::{Workload, cached, divides, flag, ln};
use crate::base::precision::{Phase, Precision};
use crate::base::units::{Bytes, Ops, Seconds};
use crate::kernel::trial::{Cache, Layout};
use crate::net::layer::{Conv2d, Layer};

/// Tiles that cuBLAS and cuDNN kernels compute per thread block, rows by columns.
const TILES: [(u64, u64); 8] = [(128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (32, 32), (256, 128)];

/// Names in the order that [`fill`] writes.
pub(super) const NAMES: &[&str] = &[
    // Sizes, as logarithms over a typical value.
    "m",
    "n",
    "k",
    "g",
    "batch",
    "area",
    "inner",
    // Roofline.
    "balance",
    "ridge",
    "floor",
    "comp",
    "mem",
    // Per tile: padding waste, wave quantization, one over waves.
    "pad_128x128",
    "wave_128x128",
    "few_128x128",
    "pad_128x64",
    "wave_128x64",
    "few_128x64",
    "pad_64x128",
    "wave_64x128",
    "few_64x128",
    "pad_64x64",
    "wave_64x64",
    "few_64x64",
    "pad_128x32",
    "wave_128x32",
    "few_128x32",
    "pad_32x128",
    "wave_32x128",
    "few_32x128",
    "pad_32x32",
    "wave_32x32",
    "few_32x32",
    "pad_256x128",
    "wave_256x128",
    "few_256x128",
    "best_tile",
    "best_split",
    // Per tile: waves of tiles at peak arithmetic, or the traffic where that takes longer, and the floor, over the roofline.
    "time_128x128",
    "time_128x64",
    "time_64x128",
    "time_64x64",
    "time_128x32",
    "time_32x128",
    "time_32x32",
    "time_256x128",
    // Winograd, where it applies: its time over the roofline.
    "wino2",
    "wino4",
    "winobest",
    "algobest",
    // Fourier transforms of tiles, where they apply: their time over the roofline, and the shorter of that and direct.
    "fft",
    "fftbest",
    // Divisibility.
    "n2",
    "n4",
    "n8",
    "n32",
    "n64",
    "k2",
    "k4",
    "k8",
    "k32",
    "k64",
    "m4",
    "m32",
    "area2",
    // Class of the kernel.
    "c1x1",
    "c3x3",
    "large",
    "strided",
    "stem",
    "depthwise",
    "grouped",
    "dilated",
    "stridedim",
    "kernel",
    // Padding of the input: share of window positions that read zeros.
    "border",
    // Layout of a matrix product is not recorded by all sources; the library's age is.
    "library",
    // A bias that a second kernel adds; where operands lie.
    "second",
    "cached",
    "nhwc",
    "cold",
    // Of the two 16-bit formats, which share their kernels.
    "bf16",
];

/// Those that are 0 or 1.
pub(super) const FLAGS: &[&str] = &[
    "n2",
    "n4",
    "n8",
    "n32",
    "n64",
    "k2",
    "k4",
    "k8",
    "k32",
    "k64",
    "m4",
    "m32",
    "area2",
    "c1x1",
    "c3x3",
    "large",
    "strided",
    "stem",
    "depthwise",
    "grouped",
    "dilated",
    "nhwc",
    "cold",
    "bf16",
];

/// Sizes among them.
pub(super) const SIZES: &[&str] = &["m", "n", "k", "g", "batch", "area", "inner"];

/// Sizes and classes among them.
pub(super) const BOUNDING: &[&str] = &[
    "m",
    "n",
    "k",
    "g",
    "batch",
    "area",
    "inner",
    "c1x1",
    "c3x3",
    "large",
    "strided",
    "stem",
    "depthwise",
    "grouped",
    "dilated",
    "stridedim",
    "kernel",
];

/// The product's sizes: `groups` times `m` x `k` by `k` x `n`.
struct Sizes {
    groups: u64,
    m: u64,
    n: u64,
    k: u64,
}

fn sizes(work: &Workload<'_>) -> Sizes {
    let batch = work.batch;
    let out = work.output.dims();
    let (groups, m, n, k) = match work.layer {
        Layer::Conv2d(conv) => {
            let (c, _, _) = work.inputs.first().and_then(|s| s.as_map()).unwrap_or((1, 1, 1));
            let (_, oh, ow) = work.output.as_map().unwrap_or((1, 1, 1));
            let groups = conv.groups(c).max(1);
            (groups, batch * oh * ow, conv.channels / groups, conv.filter(c))
        }
        Layer::Linear(linear) => {
            let rows = work.output.elements() / linear.features.max(1);
            (1, batch * rows, linear.features, work.inputs.first().map_or(1, |s| s.axis()))
        }
        Layer::Attention(attention) => match attention.sizes(work.inputs) {
            Ok(s) => (batch * s.heads, s.tokens, s.keys, s.dimension),
            Err(_) => (1, 1, 1, 1),
        },
        Layer::Recurrent(recurrent) => {
            let read = work.inputs.first().map_or(1, |s| s.last()) + recurrent.hidden;
            (recurrent.directions(), batch, recurrent.cell.gates() * recurrent.hidden, read)
        }
        _ => {
            let heads = if out.len() == 3 { out[0] } else { 1 };
            let [m, n] = out.last_chunk::<2>().copied().unwrap_or([1, 1]);
            (batch * heads, m, n, work.inputs.first().map_or(1, |s| s.last()))
        }
    };
    // The backward products contract over the forward's columns, or over its rows.
    match work.phase {
        // All of attention's, in both directions, are of the same sizes.
        _ if matches!(work.layer, Layer::Attention(_)) => Sizes { groups, m, n, k },
        Phase::BackwardData => Sizes { groups, m, n: k, k: n },
        Phase::BackwardWeights => Sizes { groups, m: k, n, k: m },
        _ => Sizes { groups, m, n, k },
    }
}

/// Thread blocks of a kernel with tiles of 64 by 64. Plain products split a long contraction over blocks, as does the
/// gradient of weights, a small matrix with a long one; other convolutions seldom do.
pub(super) fn blocks(work: &Workload<'_>) -> f64 {
    const SPLIT: u64 = 512;
    let Sizes { groups, m, n, k } = sizes(work);
    let splits = work.phase == Phase::BackwardWeights || !matches!(work.layer, Layer::Conv2d(_));
    let split = if splits { k.div_ceil(SPLIT) } else { 1 };
    groups as f64 * (m.div_ceil(64) * n.div_ceil(64)) as f64 * split as f64
}

/// Times of the two fused Winograd forms of a 3x3 stride-1 convolution, F(2x2) and F(4x4): 16 or 36 products of
/// (tiles x c_in) by (c_in x c_out), plus writing and reading the transformed tensors when they do not stay on
/// chip.
fn winograd(work: &Workload<'_>, conv: &Conv2d, m: u64) -> Option<(Seconds, Seconds)> {
    let applies = conv.kernel.is(3) && conv.stride.is(1) && conv.dilation.is(1) && work.phase != Phase::BackwardWeights;
    let (c, _, _) = work.inputs.first()?.as_map()?;
    if !applies || conv.groups(c) != 1 {
        return None;
    }
    let (_, oh, ow) = work.output.as_map()?;
    let form = |size: u64| {
        let tiles = work.batch * oh.div_ceil(size) * ow.div_ceil(size);
        let points = (size + 2) * (size + 2);
        let useful = (tiles * points) as f64 / (m * 9) as f64;
        let moved = work.precision.bytes() * points * (tiles * (c + conv.channels) + c * conv.channels);
        work.roofline.compute * useful + Bytes::new(moved) / work.gpu.bandwidth.value
    };
    Some((form(2), form(4)))
}

/// Time of a convolution by Fourier transforms of 32x32 tiles (Mathieu, Henaff, LeCun 2014): one product of complex
/// matrices, (tiles x c_in) by (c_in x c_out), per point of a transform, and its tensors written and read once.
fn fourier(work: &Workload<'_>, conv: &Conv2d) -> Option<Seconds> {
    const SIDE: u64 = 32;
    const POINTS: u64 = SIDE * (SIDE / 2 + 1);
    let applies = conv.kernel.area() > 1 && conv.stride.is(1) && conv.dilation.is(1);
    let (c, _, _) = work.inputs.first()?.as_map()?;
    if !applies || conv.groups(c) != 1 || work.precision != Precision::Fp32 {
        return None;
    }
    let (_, oh, ow) = work.output.as_map()?;
    let useful = |kernel: u64| SIDE.saturating_sub(kernel - 1).max(1);
    let tiles = work.batch * oh.div_ceil(useful(conv.kernel.h)) * ow.div_ceil(useful(conv.kernel.w));
    // A complex multiply-accumulate is eight operations.
    let ops = Ops::new(8 * POINTS * tiles * c * conv.channels);
    let moved = 16 * POINTS * (tiles * (c + conv.channels) + c * conv.channels);
    Some(ops / work.gpu.peak(work.precision)? + Bytes::new(moved) / work.gpu.bandwidth.value)
}

pub(super) fn fill(work: &Workload<'_>, floor: Seconds, library: f64, values: &mut [f64]) {
    let Sizes { groups, m, n, k } = sizes(work);
    let (compute, memory) = (work.roofline.compute.get().max(1e-12), work.roofline.memory.get().max(1e-12));
    let bound = compute.max(memory);
    let mut at = 0;
    let mut push = |value: f64| {
        values[at] = value;
        at += 1;
    };
    let conv = match work.layer {
        Layer::Conv2d(conv) => Some(conv),
        _ => None,
    };
    let (channels_in, area) = match (conv, work.inputs.first().and_then(|s| s.as_map())) {
        (Some(_), Some((c, _, _))) => {
            let (_, oh, ow) = work.output.as_map().unwrap_or((1, 1, 1));
            (c, oh * ow)
        }
        _ => (k, 1),
    };
    push(ln(m, 4096.0));
    push(ln(n, 256.0));
    push(ln(k, 1024.0));
    push(ln(groups, 1.0));
    // To a linear layer tokens are samples.
    let samples = match work.layer {
        Layer::Linear(linear) => work.batch * (work.output.elements() / linear.features.max(1)),
        _ => work.batch,
    };
    push(ln(samples, 16.0));
    push(ln(area, 256.0));
    push(ln(channels_in, 128.0));

    push((compute / memory).ln());
    push((1.0 + compute.min(memory) / bound).ln());
    push((1.0 + floor.get() / bound).ln());
    push((compute / 1e-3).ln());
    push((memory / 1e-3).ln());

    let sms = work.gpu.sms.value as f64;
    let (mut best, mut best_split) = (f64::INFINITY, f64::INFINITY);
    let mut times = [0.0; TILES.len()];
    for ((tm, tn), time) in TILES.into_iter().zip(&mut times) {
        let (rows, columns) = (m.div_ceil(tm), n.div_ceil(tn));
        let pad = (rows * tm) as f64 / m as f64 * ((columns * tn) as f64 / n as f64);
        let waves = (groups * rows * columns) as f64 / sms;
        let wave = waves.ceil() / waves;
        // Smaller tiles reload operands more often: arithmetic per loaded word falls with 1/tm + 1/tn.
        let reuse = 1.0 + 24.0 * (1.0 / tm as f64 + 1.0 / tn as f64);
        best = best.min(pad * wave * reuse);
        // With the contraction split over blocks, waves fill up at the cost of a reduction.
        let split = (1.0 / waves).clamp(1.0, (k as f64 / 64.0).max(1.0)).min(16.0);
        best_split =
            best_split.min(pad * (waves * split).ceil() / (waves * split) * reuse * (1.0 + 0.05 * (split - 1.0)));
        *time = (((compute * pad * wave.min(64.0)).max(memory) + floor.get()) / bound).ln();
        push(pad.ln());
        push(wave.min(64.0).ln());
        push((1.0 + 1.0 / waves).ln());
    }
    push(best.min(64.0).ln());
    push(best_split.min(64.0).ln());
    times.into_iter().for_each(&mut push);

    let direct = (compute * best_split).max(memory) + floor.get();
    match conv.and_then(|conv| winograd(work, conv, m)) {
        Some((f2, f4)) => {
            let best = f2.min(f4).get();
            push((f2.get() / bound).ln());
            push((f4.get() / bound).ln());
            push((best / bound).ln());
            // A smooth minimum over the algorithms: the library picks the fastest.
            push((1.0 / (direct.powi(-4) + best.powi(-4)).powf(0.25) / bound).ln().clamp(-3.0, 5.0));
        }
        None => {
            push(0.0);
            push(0.0);
            push(0.0);
            push((direct / bound).ln().clamp(-3.0, 5.0));
        }
    }

    let plain = direct.max(1e-12);
    let fourier = conv.and_then(|conv| fourier(work, conv)).map_or(plain, |t| t.get() + floor.get());
    push((fourier / bound).ln().clamp(-3.0, 6.0));
    push((1.0 / (plain.powi(-4) + fourier.powi(-4)).powf(0.25) / bound).ln().clamp(-3.0, 5.0));

    for by in [2, 4, 8, 32, 64] {
        push(divides(n, by));
    }
    let contracted = if conv.is_some() && work.phase == Phase::Forward { channels_in } else { k };
    for by in [2, 4, 8, 32, 64] {
        push(divides(contracted, by));
    }
    push(divides(m, 4));
    push(divides(m, 32));
    push(divides(area, 2));

    match conv {
        Some(conv) => {
            let depthwise = conv.groups(channels_in) == channels_in && channels_in > 1;
            push(flag(conv.kernel.is(1)));
            push(flag(conv.kernel.is(3) && conv.stride.is(1)));
            push(flag(conv.kernel.area() > 9));
            push(flag(conv.stride.area() > 1));
            push(flag(channels_in <= 4));
            push(flag(depthwise));
            push(flag(!depthwise && conv.groups(channels_in) > 1));
            push(flag(conv.dilation.area() > 1));
            push(ln(conv.stride.area(), 1.0));
            push(ln(conv.kernel.area(), 9.0));
            let (_, h, w) = work.inputs.first().and_then(|s| s.as_map()).unwrap_or((1, 1, 1));
            let padded = (h + 2 * conv.padding.h) as f64 * (w + 2 * conv.padding.w) as f64;
            push((padded / (h * w) as f64).ln());
        }
        None => (0..11).for_each(|_| push(0.0)),
    }
    push(library);
    push((1.0 + work.roofline.second.get() / bound).ln());
    push(cached(work));
    push(flag(work.setting.layout == Layout::Nhwc));
    push(flag(work.setting.cache == Cache::Cold));
    push(flag(work.precision == Precision::Bf16));
    debug_assert_eq!(at, NAMES.len());
}
