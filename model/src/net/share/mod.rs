//! A language model on several GPUs: what each of them holds and computes, and what they exchange.
//!
//! [`tensor`] divides every block among GPUs that work on the same tokens, as Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053)
//! and vLLM do: heads of attention, inner features of feed-forward networks or whole experts, rows of the vocabulary; [`stages`]
//! gives blocks to groups of GPUs that pass tokens on to each other (pipelines; Huang et al. 2019, arXiv 1811.06965). Blocks are
//! recognised by what layers read and compute, so that it makes no difference where a network was read from.

mod stages;
mod tensor;

use super::layer::ShapeError;
use super::network::{Network, ShapingError};
use crate::base::precision::named_enum;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

named_enum!(
    /// What GPUs exchange.
    Collective {
        /// Every GPU gets the sum of all GPUs' values.
        AllReduce = "all_reduce",
        /// Every GPU gets all GPUs' values.
        AllGather = "all_gather",
        /// Every GPU gets a part of the sum.
        ReduceScatter = "reduce_scatter",
        /// Every GPU sends every other one values of its own.
        AllToAll = "all_to_all",
        /// One GPU sends values to another.
        Send = "send",
    }
);

/// How many GPUs share what. Of `tensor * pipeline * data` GPUs all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    tensor: u64,
    pipeline: u64,
    expert: u64,
    data: u64,
}

/// More GPUs than anybody gave one network; products of such numbers can be counted.
const MOST: u64 = 1 << 12;

impl Layout {
    /// One GPU for everything.
    pub const ALONE: Self = Self { tensor: 1, pipeline: 1, expert: 1, data: 1 };

    /// `tensor` GPUs divide every block, in each of `pipeline` stages; whole experts lie on `expert` parts of these GPUs, and,
    /// where that is more than `tensor`, of GPUs that attend to other samples, whose number is then a multiple of
    /// `expert / tensor`. `data`: among how many groups of GPUs the samples are divided; without it as many as experts need.
    ///
    /// # Errors
    /// In words, where these numbers do not go together.
    pub fn new(tensor: u64, pipeline: u64, expert: u64, data: Option<u64>) -> Result<Self, ShareError> {
        let named = [("--tensor-parallel", tensor), ("--pipeline-parallel", pipeline), ("--expert-parallel", expert)];
        let data_named = ("--data-parallel", data.unwrap_or(1));
        if let Some((option, given)) = named.into_iter().chain([data_named]).find(|(_, n)| !(1..=MOST).contains(n)) {
            return Err(ShareError::Count { option, given });
        }
        let (large, small) = (tensor.max(expert), tensor.min(expert));
        if !large.is_multiple_of(small) {
            return Err(ShareError::Apart { tensor, expert });
        }
        let exchanging = if expert > tensor { expert / tensor } else { 1 };
        let data = data.unwrap_or(exchanging);
        if !data.is_multiple_of(exchanging) {
            return Err(ShareError::Groups { data, exchanging, expert });
        }
        Ok(Self { tensor, pipeline, expert, data })
    }

    /// GPUs that divide every block.
    pub fn tensor(&self) -> u64 {
        self.tensor
    }
    /// Stages.
    pub fn pipeline(&self) -> u64 {
        self.pipeline
    }
    /// Parts of the experts, each of whole ones.
    pub fn expert(&self) -> u64 {
        self.expert
    }
    /// Groups of GPUs that each take a part of the samples.
    pub fn data(&self) -> u64 {
        self.data
    }
    /// All GPUs.
    pub fn gpus(&self) -> u64 {
        self.tensor * self.pipeline * self.data
    }
    /// The GPUs of one stage of one group.
    #[must_use]
    pub fn of_stage(self) -> Self {
        Self { pipeline: 1, data: self.exchanging(), ..self }
    }

    /// One copy of the network of those that do not know of each other.
    #[must_use]
    pub fn of_replica(self) -> Self {
        Self { data: self.exchanging(), ..self }
    }

