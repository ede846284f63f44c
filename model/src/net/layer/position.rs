//! Learned positions: a table that is added, and attention's bias by distance.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::{Shape, product};
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Adds row i of a learned table to token i of `[tokens, features]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionEmbedding {
    /// Rows of the table; as many as there are tokens without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<u64>,
}

impl LayerOp for PositionEmbedding {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        match *input.dims() {
            [tokens, _] if self.positions.is_some_and(|p| p < tokens) => {
                Err(ShapeError::Field("more tokens than learned positions"))
            }
            [_, _] => Ok(input),
            _ => Err(ShapeError::Rank { needs: "[tokens, features]", found: input }),
        }
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        let Some([tokens, features]) = inputs.first().map(Shape::dims) else { return 0 };
        self.positions.unwrap_or(*tokens).saturating_mul(*features)
    }

    /// One operation per element; of the table only the tokens' rows are read. Its gradient sums over the samples and
    /// is dense.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        match phase {
            Phase::Forward => Some(site.streaming(n, n, n, site.input().elements())),
            Phase::BackwardWeights => Some(site.streaming(n, n, self.parameters(site.inputs), 0)),
            Phase::BackwardData | Phase::Update => None,
        }
    }
}

/// Adds a learned value per head and relative position to scores `[windows heads, tokens, tokens]` of windows of
/// `window` x `window` tokens (Swin; Liu et al. 2021).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelativePositionBias {
    /// Heads, each with values of its own.
    pub heads: u64,
    /// Side of a window in tokens.
    pub window: u64,
}

impl LayerOp for RelativePositionBias {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        let tokens = self.window.saturating_mul(self.window);
        match *input.dims() {
            [groups, rows, columns]
                if rows == tokens && columns == tokens && self.heads > 0 && groups.is_multiple_of(self.heads) =>
            {
                Ok(input)
            }
            _ => Err(ShapeError::Rank { needs: "[windows heads, window window, window window]", found: input }),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        let distances = self.window.saturating_mul(2).saturating_sub(1);
        product(&[distances, distances, self.heads])
    }

    /// The table is spread over all pairs of tokens, then added.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let learned = self.parameters(site.inputs);
        let spread = product(&[self.heads, self.window, self.window, self.window, self.window]);
        match phase {
            Phase::Forward => Some(site.streaming(n, n.saturating_add(spread), n.saturating_add(spread), learned)),
            Phase::BackwardWeights => {
                Some(site.streaming(n, n.saturating_add(spread), learned.saturating_add(spread), 0))
            }
            Phase::BackwardData | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn a_table_may_be_longer_than_the_sequence() {
        let input = [shape(&[128, 768])];
        let table = PositionEmbedding { positions: Some(1024) };
        assert_eq!(table.parameters(&input), 1024 * 768);
        assert_eq!(PositionEmbedding::default().parameters(&input), 128 * 768);
        let c = cost(&table, &input, 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.read.get(), 4 * 3 * 128 * 768);
        assert!(PositionEmbedding { positions: Some(127) }.output(&input).is_err());
    }

    #[test]
    fn a_bias_has_a_value_per_distance() {
        let bias = RelativePositionBias { heads: 3, window: 7 };
        assert_eq!(bias.parameters(&[]), 169 * 3);
        assert!(bias.output(&[shape(&[192, 49, 49])]).is_ok());
        for wrong in [[191, 49, 49], [192, 48, 49], [192, 49, 48]] {
            assert!(bias.output(&[shape(&wrong)]).is_err(), "{wrong:?}");
        }
        assert!(RelativePositionBias { heads: 0, window: 7 }.output(&[shape(&[192, 49, 49])]).is_err());
    }
}
