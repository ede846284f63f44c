//! The graph of a model, in order, with what is known of every tensor. Of a branch whose condition is known, what is taken
//! becomes part of it.

use super::batch::{Batch, bound, dims, is_sequence, stated_inputs};
use super::infer::{Call, Issue, infer};
use super::order::{captured, order};
use super::tensor::Tensor;
use super::wire::{Node, metadata};
use super::{OnnxError, Options, SELECTED, wire};
use joulecast_model::base::text::shown;
use joulecast_model::net::layer::Width;
use std::collections::{HashMap, HashSet};

pub use super::order::Id;

/// Where the tensors of a name are.
pub(super) type Names<'a> = HashMap<&'a str, Id>;

/// No network has more operators.
const MOST_NODES: usize = 100_000;
/// Nor more inputs, outputs or operators that can be left out.
const MOST_ENDS: usize = 1_000;
/// Values of constants that are computed.
const MOST_VALUES: i64 = 8 << 20;
const MARKERS: [i64; 5] = [1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081];

/// What a tensor depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing but shapes: known before anything runs.
    Constant,
    /// Also on integer inputs, without having looked anything up by them: masks and positions.
    Index,
    /// What a network computes.
    Activation,
}

/// A tensor of the graph.
#[derive(Debug)]
pub struct Value<'a> {
    /// Its name in the file.
    pub name: &'a str,
    /// What is known of it.
    pub tensor: Tensor,
    /// What it depends on.
    pub kind: Kind,
    /// Initializers of real numbers behind a constant: what may have been learned. None that an exporter says was not.
    pub learned: Vec<Id>,
}

/// An operator of the graph.
#[derive(Clone, Debug)]
pub struct Op<'a> {
    /// Its name in the ONNX specification, or that of the operator that a pattern found it to be part of.
    pub op: String,
    /// The node in the file, for its name and attributes.
    pub node: &'a Node,
    /// What it reads.
    pub inputs: Vec<Option<Id>>,
    /// What it makes.
    pub outputs: Vec<Id>,
}

/// What exports of ours say beside ONNX's operators: where a module asks for values side by side, which changes none of them.
const OWN: &str = "joulecast";
const CONTIGUOUS: &str = "Contiguous";

/// A graph whose operators come in an order in which each reads what is there.
#[derive(Debug)]
pub struct Graph<'a> {
    /// Operators that compute activations, and on which an output depends.
    pub ops: Vec<Op<'a>>,
    /// Operators that compute constants from what may have been learned, and on which those depend.
    pub derived: Vec<Op<'a>>,
    /// All tensors.
    pub values: Vec<Value<'a>>,
    /// Inputs that are activations or indices.
    pub inputs: Vec<Id>,
    /// Outputs.
    pub outputs: Vec<Id>,
    /// What stands for the batch in dimensions.
    pub marker: i64,
    /// Version of the operator set.
    pub opset: i64,
    /// The batch that the file was made for, where it says one.
    pub made_for: Option<i64>,
    /// Operators that were left out: their outputs, and what to call them.
    pub skipped: Vec<(Id, String)>,
    /// Operators that select as many of their results as values decide.
    pub selecting: Vec<String>,
    /// Limit of what they select.
    selected: u64,
    /// Values of constants that are kept.
    held: i64,
    /// Tensors of each sequence.
    pub(super) sequences: HashMap<Id, Vec<Id>>,
    /// Tensors whose values are asked to lie side by side.
    pub contiguous: HashSet<Id>,
    /// Whether some of its numbers have 16 bits, so that conversions between real types say where 32 are computed with.
    narrow: bool,
    /// Bodies in bodies that are being followed.
    pub(super) level: usize,
}

