//! The clock, power limit and batch with the least energy, time or product of them.

use super::settings::{caps, clocks};
use crate::cluster::{Cluster, largest_tried};
use crate::failure::Failure;
use crate::request::{Request, only};
use crate::session::Session;
use crate::source::Source;
use anyhow::anyhow;
use joulecast_ask::curve::{Run, relative};
use joulecast_ask::metric::{Metric, Reference};
use joulecast_ask::optimum::{self, Cost};
use joulecast_model::base::units::{Hertz, Seconds, Watts};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::power::waiting;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, Step};
use joulecast_reports::figure::curves::{Axis, Curves, Panel};
use joulecast_reports::optimum::{Candidate, Found, LayerPlan};

/// What is tried; a limit or clock that the request sets stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Power limits.
    pub cap: bool,
    /// Core clocks.
    pub clock: bool,
    /// Batches: powers of two that fit in memory.
    pub batch: bool,
}

/// What is to become small, and what may be changed for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What to make small.
    pub metric: Metric,
    /// What is tried.
    pub over: Over,
    /// What is slower than the default by more than so many percent is left out.
    pub max_slowdown: Option<f64>,
    /// What handles fewer samples per second is left out.
    pub min_throughput: Option<f64>,
    /// Also a clock for every layer, where a change of it takes so long.
    pub per_layer: Option<Seconds>,
}

impl Default for Choice {
    /// The least energy over limits and clocks.
    fn default() -> Self {
        let over = Over { cap: true, clock: true, batch: false };
        Self { metric: Metric::Energy, over, max_slowdown: None, min_throughput: None, per_layer: None }
    }
}

impl Choice {
    /// What is varied in a figure.
    ///
    /// # Errors
    /// When what is set and what is tried leave nothing to draw over.
    pub fn axis(&self, base: OperatingPoint) -> Result<Axis, Failure> {
        let axis = if self.over.cap && base.power_cap.is_none() { Axis::Cap } else { Axis::Clock };
        if axis == Axis::Clock && base.core_clock.is_some() {
            return Err(Failure::usage(
                "nothing is left to draw over: leave out --clock or --power-cap, or set --over",
            ));
        }
        if !self.over.cap && !self.over.clock {
            return Err(Failure::usage("a figure is over limits or clocks: add cap or clock to --over"));
        }
        Ok(axis)
    }

    fn weight(&self) -> f64 {
        if let Metric::Eds(k) = self.metric { k } else { WEIGHT }
    }
}

/// Weight of the energy-delay sum in figures where another metric is asked for.
const WEIGHT: f64 = 1.5;
/// Largest batch that is tried.
const LARGEST_BATCH: u64 = 1024;
/// At most so many clocks are tried.
const CLOCKS: usize = 60;

/// Powers of two, and the batch itself.
fn batches(asked: u64) -> Vec<u64> {
    let mut list: Vec<u64> = (0..).map(|i| 1 << i).take_while(|b| *b <= LARGEST_BATCH).collect();
    list.push(asked);
    list.sort_unstable();
    list.dedup();
    list
}

fn per_sample(p: &NetworkPrediction) -> Cost {
    Cost { time: p.time.value / p.batch as f64, energy: p.energy_per_sample() }
}

/// The best of the candidates if the core voltage rises as little (0) or as much (1) as is likely; `None` where that makes no
/// difference to any.
fn by_voltage(
    all: &[Candidate],
    end: usize,
    default: &Candidate,
    metric: Metric,
    limit: Option<Seconds>,
) -> Option<usize> {
    let cost = |c: &Candidate| {
        let batch = c.prediction.batch as f64;
        match c.prediction.by_voltage.get(end) {
            Some((time, energy)) => Cost { time: *time / batch, energy: *energy / batch },
            None => per_sample(&c.prediction),
        }
    };
    if all.iter().all(|c| c.prediction.by_voltage.is_empty()) {
        return None;
    }
    let reference = cost(default);
    let reference = Reference { time: reference.time, energy: reference.energy };
    let costs: Vec<Cost> = all.iter().map(cost).collect();
    optimum::choose(&costs, metric, &reference, limit).map(|found| found.best)
}

/// Candidates of one batch: the point asked for as it is, then with each limit and each clock that the board can keep to.
fn candidates(
    step: &Step<'_>,
    cluster: &Cluster,
    choice: &Choice,
    base: OperatingPoint,
) -> Result<Vec<Candidate>, Failure> {
    let gpu = cluster.first().gpu();
    let mut points = vec![base];
    if choice.over.cap && base.power_cap.is_none() {
        points.extend(caps(gpu).into_iter().map(|cap| OperatingPoint { power_cap: Some(cap), ..base }));
    }
    if choice.over.clock && base.core_clock.is_none() {
        points.extend(clocks(gpu, CLOCKS).into_iter().map(|f| OperatingPoint { core_clock: Some(f), ..base }));
    }
    let mut list = Vec::with_capacity(points.len());
    for point in points {
        let prediction = step.at(point)?;
        // The first is how it runs by default, whatever it draws.
        if list.is_empty() || prediction.power_cap.is_none_or(|cap| prediction.power.value <= cap) {
            list.push(Candidate { point, prediction: cluster.fed(prediction) });
        }
    }
    Ok(list)
}

