//! The command line of `calibrate`.

mod all;
mod campaign;
mod host;
mod machine;
mod names;
mod published;
mod report;
mod rows;
mod sealed;
mod sweep;

use self::rows::{Read, Rows, Unseen, alike_rows, choices_of, prepared, read_runs, read_unique, rows_for};
use crate::campaign::device::SIMULATED;
use crate::campaign::trials::{self, Level};
use crate::fit::choice::{FEWEST_ANSWERS, in_words};
use crate::fit::over_chip::over_chip;
use crate::fit::polynomial::Options;
use crate::fit::waiting::FitBar;
use crate::fit::{power, recipe, siblings, task};
use crate::judge::{activity, given, learning, leave_out, networks, spread, validate};
use crate::rows::aiconfigurator;
use crate::rows::dataset::NoRows;
use crate::rows::import::{self, import};
use crate::rows::prepare::Row;
use crate::system::whole;
use crate::system::whole::Done;
use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use joulecast_import::table::Mapping;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::calibration::{ANY_CHIP, Calibration};
use joulecast_model::rows::measurement::Regime;
use joulecast_model::rows::splits::Role;
use joulecast_reports::accuracy::HeldOut;
use joulecast_reports::export::{Export, Format, format_of};
use joulecast_reports::networks::Networks;
use joulecast_reports::{self as reports, chips};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// Measured layers into calibrations.
#[derive(Parser)]
#[command(name = "calibrate", version, about, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  calibrate all --out my_gpu                    measures this GPU, and says how to predict with it
  calibrate all --device fake --out rehearsal   the same without a GPU, simulated
  calibrate host                                how fast this machine launches PyTorch's operations
  calibrate import deepbench DeepBench_NV_V100.xlsx
  calibrate import neusight conv.csv linear.csv bmm.csv
  calibrate import aiconfigurator systems --dataset products
  calibrate import table times.csv --mapping data/published/mappings/neusight_conv.toml
  calibrate plan --level standard
  calibrate run --plan quick --device cuda --dataset rows
  calibrate status rows
  calibrate fit --out data/calibrations
  calibrate validate --layers --seeds 10
  calibrate show v100";

#[derive(Subcommand)]
enum Command {
    /// Read published measurements into a dataset
    Import(Import),
    /// Fit calibrations to a dataset and write them
    Fit(Fit),
    /// Held-out accuracy, beside the comparators
    Validate(Validate),
    /// Power and clocks that others published, beside predictions
    Published(published::PublishedArgs),
    /// Predict a round of networks that nobody ran yet, before anybody does
    Seal(sealed::SealArgs),
    /// What became of a sealed round once it was measured
    Sealed(sealed::SealedArgs),
    /// Explain a calibration term by term
    Show(Show),
    /// What a dataset holds, and how good it is
    Status(campaign::StatusArgs),
    /// Expand a recipe into the trials to measure
    Plan(campaign::PlanArgs),
    /// Measure the trials of a plan on a device
    Run(campaign::RunArgs),
    /// Ask which algorithms the libraries choose for a plan's trials, without running them
    Choices(campaign::ChoicesArgs),
    /// Run, fit, judge and report in one: ends with the line that predicts with what was measured
    All(all::AllArgs),
    /// Measure whole networks, or their layers one by one
    Measure(machine::MeasureArgs),
    /// Measure a network along power limits or core clocks until the best is found
    Sweep(sweep::SweepArgs),
    /// Which GPU is here, which calibration fits it, and what one of its own would take
    Detect(joulecast_machine::cli::DetectArgs),
    /// How fast this machine's host launches PyTorch's operations: a file that predictions of eager steps take
    Host(host::HostsArgs),
    /// Check that this GPU computes what the layers mean, and how near our kernels come to its ceilings
    Check(machine::CheckArgs),
    /// Restore clocks and power limits that a killed run left behind
    Restore(machine::RestoreArgs),
    /// Started by a run that changes settings; restores them when that run is gone
    #[command(hide = true)]
    Guardian(machine::GuardianArgs),
}

