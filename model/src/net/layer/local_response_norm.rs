//! Local response normalization across channels.

use super::{LayerOp, ShapeError, one_map};
use crate::base::precision::{Mode, Phase};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Divides by a power of the sum of squares over `size` neighbouring channels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalResponseNorm {
    /// Number of channels in the sum.
    #[serde(default = "five")]
    pub size: u64,
}

fn five() -> u64 {
    5
}

impl LocalResponseNorm {
    /// Operations per element: n multiply-adds over the window, one addition, one power, two for the quotient.
    pub fn ops_per_element(&self) -> u64 {
        self.size.saturating_add(4)
    }
}

impl LayerOp for LocalResponseNorm {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        if self.size == 0 {
            return Err(ShapeError::Field("size must be at least 1"));
        }
        let (c, h, w) = one_map(inputs)?;
        Ok(Shape::map(c, h, w)?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Training also writes the denominators; backward reads input, output, gradient and denominators.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.in_elements();
        let times = |k: u64| n.saturating_mul(k);
        match (phase, site.mode) {
            (Phase::Forward, Mode::Inference) => Some(site.streaming(times(self.ops_per_element()), n, n, 0)),
            (Phase::Forward, Mode::Training) => Some(site.streaming(times(self.ops_per_element()), n, times(2), 0)),
            (Phase::BackwardData, _) => {
                Some(site.streaming(times(self.ops_per_element().saturating_mul(2)), times(4), n, 0))
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
    fn nine_operations_per_element_for_size_five() {
        let c = cost(&LocalResponseNorm { size: 5 }, &[shape(&[96, 27, 27])], 1, Phase::Forward, Mode::Inference)
            .expect("runs");
        assert_eq!(c.ops.get(), 629_856);
    }
}
