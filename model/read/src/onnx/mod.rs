//! Networks from ONNX files, operator sets 7 to 23, and back.
//!
//! Reading goes through these steps, a file each: [`skim`] takes the structure out of the file and leaves the weights,
//! [`batch`] finds the batch, [`graph`] goes through the operators in an [`order`], [`infer`] finds every shape and computes
//! what follows from shapes alone, [`control`] follows branches and loops where that is enough, [`patterns`] finds what a framework runs as one kernel, and [`lower`] turns operators into layers. No file that
//! an ONNX file names is opened, no weight is read.

mod batch;
mod control;
mod export;
mod graph;
mod infer;
mod lower;
mod message;
mod order;
mod patterns;
mod skim;
mod strides;
mod tensor;
mod wire;

#[cfg(test)]
mod tests;

pub use export::write;

use infer::Issue;
use joulecast_model::base::shape::Shape;
use joulecast_model::base::text::shown;
use joulecast_model::net::network::{Network, NetworkError};
use std::io::{Read, Seek};

/// How to read a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// What to call the network.
    pub name: &'a str,
    /// Shapes of inputs by their names, with the batch (which is ignored) or without, and sizes of named dimensions
    /// (shapes of one dimension).
    pub inputs: &'a [(String, Shape)],
    /// Size of every open dimension whose name says that it is a sequence.
    pub sequence: Option<u64>,
    /// The most that operators select whose values decide how much (boxes, non-zero elements); [`SELECTED`] without it.
    pub selected: Option<u64>,
    /// Leave out operators that are not known, and take their result to have their first input's shape.
    pub skip_unknown: bool,
}

/// Why a file cannot be read as a network, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OnnxError {
    /// Not such a file, or a damaged one.
    #[error("{0}")]
    Format(String),
    /// Something that the user can say is missing or wrong.
    #[error("{0}")]
    Usage(String),
    /// An operator.
    #[error("operator {name} ({op}): {why}")]
    Operator {
        /// Its name in the file.
        name: String,
        /// What it is.
        op: String,
        /// In words.
        why: String,
    },
    /// A layer that it became.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// What an operator selects at most, per sample, whose values decide how much: as many candidates as torchvision's
/// detectors keep.
pub const SELECTED: u64 = 1000;

/// Operator sets whose operators are known.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=23;

/// Reads an ONNX file. What the network does not hold of it is in its notes.
///
/// # Errors
/// One line that says what is damaged, missing or not known, and where. Operators are named.
pub fn read(file: impl Read + Seek, options: &Options<'_>) -> Result<Network, OnnxError> {
    let model = skim::read(file).map_err(OnnxError::Format)?;
    let graph = model.graph.as_ref().ok_or_else(|| OnnxError::Format("not an ONNX model: it has no graph".into()))?;
    let opset = model.opsets.iter().find(|o| matches!(&o.domain[..], "" | "ai.onnx")).map_or(1, |o| o.version);
    if !OPSETS.contains(&opset) {
        let (first, last) = (OPSETS.start(), OPSETS.end());
        return Err(OnnxError::Format(format!(
            "operator set {opset}; {first} to {last} are known: export it with another opset_version"
        )));
    }
    let read = |whole: bool| {
        let mut ordered = graph::Graph::new(graph, opset, options, whole)?;
        patterns::fuse(&mut ordered);
        let source = format!("ONNX, operator set {opset}, made by {}", shown(&model.producer));
        lower::lower(&ordered, options, source)
    };
    let batch = batch::Batch::of(&batch::stated_inputs(graph));
    if batch.is_one_sample() {
        return read(true);
    }
    let first = read(false);
    match &first {
        Err(OnnxError::Operator { .. }) if batch.may_be_one_sample() => {}
        _ => return first,
    }
    // What cannot be read for any batch may be for one sample.
    match read(true) {
        Ok(mut network) => {
            network.notes.push(NO_BATCH.to_string());
            Ok(network)
        }
        second if batch.is_channels() => second,
        Err(_) => first,
    }
}

/// What is said of a file that can only be read for one sample.
const NO_BATCH: &str = "no dimension of the file is the batch: read for one sample, of which a batch is so many";

impl OnnxError {
    fn at(node: &wire::Node, issue: Issue) -> Self {
        let why = match issue {
            Issue::TooMany => {
                return Self::Format(format!("the network has more than {} layers", joulecast_model::read::MAX_LAYERS));
            }
            Issue::Wrong(why) => why,
            Issue::ControlFlow => "control flow, whose course is only known when it runs, cannot be predicted; export \
                                   the model with its branches and loops traced, or leave it out: --skip-unknown"
                .to_string(),
            Issue::Unknown if matches!(&node.domain[..], "" | "ai.onnx") => {
                "not an operator that is known here; --skip-unknown leaves it out".to_string()
            }
            Issue::Unknown => format!(
                "not known, of domain {}; functions of a model are to be inlined (onnx.inliner); --skip-unknown leaves it \
                 out",
                shown(&node.domain)
            ),
        };
        Self::Operator { name: graph::label(node), op: shown(&node.op), why }
    }
}

impl Options<'_> {
    /// Every shape that is given must be for something that is there.
    fn check_names(&self, stated: &[&wire::ValueInfo]) -> Result<(), OnnxError> {
        let mut known: Vec<&str> = stated.iter().map(|i| &i.name[..]).collect();
        let shape = |i: &&wire::ValueInfo| i.kind.as_ref()?.tensor.as_ref()?.shape.clone();
        let dims: Vec<String> = stated.iter().filter_map(shape).flat_map(|s| s.dims).filter_map(|d| d.name).collect();
        known.extend(dims.iter().map(String::as_str));
        match self.inputs.iter().find(|(name, _)| !known.contains(&&name[..])) {
            Some((name, _)) => {
                let inputs: Vec<String> = known.iter().filter(|n| !n.is_empty()).map(|n| shown(n)).collect();
                let why = format!("no input named \"{}\"; this network has {}", shown(name), inputs.join(", "));
                Err(OnnxError::Usage(why))
            }
            None => Ok(()),
        }
    }
}