#[derive(Args)]
struct DatasetArg {
    /// Folder of the dataset
    #[arg(long, value_name = "DIR", default_value = "data/imported")]
    dataset: PathBuf,
}

#[derive(Args)]
struct DatasetsArg {
    /// Folder of a dataset; may be repeated
    #[arg(long, value_name = "DIR", default_value = "data/imported")]
    dataset: Vec<PathBuf>,
    /// Which engines the libraries choose, as `calibrate choices` writes it: convolutions are told apart by them; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    choices: Vec<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ImportFormat {
    /// DeepBench's workbooks
    Deepbench,
    /// NeuSight's original CSV files
    Neusight,
    /// Any CSV of layer times, read by a mapping
    Table,
    /// Layers through PyTorch, measured by calibrate/tools/torch_ops.py
    Torch,
    /// NVIDIA AIConfigurator's tables of products and attention in Parquet, or the folder that holds them
    Aiconfigurator,
}

#[derive(Args)]
struct Import {
    /// What the files are
    format: ImportFormat,
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// For `table`: which column means what (see data/published/mappings)
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// The GPU, where the file does not say
    #[arg(long, value_name = "NAME", value_parser = names::gpu_name)]
    gpu: Option<String>,
    #[command(flatten)]
    dataset: DatasetArg,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelForm {
    /// Sparse polynomials in the logarithm over a smooth roofline
    Lasso,
    /// The comparator: NeuralPower's polynomial in the raw parameters
    Neuralpower,
}

#[derive(Args)]
struct Fit {
    #[command(flatten)]
    dataset: DatasetsArg,
    /// Folder to write one file per chip into
    #[arg(long, value_name = "DIR", default_value = "calibrations")]
    out: PathBuf,
    /// Which models
    #[arg(long, value_enum, default_value_t = ModelForm::Lasso)]
    model: ModelForm,
    /// Leave out every shape that occurs in a network with the role `development` or `test`
    #[arg(long)]
    evaluation: bool,
    /// Runs of whole networks: those with the role `conformal` make the intervals of networks; may be repeated
    #[arg(long, value_name = "FILE")]
    networks: Vec<PathBuf>,
    /// A sealed round's folder: of runs among `--networks` that it foresaw, intervals are made by what it foresaw; may be
    /// repeated
    #[arg(long, value_name = "DIR")]
    sealed: Vec<PathBuf>,
    /// What own rows correct: `auto`, the shipped calibration of their chip, where all rows are own and of one board;
    /// `universal`, the models of all chips; a file as `fit` writes it; `none`: fit these rows alone
    #[arg(long, value_name = "auto|none|universal|FILE", default_value = "auto")]
    base: String,
    /// Replace calibrations that are there and differ
    #[arg(long, visible_alias = "replace")]
    force: bool,
    /// Seed of the folds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not show how far the fits are
    #[arg(long)]
    quiet: bool,
}

#[derive(Args)]
struct Validate {
    /// Layer times (and power, where measured), grouped 5-fold over all rows
    #[arg(long, required_unless_present_any = ["networks", "leave_one_chip_out", "siblings"])]
    layers: bool,
    /// Each board's layer times by the rows of the other boards of its chip
    #[arg(long, conflicts_with_all = ["layers", "networks", "leave_one_chip_out", "gpu", "kind", "levels", "report"])]
    siblings: bool,
    /// Each chip's layer times from the other chips' rows alone, and with 20, 50 and 100 own rows
    #[arg(long, conflicts_with_all = ["layers", "networks", "gpu", "kind", "levels"])]
    leave_one_chip_out: bool,
    /// With it: other ways of fitting, without own rows
    #[arg(long, requires = "leave_one_chip_out")]
    trials: bool,
    /// Whole networks measured in these files (columns as `calibrate measure` writes them), predicted by a fit without
    /// the shapes of networks that are held out; with --layers in a report only
    #[arg(long, value_name = "FILE")]
    networks: Vec<PathBuf>,
    /// Write a report into this folder instead of printing tables: report.html, and its figures as SVG and PNG; of networks
    /// those with the role development, where --role names no other
    #[arg(long, value_name = "DIR", conflicts_with_all = ["leave_one_chip_out", "levels", "format", "rows"])]
    report: Option<PathBuf>,
    /// With --report: verdicts.json of an earlier report, such as that of the last release; the page tells what changed since
    #[arg(long, value_name = "FILE", requires = "report")]
    since: Option<PathBuf>,
    /// With --report: write over a report that is there
    #[arg(long, requires = "report")]
    force: bool,
    /// Calibrations to predict networks with (as `fit --evaluation` writes them) instead of fitting them now; with --layers
    /// they predict every row, whether they were fitted to it or not
    #[arg(long, value_name = "DIR")]
    calibrations: Option<PathBuf>,
    /// Also write every layer's measured and predicted time into this CSV
    #[arg(long, value_name = "FILE", requires = "layers", conflicts_with_all = ["report", "levels"])]
    residuals: Option<PathBuf>,
    /// Framework profile of the networks' runs (default: cudnn; in a report the one that ran each)
    #[arg(long, value_name = "NAME", value_parser = names::framework)]
    framework: Option<String>,
    /// With --networks: the host of the machine that ran them, as `calibrate host` wrote it
    #[arg(long, value_name = "FILE", requires = "networks", conflicts_with = "report")]
    host: Option<PathBuf>,
    /// With --networks and --calibrations: how much of what kernels of random operands draw networks' do, learned from
    /// these runs, and errors of power with it: what [activity] of a framework profile rests on
    #[arg(long, requires = "networks", requires = "calibrations", conflicts_with_all = ["report", "rows", "role", "host"])]
    activity: bool,
    /// Only networks with this role (development, conformal, profile, test)
    #[arg(long, value_name = "ROLE", value_parser = names::role)]
    role: Option<Role>,
    /// Every run, not only their means
    #[arg(long)]
    rows: bool,
    #[command(flatten)]
    dataset: DatasetsArg,
    /// Only the chip of this GPU; may be repeated
    #[arg(long, value_name = "NAME", value_parser = names::gpu)]
    gpu: Vec<Gpu>,
    /// Only this layer kind; may be repeated
    #[arg(long, value_name = "KIND", value_parser = names::kind)]
    kind: Vec<String>,
    /// Number of fold seeds, or of draws of own rows; with several, mean and standard deviation are shown
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Leave out every shape that occurs in a network with the role `development` or `test`
    #[arg(long)]
    evaluation: bool,
    /// Error of each kind of layer when only the trials of quick, standard or reference are learned from
    #[arg(long)]
    levels: bool,
    /// With --layers: also how errors fall with the number of rows
    #[arg(long, requires = "layers", conflicts_with_all = ["levels", "report", "calibrations"])]
    curves: bool,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<chips::LeftOut>(), default_value_t = Format::Table)]
    format: Format,
    /// Do not show how far the fits are
    #[arg(long)]
    quiet: bool,
}

