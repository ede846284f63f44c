//! The sizes of a convolution that a library's heuristics can look at.

use crate::base::precision::{Phase, Precision};
use crate::kernel::setting::{Algorithm, Layout};
use crate::kernel::work::Work;
use crate::net::layer::Layer;

/// Their names, in the order of [`ConvSizes`].
pub const NAMES: [&str; 34] = [
    "batch",
    "inputs",
    "outputs",
    "group_inputs",
    "group_outputs",
    "height",
    "width",
    "out_height",
    "out_width",
    "kernel_h",
    "kernel_w",
    "kernel",
    "stride",
    "padding_h",
    "padding_w",
    "groups",
    "rows",
    "depth",
    "pixels",
    "in_pixels",
    "products",
    "written",
    "read",
    "weights",
    "in_lanes",
    "out_lanes",
    "tiles_32",
    "tiles_64",
    "tiles_128",
    "tiles_256",
    "gradient_tiles",
    "aligned_inputs",
    "aligned_outputs",
    "dilation",
];

/// Sizes of a convolution's implicit product and of what it is made of: counts, none negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvSizes {
    /// In the order of [`NAMES`].
    pub values: [f64; NAMES.len()],
    /// Which kernel of the layer.
    pub phase: Phase,
    /// Format of the operands.
    pub precision: Precision,
}

impl ConvSizes {
    /// The size of a name of [`NAMES`].
    pub fn named(&self, name: &str) -> Option<f64> {
        NAMES.iter().position(|n| *n == name).map(|i| self.values[i])
    }

    /// Numbers that Fourier transforms of it keep, a group's weights once; none where no library transforms: of windows of one
    /// place or several steps apart, and over sequences.
    pub fn fourier_numbers(&self) -> f64 {
        let size = |name: &str| self.named(name).unwrap_or(0.0) as u64;
        if size("kernel") <= 1 || size("stride") > 1 || size("dilation") > 1 || size("height").min(size("width")) <= 1 {
            return 0.0;
        }
        let frequencies = frequencies(size("height") + 2 * size("padding_h"), size("width") + 2 * size("padding_w"));
        let weights = size("outputs") * size("group_inputs");
        let [images, results] = [size("inputs"), size("outputs")].map(|planes| planes * size("batch"));
        fourier_numbers(frequencies, images, weights, results) as f64
    }

    /// A size, by its place in [`NAMES`], of so many samples, where these sizes are of one.
    pub(crate) fn of_samples(&self, size: usize, samples: u64) -> f64 {
        const ROWS: usize = 16;
        let (one, samples) = (self.values[size], samples as f64);
        match size {
            0 | ROWS | 20..=22 | 24 | 25 => one * samples,
            26..=29 => {
                let tiles = |rows: f64| (rows / 128.0).ceil();
                one / tiles(self.values[ROWS]) * tiles(self.values[ROWS] * samples)
            }
            _ => one,
        }
    }

    /// Of a convolution whose engine the library chooses, with its maps in the usual order; `None` of everything else.
    pub fn of(work: &Work<'_>) -> Option<Self> {
        let Layer::Conv2d(conv) = work.layer() else { return None };
        let usual = work.layout == Layout::usual(work.precision) && work.algorithm == Algorithm::Heuristic;
        let ((inputs, height, width), (outputs, out_height, out_width)) =
            (work.input().as_map()?, work.output.as_map()?);
        if !usual || work.phase == Phase::Update {
            return None;
        }
        let groups = conv.groups(inputs).max(1);
        let (group_inputs, group_outputs) = (inputs / groups, outputs / groups);
        let kernel = conv.kernel.h * conv.kernel.w;
        let [pixels, in_pixels] = [out_height * out_width, height * width];
        let (rows, depth) = (work.batch * pixels, group_inputs * kernel);
        let aligned = |channels: u64| 1u64 << channels.trailing_zeros().min(12);
        let tiles = |columns: u64| rows.div_ceil(128) * group_outputs.div_ceil(columns) * groups;
        let values = [
            work.batch,
            inputs,
            outputs,
            group_inputs,
            group_outputs,
            height,
            width,
            out_height,
            out_width,
            conv.kernel.h,
            conv.kernel.w,
            kernel,
            conv.stride.h,
            conv.padding.h,
            conv.padding.w,
            groups,
            rows,
            depth,
            pixels,
            in_pixels,
            rows.saturating_mul(outputs).saturating_mul(depth),
            rows * outputs,
            work.batch * inputs * in_pixels,
            outputs * depth,
            work.batch * inputs,
            work.batch * outputs,
            tiles(32),
            tiles(64),
            tiles(128),
            tiles(256),
            group_outputs.div_ceil(128) * depth.div_ceil(128) * groups,
            aligned(group_inputs),
            aligned(group_outputs),
            conv.dilation.h,
        ];
        Some(Self { values: values.map(|v| v as f64), phase: work.phase, precision: work.precision })
    }
}

/// Shortest side of the whole one.
const SHORTEST_FFT: u64 = 16;

/// Frequencies of the Fourier transform of a padded map, half of them since it is real.
pub fn frequencies(height: u64, width: u64) -> u64 {
    let side = |size: u64| size.next_power_of_two().max(SHORTEST_FFT);
    side(height) * (side(width) / 2 + 1)
}

/// Numbers that Fourier transforms of so many planes of inputs and results keep, and of weights, which they keep twice.
pub fn fourier_numbers(frequencies: u64, images: u64, weights: u64, results: u64) -> u64 {
    let planes = images.saturating_add(weights.saturating_mul(2)).saturating_add(results);
    planes.saturating_mul(frequencies).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::base::shape::Shape;
    use crate::net::case::LayerCase;
    use crate::net::layer::{Conv2d, Groups, Pair};

    #[test]
    fn sizes_of_more_samples_are_those_of_each() {
        for (side, channels, groups) in [(14, 64, 1), (7, 96, 4), (1, 32, 32), (16, 8, 2)] {
            let conv = Conv2d {
                channels: 32,
                kernel: Pair::square(3),
                stride: Pair::square(1),
                padding: Pair::square(1),
                dilation: Pair::square(1),
                groups: Groups::Count(groups),
                bias: false,
            };
            let map = Shape::map(channels, side, side).expect("a shape");
            let of = |phase, batch| {
                let case = LayerCase { inputs: vec![map], layer: Layer::Conv2d(conv.clone()) };
                let work = Work::usual(case, phase, batch, Precision::Fp32, Mode::Training).expect("fits");
                ConvSizes::of(&work).expect("a convolution")
            };
            for phase in [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights] {
                let one = of(phase, 1);
                for samples in [1, 2, 3, 8, 127, 4096, 1 << 20] {
                    let each = of(phase, samples);
                    for (size, name) in NAMES.into_iter().enumerate() {
                        assert_eq!(one.of_samples(size, samples), each.values[size], "{name} of {samples}");
                    }
                }
            }
        }
    }
}
