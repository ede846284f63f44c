//! `calibrate sweep`: a network measured along power limits or core clocks until the best is found, beside its prediction.

use super::{machine, misuse, names, print};
use crate::campaign::device::{Device, Kind as DeviceKind};
use crate::campaign::limits::{self, ObservedOnly, Offered, Permission, Settings};
use crate::campaign::measure::curve::{self, CurveRow, Measured, Request};
use crate::campaign::run::{ApplyPoint, interrupt};
use crate::judge::published::{Tools, mean_absolute, percent};
use crate::system::whole;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use joulecast_ask::curve::{Run, relative};
use joulecast_ask::metric::{Metric, Reference};
use joulecast_kernels::runner::{Launch, NetworkTrial};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::Hertz;
use joulecast_model::kernel::setting::Layout;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_reports::figure::curves::{Axis, Curves, Panel};
use joulecast_reports::figure::svg;
use joulecast_reports::limits::Setting;
use joulecast_reports::say;
use joulecast_reports::table::{Table, percent_more};
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Over {
    /// The power limit, W
    Cap,
    /// The core clock, MHz
    Clock,
}

#[derive(Args)]
pub struct SweepArgs {
    /// A network of the zoo or a network file
    #[arg(long, value_name = "NAME|FILE", value_parser = names::network_or_file)]
    net: String,
    /// Samples of a step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: u64,
    /// fp32, tf32, fp16 or bf16
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = machine::precision)]
    precision: Precision,
    /// inference or training
    #[arg(long, value_name = "MODE", default_value = "inference", value_parser = machine::mode)]
    mode: Mode,
    /// What to run on
    #[arg(long, value_enum, default_value_t = DeviceKind::Cuda)]
    device: DeviceKind,
    /// The GPU that it counts as, where its name does not say: a name or a file
    #[arg(long, value_name = "NAME|FILE", value_parser = names::gpu_or_file)]
    gpu: Option<String>,
    /// What to SET, point after point (needs the right to; the prior state is restored)
    #[arg(long, value_enum)]
    over: Over,
    /// Highest setting; default: below the default
    #[arg(long, value_name = "W|MHZ", value_parser = super::names::positive)]
    from: Option<f64>,
    /// Lowest setting; default: the lowest that the board offers
    #[arg(long, value_name = "W|MHZ", value_parser = super::names::positive)]
    to: Option<f64>,
    /// Distance of settings; default: 5 W, 15 MHz (clocks are the board's own)
    #[arg(long, value_name = "W|MHZ", value_parser = super::names::positive)]
    step: Option<f64>,
    /// These settings, separated by commas
    #[arg(long, value_name = "W|MHZ", value_delimiter = ',', conflicts_with_all = ["from", "to", "step"],
        value_parser = super::names::positive)]
    points: Vec<f64>,
    /// What to make least: energy, time, edp, ed2p, eds:K
    #[arg(long, value_name = "METRIC", default_value = "energy", value_parser = str::parse::<Metric>)]
    metric: Metric,
    /// How often to measure every point
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Stop going down after so many points in a row at which the metric has risen
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    patience: u32,
    /// List what would be set at most, measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Folder of the journals that prior settings are kept in
    #[arg(long, value_name = "DIR")]
    journals: Option<PathBuf>,
    /// CSV file; rows are added, and those that it holds are not measured again
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Draw measured points over the predicted curve as SVG
    #[arg(long, value_name = "FILE")]
    figure: Option<PathBuf>,
    /// Write the figure over a file that is there
    #[arg(long, requires = "figure")]
    force: bool,
    /// For the fake device: what goes wrong
    #[arg(long, value_name = "FAULT", hide = true, value_parser = names::fault)]
    fault: Vec<String>,
}

/// Distance of settings where nothing is said.
const CAP_STEP_W: f64 = 5.0;
const CLOCK_STEP_MHZ: f64 = 15.0;
/// Weight of the energy-delay sum in the figure where another metric is asked for.
const WEIGHT: f64 = 1.5;

impl SweepArgs {
    fn axis(&self) -> Axis {
        if self.over == Over::Cap { Axis::Cap } else { Axis::Clock }
    }