impl<'a> Graph<'a> {
    /// Orders the operators and finds every shape.
    ///
    /// # Errors
    /// One line that names the operator or tensor at fault.
    ///
    /// With `whole`, all of the file is one sample; else its batch is to be found.
    pub fn new(graph: &'a wire::Graph, opset: i64, options: &Options<'_>, whole: bool) -> Result<Self, OnnxError> {
        if graph.nodes.len() > MOST_NODES {
            return Err(OnnxError::Format(format!("{} operators, {MOST_NODES} at most are read", graph.nodes.len())));
        }
        if graph.inputs.len() > MOST_ENDS + graph.initializers.len() || graph.outputs.len() > MOST_ENDS {
            return Err(OnnxError::Format(format!("more than {MOST_ENDS} inputs or outputs")));
        }
        let mut names: Names<'a> = HashMap::new();
        let mut values: Vec<Value<'a>> = Vec::new();
        initializers(graph, &mut values, &mut names)?;
        let marker = MARKERS
            .into_iter()
            .find(|m| values.iter().all(|v| v.tensor.dims.iter().all(|d| *d == 0 || d % m != 0)))
            .ok_or_else(|| OnnxError::Format("dimensions that no network has".into()))?;
        let marker = if whole { 1 } else { marker };
        let stated = stated_inputs(graph);
        let batch = Batch::of(&stated);
        let mut inputs = Vec::new();
        for info in &stated {
            let tensor = bound(info, &batch, marker, options)?;
            let kind = if tensor.real { Kind::Activation } else { Kind::Index };
            if names.insert(&info.name, values.len()).is_some() {
                return Err(OnnxError::Format(format!("two inputs are called {}", shown(&info.name))));
            }
            inputs.push(values.len());
            values.push(Value { name: &info.name, tensor, kind, learned: vec![] });
        }
        options.check_names(&stated)?;
        if options.sequence.is_some() && !stated.iter().filter_map(|i| dims(i)).flatten().any(is_sequence) {
            return Err(OnnxError::Usage(
                "none of its dimensions is called a sequence: --input says which is what".into(),
            ));
        }
        let order = order(&graph.nodes, &names)?;
        let mut graph_so_far = Self {
            ops: Vec::new(),
            derived: Vec::new(),
            values,
            inputs,
            outputs: vec![],
            marker,
            opset,
            made_for: batch.made_for,
            skipped: vec![],
            selecting: vec![],
            selected: options.selected.unwrap_or(SELECTED),
            held: 0,
            sequences: HashMap::new(),
            contiguous: HashSet::new(),
            narrow: is_narrow(graph),
            level: 0,
        };
        graph_so_far.infer_all(&graph.nodes, &order, &mut names, options)?;
        for output in &graph.outputs {
            let id = names.get(&output.name[..]).copied();
            let missing = || OnnxError::Format(format!("no operator makes the output {}", shown(&output.name)));
            graph_so_far.outputs.push(id.ok_or_else(missing)?);
        }
        graph_so_far.drop_unused();
        Ok(graph_so_far)
    }