    /// So many copies that do not know of each other.
    ///
    /// # Errors
    /// Where these are too many.
    pub fn copied(self, copies: u64) -> Result<Self, ShareError> {
        Self::new(self.tensor, self.pipeline, self.expert, Some(copies.saturating_mul(self.exchanging())))
    }

    /// Groups of GPUs with samples of their own that share experts.
    pub fn exchanging(&self) -> u64 {
        (self.expert / self.tensor).max(1)
    }
    /// GPUs among which an expert's inner features are divided.
    fn within_experts(&self) -> u64 {
        (self.tensor / self.expert).max(1)
    }
    /// Copies of the whole network that do not know of each other.
    pub fn replicas(&self) -> u64 {
        self.data / self.exchanging()
    }
}

impl Display for Layout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "tensor {}", self.tensor)?;
        let others = [("pipeline", self.pipeline), ("expert", self.expert), ("data", self.data)];
        others.iter().filter(|(_, n)| *n > 1).try_for_each(|(name, n)| write!(f, ", {name} {n}"))
    }
}

/// What one GPU of a stage holds and computes of a network, of which other GPUs of the stage hold as much.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Its layers.
    pub network: Network,
    /// What it exchanges with other GPUs, in the order of the layers.
    pub exchanges: Vec<Exchange>,
}

/// Values that GPUs exchange in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The layer of the share that it follows.
    pub layer: usize,
    /// What is done.
    pub kind: Collective,
    /// Among how many GPUs.
    pub gpus: u64,
    /// Values of a sample: of a sum those of each GPU, of what is gathered those of all, of what is sent those of the sender.
    pub values: u64,
}

/// Why a network cannot be shared so, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// No such number.
    #[error("{option} {given}: must be a whole number from 1 to {MOST}")]
    Count {
        /// The option.
        option: &'static str,
        /// What was asked for.
        given: u64,
    },
    /// One is no multiple of the other.
    #[error("--tensor-parallel {tensor} and --expert-parallel {expert}: one must be a multiple of the other")]
    Apart {
        /// GPUs that divide blocks.
        tensor: u64,
        /// Parts of the experts.
        expert: u64,
    },
    /// Groups of samples that do not hold the experts.
    #[error(
        "--data-parallel {data}: --expert-parallel {expert} lays experts over {exchanging} groups of GPUs, of which it is no multiple"
    )]
    Groups {
        /// Groups asked for.
        data: u64,
        /// Groups that share experts.
        exchanging: u64,
        /// Parts of the experts.
        expert: u64,
    },
    /// It is no language model whose blocks are recognised.
    #[error("{network} cannot be shared among GPUs: {why}")]
    Unknown {
        /// Its name.
        network: String,
        /// What is not known.
        why: String,
    },
    /// Parts do not divide.
    #[error("{network}: {count} {what} ({layer}) do not divide among the {gpus} GPUs of {option}")]
    Divide {
        /// Its name.
        network: String,
        /// The layer.
        layer: String,
        /// What is divided.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// Among how many.
        gpus: u64,
        /// Which option asks for that.
        option: &'static str,
    },
    /// More stages than blocks.
    #[error("{network}: its {blocks} blocks do not fill the {stages} stages of --pipeline-parallel")]
    Stages {
        /// Its name.
        network: String,
        /// Blocks.
        blocks: usize,
        /// Stages.
        stages: u64,
    },
    /// No experts to lay out.
    #[error("{network} has no experts: leave --expert-parallel out")]
    NoExperts {
        /// Its name.
        network: String,
    },
    /// Shapes.
    #[error(transparent)]
    Shaping(#[from] ShapingError),
    /// A share's layer.
    #[error("layer {name}: {why}")]
    Layer {
        /// Its name.
        name: String,
        /// Why.
        why: ShapeError,
    },
}

/// The share of a GPU of every stage, in order. All GPUs of a stage have as much to do, but for the first, which alone adds
/// biases of divided sums.
///
/// # Errors
/// When blocks are not recognised, or do not divide.
pub fn shares(network: &Network, layout: &Layout) -> Result<Vec<Share>, ShareError> {
    let divided = tensor::divide(network, layout)?;
    stages::cut(divided, layout)
}
