//! Variables of kernels that multiply matrices: convolutions as implicit GEMM, linear layers, batched products.

use super::Role::{self, Class, Derived, Extent, Flag, Size};
use super::{Wanted, cached, flag, over, schedule, sets, widest};
use crate::base::number::{Formula, LANES, Number};
use crate::base::precision::{Phase, Precision};
use crate::base::units::Seconds;
use crate::kernel::load::{Amounts, Load};
use crate::kernel::setting::{Cache, Layout};
use crate::kernel::work::Work;
use crate::net::layer::{Conv2d, Layer, Recurrent};
use std::cell::OnceCell;
use std::marker::PhantomData;

/// Tiles that cuBLAS and cuDNN kernels compute per thread block, rows by columns.
const TILES: [(u64, u64); 8] = [(128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (32, 32), (256, 128)];

/// A variable of a product on a device.
type Variable<V> = super::Variable<fn(&Gemm<'_, V>) -> V>;

const fn v<V>(name: &'static str, role: Role, value: fn(&Gemm<'_, V>) -> V) -> Variable<V> {
    Variable { name, role, log: false, value }
}

/// One that is the logarithm of what is computed.
const fn ln<V>(name: &'static str, role: Role, value: fn(&Gemm<'_, V>) -> V) -> Variable<V> {
    Variable { name, role, log: true, value }
}

/// All of them, of one batch.
pub(super) const VARIABLES: &[Variable<f64>] = Table::<f64>::VARIABLES;

/// What variables are of: one batch, or several side by side.
struct Table<V>(PhantomData<V>);

