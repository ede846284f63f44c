//! `predict optimize`: the clock, power limit and batch with the least energy, time or product of them.

use crate::cli::{PredictArgs, parse_latency, parse_percent, parse_positive};
use crate::commands::{Failure, Parts, command_line, refused};
use crate::networks::{network_of, networks};
use crate::parallel::{Batch, kinds};
use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use joulecast_model::ask::curve::{Run, relative};
use joulecast_model::ask::metric::{Metric, Reference};
use joulecast_model::ask::optimum::{self, Cost};
use joulecast_model::base::units::{Hertz, Seconds, Watts};
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::power::waiting;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, Step, core_range};
use joulecast_reports::export::Format;
use joulecast_reports::figure::curves::{Axis, Curves, Panel};
use joulecast_reports::figure::svg;
use joulecast_reports::optimum::{Candidate, Found, LayerPlan};
use std::path::PathBuf;

#[derive(Args)]
pub struct OptimizeArgs {
    /// --net takes several networks here, separated by commas
    #[command(flatten)]
    pub predict: PredictArgs,
    /// What to make small: energy, time, edp (E t), ed2p (E t^2), eds:K (energy-delay sum of weight K, as in eds:1.5)
    #[arg(long, value_name = "METRIC", default_value = "energy", value_parser = str::parse::<Metric>)]
    pub metric: Metric,
    /// What may be changed, separated by commas (default: cap and clock, but for what --power-cap and --clock set)
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub over: Vec<Over>,
    /// Leave out what is slower than the default by more than this, as in 5%
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, allow_negative_numbers = true)]
    pub max_slowdown: Option<f64>,
    /// Leave out what handles fewer samples per second
    #[arg(long, value_name = "RATE", value_parser = parse_positive, allow_negative_numbers = true)]
    pub min_throughput: Option<f64>,
    /// Also a clock for every layer
    #[arg(long)]
    pub per_layer: bool,
    /// Milliseconds that a change of the core clock is taken to last, with the GPU waiting (default: 10)
    #[arg(long, value_name = "MS", value_parser = parse_latency, allow_negative_numbers = true, requires = "per_layer")]
    pub switch_latency: Option<f64>,
    /// Draw energy, time, power, EDP and EDS over the power limit (over the clock with --over clock) as SVG
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// The power limit
    Cap,
    /// The core clock
    Clock,
    /// The batch: powers of two that fit in memory
    Batch,
}

/// Time of a change of the core clock where nothing is said.
const SWITCH_LATENCY_MS: f64 = 10.0;
/// Weight of the energy-delay sum in figures where another metric is asked for.
const WEIGHT: f64 = 1.5;

impl OptimizeArgs {
    fn over(&self, what: Over) -> bool {
        if self.over.is_empty() { what != Over::Batch } else { self.over.contains(&what) }
    }

    /// What is varied in a figure.
    fn axis(&self) -> Axis {
        if self.over(Over::Cap) && self.predict.operating.power_cap.is_none() { Axis::Cap } else { Axis::Clock }
    }

    fn switch_latency(&self) -> f64 {
        self.switch_latency.unwrap_or(SWITCH_LATENCY_MS)
    }

