//! `predict optimize`: the clock, power limit and batch with the least energy, time or product of them.

use crate::cli::{Format, OptimizeArgs, Over, PredictArgs};
use crate::commands::{Failure, Parts, emit, refused};
use crate::parallel::{Batch, kinds};
use anyhow::anyhow;
use joulecast_model::gpu::Gpu;
use joulecast_model::metric::Reference;
use joulecast_model::network::ShapedNetwork;
use joulecast_model::optimum::{self, Cost};
use joulecast_model::power::waiting;
use joulecast_model::predictor::{NetworkPrediction, OperatingPoint, Step, core_range};
use joulecast_model::units::{Hertz, Seconds, Watts};
use joulecast_reports::optimum::{Candidate, Found, LayerPlan, csv, json, text};

/// Power limits are tried so far apart.
const CAP_STEP: Watts = Watts::new(5.0);
/// The lowest limit tried where the device's file does not say, as a share of the default one.
const LEAST_CAP: f64 = 0.4;
/// At most so many clocks are tried, on the grid where that is known.
const CLOCKS: usize = 60;
/// And below this share of the boost clock none: energy rises there on every known GPU.
const LEAST_CLOCK: f64 = 0.25;
/// Largest batch that is tried.
const LARGEST_BATCH: u64 = 1024;

/// Limits to try, the default one not among them.
fn caps(gpu: &Gpu) -> Vec<Watts> {
    let limit = gpu.power.limit.value;
    let least = gpu.power.limit_minimum.as_ref().map_or(limit * LEAST_CAP, |p| p.value);
    let steps = ((limit - least) / CAP_STEP).ceil() as u64;
    (1..=steps).map(|i| (limit - CAP_STEP * i as f64).max(least)).collect()
}

/// Clocks to try, from high to low.
fn clocks(gpu: &Gpu, most: usize) -> Vec<Hertz> {
    let boost = gpu.core_clock.boost.value;
    let low = core_range(gpu).0.max(boost * LEAST_CLOCK);
    let range = boost - low;
    let step = match &gpu.core_clock.step {
        Some(step) => step.value * (range / step.value / most as f64).ceil().max(1.0),
        None => range / most as f64,
    };
    (1..=(range / step) as u64).map(|i| boost - step * i as f64).collect()
}

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

/// Candidates of one batch: the point asked for as it is, then with each limit and each clock.
fn candidates(
    step: &Step<'_>,
    gpu: &Gpu,
    args: &OptimizeArgs,
    base: OperatingPoint,
) -> Result<Vec<Candidate>, Failure> {
    let mut points = vec![base];
    if args.over.contains(&Over::Cap) && base.power_cap.is_none() {
        points.extend(caps(gpu).into_iter().map(|cap| OperatingPoint { power_cap: Some(cap), ..base }));
    }
    if args.over.contains(&Over::Clock) && base.core_clock.is_none() {
        points.extend(clocks(gpu, CLOCKS).into_iter().map(|f| OperatingPoint { core_clock: Some(f), ..base }));
    }
    points.into_iter().map(|point| Ok(Candidate { point, prediction: step.at(point).map_err(refused)? })).collect()
}

/// A clock for every layer of a step.
fn layer_plan(
    step: &Step<'_>,
    gpu: &Gpu,
    args: &OptimizeArgs,
    base: OperatingPoint,
    limit: Option<Seconds>,
) -> Result<LayerPlan, Failure> {
    let mut grid = vec![gpu.core_clock.boost.value];
    grid.extend(clocks(gpu, CLOCKS));
    let at: Vec<NetworkPrediction> = grid
        .iter()
        .map(|f| step.at(OperatingPoint { core_clock: Some(*f), ..base }).map_err(refused))
        .collect::<Result<_, _>>()?;
    let costs: Vec<Vec<Cost>> =
        at.iter().map(|p| p.layers.iter().map(|l| Cost { time: l.time.value, energy: l.energy }).collect()).collect();
    let reference = Reference {
        time: at[0].layers.iter().map(|l| l.time.value).sum(),
        energy: at[0].layers.iter().map(|l| l.energy).sum(),
    };
    let latency = Seconds::from_ms(args.switch_latency);
    let switch = Cost { time: latency, energy: waiting(gpu) * latency };
    let free = Cost { time: Seconds::ZERO, energy: waiting(gpu) * Seconds::ZERO };
    // What one clock for all costs, among the same clocks.
    let never = Cost { time: Seconds::new(1e9), energy: waiting(gpu) * Seconds::new(1e9) };
    let plan = |switch| {
        let none = || Failure::Failed(anyhow!("no plan of clocks is as fast as asked for"));
        optimum::per_layer(&costs, switch, args.metric, &reference, limit).ok_or_else(none)
    };
    let (single, planned, ideal) = (plan(never)?, plan(switch)?, plan(free)?);
    let value = |plan: &optimum::Plan| args.metric.of(plan.cost.time, plan.cost.energy, &reference);
    let names = at[0].layers.iter().zip(&planned.clocks);
    Ok(LayerPlan {
        layers: names.map(|(l, &c)| (l.name.clone(), l.phase.to_string(), grid[c].to_mhz())).collect(),
        gain: value(&planned) / value(&single) - 1.0,
        gain_without_latency: value(&ideal) / value(&single) - 1.0,
        plan: planned,
        latency_ms: args.switch_latency,
    })
}

