//! Views and copies.

use super::{Issue, Lowering, Op, Place, shape};
use crate::base::shape::product;
use crate::net::layer::{ClassToken, Concat, Layer, Reshape, Slice};
use crate::read::onnx::graph::{Id, Kind};
use crate::read::onnx::infer;

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
        self.leads_within(op, 8)
    }

    /// Within so many operators, on every way: queries, keys and values are parts of one tensor.
    fn leads_within(&self, op: &Op<'_>, steps: usize) -> bool {
        if matches!(&op.op[..], "Attention" | "UnfusedAttention" | "RotaryEmbedding" | "Concat" | "Expand" | "Tile") {
            return true;
        }
        let readers = || op.outputs.iter().flat_map(|id| self.readers.get(id).into_iter().flatten());
        let passes = self.keeps_order(op) || self.part_of(op).is_some();
        steps > 0 && passes && readers().next().is_some() && readers().all(|next| self.leads_within(next, steps - 1))
    }

    /// The tensor that an operator takes one part of, and along which dimension.
    pub(super) fn part_of(&self, op: &Op<'_>) -> Option<(Id, usize)> {
        let whole = op.inputs.first().copied().flatten()?;
        let one = |id: Id| self.tensor(id).ints().is_some_and(|i| i.len() == 1);
        let taken = match &op.op[..] {
            "Split" => true,
            "Gather" => op.inputs.get(1).copied().flatten().is_some_and(one),
            "Slice" => return self.cut(op).filter(|_| self.is_activation(whole)).map(|(axis, _)| (whole, axis)),
            _ => false,
        };
        let call = self.graph.call(op);
        let axis = call.axis(call.int("axis").unwrap_or(0), self.tensor(whole).rank()).ok()?;
        (taken && self.is_activation(whole)).then_some((whole, axis))
    }

    fn is_of_attention(&self, op: &Op<'_>) -> bool {
        let mut op = op;
        for _ in 0..4 {
            match op.inputs.first().copied().flatten().and_then(|id| self.makers.get(&id)) {
                Some(maker) if matches!(&maker.op[..], "Attention" | "UnfusedAttention") => return true,
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
        let readers = op.outputs.first().and_then(|id| self.readers.get(id)).map_or(&[][..], |r| &r[..]);
        if readers.len() > 1 && readers.iter().all(|next| next.op != "Slice" && self.part_of(next).is_some()) {
            // Its parts are copied by what reads them.
            self.scattered.extend(op.outputs.first());
            return self.alias(op);
        }
        // Channels of a map that become the last dimension are its rows; else rows stay together.
        let rows = if order.last() == Some(&(order.len() - 1)) { None } else { Some(sizes) };
        self.copy_of(op, input, rows)
    }

    /// A copy of every element to another place.
    pub(super) fn rearranged(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        self.copy_of(op, input, None)
    }

    /// A copy of a tensor, seen as rows of its last dimension or in the dimensions that are given.
    fn copy_of(&mut self, op: &'g Op<'a>, input: Id, seen: Option<Vec<u64>>) -> Result<(), Issue> {
        let dims = self.dims(input)?;
        let rows = |dims: Vec<u64>| match dims[..] {
            [ref outer @ .., last] if outer.len() > 1 => vec![product(outer), last],
            _ => dims,
        };
        let from = self.seen(input, &seen.unwrap_or_else(|| rows(dims)))?;
        let output = shape(&self.dims(op.outputs[0])?)?;
        let layer = Reshape { shape: output.dims().iter().map(|&d| d as i64).collect(), copy: true };
        let place = self.emit(op, Layer::Reshape(layer), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn concat(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        if let (Some(whole), Some(&result)) = (self.rolled(op), op.outputs.first()) {
            let dims = self.dims(whole)?;
            let from = self.seen(whole, &dims)?;
            if self.is_rolled_further(result) {
                let place = Place { source: from, shape: shape(&dims)? };
                return self.made(op, place);
            }
            return self.copy_of(op, whole, None);
        }
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

    /// One dimension's part: a view, and a copy of it where the whole lies in another order.
    fn part(&mut self, op: &'g Op<'a>, input: Id, axis: usize, which: [u64; 3], made: Id) -> Result<Place, Issue> {
        let place = self.one_part(op, input, axis, which, made)?;
        if !self.scattered.contains(&input) {
            return Ok(place);
        }
        let dims = self.dims(made)?;
        // The heads of a token lie side by side.
        let wide = match dims[..] {
            [.., heads, _, features] => product(&[heads, features]),
            _ => dims.last().copied().unwrap_or(1),
        };
        let view = Reshape { shape: vec![-1, wide as i64], copy: false };
        let rows = self.emit(op, Layer::Reshape(view), vec![place.source], &[])?;
        let shape = shape(&dims)?.dims().iter().map(|&d| d as i64).collect();
        self.emit(op, Layer::Reshape(Reshape { shape, copy: true }), vec![rows.source], &[])
    }

    /// A view, but a copy where a kernel with windows reads it: those take whole tensors.
    fn one_part(
        &mut self,
        op: &'g Op<'a>,
        input: Id,
        axis: usize,
        [start, size, step]: [u64; 3],
        made: Id,
    ) -> Result<Place, Issue> {
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
        let windows = |op: &&'g Op<'a>| matches!(&op.op[..], "Conv" | "ConvTranspose" | "MaxPool" | "AveragePool");
        let copy = self.readers.get(&made).is_some_and(|readers| readers.iter().any(windows));
        self.emit(op, Layer::Slice(Slice { axis, start, size, step, copy }), vec![from], &[])
    }

    pub(super) fn slice(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        if self.tensor(input).dims == self.result(op)?.dims && self.steps(op)?.iter().all(|s| *s > 0) {
            return self.alias(op);
        }
        match self.cut(op) {
            Some((axis, which)) => {
                let place = self.part(op, input, axis, which, op.outputs[0])?;
                self.made(op, place)
            }
            None => self.copied(op),
        }
    }

    fn steps(&self, op: &Op<'_>) -> Result<Vec<i64>, Issue> {
        Ok(self.graph.call(op).list(4, "steps")?.unwrap_or_default())
    }

    /// The one dimension of which a slice takes a part, and its start, size and step there.
    pub(super) fn cut(&self, op: &Op<'_>) -> Option<(usize, [u64; 3])> {
        let before = &self.tensor(op.inputs.first().copied().flatten()?).dims;
        let after = &self.tensor(*op.outputs.first()?).dims;
        let changed: Vec<usize> = (0..before.len()).filter(|&i| before[i] != *after.get(i).unwrap_or(&0)).collect();
        let steps = self.steps(op).ok()?;
        let ([axis], true) = (&changed[..], steps.iter().all(|s| *s > 0)) else { return None };
        let call = self.graph.call(op);
        let starts = call.list(1, "starts").ok()?.unwrap_or_default();
        let axes = call.list(3, "axes").ok()?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let place = axes.iter().position(|&a| call.axis(a, before.len()) == Ok(*axis)).unwrap_or(0);
        let start = starts.get(place).copied().unwrap_or(0);
        let start = if start < 0 { start.saturating_add(before[*axis]).max(0) } else { start };
        let step = steps.get(place).copied().unwrap_or(1);
        Some((*axis, [start as u64, after[*axis] as u64, step as u64]))
    }

    /// The tensor that is moved round by one dimension where two parts of it are joined the other way round, which PyTorch
    /// does with all dimensions in one kernel.
    fn rolled(&self, op: &Op<'_>) -> Option<Id> {
        let ("Concat", [Some(last), Some(first)]) = (&op.op[..], &op.inputs[..]) else { return None };
        let cut = |id: &Id| {
            let maker = self.makers.get(id).filter(|maker| maker.op == "Slice")?;
            Some((maker.inputs.first().copied().flatten()?, self.cut(maker)?))
        };
        let ((whole, (axis, [start, ..])), (of, (along, [0, size, 1]))) = (cut(last)?, cut(first)?) else {
            return None;
        };
        let dims = &self.tensor(whole).dims;
        (whole == of && axis == along && start == size && *dims == self.tensor(*op.outputs.first()?).dims)
            .then_some(whole)
    }

    /// Whether all that reads a tensor rolls it further.
    fn is_rolled_further(&self, id: Id) -> bool {
        let readers = |id: &Id| self.readers.get(id).map_or(&[][..], |r| &r[..]);
        let joined = |slice: &&Op<'_>| {
            let next = slice.outputs.first().map_or(&[][..], readers);
            slice.op == "Slice" && !next.is_empty() && next.iter().all(|join| self.rolled(join) == Some(id))
        };
        !self.graph.outputs.contains(&id) && !readers(&id).is_empty() && readers(&id).iter().all(joined)
    }

    pub(super) fn split(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let rank = self.tensor(input).rank();
        let axis = self.call(op).axis(self.call(op).int("axis").unwrap_or(0), rank)?;
        let mut start = 0;
        for position in 0..op.outputs.len() {
            let size = self.tensor(op.outputs[position]).dims[axis] as u64;
            let place = self.part(op, input, axis, [start, size, 1], op.outputs[position])?;
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
                let place = self.part(op, table, axis, [start as u64, 1, 1], op.outputs[0])?;
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
