//! A kernel of a step: its model, its time, its power at any clock.

use super::bounds::Bounds;
use super::{BoundBy, Estimate, LayerPrediction, PredictError, Setup};
use crate::base::name::Name;
use crate::base::number::{LANES, Lanes};
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::base::units::{Bytes, Seconds, Watts};
use crate::device::clock::{Clocks, slowdown};
use crate::device::gpu::{Device, Gpu};
use crate::kernel::features::Variables;
use crate::kernel::key::{ConvClass, ModelKey};
use crate::kernel::load::{Amounts, Load, Roofline};
use crate::kernel::setting::{Algorithm, Layout};
use crate::kernel::work::Work;
use crate::law::calibration::{Narrowings, Tier};
use crate::law::fewer_bits::Fewer;
use crate::law::lookup::{Found, Stated, Substitute, by_algorithm_of, find, of_framework};
use crate::law::power::{AtLevel, ClockLaw, Drives, PowerModel, power};
use crate::law::time::MEAN_OF_HALF_WIDTH;
use crate::net::case::LayerCase;
use crate::net::cost::LayerCost;
use crate::net::layer::Layer;
use crate::net::network::{ShapedLayer, ShapedNetwork, Stored};
use crate::step::framework::KernelOf;

/// A kernel at the clock that its calibration is of.
#[derive(Clone, Copy)]
pub(super) struct Kernel<'a> {
    pub(super) name: &'a Name,
    pub(super) kind: &'static str,
    pub(super) phase: Phase,
    pub(super) cost: LayerCost,
    pub(super) time: Estimate<Seconds>,
    pub(super) bound: Seconds,
    pub(super) memory: Seconds,
    /// Its arithmetic at peak, and the shortest that a kernel of its kind takes.
    pub(super) arithmetic: Seconds,
    pub(super) floor: Seconds,
    /// What its time is expected to err in the mean, as a share of it.
    pub(super) error: f64,
    /// The name of the models for kernels like it.
    pub(super) class: ModelKey,
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
    /// Which kernel of those that the step asked for ([`Models::asked`]), where they are noted down.
    pub(super) asked: Option<usize>,
    /// What of its time the step added to that kernel's.
    pub(super) besides: Seconds,
}

