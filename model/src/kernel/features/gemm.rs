//! Variables of kernels that multiply matrices: convolutions as implicit GEMM, linear layers, batched products.

use super::Role::{self, Class, Derived, Extent, Flag, Size};
use super::{Wanted, cached, divides, flag, ln, schedule};
use crate::base::precision::{Phase, Precision};
use crate::base::units::{Bytes, Ops, Seconds};
use crate::kernel::load::Load;
use crate::kernel::setting::{Cache, Layout};
use crate::net::layer::{Conv2d, Layer, Recurrent};

/// Tiles that cuBLAS and cuDNN kernels compute per thread block, rows by columns.
const TILES: [(u64, u64); 8] = [(128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (32, 32), (256, 128)];

/// A variable of a product on a device.
type Variable = super::Variable<fn(&Gemm<'_>) -> f64>;

const fn v(name: &'static str, role: Role, value: fn(&Gemm<'_>) -> f64) -> Variable {
    Variable { name, role, value }
}

/// All of them. The order is that of calibration files; a new one comes last.
pub(super) const VARIABLES: &[Variable] = &[
    // Sizes, as logarithms over a typical value.
    v("m", Size, |g| ln(g.product.m, 4096.0)),
    v("n", Size, |g| ln(g.product.n, 256.0)),
    v("k", Size, |g| ln(g.product.k, 1024.0)),
    v("g", Size, |g| ln(g.product.groups, 1.0)),
    v("batch", Size, |g| ln(g.samples, 16.0)),
    v("area", Size, |g| ln(g.area, 256.0)),
    v("inner", Size, |g| ln(g.channels, 128.0)),
    // Roofline.
    v("balance", Derived, |g| (g.compute / g.memory).ln()),
    v("ridge", Derived, |g| (1.0 + g.compute.min(g.memory) / g.bound).ln()),
    v("floor", Derived, |g| (1.0 + g.floor / g.bound).ln()),
    v("comp", Derived, |g| (g.compute / 1e-3).ln()),
    v("mem", Derived, |g| (g.memory / 1e-3).ln()),
    // Per tile: padding waste, wave quantization, one over waves.
    v("pad_128x128", Derived, |g| g.tiles[0].pad.ln()),
    v("wave_128x128", Derived, |g| g.tiles[0].wave.min(64.0).ln()),
    v("few_128x128", Derived, |g| (1.0 + 1.0 / g.tiles[0].waves).ln()),
    v("pad_128x64", Derived, |g| g.tiles[1].pad.ln()),
    v("wave_128x64", Derived, |g| g.tiles[1].wave.min(64.0).ln()),
    v("few_128x64", Derived, |g| (1.0 + 1.0 / g.tiles[1].waves).ln()),
    v("pad_64x128", Derived, |g| g.tiles[2].pad.ln()),
    v("wave_64x128", Derived, |g| g.tiles[2].wave.min(64.0).ln()),
    v("few_64x128", Derived, |g| (1.0 + 1.0 / g.tiles[2].waves).ln()),
    v("pad_64x64", Derived, |g| g.tiles[3].pad.ln()),
    v("wave_64x64", Derived, |g| g.tiles[3].wave.min(64.0).ln()),
    v("few_64x64", Derived, |g| (1.0 + 1.0 / g.tiles[3].waves).ln()),
    v("pad_128x32", Derived, |g| g.tiles[4].pad.ln()),
    v("wave_128x32", Derived, |g| g.tiles[4].wave.min(64.0).ln()),
    v("few_128x32", Derived, |g| (1.0 + 1.0 / g.tiles[4].waves).ln()),
    v("pad_32x128", Derived, |g| g.tiles[5].pad.ln()),
    v("wave_32x128", Derived, |g| g.tiles[5].wave.min(64.0).ln()),
    v("few_32x128", Derived, |g| (1.0 + 1.0 / g.tiles[5].waves).ln()),
    v("pad_32x32", Derived, |g| g.tiles[6].pad.ln()),
    v("wave_32x32", Derived, |g| g.tiles[6].wave.min(64.0).ln()),
    v("few_32x32", Derived, |g| (1.0 + 1.0 / g.tiles[6].waves).ln()),
    v("pad_256x128", Derived, |g| g.tiles[7].pad.ln()),
    v("wave_256x128", Derived, |g| g.tiles[7].wave.min(64.0).ln()),
    v("few_256x128", Derived, |g| (1.0 + 1.0 / g.tiles[7].waves).ln()),
    v("best_tile", Derived, |g| g.best.min(64.0).ln()),
    v("best_split", Derived, |g| g.best_split.min(64.0).ln()),
    // Per tile: waves of tiles at peak arithmetic, or the traffic where that takes longer, and the floor, over the roofline.
    v("time_128x128", Derived, |g| g.time(0)),
    v("time_128x64", Derived, |g| g.time(1)),
    v("time_64x128", Derived, |g| g.time(2)),
    v("time_64x64", Derived, |g| g.time(3)),
    v("time_128x32", Derived, |g| g.time(4)),
    v("time_32x128", Derived, |g| g.time(5)),
    v("time_32x32", Derived, |g| g.time(6)),
    v("time_256x128", Derived, |g| g.time(7)),
    // Winograd, where it applies: its time over the roofline.
    v("wino2", Derived, |g| g.winograd.map_or(0.0, |(f2, _)| (f2 / g.bound).ln())),
    v("wino4", Derived, |g| g.winograd.map_or(0.0, |(_, f4)| (f4 / g.bound).ln())),
    v("winobest", Derived, |g| g.winograd.map_or(0.0, |(f2, f4)| (f2.min(f4) / g.bound).ln())),
    v("algobest", Derived, |g| (g.fastest() / g.bound).ln().clamp(-3.0, 5.0)),
    // Fourier transforms of tiles, where they apply: their time over the roofline, and the shorter of that and direct.
    v("fft", Derived, |g| (g.fourier / g.bound).ln().clamp(-3.0, 6.0)),
    v("fftbest", Derived, |g| (smaller(g.plain(), g.fourier) / g.bound).ln().clamp(-3.0, 5.0)),
    // Divisibility.
    v("n2", Flag, |g| divides(g.product.n, 2)),
    v("n4", Flag, |g| divides(g.product.n, 4)),
    v("n8", Flag, |g| divides(g.product.n, 8)),
    v("n32", Flag, |g| divides(g.product.n, 32)),
    v("n64", Flag, |g| divides(g.product.n, 64)),
    v("k2", Flag, |g| divides(g.contracted, 2)),
    v("k4", Flag, |g| divides(g.contracted, 4)),
    v("k8", Flag, |g| divides(g.contracted, 8)),
    v("k32", Flag, |g| divides(g.contracted, 32)),
    v("k64", Flag, |g| divides(g.contracted, 64)),
    v("m4", Flag, |g| divides(g.product.m, 4)),
    v("m32", Flag, |g| divides(g.product.m, 32)),
    v("area2", Flag, |g| divides(g.area, 2)),
    // Class of the kernel; of everything but convolutions zero.
    v("c1x1", Class, |g| g.conv_is(|conv, _| conv.kernel.is(1))),
    v("c3x3", Class, |g| g.conv_is(|conv, _| conv.kernel.is(3) && conv.stride.is(1))),
    v("large", Class, |g| g.conv_is(|conv, _| conv.kernel.area() > 9)),
    v("strided", Class, |g| g.conv_is(|conv, _| conv.stride.area() > 1)),
    v("stem", Class, |g| g.conv_is(|_, channels| channels <= 4)),
    v("depthwise", Class, |g| g.conv_is(is_depthwise)),
    v("grouped", Class, |g| g.conv_is(|conv, channels| !is_depthwise(conv, channels) && conv.groups(channels) > 1)),
    v("dilated", Class, |g| g.conv_is(|conv, _| conv.dilation.area() > 1)),
    v("stridedim", Extent, |g| g.conv.map_or(0.0, |conv| ln(conv.stride.area(), 1.0))),
    v("kernel", Extent, |g| g.conv.map_or(0.0, |conv| ln(conv.kernel.area(), 9.0))),
    // Padding of the input: share of window positions that read zeros.
    v("border", Derived, |g| g.border()),
    // Layout of a matrix product is not recorded by all sources; the library's age is.
    v("library", Derived, |g| g.library),
    // A bias that a second kernel adds; where operands lie.
    v("second", Derived, |g| (1.0 + g.load.roofline.second.get() / g.bound).ln()),
    v("cached", Derived, |g| cached(g.load)),
    v("nhwc", Flag, |g| flag(g.load.work.layout == Layout::Nhwc)),
    v("cold", Flag, |g| flag(g.load.work.cache == Cache::Cold)),
    // Of the two 16-bit formats, which share their kernels.
    v("bf16", Flag, |g| flag(g.load.work.precision == Precision::Bf16)),
    // Groups of a convolution one after the other, where libraries have no kernel for all of them: launches alone, and with
    // each group's whole waves of tiles, over the roofline.
    v("launches", Derived, |g| g.one_by_one(|_| 0.0)),
    v("serial_128x64", Derived, |g| g.one_by_one(|group| group.wave(TILES[1]))),
    v("serial_32x32", Derived, |g| g.one_by_one(|group| group.wave(TILES[6]))),
    // The best schedule of tiles, waves and splits, with the floor, over the roofline.
    v("schedule", Derived, |g| ((g.scheduled() + g.floor) / g.bound).ln()),
];

/// A launch right after another: 2 us where groups were measured one by one.
const NEXT_LAUNCH: Seconds = Seconds::from_us(2.0);

/// The product's sizes: `groups` times `m` x `k` by `k` x `n`.
#[derive(Clone, Copy)]
struct Sizes {
    groups: u64,
    m: u64,
    n: u64,
    k: u64,
}

fn sizes(load: &Load<'_>) -> Sizes {
    let batch = load.work.batch;
    let out = load.work.output.dims();
    let (groups, m, n, k) = match load.work.layer() {
        Layer::Conv2d(conv) => {
            let (c, _, _) = load.work.inputs().first().and_then(|s| s.as_map()).unwrap_or((1, 1, 1));
            let (_, oh, ow) = load.work.output.as_map().unwrap_or((1, 1, 1));
            let groups = conv.groups(c).max(1);
            (groups, batch * oh * ow, conv.channels / groups, conv.filter(c))
        }
        Layer::Linear(linear) => {
            let rows = load.work.output.elements() / linear.features.max(1);
            (1, batch * rows, linear.features, load.work.inputs().first().map_or(1, |s| s.axis()))
        }
        Layer::Attention(attention) => match attention.sizes(load.work.inputs()) {
            Ok(s) => (batch * s.heads, s.tokens, s.keys.min(attention.window.unwrap_or(s.keys)), s.dimension),
            Err(_) => (1, 1, 1, 1),
        },
        Layer::LatentAttention(attention) => match attention.sizes(load.work.inputs()) {
            // All heads read the same latent keys, or each its own.
            Ok(s) if attention.decodes() => (batch, attention.heads * s.tokens, s.keys, s.rank + s.rope),
            Ok(s) => (batch * attention.heads, s.tokens, s.keys, s.own + s.rope),
            Err(_) => (1, 1, 1, 1),
        },
        // The products of all experts that are used, side by side, over one expert's rows.
        Layer::Experts(experts) => {
            let (features, tokens) =
                (load.work.input().last(), load.work.input().elements() / load.work.input().last());
            let used = experts.used(batch * tokens);
            let rows = (batch * tokens * experts.active) as f64 / used;
            (1, rows.ceil() as u64, (used.ceil() as u64) * experts.products() * experts.hidden, features)
        }
        Layer::Recurrent(recurrent) => {
            let read = load.work.inputs().first().map_or(1, |s| s.last()) + recurrent.hidden;
            (
                recurrent.directions(),
                batch * Recurrent::sequences(load.work.inputs()),
                recurrent.cell.gates() * recurrent.hidden,
                read,
            )
        }
        _ => {
            let heads = if out.len() == 3 { out[0] } else { 1 };
            let [m, n] = out.last_chunk::<2>().copied().unwrap_or([1, 1]);
            (batch * heads, m, n, load.work.inputs().first().map_or(1, |s| s.last()))
        }
    };
    // The backward products contract over the forward's columns, or over its rows.
    match load.work.phase {
        // All of attention's, in both directions, are of the same sizes.
        _ if load.work.layer().causal().is_some() => Sizes { groups, m, n, k },
        Phase::BackwardData => Sizes { groups, m, n: k, k: n },
        Phase::BackwardWeights => Sizes { groups, m: k, n, k: m },
        _ => Sizes { groups, m, n, k },
    }
}

/// Thread blocks of a kernel with tiles of 64 by 64. Plain products split a long contraction over blocks, as does the
/// gradient of weights, a small matrix with a long one; other convolutions seldom do.
pub(super) fn blocks(load: &Load<'_>) -> f64 {
    const SPLIT: u64 = 512;
    let Sizes { groups, m, n, k } = sizes(load);
    let splits = load.work.phase == Phase::BackwardWeights || !matches!(load.work.layer(), Layer::Conv2d(_));
    let split = if splits { k.div_ceil(SPLIT) } else { 1 };
    groups as f64 * (m.div_ceil(64) * n.div_ceil(64)) as f64 * split as f64
}

/// Times of the two fused Winograd forms of a 3x3 stride-1 convolution, F(2x2) and F(4x4): 16 or 36 products of
/// (tiles x c_in) by (c_in x c_out), plus writing and reading the transformed tensors when they do not stay on
/// chip.
fn winograd(load: &Load<'_>, conv: &Conv2d, m: u64) -> Option<(Seconds, Seconds)> {
    let applies =
        conv.kernel.is(3) && conv.stride.is(1) && conv.dilation.is(1) && load.work.phase != Phase::BackwardWeights;
    let (c, _, _) = load.work.inputs().first()?.as_map()?;
    if !applies || conv.groups(c) != 1 {
        return None;
    }
    let (_, oh, ow) = load.work.output.as_map()?;
    let form = |size: u64| {
        let tiles = load.work.batch * oh.div_ceil(size) * ow.div_ceil(size);
        let points = (size + 2) * (size + 2);
        let useful = (tiles * points) as f64 / (m * 9) as f64;
        let moved = load.work.precision.bytes() * points * (tiles * (c + conv.channels) + c * conv.channels);
        load.roofline.compute * useful + Bytes::new(moved) / load.memory.bandwidth
    };
    Some((form(2), form(4)))
}

/// Time of a convolution by Fourier transforms of 32x32 tiles (Mathieu, Henaff, LeCun 2014): one product of complex
/// matrices, (tiles x c_in) by (c_in x c_out), per point of a transform, and its tensors written and read once.
fn fourier(load: &Load<'_>, conv: &Conv2d) -> Option<Seconds> {
    const SIDE: u64 = 32;
    const POINTS: u64 = SIDE * (SIDE / 2 + 1);
    let applies = conv.kernel.area() > 1 && conv.stride.is(1) && conv.dilation.is(1);
    let (c, _, _) = load.work.inputs().first()?.as_map()?;
    if !applies || conv.groups(c) != 1 || load.work.precision != Precision::Fp32 {
        return None;
    }
    let (_, oh, ow) = load.work.output.as_map()?;
    let useful = |kernel: u64| SIDE.saturating_sub(kernel - 1).max(1);
    let tiles = load.work.batch * oh.div_ceil(useful(conv.kernel.h)) * ow.div_ceil(useful(conv.kernel.w));
    // A complex multiply-accumulate is eight operations.
    let ops = Ops::new(8 * POINTS * tiles * c * conv.channels);
    let moved = 16 * POINTS * (tiles * (c + conv.channels) + c * conv.channels);
    Some(ops / load.gpu.peak(load.work.precision)? + Bytes::new(moved) / load.memory.bandwidth)
}

/// What a tile size makes of a product.
#[derive(Clone, Copy, Default)]
struct Tile {
    /// Elements computed over elements wanted.
    pad: f64,
    /// Blocks over multiprocessors.
    waves: f64,
    /// That rounded up, over it.
    wave: f64,
}

/// A product on a device, with what several variables are of.
pub(super) struct Gemm<'a> {
    load: &'a Load<'a>,
    product: Sizes,
    conv: Option<&'a Conv2d>,
    /// Samples; to a linear layer tokens are samples.
    samples: u64,
    /// Input channels of a convolution and positions of its result; else the contraction, and 1.
    channels: u64,
    area: u64,
    /// What divisibility of the contraction is asked of: a convolution's channels, forward.
    contracted: u64,
    compute: f64,
    memory: f64,
    bound: f64,
    floor: f64,
    library: f64,
    tiles: [Tile; TILES.len()],
    best: f64,
    best_split: f64,
    /// Direct, with the best split.
    direct: f64,
    winograd: Option<(f64, f64)>,
    fourier: f64,
}

