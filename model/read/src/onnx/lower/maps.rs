//! Layers over maps: convolution, pooling, normalization per channel, resizing.

use super::{Issue, Lowering, Op, shape};
use crate::onnx::graph::Id;
use crate::onnx::infer;
use joulecast_model::base::shape::product;
use joulecast_model::net::layer::{
    AdaptivePool2d, BatchNorm, Conv2d, Conv3d, ConvTranspose2d, Elementwise, GlobalPool2d, Gradient, GroupNorm, Groups,
    Interpolation, Layer, LocalResponseNorm, Pad, Pair, Pool2d, Pool3d, PoolOp, Resize, Triple,
};
use joulecast_model::net::network::Source;

/// Sizes of one dimension or two as a pair: a row is a map one element high.
fn pair(sizes: &[i64], along: i64) -> Result<Pair, Issue> {
    match *sizes {
        [w] => Ok(Pair { h: size(along)?, w: size(w)? }),
        [h, w] => Ok(Pair { h: size(h)?, w: size(w)? }),
        _ => Err(Issue::Wrong(format!("windows over {} dimensions, one to three are known", sizes.len()))),
    }
}

/// Sizes of up to three dimensions.
fn triple(sizes: &[i64], along: i64) -> Result<Triple, Issue> {
    match *sizes {
        [d, h, w] => Ok(Triple { d: size(d)?, h: size(h)?, w: size(w)? }),
        _ => pair(sizes, along).and_then(|p| Ok(Triple { d: size(along)?, h: p.h, w: p.w })),
    }
}

fn size(v: i64) -> Result<u64, Issue> {
    u64::try_from(v).map_err(|_| Issue::Wrong(format!("a size of {v}")))
}

/// What a window slides over in one sample.
#[derive(Clone, Copy)]
pub(super) struct Space {
    /// Maps that are read one like the other, besides channels: samples of a part of the network, such as regions or
    /// frames.
    maps: u64,
    channels: u64,
    /// Frames of a volume.
    depth: Option<u64>,
    height: u64,
    width: u64,
}

impl Space {
    /// One map per channel, for what treats channels alike.
    fn alike(self) -> [u64; 3] {
        [product(&[self.maps, self.channels, self.depth.unwrap_or(1)]), self.height, self.width]
    }

    /// Channels, and all that belongs to them as one map.
    fn per_channel(self) -> [u64; 3] {
        [self.channels, product(&[self.maps, self.depth.unwrap_or(1), self.height]), self.width]
    }

    /// With several maps as frames.
    fn volume(self) -> [u64; 4] {
        [self.channels, self.maps.saturating_mul(self.depth.unwrap_or(1)), self.height, self.width]
    }

    /// With several volumes as channels, for what treats channels alike.
    fn alike_volume(self) -> [u64; 4] {
        [self.maps.saturating_mul(self.channels), self.depth.unwrap_or(1), self.height, self.width]
    }
}

impl<'g, 'a> Lowering<'g, 'a> {
    /// Channels and positions of one sample; a row of elements is a map one element high.
    pub(super) fn space(&self, id: Id) -> Result<Space, Issue> {
        let of = |maps, channels, depth, height, width| Ok(Space { maps, channels, depth, height, width });
        match (self.tensor(id).rank(), &self.dims(id)?[..]) {
            (3, &[c, w]) => of(1, c, None, 1, w),
            (3, &[n, c, w]) => of(n, c, None, 1, w),
            (4, &[c, h, w]) => of(1, c, None, h, w),
            (4, &[n, c, h, w]) => of(n, c, None, h, w),
            (5, &[c, d, h, w]) => of(1, c, Some(d), h, w),
            (5, &[n, c, d, h, w]) => of(n, c, Some(d), h, w),
            (_, other) => Err(Issue::Wrong(format!("{other:?} of a sample is no map with channels"))),
        }
    }

    /// Channels, height and width of one sample's map.
    pub(super) fn map_of(&self, id: Id) -> Result<[u64; 3], Issue> {
        Ok(self.space(id)?.alike())
    }

