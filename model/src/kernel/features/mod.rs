//! From a layer on a device to the variables that time models are polynomials of.
//!
//! One function, [`Workload::new`] and [`Workload::variables`], serves fitting and prediction alike. Two
//! families of layers have variables of their own: matrix-product kernels ([`gemm`]) and kernels that stream
//! through memory ([`stream`]).

mod gemm;
mod stream;
mod twin;

pub use crate::net::layer::Family;
pub use twin::{Twin, bias_beside};

use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::base::units::{Bytes, Seconds};
use crate::device::gpu::Gpu;
use crate::kernel::trial::{Cache, Layout, Trial};
use crate::net::cost::LayerCost;
use crate::net::layer::{Conv2d, Layer, Linear};

/// More variables than any family has.
pub const MAX_VARIABLES: usize = 96;

impl Family {
    /// The family of a layer's kernels in a phase.
    pub fn of(layer: &Layer, phase: Phase) -> Self {
        match layer {
            _ if phase == Phase::Update => Self::Stream,
            Layer::Attention(attention) if attention.decodes() => Self::Stream,
            _ => layer.row().family,
        }
    }

    /// Names of its variables, in order. The list is part of the format: a calibration names the variables
    /// it uses, and an unknown name is an error.
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Gemm => gemm::NAMES,
            Self::Stream => stream::NAMES,
        }
    }

    /// Whether a variable (by position) is 0 or 1, so that its square says nothing new.
    pub fn is_flag(self, variable: usize) -> bool {
        let flags: &[&str] = match self {
            Self::Gemm => gemm::FLAGS,
            Self::Stream if variable >= stream::KINDS => return true,
            Self::Stream => stream::FLAGS,
        };
        self.variables().get(variable).is_some_and(|name| flags.contains(name))
    }

    /// Whether a variable (by position) is a size or a class, which a layer must share with the fitted rows to lie
    /// inside of what was measured. Waste and waves follow from the sizes.
    pub fn bounds_domain(self, variable: usize) -> bool {
        let bounding = match self {
            Self::Gemm => gemm::BOUNDING,
            Self::Stream => stream::BOUNDING,
        };
        self.variables().get(variable).is_some_and(|name| bounding.contains(name))
    }
}

/// Convolutions with fewer input channels per group than this run kernels of their own, not matrix products.
const NARROW_GROUP: u64 = 16;

/// Launches of the kernels that sum the gradient of a bias over many blocks and then over these.
const BIAS_GRADIENT: Seconds = Seconds::from_us(4.0);

/// A step of a recurrent layer: about the launch of a kernel, since all multiprocessors wait for each other.
const RECURRENT_STEP: Seconds = Seconds::from_us(4.0);

/// The model of optimizer updates, whatever the layer.
pub const UPDATE: &str = "update";

/// The model that a class of convolutions shares where it has too few rows for one of its own.
pub fn general_kind(class: &str) -> Option<&'static str> {
    matches!(class, "conv2d_3x3" | "conv2d_1x1").then_some("conv2d")
}

/// Which model a layer's time is predicted by: its kind, except that convolutions fall into classes which run different
/// kernels: depthwise ones, others in narrow groups, plain matrix products (1x1, stride 1), those which Winograd's
/// algorithm can do (3x3, stride 1, neither dilated nor grouped), and the rest. Attention against a cache, which
/// reading that bounds, and attention that keeps its scores in memory are other kernels than fused attention of many tokens.
pub fn model_kind(layer: &Layer, inputs: &[Shape], phase: Phase) -> &'static str {
    match layer {
        _ if phase == Phase::Update => UPDATE,
        Layer::Conv2d(conv) => {
            let channels = inputs.first().map_or(1, Shape::axis);
            let groups = conv.groups(channels).max(1);
            let plain = conv.stride.is(1) && conv.dilation.is(1) && groups == 1;
            if groups > 1 && groups == channels {
                "conv2d_depthwise"
            } else if groups > 1 && channels / groups < NARROW_GROUP {
                "conv2d_grouped"
            } else if plain && conv.kernel.is(1) {
                "conv2d_1x1"
            } else if plain && conv.kernel.is(3) {
                "conv2d_3x3"
            } else {
                "conv2d"
            }
        }
        Layer::Attention(attention) if attention.decodes() => "attention_decode",
        Layer::Attention(attention) if !attention.fused => "attention_unfused",
        _ => layer.kind(),
    }
}

