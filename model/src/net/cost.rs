//! What a kernel has to compute and move.

use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::{Shape, product};
use crate::base::units::{Bytes, Ops, OpsPerByte};

/// Operations and compulsory memory traffic of one phase of one layer, for a whole batch.
///
/// Every distinct input, parameter and output tensor is counted once per kernel, at its storage
/// width. A multiply-accumulate is two operations, any other element-wise step one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCost {
    /// Operations, multiply-accumulates counted as two.
    pub ops: Ops,
    /// Multiply-accumulates of convolutions and matrix products among them.
    pub macs: u64,
    /// Bytes read, parameters included.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Bytes of parameters among those read.
    pub weights: Bytes,
}

impl LayerCost {
    /// All traffic.
    pub fn bytes(&self) -> Bytes {
        self.read + self.written
    }

    /// The same on numbers that are stored `times` as wide.
    pub fn widened(self, times: u64) -> Self {
        let wider = |bytes: Bytes| Bytes::new(bytes.get().saturating_mul(times));
        Self { read: wider(self.read), written: wider(self.written), weights: wider(self.weights), ..self }
    }

    /// Computation-to-communication ratio; `None` where nothing moves.
    pub fn ctc(&self) -> Option<OpsPerByte> {
        (self.bytes() > Bytes::ZERO).then(|| self.ops / self.bytes())
    }
}

impl std::ops::Add for LayerCost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            ops: self.ops + other.ops,
            macs: self.macs.saturating_add(other.macs),
            read: self.read + other.read,
            written: self.written + other.written,
            weights: self.weights + other.weights,
        }
    }
}

impl std::iter::Sum for LayerCost {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |a, b| a + b)
    }
}

/// Where a layer stands: everything its cost depends on beyond its own fields.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Samples per step.
    pub batch: u64,
    /// Input shapes, without the batch.
    pub inputs: &'a [Shape],
    /// Output shape, without the batch.
    pub output: Shape,
    /// Storage and arithmetic.
    pub precision: Precision,
    /// Inference or training: batch norm and dropout differ already in the forward phase.
    pub mode: Mode,
}

impl Site<'_> {
    /// The first input's shape.
    pub fn input(&self) -> Shape {
        self.inputs.first().copied().unwrap_or(self.output)
    }
    /// Elements of the first input over the batch.
    pub fn in_elements(&self) -> u64 {
        self.batch.saturating_mul(self.input().elements())
    }
    /// Elements of all inputs over the batch.
    pub fn all_in_elements(&self) -> u64 {
        self.inputs.iter().fold(0u64, |a, s| a.saturating_add(self.batch.saturating_mul(s.elements())))
    }
    /// Elements of the output over the batch.
    pub fn out_elements(&self) -> u64 {
        self.batch.saturating_mul(self.output.elements())
    }
    /// Bytes of that many operands.
    pub fn bytes(&self, elements: u64) -> Bytes {
        Bytes::new(elements.saturating_mul(self.precision.bytes()))
    }
    /// Bytes of that many results.
    pub fn result_bytes(&self, elements: u64) -> Bytes {
        Bytes::new(elements.saturating_mul(self.precision.result_bytes()))
    }
    /// A kernel that reads and writes whole elements with `ops` operations and `weights` parameters.
    pub fn streaming(&self, ops: u64, read_elements: u64, written_elements: u64, weights: u64) -> LayerCost {
        LayerCost {
            ops: Ops::new(ops),
            macs: 0,
            read: self.bytes(read_elements.saturating_add(weights)),
            written: self.result_bytes(written_elements),
            weights: self.bytes(weights),
        }
    }
    /// A layer that multiplies its input by learned weights, `factors` multiply-accumulates forward. Each phase is a
    /// product of the same size with two of input, output and weights exchanged; a bias adds one operation per
    /// output.
    pub fn weighted(&self, phase: Phase, factors: &[u64], weights: u64, biases: u64) -> Option<LayerCost> {
        let (x, y) = (self.in_elements(), self.out_elements());
        let learned = weights.saturating_add(biases);
        let mut cost = match phase {
            Phase::Forward => self.dense(factors, x, y, learned),
            Phase::BackwardData => self.dense(factors, y, x, weights),
            Phase::BackwardWeights => self.dense(factors, x.saturating_add(y), learned, 0),
            Phase::Update => return None,
        };
        if biases > 0 && phase != Phase::BackwardData {
            cost.ops += Ops::new(y);
        }
        Some(cost)
    }

    /// A kernel of multiply-accumulates over `factors`.
    pub fn dense(&self, factors: &[u64], read_elements: u64, written_elements: u64, weights: u64) -> LayerCost {
        let macs = product(factors);
        LayerCost { macs, ..self.streaming(macs.saturating_mul(2), read_elements, written_elements, weights) }
    }
}