    /// Padding that differs from side to side, by a layer of its own; returns what reads and the padding that is left.
    fn padded(&mut self, op: &'g Op<'a>, dims: &[u64]) -> Result<(Source, Vec<i64>), Issue> {
        let pads = infer::padding(&self.call(op))?;
        let input = self.activation(op, 0)?;
        let source = self.seen(input, dims)?;
        if pads.iter().all(|(before, after)| before == after) {
            return Ok((source, pads.into_iter().map(|(before, _)| before).collect()));
        }
        let none = vec![0; pads.len()];
        let name = format!("{}.pad", super::scope::path(op.node));
        let layer = match (dims, &pads[..]) {
            (&[_, _, _], &[(top, bottom), (left, right)]) => {
                Layer::Pad(Pad { padding: [top, bottom, left, right].map(|p| p as u64), mirrors: false })
            }
            (&[_, _, _], &[(left, right)]) => {
                Layer::Pad(Pad { padding: [0, 0, left as u64, right as u64], mirrors: false })
            }
            _ => {
                let mut wide = dims.to_vec();
                let spatial = wide.len() - pads.len();
                wide[spatial..].iter_mut().zip(&pads).for_each(|(d, (a, b))| *d += (a + b) as u64);
                Layer::Elementwise(Elementwise::of(0, Some(shape(&wide)?)))
            }
        };
        Ok((self.push(&name, layer, vec![source], &[])?.source, none))
    }

    pub(super) fn convolution(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let space = self.space(self.activation(op, 0)?)?;
        let weights = op.inputs.get(1).copied().flatten().filter(|&id| !self.is_activation(id));
        let weights = weights.ok_or("its weights are computed by the network")?;
        let call = self.call(op);
        let spatial = self.tensor(weights).dims.get(2..).unwrap_or_default();
        let sizes = |name: &str| call.ints(name).map_or_else(|| vec![1; spatial.len()], <[i64]>::to_vec);
        let (strides, dilations) = (sizes("strides"), sizes("dilations"));
        let group = call.int("group").unwrap_or(1) as u64;
        let groups = if group > 1 && group == space.channels { Groups::Depthwise } else { Groups::Count(group) };
        let channels = self.tensor(weights).dims[0] as u64;
        let bias = op.inputs.get(2).is_some_and(Option::is_some) || self.is_bias_of_zeros(op);
        let point = spatial.iter().chain(&strides).all(|s| *s == 1);
        // Several maps one upon the other, where windows over them come to as many positions as over each.
        let stacks = || {
            let window = pair(spatial, 1)?.h;
            let (stride, dilation) = (pair(&strides, 1)?.h, pair(&dilations, 1)?.h);
            let pads = infer::padding(&call)?;
            let high = self.space(op.outputs[0])?.height;
            let padding = if let [(before, after), _] = pads[..] { (before + after) as u64 } else { 0 };
            let reach = dilation.saturating_mul(window.saturating_sub(1)) + 1;
            let positions = (space.maps.saturating_mul(space.height) + padding).checked_sub(reach);
            Ok::<bool, Issue>(positions.is_some_and(|p| p / stride.max(1) + 1 == space.maps.saturating_mul(high)))
        };
        let layer = if space.depth.is_none() && (space.maps == 1 || point || stacks()?) {
            let (from, padding) = self.padded(op, &space.per_channel())?;
            let (kernel, stride, dilation) = (pair(spatial, 1)?, pair(&strides, 1)?, pair(&dilations, 1)?);
            let padding = pair(&padding, 0)?;
            (from, Layer::Conv2d(Conv2d { channels, kernel, stride, padding, dilation, groups, bias }))
        } else {
            let (from, padding) = self.padded(op, &space.volume())?;
            let (kernel, stride, dilation) = (triple(spatial, 1)?, triple(&strides, 1)?, triple(&dilations, 1)?);
            let padding = triple(&padding, 0)?;
            (from, Layer::Conv3d(Conv3d { channels, kernel, stride, padding, dilation, groups, bias }))
        };
        let place = self.emit_weighted(op, layer.1, vec![layer.0], &op.inputs[1..])?;
        self.made(op, place)
    }