/// A smooth minimum: the library picks the fastest.
fn smaller(a: f64, b: f64) -> f64 {
    1.0 / (a.powi(-4) + b.powi(-4)).powf(0.25)
}

fn is_depthwise(conv: &Conv2d, channels: u64) -> bool {
    conv.groups(channels) == channels && conv.channels == channels && channels > 1
}

impl<'a> Gemm<'a> {
    fn new(load: &'a Load<'a>, floor: Seconds, library: f64) -> Self {
        let product = sizes(load);
        let Sizes { groups, m, n, k } = product;
        let (compute, memory) = (load.roofline.arithmetic().get().max(1e-12), load.roofline.memory.get().max(1e-12));
        let (bound, floor) = (compute.max(memory), floor.get());
        let conv = if let Layer::Conv2d(conv) = load.work.layer() { Some(conv) } else { None };
        let (channels, area) = match (conv, load.work.inputs().first().and_then(|s| s.as_map())) {
            (Some(_), Some((c, _, _))) => {
                let (_, oh, ow) = load.work.output.as_map().unwrap_or((1, 1, 1));
                (c, oh * ow)
            }
            _ => (k, 1),
        };
        let samples = match load.work.layer() {
            Layer::Linear(linear) => load.work.batch * (load.work.output.elements() / linear.features.max(1)),
            _ => load.work.batch,
        };
        let sms = load.gpu.sms.value as f64;
        let (mut best, mut best_split) = (f64::INFINITY, f64::INFINITY);
        let mut tiles = [Tile::default(); TILES.len()];
        for ((tm, tn), tile) in TILES.into_iter().zip(&mut tiles) {
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
            *tile = Tile { pad, waves, wave };
        }
        let direct = (compute * best_split).max(memory) + floor;
        let winograd = conv.and_then(|conv| winograd(load, conv, m)).map(|(f2, f4)| (f2.get(), f4.get()));
        let fourier = conv.and_then(|conv| fourier(load, conv)).map_or(direct.max(1e-12), |t| t.get() + floor);
        let contracted = if conv.is_some() && load.work.phase == Phase::Forward { channels } else { k };
        Self {
            load,
            product,
            conv,
            samples,
            channels,
            area,
            contracted,
            compute,
            memory,
            bound,
            floor,
            library,
            tiles,
            best,
            best_split,
            direct,
            winograd,
            fourier,
        }
    }