#[derive(Args)]
struct Show {
    /// A GPU or chip with a shipped calibration, or a calibration file
    #[arg(value_parser = names::calibration)]
    name: String,
    /// Only models of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
}

/// Runs a command line.
///
/// # Errors
/// Anything that keeps the command from its work, in one line.
pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Import(args) => run_import(&args),
        Command::Fit(args) => run_fit(&args),
        Command::Validate(args) => run_validate(&args),
        Command::Published(args) => published::published(&args),
        Command::Seal(args) => sealed::run_seal(&args),
        Command::Sealed(args) => sealed::run_sealed(&args),
        Command::Show(args) => run_show(&args),
        Command::Status(args) => campaign::status(&args),
        Command::Plan(args) => campaign::plan(&args),
        Command::Run(args) => campaign::run(&args),
        Command::Choices(args) => campaign::choices(&args),
        Command::All(args) => all::all(&args),
        Command::Measure(args) => machine::measure(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Detect(args) => machine::detect(&args),
        Command::Host(args) => host::host(&args),
        Command::Check(args) => machine::check(&args),
        Command::Restore(args) => machine::restore(&args),
        Command::Guardian(args) => machine::guardian(&args),
    }
}

/// What was typed does not go together.
fn misuse(message: &str) -> anyhow::Error {
    Cli::command().error(ErrorKind::ArgumentConflict, message).into()
}