    /// Options that contradict each other, or would do nothing.
    fn check(&self) -> Result<(), Failure> {
        let asked = &self.predict;
        let set = |option: bool, over: Over| option && self.over.contains(&over);
        let wrong = [
            (
                set(asked.operating.clock.is_some(), Over::Clock),
                "--over clock tries clocks: leave out --clock, or clock from --over",
            ),
            (
                set(asked.operating.power_cap.is_some(), Over::Cap),
                "--over cap tries power limits: leave out --power-cap, or cap from --over",
            ),
            (self.per_layer && asked.operating.clock.is_some(), "--per-layer chooses clocks: leave out --clock"),
            (
                self.per_layer && asked.format == Format::Csv,
                "CSV has no place for a clock per layer: take --format json, markdown or table",
            ),
            (asked.generate.is_some(), "optimize is for one step: leave out --generate"),
            (asked.layers, "optimize shows no layers: leave out --layers; --per-layer gives a clock for every layer"),
            (
                self.figure.is_some() && self.axis() == Axis::Clock && asked.operating.clock.is_some(),
                "nothing is left to draw over: leave out --clock or --power-cap, or set --over",
            ),
            (
                self.figure.is_some() && !self.over(Over::Cap) && !self.over(Over::Clock),
                "a figure is over limits or clocks: add cap or clock to --over",
            ),
        ];
        match wrong.into_iter().find(|(wrong, _)| *wrong) {
            Some((_, why)) => Err(Failure::Usage(anyhow!(why))),
            None => Ok(()),
        }
    }
}

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

/// The lowest limit to try.
pub fn least_cap(gpu: &Gpu) -> Watts {
    gpu.power.limit_minimum.as_ref().map_or(gpu.power.limit.value * LEAST_CAP, |p| p.value)
}

/// Limits to try, the default one not among them.
pub fn caps(gpu: &Gpu) -> Vec<Watts> {
    let (limit, least) = (gpu.power.limit.value, least_cap(gpu));
    let steps = ((limit - least) / CAP_STEP).ceil() as u64;
    (1..=steps).map(|i| (limit - CAP_STEP * i as f64).max(least)).collect()
}

/// Clocks to try, from high to low.
pub fn clocks(gpu: &Gpu, most: usize) -> Vec<Hertz> {
    let boost = gpu.core_clock.boost.value;
    let (low, high) = core_range(gpu);
    let low = low.max(boost * LEAST_CLOCK);
    let range = high - low;
    let step = match &gpu.core_clock.step {
        Some(step) => step.value * (range / step.value / most as f64).ceil().max(1.0),
        None => range / most as f64,
    };
    (0..=(range / step) as u64).map(|i| high - step * i as f64).filter(|clock| *clock != boost).collect()
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
    if args.over(Over::Cap) && base.power_cap.is_none() {
        points.extend(caps(gpu).into_iter().map(|cap| OperatingPoint { power_cap: Some(cap), ..base }));
    }
    if args.over(Over::Clock) && base.core_clock.is_none() {
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
    let latency = Seconds::from_ms(args.switch_latency());
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
        latency_ms: args.switch_latency(),
    })
}

/// Compares all that may be chosen for a network.
fn find(args: &OptimizeArgs, net: &str) -> Result<Found, Failure> {
    let asked: &PredictArgs = &args.predict;
    let [(1, name)] = &kinds(asked)?[..] else {
        return Err(Failure::Usage(anyhow!("optimize is for one GPU: leave --gpus out")));
    };
    let parts = Parts::read(asked, name, net)?;
    let (gpu, base) = (&parts.gpu, asked.operating.point());
    let Some(batch) = asked.batch.unwrap_or(Batch::Samples(1)).samples() else {
        return Err(Failure::Usage(anyhow!(
            "--batch max is no batch to compare with: --over batch tries all that fit"
        )));
    };
    let mut networks: Vec<ShapedNetwork> = vec![parts.network(asked, batch)?];
    if args.over(Over::Batch) {
        for other in batches(batch).into_iter().filter(|b| *b != batch) {
            networks.push(parts.network(asked, other)?);
        }
    }
    let (mut all, mut default) = (Vec::new(), None);
    for network in &networks {
        let step = Step::new(network, &parts.setup(asked)).map_err(refused)?;
        let mut list = candidates(&step, gpu, args, base)?;
        // What the board cannot keep to is no choice; the first is how it runs by default.
        let mut first = true;
        list.retain(|c| {
            let p = &c.prediction;
            std::mem::take(&mut first) || p.power_cap.is_none_or(|cap| p.power.value <= cap)
        });
        default = default.or_else(|| list.first().cloned());
        all.extend(list);
    }
    let default = default.ok_or_else(|| Failure::Failed(anyhow!("nothing to choose from")))?;
    let fits = all.iter().any(|c| c.prediction.fits_in_memory);
    if !fits && (args.over(Over::Batch) || asked.require_fit) {
        let why = anyhow!("{net} does not fit in the memory of {}, at no batch that was tried", gpu.name);
        return Err(Failure::Failed(why));
    }
    // Where nothing fits, that is a warning; where something does, only that may be chosen.
    all.retain(|c| c.prediction.fits_in_memory || !fits);
    let costs: Vec<Cost> = all.iter().map(|c| per_sample(&c.prediction)).collect();
    let reference = per_sample(&default.prediction);
    let reference = Reference { time: reference.time, energy: reference.energy };
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
    Ok(Found { title, metric: args.metric, default, candidates: all, best, tied, front, plan, warnings })
}