impl Kernel<'_> {
    /// Launches of further ones take time besides.
    #[inline]
    pub(super) fn lengthen(&mut self, extra: Seconds) {
        let Estimate { value, p05, p95 } = self.time;
        self.time = Estimate { value: value + extra, p05: p05 + extra, p95: p95 + extra };
        self.besides += extra;
    }

    /// The same kernel as much less sure as its weights make it, whose time has the factor already.
    pub(super) fn in_fewer_bits(self, fewer: Option<Fewer>) -> Self {
        let Some(fewer) = fewer else { return self };
        let Estimate { value, p05, p95 } = self.time;
        let wider = |end: Seconds| ((end / value).ln().hypot(fewer.spread)).exp();
        let time = Estimate { value, p05: value / wider(p05), p95: value * wider(p95) };
        Self { time, error: self.error.hypot(fewer.error()), ..self }
    }

    /// Makes it one that reads so much again, which takes so long; as sure of it as of the rest.
    pub(super) fn read_again(&mut self, again: Option<(Bytes, Seconds)>) {
        let Some((bytes, extra)) = again else { return };
        let longer = (self.time.value + extra) / self.time.value;
        (self.cost.read, self.cost.weights) = (self.cost.read + bytes, self.cost.weights + bytes);
        (self.time, self.memory) = (self.time.times(longer), self.memory + extra);
        self.besides += extra;
    }

    /// It behind another kernel, as one: what drives its power is what drives the longer of both.
    fn after(self, other: Self) -> Self {
        let sum = |a: Estimate<Seconds>, b: Estimate<Seconds>| Estimate {
            value: a.value + b.value,
            p05: a.p05 + b.p05,
            p95: a.p95 + b.p95,
        };
        let drives = if other.time.value > self.time.value { other.drives } else { self.drives };
        Self {
            time: sum(self.time, other.time),
            bound: self.bound + other.bound,
            memory: self.memory + other.memory,
            arithmetic: self.arithmetic + other.arithmetic,
            floor: self.floor + other.floor,
            host: self.host + other.host,
            in_domain: self.in_domain && other.in_domain,
            in_range: self.in_range && other.in_range,
            drives,
            ..self
        }
    }

    /// So many of it, one after the other.
    fn repeated(self, times: f64) -> Self {
        let (bound, memory, host) = (self.bound * times, self.memory * times, self.host * times);
        let (arithmetic, floor) = (self.arithmetic * times, self.floor * times);
        Self { time: self.time.times(times), bound, memory, host, arithmetic, floor, ..self }
    }

    /// How far its clocks are from those that its time is of: the sum of the logarithms' distances.
    pub(super) fn moved(&self, core: f64, memory: f64) -> f64 {
        let far = |ratio: f64| if ratio == 1.0 { 0.0 } else { ratio.ln().abs() };
        far(self.clock(core) / self.reference) + far(memory)
    }

    /// The relative core clock at which it runs on a board that is set to `core`.
    pub(super) fn clock(&self, core: f64) -> f64 {
        core.min(self.fastest)
    }

    /// Power on a board at whose core clock it takes `slowdown` times as long.
    pub(super) fn power(&self, board: &Board<'_>, slowdown: f64) -> Watts {
        let clock = self.clock(board.core);
        match clock == board.core {
            true => board.at.power(self.drives, slowdown),
            false => power(board.gpu, self.drives, board.law.level(clock), slowdown),
        }
    }

    /// The longest of what it cannot do without, at clocks.
    fn bound_by(&self, clocks: Clocks) -> BoundBy {
        let arithmetic = self.arithmetic / self.clock(clocks.core);
        let traffic = self.memory / clocks.memory;
        match self.floor {
            floor if floor >= arithmetic.max(traffic) => BoundBy::Launch,
            _ if arithmetic >= traffic => BoundBy::Compute,
            _ => BoundBy::Memory,
        }
    }

    pub(super) fn slowdown(&self, clocks: Clocks) -> f64 {
        let from = Clocks { core: self.reference, memory: 1.0 };
        slowdown(self.memory, self.time.value, from, Clocks { core: self.clock(clocks.core), ..clocks })
    }

    /// On a board, at a relative memory clock.
    pub(super) fn at(&self, board: &Board<'_>, memory: f64) -> Ran {
        let clocks = Clocks { core: board.core, memory };
        let slowdown = self.slowdown(clocks);
        Ran {
            time: self.time.times(slowdown),
            power: self.power(board, slowdown),
            bound_by: self.bound_by(clocks),
            moved: self.moved(clocks.core, clocks.memory),
        }
    }

    /// It as it ran.
    #[inline]
    pub(super) fn prediction(&self, ran: &Ran) -> LayerPrediction {
        let Ran { time, power, bound_by, .. } = *ran;
        LayerPrediction {
            name: self.name.clone(),
            kind: self.kind,
            phase: self.phase,
            ops: self.cost.ops,
            read: self.cost.read,
            written: self.cost.written,
            time,
            power,
            energy: power * time.value,
            bound: self.bound,
            bound_by,
            class: self.class,
            tier: self.tier,
            algorithm: self.algorithm,
            engine: self.engine.map(str::to_string),
            in_domain: self.in_domain,
            jump: self.jump.map(str::to_string),
        }
    }
}

/// A board that is set to a relative core clock, with what is the same for all kernels that run at it.
pub(super) struct Board<'g> {
    gpu: &'g Gpu,
    law: ClockLaw,
    pub(super) core: f64,
    at: AtLevel,
}

impl<'g> Board<'g> {
    pub(super) fn new(gpu: &'g Gpu, law: ClockLaw, core: f64) -> Self {
        Self { gpu, law, core, at: AtLevel::new(gpu, law.level(core)) }
    }
}

/// A kernel at clocks: all of it that other clocks change.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    pub(super) time: Estimate<Seconds>,
    pub(super) power: Watts,
    pub(super) bound_by: BoundBy,
    /// [`Kernel::moved`].
    pub(super) moved: f64,
}

/// The law of power, and models by class, phase and precision: the same few are wanted again and again.
pub(super) struct Models<'m> {
    law: &'m PowerModel,
    found: Vec<(Sought, Option<Found<'m>>)>,
    /// Kernels that were asked for, where somebody wants to know.
    pub(super) asked: Option<Vec<Asked>>,
    /// What to answer, in that order, in place of predictions.
    pub(super) answers: Option<Answers<'m>>,
    /// Of those that are looked at over batches.
    pub(super) narrowings: Narrowings<'m>,
}

/// Kernels of a step that another one, which is only looked at for what it asks, has at another batch.
pub(super) struct Answers<'m> {
    /// What was asked for, and what came of it, as far as that is a kernel.
    pub(super) asked: Vec<Asked>,
    pub(super) kernels: Vec<Kernel<'m>>,
    /// What each was asked for with: its cost, and a batch, the step's but for what runs once whatever that is.
    pub(super) costs: Vec<(LayerCost, u64)>,
    /// Whether something else was asked for.
    pub(super) differ: bool,
}

impl<'m> Answers<'m> {
    pub(super) fn of(asked: Vec<Asked>, kernels: Vec<Kernel<'m>>) -> Self {
        Self { costs: Vec::with_capacity(asked.len()), asked, kernels, differ: false }
    }

