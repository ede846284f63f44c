//! The graph of a model, in order, with what is known of every tensor.
//!
//! The batch is found by running the shapes with a marker in its place: a prime that divides no dimension of the file.
//! Whatever carries one sample after another then has exactly one dimension that the marker divides.

use super::infer::{Call, Issue, infer};
use super::tensor::Tensor;
use super::wire::{Node, ValueInfo, element};
use super::{OnnxError, Options, wire};
use crate::text::shown;
use std::collections::HashMap;

/// Position of a tensor in [`Graph::values`].
pub type Id = usize;

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
    /// Initializers of real numbers behind a constant: what may have been learned.
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

/// A graph whose operators come in an order in which each reads what is there.
#[derive(Debug)]
pub struct Graph<'a> {
    /// Operators that compute activations, and on which an output depends.
    pub ops: Vec<Op<'a>>,
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
}

impl<'a> Graph<'a> {
    /// Orders the operators and finds every shape.
    ///
    /// # Errors
    /// One line that names the operator or tensor at fault.
    pub fn new(graph: &'a wire::Graph, opset: i64, options: &Options<'_>) -> Result<Self, OnnxError> {
        if graph.nodes.len() > MOST_NODES {
            return Err(OnnxError::Format(format!("{} operators, {MOST_NODES} at most are read", graph.nodes.len())));
        }
        if graph.inputs.len() > MOST_ENDS + graph.initializers.len() || graph.outputs.len() > MOST_ENDS {
            return Err(OnnxError::Format(format!("more than {MOST_ENDS} inputs or outputs")));
        }
        let mut names: HashMap<&'a str, Id> = HashMap::new();
        let mut values: Vec<Value<'a>> = Vec::new();
        for initializer in &graph.initializers {
            let at = |why: String| OnnxError::Format(format!("initializer {}: {why}", shown(&initializer.name)));
            let tensor = Tensor::from_wire(initializer).map_err(at)?;
            let learned = if tensor.real && tensor.elements() > 1 { vec![values.len()] } else { vec![] };
            names.insert(&initializer.name, values.len());
            values.push(Value { name: &initializer.name, tensor, kind: Kind::Constant, learned });
        }
        let marker = MARKERS
            .into_iter()
            .find(|m| values.iter().all(|v| v.tensor.dims.iter().all(|d| *d == 0 || d % m != 0)))
            .ok_or_else(|| OnnxError::Format("dimensions that no network has".into()))?;
        let stated: Vec<&ValueInfo> = graph.inputs.iter().filter(|i| !names.contains_key(&i.name[..])).collect();
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
            values,
            inputs,
            outputs: vec![],
            marker,
            opset,
            made_for: batch.made_for,
            skipped: vec![],
        };
        graph_so_far.infer_all(graph, &order, &mut names, options)?;
        for output in &graph.outputs {
            let id = names.get(&output.name[..]).copied();
            let missing = || OnnxError::Format(format!("no operator makes the output {}", shown(&output.name)));
            graph_so_far.outputs.push(id.ok_or_else(missing)?);
        }
        graph_so_far.drop_unused();
        Ok(graph_so_far)
    }

    fn infer_all(
        &mut self,
        graph: &'a wire::Graph,
        order: &[usize],
        names: &mut HashMap<&'a str, Id>,
        options: &Options<'_>,
    ) -> Result<(), OnnxError> {
        let mut held = 0i64;
        for &position in order {
            let node = &graph.nodes[position];
            let id = |name: &String| names.get(&name[..]).copied().filter(|_| !name.is_empty());
            let ids: Vec<Option<Id>> = node.inputs.iter().map(id).collect();
            let inputs = ids.iter().map(|id| id.map(|id| &self.values[id].tensor)).collect();
            let call = Call { node, inputs, opset: self.opset, batch: (self.marker, self.made_for) };
            let known = matches!(&node.domain[..], "" | "ai.onnx" | "ai.onnx.ml" | "com.microsoft");
            let made = match if known { infer(&call) } else { Err(Issue::Unknown) } {
                Ok(made) => made,
                Err(Issue::Unknown) if options.skip_unknown && self.skipped.len() < MOST_ENDS => {
                    self.skipped.push((self.values.len(), format!("{} ({})", label(node), shown(&node.op))));
                    call.inputs.iter().flatten().take(1).map(|t| Tensor { data: None, ..(*t).clone() }).collect()
                }
                Err(issue) => return Err(OnnxError::at(node, issue)),
            };
            if let ([output], Some(Some(source))) = (&node.outputs[..], ids.first())
                && self.values[*source].kind == Kind::Activation
                && is_alias(node, &self.values[*source].tensor, &made)
            {
                names.insert(output, *source);
                continue;
            }
            let read = || ids.iter().flatten().map(|&id| &self.values[id]);
            let kind = self.kind_of(node, &ids);
            let mut learned: Vec<Id> = match kind {
                Kind::Activation => vec![],
                _ if matches!(&node.op[..], "Shape" | "Size") => vec![],
                _ => read().flat_map(|v| v.learned.iter().copied()).take(64).collect(),
            };
            // Exporters share initializers of equal values and name the parameters by identities.
            if node.op == "Identity" && !learned.is_empty() {
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
                held += tensor.data.as_ref().map_or(0, |d| d.len() as i64);
                if held > MOST_VALUES {
                    let why = "with it more constants are computed than any network has";
                    return Err(OnnxError::at(node, why.into()));
                }
                outputs.push(self.values.len());
                if !name.is_empty() {
                    names.insert(name, self.values.len());
                }
                self.values.push(Value { name, tensor, kind, learned: learned.clone() });
            }
            if kind == Kind::Activation {
                self.ops.push(Op { op: node.op.clone(), node, inputs: ids, outputs });
            }
        }
        Ok(())
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
        let keep: Vec<bool> = (0..self.ops.len())
            .rev()
            .map(|i| {
                let op = &self.ops[i];
                let used = op.outputs.iter().any(|&id| needed[id]);
                if used {
                    op.inputs.iter().flatten().for_each(|&id| needed[id] = true);
                }
                used
            })
            .collect();
        let mut keep = keep.into_iter().rev();
        self.ops.retain(|_| keep.next().unwrap_or(false));
    }

    /// Whether an operator was left out.
    pub fn skips(&self, op: &Op<'_>) -> bool {
        op.outputs.first().is_some_and(|id| self.skipped.iter().any(|(skipped, _)| skipped == id))
    }

    /// What is known of an operator's inputs, for the functions that shapes are inferred with.
    pub fn call<'b>(&'b self, op: &'b Op<'a>) -> Call<'b> {
        let inputs = op.inputs.iter().map(|id| id.map(|id| &self.values[id].tensor)).collect();
        Call { node: op.node, inputs, opset: self.opset, batch: (self.marker, self.made_for) }
    }
}

