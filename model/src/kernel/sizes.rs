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