    /// The place of what is asked for next, and what came of it.
    fn next(
        &mut self,
        runs: Precision,
        layer: &ShapedLayer,
        phase: Phase,
        cost: (LayerCost, u64),
    ) -> (usize, Option<&Kernel<'m>>) {
        let place = self.costs.len();
        self.costs.push(cost);
        let same = |asked: &Asked| {
            (asked.runs, asked.phase, asked.layer.output) == (runs, phase, layer.output)
                && asked.layer.case == layer.case
        };
        self.differ |= !self.asked.get(place).is_some_and(same);
        (place, self.kernels.get(place))
    }
}

/// A kernel that a step asks for.
pub(super) struct Asked {
    pub(super) runs: Precision,
    pub(super) layer: ShapedLayer,
    pub(super) phase: Phase,
}

/// The last: whether a framework's own kernels may run.
type Sought = (ModelKey, Phase, Precision, bool);

impl<'m> Models<'m> {
    pub(super) fn new(law: &'m PowerModel) -> Self {
        Self { law, found: Vec::new(), asked: None, answers: None, narrowings: Narrowings::default() }
    }

    /// The same, noting down what is asked for.
    pub(super) fn noting(law: &'m PowerModel) -> Self {
        Self { asked: Some(Vec::new()), ..Self::new(law) }
    }

    /// The same of a step that is only looked at for what it asks.
    pub(super) fn answering(law: &'m PowerModel, answers: Answers<'m>) -> Self {
        Self { answers: Some(answers), ..Self::new(law) }
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
    at: (&'a Name, &ShapedLayer),
    phase: Phase,
    cost: LayerCost,
    setup: &Setup<'m>,
    models: &mut Models<'m>,
) -> Result<Kernel<'a>, PredictError> {
    let (asked, known) = match (&mut models.asked, &mut models.answers) {
        (_, Some(answers)) => {
            let (place, known) = answers.next(runs, at.1, phase, (cost, network.batch()));
            (Some(place), known)
        }
        (Some(asked), None) => {
            asked.push(Asked { runs, layer: at.1.clone(), phase });
            (Some(asked.len() - 1), None)
        }
        (None, None) => (None, None),
    };
    let mut kernel = match known {
        Some(known) => Kernel { name: at.0, cost, ..*known },
        None => kernels_of((network, runs), at, phase, cost, setup, models)?,
    };
    (kernel.asked, kernel.besides) = (asked, Seconds::ZERO);
    Ok(kernel)
}

/// What the kernels of a layer compute in where the network, or it alone, runs in a precision.
pub(super) fn computed_in(runs: Precision, layer: &ShapedLayer, phase: Phase) -> Precision {
    match (phase, &layer.case.layer, runs) {
        // The optimizer works on fp32 master weights.
        (Phase::Update, _, _) => Precision::Fp32,
        // Fused kernels of attention take 32-bit operands as they are.
        (_, Layer::Attention(attention), Precision::Tf32) if attention.fused => Precision::Fp32,
        (_, Layer::LatentAttention(_), Precision::Tf32) => Precision::Fp32,
        (_, _, precision) => layer.case.runs_in(precision),
    }
}

/// A kernel, or several that run for it.
fn kernels_of<'a, 'm: 'a>(
    (network, runs): (&ShapedNetwork, Precision),
    (name, layer): (&'a Name, &ShapedLayer),
    phase: Phase,
    cost: LayerCost,
    setup: &Setup<'m>,
    models: &mut Models<'m>,
) -> Result<Kernel<'a>, PredictError> {
    let precision = computed_in(runs, layer, phase);
    let is_apart = setup.framework.groups_apart && phase != Phase::Update;
    if let Some((group, groups)) = is_apart.then(|| layer.group()).flatten()
        && let Some(part) = network.cost_in(runs, &group, phase, setup.mode)
    {
        let kernel = kernels_of((network, runs), (name, &group), phase, part, setup, models)?;
        return Ok(Kernel { cost, ..kernel.repeated(groups as f64) });
    }
    if let Some((products, attention)) = layer.context().filter(|_| phase == Phase::Forward)
        && let (Some(made), Some(rest)) =
            (network.cost_in(runs, &products, phase, setup.mode), network.cost_in(runs, &attention, phase, setup.mode))
    {
        let made = kernels_of((network, runs), (name, &products), phase, made, setup, models)?;
        let rest = kernels_of((network, runs), (name, &attention), phase, rest, setup, models)?;
        return Ok(Kernel { cost, ..rest.after(made) });
    }
    let in_steps = matches!(layer.case.layer, Layer::Recurrent(_)) && phase != Phase::Update;
    if in_steps && let Some(kernel) = in_steps_of_cells((network, runs), (name, layer), phase, cost, setup, models)? {
        return Ok(kernel);
    }
    let mut of = |precision| kernel_in(precision, network, (name, layer), phase, cost, setup, models);
    let mut kernel = of(precision)?;
    let work = Work { precision, ..Work::of(layer, phase, network.batch(), network.precision(), setup.mode) };
    if let Some(bias) = work.bias_beside() {
        kernel.lengthen(bias.bytes() / setup.gpu.bandwidth.value);
    }
    // What other chips reach in TF32 says little of one with another ratio of peaks: a library would take plain fp32.
    if precision == Precision::Tf32
        && matches!(kernel.substitute, Some(Substitute::Universal | Substitute::OneChip | Substitute::Efficiency))
    {
        let plain = of(Precision::Fp32)?;
        return Ok(if plain.time.value < kernel.time.value { plain } else { kernel });
    }
    Ok(kernel)
}

