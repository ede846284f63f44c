//! Reduction of rows.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Mean, sum, maximum, norm or variance over the last dimension, which goes away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduce {
    /// Whether it is the rows' Euclidean norm, whose gradient is the row's direction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub norm: bool,
    /// Whether its result is in 32 bits under autocast: of a sum, as of a norm (aten/src/ATen/autocast_mode.h).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wide: bool,
    /// Whether it is the rows' variance, whose gradient is their distance from the mean.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub variance: bool,
}

impl LayerOp for Reduce {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        if self.norm && self.variance {
            return Err(ShapeError::Field("norm and variance exclude each other"));
        }
        match one(inputs)?.dims() {
            [_] => Ok(Shape::new(&[1])?),
            [rest @ .., _] => Ok(Shape::new(rest)?),
            [] => Err(ShapeError::Field("nothing to reduce")),
        }
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// One operation per input element; backward spreads the gradient. A norm's is `grad * (self / norm)`, with zeros where the
    /// norm is none: three kernels, taken together (pytorch/pytorch 2.11, torch/csrc/autograd/FunctionsManual.cpp, `norm_backward`).
    /// A variance's is `grad * (self - mean(self))` times a number: four (`var_backward` there), forward four operations per element.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.in_elements(), site.out_elements());
        match phase {
            Phase::Forward if self.variance => Some(site.streaming(x.saturating_mul(4), x, y, 0)),
            Phase::Forward => Some(site.streaming(x, x, y, 0)),
            Phase::BackwardData if self.variance => {
                let (read, small) = (x.saturating_mul(3), y.saturating_mul(4));
                Some(site.streaming(read, read.saturating_add(small), x.saturating_mul(2).saturating_add(small), 0))
            }
            Phase::BackwardData if self.norm => {
                let all = x.saturating_mul(3);
                Some(site.streaming(all, all.saturating_add(y), all, 0))
            }
            Phase::BackwardData => Some(site.streaming(x, y, x, 0)),
            Phase::BackwardWeights | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::super::{Layer, Saved};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn the_last_dimension_goes_away() {
        assert_eq!(Reduce::default().output(&[shape(&[768, 196])]), Ok(shape(&[768])));
        assert_eq!(Reduce::default().output(&[shape(&[768])]), Ok(shape(&[1])));
        let c = cost(&Reduce::default(), &[shape(&[8, 4])], 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.written.get()), (64, 64));
        let backward = |norm| {
            let c =
                cost(&Reduce { norm, ..Reduce::default() }, &[shape(&[8, 4])], 2, Phase::BackwardData, Mode::Inference)
                    .expect("runs");
            (c.read.get() / 4, c.written.get() / 4)
        };
        assert_eq!([false, true].map(backward), [(16, 64), (3 * 64 + 16, 3 * 64)]);
        assert!(Reduce { norm: true, variance: true, wide: false }.output(&[shape(&[8, 4])]).is_err());
        let variance = Reduce { variance: true, ..Reduce::default() };
        assert_eq!(Layer::Reduce(variance.clone()).saved(), Saved::Inputs, "distances from the mean");
        let [forward, backward] = [Phase::Forward, Phase::BackwardData]
            .map(|phase| cost(&variance, &[shape(&[8, 4])], 2, phase, Mode::Inference).expect("runs"));
        assert_eq!((forward.ops.get(), forward.read.get() / 4, forward.written.get() / 4), (256, 64, 16));
        // The mean, the distances, the factor of every row, the product.
        assert_eq!((backward.read.get() / 4, backward.written.get() / 4), (3 * 64 + 4 * 16, 2 * 64 + 4 * 16));
    }
}
