//! Batched product of two activations.

use super::{LayerOp, ShapeError};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// `[.., m, k]` times `[.., k, n]` per sample; both are activations, nothing is learned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matmul {
    /// Whether autocast leaves it in 32 bits: one that runs within an operation of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wide: bool,
}

impl LayerOp for Matmul {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let [a, b] = inputs else {
            return Err(ShapeError::Arity { expected: "two", found: inputs.len() });
        };
        let mismatch = ShapeError::Mismatch { first: *a, other: *b };
        match (a.dims(), b.dims()) {
            ([m, k], [k2, n]) if k == k2 => Ok(Shape::new(&[*m, *n])?),
            ([h, m, k], [h2, k2, n]) if k == k2 && h == h2 => Ok(Shape::new(&[*h, *m, *n])?),
            _ => Err(mismatch),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Backward data is two products (one per operand) in one phase.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let k = *site.input().dims().last()?;
        let (x, y) = (site.all_in_elements(), site.out_elements());
        match phase {
            Phase::Forward => Some(site.dense(&[y, k], x, y, 0)),
            Phase::BackwardData => Some(site.dense(&[2, y, k], x.saturating_add(y.saturating_mul(2)), x, 0)),
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
    fn heads_multiply_separately() {
        let inputs = [shape(&[12, 128, 64]), shape(&[12, 64, 128])];
        let c = cost(&Matmul::default(), &inputs, 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.macs, 2 * 12 * 128 * 128 * 64);
        assert!(Matmul::default().output(&[inputs[0], inputs[0]]).is_err());
    }
}
