//! Dropout.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::{Mode, Phase};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Zeroes a random part of the elements while training; nothing runs in inference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Probability of zeroing an element; no influence on cost.
    #[serde(default = "half")]
    pub probability: f64,
}

fn half() -> f64 {
    0.5
}

impl LayerOp for Dropout {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        if !(0.0..=1.0).contains(&self.probability) {
            return Err(ShapeError::Field("probability must be between 0 and 1"));
        }
        one(inputs)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Training: a random number, a comparison and a product per element, and a mask of one byte each way.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let mask = crate::base::units::Bytes::new(n);
        match (phase, site.mode) {
            (Phase::Forward, Mode::Training) => {
                let mut cost = site.streaming(n.saturating_mul(3), n, n, 0);
                cost.written += mask;
                Some(cost)
            }
            (Phase::BackwardData, Mode::Training) => {
                let mut cost = site.streaming(n, n, n, 0);
                cost.read += mask;
                Some(cost)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;

    #[test]
    fn free_in_inference_only() {
        let dropout = Dropout { probability: 0.5 };
        assert!(cost(&dropout, &[shape(&[10])], 1, Phase::Forward, Mode::Inference).is_none());
        let train = cost(&dropout, &[shape(&[10])], 1, Phase::Forward, Mode::Training).expect("runs");
        assert_eq!(train.written.get(), 50);
    }
}
