//! Scaled dot-product attention.

use super::{Layer, LayerOp, Linear, ShapeError};
use crate::base::precision::Phase;
use crate::base::shape::{Shape, product};
use crate::base::units::Ops;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// softmax(Q K^T / sqrt(d)) V per head. Reads one tensor `[tokens, (heads + 2 kv_heads) d]`, queries, keys and values
/// side by side, or three: `[tokens, heads d]`, `[keys, kv_heads d]`, `[keys, kv_heads d]`; to another sequence (`context`)
/// queries alone. Writes `[tokens, heads d]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Heads of the queries.
    pub heads: u64,
    /// Heads of keys and values, each shared by `heads / kv_heads` of the queries' (grouped-query attention, Ainslie
    /// et al. 2023); as many as `heads` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<u64>,
    /// A token attends to itself and those before it.
    #[serde(default)]
    pub causal: bool,
    /// Tokens whose keys and values already lie in a cache: all queries attend to them, too, and the new keys and
    /// values are written to the cache. Without it there is no cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// One kernel that keeps the scores on chip (Dao et al. 2022); otherwise two products and a softmax, with the scores
    /// of all pairs in memory.
    #[serde(default = "super::linear::yes")]
    pub fused: bool,
    /// A token attends to itself and as many before it as make this number together (sliding windows, Beltagy et al.
    /// 2020), and a cache keeps no more; to all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// A learned score per head that takes part in the softmax and has no value (attention sinks, Xiao et al. 2023).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sinks: bool,
    /// What is added to the scores before the softmax; nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<ScoreBias>,
    /// The other sequence that all queries attend to, whose keys and values are made here; without it its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
}

impl Attention {
    /// Fused, of so many heads of queries, keys and values, of all tokens to all of their own sequence.
    pub fn of(heads: u64) -> Self {
        Self {
            heads,
            kv_heads: None,
            causal: false,
            cached: None,
            fused: true,
            window: None,
            sinks: false,
            bias: None,
            context: None,
        }
    }
}

/// What an encoder made: cross attention (Vaswani et al. 2017) attends to it. Its keys and values are learned products, which run
/// once, with a prompt, and lie in a cache that does not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Positions that all samples have.
    pub positions: u64,
    /// Features of each, of which keys and values are made; 0 where others make these.
    pub features: u64,
    /// Whether values have a bias; keys have none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bias: bool,
}

/// A bias of attention's scores by head, query and key (relative positions, Shaw et al. 2018; Swin, Liu et al. 2021), the same
/// for all samples: `[heads, tokens, keys]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreBias {
    /// Heads that it differs by. Attention of several windows a sample has a multiple of them, and reads it for each window.
    pub heads: u64,
    /// Learned values that it is made of, often a table of distances; 0 of one that is not learned.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parameters: u64,
    /// Whether another dimension than the keys lies innermost in memory, as in a table of distances that was looked up and turned
    /// (T5, Raffel et al. 2020).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turned: bool,
    /// Whether it has three dimensions, none of them of samples: PyTorch 2.11 runs its memory-efficient kernel then in 16 bits, too,
    /// where cuDNN's takes a bias of four.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unbatched: bool,
}

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Sizes of one sample's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Queries' heads.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Queries.
    pub tokens: u64,
    /// Keys that are computed now.
    pub new_keys: u64,
    /// Keys that some query attends to, cached ones included.
    pub keys: u64,
    /// Features of a head.
    pub dimension: u64,
}

impl Layer {
    /// Pairs of queries and keys of a sample, over all heads, whose scores lie in memory: of attention that is not fused.
    pub fn written_pairs(&self, inputs: &[Shape]) -> Option<u64> {
        let Self::Attention(attention) = self else { return None };
        let sizes = attention.sizes(inputs).ok().filter(|_| !attention.fused)?;
        Some(product(&[sizes.heads, sizes.tokens, sizes.keys]))
    }

    /// Whether attention of any kind looks only backward; `None` of what is no attention.
    pub fn causal(&self) -> Option<bool> {
        match self {
            // Another sequence is all there before the first token of this one.
            Self::Attention(attention) => Some(attention.causal || attention.context.is_some()),
            Self::LatentAttention(attention) => Some(attention.causal),
            _ => None,
        }
    }

