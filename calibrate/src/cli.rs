//! The command line of `calibrate`.

mod campaign;
mod machine;
mod published;

use crate::fit::Options;
use crate::import::{Format, import};
use crate::rows::{Row, prepare};
use crate::{dataset, learning, networks, power, recipe, validate};
use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use joulecast_model::calibration::Calibration;
use joulecast_model::catalog;
use joulecast_model::import::table::Mapping;
use joulecast_model::measurement::Measurement;
use joulecast_model::splits::Role;
use joulecast_reports::accuracy;
use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Measured layers into calibrations.
#[derive(Parser)]
#[command(name = "calibrate", version, about, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  calibrate import deepbench DeepBench_NV_V100.xlsx
  calibrate import neusight conv.csv linear.csv bmm.csv
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
    /// Explain a calibration term by term
    Show(Show),
    /// What a dataset holds, and how good it is
    Status(campaign::StatusArgs),
    /// Expand a recipe into the trials to measure
    Plan(campaign::PlanArgs),
    /// Measure the trials of a plan on a device
    Run(campaign::RunArgs),
    /// Measure whole networks, or their layers one by one
    Measure(machine::MeasureArgs),
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
}

#[derive(Clone, Copy, ValueEnum)]
enum ImportFormat {
    /// DeepBench's workbooks
    Deepbench,
    /// NeuSight's original CSV files
    Neusight,
    /// Any CSV of layer times, read by a mapping
    Table,
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
    #[arg(long, value_name = "NAME")]
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
    /// Leave out every shape that occurs in a network with the role `test`
    #[arg(long)]
    evaluation: bool,
    /// Replace calibrations that are there and differ
    #[arg(long)]
    replace: bool,
    /// Seed of the folds
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Markdown,
    Json,
}

#[derive(Args)]
struct Validate {
    /// Layer times (and power, where measured), grouped 5-fold over all rows
    #[arg(long, required_unless_present = "networks")]
    layers: bool,
    /// Whole networks measured in these files (columns as `calibrate measure` writes them), predicted by a fit without
    /// the shapes of test networks
    #[arg(long, value_name = "FILE", conflicts_with = "layers")]
    networks: Vec<PathBuf>,
    /// Calibrations to predict networks with (as `fit --evaluation` writes them) instead of fitting them now
    #[arg(long, value_name = "DIR")]
    calibrations: Option<PathBuf>,
    /// Framework profile of the networks' runs
    #[arg(long, value_name = "NAME", default_value = "cudnn")]
    framework: String,
    /// Only networks with this role (test, conformal, profile)
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Every run, not only their means
    #[arg(long)]
    rows: bool,
    #[command(flatten)]
    dataset: DatasetsArg,
    /// Only the chip of this GPU; may be repeated
    #[arg(long, value_name = "NAME")]
    gpu: Vec<String>,
    /// Only this layer kind; may be repeated
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Number of fold seeds; with several, mean and standard deviation are shown
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Leave out every shape that occurs in a network with the role `test`
    #[arg(long)]
    evaluation: bool,
    /// Error of each kind of layer when only the trials of quick, standard or reference are learned from
    #[arg(long)]
    levels: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table)]
    format: Output,
}

#[derive(Args)]
struct Show {
    /// A GPU or chip with a shipped calibration, or a calibration file
    name: String,
    /// Only this layer kind
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
        Command::Show(args) => run_show(&args),
        Command::Status(args) => campaign::status(&args),
        Command::Plan(args) => campaign::plan(&args),
        Command::Run(args) => campaign::run(&args),
        Command::Measure(args) => machine::measure(&args),
        Command::Check(args) => machine::check(&args),
        Command::Restore(args) => machine::restore(&args),
        Command::Guardian(args) => machine::guardian(&args),
    }
}

/// Prints to standard output; a closed pipe ends the program quietly.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn run_import(args: &Import) -> Result<()> {
    let format = match (args.format, &args.mapping) {
        (ImportFormat::Deepbench, None) => Format::Deepbench,
        (ImportFormat::Neusight, None) => Format::Neusight,
        (ImportFormat::Table, Some(path)) => {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Format::Table(Box::new(Mapping::from_toml(&text).with_context(|| path.display().to_string())?))
        }
        (ImportFormat::Table, None) => bail!("import table needs --mapping FILE"),
        (_, Some(_)) => bail!("--mapping goes with import table only"),
    };
    for file in &args.files {
        let report = import(file, &format, args.gpu.as_deref(), &args.dataset.dataset)?;
        let known = if report.known { " (imported before: nothing written)" } else { "" };
        print(&format!("{}: {} rows, {} of them flagged{known}\n", file.display(), report.rows, report.flagged))?;
        for (reason, count) in report.skipped {
            print(&format!("  skipped {count}: {reason}\n"))?;
        }
    }
    Ok(())
}

/// There are no imported rows to judge by: its own exit status, since nothing is wrong with the program.
#[derive(Debug)]
pub struct NoRows(PathBuf);

impl std::fmt::Display for NoRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no imported rows at {}: clone the repositories that data/published/sources.toml names and import their files (README.md, Calibrations)",
            self.0.display()
        )
    }
}

impl std::error::Error for NoRows {}

/// Rows of datasets without exact repeats: a file may have been imported in two forms.
fn read_unique(folders: &[PathBuf]) -> Result<Vec<Measurement>> {
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for folder in folders {
        if !folder.exists() {
            return Err(NoRows(folder.clone()).into());
        }
        rows.extend(dataset::read(folder)?);
    }
    rows.retain(|r| {
        let identity =
            (r.gpu.clone(), r.case.fold_key(), r.batch, r.phase, r.precision, r.layout.clone(), r.time_s.to_bits());
        seen.insert(identity)
    });
    Ok(rows)
}

