//! Variables of kernels bound by memory traffic: activations, normalization, pooling, sums, softmax, updates.

use super::Role::{self, Class, Derived, Extent, Flag, Size};
use super::{Wanted, cached, divides, flag, ln};
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::{Shape, greatest_divisor};
use crate::base::text::{joined, total};
use crate::base::units::Seconds;
use crate::kernel::load::Load;
use crate::kernel::setting::{Cache, Layout};
use crate::net::layer::{Function, Layer};

/// Elements that one resident set of thread blocks covers per multiprocessor: 2048 threads, four each.
const ELEMENTS_PER_SM: f64 = 8192.0;

/// What a multiprocessor takes for one block more of a plane of a few values: cuDNN's batch norm of 57 to 164 thousand planes of
/// 4x4 and 7x7 took 0.61 to 0.63 ns each over 132 multiprocessors (`data/measurements/h200/torch_profile_3.csv`).
const PLANE: Seconds = Seconds::from_us(0.082);

/// A variable of what streams.
type Variable = super::Variable<fn(&Stream<'_>) -> f64>;

const fn v(name: &'static str, role: Role, value: fn(&Stream<'_>) -> f64) -> Variable {
    Variable { name, role, value }
}

/// All of them but the kinds. The order is that of calibration files.
pub(super) const VARIABLES: [Variable; 25] = [
    v("bytes", Size, |s| (s.bytes / 1e6).ln()),
    v("row", Size, |s| ln(s.row, 256.0)),
    v("rows", Size, |s| ln(s.elements / s.row.max(1), 1024.0)),
    v("balance", Derived, |s| {
        let roofline = &s.load.roofline;
        (roofline.compute.get().max(1e-15) / roofline.memory.get().max(1e-15)).ln().max(-8.0)
    }),
    v("floor", Derived, |s| (1.0 + s.floor / s.bound()).ln()),
    v("wave", Derived, |s| (s.waves.ceil() / s.waves).min(64.0).ln()),
    v("few", Derived, |s| (1.0 + 1.0 / s.waves).ln()),
    v("cached", Derived, |s| cached(s.load)),
    v("row4", Flag, |s| divides(s.row, 4)),
    v("row32", Flag, |s| divides(s.row, 32)),
    v("window", Extent, |s| ln(s.window, 1.0)),
    v("overlap", Extent, |s| s.overlap),
    v("operands", Class, |s| flag(s.load.work.inputs().len() > 1)),
    v("library", Derived, |s| s.library),
    // Outputs per input; how it runs.
    v("shrink", Derived, |s| (s.elements as f64 / (s.load.work.batch.max(1) * s.read()) as f64).ln()),
    v("half", Flag, |s| flag(s.load.work.precision.bytes() == 2)),
    v("backward", Flag, |s| flag(s.load.work.phase != Phase::Forward)),
    v("cold", Flag, |s| flag(s.load.work.cache == Cache::Cold)),
    v("nhwc", Flag, |s| flag(s.load.work.layout == Layout::Nhwc)),
    v("training", Flag, |s| flag(s.load.work.mode == Mode::Training && s.load.work.phase == Phase::Forward)),
    // What is joined of several.
    v("parts", Extent, |s| s.parts.map_or(0.0, |p| ln(p.count, 1.0))),
    v("piece", Derived, |s| s.parts.map_or(0.0, |p| ln(p.shortest, 1.0))),
    v("piece4", Flag, |s| s.parts.map_or(0.0, |p| divides(p.common, 4))),
    v("piece8", Flag, |s| s.parts.map_or(0.0, |p| divides(p.common, 8))),
    // A thread block for every plane of a map, where planes lie one after the other: issuing them over the roofline.
    v("planes", Derived, |s| (1.0 + s.planes * PLANE.get() / s.load.gpu.sms.value as f64 / s.bound()).ln()),
];

/// Kinds with a flag, after the other variables.
pub(super) const KINDS: &[&str] = &joined::<{ total(LISTS) }>(LISTS);

const LISTS: &[&[&str]] = &[FLAGGED, Function::NAMES.split_at(FIRST_FUNCTIONS).1];

/// Those that share a model with others, in the order in which they came.
pub(super) const FLAGGED: &[&str] = &[
    "relu",
    "relu6",
    "sigmoid",
    "tanh",
    "silu",
    "hardswish",
    "gelu",
    "dropout",
    "add",
    "multiply",
    "concat",
    "pad",
    "scale",
    "gelu_tanh",
    "rotary",
    "position_embedding",
    "relative_position_bias",
    "class_token",
    "reshape",
    "permute",
    "slice",
];

/// All activation functions after these follow; the first ones stand above.
const FIRST_FUNCTIONS: usize = 8;

/// Sets of resident thread blocks that one multiprocessor holds, for so many elements.
pub(super) fn blocks(load: &Load<'_>) -> f64 {
    elements(load) as f64 / ELEMENTS_PER_SM
}

