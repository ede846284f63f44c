//! Pooling to a given output size.

use super::{LayerOp, Pair, PoolOp, ShapeError, one_map};
use crate::base::precision::Phase;
use crate::base::shape::{Shape, greatest_divisor, product};
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Windows as PyTorch chooses them: position i of n over m covers floor(i m / n) to ceil((i + 1) m / n).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptivePool2d {
    /// Maximum or mean.
    pub op: PoolOp,
    /// Output height and width.
    pub output: Pair,
}

impl AdaptivePool2d {
    /// Whether its one window is the whole map.
    pub fn is_global(&self) -> bool {
        self.output.is(1)
    }
}

/// Total length of all windows along one direction.
fn covered(input: u64, output: u64) -> u64 {
    let (m, n) = (u128::from(input), u128::from(output));
    // Neighbouring windows share an element exactly where a window does not begin on a whole element.
    let shared = u128::from(greatest_divisor(input, output));
    u64::try_from(m + n - shared).unwrap_or(u64::MAX)
}

impl LayerOp for AdaptivePool2d {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let (c, _, _) = one_map(inputs)?;
        Ok(Shape::map(c, self.output.h, self.output.w)?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// One operation per window element; traffic as [`super::Pool2d`].
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (c, h, w) = site.input().as_map()?;
        let ops = product(&[site.batch, c, covered(h, self.output.h), covered(w, self.output.w)]);
        let (x, y) = (site.in_elements(), site.out_elements());
        match (phase, self.op) {
            (Phase::Forward, _) => Some(site.streaming(ops, x, y, 0)),
            (Phase::BackwardData, PoolOp::Avg) => Some(site.streaming(ops, y, x, 0)),
            (Phase::BackwardData, PoolOp::Max) => {
                Some(site.streaming(ops, x.saturating_add(y.saturating_mul(2)), x, 0))
            }
            (Phase::BackwardWeights | Phase::Update, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_lengths_equal_counting_them() {
        for m in 1..20u64 {
            for n in 1..20u64 {
                let counted: u64 = (0..n).map(|i| ((i + 1) * m).div_ceil(n) - i * m / n).sum();
                assert_eq!(covered(m, n), counted, "{m} -> {n}");
            }
        }
    }
}
