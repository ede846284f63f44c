//! T = sum of T_i + gaps, E = sum of P_i T_i, P = E / T.

use super::lookup::{Substitute, find};
use super::{Estimate, LayerPrediction, NetworkPrediction, PhaseTotal, PredictError, Setup};
use crate::calibration::Tier;
use crate::cost::LayerCost;
use crate::features::{Family, Workload, model_kind};
use crate::gpu::Gpu;
use crate::network::{ShapedLayer, ShapedNetwork, footprint};
use crate::power::{PowerEstimate, PowerLaw};
use crate::precision::{Phase, Precision};
use crate::units::{Joules, Seconds};
use std::collections::BTreeMap;

/// Outside of what was measured, and where another kind's model stands in without having been compared, the
/// interval's edges move out by this factor.
const WIDER: f64 = 1.5;
/// Shares of the time below this are not worth a warning.
const WORTH_A_WARNING: f64 = 0.01;

/// Predicts a step of a network.
///
/// Layer errors are taken as fully dependent: the network's time interval is the sum of its layers' intervals.
/// That is wider than independence would make it, and holds whatever the dependence.
///
/// # Errors
/// When the device lacks the precision, or nothing runs.
pub fn predict(network: &ShapedNetwork, setup: &Setup<'_>) -> Result<NetworkPrediction, PredictError> {
    let precision = network.precision();
    if setup.gpu.peak(precision).is_none() {
        let available = setup.gpu.peaks.keys().map(|p| p.name()).collect::<Vec<_>>().join(", ");
        return Err(PredictError::Precision { gpu: setup.gpu.name.clone(), precision, available });
    }
    let law = PowerLaw::of(setup.gpu);
    let mut totals = Totals::default();
    let mut layers = Vec::with_capacity(network.layers().len());
    let mut phases = Vec::new();
    for &phase in setup.mode.phases() {
        let before = (totals.time.value, totals.energy);
        for layer in network.layers() {
            if let Some(cost) = network.cost(layer, phase, setup.mode) {
                layers.push(predict_layer(network, layer, phase, cost, setup, &law, &mut totals)?);
            }
        }
        phases.push(PhaseTotal { phase, time: totals.time.value - before.0, energy: totals.energy - before.1 });
    }
    if layers.is_empty() {
        return Err(PredictError::Empty(network.name().to_string()));
    }
    let memory = footprint(network, setup.mode);
    let fits_in_memory = memory.total() <= setup.gpu.memory.value;
    let cost: LayerCost = totals.cost;
    let mut warnings = totals.warnings(setup);
    if !fits_in_memory {
        warnings.push(format!(
            "needs about {:.1} GiB of memory without workspace; {} has {:.1} GiB",
            memory.total().to_gib(),
            setup.gpu.name,
            setup.gpu.memory.value.to_gib()
        ));
    }
    Ok(NetworkPrediction {
        network: network.name().to_string(),
        batch: network.batch(),
        precision,
        mode: setup.mode,
        calibration: setup.calibration.unwrap_or(setup.roofline).id.clone(),
        time_tier: totals.tier(),
        power_tier: Tier::Roofline,
        power: totals.power(),
        energy: totals.energy(),
        time: totals.time,
        ops: cost.ops,
        read: cost.read,
        written: cost.written,
        parameters: network.parameters(),
        memory,
        fits_in_memory,
        bound: totals.bound,
        phases,
        layers,
        warnings,
    })
}

fn predict_layer(
    network: &ShapedNetwork,
    layer: &ShapedLayer,
    phase: Phase,
    cost: LayerCost,
    setup: &Setup<'_>,
    law: &PowerLaw,
    totals: &mut Totals,
) -> Result<LayerPrediction, PredictError> {
    // The optimizer works on fp32 master weights.
    let precision = if phase == Phase::Update { Precision::Fp32 } else { network.precision() };
    let kind = layer.layer.kind();
    let no_model = || PredictError::NoModel { layer: layer.name.clone(), kind, phase, precision };
    let family = Family::of(&layer.layer, phase);
    let (kind, model_kind) = match phase {
        Phase::Update => ("update", "update"),
        _ => (kind, model_kind(&layer.layer, &layer.inputs)),
    };
    let found = find(setup, model_kind, family, phase, precision).ok_or_else(no_model)?;
    let work =
        Workload::new(&layer.layer, &layer.inputs, layer.output, network.batch(), phase, precision, cost, setup.gpu)
            .ok_or_else(no_model)?;
    let model = found.model;
    let reference = work.roofline.reference(model.exponent, model.floor);
    let ratio = model.ratio(&work.variables(model.floor, model.library), reference);
    let log = found.stated.map_or(ratio.log + found.correction, |s| s.log);
    let value = reference * log.exp();
    let in_domain = ratio.in_domain && found.substitute.is_none();
    let (low, high) = match (found.stated, found.residuals.bucket(value)) {
        (Some(stated), _) => (stated.low, stated.high),
        (None, Some(bucket)) => (bucket.low, bucket.high),
        (None, None) => return Err(no_model()),
    };
    let trusted = if found.substitute.is_some() { found.calibrated } else { in_domain };
    let widen = if trusted { 1.0 } else { WIDER };
    let time = Estimate { value, p05: value * (low.exp() / widen), p95: value * (high.exp() * widen) };
    let power = law.estimate(work.roofline.compute, work.roofline.memory, model.floor, value);
    let prediction = LayerPrediction {
        name: layer.name.clone(),
        kind,
        phase,
        ops: cost.ops,
        read: cost.read,
        written: cost.written,
        time,
        power: power.value,
        energy: power.value * value,
        bound: work.roofline.bound(),
        tier: found.tier,
        in_domain,
    };
    totals.add(&prediction, cost, &power, found.substitute, ratio.in_domain, setup.framework.dispatch);
    Ok(prediction)
}

