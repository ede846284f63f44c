//! Softmax.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Softmax over the last dimension, or over the channels of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Softmax {
    /// Three dimensions are no map but rows, as scores `[heads, queries, keys]`: over the last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl Softmax {
    /// Length of a row.
    pub fn row(&self, input: &Shape) -> u64 {
        if self.last { input.last() } else { input.axis() }
    }
}

impl LayerOp for Softmax {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        one(inputs)
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
        assert_eq!((Softmax { last: true }.row(&scores), Softmax::default().row(&scores)), (64, 12));
    }
}
