//! Maps of another size by interpolation.

use super::{LayerOp, Pair, ShapeError, one_map};
use crate::base::precision::{Phase, named_enum};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

named_enum!(
    /// How values between elements are found.
    Interpolation {
        /// The nearest element.
        Nearest = "nearest",
        /// From four neighbours.
        Linear = "linear",
        /// From sixteen neighbours.
        Cubic = "cubic",
    }
);

impl Interpolation {
    /// Elements that a value is made of.
    pub fn neighbours(self) -> u64 {
        match self {
            Self::Nearest => 1,
            Self::Linear => 4,
            Self::Cubic => 16,
        }
    }
}

/// Interpolates a map to a given height and width.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Output height and width.
    pub output: Pair,
    /// How.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

impl LayerOp for Resize {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let (c, _, _) = one_map(inputs)?;
        Ok(Shape::map(c, self.output.h, self.output.w)?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// A multiplication and an addition per neighbour; backward adds every gradient to its neighbours.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.in_elements(), site.out_elements());
        // The nearest is copied.
        let ops = match self.interpolation {
            Interpolation::Nearest => 0,
            other => y.saturating_mul(2 * other.neighbours()),
        };
        match phase {
            Phase::Forward => Some(site.streaming(ops, x, y, 0)),
            Phase::BackwardData => Some(site.streaming(ops, y, x, 0)),
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
    fn four_neighbours_per_element() {
        let layer = Resize { output: Pair::square(8), interpolation: Interpolation::Linear };
        assert_eq!(layer.output(&[shape(&[3, 4, 4])]), Ok(shape(&[3, 8, 8])));
        let c = cost(&layer, &[shape(&[3, 4, 4])], 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get(), c.written.get()), (8 * 192, 4 * 48, 4 * 192));
    }
}
