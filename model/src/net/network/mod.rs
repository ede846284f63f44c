//! Networks: a directed graph of layers, read from a file, then given shapes for a batch.

pub(crate) mod folded;
pub mod folding;
pub mod derived;
mod fusion;
mod grouped;
mod order;
mod shaped;
mod stored;

pub use derived::Derived;
pub use folded::Folded;
pub use shaped::{ShapedLayer, ShapedNetwork, ShapingError};
pub use stored::{Kept, Stored, Weights};

use crate::base::name::Name;
use crate::base::precision::Precision;
use crate::base::shape::Shape;
use crate::base::text::prose;
use crate::net::layer::Layer;
use std::sync::Arc;

/// Name of the dimension of a language model's input.
pub const SEQUENCE: &str = "sequence";

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
    /// Nodes before the last one whose results are outputs, too.
    pub outputs: Vec<usize>,
    /// What is computed of learned values alone.
    pub derived: Vec<Derived>,
    /// What to tell with whatever is said of it: what a file holds that the network does not.
    pub notes: Vec<String>,
    /// What its file says of its use.
    pub stated: Stated,
}

/// What a network's file says that no layer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// What its weights are published in.
    pub precision: Option<Precision>,
    /// It has a place for that, and says nothing there that is known: a `config.json` without `torch_dtype`.
    pub is_silent: bool,
    /// Its experts are published in fewer bits than that.
    pub experts: Option<Weights>,
    /// Positions of the longest sequence that it was made for.
    pub positions: Option<u64>,
}

/// A network input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Name for `from` and for rebinding.
    pub name: String,
    /// Shape without the batch.
    pub shape: Shape,
    /// Which of its dimensions have names, such as `sequence`: see [`Network::bind`].
    pub symbols: Vec<Option<String>>,
    /// Whether it holds indices, which only an embedding reads.
    pub integer: bool,
}

/// What a layer reads; copies share it.
pub type Sources = Arc<[Source]>;

/// Follows layers that have moved: `places` are where they are now.
pub fn relocate(from: &mut Sources, places: &[usize]) {
    for source in Arc::make_mut(from) {
        if let Source::Node(i) = source {
            *i = places[*i];
        }
    }
}

/// A layer in the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique name.
    pub name: Name,
    /// What it computes.
    pub layer: Layer,
    /// What it reads.
    pub from: Sources,
    /// The earlier node whose parameters it uses instead of ones of its own.
    pub tied: Option<usize>,
    /// Whether its weights hold the batch norm that ran after it: an export folded it in, and what runs the modules as
    /// they are written runs it as a kernel of its own.
    pub folded: Folded,
}

impl Network {
    /// Names of dimensions of inputs, in order of appearance.
    pub fn dimensions(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.inputs.iter().flat_map(|i| &i.symbols).flatten() {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Where the product is that makes a language model's logits: the last layer, or the one before what is done to them one by
    /// one.
    pub fn head(&self) -> Option<usize> {
        let pointwise = |node: &Node| matches!(node.layer, Layer::Elementwise(_) | Layer::Activation(_));
        let last = self.nodes.iter().rposition(|node| !pointwise(node))?;
        Some(last).filter(|&i| matches!(self.nodes[i].layer, Layer::Linear(_)))
    }

    /// Says how many times as many tokens a busy expert has as the mean of all, of all mixtures of experts.
    ///
    /// # Errors
    /// When there is none, or the number is below 1 or says more than that every token has the same experts.
    pub fn set_imbalance(&mut self, imbalance: f64) -> Result<(), NetworkError> {
        let mut found = false;
        for node in &mut self.nodes {
            let Layer::Experts(experts) = &mut node.layer else { continue };
            let most = experts.experts as f64 / experts.active as f64;
            if !(1.0..=most).contains(&imbalance) {
                return Err(NetworkError::Format(format!(
                    "--imbalance {imbalance}: from 1, all experts of {} are as busy, to {most}, every token has the same {} of {}",
                    self.name, experts.active, experts.experts
                )));
            }
            (experts.imbalance, found) = (imbalance, true);
        }
        match found {
            true => {
                self.notes.push(format!("busy experts have {imbalance} times as many tokens as the mean of all"));
                Ok(())
            }
            false => {
                Err(NetworkError::Format(format!("{} has no mixture of experts: leave out --imbalance", self.name)))
            }
        }
    }

    /// Gives a named dimension of the inputs another size.
    ///
    /// # Errors
    /// When no input has a dimension of that name, or the size is none.
    pub fn bind(&mut self, dimension: &str, size: u64) -> Result<(), NetworkError> {
        let known = self.dimensions().contains(&dimension);
        if !known {
            let names = self.dimensions();
            let has = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            return Err(NetworkError::Format(format!(
                "{} has no dimension named \"{dimension}\"; it has {has}",
                self.name
            )));
        }
        for input in &mut self.inputs {
            let named = |symbol: &Option<String>| symbol.as_deref() == Some(dimension);
            let dims = input.shape.dims().iter().zip(&input.symbols);
            let dims: Vec<u64> = dims.map(|(d, symbol)| if named(symbol) { size } else { *d }).collect();
            input.shape = Shape::new(&dims).map_err(|e| NetworkError::Format(format!("{dimension}: {e}")))?;
        }
        Ok(())
    }

    /// Gives every map among the inputs another height and width, both `side`.
    ///
    /// # Errors
    /// When no input is a map, or the side is none.
    pub fn bind_side(&mut self, side: u64) -> Result<(), NetworkError> {
        let mut maps = self.inputs.iter_mut().filter_map(|i| Some((i.shape.as_map()?.0, i))).peekable();
        if maps.peek().is_none() {
            return Err(NetworkError::Format(format!("{} reads no images", self.name)));
        }
        for (channels, input) in maps {
            let shape = Shape::map(channels, side, side);
            input.shape = shape.map_err(|e| NetworkError::Format(format!("a side of {side}: {e}")))?;
        }
        Ok(())
    }
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A network input, by position.
    Input(usize),
    /// An earlier node, by position.
    Node(usize),
}

/// Totals that somebody else counted, with where.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Learned parameters, exact.
    pub parameters: Option<u64>,
    /// Who counted them.
    #[serde(default, deserialize_with = "prose")]
    pub parameters_source: Option<String>,
    /// Convolution and linear multiply-accumulates per sample.
    pub macs: Option<f64>,
    /// Who counted them.
    #[serde(default, deserialize_with = "prose")]
    pub macs_source: Option<String>,
    /// Share of ImageNet's validation images whose class is not the most likely one, of trained weights.
    pub top1_error: Option<f64>,
    /// Whose weights.
    #[serde(default, deserialize_with = "prose")]
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
