//! Views and copies.

use super::{Issue, Lowering, Op, Place, shape};
use crate::onnx::graph::{Id, Kind};
use crate::onnx::strides::shows;
use joulecast_model::base::shape::product;
use joulecast_model::net::layer::{ClassToken, Concat, Copied, Layer, Reshape, Slice};

impl<'g, 'a> Lowering<'g, 'a> {
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

    /// Operators between a transposition and attention that take its order over.
    pub(super) fn keeps_order(&self, op: &Op<'_>) -> bool {
        shows(op) || matches!(&op.op[..], "Mul" | "Div") && self.activations(op).len() == 1
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

    /// Copies what an operator reads in another order than it takes; returns where that was before.
    pub(super) fn copy_inputs(&mut self, op: &'g Op<'a>) -> Result<Vec<(Id, Place)>, Issue> {
        let mut before = Vec::new();
        let Some(&made) = op.outputs.first() else { return Ok(before) };
        for (position, id) in op.inputs.iter().enumerate().filter_map(|(k, id)| Some((k, (*id)?))) {
            let Some(copy) = self.moves.copies.get(&(made, position)).cloned() else { continue };
            let (own, lies) = (self.dims(id)?, self.sample(&copy.from)?);
            let reshape = |dims: &[u64]| -> Result<Layer, Issue> {
                let shape = shape(dims)?.dims().iter().map(|&d| d as i64).collect();
                Ok(Layer::Reshape(Reshape { shape, copy: copy.copied }))
            };
            let whole = |dims: &[u64]| -> Result<Layer, Issue> {
                let size = shape(dims)?.dims().first().copied().unwrap_or(1);
                Ok(Layer::Slice(Slice { axis: 0, start: 0, size, step: 1, copy: true }))
            };
            let (seen, layer) = match (copy.closes, copy.copied) {
                // Whichever order that is, it stays.
                (true, Copied::Always) => (&own, whole(&own)?),
                (true, _) => (&lies, reshape(&lies)?),
                (false, _) => (&lies, reshape(&own)?),
            };
            let from = self.seen(id, seen)?;
            let name = format!("{}.copy", super::scope::path(op.node));
            let place = self.push(&name, layer, vec![from], &[])?;
            before.extend(self.places.insert(id, place).map(|place| (id, place)));
        }
        Ok(before)
    }

    /// A copy of every element to another place.
    pub(super) fn rearranged(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        self.copy_of(op, input)
    }

    /// A copy of a tensor, seen as rows of its last dimension.
    fn copy_of(&mut self, op: &'g Op<'a>, input: Id) -> Result<(), Issue> {
        let dims = self.dims(input)?;
        let rows = match dims[..] {
            [ref outer @ .., last] if outer.len() > 1 => vec![product(outer), last],
            _ => dims,
        };
        let from = self.seen(input, &rows)?;
        let output = shape(&self.dims(op.outputs[0])?)?;
        let layer = Reshape { shape: output.dims().iter().map(|&d| d as i64).collect(), copy: Copied::Always };
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
            return self.copy_of(op, whole);
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

    /// A part along one dimension: a view, which what takes whole tensors copies.
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
        if self.tensor(input).dims == self.result(op)?.dims && self.steps(op)?.iter().all(|s| *s > 0) {
            return self.alias(op);
        }
        match self.cut(op) {
            Some((axis, which)) => {
                let place = self.part(op, input, axis, which)?;
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
