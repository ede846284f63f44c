//! Layers that compute nothing: other shapes, orders and parts of a tensor, as views or as copies.

use super::{LayerOp, ShapeError, one};
use crate::base::precision::{Phase, Precision};
use crate::base::shape::Shape;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whether elements move to other places in memory: `true`, `false`, or where the maps that a network computes have their
/// channels first, or last, in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Copied {
    /// `false`: it is a view.
    #[default]
    Never,
    /// `true`.
    Always,
    /// `"channels_first"`.
    ChannelsFirst,
    /// `"channels_last"`.
    ChannelsLast,
}

impl Copied {
    /// What it is in a precision, whose usual order of maps is known.
    fn within(self, precision: Precision) -> Self {
        match (self, precision.channels_last()) {
            (Self::ChannelsFirst, false) | (Self::ChannelsLast, true) => Self::Always,
            (Self::ChannelsFirst, true) | (Self::ChannelsLast, false) => Self::Never,
            (either, _) => either,
        }
    }

    /// Whether anything moves, in one order of maps at least.
    pub fn moves(self) -> bool {
        self != Self::Never
    }
}

impl From<bool> for Copied {
    fn from(copy: bool) -> Self {
        if copy { Self::Always } else { Self::Never }
    }
}

impl Serialize for Copied {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Never => serializer.serialize_bool(false),
            Self::Always => serializer.serialize_bool(true),
            Self::ChannelsFirst => serializer.serialize_str("channels_first"),
            Self::ChannelsLast => serializer.serialize_str("channels_last"),
        }
    }
}

impl<'de> Deserialize<'de> for Copied {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "expected true, false, \"channels_first\" or \"channels_last\"";
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected true, false, \"channels_first\" or \"channels_last\"")]
        enum Either {
            Whether(bool),
            Word(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Whether(copy) => Ok(copy.into()),
            Either::Word(word) if word == "channels_first" => Ok(Self::ChannelsFirst),
            Either::Word(word) if word == "channels_last" => Ok(Self::ChannelsLast),
            Either::Word(word) => Err(serde::de::Error::custom(format!("copy is \"{word}\", {EXPECTED}"))),
        }
    }
}

/// Another shape of as many elements. A view, or with `copy` a kernel that moves every element to another place: windows
/// gathered, a map rolled, channels brought last.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reshape {
    /// The new dimensions; one may be -1: whatever is left.
    pub shape: Vec<i64>,
    /// Whether elements move.
    #[serde(default)]
    pub copy: Copied,
}

impl Reshape {
    /// The same in a network of a precision, where it is known whether elements move.
    pub fn within(&self, precision: Precision) -> Self {
        Self { shape: self.shape.clone(), copy: self.copy.within(precision) }
    }
}

/// The dimensions in another order. A view, or with `copy` a transposing kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permute {
    /// Which of the input's dimensions comes where; counted from 0, without the batch.
    pub order: Vec<usize>,
    /// Whether elements move.
    #[serde(default)]
    pub copy: bool,
}

/// A part of a tensor along one dimension, or all of it. A view, or with `copy` a kernel that closes the gaps between what a view
/// took, the dimensions in the order in which they lay.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Dimension, counted from 0, without the batch.
    pub axis: usize,
    /// First position.
    #[serde(default)]
    pub start: u64,
    /// Positions that are taken.
    pub size: u64,
    /// Distance between them.
    #[serde(default = "every")]
    pub step: u64,
    /// Whether elements move.
    #[serde(default)]
    pub copy: bool,
}

fn every() -> u64 {
    1
}

/// Nothing runs for a view, forward; for a copy every element of the output is read and written. The gradient of a view
/// is a view.
fn moved(copy: bool, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
    let n = site.out_elements();
    match phase {
        Phase::Forward | Phase::BackwardData if copy => Some(site.streaming(0, n, n, 0)),
        _ => None,
    }
}

impl LayerOp for Reshape {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        const MISFIT: ShapeError = ShapeError::Field("the new shape does not have as many elements");
        let elements = one(inputs)?.elements();
        let known = self.shape.iter().filter(|d| **d != -1).map(|d| u64::try_from(*d).ok().filter(|d| *d > 0));
        let known = known
            .collect::<Option<Vec<_>>>()
            .ok_or(ShapeError::Field("dimensions of the new shape are at least 1, or -1"))?;
        let product = crate::base::shape::product(&known);
        let free = self.shape.len() - known.len();
        if free > 1 || !elements.is_multiple_of(product) || (free == 0 && product != elements) {
            return Err(MISFIT);
        }
        let dims: Vec<u64> = self.shape.iter().map(|d| u64::try_from(*d).unwrap_or(elements / product)).collect();
        Ok(Shape::new(&dims)?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// See the module.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        moved(self.copy.moves(), phase, site)
    }
}

