//! Products with weights and of activations, attention, recurrences, tables.

use super::pointwise::window_heads;
use super::{Issue, Lowering, Op, Place, count};
use crate::onnx::graph::Id;
use crate::onnx::{infer, strides};
use joulecast_model::base::shape::product;
use joulecast_model::net::layer::{
    Attention, Cell, Conv2d, Elementwise, Embedding, Gradient, Groups, Layer, Linear, Matmul, Pair, Recurrent, Rotary,
    ScoreBias, Slice, Softmax,
};
use joulecast_model::net::network::{Input, Source};
use joulecast_model::net::written_out::{self, Operand, Sizes};

impl<'g, 'a> Lowering<'g, 'a> {
    /// How many of something there are in one sample.
    fn per_sample(&self, of_a_batch: u64) -> Result<u64, Issue> {
        let marker = self.graph.marker as u64;
        match of_a_batch.is_multiple_of(marker) {
            true => Ok(of_a_batch / marker),
            false => Err("a product that mixes the samples of a batch".into()),
        }
    }

    pub(super) fn product(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let (Some(a), Some(b)) = (op.inputs.first().copied().flatten(), op.inputs.get(1).copied().flatten()) else {
            return Err("it lacks an input".into());
        };
        let out = &self.result(op)?.dims;
        match (self.is_activation(a), self.is_activation(b)) {
            (true, false) => {
                let features = out.last().copied().unwrap_or(1) as u64;
                let wide = self.tensor(b).rank() > 1;
                self.linear(op, a, if wide { features } else { 1 }, self.contracted(op, a), &op.inputs[1..])
            }
            (false, true) => {
                let rows = if self.tensor(a).rank() > 1 { out.iter().rev().nth(1).copied().unwrap_or(1) } else { 1 };
                self.linear(op, b, rows as u64, self.contracted(op, a), &[Some(a)])
            }
            _ => {
                let k = self.contracted(op, a);
                let (left, right) = (self.tensor(a), self.tensor(b));
                let n = count(out) * k / left.elements().max(1) as u64;
                let stack = right.elements() as u64 / (k * n).max(1);
                self.matmul(op, a, b, [self.per_sample(stack)?, k, n])
            }
        }
    }

    /// Length of the dimension that a product sums over.
    fn contracted(&self, op: &Op<'_>, a: Id) -> u64 {
        let dims = &self.tensor(a).dims;
        let transposed = op.node.attributes.iter().any(|x| x.name == "transA" && x.i != 0);
        let place = if transposed { dims.len().saturating_sub(2) } else { dims.len().saturating_sub(1) };
        dims.get(place).copied().unwrap_or(1) as u64
    }

    /// Rows times learned weights, summed over `contracted` values; `weights` holds them and what is added.
    fn linear(
        &mut self,
        op: &'g Op<'a>,
        x: Id,
        features: u64,
        contracted: u64,
        weights: &[Option<Id>],
    ) -> Result<(), Issue> {
        let elements = product(&self.dims(x)?);
        let results = product(&self.dims(op.outputs[0])?);
        let rows = results / features.max(1);
        let length = elements / rows.max(1);
        let weight = weights.first().copied().flatten().ok_or("its weights are missing")?;
        let values = count(&self.tensor(weight).dims);
        let whole = rows * features == results && rows * length == elements;
        if !whole || contracted != length || values != length * features {
            let stack = values / (contracted * features).max(1);
            return self.stacked(op, x, weight, [stack, contracted, features]);
        }
        let bias = weights.get(1).copied().flatten().is_some_and(|b| self.tensor(b).elements() > 1);
        let bias = bias || self.is_bias_of_zeros(op);
        let from = self.seen(x, &if rows == 1 { vec![length] } else { vec![rows, length] })?;
        if bias && self.moves.biased_apart.contains(&op.outputs[0]) {
            let product = Layer::Linear(Linear { features, bias: false });
            let place = self.emit_weighted(op, product, vec![from], &weights[..1])?;
            let gradient = Gradient::Passes;
            let added = Elementwise { parameters: features, gradient, ..Elementwise::of(1, None) };
            let added = Layer::Elementwise(added);
            let name = format!("{}.bias", super::scope::path(op.node));
            let place = self.push(&name, added, vec![place.source], &weights[1..])?;
            return self.made(op, place);
        }
        let place = self.emit_weighted(op, Layer::Linear(Linear { features, bias }), vec![from], weights)?;
        self.made(op, place)
    }

