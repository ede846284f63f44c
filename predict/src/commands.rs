//! What the commands do: read, predict, print.

use crate::cli::{Cli, Counting, DescribeArgs, DescribeFormat, Format, Listing, NetworkArgs, PredictArgs};
use crate::terminal;
use anyhow::{Context, Result, anyhow};
use clap::CommandFactory;
use joulecast_model::calibration::{ANY_CHIP, Calibration, Wanted};
use joulecast_model::catalog;
use joulecast_model::framework::Framework;
use joulecast_model::gpu::Gpu;
use joulecast_model::network::{Network, ShapedNetwork};
use joulecast_model::precision::Precision;
use joulecast_model::predictor::{PredictError, Setup, Step};
use joulecast_model::trial::Algorithm;
use joulecast_reports::prediction::{self, Asked};
use joulecast_reports::table::Table;
use joulecast_reports::{describe as describe_report, table};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Why a command ended without its result.
pub enum Failure {
    /// The arguments are wrong.
    Usage(anyhow::Error),
    /// Something else went wrong.
    Failed(anyhow::Error),
}

/// No network, device or calibration file is larger.
const MOST_BYTES: u64 = 16 << 20;

/// Whether an argument means a file rather than a built-in name.
fn is_file(argument: &str) -> bool {
    argument.contains(['/', '\\']) || argument.ends_with(".toml") || argument.ends_with(".onnx")
}

pub fn read(path: &str) -> Result<String> {
    let metadata = fs::metadata(path).with_context(|| path.to_string())?;
    if !metadata.is_file() {
        return Err(anyhow!("{path} is not a regular file"));
    }
    let mut text = String::new();
    let file = fs::File::open(path).with_context(|| path.to_string())?;
    file.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(|| path.to_string())?;
    if text.len() as u64 > MOST_BYTES {
        return Err(anyhow!("{path}: more than {MOST_BYTES} bytes, which no such file has"));
    }
    Ok(text)
}

/// A network of the zoo or a file, and which of the two.
pub fn network(name: &str) -> Result<(Network, &'static str), Failure> {
    if is_file(name) {
        let read = || -> Result<Network> { Network::from_toml(&read(name)?).with_context(|| name.to_string()) };
        return Ok((read().map_err(Failure::Failed)?, "file"));
    }
    Ok((catalog::network(name).map_err(|e| Failure::Usage(e.into()))?, "zoo"))
}

/// A GPU of the catalog or a file.
pub fn gpu(name: &str) -> Result<Gpu, Failure> {
    if is_file(name) {
        let read = || -> Result<Gpu> { Gpu::from_toml(&read(name)?).with_context(|| name.to_string()) };
        return read().map_err(Failure::Failed);
    }
    catalog::gpu(name).map_err(|e| Failure::Usage(e.into()))
}

/// What a prediction rests on: the chip's calibration, the efficiencies over all chips, and what to tell of a file.
pub struct Calibrations {
    pub chip: Option<Calibration>,
    pub roofline: Calibration,
    note: Option<String>,
}

impl Calibrations {
    pub fn built_in(gpu: &Gpu, wanted: &Wanted<'_>) -> Result<Self> {
        let (chip, roofline) = catalog::calibrations_for(gpu, wanted)?;
        Ok(Self { chip, roofline, note: None })
    }

    /// A file of the chip's calibration, or of efficiencies over all chips; with the latter it is as if no layer of the
    /// GPU had been measured.
    fn of_file(path: &Path, gpu: &Gpu) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let read = || -> Result<_> {
            let calibration = Calibration::from_toml(&read(&name)?).with_context(|| name.clone())?;
            Ok((calibration, catalog::roofline()?))
        };
        let (calibration, roofline) = read().map_err(Failure::Failed)?;
        if calibration.chip == ANY_CHIP {
            let note = format!(
                "{name} holds efficiencies over all measured GPUs: predicted as if no layer of {} had been measured",
                gpu.name
            );
            return Ok(Self { chip: None, roofline: calibration, note: Some(note) });
        }
        if calibration.chip != gpu.chip {
            let (theirs, ours) = (&calibration.chip, &gpu.chip);
            return Err(Failure::Usage(anyhow!("{name} is for chip {theirs}, but {} is a {ours}", gpu.name)));
        }
        Ok(Self { chip: Some(calibration), roofline, note: None })
    }
}

fn shape(network: &Network, args: &NetworkArgs, batch: u64, precision: Precision) -> Result<ShapedNetwork, Failure> {
    ShapedNetwork::new(network, batch, precision, &args.input)
        .with_context(|| network.name.clone())
        .map_err(if args.input.is_empty() { Failure::Failed } else { Failure::Usage })
}

