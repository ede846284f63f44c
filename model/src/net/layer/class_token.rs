//! A learned token before the others.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Puts one learned token before those of `[tokens, features]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassToken {}

impl LayerOp for ClassToken {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        match *input.dims() {
            [tokens, features] => Ok(Shape::new(&[tokens.saturating_add(1), features])?),
            _ => Err(ShapeError::Rank { needs: "[tokens, features]", found: input }),
        }
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        inputs.first().map_or(0, Shape::last)
    }

    /// A copy of every token; its gradient is a copy, and a sum over the samples.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, learned) = (site.in_elements(), self.parameters(site.inputs));
        let samples = site.batch.saturating_mul(learned);
        match phase {
            Phase::Forward => Some(site.streaming(0, x, site.out_elements(), learned)),
            Phase::BackwardData => Some(site.streaming(0, x, x, 0)),
            Phase::BackwardWeights => Some(site.streaming(samples, samples, learned, 0)),
            Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::shape;
    use super::*;

    #[test]
    fn one_token_more() {
        let input = [shape(&[196, 768])];
        assert_eq!(ClassToken {}.output(&input), Ok(shape(&[197, 768])));
        assert_eq!(ClassToken {}.parameters(&input), 768);
    }
}
