//! Batch normalization.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::{Mode, Phase};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Normalization per channel over batch and positions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm {
    /// Learned scale and shift per channel (Caffe leaves them to a [`super::Scale`] layer).
    #[serde(default = "super::linear::yes")]
    pub affine: bool,
}

impl LayerOp for BatchNorm {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        one(inputs)
    }

    /// Scale and shift; running mean and variance are state, not parameters.
    fn parameters(&self, inputs: &[Shape]) -> u64 {
        if self.affine { inputs.first().map_or(0, Shape::axis).saturating_mul(2) } else { 0 }
    }

    /// Inference: two operations per element with mean and variance folded per channel. Training forward
    /// reads the input twice (statistics, then normalization); backward reads input and gradient twice
    /// (reductions, then the gradient) and also writes the parameters' gradients.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let times = |k: u64| n.saturating_mul(k);
        let channels = site.input().axis();
        let learned = self.parameters(site.inputs);
        let read_per_channel = learned.saturating_add(channels.saturating_mul(2));
        match (phase, site.mode) {
            (Phase::Forward, Mode::Inference) => Some(site.streaming(times(2), n, n, read_per_channel)),
            (Phase::Forward, Mode::Training) => {
                let written = n.saturating_add(channels.saturating_mul(4));
                Some(site.streaming(times(5), times(2), written, read_per_channel))
            }
            (Phase::BackwardData, _) => {
                Some(site.streaming(times(8), times(4), n.saturating_add(learned), read_per_channel))
            }
            (Phase::BackwardWeights | Phase::Update, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;

    #[test]
    fn training_reads_the_input_twice() {
        let norm = BatchNorm { affine: true };
        let input = [shape(&[8, 10, 10])];
        let infer = cost(&norm, &input, 2, Phase::Forward, Mode::Inference).expect("runs");
        let train = cost(&norm, &input, 2, Phase::Forward, Mode::Training).expect("runs");
        assert_eq!(train.read.get() - infer.read.get(), 4 * 1600);
        assert_eq!(norm.parameters(&input), 16);
        assert_eq!(BatchNorm { affine: false }.parameters(&input), 0);
    }
}
