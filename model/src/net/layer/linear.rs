//! Fully connected layer.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

pub(super) fn yes() -> bool {
    true
}

/// A matrix product with learned weights over the last dimension of `[features]` or `[tokens, features]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Output features.
    pub features: u64,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Linear {
    fn weights(&self, inputs: &[Shape]) -> u64 {
        inputs.first().map_or(0, Shape::axis).saturating_mul(self.features)
    }
    fn biases(&self) -> u64 {
        if self.bias { self.features } else { 0 }
    }
}

impl LayerOp for Linear {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        match *input.dims() {
            [_] => Ok(Shape::new(&[self.features])?),
            [tokens, _] => Ok(Shape::new(&[tokens, self.features])?),
            _ => Err(ShapeError::Rank {
                needs: "[features] or [tokens, features]; put a flatten before it",
                found: input,
            }),
        }
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        self.weights(inputs).saturating_add(self.biases())
    }

    /// See [`Site::weighted`]: every phase is a matrix product of the same size.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let factors = [site.out_elements(), site.input().axis()];
        site.weighted(phase, &factors, self.weights(site.inputs), self.biases())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn tokens_share_the_weights() {
        let layer = Linear { features: 5, bias: true };
        let input = shape(&[7, 3]);
        assert_eq!(layer.parameters(&[input]), 20);
        let c = cost(&layer, &[input], 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.macs, 2 * 7 * 3 * 5);
        assert_eq!(c.ops.get(), 2 * c.macs + 2 * 7 * 5);
        assert_eq!(c.weights.get(), 80);
    }

    #[test]
    fn a_map_must_be_flattened_first() {
        let error = Linear { features: 5, bias: true }.output(&[shape(&[3, 2, 2])]).expect_err("rank");
        assert!(error.to_string().contains("flatten"));
    }
}
