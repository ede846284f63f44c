//! Networks: a directed graph of layers, read from a file, then given shapes for a batch.

mod file;
mod memory;
mod shaped;

pub use memory::{MemoryFootprint, footprint};
pub use shaped::{ShapedLayer, ShapedNetwork, ShapingError};

use crate::layer::Layer;
use crate::shape::Shape;

/// A network's structure, without batch or precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Name on the command line.
    pub name: String,
    /// Human-readable name.
    pub title: String,
    /// Where the structure comes from.
    pub source: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// What others counted.
    pub published: Published,
    /// Named inputs with their default shapes.
    pub inputs: Vec<Input>,
    /// Layers in an order in which each reads only inputs and earlier layers; the last is the output.
    pub nodes: Vec<Node>,
}

/// A network input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Name for `from` and for rebinding.
    pub name: String,
    /// Shape without the batch.
    pub shape: Shape,
}

/// A layer in the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique name.
    pub name: String,
    /// What it computes.
    pub layer: Layer,
    /// What it reads.
    pub from: Vec<Source>,
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A network input, by position.
    Input(usize),
    /// An earlier node, by position.
    Node(usize),
}

/// Totals that somebody else counted, with where.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Learned parameters, exact.
    pub parameters: Option<u64>,
    /// Who counted them.
    pub parameters_source: Option<String>,
    /// Convolution and linear multiply-accumulates per sample.
    pub macs: Option<f64>,
    /// Who counted them.
    pub macs_source: Option<String>,
    /// Share of ImageNet's validation images whose class is not the most likely one, of trained weights.
    pub top1_error: Option<f64>,
    /// Whose weights.
    pub top1_error_source: Option<String>,
}

/// A network file that cannot be used, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Not the format.
    #[error("{0}")]
    Format(String),
    /// A layer of it is wrong.
    #[error("layer {name}: {why}")]
    Layer {
        /// Its full name.
        name: String,
        /// In words.
        why: String,
    },
}
