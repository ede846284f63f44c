//! Conversions between 32 bits and a network's precision.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::{Phase, named_enum};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

named_enum!(
    /// What a conversion makes.
    Width {
        /// Values of 32 bits, as `.float()` does; so are results of what reads them.
        Wide = "wide",
        /// Values in the type that the region had before it was wide: in inference in the network's precision.
        Narrow = "narrow",
    }
);

/// A place where a module computes in 32 bits, or where that ends. Nothing runs in networks of 32 bits; in others a kernel of its
/// own wherever the type differs (`step/autocast.rs`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cast {
    /// What it makes.
    pub to: Width,
}

impl LayerOp for Cast {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        one(inputs)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// None of its own: whether a kernel runs depends on what the layers before it make.
    fn cost(&self, _phase: Phase, _site: &Site<'_>) -> Option<LayerCost> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn shapes_stay_and_nothing_runs_by_itself() {
        let cast = Cast { to: Width::Wide };
        assert_eq!(cast.output(&[shape(&[8, 4])]), Ok(shape(&[8, 4])));
        assert!(cast.output(&[shape(&[8]), shape(&[8])]).is_err());
        assert!(cost(&cast, &[shape(&[8, 4])], 2, Phase::Forward, Mode::Inference).is_none());
    }
}