/// Whether a node's result is its input: also a conversion between real types, since the precision that is asked for
/// decides in which one everything runs.
fn is_alias(node: &Node, source: &Tensor, made: &[Tensor]) -> bool {
    match &node.op[..] {
        "Identity" => true,
        "Cast" | "CastLike" => source.real && made.first().is_some_and(|t| t.real),
        _ => false,
    }
}

/// The name of a node for messages: its own, or that of what it makes.
pub fn label(node: &Node) -> String {
    let name = if node.name.is_empty() { node.outputs.first().map_or("", String::as_str) } else { &node.name };
    shown(name)
}

/// How the file says which dimension is the batch.
struct Batch<'a> {
    symbol: Option<&'a str>,
    made_for: Option<i64>,
}

fn dims(info: &ValueInfo) -> Option<&[wire::Dimension]> {
    Some(&info.kind.as_ref()?.tensor.as_ref()?.shape.as_ref()?.dims)
}

fn symbol(dim: &wire::Dimension) -> Option<&str> {
    dim.name.as_deref().filter(|n| !n.is_empty())
}

/// Whether a dimension's name says that it is a sequence's length.
fn is_sequence(dim: &wire::Dimension) -> bool {
    symbol(dim).is_some_and(|s| s.to_ascii_lowercase().contains("seq"))
}