    /// Settings from high to low.
    fn settings(&self, offered: &Offered) -> Result<Vec<f64>> {
        let mut list = self.points.clone();
        if list.is_empty() && self.over == Over::Cap {
            let (low, step) = (self.to.unwrap_or(offered.limits.0.get()), self.step.unwrap_or(CAP_STEP_W));
            let high = self.from.unwrap_or(offered.limit.get() - step);
            let count = ((high - low) / step + 1e-9).floor();
            list = (0..=count as u64).take_while(|_| count >= 0.0).map(|i| high - step * i as f64).collect();
        } else if list.is_empty() {
            let step = self.step.unwrap_or(CLOCK_STEP_MHZ);
            let highest = offered.clocks.last().map_or(0.0, |f| f.to_mhz());
            let (high, low) = (self.from.unwrap_or(highest - 0.5), self.to.unwrap_or(0.0));
            for clock in offered.clocks.iter().rev().map(|f| f.to_mhz()).filter(|f| (low..=high).contains(f)) {
                if list.last().is_none_or(|last| last - clock >= step - 0.5) {
                    list.push(clock);
                }
            }
        }
        list.sort_by(|a, b| b.total_cmp(a));
        list.dedup();
        if list.is_empty() {
            return Err(misuse("no setting lies between --to and --from"));
        }
        Ok(list)
    }
}

/// The predicted curve.
struct Predicted {
    /// By position, where the board keeps the limit.
    runs: Vec<(usize, Run)>,
    /// Position of the least metric.
    best: usize,
    /// What the prediction rests on.
    rests_on: String,
}

fn predict(device: &Device, network: &ShapedNetwork, mode: Mode, request: &Request) -> Result<Predicted> {
    let predictor = Tools::shipped()?.on(&device.gpu);
    let step = predictor.step(network, mode)?;
    let default = step.at(OperatingPoint::default())?;
    let mut runs = Vec::new();
    for position in 0..=request.settings.len() {
        let point = request.point(position);
        let point = OperatingPoint { core_clock: point.core, power_cap: point.power_limit, memory_clock: None };
        let p = step.at(point)?;
        // What the board cannot keep to is no choice.
        if position == 0 || p.power_cap.is_none_or(|cap| p.power.value <= cap) {
            let setting = request.value(position);
            runs.push((position, Run { setting, time: p.time.value, energy: p.energy.value }));
        }
    }
    let reference = Reference { time: default.time.value, energy: default.energy.value };
    let value = |run: &Run| request.metric.of(run.time, run.energy, &reference);
    let best = runs.iter().min_by(|a, b| value(&a.1).total_cmp(&value(&b.1))).map_or(0, |(position, _)| *position);
    let rests_on = format!("predicted before anything ran: power {}, times {}", default.power_tier, default.time_tier);
    Ok(Predicted { runs, best, rests_on })
}

/// Measures along a setting.
pub fn sweep(args: &SweepArgs) -> Result<()> {
    let network = ShapedNetwork::new(&machine::network(&args.net)?, args.batch, args.precision, &[])?;
    // The files before the device, whose use would disturb what another process measures.
    let opened = if args.dry_run { None } else { Some(curve::open(&args.out)?) };
    if let (Some(path), false) = (&args.figure, args.dry_run) {
        whole::check_free(path, args.force)?;
    }
    let mut device = Device::open(args.device, args.gpu.as_deref(), &args.fault)?;
    device.notes.iter().for_each(say);
    if device.meter.is_none() && args.metric != Metric::Time {
        bail!("energy cannot be measured on this device: only --metric time can be swept");
    }
    let offered = limits::offered(&device)?;
    let highest = offered.clocks.last().copied().unwrap_or(Hertz::ZERO);
    let request = Request {
        axis: args.axis(),
        settings: args.settings(&offered)?,
        default: if args.over == Over::Cap { offered.limit.get() } else { highest.to_mhz() },
        metric: args.metric,
        repeats: args.repeat,
        patience: args.patience as usize,
    };
    // All settings are looked at before the first is made.
    let every: Vec<_> = (1..=request.settings.len()).map(|p| request.point(p)).collect();
    let calls = limits::rehearse(&device, &every)?;
    let Some((mut table, known)) = opened else {
        say(format!("at most; a sweep leaves out what the search for the least {} does not need", args.metric));
        return print(&calls);
    };
    let predicted = match predict(&device, &network, args.mode, &request) {
        Ok(predicted) => Some(predicted),
        Err(why) => {
            say(format!("without a prediction: {why}"));
            None
        }
    };
    let trial = NetworkTrial {
        network: &network,
        batch: args.batch,
        precision: args.precision,
        mode: args.mode,
        layout: Layout::usual(args.precision),
        launch: Launch::Graph,
    };
    interrupt::listen();
    let also = predicted.as_ref().map(|p| p.best);
    let mut measure = |device: &mut Device, settings: Option<&mut dyn ApplyPoint>| {
        curve::run(device, &trial, &request, settings, also, (&mut table, &known))
    };
    match Settings::begin(&device, args.journals.as_deref(), every.first().copied())? {
        Permission::Given(mut settings) => {
            let measured = measure(&mut device, Some(settings.as_mut()));
            let restored = settings.finish();
            let measured = match (measured, &restored) {
                (Err(failed), Err(left)) => return Err(failed.context(format!("settings were not restored: {left}"))),
                (measured, _) => measured?,
            };
            restored?;
            report(args, &device, &request, &measured, predicted.as_ref())
        }
        Permission::Refused(why) => {
            say(format!("{why}: nothing was set; observing only, as found"));
            let measured = measure(&mut device, None)?;
            report(args, &device, &request, &measured, predicted.as_ref())?;
            Err(ObservedOnly.into())
        }
    }
}