    /// Attention of any kind against a cache of so many tokens; nothing else has one.
    pub fn set_cached(&mut self, tokens: u64) {
        match self {
            Self::Attention(attention) => attention.cached = Some(tokens),
            Self::LatentAttention(attention) => attention.cached = Some(tokens),
            _ => {}
        }
    }

    /// Whether it is attention of any kind that has a cache.
    pub fn has_cache(&self) -> bool {
        match self {
            Self::Attention(attention) => attention.cached.is_some(),
            Self::LatentAttention(attention) => attention.cached.is_some(),
            _ => false,
        }
    }

    /// Elements per sample that attention of any kind reads of a cache, and writes into it, forward.
    pub fn cached_traffic(&self, inputs: &[Shape]) -> (u64, u64) {
        let of = |decodes: bool, all: u64, new: u64| (if decodes { all } else { 0 }, new);
        match self {
            Self::Attention(attention) if attention.cached.is_some() => attention.sizes(inputs).map_or((0, 0), |s| {
                let each = |keys: u64| product(&[2, s.kv_heads, keys, s.dimension]);
                of(attention.decodes(), each(s.keys), each(s.new_keys))
            }),
            Self::LatentAttention(attention) if attention.cached.is_some() => {
                attention.sizes(inputs).map_or((0, 0), |s| {
                    let each = |keys: u64| product(&[keys, s.rank.saturating_add(s.rope)]);
                    of(attention.decodes(), each(s.keys), each(s.tokens))
                })
            }
            _ => (0, 0),
        }
    }

    /// Elements per sample that attention of any kind has in a cache once this has run.
    pub fn cache_elements(&self, inputs: &[Shape]) -> u64 {
        match self {
            Self::Attention(attention) => attention.cache_elements(inputs),
            Self::LatentAttention(attention) => attention.cache_elements(inputs),
            _ => 0,
        }
    }
}

impl Attention {
    /// Values of the bias of its scores, one for each of the bias's heads, query and key; 0 without.
    pub fn values_of_bias(&self, sizes: &Heads) -> u64 {
        self.bias.map_or(0, |bias| product(&[bias.heads, sizes.tokens, sizes.keys]))
    }