impl LayerOp for Permute {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        let dims = input.dims();
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        if sorted != (0..dims.len()).collect::<Vec<_>>() {
            return Err(ShapeError::Field("the order must name every dimension of the input once"));
        }
        Ok(Shape::new(&self.order.iter().map(|i| dims[*i]).collect::<Vec<_>>())?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// See the module.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        moved(self.copy, phase, site)
    }
}

impl LayerOp for Slice {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let input = one(inputs)?;
        let mut dims = input.dims().to_vec();
        let size = dims.get_mut(self.axis).ok_or(ShapeError::Field("the input has no such axis"))?;
        let last = self.size.checked_sub(1).and_then(|n| n.checked_mul(self.step)?.checked_add(self.start));
        if self.step == 0 || last.is_none_or(|last| last >= *size) {
            return Err(ShapeError::Field("the slice reaches beyond its input, or is empty"));
        }
        *size = self.size;
        Ok(Shape::new(&dims)?)
    }

    fn parameters(&self, _inputs: &[Shape]) -> u64 {
        0
    }

    /// Also the gradient of a view is a kernel: zeros around a copy. That of a copy of all is what comes.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        match phase {
            Phase::BackwardData if site.out_elements() == site.in_elements() => None,
            Phase::BackwardData => Some(site.streaming(0, site.out_elements(), site.in_elements(), 0)),
            _ => moved(self.copy, phase, site),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn one_dimension_takes_what_is_left() {
        let input = [shape(&[96, 56, 56])];
        let to = |dims: &[i64]| Reshape { shape: dims.to_vec(), copy: Copied::Never }.output(&input);
        assert_eq!(to(&[-1, 96]), Ok(shape(&[3136, 96])));
        assert_eq!(to(&[3136, 96]), Ok(shape(&[3136, 96])));
        for wrong in [&[-1, -1][..], &[-1, 97], &[3136, 95], &[0, -1], &[-2, 96], &[]] {
            assert!(to(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_view_is_free_and_a_copy_moves_every_element_twice() {
        let input = [shape(&[4, 6])];
        for copy in [false, true] {
            let layer = Permute { order: vec![1, 0], copy };
            assert_eq!(layer.output(&input), Ok(shape(&[6, 4])));
            let bytes = cost(&layer, &input, 2, Phase::Forward, Mode::Inference).map(|c| c.bytes().get());
            assert_eq!(bytes, copy.then_some(2 * 2 * 24 * 4));
        }
        assert!(Permute { order: vec![0, 0], copy: true }.output(&input).is_err());
    }

    #[test]
    fn a_copy_may_depend_on_the_order_of_maps() {
        let read = |copy: &str| -> Result<Reshape, toml::de::Error> {
            Reshape::deserialize(format!("shape = [6, 4]\ncopy = {copy}").parse::<toml::Table>().expect("a table"))
        };
        let moves = |copy: &str| {
            let layer = read(copy).expect("known");
            [Precision::Fp32, Precision::Tf32, Precision::Fp16].map(|p| layer.within(p).copy == Copied::Always)
        };
        assert_eq!(moves("true"), [true, true, true]);
        assert_eq!(moves("false"), [false, false, false]);
        assert_eq!(moves("\"channels_first\""), [true, true, false]);
        assert_eq!(moves("\"channels_last\""), [false, false, true]);
        for copy in ["true", "false", "\"channels_first\"", "\"channels_last\""] {
            let layer = read(copy).expect("known");
            let written = toml::to_string(&layer).expect("writable");
            assert!(written.contains(&format!("copy = {copy}")), "{written}");
        }
        let wrong = read("\"channels\"").expect_err("no such order").to_string();
        assert!(wrong.contains("copy is \"channels\", expected true, false, \"channels_first\""), "{wrong}");
    }

    #[test]
    fn a_slice_of_all_closes_gaps_and_its_gradient_is_what_comes() {
        let input = [shape(&[4, 6])];
        let bytes = |size, phase| {
            let slice = Slice { axis: 0, start: 0, size, step: 1, copy: true };
            cost(&slice, &input, 2, phase, Mode::Training).map(|c| c.bytes().get())
        };
        assert_eq!(bytes(4, Phase::Forward), Some(2 * 2 * 24 * 4));
        assert_eq!(bytes(4, Phase::BackwardData), None);
        assert_eq!(bytes(2, Phase::BackwardData), Some((2 * 12 + 2 * 24) * 4));
    }

    #[test]
    fn a_slice_stays_inside() {
        let input = [shape(&[197, 768])];
        let slice = |start, size, step| Slice { axis: 0, start, size, step, copy: false }.output(&input);
        assert_eq!(slice(0, 1, 1), Ok(shape(&[1, 768])));
        assert_eq!(slice(1, 98, 2), Ok(shape(&[98, 768])));
        assert!(slice(1, 99, 2).is_err());
        assert!(slice(197, 1, 1).is_err() && slice(0, 0, 1).is_err() && slice(0, 5, 0).is_err());
        assert!(Slice { axis: 2, start: 0, size: 1, step: 1, copy: false }.output(&input).is_err());
    }
}