    pub(super) fn transposed(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let space = self.space(input)?;
        let weights = op.inputs.get(1).copied().flatten().filter(|&id| !self.is_activation(id));
        let weights = weights.ok_or("its weights are computed by the network")?;
        let call = self.call(op);
        let &[_, each, ref spatial @ ..] = &self.tensor(weights).dims[..] else {
            return Err("its weights are flat".into());
        };
        let sizes = |name: &str| call.ints(name).map_or_else(|| vec![1; spatial.len()], <[i64]>::to_vec);
        let (strides, dilations, cut) = (sizes("strides"), sizes("dilations"), infer::cut(&call)?);
        let group = call.int("group").unwrap_or(1) as u64;
        // Windows side by side do not tell one map from the next, nor frames from channels.
        let apart = spatial == &strides[..] && cut.iter().all(|c| *c == 0);
        // Nor do they where each map becomes as many times as high as windows are apart.
        let places = dilations.iter().zip(spatial).zip(&strides).map(|((d, k), s)| d * (k - 1) + 1 - s);
        let multiplies = space.depth.is_none() && places.eq(cut.iter().copied());
        if (space.depth.is_some() || space.maps > 1) && !apart && !multiplies {
            return Err("a transposed convolution over several maps or frames whose windows overlap".into());
        }
        let (frames, flat) = spatial.split_at(spatial.len().saturating_sub(2));
        let frames: u64 = frames.iter().map(|&f| f as u64).product();
        let first = spatial.len() - flat.len();
        let (spatial, strides, dilations, cut) = (flat, &strides[first..], &dilations[first..], &cut[first..]);
        let bias = op.inputs.get(2).is_some_and(Option::is_some);
        let biases = if bias && frames > 1 { self.unlearned(&op.inputs[2..3]) } else { 0 };
        // What is cut off is as much on both sides, and may be one element less behind.
        let padding: Vec<i64> = cut.iter().map(|c| (c.max(&0) + 1) / 2).collect();
        let more: Vec<i64> = cut.iter().zip(&padding).map(|(cut, padding)| 2 * padding - cut).collect();
        let layer = ConvTranspose2d {
            channels: (each as u64).saturating_mul(group).saturating_mul(frames),
            kernel: pair(spatial, 1)?,
            stride: pair(strides, 1)?,
            padding: pair(&padding, 0)?,
            output_padding: pair(&more, 0)?,
            dilation: pair(dilations, 1)?,
            groups: if group > 1 && group == space.channels { Groups::Depthwise } else { Groups::Count(group) },
            bias: bias && frames == 1,
        };
        let from = self.seen(input, &space.per_channel())?;
        let mut place = self.emit_weighted(op, Layer::ConvTranspose2d(layer), vec![from], &op.inputs[1..])?;
        if bias && frames > 1 {
            let gradient = Gradient::Passes;
            let layer = Elementwise { parameters: biases, gradient, ..Elementwise::of(1, None) };
            place = self.push(
                &format!("{}.bias", super::scope::path(op.node)),
                Layer::Elementwise(layer),
                vec![place.source],
                &[],
            )?;
        }
        self.made(op, place)
    }