    /// A product with other weights in each of `stack` groups of rows, as heads have: a convolution 1x1 in so many groups
    /// where they are learned as they are, else a product with one more input.
    fn stacked(&mut self, op: &'g Op<'a>, x: Id, weight: Id, [stack, k, n]: [u64; 3]) -> Result<(), Issue> {
        let (elements, results) = (product(&self.dims(x)?), product(&self.dims(op.outputs[0])?));
        let rows = elements / (stack * k).max(1);
        if rows * stack * k != elements || rows * stack * n != results || stack == 0 {
            return Err(Issue::Wrong(format!("weights {:?} that differ from row to row", self.tensor(weight).dims)));
        }
        if self.unlearned(&[Some(weight)]) == stack * k * n {
            let one = Pair::square(1);
            let layer = Conv2d {
                channels: stack * n,
                kernel: one,
                stride: one,
                padding: Pair::square(0),
                dilation: one,
                groups: Groups::Count(stack),
                bias: false,
            };
            let from = self.seen(x, &[stack * k, rows, 1])?;
            let place = self.emit(op, Layer::Conv2d(layer), vec![from], &[Some(weight)])?;
            return self.made(op, place);
        }
        let shape = super::shape(&[stack, k, n])?;
        let name = self.names.unique(&format!("{}.constant", super::scope::path(op.node)));
        self.notes.push(format!("input {name} is a constant of the file"));
        let constant = Source::Input(self.inputs.len());
        self.inputs.push(Input { name, shape, symbols: vec![None; 3], integer: false });
        let from = vec![self.seen(x, &[stack, rows, k])?, constant];
        let place = self.emit(op, Layer::Matmul(Matmul::default()), from, &[])?;
        self.made(op, place)
    }

    /// `stack` products of `[m, k]` and `[k, n]` per sample; where the left one has more matrices, several of them are
    /// multiplied by the same right one.
    fn matmul(&mut self, op: &'g Op<'a>, a: Id, b: Id, [stack, k, n]: [u64; 3]) -> Result<(), Issue> {
        let rows = product(&self.dims(a)?) / (stack * k).max(1);
        let (left, right) = match stack {
            1 => (vec![rows, k], vec![k, n]),
            _ => (vec![stack, rows, k], vec![stack, k, n]),
        };
        let from = vec![self.seen(a, &left)?, self.seen(b, &right)?];
        let place = self.emit(op, Layer::Matmul(Matmul::default()), from, &[])?;
        self.made(op, place)
    }

    pub(super) fn einsum(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let (operands, result) = infer::einsum_letters(&self.call(op))?;
        let ([Some(a), Some(b)], [left, right]) = (&op.inputs[..], &operands[..]) else {
            return Err("an Einsum over other than two tensors".into());
        };
        let size = |letters: Vec<(&char, &i64)>| count(&letters.into_iter().map(|(_, &d)| d).collect::<Vec<_>>());
        let of_right = || right.iter().zip(&self.tensor(*b).dims);
        let k = size(of_right().filter(|(l, _)| left.contains(l) && !result.contains(l)).collect());
        let n = size(of_right().filter(|(l, _)| !left.contains(l)).collect());
        let stack = size(of_right().filter(|(l, _)| left.contains(l) && result.contains(l)).collect());
        match (self.is_activation(*a), self.is_activation(*b)) {
            (true, true) => self.matmul(op, *a, *b, [self.per_sample(stack)?, k, n]),
            (true, false) if stack == 1 => self.linear(op, *a, n, k, &op.inputs[1..]),
            (true, false) => self.stacked(op, *a, *b, [stack, k, n]),
            (false, true) => {
                let m = size(left.iter().zip(&self.tensor(*a).dims).filter(|(l, _)| !right.contains(l)).collect());
                if stack == 1 {
                    self.linear(op, *b, m, k, &op.inputs[..1])
                } else {
                    self.stacked(op, *b, *a, [stack, k, m])
                }
            }
            (false, false) => Err("an Einsum over nothing that is computed".into()),
        }
    }

