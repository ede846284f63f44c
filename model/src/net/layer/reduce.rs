//! Reduction of rows.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Mean, sum or maximum over the last dimension, which goes away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduce {}

impl LayerOp for Reduce {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        match one(inputs)?.dims() {
            [_] => Ok(Shape::new(&[1])?),
            [rest @ .., _] => Ok(Shape::new(rest)?),
            [] => Err(ShapeError::Field("nothing to reduce")),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// One operation per input element; backward spreads the gradient.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.in_elements(), site.out_elements());
        match phase {
            Phase::Forward => Some(site.streaming(x, x, y, 0)),
            Phase::BackwardData => Some(site.streaming(x, y, x, 0)),
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
    fn the_last_dimension_goes_away() {
        assert_eq!(Reduce {}.output(&[shape(&[768, 196])]), Ok(shape(&[768])));
        assert_eq!(Reduce {}.output(&[shape(&[768])]), Ok(shape(&[1])));
        let c = cost(&Reduce {}, &[shape(&[8, 4])], 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.written.get()), (64, 64));
    }
}
