//! Variables of kernels bound by memory traffic: activations, normalization, pooling, sums, softmax, updates.

use super::Role::{self, Class, Derived, Extent, Flag, Size};
use super::{Wanted, cached, divides, flag, over, sets, widest};
use crate::base::number::{LANES, Number};
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::{Shape, greatest_divisor};
use crate::base::text::{joined, total};
use crate::base::units::Seconds;
use crate::kernel::load::{Amounts, Load};
use crate::kernel::setting::{Cache, Layout};
use crate::kernel::work::Work;
use crate::net::layer::{Function, Layer};
use std::marker::PhantomData;

/// Elements that one resident set of thread blocks covers per multiprocessor: 2048 threads, four each.
const ELEMENTS_PER_SM: f64 = 8192.0;

/// Thread blocks of 512 threads that one multiprocessor holds.
const BLOCKS_PER_SM: f64 = 4.0;

/// What a multiprocessor takes for one block more of a plane or row of a few values: cuDNN's batch norm of 57 to 164 thousand planes
/// of 4x4 and 7x7 took 0.61 to 0.63 ns each over 132 multiprocessors (`data/measurements/h200/torch_profile_3.csv`), PyTorch's norm
/// of 131 thousand to 3 million rows of 8 to 64 values as long (`h100/torch_net_layers_16.csv`).
const PLANE: Seconds = Seconds::from_us(0.082);

/// What a block that sums the gradients of up to [`COLUMNS`] factors over all rows takes for one row more: PyTorch's norms of 16 to 49
/// thousand rows of 16 to 64 values took 2.4 to 2.9 ns each besides their blocks (the same file).
const ROW_OF_COLUMNS: Seconds = Seconds::from_us(0.0026);

/// Factors whose gradients one block sums.
const COLUMNS: u64 = 32;

/// More rows are summed in parts side by side, where there are fewer blocks than half of the
/// multiprocessors (`LaunchGammaBetaBackwardCUDAKernel` in PyTorch's `layer_norm_kernel.cu`).
const MOST_ROWS: f64 = 65536.0;

/// A variable of what streams.
type Variable<V> = super::Variable<fn(&Stream<'_, V>) -> V>;

const fn v<V>(name: &'static str, role: Role, value: fn(&Stream<'_, V>) -> V) -> Variable<V> {
    Variable { name, role, log: false, value }
}

/// One that is the logarithm of what is computed.
const fn ln<V>(name: &'static str, role: Role, value: fn(&Stream<'_, V>) -> V) -> Variable<V> {
    Variable { name, role, log: true, value }
}

/// All of them but the kinds, of one batch.
pub(super) const VARIABLES: [Variable<f64>; 26] = Table::<f64>::VARIABLES;

/// What variables are of: one batch, or several side by side.
struct Table<V>(PhantomData<V>);

impl<V: Number> Table<V> {
    /// The order is that of calibration files.
    const VARIABLES: [Variable<V>; 26] = [
        ln("bytes", Size, |s| s.sizes()[0]),
        ln("row", Size, |s| s.sizes()[1]),
        ln("rows", Size, |s| s.sizes()[2]),
        v("balance", Derived, |s| {
            let (compute, memory) = (s.amounts.compute.max(V::of(1e-15)), s.amounts.memory.max(V::of(1e-15)));
            (compute / memory).ln().max(V::of(-8.0))
        }),
        ln("floor", Derived, |s| s.sizes()[3]),
        ln("wave", Derived, |s| s.sizes()[4]),
        ln("few", Derived, |s| s.sizes()[5]),
        ln("cached", Derived, |s| s.sizes()[6]),
        v("row4", Flag, |s| s.flags()[0]),
        v("row32", Flag, |s| s.flags()[1]),
        v("window", Extent, |s| V::of(count(s.window, 1.0))),
        v("overlap", Extent, |s| V::of(s.overlap)),
        v("operands", Class, |s| s.flags()[2]),
        v("library", Derived, |s| V::of(s.library)),
        // Outputs per input; how it runs.
        ln("shrink", Derived, |s| s.sizes()[7]),
        v("half", Flag, |s| s.flags()[3]),
        v("backward", Flag, |s| s.flags()[4]),
        v("cold", Flag, |s| s.flags()[5]),
        v("nhwc", Flag, |s| s.flags()[6]),
        v("training", Flag, |s| s.flags()[7]),
        // What is joined of several.
        v("parts", Extent, |s| V::of(s.parts.map_or(0.0, |p| count(p.count, 1.0)))),
        v("piece", Derived, |s| V::of(s.parts.map_or(0.0, |p| count(p.shortest, 1.0)))),
        v("piece4", Flag, |s| V::of(s.parts.map_or(0.0, |p| divides(p.common, 4)))),
        v("piece8", Flag, |s| V::of(s.parts.map_or(0.0, |p| divides(p.common, 8)))),
        // A thread block for every plane of a map, where planes lie one after the other, or for every row that is normalized:
        // issuing them over the roofline.
        ln("planes", Derived, |s| s.planes * PLANE.get() / s.load.gpu.sms.value as f64 / s.bound() + 1.0),
        // Rows that one block goes over for the gradients of learned factors, over the roofline.
        ln("columns", Derived, |s| s.summed_rows() * ROW_OF_COLUMNS.get() / s.bound() + 1.0),
    ];
}