    pub(super) fn infer_all(
        &mut self,
        nodes: &'a [Node],
        order: &[usize],
        names: &mut Names<'a>,
        options: &Options<'_>,
    ) -> Result<(), OnnxError> {
        for &position in order {
            let node = &nodes[position];
            if self.follow(node, names, options)? {
                continue;
            }
            let id = |name: &String| names.get(&name[..]).copied().filter(|_| !name.is_empty());
            if node.domain == OWN && node.op == CONTIGUOUS {
                let ([input], [output]) = (&node.inputs[..], &node.outputs[..]) else {
                    return Err(OnnxError::at(node, "it has one input and one output".to_string().into()));
                };
                let source =
                    id(input).ok_or_else(|| OnnxError::at(node, "nothing makes its input".to_string().into()))?;
                self.contiguous.insert(source);
                names.insert(output, source);
                continue;
            }
            let mut ids: Vec<Option<Id>> = node.inputs.iter().map(id).collect();
            let inputs = ids.iter().map(|id| id.map(|id| &self.values[id].tensor)).collect();
            let call = self.about(node, inputs);
            let known = matches!(&node.domain[..], "" | "ai.onnx" | "ai.onnx.ml" | "com.microsoft");
            let made = match if known { infer(&call) } else { Err(Issue::Unknown) } {
                Ok(made) => made,
                Err(Issue::Unknown | Issue::ControlFlow) if options.skip_unknown && self.skipped.len() < MOST_ENDS => {
                    self.skipped.push((self.values.len(), format!("{} ({})", label(node), shown(&node.op))));
                    // What its body reads is computed all the same.
                    let mut inner = Vec::new();
                    captured(node, &mut inner);
                    ids.extend(inner.into_iter().filter_map(|name| names.get(name).copied()).map(Some));
                    let real = |id: &&Id| self.values[**id].kind == Kind::Activation;
                    let passed = ids.iter().flatten().find(real).or_else(|| ids.iter().flatten().next());
                    // What a loop carries from turn to turn begins as one of its inputs.
                    let carried = |i: usize| ids.get(2 + i).and_then(Option::as_ref).filter(|_| node.op == "Loop");
                    let from = |i: usize| carried(i).or(passed).map(|&id| &self.values[id].tensor);
                    let outputs = (0..node.outputs.len()).filter_map(from);
                    outputs.map(|t| Tensor { data: None, ..t.clone() }).collect()
                }
                Err(issue) => return Err(OnnxError::at(node, issue)),
            };
            if let ([output], Some(Some(source))) = (&node.outputs[..], ids.first())
                && self.values[*source].kind == Kind::Activation
                && self.is_alias(node, &self.values[*source].tensor, &made)
            {
                names.insert(output, *source);
                continue;
            }
            let read = || ids.iter().flatten().map(|&id| &self.values[id]);
            let kind = self.kind_of(node, &ids);
            let mut learned: Vec<Id> = match kind {
                Kind::Activation => vec![],
                // Values written into places, and comparisons, make masks.
                _ if matches!(&node.op[..], "Shape" | "Size" | "ScatterND" | "ScatterElements") => vec![],
                _ if matches!(&node.op[..], "Equal" | "Less" | "Greater" | "LessOrEqual" | "GreaterOrEqual") => vec![],
                _ => read().flat_map(|v| v.learned.iter().copied()).take(64).collect(),
            };
            // Exporters share initializers of equal values and name the parameters by identities. What has no name of a
            // parameter, as matrices that were transposed, is only equal where it is the same.
            let named = node.outputs.first().is_some_and(|name| !name.starts_with("onnx::MatMul"));
            let is_vector = made.first().is_some_and(|t| t.rank() < 2);
            if node.op == "Identity" && (named || is_vector) && !learned.is_empty() {
                learned = vec![self.values.len()];
            }
            learned.sort_unstable();
            learned.dedup();
            let mut outputs = Vec::new();
            for (position, name) in node.outputs.iter().enumerate() {
                let tensor = match made.get(position) {
                    Some(tensor) => tensor.clone(),
                    None if name.is_empty() => continue,
                    None => return Err(OnnxError::at(node, format!("its output {position} is not known").into())),
                };
                self.held += tensor.data.as_ref().map_or(0, |d| d.len() as i64);
                if self.held > MOST_VALUES {
                    let why = "with it more constants are computed than any network has";
                    return Err(OnnxError::at(node, why.into()));
                }
                outputs.push(self.values.len());
                if !name.is_empty() {
                    names.insert(name, self.values.len());
                }
                self.values.push(Value { name, tensor, kind, learned: learned.clone() });
            }
            if is_selecting(node) && made.first().is_some_and(|t| t.data.is_none()) && self.selecting.len() < MOST_ENDS
            {
                self.selecting.push(shown(&node.op));
            }
            let op = |inputs, outputs| Op { op: node.op.clone(), node, inputs, outputs };
            match kind {
                Kind::Activation => self.ops.push(op(ids, outputs)),
                Kind::Constant if !learned.is_empty() => self.derived.push(op(ids, outputs)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a node's result is its input: also a conversion between real types where all of a file is in 32 bits, since the
    /// precision that is asked for decides in which one everything runs.
    fn is_alias(&self, node: &Node, source: &Tensor, made: &[Tensor]) -> bool {
        let real = || source.real && made.first().is_some_and(|t| t.real);
        match &node.op[..] {
            "Identity" => true,
            "Cast" => !self.narrow && real(),
            "CastLike" => real(),
            _ => false,
        }
    }

    /// What a conversion between real types makes; `None` of all other operators.
    pub fn conversion(&self, op: &Op<'_>) -> Option<Width> {
        let source = op.inputs.first().copied().flatten()?;
        let real = self.values[source].tensor.real && op.op == "Cast";
        match cast_to(op.node).filter(|_| real)? {
            wire::element::FLOAT | wire::element::DOUBLE => Some(Width::Wide),
            wire::element::FLOAT16 | wire::element::BFLOAT16 => Some(Width::Narrow),
            _ => None,
        }
    }

    fn kind_of(&self, node: &Node, inputs: &[Option<Id>]) -> Kind {
        let kind = |id: &Id| self.values[*id].kind;
        let looked_up = match (&node.op[..], inputs) {
            ("Gather", [Some(table), Some(indices), ..]) => {
                kind(indices) == Kind::Index && !self.values[*table].learned.is_empty()
            }
            _ => false,
        };
        match inputs.iter().flatten().map(kind).max() {
            _ if matches!(&node.op[..], "Shape" | "Size") => Kind::Constant,
            _ if looked_up => Kind::Activation,
            most => most.unwrap_or(Kind::Constant),
        }
    }

    fn drop_unused(&mut self) {
        let mut needed = vec![false; self.values.len()];
        self.outputs.iter().for_each(|&id| needed[id] = true);
        retain_needed(&mut self.ops, &mut needed);
        retain_needed(&mut self.derived, &mut needed);
    }

    /// What is assumed of operators of which values decide how much they make.
    pub fn selection_note(&self) -> Option<String> {
        let mut names = self.selecting.clone();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| {
            let (names, most) = (names.join(", "), self.selected);
            format!(
                "values decide how much {names} select: taken are {most} elements, where there are as many (--selected)"
            )
        })
    }

    /// Whether an operator was left out.
    pub fn skips(&self, op: &Op<'_>) -> bool {
        op.outputs.first().is_some_and(|id| self.skipped.iter().any(|(skipped, _)| skipped == id))
    }

    /// Whether a norm's factors are one for each channel of a map, and not of the last dimension.
    pub fn is_over_channels(&self, op: &Op<'_>) -> bool {
        let tensor = |at: usize| op.inputs.get(at).copied().flatten().map(|id| &self.values[id].tensor);
        let (Some(x), Some(factors)) = (tensor(0), tensor(1)) else { return false };
        let along = factors.rank() >= 3 && factors.dims.last() == Some(&1);
        along && matches!(x.dims[..], [_, channels, _, _] if channels == factors.elements())
    }

    /// What is known of an operator's inputs, for the functions that shapes are inferred with.
    pub fn call<'b>(&'b self, op: &'b Op<'a>) -> Call<'b> {
        self.about(op.node, op.inputs.iter().map(|id| id.map(|id| &self.values[id].tensor)).collect())
    }

    fn about<'b>(&self, node: &'b Node, inputs: Vec<Option<&'b Tensor>>) -> Call<'b> {
        Call { node, inputs, opset: self.opset, batch: (self.marker, self.made_for), selected: self.selected }
    }
}

/// Keeps operators whose results are needed, and marks what they read.
fn retain_needed(ops: &mut Vec<Op<'_>>, needed: &mut [bool]) {
    let mark = |op: &Op<'_>| {
        let used = op.outputs.iter().any(|&id| needed[id]);
        if used {
            read_in_steps(op).for_each(|id| needed[id] = true);
        }
        used
    };
    let keep: Vec<bool> = ops.iter().rev().map(mark).collect();
    let mut keep = keep.into_iter().rev();
    ops.retain(|_| keep.next().unwrap_or(false));
}