/// The candidates of the batch asked for over the limit or the clock, relative to the default.
fn panel(args: &OptimizeArgs, found: &Found, gpu: &Gpu) -> Panel {
    let default = &found.default;
    let run =
        |setting: f64, c: &Candidate| Run { setting, time: c.prediction.time.value, energy: c.prediction.energy.value };
    let mut runs: Vec<Run> = Vec::new();
    for c in found.candidates.iter().filter(|c| c.prediction.batch == default.prediction.batch) {
        let setting = match args.axis() {
            Axis::Cap if c.point.core_clock == default.point.core_clock => c.point.power_cap.map(Watts::get),
            Axis::Clock if c.point.power_cap == default.point.power_cap => c.point.core_clock.map(Hertz::to_mhz),
            _ => None,
        };
        runs.extend(setting.map(|s| run(s, c)));
    }
    runs.push(match args.axis() {
        Axis::Cap => run(gpu.power.limit.value.get(), default),
        Axis::Clock => run(gpu.core_clock.boost.value.to_mhz(), default),
    });
    let reference = Reference { time: default.prediction.time.value, energy: default.prediction.energy.value };
    Panel {
        title: format!("{}, batch {}", default.prediction.network, default.prediction.batch),
        predicted: relative(&runs, &reference, weight(args)),
        measured: Vec::new(),
    }
}

fn weight(args: &OptimizeArgs) -> f64 {
    if let Metric::Eds(k) = args.metric { k } else { WEIGHT }
}

fn figure(args: &OptimizeArgs, found: &[Found]) -> Result<String, Failure> {
    let gpu = crate::commands::gpu(args.predict.gpu.as_deref().unwrap_or_default())?;
    let what = match args.axis() {
        Axis::Cap => "power limits",
        Axis::Clock => "core clocks",
    };
    let (asked, default) = (&args.predict, &found[0].default.prediction);
    let sheet = Curves {
        title: format!("{what} of {}, {} {}, {} profile", gpu.title, asked.precision, asked.mode, asked.framework),
        axis: args.axis(),
        weight: weight(args),
        panels: found.iter().map(|f| panel(args, f, &gpu)).collect(),
        notes: vec![
            format!("power: {}, times: {}; predicted before anything ran", default.power_tier, default.time_tier),
            command_line(),
        ],
    };
    svg(&sheet).map_err(|e| Failure::Failed(e.into()))
}

/// `predict optimize`
pub fn optimize(args: &OptimizeArgs) -> Result<(), Failure> {
    args.check()?;
    args.predict.output.check(args.figure.clone())?;
    let nets: Vec<String> = args.predict.network.name().split(',').map(str::to_string).collect();
    let nets = networks(&nets, |net| Ok(network_of(&args.predict.network, net)?.0))?;
    let found: Vec<Found> = nets.iter().map(|(net, _)| find(args, net)).collect::<Result<_, _>>()?;
    if let Some(path) = &args.figure {
        args.predict.output.write(path, figure(args, &found)?)?;
    }
    args.predict.output.export(found.as_slice(), args.predict.format)
}
