//! T = sum of T_i + gaps, E = sum of P_i T_i, P = E / T.

use super::beside::{fused_update, gradient_sums};
use super::intervals::Intervals;
use super::lookup::{Found, Substitute, by_algorithm, find, of_framework};
use super::operating_point::{Limits, OperatingPoint};
use super::settle::REACTION;
use super::{Estimate, LayerPrediction, NetworkPrediction, PhaseTotal, PredictError, Setup, Widths};
use crate::calibration::{Calibration, Tier};
use crate::clock::{Clocks, VoltageCurve, slowdown};
use crate::cost::LayerCost;
use crate::features::{Family, Setting, Twin, UPDATE, Workload, bias_beside, model_kind};
use crate::framework::{KernelOf, Launch, Stages};
use crate::gpu::{Device, Gpu};
use crate::layer::Layer;
use crate::network::{ShapedLayer, ShapedNetwork, footprint};
use crate::parallel::DevicePrediction;
use crate::power::{ClockLaw, Drives, Level, PowerModel, activities, power, traits, waiting};
use crate::precision::{Mode, Phase, Precision};
use crate::trial::Algorithm;
use crate::units::{Joules, Seconds, Watts};
use std::collections::BTreeMap;

/// Outside of what was measured, and where another kind's model stands in without having been compared, the
/// interval's edges move out by this factor.
pub const WIDER: f64 = 1.5;
/// Shares of the time below this are not worth a warning.
pub(super) const WORTH_A_WARNING: f64 = 0.01;

/// 90 % of what the laws of clock and power err per unit of ln(clock / clock of the times): kernels over core clocks with three
/// of them given are 3.5 % off in the mean over clocks down to half of the highest (`calibrate published sweeps`).
const CARRIED: f64 = 0.2;

/// Column `source` of the rows of the simulated device.
pub const SIMULATED: &str = "fake";

/// The law of power of another device is this much less certain, as a factor.
const OTHER_DEVICE: f64 = 1.3;

/// Predicts a step of a network as the driver runs it by default.
///
/// # Errors
/// When the device lacks the precision, or nothing runs.
pub fn predict(network: &ShapedNetwork, setup: &Setup<'_>) -> Result<NetworkPrediction, PredictError> {
    Step::new(network, setup)?.at(OperatingPoint::default())
}

/// The kernels of a step, ready to be predicted at any clocks and power limit.
#[derive(Clone)]
pub struct Step<'a> {
    pub(super) network: &'a ShapedNetwork,
    pub(super) setup: Setup<'a>,
    pub(super) kernels: Vec<Kernel<'a>>,
    pub(super) law: &'a PowerModel,
    pub(super) clock_law: ClockLaw,
    pub(super) power_tier: Tier,
    /// Share of the limit that the board draws while that holds it back.
    pub(super) held: f64,
    /// Time between kernels beyond what the framework's profile says.
    pub(super) gap: Seconds,
}

