//! What the commands do: read, predict, print.

use crate::cli::{Cli, Counting, DescribeArgs, Listing, NetworkArgs, PredictArgs};
use crate::generate;
use crate::networks::{bindings, network_of};
use crate::output::OutputArgs;
use crate::parallel::{self, Gpus};
use anyhow::{Context, Result, anyhow};
use clap::CommandFactory;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::device::gpu::{Device, Gpu};
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::law::calibration::{ANY_CHIP, Calibration, Tier, Wanted};
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::rows::splits::Splits;
use joulecast_model::step::framework::{Framework, Launch};
use joulecast_model::step::predictor::Warning;
use joulecast_model::step::predictor::{NetworkPrediction, PredictError, Setup};
use joulecast_model::step::training::Training;
use joulecast_reports::describe as describe_report;
use joulecast_reports::export::Format;
use joulecast_reports::prediction::{Asked, Shown};
use joulecast_reports::table::Table;
use std::fs;
use std::io::Read as _;
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
pub fn is_file(argument: &str) -> bool {
    argument.contains(['/', '\\']) || argument.ends_with(".toml")
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
    pub all_chips: Calibration,
    note: Option<Warning>,
}

impl Calibrations {
    pub fn built_in(gpu: &Gpu, precision: Precision, mode: Mode, framework: &Framework) -> Result<Self, Failure> {
        let wanted = Wanted { precision, mode, framework: &framework.name, algorithm: framework.algorithm() };
        let (chip, all_chips) = catalog::calibrations_for(gpu, &wanted).map_err(|e| Failure::Failed(e.into()))?;
        Ok(Self { chip, all_chips, note: None })
    }

    /// A file of the chip's calibration, or of efficiencies over all chips; with the latter it is as if no layer of the
    /// GPU had been measured.
    fn of_file(path: &Path, gpu: &Gpu) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let read = || -> Result<_> {
            let calibration = Calibration::from_toml(&read(&name)?).with_context(|| name.clone())?;
            Ok((calibration, catalog::all_chips()?))
        };
        let (calibration, all_chips) = read().map_err(Failure::Failed)?;
        if calibration.chip == ANY_CHIP {
            let note = Warning::OfAllChips { file: name, gpu: gpu.name.clone() };
            return Ok(Self { chip: None, all_chips: calibration, note: Some(note) });
        }
        if calibration.chip != gpu.chip {
            let (theirs, ours) = (&calibration.chip, &gpu.chip);
            return Err(Failure::Usage(anyhow!("{name} is for chip {theirs}, but {} is a {ours}", gpu.name)));
        }
        Ok(Self { chip: Some(calibration), all_chips, note: None })
    }
}

fn shape(network: &Network, args: &NetworkArgs, batch: u64, precision: Precision) -> Result<ShapedNetwork, Failure> {
    ShapedNetwork::new(network, batch, precision, bindings(args))
        .with_context(|| network.name.clone())
        .map_err(if args.input.is_empty() && args.sequence.is_none() { Failure::Failed } else { Failure::Usage })
}

/// The command line as it was typed, for what it made; a word that a shell would take apart is quoted.
pub fn command_line() -> String {
    joulecast_reports::command_line("predict", std::env::args_os().skip(1))
}

/// What the arguments of a prediction name, read.
pub struct Parts {
    pub network: Network,
    pub source: &'static str,
    pub gpu: Gpu,
    calibrations: Calibrations,
    pub framework: Framework,
}