    /// Sizes for these inputs.
    ///
    /// # Errors
    /// When the inputs do not fit each other or the heads.
    pub fn sizes(&self, inputs: &[Shape]) -> Result<Heads, ShapeError> {
        let (heads, kv_heads) = (self.heads, self.kv_heads.unwrap_or(self.heads));
        if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(ShapeError::Field("heads must be a multiple of kv_heads, both at least 1"));
        }
        let row = |shape: &Shape| match *shape.dims() {
            [tokens, features] => Ok((tokens, features)),
            _ => Err(ShapeError::Rank { needs: "[tokens, features]", found: *shape }),
        };
        let (tokens, new_keys, dimension) = match inputs {
            [queries] if self.context.is_some() => {
                let (tokens, wide) = row(queries)?;
                if !wide.is_multiple_of(heads) {
                    return Err(ShapeError::Field("features do not divide into heads of queries"));
                }
                // Nothing of another sequence is new but with the prompt.
                let made = self.context.filter(|_| !self.decodes()).map_or(0, |context| context.positions);
                (tokens, made, wide / heads)
            }
            [packed] => {
                let (tokens, features) = row(packed)?;
                let shares = heads.saturating_add(kv_heads.saturating_mul(2));
                if !features.is_multiple_of(shares) {
                    return Err(ShapeError::Field("features do not divide into heads of queries, keys and values"));
                }
                (tokens, tokens, features / shares)
            }
            [q, k, v] => {
                let ((tokens, wide), (new_keys, narrow)) = (row(q)?, row(k)?);
                if k != v {
                    return Err(ShapeError::Mismatch { first: *k, other: *v });
                }
                if !wide.is_multiple_of(heads) {
                    return Err(ShapeError::Field("features do not divide into heads of queries"));
                }
                if wide / heads * kv_heads != narrow {
                    return Err(ShapeError::Mismatch { first: *q, other: *k });
                }
                (tokens, new_keys, wide / heads)
            }
            _ => return Err(ShapeError::Arity { expected: "one or three", found: inputs.len() }),
        };
        if let Some(context) = self.context {
            let alone = !self.causal && self.window.is_none() && self.bias.is_none() && self.fused && inputs.len() == 1;
            if !alone || context.positions == 0 {
                return Err(ShapeError::Field(
                    "a context has positions, reads queries alone, and is of fused attention that is not causal",
                ));
            }
            return Ok(Heads { heads, kv_heads, tokens, new_keys, keys: context.positions, dimension });
        }
        if self.causal && new_keys != tokens {
            return Err(ShapeError::Field("causal attention has as many new keys as queries"));
        }
        if self.window.is_some_and(|window| window == 0 || !self.causal) {
            return Err(ShapeError::Field("a window is of causal attention, and at least 1"));
        }
        if self.bias.is_some_and(|bias| bias.heads == 0 || !heads.is_multiple_of(bias.heads) || !self.fused) {
            return Err(ShapeError::Field("a bias is of fused attention, and heads are a multiple of its heads"));
        }
        let reach = self.window.map_or(u64::MAX, |window| window.saturating_add(new_keys - 1));
        let keys = self.all_keys(new_keys).min(reach);
        Ok(Heads { heads, kv_heads, tokens, new_keys, keys, dimension })
    }

    /// Whether it is a step of generation: one token, or a few, against a cache that is not empty.
    pub fn decodes(&self) -> bool {
        self.cached.is_some_and(|n| n > 0)
    }

    /// New keys and all before them.
    fn all_keys(&self, new_keys: u64) -> u64 {
        let own = new_keys.saturating_add(self.cached.unwrap_or(0));
        self.context.map_or(own, |context| context.positions)
    }

    /// The product that makes keys and values of another sequence, over its positions, where it runs.
    pub fn products(&self, inputs: &[Shape]) -> Option<(Linear, Shape)> {
        let context = self.context.filter(|context| context.features > 0 && !self.decodes())?;
        let s = self.sizes(inputs).ok()?;
        let features = product(&[2, s.kv_heads, s.dimension]);
        let read = Shape::new(&[context.positions, context.features]).ok()?;
        Some((Linear { features, bias: context.bias }, read))
    }

    /// Learned values of these products.
    fn learned(&self, s: &Heads) -> u64 {
        let Some(context) = self.context.filter(|context| context.features > 0) else { return 0 };
        let wide = product(&[s.kv_heads, s.dimension]);
        product(&[2, context.features, wide]).saturating_add(if context.bias { wide } else { 0 })
    }

    /// Pairs of a query and a key per head that matter.
    fn pairs(&self, s: &Heads) -> u64 {
        // Unfused kernels compute all and mask.
        if !(self.causal && self.fused) {
            return s.tokens.saturating_mul(s.keys);
        }
        seen(self.cached.unwrap_or(0), s.tokens, self.window)
    }

    /// Elements per sample that keys and values take in a cache once this has run; zero without one.
    pub fn cache_elements(&self, inputs: &[Shape]) -> u64 {
        match (self.cached, self.sizes(inputs)) {
            (Some(_), Ok(s)) => {
                let kept = self.all_keys(s.new_keys).min(self.window.unwrap_or(u64::MAX));
                product(&[2, kept, s.kv_heads, s.dimension])
            }
            _ => 0,
        }
    }
}

/// Pairs of a query and a key that causal attention of `tokens` queries computes after `past` tokens: each query sees all
/// up to itself, but no more than a window.
pub(super) fn seen(past: u64, tokens: u64, window: Option<u64>) -> u64 {
    let triangle = |n: u64| n.saturating_mul(n + 1) / 2;
    // Queries whose whole past lies in the window.
    let short = window.map_or(tokens, |window| window.saturating_sub(past).min(tokens));
    let full = (tokens - short).saturating_mul(window.unwrap_or(0));
    short.saturating_mul(past).saturating_add(triangle(short)).saturating_add(full)
}