impl<'a> Step<'a> {
    /// Predicts a step's kernels.
    ///
    /// # Errors
    /// When the device lacks the precision, or nothing runs.
    pub fn new(network: &'a ShapedNetwork, setup: &Setup<'a>) -> Result<Self, PredictError> {
        let precision = network.precision();
        if setup.gpu.peak(precision).is_none() {
            let available = setup.gpu.peaks.keys().map(|p| p.name()).collect::<Vec<_>>().join(", ");
            return Err(PredictError::Precision { gpu: setup.gpu.name.clone(), precision, available });
        }
        // Another board of a measured chip keeps the law, not the claim that its power was measured.
        let tier = |c: &Calibration| if c.boards.contains(&setup.gpu.name) { c.tier } else { Tier::Transferred };
        let own_law = setup.calibration.and_then(|c| c.power.as_ref().map(|p| (p, tier(c))));
        let (law, power_tier) =
            own_law.or(setup.roofline.power.as_ref().map(|p| (p, Tier::Transferred))).ok_or(PredictError::NoPower)?;
        let mut kernels: Vec<Kernel<'a>> = Vec::with_capacity(network.layers().len());
        let mut models = Models { law, found: Vec::new() };
        let mut first = vec![None; network.layers().len()];
        for &phase in setup.phases {
            first.fill(None);
            let mut hosts = Seconds::ZERO;
            let mut updates = 0;
            let fused = setup.framework.fused_update.as_ref().filter(|_| phase == Phase::Update);
            for (layer, &alike) in network.layers().iter().zip(network.alike()) {
                let same = first[alike].map(|same: usize| &kernels[same]);
                // Whether a gradient is wanted depends on what a layer reads, nothing else does.
                let known = same.filter(|_| phase != Phase::BackwardData).map(|same| same.cost);
                let Some(cost) = known.or_else(|| network.cost(layer, phase, setup.mode)) else { continue };
                if fused.is_some() {
                    hosts += host(setup, &layer.layer, UPDATE, phase, setup.mode, network.precision());
                    updates += 1;
                    continue;
                }
                let kernel = match same {
                    Some(same) => Kernel { name: &layer.name, ..same.clone() },
                    None => predict_kernel(network, &layer.name, layer, phase, cost, setup, &mut models)?,
                };
                let repeats = *first[alike].get_or_insert(kernels.len());
                kernels.push(Kernel { repeats: Some(repeats), ..kernel });
            }
            if let Some((fused, all)) = fused.and_then(|f| Some((f, fused_update(network, f)?))) {
                let kernel = predict_kernel(network, all.name, &all.layer, phase, all.cost, setup, &mut models)?;
                kernels.push(Kernel { host: hosts, ..kernel.longer_by(fused.per_layer * f64::from(updates)) });
            }
            if phase == Phase::BackwardData {
                for sum in gradient_sums(network) {
                    let forward = Phase::Forward;
                    let kernel = predict_kernel(network, sum.name, &sum.layer, forward, sum.cost, setup, &mut models)?;
                    let host = host(setup, &sum.layer.layer, "add", forward, Mode::Inference, network.precision());
                    kernels.push(Kernel { phase, host, ..kernel });
                }
            }
        }
        if kernels.is_empty() {
            return Err(PredictError::Empty(network.name().to_string()));
        }
        let gpu = setup.gpu;
        let mut step = Self {
            network,
            setup: *setup,
            kernels,
            law,
            clock_law: ClockLaw::Fitted,
            power_tier,
            held: law.headroom,
            gap: Seconds::ZERO,
        };
        if own_law.is_none() {
            step.clock_law = ClockLaw::Voltage(VoltageCurve::of(gpu));
            step.held = gpu.power.held.as_ref().map_or(law.headroom, |h| h.value);
            step.scale_power(gpu.power.draw.as_ref().map_or(1.0, |d| d.value));
        }
        Ok(step)
    }

    /// Predicts the step at clocks and under a power limit.
    ///
    /// Layer errors are taken as fully dependent: the network's time interval is the sum of its layers' intervals.
    /// That is wider than independence would make it, and holds whatever the dependence.
    ///
    /// # Errors
    /// For clocks or a limit that the device does not take.
    pub fn at(&self, point: OperatingPoint) -> Result<NetworkPrediction, PredictError> {
        let limits = point.on(self.setup.gpu)?;
        let clocks = self.clocks_under(&limits);
        Ok(self.predict(point, &limits, &clocks))
    }

    /// Half-widths, and time, power and energy of a step with their intervals.
    pub(super) fn intervals(&self, totals: &Totals, point: OperatingPoint, cap: Watts) -> (Widths, Intervals) {
        let (setup, law) = (&self.setup, self.law);
        let spread = if self.power_tier == Tier::Transferred { OTHER_DEVICE } else { 1.0 };
        let residuals = (law.residuals.0 - spread.ln(), law.residuals.1 + spread.ln());
        let launch_bound = totals.for_host > Seconds::ZERO;
        let spread = setup.calibration.and_then(|c| c.network_spread(&setup.framework.name, setup.mode, launch_bound));
        let widths = Widths::new(&totals.time, residuals);
        let asked = point != OperatingPoint::default();
        let carried = if asked { CARRIED * totals.moved / totals.time.value.get() } else { 0.0 };
        (widths, widths.intervals(totals.time.value, totals.energy, cap, spread, carried))
    }