impl Parts {
    /// For one kind of GPU, and one of the networks that are named.
    pub fn read(args: &PredictArgs, name: &str, net: &str) -> Result<Self, Failure> {
        let gpu = gpu(name)?;
        let framework = catalog::framework(&args.framework).map_err(|e| Failure::Usage(e.into()))?;
        let mut framework = framework.by(asked_algorithm(args.conv_algorithm, args.precision)?);
        check_algorithm(&gpu, &framework)?;
        if args.mode != Mode::Training && args.training.optimizer.is_some() {
            return Err(Failure::Usage(anyhow!("--optimizer is of a training: --mode training")));
        }
        if args.mode == Mode::Training && args.precision == Precision::Int8 {
            return Err(Failure::Usage(anyhow!("no framework trains in int8: --precision fp16, bf16, tf32 or fp32")));
        }
        if args.best_algorithms {
            framework.rules.clear();
        }
        if gpu.device == Device::Cpu && args.launch == Some(Launch::Graph) {
            return Err(Failure::Usage(anyhow!("{} is a processor: it has no CUDA graphs; --launch eager", gpu.name)));
        }
        let (network, source) = network_of(&args.network, net)?;
        let calibrations = match &args.calibration {
            Some(path) => Calibrations::of_file(path, &gpu)?,
            None => Calibrations::built_in(&gpu, args.precision, args.mode, &framework)?,
        };
        if framework.fusion.is_some() && args.mode == Mode::Training {
            return Err(Failure::Usage(anyhow!("the {} profile is of inference only", framework.name)));
        }
        Ok(Self { network, source, gpu, calibrations, framework })
    }

    pub fn network(&self, args: &PredictArgs, batch: u64) -> Result<ShapedNetwork, Failure> {
        let network = shape(&self.network, &args.network, batch, args.precision)?;
        let network = match args.training.optimizer {
            Some(optimizer) => network.with_optimizer(optimizer),
            None => network,
        };
        Ok(self.framework.runs(network))
    }

    /// What to tell of the calibration.
    pub fn note(&self) -> Option<Warning> {
        self.calibrations.note.clone()
    }

    /// What was typed.
    pub fn asked<'a>(&'a self, args: &'a PredictArgs) -> Asked<'a> {
        Asked {
            gpu: args.gpu.as_deref().unwrap_or_default(),
            source: self.source,
            framework: &self.framework.name,
            launch: self.setup(args).launch,
            training: None,
        }
    }

    pub fn setup(&self, args: &PredictArgs) -> Setup<'_> {
        Setup {
            gpu: &self.gpu,
            calibration: self.calibrations.chip.as_ref(),
            all_chips: &self.calibrations.all_chips,
            framework: &self.framework,
            launch: args.launch.unwrap_or_else(|| self.framework.usual_launch_on(&self.gpu)),
            mode: args.mode,
            phases: args.mode.phases(),
            library: args.cudnn,
        }
    }
}

/// What `--conv-algorithm` means for a precision.
pub fn asked_algorithm(asked: Option<Algorithm>, precision: Precision) -> Result<Option<Algorithm>, Failure> {
    match asked {
        None | Some(Algorithm::Heuristic) => Ok(None),
        Some(_) if precision != Precision::Fp32 => {
            Err(Failure::Usage(anyhow!("--conv-algorithm: algorithms were measured in fp32 alone, not in {precision}")))
        }
        asked => Ok(asked),
    }
}

/// Processors have no algorithms to choose from.
pub fn check_algorithm(gpu: &Gpu, framework: &Framework) -> Result<(), Failure> {
    if gpu.device == Device::Cpu && framework.algorithm().is_some() {
        return Err(Failure::Usage(anyhow!("{} is a processor: --conv-algorithm is of cuDNN", gpu.name)));
    }
    Ok(())
}

/// With `--require-fit`, what does not fit is a failure.
pub fn check_fit(args: &PredictArgs, prediction: &NetworkPrediction) -> Result<(), Failure> {
    if args.require_fit && !prediction.fits_in_memory {
        let gpu = args.gpu.as_deref().unwrap_or_default();
        let why = anyhow!("{} at batch {} does not fit in the memory of {gpu}", prediction.network, prediction.batch);
        return Err(Failure::Failed(why));
    }
    Ok(())
}

/// What the hardware does not do is for the user to ask otherwise; the rest is not.
pub fn refused(error: PredictError) -> Failure {
    match error {
        PredictError::Precision { .. } | PredictError::Operating(_) => Failure::Usage(error.into()),
        _ => Failure::Failed(error.into()),
    }
}

