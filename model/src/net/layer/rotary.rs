//! Rotary position embedding.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Turns pairs of features of every head of `[tokens, heads d]` by an angle that grows with the position (Su et al.
/// 2021): x cos + rotated(x) sin, with cosines and sines from a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotary {
    /// Heads, which share the table.
    pub heads: u64,
}

impl LayerOp for Rotary {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        match *input.dims() {
            [_, features] if self.heads > 0 && features.is_multiple_of(2 * self.heads) => Ok(input),
            [_, _] => Err(ShapeError::Field("features must divide into heads of an even size")),
            _ => Err(ShapeError::Rank { needs: "[tokens, features]", found: input }),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Three operations per element; the table, cosine and sine per token and pair of features, serves all samples.
    /// Backward turns the gradient back.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let table = site.input().elements() / self.heads.max(1);
        match phase {
            Phase::Forward | Phase::BackwardData => {
                Some(site.streaming(n.saturating_mul(3), n.saturating_add(table), n, 0))
            }
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
    fn the_table_is_read_once() {
        let rotary = Rotary { heads: 8 };
        let c = cost(&rotary, &[shape(&[10, 512])], 4, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get()), (3 * 4 * 5120, 4 * (4 * 5120 + 640)));
        assert!(rotary.output(&[shape(&[10, 24])]).is_err());
    }
}