/// `predict optimize`
pub fn optimize(args: &OptimizeArgs) -> Result<(), Failure> {
    let asked: &PredictArgs = &args.predict;
    let [(1, name)] = &kinds(asked)?[..] else {
        return Err(Failure::Usage(anyhow!("optimize is for one GPU: leave --gpus out")));
    };
    let parts = Parts::read(asked, name)?;
    let (gpu, base) = (&parts.gpu, asked.operating.point());
    let Some(batch) = asked.batch.unwrap_or(Batch::Samples(1)).samples() else {
        return Err(Failure::Usage(anyhow!(
            "--batch max is no batch to compare with: --over batch tries all that fit"
        )));
    };
    let mut networks: Vec<ShapedNetwork> = vec![parts.network(asked, batch)?];
    if args.over.contains(&Over::Batch) {
        for other in batches(batch).into_iter().filter(|b| *b != batch) {
            networks.push(parts.network(asked, other)?);
        }
    }
    let mut all = Vec::new();
    for network in &networks {
        let step = Step::new(network, &parts.setup(asked)).map_err(refused)?;
        let mut list = candidates(&step, gpu, args, base)?;
        // What the board cannot keep to is no choice; the first is how it runs by default.
        let mut first = true;
        list.retain(|c| {
            let p = &c.prediction;
            std::mem::take(&mut first) || p.power_cap.is_none_or(|cap| p.power.value <= cap)
        });
        if network.batch() == batch || list.first().is_some_and(|c| c.prediction.fits_in_memory) {
            all.extend(list);
        }
    }
    let default = all.first().cloned().ok_or_else(|| Failure::Failed(anyhow!("nothing to choose from")))?;
    let costs: Vec<Cost> = all.iter().map(|c| per_sample(&c.prediction)).collect();
    let reference = Reference { time: costs[0].time, energy: costs[0].energy };
    let slowest = args.max_slowdown.map(|percent| reference.time * (1.0 + percent / 100.0));
    let least = args.min_throughput.map(|rate| Seconds::new(1.0 / rate));
    let limit = match (slowest, least) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let found = optimum::choose(&costs, args.metric, &reference, limit)
        .ok_or_else(|| Failure::Failed(anyhow!("no clock, limit or batch is as fast as asked for")))?;
    let plan = if args.per_layer {
        let step = Step::new(&networks[0], &parts.setup(asked)).map_err(refused)?;
        Some(layer_plan(&step, gpu, args, base, limit.map(|l| l * batch as f64))?)
    } else {
        None
    };
    let title = format!(
        "{} on {}, {} {}, {} profile",
        default.prediction.network,
        gpu.title,
        default.prediction.precision,
        default.prediction.mode,
        parts.framework.name
    );
    let warnings = all[found.best].prediction.warnings.clone();
    let optimum::Optimum { best, tied, front } = found;
    let found = Found { title, metric: args.metric, default, candidates: all, best, tied, front, plan, warnings };
    let rendered = match asked.format {
        Format::Table => text(&found, false),
        Format::Markdown => text(&found, true),
        Format::Json => json(&found).map_err(|e| Failure::Failed(e.into()))?,
        Format::Csv => csv(&found).map_err(|e| Failure::Failed(e.into()))?,
    };
    emit(&rendered, asked.output.as_deref()).map_err(Failure::Failed)
}