/// The GPUs as typed.
fn typed(args: &PredictArgs) -> String {
    match (&args.gpu, &args.parallel.gpus) {
        (Some(gpu), _) => gpu.clone(),
        (None, Some(Gpus::Kinds(kinds))) => {
            kinds.iter().map(|(n, name)| format!("{n}x{name}")).collect::<Vec<_>>().join(",")
        }
        _ => String::new(),
    }
}

/// `predict --net … --gpu … --batch …`
pub fn predict(args: &PredictArgs) -> Result<(), Failure> {
    args.output.check([])?;
    if args.training.epochs.is_some() && args.mode != Mode::Training {
        return Err(Failure::Usage(anyhow!("--epochs is of a training: --mode training")));
    }
    if let Some(tokens) = args.generate {
        return generate::predict(args, &generate::parts(args)?, tokens);
    }
    let parallel::Asked { mut prediction, parts, waiting } = parallel::step(args)?;
    let plan = args.training.plan(&parts.framework);
    prediction.warnings.extend(plan.and_then(|plan| plan.leftover(prediction.batch)));
    let typed = typed(args);
    check_fit(args, &prediction)?;
    let Parts { gpu, source, framework, .. } = &parts;
    let asked = Asked {
        gpu: &typed,
        source,
        framework: &framework.name,
        launch: args.launch.unwrap_or_else(|| framework.usual_launch_on(gpu)),
        training: plan.map(|plan| Training::of(&prediction, plan, waiting)),
    };
    let shown = Shown { prediction: &prediction, gpu, asked: &asked, layers: args.layers };
    args.output.export(&shown, args.format)
}

/// `predict describe`
pub fn describe(args: &DescribeArgs) -> Result<(), Failure> {
    let batch = if args.counting == Counting::Castro2018 { 1 } else { args.batch };
    let network = shape(&network_of(&args.network, args.network.name())?.0, &args.network, batch, args.precision)?;
    let table = match args.counting {
        Counting::Own => describe_report::table(&network),
        Counting::Castro2018 => describe_report::castro_table(&network),
    };
    OutputArgs::default().export(&table, args.format)
}

/// `predict list`
pub fn list(what: Listing) -> Result<(), Failure> {
    OutputArgs::default().export(&listed(what).map_err(Failure::Failed)?, Format::Table)
}

fn listed(what: Listing) -> Result<Table> {
    let frameworks =
        || catalog::frameworks().iter().map(|(_, text)| Framework::from_toml(text).map_err(|e| anyhow!(e)));
    Ok(match what {
        Listing::Nets => {
            let splits = Splits::shipped().map_err(|e| anyhow!(e))?;
            let read = |name| -> Result<_> {
                let network = catalog::network(name)?;
                let shaped = ShapedNetwork::new(&network, 1, Precision::Fp32, &[])?;
                Ok((network, splits.role(name), shaped))
            };
            Table::of(&catalog::network_names().map(read).collect::<Result<Vec<_>>>()?)
        }
        Listing::Gpus => {
            let read = |name| -> Result<_> {
                let gpu = catalog::gpu(name)?;
                let known = |c: &Calibration| if c.boards.contains(&gpu.name) { c.tier } else { Tier::Sibling };
                let tier = catalog::calibration_for(&gpu)?.as_ref().map_or(Tier::Roofline, known);
                Ok((gpu, tier))
            };
            Table::of(&catalog::gpu_names().map(read).collect::<Result<Vec<_>>>()?)
        }
        Listing::Interconnects => Table::of(&catalog::interconnects()?),
        Listing::Frameworks => Table::of(&frameworks().collect::<Result<Vec<_>>>()?),
        Listing::Inputs => {
            let named = |f: Framework| f.inputs.into_iter().map(move |input| (f.name.clone(), input));
            Table::of(&frameworks().collect::<Result<Vec<_>>>()?.into_iter().flat_map(named).collect::<Vec<_>>())
        }
        Listing::Calibrations => {
            let read = |(name, text): &(&str, &str)| Calibration::from_toml(text).with_context(|| name.to_string());
            Table::of(&catalog::calibrations().iter().map(read).collect::<Result<Vec<_>>>()?)
        }
    })
}

/// `predict completions`
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "predict", &mut script);
    OutputArgs::default().emit_bytes(&script)
}
