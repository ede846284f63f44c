//! A stage: the kernels of one of its GPUs, with what it exchanges between them.

use crate::base::precision::Phase;
use crate::base::units::{Bytes, Joules, Ops, Seconds};
use crate::device::collective::Collectives;
use crate::kernel::key::ModelKey;
use crate::law::calibration::Tier;
use crate::law::power::Waits;
use crate::net::share::{Exchange, Share};
use crate::step::predictor::{BoundBy, Estimate, LayerPrediction, NetworkPrediction};
use std::collections::HashMap;

/// A GPU of a stage over one microbatch.
pub(super) struct Stage {
    /// Its kernels and what it exchanges, in order.
    pub layers: Vec<LayerPrediction>,
    /// The kernels alone, but for the list of them.
    pub alone: NetworkPrediction,
    /// What they take together.
    pub kernels: (Seconds, Joules),
    /// Both.
    pub time: Estimate<Seconds>,
    /// What it exchanges.
    pub exchanged: Estimate<Seconds>,
}

impl Stage {
    /// `width`: bytes of a value that is exchanged; `tier`: what the exchanges rest on.
    pub fn of(
        share: &Share,
        mut alone: NetworkPrediction,
        laws: &Collectives,
        (width, tier): (u64, Tier),
        waits: &Waits,
    ) -> Self {
        let exchanges: Vec<LayerPrediction> = share
            .exchanges
            .iter()
            .map(|e| exchange(e, &share.network.nodes[e.layer].name, (alone.batch, width, tier), laws, waits))
            .collect();
        let sum = |of: fn(&Estimate<Seconds>) -> Seconds| exchanges.iter().map(|e| of(&e.time)).sum::<Seconds>();
        let exchanged = Estimate { value: sum(|t| t.value), p05: sum(|t| t.p05), p95: sum(|t| t.p95) };
        let time = Estimate {
            value: alone.time.value + exchanged.value,
            p05: alone.time.p05 + exchanged.p05,
            p95: alone.time.p95 + exchanged.p95,
        };
        let own = std::mem::take(&mut alone.layers);
        let kernels = (own.iter().map(|l| l.time.value).sum(), own.iter().map(|l| l.energy).sum());
        if exchanges.is_empty() {
            return Self { layers: own, alone, kernels, time, exchanged };
        }
        // A fused kernel has the name of its first layer first.
        let places: HashMap<&str, usize> =
            share.network.nodes.iter().enumerate().map(|(i, node)| (node.name.as_str(), i)).collect();
        let mut layers = Vec::with_capacity(own.len() + exchanges.len());
        let mut list = exchanges.into_iter().zip(&share.exchanges).peekable();
        for layer in own {
            let first = layer.name.split('+').next().unwrap_or(&layer.name);
            let place = places.get(first).copied().unwrap_or(0);
            while let Some((exchange, _)) = list.next_if(|(_, e)| e.layer < place) {
                layers.push(exchange);
            }
            layers.push(layer);
        }
        layers.extend(list.map(|(exchange, _)| exchange));
        Self { layers, alone, kernels, time, exchanged }
    }
}

/// An exchange as a kernel of its own. A GPU's part of a message is read and written once.
fn exchange(
    e: &Exchange,
    layer: &str,
    (samples, width, tier): (u64, u64, Tier),
    laws: &Collectives,
    waits: &Waits,
) -> LayerPrediction {
    let bytes = Bytes::new(e.values.saturating_mul(samples).saturating_mul(width));
    let taken = laws.serving(e.kind, e.gpus, bytes);
    LayerPrediction {
        name: format!("{layer}.{}", e.kind).into(),
        kind: e.kind.name(),
        phase: Phase::Forward,
        ops: Ops::new(0),
        read: bytes,
        written: bytes,
        time: Estimate { value: taken.time, p05: taken.time / taken.spread, p95: taken.time * taken.spread },
        power: waits.value,
        energy: Joules::new((waits.value * taken.time).get()),
        bound: Seconds::ZERO,
        bound_by: BoundBy::Exchange,
        class: ModelKey::Kind(e.kind.name()),
        tier,
        algorithm: None,
        engine: None,
        in_domain: true,
        jump: None,
    }
}