/// A clock for every layer of a step.
fn layer_plan(
    step: &Step<'_>,
    gpu: &Gpu,
    (choice, latency): (&Choice, Seconds),
    base: OperatingPoint,
    limit: Option<Seconds>,
) -> Result<LayerPlan, Failure> {
    let mut grid = vec![gpu.core_clock.boost.value];
    grid.extend(clocks(gpu, CLOCKS));
    let at: Vec<NetworkPrediction> =
        grid.iter().map(|f| step.at(OperatingPoint { core_clock: Some(*f), ..base })).collect::<Result<_, _>>()?;
    let costs: Vec<Vec<Cost>> =
        at.iter().map(|p| p.layers.iter().map(|l| Cost { time: l.time.value, energy: l.energy }).collect()).collect();
    let reference = Reference {
        time: at[0].layers.iter().map(|l| l.time.value).sum(),
        energy: at[0].layers.iter().map(|l| l.energy).sum(),
    };
    let switch = Cost { time: latency, energy: waiting(gpu) * latency };
    let free = Cost { time: Seconds::ZERO, energy: waiting(gpu) * Seconds::ZERO };
    // What one clock for all costs, among the same clocks.
    let never = Cost { time: Seconds::new(1e9), energy: waiting(gpu) * Seconds::new(1e9) };
    let plan = |switch| {
        let none = || Failure::Failed(anyhow!("no plan of clocks is as fast as asked for"));
        optimum::per_layer(&costs, switch, choice.metric, &reference, limit).ok_or_else(none)
    };
    let (single, planned, ideal) = (plan(never)?, plan(switch)?, plan(free)?);
    let value = |plan: &optimum::Plan| choice.metric.of(plan.cost.time, plan.cost.energy, &reference);
    let names = at[0].layers.iter().zip(&planned.clocks);
    Ok(LayerPlan {
        layers: names.map(|(l, &c)| (l.name.to_string(), l.phase.to_string(), grid[c].to_mhz())).collect(),
        gain: value(&planned) / value(&single) - 1.0,
        gain_without_latency: value(&ideal) / value(&single) - 1.0,
        plan: planned,
        latency_ms: latency.to_ms(),
    })
}

/// Compares all that may be chosen for a network.
fn find(cluster: &Cluster, source: &Source, request: &Request, choice: &Choice) -> Result<Found, Failure> {
    let (predictor, base) = (cluster.first(), request.point);
    let gpu = predictor.gpu();
    let asked = *only(&request.batches, "batch")?;
    let batch = cluster.part(source, asked)?;
    let mut networks: Vec<ShapedNetwork> = vec![cluster.shape(source, batch)?];
    if choice.over.batch {
        for other in batches(batch).into_iter().filter(|b| *b != batch) {
            // Where one is larger than anything counts or holds, so are those behind it.
            match cluster.shape(source, other) {
                Err(_) if other > batch => break,
                network => networks.push(network?),
            }
        }
    }
    let (mut all, mut default) = (Vec::new(), None);
    for network in &networks {
        let list = candidates(&predictor.step(network, cluster.mode)?, cluster, choice, base)?;
        default = default.or_else(|| list.first().cloned());
        all.extend(list);
    }
    let default = default.ok_or_else(|| Failure::Failed(anyhow!("nothing to choose from")))?;
    let fits = all.iter().any(|c| c.prediction.fits_in_memory);
    if !fits && (choice.over.batch || request.require_fit) {
        let (net, gpu) = (&source.typed, &gpu.name);
        return Err(Failure::Failed(match choice.over.batch {
            true => anyhow!("{net} fits in the memory of {gpu} at none of the batches that were tried"),
            false => anyhow!("{net} at batch {batch} does not fit in the memory of {gpu}"),
        }));
    }
    // Where nothing fits, that is a warning; where something does, only that may be chosen.
    all.retain(|c| c.prediction.fits_in_memory || !fits);
    let costs: Vec<Cost> = all.iter().map(|c| per_sample(&c.prediction)).collect();
    let reference = per_sample(&default.prediction);
    let reference = Reference { time: reference.time, energy: reference.energy };
    let slowest = choice.max_slowdown.map(|percent| reference.time * (1.0 + percent / 100.0));
    let least = choice.min_throughput.map(|rate| Seconds::new(1.0 / rate));
    let limit = match (slowest, least) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let by_voltage = [0, 1].map(|end| by_voltage(&all, end, &default, choice.metric, limit));
    let found = optimum::choose(&costs, choice.metric, &reference, limit)
        .ok_or_else(|| Failure::Failed(anyhow!("no clock, limit or batch is as fast as asked for")))?;
    let plan = match choice.per_layer {
        Some(latency) => {
            let step = predictor.step(&networks[0], cluster.mode)?;
            Some(layer_plan(&step, gpu, (choice, latency), base, limit.map(|l| l * batch as f64))?)
        }
        None => None,
    };
    let title = format!(
        "{} on {}, {} {}, {} profile",
        default.prediction.network,
        gpu.title,
        default.prediction.precision,
        default.prediction.mode,
        predictor.framework().name
    );
    let of_best = all[found.best].prediction.warnings.iter().cloned();
    let warnings = cluster.notes().cloned().chain(of_best).chain(largest_tried(asked, batch)).collect();
    let optimum::Optimum { best, tied, front } = found;
    let by_voltage = by_voltage.into_iter().flatten().collect();
    Ok(Found { title, metric: choice.metric, default, candidates: all, best, by_voltage, tied, front, plan, warnings })
}

