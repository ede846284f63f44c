//! Windowed pooling of volumes.

use super::conv3d::walk;
use super::{LayerOp, PoolOp, ShapeError, Triple, one_volume};
use crate::base::precision::Phase;
use crate::base::shape::{Shape, product};
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Max or average pooling with a window that slides over `[channels, depth, height, width]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool3d {
    /// Maximum or mean.
    pub op: PoolOp,
    /// Window size.
    pub kernel: Triple,
    /// Step; the window's size unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Triple>,
    /// Padding on each side, at most half the window.
    #[serde(default = "Triple::zero")]
    pub padding: Triple,
    /// Round the output size up.
    #[serde(default)]
    pub ceil: bool,
}

impl LayerOp for Pool3d {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let [c, size @ ..] = one_volume(inputs)?;
        let (k, p) = (self.kernel, self.padding);
        if p.d > k.d / 2 || p.h > k.h / 2 || p.w > k.w / 2 {
            return Err(ShapeError::Field("padding is more than half the pooling window"));
        }
        let [d, h, w] = walk(size, k, self.stride.unwrap_or(k), p, Triple::one(), self.ceil)?;
        Ok(Shape::new(&[c, d, h, w])?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// As [`super::Pool2d`].
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.in_elements(), site.out_elements());
        let ops = product(&[y, self.kernel.volume()]);
        match (phase, self.op) {
            (Phase::Forward, _) => Some(site.streaming(ops, x, y, 0)),
            (Phase::BackwardData, PoolOp::Max) => {
                Some(site.streaming(ops, x.saturating_add(y.saturating_mul(2)), x, 0))
            }
            (Phase::BackwardData, PoolOp::Avg) => Some(site.streaming(ops, y, x, 0)),
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
    fn padding_is_at_most_half_the_window_in_every_direction() {
        let pool = |padding: &str| {
            let fields = format!("kernel = 4\nstride = 2\npadding = {padding}");
            let layer = crate::net::layer::Layer::from_table("max_pool3d", fields.parse().expect("fields"));
            layer.expect("a kind").expect("a layer").output(&[shape(&[2, 8, 10, 12])])
        };
        assert_eq!(pool("[2, 2, 2]"), Ok(shape(&[2, 5, 6, 7])));
        for padding in ["[3, 2, 2]", "[2, 3, 2]", "[2, 2, 3]"] {
            assert!(pool(padding).is_err(), "{padding}");
        }
    }

    /// torchvision's s3d: MaxPool3d((3, 3, 3), (2, 2, 2), (1, 1, 1)) over 8 frames of 28x28.
    #[test]
    fn a_window_reads_several_frames() {
        let pool = Pool3d {
            op: PoolOp::Max,
            kernel: Triple::cube(3),
            stride: Some(Triple::cube(2)),
            padding: Triple::one(),
            ceil: false,
        };
        let input = [shape(&[4, 8, 28, 28])];
        assert_eq!(pool.output(&input), Ok(shape(&[4, 4, 14, 14])));
        let c = cost(&pool, &input, 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.ops.get(), 4 * 4 * 14 * 14 * 27);
        let wide = Pool3d { padding: Triple::cube(2), ..pool };
        assert!(wide.output(&input).is_err());
    }
}