/// Prints to standard output; who closed it has seen enough.
fn print(text: &str) -> Result<()> {
    Ok(joulecast_reports::print(text.as_bytes())?)
}

/// Prints a result in a form that it has.
fn show(result: &(impl Export + ?Sized), format: Format) -> Result<()> {
    print(&result.export(format)?)
}

fn run_import(args: &Import) -> Result<()> {
    let format = match (args.format, &args.mapping) {
        (ImportFormat::Deepbench, None) => import::Format::Deepbench,
        (ImportFormat::Neusight, None) => import::Format::Neusight,
        (ImportFormat::Torch, None) => import::Format::Torch,
        (ImportFormat::Aiconfigurator, None) => import::Format::Aiconfigurator,
        (ImportFormat::Table, Some(path)) => {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            import::Format::Table(Box::new(Mapping::from_toml(&text).with_context(|| path.display().to_string())?))
        }
        (ImportFormat::Table, None) => return Err(misuse("import table needs --mapping FILE")),
        (_, Some(_)) => return Err(misuse("--mapping goes with import table only")),
    };
    let files = match args.format {
        ImportFormat::Aiconfigurator => {
            args.files.iter().map(|path| aiconfigurator::files(path)).collect::<Result<Vec<_>>>()?.concat()
        }
        _ => args.files.clone(),
    };
    for file in &files {
        let report = import(file, &format, args.gpu.as_deref(), &args.dataset.dataset)?;
        let known = if report.known { " (imported before: nothing written)" } else { "" };
        print(&format!("{}: {} rows, {} of them flagged{known}\n", file.display(), report.rows, report.flagged))?;
        for (reason, count) in report.skipped {
            print(&format!("  skipped {count}: {reason}\n"))?;
        }
    }
    Ok(())
}

/// What a fit corrects by its rows.
enum Base {
    /// Nothing: the rows are fitted alone.
    None,
    /// The models of all chips.
    All(Calibration),
    /// The models of the rows' chip.
    Chip(Calibration),
}

/// The base that is asked for, or the nearest that there is.
fn base_of(args: &Fit, read: Read<'_>) -> Result<Base> {
    let of = |calibration: Calibration| match calibration.chip == ANY_CHIP {
        true => Base::All(calibration),
        false => Base::Chip(calibration),
    };
    let whole = args.evaluation || !args.networks.is_empty() || args.model == ModelForm::Neuralpower;
    match args.base.as_str() {
        "none" => Ok(Base::None),
        "auto" if whole => Ok(Base::None),
        "auto" => {
            let measurements = read()?;
            let own = measurements.iter().all(|m| m.regime != Regime::Import && m.source != SIMULATED);
            let boards: BTreeSet<&str> = measurements.iter().map(|m| m.gpu.as_str()).collect();
            let [board] = boards.into_iter().collect::<Vec<_>>()[..] else { return Ok(Base::None) };
            let chip = catalog::gpu(board)?.chip;
            Ok(catalog::calibration(&chip)?.filter(|_| own).map_or(Base::None, Base::Chip))
        }
        _ if args.evaluation => Err(misuse("--base goes without --evaluation")),
        "universal" => Ok(of(catalog::all_chips()?)),
        path => {
            let text = fs::read_to_string(path).with_context(|| path.to_string())?;
            Ok(of(Calibration::from_toml(&text).with_context(|| path.to_string())?))
        }
    }
}

