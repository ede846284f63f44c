//! Space-filling shapes: every kind's sizes as functions of a point.

use super::point::{Point, aligned, one, tokens};
use super::recipe::Ranges;
use super::transformers;
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{
    Activation, AdaptivePool2d, Add, BatchNorm, Concat, Conv2d, Conv3d, ConvTranspose2d, Dropout, Function,
    GlobalPool2d, GroupNorm, Groups, Interpolation, Layer, LayerNorm, LayerOp as _, Linear, LocalResponseNorm, Matmul,
    Measured, Multiply, Pad, Pair, Pool2d, Pool3d, PoolOp, Resize, Scale, Softmax, Triple,
};

/// A layer of a kind at a point; `None` where the sizes there do not fit together.
pub fn case(kind: &str, phase: Phase, point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let case = match kind {
        _ if phase == Phase::Update => parameters(point, ranges),
        "conv2d" => conv2d(point, ranges),
        "conv_transpose2d" => back(&conv2d(point, ranges)?),
        "linear" => linear(point, ranges),
        "matmul" => matmul(point, ranges),
        "layer_norm" | "softmax" | "gelu" | "gelu_tanh" => rows(kind, point, ranges),
        "resize" => resize(point, ranges),
        "group_norm" => group_norm(point, ranges),
        "conv3d" | "max_pool3d" | "avg_pool3d" => volume(kind, point, ranges),
        _ if Layer::measured(kind) != Measured::ByRunner => transformers::case(kind, phase, point, ranges),
        _ => map_layer(kind, point, ranges),
    }?;
    case.output().is_ok().then_some(case)
}

/// The transposed convolution that leads from a convolution's output back to its input.
fn back(case: &LayerCase) -> Option<LayerCase> {
    let Layer::Conv2d(conv) = &case.layer else { return None };
    let ((channels, height, width), output) = (case.inputs.first()?.as_map()?, case.output().ok()?);
    let mut layer = ConvTranspose2d {
        channels,
        kernel: conv.kernel,
        stride: conv.stride,
        padding: conv.padding,
        output_padding: Pair::square(0),
        dilation: conv.dilation,
        groups: Groups::Count(conv.groups(channels)),
        bias: conv.bias,
    };
    let (_, h, w) = layer.output(&[output]).ok()?.as_map()?;
    layer.output_padding = Pair { h: height.checked_sub(h)?, w: width.checked_sub(w)? };
    one(output, Layer::ConvTranspose2d(layer))
}

/// Whether it is a convolution in one group whose window is larger than 1x1.
pub fn has_window(case: &LayerCase) -> bool {
    match &case.layer {
        Layer::Conv2d(conv) => conv.kernel.area() > 1 && conv.groups(case.inputs.first().map_or(1, Shape::axis)) == 1,
        _ => false,
    }
}

fn conv2d(point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    // Fewer than 8 channels are an image's; see below.
    let wide = [ranges.channels[0].max(8).min(ranges.channels[1]), ranges.channels[1]];
    let (channels_in, side) = (point.channels(wide), point.side(ranges.side));
    let kernel = point.weighted(&[
        (0.34, Pair { h: 1, w: 1 }),
        (0.38, Pair { h: 3, w: 3 }),
        (0.10, Pair { h: 5, w: 5 }),
        (0.06, Pair { h: 7, w: 7 }),
        (0.03, Pair { h: 11, w: 11 }),
        (0.045, Pair { h: 1, w: 7 }),
        (0.045, Pair { h: 7, w: 1 }),
    ]);
    let ratio = (4f64.ln() * (2.0 * point.coordinate() - 1.0)).exp();
    let mut channels_in = channels_in;
    let mut channels = aligned(((channels_in as f64 * ratio) as u64).clamp(8, ranges.channels[1]));
    // The first layer of a network reads an image.
    if kernel.area() > 1 && side >= 96 && point.chance(0.2) {
        (channels_in, channels) = (3, point.pick(&[24, 32, 64, 96]));
    }
    let stride =
        if kernel.area() >= 49 && point.chance(0.3) { point.pick(&[2, 4]) } else { point.pick(&[1, 1, 1, 1, 2]) };
    let mut groups = Groups::Count(1);
    match point.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 2]) {
        1 => (groups, channels) = (Groups::Depthwise, channels_in),
        2 if channels_in >= 64 => {
            channels_in = channels_in.div_ceil(32) * 32;
            (groups, channels) = (Groups::Count(32), channels.div_ceil(32) * 32);
        }
        _ => {}
    }
    let dilation = if kernel.is(3) && stride == 1 && point.chance(0.06) { 2 } else { 1 };
    let same = Pair { h: dilation * (kernel.h / 2), w: dilation * (kernel.w / 2) };
    let padding = if point.chance(0.85) { same } else { Pair::square(0) };
    one(
        Shape::map(channels_in, side, side).ok()?,
        Layer::Conv2d(Conv2d {
            channels,
            kernel,
            stride: Pair::square(stride),
            padding,
            dilation: Pair::square(dilation),
            groups,
            bias: point.chance(0.3),
        }),
    )
}

