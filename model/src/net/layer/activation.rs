//! Element-wise activations.

use super::kind::{Family, Kind, Measured, Overwrites, Saved, SharedModel};
use super::{LayerOp, ShapeError, one};
use crate::base::precision::{Phase, named_enum};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// How ONNX writes a function of `x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnnxForm {
    /// One operator.
    Operator(&'static str),
    /// One operator with an attribute.
    With(&'static str, &'static str, OnnxValue),
    /// `x` times an operator of it.
    Gated(&'static str),
    /// `x` between two limits.
    Clipped(f32, f32),
}

/// An attribute's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnnxValue {
    /// In words.
    Word(&'static str),
    /// A number.
    Real(f32),
}
use OnnxValue::{Real, Word};

/// What holds of a function.
struct Row {
    kind: Kind,
    ops: [u64; 2],
    read_as: &'static [&'static str],
    written: OnnxForm,
    caffe: &'static [&'static str],
}

macro_rules! functions {
    ($($(#[$doc:meta])* $function:ident = $name:literal {
        ops: $ops:expr, measured: $measured:ident, overwrites: $overwrites:ident, saved: $saved:ident,
        onnx: $read_as:expr, $form:ident($($part:expr),+); caffe: $caffe:expr
    })+) => {
        named_enum!(
            /// An activation function.
            Function { $($(#[$doc])* $function = $name),+ }
        );

        impl Function {
            /// Their names, in the order of [`Function::ALL`].
            pub const NAMES: &'static [&'static str] = &[$($name),+];
            /// The kinds of layers that compute them.
            pub(super) const KINDS: &'static [Kind] = &[$(Self::$function.row().kind),+];

            const fn row(self) -> &'static Row {
                match self {
                    $(Self::$function => &Row {
                        kind: Kind {
                            name: $name,
                            family: Family::Stream,
                            measured: Measured::$measured,
                            shares: SharedModel::Pointwise,
                            overwrites: Overwrites::$overwrites,
                            saved: Saved::$saved,
                        },
                        ops: $ops,
                        read_as: &$read_as,
                        written: OnnxForm::$form($($part),+),
                        caffe: &$caffe,
                    }),+
                }
            }
        }
    };
}

// `ops`: operations per element, forward and backward; a transcendental function counts as one. `onnx`: the operators that
// are the function whatever their attributes, and how it is written; `caffe`: the layer types.
functions! {
    /// max(x, 0)
    Relu = "relu" {
        ops: [1, 1], measured: ByRunner, overwrites: Activations, saved: Output,
        onnx: ["Relu"], Operator("Relu"); caffe: ["relu"]
    }
    /// min(max(x, 0), 6)
    Relu6 = "relu6" {
        ops: [2, 2], measured: ByRunner, overwrites: Activations, saved: Clipped,
        onnx: [], Clipped(0.0, 6.0); caffe: ["relu6"]
    }
    /// 1 / (1 + e^-x)
    Sigmoid = "sigmoid" {
        ops: [3, 3], measured: ByRunner, overwrites: Activations, saved: Output,
        onnx: ["Sigmoid"], Operator("Sigmoid"); caffe: ["sigmoid"]
    }
    /// Hyperbolic tangent.
    Tanh = "tanh" {
        ops: [1, 3], measured: ByRunner, overwrites: Activations, saved: Output,
        onnx: ["Tanh"], Operator("Tanh"); caffe: ["tanh"]
    }
    /// x sigmoid(x)
    Silu = "silu" {
        ops: [4, 8], measured: ByRunner, overwrites: Activations, saved: Inputs,
        onnx: ["Silu", "Swish", "QuickGelu"], Gated("Sigmoid"); caffe: ["swish"]
    }
    /// x relu6(x + 3) / 6
    Hardswish = "hardswish" {
        ops: [5, 4], measured: ByRunner, overwrites: Activations, saved: Inputs,
        onnx: ["HardSwish"], Operator("HardSwish"); caffe: []
    }
    /// x Phi(x), with the error function.
    Gelu = "gelu" {
        ops: [4, 8], measured: ByRunner, overwrites: OurRunner, saved: Inputs,
        onnx: ["Gelu"], With("Gelu", "approximate", Word("none")); caffe: []
    }
    /// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which approximates it.
    GeluTanh = "gelu_tanh" {
        ops: [8, 14], measured: ByAnyFramework, overwrites: Activations, saved: Inputs,
        onnx: ["GeluTanh", "FastGelu"], With("Gelu", "approximate", Word("tanh")); caffe: []
    }
    /// ln(1 + e^x), which Caffe calls the binomial normal log likelihood.
    Softplus = "softplus" {
        ops: [3, 4], measured: ByRunner, overwrites: OurRunner, saved: Inputs,
        onnx: ["Softplus"], Operator("Softplus"); caffe: ["bnll"]
    }
    /// relu6(x + 3) / 6
    Hardsigmoid = "hardsigmoid" {
        ops: [4, 3], measured: ByRunner, overwrites: Activations, saved: Inputs,
        onnx: ["HardSigmoid"], With("HardSigmoid", "alpha", Real(1.0 / 6.0)); caffe: []
    }
    /// x tanh(ln(1 + e^x))
    Mish = "mish" {
        ops: [5, 13], measured: ByRunner, overwrites: Activations, saved: Inputs,
        onnx: ["Mish"], Operator("Mish"); caffe: []
    }
}

impl Function {
    /// The row of the table of kinds that layers of the function are of.
    pub const fn kind(self) -> &'static Kind {
        &self.row().kind
    }

    /// Whether about half of its results are zero, of inputs around zero.
    pub const fn makes_zeros(self) -> bool {
        matches!(self, Self::Relu | Self::Relu6)
    }

    /// The function that an ONNX operator is, whatever its attributes.
    pub fn of_onnx(operator: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.row().read_as.contains(&operator))
    }

    /// How ONNX writes it.
    pub const fn written(self) -> OnnxForm {
        self.row().written
    }

    /// The function that a layer type of Caffe or its forks computes, in small letters.
    pub fn of_caffe(kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.row().caffe.contains(&kind))
    }
}

/// An activation applied to every element.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activation {
    /// Which function.
    pub function: Function,
}

impl LayerOp for Activation {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        one(inputs)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Forward reads and writes every element; backward reads the gradient and one saved tensor.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let times = |k: u64| n.saturating_mul(k);
        let [forward, backward] = self.function.row().ops;
        match phase {
            Phase::Forward => Some(site.streaming(times(forward), n, n, 0)),
            Phase::BackwardData => Some(site.streaming(times(backward), times(2), n, 0)),
            Phase::BackwardWeights | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::{Mode, Precision};

    #[test]
    fn functions_that_cut_at_zero_make_zeros() {
        let making: Vec<Function> = Function::ALL.iter().copied().filter(|f| f.makes_zeros()).collect();
        assert_eq!(making, [Function::Relu, Function::Relu6]);
        let shaped = |name| {
            let network = crate::catalog::network(name).expect("shipped");
            crate::net::network::ShapedNetwork::new(&network, 1, Precision::Fp32, &[]).expect("fits")
        };
        assert!(shaped("mobilenet_v2").makes_zeros() && !shaped("vit_b_16").makes_zeros());
    }

    #[test]
    fn relu_moves_each_element_in_and_out() {
        let relu = Activation { function: Function::Relu };
        let c = cost(&relu, &[shape(&[10])], 3, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get(), c.written.get()), (30, 120, 120));
        assert!(cost(&relu, &[shape(&[10])], 3, Phase::BackwardWeights, Mode::Training).is_none());
    }
}