    fn predict(&self, point: OperatingPoint, limits: &Limits, clocks: &[f64]) -> NetworkPrediction {
        let (network, setup, power_tier, law) = (self.network, &self.setup, self.power_tier, self.law);
        let mut totals = Totals::default();
        let mut layers = Vec::with_capacity(self.kernels.len());
        let mut clock = 0.0;
        for (kernel, &core) in self.kernels.iter().zip(clocks) {
            let level = law.level(self.clock_law, core);
            let prediction = kernel.at(Clocks { core, memory: limits.memory }, level, setup.gpu);
            clock += core * prediction.time.value.get();
            totals.add(&prediction, kernel);
            totals.host = totals.host + Stages::of(kernel.phase, kernel.host);
            totals.moved += kernel.moved(core, limits.memory) * prediction.time.value.get();
            layers.push(prediction);
        }
        clock /= totals.time.value.get();
        let mut phases: Vec<PhaseTotal> = Vec::new();
        for layer in &layers {
            if phases.last().is_none_or(|p| p.phase != layer.phase) {
                phases.push(PhaseTotal { phase: layer.phase, time: Seconds::ZERO, energy: Joules::ZERO });
            }
            if let Some(phase) = phases.last_mut() {
                phase.time += layer.time.value;
                phase.energy += layer.energy;
            }
        }
        totals.wait(layers.len(), setup, network.precision());
        totals.idle(self.gap, setup.gpu);
        let (widths, (time, power, energy)) = self.intervals(&totals, point, limits.cap);
        let launch_bound = totals.for_host > Seconds::ZERO;
        let memory = footprint(network, setup.mode, &setup.framework.memory);
        let fits_in_memory = memory.total() <= setup.gpu.memory.value;
        let cost: LayerCost = totals.cost;
        let mut warnings = network.notes().to_vec();
        warnings.extend(limits.notes.iter().cloned());
        warnings.extend(self.clock_warnings(point, limits, clocks, clock, &layers));
        warnings.extend(beyond_the_limit(&layers, limits));
        if let Some(algorithm) = setup.framework.algorithm() {
            let convolutions = layers.iter().filter(|l| l.kind == "conv2d" && l.phase != Phase::Update);
            let (by, all) = convolutions.fold((0, 0), |(by, all), l| (by + u32::from(l.algorithm.is_some()), all + 1));
            warnings.push(format!("{by} of {all} kernels of convolutions run by {algorithm}, the others as usual"));
        }
        warnings.extend(self.library_warning());
        warnings.extend(totals.warnings(setup, power_tier));
        if !fits_in_memory {
            warnings.push(format!(
                "needs about {:.1} GiB of memory; {} has {:.1} GiB",
                memory.total().to_gib(),
                setup.gpu.name,
                setup.gpu.memory.value.to_gib()
            ));
        }
        let clock = setup.gpu.core_clock.boost.value * clock;
        let alone = DevicePrediction {
            gpu: setup.gpu.name.clone(),
            count: 1,
            batch: network.batch(),
            clock,
            time: time.value,
            power,
            energy,
            waiting: Joules::ZERO,
        };
        NetworkPrediction {
            network: network.name().to_string(),
            batch: network.batch(),
            precision: network.precision(),
            mode: setup.mode,
            calibration: setup.calibration.unwrap_or(setup.roofline).id.clone(),
            time_tier: totals.tier(),
            power_tier,
            clock,
            memory_clock: setup.gpu.memory_clock.as_ref().map(|c| c.value * limits.memory),
            power_cap: point.power_cap,
            waiting: totals.waiting / totals.time.value,
            launch_bound,
            widths,
            power,
            energy,
            time,
            ops: cost.ops,
            read: cost.read,
            written: cost.written,
            parameters: network.parameters(),
            memory,
            fits_in_memory,
            bound: totals.bound,
            phases,
            devices: vec![alone],
            communication: None,
            fed: None,
            layers,
            warnings,
        }
    }
}

