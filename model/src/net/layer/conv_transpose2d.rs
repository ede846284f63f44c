//! Transposed two-dimensional convolution, also called deconvolution.

use super::{Conv2d, Groups, LayerOp, Pair, ShapeError, one_map};
use crate::base::precision::Phase;
use crate::base::shape::{Shape, product};
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// The map whose convolution has the input's shape: forward is what a convolution's gradient of its input is, and the
/// other way round. `[channels, height, width]` to `channels` channels and, per direction,
/// (in - 1) stride - 2 padding + dilation (kernel - 1) + 1 + output padding elements (PyTorch's rule, and ONNX's).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvTranspose2d {
    /// Output channels.
    pub channels: u64,
    /// Window size.
    pub kernel: Pair,
    /// Distance of the windows in the output.
    #[serde(default = "Pair::one")]
    pub stride: Pair,
    /// How many elements of the output are cut off on each side.
    #[serde(default = "Pair::zero")]
    pub padding: Pair,
    /// Elements that the output has more on one side.
    #[serde(default = "Pair::zero")]
    pub output_padding: Pair,
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

impl ConvTranspose2d {
    /// Number of groups for that many input channels.
    pub fn groups(&self, channels_in: u64) -> u64 {
        match self.groups {
            Groups::Count(n) => n,
            Groups::Depthwise => channels_in,
        }
    }

    /// The convolution from its output to its input, without a bias, whose kernels it runs.
    pub fn mirrored(&self, channels_in: u64) -> Conv2d {
        Conv2d {
            channels: channels_in,
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
            groups: Groups::Count(self.groups(channels_in)),
            bias: false,
        }
    }

    /// Weights that every element of the input is multiplied by: output channels per group times the window.
    fn spread(&self, channels_in: u64) -> u64 {
        product(&[self.channels / self.groups(channels_in).max(1), self.kernel.h, self.kernel.w])
    }

    fn weights(&self, channels_in: u64) -> u64 {
        channels_in.saturating_mul(self.spread(channels_in))
    }

    fn biases(&self) -> u64 {
        if self.bias { self.channels } else { 0 }
    }
}

/// Output elements along one direction.
fn extent(size: u64, k: u64, s: u64, p: u64, more: u64, d: u64) -> Result<u64, ShapeError> {
    if k == 0 || s == 0 || d == 0 {
        return Err(ShapeError::Field("kernel, stride and dilation must be at least 1"));
    }
    if more >= s.max(d).max(2) {
        return Err(ShapeError::Field("output_padding must be smaller than stride or dilation"));
    }
    let all = (size - 1)
        .checked_mul(s)
        .zip((k - 1).checked_mul(d))
        .and_then(|(a, b)| a.checked_add(b)?.checked_add(1 + more));
    let cut = p.checked_mul(2);
    let left = all.zip(cut).and_then(|(all, cut)| all.checked_sub(cut)).filter(|left| *left > 0);
    left.ok_or(ShapeError::Field("padding cuts off all of the output"))
}

impl LayerOp for ConvTranspose2d {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let (c, h, w) = one_map(inputs)?;
        let groups = self.groups(c);
        for channels in [c, self.channels] {
            if groups == 0 || channels % groups != 0 {
                return Err(ShapeError::Groups { groups, channels });
            }
        }
        let Self { kernel: k, stride: s, padding: p, output_padding: more, dilation: d, .. } = self;
        let height = extent(h, k.h, s.h, p.h, more.h, d.h)?;
        let width = extent(w, k.w, s.w, p.w, more.w, d.w)?;
        Ok(Shape::map(self.channels, height, width)?)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        self.weights(inputs.first().map_or(0, Shape::axis)).saturating_add(self.biases())
    }

    /// Every element of the input times every weight that it meets; see [`Site::weighted`].
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let channels_in = site.input().axis();
        let factors = [site.in_elements(), self.spread(channels_in)];
        site.weighted(phase, &factors, self.weights(channels_in), self.biases())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    fn layer(kernel: u64, stride: u64, padding: u64, more: u64) -> ConvTranspose2d {
        ConvTranspose2d {
            channels: 6,
            kernel: Pair::square(kernel),
            stride: Pair::square(stride),
            padding: Pair::square(padding),
            output_padding: Pair::square(more),
            dilation: Pair::one(),
            groups: Groups::Count(2),
            bias: true,
        }
    }

    /// Every result's convolution has the input's shape; U-Net doubles, DCGAN goes from 1 to 4 and doubles.
    #[test]
    fn a_convolution_leads_back() -> Result<(), ShapeError> {
        for (layer, size, expected) in [
            (layer(2, 2, 0, 0), 28, 56),
            (layer(4, 1, 0, 0), 1, 4),
            (layer(4, 2, 1, 0), 4, 8),
            (layer(3, 2, 1, 1), 7, 14),
            (layer(64, 32, 16, 0), 16, 512),
        ] {
            let input = shape(&[4, size, size]);
            let output = layer.output(&[input])?;
            assert_eq!(output, shape(&[6, expected, expected]), "{layer:?}");
            assert_eq!(layer.mirrored(4).output(&[output])?, input, "{layer:?}");
        }
        assert!(layer(3, 1, 1, 0).output(&[shape(&[4, 1, 1])]).is_ok());
        assert!(layer(3, 1, 2, 0).output(&[shape(&[4, 1, 1])]).is_err());
        assert!(layer(3, 2, 0, 2).output(&[shape(&[4, 2, 2])]).is_err());
        Ok(())
    }

    /// Forward moves and multiplies what the gradient of a convolution's input does, and the other way round.
    #[test]
    fn each_phase_is_a_phase_of_the_mirrored_convolution() {
        let layer = ConvTranspose2d { bias: false, ..layer(3, 2, 1, 1) };
        let (input, output) = (shape(&[4, 7, 7]), shape(&[6, 14, 14]));
        let mirrored = layer.mirrored(4);
        assert_eq!(layer.parameters(&[input]), mirrored.parameters(&[output]));
        for (own, other) in [
            (Phase::Forward, Phase::BackwardData),
            (Phase::BackwardData, Phase::Forward),
            (Phase::BackwardWeights, Phase::BackwardWeights),
        ] {
            let a = cost(&layer, &[input], 3, own, Mode::Training);
            assert_eq!(a, cost(&mirrored, &[output], 3, other, Mode::Training), "{own}");
        }
    }

    #[test]
    fn no_window_stride_or_dilation_is_zero() {
        for (k, s, d) in [(0, 2, 1), (3, 0, 1), (3, 2, 0)] {
            assert!(extent(8, k, s, 1, 0, d).is_err(), "{k} {s} {d}");
        }
        assert_eq!(extent(8, 3, 2, 1, 1, 1).ok(), Some(16));
    }
}