/// How much longer recurrent layers take than their products one after the other, as a logarithm, and the edges of the interval.
/// DeepBench's 362 on seven boards of 2014 to 2017, through the libraries of these years, take 1.3 times as long in the median
/// forward and backward, 0.9 times for the gradients of weights, which do not wait for each other; nine of ten 0.5 to 4.5 times
/// (`calibrate/tools/deepbench_recurrent.py`). An H200's of today take 0.9 to 1.7 times.
const IN_STEPS: Stated = Stated { log: 0.2, low: -0.9, high: 1.2 };

/// A recurrent layer of which nothing but products was measured on the chip, as these, step after step; else `None`.
fn in_steps_of_cells<'a, 'm: 'a>(
    (network, runs): (&ShapedNetwork, Precision),
    (name, layer): (&'a Name, &ShapedLayer),
    phase: Phase,
    cost: LayerCost,
    setup: &Setup<'m>,
    models: &mut Models<'m>,
) -> Result<Option<Kernel<'a>>, PredictError> {
    let precision = computed_in(runs, layer, phase);
    let plan = plan(precision, network, (name, layer), phase, setup, models)?;
    if plan.found.substitute != Some(Substitute::Product) {
        return Ok(None);
    }
    let mut whole: Option<Kernel<'a>> = None;
    for (part, times) in layer.products_of_cells(phase) {
        let Some(cost) = network.cost_in(runs, &part, phase, setup.mode) else { return Ok(None) };
        let kernel = kernels_of((network, runs), (name, &part), phase, cost, setup, models)?.repeated(times as f64);
        whole = Some(match whole {
            Some(before) => kernel.after(before),
            None => kernel,
        });
    }
    let Some(whole) = whole else { return Ok(None) };
    let waits = if phase == Phase::BackwardWeights { 0.0 } else { IN_STEPS.log };
    let value = whole.time.value * waits.exp();
    let edge = |edge: Seconds, stated: f64| {
        let own = (edge / whole.time.value).ln();
        value * (stated.signum() * own.hypot(stated)).exp()
    };
    let time = Estimate { value, p05: edge(whole.time.p05, IN_STEPS.low), p95: edge(whole.time.p95, IN_STEPS.high) };
    let error = MEAN_OF_HALF_WIDTH * (IN_STEPS.high - IN_STEPS.low) / 2.0;
    Ok(Some(Kernel {
        cost,
        kind: plan.kind,
        class: plan.class,
        host: plan.host,
        time,
        error: whole.error.hypot(error),
        tier: whole.tier.max(Tier::Transferred),
        substitute: Some(Substitute::Product),
        in_domain: false,
        ..whole
    }))
}

/// A kernel of a layer with everything that its batch does not change: its model, and what the framework adds.
pub(super) struct Plan<'w, 'm> {
    /// What runs, at the batch that it was made with.
    pub(super) work: Work<'w>,
    pub(super) found: Found<'m>,
    /// That of depthwise convolutions with one result of every channel, where the kernel's model is of another chip's several.
    one_result: Option<Found<'m>>,
    kind: &'static str,
    class: ModelKey,
    phase: Phase,
    layout: Layout,
    algorithm: Option<Algorithm>,
    host: Seconds,
}

