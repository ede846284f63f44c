//! Shapes of the layers of transformers and recurrent networks.

use super::point::{Point, one, tokens};
use super::recipe::Ranges;
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{
    Attention, Cell, Embedding, Layer, Permute, Recurrent, RelativePositionBias, Reshape, Rotary, Slice,
};

/// Heads and features of a head that networks have.
const HEADS: [u64; 10] = [4, 6, 8, 12, 16, 20, 25, 32, 40, 64];
const DIMENSIONS: [u64; 6] = [32, 64, 64, 80, 96, 128];

/// A layer of one of the kinds at a point; `None` where the sizes there do not fit together.
pub fn case(kind: &str, phase: Phase, point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    if kind == "attention" {
        return attention(phase, point, ranges);
    }
    let tokens = tokens(point, ranges.tokens);
    let features = point.features(ranges.features);
    let rows = Shape::new(&[tokens, features]).ok()?;
    match kind {
        "embedding" => {
            let vocabulary = point.log([1000, 130_000]);
            one(Shape::new(&[tokens]).ok()?, Layer::Embedding(Embedding { vocabulary, features }))
        }
        "rotary" => {
            let (heads, dimension) = (point.pick(&HEADS), point.pick(&DIMENSIONS));
            one(Shape::new(&[tokens, heads * dimension]).ok()?, Layer::Rotary(Rotary { heads, rotated: None }))
        }
        "lstm" | "gru" | "rnn" => {
            let recurrent = Recurrent {
                cell: Cell::from_name(kind)?,
                hidden: point.pick(&[128, 256, 512, 512, 1024, 2048]),
                layers: point.pick(&[1, 1, 2, 3]),
                bidirectional: point.chance(0.25),
                bias: true,
            };
            one(Shape::new(&[tokens.min(512), features.min(4096)]).ok()?, Layer::Recurrent(recurrent))
        }
        "relative_position_bias" => {
            let (heads, windows) = (point.pick(&[3, 4, 6, 8, 12, 24]), point.pick(&[1, 4, 16, 64]));
            let window = point.pick(&[7, 7, 8, 12]);
            let side = window * window;
            let scores = Shape::new(&[windows * heads, side, side]).ok()?;
            one(scores, Layer::RelativePositionBias(RelativePositionBias { heads, window }))
        }
        "reshape" => {
            one(rows, Layer::Reshape(Reshape { shape: vec![-1, i64::try_from(features).ok()?], copy: true.into() }))
        }
        "permute" => {
            let (heads, dimension) = (point.pick(&HEADS), point.pick(&DIMENSIONS));
            let (input, order) = match point.pick(&[0, 1, 1]) {
                0 => (rows, vec![1, 0]),
                _ => (Shape::new(&[tokens, heads, dimension]).ok()?, vec![1, 0, 2]),
            };
            one(input, Layer::Permute(Permute { order, copy: true }))
        }
        "slice" => {
            let parts = point.pick(&[2, 3, 4]);
            let size = features / parts;
            let start = size * point.pick(&[0, parts - 1]);
            one(rows, Layer::Slice(Slice { axis: 1, start, size, step: 1, copy: true }))
        }
        // Others work over rows and have nothing that must be told.
        _ => one(rows, Layer::from_table(kind, Default::default())?.ok()?),
    }
}

/// Fused attention over sequences, of one token against a cache (forward only), and with its scores in memory.
fn attention(phase: Phase, point: &mut Point<'_>, ranges: &Ranges) -> Option<LayerCase> {
    let (length, heads) = (tokens(point, ranges.tokens), point.pick(&HEADS));
    let dimension = point.pick(&DIMENSIONS);
    let grouped = heads.is_multiple_of(4) && point.chance(0.3);
    let kv_heads = if grouped { heads / 4 } else { heads };
    let (fused, decoding) = match point.pick(&[0, 0, 0, 1, 1, 1, 2, 2]) {
        1 if phase == Phase::Forward => (true, true),
        2 => (false, false),
        _ => (true, false),
    };
    let tokens = if decoding { 1 } else { length };
    let layer = Attention {
        kv_heads: grouped.then_some(kv_heads),
        causal: point.chance(0.5),
        cached: decoding.then_some(length),
        fused,
        ..Attention::of(heads)
    };
    let row = |heads: u64| Shape::new(&[tokens, heads * dimension]).ok();
    Some(LayerCase { inputs: vec![row(heads)?, row(kv_heads)?, row(kv_heads)?], layer: Layer::Attention(layer) })
}
