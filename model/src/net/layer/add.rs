//! Element-wise sum.

use super::{LayerOp, ShapeError, broadcast};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Sum of two or more tensors; the first has the sum's shape, to which the others are broadcast.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {}

impl LayerOp for Add {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        match inputs {
            [_, _, ..] => broadcast(inputs),
            _ => Err(ShapeError::Arity { expected: "two or more", found: inputs.len() }),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Forward only: the gradient of a sum is the gradient itself, no kernel runs.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.all_in_elements(), site.out_elements());
        match phase {
            Phase::Forward => {
                let sums = y.saturating_mul(site.inputs.len() as u64 - 1);
                Some(site.streaming(sums, x, y, 0))
            }
            Phase::BackwardData | Phase::BackwardWeights | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn reads_two_and_writes_one() {
        let inputs = [shape(&[4, 2, 2]); 2];
        let c = cost(&Add {}, &inputs, 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get(), c.written.get()), (16, 128, 64));
        assert!(Add {}.output(&[shape(&[4, 2, 2]), shape(&[2, 2, 2])]).is_err());
    }

    #[test]
    fn a_mask_is_broadcast_over_heads() {
        let inputs = [shape(&[12, 16, 16]), shape(&[16, 16])];
        let c = cost(&Add {}, &inputs, 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get()), (12 * 256, 13 * 256 * 4));
        assert!(Add {}.output(&[inputs[1], inputs[0]]).is_err());
    }
}