/// The model that predicts a kernel of a layer in a precision, and in which way it runs.
pub(super) fn plan<'w, 'm>(
    precision: Precision,
    network: &ShapedNetwork,
    (name, layer): (&str, &'w ShapedLayer),
    phase: Phase,
    setup: &Setup<'m>,
    models: &mut Models<'m>,
) -> Result<Plan<'w, 'm>, PredictError> {
    let mut own = Work { precision, ..Work::of(layer, phase, network.batch(), network.precision(), setup.mode) };
    let computed = setup.gpu.computes_in(precision).unwrap_or(precision);
    // Halves that are read into fp32 arithmetic run through fp32's kernels, in their order of dimensions.
    if computed != precision {
        own.layout = Layout::usual(computed);
    }
    // In 16 bits a framework copies such maps into the usual order, in 32 bits the library convolves them as they are: a
    // framework's own kernels take the usual order alone.
    let convolves = matches!(layer.case.layer, Layer::Conv2d(_)) && !own.precision.channels_last();
    let usual = !(layer.strays && convolves && setup.framework.maps.is_some());
    if !usual {
        own.layout = Layout::Nhwc;
    }
    let (kind, layout, approximate) = (layer.case.layer.kind(), own.layout, own.is_approximated());
    let (apart, twin) = (own.apart(), own.twin());
    let is_twin = twin.is_some();
    let mut work = twin.unwrap_or(own);
    let no_model = || PredictError::NoModel { layer: name.to_string(), kind, phase, precision };
    let (family, key, run_phase, gpu) = (work.family(), work.key(), work.phase, setup.gpu);
    let by_algorithm = setup.framework.algorithm().filter(|a| !is_twin && a.supports(work.layer(), work.inputs()));
    let by_algorithm = by_algorithm
        .and_then(|a| Some((a, by_algorithm_of(setup.calibration, setup.all_chips, a, run_phase, computed)?)));
    let named = |key| {
        let own = || of_framework(setup.calibration, &setup.framework.name, key, family, run_phase, computed);
        usual.then(own).flatten()
    };
    let look_up = |key| find(setup.calibration, setup.all_chips, key, family, run_phase, computed);
    let apart = apart.and_then(|key| models.find((key, run_phase, computed, usual), || named(key)));
    let found = match by_algorithm.map(|(_, found)| found).or(apart) {
        Some(found) => found,
        None => {
            let found = || named(key).or_else(|| look_up(key));
            models.find((key, run_phase, computed, usual), found).ok_or_else(no_model)?
        }
    };
    let found = found.on_board(setup.calibration, &gpu.name);
    let found = if approximate && apart.is_none() { found.of_frames() } else { found };
    let found = if gpu.device == Device::Cpu { found.of_processor() } else { found };
    let found = if computed == precision { found } else { found.of_halves() };
    let found = if setup.of_other_vendor() { found.of_other_vendor() } else { found };
    let algorithm = by_algorithm.map(|(algorithm, _)| algorithm);
    work.algorithm = algorithm.unwrap_or(Algorithm::Heuristic);
    let host = host(setup, &layer.case, key, phase, setup.mode, network.precision());
    let kind = if phase == Phase::Update { ModelKey::Update.name() } else { kind };
    let one_result = (found.substitute == Some(Substitute::OneChip)).then(|| {
        let depthwise = ModelKey::Conv(ConvClass::Depthwise);
        models.find((depthwise, run_phase, computed, usual), || named(depthwise).or_else(|| look_up(depthwise)))
    });
    Ok(Plan { work, found, one_result: one_result.flatten(), kind, class: key, phase, layout, algorithm, host })
}

impl<'m> Plan<'_, 'm> {
    /// The same, of no layer.
    pub(super) fn into_owned(self) -> Plan<'static, 'm> {
        Plan { work: self.work.into_owned(), ..self }
    }

    /// Whether [`Self::time`] is what the library takes, whatever the batch: nothing of the framework's is of such a kernel, nor
    /// what is known of a version of the library.
    pub(super) fn is_the_librarys(&self, layer: &ShapedLayer, load: &Load<'_>, setup: &Setup<'m>) -> bool {
        let (framework, work) = (setup.framework, &self.work);
        let is_bound = match work.layer() {
            Layer::Linear(_) | Layer::BatchNorm(_) | Layer::Activation(_) | Layer::Pool2d(_) => false,
            Layer::Conv2d(_) => framework.sequences.is_some() && work.input().is_sequence(),
            _ => framework.bounds_kernels(),
        };
        let strays = layer.strays && framework.maps.is_some();
        let parted = layer.parted && framework.broadcast.is_some();
        let is_slower = !self.found.framework && framework.may_be_slower(&self.as_framework(layer), load);
        let is_ruled =
            framework.rules.iter().any(|rule| rule.concerns(layer, work.phase, setup.gpu, setup.library).is_some());
        !(is_bound || strays || parted || is_slower || is_ruled)
    }

    /// It as the framework tells kernels apart.
    fn as_framework<'l>(&self, layer: &'l ShapedLayer) -> KernelOf<'l> {
        let is_map = layer.case.inputs.first().is_some_and(Shape::is_map);
        let (layer, layout) = (&layer.case.layer, is_map.then_some(self.layout));
        KernelOf { kind: self.kind, layer, phase: self.work.phase, layout }
    }

    /// What a kernel takes on its board that takes the library so long, and the rule that says so where one does.
    pub(super) fn time(
        &self,
        layer: &ShapedLayer,
        load: &Load<'_>,
        library: Seconds,
        setup: &Setup<'m>,
    ) -> (Seconds, Option<&'m str>) {
        let (framework, gpu, run_phase) = (setup.framework, setup.gpu, self.work.phase);
        let own = || through(setup, &self.as_framework(layer), load, library);
        let value = if self.found.framework { library } else { own() };
        let value = value.max(framework.least(&load.work, layer.parted, gpu));
        let strays = framework.maps.filter(|_| layer.strays);
        let value = strays.map_or(value, |m| m.straying(value, layer.channels_first, &load.work, gpu));
        let reordering = framework.sequences.map_or(Seconds::ZERO, |s| s.reordering(&load.work, gpu));
        let value = value + reordering;
        let jump = framework.rules.iter().find_map(|rule| {
            let ruled = rule.applied(value, layer, run_phase, load.work.batch, gpu, setup.library)?;
            Some((rule.name.as_str(), ruled))
        });
        (jump.map_or(value, |(_, ruled)| ruled), jump.map(|(name, _)| name))
    }

    /// The kernel at no batch.
    fn template<'a>(&self, name: &'a Name, setup: &Setup<'m>) -> Kernel<'a>
    where
        'm: 'a,
    {
        let found = &self.found;
        Kernel {
            name,
            kind: self.kind,
            phase: self.phase,
            cost: LayerCost::default(),
            time: Estimate::default(),
            bound: Seconds::ZERO,
            memory: Seconds::ZERO,
            arithmetic: Seconds::ZERO,
            floor: Seconds::ZERO,
            error: 0.0,
            class: self.class,
            drives: Drives::of([0.0; 3]),
            tier: found.tier,
            algorithm: self.algorithm,
            engine: None,
            in_domain: false,
            in_range: false,
            substitute: found.substitute,
            jump: None,
            host: self.host,
            reference: 1.0,
            fastest: f64::INFINITY,
            ages: setup.library.and_then(|_| found.model.library_ages()),
            repeats: None,
            asked: None,
            besides: Seconds::ZERO,
        }
    }

    /// What its time is expected to err outside of what was fitted, and within.
    pub(super) fn errors(&self, setup: &Setup<'m>) -> [f64; 2] {
        let siblings = setup.all_chips.siblings(self.found.tier);
        [false, true].map(|in_domain| self.found.error(in_domain, siblings))
    }
}