/// What a framework has to compute for an operator. Of constants it needs no statistics where its kernel takes them itself;
/// exporters bring the weights of recurrent layers into another order, which nothing runs.
fn read_in_steps<'o>(op: &'o Op<'_>) -> impl Iterator<Item = Id> + 'o {
    let left_out = match &op.op[..] {
        "BatchNormalization" => 3..5,
        "LSTM" | "GRU" | "RNN" => 1..4,
        _ => 0..0,
    };
    op.inputs.iter().enumerate().filter(move |(i, _)| !left_out.contains(i)).filter_map(|(_, id)| *id)
}

/// Whether values decide how much a node makes.
fn is_selecting(node: &Node) -> bool {
    matches!(&node.op[..], "NonZero" | "NonMaxSuppression" | "Unique" | "Compress")
}

/// Appends the initializers of a graph or branch.
pub(super) fn initializers<'a>(
    graph: &'a wire::Graph,
    values: &mut Vec<Value<'a>>,
    names: &mut Names<'a>,
) -> Result<(), OnnxError> {
    let said = |info: &'a wire::ValueInfo| {
        let kind = info.metadata.iter().find(|entry| entry.key == metadata::KIND)?;
        (kind.value != metadata::PARAMETER).then_some(&info.name[..])
    };
    let given: HashSet<&str> = graph.described.iter().filter_map(said).collect();
    for initializer in &graph.initializers {
        let at = |why: String| OnnxError::Format(format!("initializer {}: {why}", shown(&initializer.name)));
        let tensor = Tensor::from_wire(initializer).map_err(at)?;
        // A single value is a number of the source text, unless it is a vector that a module's attribute names.
        let named = tensor.rank() > 0 && initializer.name.contains('.') && !initializer.name.contains(['/', ':']);
        let may = tensor.real && (tensor.elements() > 1 || named) && !given.contains(&initializer.name[..]);
        let learned = if may { vec![values.len()] } else { vec![] };
        names.insert(&initializer.name, values.len());
        values.push(Value { name: &initializer.name, tensor, kind: Kind::Constant, learned });
    }
    Ok(())
}

/// Whether numbers of a file have 16 bits: weights, or what something is converted to.
fn is_narrow(graph: &wire::Graph) -> bool {
    let narrow = |element: i32| matches!(element, wire::element::FLOAT16 | wire::element::BFLOAT16);
    let made = graph.nodes.iter().filter(|node| node.op == "Cast").filter_map(cast_to);
    graph.initializers.iter().map(|tensor| tensor.data_type).chain(made).any(narrow)
}

/// The type to which a `Cast` converts.
fn cast_to(node: &Node) -> Option<i32> {
    node.attributes.iter().find(|a| a.name == "to").and_then(|a| i32::try_from(a.i).ok())
}

/// The name of a node for messages: its own, or that of what it makes.
pub fn label(node: &Node) -> String {
    let name = if node.name.is_empty() { node.outputs.first().map_or("", String::as_str) } else { &node.name };
    shown(name)
}
