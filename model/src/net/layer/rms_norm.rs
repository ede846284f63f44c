//! Root-mean-square normalization.

use super::layer_norm::normalized;
use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Each row over the root of its mean square, times a learned factor per feature (Zhang, Sennrich 2019).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsNorm {}

impl RmsNorm {
    /// Features of a row: the last dimension, of a map, too, as heads of queries and keys are.
    pub fn row(&self, input: &Shape) -> u64 {
        input.last()
    }
}

impl LayerOp for RmsNorm {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        one(inputs)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        inputs.first().map_or(0, |input| self.row(input))
    }

    /// Square and sum 2, normalization 1, factor 1 operations per element; a row stays on chip, so it is read once.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        normalized(phase, site, 4, self.parameters(site.inputs), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn a_factor_per_feature() {
        let input = [shape(&[128, 2048])];
        assert_eq!(RmsNorm {}.parameters(&input), 2048);
        let c = cost(&RmsNorm {}, &input, 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.read.get(), c.written.get()), (4 * 129 * 2048, 4 * 128 * 2048));
    }
}