fn report(
    args: &SweepArgs,
    device: &Device,
    request: &Request,
    measured: &Measured,
    predicted: Option<&Predicted>,
) -> Result<()> {
    print(&text(args, request, measured, predicted))?;
    if let Some(path) = &args.figure {
        whole::write(path, &figure(args, device, request, measured, predicted)?)?;
    }
    Ok(())
}

fn name(request: &Request, position: usize) -> String {
    match (position, request.axis) {
        (0, _) => "default".into(),
        (_, Axis::Cap) => format!("{} W", request.value(position)),
        (_, Axis::Clock) => format!("{} MHz", request.value(position)),
    }
}

fn text(args: &SweepArgs, request: &Request, measured: &Measured, predicted: Option<&Predicted>) -> String {
    let runs = measured.runs(request);
    let foreseen = |position: usize| predicted.and_then(|p| p.runs.iter().find(|r| r.0 == position)).map(|r| r.1);
    let over = |run: &Run, first: &Run| [run.time / first.time, run.energy / first.energy];
    let (mut settings, mut time_errors, mut energy_errors) = (Vec::new(), Vec::new(), Vec::new());
    for (position, run) in &runs {
        let clocks: Vec<f64> = measured.rows(*position).iter().filter_map(|r| r.core_mhz_mean).collect();
        let pair = foreseen(*position).zip(foreseen(0));
        if let Some((here, _)) = pair {
            time_errors.push(percent(here.time.get(), run.time.get()));
            energy_errors.push(percent(here.energy.get(), run.energy.get()));
        }
        settings.push(Setting {
            name: name(request, *position),
            clock_mhz: (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64),
            time: run.time,
            energy: run.energy,
            over_default: runs.first().map(|(_, first)| over(run, first)),
            predicted: pair.map(|(here, first)| over(&here, &first)),
        });
    }
    let mut text = Table::of(&settings).to_text();
    let rows: usize = runs.iter().map(|(p, _)| measured.rows(*p).len()).sum();
    text += &format!(
        "\n{}: {} rows added, {} were there; {} of {} points measured\n",
        args.out.display(),
        measured.written,
        rows.saturating_sub(measured.written),
        runs.len(),
        request.settings.len() + 1
    );
    let known = measured.known(request);
    let value = |position| known.get(&position).and_then(|k| k.value);
    if let Some(best) = measured.best(request) {
        text += &format!("least {} measured: {}\n", request.metric, name(request, best));
        if let Some(predicted) = predicted {
            text += &format!("least {} predicted: {}", request.metric, name(request, predicted.best));
            text += &match value(predicted.best).zip(value(best)) {
                Some((chosen, least)) => format!("; choosing it costs {} %\n", percent_more(chosen / least)),
                None => "; not measured\n".into(),
            };
        }
    }
    if !time_errors.is_empty() {
        let (time, energy) = (mean_absolute(&time_errors), mean_absolute(&energy_errors));
        text += &format!("mean absolute error of the prediction: time {time:.1} %, energy {energy:.1} %\n");
    }
    text
}

fn figure(
    args: &SweepArgs,
    device: &Device,
    request: &Request,
    measured: &Measured,
    predicted: Option<&Predicted>,
) -> Result<String> {
    let weight = if let Metric::Eds(k) = request.metric { k } else { WEIGHT };
    let curve = |runs: &[(usize, Run)]| {
        let Some((0, first)) = runs.first() else { return Vec::new() };
        let list: Vec<Run> = runs.iter().map(|r| r.1).collect();
        relative(&list, &Reference { time: first.time, energy: first.energy }, weight)
    };
    let what = if request.axis == Axis::Cap { "power limits" } else { "core clocks" };
    let first: Option<&CurveRow> = measured.rows(0).first();
    let product = first.map(|r| r.device.as_str()).unwrap_or_default();
    let sheet = Curves {
        title: format!("{what} of {}, {} {}", device.gpu.title, args.precision, args.mode),
        axis: request.axis,
        weight,
        panels: vec![Panel {
            title: format!("{}, batch {}", measured.rows(0).first().map_or("", |r| &r.network), args.batch),
            predicted: predicted.map(|p| curve(&p.runs)).unwrap_or_default(),
            measured: curve(&measured.runs(request)),
        }],
        notes: vec![format!("measured on {product}")]
            .into_iter()
            .chain(predicted.map(|p| p.rests_on.clone()))
            .collect(),
    };
    svg(&sheet).context("drawing the figure")
}
