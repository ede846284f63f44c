//! `calibrate plan`, `run` and `status`.

use super::{DatasetArg, machine, misuse, names, print, show};
use crate::campaign::choices::ask;
use crate::campaign::device::{Device, Kind as DeviceKind, SIMULATED};
use crate::campaign::limits::{self, ObservedOnly, Permission};
use crate::campaign::run::progress::OnStderr;
use crate::campaign::run::{AsFound, Which};
use crate::campaign::trials::nets::{Wanted, of_networks};
use crate::campaign::trials::{Level, Measure, Plan};
use crate::campaign::{run, status, trials};
use crate::rows::choices;
use crate::rows::dataset::NoRows;
use crate::rows::writer::Writer;
use crate::system::whole;
use anyhow::{Context, Result};
use clap::Args;
use joulecast_kernels::measure::Rules;
use joulecast_kernels::settings::Point;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::base::shard::Shard;
use joulecast_model::base::units::Seconds;
use joulecast_model::catalog;
use joulecast_reports::export::{Format, format_of};
use joulecast_reports::say;
use joulecast_reports::status::Status;
use joulecast_reports::table::Table;
use std::fs;
use std::path::PathBuf;

#[derive(Args)]
pub struct StatusArgs {
    /// Folder of the dataset
    #[arg(value_name = "DIR", conflicts_with = "dataset")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    dataset: DatasetArg,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Status>(), default_value_t = Format::Table)]
    format: Format,
}

#[derive(Args)]
pub struct PlanArgs {
    /// The recipe; without it the one that the program brings along (data/plans/reference.toml)
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// How much of it
    #[arg(long, value_enum, default_value_t = Level::Reference)]
    level: Level,
    /// Instead of a recipe: the distinct layers of these networks, of the zoo or of files, as `measure --net` takes them;
    /// may be repeated. Those longer than 30 ms by the roofline or larger than 6 GiB are left out
    #[arg(long, value_name = "NAME|FILE", num_args = 1.., value_delimiter = ',', conflicts_with_all = ["recipe", "level"],
        value_parser = names::network_or_file)]
    net: Vec<String>,
    /// With --net: batches, separated by commas
    #[arg(long, value_name = "N", default_value = "1,16,64", value_delimiter = ',', requires = "net",
        value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batches: Vec<u64>,
    /// With --net: precisions, separated by commas
    #[arg(long, value_name = "PRECISION", default_value = "fp32,fp16", value_delimiter = ',', requires = "net",
        value_parser = machine::precision)]
    precisions: Vec<Precision>,
    /// With --net: phases, separated by commas; forward as in inference, the others as in training
    #[arg(long, value_name = "PHASE", default_value = "forward,backward_data,backward_weights", value_delimiter = ',',
        requires = "net", value_parser = names::layer_phase)]
    phases: Vec<Phase>,
    /// With --net: the GPU whose roofline bounds the trials' times
    #[arg(long, value_name = "NAME", default_value = "h200", requires = "net", value_parser = names::gpu_name)]
    gpu: String,
    /// File to write the trials to, one JSON line each, in the order to run them
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write over another file that is there
    #[arg(long, requires = "out")]
    force: bool,
}

#[derive(Args)]
pub struct RunArgs {
    /// reference, standard, quick, or a file that `calibrate plan` wrote
    #[arg(long, value_name = "PLAN", value_parser = names::plan)]
    plan: String,
    /// What to run on
    #[arg(long, value_enum)]
    device: DeviceKind,
    /// The GPU that it counts as, where its name does not say: a name or a file
    #[arg(long, value_name = "NAME|FILE", value_parser = names::gpu_or_file)]
    gpu: Option<String>,
    /// Folder of the dataset; trials whose rows it holds are not run again
    #[arg(long, value_name = "DIR")]
    dataset: PathBuf,
    /// Begin no trial after this time
    #[arg(long, value_name = "SECONDS", value_parser = names::positive)]
    budget: Option<f64>,
    /// How often to measure every trial
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Name of the campaign: of the dataset's segments and in every row; default: the device's
    #[arg(long, value_name = "NAME", value_parser = run::campaign_name)]
    campaign: Option<String>,
    /// Only these layer kinds
    #[arg(long, value_name = "KIND", num_args = 1.., value_parser = names::kind)]
    only: Vec<String>,
    /// Only trials with energy
    #[arg(long, conflicts_with = "time_only")]
    energy_only: bool,
    /// Only times
    #[arg(long)]
    time_only: bool,
    /// Only this part of the plan, as in 1/4, for several GPUs side by side: each with a dataset of its own, and a process
    /// that sees its GPU alone (CUDA_VISIBLE_DEVICES)
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// Try again what an earlier run could not do
    #[arg(long)]
    retry_skipped: bool,
    /// SET these core clocks in MHz, one after the other (needs the right to; the prior state is restored)
    #[arg(long, value_name = "MHZ", value_delimiter = ',', value_parser = names::positive)]
    clocks: Vec<f64>,
    /// SET these power limits in W, one after the other; with --clocks, every pair
    #[arg(long, value_name = "W", value_delimiter = ',', value_parser = names::positive)]
    power_caps: Vec<f64>,
    /// With --clocks or --power-caps: list what would be set, measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Folder of the journals that prior settings are kept in
    #[arg(long, value_name = "DIR")]
    journals: Option<PathBuf>,
    /// For the fake device: what goes wrong
    #[arg(long, value_name = "FAULT", hide = true, value_parser = names::fault)]
    fault: Vec<String>,
}

