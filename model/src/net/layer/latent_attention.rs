//! Multi-head latent attention.

use super::attention::seen;
use super::{LayerOp, ShapeError};
use crate::base::precision::Phase;
use crate::base::shape::{MAX_DIMENSION, Shape, product};
use crate::base::units::Ops;
use crate::net::cost::{LayerCost, Site};
use serde::{Deserialize, Serialize};

/// Attention whose keys and values are learned products of one latent vector per token, which alone is cached, with a part
/// of the key that carries the position and is shared by all heads (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1).
/// Reads queries `[tokens, heads (own + rope)]`, latents `[tokens, rank]` and the shared parts of keys `[tokens, rope]`;
/// writes `[tokens, heads value]`. The products that make keys and values of latents are part of it.
///
/// Over a prompt keys and values of every head are made and then attended to. Against a cache the products are absorbed
/// (section 2.1.2 there): each head's query is brought into the space of latents, attends to these, and its result is
/// brought back, so that no key or value of old tokens is made again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentAttention {
    /// Heads of queries, keys and values.
    pub heads: u64,
    /// Features of a head's values.
    pub value: u64,
    /// A token attends to itself and those before it.
    #[serde(default)]
    pub causal: bool,
    /// Tokens whose latents already lie in a cache; without it there is no cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
}

/// Sizes of one sample's latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentSizes {
    /// Queries, as many as new latents.
    pub tokens: u64,
    /// Latents, cached ones included.
    pub keys: u64,
    /// Features of a latent.
    pub rank: u64,
    /// Features of a key that heads share.
    pub rope: u64,
    /// Features of a key that are a head's own.
    pub own: u64,
}

impl LatentAttention {
    /// Sizes for these inputs.
    ///
    /// # Errors
    /// When the inputs do not fit each other or the heads.
    pub fn sizes(&self, inputs: &[Shape]) -> Result<LatentSizes, ShapeError> {
        let [queries, latents, shared] = inputs else {
            return Err(ShapeError::Arity { expected: "three", found: inputs.len() });
        };
        let row = |shape: &Shape| match *shape.dims() {
            [tokens, features] => Ok((tokens, features)),
            _ => Err(ShapeError::Rank { needs: "[tokens, features]", found: *shape }),
        };
        let ((tokens, wide), (new, rank), (others, rope)) = (row(queries)?, row(latents)?, row(shared)?);
        if new != tokens || others != tokens {
            return Err(ShapeError::Mismatch {
                first: *queries,
                other: if new != tokens { *latents } else { *shared },
            });
        }
        if self.heads == 0 || self.value == 0 {
            return Err(ShapeError::Field("heads and value must be at least 1"));
        }
        if !wide.is_multiple_of(self.heads) || wide / self.heads <= rope {
            return Err(ShapeError::Field(
                "queries do not divide into heads that are wider than the shared part of a key",
            ));
        }
        let keys = tokens.saturating_add(self.cached.unwrap_or(0));
        Ok(LatentSizes { tokens, keys, rank, rope, own: wide / self.heads - rope })
    }

    /// Whether it runs against a cache that is not empty.
    pub fn decodes(&self) -> bool {
        self.cached.is_some_and(|n| n > 0)
    }

    /// Elements per sample that latents and shared parts of keys take in a cache once this has run; zero without one.
    pub fn cache_elements(&self, inputs: &[Shape]) -> u64 {
        match (self.cached, self.sizes(inputs)) {
            (Some(_), Ok(s)) => s.keys.saturating_mul(s.rank.saturating_add(s.rope)),
            _ => 0,
        }
    }

    /// Elements per sample that one of its kernels hands to the next: keys and values of all heads, or queries and results in
    /// the space of latents.
    pub fn between(&self, inputs: &[Shape]) -> u64 {
        match self.sizes(inputs) {
            Ok(s) if self.decodes() => product(&[self.heads, s.tokens, s.rank.saturating_mul(2)]),
            Ok(s) => product(&[self.heads, s.tokens, s.own.saturating_add(self.value)]),
            Err(_) => 0,
        }
    }

    /// Learned values: of a latent every head's own part of the key, and its value.
    fn learned(&self, s: &LatentSizes) -> u64 {
        product(&[s.rank, self.heads, s.own.saturating_add(self.value)])
    }
}