/// All of a kernel that its batch changes.
pub(super) struct OfBatch<'m> {
    pub(super) cost: LayerCost,
    /// What it takes, and edges of its interval, as factors of that.
    pub(super) value: Seconds,
    pub(super) edges: (f64, f64),
    pub(super) on: OnBoard,
    /// What its time is expected to err.
    pub(super) error: f64,
    pub(super) drives: Drives,
    pub(super) engine: Option<&'m str>,
    /// Whether it lies within what was fitted.
    pub(super) within: bool,
    pub(super) jump: Option<&'m str>,
}

impl<'a> Kernel<'a> {
    /// Makes it that of a batch, as it is alone.
    #[inline(always)]
    pub(super) fn become_of<'m: 'a>(&mut self, plan: &Plan<'_, 'm>, of: &OfBatch<'m>) {
        let (on, (low, high)) = (&of.on, of.edges);
        self.cost = of.cost;
        self.time = Estimate { value: of.value, p05: of.value * low, p95: of.value * high };
        (self.bound, self.memory, self.arithmetic) = (on.bound, on.traffic, on.arithmetic);
        self.floor = plan.found.model.floor + on.stalls;
        (self.error, self.drives, self.engine) = (of.error, of.drives.times(on.activity), of.engine);
        (self.in_range, self.in_domain) = (of.within, of.within && self.substitute.is_none());
        self.jump = of.jump;
    }
}

/// What a board makes of a kernel beside its time.
#[derive(Clone, Copy)]
pub(super) struct OnBoard {
    bound: Seconds,
    traffic: Seconds,
    arithmetic: Seconds,
    stalls: Seconds,
    /// By which factor it draws more above waiting in a network's step.
    activity: f64,
}

impl OnBoard {
    pub(super) fn of(layer: &ShapedLayer, load: &Load<'_>, time: Seconds, setup: &Setup<'_>) -> Self {
        let roofline = &load.roofline;
        let activity = setup.framework.activity.of(load, time, setup.mode, setup.dense);
        Self {
            bound: load.bound,
            traffic: roofline.traffic(),
            arithmetic: roofline.arithmetic(),
            stalls: roofline.stalls + roofline.waiting,
            activity: Self::drawn(layer, load, setup) * activity,
        }
    }

