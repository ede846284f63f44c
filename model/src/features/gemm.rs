//! Variables of kernels that multiply matrices: convolutions as implicit GEMM, linear layers, batched products.

use super::{Workload, divides, flag, ln};
use crate::layer::{Conv2d, Layer};
use crate::precision::Phase;
use crate::units::{Bytes, Seconds};

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
    // Winograd, where it applies: its time over the roofline.
    "wino2",
    "wino4",
    "winobest",
    "algobest",
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
        _ => {
            let heads = if out.len() == 3 { out[0] } else { 1 };
            let [m, n] = out.last_chunk::<2>().copied().unwrap_or([1, 1]);
            (batch * heads, m, n, work.inputs.first().map_or(1, |s| s.axis()))
        }
    };
    // The backward products contract over the forward's columns, or over its rows.
    match work.phase {
        Phase::BackwardData => Sizes { groups, m, n: k, k: n },
        Phase::BackwardWeights => Sizes { groups, m: k, n, k: m },
        _ => Sizes { groups, m, n, k },
    }
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
    push(ln(work.batch, 16.0));
    push(ln(area, 256.0));
    push(ln(channels_in, 128.0));

    push((compute / memory).ln());
    push((1.0 + compute.min(memory) / bound).ln());
    push((1.0 + floor.get() / bound).ln());
    push((compute / 1e-3).ln());
    push((memory / 1e-3).ln());

    let sms = work.gpu.sms.value as f64;
    let (mut best, mut best_split) = (f64::INFINITY, f64::INFINITY);
    for (tm, tn) in TILES {
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
        push(pad.ln());
        push(wave.min(64.0).ln());
        push((1.0 + 1.0 / waves).ln());
    }
    push(best.min(64.0).ln());
    push(best_split.min(64.0).ln());

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
    debug_assert_eq!(at, NAMES.len());
}
