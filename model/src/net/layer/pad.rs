//! Padding that a convolution cannot express.

use super::{LayerOp, ShapeError, one_map};
use crate::base::precision::Phase;
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Adds rows and columns around a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Rows above and below, columns left and right.
    #[serde(deserialize_with = "four_sides")]
    pub padding: [u64; 4],
    /// Whether they mirror the map (`reflect` of ONNX and PyTorch) instead of being zeros.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mirrors: bool,
}

/// Readers of TOML take the first of more numbers than an array holds.
fn four_sides<'de, D: Deserializer<'de>>(sides: D) -> Result<[u64; 4], D::Error> {
    let sides = Vec::<u64>::deserialize(sides)?;
    sides.try_into().map_err(|sides: Vec<u64>| D::Error::invalid_length(sides.len(), &"four sides"))
}

impl LayerOp for Pad {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let (c, h, w) = one_map(inputs)?;
        let [top, bottom, left, right] = self.padding;
        let within = |size: u64, a: u64, b: u64| a.max(b) < size;
        if self.mirrors && !(within(h, top, bottom) && within(w, left, right)) {
            return Err(ShapeError::Mirror { padding: self.padding, height: h, width: w });
        }
        let grow = |size: u64, a: u64, b: u64| size.saturating_add(a).saturating_add(b);
        Ok(Shape::map(c, grow(h, top, bottom), grow(w, left, right))?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// A copy; backward copies the inner part of the gradient.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let (x, y) = (site.in_elements(), site.out_elements());
        match phase {
            Phase::Forward => Some(site.streaming(0, x, y, 0)),
            Phase::BackwardData => Some(site.streaming(0, x, x, 0)),
            Phase::BackwardWeights | Phase::Update => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Layer;
    use super::super::testing::shape;
    use super::*;

    #[test]
    fn there_are_four_sides() {
        let pad = |sides: &str| Layer::from_table("pad", format!("padding = {sides}").parse().expect("a table"));
        assert!(pad("[1, 1, 1, 1]").is_some_and(|pad| pad.is_ok()));
        for sides in ["[1, 1]", "[1, 1, 1, 1, 1]", "[1, 1, 1, 1, \"x\"]"] {
            assert!(pad(sides).is_some_and(|pad| pad.is_err()), "{sides}");
        }
    }

    #[test]
    fn sides_grow_separately() {
        let pad = Pad { padding: [0, 1, 2, 3], mirrors: false };
        assert_eq!(pad.output(&[shape(&[3, 10, 10])]), Ok(shape(&[3, 11, 15])));
        assert!(Pad { padding: [u64::MAX; 4], mirrors: false }.output(&[shape(&[3, 10, 10])]).is_err());
        // A mirror has no more rows to show than lie before it, but for the edge.
        let mirror = |padding| Pad { padding, mirrors: true }.output(&[shape(&[3, 10, 12])]);
        assert_eq!(mirror([9, 0, 0, 11]), Ok(shape(&[3, 19, 23])));
        assert!(mirror([10, 0, 0, 0]).is_err() && mirror([0, 0, 0, 12]).is_err());
    }
}