/// Prints, or writes a file whole: under another name beside it first, so that nothing half-written is left. A
/// link is followed, permissions stay; a device or pipe is written to as it is.
pub fn emit(text: &str, output: Option<&Path>) -> Result<()> {
    let path = match output {
        Some(path) if path != Path::new("-") => path,
        _ => {
            let text = if terminal::has_colours() { terminal::paint(text) } else { text.to_string() };
            return match std::io::stdout().write_all(text.as_bytes()) {
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                other => Ok(other?),
            };
        }
    };
    let shown = || path.display().to_string();
    let existing = fs::metadata(path).ok();
    if existing.as_ref().is_some_and(|m| !m.is_file()) {
        let mut file = fs::OpenOptions::new().write(true).open(path).with_context(shown)?;
        return file.write_all(text.as_bytes()).with_context(shown);
    }
    if existing.as_ref().is_some_and(|m| m.permissions().readonly()) {
        return Err(anyhow!("{} is read-only", path.display()));
    }
    let target = if existing.is_some() { path.canonicalize().with_context(shown)? } else { path.to_path_buf() };
    let mut name = target.file_name().with_context(|| format!("{} is not a file name", path.display()))?.to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let temporary = target.with_file_name(name);
    let write = || {
        fs::write(&temporary, text)?;
        if let Some(existing) = existing {
            fs::set_permissions(&temporary, existing.permissions())?;
        }
        fs::rename(&temporary, &target)
    };
    let result = write();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result.with_context(shown)
}

