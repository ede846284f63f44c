//! Softmax.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Softmax over the last dimension, over the channels of a map, or over the middle one of three dimensions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Softmax {
    /// Three dimensions are no map but rows, as scores `[heads, queries, keys]`: over the last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// Three dimensions are matrices one after the other, as `[heads, keys, features]`: down their columns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub middle: bool,
}

impl Softmax {
    /// Length of a row.
    pub fn row(&self, input: &Shape) -> u64 {
        match input.dims() {
            [_, middle, _] if self.middle => *middle,
            _ if self.last => input.last(),
            _ => input.axis(),
        }
    }

    /// Values that lie between neighbours of a row: 1 where rows lie side by side.
    pub fn apart(&self, input: &Shape) -> u64 {
        match *input.dims() {
            [_, _, inner] if self.middle => inner,
            [_, height, width] if !self.last => height.saturating_mul(width),
            _ => 1,
        }
    }
}

impl LayerOp for Softmax {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        match input.dims() {
            _ if self.middle && self.last => {
                Err(ShapeError::Field("a softmax is over the last dimension or the middle one"))
            }
            [_, _, _] => Ok(input),
            _ if self.middle => Err(ShapeError::Rank { needs: "three dimensions, over the middle one", found: input }),
            _ => Ok(input),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Exponential, sum and division per element; backward reads output and gradient.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let times = |k: u64| n.saturating_mul(k);
        match phase {
            Phase::Forward => Some(site.streaming(times(3), n, n, 0)),
            Phase::BackwardData => Some(site.streaming(times(4), times(2), n, 0)),
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
    fn three_operations_per_class() {
        let c = cost(&Softmax::default(), &[shape(&[1000])], 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.ops.get(), 3000);
        let scores = shape(&[12, 128, 64]);
        let last = Softmax { last: true, middle: false };
        let middle = Softmax { last: false, middle: true };
        assert_eq!((last.row(&scores), middle.row(&scores), Softmax::default().row(&scores)), (64, 128, 12));
        let apart = [last.apart(&scores), middle.apart(&scores), Softmax::default().apart(&scores)];
        assert_eq!(apart, [1, 64, 128 * 64]);
        assert!(middle.output(&[scores]).is_ok() && middle.output(&[shape(&[12, 128])]).is_err());
        assert!(Softmax { last: true, middle: true }.output(&[scores]).is_err());
    }
}
