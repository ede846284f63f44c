//! In which way a kernel runs: memory layout, where operands lie, what computes a convolution.

use crate::base::precision::{Mode, Precision, named_enum};
use serde::{Deserialize, Serialize};

named_enum!(
    /// Order of a map's dimensions in memory.
    Layout {
        /// Batch, channels, height, width.
        Nchw = "nchw",
        /// Channels last.
        Nhwc = "nhwc",
    }
);

impl Layout {
    /// The layout that frameworks use with a precision: channels last where tensor cores read 16-bit maps.
    pub fn usual(precision: Precision) -> Self {
        if precision.channels_last() { Self::Nhwc } else { Self::Nchw }
    }
}

named_enum!(
    /// Where a layer's operands lie when it starts.
    Cache {
        /// Activations stay in one place from execution to execution, as the allocator of a network's forward
        /// pass reuses memory; parameters rotate beyond the size of the cache, as a whole network's do.
        Hot = "hot",
        /// Every operand rotates beyond the size of the cache, as saved activations in a backward pass.
        Cold = "cold",
    }
);

impl Cache {
    /// Where they lie as frameworks run a step: in training they come from memory.
    pub fn usual(mode: Mode) -> Self {
        if mode == Mode::Inference { Self::Hot } else { Self::Cold }
    }
}

named_enum!(
    /// How a convolution is computed.
    Algorithm {
        /// The library's first choice, which is what frameworks run.
        Heuristic = "heuristic",
        /// An explicit matrix of patches, then a matrix product.
        Gemm = "gemm",
        /// A matrix product that forms patches on the way.
        ImplicitGemm = "implicit_gemm",
        /// The same with precomputed offsets.
        ImplicitPrecompGemm = "implicit_precomp_gemm",
        /// Fast Fourier transform.
        Fft = "fft",
        /// Fast Fourier transform on tiles.
        FftTiling = "fft_tiling",
        /// Winograd in one kernel.
        Winograd = "winograd",
        /// Winograd with separate transforms.
        WinogradNonfused = "winograd_nonfused",
    }
);
