//! A kernel of a step: its model, its time, its power at any clock.

use super::{Estimate, LayerPrediction, PredictError, Setup};
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::units::{Seconds, Watts};
use crate::device::clock::{Clocks, slowdown};
use crate::device::gpu::{Device, Gpu};
use crate::kernel::key::ModelKey;
use crate::kernel::load::Load;
use crate::kernel::setting::{Algorithm, Layout};
use crate::kernel::work::Work;
use crate::law::calibration::Tier;
use crate::law::lookup::{Found, Substitute, by_algorithm_of, find, of_framework};
use crate::law::power::{ClockLaw, Drives, PowerModel, activities, power, traits};
use crate::law::time::time;
use crate::net::case::LayerCase;
use crate::net::cost::LayerCost;
use crate::net::layer::Layer;
use crate::net::network::{ShapedLayer, ShapedNetwork};
use crate::step::framework::KernelOf;

/// A kernel at the clock that its calibration is of.
#[derive(Clone)]
pub(super) struct Kernel<'a> {
    pub(super) name: &'a str,
    pub(super) kind: &'static str,
    pub(super) phase: Phase,
    pub(super) cost: LayerCost,
    pub(super) time: Estimate<Seconds>,
    pub(super) bound: Seconds,
    pub(super) memory: Seconds,
    pub(super) drives: Drives,
    pub(super) tier: Tier,
    pub(super) algorithm: Option<Algorithm>,
    /// The engine that its library is expected to choose.
    pub(super) engine: Option<&'a str>,
    pub(super) in_domain: bool,
    pub(super) in_range: bool,
    pub(super) substitute: Option<Substitute>,
    /// The rule of its library's version that makes its time.
    pub(super) jump: Option<&'a str>,
    /// What the host takes for its operation.
    pub(super) host: Seconds,
    /// Relative core clock that its time is of.
    pub(super) reference: f64,
    /// Relative core clock above which it does not run, whatever the board is set to.
    pub(super) fastest: f64,
    /// Ages of libraries that its model knows, where it depends on them and one is asked for.
    pub(super) ages: Option<(f64, f64)>,
    /// The first kernel of the step that is alike in everything but its name, where that is known: itself, or an earlier one.
    pub(super) repeats: Option<usize>,
}

impl Kernel<'_> {
    /// The same kernel where launches of further ones take time besides.
    pub(super) fn longer_by(self, extra: Seconds) -> Self {
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
        (self.clock(core) / self.reference).ln().abs() + memory.ln().abs()
    }

    /// The relative core clock at which it runs on a board that is set to `core`.
    pub(super) fn clock(&self, core: f64) -> f64 {
        core.min(self.fastest)
    }

    /// Power at a core clock at which it takes `slowdown` times as long.
    pub(super) fn power(&self, gpu: &Gpu, clock_law: ClockLaw, core: f64, slowdown: f64) -> Watts {
        power(gpu, self.drives, clock_law.level(self.clock(core)), slowdown)
    }

    pub(super) fn slowdown(&self, clocks: Clocks) -> f64 {
        let from = Clocks { core: self.reference, memory: 1.0 };
        slowdown(self.memory, self.time.value, from, Clocks { core: self.clock(clocks.core), ..clocks })
    }

    pub(super) fn at(&self, clocks: Clocks, clock_law: ClockLaw, gpu: &Gpu) -> LayerPrediction {
        let slowdown = self.slowdown(clocks);
        let time = self.time.times(slowdown);
        let power = self.power(gpu, clock_law, clocks.core, slowdown);
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
            engine: self.engine.map(str::to_string),
            in_domain: self.in_domain,
            jump: self.jump.map(str::to_string),
        }
    }
}

/// The law of power, and models by class, phase and precision: the same few are wanted again and again.
pub(super) struct Models<'m> {
    law: &'m PowerModel,
    found: Vec<(Sought, Option<Found<'m>>)>,
}

type Sought = (ModelKey, Phase, Precision);

impl<'m> Models<'m> {
    pub(super) fn new(law: &'m PowerModel) -> Self {
        Self { law, found: Vec::new() }
    }