    /// Queries times keys, softmax, times values, as one kernel where keys and values are of one size.
    pub(super) fn attention(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let (q, k, v) = (self.activation(op, 0)?, self.activation(op, 1)?, self.activation(op, 2)?);
        let call = self.call(op);
        let causal = call.int("is_causal") == Some(1);
        if let (Some(heads), Some(kv_heads), 3) =
            (call.int("q_num_heads"), call.int("kv_num_heads"), self.tensor(q).rank())
        {
            return self.attention_of_rows(op, [q, k, v], [heads as u64, kv_heads as u64], causal);
        }
        let (query, value) = (self.tensor(q), self.tensor(v));
        let (&[ref stack @ .., tokens, d], &[.., keys, value_d]) = (&query.dims[..], &value.dims[..]) else {
            return Err("attention over too few dimensions".into());
        };
        let heads = self.per_sample(count(stack))?;
        // Batch and heads: fused kernels take no further dimensions, frameworks run those step by step.
        let fused = stack.len() <= 2;
        let (tokens, d, keys, value_d) = (tokens as u64, d as u64, keys as u64, value_d as u64);
        if value_d != d {
            return self.attention_in_steps(op, [heads, tokens, d, keys, value_d]);
        }
        if !fused && op.op == "Attention" {
            return self.attention_of_many_dimensions(op, [heads, tokens, d, keys]);
        }
        let kv_heads = product(&self.dims(k)?) / (keys * d).max(1);
        let from = match self.packed([q, k, v]) {
            Some(packed) if keys == tokens => vec![self.seen(packed, &[tokens, (heads + 2 * kv_heads) * d])?],
            _ => vec![
                self.seen(q, &[tokens, heads * d])?,
                self.seen(k, &[keys, kv_heads * d])?,
                self.seen(v, &[keys, kv_heads * d])?,
            ],
        };
        self.attention_over(op, from, [heads, kv_heads], causal && keys == tokens, fused)
    }

    /// `[tokens, heads features]` throughout.
    fn attention_of_rows(&mut self, op: &'g Op<'a>, qkv: [Id; 3], heads: [u64; 2], causal: bool) -> Result<(), Issue> {
        let mut from = Vec::new();
        match self.packed(qkv) {
            Some(packed) => from.push(self.seen(packed, &self.dims(packed)?)?),
            None => {
                for id in qkv {
                    from.push(self.seen(id, &self.dims(id)?)?);
                }
            }
        }
        self.attention_over(op, from, heads, causal, true)
    }

    fn attention_over(
        &mut self,
        op: &'g Op<'a>,
        from: Vec<Source>,
        [heads, kv_heads]: [u64; 2],
        causal: bool,
        fused: bool,
    ) -> Result<(), Issue> {
        let kv_heads = Some(kv_heads).filter(|n| *n != heads);
        let layer = Attention {
            kv_heads,
            causal,
            fused: fused && op.op == "Attention",
            bias: self.score_bias(op, heads).filter(|_| fused),
            ..Attention::of(heads)
        };
        let learned = if layer.bias.is_some() { op.inputs.get(3).copied() } else { None };
        let place = self.emit(op, Layer::Attention(layer), from, learned.as_slice())?;
        self.made(op, place)
    }

    /// A constant that differs from head to head and is added to the scores: no mask.
    fn score_bias(&self, op: &Op<'_>, heads: u64) -> Option<ScoreBias> {
        let id = op.inputs.get(3).copied().flatten().filter(|&id| op.op == "Attention" && !self.is_activation(id))?;
        let [ref apart @ .., tokens, _] = self.tensor(id).dims[..] else { return None };
        let differs = apart.last().is_some_and(|own| *own > 1);
        let own = Some(count(apart)).filter(|own| differs && heads.is_multiple_of(*own))?;
        let learned = self.unlearned(&[Some(id)]);
        // Exporters look a table of distances up.
        let table = window_heads(tokens as u64, learned, own).map(|(window, heads)| (2 * window - 1).pow(2) * heads);
        let turned = strides::is_turned(self.graph, &self.learned_makers, id);
        Some(ScoreBias { heads: own, parameters: table.unwrap_or(learned), turned, unbatched: apart.len() == 1 })
    }