/// Rows ready for fitting, and the measurements behind them.
fn rows_for(datasets: &DatasetsArg, evaluation: bool) -> Result<(Vec<Row>, Vec<Measurement>)> {
    let measurements = read_unique(&datasets.dataset)?;
    let rows = prepare(&measurements)?;
    Ok((if evaluation { recipe::without_test_shapes(rows)? } else { rows }, measurements))
}

fn run_fit(args: &Fit) -> Result<()> {
    let (rows, measurements) = rows_for(&args.dataset, args.evaluation)?;
    let files: Vec<(String, String)> = match args.model {
        ModelForm::Lasso => {
            let options = Options { seed: args.seed, ..Options::default() };
            let calibrations = recipe::calibrations(&rows, &measurements, &options, args.evaluation)?;
            if calibrations.iter().all(|c| c.models.is_empty()) {
                let fewest = recipe::FEWEST_ROWS;
                bail!("{} usable rows: no kind, phase and precision has the {fewest} that a model needs", rows.len());
            }
            calibrations
                .iter()
                .map(|c| {
                    let name = if c.chip == "any" { "roofline".to_string() } else { c.chip.to_lowercase() };
                    Ok((name, c.to_toml()?))
                })
                .collect::<Result<_>>()?
        }
        ModelForm::Neuralpower => crate::neuralpower::files(&rows)?,
    };
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    for (name, text) in files {
        let path = args.out.join(format!("{name}.toml"));
        match fs::read_to_string(&path) {
            Ok(old) if old == text => print(&format!("{}: unchanged\n", path.display()))?,
            Ok(_) if !args.replace => bail!("{} exists and differs; --replace puts the new fit there", path.display()),
            _ => {
                write_whole(&path, &text)?;
                print(&format!("{}: written, {} bytes\n", path.display(), text.len()))?;
            }
        }
    }
    Ok(())
}

fn write_whole(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).with_context(|| path.display().to_string())?;
    Ok(())
}

fn run_validate(args: &Validate) -> Result<()> {
    if !args.networks.is_empty() {
        return validate_networks(args);
    }
    let (mut rows, measurements) = rows_for(&args.dataset, args.evaluation)?;
    let chips = args.gpu.iter().map(|name| Ok(catalog::gpu(name)?.chip)).collect::<Result<Vec<_>>>()?;
    rows.retain(|r| chips.is_empty() || chips.contains(&r.chip));
    rows.retain(|r| args.kind.is_empty() || args.kind.iter().any(|k| k == r.kind));
    if rows.is_empty() {
        bail!("no rows of that GPU and kind");
    }
    if args.levels {
        let table = learning::levels(&rows, &Options::default())?;
        return print(&match args.format {
            Output::Markdown => table.to_markdown(),
            Output::Table | Output::Json => table.to_text(),
        });
    }
    let lines = validate::layers(&rows, &Options::default(), args.seeds)?;
    print(&match args.format {
        Output::Table => accuracy::table(&lines).to_text(),
        Output::Markdown => accuracy::page(&lines, args.seeds, args.evaluation),
        Output::Json => serde_json::to_string_pretty(&lines)? + "\n",
    })?;
    for (chip, rows) in power::rows(&measurements, &rows)? {
        if let Some((_, held_out)) = power::fit(&rows, &Options::default()) {
            let table = power::table(&chip, &rows, &held_out);
            match args.format {
                Output::Table => print(&format!("\n{}", table.to_text()))?,
                Output::Markdown => print(&format!("\n{}", table.to_markdown()))?,
                Output::Json => {}
            }
        }
    }
    Ok(())
}

fn validate_networks(args: &Validate) -> Result<()> {
    let calibrations: Vec<Calibration> = match &args.calibrations {
        Some(folder) => networks::read_calibrations(folder)?,
        None => {
            let (rows, measurements) = rows_for(&args.dataset, true)?;
            recipe::calibrations(&rows, &measurements, &Options::default(), true)?
        }
    };
    let role = match &args.role {
        Some(name) => Some(Role::from_name(name).with_context(|| format!("no role named \"{name}\""))?),
        None => None,
    };
    let mut runs = Vec::new();
    for file in &args.networks {
        runs.extend(networks::read_runs(file)?);
    }
    let compared = networks::compare(&runs, &calibrations, &args.framework, role)?;
    if compared.is_empty() {
        bail!(
            "no run of a network that the catalog knows{} in these files",
            args.role.as_ref().map_or(String::new(), |r| format!(" with the role {r}"))
        );
    }
    let table = if args.rows { networks::rows_table(&compared) } else { networks::table(&compared) };
    print(&match args.format {
        Output::Markdown => table.to_markdown(),
        Output::Table => table.to_text(),
        Output::Json => serde_json::to_string_pretty(&compared)? + "\n",
    })
}

fn run_show(args: &Show) -> Result<()> {
    let path = Path::new(&args.name);
    let text = if path.extension().is_some() {
        fs::read_to_string(path).with_context(|| args.name.clone())?
    } else {
        let chip = catalog::gpu(&args.name).map_or_else(|_| args.name.clone(), |gpu| gpu.chip);
        let wanted = chip.to_lowercase();
        let shipped = catalog::calibrations().iter().find(|(name, _)| *name == wanted);
        shipped.with_context(|| format!("no calibration for {}", args.name))?.1.to_string()
    };
    let calibration = Calibration::from_toml(&text).with_context(|| args.name.clone())?;
    print(&joulecast_reports::calibration::explain(&calibration, args.kind.as_deref()))
}
