//! The two families of kernels.

use crate::base::precision::{Phase, named_enum};
use crate::net::layer::Layer;
use serde::{Deserialize, Serialize};

named_enum!(
    /// Which variables a layer has.
    Family {
        /// Convolution, linear, matrix product.
        Gemm = "gemm",
        /// Everything that is bound by memory traffic.
        Stream = "stream",
    }
);

impl Family {
    /// The family of a layer's kernels in a phase.
    pub fn of(layer: &Layer, phase: Phase) -> Self {
        match layer {
            _ if phase == Phase::Update => Self::Stream,
            Layer::Attention(attention) if attention.decodes() => Self::Stream,
            Layer::Conv2d(_)
            | Layer::ConvTranspose2d(_)
            | Layer::Conv3d(_)
            | Layer::Linear(_)
            | Layer::Matmul(_)
            | Layer::Attention(_)
            | Layer::Recurrent(_) => Self::Gemm,
            _ => Self::Stream,
        }
    }
}