/// Layers that draw more than the limit although all of them together keep it.
fn beyond_the_limit(layers: &[LayerPrediction], limits: &Limits) -> Option<String> {
    let mean = layers.iter().map(|l| l.energy).sum::<Joules>() / layers.iter().map(|l| l.time.value).sum::<Seconds>();
    let most = layers.iter().map(|l| l.power).fold(Watts::ZERO, Watts::max);
    let cap = limits.cap;
    (mean <= cap && most > cap * (1.0 + WORTH_A_WARNING)).then(|| {
        format!(
            "single layers draw up to {:.0} W: the limit of {:.0} W holds the mean over about {:.0} ms",
            most.get(),
            cap.get(),
            REACTION.to_ms()
        )
    })
}

/// A kernel at the clock that its calibration is of.
#[derive(Clone)]
pub(super) struct Kernel<'a> {
    name: &'a str,
    kind: &'static str,
    pub(super) phase: Phase,
    pub(super) cost: LayerCost,
    pub(super) time: Estimate<Seconds>,
    bound: Seconds,
    pub(super) memory: Seconds,
    pub(super) drives: Drives,
    pub(super) tier: Tier,
    algorithm: Option<Algorithm>,
    in_domain: bool,
    in_range: bool,
    substitute: Option<Substitute>,
    /// The rule of its library's version that makes its time.
    pub(super) jump: Option<&'a str>,
    /// What the host takes for its operation.
    pub(super) host: Seconds,
    /// Relative core clock that its time is of.
    pub(super) reference: f64,
    /// Ages of libraries that its model knows, where it depends on them and one is asked for.
    pub(super) ages: Option<(f64, f64)>,
    /// The first kernel of the step that is alike in everything but its name, where that is known: itself, or an earlier one.
    pub(super) repeats: Option<usize>,
}

impl Kernel<'_> {
    /// The same kernel where launches of further ones take time besides.
    fn longer_by(self, extra: Seconds) -> Self {
        let Estimate { value, p05, p95 } = self.time;
        Self { time: Estimate { value: value + extra, p05: p05 + extra, p95: p95 + extra }, ..self }
    }

    /// So many of it, one after the other.
    fn repeated(self, times: f64) -> Self {
        let (bound, memory, host) = (self.bound * times, self.memory * times, self.host * times);
        Self { time: self.time.times(times), bound, memory, host, ..self }
    }

    /// How far its clocks are from those that its time is of: the sum of the logarithms' distances.
    pub(super) fn moved(&self, core: f64, memory: f64) -> f64 {
        (core / self.reference).ln().abs() + memory.ln().abs()
    }

    pub(super) fn slowdown(&self, clocks: Clocks) -> f64 {
        let from = Clocks { core: self.reference, memory: 1.0 };
        slowdown(self.memory, self.time.value, from, clocks)
    }

    fn at(&self, clocks: Clocks, level: Level, gpu: &Gpu) -> LayerPrediction {
        let slowdown = self.slowdown(clocks);
        let time = self.time.times(slowdown);
        let power = power(gpu, self.drives, level, slowdown);
        LayerPrediction {
            name: self.name.to_string(),
            kind: self.kind,
            phase: self.phase,
            ops: self.cost.ops,
            read: self.cost.read,
            written: self.cost.written,
            time,
            power,
            energy: power * time.value,
            bound: self.bound,
            tier: self.tier,
            algorithm: self.algorithm,
            in_domain: self.in_domain,
            jump: self.jump.map(str::to_string),
        }
    }
}

/// The law of power, and models by class, phase and precision: the same few are wanted again and again.
struct Models<'m> {
    law: &'m PowerModel,
    found: Vec<(ModelKey, Option<Found<'m>>)>,
}

