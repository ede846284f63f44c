//! Where PyTorch copies a tensor because of how its elements lie in memory.
//!
//! A transposition, a part and most other shapes of a tensor are views there: other strides over the same values. What reads a
//! view decides. Normalizations, softmaxes and products take rows that lie side by side and copy others first; a shape that no
//! strides express is a copy. Element-wise kernels hand on the order of their first operand; one in another order costs about as
//! much as a copy. The graph is followed twice, with the channels of maps first, and last, as networks in 16 bits hold them.
//! Sources: `computeStride` and `TensorIterator` of ATen, and its `linear` and `matmul`.

use super::graph::{Graph, Id, Kind, Op};
use super::infer;
use joulecast_model::net::layer::Copied;
use std::collections::{HashMap, HashSet};

/// A copy of what an operator reads, made before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Dimensions in the order in which they lie before, outermost first; rows of the last one where those stay together.
    pub from: Vec<i64>,
    /// Whether it only closes gaps: the dimensions lie in the same order after it.
    pub closes: bool,
    /// In which order of maps it is made.
    pub copied: Copied,
}

/// What the order of elements in memory leads to.
#[derive(Debug, Default)]
pub struct Moves {
    /// Copies by the first result of the operator that reads, and the place of what it reads.
    pub copies: HashMap<(Id, usize), Copy>,
    /// First results of products whose bias another kernel adds, in either order of maps.
    pub biased_apart: HashSet<Id>,
}

impl Moves {
    /// All of a graph.
    pub fn of(graph: &Graph<'_>) -> Self {
        let attended = read_by_attention(graph);
        let [first, last] = [false, true].map(|last| Walk::through(graph, &attended, last));
        let mut copies = HashMap::new();
        for (place, (from, closes)) in &first.copied {
            let (copied, too) = match last.copied.get(place) {
                Some((_, closes)) => (Copied::Always, *closes),
                None => (Copied::ChannelsFirst, false),
            };
            copies.insert(*place, Copy { from: from.clone(), closes: *closes || too, copied });
        }
        for (place, (from, closes)) in last.copied {
            copies.entry(place).or_insert(Copy { from, closes, copied: Copied::ChannelsLast });
        }
        Self { copies, biased_apart: first.apart.intersection(&last.apart).copied().collect() }
    }
}

/// Strides of a tensor whose dimensions lie in an order, outermost first, without gaps.
fn dense(dims: &[i64], order: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    let mut next: i64 = 1;
    for &i in order.iter().rev() {
        strides[i] = next;
        next = next.saturating_mul(dims[i]);
    }
    strides
}

fn contiguous(dims: &[i64]) -> Vec<i64> {
    dense(dims, &(0..dims.len()).collect::<Vec<_>>())
}

/// The order of maps whose channels lie closest together.
fn channels_last(dims: &[i64]) -> Vec<i64> {
    let order: Vec<usize> = std::iter::once(0).chain(2..dims.len()).chain([1]).collect();
    dense(dims, &order)
}

/// Whether a dimension has several values in a batch of several: the outermost one is the batch, though a file may be made for
/// one sample.
fn counts(dims: &[i64], i: usize) -> bool {
    i == 0 || dims[i] > 1
}

/// Whether strides say the same of all dimensions that count.
fn same(dims: &[i64], a: &[i64], b: &[i64]) -> bool {
    (0..dims.len()).all(|i| !counts(dims, i) || a[i] == b[i])
}

/// The dimensions that have several values, outermost first.
fn order(dims: &[i64], strides: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..dims.len()).filter(|&i| dims[i] > 1).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(strides[i]));
    order
}

/// Strides of a result that lies in the order of one of as many dimensions.
fn like(dims: &[i64], strides: &[i64], out: &[i64]) -> Vec<i64> {
    let order = order(dims, strides);
    let others: Vec<usize> = (0..out.len()).filter(|i| !order.contains(i)).collect();
    dense(out, &others.into_iter().chain(order).collect::<Vec<_>>())
}

