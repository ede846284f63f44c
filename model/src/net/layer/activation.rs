//! Element-wise activations.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::{Phase, named_enum};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

named_enum!(
    /// An activation function.
    Function {
        /// max(x, 0)
        Relu = "relu",
        /// min(max(x, 0), 6)
        Relu6 = "relu6",
        /// 1 / (1 + e^-x)
        Sigmoid = "sigmoid",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// x sigmoid(x)
        Silu = "silu",
        /// x relu6(x + 3) / 6
        Hardswish = "hardswish",
        /// x Phi(x), with the error function.
        Gelu = "gelu",
        /// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which approximates it.
        GeluTanh = "gelu_tanh",
    }
);

impl Function {
    /// Operations per element forward; a transcendental function counts as one.
    fn ops(self) -> u64 {
        match self {
            Self::Relu | Self::Tanh => 1,
            Self::Relu6 => 2,
            Self::Sigmoid => 3,
            Self::Silu | Self::Gelu => 4,
            Self::Hardswish => 5,
            Self::GeluTanh => 8,
        }
    }

    /// Operations per element backward.
    fn backward_ops(self) -> u64 {
        match self {
            Self::Relu => 1,
            Self::Relu6 => 2,
            Self::Sigmoid | Self::Tanh => 3,
            Self::Hardswish => 4,
            Self::Silu | Self::Gelu => 8,
            Self::GeluTanh => 14,
        }
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
        match phase {
            Phase::Forward => Some(site.streaming(times(self.function.ops()), n, n, 0)),
            Phase::BackwardData => Some(site.streaming(times(self.function.backward_ops()), times(2), n, 0)),
            Phase::BackwardWeights | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn relu_moves_each_element_in_and_out() {
        let relu = Activation { function: Function::Relu };
        let c = cost(&relu, &[shape(&[10])], 3, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get(), c.written.get()), (30, 120, 120));
        assert!(cost(&relu, &[shape(&[10])], 3, Phase::BackwardWeights, Mode::Training).is_none());
    }
}