impl<V: Number> Table<V> {
    /// The order is that of calibration files; a new one comes last.
    const VARIABLES: &[Variable<V>] = &[
        // Sizes, as logarithms over a typical value.
        ln("m", Size, |g| g.sizes()[0]),
        ln("n", Size, |g| g.sizes()[1]),
        ln("k", Size, |g| g.sizes()[2]),
        ln("g", Size, |g| g.sizes()[3]),
        ln("batch", Size, |g| g.sizes()[4]),
        ln("area", Size, |g| g.sizes()[5]),
        ln("inner", Size, |g| g.sizes()[6]),
        // Roofline.
        ln("balance", Derived, |g| g.sizes()[7]),
        ln("ridge", Derived, |g| g.roofline()[0]),
        ln("floor", Derived, |g| g.roofline()[1]),
        ln("comp", Derived, |g| g.roofline()[2]),
        ln("mem", Derived, |g| g.roofline()[3]),
        // Per tile: padding waste, wave quantization, one over waves.
        ln("pad_128x128", Derived, |g| g.tiled().pad[0]),
        ln("wave_128x128", Derived, |g| g.tiled().wave[0]),
        ln("few_128x128", Derived, |g| g.tiled().few(0)),
        ln("pad_128x64", Derived, |g| g.tiled().pad[1]),
        ln("wave_128x64", Derived, |g| g.tiled().wave[1]),
        ln("few_128x64", Derived, |g| g.tiled().few(1)),
        ln("pad_64x128", Derived, |g| g.tiled().pad[2]),
        ln("wave_64x128", Derived, |g| g.tiled().wave[2]),
        ln("few_64x128", Derived, |g| g.tiled().few(2)),
        ln("pad_64x64", Derived, |g| g.tiled().pad[3]),
        ln("wave_64x64", Derived, |g| g.tiled().wave[3]),
        ln("few_64x64", Derived, |g| g.tiled().few(3)),
        ln("pad_128x32", Derived, |g| g.tiled().pad[4]),
        ln("wave_128x32", Derived, |g| g.tiled().wave[4]),
        ln("few_128x32", Derived, |g| g.tiled().few(4)),
        ln("pad_32x128", Derived, |g| g.tiled().pad[5]),
        ln("wave_32x128", Derived, |g| g.tiled().wave[5]),
        ln("few_32x128", Derived, |g| g.tiled().few(5)),
        ln("pad_32x32", Derived, |g| g.tiled().pad[6]),
        ln("wave_32x32", Derived, |g| g.tiled().wave[6]),
        ln("few_32x32", Derived, |g| g.tiled().few(6)),
        ln("pad_256x128", Derived, |g| g.tiled().pad[7]),
        ln("wave_256x128", Derived, |g| g.tiled().wave[7]),
        ln("few_256x128", Derived, |g| g.tiled().few(7)),
        ln("best_tile", Derived, |g| g.tiled().best.min(V::of(64.0))),
        ln("best_split", Derived, |g| g.tiled().best_split.min(V::of(64.0))),
        // Per tile: waves of tiles at peak arithmetic, or the traffic where that takes longer, and the floor, over the roofline.
        ln("time_128x128", Derived, |g| g.time(0)),
        ln("time_128x64", Derived, |g| g.time(1)),
        ln("time_64x128", Derived, |g| g.time(2)),
        ln("time_64x64", Derived, |g| g.time(3)),
        ln("time_128x32", Derived, |g| g.time(4)),
        ln("time_32x128", Derived, |g| g.time(5)),
        ln("time_32x32", Derived, |g| g.time(6)),
        ln("time_256x128", Derived, |g| g.time(7)),
        // Winograd, where it applies: its time over the roofline.
        ln("wino2", Derived, |g| g.tiled().winograd.map_or(V::of(1.0), |(f2, _)| f2 * g.per_bound)),
        ln("wino4", Derived, |g| g.tiled().winograd.map_or(V::of(1.0), |(_, f4)| f4 * g.per_bound)),
        ln("winobest", Derived, |g| g.tiled().winograd.map_or(V::of(1.0), |(f2, f4)| f2.min(f4) * g.per_bound)),
        v("algobest", Derived, |g| (g.fastest() * g.per_bound).ln().between(-3.0, 5.0)),
        // Fourier transforms of tiles, where they apply: their time over the roofline, and the shorter of that and direct.
        v("fft", Derived, |g| (g.tiled().fourier * g.per_bound).ln().between(-3.0, 6.0)),
        v("fftbest", Derived, |g| (smaller(g.plain(), g.tiled().fourier) * g.per_bound).ln().between(-3.0, 5.0)),
        // Divisibility.
        v("n2", Flag, |g| g.columns_divide()[0]),
        v("n4", Flag, |g| g.columns_divide()[1]),
        v("n8", Flag, |g| g.columns_divide()[2]),
        v("n32", Flag, |g| g.columns_divide()[3]),
        v("n64", Flag, |g| g.columns_divide()[4]),
        v("k2", Flag, |g| g.others_divide()[0]),
        v("k4", Flag, |g| g.others_divide()[1]),
        v("k8", Flag, |g| g.others_divide()[2]),
        v("k32", Flag, |g| g.others_divide()[3]),
        v("k64", Flag, |g| g.others_divide()[4]),
        v("m4", Flag, |g| g.others_divide()[5]),
        v("m32", Flag, |g| g.others_divide()[6]),
        v("area2", Flag, |g| g.others_divide()[7]),
        // Class of the kernel; of everything but convolutions zero.
        v("c1x1", Class, |g| g.classes()[0]),
        v("c3x3", Class, |g| g.classes()[1]),
        v("large", Class, |g| g.classes()[2]),
        v("strided", Class, |g| g.classes()[3]),
        v("stem", Class, |g| g.classes()[4]),
        v("depthwise", Class, |g| g.classes()[5]),
        v("grouped", Class, |g| g.classes()[6]),
        v("dilated", Class, |g| g.classes()[7]),
        ln("stridedim", Extent, |g| V::of(g.conv.map_or(1.0, |conv| count(conv.stride.area())))),
        ln("kernel", Extent, |g| V::of(g.conv.map_or(1.0, |conv| count(conv.kernel.area()) / 9.0))),
        // Padding of the input: share of window positions that read zeros.
        ln("border", Derived, |g| V::of(g.border())),
        // Layout of a matrix product is not recorded by all sources; the library's age is.
        v("library", Derived, |g| V::of(g.library)),
        // A bias that a second kernel adds; where operands lie.
        ln("second", Derived, |g| g.roofline()[4]),
        ln("cached", Derived, |g| g.roofline()[5]),
        v("nhwc", Flag, |g| V::of(flag(g.load.work.layout == Layout::Nhwc))),
        v("cold", Flag, |g| V::of(flag(g.load.work.cache == Cache::Cold))),
        // Of the two 16-bit formats, which share their kernels.
        v("bf16", Flag, |g| V::of(flag(g.load.work.precision == Precision::Bf16))),
        // Groups of a convolution one after the other, where libraries have no kernel for all of them: launches alone, and with
        // each group's whole waves of tiles, over the roofline.
        v("launches", Derived, |g| g.one_by_one(|_| V::of(0.0))),
        v("serial_128x64", Derived, |g| g.one_by_one(|group| group.wave(TILES[1]))),
        v("serial_32x32", Derived, |g| g.one_by_one(|group| group.wave(TILES[6]))),
        // The best schedule of tiles, waves and splits, with the floor, over the roofline.
        ln("schedule", Derived, |g| (g.scheduled() + g.floor) * g.per_bound),
    ];
}