    /// The same where so much is to be done in so many seconds in each of several batches.
    pub(super) fn of_each(
        layer: &ShapedLayer,
        load: &Load<'_>,
        (amounts, times): (&Amounts<Lanes>, Lanes),
        setup: &Setup<'_>,
    ) -> [Self; LANES] {
        let activity = setup.framework.activity.where_moved(load, (amounts.bytes, times), setup.mode, setup.dense);
        let activity = activity * Self::drawn(layer, load, setup);
        std::array::from_fn(|i| {
            let [compute, memory, second] =
                [amounts.compute, amounts.memory, amounts.second].map(|amount| Seconds::new(amount.0[i]));
            let roofline = Roofline { compute, memory, second, ..load.roofline };
            Self {
                bound: roofline.bound(),
                traffic: roofline.traffic(),
                arithmetic: roofline.arithmetic(),
                stalls: roofline.stalls + roofline.waiting,
                activity: activity.0[i],
            }
        })
    }

    /// By which factor it draws more where its maps lie in another order.
    fn drawn(layer: &ShapedLayer, load: &Load<'_>, setup: &Setup<'_>) -> f64 {
        let strays = setup.framework.maps.filter(|_| layer.strays);
        strays.map_or(1.0, |maps| maps.drawn(&load.work, setup.gpu))
    }
}

fn kernel_in<'a, 'm: 'a>(
    precision: Precision,
    network: &ShapedNetwork,
    (name, layer): (&'a Name, &ShapedLayer),
    phase: Phase,
    cost: LayerCost,
    setup: &Setup<'m>,
    models: &mut Models<'m>,
) -> Result<Kernel<'a>, PredictError> {
    let plan = plan(precision, network, (name, layer), phase, setup, models)?;
    let found = &plan.found;
    let no_model =
        || PredictError::NoModel { layer: name.to_string(), kind: layer.case.layer.kind(), phase, precision };
    let loads = found.model.loads(plan.work.clone(), cost, setup.gpu).ok_or_else(no_model)?;
    let foreseen = found.model.foreseen(&loads.board.work, setup.calibration);
    let mut variables = Variables::default();
    let expected = found.expects_of(&loads, foreseen.terms, setup.library, &mut variables);
    let mut timed = found.times(expected, setup.all_chips.siblings(found.tier));
    let bounds = Bounds { found, setup };
    // An update is of parameters, however many samples there were, and its cost is the framework's.
    if !timed.in_domain && phase != Phase::Update {
        timed.value = bounds.outside(timed.value, loads.clone(), &variables);
    }
    timed = bounds.of_more_keys(timed, &loads.board.work);
    timed = bounds.of_hardware(timed, &loads.board, network);
    if let Some(one) = &plan.one_result {
        timed = bounds.of_several_results(timed, &loads.board.work, one);
    }
    let engine = foreseen.engine.filter(|_| foreseen.terms.is_some());
    let load = &loads.board;
    let fewer = Fewer::of(layer, plan.work.phase, load.work.batch, &setup.gpu.chip);
    let mut taken = plan.time(layer, load, timed.value, setup);
    if let Some(factor) = fewer.and_then(|fewer| fewer.factor) {
        let whole = ShapedLayer { stored: Stored::default(), ..layer.clone() };
        let of_whole = network.cost_in(precision, &whole, phase, setup.mode).ok_or_else(no_model)?;
        let whole = kernel_in(precision, network, (name, &whole), phase, of_whole, setup, models)?;
        // Factors are of all bytes from memory.
        let traffic = |cost: &LayerCost| (cost.read + cost.written) / setup.gpu.bandwidth.value;
        let fewer = traffic(&cost).max(load.roofline.arithmetic());
        taken.0 = whole.time.value * (fewer / traffic(&whole.cost).max(whole.arithmetic) * factor);
    }
    let drives = Drives::of(models.law.parts(load, &load.amounts(), (found.model.floor, taken.0.get())));
    let edges = timed.edges.ok_or_else(no_model)?;
    let (value, jump) = taken;
    let error = found.error(timed.in_domain, setup.all_chips.siblings(found.tier));
    let (on, within) = (OnBoard::of(layer, load, value, setup), timed.in_domain);
    let mut kernel = plan.template(name, setup);
    kernel.become_of(&plan, &OfBatch { cost, value, edges, on, error, drives, engine, within, jump });
    Ok(kernel.in_fewer_bits(fewer))
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
    if setup.framework.slower.is_empty() && setup.framework.broadcast.is_none() {
        return ours;
    }
    let (factor, extra) = setup.framework.slower(kernel, load.work.batch);
    let bias = setup.framework.bias_beyond(load, setup.gpu);
    ours * factor + extra + bias
}