type ModelKey = (&'static str, Phase, Precision);

impl<'m> Models<'m> {
    /// What was found before, or is found now.
    fn find(&mut self, key: ModelKey, find: impl Fn() -> Option<Found<'m>>) -> Option<Found<'m>> {
        if let Some((_, found)) = self.found.iter().find(|(other, _)| *other == key) {
            return *found;
        }
        let found = find();
        self.found.push((key, found));
        found
    }
}

fn predict_kernel<'a, 'm: 'a>(
    network: &ShapedNetwork,
    name: &'a str,
    layer: &ShapedLayer,
    phase: Phase,
    cost: LayerCost,
    setup: &Setup<'m>,
    models: &mut Models<'m>,
) -> Result<Kernel<'a>, PredictError> {
    let precision = match (phase, &layer.layer, network.precision()) {
        // The optimizer works on fp32 master weights.
        (Phase::Update, _, _) => Precision::Fp32,
        // Fused kernels of attention take 32-bit operands as they are.
        (_, Layer::Attention(attention), Precision::Tf32) if attention.fused => Precision::Fp32,
        (_, _, precision) => precision,
    };
    if let Some((group, groups)) = layer.group().filter(|_| setup.framework.groups_apart && phase != Phase::Update)
        && let Some(part) = network.cost(&group, phase, setup.mode)
    {
        let kernel = predict_kernel(network, name, &group, phase, part, setup, models)?;
        return Ok(Kernel { cost, ..kernel.repeated(groups as f64) });
    }
    let mut of = |precision| kernel_in(precision, network, (name, layer), phase, cost, setup, models);
    let mut kernel = of(precision)?;
    if let Some(bias) = bias_beside(&layer.layer, layer.output, network.batch(), phase, precision.bytes()) {
        kernel = kernel.longer_by(bias.bytes() / setup.gpu.bandwidth.value);
    }
    // What other chips reach in TF32 says little of one with another ratio of peaks: a library would take plain fp32.
    if precision == Precision::Tf32 && matches!(kernel.substitute, Some(Substitute::Universal | Substitute::Efficiency))
    {
        let plain = of(Precision::Fp32)?;
        return Ok(if plain.time.value < kernel.time.value { plain } else { kernel });
    }
    Ok(kernel)
}

