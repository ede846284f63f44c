//! Learned values and caches of keys and values that are stored in fewer bits than a network computes in.
//!
//! A product reads its weights so and computes in 16 bits, attention reads its cache so: fewer bytes lie in memory and are
//! read. What making 16 bits of them takes was not measured and is left out.

use super::shaped::{ShapedLayer, ShapedNetwork};
use super::{Source, Stated};
use crate::base::precision::{Phase, Precision, named_enum};
use crate::base::units::Bytes;
use crate::net::cost::LayerCost;
use crate::net::layer::Layer;
use serde::{Deserialize, Serialize};

named_enum!(
    /// How learned values of products lie in memory.
    Weights {
        /// 8-bit floating point, a factor per row (16 bits, of thousands of values: not counted).
        Fp8 = "fp8",
        /// 8-bit integers, as fp8.
        Int8 = "int8",
        /// 4-bit integers; 16 bits of a factor and 4 of an offset for every 128 (AWQ, Lin et al. 2023, arXiv 2306.00978).
        Int4 = "int4",
    }
);

named_enum!(
    /// How keys and values lie in a cache.
    Kept {
        /// 8-bit floating point.
        Fp8 = "fp8",
    }
);

impl Weights {
    /// Bits of a value, with what belongs to its group, times 32.
    const fn bits_32(self) -> u64 {
        match self {
            Self::Fp8 | Self::Int8 => 8 * 32,
            Self::Int4 => 4 * 32 + (16 + 4) * 32 / 128,
        }
    }

    fn bytes(self, values: u64) -> u64 {
        (values.saturating_mul(self.bits_32())).div_ceil(8 * 32)
    }
}

/// What is stored in fewer bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stored {
    /// Learned values of products in blocks: those of the embedding, of the logits and of routers stay as they are, as the
    /// common recipes leave them.
    pub weights: Option<Weights>,
    /// Keys and values.
    pub cache: Option<Kept>,
}

impl Stored {
    /// Whether everything is as wide as the network computes in.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

impl Stated {
    /// How a layer is stored that computes in `precision`.
    pub(super) fn stored(&self, layer: &Layer, precision: Precision) -> Stored {
        let halves = matches!(precision, Precision::Bf16 | Precision::Fp16);
        let weights = self.experts.filter(|_| halves && matches!(layer, Layer::Experts(_)));
        Stored { weights, cache: None }
    }
}

impl ShapedNetwork {
    /// The same with values stored so. `head`: the product that makes logits, where the network has it.
    #[must_use]
    pub fn storing(self, stored: Stored, head: Option<&str>) -> Self {
        if stored.is_usual() {
            return self;
        }
        let routers: Vec<usize> = self.layers().iter().filter_map(router).collect();
        let mut layers = self.layers().to_vec();
        for (i, layer) in layers.iter_mut().enumerate() {
            let whole = routers.contains(&i) || head == Some(layer.name.as_str());
            let weights = match &layer.case.layer {
                Layer::Linear(_) if whole => None,
                Layer::Linear(_) | Layer::Experts(_) | Layer::LatentAttention(_) => stored.weights,
                _ => None,
            };
            layer.stored = Stored { weights: weights.or(layer.stored.weights), cache: stored.cache };
        }
        let mut network = self;
        network.set_layers(layers);
        network
    }
}

/// The layer that chooses a layer's experts.
fn router(layer: &ShapedLayer) -> Option<usize> {
    match (&layer.case.layer, layer.from.get(1)) {
        (Layer::Experts(_), Some(Source::Node(i))) => Some(*i),
        _ => None,
    }
}

impl ShapedLayer {
    /// Bytes of its learned values in a network that computes in `precision`.
    pub fn weight_bytes(&self, precision: Precision) -> u64 {
        match self.stored.weights {
            Some(weights) => weights.bytes(self.parameters()),
            None => self.parameters().saturating_mul(self.case.runs_in(precision).bytes()),
        }
    }

    /// Bytes that keys and values of a sample take in a cache once this has run, in a network that computes in `precision`.
    pub fn cache_bytes(&self, precision: Precision) -> u64 {
        let width = if self.stored.cache.is_some() { 1 } else { self.case.runs_in(precision).result_bytes() };
        self.case.layer.cache_elements(&self.case.inputs).saturating_mul(width)
    }

    /// The cost with fewer bytes where values are stored so: `precision` is what the layer computes in.
    pub(super) fn as_stored(&self, mut cost: LayerCost, phase: Phase, batch: u64, precision: Precision) -> LayerCost {
        if self.stored.is_usual() || phase != Phase::Forward {
            return cost;
        }
        let less = |bytes: Bytes, saved: u64| Bytes::new(bytes.get().saturating_sub(saved));
        if let Some(weights) = self.stored.weights {
            let saved = cost.weights.get().saturating_sub(weights.bytes(cost.weights.get() / precision.bytes()));
            (cost.read, cost.weights) = (less(cost.read, saved), less(cost.weights, saved));
        }
        if self.stored.cache.is_some() {
            let (read, written) = self.case.layer.cached_traffic(&self.case.inputs);
            let saved = |values: u64| values.saturating_mul(batch).saturating_mul(precision.bytes() - 1);
            (cost.read, cost.written) = (less(cost.read, saved(read)), less(cost.written, saved(written)));
        }
        cost
    }
}
