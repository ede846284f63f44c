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
    /// Features of a head that are turned, the others pass through; all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<u64>,
}

impl Rotary {
    /// Features of a head of this width that are turned.
    pub fn turned(&self, head: u64) -> u64 {
        self.rotated.unwrap_or(head)
    }
}

impl LayerOp for Rotary {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        match *input.dims() {
            [_, features] if self.heads > 0 && features.is_multiple_of(self.heads) => {
                let head = features / self.heads;
                let turned = self.turned(head);
                match turned.is_multiple_of(2) && (1..=head).contains(&turned) {
                    true => Ok(input),
                    false => Err(ShapeError::Field("an even number of a head's features is turned")),
                }
            }
            [_, _] => Err(ShapeError::Field("features must divide into heads")),
            _ => Err(ShapeError::Rank { needs: "[tokens, features]", found: input }),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Three operations per element that is turned; the table, cosine and sine per token and pair of features, serves all
    /// samples. Elements that are not turned are copied. Backward turns the gradient back.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let tokens = site.input().dims().first().copied().unwrap_or(1);
        let table = tokens.saturating_mul(self.turned(site.input().last() / self.heads.max(1)));
        let turned = site.batch.saturating_mul(table).saturating_mul(self.heads);
        match phase {
            Phase::Forward | Phase::BackwardData => {
                Some(site.streaming(turned.saturating_mul(3), n.saturating_add(table), n, 0))
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
        let rotary = Rotary { heads: 8, rotated: None };
        let c = cost(&rotary, &[shape(&[10, 512])], 4, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get()), (3 * 4 * 5120, 4 * (4 * 5120 + 640)));
        assert!(rotary.output(&[shape(&[10, 24])]).is_err());
    }

    #[test]
    fn what_is_not_turned_is_copied() {
        let part = |rotated| Rotary { heads: 8, rotated: Some(rotated) };
        let input = [shape(&[10, 512])];
        let c = cost(&part(16), &input, 4, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get()), (3 * 4 * 10 * 8 * 16, 4 * (4 * 5120 + 10 * 16)));
        assert_eq!(c.written.get(), 4 * 4 * 5120);
        for (rotated, fits) in [(0, false), (15, false), (64, true), (66, false)] {
            assert_eq!(part(rotated).output(&input).is_ok(), fits, "{rotated}");
        }
    }
}