impl Family {
    /// Positions of the sizes that vary continuously.
    pub fn sizes(self) -> Vec<usize> {
        let sizes: &[&str] = match self {
            Self::Gemm => gemm::SIZES,
            Self::Stream => stream::SIZES,
        };
        (0..self.variables().len()).filter(|&v| sizes.contains(&self.variables()[v])).collect()
    }
}

/// How a layer runs, beyond its sizes, phase and precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Order of a map's dimensions.
    pub layout: Layout,
    /// Where its operands lie.
    pub cache: Cache,
    /// Inference or training.
    pub mode: Mode,
}

impl Setting {
    /// As frameworks run it.
    pub fn usual(precision: Precision, mode: Mode) -> Self {
        Self { layout: Layout::usual(precision), cache: Trial::usual_cache(mode), mode }
    }
}

/// What one kernel has to do on one device, with its roofline times.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// The layer.
    pub layer: &'a Layer,
    /// Its input shapes.
    pub inputs: &'a [Shape],
    /// Its output shape.
    pub output: Shape,
    /// Samples.
    pub batch: u64,
    /// Phase.
    pub phase: Phase,
    /// Storage and arithmetic.
    pub precision: Precision,
    /// Operations and traffic.
    pub cost: LayerCost,
    /// How it runs.
    pub setting: Setting,
    /// The device.
    pub gpu: &'a Gpu,
    /// What it would take at peak.
    pub roofline: Roofline,
}

/// Times of a kernel's arithmetic and of its traffic at the device's peaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Arithmetic at peak.
    pub compute: Seconds,
    /// Traffic at peak bandwidth.
    pub memory: Seconds,
    /// A second kernel that runs after the first: the one that adds a convolution's bias, or sums a bias's gradient; and
    /// what the steps of a recurrent layer take however little they compute.
    pub second: Seconds,
}

impl Roofline {
    /// Bound of the direct algorithm: max(ops / peak, bytes / bandwidth).
    pub fn bound(&self) -> Seconds {
        self.compute.max(self.memory)
    }

    /// Smooth roofline with a floor, and what runs after it: (t_comp^p + t_mem^p + t0^p)^(1/p) + t_second.
    pub fn reference(&self, exponent: u32, floor: Seconds) -> Seconds {
        let p = exponent as i32;
        let sum = self.compute.get().powi(p) + self.memory.get().powi(p) + floor.get().powi(p);
        Seconds::new(sum.powf(1.0 / f64::from(exponent))) + self.second
    }
}

impl<'a> Workload<'a> {
    /// The roofline times of a layer's phase; `None` where the device has no peak for the precision.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        layer: &'a Layer,
        inputs: &'a [Shape],
        output: Shape,
        batch: u64,
        phase: Phase,
        precision: Precision,
        setting: Setting,
        cost: LayerCost,
        gpu: &'a Gpu,
    ) -> Option<Self> {
        let peak = match Family::of(layer, phase) {
            Family::Gemm => gpu.peak(precision)?,
            Family::Stream => gpu.vector_peak(),
        };
        let compute = cost.ops / peak;
        let memory = cost.bytes() / gpu.bandwidth.value;
        let values = batch.saturating_mul(output.elements());
        let moved = |times: u64| Bytes::new(values.saturating_mul(times * precision.bytes())) / gpu.bandwidth.value;
        let second = match (layer, phase) {
            (Layer::Conv2d(conv), Phase::Forward) if conv.bias => moved(2),
            (
                Layer::Conv2d(Conv2d { bias: true, .. }) | Layer::Linear(Linear { bias: true, .. }),
                Phase::BackwardWeights,
            ) => moved(1) + BIAS_GRADIENT,
            (Layer::Recurrent(recurrent), Phase::Forward | Phase::BackwardData) => {
                RECURRENT_STEP * recurrent.steps(inputs) as f64
            }
            _ => Seconds::ZERO,
        };
        let roofline = Roofline { compute, memory, second };
        Some(Self { layer, inputs, output, batch, phase, precision, setting, cost, gpu, roofline })
    }

    /// Share of the multiprocessors that it fills, at most 1.
    pub fn occupancy(&self) -> f64 {
        let filled = match Family::of(self.layer, self.phase) {
            Family::Gemm => gemm::blocks(self),
            Family::Stream => stream::blocks(self),
        };
        (filled / self.gpu.sms.value as f64).min(1.0)
    }

    /// Values of its family's variables.
    pub fn variables(&self, floor: Seconds, library: f64) -> Variables {
        let mut values = Variables { values: [0.0; MAX_VARIABLES] };
        match Family::of(self.layer, self.phase) {
            Family::Gemm => gemm::fill(self, floor, library, &mut values.values),
            Family::Stream => stream::fill(self, floor, library, &mut values.values),
        }
        values
    }
}

