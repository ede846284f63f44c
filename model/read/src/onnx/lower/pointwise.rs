//! Layers that work element by element, and over rows.

use super::{Issue, Lowering, Op, count, scope, shape};
use crate::onnx::graph::Id;
use crate::onnx::infer;
use joulecast_model::base::shape::product;
use joulecast_model::net::layer::{
    Activation, Add, Cast, Copied, Dropout, Elementwise, Function, Gradient, Layer, LayerNorm, Multiply, PoolOp,
    PositionEmbedding, Reduce, RelativePositionBias, Reshape, RmsNorm, Scale, Softmax, Width,
};
use joulecast_model::net::network::Source;

/// Side of a window of so many tokens and number of heads, where that many values are one per head and distance, or one per
/// head and pair of tokens: exporters look the table up. `groups`: heads of all windows.
pub(super) fn window_heads(tokens: u64, learned: u64, groups: u64) -> Option<(u64, u64)> {
    let window = tokens.isqrt();
    let distances = (2 * window).checked_sub(1)?.pow(2);
    let each = [distances, tokens * tokens].into_iter().find(|each| learned.is_multiple_of(*each))?;
    let heads = learned / each;
    // Masks of windows, where they are taken for learned, have more than all heads together.
    (window * window == tokens && window > 1 && heads > 0 && groups.is_multiple_of(heads)).then_some((window, heads))
}

/// What automatic differentiation does about an operation of so many activations. `whole`: whether the first of them has the
/// result's shape.
fn gradient(operator: &str, learned: bool, activations: usize, whole: bool) -> Gradient {
    match operator {
        "Add" | "Sub" | "Sum" if activations == 1 && whole => Gradient::Passes,
        "Add" | "Sub" | "Sum" | "Neg" => Gradient::Scales,
        "Mul" | "Div" if activations == 1 && !learned => Gradient::Scales,
        "Div" if activations > 1 => Gradient::Divides,
        "Pow" => Gradient::Powers,
        "Max" | "Min" => Gradient::Selects,
        "Floor" | "Ceil" | "Round" | "Sign" | "Not" | "And" | "Or" | "Xor" | "Equal" | "Greater" | "Less"
        | "GreaterOrEqual" | "LessOrEqual" | "IsNaN" | "IsInf" => Gradient::Absent,
        _ => Gradient::Reads,
    }
}

/// What autocast computes in 32 bits, whatever it reads (aten/src/ATen/autocast_mode.h of pytorch/pytorch 2.11).
const WIDE: [&str; 12] =
    ["Pow", "Exp", "Log", "Reciprocal", "Rsqrt", "Sinh", "Cosh", "Tan", "Asin", "Acos", "CumSum", "ReduceSum"];

/// One operation of a module's own code.
fn written(gradient: Gradient, wide: bool) -> Layer {
    Layer::Elementwise(Elementwise { gradient, wide, ..Elementwise::of(1, None) })
}

/// Another shape of the same values.
fn view(shape: &[u64]) -> Layer {
    Layer::Reshape(Reshape { shape: shape.iter().map(|&d| d as i64).collect(), copy: Copied::Never })
}

impl<'g, 'a> Lowering<'g, 'a> {
    /// Rows over the last dimension: `[rows, length]`, or `[length]`.
    fn rows(&self, id: Id) -> Result<Vec<u64>, Issue> {
        let dims = self.dims(id)?;
        Ok(match dims[..] {
            [_] => dims,
            [ref outer @ .., length] => vec![product(outer), length],
            [] => vec![1],
        })
    }

    pub(super) fn activation_function(&self, op: &Op<'_>) -> Option<Function> {
        let limits = || -> Option<(f64, f64)> {
            let call = self.call_of(op);
            let limit = |position: usize, name: &str| {
                call.optional(position).and_then(|t| t.scalar()).or_else(|| call.real(name))
            };
            Some((limit(1, "min")?, limit(2, "max")?))
        };
        match &op.op[..] {
            "Clip" => (limits()? == (0.0, 6.0)).then_some(Function::Relu6),
            "Gelu" if self.call_of(op).word("approximate") == Some("tanh") => Some(Function::GeluTanh),
            operator => Function::of_onnx(operator),
        }
    }