    /// The tensor that queries, keys and values are the three parts of, side by side.
    fn packed(&self, qkv: [Id; 3]) -> Option<Id> {
        let origin = |id: Id| {
            let mut id = id;
            for _ in 0..8 {
                let maker = self.makers.get(&id)?;
                if let Some((whole, axis)) = self.part_of(maker) {
                    return Some((whole, axis, self.number_of_part(maker, id)?));
                }
                id = self.keeps_order(maker).then(|| maker.inputs.first().copied().flatten())??;
            }
            None
        };
        let [(whole, axis, 0), (of_k, _, 1), (of_v, _, 2)] = [origin(qkv[0])?, origin(qkv[1])?, origin(qkv[2])?] else {
            return None;
        };
        let dims = &self.tensor(whole).dims;
        if whole != of_k || whole != of_v {
            return None;
        }
        if axis + 1 == dims.len() {
            return Some(whole);
        }
        // A dimension of three that was brought to the front.
        let mut id = whole;
        for _ in 0..8 {
            match self.makers.get(&id) {
                Some(maker) if self.keeps_order(maker) => id = maker.inputs.first().copied().flatten()?,
                _ => break,
            }
        }
        (dims[axis] == 3).then_some(id)
    }

    /// Which part of its input a result is: the first one 0.
    fn number_of_part(&self, op: &Op<'_>, result: Id) -> Option<usize> {
        match &op.op[..] {
            "Split" => op.outputs.iter().position(|id| *id == result),
            "Slice" => {
                let (_, [start, size, _]) = self.cut(op)?;
                start.is_multiple_of(size).then(|| start.checked_div(size).map(|n| n as usize))?
            }
            _ => usize::try_from(*self.tensor(op.inputs.get(1).copied().flatten()?).ints()?.first()?).ok(),
        }
    }

    fn attention_in_steps(&mut self, op: &'g Op<'a>, sizes: [u64; 5]) -> Result<(), Issue> {
        let [heads, tokens, d, keys, value_d] = sizes;
        let (q, k, v) = (self.activation(op, 0)?, self.activation(op, 1)?, self.activation(op, 2)?);
        let from = vec![self.seen(q, &[heads, tokens, d])?, self.seen(k, &[heads, d, keys])?];
        let scores = self.emit(op, Layer::Matmul(Matmul::default()), from, &[])?;
        let weights = self.emit(op, Layer::Softmax(Softmax { last: true, middle: false }), vec![scores.source], &[])?;
        let from = vec![weights.source, self.seen(v, &[heads, keys, value_d])?];
        let place = self.emit(op, Layer::Matmul(Matmul::default()), from, &[])?;
        self.made(op, place)
    }

    /// Over more dimensions than a batch and heads no fused kernel of PyTorch's takes the operands, which are copied.
    fn attention_of_many_dimensions(&mut self, op: &'g Op<'a>, sizes: [u64; 4]) -> Result<(), Issue> {
        let [heads, tokens, dimension, keys] = sizes;
        let (q, k, v) = (self.activation(op, 0)?, self.activation(op, 1)?, self.activation(op, 2)?);
        let mut made: Vec<Place> = Vec::new();
        for step in
            written_out::steps(Sizes { heads, tokens, keys, dimension, causal: false, copied: true, bias: None })?
        {
            let mut from = Vec::with_capacity(step.from.len());
            for operand in &step.from {
                from.push(match *operand {
                    Operand::Query => self.seen(q, &[heads, tokens, dimension])?,
                    Operand::Key => self.seen(k, &[heads, keys, dimension])?,
                    Operand::Value => self.seen(v, &[heads, keys, dimension])?,
                    Operand::Step(i) => made[i].source,
                });
            }
            made.push(self.emit(op, step.layer, from, &[])?);
        }
        match made.pop() {
            Some(place) => self.made(op, place),
            None => Ok(()),
        }
    }

    pub(super) fn rotary(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let dims = self.dims(input)?;
        let (heads, tokens, d) = match dims[..] {
            [heads, tokens, d] => (heads, tokens, d),
            [tokens, wide] => {
                let heads = self.call(op).int("num_heads").map_or(1, |h| h.max(1) as u64);
                (heads, tokens, wide / heads)
            }
            _ => return Err(Issue::Wrong(format!("rotated positions of {dims:?}"))),
        };
        let from = self.seen(input, &[tokens, heads * d])?;
        let rotated = self.call(op).int("rotary_embedding_dim").and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
        let place = self.emit(op, Layer::Rotary(Rotary { heads, rotated }), vec![from], &[])?;
        self.made(op, place)
    }