fn kernel_in<'a, 'm: 'a>(
    precision: Precision,
    network: &ShapedNetwork,
    (name, layer): (&'a str, &ShapedLayer),
    phase: Phase,
    cost: LayerCost,
    setup: &Setup<'m>,
    models: &mut Models<'m>,
) -> Result<Kernel<'a>, PredictError> {
    let (kind, own_phase) = (layer.layer.kind(), phase);
    let twin = Twin::of(&layer.layer, &layer.inputs, layer.output, network.batch(), phase);
    let (run, inputs, output, batch, phase) = match &twin {
        Some(t) => (&t.case.layer, &t.case.inputs[..], t.output, t.batch, t.phase),
        None => (&layer.layer, &layer.inputs[..], layer.output, network.batch(), phase),
    };
    let no_model = || PredictError::NoModel { layer: name.to_string(), kind, phase, precision };
    let family = Family::of(run, phase);
    let kind = if phase == Phase::Update { UPDATE } else { kind };
    let class = model_kind(run, inputs, phase);
    let asked = setup.framework.algorithm().filter(|a| twin.is_none() && a.supports(run, inputs));
    let by_algorithm =
        asked.and_then(|a| Some((a, by_algorithm(setup.calibration, setup.roofline, a, phase, precision)?)));
    let look_up = || {
        of_framework(setup.calibration, &setup.framework.name, class, family, phase, precision)
            .or_else(|| find(setup.calibration, setup.roofline, class, family, phase, precision))
    };
    let found = match by_algorithm {
        Some((_, found)) => found,
        None => models.find((class, phase, precision), look_up).ok_or_else(no_model)?,
    };
    let setting = Setting::usual(network.precision(), setup.mode);
    let gpu = setup.gpu;
    let work = Workload::new(run, inputs, output, batch, phase, precision, setting, cost, gpu).ok_or_else(no_model)?;
    let bound = work.roofline.bound();
    let work = by_algorithm.map_or(work, |(algorithm, _)| work.by(algorithm));
    let found = if twin.as_ref().is_some_and(|t| t.approximate) { found.of_frames() } else { found };
    let found = if setup.gpu.device == Device::Cpu { found.of_processor() } else { found };
    let model = found.model;
    let reference = work.roofline.reference(model.exponent, model.floor);
    let ratio = model.ratio(&work.variables(model.floor, setup.library.unwrap_or(model.library)), reference);
    let log = found.stated.map_or(ratio.log + found.correction, |s| s.log);
    let ours = reference * log.exp();
    let kernel = KernelOf { kind, layer: &layer.layer, phase, layout: setting.layout };
    let value = if found.framework { ours } else { through(setup, &kernel, &work, ours) };
    let jump = setup.framework.rules.iter().find_map(|rule| {
        let ruled = rule.applied(value, layer, phase, batch, gpu, setup.library)?;
        Some((rule.name.as_str(), ruled))
    });
    let value = jump.map_or(value, |(_, ruled)| ruled);
    let (low, high) = match (found.stated, found.residuals.bucket(ours)) {
        (Some(stated), _) => (stated.low, stated.high),
        (None, Some(bucket)) => (bucket.low, bucket.high),
        (None, None) => return Err(no_model()),
    };
    let widen = if found.trusted(ratio.in_domain) { 1.0 } else { WIDER };
    let memory = work.roofline.memory + work.roofline.second;
    let activities = activities(&work, model.floor, value);
    Ok(Kernel {
        name,
        kind,
        phase: own_phase,
        cost,
        time: Estimate { value, p05: value * (low.exp() / widen), p95: value * (high.exp() * widen) },
        bound,
        memory,
        drives: models.law.drives(&activities, &traits(&work, &activities, value)).times(setup.framework.activity),
        tier: found.tier,
        algorithm: by_algorithm.map(|(algorithm, _)| algorithm),
        in_domain: ratio.in_domain && found.substitute.is_none(),
        in_range: ratio.in_domain,
        substitute: found.substitute,
        jump: jump.map(|(name, _)| name),
        host: host(setup, &layer.layer, class, own_phase, setup.mode, network.precision()),
        reference: 1.0,
        ages: setup.library.and_then(|_| model.library_ages()),
        repeats: None,
    })
}

/// What the host takes to launch a layer's operation.
fn host(setup: &Setup<'_>, layer: &Layer, class: &str, phase: Phase, mode: Mode, precision: Precision) -> Seconds {
    setup.framework.host.as_ref().map_or(Seconds::ZERO, |h| h.launching(layer, class, phase, mode, precision))
}

/// What a kernel of the library's takes where the framework has a slower one of its own.
fn through(setup: &Setup<'_>, kernel: &KernelOf<'_>, work: &Workload<'_>, ours: Seconds) -> Seconds {
    let (factor, extra) = setup.framework.slower(kernel, work.batch);
    let bias = match (work.roofline.second, setup.framework.slower(&KernelOf { kind: "bias", ..*kernel }, work.batch)) {
        (Seconds::ZERO, _) => Seconds::ZERO,
        (second, (factor, extra)) => second * (factor - 1.0) + extra,
    };
    ours * factor + extra + bias
}

/// Running sums over kernels.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) time: Estimate<Seconds>,
    pub(super) bound: Seconds,
    pub(super) energy: Joules,
    /// Time in which no kernel runs.
    pub(super) waiting: Seconds,
    /// That part of it in which the host has not launched the next.
    pub(super) for_host: Seconds,
    /// How far the clocks are from those that times are of, weighted by time.
    pub(super) moved: f64,
    /// What kernels take, by stage.
    pub(super) stages: Stages,
    /// What the host takes to launch them.
    pub(super) host: Stages,
    pub(super) cost: LayerCost,
    pub(super) by_tier: BTreeMap<Tier, f64>,
    pub(super) outside: f64,
    pub(super) substituted: BTreeMap<Substitute, BTreeMap<&'static str, f64>>,
}

impl Default for Estimate<Seconds> {
    fn default() -> Self {
        Self { value: Seconds::ZERO, p05: Seconds::ZERO, p95: Seconds::ZERO }
    }
}

