//! T = sum of T_i + gaps, E = sum of P_i T_i, P = E / T.

use super::beside::{conversion, fused_update, gradient_sums};
use super::derived::of_derived;
use super::drained::cuts_of;
use super::intervals::{Carried, Doubts, Intervals, Outcome, Shown};
use super::kernel::{Board, Kernel, Models, Ran, host, predict_kernel};
use super::operating_point::{Limits, OperatingPoint};
use super::remarks::Settled;
use super::step::Step;
use super::summary::ByVoltage;
use super::totals::Totals;
use super::{HostOf, LayerPrediction, NetworkPrediction, PhaseTotal, PredictError, Setup, Warning, Width, Widths};
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::units::{Joules, Seconds, Watts};
use crate::device::clock::VoltageCurve;
use crate::kernel::key::ModelKey;
use crate::law::calibration::Tier;
use crate::law::power::{ClockLaw, PowerModel, waiting_at};
use crate::law::time::MEAN_OF_HALF_WIDTH;
use crate::net::cost::LayerCost;
use crate::net::layer::Layer;
use crate::net::network::ShapedNetwork;
use crate::step::autocast::Converted;
use crate::step::framework::{Group, Launch, Stages};
use crate::step::memory::footprint;
use crate::step::parallel::DevicePrediction;
use std::cell::OnceCell;

/// 90 % of what the laws of clock and power err per unit of ln(clock / clock of the times): kernels over core clocks with three
/// of them given are 3.5 % off in the mean over clocks down to half of the highest (`calibrate published sweeps`).
const CARRIED: f64 = 0.2;

/// The kind of kernels that convert values between precisions; they are no layer's.
const CONVERSION: &str = "conversion";

/// The law of power of another device is this much less certain, as a factor.
const OTHER_DEVICE: f64 = 1.3;

/// Share of its limit that a board draws while that holds it back. Beside a draw it was found with that, of a lent law; a law of
/// the board's own knows better.
pub(crate) fn held_of(setup: &Setup<'_>) -> Result<f64, PredictError> {
    let (law, own) = law_of(setup)?;
    let power = &setup.gpu.power;
    let held = power.held.as_ref().filter(|_| own.is_none() || power.draw.is_none());
    Ok(held.map_or(law.headroom, |held| held.value))
}

/// The law of power, and what it rests on where it is the chip's own: another board of a measured chip keeps the law, not the
/// claim that its power was measured.
pub(super) fn law_of<'a>(setup: &Setup<'a>) -> Result<(&'a PowerModel, Option<Tier>), PredictError> {
    let own = setup.calibration.and_then(|c| c.power.as_ref().map(|p| (p, Some(c.tier_on(&setup.gpu.name)))));
    own.or(setup.all_chips.power.as_ref().map(|p| (p, None))).ok_or(PredictError::NoPower)
}

impl<'a> Step<'a> {
    /// Predicts a step's kernels.
    ///
    /// # Errors
    /// When the device lacks the precision, or nothing runs.
    pub(crate) fn new(network: &'a ShapedNetwork, setup: &Setup<'a>) -> Result<Self, PredictError> {
        let (law, _) = law_of(setup)?;
        Self::of(network, setup, &mut Models::new(law))
    }

