//! Every variable by its name, computed naively from the sizes of a kernel's product, or from its elements and bytes.

use super::*;
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::catalog;
use crate::kernel::setting::{Cache, Layout};
use crate::kernel::work::Work;
use crate::net::case::LayerCase;
use crate::net::layer::Layer;

const FLOOR: f64 = 3e-6;
const LIBRARY: f64 = -1.5;

/// A kernel with what a reader would say of it.
struct Case {
    kind: &'static str,
    fields: &'static str,
    inputs: &'static [&'static [u64]],
    batch: u64,
    phase: Phase,
    precision: Precision,
    layout: Layout,
    cache: Cache,
    mode: Mode,
}

/// Of a product: groups, rows, columns, contraction.
type Product = (f64, f64, f64, f64);

impl Case {
    /// What a test does with this case on a V100.
    fn with<T>(&self, test: impl FnOnce(&Load<'_>) -> T) -> T {
        let gpu = catalog::gpu("v100").expect("shipped");
        let table = self.fields.parse().expect("fields");
        let layer = Layer::from_table(self.kind, table).expect("a kind").expect("a layer");
        let inputs = self.inputs.iter().map(|d| Shape::new(d).expect("a shape")).collect();
        let work = Work::usual(LayerCase { inputs, layer }, self.phase, self.batch, self.precision, self.mode);
        let work = Work { layout: self.layout, cache: self.cache, ..work.expect("fits") };
        test(&work.on(&gpu).expect("fits").expect("runs"))
    }

    fn check(&self, expected: &dyn Fn(&str, &Load<'_>) -> f64) {
        self.with(|load| {
            let values = load.variables(Seconds::new(FLOOR), LIBRARY).values;
            for (name, value) in load.work.family().variables().iter().zip(values) {
                let expected = expected(name, load);
                let close = (value - expected).abs() <= 1e-9 * expected.abs().max(1.0);
                assert!(close, "{} {} {}: {name} is {value}, not {expected}", self.kind, self.fields, self.phase);
            }
        });
    }
}

fn up(a: f64, b: f64) -> f64 {
    (a / b).ceil()
}

fn yes(condition: bool) -> f64 {
    if condition { 1.0 } else { 0.0 }
}

fn divisible(value: f64, by: f64) -> f64 {
    yes(value % by == 0.0)
}

/// What a convolution adds to its product's sizes.
#[derive(Clone, Copy)]
struct Window {
    channels: f64,
    features: f64,
    kernel: f64,
    stride: f64,
    dilation: f64,
    groups: f64,
    padding: f64,
    /// Sides of the input and of the result.
    side: f64,
    out: f64,
}

/// Multiprocessors, bytes per second and of the second-level cache of a V100; a peak of a precision.
const SMS: f64 = 80.0;

/// Core clock of a V100, Hz.
const CLOCK: f64 = 1.53e9;

/// Sixteen bytes over the largest power of two that divides the rows of all operands, on tensor cores.
fn narrow(load: &Load<'_>) -> f64 {
    let rows = match load.work.layer() {
        Layer::Linear(linear) => vec![load.work.inputs()[0].last(), linear.features],
        Layer::Matmul(_) => load.work.inputs().iter().map(Shape::last).collect(),
        _ => vec![],
    };
    let bytes = load.work.precision.bytes();
    let tensor = load.work.precision == Precision::Fp16;
    let whole = |by: u64| rows.iter().all(|row| (row * bytes).is_multiple_of(by));
    let widest = [16, 8, 4, 2].into_iter().find(|by| whole(*by)).expect("even bytes");
    if tensor { 16.0 / widest as f64 } else { 1.0 }
}

/// Tile by tile and split by split, a step of 128 bytes after the other.
fn schedule((g, m, n, k): Product, compute: f64, memory: f64, bytes_each: f64) -> f64 {
    let sides =
        [(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (64, 16), (16, 64)];
    let mut best = f64::MAX;
    for (tm, tn) in sides.map(|(a, b)| (f64::from(a), f64::from(b))) {
        for split in [1.0, 2.0, 4.0, 8.0, 16.0_f64] {
            let step = 128.0 / bytes_each;
            if split > 1.0 && (k / split).floor() < 2.0 * step {
                continue;
            }
            let steps = up(up(k, split), step);
            let share = steps * step * tm * tn / (g * m * n * k);
            let block = [SMS * compute * share, (tm + tn) * steps * 128.0 / (32.0 * CLOCK), 0.15e-6 * steps];
            let waves = up(g * up(m, tm) * up(n, tn) * split, SMS);
            let busy = waves * block.into_iter().fold(0.0, f64::max);
            let joined = if split > 1.0 { 1e-6 + 8.0 * split * g * m * n / (32.0 * CLOCK * SMS) } else { 0.0 };
            best = best.min(busy.max(memory) + joined);
        }
    }
    best
}

fn gemm(name: &str, load: &Load<'_>, (g, m, n, k): Product, samples: f64, conv: Option<Window>) -> f64 {
    let gpu = load.gpu;
    assert_eq!(gpu.sms.value as f64, SMS);
    let bandwidth = gpu.bandwidth.value.get();
    let peak = gpu.peak(load.work.precision).expect("a peak").get();
    let bytes = load.cost.bytes().to_f64();
    // Half a microsecond for each of a recurrent layer's ten steps.
    let waiting = if matches!(load.work.layer(), Layer::Recurrent(_)) { 5e-6 } else { 0.0 };
    let (compute, memory) = (narrow(load) * load.cost.ops.to_f64() / peak + waiting, bytes / bandwidth);
    let bound = if compute > memory { compute } else { memory };
    let tiles = [
        (128.0, 128.0),
        (128.0, 64.0),
        (64.0, 128.0),
        (64.0, 64.0),
        (128.0, 32.0),
        (32.0, 128.0),
        (32.0, 32.0),
        (256.0, 128.0),
    ];
    let pad = |(tm, tn): (f64, f64)| up(m, tm) * tm * up(n, tn) * tn / (m * n);
    let waves = |(tm, tn): (f64, f64)| g * up(m, tm) * up(n, tn) / SMS;
    let wave = |tile| waves(tile).ceil() / waves(tile);
    let reuse = |(tm, tn): (f64, f64)| 1.0 + 24.0 / tm + 24.0 / tn;
    let split = |tile| {
        let wanted: f64 = 1.0 / waves(tile);
        wanted.max(1.0).min((k / 64.0).max(1.0)).min(16.0)
    };
    let least = |value: &dyn Fn((f64, f64)) -> f64| tiles.into_iter().map(value).fold(f64::MAX, f64::min);
    let best_tile = least(&|t| pad(t) * wave(t) * reuse(t));
    let best_split = least(&|t| {
        let w = waves(t) * split(t);
        pad(t) * (w.ceil() / w) * reuse(t) * (0.95 + 0.05 * split(t))
    });
    let direct = compute * best_split;
    let direct = if direct > memory { direct } else { memory } + FLOOR;
    let forward = load.work.phase == Phase::Forward;
    let bytes_each = load.work.precision.bytes() as f64;
    let winograd = |size: f64| -> Option<f64> {
        let c = conv?;
        let applies = c.kernel == 3.0 && c.stride == 1.0 && c.dilation == 1.0 && c.groups == 1.0;
        (applies && load.work.phase != Phase::BackwardWeights).then_some(())?;
        let tiles = load.work.batch as f64 * up(c.out, size) * up(c.out, size);
        let points = (size + 2.0) * (size + 2.0);
        let moved = bytes_each * points * (tiles * c.channels + tiles * c.features + c.channels * c.features);
        // As many multiplications as points instead of nine per position.
        Some(compute * tiles * points / (9.0 * m) + moved / bandwidth)
    };
    let fourier = || -> Option<f64> {
        let c = conv?;
        let applies = c.kernel > 1.0 && c.stride == 1.0 && c.dilation == 1.0 && c.groups == 1.0;
        (applies && load.work.precision == Precision::Fp32).then_some(())?;
        let points = 32.0 * 17.0;
        let tiles = load.work.batch as f64 * up(c.out, 33.0 - c.kernel) * up(c.out, 33.0 - c.kernel);
        let ops = 8.0 * points * tiles * c.channels * c.features;
        let moved = 16.0 * points * (tiles * c.channels + tiles * c.features + c.channels * c.features);
        Some(ops / peak + moved / bandwidth + FLOOR)
    };
    let smooth = |a: f64, b: f64| (1.0 / (1.0 / a.powi(4) + 1.0 / b.powi(4))).powf(0.25);
    let wino_best = winograd(2.0).zip(winograd(4.0)).map(|(a, b)| a.min(b));
    let tile = |text: &str| {
        let (a, b) = text.split_once('x').expect("rows by columns");
        (a.parse().expect("rows"), b.parse().expect("columns"))
    };
    // Divisibility is of what is contracted: a convolution's channels, forward.
    let contracted = match conv {
        Some(c) if forward => c.channels,
        _ => k,
    };
    let of = |value: fn(Window) -> f64| conv.map_or(0.0, value);
    let depthwise = |c: Window| c.groups == c.channels && c.features == c.channels && c.channels > 1.0;
    match name {
        "m" => (m / 4096.0).ln(),
        "n" => (n / 256.0).ln(),
        "k" => (k / 1024.0).ln(),
        "g" => g.ln(),
        "batch" => (samples / 16.0).ln(),
        "area" => (conv.map_or(1.0, |c| c.out * c.out) / 256.0).ln(),
        "inner" => (conv.map_or(k, |c| c.channels) / 128.0).ln(),
        "balance" => (compute / memory).ln(),
        "ridge" => ((compute + memory) / bound).ln(),
        "floor" => ((bound + FLOOR) / bound).ln(),
        "comp" => (1e3 * compute).ln(),
        "mem" => (1e3 * memory).ln(),
        "best_tile" => best_tile.min(64.0).ln(),
        "best_split" => best_split.min(64.0).ln(),
        "wino2" => winograd(2.0).map_or(0.0, |t| (t / bound).ln()),
        "wino4" => winograd(4.0).map_or(0.0, |t| (t / bound).ln()),
        "winobest" => wino_best.map_or(0.0, |t| (t / bound).ln()),
        "algobest" => (wino_best.map_or(direct, |t| smooth(direct, t)) / bound).ln().clamp(-3.0, 5.0),
        "fft" => (fourier().unwrap_or(direct) / bound).ln().clamp(-3.0, 6.0),
        "fftbest" => (smooth(direct, fourier().unwrap_or(direct)) / bound).ln().clamp(-3.0, 5.0),
        "m4" => divisible(m, 4.0),
        "m32" => divisible(m, 32.0),
        "area2" => divisible(conv.map_or(1.0, |c| c.out * c.out), 2.0),
        "c1x1" => of(|c| yes(c.kernel == 1.0)),
        "c3x3" => of(|c| yes(c.kernel == 3.0 && c.stride == 1.0)),
        "large" => of(|c| yes(c.kernel > 3.0)),
        "strided" => of(|c| yes(c.stride > 1.0)),
        "stem" => of(|c| yes(c.channels <= 4.0)),
        "depthwise" => conv.map_or(0.0, |c| yes(depthwise(c))),
        "grouped" => conv.map_or(0.0, |c| yes(c.groups > 1.0 && !depthwise(c))),
        "dilated" => of(|c| yes(c.dilation > 1.0)),
        "stridedim" => of(|c| 2.0 * c.stride.ln()),
        "kernel" => of(|c| 2.0 * (c.kernel / 3.0).ln()),
        "border" => of(|c| 2.0 * ((c.side + 2.0 * c.padding) / c.side).ln()),
        "library" => LIBRARY,
        "second" => (1.0 + load.roofline.second.get() / bound).ln(),
        "cached" => (1.0 + gpu.l2.as_ref().expect("known").value.to_f64() / bytes).ln(),
        "nhwc" => yes(load.work.layout == Layout::Nhwc),
        "cold" => yes(load.work.cache == Cache::Cold),
        "schedule" => ((schedule((g, m, n, k), compute, memory, bytes_each) + FLOOR) / bound).ln(),
        "bf16" => yes(load.work.precision == Precision::Bf16),
        "launches" | "serial_128x64" | "serial_32x32" => {
            let Some(c) = conv.filter(|c| c.groups > 1.0 && !depthwise(*c)) else { return 0.0 };
            let computed = name.strip_prefix("serial_").map_or(0.0, |text| {
                let (tm, tn) = tile(text);
                (up(up(m, tm) * up(n, tn), SMS) * SMS * tm * tn / (m * n)).min(4096.0)
            });
            ((c.groups * 2e-6 + compute * computed) / bound).ln().clamp(-3.0, 8.0)
        }
        _ => {
            if let Some(by) = name.strip_prefix('n').and_then(|by| by.parse().ok()) {
                return divisible(n, by);
            }
            if let Some(by) = name.strip_prefix('k').and_then(|by| by.parse().ok()) {
                return divisible(contracted, by);
            }
            match name.split_once('_').expect("a tile") {
                ("pad", t) => pad(tile(t)).ln(),
                ("wave", t) => wave(tile(t)).min(64.0).ln(),
                ("few", t) => ((waves(tile(t)) + 1.0) / waves(tile(t))).ln(),
                ("time", t) => {
                    let busy = compute * pad(tile(t)) * wave(tile(t)).min(64.0);
                    ((busy.max(memory) + FLOOR) / bound).ln()
                }
                _ => panic!("{name} has no oracle"),
            }
        }
    }
}

const FORWARD: (Phase, Precision, Layout, Cache, Mode) =
    (Phase::Forward, Precision::Fp32, Layout::Nchw, Cache::Hot, Mode::Inference);

fn case(
    (kind, fields, inputs): Named,
    batch: u64,
    (phase, precision, layout, cache, mode): (Phase, Precision, Layout, Cache, Mode),
) -> Case {
    Case { kind, fields, inputs, batch, phase, precision, layout, cache, mode }
}

#[test]
fn variables_of_convolutions() {
    let base = Window {
        channels: 1.0,
        features: 1.0,
        kernel: 3.0,
        stride: 1.0,
        dilation: 1.0,
        groups: 1.0,
        padding: 1.0,
        side: 28.0,
        out: 28.0,
    };
    let list: [(&'static str, &'static [&'static [u64]], u64, Window); 7] = [
        (
            "channels = 96\nkernel = 3\npadding = 1",
            &[&[64, 28, 28]],
            16,
            Window { channels: 64.0, features: 96.0, ..base },
        ),
        // Few and many: waves, splits, floors.
        (
            "channels = 5\nkernel = 3\npadding = 1",
            &[&[6, 7, 7]],
            1,
            Window { channels: 6.0, features: 5.0, side: 7.0, out: 7.0, ..base },
        ),
        (
            "channels = 512\nkernel = 3\npadding = 1\nbias = false",
            &[&[512, 56, 56]],
            64,
            Window { channels: 512.0, features: 512.0, side: 56.0, out: 56.0, ..base },
        ),
        (
            "channels = 64\nkernel = 7\nstride = 2\npadding = 3",
            &[&[3, 224, 224]],
            8,
            Window {
                channels: 3.0,
                features: 64.0,
                kernel: 7.0,
                stride: 2.0,
                padding: 3.0,
                side: 224.0,
                out: 112.0,
                ..base
            },
        ),
        (
            "channels = 130\nkernel = 1\nbias = false",
            &[&[258, 14, 14]],
            4,
            Window { channels: 258.0, features: 130.0, kernel: 1.0, padding: 0.0, side: 14.0, out: 14.0, ..base },
        ),
        (
            "channels = 32\nkernel = 3\npadding = 2\ndilation = 2\ngroups = 4",
            &[&[32, 15, 15]],
            2,
            Window {
                channels: 32.0,
                features: 32.0,
                dilation: 2.0,
                groups: 4.0,
                padding: 2.0,
                side: 15.0,
                out: 15.0,
                ..base
            },
        ),
        (
            "channels = 24\nkernel = 5\npadding = 2\ngroups = \"depthwise\"",
            &[&[24, 20, 20]],
            3,
            Window {
                channels: 24.0,
                features: 24.0,
                kernel: 5.0,
                groups: 24.0,
                padding: 2.0,
                side: 20.0,
                out: 20.0,
                ..base
            },
        ),
    ];
    for (fields, inputs, batch, w) in list {
        let (rows, columns) = (batch as f64 * w.out * w.out, w.features / w.groups);
        let window = w.kernel * w.kernel * w.channels / w.groups;
        for (phase, precision, layout, cache, mode, product) in [
            (
                Phase::Forward,
                Precision::Fp32,
                Layout::Nchw,
                Cache::Hot,
                Mode::Inference,
                (w.groups, rows, columns, window),
            ),
            (
                Phase::Forward,
                Precision::Fp16,
                Layout::Nhwc,
                Cache::Cold,
                Mode::Training,
                (w.groups, rows, columns, window),
            ),
            (
                Phase::BackwardData,
                Precision::Fp32,
                Layout::Nchw,
                Cache::Cold,
                Mode::Training,
                (w.groups, rows, window, columns),
            ),
            (
                Phase::BackwardWeights,
                Precision::Fp32,
                Layout::Nchw,
                Cache::Cold,
                Mode::Training,
                (w.groups, window, columns, rows),
            ),
        ] {
            let case = case(("conv2d", fields, inputs), batch, (phase, precision, layout, cache, mode));
            case.check(&|name, load| gemm(name, load, product, batch as f64, Some(w)));
        }
    }
}

#[test]
fn variables_of_products() {
    let linear = ("linear", "features = 320", &[&[50u64, 200] as &[u64]] as &[&[u64]]);
    let backward = |phase| (phase, Precision::Fp32, Layout::Nchw, Cache::Cold, Mode::Training);
    let product = (1.0, 600.0, 320.0, 200.0);
    case(linear, 12, FORWARD).check(&|name, load| gemm(name, load, product, 600.0, None));
    let product = (1.0, 600.0, 200.0, 320.0);
    case(linear, 12, backward(Phase::BackwardData)).check(&|name, load| gemm(name, load, product, 600.0, None));
    let product = (1.0, 200.0, 320.0, 600.0);
    case(linear, 12, backward(Phase::BackwardWeights)).check(&|name, load| gemm(name, load, product, 600.0, None));
    // Odd rows, and rows of 132 bytes, on tensor cores.
    let half = (Phase::Forward, Precision::Fp16, Layout::Nchw, Cache::Hot, Mode::Inference);
    let odd = ("linear", "features = 321", &[&[50u64, 200] as &[u64]] as &[&[u64]]);
    case(odd, 12, half).with(|load| assert_eq!(load.roofline.narrow, 8.0));
    case(odd, 12, half).check(&|name, load| gemm(name, load, (1.0, 600.0, 321.0, 200.0), 600.0, None));
    let uneven = ("matmul", "", &[&[40u64, 66] as &[u64], &[66, 72]] as &[&[u64]]);
    case(uneven, 5, half).with(|load| assert_eq!(load.roofline.narrow, 4.0));
    case(uneven, 5, half).check(&|name, load| gemm(name, load, (5.0, 40.0, 72.0, 66.0), 5.0, None));
    let plain = ("matmul", "", &[&[40u64, 64] as &[u64], &[64, 72]] as &[&[u64]]);
    case(plain, 5, FORWARD).check(&|name, load| gemm(name, load, (5.0, 40.0, 72.0, 64.0), 5.0, None));
    // Six heads: so many products, each over its own rows' length.
    let heads = ("matmul", "", &[&[6u64, 40, 64] as &[u64], &[6, 64, 72]] as &[&[u64]]);
    case(heads, 5, FORWARD).check(&|name, load| gemm(name, load, (30.0, 40.0, 72.0, 64.0), 5.0, None));
    // Four gates, which read what comes and what was: 24 + 32.
    let cell = ("lstm", "hidden = 32\nbidirectional = true", &[&[10u64, 24] as &[u64]] as &[&[u64]]);
    case(cell, 7, FORWARD).check(&|name, load| gemm(name, load, (2.0, 7.0, 128.0, 56.0), 7.0, None));
}

/// A kind, its fields, its inputs' dimensions.
type Named = (&'static str, &'static str, &'static [&'static [u64]]);

/// Elements, features of a row, window, its overlap.
type Streamed = (f64, f64, f64, f64);

fn stream(name: &str, load: &Load<'_>, (elements, row, window, overlap): Streamed) -> f64 {
    let bytes = load.cost.bytes().to_f64();
    let (compute, memory) =
        (load.cost.ops.to_f64() / load.gpu.vector_peak().get(), bytes / load.gpu.bandwidth.value.get());
    let bound = compute.max(memory);
    let waves = elements / (2048.0 * 4.0 * SMS);
    let into = load.work.batch as f64 * load.work.inputs()[0].elements() as f64;
    match name {
        "bytes" => (bytes / 1e6).ln(),
        "row" => (row / 256.0).ln(),
        "rows" => ((elements / row).floor().max(1.0) / 1024.0).ln(),
        "balance" => (compute / memory).ln().max(-8.0),
        "floor" => ((bound + FLOOR) / bound).ln(),
        "wave" => (waves.ceil() / waves).min(64.0).ln(),
        "few" => ((waves + 1.0) / waves).ln(),
        "cached" => (1.0 + load.gpu.l2.as_ref().expect("known").value.to_f64() / bytes).ln(),
        "row4" => divisible(row, 4.0),
        "row32" => divisible(row, 32.0),
        "window" => window.ln(),
        "overlap" => overlap.max(1.0).ln(),
        "operands" => yes(load.work.inputs().len() > 1),
        "library" => LIBRARY,
        "shrink" => (elements / into).ln(),
        "half" => yes(load.work.precision == Precision::Fp16),
        "backward" => yes(load.work.phase == Phase::BackwardData),
        "cold" => yes(load.work.cache == Cache::Cold),
        "nhwc" => yes(load.work.layout == Layout::Nhwc),
        "training" => yes(load.work.mode == Mode::Training && load.work.phase == Phase::Forward),
        "planes" => {
            let dims = load.work.inputs()[0].dims();
            let planes = match load.work.layer().kind() {
                "layer_norm" | "rms_norm" => elements / row,
                _ if dims.len() == 3 && load.work.layout == Layout::Nchw => (load.work.batch * dims[0]) as f64,
                _ => 0.0,
            };
            (planes * 82e-9 / SMS / bound).ln_1p()
        }
        "columns" => {
            let (rows, parts) = (elements / row, row < 32.0 * (SMS / 2.0).floor());
            let sums = load.work.case.parameters() > 0 && load.work.phase == Phase::BackwardData;
            let sums = sums && load.work.layer().kind().ends_with("_norm") && !(parts && rows > 65536.0);
            (if sums { rows * 2.6e-9 / bound } else { 0.0 }).ln_1p()
        }
        kind => yes(kind == load.work.layer().kind()),
    }
}

#[test]
fn variables_of_what_streams() {
    let list: [(Named, u64, Streamed); 21] = [
        (("global_avg_pool2d", "", &[&[10, 7, 9]]), 8, (8.0 * 10.0, 10.0, 63.0, 1.0)),
        (("adaptive_avg_pool2d", "output = 1", &[&[10, 7, 9]]), 8, (8.0 * 10.0, 10.0, 63.0, 1.0)),
        (("resize", "output = 14", &[&[10, 7, 7]]), 2, (2.0 * 10.0 * 196.0, 196.0, 1.0, 1.0)),
        (
            ("resize", "output = [14, 15]\ninterpolation = \"linear\"", &[&[10, 7, 7]]),
            2,
            (2.0 * 10.0 * 210.0, 210.0, 4.0, 1.0),
        ),
        (("adaptive_avg_pool2d", "output = 7", &[&[10, 28, 21]]), 8, (8.0 * 10.0 * 49.0, 49.0, 12.0, 1.0)),
        (("adaptive_avg_pool2d", "output = 2", &[&[10, 7, 9]]), 8, (8.0 * 10.0 * 4.0, 4.0, 16.0, 1.0)),
        (("relu", "", &[&[64, 28, 28]]), 16, (16.0 * 64.0 * 784.0, 64.0, 1.0, 1.0)),
        (("relu", "", &[&[512, 112, 112]]), 64, (64.0 * 512.0 * 12544.0, 512.0, 1.0, 1.0)),
        (("add", "", &[&[30, 7, 7], &[30, 7, 7]]), 2, (2.0 * 30.0 * 49.0, 30.0, 1.0, 1.0)),
        (("gelu", "", &[&[50, 768]]), 4, (4.0 * 50.0 * 768.0, 768.0, 1.0, 1.0)),
        (
            ("max_pool2d", "kernel = 3\nstride = 2\npadding = 1", &[&[64, 56, 56]]),
            8,
            (8.0 * 64.0 * 784.0, 64.0, 9.0, 9.0 / 4.0),
        ),
        (("avg_pool2d", "kernel = 2", &[&[10, 8, 8]]), 8, (8.0 * 10.0 * 16.0, 10.0, 4.0, 1.0)),
        (("avg_pool2d", "kernel = 2\nstride = 3", &[&[10, 8, 8]]), 8, (8.0 * 10.0 * 9.0, 10.0, 4.0, 1.0)),
        (("local_response_norm", "", &[&[96, 27, 27]]), 3, (3.0 * 96.0 * 729.0, 96.0, 5.0, 1.0)),
        (("embedding", "vocabulary = 100\nfeatures = 48", &[&[20]]), 6, (6.0 * 20.0 * 48.0, 48.0, 1.0, 1.0)),
        (("layer_norm", "", &[&[50, 768]]), 4, (4.0 * 50.0 * 768.0, 768.0, 1.0, 1.0)),
        (("layer_norm", "affine = false", &[&[50, 768]]), 4, (4.0 * 50.0 * 768.0, 768.0, 1.0, 1.0)),
        // Rows are summed in parts where there are more than 65,536 of them and few factors.
        (("rms_norm", "", &[&[4096, 64]]), 16, (65536.0 * 64.0, 64.0, 1.0, 1.0)),
        (("rms_norm", "", &[&[4096, 64]]), 17, (69632.0 * 64.0, 64.0, 1.0, 1.0)),
        (("rms_norm", "", &[&[4096, 4096]]), 17, (69632.0 * 4096.0, 4096.0, 1.0, 1.0)),
        // A map's columns, not its channels.
        (("rms_norm", "", &[&[96, 14, 16]]), 3, (3.0 * 96.0 * 14.0 * 16.0, 16.0, 1.0, 1.0)),
    ];
    for (named, batch, streamed) in list {
        for how in [
            FORWARD,
            (Phase::Forward, Precision::Fp16, Layout::Nhwc, Cache::Cold, Mode::Training),
            (Phase::BackwardData, Precision::Fp32, Layout::Nchw, Cache::Cold, Mode::Training),
        ] {
            // An addition hands its gradient on; a table of embeddings reads none.
            if matches!(named.0, "embedding" | "add") && how.0 != Phase::Forward {
                continue;
            }
            case(named, batch, how).check(&|name, load| stream(name, load, streamed));
        }
    }
}

/// Pieces of a sample, or of a position where channels come last.
#[test]
fn variables_of_what_is_joined() {
    const LAST: (Phase, Precision, Layout, Cache, Mode) =
        (Phase::Forward, Precision::Fp16, Layout::Nhwc, Cache::Hot, Mode::Inference);
    let three = ("concat", "", &[&[24u64, 7, 7] as &[u64], &[40, 7, 7], &[12, 7, 7]] as &[&[u64]]);
    let two = ("concat", "", &[&[16u64, 7, 7] as &[u64], &[8, 7, 7]] as &[&[u64]]);
    let odd = ("concat", "", &[&[16u64, 7, 7] as &[u64], &[3, 7, 7]] as &[&[u64]]);
    for (named, how, [parts, piece, by_4, by_8]) in [
        (three, FORWARD, [3.0, 12.0 * 49.0, 1.0, 0.0]),
        (three, LAST, [3.0, 12.0, 1.0, 0.0]),
        (two, FORWARD, [2.0, 8.0 * 49.0, 1.0, 1.0]),
        (two, LAST, [2.0, 8.0, 1.0, 1.0]),
        (odd, LAST, [2.0, 3.0, 0.0, 0.0]),
    ] {
        case(named, 5, how).with(|load| {
            let values = load.variables(Seconds::new(FLOOR), LIBRARY).values;
            let of = |name: &str| load.work.family().position(name).map(|i| values[i]);
            let expected = [f64::ln(parts), f64::ln(piece), by_4, by_8].map(Some);
            assert_eq!(["parts", "piece", "piece4", "piece8"].map(of), expected, "{:?}", named.2);
        });
    }
    case(("relu", "", &[&[64, 28, 28]]), 2, FORWARD)
        .check(&|name, load| stream(name, load, (2.0 * 64.0 * 784.0, 64.0, 1.0, 1.0)));
}

/// How many multiprocessors a kernel fills.
#[test]
fn occupancy_counts_thread_blocks() {
    let filled =
        |kind: &'static str, fields: &'static str, inputs: &'static [&'static [u64]], batch, phase, blocks: f64| {
            let mode = if phase == Phase::Forward { Mode::Inference } else { Mode::Training };
            case((kind, fields, inputs), batch, (phase, Precision::Fp32, Layout::Nchw, Cache::Hot, mode))
                .check_occupancy(blocks);
        };
    // 130 rows and 70 columns are 3 x 2 tiles of 64.
    filled("conv2d", "channels = 70\nkernel = 1", &[&[2000, 13, 10]], 1, Phase::Forward, 6.0);
    // The gradient of weights contracts over 130 positions, a linear layer over 2000 features: 4 stretches of 512.
    filled("conv2d", "channels = 70\nkernel = 1", &[&[64, 13, 10]], 10, Phase::BackwardWeights, 2.0 * 3.0);
    filled("linear", "features = 70", &[&[2000]], 130, Phase::Forward, 6.0 * 4.0);
    filled("linear", "features = 7000", &[&[2000]], 1300, Phase::Forward, SMS);
    filled("relu", "", &[&[8192, 3]], 2, Phase::Forward, 6.0);
    filled("relu", "", &[&[8192, 300]], 2, Phase::Forward, SMS);
    // 2000 x 60 weights and 60 biases, whatever the batch.
    filled("linear", "features = 60", &[&[2000]], 1, Phase::Update, 120_060.0 / 8192.0);
    filled("linear", "features = 60", &[&[2000]], 130, Phase::Update, 120_060.0 / 8192.0);
}

impl Case {
    fn check_occupancy(&self, blocks: f64) {
        self.with(|load| {
            assert!(
                (load.occupancy() - blocks / SMS).abs() < 1e-12,
                "{} {}: {}",
                self.kind,
                self.fields,
                load.occupancy() * SMS
            );
        });
    }
}