/// A launch right after another: 2 us where groups were measured one by one.
const NEXT_LAUNCH: Seconds = Seconds::from_us(2.0);

/// The product's sizes: `groups` times `m` x `k` by `k` x `n`; whole numbers.
#[derive(Clone, Copy)]
struct Sizes<V> {
    groups: V,
    m: V,
    n: V,
    k: V,
}

fn count(number: u64) -> f64 {
    number.max(1) as f64
}

/// Of a product over `batch` samples.
fn sizes<V: Number>(work: &Work<'_>, batch: V) -> Sizes<V> {
    let out = work.output.dims();
    // Sizes of one sample; groups, or else rows, are of all.
    let (groups, m, n, k) = match work.layer() {
        Layer::Conv2d(conv) => {
            let (c, _, _) = work.inputs().first().and_then(|s| s.as_map()).unwrap_or((1, 1, 1));
            let (_, oh, ow) = work.output.as_map().unwrap_or((1, 1, 1));
            let groups = conv.groups(c).max(1);
            (groups, oh * ow, conv.channels / groups, conv.filter(c))
        }
        Layer::Linear(linear) => {
            let rows = work.output.elements() / linear.features.max(1);
            (1, rows, linear.features, work.inputs().first().map_or(1, |s| s.axis()))
        }
        Layer::Attention(attention) => {
            // All of attention's, in both directions, are of the same sizes.
            let of = |size: u64| V::of(size as f64);
            return match attention.sizes(work.inputs()) {
                Ok(s) => Sizes {
                    groups: batch * s.heads as f64,
                    m: of(s.tokens),
                    n: of(s.keys.min(attention.window.unwrap_or(s.keys))),
                    k: of(s.dimension),
                },
                Err(_) => Sizes { groups: of(1), m: of(1), n: of(1), k: of(1) },
            };
        }
        Layer::LatentAttention(attention) => {
            let of = |size: u64| V::of(size as f64);
            return match attention.sizes(work.inputs()) {
                // All heads read the same latent keys, or each its own.
                Ok(s) if attention.decodes() => {
                    Sizes { groups: batch, m: of(attention.heads * s.tokens), n: of(s.keys), k: of(s.rank + s.rope) }
                }
                Ok(s) => Sizes {
                    groups: batch * attention.heads as f64,
                    m: of(s.tokens),
                    n: of(s.keys),
                    k: of(s.own + s.rope),
                },
                Err(_) => Sizes { groups: of(1), m: of(1), n: of(1), k: of(1) },
            };
        }
        // The products of all experts that are used, side by side, over one expert's rows.
        Layer::Experts(experts) => {
            let features = work.input().last();
            let tokens = batch * (work.input().elements() / features.max(1)) as f64;
            let used = experts.used(tokens);
            let n = used.ceil() * (experts.products() * experts.hidden) as f64;
            let m = (experts.chosen(tokens) / used).ceil();
            return Sizes { groups: V::of(1.0), m, n, k: V::of(features as f64) }.of(work.phase);
        }
        Layer::Recurrent(recurrent) => {
            let read = work.inputs().first().map_or(1, |s| s.last()) + recurrent.hidden;
            let rows = Recurrent::sequences(work.inputs());
            (recurrent.directions(), rows, recurrent.cell.gates() * recurrent.hidden, read)
        }
        _ => {
            let heads = if out.len() == 3 { out[0] } else { 1 };
            let [m, n] = out.last_chunk::<2>().copied().unwrap_or([1, 1]);
            let (m, n) = (V::of(m as f64), V::of(n as f64));
            let k = V::of(work.inputs().first().map_or(1, |s| s.last()) as f64);
            return Sizes { groups: batch * heads as f64, m, n, k }.of(work.phase);
        }
    };
    let [groups, n, k] = [groups, n, k].map(|size| V::of(size as f64));
    Sizes { groups, m: batch * m as f64, n, k }.of(work.phase)
}

