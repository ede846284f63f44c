//! Two-dimensional convolution.

use super::{LayerOp, Pair, ShapeError, Window, one_map};
use crate::base::precision::Phase;
use crate::base::shape::{Shape, product};
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Convolution over `[channels, height, width]`; the result has `channels` channels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Output channels.
    pub channels: u64,
    /// Window size.
    pub kernel: Pair,
    /// Step.
    #[serde(default = "Pair::one")]
    pub stride: Pair,
    /// Zeros on each side.
    #[serde(default = "Pair::zero")]
    pub padding: Pair,
    /// Distance between window elements.
    #[serde(default = "Pair::one")]
    pub dilation: Pair,
    /// Channel groups.
    #[serde(default)]
    pub groups: Groups,
    /// Whether a bias per output channel is added.
    #[serde(default = "super::linear::yes")]
    pub bias: bool,
}

/// Into how many groups the channels fall: a number, or `"depthwise"` for one per input channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Groups {
    /// So many.
    Count(u64),
    /// One per input channel.
    Depthwise,
}

impl Default for Groups {
    fn default() -> Self {
        Self::Count(1)
    }
}

impl Serialize for Groups {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(n) => n.serialize(serializer),
            Self::Depthwise => "depthwise".serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Groups {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a whole number or \"depthwise\"")]
        enum Either {
            Count(u64),
            Word(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Count(n) => Ok(Self::Count(n)),
            Either::Word(w) if w == "depthwise" => Ok(Self::Depthwise),
            Either::Word(w) => {
                Err(serde::de::Error::custom(format!("groups is \"{w}\", expected a whole number or \"depthwise\"")))
            }
        }
    }
}

impl Conv2d {
    /// The window's geometry.
    pub fn window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, padding: self.padding, dilation: self.dilation, ceil: false }
    }

    /// Number of groups for that many input channels.
    pub fn groups(&self, channels_in: u64) -> u64 {
        match self.groups {
            Groups::Count(n) => n,
            Groups::Depthwise => channels_in,
        }
    }

    /// Elements of one filter: input channels per group times the window.
    pub fn filter(&self, channels_in: u64) -> u64 {
        let groups = self.groups(channels_in).max(1);
        product(&[channels_in / groups, self.kernel.h, self.kernel.w])
    }

    fn weights(&self, channels_in: u64) -> u64 {
        self.channels.saturating_mul(self.filter(channels_in))
    }

    fn biases(&self) -> u64 {
        if self.bias { self.channels } else { 0 }
    }
}

impl LayerOp for Conv2d {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let (c, h, w) = one_map(inputs)?;
        let groups = self.groups(c);
        for channels in [c, self.channels] {
            if groups == 0 || channels % groups != 0 {
                return Err(ShapeError::Groups { groups, channels });
            }
        }
        let (oh, ow) = self.window().output(h, w)?;
        Ok(Shape::map(self.channels, oh, ow)?)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        let channels_in = inputs.first().map_or(0, Shape::axis);
        self.weights(channels_in).saturating_add(self.biases())
    }

    /// See [`Site::weighted`]: the two backward phases are convolutions of the same size.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let channels_in = site.input().axis();
        let factors = [site.out_elements(), self.filter(channels_in)];
        site.weighted(phase, &factors, self.weights(channels_in), self.biases())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    #[test]
    fn groups_are_a_number_or_one_word() {
        let read = |text: &str| toml::from_str::<Conv2d>(&format!("channels = 8\nkernel = 3\ngroups = {text}"));
        assert!(read("2").is_ok_and(|conv| conv.groups == Groups::Count(2)));
        assert!(read("\"depthwise\"").is_ok_and(|conv| conv.groups == Groups::Depthwise));
        let error = read("\"depth\"").expect_err("no such word").to_string();
        assert!(error.contains("groups is \"depth\""), "{error}");
    }

    fn conv(channels: u64, kernel: u64, groups: Groups) -> Conv2d {
        Conv2d {
            channels,
            kernel: Pair::square(kernel),
            stride: Pair::one(),
            padding: Pair::zero(),
            dilation: Pair::one(),
            groups,
            bias: false,
        }
    }

    /// Counts multiply-accumulates with nested loops, the way a direct convolution runs.
    fn count_macs(layer: &Conv2d, input: Shape, batch: u64) -> u64 {
        let output = layer.output(&[input]).expect("fits");
        let (c, _, _) = input.as_map().expect("map");
        let groups = layer.groups(c);
        let mut macs = 0;
        for _ in 0..batch * output.elements() {
            for _ in 0..c / groups {
                for _ in 0..layer.kernel.h {
                    for _ in 0..layer.kernel.w {
                        macs += 1;
                    }
                }
            }
        }
        macs
    }

    #[test]
    fn macs_equal_the_nested_loops() {
        for (layer, input) in [
            (conv(4, 3, Groups::Count(1)), shape(&[2, 6, 5])),
            (conv(4, 3, Groups::Count(2)), shape(&[6, 5, 5])),
            (conv(6, 1, Groups::Depthwise), shape(&[6, 4, 4])),
        ] {
            let forward = cost(&layer, &[input], 3, Phase::Forward, Mode::Inference).expect("runs");
            assert_eq!(forward.macs, count_macs(&layer, input, 3), "{layer:?}");
        }
    }

    #[test]
    fn vgg_conv1_1_moves_input_filter_and_output_once() {
        let layer = Conv2d { padding: Pair::one(), bias: true, ..conv(64, 3, Groups::Count(1)) };
        let c = cost(&layer, &[shape(&[3, 224, 224])], 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.read.get(), 4 * (3 * 224 * 224 + 64 * 27 + 64));
        assert_eq!(c.written.get(), 4 * 64 * 224 * 224);
        assert_eq!(layer.parameters(&[shape(&[3, 224, 224])]), 1792);
    }

    #[test]
    fn groups_must_divide_both_channel_counts() {
        assert!(conv(4, 1, Groups::Count(3)).output(&[shape(&[6, 4, 4])]).is_err());
        assert!(conv(6, 1, Groups::Count(4)).output(&[shape(&[6, 4, 4])]).is_err());
        assert!(conv(6, 1, Groups::Count(0)).output(&[shape(&[6, 4, 4])]).is_err());
    }
}