    pub(super) fn pooling(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let space = self.space(self.activation(op, 0)?)?;
        let call = self.call(op);
        let kernel = call.ints("kernel_shape").unwrap_or_default();
        let strides = call.ints("strides").map_or_else(|| vec![1; kernel.len()], <[i64]>::to_vec);
        if call.ints("dilations").is_some_and(|d| d.iter().any(|&d| d != 1)) {
            return Err("a dilated pooling window".into());
        }
        let pool = if op.op == "MaxPool" { PoolOp::Max } else { PoolOp::Avg };
        let ceil = call.int("ceil_mode") == Some(1);
        let pads = infer::padding(&call)?;
        let through_frames = space.depth.is_some() && (kernel[0], strides[0], pads[0]) != (1, 1, (0, 0));
        let (from, layer) = if through_frames {
            let (from, padding) = self.padded(op, &space.alike_volume())?;
            let (kernel, stride, padding) = (triple(kernel, 1)?, Some(triple(&strides, 1)?), triple(&padding, 0)?);
            (from, Layer::Pool3d(Pool3d { op: pool, kernel, stride, padding, ceil }))
        } else {
            let (from, padding) = self.padded(op, &space.alike())?;
            let flat = kernel.len().saturating_sub(2);
            let (kernel, stride) = (pair(&kernel[flat..], 1)?, Some(pair(&strides[flat..], 1)?));
            let padding = pair(&padding[flat..], 0)?;
            // A window of one element is what is left of a pooling to the size that the map has.
            let adaptive = kernel == Pair::square(1) && stride == Some(kernel) && pads.iter().all(|p| *p == (0, 0));
            let output = Pair { h: space.height, w: space.width };
            match adaptive {
                true => (from, Layer::AdaptivePool2d(AdaptivePool2d { op: pool, output })),
                false => (from, Layer::Pool2d(Pool2d { op: pool, kernel, stride, padding, ceil })),
            }
        };
        let place = self.emit(op, layer, vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn global_pooling(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let pool = if op.op == "GlobalMaxPool" { PoolOp::Max } else { PoolOp::Avg };
        let space = self.space(self.activation(op, 0)?)?;
        self.pool_whole(op, space, pool)
    }

    pub(super) fn pool_whole(&mut self, op: &'g Op<'a>, space: Space, pool: PoolOp) -> Result<(), Issue> {
        let channels = space.maps.saturating_mul(space.channels);
        let map = [channels, space.height.saturating_mul(space.depth.unwrap_or(1)), space.width];
        let from = self.seen(self.activation(op, 0)?, &map)?;
        let place = self.emit(op, Layer::GlobalPool2d(GlobalPool2d { op: pool }), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn batch_norm(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let dims = match self.tensor(input).rank() {
            2 => self.dims(input)?,
            _ => self.space(input)?.per_channel().to_vec(),
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

    /// An instance normalization has a group per channel; the constant that a pattern found has a value per group.
    pub(super) fn group_norm(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let dims = self.dims(input)?;
        let groups = match &op.op[..] {
            "InstanceNormalization" => dims.first().copied(),
            "GroupNormalization" => self.call(op).int("num_groups").and_then(|n| u64::try_from(n).ok()),
            _ => Some(op.inputs.get(3).copied().flatten().map_or(1, |id| self.tensor(id).elements() as u64)),
        };
        let learned = &op.inputs[1..op.inputs.len().min(3)];
        let layer = GroupNorm { groups: groups.ok_or("its groups are missing")?, affine: self.unlearned(learned) > 0 };
        let from = self.seen(input, &dims)?;
        let place = self.emit(op, Layer::GroupNorm(layer), vec![from], learned)?;
        self.made(op, place)
    }

    pub(super) fn local_response_norm(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let size = self.call(op).int("size").and_then(|s| u64::try_from(s).ok()).ok_or("its size is missing")?;
        let map = self.space(input)?.per_channel();
        let from = self.seen(input, &map)?;
        let place = self.emit(op, Layer::LocalResponseNorm(LocalResponseNorm { size }), vec![from], &[])?;
        self.made(op, place)
    }

    pub(super) fn resize(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        let input = self.activation(op, 0)?;
        let (Ok(map), Ok(out)) = (self.map_of(input), self.map_of(op.outputs[0])) else { return self.copied(op) };
        if map[0] != out[0] {
            // Frames or channels: as a kernel that writes every result once.
            return self.copied(op);
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
            // PyTorch copies what it pads by nothing.
            return self.rearranged(op);
        }
        match (self.map_of(self.activation(op, 0)?), &pads[..]) {
            (Ok(map), &[(0, 0), (0, 0), (top, bottom), (left, right)])
                if [top, bottom, left, right].iter().all(|p| *p >= 0) =>
            {
                let padding = [top, bottom, left, right].map(|p| p as u64);
                let from = self.seen(self.activation(op, 0)?, &map)?;
                let mirrors = self.call(op).word("mode") == Some("reflect");
                let place = self.emit(op, Layer::Pad(Pad { padding, mirrors }), vec![from], &[])?;
                self.made(op, place)
            }
            _ => self.copied(op),
        }
    }

    /// A copy into each result.
    pub(super) fn copies(&mut self, op: &'g Op<'a>) -> Result<(), Issue> {
        if let [_] = op.outputs[..] {
            return self.copied(op);
        }
        for position in 0..op.outputs.len() {
            let input = self.activation(op, 0)?;
            let from = self.seen(input, &self.dims(input)?)?;
            let output = Some(shape(&self.dims(op.outputs[position])?)?);
            let layer = Layer::Elementwise(Elementwise::of(0, output));
            let place = self.emit(op, layer, vec![from], &[])?;
            self.made_at(op, position, place)?;
        }
        Ok(())
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
        let layer = Layer::Elementwise(Elementwise::of(0, Some(output)));
        let place = self.emit(op, layer, from, &[])?;
        self.made(op, place)
    }
}