/// Values of a family's variables, in the order of [`Family::variables`]; the rest is zero.
#[derive(Clone, Copy, Debug)]
pub struct Variables {
    /// The values.
    pub values: [f64; MAX_VARIABLES],
}

/// Age of a library as a covariate: 0 for cuDNN 9, -1 per major version before it, fractions for minor ones.
/// `None` for a version that cannot be read.
pub fn library_age(cudnn: &str) -> Option<f64> {
    let mut parts = cudnn.split('.').map(|p| p.parse::<f64>());
    let major = parts.next()?.ok()?;
    let minor = parts.next().and_then(Result::ok).unwrap_or(0.0);
    Some(major + minor / 10.0 - 9.0)
}

/// ln(1 + cache / traffic): how much of the traffic the second-level cache may hold.
fn cached(work: &Workload<'_>) -> f64 {
    const UNKNOWN_CACHE: f64 = 4e6;
    let cache = work.gpu.l2.as_ref().map_or(UNKNOWN_CACHE, |l2| l2.value.to_f64());
    (1.0 + cache / work.cost.bytes().to_f64().max(1.0)).ln()
}

/// Natural logarithm of a ratio of counts.
fn ln(value: u64, unit: f64) -> f64 {
    (value.max(1) as f64 / unit).ln()
}