impl LayerOp for LatentAttention {
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
        let s = self.sizes(inputs)?;
        if s.keys > MAX_DIMENSION {
            return Err(ShapeError::Field("too many keys"));
        }
        Ok(Shape::new(&[s.tokens, self.heads.saturating_mul(self.value)])?)
    }

    fn parameters(&self, inputs: &[Shape]) -> u64 {
        self.sizes(inputs).map_or(0, |s| self.learned(&s))
    }

    /// Forward: the products with what is learned are of the same size both ways, `tokens rank heads (own + value)`; pairs
    /// take two products, wider ones against a cache, and four operations (as [`super::Attention`]). Backward five products
    /// of pairs for two, and twice those with what is learned, once for data and once for weights.
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
        let s = self.sizes(site.inputs).ok()?;
        let times = |factors: &[u64]| product(factors).saturating_mul(site.batch);
        let learned = self.learned(&s);
        let made = times(&[s.tokens, learned]);
        let past = self.cached.unwrap_or(0);
        let each = if self.causal { seen(past, s.tokens, None) } else { s.tokens.saturating_mul(s.keys) };
        let pairs = times(&[self.heads, each]);
        let (key, value) = if self.decodes() { (s.rank + s.rope, s.rank) } else { (s.own + s.rope, self.value) };
        let attended = pairs.saturating_mul(key.saturating_add(value));
        let queries = times(&[self.heads, s.tokens, s.own + s.rope]);
        let results = times(&[self.heads, s.tokens, self.value]);
        let latents = |tokens: u64| times(&[tokens, s.rank + s.rope]);
        let between = site.batch.saturating_mul(self.between(site.inputs));
        let sum = |parts: &[u64]| parts.iter().fold(0u64, |a, b| a.saturating_add(*b));
        let (macs, per_pair, read, written, weights) = match phase {
            Phase::Forward => {
                let kept = if self.cached.is_some() { latents(s.tokens) } else { 0 };
                let read = sum(&[queries, latents(s.keys), between]);
                (sum(&[made, attended]), 4, read, sum(&[results, kept, between]), learned)
            }
            Phase::BackwardData => {
                let read = sum(&[queries, latents(s.keys), results, results, between, between]);
                let written = sum(&[queries, latents(s.tokens), between]);
                (sum(&[made, attended.saturating_mul(5) / 2]), 8, read, written, learned)
            }
            Phase::BackwardWeights => (made, 0, sum(&[latents(s.tokens), between]), learned, 0),
            Phase::Update => return None,
        };
        let mut cost = site.dense(&[macs], read, written, weights);
        cost.ops += Ops::new(pairs.saturating_mul(per_pair));
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cost, shape};
    use super::*;
    use crate::base::precision::Mode;

    const HEADS: u64 = 4;
    const OWN: u64 = 6;
    const ROPE: u64 = 2;
    const RANK: u64 = 16;
    const VALUE: u64 = 5;

    fn latent(cached: Option<u64>) -> LatentAttention {
        LatentAttention { heads: HEADS, value: VALUE, causal: true, cached }
    }

    fn inputs(tokens: u64) -> [Shape; 3] {
        [shape(&[tokens, HEADS * (OWN + ROPE)]), shape(&[tokens, RANK]), shape(&[tokens, ROPE])]
    }

    #[test]
    fn a_prompt_makes_keys_and_values_and_attends_as_any_attention() {
        let c = cost(&latent(Some(0)), &inputs(7), 3, Phase::Forward, Mode::Inference).expect("runs");
        let pairs: u64 = (0..7).map(|q| q + 1).sum();
        let made = 7 * RANK * HEADS * (OWN + VALUE);
        assert_eq!(c.macs, 3 * (made + pairs * HEADS * (OWN + ROPE + VALUE)));
        assert_eq!(c.weights.get(), 4 * RANK * HEADS * (OWN + VALUE));
        assert_eq!(latent(None).parameters(&inputs(7)), RANK * HEADS * (OWN + VALUE));
        assert_eq!(latent(None).output(&inputs(7)), Ok(shape(&[7, HEADS * VALUE])));
    }

    #[test]
    fn a_step_reads_latents_alone() {
        let layer = latent(Some(99));
        let c = cost(&layer, &inputs(1), 3, Phase::Forward, Mode::Inference).expect("runs");
        // Queries into latents' space and results out of it; scores and sums over 100 latents.
        let absorbed = HEADS * (OWN * RANK + RANK * VALUE);
        assert_eq!(c.macs, 3 * (absorbed + 100 * HEADS * (RANK + ROPE + RANK)));
        let handed_on = HEADS * 2 * RANK;
        let read = HEADS * (OWN + ROPE) + 100 * (RANK + ROPE) + handed_on;
        assert_eq!(c.read.get() - c.weights.get(), 4 * 3 * read);
        assert_eq!(c.written.get(), 4 * 3 * (HEADS * VALUE + RANK + ROPE + handed_on));
        assert_eq!(layer.cache_elements(&inputs(1)), 100 * (RANK + ROPE));
        assert_eq!(latent(None).cache_elements(&inputs(7)), 0);
    }

    #[test]
    fn backward_takes_five_products_of_pairs_for_two() {
        let of = |phase| cost(&latent(None), &inputs(7), 1, phase, Mode::Training).map_or(0, |c| c.macs);
        let made = 7 * RANK * HEADS * (OWN + VALUE);
        assert_eq!(2 * (of(Phase::BackwardData) - made), 5 * (of(Phase::Forward) - made));
        assert_eq!((of(Phase::BackwardWeights), of(Phase::Update)), (made, 0));
    }

    #[test]
    fn inputs_that_do_not_fit_are_refused() {
        let [queries, latents, shared] = inputs(7);
        let layer = latent(None);
        assert!(layer.output(&[queries, latents]).is_err());
        assert!(layer.output(&[queries, shape(&[6, RANK]), shared]).is_err());
        assert!(layer.output(&[queries, latents, shape(&[7, OWN + ROPE])]).is_err());
        assert!(LatentAttention { heads: 3, ..layer.clone() }.output(&inputs(7)).is_err());
        assert!(LatentAttention { heads: 0, ..layer }.output(&inputs(7)).is_err());
    }
}
