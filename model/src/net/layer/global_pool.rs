//! Pooling over the whole map.

use super::{LayerOp, PoolOp, ShapeError, one_map};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// One value per channel: `[channels, 1, 1]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalPool2d {
    /// Maximum or mean.
    pub op: PoolOp,
}

impl LayerOp for GlobalPool2d {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let (c, _, _) = one_map(inputs)?;
        Ok(Shape::map(c, 1, 1)?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// One operation per input element; backward spreads (mean) or routes (maximum) the gradient.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.in_elements(), site.out_elements());
        match (phase, self.op) {
            (Phase::Forward, _) => Some(site.streaming(x, x, y, 0)),
            (Phase::BackwardData, PoolOp::Avg) => Some(site.streaming(x, y, x, 0)),
            (Phase::BackwardData, PoolOp::Max) => Some(site.streaming(x, x.saturating_add(y.saturating_mul(2)), x, 0)),
            (Phase::BackwardWeights | Phase::Update, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn reduces_each_channel_to_one_value() {
        let pool = GlobalPool2d { op: PoolOp::Avg };
        let input = shape(&[16, 7, 7]);
        assert_eq!(pool.output(&[input]), Ok(shape(&[16, 1, 1])));
        let c = cost(&pool, &[input], 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.written.get()), (784, 64));
    }
}
