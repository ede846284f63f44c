//! A learned factor per channel.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Multiplies each channel by a learned factor and adds a learned shift.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Whether the shift is there.
    #[serde(default = "super::linear::yes")]
    pub bias: bool,
}

impl LayerOp for Scale {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        one(inputs)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        inputs.first().map_or(0, Shape::axis).saturating_mul(1 + u64::from(self.bias))
    }

    /// One operation per element, two with the shift; backward data multiplies the gradient, backward
    /// weights reduces gradient times input.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let learned = self.parameters(site.inputs);
        let per_element = 1 + u64::from(self.bias);
        match phase {
            Phase::Forward => Some(site.streaming(n.saturating_mul(per_element), n, n, learned)),
            Phase::BackwardData => Some(site.streaming(n, n, n, site.input().axis())),
            Phase::BackwardWeights => {
                Some(site.streaming(n.saturating_mul(1 + per_element), n.saturating_mul(2), learned, 0))
            }
            Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::shape;
    use super::*;

    #[test]
    fn one_factor_and_one_shift_per_channel() {
        assert_eq!(Scale { bias: true }.parameters(&[shape(&[5, 2, 2])]), 10);
        assert_eq!(Scale { bias: false }.parameters(&[shape(&[5, 2, 2])]), 5);
    }
}