impl Totals {
    fn add(&mut self, layer: &LayerPrediction, kernel: &Kernel<'_>) {
        let time = layer.time.value;
        self.time.value += time;
        self.time.p05 += layer.time.p05;
        self.time.p95 += layer.time.p95;
        self.stages = self.stages + Stages::of(layer.phase, time);
        self.bound += layer.bound;
        self.energy += layer.energy;
        self.cost = self.cost + kernel.cost;
        *self.by_tier.entry(layer.tier).or_default() += time.get();
        if let Some(substitute) = kernel.substitute {
            *self.substituted.entry(substitute).or_default().entry(layer.kind).or_default() += time.get();
        } else if !kernel.in_range {
            self.outside += time.get();
        }
    }

    /// Adds the time in which the GPU waits: between kernels, and for a host that is slower than they are.
    pub(super) fn wait(&mut self, kernels: usize, setup: &Setup<'_>, precision: Precision) {
        let host = setup.framework.host.as_ref().filter(|_| setup.launch == Launch::Eager);
        let gap = setup.framework.dispatch + host.map_or(Seconds::ZERO, |h| h.gap);
        let gaps = gap * kernels as f64;
        let busy = self.time.value;
        let for_host = |time: Seconds, slower: f64| {
            let stages = self.stages * ((time + gaps) / busy);
            host.map_or(Seconds::ZERO, |h| h.waited_for(stages, self.host * slower, setup.mode, precision))
        };
        let spread = host.map_or(1.0, |h| h.spread);
        self.for_host = for_host(busy, 1.0);
        let (least, most) = (for_host(self.time.p05, 1.0 / spread), for_host(self.time.p95, spread));
        self.waiting = gaps + self.for_host;
        self.time.value += self.waiting;
        self.time.p05 += gaps + least;
        self.time.p95 += gaps + most;
        self.energy += waiting(setup.gpu) * self.waiting;
    }

    /// Adds time in which the GPU waits for something else.
    pub(super) fn idle(&mut self, time: Seconds, gpu: &Gpu) {
        let total = &mut self.time;
        *total = Estimate { value: total.value + time, p05: total.p05 + time, p95: total.p95 + time };
        self.waiting += time;
        self.energy += waiting(gpu) * time;
    }

    pub(super) fn tier(&self) -> Tier {
        let largest = self.by_tier.iter().max_by(|a, b| a.1.total_cmp(b.1));
        largest.map_or(Tier::Roofline, |(tier, _)| *tier)
    }

    fn warnings(&self, setup: &Setup<'_>, power_tier: Tier) -> Vec<String> {
        let total = self.time.value.get();
        let gpu: &Gpu = setup.gpu;
        let mut list = Vec::new();
        match setup.calibration {
            None => list.push(format!(
                "no measured layer of {} is used: times are those that measured GPUs would take with its peaks",
                gpu.name
            )),
            Some(calibration) if !calibration.boards.contains(&gpu.name) => list.push(format!(
                "the calibration was measured on {}, not on {}: same chip, other board",
                calibration.boards.join(", "),
                gpu.name
            )),
            Some(_) => {}
        }
        if setup.calibration.is_some_and(|c| c.sources.iter().any(|s| s == SIMULATED)) {
            list.push("the calibration has rows of a simulated device: its figures are no measurements".into());
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
        let waiting = self.for_host / self.time.value;
        if waiting >= WORTH_A_WARNING {
            list.push(format!("the GPU waits {:.0} % of the step for the host to launch operations", 100.0 * waiting));
        }
        if setup.launch == Launch::Eager && setup.framework.host.is_none() {
            list.push(format!("the {} profile has no host: eager is predicted as a graph is", setup.framework.name));
        }
        if power_tier == Tier::Transferred {
            let idle = if gpu.power.idle.is_none() { "; idle power taken as 10 % of the limit" } else { "" };
            list.push(format!(
                "power was not measured on this GPU: another GPU's law with this one's idle and limit{idle}"
            ));
        }
        list
    }
}