/// The strides of a tensor in another shape; `None` where it takes a copy.
fn view(dims: &[i64], strides: &[i64], shape: &[i64]) -> Option<Vec<i64>> {
    let mut made = vec![1; shape.len()];
    let mut next = shape.len();
    let (mut base, mut held, mut seen) = (*strides.last()?, 1_i64, 1_i64);
    // A batch of one joins anything, but not more of them.
    let batch_joins = dims.first() == Some(&1) && shape.first() != Some(&1);
    for d in (0..dims.len()).rev() {
        held = held.saturating_mul(dims[d]);
        let follows = d > 0 && strides[d - 1] == held.saturating_mul(base);
        if d == 1 && batch_joins && !follows {
            return None;
        }
        let joins = d > 0 && (dims[d - 1] == 1 || follows);
        if joins {
            continue;
        }
        while next > 0 && (seen < held || shape[next - 1] == 1) {
            next -= 1;
            made[next] = seen.saturating_mul(base);
            seen = seen.saturating_mul(shape[next]);
        }
        if seen != held {
            return None;
        }
        if d > 0 {
            (base, held, seen) = (strides[d - 1], 1, 1);
        }
    }
    // Of several dimensions of one value, such as a part of what was split, the samples lie furthest apart.
    let apart = dims.iter().zip(strides).take_while(|(dim, _)| **dim == 1).map(|(_, stride)| *stride).max();
    if let (Some(apart), Some(1), Some(outer)) = (apart, shape.first(), made.first_mut()) {
        *outer = apart;
    }
    (next == 0).then_some(made)
}

/// Whether an operator shows the values of a tensor in another shape.
fn reshapes(op: &Op<'_>) -> bool {
    matches!(&op.op[..], "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze")
}

/// Whether it shows them in another shape or order.
pub fn shows(op: &Op<'_>) -> bool {
    reshapes(op) || op.op == "Transpose"
}

/// Tensors that nothing but attention reads, in whatever shape and order: it takes them as they lie, or its rows hold the copies.
fn read_by_attention(graph: &Graph<'_>) -> HashSet<Id> {
    let mut read: HashMap<Id, bool> = HashMap::new();
    for op in graph.ops.iter().rev() {
        let by_attention = match &op.op[..] {
            "Attention" | "UnfusedAttention" => true,
            _ => shows(op) && op.outputs.first().is_some_and(|made| read.get(made) == Some(&true)),
        };
        for id in op.inputs.iter().flatten() {
            *read.entry(*id).or_insert(true) &= by_attention;
        }
    }
    read.into_iter().filter(|(id, only)| *only && !graph.outputs.contains(id)).map(|(id, _)| id).collect()
}

/// Longest chain of views and element-wise kernels that is followed to a table.
const LONGEST_CHAIN: usize = 16;

/// Whether what is computed of learned values lies in memory with another dimension innermost than its last one.
///
/// Where a file does not say which values are asked to lie side by side, only a table that was looked up and then turned at
/// once does, as T5's: modules that give it another shape first, as Swin's, ask for that after they turn it.
///
/// `makers` has the operators of [`Graph::derived`] by what they give.
pub fn is_turned(graph: &Graph<'_>, makers: &HashMap<Id, &Op<'_>>, id: Id) -> bool {
    let dims = &graph.values[id].tensor.dims;
    let strides = strides_of_learned(graph, makers, id, LONGEST_CHAIN);
    dims.iter().zip(strides).next_back().is_some_and(|(dim, stride)| *dim > 1 && stride != 1)
}

fn strides_of_learned(graph: &Graph<'_>, makers: &HashMap<Id, &Op<'_>>, id: Id, left: usize) -> Vec<i64> {
    let dims = |id: Id| &graph.values[id].tensor.dims[..];
    let out = dims(id);
    let op = makers.get(&id).filter(|_| left > 0 && !graph.contiguous.contains(&id));
    let Some(op) = op else { return contiguous(out) };
    let operands = || op.inputs.iter().flatten().copied();
    let before = |x: Id| strides_of_learned(graph, makers, x, left - 1);
    let said = || !graph.contiguous.is_empty();
    let looked_up = |x: Id| makers.get(&x).is_some_and(|op| op.op == "Gather");
    let strides = match (&op.op[..], operands().next()) {
        (_, Some(x)) if reshapes(op) => view(dims(x), &before(x), out),
        ("Transpose", Some(x)) if said() || looked_up(x) => {
            infer::permutation(&graph.call(op), out.len()).ok().map(|order| {
                let strides = before(x);
                order.iter().map(|&i| strides[i]).collect()
            })
        }
        ("Cast" | "Where" | "Add" | "Sub" | "Mul" | "Div", _) => {
            let whole = |x: &Id| dims(*x) == out && !graph.values[*x].learned.is_empty();
            operands().find(whole).map(|x| like(dims(x), &before(x), out))
        }
        _ => None,
    };
    strides.unwrap_or_else(|| contiguous(out))
}

