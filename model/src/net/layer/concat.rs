//! Concatenation along the channels.

use super::{LayerOp, ShapeError};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Joins maps of equal height and width along the channels, or rows along the last dimension, or any tensors along a
/// dimension that is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// Dimension, counted from 0, without the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<usize>,
}

impl LayerOp for Concat {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let (first, rest) = match inputs {
            [first, rest @ ..] if !rest.is_empty() => (first, rest),
            _ => return Err(ShapeError::Arity { expected: "two or more", found: inputs.len() }),
        };
        let usual = if first.as_map().is_some() { 0 } else { first.dims().len() - 1 };
        let joined = self.axis.unwrap_or(usual);
        if joined >= first.dims().len() {
            return Err(ShapeError::Field("the inputs have no such axis"));
        }
        let mut dims = first.dims().to_vec();
        for other in rest {
            let fits = other.dims().len() == dims.len()
                && dims.iter().zip(other.dims()).enumerate().all(|(i, (a, b))| i == joined || a == b);
            if !fits {
                return Err(ShapeError::Mismatch { first: *first, other: *other });
            }
            dims[joined] = dims[joined].saturating_add(other.dims()[joined]);
        }
        Ok(Shape::new(&dims)?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// A copy of every input; backward splits the gradient.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let n = site.out_elements();
        match phase {
            Phase::Forward | Phase::BackwardData => Some(site.streaming(0, n, n, 0)),
            Phase::BackwardWeights | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::shape;
    use super::*;

    #[test]
    fn channels_add_up() {
        let joined = Concat::default().output(&[shape(&[64, 28, 28]), shape(&[128, 28, 28])]);
        assert_eq!(joined, Ok(shape(&[192, 28, 28])));
        assert!(Concat::default().output(&[shape(&[64, 28, 28]), shape(&[64, 14, 14])]).is_err());
        assert!(Concat::default().output(&[shape(&[64, 28, 28])]).is_err());
        let tokens = Concat { axis: Some(0) }.output(&[shape(&[1, 768]), shape(&[196, 768])]);
        assert_eq!(tokens, Ok(shape(&[197, 768])));
        assert!(Concat { axis: Some(2) }.output(&[shape(&[1, 8]), shape(&[1, 8])]).is_err());
    }
}
