//! What a graph computes of learned values alone. Exporters that fold constants leave none of it, PyTorch runs all of it in every
//! step: weights that are standardized, tables of positions that a small network makes or that are looked up.
//!
//! Transpositions, slices and other movements are left out: exporters write them where a module's kernels take its weights as
//! they lie.

use super::{Lowering, Op, scope, shape};
use crate::onnx::graph::Id;
use joulecast_model::base::shape::{Shape, product};
use joulecast_model::base::text::Names;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{
    Activation, BatchNorm, Concat, Elementwise, Embedding, Layer, LayerNorm, Linear, Reduce, Softmax,
};
use joulecast_model::net::network::Derived;
use joulecast_model::read::MAX_LAYERS;
use std::collections::HashSet;

/// Element by element; of several operands all are read.
const POINTWISE: [&str; 24] = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Min",
    "Max",
    "Sum",
    "Neg",
    "Abs",
    "Sqrt",
    "Reciprocal",
    "Exp",
    "Log",
    "Sin",
    "Cos",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Erf",
    "Clip",
    "Where",
    "Mod",
];

impl<'g, 'a> Lowering<'g, 'a> {
    /// Layers over learned values, in order.
    pub(super) fn derived(&self) -> Vec<Derived> {
        let ops = &self.graph.derived;
        let made: HashSet<Id> = ops.iter().flat_map(|op| op.outputs.iter().copied()).collect();
        let products: HashSet<Id> =
            ops.iter().filter(|op| op.op == "MatMul").flat_map(|op| op.outputs.iter().copied()).collect();
        let biased: HashSet<Id> = ops.iter().filter_map(|op| self.adds_bias(op, &products)).collect();
        let mut names = Names::default();
        let mut derived = Vec::new();
        for op in ops {
            // A bias is added by the product's kernel.
            if self.adds_bias(op, &products).is_some() {
                continue;
            }
            let Some((layer, inputs)) = self.layer_over(op, &biased) else { continue };
            let case = LayerCase { inputs, layer };
            if derived.len() < MAX_LAYERS && case.output().is_ok() {
                let wants_gradient = match case.layer {
                    Layer::Linear(_) => op.inputs.first().copied().flatten().is_some_and(|id| made.contains(&id)),
                    _ => true,
                };
                derived.push(Derived { name: names.unique(&scope::path(op.node)).into(), case, wants_gradient });
            }
        }
        derived
    }

    /// The layer that an operator over constants is, and the shapes that it reads; `biased`: products to which a bias is added.
    fn layer_over(&self, op: &Op<'_>, biased: &HashSet<Id>) -> Option<(Layer, Vec<Shape>)> {
        let output = self.whole(op.outputs.first().copied())?;
        let first = op.inputs.first().copied().flatten();
        let read = self.whole(first);
        match &op.op[..] {
            "BatchNormalization" => {
                let [channels, ref places @ ..] = read?[..] else { return None };
                Some((
                    Layer::BatchNorm(BatchNorm { affine: true }),
                    vec![Shape::map(channels, 1, product(places)).ok()?],
                ))
            }
            "MatMul" | "Gemm" => {
                let (read, features) = (read?, *output.last()?);
                let bias =
                    op.inputs.get(2).is_some_and(Option::is_some) || op.outputs.iter().any(|id| biased.contains(id));
                Some((Layer::Linear(Linear { features, bias }), vec![rows(&read)?]))
            }
            "Softmax" => Some((Layer::Softmax(Softmax::default()), vec![rows(&output)?])),
            "LayerNormalization" => {
                let affine = op.inputs.get(1).is_some_and(Option::is_some);
                Some((Layer::LayerNorm(LayerNorm { affine }), vec![rows(&output)?]))
            }
            "Gather" | "GatherND" => {
                let (table, found) = (self.tensor(first?), product(&output));
                let features = match &op.op[..] {
                    "Gather" if self.call(op).int("axis").unwrap_or(0) != 0 => return None,
                    _ => product(&table.dims.iter().skip(1).map(|&d| d as u64).collect::<Vec<_>>()),
                };
                let tokens = found.checked_div(features).filter(|tokens| *tokens > 1 && !self.is_looked_up(first))?;
                let vocabulary = table.dims.first().map(|&d| d as u64)?;
                Some((Layer::Embedding(Embedding { vocabulary, features }), vec![Shape::new(&[tokens]).ok()?]))
            }
            "Concat" => {
                let parts: Vec<Shape> =
                    op.inputs.iter().map(|&id| Shape::new(&[product(&self.whole(id)?)]).ok()).collect::<Option<_>>()?;
                Some((Layer::Concat(Concat { axis: None }), parts))
            }
            operator if operator.starts_with("Reduce") => {
                let (results, all) = (product(&output), product(&read?));
                let length = all.checked_div(results).filter(|length| *length > 1)?;
                Some((
                    Layer::Reduce(Reduce { norm: operator == "ReduceL2", ..Reduce::default() }),
                    vec![Shape::new(&[results, length]).ok()?],
                ))
            }
            operator => {
                let output = shape(&output).ok()?;
                if let Some(function) = self.activation_function(op) {
                    return Some((Layer::Activation(Activation { function }), vec![output]));
                }
                let ops = POINTWISE.contains(&operator).then_some(1)?;
                let mut inputs: Vec<Shape> = op
                    .inputs
                    .iter()
                    .filter(|id| id.is_some_and(|id| self.tensor(id).elements() > 1))
                    .map(|&id| shape(&self.whole(id)?).ok())
                    .collect::<Option<_>>()?;
                inputs.sort_by_key(|read| *read != output);
                if inputs.is_empty() {
                    inputs.push(output);
                }
                let output = (inputs.first() != Some(&output)).then_some(output);
                Some((Layer::Elementwise(Elementwise::of(ops, output)), inputs))
            }
        }
    }

    /// Dimensions of a constant without those of one element; `None` where it grows with the batch.
    fn whole(&self, id: Option<Id>) -> Option<Vec<u64>> {
        let tensor = self.tensor(id?);
        let marker = self.graph.marker;
        if tensor.elements() == 0 || marker > 1 && tensor.dims.iter().any(|d| d % marker == 0) {
            return None;
        }
        let dims: Vec<u64> = tensor.dims.iter().filter(|d| **d != 1).map(|&d| d as u64).collect();
        Some(if dims.is_empty() { vec![1] } else { dims })
    }

    /// Whether a layer looks its values up in a table of its own.
    fn is_looked_up(&self, table: Option<Id>) -> bool {
        let learned = table.map(|id| &self.graph.values[id].learned);
        let layers = learned.into_iter().flatten().filter_map(|id| self.learners.get(id));
        layers.into_iter().any(|&node| matches!(self.nodes[node].layer, Layer::RelativePositionBias(_)))
    }

    /// Which of these products of learned values it is that an operator adds a vector to.
    fn adds_bias(&self, op: &Op<'_>, products: &HashSet<Id>) -> Option<Id> {
        let &[Some(a), Some(b)] = &op.inputs[..] else { return None };
        let (product, bias) = if self.tensor(a).rank() > self.tensor(b).rank() { (a, b) } else { (b, a) };
        let fits = self.tensor(bias).rank() == 1 && self.tensor(bias).dims.last() == self.tensor(product).dims.last();
        (op.op == "Add" && fits && products.contains(&product)).then_some(product)
    }
}

/// Rows of the last dimension.
fn rows(dims: &[u64]) -> Option<Shape> {
    let (&length, outer) = dims.split_last()?;
    Shape::new(&[product(outer), length]).ok()
}