impl<V: Number> Sizes<V> {
    /// The backward products contract over the forward's columns, or over its rows.
    fn of(self, phase: Phase) -> Self {
        let Self { groups, m, n, k } = self;
        match phase {
            Phase::BackwardData => Self { groups, m, n: k, k: n },
            Phase::BackwardWeights => Self { groups, m: k, n, k: m },
            _ => self,
        }
    }
}

/// Thread blocks of a kernel over `batch` samples with tiles of 64 by 64. Plain products split a long contraction over blocks,
/// as does the gradient of weights, a small matrix with a long one; other convolutions seldom do.
pub(super) fn blocks<V: Number>(work: &Work<'_>, batch: V) -> V {
    const SPLIT: f64 = 512.0;
    let Sizes { groups, m, n, k } = sizes(work, batch);
    let splits = work.phase == Phase::BackwardWeights || !matches!(work.layer(), Layer::Conv2d(_));
    let split = if splits { (k / SPLIT).ceil() } else { V::of(1.0) };
    groups * ((m / 64.0).ceil() * (n / 64.0).ceil()) * split
}

/// Times of the two fused Winograd forms of a 3x3 stride-1 convolution, F(2x2) and F(4x4): 16 or 36 products of
/// (tiles x c_in) by (c_in x c_out), plus writing and reading the transformed tensors when they do not stay on
/// chip.
fn winograd<V: Number>(load: &Load<'_>, amounts: &Amounts<V>, conv: &Conv2d, m: V) -> Option<(V, V)> {
    let applies =
        conv.kernel.is(3) && conv.stride.is(1) && conv.dilation.is(1) && load.work.phase != Phase::BackwardWeights;
    let (c, _, _) = load.work.inputs().first()?.as_map()?;
    if !applies || conv.groups(c) != 1 {
        return None;
    }
    let (_, oh, ow) = load.work.output.as_map()?;
    let form = |size: u64| {
        let tiles = amounts.batch * (oh.div_ceil(size) * ow.div_ceil(size)) as f64;
        let points = (size + 2) * (size + 2);
        let useful = tiles * points as f64 / (m * 9.0);
        let each = (load.work.precision.bytes() * points) as f64;
        let moved = (tiles * (c + conv.channels) as f64 + (c * conv.channels) as f64) * each;
        amounts.compute * useful + moved / load.memory.bandwidth.get()
    };
    Some((form(2), form(4)))
}

/// Time of a convolution by Fourier transforms of 32x32 tiles (Mathieu, Henaff, LeCun 2014): one product of complex
/// matrices, (tiles x c_in) by (c_in x c_out), per point of a transform, and its tensors written and read once.
fn fourier<V: Number>(load: &Load<'_>, batch: V, conv: &Conv2d) -> Option<V> {
    const SIDE: u64 = 32;
    const POINTS: u64 = SIDE * (SIDE / 2 + 1);
    let applies = conv.kernel.area() > 1 && conv.stride.is(1) && conv.dilation.is(1);
    let (c, _, _) = load.work.inputs().first()?.as_map()?;
    if !applies || conv.groups(c) != 1 || load.work.precision != Precision::Fp32 {
        return None;
    }
    let (_, oh, ow) = load.work.output.as_map()?;
    let useful = |kernel: u64| SIDE.saturating_sub(kernel - 1).max(1);
    let tiles = batch * (oh.div_ceil(useful(conv.kernel.h)) * ow.div_ceil(useful(conv.kernel.w))) as f64;
    // A complex multiply-accumulate is eight operations.
    let ops = tiles * (8 * POINTS * c * conv.channels) as f64;
    let moved = (tiles * (c + conv.channels) as f64 + (c * conv.channels) as f64) * (16 * POINTS) as f64;
    Some(ops / load.gpu.peak(load.work.precision)?.get() + moved / load.memory.bandwidth.get())
}

/// No time is shorter, in seconds.
const LEAST: f64 = 1e-12;

/// Rows and columns of the [`TILES`], 1 over both, and how often operands are loaded again: arithmetic per loaded word falls with
/// 1 / rows + 1 / columns.
const SIDES: [[f64; LANES]; 5] = {
    let mut sides = [[0.0; LANES]; 5];
    let mut i = 0;
    while i < TILES.len() {
        let (rows, columns) = (TILES[i].0 as f64, TILES[i].1 as f64);
        let (per_row, per_column) = (1.0 / rows, 1.0 / columns);
        [sides[0][i], sides[1][i], sides[2][i], sides[3][i]] = [rows, columns, per_row, per_column];
        sides[4][i] = (per_row + per_column) * 24.0 + 1.0;
        i += 1;
    }
    sides
};

