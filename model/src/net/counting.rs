//! Counting as Castro et al. do (2018, section on arithmetic operations and Table 1), as far as their printed
//! totals can be reproduced: the reading is derived in the notes to that paper's tables.
//!
//! One multiply-accumulate is one operation; pooling costs its window per output, ReLU, dropout, scale and sum
//! one, batch norm two, LRN n + 4, softmax three per element; no bias additions. Every layer reads its (first)
//! input and its parameters (batch norm two per channel, scale none) and writes its output, four bytes a word,
//! in-place layers included. MB are 2^20 bytes, CTC is operations per word read.

use crate::base::precision::{Mode, Phase, Precision};
use crate::net::cost::Site;
use crate::net::layer::{Layer, LayerOp};
use crate::net::network::{ShapedLayer, ShapedNetwork};

/// One row of the count, per sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CastroCount {
    /// Operations.
    pub ops: u64,
    /// Words of the input.
    pub words_read_input: u64,
    /// Words of parameters.
    pub words_read_parameters: u64,
    /// Words of the output.
    pub words_written: u64,
}

impl CastroCount {
    /// All words read.
    pub fn words_read(&self) -> u64 {
        self.words_read_input + self.words_read_parameters
    }
    /// Read, in MB of 2^20 bytes.
    pub fn read_mb(&self) -> f64 {
        words_to_mb(self.words_read())
    }
    /// Written, in MB of 2^20 bytes.
    pub fn written_mb(&self) -> f64 {
        words_to_mb(self.words_written)
    }
    /// Operations per word read.
    pub fn ctc(&self) -> f64 {
        self.ops as f64 / self.words_read() as f64
    }
}

impl std::iter::Sum for CastroCount {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |a, b| Self {
            ops: a.ops + b.ops,
            words_read_input: a.words_read_input + b.words_read_input,
            words_read_parameters: a.words_read_parameters + b.words_read_parameters,
            words_written: a.words_written + b.words_written,
        })
    }
}

fn words_to_mb(words: u64) -> f64 {
    words as f64 * 4.0 / f64::from(1 << 20)
}

/// Count of a layer for one sample; `None` for what the paper does not list (views).
pub fn castro(layer: &ShapedLayer) -> Option<CastroCount> {
    let input = layer.case.inputs.first()?.elements();
    let output = layer.output.elements();
    let channels = layer.case.inputs.first()?.axis();
    let (ops, parameters) = match &layer.case.layer {
        Layer::Flatten(_) | Layer::Cast(_) => return None,
        Layer::Conv2d(conv) => (output * conv.filter(channels), layer.case.layer.parameters(&layer.case.inputs)),
        Layer::Linear(_) => (output * channels, layer.case.layer.parameters(&layer.case.inputs)),
        Layer::Matmul(_) => (output * layer.case.inputs.first()?.axis(), 0),
        Layer::Pool2d(pool) => (output * pool.kernel.area(), 0),
        Layer::GlobalPool2d(_) | Layer::AdaptivePool2d(_) => (input, 0),
        Layer::BatchNorm(_) => (2 * input, 2 * channels),
        Layer::LocalResponseNorm(norm) => (norm.ops_per_element() * input, 0),
        Layer::Softmax(_) => (3 * input, 0),
        Layer::LayerNorm(_) => (2 * input, layer.case.layer.parameters(&layer.case.inputs)),
        Layer::Activation(_) | Layer::Scale(_) | Layer::Dropout(_) | Layer::Add(_) | Layer::Multiply(_) => (input, 0),
        Layer::Concat(_) | Layer::Pad(_) => (0, 0),
        // Kinds that are younger than the paper: a multiply-accumulate is one operation there, too.
        other => {
            let (batch, precision, mode) = (1, Precision::Fp32, Mode::Inference);
            let site = Site { batch, inputs: &layer.case.inputs, output: layer.output, precision, mode };
            let cost = other.cost(Phase::Forward, &site)?;
            (cost.ops.get() - cost.macs, other.parameters(&layer.case.inputs))
        }
    };
    Some(CastroCount { ops, words_read_input: input, words_read_parameters: parameters, words_written: output })
}

/// Total over a network, per sample.
pub fn castro_total(network: &ShapedNetwork) -> CastroCount {
    network.layers().iter().filter_map(castro).sum()
}
