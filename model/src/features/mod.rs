//! From a layer on a device to the variables that time models are polynomials of.
//!
//! One function, [`Workload::new`] and [`Workload::variables`], serves fitting and prediction alike. Two
//! families of layers have variables of their own: matrix-product kernels ([`gemm`]) and kernels that stream
//! through memory ([`stream`]).

mod gemm;
mod stream;

use crate::cost::LayerCost;
use crate::gpu::Gpu;
use crate::layer::Layer;
use crate::precision::{Phase, Precision, named_enum};
use crate::shape::Shape;
use crate::units::Seconds;
use serde::{Deserialize, Serialize};

/// More variables than any family has.
pub const MAX_VARIABLES: usize = 96;

named_enum!(
    /// Which variables a layer has.
    Family {
        /// Convolution, linear, matrix product.
        Gemm = "gemm",
        /// Everything that is bound by memory traffic.
        Stream = "stream",
    }
);

impl Family {
    /// The family of a layer's kernels in a phase.
    pub fn of(layer: &Layer, phase: Phase) -> Self {
        match layer {
            Layer::Conv2d(_) | Layer::Linear(_) | Layer::Matmul(_) if phase != Phase::Update => Self::Gemm,
            _ => Self::Stream,
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

/// Which model a layer's time is predicted by: its kind, except that convolutions in narrow groups (depthwise
/// ones above all), and those which Winograd's algorithm can do (3x3, stride 1, neither dilated nor grouped), have
/// models apart. They run different kernels.
pub fn model_kind(layer: &Layer, inputs: &[Shape]) -> &'static str {
    match layer {
        Layer::Conv2d(conv) => {
            let channels = inputs.first().map_or(1, Shape::axis);
            let groups = conv.groups(channels).max(1);
            let winograd = conv.kernel.is(3) && conv.stride.is(1) && conv.dilation.is(1);
            if groups > 1 && channels / groups < NARROW_GROUP {
                "conv2d_grouped"
            } else if winograd && groups == 1 {
                "conv2d_3x3"
            } else {
                "conv2d"
            }
        }
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
}

impl Roofline {
    /// Bound of the direct algorithm: max(ops / peak, bytes / bandwidth).
    pub fn bound(&self) -> Seconds {
        self.compute.max(self.memory)
    }

    /// Smooth roofline with a floor: (t_comp^p + t_mem^p + t0^p)^(1/p).
    pub fn reference(&self, exponent: u32, floor: Seconds) -> Seconds {
        let p = exponent as i32;
        let sum = self.compute.get().powi(p) + self.memory.get().powi(p) + floor.get().powi(p);
        Seconds::new(sum.powf(1.0 / f64::from(exponent)))
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
        cost: LayerCost,
        gpu: &'a Gpu,
    ) -> Option<Self> {
        let peak = match Family::of(layer, phase) {
            Family::Gemm => gpu.peak(precision)?,
            Family::Stream => gpu.vector_peak(),
        };
        let compute = cost.ops / peak;
        let memory = cost.bytes() / gpu.bandwidth.value;
        Some(Self { layer, inputs, output, batch, phase, precision, cost, gpu, roofline: Roofline { compute, memory } })
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
    use crate::gpu::testing::toy;
    use crate::layer::{LayerOp, Linear};
    use crate::measurement::LayerCase;
    use crate::precision::Mode;

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
    fn a_variable_is_finite_for_the_smallest_and_a_huge_layer() {
        let gpu = toy();
        for (inputs, features, batch) in [(1, 1, 1), (1 << 20, 1 << 20, 1 << 20)] {
            let case = LayerCase {
                inputs: vec![Shape::new(&[inputs]).expect("shape")],
                layer: Layer::Linear(Linear { features, bias: true }),
            };
            let output = case.layer.output(&case.inputs).expect("fits");
            let cost = case.cost(Phase::Forward, batch, Precision::Fp32, Mode::Inference).expect("fits").expect("runs");
            let work =
                Workload::new(&case.layer, &case.inputs, output, batch, Phase::Forward, Precision::Fp32, cost, &gpu)
                    .expect("fp32");
            let variables = work.variables(Seconds::from_us(4.0), 0.0);
            assert!(variables.values.iter().all(|v| v.is_finite()), "{variables:?}");
            assert!(work.roofline.reference(4, Seconds::ZERO) >= work.roofline.bound());
        }
    }

    #[test]
    fn library_versions_become_ages() {
        assert_eq!(library_age("7.5"), Some(-1.5));
        assert!(library_age("unknown").is_none());
    }
}