/// What a tile of so many rows and columns makes of as many products, of so many rows and columns, split over so many blocks at
/// most: elements computed over elements wanted, multiprocessors over blocks, blocks rounded up to whole waves over blocks (up to
/// 64), and its time over that at peak without and with the contraction split.
struct OfTile {
    sms: f64,
}

impl Formula<6, 5, 5> for OfTile {
    /// `per_m`, `per_row` and the like are 1 over `m` and `tm`: sides of tiles are powers of two.
    #[inline(always)]
    fn at<V: Number>(
        &self,
        [groups, m, n, per_m, per_n, most_split]: [V; 6],
        [tm, tn, per_row, per_column, reuse]: [V; 5],
    ) -> [V; 5] {
        let (rows, columns) = ((m * per_row).ceil(), (n * per_column).ceil());
        let pad = rows * tm * per_m * (columns * tn * per_n);
        let waves = groups * rows * columns / self.sms;
        let few = waves.inverse();
        let wave = waves.ceil() * few;
        // With the contraction split over blocks, waves fill up at the cost of a reduction.
        let split = few.max(V::of(1.0)).min(most_split);
        let split_waves = waves * split;
        let cost = (split - 1.0) * 0.05 + 1.0;
        let filled = split_waves.ceil() / split_waves;
        [pad, few, wave.min(V::of(64.0)), pad * wave * reuse, pad * filled * reuse * cost]
    }
}

/// A product on a device, with what several variables are of.
pub(super) struct Gemm<'a, V> {
    load: &'a Load<'a>,
    amounts: &'a Amounts<V>,
    product: Sizes<V>,
    conv: Option<&'a Conv2d>,
    /// Samples; to a linear layer and to experts tokens are samples.
    samples: V,
    /// Input channels of a convolution and positions of its result; else the contraction, and 1.
    channels: V,
    area: V,
    /// What divisibility of the contraction is asked of: a convolution's channels, forward.
    contracted: V,
    compute: V,
    memory: V,
    /// 1 over its time by the roofline.
    per_bound: V,
    floor: f64,
    library: f64,
    /// Worked out where a variable is of them.
    tiled: OnceCell<Tiled<V>>,
}

/// A product by tiles, and by other algorithms than the direct one.
struct Tiled<V> {
    /// By tile: elements computed over elements wanted.
    pad: [V; TILES.len()],
    /// Multiprocessors over blocks.
    few: [V; TILES.len()],
    /// Blocks rounded up to whole waves, over blocks, of not too few.
    wave: [V; TILES.len()],
    best: V,
    best_split: V,
    /// Direct, with the best split.
    direct: V,
    winograd: Option<(V, V)>,
    fourier: V,
}

impl<V: Number> Tiled<V> {
    /// More where there are fewer waves of a tile.
    #[inline(always)]
    fn few(&self, tile: usize) -> V {
        self.few[tile] + 1.0
    }
}

/// A smooth minimum: the library picks the fastest.
fn smaller<V: Number>(a: V, b: V) -> V {
    let fourth = |x: V| {
        let inverse = x.inverse();
        let squared = inverse * inverse;
        squared * squared
    };
    (fourth(a) + fourth(b)).sqrt().sqrt().inverse()
}

fn is_depthwise(conv: &Conv2d, channels: u64) -> bool {
    conv.groups(channels) == channels && conv.channels == channels && channels > 1
}