/// What a fit made.
struct Fitted {
    /// Names of files, and their texts.
    files: Vec<(String, String)>,
    /// What to tell of it.
    said: String,
}

/// Fits measurements.
fn fitted(args: &Fit, read: Read<'_>) -> Result<Fitted> {
    let runs = read_runs(&args.networks)?;
    let further = networks::layers_beside(&runs)?;
    let unseen = Unseen::of(args.evaluation, &further);
    let base = base_of(args, read)?;
    if !args.dataset.choices.is_empty() && !matches!((args.model, &base), (ModelForm::Lasso, Base::None)) {
        return Err(misuse("--choices goes with --base none and --model lasso: other fits learn no engines"));
    }
    let choices = choices_of(&args.dataset, read, unseen)?;
    let rows = || prepared(read, unseen, &choices);
    let mut said = in_words(&choices);
    if choices.is_empty() && !args.dataset.choices.is_empty() {
        said = format!(
            "--choices: too few answers to learn engines from; a phase and arithmetic takes about {FEWEST_ANSWERS}\n"
        );
    }
    let files: Vec<(String, String)> = match (args.model, &base) {
        (ModelForm::Neuralpower, Base::All(_) | Base::Chip(_)) => bail!("--base goes with --model lasso"),
        (ModelForm::Lasso, Base::All(base)) => {
            let calibrations = recipe::few_shot(&alike_rows(read, Unseen::None)?, base)?;
            let file = |c: &Calibration| Ok((c.chip.to_lowercase(), c.to_toml()?));
            calibrations.iter().map(file).collect::<Result<_>>()?
        }
        (ModelForm::Lasso, Base::Chip(base)) => {
            let all_chips = catalog::all_chips()?;
            let (calibration, brought) = over_chip(&read()?, base, &all_chips, &Options::default())?;
            said = brought.text();
            vec![(calibration.chip.to_lowercase(), calibration.to_toml()?)]
        }
        (ModelForm::Lasso, Base::None) => {
            let bar = FitBar::new(args.quiet);
            let options = Options { seed: args.seed, bar: Some(&bar), ..Options::default() };
            // Before there are rows of the other form, for there are as many of each as of measurements.
            let any = recipe::of_any_chip(&alike_rows(read, unseen)?)?;
            let Rows { rows, measurements } = rows()?;
            let mut calibrations =
                recipe::calibrations(&rows, any, &measurements, &choices, &options, args.evaluation)?;
            spread::add(&runs, &args.sealed, &mut calibrations)?;
            if args.evaluation {
                let hash = recipe::held_out_hash(&further)?;
                calibrations.iter_mut().for_each(|c| c.held_out_hash = Some(hash.clone()));
            }
            if calibrations.iter().all(|c| c.power.is_none() || c.chip == ANY_CHIP) {
                said += "no energy among the rows: power is by the shipped law of all chips\n";
            }
            if calibrations.iter().all(|c| c.models.is_empty()) {
                let fewest = task::FEWEST_ROWS;
                bail!("{} usable rows: no kind, phase and precision has the {fewest} that a model needs", rows.len());
            }
            calibrations
                .iter()
                .map(|c| {
                    let name = if c.chip == ANY_CHIP { "all_chips".to_string() } else { c.chip.to_lowercase() };
                    Ok((name, c.to_toml()?))
                })
                .collect::<Result<_>>()?
        }
        (ModelForm::Neuralpower, Base::None) => crate::fit::neuralpower::files(&rows()?.rows)?,
    };
    Ok(Fitted { files: files.into_iter().map(|(name, text)| (format!("{name}.toml"), text)).collect(), said })
}