#[derive(Args)]
pub struct ChoicesArgs {
    /// reference, standard, quick, or a file that `calibrate plan` wrote
    #[arg(long, value_name = "PLAN", value_parser = names::plan)]
    plan: String,
    /// What to ask
    #[arg(long, value_enum)]
    device: DeviceKind,
    /// File to write to, in Parquet
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Write over another file that is there
    #[arg(long)]
    force: bool,
    /// Ask nothing after this time
    #[arg(long, value_name = "SECONDS", value_parser = names::positive)]
    budget: Option<f64>,
    /// Only this part of the plan, as in 1/4, for several processes side by side
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
}

/// Summarises a dataset.
pub fn status(args: &StatusArgs) -> Result<()> {
    let folder = args.folder.as_ref().unwrap_or(&args.dataset.dataset);
    let (summary, said) = status::of_folder(folder)?;
    said.iter().for_each(say);
    show(&summary, args.format)
}

/// Expands a recipe, or networks into their layers.
pub fn plan(args: &PlanArgs) -> Result<()> {
    let mut beyond = 0;
    let plan = match &args.recipe {
        _ if !args.net.is_empty() => {
            let networks = args.net.iter().map(|name| machine::network(name)).collect::<Result<Vec<_>>>()?;
            let (batches, precisions, phases) = (args.batches.clone(), args.precisions.clone(), args.phases.clone());
            let planned = of_networks(&Wanted { networks, batches, precisions, phases }, &catalog::gpu(&args.gpu)?)?;
            beyond = planned.beyond;
            planned.plan
        }
        Some(path) => {
            let name = path.display().to_string();
            let text = fs::read_to_string(path).with_context(|| name.clone())?;
            trials::expand(&text, args.level).with_context(|| name)?
        }
        None => trials::expand(trials::REFERENCE, args.level).context("data/plans/reference.toml")?,
    };
    print(&Table::of(&plan.strata()).to_text())?;
    print(&format!(
        "plan {}: {} trials of time, {} of time and energy; about {:.0} minutes on a GPU\n",
        plan.id,
        plan.count(Measure::Time),
        plan.count(Measure::Energy),
        plan.estimate().get() / 60.0
    ))?;
    if beyond > 0 {
        print(&format!("left out, longer than 30 ms by the roofline or larger than 6 GiB: {beyond}\n"))?;
    }
    if let Some(path) = &args.out {
        let done = whole::write_new(path, &trials::file::to_text(&plan)?, args.force)?;
        print(&format!("{}: {done}\n", path.display()))?;
    }
    Ok(())
}

/// Asks which algorithms the libraries choose.
pub fn choices(args: &ChoicesArgs) -> Result<()> {
    if args.out.extension().is_none_or(|e| e != "parquet") {
        return Err(misuse("--out: answers are written as Parquet, to a file that ends in .parquet"));
    }
    whole::check_free(&args.out, args.force)?;
    if args.out.canonicalize().is_ok_and(|out| PathBuf::from(&args.plan).canonicalize().is_ok_and(|plan| plan == out)) {
        return Err(misuse("--out is the plan's own file"));
    }
    let plan = Plan::named(&args.plan)?;
    let (mut runner, gpu) = args.device.to_ask()?;
    let asked = ask(&plan, (runner.as_mut(), &gpu.name), args.shard, args.budget.map(Seconds::new))?;
    if asked.answers.is_empty() {
        return Err(NoRows::Selection(format!("answer for this plan: {asked}; nothing is written")).into());
    }
    let done = whole::write_new(&args.out, choices::to_parquet(&asked.answers)?, args.force)?;
    print(&format!("{}: {done}; {asked}\n", args.out.display()))
}

/// Runs a plan.
pub fn run(args: &RunArgs) -> Result<()> {
    let plan = Plan::named(&args.plan)?;
    // Before the device is opened, whose use would disturb what another process measures.
    let writer = if args.dry_run { None } else { Some(Writer::open(&args.dataset)?) };
    let mut device = Device::open(args.device, args.gpu.as_deref(), &args.fault)?;
    let default = if device.source == SIMULATED { SIMULATED } else { device.gpu.name.as_str() };
    let options = run::Options {
        campaign: args.campaign.clone().unwrap_or_else(|| default.to_string()),
        budget: args.budget.map(Seconds::new),
        repeats: args.repeat,
        only: args.only.clone(),
        which: match (args.energy_only, args.time_only) {
            (true, _) => Which::Energy,
            (_, true) => Which::Time,
            _ => Which::All,
        },
        shard: args.shard,
        retry_skipped: args.retry_skipped,
        rules: Rules::default(),
    };
    device.notes.iter().for_each(say);
    let points = limits::points(&args.clocks, &args.power_caps);
    let Some(writer) = writer else {
        if points.is_empty() {
            return Err(misuse("--dry-run goes with --clocks or --power-caps"));
        }
        return print(&limits::rehearse(&device, &points)?);
    };
    let into = (&options, &writer);
    run::interrupt::listen();
    let progress = &mut OnStderr::new();
    if points.is_empty() {
        say("clocks and power limits are observed, not set");
        // One point that asks for nothing.
        let outcome = run::run(&plan, &mut device, &[Point::default()], &mut AsFound, into, progress)?;
        return print(&outcome.text());
    }
    match limits::Settings::begin(&device, args.journals.as_deref(), points.first().copied())? {
        Permission::Given(mut settings) => {
            let result = run::run(&plan, &mut device, &points, settings.as_mut(), into, progress);
            settings.finish()?;
            print(&result?.text())
        }
        Permission::Refused(why) => {
            say(format!("{why}: nothing was set; observing only, as found"));
            let outcome = run::run(&plan, &mut device, &[Point::default()], &mut AsFound, into, progress)?;
            print(&outcome.text())?;
            Err(ObservedOnly.into())
        }
    }
}