/// What threads are handed out over: the results, of an update the parameters, for attention against a cache what is read of it.
fn elements(load: &Load<'_>) -> u64 {
    match load.work.layer() {
        _ if load.work.phase == Phase::Update => load.cost.weights.get() / Precision::Fp32.bytes(),
        Layer::Attention(_) => load.cost.bytes().get() / load.work.precision.bytes(),
        _ => load.work.batch.saturating_mul(load.work.output.elements()),
    }
}

/// What streams on a device, with what several variables are of.
pub(super) struct Stream<'a> {
    load: &'a Load<'a>,
    elements: u64,
    /// Features of a row, or outputs of a plane.
    row: u64,
    bytes: f64,
    /// Sets of resident thread blocks over multiprocessors.
    waves: f64,
    window: u64,
    overlap: f64,
    floor: f64,
    library: f64,
    parts: Option<Parts>,
    /// Planes of the map that it reads; 0 where channels come last, or of no map.
    planes: f64,
}

/// The inputs of what joins several, each of which is a piece of every sample, or of every position where channels come
/// last.
#[derive(Clone, Copy)]
struct Parts {
    count: u64,
    /// Elements of the shortest piece.
    shortest: u64,
    /// What all pieces are multiples of.
    common: u64,
}

impl Parts {
    fn of(load: &Load<'_>) -> Option<Self> {
        let work = &load.work;
        let Layer::Concat(_) = work.layer() else { return None };
        let piece = |shape: &Shape| match (work.layout, shape.as_map()) {
            (Layout::Nhwc, Some((channels, ..))) => channels,
            _ => shape.elements(),
        };
        let pieces = || work.inputs().iter().map(piece);
        let common = pieces().fold(0, greatest_divisor);
        Some(Self { count: work.inputs().len() as u64, shortest: pieces().min()?, common })
    }
}

impl<'a> Stream<'a> {
    fn new(load: &'a Load<'a>, floor: Seconds, library: f64) -> Self {
        let elements = elements(load).max(1);
        let row = match (load.work.layer(), load.work.inputs().first()) {
            (Layer::Softmax(softmax), Some(input)) => softmax.row(input),
            (Layer::Embedding(table), _) => table.features,
            (Layer::Attention(attention), Some(_)) => attention.sizes(load.work.inputs()).map_or(1, |s| s.keys),
            // Blocks go over planes, threads over the outputs of one.
            (Layer::AdaptivePool2d(pool), _) if !pool.is_global() => pool.output.area(),
            (Layer::Resize(resize), _) => resize.output.area(),
            (_, input) => input.map_or(1, |s| s.axis()),
        };
        let area = || load.work.input().as_map().map_or(1, |(_, h, w)| h.saturating_mul(w));
        let (window, overlap) = match load.work.layer() {
            Layer::Pool2d(pool) => {
                let stride = pool.stride.unwrap_or(pool.kernel);
                (pool.kernel.area(), (pool.kernel.area() as f64 / stride.area().max(1) as f64).max(1.0).ln())
            }
            // A thread goes over its window alone.
            Layer::AdaptivePool2d(pool) => (area().div_ceil(pool.output.area().max(1)), 0.0),
            Layer::GlobalPool2d(_) => (area(), 0.0),
            Layer::LocalResponseNorm(norm) => (norm.size, 0.0),
            Layer::Resize(resize) => (resize.interpolation.neighbours(), 0.0),
            _ => (1, 0.0),
        };
        let bytes = load.cost.bytes().to_f64().max(1.0);
        let waves = elements as f64 / (ELEMENTS_PER_SM * load.gpu.sms.value as f64);
        let (floor, parts) = (floor.get(), Parts::of(load));
        let planes = match (load.work.layout, load.work.inputs().first().and_then(Shape::as_map)) {
            (Layout::Nchw, Some((channels, ..))) => load.work.batch.saturating_mul(channels) as f64,
            _ => 0.0,
        };
        Self { load, elements, row, bytes, waves, window, overlap, floor, library, parts, planes }
    }

    /// Seconds by the roofline.
    fn bound(&self) -> f64 {
        self.load.roofline.bound().get().max(1e-12)
    }

    /// Elements of the first input, without the batch.
    fn read(&self) -> u64 {
        self.load.work.inputs().first().map_or(1, |s| s.elements())
    }
}

pub(super) fn fill(load: &Load<'_>, floor: Seconds, library: f64, wanted: Wanted, values: &mut [f64]) {
    let stream = Stream::new(load, floor, library);
    let kind = load.work.layer().kind();
    let (listed, flags) = values.split_at_mut(VARIABLES.len());
    for (i, (value, variable)) in listed.iter_mut().zip(&VARIABLES).enumerate() {
        if wanted.has(i) {
            *value = (variable.value)(&stream);
        }
    }
    for (i, (value, name)) in flags.iter_mut().zip(KINDS).enumerate() {
        if wanted.has(VARIABLES.len() + i) {
            *value = flag(*name == kind);
        }
    }
}