    /// What was found before, or is found now.
    fn find(&mut self, key: Sought, find: impl Fn() -> Option<Found<'m>>) -> Option<Found<'m>> {
        if let Some((_, found)) = self.found.iter().find(|(other, _)| *other == key) {
            return *found;
        }
        let found = find();
        self.found.push((key, found));
        found
    }
}

/// A kernel of a layer that runs in a precision: the network's, unless it is mixed.
pub(super) fn predict_kernel<'a, 'm: 'a>(
    (network, runs): (&ShapedNetwork, Precision),
    (name, layer): (&'a str, &ShapedLayer),
    phase: Phase,
    cost: LayerCost,
    setup: &Setup<'m>,
    models: &mut Models<'m>,
) -> Result<Kernel<'a>, PredictError> {
    let precision = match (phase, &layer.case.layer, runs) {
        // The optimizer works on fp32 master weights.
        (Phase::Update, _, _) => Precision::Fp32,
        // Fused kernels of attention take 32-bit operands as they are.
        (_, Layer::Attention(attention), Precision::Tf32) if attention.fused => Precision::Fp32,
        (_, Layer::LatentAttention(_), Precision::Tf32) => Precision::Fp32,
        (_, _, precision) => layer.case.runs_in(precision),
    };
    if let Some((group, groups)) = layer.group().filter(|_| setup.framework.groups_apart && phase != Phase::Update)
        && let Some(part) = network.cost_in(runs, &group, phase, setup.mode)
    {
        let kernel = predict_kernel((network, runs), (name, &group), phase, part, setup, models)?;
        return Ok(Kernel { cost, ..kernel.repeated(groups as f64) });
    }
    let mut of = |precision| kernel_in(precision, network, (name, layer), phase, cost, setup, models);
    let mut kernel = of(precision)?;
    let work = Work { precision, ..Work::of(layer, phase, network.batch(), network.precision(), setup.mode) };
    if let Some(bias) = work.bias_beside() {
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
    let own = Work { precision, ..Work::of(layer, phase, network.batch(), network.precision(), setup.mode) };
    let computed = setup.gpu.computes_in(precision).unwrap_or(precision);
    // Halves that are read into fp32 arithmetic run through fp32's kernels, in their order of dimensions.
    let own = if computed == precision { own } else { Work { layout: Layout::usual(computed), ..own } };
    let (kind, layout, approximate) = (layer.case.layer.kind(), own.layout, own.is_approximated());
    let (apart, twin) = (own.apart(), own.twin());
    let is_twin = twin.is_some();
    let mut work = twin.unwrap_or(own);
    let no_model = || PredictError::NoModel { layer: name.to_string(), kind, phase, precision };
    let (family, key, gpu) = (work.family(), work.key(), setup.gpu);
    let by_algorithm = setup.framework.algorithm().filter(|a| !is_twin && a.supports(work.layer(), work.inputs()));
    let by_algorithm = by_algorithm
        .and_then(|a| Some((a, by_algorithm_of(setup.calibration, setup.all_chips, a, work.phase, computed)?)));
    let named = |key| of_framework(setup.calibration, &setup.framework.name, key, family, work.phase, computed);
    let look_up = || named(key).or_else(|| find(setup.calibration, setup.all_chips, key, family, work.phase, computed));
    let apart = apart.and_then(|key| models.find((key, work.phase, computed), || named(key)));
    let found = match by_algorithm.map(|(_, found)| found).or(apart) {
        Some(found) => found,
        None => models.find((key, work.phase, computed), look_up).ok_or_else(no_model)?,
    };
    let found = found.on_board(setup.calibration, &gpu.name);
    let found = if approximate && apart.is_none() { found.of_frames() } else { found };
    let found = if gpu.device == Device::Cpu { found.of_processor() } else { found };
    let found = if computed == precision { found } else { found.of_halves() };
    let found = if setup.of_other_vendor() { found.of_other_vendor() } else { found };
    let algorithm = by_algorithm.map(|(algorithm, _)| algorithm);
    work.algorithm = algorithm.unwrap_or(Algorithm::Heuristic);
    let (run_phase, batch) = (work.phase, work.batch);
    let model = found.model;
    let view = model.view(work, cost, gpu, setup.library, setup.calibration).ok_or_else(no_model)?;
    let mut timed = time(view.seen(), &found, setup.all_chips.siblings(found.tier));
    if !timed.in_domain {
        timed.value = as_for_more_samples(timed.value, &found, &view.load, setup);
    }
    let engine = view.engine.filter(|engine| model.engine(engine).is_some());
    let load = view.load;
    let (low, high) = timed.edges.ok_or_else(no_model)?;
    let kind = if phase == Phase::Update { ModelKey::Update.name() } else { kind };
    let kernel = KernelOf { kind, layer: &layer.case.layer, phase: run_phase, layout };
    let value = if found.framework { timed.value } else { through(setup, &kernel, &load, timed.value) };
    let value = setup.framework.layer_norm.map_or(value, |l| value.max(l.least(&load.work, setup.gpu)));
    let strays = setup.framework.maps.filter(|_| layer.strays);
    let value = strays.map_or(value, |m| m.straying(value, &load.work, setup.gpu));
    let reordering = setup.framework.sequences.map_or(Seconds::ZERO, |s| s.reordering(&load.work, setup.gpu));
    let value = value + reordering;
    let jump = setup.framework.rules.iter().find_map(|rule| {
        let ruled = rule.applied(value, layer, run_phase, batch, gpu, setup.library)?;
        Some((rule.name.as_str(), ruled))
    });
    let value = jump.map_or(value, |(_, ruled)| ruled);
    let activities = models.law.seen(activities(&load, model.floor, value), gpu.bandwidth.value);
    Ok(Kernel {
        name,
        kind,
        phase,
        cost,
        time: Estimate { value, p05: value * low, p95: value * high },
        bound: load.bound,
        memory: load.roofline.traffic(),
        drives: models.law.drives(&activities, &traits(&load, &activities, value)).times(setup.framework.activity),
        tier: found.tier,
        algorithm,
        engine,
        in_domain: timed.in_domain && found.substitute.is_none(),
        in_range: timed.in_domain,
        substitute: found.substitute,
        jump: jump.map(|(name, _)| name),
        host: host(setup, &layer.case, key, phase, setup.mode, network.precision()),
        reference: 1.0,
        fastest: f64::INFINITY,
        ages: setup.library.and_then(|_| model.library_ages()),
        repeats: None,
    })
}

/// Beyond what was measured a polynomial may fall as the batch grows: a kernel takes no longer than the same one of 2, 4, 8
/// and so on up to 64 times as many samples.
fn as_for_more_samples(own: Seconds, found: &Found<'_>, load: &Load<'_>, setup: &Setup<'_>) -> Seconds {
    let shortest = found.shortest();
    let longer = [2, 4, 8, 16, 32, 64].into_iter().map_while(|times| {
        let work = Work { batch: load.work.batch.checked_mul(times)?, ..load.work.clone() };
        let cost = work.cost().ok()??;
        let bound = shortest.and_then(|log| Some(found.model.reference(&work, cost, setup.gpu)? * log.exp()));
        let time = move || {
            let view = found.model.view(work, cost, setup.gpu, setup.library, setup.calibration)?;
            Some(found.expects(view.seen()).time())
        };
        Some((bound, time))
    });
    least(own, longer)
}

/// The least of a time and of those of ever more samples, each with what it takes whatever its polynomial says: where that is no
/// less already, no later one is less.
fn least(own: Seconds, longer: impl Iterator<Item = (Option<Seconds>, impl FnOnce() -> Option<Seconds>)>) -> Seconds {
    let mut least = own;
    for (bound, time) in longer {
        if bound.is_some_and(|bound| bound >= least) {
            break;
        }
        least = time().map_or(least, |time| least.min(time));
    }
    least
}

/// What the host takes to launch a layer's operation.
pub(super) fn host(
    setup: &Setup<'_>,
    case: &LayerCase,
    key: ModelKey,
    phase: Phase,
    mode: Mode,
    precision: Precision,
) -> Seconds {
    let scaled = setup.framework.scales_loss_in(precision);
    setup.framework.host.as_ref().map_or(Seconds::ZERO, |h| h.launching(case, key, phase, mode, (precision, scaled)))
}

/// What a kernel of the library's takes where the framework has a slower one of its own.
fn through(setup: &Setup<'_>, kernel: &KernelOf<'_>, load: &Load<'_>, ours: Seconds) -> Seconds {
    let (factor, extra) = setup.framework.slower(kernel, load.work.batch);
    // Beside a linear layer in fp8 its inputs are converted, no bias is added.
    let second = if load.work.precision == Precision::Fp8 { Seconds::ZERO } else { load.roofline.second };
    let bias = match (second, setup.framework.slower(&KernelOf { kind: "bias", ..*kernel }, load.work.batch)) {
        (Seconds::ZERO, _) => Seconds::ZERO,
        (second, (factor, extra)) => {
            let results = (load.work.output.elements() * load.work.batch) as f64;
            let at_least = setup.framework.broadcast.filter(|_| load.work.phase == Phase::Forward);
            let at_least = at_least.map_or(Seconds::ZERO, |b| b.bias(results, load.work.precision, setup.gpu));
            (second * factor + extra).max(at_least) - second
        }
    };
    ours * factor + extra + bias
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_samples_are_looked_at_while_they_may_take_less() {
        let us = Seconds::from_us;
        // Bounds that hold, times by a polynomial that falls; the last is beyond what its bound lets through.
        let list = [(4.0, 11.0), (6.0, 7.0), (6.9, 6.95), (7.0, 7.5)];
        let all = list.iter().map(|(_, time)| *time).fold(10.0, f64::min);
        let mut asked = 0;
        let longer = list.into_iter().map(|(bound, time)| (Some(us(bound)), move || Some(us(time))));
        let found = least(us(10.0), longer.inspect(|_| asked += 1));
        assert_eq!((found, asked), (us(all), 4));
        let unbounded = list.into_iter().map(|(_, time)| (None, move || Some(us(time))));
        assert_eq!(least(us(10.0), unbounded), us(all));
        let never = || -> Option<Seconds> { unreachable!("its bound is above") };
        assert_eq!(least(us(10.0), std::iter::once((Some(us(10.0)), never))), us(10.0));
    }
}
