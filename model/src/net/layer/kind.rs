//! What holds of all layers of a kind: a row of the table in [`super::Layer`], or of the one of
//! [activation functions](super::Function).

use super::{Permute, Reshape, Slice};
use crate::base::precision::{Mode, named_enum};
use serde::{Deserialize, Serialize};

named_enum!(
    /// Which variables a kernel's time is predicted from.
    Family {
        /// Convolution, linear, matrix product.
        Gemm = "gemm",
        /// Everything that is bound by memory traffic.
        Stream = "stream",
    }
);

/// What can measure a layer kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// The runner of `kernels`, and frameworks.
    ByRunner,
    /// Frameworks alone; it is one kernel of a library or as simple as one, so that rows of one framework speak for all.
    ByAnyFramework,
    /// Frameworks alone, each of which has kernels of its own for it.
    ByItsFramework,
    /// Nothing yet: it is predicted by other kinds' models.
    Nowhere,
}

/// The model of a kind that has few rows: one over all phases and precisions, in which kinds differ by a flag
/// (`kernel::features`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedModel {
    /// None: its rows are fitted by themselves or not at all.
    Own,
    /// That of kinds which read and write each value once.
    Pointwise,
    /// That of kinds which move values to other places.
    Copies,
}

/// Who lets a layer's result overwrite its input, where nothing else reads that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrites {
    /// Nobody.
    Never,
    /// Our runner: no framework has the operation in place.
    OurRunner,
    /// All that have activations in place: in training where backward does not read the input.
    Activations,
    /// Frameworks that have all element-wise layers in place.
    Elementwise,
}

/// Which tensors of the forward pass a layer's backward pass reads, besides what it keeps for itself alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// None.
    Nothing,
    /// The inputs.
    Inputs,
    /// The result.
    Output,
    /// Both.
    Both,
    /// A rectifier clipped on both sides: the result, but the input in frameworks that do not have it in place.
    Clipped,
    /// Windows' maxima: the inputs; the result, too, where no place of each maximum is kept.
    Maximum,
    /// Windows' means: nothing; the inputs in frameworks that record operations with what they read.
    Mean,
}

/// Whether the inputs are read, and whether the result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// The inputs.
    pub inputs: bool,
    /// The result.
    pub output: bool,
}

impl Saved {
    /// What the kernels of our own runner and the vendor's libraries behind it read.
    pub const fn by_runner(self) -> Reads {
        match self {
            Self::Mean => Reads { inputs: false, output: false },
            other => other.by_framework(true, true),
        }
    }

    /// What a framework's read. `clips`: whether it has clipped rectifiers in place; `records`: whether it records
    /// operations with what they read, the place of each maximum among that.
    pub const fn by_framework(self, clips: bool, records: bool) -> Reads {
        let (inputs, output) = match self {
            Self::Nothing => (false, false),
            Self::Inputs => (true, false),
            Self::Output => (false, true),
            Self::Both => (true, true),
            Self::Clipped => (!clips, clips),
            Self::Maximum => (true, !records),
            Self::Mean => (records, false),
        };
        Reads { inputs, output }
    }
}

/// A row of the table of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// As in network files, measurements and calibrations.
    pub name: &'static str,
    /// Of its kernels, but for updates and for attention against a cache.
    pub family: Family,
    /// What can measure it.
    pub measured: Measured,
    /// Its model where it has few rows.
    pub shares: SharedModel,
    /// Who lets it overwrite its input.
    pub overwrites: Overwrites,
    /// What its backward pass reads.
    pub saved: Saved,
}

/// Layers whose elements move only if they say so.
pub(super) trait Rearrangement {
    /// Whether they do.
    fn copies(&self) -> bool;
}

impl Rearrangement for Reshape {
    fn copies(&self) -> bool {
        self.copy.moves()
    }
}

impl Rearrangement for Permute {
    fn copies(&self) -> bool {
        self.copy
    }
}

impl Rearrangement for Slice {
    fn copies(&self) -> bool {
        self.copy
    }
}

/// When a layer is a view: its result is its input, or a part of it, seen otherwise, and no kernel runs.
pub(super) mod view {
    use super::{Mode, Rearrangement};

    pub fn never<L>(_: &L, _: Mode) -> bool {
        false
    }

    pub fn always<L>(_: &L, _: Mode) -> bool {
        true
    }

    pub fn in_inference<L>(_: &L, mode: Mode) -> bool {
        mode == Mode::Inference
    }

    pub fn unless_copied(layer: &impl Rearrangement, _: Mode) -> bool {
        !layer.copies()
    }
}
