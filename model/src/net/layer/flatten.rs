//! Flattening.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// A view of a map as one row of features.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flatten {}

impl LayerOp for Flatten {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        Ok(Shape::new(&[one(inputs)?.elements()])?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// A view: no kernel runs in any phase.
    fn cost(&self, _phase: Phase, _site: &Site<'_>) -> Option<LayerCost> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::shape;
    use super::*;

    #[test]
    fn keeps_every_element() {
        assert_eq!(Flatten {}.output(&[shape(&[512, 7, 7])]), Ok(shape(&[25088])));
    }
}
