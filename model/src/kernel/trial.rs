//! What a measuring campaign tries: one layer, in one phase, at one batch and precision, in one way.

use crate::base::precision::{Mode, Phase, Precision, named_enum};
use crate::base::units::Bytes;
use crate::net::cost::LayerCost;
use crate::net::layer::{LayerOp, Optimizer, ShapeError, update_cost};
use crate::rows::measurement::LayerCase;
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
        match precision {
            Precision::Fp32 | Precision::Tf32 => Self::Nchw,
            Precision::Fp16 | Precision::Bf16 | Precision::Int8 => Self::Nhwc,
        }
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

/// What runs in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Layer and input shapes.
    pub case: LayerCase,
    /// Phase.
    pub phase: Phase,
    /// Samples.
    pub batch: u64,
    /// Precision.
    pub precision: Precision,
    /// Inference or training: batch norm and dropout differ in the forward phase.
    pub mode: Mode,
    /// Order of a map's dimensions.
    pub layout: Layout,
    /// Where operands lie.
    pub cache: Cache,
    /// Algorithm, for convolutions.
    pub algorithm: Algorithm,
    /// Optimizer, for the update phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Optimizer>,
}

impl Trial {
    /// A trial as frameworks run the layer: usual layout, the library's choice of algorithm, backward from memory.
    pub fn usual(case: LayerCase, phase: Phase, batch: u64, precision: Precision, mode: Mode) -> Self {
        Self {
            case,
            phase,
            batch,
            precision,
            mode,
            layout: Layout::usual(precision),
            cache: Self::usual_cache(mode),
            algorithm: Algorithm::Heuristic,
            optimizer: (phase == Phase::Update).then_some(Optimizer::Momentum),
        }
    }

    /// Where operands lie as frameworks run a step: in training they come from memory.
    pub fn usual_cache(mode: Mode) -> Cache {
        if mode == Mode::Inference { Cache::Hot } else { Cache::Cold }
    }

    /// Operations and traffic; `Ok(None)` where no kernel runs.
    ///
    /// # Errors
    /// When the layer does not take these inputs.
    pub fn cost(&self) -> Result<Option<LayerCost>, ShapeError> {
        self.case.output()?;
        match (self.phase, self.optimizer) {
            (Phase::Update, Some(optimizer)) => {
                Ok(update_cost(self.case.layer.parameters(&self.case.inputs), optimizer))
            }
            _ => self.case.cost(self.phase, self.batch, self.precision, self.mode),
        }
    }

    /// Memory of one set of operands, without workspace: everything read and written at least once.
    ///
    /// # Errors
    /// When the layer does not take these inputs.
    pub fn footprint(&self) -> Result<Bytes, ShapeError> {
        Ok(self.cost()?.map_or(Bytes::ZERO, |c| c.bytes()))
    }
}
