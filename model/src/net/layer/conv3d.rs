//! Three-dimensional convolution, over frames or slices.

use super::window::positions;
use super::{Conv2d, Groups, LayerOp, Pair, ShapeError, one_volume};
use crate::base::precision::Phase;
use crate::base::shape::{Shape, product};
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A size for the three directions of a volume, `[depth, vertical, horizontal]`; one number in a file means all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Triple {
    /// From frame to frame, or slice to slice.
    pub d: u64,
    /// Vertical.
    pub h: u64,
    /// Horizontal.
    pub w: u64,
}

impl Triple {
    /// The same size in all directions.
    pub const fn cube(size: u64) -> Self {
        Self { d: size, h: size, w: size }
    }
    /// Number of positions.
    pub fn volume(self) -> u64 {
        product(&[self.d, self.h, self.w])
    }
    /// Within a frame.
    pub fn flat(self) -> Pair {
        Pair { h: self.h, w: self.w }
    }
    pub(super) fn one() -> Self {
        Self::cube(1)
    }
    pub(super) fn zero() -> Self {
        Self::cube(0)
    }
}

impl Serialize for Triple {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.d, self.h, self.w].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Triple {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a whole number or [depth, vertical, horizontal]")]
        enum Either {
            All(u64),
            Each([u64; 3]),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::All(size) => Self::cube(size),
            Either::Each([d, h, w]) => Self { d, h, w },
        })
    }
}

/// Positions of a window over `[depth, height, width]`; see [`super::Window::output`].
pub(super) fn walk(
    size: [u64; 3],
    kernel: Triple,
    stride: Triple,
    padding: Triple,
    dilation: Triple,
    ceil: bool,
) -> Result<[u64; 3], ShapeError> {
    Ok([
        positions(size[0], kernel.d, stride.d, padding.d, dilation.d, ceil)?,
        positions(size[1], kernel.h, stride.h, padding.h, dilation.h, ceil)?,
        positions(size[2], kernel.w, stride.w, padding.w, dilation.w, ceil)?,
    ])
}

/// Convolution over `[channels, depth, height, width]`; the result has `channels` channels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv3d {
    /// Output channels.
    pub channels: u64,
    /// Window size.
    pub kernel: Triple,
    /// Step.
    #[serde(default = "Triple::one")]
    pub stride: Triple,
    /// Zeros on each side.
    #[serde(default = "Triple::zero")]
    pub padding: Triple,
    /// Distance between window elements.
    #[serde(default = "Triple::one")]
    pub dilation: Triple,
    /// Channel groups.
    #[serde(default)]
    pub groups: Groups,
    /// Whether a bias per output channel is added.
    #[serde(default = "super::linear::yes")]
    pub bias: bool,
}

impl Conv3d {
    /// Number of groups for that many input channels.
    pub fn groups(&self, channels_in: u64) -> u64 {
        match self.groups {
            Groups::Count(n) => n,
            Groups::Depthwise => channels_in,
        }
    }

    /// A convolution over maps with as many products per frame of the result: the frames under the window lie below
    /// each other. With windows of one frame it computes just the same.
    pub fn per_frame(&self) -> Conv2d {
        let high = |frames: u64, pair: Pair| Pair { h: pair.h.saturating_mul(frames), w: pair.w };
        Conv2d {
            channels: self.channels,
            kernel: high(self.kernel.d, self.kernel.flat()),
            stride: high(self.kernel.d, self.stride.flat()),
            padding: high(self.kernel.d, self.padding.flat()),
            dilation: self.dilation.flat(),
            groups: self.groups,
            bias: self.bias,
        }
    }

    fn filter(&self, channels_in: u64) -> u64 {
        product(&[channels_in / self.groups(channels_in).max(1), self.kernel.volume()])
    }

    fn weights(&self, channels_in: u64) -> u64 {
        self.channels.saturating_mul(self.filter(channels_in))
    }

    fn biases(&self) -> u64 {
        if self.bias { self.channels } else { 0 }
    }
}

/// Channels of a volume.
fn channels(input: Option<&Shape>) -> u64 {
    input.and_then(|s| s.dims().first().copied()).unwrap_or(0)
}

impl LayerOp for Conv3d {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let [c, size @ ..] = one_volume(inputs)?;
        let groups = self.groups(c);
        for channels in [c, self.channels] {
            if groups == 0 || channels % groups != 0 {
                return Err(ShapeError::Groups { groups, channels });
            }
        }
        let [d, h, w] = walk(size, self.kernel, self.stride, self.padding, self.dilation, false)?;
        Ok(Shape::new(&[self.channels, d, h, w])?)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        self.weights(channels(inputs.first())).saturating_add(self.biases())
    }

    /// See [`Site::weighted`]: the two backward phases are convolutions of the same size.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let channels_in = channels(site.inputs.first());
        let factors = [site.out_elements(), self.filter(channels_in)];
        site.weighted(phase, &factors, self.weights(channels_in), self.biases())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    fn conv(kernel: Triple, stride: Triple, padding: Triple) -> Conv3d {
        let (dilation, groups) = (Triple::one(), Groups::default());
        Conv3d { channels: 64, kernel, stride, padding, dilation, groups, bias: false }
    }

    /// torchvision's r3d_18: Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3)) over 16 frames of 112x112.
    #[test]
    fn the_stem_of_r3d_18() {
        let stem = conv(Triple { d: 3, h: 7, w: 7 }, Triple { d: 1, h: 2, w: 2 }, Triple { d: 1, h: 3, w: 3 });
        let input = [shape(&[3, 16, 112, 112])];
        assert_eq!(stem.output(&input), Ok(shape(&[64, 16, 56, 56])));
        assert_eq!(stem.parameters(&input), 64 * 3 * 3 * 7 * 7);
        let c = cost(&stem, &input, 2, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.macs, 2 * 64 * 16 * 56 * 56 * (3 * 3 * 7 * 7));
    }

    #[test]
    fn windows_of_one_frame_are_a_convolution_per_frame() {
        let flat = |size| Triple { d: 1, h: size, w: size };
        let volume = conv(flat(3), flat(2), Triple { d: 0, h: 1, w: 1 });
        let (input, frame) = ([shape(&[8, 5, 14, 14])], [shape(&[8, 14, 14])]);
        let run = |mode, phase| {
            let a = cost(&volume, &input, 2, phase, mode).expect("runs");
            let b = cost(&volume.per_frame(), &frame, 2 * 5, phase, mode).expect("runs");
            assert_eq!((a.ops, a.read, a.written), (b.ops, b.read, b.written), "{phase}");
        };
        run(Mode::Inference, Phase::Forward);
        for phase in [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights] {
            run(Mode::Training, phase);
        }
    }
}
