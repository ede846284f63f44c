//! Views and copies.

use super::{Issue, Lowering, Op, Place, shape};
use crate::layer::{ClassToken, Concat, Layer, Permute, Reshape, Slice};
use crate::onnx::graph::{Id, Kind};
use crate::onnx::infer;
use crate::shape::product;

impl<'g, 'a> Lowering<'g, 'a> {
    pub(super) fn view(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        self.alias(op)
    }

    /// Where a tensor's dimension comes in those of one sample; `None` for that of the batch where nothing is left of it.
    fn sample_axis(&self, dims: &[i64], axis: usize) -> Option<usize> {
        let dropped = match self.graph.marker {
            1 => (dims.len() > 1 && dims[0] == 1).then_some(0),
            marker => dims.iter().position(|&d| d == marker),
        };
        match dropped {
            Some(place) if place == axis => None,
            Some(place) if place < axis => Some(axis - 1),
            _ => Some(axis),
        }
    }

    /// Whether those that read a transposed tensor take it in either order: attention and rotations do, products take
    /// either operand transposed, and a concatenation or repetition copies its inputs anyway; so does attention write it.
    fn order_does_not_matter(&self, op: &Op<'_>, order: &[usize]) -> bool {
        let rank = order.len();
        let rows_and_columns = rank >= 2
            && order[..rank - 2].iter().copied().eq(0..rank - 2)
            && (order[rank - 2], order[rank - 1]) == (rank - 1, rank - 2);
        let readers = op.outputs.first().and_then(|id| self.readers.get(id)).map_or(&[][..], |r| &r[..]);
        let by_all = |takes: &dyn Fn(&Op<'_>) -> bool| !readers.is_empty() && readers.iter().all(|r| takes(r));
        // Channels last is a layout that convolutions, pooling and element-wise kernels take.
        let to_map = |reader: &Op<'_>| {
            reader.op == "Reshape" && reader.outputs.first().is_some_and(|&id| self.tensor(id).rank() == 4)
        };
        let channels_first = match order {
            [0, 3, 1, 2] => true,
            [0, 2, 1] => by_all(&to_map),
            _ => false,
        };
        let taken = |reader: &Op<'_>| (reader.op == "MatMul" && rows_and_columns) || self.leads_to_any_order(reader);
        channels_first || self.is_of_attention(op) || by_all(&taken)
    }

    /// Operators between a transposition and attention that take its order over.
    pub(super) fn keeps_order(&self, op: &Op<'_>) -> bool {
        match &op.op[..] {
            "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Transpose" => true,
            "Mul" | "Div" => self.activations(op).len() == 1,
            _ => false,
        }
    }

    fn leads_to_any_order(&self, op: &Op<'_>) -> bool {
        let mut op = op;
        for _ in 0..8 {
            if matches!(&op.op[..], "Attention" | "RotaryEmbedding" | "Concat" | "Expand" | "Tile") {
                return true;
            }
            match op.outputs.first().and_then(|id| self.readers.get(id)).map(|r| &r[..]) {
                Some(&[next]) if self.keeps_order(op) => op = next,
                _ => return false,
            }
        }
        false
    }

    fn is_of_attention(&self, op: &Op<'_>) -> bool {
        let mut op = op;
        for _ in 0..4 {
            match op.inputs.first().copied().flatten().and_then(|id| self.makers.get(&id)) {
                Some(maker) if maker.op == "Attention" => return true,
                Some(maker) if self.keeps_order(maker) => op = maker,
                _ => return false,
            }
        }
        false
    }

    pub(super) fn transpose(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let dims = &self.tensor(input).dims;
        let order = infer::permutation(&self.call(op), dims.len())?;
        let inner: Vec<usize> = order.iter().filter_map(|&i| self.sample_axis(dims, i)).collect();
        let sizes = self.dims(input)?;
        let moving: Vec<usize> = inner.iter().copied().filter(|&i| sizes.get(i).is_some_and(|s| *s > 1)).collect();
        if moving.is_sorted() || self.order_does_not_matter(op, &order) {
            return self.alias(op);
        }
        if inner.len() != sizes.len() || sizes.len() > 4 {
            return self.rearranged(op);
        }
        let from = self.seen(input, &sizes)?;
        let place = self.emit(op, Layer::Permute(Permute { order: inner, copy: true }), vec![from], &[])?;
        self.made(op, place)
    }