#[cfg(test)]
mod tests {
    use crate::base::precision::{Mode, Phase, Precision};
    use crate::catalog;
    use crate::net::network::Network;
    use crate::step::predict::Predictor;
    use std::collections::HashMap;

    /// Windows that are laid side by side and added up, a softmax over a middle dimension, and a table of distances.
    const RULED: &str = r#"
schema = "network/1"
name = "ruled"
title = "ruled"
inputs.x.shape = [256, 48, 48]
layers = [
  { name = "embed", kind = "conv2d", channels = 256, kernel = 1 },
  { name = "unfold", kind = "elementwise", ops = 0, gradient = "scales", output = [2304, 576], im2col = 9 },
  { name = "fold", kind = "elementwise", gradient = "scales", output = [256, 48, 48], col2im = 9 },
  { name = "view", kind = "reshape", shape = [4, 9216, 16] },
  { name = "softmax", kind = "softmax", middle = true },
  { name = "heads", kind = "reshape", shape = [147456, 4] },
  { name = "between", kind = "linear", features = 4, bias = false },
]
derived = [{ name = "table", kind = "embedding", inputs = [[38416]], vocabulary = 729, features = 8 }]
"#;

    /// Every token reads the weights of the states again, and waits for the one before; a token alone is two products.
    #[test]
    fn cells_without_rows_go_token_after_token() {
        let predictor =
            Predictor::shipped(catalog::gpu("v100").expect("shipped"), catalog::framework("cudnn").expect("shipped"));
        let step = |kind: &str, tokens: u64, batch: u64| {
            let text = format!(
                "schema = \"network/1\"\nname = \"n\"\ntitle = \"n\"\ninputs.x.shape = [{tokens}, 1024]\n\
                 layers = [{{ name = \"a\", kind = \"{kind}\", hidden = 1024 }}]"
            );
            let network = Network::from_toml(&text).expect("valid");
            let shaped = predictor.shape(&network, batch, Precision::Fp32, &[]).expect("fits");
            let step = predictor.step(&shaped, Mode::Inference).expect("runs");
            step.kernels[0].time
        };
        let read = 4.0 * 1024.0 * 1024.0 * 4.0 / 900e9;
        let (long, short) = (step("lstm", 100, 1), step("lstm", 10, 1));
        assert!(long.value.get() > 100.0 * read, "{} {read}", long.value.get());
        let ratio = long.value / short.value;
        assert!((7.0..=10.0).contains(&ratio), "{ratio}");
        assert!(step("lstm", 100, 8).value < long.value * 2.5, "weights are read once for all samples");
        assert!(step("gru", 100, 1).value < long.value && step("rnn", 100, 1).value < step("gru", 100, 1).value);
        assert!((long.p95 / long.value).ln() >= 1.2 && (long.p05 / long.value).ln() <= -0.9);
    }

    #[test]
    fn a_profile_s_rules_reach_the_kernels_of_a_step() {
        let network = Network::from_toml(RULED).expect("valid");
        let times = |profile, precision| -> HashMap<(String, Phase), f64> {
            let gpu = catalog::gpu("h100-sxm").expect("shipped");
            let predictor = Predictor::shipped(gpu, catalog::framework(profile).expect("shipped"));
            let shaped = predictor.shape(&network, 64, precision, &[]).expect("fits");
            let step = predictor.step(&shaped, Mode::Training).expect("runs");
            step.kernels.iter().map(|k| ((k.name.to_string(), k.phase), k.time.value.to_us())).collect()
        };
        let (pytorch, cudnn) = (times("pytorch", Precision::Fp32), times("cudnn", Precision::Fp32));
        let of = |name: &str, phase| pytorch[&(name.to_string(), phase)];
        let near = |found: f64, measured: f64| assert!((found / measured - 1.0).abs() < 0.15, "{found}, {measured}");
        near(of("unfold", Phase::Forward), 546.0);
        near(of("fold", Phase::Forward), 1635.0);
        near(of("unfold", Phase::BackwardData), of("fold", Phase::Forward));
        near(of("fold", Phase::BackwardData), of("unfold", Phase::Forward));
        near(of("table", Phase::Forward), 24.7);
        near(of("table", Phase::BackwardWeights), 72.8);
        assert!(of("softmax", Phase::Forward) > 1.5 * cudnn[&("softmax".to_string(), Phase::Forward)]);
        // 9.4 million rows of four values: 64.5 ps each in fp16.
        near(times("pytorch", Precision::Fp16)[&("between".to_string(), Phase::Forward)], 609.0);
    }
}