impl<'a, V: Number> Gemm<'a, V> {
    #[inline(always)]
    fn new(load: &'a Load<'a>, amounts: &'a Amounts<V>, floor: Seconds, library: f64) -> Self {
        let product = sizes(&load.work, amounts.batch);
        let k = product.k;
        let least = V::of(LEAST);
        let (compute, memory) = ((amounts.compute * load.roofline.narrow).max(least), amounts.memory.max(least));
        let (per_bound, floor) = (compute.max(memory).inverse(), floor.get());
        let conv = if let Layer::Conv2d(conv) = load.work.layer() { Some(conv) } else { None };
        let (channels, area) = match (conv, load.work.inputs().first().and_then(|s| s.as_map())) {
            (Some(_), Some((c, _, _))) => {
                let (_, oh, ow) = load.work.output.as_map().unwrap_or((1, 1, 1));
                (V::of(c as f64), V::of((oh * ow) as f64))
            }
            _ => (k, V::of(1.0)),
        };
        let samples = match load.work.layer() {
            Layer::Linear(linear) => amounts.batch * (load.work.output.elements() / linear.features.max(1)) as f64,
            Layer::Experts(_) => {
                let input = load.work.input();
                amounts.batch * (input.elements() / input.last().max(1)) as f64
            }
            _ => amounts.batch,
        };
        let contracted = if conv.is_some() && load.work.phase == Phase::Forward { channels } else { k };
        Self {
            load,
            amounts,
            product,
            conv,
            samples,
            channels,
            area,
            contracted,
            compute,
            memory,
            per_bound,
            floor,
            library,
            tiled: OnceCell::new(),
        }
    }

    fn tiled(&self) -> &Tiled<V> {
        let make = || {
            V::by_widest(
                #[inline(always)]
                || self.by_tiles(),
            )
        };
        self.tiled.get_or_init(make)
    }

    #[inline(always)]
    fn by_tiles(&self) -> Tiled<V> {
        let Self { load, amounts, conv, compute, memory, floor, .. } = *self;
        let (Sizes { groups, m, n, k }, least) = (self.product, V::of(LEAST));
        let sms = load.gpu.sms.value as f64;
        let most_split = (k / 64.0).max(V::of(1.0)).min(V::of(16.0));
        let (one, each) = (V::of(1.0), [V::of(1.0); TILES.len()]);
        let (mut alone, mut split) = (each, each);
        let mut tiled = Tiled {
            pad: each,
            few: each,
            wave: each,
            best: one,
            best_split: one,
            direct: one,
            winograd: conv.and_then(|conv| winograd(load, amounts, conv, m)),
            fourier: one,
        };
        let results = [&mut tiled.pad, &mut tiled.few, &mut tiled.wave, &mut alone, &mut split];
        V::for_each(&OfTile { sms }, [groups, m, n, m.inverse(), n.inverse(), most_split], &SIDES, results);
        (tiled.best, tiled.best_split) = (alone[0], split[0]);
        for tile in 1..TILES.len() {
            (tiled.best, tiled.best_split) = (tiled.best.min(alone[tile]), tiled.best_split.min(split[tile]));
        }
        tiled.direct = (compute * tiled.best_split).max(memory) + floor;
        let fourier = conv.and_then(|conv| fourier(load, amounts.batch, conv));
        tiled.fourier = fourier.map_or_else(|| tiled.direct.max(least), |time| time + floor);
        tiled
    }

    /// The time at peak of whole waves of a tile, or of the traffic, with the floor, over the roofline.
    #[inline(always)]
    fn time(&self, tile: usize) -> V {
        let tiled = self.tiled();
        ((self.compute * tiled.pad[tile] * tiled.wave[tile]).max(self.memory) + self.floor) * self.per_bound
    }

    /// What there is of every tile.
    #[inline(always)]
    fn of_tiles(&self, of: impl Fn(&Self, usize) -> V) -> [V; TILES.len()] {
        let mut values = self.tiled().pad;
        for (tile, value) in values.iter_mut().enumerate() {
            *value = of(self, tile);
        }
        values
    }

    /// The sizes, and how arithmetic and traffic compare, each over a typical value.
    #[inline(always)]
    fn sizes(&self) -> [V; LANES] {
        let Sizes { groups, m, n, k } = self.product;
        [
            over(m, 4096.0),
            over(n, 256.0),
            over(k, 1024.0),
            over(groups, 1.0),
            over(self.samples, 16.0),
            over(self.area, 256.0),
            over(self.channels, 128.0),
            self.compute / self.memory,
        ]
    }

    /// The shorter part of the roofline, the floor, both parts, what runs besides, what the cache holds.
    #[inline(always)]
    fn roofline(&self) -> [V; LANES] {
        let one = V::of(1.0);
        [
            self.compute.min(self.memory) * self.per_bound + 1.0,
            self.per_bound * self.floor + 1.0,
            self.compute / 1e-3,
            self.memory / 1e-3,
            self.amounts.second * self.per_bound + 1.0,
            cached(self.load, self.amounts),
            one,
            one,
        ]
    }