    /// `[steps, features]` of a sample, read step after step; the last states are the last step's.
    pub(super) fn recurrent(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let weights = op.inputs.get(2).copied().flatten().ok_or("its weights are missing")?;
        let &[directions, _, hidden] = &self.tensor(weights).dims[..] else {
            return Err("its weights do not have three dimensions".into());
        };
        let layer = Recurrent {
            cell: match &op.op[..] {
                "LSTM" => Cell::Lstm,
                "GRU" => Cell::Gru,
                _ => Cell::Rnn,
            },
            hidden: hidden as u64,
            layers: 1,
            bidirectional: directions == 2,
            bias: op.inputs.get(3).is_some_and(Option::is_some),
        };
        let &[first, second, features] = &self.tensor(input).dims[..] else {
            return Err("its input does not have three dimensions".into());
        };
        // Steps, then batch, unless the layout says otherwise; samples may have several sequences each.
        let together = if self.call(op).int("layout") == Some(1) { first } else { second };
        let sequences = self.per_sample(together as u64).unwrap_or(1).max(1);
        let features = features as u64;
        let steps = product(&self.dims(input)?) / features.max(1) / sequences;
        let (shape, axis) = match sequences {
            1 => (vec![steps, features], 0),
            _ => (vec![sequences, steps, features], 1),
        };
        let from = self.seen(input, &shape)?;
        let place = self.emit(op, Layer::Recurrent(layer), vec![from], &op.inputs[1..op.inputs.len().min(4)])?;
        for position in 1..op.outputs.len() {
            if self.readers.contains_key(&op.outputs[position]) || self.graph.outputs.contains(&op.outputs[position]) {
                let last = Slice { axis, start: steps.saturating_sub(1), size: 1, step: 1, copy: false };
                let state = self.emit(op, Layer::Slice(last), vec![place.source], &[])?;
                self.made_at(op, position, state)?;
            }
        }
        self.made(op, place)
    }

    /// Rows of a learned table by indices that follow from an integer input.
    pub(super) fn embedding(&mut self, op: &'g Op<'a>, table: Id, indices: Id) -> Result<(), Issue> {
        let &[vocabulary, features] = &self.tensor(table).dims[..] else {
            return Err("rows of a table that is no matrix".into());
        };
        let tokens = product(&self.dims(indices)?);
        let source = self.indices(indices, tokens)?;
        let layer = Embedding { vocabulary: vocabulary as u64, features: features as u64 };
        let place = self.emit(op, Layer::Embedding(layer), vec![source], &[Some(table)])?;
        self.made(op, place)
    }

    /// The integer input behind indices: itself, or the one that has as many.
    fn indices(&mut self, id: Id, tokens: u64) -> Result<Source, Issue> {
        let of = |place: &Place| place.shape.elements() == tokens;
        if let Some(place) = self.places.get(&id).filter(|p| of(p)) {
            return Ok(place.source);
        }
        let fits = |i: &Input| i.integer && i.shape.elements() == tokens;
        let known = self.inputs.iter().position(fits);
        // One that only shapes and masks were computed from so far, and which is read here for the first time.
        let waiting = self.waiting.iter().position(fits);
        if let Some(position) = known.or_else(|| {
            let input = self.waiting.remove(waiting?);
            self.notes.retain(|note| *note != super::unread(&input.name));
            self.inputs.push(input);
            Some(self.inputs.len() - 1)
        }) {
            return Ok(Source::Input(position));
        }
        // Extended to another length before it is read.
        if self.inputs.iter().all(|i| !i.integer)
            && let Some(input) = self.waiting.pop()
        {
            self.notes.retain(|note| *note != super::unread(&input.name));
            self.inputs.push(input);
        }
        let any =
            self.inputs.iter().position(|i| i.integer).ok_or("its indices do not follow from an integer input")?;
        let layer = Layer::Elementwise(Elementwise::of(0, Some(super::shape(&[tokens])?)));
        let name = format!("{}.indices", self.inputs[any].name);
        Ok(self.push(&name, layer, vec![Source::Input(any)], &[])?.source)
    }
}