/// Says before minutes of fitting what would keep another fit from being written after them.
fn warn_of_earlier(args: &Fit) {
    let Ok(entries) = fs::read_dir(&args.out) else { return };
    let earlier = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|e| e == "toml")).count();
    if earlier > 0 && !args.force {
        let out = args.out.display();
        joulecast_reports::say(format!(
            "{out} holds an earlier fit ({earlier} files): another one is not written there without --force"
        ));
    }
}

fn run_fit(args: &Fit) -> Result<()> {
    warn_of_earlier(args);
    let Fitted { files, said } = fitted(args, &|| read_unique(&args.dataset.dataset))?;
    print(&said)?;
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let files: Vec<(PathBuf, String)> = files.into_iter().map(|(name, text)| (args.out.join(name), text)).collect();
    // All are looked at before the first is written: a folder holds one fit, or none of it.
    let differs = |(path, text): &&(PathBuf, String)| fs::read(path).is_ok_and(|old| old != text.as_bytes());
    if let (Some((path, _)), false) = (files.iter().find(differs), args.force) {
        bail!("{} exists and differs; --force puts the new fit there", path.display());
    }
    for (path, text) in files {
        match whole::write_new(&path, &text, args.force)? {
            Done::Unchanged => print(&format!("{}: unchanged\n", path.display()))?,
            Done::Written => print(&format!("{}: written, {} bytes\n", path.display(), text.len()))?,
        }
    }
    Ok(())
}

/// The rows of the GPUs and kinds that are asked for.
fn selected(args: &Validate, all: &[Row]) -> Result<Vec<Row>> {
    let mut rows = all.to_vec();
    rows.retain(|r| args.gpu.is_empty() || args.gpu.iter().any(|gpu| r.chip == gpu.chip));
    rows.retain(|r| args.kind.is_empty() || args.kind.iter().any(|k| k == r.kind));
    if rows.is_empty() {
        return Err(NoRows::Selection("rows of that GPU and kind in these datasets".to_string()).into());
    }
    Ok(rows)
}

fn run_validate(args: &Validate) -> Result<()> {
    if let Some(folder) = &args.report {
        return report::write(args, folder);
    }
    if args.layers && !args.networks.is_empty() {
        return Err(misuse("--layers and --networks go together in a report only: add --report DIR"));
    }
    if !args.networks.is_empty() {
        return validate_networks(args);
    }
    if args.leave_one_chip_out {
        return validate_chips(args);
    }
    if args.siblings {
        return validate_siblings(args);
    }
    let Rows { rows: all, measurements, .. } = rows_for(&args.dataset, Unseen::of(args.evaluation, &[]))?;
    let rows = selected(args, &all)?;
    let bar = FitBar::new(args.quiet);
    let options = Options { bar: Some(&bar), ..Options::default() };
    if args.levels {
        let learned = learning::levels(&rows, &options)?;
        drop(bar);
        return show(learned.as_slice(), args.format);
    }
    let held_out = match &args.calibrations {
        Some(folder) => given::predicted(&rows, &measurements, &joulecast_reports::given::calibrations(folder)?)?,
        None => validate::held_out(&rows, &all, &options, args.seeds)?,
    };
    let lines = validate::lines(&rows, &held_out, &options);
    let curves = if args.curves { learning::curves(&rows, &held_out, &options)? } else { Vec::new() };
    drop(bar);
    if let Some(path) = &args.residuals {
        validate::write(&rows, &held_out, path)?;
    }
    let mut powers = Vec::new();
    if args.calibrations.is_none() {
        for (chip, rows) in power::rows(&measurements, &rows)? {
            if let Some((_, held_out)) = power::fit(&rows, &Options::default())? {
                powers.extend(power::lines(&chip, &rows, &held_out));
            }
        }
    }
    let page = HeldOut {
        lines: &lines,
        coverage: &validate::coverage(&rows, &held_out),
        curves: &curves,
        power: &powers,
        seeds: args.seeds,
        evaluation: args.evaluation,
    };
    show(&page, args.format)
}

