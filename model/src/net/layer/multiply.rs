//! Element-wise product.

use super::{LayerOp, ShapeError, broadcast};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Product of two tensors; the second is broadcast to the first's shape, as one factor per channel (`[channels, 1, 1]`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multiply {}

impl LayerOp for Multiply {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        match inputs {
            [_, _] => broadcast(inputs),
            _ => Err(ShapeError::Arity { expected: "two", found: inputs.len() }),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Backward reads the gradient and both factors and writes both gradients.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.all_in_elements(), site.out_elements());
        match phase {
            Phase::Forward => Some(site.streaming(y, x, y, 0)),
            Phase::BackwardData => Some(site.streaming(y.saturating_mul(2), x.saturating_add(y), x, 0)),
            Phase::BackwardWeights | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::shape;
    use super::*;

    #[test]
    fn a_factor_per_channel_broadcasts() {
        let (map, gate) = (shape(&[32, 14, 14]), shape(&[32, 1, 1]));
        assert_eq!(Multiply {}.output(&[map, gate]), Ok(map));
        assert!(Multiply {}.output(&[gate, map]).is_err());
    }
}
