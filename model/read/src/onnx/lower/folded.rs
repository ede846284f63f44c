//! What an export leaves out of a model: batch norms, which it folds into the weights before them, and biases of zeros.

use super::{Issue, Layer, Lowering, Op, Place, Source};
use crate::onnx::graph::Id;
use crate::onnx::wire::metadata;
use joulecast_model::net::network::Folded;

/// What the names of onnxscript's rules that fold one begin with: `FuseBatchNormIntoConv`, `...ConvTranspose`, `...Gemm`.
const RULES: &str = "FuseBatchNorm";
/// What the names of those begin with that leave a bias of zeros out: a model that was not trained has many.
const RULES_OF_ZEROS: &str = "RemoveOptionalBiasFrom";
/// Operators that a batch norm shifts back whatever a bias before them shifted.
const PASS_A_SHIFT: [&str; 6] = ["Concat", "Add", "Sum", "AveragePool", "MaxPool", "Dropout"];

impl<'g, 'a> Lowering<'g, 'a> {
    /// Appends a layer whose weights may hold a batch norm; `weights` are those and the bias.
    pub(super) fn emit_weighted(
        &mut self,
        op: &'g Op<'a>,
        layer: Layer,
        from: Vec<Source>,
        weights: &[Option<Id>],
    ) -> Result<Place, Issue> {
        let place = self.emit(op, layer, from, weights)?;
        if let Source::Node(made) = place.source {
            self.nodes[made].folded = match self.is_folded(op) {
                true if self.had_bias(op) => Folded::NormAfterBias,
                true => Folded::Norm,
                false => Folded::No,
            };
        }
        Ok(place)
    }

    /// Whether an export folded a batch norm into it.
    ///
    /// By what the exporter says of the node: the rule that rewrote it, or the modules that it is of. Where it says nothing,
    /// by the names that it gave: `onnx::Conv_*` is what TorchScript's exporter calls folded weights, a bias called as the
    /// weight with `_bias` behind it what onnxscript's rewriter adds.
    fn is_folded(&self, op: &Op<'a>) -> bool {
        let says = |key: &str, what: &str| op.node.said(key).is_some_and(|said| said.contains(what));
        if says(metadata::RULE, RULES) || says(metadata::CLASSES, ".batchnorm.") {
            return true;
        }
        let name = |position: usize| op.inputs.get(position).copied().flatten().map(|id| self.graph.values[id].name);
        let Some(weight) = name(1) else { return false };
        let added = name(2).and_then(|bias| bias.strip_prefix(weight));
        op.op == "Conv" && (weight.starts_with("onnx::Conv_") || added == Some("_bias"))
    }

    /// Whether a layer into which a batch norm was folded has a bias of its own in the module: onnxscript's rewriter keeps its
    /// name then, beside that of the weight, and makes one up from the weight's where there was none.
    fn had_bias(&self, op: &Op<'a>) -> bool {
        let name = |position: usize| op.inputs.get(position).copied().flatten().map(|id| self.graph.values[id].name);
        let stem = |name: &'a str, ending: &str| name.strip_suffix(ending).map(|stem| stem.trim_end_matches('.'));
        match (name(1).and_then(|n| stem(n, "weight")), name(2).and_then(|n| stem(n, "bias"))) {
            (Some(weight), Some(bias)) => weight == bias,
            _ => false,
        }
    }

    /// Whether the model has a bias that the export left out because it was zero.
    ///
    /// Of a product the rule says so. PyTorch's exporter gives every convolution a bias, zeros where it has none, so that the
    /// same rule may have taken nothing from it: taken to have none are those that a batch norm follows.
    pub(super) fn is_bias_of_zeros(&mut self, op: &Op<'a>) -> bool {
        let left_out = op.node.said(metadata::RULE).is_some_and(|rule| rule.contains(RULES_OF_ZEROS));
        let has = match &op.op[..] {
            "Conv" => !self.is_folded(op) && !self.leads_to_norm(op, 6),
            "Gemm" => true,
            _ => false,
        };
        let is = left_out && has && op.inputs.get(2).is_none_or(Option::is_none);
        self.zeros += usize::from(is);
        is
    }

    fn leads_to_norm(&self, op: &Op<'_>, steps: usize) -> bool {
        let mut readers = op.outputs.iter().flat_map(|id| self.readers.get(id).into_iter().flatten());
        steps > 0
            && readers.any(|next| {
                next.op == "BatchNormalization"
                    || PASS_A_SHIFT.contains(&&next.op[..]) && self.leads_to_norm(next, steps - 1)
            })
    }
}