    /// ln of the time at peak of whole waves of a tile, or of the traffic, with the floor, over the roofline.
    fn time(&self, tile: usize) -> f64 {
        let Tile { pad, wave, .. } = self.tiles[tile];
        (((self.compute * pad * wave.min(64.0)).max(self.memory) + self.floor) / self.bound).ln()
    }

    /// By the best schedule.
    fn scheduled(&self) -> f64 {
        let gpu = self.load.gpu;
        let device = schedule::Device { sms: gpu.sms.value as f64, clock: gpu.core_clock.boost.value.get() };
        let (Sizes { groups, m, n, k }, bytes) = (self.product, self.load.work.precision.bytes());
        let (compute, memory) = (self.compute, self.memory);
        schedule::seconds(&schedule::Product { groups, m, n, k, bytes, compute, memory }, &device)
    }

    fn plain(&self) -> f64 {
        self.direct.max(1e-12)
    }

    /// The faster of the direct algorithm and Winograd's.
    fn fastest(&self) -> f64 {
        self.winograd.map_or(self.direct, |(f2, f4)| smaller(self.direct, f2.min(f4)))
    }

    /// 1 for a convolution of which it holds, given its input channels.
    fn conv_is(&self, condition: impl Fn(&Conv2d, u64) -> bool) -> f64 {
        self.conv.map_or(0.0, |conv| flag(condition(conv, self.channels)))
    }