/// The command line as it was typed, for what it made; a word that a shell would take apart is quoted.
pub fn command_line() -> String {
    let quoted = |word: String| {
        let plain = word.chars().all(|c| c.is_alphanumeric() || "-_./,:=%+".contains(c)) && !word.is_empty();
        if plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let words = std::env::args_os().skip(1).map(|w| quoted(w.to_string_lossy().into_owned()));
    std::iter::once("predict".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

/// What the arguments of a prediction name, read.
pub struct Parts {
    network: Network,
    source: &'static str,
    pub gpu: Gpu,
    calibrations: Calibrations,
    pub framework: Framework,
}

impl Parts {
    /// Of one of the networks that are named.
    pub fn read(args: &PredictArgs, net: &str) -> Result<Self, Failure> {
        let gpu = gpu(args.gpu.as_deref().unwrap_or_default())?;
        let mut framework = Framework::named(&args.framework).map_err(|e| Failure::Usage(anyhow!(e)))?;
        framework.algorithm = asked_algorithm(args)?;
        let (network, source) = network(net)?;
        let calibrations = match &args.calibration {
            Some(path) => Calibrations::of_file(path, &gpu)?,
            None => {
                let (precision, mode, algorithm) = (args.precision, args.mode, framework.algorithm);
                let wanted = Wanted { precision, mode, framework: &framework.name, algorithm };
                Calibrations::built_in(&gpu, &wanted).map_err(Failure::Failed)?
            }
        };
        Ok(Self { network, source, gpu, calibrations, framework })
    }

    pub fn network(&self, args: &PredictArgs, batch: u64) -> Result<ShapedNetwork, Failure> {
        shape(&self.network, &args.network, batch, args.precision)
    }

    pub fn setup(&self, args: &PredictArgs) -> Setup<'_> {
        Setup {
            gpu: &self.gpu,
            calibration: self.calibrations.chip.as_ref(),
            roofline: &self.calibrations.roofline,
            framework: &self.framework,
            launch: args.launch.unwrap_or_else(|| self.framework.usual_launch()),
            mode: args.mode,
            phases: args.mode.phases(),
            library: args.cudnn,
        }
    }
}

fn asked_algorithm(args: &PredictArgs) -> Result<Option<Algorithm>, Failure> {
    match args.conv_algorithm {
        None | Some(Algorithm::Heuristic) => Ok(None),
        Some(_) if args.precision != Precision::Fp32 => Err(Failure::Usage(anyhow!(
            "--conv-algorithm: algorithms were measured in fp32 alone, not in {}",
            args.precision
        ))),
        asked => Ok(asked),
    }
}

/// What the hardware does not do is for the user to ask otherwise; the rest is not.
pub fn refused(error: PredictError) -> Failure {
    match error {
        PredictError::Precision { .. } | PredictError::Operating(_) => Failure::Usage(error.into()),
        _ => Failure::Failed(error.into()),
    }
}

/// `predict --net … --gpu … --batch …`
pub fn predict(args: &PredictArgs) -> Result<(), Failure> {
    let parts = Parts::read(args, args.network.net.as_deref().unwrap_or_default())?;
    let typed = args.gpu.as_deref().unwrap_or_default();
    let network = parts.network(args, args.batch.unwrap_or(1))?;
    let setup = parts.setup(args);
    let step = Step::new(&network, &setup).map_err(refused)?;
    let mut prediction = step.at(args.operating.point()).map_err(refused)?;
    prediction.warnings.splice(..0, parts.calibrations.note.clone());
    if args.require_fit && !prediction.fits_in_memory {
        let why = anyhow!("{} at batch {} does not fit in the memory of {typed}", prediction.network, prediction.batch);
        return Err(Failure::Failed(why));
    }
    let Parts { gpu, source, framework, .. } = &parts;
    let asked = Asked { gpu: typed, source, framework: &framework.name, launch: setup.launch };
    let render = || -> Result<()> {
        let text = match args.format {
            Format::Table => prediction::text(&prediction, gpu, &asked, args.layers),
            Format::Markdown => prediction::markdown(&prediction, gpu, &asked, args.layers),
            Format::Json => prediction::json(&prediction, gpu, &asked)?,
            Format::Csv => prediction::csv(&prediction, gpu, &asked)?,
        };
        emit(&text, args.output.as_deref())
    };
    render().map_err(Failure::Failed)
}

/// `predict describe`
pub fn describe(args: &DescribeArgs) -> Result<(), Failure> {
    let batch = if args.counting == Counting::Castro2018 { 1 } else { args.batch };
    let network =
        shape(&network(args.network.net.as_deref().unwrap_or_default())?.0, &args.network, batch, args.precision)?;
    let table = match args.counting {
        Counting::Own => describe_report::table(&network),
        Counting::Castro2018 => describe_report::castro_table(&network),
    };
    let text = match args.format {
        DescribeFormat::Table => table.to_text(),
        DescribeFormat::Markdown => table.to_markdown(),
    };
    emit(&text, None).map_err(Failure::Failed)
}

/// `predict list`
pub fn list(what: Listing) -> Result<(), Failure> {
    let table = match what {
        Listing::Nets => nets(),
        Listing::Gpus => gpus(),
        Listing::Calibrations => calibrations(),
    };
    table.and_then(|t| emit(&t.to_text(), None)).map_err(Failure::Failed)
}

fn nets() -> Result<Table> {
    let splits = catalog::splits().map_err(|e| anyhow!(e))?;
    let mut table =
        Table::new(&["name", "role", "input", "layers", "parameters", "GMAC", "title"], 3).with_trailing_text(1);
    for name in catalog::network_names() {
        let network = catalog::network(name)?;
        let shaped = ShapedNetwork::new(&network, 1, Precision::Fp32, &[])?;
        let inputs: Vec<String> = network.inputs.iter().map(|i| format!("{}={}", i.name, i.shape)).collect();
        table.row(vec![
            name.to_string(),
            splits.role(name).map_or(String::new(), |r| format!("{r:?}").to_lowercase()),
            inputs.join(" "),
            shaped.layers().len().to_string(),
            shaped.parameters().to_string(),
            table::significant(shaped.macs() as f64 / 1e9, 3),
            network.title.clone(),
        ]);
    }
    Ok(table)
}

fn gpus() -> Result<Table> {
    let header = ["name", "chip", "layer times", "fp32 TFLOP/s", "GB/s", "GiB", "limit W", "idle W", "also called"];
    let mut table = Table::new(&header, 3).with_trailing_text(1);
    for name in catalog::gpu_names() {
        let gpu = catalog::gpu(name)?;
        let tier = catalog::calibration(&gpu.chip)?.map_or("roofline", |c| c.tier.name());
        table.row(vec![
            name.to_string(),
            gpu.chip.clone(),
            tier.to_string(),
            table::significant(gpu.vector_peak().get() / 1e12, 3),
            table::significant(gpu.bandwidth.value.get() / 1e9, 3),
            table::significant(gpu.memory.value.to_gib(), 3),
            table::significant(gpu.power.limit.value.get(), 3),
            gpu.power.idle.as_ref().map_or("?".into(), |p| table::significant(p.value.get(), 2)),
            gpu.aliases.join(" "),
        ]);
    }
    Ok(table)
}

fn calibrations() -> Result<Table> {
    let mut table = Table::new(&["id", "tier", "models", "rows", "sources", "boards"], 2).with_trailing_text(2);
    for (name, text) in catalog::calibrations() {
        let c = Calibration::from_toml(text).with_context(|| name.to_string())?;
        table.row(vec![
            c.id.clone(),
            c.tier.to_string(),
            c.models.len().to_string(),
            c.models.iter().map(|m| m.rows).sum::<usize>().to_string(),
            c.sources.join(" "),
            if c.chip == ANY_CHIP { "all of these".into() } else { c.boards.join(" ") },
        ]);
    }
    Ok(table)
}

/// `predict completions`
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "predict", &mut script);
    emit(&String::from_utf8_lossy(&script), None).map_err(Failure::Failed)
}
