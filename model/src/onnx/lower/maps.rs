//! Layers over maps: convolution, pooling, normalization per channel, resizing.

use super::{Issue, Lowering, Op, shape};
use crate::layer::{
    BatchNorm, Conv2d, Elementwise, GlobalPool2d, Groups, Interpolation, Layer, LocalResponseNorm, Pad, Pair, Pool2d,
    PoolOp, Resize,
};
use crate::network::Source;
use crate::onnx::graph::Id;
use crate::onnx::infer;

/// Sizes of one dimension or two as a pair: a row is a map one element high.
fn pair(sizes: &[i64], along: i64) -> Result<Pair, Issue> {
    let size = |v: i64| u64::try_from(v).map_err(|_| Issue::Wrong(format!("a size of {v}")));
    match *sizes {
        [w] => Ok(Pair { h: size(along)?, w: size(w)? }),
        [h, w] => Ok(Pair { h: size(h)?, w: size(w)? }),
        _ => Err(Issue::Wrong(format!("windows over {} dimensions, one or two are known", sizes.len()))),
    }
}

impl<'g, 'a> Lowering<'g, 'a> {
    /// Channels, height and width of one sample; a row of elements is a map one element high.
    pub(super) fn map_of(&self, id: Id) -> Result<[u64; 3], Issue> {
        match (self.tensor(id).rank(), &self.dims(id)?[..]) {
            (4, &[c, h, w]) => Ok([c, h, w]),
            (3, &[c, w]) => Ok([c, 1, w]),
            (_, other) => {
                Err(Issue::Wrong(format!("{other:?} of a sample is no map with channels, nor a row of them")))
            }
        }
    }

    /// The padding of a node, which a layer of its own adds where it is not the same on both sides.
    fn padded(&mut self, op: &'g Op<'a>, map: [u64; 3]) -> Result<(Source, Pair), Issue> {
        let call = self.call(op);
        let pads = infer::padding(&call)?;
        let input = self.activation(op, 0)?;
        let source = self.seen(input, &map)?;
        let ((top, bottom), (left, right)) = match pads[..] {
            [across] => ((0, 0), across),
            [down, across] => (down, across),
            _ => return Err("padding of other than one or two dimensions".into()),
        };
        if (top, left) == (bottom, right) {
            return Ok((source, pair(&[top, left], 0)?));
        }
        let padding = [top, bottom, left, right].map(|p| p as u64);
        let place =
            self.push(&format!("{}.pad", super::label(op.node)), Layer::Pad(Pad { padding }), vec![source], &[])?;
        Ok((place.source, Pair::square(0)))
    }

    pub(super) fn convolution(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let map = self.map_of(input)?;
        let weights = op.inputs.get(1).copied().flatten().filter(|&id| !self.is_activation(id));
        let weights = weights.ok_or("its weights are computed by the network")?;
        let call = self.call(op);
        let spatial = self.tensor(weights).dims.get(2..).unwrap_or_default();
        let sizes = |name: &str| call.ints(name).map_or_else(|| vec![1; spatial.len()], <[i64]>::to_vec);
        let (from, padding) = self.padded(op, map)?;
        let group = call.int("group").unwrap_or(1) as u64;
        let conv = Conv2d {
            channels: self.tensor(weights).dims[0] as u64,
            kernel: pair(spatial, 1)?,
            stride: pair(&sizes("strides"), 1)?,
            padding,
            dilation: pair(&sizes("dilations"), 1)?,
            groups: if group > 1 && group == map[0] { Groups::Depthwise } else { Groups::Count(group) },
            bias: op.inputs.get(2).is_some_and(Option::is_some),
        };
        let place = self.emit(op, Layer::Conv2d(conv), vec![from], &op.inputs[1..])?;
        self.made(op, place)
    }