/// The candidates of the batch asked for over the limit or the clock, relative to the default.
fn panel((axis, weight): (Axis, f64), found: &Found, gpu: &Gpu) -> Panel {
    let default = &found.default;
    let run =
        |setting: f64, c: &Candidate| Run { setting, time: c.prediction.time.value, energy: c.prediction.energy.value };
    let mut runs: Vec<Run> = Vec::new();
    for c in found.candidates.iter().filter(|c| c.prediction.batch == default.prediction.batch) {
        let setting = match axis {
            Axis::Cap if c.point.core_clock == default.point.core_clock => c.point.power_cap.map(Watts::get),
            Axis::Clock if c.point.power_cap == default.point.power_cap => c.point.core_clock.map(Hertz::to_mhz),
            _ => None,
        };
        runs.extend(setting.map(|s| run(s, c)));
    }
    runs.push(match axis {
        Axis::Cap => run(gpu.power.limit.value.get(), default),
        Axis::Clock => run(gpu.core_clock.boost.value.to_mhz(), default),
    });
    let reference = Reference { time: default.prediction.time.value, energy: default.prediction.energy.value };
    Panel {
        title: format!("{}, batch {}", default.prediction.network, default.prediction.batch),
        predicted: relative(&runs, &reference, weight),
        measured: Vec::new(),
    }
}

/// The answers for several networks as a sheet of curves over limits or clocks; `made_by` says what made it.
///
/// # Errors
/// When what is asked is wrong, or leaves nothing to draw over.
pub fn figure(
    session: &Session,
    request: &Request,
    choice: &Choice,
    found: &[Found],
    made_by: String,
) -> Result<Curves, Failure> {
    let request = &session.settled(request)?;
    let (cluster, axis) = (cluster(session, request)?, choice.axis(request.point)?);
    let gpu = cluster.first().gpu();
    let what = match axis {
        Axis::Cap => "power limits",
        Axis::Clock => "core clocks",
    };
    let default = found.first().map(|f| &f.default.prediction).ok_or_else(|| Failure::usage("nothing to draw"))?;
    let (precision, mode, framework) = (cluster.precision, cluster.mode, &request.runner.framework);
    Ok(Curves {
        title: format!("{what} of {}, {precision} {mode}, {framework} profile", gpu.title),
        axis,
        weight: choice.weight(),
        panels: found.iter().map(|f| panel((axis, choice.weight()), f, gpu)).collect(),
        notes: vec![
            format!("power: {}, times: {}; predicted before anything ran", default.power_tier, default.time_tier),
            made_by,
        ],
    })
}

fn cluster(session: &Session, request: &Request) -> Result<Cluster, Failure> {
    let team = only(&request.teams, "GPU")?;
    if !matches!(team.kinds[..], [(1, _)]) {
        return Err(Failure::usage("optimize is for one GPU: leave --gpus out"));
    }
    session.cluster(request, team, *only(&request.precisions, "precision")?, *only(&request.modes, "mode")?)
}

/// For each network the best of all clocks, limits and batches that may be chosen, on one GPU.
///
/// # Errors
/// When what is asked is wrong, or nothing can be predicted.
pub fn optimize(session: &Session, request: &Request, choice: &Choice) -> Result<Vec<Found>, Failure> {
    if choice.per_layer.is_some() && request.input_rate.is_some() {
        return Err(Failure::usage("--per-layer is about layers, not about waiting for input: leave out --input-rate"));
    }
    if request.epochs.is_some() {
        return Err(Failure::usage("optimize is for one step: leave out --epochs and --dataset-size"));
    }
    let request = &session.settled(request)?;
    let networks = session.networks(&request.networks, &request.reading)?;
    let cluster = cluster(session, request)?;
    networks.iter().map(|source| find(&cluster, source, request, choice)).collect()
}
