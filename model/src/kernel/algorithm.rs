//! Convolutions by an algorithm that somebody asks for: which can be, what scratch memory that takes, and under which
//! name its models are kept.

use crate::base::shape::Shape;
use crate::base::units::{Bytes, Ops};
use crate::kernel::load::Load;
use crate::kernel::setting::Algorithm;
use crate::kernel::sizes::{fourier_numbers, frequencies};
use crate::net::layer::{Conv2d, Layer};

/// Size of a single-precision number: algorithms are known in fp32.
const WIDTH: u64 = 4;
/// Side of the tiles of the tiled Fourier transform.
const FFT_TILE: u64 = 32;
/// Operations of a complex multiply-accumulate.
const COMPLEX: u64 = 8;
/// Results and values of a Winograd tile, F(4x4, 3x3).
const WINOGRAD: (u64, u64) = (4, 36);

impl Algorithm {
    /// Whether it can compute a layer: Winograd's does 3x3 windows and the Fourier transforms windows of any size, with
    /// stride 1, neither dilated nor grouped.
    pub fn supports(self, layer: &Layer, inputs: &[Shape]) -> bool {
        let Layer::Conv2d(conv) = layer else { return self == Self::Heuristic };
        let plain = conv.groups(inputs.first().map_or(1, Shape::axis)) == 1 && conv.dilation.is(1);
        match self {
            Self::Heuristic => true,
            Self::Gemm | Self::ImplicitGemm | Self::ImplicitPrecompGemm => plain,
            Self::Fft | Self::FftTiling => plain && conv.stride.is(1) && conv.kernel.area() > 1,
            Self::Winograd | Self::WinogradNonfused => plain && conv.stride.is(1) && conv.kernel.is(3),
        }
    }

    /// Scratch memory of a convolution in fp32: explicit products' matrix of patches (cuDNN takes it sample by sample in
    /// half of the cases, and asks for nothing); Fourier transforms of inputs, results and, twice, weights, half of them since they are real; Winograd's transformed inputs,
    /// results and weights. On an H200 cuDNN 9 asks for as much (`tests/algorithms.rs`).
    pub fn workspace(self, conv: &Conv2d, input: &Shape, output: &Shape, batch: u64) -> Bytes {
        self.plan(conv, input, output, batch).map_or(Bytes::ZERO, |plan| Bytes::new(plan.numbers * WIDTH))
    }

    /// What it does in place of the direct convolution.
    fn plan(self, conv: &Conv2d, input: &Shape, output: &Shape, batch: u64) -> Option<Plan> {
        let (channels, height, width) = input.as_map()?;
        let (features, out_height, out_width) = output.as_map()?;
        let (images, weights, results) = (batch * channels, channels * features, batch * features);
        let products = batch * weights;
        match self {
            Self::Gemm => {
                let patches = conv.kernel.area() * out_height * out_width;
                Some(Plan { ops: None, numbers: images * patches })
            }
            Self::Fft => {
                let frequencies = frequencies(height + 2 * conv.padding.h, width + 2 * conv.padding.w);
                let numbers = fourier_numbers(frequencies, images, weights, results);
                Some(Plan { ops: Some(COMPLEX * frequencies * products), numbers })
            }
            Self::FftTiling => {
                let tiles = |size: u64, window: u64| size.div_ceil((FFT_TILE + 1).saturating_sub(window).max(1));
                let count = tiles(out_height, conv.kernel.h) * tiles(out_width, conv.kernel.w);
                let frequencies = FFT_TILE * (FFT_TILE / 2 + 1);
                let numbers = 2 * frequencies * (count * (images + results) + weights);
                Some(Plan { ops: Some(COMPLEX * frequencies * count * products), numbers })
            }
            Self::WinogradNonfused => {
                let (side, values) = WINOGRAD;
                let tiles = out_height.div_ceil(side) * out_width.div_ceil(side);
                let numbers = values * (tiles * (images + results) + weights);
                Some(Plan { ops: Some(2 * values * tiles * products), numbers })
            }
            _ => None,
        }
    }
}

/// Work of an algorithm.
struct Plan {
    /// Operations of its products, where they are not the direct ones.
    ops: Option<u64>,
    /// Numbers in scratch memory, written once and read once.
    numbers: u64,
}

impl Load<'_> {
    /// By the algorithm that was asked for: its own products, and what it puts into scratch memory and takes from there.
    /// Explicit products are left as they are: where their patches lie is the library's secret.
    pub(super) fn by_algorithm(&mut self) {
        let work = &self.work;
        let Layer::Conv2d(conv) = work.layer() else { return };
        if work.algorithm == Algorithm::Heuristic {
            return;
        }
        let plan = work.algorithm.plan(conv, &work.input(), &work.output, work.batch);
        if let (Some(Plan { ops: Some(ops), numbers }), Some(peak)) = (plan, self.gpu.peak_on(work.precision)) {
            self.roofline.compute = Ops::new(ops) / peak;
            self.roofline.second += Bytes::new(2 * numbers * WIDTH) / self.memory.bandwidth;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::layer::LayerOp;

    fn conv(fields: &str) -> Layer {
        Layer::from_table("conv2d", fields.parse().expect("test table")).expect("a kind").expect("valid")
    }

    #[test]
    fn what_an_algorithm_cannot_do_it_does_not_support() {
        let inputs = [Shape::new(&[64, 28, 28]).expect("a shape")];
        let supports = |fields: &str| {
            [Algorithm::Gemm, Algorithm::Fft, Algorithm::WinogradNonfused].map(|a| a.supports(&conv(fields), &inputs))
        };
        assert_eq!(supports("channels = 8\nkernel = 3\npadding = 1"), [true, true, true]);
        assert_eq!(supports("channels = 8\nkernel = 5\npadding = 2"), [true, true, false]);
        assert_eq!(supports("channels = 8\nkernel = 3\nstride = 2"), [true, false, false]);
        assert_eq!(supports("channels = 8\nkernel = 1"), [true, false, false]);
        assert_eq!(supports("channels = 64\nkernel = 3\ngroups = 64"), [false, false, false]);
    }

    #[test]
    fn workspaces_are_those_of_an_h200() {
        // Sizes that cuDNN 9.19 asked for (data/measurements/h200/algorithms).
        let of = |algorithm: Algorithm, n: u64, c: u64, h: u64, k: u64, fields: &str| {
            let (layer, input) = (conv(&format!("channels = {k}\n{fields}")), Shape::new(&[c, h, h]).expect("a shape"));
            let Layer::Conv2d(conv) = &layer else { unreachable!("a convolution") };
            algorithm.workspace(conv, &input, &layer.output(&[input]).expect("fits"), n).get()
        };
        assert_eq!(of(Algorithm::WinogradNonfused, 16, 128, 14, 32, "kernel = 3\npadding = 1"), 6_488_064);
        let fft = of(Algorithm::Fft, 4, 896, 8, 1280, "kernel = 3\npadding = 1") as f64;
        assert!((fft / 2_691_956_736.0 - 1.0).abs() < 0.02, "{fft}");
    }
}
