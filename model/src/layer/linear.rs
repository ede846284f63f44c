//! Fully connected layer.

use super::{LayerOp, ShapeError, one};
use crate::cost::{LayerCost, Site};
use crate::precision::Phase;
use crate::shape::Shape;
use crate::units::Ops;
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

    /// Every phase is a matrix product of the same size. A bias adds one operation per output.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y, w) = (site.in_elements(), site.out_elements(), self.weights(site.inputs));
        let factors = [y, site.input().axis()];
        let bias_ops = if self.bias { y } else { 0 };
        let (mut cost, bias_ops) = match phase {
            Phase::Forward => (site.dense(&factors, x, y, w.saturating_add(self.biases())), bias_ops),
            Phase::BackwardData => (site.dense(&factors, y, x, w), 0),
            Phase::BackwardWeights => {
                (site.dense(&factors, x.saturating_add(y), w.saturating_add(self.biases()), 0), bias_ops)
            }
            Phase::Update => return None,
        };
        cost.ops += Ops::new(bias_ops);
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::precision::Mode;

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
