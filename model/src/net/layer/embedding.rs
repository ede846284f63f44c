//! Rows of a learned table, by index.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::base::units::Bytes;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Width of an index: frameworks keep 64-bit integers.
const INDEX_BYTES: u64 = 8;

/// The row of a table for every index: integers `[tokens]` become `[tokens, features]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Rows of the table.
    pub vocabulary: u64,
    /// Features of a row.
    pub features: u64,
}

impl LayerOp for Embedding {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        match *input.dims() {
            [tokens] => Ok(Shape::new(&[tokens, self.features])?),
            _ => Err(ShapeError::Rank { needs: "[tokens], indices", found: input }),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        self.vocabulary.saturating_mul(self.features)
    }

    /// Forward reads an index and a row per token and writes the row; the gradient of the table is dense: every row
    /// is written, those that occurred are summed.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let y = site.out_elements();
        let mut cost = match phase {
            Phase::Forward => site.streaming(0, 0, y, y),
            Phase::BackwardWeights => site.streaming(y, y, self.parameters(site.inputs), 0),
            Phase::BackwardData | Phase::Update => return None,
        };
        cost.read += Bytes::new(site.in_elements().saturating_mul(INDEX_BYTES));
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn only_rows_that_occur_are_read() {
        let table = Embedding { vocabulary: 50257, features: 768 };
        let input = [shape(&[10])];
        assert_eq!(table.parameters(&input), 50257 * 768);
        let c = cost(&table, &input, 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.read.get(), c.written.get()), (20 * (8 + 4 * 768), 20 * 4 * 768));
        let gradient = cost(&table, &input, 2, Phase::BackwardWeights, Mode::Training).expect("runs");
        assert_eq!(gradient.written.get(), 4 * 50257 * 768);
        assert!(table.output(&[shape(&[10, 2])]).is_err());
    }
}