    /// A copy of every element to another place.
    pub(super) fn rearranged(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let output = shape(&self.dims(op.outputs[0])?)?;
        let from = self.seen(input, &self.dims(input)?)?;
        let layer = Reshape { shape: output.dims().iter().map(|&d| d as i64).collect(), copy: true };
        let place = self.emit(op, Layer::Reshape(layer), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn concat(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let parts = self.activations(op);
        let out = &self.result(op)?.dims;
        let axis = self.call(op).axis(self.call(op).int("axis").unwrap_or(1), out.len())?;
        let holds = |id: &Id| !self.is_activation(*id) && self.tensor(*id).elements() > 0;
        let constants: Vec<Id> = op.inputs.iter().flatten().copied().filter(holds).collect();
        if !constants.is_empty() {
            return self.concat_constants(op, &parts, &constants);
        }
        // Where all is one sample, what comes first may be joined, too.
        let whole = self.graph.marker == 1 && axis == 0;
        let sizes = |id: Id| -> Result<Vec<u64>, Issue> {
            if whole { Ok(self.tensor(id).dims.iter().map(|&d| d as u64).collect()) } else { self.dims(id) }
        };
        let place = if whole { 0 } else { self.sample_axis(out, axis).ok_or("it joins samples of a batch")? };
        let joined = sizes(op.outputs[0])?;
        let parts = parts.into_iter().map(|part| Ok((part, sizes(part)?))).collect::<Result<Vec<_>, Issue>>()?;
        let mut from = Vec::new();
        if let [(only, _)] = parts[..] {
            let place = Place { source: self.seen(only, &joined)?, shape: shape(&joined)? };
            return self.made(op, place);
        }
        // Rows of everything from the joined dimension on, unless the tensors are few-dimensional anyway.
        let fits = joined.len() <= 4;
        let outer = product(&joined[..place]);
        for (part, dims) in parts {
            let rows = [outer, product(&dims[place..])];
            from.push(self.seen(part, if fits { &dims } else { &rows })?);
        }
        let usual = if joined.len() == 3 { 0 } else { joined.len() - 1 };
        let axis = if fits { Some(place).filter(|p| *p != usual) } else { None };
        let place = self.emit(op, Layer::Concat(Concat { axis }), from, &[])?;
        self.made(op, place)
    }

    /// Learned tokens before the others, or a copy into a larger tensor beside constants.
    fn concat_constants(&mut self, op: &'g Op<'a>, parts: &[Id], constants: &[Id]) -> Result<(), Issue> {
        let &[part] = parts else { return self.copied(op) };
        let dims = self.dims(part)?;
        let learned: Vec<Option<Id>> = constants.iter().map(|&c| Some(c)).collect();
        let &[tokens, features] = &dims[..] else { return self.copied(op) };
        let result = self.dims(op.outputs[0])?;
        let of_one_token = |c: &Id| self.unlearned(&[Some(*c)]) == features;
        if result != [tokens + constants.len() as u64, features] || !constants.iter().all(of_one_token) {
            return self.copied(op);
        }
        let mut from = self.seen(part, &dims)?;
        let mut place = None;
        for constant in learned {
            let made = self.emit(op, Layer::ClassToken(ClassToken {}), vec![from], &[constant])?;
            from = made.source;
            place = Some(made);
        }
        self.made(op, place.ok_or("it joins nothing")?)
    }

    /// One dimension's part, a view.
    fn part(&mut self, op: &'g Op<'a>, input: Id, axis: usize, [start, size, step]: [u64; 3]) -> Result<Place, Issue> {
        let dims = &self.tensor(input).dims;
        let Some(mut axis) = self.sample_axis(dims, axis) else {
            return if self.graph.marker == 1 {
                Ok(self.places.get(&input).cloned().ok_or("its input is not computed")?)
            } else {
                Err("it takes samples out of a batch".into())
            };
        };
        let mut sizes = self.dims(input)?;
        // What lies outside and inside of the dimension is taken together where there are too many.
        if sizes.len() > 4 {
            sizes = vec![product(&sizes[..axis]), sizes[axis], product(&sizes[axis + 1..])];
            axis = 1;
        }
        let from = self.seen(input, &sizes)?;
        self.emit(op, Layer::Slice(Slice { axis, start, size, step, copy: false }), vec![from], &[])
    }

    pub(super) fn slice(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let (before, after) = (&self.tensor(input).dims, &self.result(op)?.dims);
        let changed: Vec<usize> = (0..before.len()).filter(|&i| before[i] != after[i]).collect();
        let call = self.call(op);
        let steps = call.list(4, "steps")?.unwrap_or_default();
        if steps.iter().any(|s| *s < 1) {
            return self.copied(op);
        }
        let [axis] = changed[..] else {
            return if changed.is_empty() { self.alias(op) } else { self.copied(op) };
        };
        let starts = call.list(1, "starts")?.unwrap_or_default();
        let axes = call.list(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let place = axes.iter().position(|&a| call.axis(a, before.len()) == Ok(axis)).unwrap_or(0);
        let start = starts.get(place).copied().unwrap_or(0);
        let start = if start < 0 { start.saturating_add(before[axis]).max(0) } else { start };
        let step = steps.get(place).copied().unwrap_or(1);
        let place = self.part(op, input, axis, [start as u64, after[axis] as u64, step as u64])?;
        self.made(op, place)
    }

    pub(super) fn split(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let rank = self.tensor(input).rank();
        let axis = self.call(op).axis(self.call(op).int("axis").unwrap_or(0), rank)?;
        let mut start = 0;
        for position in 0..op.outputs.len() {
            let size = self.tensor(op.outputs[position]).dims[axis] as u64;
            let place = self.part(op, input, axis, [start, size, 1])?;
            start += size;
            self.made_at(op, position, place)?;
        }
        Ok(())
    }

    /// Rows of a learned table by index, one position along a dimension, or a copy of chosen ones.
    pub(super) fn gather(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let [Some(table), Some(indices), ..] = op.inputs[..] else {
            return Err("it lacks an input".into());
        };
        if self.graph.values[indices].kind == Kind::Index && !self.is_activation(table) {
            return self.embedding(op, table, indices);
        }
        if !self.is_activation(table) || self.graph.values[indices].kind != Kind::Constant {
            return self.copied(op);
        }
        let chosen = self.tensor(indices);
        let rank = self.tensor(table).rank();
        let axis = self.call(op).axis(self.call(op).int("axis").unwrap_or(0), rank)?;
        match chosen.ints() {
            Some(&[index]) => {
                let size = self.tensor(table).dims[axis];
                let start = if index < 0 { index + size } else { index };
                let place = self.part(op, table, axis, [start as u64, 1, 1])?;
                self.made(op, place)
            }
            _ => self.copied(op),
        }
    }

    pub(super) fn spread(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        if self.tensor(input).elements() == self.result(op)?.elements() { self.alias(op) } else { self.copied(op) }
    }
}