    #[inline(always)]
    fn columns_divide(&self) -> [V; LANES] {
        let (n, one) = (self.product.n, V::of(1.0));
        [n.divides(2.0), n.divides(4.0), n.divides(8.0), n.divides(32.0), n.divides(64.0), one, one, one]
    }

    /// The contraction, the rows, the positions.
    #[inline(always)]
    fn others_divide(&self) -> [V; LANES] {
        let (k, m, area) = (self.contracted, self.product.m, self.area);
        [
            k.divides(2.0),
            k.divides(4.0),
            k.divides(8.0),
            k.divides(32.0),
            k.divides(64.0),
            m.divides(4.0),
            m.divides(32.0),
            area.divides(2.0),
        ]
    }

    /// What a convolution is, each 0 or 1.
    fn classes(&self) -> [V; LANES] {
        let Some(conv) = self.conv else { return [V::of(0.0); LANES] };
        let channels = self.input_channels();
        let depthwise = is_depthwise(conv, channels);
        let is = |condition| V::of(flag(condition));
        [
            is(conv.kernel.is(1)),
            is(conv.kernel.is(3) && conv.stride.is(1)),
            is(conv.kernel.area() > 9),
            is(conv.stride.area() > 1),
            is(channels <= 4),
            is(depthwise),
            is(!depthwise && conv.groups(channels) > 1),
            is(conv.dilation.area() > 1),
        ]
    }

    /// By the best schedule.
    fn scheduled(&self) -> V {
        let gpu = self.load.gpu;
        let device = schedule::Device { sms: gpu.sms.value as f64, clock: gpu.core_clock.boost.value.get() };
        let (Sizes { groups, m, n, k }, bytes) = (self.product, self.load.work.precision.bytes());
        let (compute, memory) = (self.compute, self.memory);
        let product = schedule::Product { groups, m, n, k, bytes, compute, memory };
        V::by_widest(
            #[inline(always)]
            || schedule::seconds(&product, &device),
        )
    }

    fn plain(&self) -> V {
        self.tiled().direct.max(V::of(LEAST))
    }

    /// The faster of the direct algorithm and Winograd's.
    fn fastest(&self) -> V {
        let Tiled { winograd, direct, .. } = *self.tiled();
        winograd.map_or(direct, |(f2, f4)| smaller(direct, f2.min(f4)))
    }

    /// Input channels of a convolution.
    fn input_channels(&self) -> u64 {
        self.load.work.inputs().first().and_then(|s| s.as_map()).map_or(1, |(c, _, _)| c)
    }

    /// ln of the time of a convolution's groups one after the other over the roofline, `wave` being elements computed over
    /// those wanted where one group has the device alone; 0 for one group and one of a channel each.
    fn one_by_one(&self, wave: impl Fn(&Self) -> V) -> V {
        let channels = self.input_channels();
        match self.conv {
            Some(conv) if conv.groups(channels) > 1 && !is_depthwise(conv, channels) => {
                let launches = self.product.groups * NEXT_LAUNCH.get();
                ((launches + self.compute * wave(self)) * self.per_bound).ln().between(-3.0, 8.0)
            }
            _ => V::of(0.0),
        }
    }

    /// Elements that whole waves of tiles compute over those wanted, one group at a time.
    fn wave(&self, (tm, tn): (u64, u64)) -> V {
        let Sizes { m, n, .. } = self.product;
        let (tm, tn, sms) = (tm as f64, tn as f64, self.load.gpu.sms.value as f64);
        let blocks = (m / tm).ceil() * (n / tn).ceil();
        let computed = (blocks / sms).ceil() * sms * tm * tn;
        (computed / (m * n)).min(V::of(4096.0))
    }

    fn border(&self) -> f64 {
        let Some(conv) = self.conv else { return 1.0 };
        let (_, h, w) = self.load.work.inputs().first().and_then(|s| s.as_map()).unwrap_or((1, 1, 1));
        let padded = (h + 2 * conv.padding.h) as f64 * (w + 2 * conv.padding.w) as f64;
        padded / (h * w) as f64
    }
}

