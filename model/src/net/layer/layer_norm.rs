//! Layer normalization.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Normalization of each row over its last dimension, or of each position over the channels of a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// Learned scale and shift per feature.
    #[serde(default = "super::linear::yes")]
    pub affine: bool,
}

impl LayerNorm {
    /// Features of a row: the channels of a map, else the last dimension.
    pub fn row(&self, input: &Shape) -> u64 {
        input.axis()
    }
}

impl LayerOp for LayerNorm {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        one(inputs)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        if self.affine { inputs.first().map_or(0, |input| self.row(input)).saturating_mul(2) } else { 0 }
    }

    /// Mean 1, variance 2, normalization 2, scale and shift 2 operations per element; a row stays on chip,
    /// so it is read once.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        normalized(phase, site, if self.affine { 7 } else { 5 }, self.parameters(site.inputs), 1)
    }
}

/// Cost of a normalization of so many operations per element and `learned` values that passes over its input so often. Backward
/// takes four operations more, reads input and gradient as often and writes both gradients.
pub(super) fn normalized(phase: Phase, site: &Site<'_>, ops: u64, learned: u64, passes: u64) -> Option<LayerCost> {
    let n = site.in_elements();
    let times = |k: u64| n.saturating_mul(k);
    match phase {
        Phase::Forward => Some(site.streaming(times(ops), times(passes), n, learned)),
        Phase::BackwardData => {
            Some(site.streaming(times(ops + 4), times(2 * passes), n.saturating_add(learned), learned))
        }
        Phase::BackwardWeights | Phase::Update => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn scale_and_shift_per_feature() {
        let norm = LayerNorm { affine: true };
        let input = [shape(&[128, 768])];
        assert_eq!(norm.parameters(&input), 1536);
        let c = cost(&norm, &input, 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.ops.get(), 7 * 128 * 768);
    }
}