impl<'a> Batch<'a> {
    /// A dimension called batch, or else the first one of the first input.
    fn of(inputs: &[&'a ValueInfo]) -> Self {
        let all = || inputs.iter().filter_map(|i| dims(i)).flatten().filter_map(symbol);
        if let Some(symbol) = all().find(|s| s.to_ascii_lowercase().contains("batch")) {
            return Self { symbol: Some(symbol), made_for: None };
        }
        let first = inputs.iter().filter_map(|i| dims(i)).find_map(|d| d.first());
        let size = first.and_then(|d| d.size).filter(|s| *s > 0);
        Self { symbol: first.and_then(symbol), made_for: size }
    }

    fn is(&self, position: usize, dim: &wire::Dimension) -> bool {
        match (self.symbol, symbol(dim), dim.size) {
            (Some(own), Some(other), _) => own == other,
            (Some(_), None, _) => false,
            (None, _, size) => position == 0 && size.filter(|s| *s > 0) == self.made_for,
        }
    }
}

/// An input with the marker for its batch and sizes for its other open dimensions.
fn bound(info: &ValueInfo, batch: &Batch<'_>, marker: i64, options: &Options<'_>) -> Result<Tensor, OnnxError> {
    let name = shown(&info.name);
    let tensor = info.kind.as_ref().and_then(|k| k.tensor.as_ref());
    let tensor = tensor.ok_or_else(|| OnnxError::Format(format!("input {name} is not a tensor")))?;
    let real = element::is_real(tensor.element);
    let given = options.inputs.iter().find(|(n, _)| *n == info.name).map(|(_, shape)| shape.dims());
    let Some(stated) = dims(info) else {
        // No shape in the file: the first dimension that is given is the batch's.
        let given = given.ok_or_else(|| {
            OnnxError::Usage(format!(
                "the shape of input {name} is not in the file: give it, as in --input {name}=1x128"
            ))
        })?;
        let sizes = std::iter::once(marker).chain(given.iter().skip(1).map(|&d| d as i64)).collect();
        return Tensor::new(sizes, real).map_err(OnnxError::Format);
    };
    if let Some(given) = given {
        let place = stated.iter().enumerate().position(|(i, d)| batch.is(i, d));
        let mut sizes: Vec<i64> = given.iter().map(|&d| d as i64).collect();
        match place {
            Some(place) if sizes.len() + 1 == stated.len() => sizes.insert(place, marker),
            Some(place) if sizes.len() == stated.len() => sizes[place] = marker,
            None if sizes.len() == stated.len() => {}
            _ => {
                let why = format!("input {name} has {} dimensions, the batch among them", stated.len());
                return Err(OnnxError::Usage(why));
            }
        }
        return Tensor::new(sizes, real).map_err(OnnxError::Format);
    }
    let mut sizes = Vec::new();
    for (position, dim) in stated.iter().enumerate() {
        let size = dim.size.filter(|s| *s > 0);
        let named =
            symbol(dim).and_then(|s| options.inputs.iter().find(|(n, _)| n == s)).map(|(_, shape)| shape.dims());
        sizes.push(match (size, named) {
            _ if batch.is(position, dim) => marker,
            (Some(size), _) => size,
            (None, Some(&[size])) => size as i64,
            (None, None) if is_sequence(dim) && options.sequence.is_some() => options.sequence.unwrap_or(1) as i64,
            (None, _) => {
                let open = symbol(dim).map_or_else(|| format!("dimension {position}"), shown);
                let shape: Vec<String> = stated
                    .iter()
                    .enumerate()
                    .map(|(i, d)| match d.size {
                        _ if batch.is(i, d) => "1".to_string(),
                        Some(size) if size > 0 => size.to_string(),
                        _ => "128".to_string(),
                    })
                    .collect();
                return Err(OnnxError::Usage(format!(
                    "the size of {open} of input {name} is open: give it, as in --input {name}={}",
                    shape.join("x")
                )));
            }
        });
    }
    Tensor::new(sizes, real).map_err(OnnxError::Format)
}

/// Positions of the nodes such that each comes after those whose results it reads.
fn order(nodes: &[Node], known: &HashMap<&str, Id>) -> Result<Vec<usize>, OnnxError> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (position, node) in nodes.iter().enumerate() {
        for name in node.outputs.iter().filter(|n| !n.is_empty()) {
            if known.contains_key(&name[..]) || makers.insert(name, position).is_some() {
                return Err(OnnxError::Format(format!("tensor {} is made twice", shown(name))));
            }
        }
    }
    let mut waiting: Vec<usize> = vec![0; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (position, node) in nodes.iter().enumerate() {
        for name in node.inputs.iter().filter(|n| !n.is_empty() && !known.contains_key(&n[..])) {
            let maker = makers
                .get(&name[..])
                .ok_or_else(|| OnnxError::at(node, format!("it reads {}, which nothing makes", shown(name)).into()))?;
            readers[*maker].push(position);
            waiting[position] += 1;
        }
    }
    // As in the file where that is an order, so that layers keep it.
    let mut ready: std::collections::BTreeSet<usize> = (0..nodes.len()).filter(|&i| waiting[i] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(next) = ready.pop_first() {
        order.push(next);
        for &reader in &readers[next] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    match (0..nodes.len()).find(|&i| waiting[i] > 0) {
        Some(stuck) => Err(OnnxError::at(&nodes[stuck], "it depends on its own result: the graph has a cycle".into())),
        None => Ok(order),
    }
}