fn linear(point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let (inputs, features) = (point.features(ranges.features), point.features(ranges.features));
    let input = if point.chance(0.5) {
        Shape::new(&[inputs])
    } else {
        let tokens = tokens(point, ranges.tokens);
        Shape::new(&[tokens, inputs])
    };
    one(input.ok()?, Layer::Linear(Linear { features, bias: point.chance(0.7) }))
}

/// A linear layer with so many parameters, for the optimizer.
fn parameters(point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let count = point.log(ranges.parameters);
    let inputs = aligned((count as f64).sqrt() as u64);
    one(Shape::new(&[inputs]).ok()?, Layer::Linear(Linear { features: (count / inputs).max(1), bias: true }))
}

/// Both products of attention, and single products.
fn matmul(point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let heads = point.pick(&[1, 4, 8, 12, 16, 32]);
    let rows = tokens(point, ranges.tokens);
    let dimension = point.pick(&[32, 64, 64, 80, 96, 128]);
    let shapes = match point.pick(&[0, 0, 1, 1, 2]) {
        0 => [Shape::new(&[heads, rows, dimension]), Shape::new(&[heads, dimension, rows])],
        1 => [Shape::new(&[heads, rows, rows]), Shape::new(&[heads, rows, dimension])],
        _ => {
            let inner = point.features(ranges.features);
            let columns = point.features(ranges.features);
            [Shape::new(&[rows, inner]), Shape::new(&[inner, columns])]
        }
    };
    let inputs = shapes.into_iter().collect::<Result<Vec<_>, _>>().ok()?;
    Some(LayerCase { inputs, layer: Layer::Matmul(Matmul::default()) })
}

fn rows(kind: &str, point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let (tokens, features) = (tokens(point, ranges.tokens), point.features(ranges.features));
    let layer = match kind {
        "layer_norm" => Layer::LayerNorm(LayerNorm { affine: true }),
        "softmax" => Layer::Softmax(Softmax::default()),
        _ => Layer::Activation(Activation { function: Function::from_name(kind)? }),
    };
    let input =
        if kind == "softmax" && point.chance(0.3) { Shape::new(&[features]) } else { Shape::new(&[tokens, features]) };
    one(input.ok()?, layer)
}

fn pool(op: PoolOp, point: &mut Point<'_>) -> Layer {
    let (kernel, stride, padding) = match op {
        PoolOp::Max => point.pick(&[(2, 2, 0), (2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2)]),
        PoolOp::Avg => point.pick(&[(2, 2, 0), (2, 2, 0), (3, 1, 1), (3, 2, 1), (5, 3, 0), (7, 1, 0)]),
    };
    Layer::Pool2d(Pool2d {
        op,
        kernel: Pair::square(kernel),
        stride: Some(Pair::square(stride)),
        padding: Pair::square(padding),
        ceil: padding == 0 && point.chance(0.3),
    })
}

