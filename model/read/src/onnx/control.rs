//! Branches and loops whose course is known before anything runs, and sequences of tensors: they are followed, and their
//! operators become part of the graph.

use super::graph::{Graph, Id, Kind, Names, Op, Value, initializers};
use super::order::order;
use super::tensor::Tensor;
use super::wire::{self, Node};
use super::{OnnxError, Options};
use joulecast_model::base::text::shown;

/// Loops are followed for so many turns at most.
const MOST_TURNS: i64 = 10_000;
/// Values of all turns and branches together.
const MOST_VALUES: usize = 200_000;
/// Branches in branches.
const MOST_LEVELS: usize = 16;

impl<'a> Graph<'a> {
    /// Follows a node that is control flow or handles sequences; `false` where it is neither, or its course is not known.
    pub(super) fn follow(
        &mut self,
        node: &'a Node,
        names: &mut Names<'a>,
        options: &Options<'_>,
    ) -> Result<bool, OnnxError> {
        let id = |names: &Names<'a>, position: usize| {
            node.inputs.get(position).filter(|n| !n.is_empty()).and_then(|n| names.get(&n[..]).copied())
        };
        let missing = || OnnxError::at(node, "an input is missing".into());
        let input = |names: &Names<'a>, position: usize| id(names, position).ok_or_else(missing);
        match &node.op[..] {
            "If" => {
                let known = id(names, 0).and_then(|id| self.values[id].tensor.scalar());
                let Some(condition) = known else { return Ok(false) };
                let name = if condition != 0.0 { "then_branch" } else { "else_branch" };
                let branch = node.attributes.iter().find(|a| a.name == name).and_then(|a| a.g.as_deref());
                let Some(branch) = branch else { return Err(OnnxError::at(node, "it has no branch".into())) };
                let made = self.run(node, branch, names, options)?;
                self.bind(node, &made, names)?;
            }
            "Loop" => return self.unroll(node, names, options),
            "SequenceEmpty" => {
                let made = self.sequence(vec![]);
                self.bind(node, &[made], names)?;
            }
            "SequenceConstruct" => {
                let parts = (0..node.inputs.len()).map(|i| input(names, i)).collect::<Result<_, _>>()?;
                let made = self.sequence(parts);
                self.bind(node, &[made], names)?;
            }
            "SequenceInsert" => {
                let Some(mut parts) = self.parts(input(names, 0)?) else { return Ok(false) };
                let place = id(names, 2).map_or(Some(parts.len() as f64), |id| self.values[id].tensor.scalar());
                let Some(place) = place else { return Ok(false) };
                let place = if place < 0.0 { place + parts.len() as f64 } else { place };
                parts.insert((place.max(0.0) as usize).min(parts.len()), input(names, 1)?);
                let made = self.sequence(parts);
                self.bind(node, &[made], names)?;
            }
            "SequenceAt" => {
                let (Some(parts), Some(place)) =
                    (self.parts(input(names, 0)?), self.values[input(names, 1)?].tensor.scalar())
                else {
                    return Ok(false);
                };
                let place = if place < 0.0 { place + parts.len() as f64 } else { place };
                let part = parts.get(place as usize).copied();
                let part = part.ok_or_else(|| OnnxError::at(node, "its sequence is shorter".into()))?;
                self.bind(node, &[part], names)?;
            }
            "SequenceLength" => {
                let Some(parts) = self.parts(input(names, 0)?) else { return Ok(false) };
                let tensor = Tensor { dims: vec![], ..Tensor::list(vec![parts.len() as i64]) };
                let made = self.value(tensor, Kind::Constant);
                self.bind(node, &[made], names)?;
            }
            "SplitToSequence" => return self.split(node, names),
            "ConcatFromSequence" => {
                let Some(parts) = self.parts(input(names, 0)?) else { return Ok(false) };
                let made = self.join(node, &parts)?;
                self.bind(node, &[made], names)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn parts(&self, id: Id) -> Option<Vec<Id>> {
        self.sequences.get(&id).cloned()
    }

    fn value(&mut self, tensor: Tensor, kind: Kind) -> Id {
        self.values.push(Value { name: "", tensor, kind, learned: vec![] });
        self.values.len() - 1
    }

    /// A sequence of tensors, known part by part.
    fn sequence(&mut self, parts: Vec<Id>) -> Id {
        let id = self.value(Tensor { dims: vec![], real: false, data: None }, Kind::Constant);
        self.sequences.insert(id, parts);
        id
    }

    /// Gives what a node makes its names.
    fn bind(&self, node: &'a Node, made: &[Id], names: &mut Names<'a>) -> Result<(), OnnxError> {
        if made.len() < node.outputs.len() {
            return Err(OnnxError::at(node, "it makes fewer tensors than it names".into()));
        }
        names
            .extend(node.outputs.iter().map(|n| &n[..]).zip(made.iter().copied()).filter(|(name, _)| !name.is_empty()));
        Ok(())
    }

    /// Takes the operators of a branch or turn over; returns what it makes.
    fn run(
        &mut self,
        node: &'a Node,
        body: &'a wire::Graph,
        names: &mut Names<'a>,
        options: &Options<'_>,
    ) -> Result<Vec<Id>, OnnxError> {
        self.level += 1;
        if self.level > MOST_LEVELS || self.values.len() > MOST_VALUES {
            return Err(OnnxError::at(node, "its branches and loops have more operators than any network".into()));
        }
        initializers(body, &mut self.values, names)?;
        let order = order(&body.nodes, names)?;
        self.infer_all(&body.nodes, &order, names, options)?;
        let missing = |name: &str| OnnxError::at(node, format!("its body does not make {}", shown(name)).into());
        let made = body.outputs.iter().map(|o| names.get(&o.name[..]).copied().ok_or_else(|| missing(&o.name)));
        let made: Vec<Id> = made.collect::<Result<_, _>>()?;
        // Another branch or turn may use the same names.
        for name in body.nodes.iter().flat_map(|n| &n.outputs).chain(body.initializers.iter().map(|t| &t.name)) {
            names.remove(&name[..]);
        }
        self.level -= 1;
        Ok(made)
    }

    /// Follows a loop of a known number of turns.
    fn unroll(&mut self, node: &'a Node, names: &mut Names<'a>, options: &Options<'_>) -> Result<bool, OnnxError> {
        let body = node.attributes.iter().find(|a| a.name == "body").and_then(|a| a.g.as_deref());
        let Some(body) = body else { return Err(OnnxError::at(node, "it has no body".into())) };
        let id = |position: usize| {
            node.inputs.get(position).filter(|n| !n.is_empty()).and_then(|n| names.get(&n[..]).copied())
        };
        let turns = id(0).and_then(|id| self.values[id].tensor.scalar());
        let holds = id(1).is_none_or(|id| self.values[id].tensor.scalar() == Some(1.0));
        let (Some(turns), true) = (turns, holds) else { return Ok(false) };
        let carried = body.inputs.len().saturating_sub(2);
        let state: Option<Vec<Id>> = (2..2 + carried).map(id).collect();
        let Some(mut state) = state else { return Err(OnnxError::at(node, "an input is missing".into())) };
        let turns = turns as i64;
        if !(0..=MOST_TURNS).contains(&turns) {
            return Err(OnnxError::at(node, format!("{turns} turns, {MOST_TURNS} at most are followed").into()));
        }
        let mut collected: Vec<Vec<Id>> = vec![vec![]; body.outputs.len().saturating_sub(1 + carried)];
        for turn in 0..turns {
            let number = Tensor { dims: vec![], ..Tensor::list(vec![turn]) };
            let condition = Tensor { dims: vec![], ..Tensor::list(vec![1]) };
            let given = [self.value(number, Kind::Constant), self.value(condition, Kind::Constant)];
            names.extend(body.inputs.iter().map(|i| &i.name[..]).zip(given.into_iter().chain(state.iter().copied())));
            let level = self.level;
            let Ok(made) = self.run(node, body, names, options) else {
                self.level = level;
                return Ok(false);
            };
            match made.first().and_then(|&id| self.values[id].tensor.scalar()) {
                Some(1.0) => {}
                Some(_) if turn + 1 == turns => {}
                _ => return Ok(false),
            }
            let rest = made.get(1..).unwrap_or_default();
            let (next, scanned) = rest.split_at(carried.min(rest.len()));
            state = next.to_vec();
            collected.iter_mut().zip(scanned).for_each(|(list, id)| list.push(*id));
        }
        for input in &body.inputs {
            names.remove(&input.name[..]);
        }
        for parts in collected {
            let stacked = self.stack(node, &parts, 0)?;
            state.push(stacked);
        }
        self.bind(node, &state, names)?;
        Ok(true)
    }

    /// Tensors along a dimension of their own.
    fn stack(&mut self, node: &'a Node, parts: &[Id], axis: usize) -> Result<Id, OnnxError> {
        let first = parts.first().map(|&id| self.values[id].tensor.clone());
        let first = first.ok_or_else(|| OnnxError::at(node, "it collects nothing".into()))?;
        let mut dims = first.dims;
        dims.insert(axis.min(dims.len()), parts.len() as i64);
        self.joined(node, "Stack", parts, dims, first.real)
    }

    /// `ConcatFromSequence`.
    fn join(&mut self, node: &'a Node, parts: &[Id]) -> Result<Id, OnnxError> {
        let int = |name: &str| node.attributes.iter().find(|a| a.name == name).map_or(0, |a| a.i);
        let rank = parts.first().map_or(0, |&id| self.values[id].tensor.rank()) as i64 + int("new_axis");
        let axis = int("axis");
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).unwrap_or(usize::MAX);
        if int("new_axis") == 1 {
            return self.stack(node, parts, axis);
        }
        let tensors = || parts.iter().map(|&id| &self.values[id].tensor);
        let lengths = tensors().map(|t| t.dims.get(axis).copied()).sum::<Option<i64>>();
        let (Some(first), Some(length)) = (tensors().next(), lengths) else {
            return Err(OnnxError::at(node, "it joins nothing".into()));
        };
        let (mut dims, real) = (first.dims.clone(), first.real);
        dims[axis] = length;
        self.joined(node, "Concat", parts, dims, real)
    }

    fn joined(&mut self, node: &'a Node, op: &str, parts: &[Id], dims: Vec<i64>, real: bool) -> Result<Id, OnnxError> {
        let tensor = Tensor::new(dims, real).map_err(|why| OnnxError::at(node, why.into()))?;
        let kind = parts.iter().map(|&id| self.values[id].kind).max().unwrap_or(Kind::Constant);
        let made = self.value(tensor, kind);
        if kind == Kind::Activation {
            let inputs = parts.iter().map(|&id| Some(id)).collect();
            self.ops.push(Op { op: op.to_string(), node, inputs, outputs: vec![made] });
        }
        Ok(made)
    }

    /// `SplitToSequence` into parts of known sizes.
    fn split(&mut self, node: &'a Node, names: &mut Names<'a>) -> Result<bool, OnnxError> {
        let int = |name: &str, default| node.attributes.iter().find(|a| a.name == name).map_or(default, |a| a.i);
        let id = |position: usize| node.inputs.get(position).and_then(|n| names.get(&n[..]).copied());
        let Some(input) = id(0) else { return Err(OnnxError::at(node, "its input is missing".into())) };
        let (tensor, kind) = (self.values[input].tensor.clone(), self.values[input].kind);
        let axis = int("axis", 0);
        let axis = usize::try_from(if axis < 0 { axis + tensor.rank() as i64 } else { axis }).unwrap_or(usize::MAX);
        let Some(&size) = tensor.dims.get(axis) else { return Err(OnnxError::at(node, "it has no such axis".into())) };
        let sizes = match id(1).map(|id| &self.values[id].tensor) {
            None => vec![1; usize::try_from(size.min(MOST_TURNS)).unwrap_or(0)],
            Some(t) => match (t.rank(), t.ints()) {
                (0, Some(&[each])) if each > 0 && size / each < MOST_TURNS => {
                    (0..(size + each - 1) / each).map(|i| each.min(size - i * each)).collect()
                }
                (1, Some(sizes)) => sizes.to_vec(),
                _ => return Ok(false),
            },
        };
        if sizes.iter().sum::<i64>() != size || sizes.iter().any(|s| *s < 0) {
            return Err(OnnxError::at(node, "its parts are not all of it".into()));
        }
        let drops = id(1).is_none() && int("keepdims", 1) == 0;
        let mut parts = Vec::new();
        for part in sizes {
            let mut dims = tensor.dims.clone();
            if drops {
                dims.remove(axis);
            } else {
                dims[axis] = part;
            }
            parts.push(self.value(Tensor { dims, real: tensor.real, data: None }, kind));
        }
        if kind == Kind::Activation {
            let op = if drops { "Unstack" } else { "Split" };
            self.ops.push(Op { op: op.to_string(), node, inputs: vec![Some(input)], outputs: parts.clone() });
        }
        let made = self.sequence(parts);
        self.bind(node, &[made], names)?;
        Ok(true)
    }
}
