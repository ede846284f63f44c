//! Variables of kernels bound by memory traffic: activations, normalization, pooling, sums, softmax, updates.

use super::{Workload, cached, divides, flag, ln};
use crate::base::precision::{Mode, Phase};
use crate::base::text::{joined, total};
use crate::base::units::Seconds;
use crate::kernel::trial::{Cache, Layout};
use crate::net::layer::{Function, Layer};

/// Elements that one resident set of thread blocks covers per multiprocessor: 2048 threads, four each.
const ELEMENTS_PER_SM: f64 = 8192.0;

/// Names in the order that [`fill`] writes: sizes, how it runs, then kinds.
pub(super) const NAMES: &[&str] = &joined::<{ total(LISTS) }>(LISTS);

const LISTS: &[&[&str]] = &[VARIABLES, FLAGGED, Function::NAMES.split_at(FIRST_FUNCTIONS).1];

const VARIABLES: &[&str] = &[
    "bytes", "row", "rows", "balance", "floor", "wave", "few", "cached", "row4", "row32", "window", "overlap",
    "operands", "library", "shrink", "half", "backward", "cold", "nhwc", "training",
];

/// Kinds with a flag, in the order in which they came: those that share a model with others.
const FLAGGED: &[&str] = &[
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

/// Those that are 0 or 1, besides the kinds.
pub(super) const FLAGS: &[&str] = &["row4", "row32", "operands", "half", "backward", "cold", "nhwc", "training"];

/// Where the flags of kinds begin.
pub(super) const KINDS: usize = VARIABLES.len();

/// Sizes among them.
pub(super) const SIZES: &[&str] = &["bytes", "row", "rows"];

/// Sizes and classes among them.
pub(super) const BOUNDING: &[&str] = &["bytes", "row", "rows", "window", "overlap", "operands"];

/// Sets of resident thread blocks that one multiprocessor holds, for so many elements.
pub(super) fn blocks(work: &Workload<'_>) -> f64 {
    elements(work) as f64 / ELEMENTS_PER_SM
}

/// What threads are handed out over: the results, for attention against a cache what is read of it.
fn elements(work: &Workload<'_>) -> u64 {
    match work.layer {
        Layer::Attention(_) => work.cost.bytes().get() / work.precision.bytes(),
        _ => work.batch.saturating_mul(work.output.elements()),
    }
}

pub(super) fn fill(work: &Workload<'_>, floor: Seconds, library: f64, values: &mut [f64]) {
    let elements = elements(work).max(1);
    let row = match (work.layer, work.inputs.first()) {
        (Layer::Softmax(softmax), Some(input)) => softmax.row(input),
        (Layer::Embedding(table), _) => table.features,
        (Layer::Attention(attention), Some(_)) => attention.sizes(work.inputs).map_or(1, |s| s.keys),
        (_, input) => input.map_or(1, |s| s.axis()),
    };
    let bytes = work.cost.bytes().to_f64().max(1.0);
    let bound = work.roofline.bound().get().max(1e-12);
    let waves = elements as f64 / (ELEMENTS_PER_SM * work.gpu.sms.value as f64);
    let (window, overlap) = match work.layer {
        Layer::Pool2d(pool) => {
            let stride = pool.stride.unwrap_or(pool.kernel);
            (pool.kernel.area(), (pool.kernel.area() as f64 / stride.area().max(1) as f64).max(1.0).ln())
        }
        Layer::LocalResponseNorm(norm) => (norm.size, 0.0),
        _ => (1, 0.0),
    };
    let list = [
        (bytes / 1e6).ln(),
        ln(row, 256.0),
        ln(elements / row.max(1), 1024.0),
        (work.roofline.compute.get().max(1e-15) / work.roofline.memory.get().max(1e-15)).ln().max(-8.0),
        (1.0 + floor.get() / bound).ln(),
        (waves.ceil() / waves).min(64.0).ln(),
        (1.0 + 1.0 / waves).ln(),
        cached(work),
        divides(row, 4),
        divides(row, 32),
        ln(window, 1.0),
        overlap,
        flag(work.inputs.len() > 1),
        library,
        (elements as f64 / (work.batch.max(1) * work.inputs.first().map_or(1, |s| s.elements())) as f64).ln(),
        flag(work.precision.bytes() == 2),
        flag(work.phase != Phase::Forward),
        flag(work.setting.cache == Cache::Cold),
        flag(work.setting.layout == Layout::Nhwc),
        flag(work.setting.mode == Mode::Training && work.phase == Phase::Forward),
    ];
    debug_assert_eq!(list.len(), KINDS);
    values[..KINDS].copy_from_slice(&list);
    let kind = work.layer.kind();
    for (value, name) in values[KINDS..].iter_mut().zip(&NAMES[KINDS..]) {
        *value = flag(*name == kind);
    }
}