/// Numbers that are worked out together.
type Together<V> = super::Together<fn(&Stream<'_, V>) -> [V; LANES]>;

impl<V: Number> Table<V> {
    const TOGETHER: [Together<V>; 2] = [
        Together { places: &[0, 1, 2, 4, 5, 6, 7, 14], log: true, values: widest!(|s| s.sizes()) },
        Together { places: &[8, 9, 12, 15, 16, 17, 18, 19], log: false, values: |s| s.flags() },
    ];
}

const SETS: [Wanted; Table::<f64>::TOGETHER.len()] = sets(&Table::<f64>::TOGETHER);

/// ln of a count over a typical one.
fn count(value: u64, unit: f64) -> f64 {
    over(value as f64, unit).ln()
}

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
pub(super) fn blocks<V: Number>(work: &Work<'_>, amounts: &Amounts<V>) -> V {
    elements(work, amounts) / ELEMENTS_PER_SM
}

/// What threads are handed out over: the results, of an update the parameters, for attention against a cache what is read of it.
fn elements<V: Number>(work: &Work<'_>, amounts: &Amounts<V>) -> V {
    match work.layer() {
        _ if work.phase == Phase::Update => (amounts.weights / Precision::Fp32.bytes() as f64).floor(),
        Layer::Attention(_) => (amounts.bytes / work.precision.bytes() as f64).floor(),
        _ => amounts.batch * work.output.elements() as f64,
    }
}

/// What streams on a device, with what several variables are of.
pub(super) struct Stream<'a, V> {
    load: &'a Load<'a>,
    amounts: &'a Amounts<V>,
    elements: V,
    /// Features of a row, or outputs of a plane.
    row: u64,
    bytes: V,
    /// Sets of resident thread blocks over multiprocessors.
    waves: V,
    window: u64,
    overlap: f64,
    floor: f64,
    library: f64,
    parts: Option<Parts>,
    /// Planes of the map that it reads, 0 where channels come last; rows that are normalized; 0 of all else.
    planes: V,
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

impl<'a, V: Number> Stream<'a, V> {
    fn new(load: &'a Load<'a>, amounts: &'a Amounts<V>, floor: Seconds, library: f64) -> Self {
        let elements = elements(&load.work, amounts).max(V::of(1.0));
        let row = match (load.work.layer(), load.work.inputs().first()) {
            (Layer::Softmax(softmax), Some(input)) => softmax.row(input),
            (Layer::Embedding(table), _) => table.features,
            (Layer::Attention(attention), Some(_)) => attention.sizes(load.work.inputs()).map_or(1, |s| s.keys),
            // Blocks go over planes, threads over the outputs of one.
            (Layer::AdaptivePool2d(pool), _) if !pool.is_global() => pool.output.area(),
            (Layer::Resize(resize), _) => resize.output.area(),
            (Layer::RmsNorm(norm), Some(input)) => norm.row(input),
            (Layer::GroupNorm(norm), Some(input)) => (input.elements() / norm.groups.max(1)).max(1),
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
        let bytes = amounts.bytes.max(V::of(1.0));
        let waves = match load.work.layer() {
            // A thread block goes over a group of a sample, however long it is.
            Layer::GroupNorm(_) => elements / row.max(1) as f64 / BLOCKS_PER_SM,
            _ => elements / ELEMENTS_PER_SM,
        } / load.gpu.sms.value as f64;
        let (floor, parts) = (floor.get(), Parts::of(load));
        let planes = match (load.work.layer(), load.work.layout, load.work.inputs().first().and_then(Shape::as_map)) {
            (Layer::LayerNorm(_) | Layer::RmsNorm(_), ..) => elements / row.max(1) as f64,
            (_, Layout::Nchw, Some((channels, ..))) => amounts.batch * channels as f64,
            _ => V::of(0.0),
        };
        Self { load, amounts, elements, row, bytes, waves, window, overlap, floor, library, parts, planes }
    }

    /// Seconds by the roofline.
    fn bound(&self) -> V {
        self.amounts.compute.max(self.amounts.memory).max(V::of(1e-12))
    }

    /// Rows over which gradients of a norm's factors are summed one after the other; 0 of all else.
    fn summed_rows(&self) -> V {
        let work = &self.load.work;
        let norms =
            matches!(work.layer(), Layer::LayerNorm(_) | Layer::RmsNorm(_)) && work.phase == Phase::BackwardData;
        if !norms || work.case.parameters() == 0 {
            return V::of(0.0);
        }
        match self.row / COLUMNS < self.load.gpu.sms.value / 2 {
            true => self.planes.at_most(V::of(MOST_ROWS), self.planes, V::of(0.0)),
            false => self.planes,
        }
    }

    /// Traffic, a row, rows, the floor, the last wave and how few there are, what the cache holds, outputs per input.
    #[inline(always)]
    fn sizes(&self) -> [V; LANES] {
        let row = self.row.max(1) as f64;
        [
            self.bytes / 1e6,
            V::of(over(self.row as f64, 256.0)),
            over((self.elements / row).floor(), 1024.0),
            V::of(self.floor) / self.bound() + 1.0,
            (self.waves.ceil() / self.waves).min(V::of(64.0)),
            self.waves.inverse() + 1.0,
            cached(self.load, self.amounts),
            self.elements / (self.amounts.batch.max(V::of(1.0)) * self.read() as f64),
        ]
    }

    /// Whether rows divide by 4 and by 32, whether there are several operands, 16 bits, how it runs; each 0 or 1.
    #[inline(always)]
    fn flags(&self) -> [V; LANES] {
        let work = &self.load.work;
        let is = |condition| V::of(flag(condition));
        [
            V::of(divides(self.row, 4)),
            V::of(divides(self.row, 32)),
            is(work.inputs().len() > 1),
            is(work.precision.bytes() == 2),
            is(work.phase != Phase::Forward),
            is(work.cache == Cache::Cold),
            is(work.layout == Layout::Nhwc),
            is(work.mode == Mode::Training && work.phase == Phase::Forward),
        ]
    }

    /// Elements of the first input, without the batch.
    fn read(&self) -> u64 {
        self.load.work.inputs().first().map_or(1, |s| s.elements())
    }
}

pub(super) fn fill<V: Number>(
    load: &Load<'_>,
    amounts: &Amounts<V>,
    (floor, library): (Seconds, f64),
    wanted: Wanted,
    values: &mut [V],
) {
    let stream = Stream::new(load, amounts, floor, library);
    let of = |i: usize| {
        let variable = &Table::<V>::VARIABLES[i];
        ((variable.value)(&stream), variable.log)
    };
    super::fill((&Table::<V>::TOGETHER, &SETS), |of| of(&stream), (wanted, VARIABLES.len()), of, values);
    let kind = load.work.layer().kind();
    for i in wanted.each(VARIABLES.len()..VARIABLES.len() + KINDS.len()) {
        values[i] = V::of(flag(KINDS[i - VARIABLES.len()] == kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::testing::toy;
    use crate::kernel::features::MAX_VARIABLES;
    use crate::net::case::LayerCase;
    use crate::net::layer::{Add, BatchNorm};

    #[test]
    fn variables_that_are_worked_out_together_are_those_of_each() {
        let gpu = toy();
        let map = Shape::new(&[65, 14, 12]).expect("a shape");
        for (layer, inputs) in [(Layer::Add(Add {}), 2), (Layer::BatchNorm(BatchNorm { affine: true }), 1)] {
            let case = LayerCase { inputs: vec![map; inputs], layer };
            let work = Work::usual(case, Phase::Forward, 7, Precision::Fp16, Mode::Training).expect("fits");
            let load = work.on(&gpu).expect("fits").expect("vectors");
            let (floor, amounts) = (Seconds::from_us(4.0), load.amounts());
            let mut together = [f64::NAN; MAX_VARIABLES];
            fill(&load, &amounts, (floor, 0.0), Wanted::ALL, &mut together);
            let stream = Stream::new(&load, &amounts, floor, 0.0);
            for (found, variable) in together.into_iter().zip(&VARIABLES) {
                let value = (variable.value)(&stream);
                let plain = if variable.log { value.ln() } else { value };
                assert!((found - plain).abs() <= 1e-14 * (1.0 + plain.abs()), "{} {found} {plain}", variable.name);
            }
        }
    }
}