    pub(super) fn pooling(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let map = self.map_of(input)?;
        let call = self.call(op);
        let kernel = call.ints("kernel_shape").unwrap_or_default();
        let strides = call.ints("strides").map_or_else(|| vec![1; kernel.len()], <[i64]>::to_vec);
        if call.ints("dilations").is_some_and(|d| d.iter().any(|&d| d != 1)) {
            return Err("a dilated pooling window".into());
        }
        let (from, padding) = self.padded(op, map)?;
        let pool = Pool2d {
            op: if op.op == "MaxPool" { PoolOp::Max } else { PoolOp::Avg },
            kernel: pair(kernel, 1)?,
            stride: Some(pair(&strides, 1)?),
            padding,
            ceil: call.int("ceil_mode") == Some(1),
        };
        let place = self.emit(op, Layer::Pool2d(pool), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn global_pooling(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let pool = if op.op == "GlobalMaxPool" { PoolOp::Max } else { PoolOp::Avg };
        let map = self.map_of(self.activation(op, 0)?)?;
        self.pool_whole(op, map, pool)
    }

    pub(super) fn pool_whole(&mut self, op: &'g Op<'a>, map: [u64; 3], pool: PoolOp) -> Result<(), Issue> {
        let from = self.seen(self.activation(op, 0)?, &map)?;
        let place = self.emit(op, Layer::GlobalPool2d(GlobalPool2d { op: pool }), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn batch_norm(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let dims = match self.tensor(input).rank() {
            2 => self.dims(input)?,
            _ => self.map_of(input)?.to_vec(),
        };
        let from = self.seen(input, &dims)?;
        let learned = &op.inputs[1..op.inputs.len().min(3)];
        // Ones and zeros that nothing learned stand for neither scale nor shift.
        let neutral = |(position, id): (usize, &Option<Id>)| {
            let value = id.map(|id| &self.graph.values[id]);
            let all = |wanted: f64| {
                let data = value.and_then(|v| v.tensor.data.as_ref());
                data.is_some_and(|d| d.reals().iter().all(|x| *x == wanted))
            };
            value.is_some_and(|v| v.learned.is_empty()) && all(if position == 0 { 1.0 } else { 0.0 })
        };
        let affine = !learned.iter().enumerate().all(neutral);
        let place = self.emit(op, Layer::BatchNorm(BatchNorm { affine }), vec![from], learned)?;
        self.made(op, place)
    }

    /// Mean 1, variance 2, normalization 2, scale and shift 2 operations per element, as [`crate::layer::LayerNorm`].
    pub(super) fn group_norm(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let from = self.seen(input, &self.dims(input)?)?;
        let learned = &op.inputs[1..];
        let layer = Elementwise { ops: 7, parameters: self.unlearned(learned), output: None };
        let place = self.emit(op, Layer::Elementwise(layer), vec![from], learned)?;
        self.made(op, place)
    }

    pub(super) fn local_response_norm(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let size = self.call(op).int("size").and_then(|s| u64::try_from(s).ok()).ok_or("its size is missing")?;
        let map = self.map_of(input)?;
        let from = self.seen(input, &map)?;
        let place = self.emit(op, Layer::LocalResponseNorm(LocalResponseNorm { size }), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn resize(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let (map, out) = (self.map_of(input)?, self.map_of(op.outputs[0])?);
        if map[0] != out[0] {
            return Err("it resizes channels".into());
        }
        let interpolation = match self.call(op).word("mode") {
            Some("linear" | "bilinear") => Interpolation::Linear,
            Some("cubic") => Interpolation::Cubic,
            _ => Interpolation::Nearest,
        };
        let from = self.seen(input, &map)?;
        let layer = Resize { output: Pair { h: out[1], w: out[2] }, interpolation };
        let place = self.emit(op, Layer::Resize(layer), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn pad(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let pads = infer::pads(&self.call(op))?;
        if pads.iter().all(|p| *p == (0, 0)) {
            return self.alias(op);
        }
        match (self.map_of(self.activation(op, 0)?), &pads[..]) {
            (Ok(map), &[(0, 0), (0, 0), (top, bottom), (left, right)])
                if [top, bottom, left, right].iter().all(|p| *p >= 0) =>
            {
                let padding = [top, bottom, left, right].map(|p| p as u64);
                let from = self.seen(self.activation(op, 0)?, &map)?;
                let place = self.emit(op, Layer::Pad(Pad { padding }), vec![from], &[])?;
                self.made(op, place)
            }
            _ => self.copied(op),
        }
    }

    /// A copy into another shape, with or without all of its elements.
    pub(super) fn copied(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let output = shape(&self.dims(op.outputs[0])?)?;
        let from = self
            .activations(op)
            .into_iter()
            .map(|id| {
                let dims = self.dims(id)?;
                self.seen(id, &dims)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let layer = Layer::Elementwise(Elementwise { ops: 0, parameters: 0, output: Some(output) });
        let place = self.emit(op, layer, from, &[])?;
        self.made(op, place)
    }
}