impl LayerOp for Attention {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let s = self.sizes(inputs)?;
        if self.all_keys(s.new_keys) > crate::base::shape::MAX_DIMENSION {
            return Err(ShapeError::Field("too many keys"));
        }
        Ok(Shape::new(&[s.tokens, s.heads.saturating_mul(s.dimension)])?)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        let sinks = if self.sinks { self.heads } else { 0 };
        let context = if self.context.is_some() { self.sizes(inputs).map_or(0, |s| self.learned(&s)) } else { 0 };
        self.bias.map_or(0, |bias| bias.parameters).saturating_add(sinks).saturating_add(context)
    }

    /// Two products over the pairs, and four operations per pair (scale, exponential, sum, division), five with a bias, which
    /// is read once. Backward: five products, one of which computes the scores again; unfused four, from the stored scores. The
    /// gradient of a learned bias is written for every pair of every sample and summed, as PyTorch 2.11 does. Keys and values of
    /// another sequence are products over its positions, forward once, backward once more for data and once for weights.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let s = self.sizes(site.inputs).ok()?;
        let times = |factors: &[u64]| product(factors).saturating_mul(site.batch);
        let pairs = times(&[s.heads, self.pairs(&s)]);
        let scores = if self.fused { 0 } else { pairs };
        let queries = times(&[s.heads, s.tokens, s.dimension]);
        let (new, all) =
            (times(&[2, s.kv_heads, s.new_keys, s.dimension]), times(&[2, s.kv_heads, s.keys, s.dimension]));
        let bias = self.values_of_bias(&s);
        // Of another sequence nothing is made again.
        let makes = self.context.filter(|_| !self.decodes());
        let made = makes.map_or(0, |c| times(&[c.positions, 2 * c.features, s.kv_heads, s.dimension]));
        let learned = if made > 0 { self.learned(&s) } else { 0 };
        let other = makes.map_or(0, |c| times(&[c.positions, c.features]));
        let gradients = if self.bias.is_some_and(|bias| bias.parameters > 0) { pairs } else { 0 };
        let added = u64::from(self.bias.is_some());
        let (products, per_pair, read, written) = match phase {
            Phase::Forward => {
                let kept = if self.cached.is_some() { new } else { 0 };
                let read = queries.saturating_add(all).saturating_add(scores.saturating_mul(2)).saturating_add(bias);
                let read = read.saturating_add(other);
                (2, 4 + added, read, queries.saturating_add(kept).saturating_add(scores.saturating_mul(2)))
            }
            Phase::BackwardData => {
                let (products, passes) = if self.fused { (5, 0) } else { (4, 1) };
                let read = queries.saturating_mul(3).saturating_add(all).saturating_add(scores.saturating_mul(5));
                let read = read.saturating_add(bias).saturating_add(gradients);
                let written = queries.saturating_add(new).saturating_add(scores.saturating_mul(2 * passes));
                (products, 8 + 2 * added, read, written.saturating_add(gradients))
            }
            Phase::BackwardWeights if made > 0 => {
                return Some(site.dense(&[made], other.saturating_add(new), learned, 0));
            }
            Phase::BackwardWeights | Phase::Update => return None,
        };
        let macs = product(&[products, pairs, s.dimension]).saturating_add(made);
        let mut cost = site.dense(&[macs], read, written, learned);
        cost.ops += Ops::new(pairs.saturating_mul(per_pair));
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    fn attention(heads: u64, kv_heads: u64, causal: bool) -> Attention {
        Attention { kv_heads: Some(kv_heads), causal, ..Attention::of(heads) }
    }

    /// Six features of queries in two heads, to nine positions of five features.
    #[test]
    fn another_sequence_is_made_once_and_then_only_read() {
        let context = Context { positions: 9, features: 5, bias: true };
        let layer = |cached| Attention { context: Some(context), cached, ..attention(2, 2, false) };
        let of = |cached, tokens| cost(&layer(cached), &[shape(&[tokens, 6])], 4, Phase::Forward, Mode::Inference);
        let (prompt, step) = (of(Some(0), 3).expect("runs"), of(Some(7), 1).expect("runs"));
        let pairs = |tokens: u64| 2 * 6 * 9 * tokens;
        assert_eq!((prompt.macs, step.macs), (4 * (pairs(3) + 9 * 5 * 12), 4 * pairs(1)));
        assert_eq!((prompt.weights.get(), step.weights.get()), (4 * (5 * 12 + 6), 0));
        assert_eq!(step.read.get(), 4 * 4 * (6 + 2 * 9 * 6));
        assert_eq!((step.written.get(), prompt.written.get()), (4 * 4 * 6, 4 * 4 * (3 * 6 + 2 * 9 * 6)));
        for cached in [Some(0), Some(1), Some(400)] {
            let layer = layer(cached);
            assert_eq!(layer.cache_elements(&[shape(&[1, 6])]), 2 * 9 * 6, "whatever the sequence");
            assert_eq!(layer.parameters(&[shape(&[1, 6])]), 5 * 12 + 6);
        }
        assert_eq!((Layer::Attention(layer(None)).causal(), layer(None).decodes()), (Some(true), false));
        let (product, read) = layer(Some(0)).products(&[shape(&[3, 6])]).expect("runs");
        assert_eq!((product.parameters(&[read]), read), (5 * 12 + 12, shape(&[9, 5])));
        assert_eq!(layer(Some(2)).products(&[shape(&[1, 6])]), None);
        let wrong = [
            Attention { causal: true, ..layer(None) },
            Attention { context: Some(Context { positions: 0, ..context }), ..layer(None) },
        ];
        assert!(wrong.iter().all(|layer| layer.output(&[shape(&[1, 6])]).is_err()));
        assert!(layer(None).output(&[shape(&[1, 6]), shape(&[1, 6]), shape(&[1, 6])]).is_err());
    }

    /// Multiply-accumulates by counting pairs one by one.
    fn counted(layer: &Attention, tokens: u64, dimension: u64) -> u64 {
        let past = layer.cached.unwrap_or(0);
        let near = |q: u64, k: u64| k <= past + q && layer.window.is_none_or(|window| past + q - k < window);
        let allowed =
            |q: u64| (0..past + tokens).filter(|&k| !(layer.causal && layer.fused) || near(q, k)).count() as u64;
        (0..layer.heads).map(|_| (0..tokens).map(|q| 2 * allowed(q) * dimension).sum::<u64>()).sum()
    }

    #[test]
    fn pairs_are_those_that_the_mask_leaves() {
        for causal in [false, true] {
            for cached in [None, Some(0), Some(5)] {
                for fused in [false, true] {
                    let layer = Attention { cached, fused, ..attention(4, 2, causal) };
                    let c = cost(&layer, &[shape(&[7, 8 * 3])], 1, Phase::Forward, Mode::Inference).expect("runs");
                    assert_eq!(c.macs, counted(&layer, 7, 3), "{layer:?}");
                }
            }
        }
    }

    #[test]
    fn a_window_leaves_the_nearest_keys() {
        for (window, cached) in
            (1..12).flat_map(|window| [None, Some(0), Some(1), Some(5), Some(40)].map(|c| (window, c)))
        {
            for tokens in [1, 2, 7] {
                let layer = Attention { window: Some(window), cached, ..attention(4, 2, true) };
                let input = [shape(&[tokens, 8 * 3])];
                let c = cost(&layer, &input, 1, Phase::Forward, Mode::Inference).expect("runs");
                assert_eq!(c.macs, counted(&layer, tokens, 3), "{layer:?}, {tokens} tokens");
                // Keys that any of the queries attends to, one by one.
                let past = cached.unwrap_or(0);
                let read = (0..past + tokens).filter(|k| k + window > past).count() as u64;
                assert_eq!(layer.sizes(&input).map(|s| s.keys), Ok(read), "{layer:?}, {tokens} tokens");
                let kept = cached.map_or(0, |past| 2 * (past + tokens).min(window) * 2 * 3);
                assert_eq!(layer.cache_elements(&input), kept, "{layer:?}, {tokens} tokens");
            }
        }
        let of = |window, causal| Attention { window, ..attention(4, 2, causal) }.output(&[shape(&[7, 24])]);
        assert!(of(Some(0), true).is_err() && of(Some(3), false).is_err() && of(Some(3), true).is_ok());
    }

    #[test]
    fn sinks_are_a_parameter_per_head() {
        let layer = Attention { sinks: true, ..attention(4, 2, true) };
        assert_eq!((layer.parameters(&[]), attention(4, 2, true).parameters(&[])), (4, 0));
    }

    #[test]
    fn a_bias_is_read_once_and_its_gradient_written_for_every_pair() {
        // Three windows a sample of two heads each.
        let plain = attention(6, 6, false);
        let bias = |heads, parameters| Attention {
            bias: Some(ScoreBias { heads, parameters, turned: false, unbatched: false }),
            ..plain.clone()
        };
        let input = [shape(&[5, 3 * 6 * 4])];
        let of = |layer: &Attention, phase| cost(layer, &input, 7, phase, Mode::Training).expect("runs");
        let more = |layer: &Attention, phase| {
            let (with, without) = (of(layer, phase), of(&plain, phase));
            assert_eq!(with.macs, without.macs);
            (with.read.get() - without.read.get(), with.written.get() - without.written.get())
        };
        let (table, pairs) = (4 * 2 * 25, 4 * 7 * 6 * 25);
        for parameters in [0, 18] {
            assert_eq!(more(&bias(2, parameters), Phase::Forward), (table, 0), "{parameters} learned");
        }
        assert_eq!(more(&bias(2, 0), Phase::BackwardData), (table, 0));
        assert_eq!(more(&bias(2, 18), Phase::BackwardData), (table + pairs, pairs));
        assert_eq!((bias(2, 18).parameters(&input), bias(2, 0).parameters(&input)), (18, 0));
        let sinks = Attention { sinks: true, ..bias(2, 18) };
        assert_eq!(sinks.parameters(&input), 18 + 6);
        assert!(
            bias(4, 0).output(&input).is_err()
                && bias(0, 0).output(&input).is_err()
                && bias(3, 0).output(&input).is_ok()
        );
        assert!(Attention { fused: false, ..bias(2, 0) }.output(&input).is_err(), "added by a kernel of its own");
    }

    #[test]
    fn one_packed_input_is_three_side_by_side() {
        let layer = attention(8, 2, true);
        let packed = [shape(&[5, (8 + 4) * 16])];
        let apart = [shape(&[5, 128]), shape(&[5, 32]), shape(&[5, 32])];
        let of = |inputs: &[Shape]| cost(&layer, inputs, 3, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(layer.output(&packed), layer.output(&apart));
        assert_eq!(of(&packed), of(&apart));
        assert_eq!(of(&packed).read.get(), 4 * 3 * 5 * (128 + 64));
        assert!(layer.output(&[apart[0], apart[0], apart[0]]).is_err());
        let odd = attention(7, 7, true).output(&[apart[0], apart[0], apart[0]]);
        assert_eq!(odd, Err(ShapeError::Field("features do not divide into heads of queries")), "128 by 7");
        assert!(attention(6, 4, true).output(&packed).is_err());
    }

    #[test]
    fn a_token_reads_the_whole_cache_and_adds_to_it() {
        let layer = Attention { cached: Some(99), ..attention(8, 2, true) };
        let c = cost(&layer, &[shape(&[1, 12 * 16])], 1, Phase::Forward, Mode::Inference).expect("runs");
        assert_eq!(c.read.get(), 4 * (8 * 16 + 2 * 100 * 2 * 16));
        assert_eq!(c.written.get(), 4 * (8 * 16 + 2 * 2 * 16));
        assert_eq!(layer.cache_elements(&[shape(&[1, 12 * 16])]), 2 * 100 * 2 * 16);
        assert_eq!(attention(8, 2, true).cache_elements(&[shape(&[1, 12 * 16])]), 0);
    }

    #[test]
    fn unfused_scores_go_through_memory() {
        let fused = attention(4, 4, false);
        let plain = Attention { fused: false, ..fused.clone() };
        let input = [shape(&[100, 3 * 4 * 16])];
        let of = |layer: &Attention, phase| cost(layer, &input, 1, phase, Mode::Training).expect("runs");
        let scores = 4 * 4 * 100 * 100;
        let more = of(&plain, Phase::Forward).bytes().get() - of(&fused, Phase::Forward).bytes().get();
        assert_eq!(more, 4 * scores);
        assert_eq!(of(&plain, Phase::BackwardData).macs * 5, of(&fused, Phase::BackwardData).macs * 4);
    }
}