/// Running sums over kernels.
#[derive(Default)]
struct Totals {
    time: Estimate<Seconds>,
    bound: Seconds,
    energy: Joules,
    energy_low: Joules,
    energy_high: Joules,
    cost: LayerCost,
    by_tier: BTreeMap<Tier, f64>,
    outside: f64,
    substituted: BTreeMap<Substitute, BTreeMap<&'static str, f64>>,
}

impl Default for Estimate<Seconds> {
    fn default() -> Self {
        Self { value: Seconds::ZERO, p05: Seconds::ZERO, p95: Seconds::ZERO }
    }
}

impl Totals {
    fn add(
        &mut self,
        layer: &LayerPrediction,
        cost: LayerCost,
        power: &PowerEstimate,
        substitute: Option<Substitute>,
        in_range: bool,
        gap: Seconds,
    ) {
        let time = layer.time.value;
        self.time.value += time + gap;
        self.time.p05 += layer.time.p05 + gap;
        self.time.p95 += layer.time.p95 + gap;
        self.bound += layer.bound;
        self.energy += layer.energy;
        self.energy_low += power.low * time;
        self.energy_high += power.high * time;
        self.cost = self.cost + cost;
        *self.by_tier.entry(layer.tier).or_default() += time.get();
        if let Some(substitute) = substitute {
            *self.substituted.entry(substitute).or_default().entry(layer.kind).or_default() += time.get();
        } else if !in_range {
            self.outside += time.get();
        }
    }

    fn tier(&self) -> Tier {
        let largest = self.by_tier.iter().max_by(|a, b| a.1.total_cmp(b.1));
        largest.map_or(Tier::Roofline, |(tier, _)| *tier)
    }

    fn power(&self) -> Estimate<crate::units::Watts> {
        let time = self.time.value;
        Estimate { value: self.energy / time, p05: self.energy_low / time, p95: self.energy_high / time }
    }

    /// Errors of time and power are taken as independent: log half-widths add in squares.
    fn energy(&self) -> Estimate<Joules> {
        let half = |time: Seconds, energy: Joules| {
            let t = (time / self.time.value).ln();
            let p = (energy / self.energy).ln();
            t.hypot(p)
        };
        let low = half(self.time.p05, self.energy_low);
        let high = half(self.time.p95, self.energy_high);
        Estimate { value: self.energy, p05: self.energy * (-low).exp(), p95: self.energy * high.exp() }
    }

    fn warnings(&self, setup: &Setup<'_>) -> Vec<String> {
        let total = self.time.value.get();
        let gpu: &Gpu = setup.gpu;
        let mut list = Vec::new();
        match setup.calibration {
            None => list.push(format!(
                "no layer of {} was ever measured: times are rooflines with the efficiency that measured GPUs reach",
                gpu.name
            )),
            Some(calibration) if !calibration.boards.contains(&gpu.name) => list.push(format!(
                "the calibration was measured on {}, not on {}: same chip, other board",
                calibration.boards.join(", "),
                gpu.name
            )),
            Some(_) => {}
        }
        if setup.calibration.is_some() {
            for (substitute, kinds) in &self.substituted {
                let share = kinds.values().sum::<f64>() / total;
                if share >= WORTH_A_WARNING {
                    let names = kinds.keys().copied().collect::<Vec<_>>().join(", ");
                    list.push(format!(
                        "{names} ({:.0} % of the time): no rows on this GPU; {}",
                        100.0 * share,
                        substitute.words()
                    ));
                }
            }
        }
        if self.outside / total >= WORTH_A_WARNING {
            list.push(format!(
                "{:.0} % of the time is in layers outside of what was measured",
                100.0 * self.outside / total
            ));
        }
        let idle = if gpu.power.idle.is_none() { ", idle power taken as 10 % of the limit" } else { "" };
        list.push(format!("power was not measured: a stated law between idle and limit{idle}"));
        list
    }
}