fn map_layer(kind: &str, point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let (channels, side) = (point.channels(ranges.channels), point.side(ranges.side));
    let map = Shape::map(channels, side, side).ok()?;
    let layer = match kind {
        "max_pool2d" => pool(PoolOp::Max, point),
        "avg_pool2d" => pool(PoolOp::Avg, point),
        "global_avg_pool2d" => Layer::GlobalPool2d(GlobalPool2d { op: PoolOp::Avg }),
        "global_max_pool2d" => Layer::GlobalPool2d(GlobalPool2d { op: PoolOp::Max }),
        "adaptive_avg_pool2d" | "adaptive_max_pool2d" => {
            let op = if kind == "adaptive_avg_pool2d" { PoolOp::Avg } else { PoolOp::Max };
            Layer::AdaptivePool2d(AdaptivePool2d { op, output: Pair::square(point.pick(&[1, 2, 6, 7]).min(side)) })
        }
        "batch_norm" => Layer::BatchNorm(BatchNorm { affine: true }),
        "scale" => Layer::Scale(Scale { bias: point.chance(0.8) }),
        "local_response_norm" => Layer::LocalResponseNorm(LocalResponseNorm { size: point.pick(&[5, 5, 3, 9]) }),
        "dropout" => Layer::Dropout(Dropout { probability: 0.5 }),
        "pad" => {
            let [a, b] = point.pick(&[[0, 1], [1, 1], [2, 2], [3, 3]]);
            Layer::Pad(Pad { padding: [a, b, a, b], mirrors: false })
        }
        "add" | "multiply" | "concat" => return joined(kind, point, channels, side),
        _ => Layer::Activation(Activation { function: Function::from_name(kind)? }),
    };
    one(map, layer)
}

/// A map to a multiple of its side, or to that of an image whose classes are told element by element.
fn resize(point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let (channels, side) = (point.channels(ranges.channels), point.side(ranges.side));
    let output =
        if point.chance(0.2) { point.pick(&[224, 256, 512, 520]) } else { side * point.pick(&[2, 2, 2, 4, 8]) };
    let interpolation = point.pick(&[Interpolation::Nearest, Interpolation::Linear, Interpolation::Linear]);
    one(Shape::map(channels, side, side).ok()?, Layer::Resize(Resize { output: Pair::square(output), interpolation }))
}

/// A map of groups as wide as networks have them.
fn group_norm(point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let (channels, side) = (point.channels(ranges.channels), point.side(ranges.side));
    let groups = point.pick(&[32, 32, 32, 16, 8, 1]);
    let map = Shape::map(channels.next_multiple_of(groups), side, side).ok()?;
    one(map, Layer::GroupNorm(GroupNorm { groups, affine: true }))
}

/// Convolutions and pools over frames, with the windows of video networks: cubes, maps' and frames' apart.
fn volume(kind: &str, point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let (channels, side) = (point.channels(ranges.channels), point.side(ranges.side));
    let frames = point.pick(&[2, 4, 8, 8, 16, 16, 32]);
    let (channels, layer) = match kind {
        "conv3d" => conv3d(channels, point),
        "max_pool3d" => (channels, pool3d(PoolOp::Max, point)),
        _ => (channels, pool3d(PoolOp::Avg, point)),
    };
    one(Shape::new(&[channels, frames, side, side]).ok()?, layer)
}

/// So many frames of squares.
fn box_of(d: u64, side: u64) -> Triple {
    Triple { d, h: side, w: side }
}

/// A convolution over frames, and the channels that it reads: of a wide window mostly those of an image.
fn conv3d(channels: u64, point: &mut Point<'_>) -> (u64, Layer) {
    let windows = [(3, 3), (3, 3), (3, 3), (1, 3), (1, 3), (3, 1), (3, 1), (1, 1), (1, 7), (7, 1), (3, 7)];
    let (d, side) = point.pick(&windows);
    let (inputs, outputs) = if side == 7 && point.chance(0.7) {
        (3, 64)
    } else {
        let inputs = channels.max(8);
        (inputs, aligned((inputs as f64 * point.pick(&[0.5, 1.0, 1.0, 2.0])) as u64))
    };
    let step = |size: u64, steps: &[u64], point: &mut Point<'_>| if size > 1 { point.pick(steps) } else { 1 };
    let stride = box_of(step(d, &[1, 1, 1, 2], point), step(side, &[1, 1, 2], point));
    let layer = Conv3d {
        channels: outputs,
        kernel: box_of(d, side),
        stride,
        padding: box_of(d / 2, side / 2),
        dilation: box_of(1, 1),
        groups: Groups::Count(1),
        bias: point.chance(0.2),
    };
    (inputs, Layer::Conv3d(layer))
}

fn pool3d(op: PoolOp, point: &mut Point<'_>) -> Layer {
    let windows = [((3, 3), (1, 1)), ((3, 3), (2, 2)), ((1, 3), (1, 2)), ((1, 2), (1, 2)), ((2, 2), (2, 2))];
    let ((d, side), (step_d, step)) = point.pick(&windows);
    let padding = if side == 3 { box_of(d / 2, 1) } else { box_of(0, 0) };
    Layer::Pool3d(Pool3d { op, kernel: box_of(d, side), stride: Some(box_of(step_d, step)), padding, ceil: false })
}

