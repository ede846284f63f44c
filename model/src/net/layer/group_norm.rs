//! Group normalization.

use super::layer_norm::normalized;
use super::{LayerOp, ShapeError, one};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Normalization of each sample over groups of channels and all their positions (Wu and He 2018), with a learned scale and
/// shift per channel; of `[channels, ...]`. As many groups as channels are an instance normalization.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupNorm {
    /// Groups of channels, which divide them.
    pub groups: u64,
    /// Learned scale and shift per channel.
    #[serde(default = "super::linear::yes")]
    pub affine: bool,
}

impl LayerOp for GroupNorm {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        match input.dims().first() {
            Some(channels) if self.groups > 0 && channels.is_multiple_of(self.groups) => Ok(input),
            channels => Err(ShapeError::Groups { groups: self.groups, channels: channels.copied().unwrap_or(0) }),
        }
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        let channels = inputs.first().and_then(|s| s.dims().first()).copied().unwrap_or(0);
        if self.affine { channels.saturating_mul(2) } else { 0 }
    }

    /// As of a layer norm, but groups are too large to stay on chip: the input is read for its moments and once more.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        normalized(phase, site, if self.affine { 7 } else { 5 }, self.parameters(site.inputs), 2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn moments_of_a_group_are_read_before_it_is_normalized() {
        let norm = GroupNorm { groups: 32, affine: true };
        let input = [shape(&[128, 8, 8])];
        assert_eq!(norm.parameters(&input), 256);
        let c = cost(&norm, &input, 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!((c.ops.get(), c.read.get(), c.written.get()), (7 * 16384, 4 * (2 * 16384 + 256), 4 * 16384));
        let plain = GroupNorm { groups: 1, affine: false };
        let c = cost(&plain, &input, 2, Phase::BackwardData, Mode::Training).expect("runs");
        assert_eq!((plain.parameters(&input), c.read.get()), (0, 16 * 16384));
        assert!(cost(&norm, &input, 2, Phase::BackwardWeights, Mode::Training).is_none());
    }

    #[test]
    fn groups_divide_the_channels() {
        let of = |groups| GroupNorm { groups, affine: true }.output(&[shape(&[96, 4, 4])]);
        assert_eq!(of(32), Ok(shape(&[96, 4, 4])));
        assert!(of(0).is_err() && of(36).is_err());
        assert_eq!(GroupNorm { groups: 1, affine: true }.output(&[shape(&[512, 99])]), Ok(shape(&[512, 99])));
    }
}