struct Walk<'g, 'a> {
    graph: &'g Graph<'a>,
    /// See [`read_by_attention`].
    attended: &'g HashSet<Id>,
    /// Whether maps have their channels last.
    last: bool,
    strides: HashMap<Id, Vec<i64>>,
    /// What operators read in another order or with gaps, as it lies before it is copied; whether the order stays.
    copied: HashMap<(Id, usize), (Vec<i64>, bool)>,
    apart: HashSet<Id>,
    /// Results of attention over batch and heads as one, and views of them: it writes them as they are read.
    fitting: HashSet<Id>,
}

impl<'g, 'a> Walk<'g, 'a> {
    fn through(graph: &'g Graph<'a>, attended: &'g HashSet<Id>, last: bool) -> Self {
        let mut walk = Self {
            graph,
            attended,
            last,
            strides: HashMap::new(),
            copied: HashMap::new(),
            apart: HashSet::new(),
            fitting: HashSet::new(),
        };
        for &id in &graph.inputs {
            let dims = walk.dims(id);
            let strides = if last && dims.len() >= 4 { channels_last(dims) } else { contiguous(dims) };
            walk.strides.insert(id, strides);
        }
        for op in &graph.ops {
            if op.outputs.iter().all(|&id| graph.values[id].tensor.elements() > 0) {
                walk.step(op);
            }
        }
        walk
    }