    /// The same by models that some were asked for before.
    pub(super) fn of(
        network: &'a ShapedNetwork,
        setup: &Setup<'a>,
        models: &mut Models<'a>,
    ) -> Result<Self, PredictError> {
        let precision = network.precision();
        let has_cache = || network.layers().iter().any(|layer| layer.case.layer.has_cache());
        let beside = match precision {
            Precision::Fp8 => Precision::Bf16,
            Precision::Int8 if has_cache() => Precision::Bf16,
            other => other,
        };
        let gpu = || setup.gpu.name.clone();
        if setup.gpu.computes_in(precision).is_none() {
            let available = setup.gpu.peaks.keys().map(|p| p.name()).collect::<Vec<_>>().join(", ");
            return Err(PredictError::Precision { gpu: gpu(), precision, available });
        }
        if setup.gpu.computes_in(beside).is_none() {
            return Err(PredictError::Beside { gpu: gpu(), precision, beside });
        }
        let mut kernels: Vec<Kernel<'a>> = Vec::with_capacity(network.layers().len());
        let mixed = setup.framework.mixed(network, setup.mode);
        let mut converting: Vec<(Converted, Kernel<'a>)> = Vec::new();
        let scaled = setup.framework.scales_loss_in(precision);
        // In mixed precision layers that are alike otherwise run in two.
        let ways = if mixed.is_some() { 2 } else { 1 };
        for &phase in setup.phases {
            let mut first = vec![None; network.layers().len() * ways];
            let mut hosts = Seconds::ZERO;
            let mut views = Seconds::ZERO;
            let mut updates = 0;
            let fused = setup.framework.fused_update.as_ref().filter(|_| phase == Phase::Update);
            for (i, (layer, &alike)) in network.layers().iter().zip(network.alike()).enumerate() {
                let casts = matches!(layer.case.layer, Layer::Cast(_));
                for converted in mixed.iter().flat_map(|m| m.converted(network, i, phase)) {
                    let known = converting.iter().find(|(c, _)| *c == converted).map(|(_, kernel)| *kernel);
                    let kernel = match known {
                        Some(kernel) => Kernel { name: &layer.name, ..kernel },
                        None => {
                            let Some(beside) = conversion(&layer.name, converted, network) else { continue };
                            let at = (beside.name, &beside.layer);
                            let runs = (network, beside.precision);
                            let kernel = predict_kernel(runs, at, Phase::Forward, beside.cost, setup, models)?;
                            converting.push((converted, kernel));
                            kernel
                        }
                    };
                    // What autocast takes is in the times of the operations that it converts for.
                    let host = match casts {
                        true => {
                            host(setup, &layer.case, ModelKey::Kind("cast"), phase, setup.mode, network.precision())
                        }
                        false => Seconds::ZERO,
                    };
                    kernels.push(Kernel { phase, kind: CONVERSION, host, repeats: None, ..kernel });
                }
                let runs = mixed.as_ref().map_or(precision, |m| m.works(i));
                let first = &mut first[alike * ways + usize::from(runs != precision)];
                let same: Option<usize> = *first;
                // Whether a gradient is wanted depends on what a layer reads, nothing else does.
                let known = same.filter(|_| phase != Phase::BackwardData).map(|same| kernels[same].cost);
                let Some(cost) = known.or_else(|| network.cost_in(runs, layer, phase, setup.mode)) else {
                    let host = setup.framework.host.as_ref().filter(|_| phase == Phase::Forward);
                    if let Some(host) = host.filter(|_| layer.case.layer.is_view(setup.mode) && !casts) {
                        views += host.viewing(&layer.case.layer, setup.mode, network.precision());
                    }
                    continue;
                };
                if fused.is_some() {
                    hosts += host(setup, &layer.case, ModelKey::Update, phase, setup.mode, network.precision());
                    updates += 1;
                    continue;
                }
                if let Some(same) = same {
                    kernels.push(Kernel { name: &layer.name, repeats: Some(same), ..kernels[same] });
                    continue;
                }
                let at = (&layer.name, layer);
                let mut kernel = predict_kernel((network, runs), at, phase, cost, setup, models)?;
                kernel.lengthen(setup.framework.counter(&layer.case.layer, phase, setup.mode));
                let (ways, read) = ((phase, setup.mode), (network.batch(), &cost));
                let again = setup.framework.rows_apart.and_then(|r| r.again(layer, ways, read, setup.gpu));
                kernel.read_again(again);
                kernel.repeats = Some(*first.insert(kernels.len()));
                kernels.push(kernel);
            }
            kernels.extend(of_derived(network, phase, setup, models)?);
            // Only sums over phases count, so that any kernel of the phase may have them.
            if let Some(last) = kernels.last_mut() {
                last.host += views;
            }
            if let Some((fused, all)) = fused.and_then(|f| Some((f, fused_update(network, f, scaled)?))) {
                let (runs, at) = ((network, all.precision), (all.name, &all.layer));
                let mut kernel = predict_kernel(runs, at, phase, all.cost, setup, models)?;
                kernel.lengthen(fused.per_layer * f64::from(updates));
                kernels.push(Kernel { host: hosts, ..kernel });
            }
            if phase == Phase::BackwardData {
                for sum in gradient_sums(network, mixed.as_ref()) {
                    let forward = Phase::Forward;
                    let (runs, at) = ((network, sum.precision), (sum.name, &sum.layer));
                    let kernel = predict_kernel(runs, at, forward, sum.cost, setup, models)?;
                    let host = host(
                        setup,
                        &sum.layer.case,
                        ModelKey::Kind("add"),
                        forward,
                        Mode::Inference,
                        network.precision(),
                    );
                    kernels.push(Kernel { phase, host, ..kernel });
                }
            }
        }
        if kernels.is_empty() {
            return Err(PredictError::Empty(network.name().to_string()));
        }
        Self::from_kernels(network, setup, kernels)
    }

    /// Of kernels that are predicted each alone.
    pub(super) fn from_kernels(
        network: &'a ShapedNetwork,
        setup: &Setup<'a>,
        kernels: Vec<Kernel<'a>>,
    ) -> Result<Self, PredictError> {
        let gpu = setup.gpu;
        let (law, own) = law_of(setup)?;
        let draw = gpu.power.draw.as_ref().map(|d| d.value);
        let mut step = Self {
            network,
            setup: *setup,
            kernels,
            law,
            clock_law: ClockLaw::Voltage(VoltageCurve::of(gpu)),
            power_tier: own.unwrap_or(Tier::Transferred),
            held: held_of(setup)?,
            burst: None,
            gap: Seconds::ZERO,
        };
        if own.is_some() {
            step.burst = law.burst;
            match (law.exponent, law.burst) {
                (Some(exponent), _) => step.clock_law = ClockLaw::Exponent(exponent),
                (None, Some(_)) => step.refer(),
                (None, None) => {}
            }
        } else {
            step.scale_power(draw.unwrap_or(1.0));
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
        self.once_at(point, 1.0, &OnceCell::new())
    }

    /// [`Self::at`] at several points.
    ///
    /// # Errors
    /// As there.
    pub fn at_each(&self, points: &[OperatingPoint]) -> Result<Vec<NetworkPrediction>, PredictError> {
        self.at_each_within(points, &[1.0])
    }

    /// [`Self::at_each`] for each of several shares of the points' power limits, whatever limits can be set.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn at_each_within(
        &self,
        points: &[OperatingPoint],
        shares: &[f64],
    ) -> Result<Vec<NetworkPrediction>, PredictError> {
        let by_voltage = OnceCell::new();
        let all = shares.iter().flat_map(|&share| points.iter().map(move |point| (*point, share)));
        all.map(|(point, share)| self.once_at(point, share, &by_voltage)).collect()
    }

    fn once_at(
        &self,
        point: OperatingPoint,
        share: f64,
        by_voltage: &OnceCell<ByVoltage<'a>>,
    ) -> Result<NetworkPrediction, PredictError> {
        let limits = point.on(self.setup.gpu)?;
        let limits = Limits { cap: limits.cap * share, ..limits };
        let clocks = self.clocks_under(&limits);
        let likely = match (point == OperatingPoint::default(), by_voltage.get()) {
            (true, _) => Vec::new(),
            (false, Some(known)) => known.at(&limits),
            (false, None) => {
                let new = self.by_voltage()?;
                by_voltage.get_or_init(|| new).at(&limits)
            }
        };
        Ok(self.predict(point, &limits, &clocks, &likely))
    }

    /// Half-widths, what is expected to err, and time, power and energy of a step with their intervals.
    pub(super) fn intervals(
        &self,
        (totals, least): (&Totals, Width),
        point: OperatingPoint,
        cap: Watts,
        likely: &[Outcome],
    ) -> (Widths, Doubts, Intervals) {
        let (setup, law) = (&self.setup, self.law);
        let spread = if self.power_tier >= Tier::Sibling { OTHER_DEVICE } else { 1.0 };
        let residuals = (law.residuals.0 - spread.ln(), law.residuals.1 + spread.ln());
        let launch_bound = totals.for_host > Seconds::ZERO;
        let on_board = setup.calibration.is_some_and(|c| c.is_of(&setup.gpu.name));
        let spread = setup.calibration.and_then(|c| c.network_spread(&setup.framework.name, setup.mode, launch_bound));
        let shown = spread.map(|s| Shown { factors: s.factors(), on_board });
        let widths = Widths::new(&totals.time, least, residuals);
        let asked = point != OperatingPoint::default();
        let carried = if asked { CARRIED * totals.moved / totals.time.value.get() } else { 0.0 };
        let step = (totals.time.value, totals.energy);
        let by_host = totals.by_host.as_ref().map_or(&[][..], |outcomes| outcomes);
        let (clocks, hosts) = (Carried::new(carried, step, likely), Carried::new(0.0, step, by_host));
        let power = match self.power_tier >= Tier::Sibling {
            true => MEAN_OF_HALF_WIDTH * (residuals.1 - residuals.0) / 2.0,
            false => law.mape / 100.0,
        };
        let doubts = Doubts { kernels: totals.error(), power, hosts, clocks };
        (widths, doubts, widths.intervals(totals.time.value, totals.energy, cap, shown, clocks.and(hosts)))
    }

    /// The host of an eager step, where the profile says what it does.
    pub(super) fn host(&self, totals: &Totals) -> Option<HostOf> {
        let setup = &self.setup;
        let host = setup.framework.host.as_ref().filter(|_| setup.launch == Launch::Eager)?;
        let (mode, precision) = (setup.mode, self.network.precision());
        Some(HostOf {
            factor: host.speed.as_ref().map_or(1.0, |s| s.factors[Group::of(mode, precision)]),
            spread: host.spread(mode, precision),
            source: host.speed.as_ref().map(|s| s.source.clone()),
            launches: host.launches(totals.host, mode, precision),
            decides: totals.host_decides.0,
            may_decide: totals.host_decides.1,
        })
    }

    fn predict(&self, point: OperatingPoint, limits: &Limits, clocks: &[f64], likely: &[Outcome]) -> NetworkPrediction {
        let (network, setup, power_tier) = (self.network, &self.setup, self.power_tier);
        let mut totals = Totals::default();
        let mut ran: Vec<Ran> = Vec::with_capacity(self.kernels.len());
        // How many run as the first of those that are alike does.
        let mut counts = vec![0.0; self.kernels.len()];
        let set = |core| Board::new(setup.gpu, self.clock_law, core);
        let mut board = set(1.0);
        for (i, (kernel, &core)) in self.kernels.iter().zip(clocks).enumerate() {
            if board.core != core {
                board = set(core);
            }
            let first = kernel.repeats.filter(|&first| first < i && clocks[first] == core);
            ran.push(first.map_or_else(|| kernel.at(&board, limits.memory), |first| ran[first]));
            counts[first.unwrap_or(i)] += 1.0;
            totals.cost = totals.cost + kernel.cost;
            totals.host = totals.host + Stages::of(kernel.phase, kernel.host);
        }
        let layers: Vec<LayerPrediction> =
            self.kernels.iter().zip(&ran).map(|(kernel, ran)| kernel.prediction(ran)).collect();
        let mut clock = 0.0;
        for (i, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            let time = layers[i].time.value.get() * count;
            totals.add(count, &layers[i], &self.kernels[i]);
            totals.moved += ran[i].moved * time;
            clock += clocks[i] * time;
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
        let idle = waiting_at(setup.gpu, self.clock_law.level(clock));
        let cuts = cuts_of(self);
        totals.wait((layers.len(), &cuts), setup, network.precision(), idle);
        totals.idle(self.gap, idle);
        let least = self.least_width(self.kernels.iter().enumerate().map(|(i, kernel)| kernel.repeats.unwrap_or(i)));
        let (widths, doubts, (time, power, energy)) = self.intervals((&totals, least), point, limits.cap, likely);
        let launch_bound = totals.for_host > Seconds::ZERO;
        let memory = footprint(network, setup.mode, &setup.framework.memory, setup.choices());
        let fits_in_memory = memory.total() <= setup.gpu.memory.value;
        let cost: LayerCost = totals.cost;
        let mut warnings =
            self.warnings(&Settled { point, limits, clocks, mean: clock, layers: &layers, totals: &totals });
        if !fits_in_memory {
            let (gpu, has) = (setup.gpu.name.clone(), setup.gpu.memory.value);
            warnings.push(Warning::Memory { needed: memory.total(), gpu, has });
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
            calibration: setup.calibration.unwrap_or(setup.all_chips).id.clone(),
            by_voltage: likely.to_vec(),
            time_tier: totals.tier(),
            power_tier,
            clock,
            memory_clock: setup.gpu.memory_clock.as_ref().map(|c| c.value * limits.memory),
            power_cap: point.power_cap,
            waiting: totals.waiting / totals.time.value,
            launch_bound,
            host: self.host(&totals),
            doubts,
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
            layout: None,
            fed: None,
            layers,
            warnings,
        }
    }
}