fn validate_siblings(args: &Validate) -> Result<()> {
    let Rows { rows, .. } = rows_for(&args.dataset, Unseen::of(args.evaluation, &[]))?;
    let tasks = task::tasks(&rows);
    let boards = siblings::left_out(&tasks, &Options::default())?;
    let Some(all) = siblings::quantiles(&boards) else {
        return Err(NoRows::Selection("chip with rows of several boards in these datasets".to_string()).into());
    };
    let mut own = BTreeMap::new();
    for level in [Level::Quick, Level::Standard] {
        let plan = trials::expand(trials::REFERENCE, level)?;
        let ids = plan.items.into_iter().map(|item| item.trial_id).collect();
        own.insert(level.name(), siblings::with_own_rows(&boards, &ids)?);
    }
    show(&reports::siblings::LeftOut { boards: &siblings::lines(&boards, &own), all }, args.format)
}

fn validate_chips(args: &Validate) -> Result<()> {
    let rows = alike_rows(&|| read_unique(&args.dataset.dataset), Unseen::of(args.evaluation, &[]))?;
    if args.trials {
        return show(leave_out::trials(&rows).as_slice(), args.format);
    }
    let lines = leave_out::chips(&rows, args.seeds)?;
    let trials = if args.format == Format::Markdown { leave_out::trials(&rows) } else { Vec::new() };
    let (seeds, evaluation) = (args.seeds, args.evaluation);
    show(&chips::LeftOut { lines: &lines, trials: &trials, seeds, evaluation }, args.format)
}

/// Calibrations without the shapes of networks that are held out: those of a folder, or fitted now.
fn evaluation_calibrations(args: &Validate, runs: &[networks::Run]) -> Result<Vec<Calibration>> {
    match &args.calibrations {
        Some(folder) => Ok(joulecast_reports::given::calibrations(folder)?),
        None => {
            let further = networks::layers_beside(runs)?;
            let unseen = Unseen::HeldOutAnd(&further);
            let read = || read_unique(&args.dataset.dataset);
            let choices = choices_of(&args.dataset, &read, unseen)?;
            let bar = FitBar::new(args.quiet);
            let options = Options { bar: Some(&bar), ..Options::default() };
            let any = recipe::of_any_chip(&alike_rows(&read, unseen)?)?;
            let Rows { rows, measurements } = prepared(&read, unseen, &choices)?;
            recipe::calibrations(&rows, any, &measurements, &choices, &options, true)
        }
    }
}

/// What files lack where no run of theirs is predicted.
fn networks_role(role: Option<Role>) -> String {
    let role = role.map_or(String::new(), |r| format!(" with the role {r}"));
    format!("run of a network that the catalog knows{role} in these files")
}

fn validate_networks(args: &Validate) -> Result<()> {
    let runs = read_runs(&args.networks)?;
    let calibrations = evaluation_calibrations(args, &runs)?;
    let framework = host::through(args.framework.as_deref().unwrap_or("cudnn"), args.host.as_deref())?;
    if args.activity {
        return show(activity::tables(&runs, &calibrations, &framework)?.as_slice(), args.format);
    }
    let compared = networks::compare_through(&runs, &calibrations, &framework, args.role)?;
    if compared.is_empty() {
        return Err(NoRows::Selection(networks_role(args.role)).into());
    }
    show(&Networks { runs: &compared, every: args.rows }, args.format)
}

fn run_show(args: &Show) -> Result<()> {
    let text = match names::shipped(&args.name) {
        Some(text) => text.to_string(),
        None => fs::read_to_string(&args.name).with_context(|| args.name.clone())?,
    };
    let calibration = Calibration::from_toml(&text).with_context(|| args.name.clone())?;
    if let Some(kind) = &args.kind {
        names::model_kind(kind, &calibration).map_err(|e| misuse(&e))?;
    }
    print(&joulecast_reports::calibration::explain(&calibration, args.kind.as_deref()))
}
