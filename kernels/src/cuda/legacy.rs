//! Convolutions by a named algorithm, through cuDNN's older API: for the comparison of algorithms.

use super::backend::check;
use super::convolution::{ConvolutionSize, data_type, strides};
use super::failure::unsupported;
use crate::DeviceError;
use crate::launch::Address;
use cudarc::cudnn::sys::{self, cudnnConvolutionMode_t, cudnnMathType_t, cudnnTensorFormat_t};
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::kernel::setting::{Algorithm, Layout};
use std::ffi::{c_int, c_void};

macro_rules! owned {
    ($name:ident, $raw:ty, $create:ident, $destroy:ident) => {
        struct $name($raw);
        impl $name {
            fn new() -> Result<Self, DeviceError> {
                let mut raw: $raw = std::ptr::null_mut();
                // SAFETY: writes one pointer; destroyed in drop.
                check(unsafe { sys::$create(&raw mut raw) }, stringify!($create))?;
                Ok(Self(raw))
            }
        }
        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: created in `new`, destroyed here only.
                let _ = unsafe { sys::$destroy(self.0) };
            }
        }
    };
}
owned!(Tensor, sys::cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);
owned!(Filter, sys::cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor);
owned!(Window, sys::cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor);

/// The algorithm in the library's terms, by phase.
#[derive(Clone, Copy)]
enum Chosen {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    Data(sys::cudnnConvolutionBwdDataAlgo_t),
    Weights(sys::cudnnConvolutionBwdFilterAlgo_t),
}

fn choose(algorithm: Algorithm, phase: Phase) -> Option<Chosen> {
    use sys::cudnnConvolutionBwdDataAlgo_t as D;
    use sys::cudnnConvolutionBwdFilterAlgo_t as W;
    use sys::cudnnConvolutionFwdAlgo_t as F;
    match (phase, algorithm) {
        (Phase::Forward, Algorithm::Gemm) => Some(Chosen::Forward(F::CUDNN_CONVOLUTION_FWD_ALGO_GEMM)),
        (Phase::Forward, Algorithm::ImplicitGemm) => Some(Chosen::Forward(F::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM)),
        (Phase::Forward, Algorithm::ImplicitPrecompGemm) => {
            Some(Chosen::Forward(F::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM))
        }
        (Phase::Forward, Algorithm::Fft) => Some(Chosen::Forward(F::CUDNN_CONVOLUTION_FWD_ALGO_FFT)),
        (Phase::Forward, Algorithm::FftTiling) => Some(Chosen::Forward(F::CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING)),
        (Phase::Forward, Algorithm::Winograd) => Some(Chosen::Forward(F::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD)),
        (Phase::Forward, Algorithm::WinogradNonfused) => {
            Some(Chosen::Forward(F::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED))
        }
        // Backward data: algorithm 0 scatters with atomics, 1 is the implicit product.
        (Phase::BackwardData, Algorithm::Gemm) => Some(Chosen::Data(D::CUDNN_CONVOLUTION_BWD_DATA_ALGO_0)),
        (Phase::BackwardData, Algorithm::ImplicitGemm) => Some(Chosen::Data(D::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)),
        (Phase::BackwardData, Algorithm::Fft) => Some(Chosen::Data(D::CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT)),
        (Phase::BackwardData, Algorithm::FftTiling) => {
            Some(Chosen::Data(D::CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING))
        }
        (Phase::BackwardData, Algorithm::Winograd) => Some(Chosen::Data(D::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD)),
        (Phase::BackwardData, Algorithm::WinogradNonfused) => {
            Some(Chosen::Data(D::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED))
        }
        // Backward weights: 0 with atomics, 1 the implicit product, 3 with precomputed offsets.
        (Phase::BackwardWeights, Algorithm::Gemm) => Some(Chosen::Weights(W::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0)),
        (Phase::BackwardWeights, Algorithm::ImplicitGemm) => {
            Some(Chosen::Weights(W::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1))
        }
        (Phase::BackwardWeights, Algorithm::ImplicitPrecompGemm) => {
            Some(Chosen::Weights(W::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3))
        }
        (Phase::BackwardWeights, Algorithm::Fft) => Some(Chosen::Weights(W::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT)),
        (Phase::BackwardWeights, Algorithm::FftTiling) => {
            Some(Chosen::Weights(W::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING))
        }
        (Phase::BackwardWeights, Algorithm::WinogradNonfused) => {
            Some(Chosen::Weights(W::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED))
        }
        _ => None,
    }
}

/// A convolution with a named algorithm.
pub struct NamedConvolution {
    handle: sys::cudnnHandle_t,
    input: Tensor,
    weights: Filter,
    output: Tensor,
    window: Window,
    chosen: Chosen,
    /// Scratch memory in bytes.
    pub workspace: u64,
}

/// Addresses of x, w and y, or of their gradients, and scratch memory.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Input or its gradient.
    pub x: Address,
    /// Weights or their gradient.
    pub w: Address,
    /// Output or its gradient.
    pub y: Address,
    /// Scratch memory.
    pub workspace: Address,
}