/// Numbers of a product that are worked out together.
type Together<V> = super::Together<fn(&Gemm<'_, V>) -> [V; LANES]>;

/// As the places of variables that there are of every tile.
const fn by_tile(first: usize, step: usize) -> [usize; TILES.len()] {
    let mut places = [first; TILES.len()];
    let mut tile = 1;
    while tile < TILES.len() {
        places[tile] += tile * step;
        tile += 1;
    }
    places
}

impl<V: Number> Table<V> {
    const TOGETHER: [Together<V>; 9] = [
        Together { places: &[0, 1, 2, 3, 4, 5, 6, 7], log: true, values: widest!(|g| g.sizes()) },
        Together { places: &[8, 9, 10, 11, 77, 78], log: true, values: widest!(|g| g.roofline()) },
        Together { places: &const { by_tile(12, 3) }, log: true, values: |g| g.tiled().pad },
        Together { places: &const { by_tile(13, 3) }, log: true, values: |g| g.tiled().wave },
        Together {
            places: &const { by_tile(14, 3) },
            log: true,
            values: widest!(|g| g.of_tiles(|g, i| g.tiled().few(i))),
        },
        Together { places: &const { by_tile(38, 1) }, log: true, values: widest!(|g| g.of_tiles(Gemm::time)) },
        Together { places: &[52, 53, 54, 55, 56], log: false, values: widest!(|g| g.columns_divide()) },
        Together { places: &[57, 58, 59, 60, 61, 62, 63, 64], log: false, values: widest!(|g| g.others_divide()) },
        Together { places: &[65, 66, 67, 68, 69, 70, 71, 72], log: false, values: |g| g.classes() },
    ];
}

const SETS: [Wanted; Table::<f64>::TOGETHER.len()] = sets(&Table::<f64>::TOGETHER);

pub(super) fn fill<V: Number>(
    load: &Load<'_>,
    amounts: &Amounts<V>,
    (floor, library): (Seconds, f64),
    wanted: Wanted,
    values: &mut [V],
) {
    let gemm = V::by_widest(
        #[inline(always)]
        || Gemm::new(load, amounts, floor, library),
    );
    let of = |i: usize| {
        let variable = &Table::<V>::VARIABLES[i];
        ((variable.value)(&gemm), variable.log)
    };
    super::fill((&Table::<V>::TOGETHER, &SETS), |of| of(&gemm), (wanted, VARIABLES.len()), of, values);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::number::Lanes;
    use crate::base::precision::Mode;
    use crate::base::shape::Shape;
    use crate::device::gpu::testing::toy;
    use crate::kernel::features::MAX_VARIABLES;
    use crate::net::case::LayerCase;
    use crate::net::layer::{Groups, Pair};

    /// Together or one by one, of convolutions of all classes.
    #[test]
    fn variables_that_are_worked_out_together_are_those_of_each() {
        let gpu = toy();
        for (kernel, stride, groups, channels) in
            [(1, 1, 1, 64), (3, 1, 1, 48), (3, 2, 1, 3), (5, 1, 4, 64), (3, 1, 66, 66)]
        {
            let conv = Conv2d {
                channels: if groups > 4 { channels } else { 96 },
                kernel: Pair::square(kernel),
                stride: Pair::square(stride),
                padding: Pair::square(kernel / 2),
                dilation: Pair::square(1),
                groups: Groups::Count(groups),
                bias: true,
            };
            let inputs = vec![Shape::new(&[channels, 27, 31]).expect("a shape")];
            let case = LayerCase { inputs, layer: Layer::Conv2d(conv) };
            let work = Work::usual(case, Phase::Forward, 7, Precision::Fp32, Mode::Inference).expect("fits");
            let load = work.on(&gpu).expect("fits").expect("fp32");
            let amounts = load.amounts();
            let over = (Seconds::from_us(4.0), 0.0);
            let gemm = Gemm::new(&load, &amounts, over.0, over.1);
            let mut together = [f64::NAN; MAX_VARIABLES];
            fill(&load, &amounts, over, Wanted::ALL, &mut together);
            let mut several = [Lanes::of(f64::NAN); MAX_VARIABLES];
            fill(&load, &amounts.with(&amounts, |amount, _| Lanes::of(amount)), over, Wanted::ALL, &mut several);
            for (place, variable) in VARIABLES.iter().enumerate() {
                let value = (variable.value)(&gemm);
                let plain = if variable.log { value.ln() } else { value };
                for found in [together[place], several[place].0[3]] {
                    let near = (found - plain).abs() <= 1e-14 * (1.0 + plain.abs());
                    assert!(near, "{} {found} {plain}", variable.name);
                }
            }
        }
    }
}