    /// ln of the time of a convolution's groups one after the other over the roofline, `wave` being elements computed over
    /// those wanted where one group has the device alone; 0 for one group and one of a channel each.
    fn one_by_one(&self, wave: impl Fn(&Self) -> f64) -> f64 {
        let groups = self.product.groups as f64;
        match self.conv {
            Some(conv) if groups > 1.0 && !is_depthwise(conv, self.channels) => {
                ((groups * NEXT_LAUNCH.get() + self.compute * wave(self)) / self.bound).ln().clamp(-3.0, 8.0)
            }
            _ => 0.0,
        }
    }

    /// Elements that whole waves of tiles compute over those wanted, one group at a time.
    fn wave(&self, (tm, tn): (u64, u64)) -> f64 {
        let Sizes { m, n, .. } = self.product;
        let (rows, columns) = (m.div_ceil(tm), n.div_ceil(tn));
        let sms = self.load.gpu.sms.value;
        let computed = (rows * columns).div_ceil(sms) * sms * tm * tn;
        (computed as f64 / (m * n) as f64).min(4096.0)
    }

    fn border(&self) -> f64 {
        let Some(conv) = self.conv else { return 0.0 };
        let (_, h, w) = self.load.work.inputs().first().and_then(|s| s.as_map()).unwrap_or((1, 1, 1));
        let padded = (h + 2 * conv.padding.h) as f64 * (w + 2 * conv.padding.w) as f64;
        (padded / (h * w) as f64).ln()
    }
}

pub(super) fn fill(load: &Load<'_>, floor: Seconds, library: f64, wanted: Wanted, values: &mut [f64]) {
    let gemm = Gemm::new(load, floor, library);
    for (i, (value, variable)) in values.iter_mut().zip(VARIABLES).enumerate() {
        if wanted.has(i) {
            *value = (variable.value)(&gemm);
        }
    }
}
