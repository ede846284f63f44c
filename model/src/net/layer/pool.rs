//! Windowed pooling.

use super::{LayerOp, Pair, ShapeError, Window, one_map};
use crate::base::precision::{Phase, named_enum};
use crate::base::shape::{Shape, product};
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

named_enum!(
    /// What a pooling window computes.
    PoolOp {
        /// The largest value.
        Max = "max",
        /// The mean.
        Avg = "avg",
    }
);

/// Max or average pooling with a sliding window.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool2d {
    /// Maximum or mean.
    pub op: PoolOp,
    /// Window size.
    pub kernel: Pair,
    /// Step; the window's size unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Pair>,
    /// Padding on each side, at most half the window.
    #[serde(default = "Pair::zero")]
    pub padding: Pair,
    /// Round the output size up.
    #[serde(default)]
    pub ceil: bool,
}

impl Pool2d {
    /// The window's geometry.
    pub fn window(&self) -> Window {
        Window {
            kernel: self.kernel,
            stride: self.stride.unwrap_or(self.kernel),
            padding: self.padding,
            dilation: Pair::one(),
            ceil: self.ceil,
        }
    }
}

impl LayerOp for Pool2d {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let (c, h, w) = one_map(inputs)?;
        if self.padding.h > self.kernel.h / 2 || self.padding.w > self.kernel.w / 2 {
            return Err(ShapeError::Field("padding is more than half the pooling window"));
        }
        let (oh, ow) = self.window().output(h, w)?;
        Ok(Shape::map(c, oh, ow)?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// One operation per window element. Backward reads the output's gradient and, for the maximum, input
    /// and output again to find where it came from; it writes the input's gradient.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.in_elements(), site.out_elements());
        let ops = product(&[y, self.kernel.area()]);
        match phase {
            Phase::Forward => Some(site.streaming(ops, x, y, 0)),
            Phase::BackwardData => {
                let read = match self.op {
                    PoolOp::Max => x.saturating_add(y.saturating_mul(2)),
                    PoolOp::Avg => y,
                };
                Some(site.streaming(ops, read, x, 0))
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
    fn pooling_is_not_free() {
        let pool =
            Pool2d { op: PoolOp::Max, kernel: Pair::square(2), stride: None, padding: Pair::zero(), ceil: false };
        let c = cost(&pool, &[shape(&[8, 4, 4])], 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get(), c.written.get()), (256, 1024, 256));
    }

    #[test]
    fn padding_beyond_half_the_window_is_refused() {
        let pool =
            Pool2d { op: PoolOp::Avg, kernel: Pair::square(2), stride: None, padding: Pair::square(2), ceil: true };
        assert!(pool.output(&[shape(&[8, 4, 4])]).is_err());
    }
}