/// 1 where the condition holds, else 0.
fn flag(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

/// Whether a count divides by another.
fn divides(value: u64, by: u64) -> f64 {
    flag(value.is_multiple_of(by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::device::gpu::testing::toy;
    use crate::net::layer::{Attention, Cell, Kind, LayerOp, Linear, Recurrent, SharedModel};
    use crate::rows::measurement::LayerCase;

    #[test]
    fn names_are_unique_and_fit() {
        for family in Family::ALL {
            let names = family.variables();
            assert!(names.len() <= MAX_VARIABLES);
            let unique: std::collections::HashSet<_> = names.iter().collect();
            assert_eq!(unique.len(), names.len());
        }
    }

    #[test]
    fn kinds_that_share_a_model_differ_by_a_flag() {
        // The first kind of copies is told by the absence of the others' flags.
        for kind in Layer::KINDS.iter().filter(|kind| **kind != "embedding") {
            let shares = Kind::named(kind).is_some_and(|row| row.shares != SharedModel::Own);
            let flag = Family::Stream.variables().iter().position(|name| name == kind);
            assert!(!shares || flag.is_some_and(|v| v >= stream::KINDS), "{kind}");
        }
    }

    #[test]
    fn a_variable_is_finite_for_the_smallest_and_a_huge_layer() {
        let gpu = toy();
        for (inputs, features, batch) in [(1, 1, 1), (1 << 20, 1 << 20, 1 << 20)] {
            let case = LayerCase {
                inputs: vec![Shape::new(&[inputs]).expect("shape")],
                layer: Layer::Linear(Linear { features, bias: true }),
            };
            let output = case.layer.output(&case.inputs).expect("fits");
            let cost = case.cost(Phase::Forward, batch, Precision::Fp32, Mode::Inference).expect("fits").expect("runs");
            let work = Workload::new(
                &case.layer,
                &case.inputs,
                output,
                batch,
                Phase::Forward,
                Precision::Fp32,
                Setting::usual(Precision::Fp32, Mode::Inference),
                cost,
                &gpu,
            )
            .expect("fp32");
            let variables = work.variables(Seconds::from_us(4.0), 0.0);
            assert!(variables.values.iter().all(|v| v.is_finite()), "{variables:?}");
            assert!(work.roofline.reference(4, Seconds::ZERO) >= work.roofline.bound());
        }
    }

    /// Its variables are finite, and the kernel is of this class and family.
    fn workload_of(layer: Layer, inputs: &[&[u64]]) -> (&'static str, Family, [f64; MAX_VARIABLES]) {
        let gpu = toy();
        let inputs: Vec<Shape> = inputs.iter().map(|d| Shape::new(d).expect("shape")).collect();
        let case = LayerCase { inputs, layer };
        let (phase, precision, mode) = (Phase::Forward, Precision::Fp32, Mode::Inference);
        let output = case.output().expect("fits");
        let cost = case.cost(phase, 2, precision, mode).expect("fits").expect("runs");
        let setting = Setting::usual(precision, mode);
        let work = Workload::new(&case.layer, &case.inputs, output, 2, phase, precision, setting, cost, &gpu);
        let values = work.expect("fp32").variables(Seconds::from_us(4.0), 0.0).values;
        assert!(values.iter().all(|v| v.is_finite()), "{case:?}");
        (model_kind(&case.layer, &case.inputs, phase), Family::of(&case.layer, phase), values)
    }

    #[test]
    fn attention_is_three_kinds_of_kernels() {
        let attention =
            |cached, fused| Layer::Attention(Attention { heads: 4, kv_heads: Some(2), causal: true, cached, fused });
        let class = |layer, tokens: u64| {
            let (class, family, _) = workload_of(layer, &[&[tokens, 64], &[tokens, 32], &[tokens, 32]]);
            (class, family)
        };
        assert_eq!(class(attention(None, true), 100), ("attention", Family::Gemm));
        assert_eq!(class(attention(Some(0), true), 100), ("attention", Family::Gemm));
        assert_eq!(class(attention(None, false), 100), ("attention_unfused", Family::Gemm));
        assert_eq!(class(attention(Some(99), true), 1), ("attention_decode", Family::Stream));
    }

    #[test]
    fn attention_multiplies_per_sample_and_head() {
        let layer = Attention { heads: 4, kv_heads: None, causal: false, cached: None, fused: true };
        let (_, _, values) = workload_of(Layer::Attention(layer), &[&[128, 3 * 4 * 32]]);
        let value = |name| values[Family::Gemm.variables().iter().position(|n| *n == name).expect("a variable")];
        assert_eq!((value("m"), value("n")), (ln(128, 4096.0), ln(128, 256.0)));
        assert_eq!((value("k"), value("g")), (ln(32, 1024.0), ln(2 * 4, 1.0)));
    }

    #[test]
    fn a_linear_layer_does_not_tell_tokens_from_samples() {
        let of = |dims: &[u64], batch: u64| {
            let gpu = toy();
            let case = LayerCase {
                inputs: vec![Shape::new(dims).expect("shape")],
                layer: Layer::Linear(Linear { features: 96, bias: false }),
            };
            let output = case.output().expect("fits");
            let (phase, precision, mode) = (Phase::Forward, Precision::Fp32, Mode::Inference);
            let cost = case.cost(phase, batch, precision, mode).expect("fits").expect("runs");
            let setting = Setting::usual(precision, mode);
            let work = Workload::new(&case.layer, &case.inputs, output, batch, phase, precision, setting, cost, &gpu);
            work.expect("fp32").variables(Seconds::from_us(4.0), 0.0).values
        };
        assert_eq!(of(&[64, 32], 8), of(&[32], 512));
        assert_eq!(of(&[64, 32], 8), of(&[8, 32], 64));
    }

    #[test]
    fn the_steps_of_a_recurrent_layer_take_time_however_small_it_is() {
        let gpu = toy();
        let layer =
            Layer::Recurrent(Recurrent { cell: Cell::Lstm, hidden: 1, layers: 2, bidirectional: false, bias: true });
        let inputs = [Shape::new(&[50, 1]).expect("shape")];
        let output = layer.output(&inputs).expect("fits");
        let (phase, precision, mode) = (Phase::Forward, Precision::Fp32, Mode::Inference);
        let case = LayerCase { inputs: inputs.to_vec(), layer: layer.clone() };
        let cost = case.cost(phase, 1, precision, mode).expect("fits").expect("runs");
        let setting = Setting::usual(precision, mode);
        let work = Workload::new(&layer, &inputs, output, 1, phase, precision, setting, cost, &gpu).expect("fp32");
        assert_eq!(work.roofline.second, RECURRENT_STEP * 100.0);
    }

    #[test]
    fn library_versions_become_ages() {
        assert_eq!(library_age("7.5"), Some(-1.5));
        assert!(library_age("unknown").is_none());
    }

    #[test]
    fn flags_are_told_from_sizes() {
        for (family, flags, sizes) in [
            (Family::Gemm, gemm::FLAGS, ["m", "n", "k"].as_slice()),
            (Family::Stream, stream::FLAGS, ["bytes", "rows", "row"].as_slice()),
        ] {
            let of = |name: &str| family.variables().iter().position(|n| *n == name).expect(name);
            assert!(!flags.is_empty() && flags.iter().all(|name| family.is_flag(of(name))), "{family}");
            assert!(sizes.iter().all(|name| !family.is_flag(of(name))), "{family}");
        }
        assert!(Family::Stream.is_flag(stream::KINDS) && !Family::Gemm.is_flag(usize::MAX));
    }
}

#[cfg(test)]
mod oracles;