/// Layers that read several maps.
fn joined(kind: &str, point: &mut Point<'_>, channels: u64, side: u64) -> Option<LayerCase> {
    let map = Shape::map(channels, side, side).ok()?;
    let (inputs, layer) = match kind {
        "add" => (vec![map; point.pick(&[2, 2, 2, 2, 3])], Layer::Add(Add {})),
        "multiply" => {
            let other = if point.chance(0.5) { map } else { Shape::map(channels, 1, 1).ok()? };
            (vec![map, other], Layer::Multiply(Multiply {}))
        }
        _ => {
            let more = point.pick(&[1, 1, 2, 3]);
            let mut inputs = vec![map];
            for _ in 0..more {
                let share = point.pick(&[4, 2, 1, 1]);
                inputs.push(Shape::map(aligned((channels / share).max(1)), side, side).ok()?);
            }
            (inputs, Layer::Concat(Concat::default()))
        }
    };
    Some(LayerCase { inputs, layer })
}

/// Many maps of one side joined: a first one and so many of the same width, as dense blocks and shuffles have them. `None`
/// for kinds that join no more than two.
pub fn many(kind: &str, inputs: [u64; 2], point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    if kind != "concat" {
        return None;
    }
    let (count, side) = (point.log(inputs), point.side(ranges.side));
    let (first, further) = (point.channels(ranges.channels), point.pick(&[8, 12, 16, 24, 32, 32, 48, 64]));
    let mut maps = vec![Shape::map(first, side, side).ok()?];
    for _ in 1..count {
        maps.push(Shape::map(further, side, side).ok()?);
    }
    let case = LayerCase { inputs: maps, layer: Layer::Concat(Concat::default()) };
    case.output().is_ok().then_some(case)
}

#[cfg(test)]
mod tests {
    use super::super::point::strata;
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn most_points_of_every_kind_make_a_layer() {
        let ranges = Ranges {
            channels: [3, 2048],
            side: [7, 224],
            features: [64, 16384],
            tokens: [16, 1024],
            parameters: [1000, 100_000_000],
        };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        // Views have no kernel, and no plan draws what nothing measures.
        let drawn = |kind: &&&str| **kind != "flatten" && Layer::measured(kind) != Measured::Nowhere;
        for kind in Layer::KINDS.iter().filter(drawn) {
            let made: Vec<LayerCase> = (0..300)
                .filter_map(|_| case(kind, Phase::Forward, &mut Point::anywhere(&mut random), &ranges))
                .collect();
            assert!(made.len() > 200, "{kind}: {}", made.len());
            assert!(made.iter().all(|c| c.layer.kind() == *kind), "{kind}");
        }
    }

    #[test]
    fn convolutions_have_the_classes_that_networks_have() {
        let ranges = Ranges {
            channels: [3, 2048],
            side: [7, 224],
            features: [64, 16384],
            tokens: [16, 1024],
            parameters: [1000, 100_000_000],
        };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let cases: Vec<LayerCase> = strata(400, &mut random)
            .into_iter()
            .filter_map(|p| case("conv2d", Phase::Forward, &mut Point::new(p, &mut random), &ranges))
            .collect();
        let share = |class: &dyn Fn(&Conv2d, u64) -> bool| {
            let of = |c: &&LayerCase| match &c.layer {
                Layer::Conv2d(conv) => class(conv, c.inputs[0].axis()),
                _ => false,
            };
            cases.iter().filter(of).count() as f64 / cases.len() as f64
        };
        assert!((0.25..0.45).contains(&share(&|c, _| c.kernel.is(1))));
        assert!((0.28..0.5).contains(&share(&|c, _| c.kernel.is(3))));
        assert!(share(&|c, i| c.groups(i) == i && i > 1) > 0.04);
        assert!(share(&|c, _| c.groups == Groups::Count(32)) > 0.03);
        assert!(share(&|c, _| c.stride.area() > 1) > 0.1);
        assert!(share(&|c, i| i % 8 == 0 && c.channels % 8 == 0) > 0.5);
        assert!(share(&|_, i| i % 8 != 0) > 0.05);
        assert!(share(&|_, i| i == 3) > 0.01);
    }
}