    fn call_of<'b>(&'b self, op: &'b Op<'b>) -> infer::Call<'b> {
        self.graph.call(op)
    }

    /// An activation, or one kernel over all activations that it reads.
    pub(super) fn pointwise(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        if let Some(function) = self.activation_function(op) {
            let input = self.activation(op, 0)?;
            let from = self.seen(input, &self.dims(input)?)?;
            let place = self.emit(op, Layer::Activation(Activation { function }), vec![from], &[])?;
            return self.made(op, place);
        }
        let ops = match &op.op[..] {
            "Where" | "Identity" | "Cast" | "CastLike" | "Trilu" | "GatherElements" | "GatherND" | "ScatterND"
            | "ScatterElements" | "Scatter" | "OneHot" | "TopK" | "NonZero" | "Unique" | "Compress" | "EyeLike" => 0,
            "LeakyRelu" | "PRelu" | "Clip" | "ThresholdedRelu" | "Shrink" | "Mod" => 2,
            "Elu" | "Selu" | "Celu" | "Softsign" => 3,
            // A bilinear value: four products, their sum, and where they are.
            "GridSample" => 12,
            // Of every sample of a window: two by two of them unless it says otherwise.
            "RoiAlign" => {
                let samples = self.call(op).int("sampling_ratio").filter(|s| (1..=64).contains(s)).unwrap_or(2) as u64;
                12 * samples * samples
            }
            "MaxRoiPool" => 4,
            "Col2Im" => 1,
            // A box against every other one of its class: about ten operations each.
            "NonMaxSuppression" => {
                let boxes = op.inputs.first().copied().flatten().and_then(|id| self.tensor(id).dims.get(1).copied());
                10 * boxes.unwrap_or(1).clamp(1, 1 << 20) as u64
            }
            "Bernoulli" | "RandomNormalLike" | "RandomUniformLike" => 10,
            "LpNormalization" | "MeanVarianceNormalization" => 5,
            "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Min" | "Max" | "Sum" | "Mean" | "Neg" | "Abs" | "Sqrt"
            | "Reciprocal" | "Rsqrt" | "Exp" | "Log" | "Floor" | "Ceil" | "Round" | "Sign" | "Erf" | "Sin" | "Cos"
            | "Tan" | "Atan" | "Asin" | "Acos" | "Sinh" | "Cosh" | "CumSum" | "Not" | "And" | "Or" | "Xor"
            | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "IsNaN" | "IsInf" => 1,
            // Left out on request: its result passes through.
            _ if self.graph.skips(op) => {
                let read: Vec<_> = self.activations(op).iter().filter_map(|id| self.places.get(id).cloned()).collect();
                self.kept.extend(read.iter().map(|place| place.source));
                let wanted = product(&self.dims(op.outputs[0])?);
                return match read.into_iter().next() {
                    Some(place) if place.shape.elements() == wanted => self.made(op, place),
                    Some(_) if wanted > 0 => self.copied(op),
                    _ => Ok(()),
                };
            }
            _ => return Err("no layer kind stands for it".into()),
        };
        self.elementwise(op, ops)
    }

    fn elementwise(&mut self, op: &'g Op<'a>, ops: u64) -> Result<(), Issue> {
        let output = self.dims(op.outputs[0])?;
        let mut from = self.read_all(op)?;
        from.sort_by_key(|(dims, _)| *dims != output);
        let same = from.first().is_some_and(|(dims, _)| *dims == output);
        let constants: Vec<Option<Id>> =
            op.inputs.iter().copied().filter(|id| id.is_some_and(|id| !self.is_activation(id))).collect();
        let parameters = self.unlearned(&constants);
        let layer = Elementwise {
            ops,
            parameters,
            gradient: gradient(&op.op, parameters > 0, from.len(), same),
            repeated: constants.iter().flatten().any(|&id| self.tensor(id).elements() > 1),
            wide: WIDE.contains(&&op.op[..]),
            output: if same { None } else { Some(shape(&output)?) },
            im2col: 0,
            col2im: if op.op == "Col2Im" { self.places_of_a_window(op) } else { 0 },
        };
        let place = self.emit(op, Layer::Elementwise(layer), from.into_iter().map(|(_, s)| s).collect(), &constants)?;
        // Indices beside values are made by the same kernel.
        for position in 1..op.outputs.len() {
            if self.tensor(op.outputs[position]).elements() == self.result(op)?.elements() {
                self.made_at(op, position, place.clone())?;
            }
        }
        self.made(op, place)
    }

    /// Of `Col2Im`, whose third input is the window's sides.
    fn places_of_a_window(&self, op: &'g Op<'a>) -> u64 {
        let sides = op.inputs.get(2).copied().flatten().and_then(|id| self.tensor(id).ints());
        sides.map_or(1, |sides| sides.iter().map(|&side| side.max(1) as u64).product())
    }

    /// `torch.nn.Unfold`: windows of a map side by side, one kernel.
    pub(super) fn unfold(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let from = self.seen(input, &self.dims(input)?)?;
        let sides = [1, 2].map(|at| op.inputs.get(at).copied().flatten().and_then(|id| self.tensor(id).dims.first()));
        let layer = Elementwise {
            gradient: Gradient::Scales,
            im2col: sides.into_iter().flatten().map(|&side| side.max(1) as u64).product(),
            ..Elementwise::of(0, Some(shape(&self.dims(op.outputs[0])?)?))
        };
        let place = self.emit(op, Layer::Elementwise(layer), vec![from], &[])?;
        self.made(op, place)
    }

    /// All activations that an operator reads, with their dimensions.
    fn read_all(&mut self, op: &'g Op<'a>) -> Result<Vec<(Vec<u64>, Source)>, Issue> {
        self.activations(op)
            .into_iter()
            .map(|id| {
                let dims = self.dims(id)?;
                let source = self.seen(id, &dims)?;
                Ok((dims, source))
            })
            .collect()
    }

    /// Whether tensors can be added or multiplied as they are: the first one has the result's shape, and the others
    /// spread over it from the last dimension.
    fn spreads(output: &[u64], parts: &[(Vec<u64>, Source)]) -> bool {
        output.len() <= 4
            && parts.iter().all(|(dims, _)| {
                dims.len() <= output.len() && output.iter().rev().zip(dims.iter().rev()).all(|(a, b)| a == b || *b == 1)
            })
    }

    pub(super) fn add(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let output = self.dims(op.outputs[0])?;
        let constants: Vec<Option<Id>> =
            op.inputs.iter().copied().filter(|id| id.is_some_and(|id| !self.is_activation(id))).collect();
        if constants.is_empty() {
            let mut parts = self.read_all(op)?;
            parts.sort_by_key(|(dims, _)| *dims != output);
            let first = parts.first().is_some_and(|(dims, _)| *dims == output);
            if !first || !Self::spreads(&output, &parts) {
                return self.elementwise(op, 1);
            }
            let from = parts.into_iter().map(|(_, source)| source).collect();
            let place = self.emit(op, Layer::Add(Add {}), from, &[])?;
            return self.made(op, place);
        }
        let learned = self.unlearned(&constants);
        let each = self.activations(op);
        match (&output[..], &each[..]) {
            // A value per head and distance of tokens in a window. Without heads it is a table of as many positions as features.
            (&[_, .., rows, columns], &[x])
                if rows == columns
                    && self.dims(x)? == output
                    && window_heads(rows, learned, product(&output) / (rows * rows)).is_some() =>
            {
                let groups = product(&output) / (rows * rows);
                let (window, heads) = window_heads(rows, learned, groups).unwrap_or((1, 1));
                let from = self.seen(x, &[groups, rows, rows])?;
                let layer = Layer::RelativePositionBias(RelativePositionBias { heads, window });
                let place = self.emit(op, layer, vec![from], &constants)?;
                self.made(op, place)
            }
            // A table of positions, of which the first ones are added.
            (&[tokens, features], &[x]) if self.dims(x)? == output && features > 0 && learned > features => {
                let positions = learned / features;
                if !learned.is_multiple_of(features) || positions < tokens {
                    return self.elementwise(op, 1);
                }
                let from = self.seen(x, &output)?;
                let positions = Some(positions).filter(|p| *p != tokens);
                let layer = Layer::PositionEmbedding(PositionEmbedding { positions });
                let place = self.emit(op, layer, vec![from], &constants)?;
                self.made(op, place)
            }
            _ => self.elementwise(op, 1),
        }
    }

    pub(super) fn multiply(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let output = self.dims(op.outputs[0])?;
        let constants: Vec<Option<Id>> =
            op.inputs.iter().copied().filter(|id| id.is_some_and(|id| !self.is_activation(id))).collect();
        if constants.is_empty() && op.inputs.len() == 2 {
            let mut parts = self.read_all(op)?;
            parts.sort_by_key(|(dims, _)| *dims != output);
            let first = parts.first().is_some_and(|(dims, _)| *dims == output);
            if first && Self::spreads(&output, &parts) {
                let from = parts.into_iter().map(|(_, source)| source).collect();
                let place = self.emit(op, Layer::Multiply(Multiply {}), from, &[])?;
                return self.made(op, place);
            }
            return self.elementwise(op, 1);
        }
        self.scaled(op, &constants, false)
    }

    pub(super) fn scale(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        self.scaled(op, &op.inputs[1..], true)
    }

    /// One learned factor (and shift) per channel of a map or feature of a row, or anything else.
    fn scaled(&mut self, op: &'g Op<'a>, constants: &[Option<Id>], bias: bool) -> Result<(), Issue> {
        let output = self.dims(op.outputs[0])?;
        let factors = constants.first().copied().flatten().filter(|&id| !self.graph.values[id].learned.is_empty());
        let ops = 1 + u64::from(bias);
        let (&[x], Some(factors)) = (&self.activations(op)[..], factors) else {
            return self.elementwise(op, ops);
        };
        let factors = self.tensor(factors);
        let count = factors.elements() as u64;
        let per_channel = factors.dims.last() == Some(&1) && output.len() == 3 && output.first() == Some(&count);
        let seen = match output.last() {
            _ if self.dims(x)? != output || count < 2 => return self.elementwise(op, ops),
            _ if per_channel => output,
            Some(&features) if features == count => self.rows(x)?,
            _ => return self.elementwise(op, ops),
        };
        let from = self.seen(x, &seen)?;
        let place = self.emit(op, Layer::Scale(Scale { bias }), vec![from], constants)?;
        self.made(op, place)
    }

    pub(super) fn softmax(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let tensor = self.tensor(input);
        let call = self.call(op);
        let before_13 = self.graph.opset < 13;
        let axis = call.axis(call.int("axis").unwrap_or(if before_13 { 1 } else { -1 }), tensor.rank())?;
        let dims = self.dims(input)?;
        let channels = axis == 1 && tensor.rank() == 4 && !before_13;
        let over = |last, middle| Softmax { last, middle };
        let (seen, softmax) = match (channels, dims.len()) {
            (true, 3) => (dims, over(false, false)),
            (false, 3) if axis + 1 == tensor.rank() => (dims, over(true, false)),
            _ if axis + 1 == tensor.rank() => (self.rows(input)?, over(false, false)),
            _ => {
                let (length, inner) = (tensor.dims[axis] as u64, count(&tensor.dims[axis + 1..]));
                (vec![product(&dims) / length.saturating_mul(inner).max(1), length, inner], over(false, true))
            }
        };
        let from = self.seen(input, &seen)?;
        let place = self.emit(op, Layer::Softmax(softmax), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn layer_norm(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let learned = &op.inputs[1..];
        let weights = learned.first().copied().flatten().map(|id| self.tensor(id));
        let dims = self.dims(input)?;
        let channels_first = dims.len() == 3 && self.graph.is_over_channels(op);
        if channels_first && op.op == "RMSNormalization" {
            return self.rms_norm_of_maps(op);
        }
        let length = weights.map_or_else(|| dims.last().copied().unwrap_or(1), |w| w.elements() as u64);
        let seen = match product(&dims) / length.max(1) {
            _ if channels_first => dims,
            1 => vec![length],
            rows => vec![rows, length],
        };
        let layer = match &op.op[..] {
            "RMSNormalization" => Layer::RmsNorm(RmsNorm {}),
            _ => Layer::LayerNorm(LayerNorm { affine: weights.is_some() }),
        };
        let from = self.seen(input, &seen)?;
        let place = self.emit(op, layer, vec![from], learned)?;
        self.made(op, place)
    }

    /// Layers that a module's own code runs one after the other, under its name.
    fn then(&mut self, op: &Op<'_>, part: &str, layer: Layer, from: Vec<Source>) -> Result<Source, Issue> {
        self.push(&format!("{}.{part}", scope::path(op.node)), layer, from, &[]).map(|place| place.source)
    }

    /// A root mean square over the channels of a map, which has no kernel of its own (timm/layers/fast_norm.py, `rms_norm2d`).
    fn rms_norm_of_maps(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let dims = self.dims(input)?;
        let &[channels, height, width] = &dims[..] else { return Err("it is over no map".into()) };
        let from = self.seen(input, &dims)?;
        let rows = Some(view(&[height * width, channels]));
        let normed = self.over_root_mean_square(op, from, rows, view(&[1, height, width]))?;
        let place = self.emit(op, Layer::Scale(Scale { bias: false }), vec![normed], &op.inputs[1..])?;
        self.made(op, place)
    }

    /// Values over the root of the mean of their squares, step by step. `rows`: how the squares are seen where not as they are;
    /// `spread`: the roots, one for each row.
    fn over_root_mean_square(
        &mut self,
        op: &Op<'_>,
        from: Source,
        rows: Option<Layer>,
        spread: Layer,
    ) -> Result<Source, Issue> {
        let mut square = self.then(op, "pow", written(Gradient::Powers, true), vec![from])?;
        if let Some(rows) = rows {
            square = self.then(op, "pow.view", rows, vec![square])?;
        }
        let mean = self.then(op, "mean", Layer::Reduce(Reduce::default()), vec![square])?;
        let shifted = self.then(op, "add", written(Gradient::Passes, false), vec![mean])?;
        let root = self.then(op, "rsqrt", written(Gradient::Reads, true), vec![shifted])?;
        let root = self.then(op, "view", spread, vec![root])?;
        self.then(op, "mul", Layer::Multiply(Multiply {}), vec![from, root])
    }

    /// A conversion between 32 bits and fewer.
    pub(super) fn cast(&mut self, op: &'g Op<'a>, to: Width) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let from = self.seen(input, &self.dims(input)?)?;
        let place = self.emit(op, Layer::Cast(Cast { to }), vec![from], &[])?;
        self.made(op, place)
    }

    /// The operations of a root mean square that a module writes out, as transformers' do: in 32 bits up to the factors
    /// (src/transformers/models/llama/modeling_llama.py, LlamaRMSNorm) or with them (models/gemma/modeling_gemma.py,
    /// GemmaRMSNorm). Exports in 32 bits leave conversions out.
    pub(super) fn written_rms_norm(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let seen = self.rows(input)?;
        let spread = match seen[..] {
            [rows, _] => view(&[rows, 1]),
            _ => view(&[1]),
        };
        let from = self.seen(input, &seen)?;
        let wide = self.then(op, "float", Layer::Cast(Cast { to: Width::Wide }), vec![from])?;
        let normed = self.over_root_mean_square(op, wide, None, spread)?;
        let (factors, narrow) = (Layer::Scale(Scale { bias: false }), Layer::Cast(Cast { to: Width::Narrow }));
        let place = if op.op == "WideRMSNormalization" {
            let scaled =
                self.push(&format!("{}.scale", scope::path(op.node)), factors, vec![normed], &op.inputs[1..])?;
            self.emit(op, narrow, vec![scaled.source], &[])?
        } else {
            let narrow = self.then(op, "to", narrow, vec![normed])?;
            self.emit(op, factors, vec![narrow], &op.inputs[1..])?
        };
        self.made(op, place)
    }

    pub(super) fn dropout(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let call = self.call(op);
        let ratio = call.optional(1).and_then(|t| t.scalar()).or_else(|| call.real("ratio"));
        let from = self.seen(input, &self.dims(input)?)?;
        let layer = Layer::Dropout(Dropout { probability: ratio.unwrap_or(0.5).clamp(0.0, 1.0) });
        let place = self.emit(op, layer, vec![from], &[])?;
        self.made(op, place)
    }

    /// Over the whole of every channel of a map, or over rows, whichever dimension they lie along.
    pub(super) fn reduce(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let rank = self.tensor(input).rank();
        let call = self.call(op);
        let axes = if op.op.starts_with("Arg") {
            vec![call.axis(call.int("axis").unwrap_or(0), rank)?]
        } else {
            infer::reduced_axes(&call)?
        };
        let pool = match &op.op[..] {
            "ReduceMean" => Some(PoolOp::Avg),
            "ReduceMax" => Some(PoolOp::Max),
            _ => None,
        };
        if let (Some(pool), [2, 3] | [2, 3, 4], Ok(space)) = (pool, &axes[..], self.space(input))
            && axes.len() + 2 == rank
        {
            return self.pool_whole(op, space, pool);
        }
        self.reduce_to_results(op)
    }

    /// Over rows of as many values as there are for each result.
    pub(super) fn reduce_to_results(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let results = product(&self.dims(op.outputs[0])?);
        let length = product(&self.dims(input)?) / results.max(1);
        if length == 1 {
            return self.alias(op);
        }
        let from = self.seen(input, &[results, length])?;
        let operator = &op.op[..];
        let layer =
            Reduce { norm: operator == "ReduceL2", wide: WIDE.contains(&operator), variance: operator == "Variance" };
        let place = self.emit(op, Layer::Reduce(layer), vec![from], &[])?;
        self.made(op, place)
    }
}