    fn dims(&self, id: Id) -> &'g [i64] {
        &self.graph.values[id].tensor.dims
    }

    /// What an operator reads of activations: its place, and what it is.
    fn reads<'o>(&'o self, op: &'o Op<'_>) -> impl Iterator<Item = (usize, Id)> + 'o {
        let computed = |id: Id| self.graph.values[id].kind == Kind::Activation;
        op.inputs.iter().enumerate().filter_map(move |(k, id)| Some((k, (*id)?))).filter(move |(_, id)| computed(*id))
    }

    fn of(&self, id: Id) -> Vec<i64> {
        self.strides.get(&id).cloned().unwrap_or_else(|| contiguous(self.dims(id)))
    }

    fn is_contiguous(&self, id: Id) -> bool {
        let dims = self.dims(id);
        same(dims, &self.of(id), &contiguous(dims))
    }

    /// Whether a map's channels lie closest together, perhaps as a part of more; what takes such a map copies that part.
    fn is_channels_last(&self, id: Id) -> bool {
        let (dims, strides) = (self.dims(id), self.of(id));
        let inner_first = || (1..dims.len().min(2)).chain((2..dims.len()).rev()).chain([0]);
        let mut least = 0;
        dims.len() >= 4
            && !self.is_contiguous(id)
            && inner_first().all(|i| {
                let outside = !counts(dims, i) || strides[i] >= least.max(1);
                if counts(dims, i) {
                    least = strides[i].saturating_mul(dims[i]);
                }
                outside
            })
    }

    /// Whether values lie side by side in one of the orders that kernels over maps take.
    fn is_map(&self, id: Id) -> bool {
        let dims = self.dims(id);
        self.is_contiguous(id) || dims.len() >= 4 && same(dims, &self.of(id), &channels_last(dims))
    }

    fn copy(&mut self, op: &Op<'_>, place: usize, id: Id, closes: bool) {
        let (dims, Some(&made)) = (self.dims(id), op.outputs.first()) else { return };
        let order = order(dims, &self.of(id));
        let inner = (0..dims.len()).rev().find(|&i| dims[i] > 1);
        let from = match order.split_last() {
            // Rows stay together.
            Some((last, outer)) if Some(*last) == inner => {
                let rows = outer.iter().map(|&i| dims[i]).product();
                vec![rows, dims[*last]]
            }
            _ => order.iter().map(|&i| dims[i]).collect(),
        };
        self.copied.insert((made, place), (from, closes));
    }

    fn copy_unless_contiguous(&mut self, op: &Op<'_>) {
        let first = self.reads(op).next();
        if let Some((place, id)) = first.filter(|(_, id)| !self.is_contiguous(*id)) {
            self.copy(op, place, id, false);
        }
    }

    /// Copies what a kernel over maps reads unless its values lie side by side; whether its channels lie closest together.
    fn over_map(&mut self, op: &Op<'_>, place: usize, x: Id) -> bool {
        let last = self.is_channels_last(x);
        if !self.is_map(x) {
            self.copy(op, place, x, last);
        }
        last
    }

    fn step(&mut self, op: &Op<'_>) {
        let Some((place, x)) = self.reads(op).next() else { return };
        let Some(&made) = op.outputs.first() else { return };
        let asked: Vec<(usize, Id)> = self.reads(op).filter(|(_, id)| self.graph.contiguous.contains(id)).collect();
        for (place, id) in asked {
            if !self.is_contiguous(id) {
                self.copy(op, place, id, false);
                self.strides.insert(id, contiguous(self.dims(id)));
            }
        }
        let (dims, out) = (self.dims(x), self.dims(made));
        let strides = match &op.op[..] {
            _ if shows(op) && self.fitting.contains(&x) => {
                self.fitting.insert(made);
                contiguous(out)
            }
            _ if reshapes(op) => match view(dims, &self.of(x), out) {
                Some(strides) => strides,
                None => {
                    if !self.attended.contains(&made) {
                        self.copy(op, place, x, false);
                    }
                    contiguous(out)
                }
            },
            "Transpose" => {
                let strides = self.of(x);
                match infer::permutation(&self.graph.call(op), dims.len()) {
                    Ok(order) => order.iter().map(|&i| strides[i]).collect(),
                    Err(_) => contiguous(out),
                }
            }
            "Slice" | "Split" | "Gather" => {
                for &part in &op.outputs {
                    if let Some(strides) = self.part(op, x, part) {
                        self.strides.insert(part, strides);
                    }
                }
                return;
            }
            "Conv" | "ConvTranspose" => {
                let last = self.over_map(op, place, x);
                if out.len() >= 4 && (self.last || last) { channels_last(out) } else { contiguous(out) }
            }
            "MaxPool"
            | "AveragePool"
            | "GlobalAveragePool"
            | "GlobalMaxPool"
            | "Resize"
            | "Upsample"
            | "Pad"
            | "LRN"
            | "BatchNormalization"
            | "InstanceNormalization"
            | "GroupNormalization"
            | "GroupNorm" => {
                let last = self.over_map(op, place, x);
                if last && out.len() >= 4 { channels_last(out) } else { contiguous(out) }
            }
            // Over the channels of maps it is written out.
            "RMSNormalization" if self.graph.is_over_channels(op) => self.pointwise(op, out),
            "LayerNormalization" | "RMSNormalization" | "Softmax" | "LogSoftmax" | "Im2Col" | "Col2Im" => {
                self.copy_unless_contiguous(op);
                contiguous(out)
            }
            "Linear" | "Gemm" | "MatMul" => {
                if op.op == "Linear" && dims.len() > 2 && !self.is_contiguous(x) {
                    self.apart.insert(made);
                }
                self.product(op);
                contiguous(out)
            }
            // Heads lie side by side in the result.
            "Attention" | "UnfusedAttention" if out.len() == 4 => dense(out, &[0, 2, 1, 3]),
            "Attention" | "UnfusedAttention" if out.len() < 4 => {
                self.fitting.insert(made);
                contiguous(out)
            }
            "Concat" => {
                let parts: Vec<Id> = self.reads(op).map(|(_, id)| id).collect();
                if parts.iter().all(|&id| self.is_channels_last(id)) { channels_last(out) } else { contiguous(out) }
            }
            "Expand" | "Tile" => contiguous(out),
            operator if (operator.starts_with("Reduce") || operator == "Variance") && out.len() == dims.len() => {
                self.like(x, out)
            }
            _ => self.pointwise(op, out),
        };
        self.strides.insert(made, strides);
    }

    fn like(&self, x: Id, out: &[i64]) -> Vec<i64> {
        like(self.dims(x), &self.of(x), out)
    }

    fn pointwise(&mut self, op: &Op<'_>, out: &[i64]) -> Vec<i64> {
        let whole: Vec<(usize, Id)> = self.reads(op).filter(|(_, id)| self.dims(*id) == out).collect();
        let Some((&(_, first), others)) = whole.split_first() else { return contiguous(out) };
        let strides = self.of(first);
        for &(place, id) in others {
            let other = self.of(id);
            if order(out, &strides) != order(out, &other) {
                self.copy(op, place, id, false);
            }
        }
        self.like(first, out)
    }

    /// Operands whose rows, or matrices, no strides express.
    fn product(&mut self, op: &Op<'_>) {
        let reads: Vec<(usize, Id)> = self.reads(op).collect();
        let stacked = reads.iter().any(|(place, _)| *place > 0);
        for (place, id) in reads {
            let (dims, strides) = (self.dims(id), self.of(id));
            let &[ref outer @ .., rows, columns] = dims else { continue };
            let seen = if stacked {
                let stack = outer.iter().product();
                view(dims, &strides, &[stack, rows, columns])
                    .is_some_and(|s| rows == 1 || columns == 1 || s[1] == 1 || s[2] == 1)
            } else {
                let rows = outer.iter().product::<i64>().saturating_mul(rows);
                view(dims, &strides, &[rows, columns])
                    .is_some_and(|s| s[1] == 1 || outer.is_empty() && s[0] == 1 || columns == 1)
            };
            if !seen {
                self.copy(op, place, id, false);
            }
        }
    }

    /// Strides of a part along one dimension; `None` where an operator gathers values.
    fn part(&self, op: &Op<'_>, x: Id, part: Id) -> Option<Vec<i64>> {
        let (dims, out, mut strides) = (self.dims(x), self.dims(part), self.of(x));
        let call = self.graph.call(op);
        match &op.op[..] {
            "Gather" => {
                let index = call.optional(1)?;
                let axis = call.axis(call.int("axis").unwrap_or(0), dims.len()).ok()?;
                if index.elements() != 1 || index.ints().is_none() {
                    return None;
                }
                if out.len() < dims.len() {
                    strides.remove(axis);
                }
            }
            "Slice" => {
                let steps = call.list(4, "steps").ok()?.unwrap_or_default();
                if let [step] = steps[..] {
                    let changed = (0..dims.len()).find(|&i| out.get(i) != Some(&dims[i]));
                    if let Some(i) = changed {
                        strides[i] = strides[i].saturating_mul(step.abs());
                    }
                }
            }
            _ => {}
        }
        (strides.len() == out.len()).then_some(strides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of 2 throughout.
    #[test]
    fn a_shape_is_a_view_where_strides_express_it() {
        let (map, tokens) = ([2, 8, 3, 5], [2, 8, 15]);
        assert_eq!(view(&map, &contiguous(&map), &tokens), Some(contiguous(&tokens)));
        let last = view(&map, &channels_last(&map), &tokens).expect("positions stay evenly apart");
        assert_eq!(last, [120, 1, 8]);
        // Tokens of a map whose channels lie last are rows, those of one whose channels lie first are not.
        let turned = |strides: &[i64]| [strides[0], strides[2], strides[1]];
        assert!(same(&[2, 15, 8], &turned(&last), &contiguous(&[2, 15, 8])));
        let first = view(&map, &contiguous(&map), &tokens).expect("a view");
        assert_eq!(view(&[2, 15, 8], &turned(&first), &[2, 120]), None);
        assert_eq!(view(&[2, 15, 8], &turned(&last), &[30, 8]), Some(vec![8, 1]));
        assert_eq!(view(&[2, 15, 8], &turned(&first), &[2, 3, 5, 2, 4]), Some(vec![120, 5, 1, 60, 15]));
    }

    #[test]
    fn heads_of_tokens_join_a_batch_only_by_a_copy() {
        // [batch, heads, tokens, features] of rows with their heads side by side.
        let (dims, strides) = ([2, 4, 10, 16], [640, 16, 64, 1]);
        assert_eq!(view(&dims, &strides, &[8, 10, 16]), None);
        // A file that was made for one sample says the same of many.
        assert_eq!(view(&[1, 4, 10, 16], &strides, &[4, 10, 16]), None);
        // Keys out of [batch, tokens, 3, heads, features], turned to [3, batch, heads, features, tokens] and split.
        let part = view(&[1, 1, 4, 16, 10], &[64, 1920, 16, 1, 192], &[1, 4, 16, 10]).expect("a view");
        assert_eq!((part[0], view(&[1, 4, 16, 10], &part, &[4, 16, 10])), (1920, None));
        assert_eq!(view(&[1, 4, 10, 16], &contiguous(&[1, 4, 10, 16]), &[4, 10, 16]), Some(vec![160, 16, 1]));
    }

    #[test]
    fn dense_strides_follow_an_order() {
        assert_eq!(contiguous(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(channels_last(&[2, 3, 4, 5]), [60, 1, 15, 3]);
        assert_eq!(order(&[2, 3, 4, 5], &channels_last(&[2, 3, 4, 5])), [0, 2, 3, 1]);
        assert_eq!(order(&[2, 1, 4], &[4, 9, 1]), [0, 2]);
    }
}