impl NamedConvolution {
    /// Prepares it.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when the library does not run this algorithm on this convolution.
    pub fn new(
        handle: sys::cudnnHandle_t,
        size: &ConvolutionSize,
        phase: Phase,
        precision: Precision,
        layout: Layout,
        algorithm: Algorithm,
    ) -> Result<Self, DeviceError> {
        let what = || format!("{algorithm} for {phase} of this convolution in {precision}");
        let chosen = choose(algorithm, phase).ok_or_else(|| unsupported(what(), "no such algorithm"))?;
        let data = data_type(precision)?;
        let narrow = |v: i64| c_int::try_from(v).map_err(|_| unsupported(what(), "a size beyond 2^31"));
        let tensor = |dims: &[i64; 4]| -> Result<Tensor, DeviceError> {
            let made = Tensor::new()?;
            let d = dims.iter().map(|v| narrow(*v)).collect::<Result<Vec<_>, _>>()?;
            let s = strides(dims, layout).iter().map(|v| narrow(*v)).collect::<Result<Vec<_>, _>>()?;
            // SAFETY: a live descriptor and plain numbers.
            let status = unsafe {
                sys::cudnnSetTensor4dDescriptorEx(made.0, data, d[0], d[1], d[2], d[3], s[0], s[1], s[2], s[3])
            };
            check(status, "cudnnSetTensor4dDescriptorEx")?;
            Ok(made)
        };
        let (input, output) = (tensor(&size.input)?, tensor(&size.output)?);
        let weights = Filter::new()?;
        let format = match layout {
            Layout::Nchw => cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
            Layout::Nhwc => cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
        };
        let w = size.weights.iter().map(|v| narrow(*v)).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: a live descriptor and plain numbers.
        let status = unsafe { sys::cudnnSetFilter4dDescriptor(weights.0, data, format, w[0], w[1], w[2], w[3]) };
        check(status, "cudnnSetFilter4dDescriptor")?;
        let window = Window::new()?;
        let [ph, pw] = [narrow(size.padding[0])?, narrow(size.padding[1])?];
        let [sh, sw] = [narrow(size.stride[0])?, narrow(size.stride[1])?];
        let [dh, dw] = [narrow(size.dilation[0])?, narrow(size.dilation[1])?];
        let math = match precision {
            Precision::Fp32 => cudnnMathType_t::CUDNN_FMA_MATH,
            Precision::Tf32 => cudnnMathType_t::CUDNN_DEFAULT_MATH,
            _ => cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        };
        // SAFETY: a live descriptor and plain numbers.
        unsafe {
            check(
                sys::cudnnSetConvolution2dDescriptor(
                    window.0,
                    ph,
                    pw,
                    sh,
                    sw,
                    dh,
                    dw,
                    cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                    sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
                ),
                "cudnnSetConvolution2dDescriptor",
            )?;
            check(sys::cudnnSetConvolutionGroupCount(window.0, narrow(size.groups)?), "cudnnSetConvolutionGroupCount")?;
            check(sys::cudnnSetConvolutionMathType(window.0, math), "cudnnSetConvolutionMathType")?;
        }
        let mut named = Self { handle, input, weights, output, window, chosen, workspace: 0 };
        named.workspace = named.workspace_size().map_err(|e| unsupported(what(), e.to_string()))?;
        Ok(named)
    }

    fn workspace_size(&self) -> Result<u64, DeviceError> {
        let mut bytes = 0usize;
        let (x, w, y, window) = (self.input.0, self.weights.0, self.output.0, self.window.0);
        // SAFETY: live descriptors; writes one number.
        let status = unsafe {
            match self.chosen {
                Chosen::Forward(a) => {
                    sys::cudnnGetConvolutionForwardWorkspaceSize(self.handle, x, w, window, y, a, &raw mut bytes)
                }
                Chosen::Data(a) => {
                    sys::cudnnGetConvolutionBackwardDataWorkspaceSize(self.handle, w, y, window, x, a, &raw mut bytes)
                }
                Chosen::Weights(a) => {
                    sys::cudnnGetConvolutionBackwardFilterWorkspaceSize(self.handle, x, y, window, w, a, &raw mut bytes)
                }
            }
        };
        check(status, "cudnnGetConvolutionWorkspaceSize")?;
        Ok(bytes as u64)
    }

    /// Launches it on the handle's stream.
    ///
    /// # Errors
    /// When the library refuses or the launch fails.
    pub fn launch(&self, bound: &Bound) -> Result<(), DeviceError> {
        let (one, zero) = (1f32, 0f32);
        let (one, zero) = ((&raw const one).cast::<c_void>(), (&raw const zero).cast::<c_void>());
        let pointer = |a: Address| a as *mut c_void;
        let (x, w, y) = (pointer(bound.x), pointer(bound.w), pointer(bound.y));
        let (scratch, size) = (pointer(bound.workspace), self.workspace as usize);
        let (dx, dw, dy, window) = (self.input.0, self.weights.0, self.output.0, self.window.0);
        // SAFETY: live descriptors; the addresses lie in the arena and hold the described tensors.
        let status = unsafe {
            match self.chosen {
                Chosen::Forward(a) => {
                    sys::cudnnConvolutionForward(self.handle, one, dx, x, dw, w, window, a, scratch, size, zero, dy, y)
                }
                Chosen::Data(a) => sys::cudnnConvolutionBackwardData(
                    self.handle,
                    one,
                    dw,
                    w,
                    dy,
                    y,
                    window,
                    a,
                    scratch,
                    size,
                    zero,
                    dx,
                    x,
                ),
                Chosen::Weights(a) => sys::cudnnConvolutionBackwardFilter(
                    self.handle,
                    one,
                    dx,
                    x,
                    dy,
                    y,
                    window,
                    a,
                    scratch,
                    size,
                    zero,
                    dw,
                    w,
                ),
            }
        };
        check(status, "cudnnConvolution")
    }
}
