//! The command line of `predict`.

use crate::compare::{self, CompareArgs};
use crate::input::InputArgs;
use crate::optimize::{self, OptimizeArgs};
use crate::output::OutputArgs;
use crate::parallel::{Batch, ParallelArgs};
use crate::plan::{self, PlanArgs};
use crate::sweep::{self, SweepArgs};
use crate::training::TrainingArgs;
use crate::{commands, convert, papers, parallel};
use clap::{Args, Parser, Subcommand, ValueEnum};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::kernel::features::library_age;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::net::network::folding::Folding;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_reports::export::{Format, format_of};
use joulecast_reports::papers::Beside;
use joulecast_reports::prediction::Shown;
use joulecast_reports::table::Table;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// How long will a network take on a GPU, at which power, with how much energy?
#[derive(Parser)]
#[command(
    name = "predict",
    version,
    about,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub predict: PredictArgs,
}

const EXAMPLES: &str = "Examples:
  predict --net vgg16 --gpu v100 --batch 64              time, power, energy and the costliest layers
  predict --net resnet50 --gpu t4 --batch 16 --layers    every layer
  predict --net resnet50 --gpu v100 --batch 32 --mode training
  predict --net resnet50 --gpu v100 --gpus 8 --batch 512 --mode training --epochs 90 --dataset-size 1281167 --price-kwh 0.3
  predict --net my_net.toml --gpu my_gpu.toml --batch 8 --format json
  predict --net inception_v3 --gpu p100 --batch 8 --input image=3x320x320
  predict --net resnet50 --gpu v100 --batch 64 --power-cap 200    also --clock, --mem-clock
  predict --net gpt2 --gpu h200 --batch 8 --sequence 512 --generate 128
  predict optimize --net resnet50 --gpu v100 --batch 64 --metric edp --max-slowdown 5%
  predict compare --net resnet50,vgg16 --gpu v100,t4 --batch 1,64    also --target-latency, --energy-budget, --max-power
  predict sweep --net all --gpu all --batch 1,16,64 --output rows.csv    also --clock 600..1500:15, --power-cap
  predict plan data/capacity/tagging.toml                   GPUs, racks, kW, cost and carbon for a load; --format html
  predict describe --net caffenet --counting castro2018  operations and traffic, layer by layer
  predict --net model.onnx --gpu t4 --batch 8             also Caffe's .prototxt; --input ids=1x128 binds open sizes
  predict convert model.onnx --output my_net.toml        into a network file, to be edited
  predict papers --paper castro2018                      what a paper printed, beside predictions
  predict list nets                                      what --net knows; also: gpus, interconnects, frameworks, inputs, calibrations
  predict completions bash                               a completion script";

#[derive(Subcommand)]
pub enum Command {
    /// The clock, power limit and batch with the least energy, time or product of them
    Optimize(Box<OptimizeArgs>),
    /// Networks on GPUs side by side, which GPU is best for what, and the largest batch within a budget
    Compare(Box<CompareArgs>),
    /// Many predictions: networks, GPUs, batches, precisions, clocks, limits; CSV or JSON Lines
    Sweep(Box<SweepArgs>),
    /// How many GPUs a load needs, at which power, cost and carbon
    Plan(PlanArgs),
    /// A network's layers: shapes, operations, traffic, parameters
    Describe(DescribeArgs),
    /// A network in another format: a file of one's own to edit, or ONNX
    Convert(convert::ConvertArgs),
    /// What papers printed of whole networks, beside predictions
    Papers(PapersArgs),
    /// What is built in
    List(ListArgs),
    /// A completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Default)]
pub struct NetworkArgs {
    /// A network of the zoo (`predict list nets`), or a file: .toml (data/nets/README.md), .onnx or Caffe's .prototxt
    #[arg(long, value_name = "NAME|FILE", required = true)]
    pub net: Option<String>,
    /// Another shape for a named input; may be repeated
    #[arg(long, value_name = "NAME=CxHxW", value_parser = parse_input)]
    pub input: Vec<(String, Shape)>,
    /// ONNX: leave out operators that are not known instead of failing; the notes list them
    #[arg(long)]
    pub skip_unknown: bool,
    #[command(flatten)]
    pub folding: FoldingArgs,
    /// ONNX: the most that operators select whose values decide how much (boxes, non-zero elements) [default: 1000]
    #[arg(long, value_name = "N", value_parser = parse_batch, allow_negative_numbers = true)]
    pub selected: Option<u64>,
    /// Tokens per sample, for networks that read a sequence
    #[arg(long, value_name = "N", value_parser = parse_batch, allow_negative_numbers = true)]
    pub sequence: Option<u64>,
}

/// What becomes of batch norms that an export folded into convolutions.
#[derive(Args, Clone, Copy, Default)]
pub struct FoldingArgs {
    /// ONNX: batch norms that the export folded into convolutions are layers of their own, as profiles that run modules
    /// as written (pytorch) have them without asking
    #[arg(long, conflicts_with = "keep_folded")]
    pub unfold_batch_norm: bool,
    /// ONNX: the file's graph runs as it is, with its batch norms folded, whatever the profile
    #[arg(long)]
    pub keep_folded: bool,
}

impl FoldingArgs {
    /// As the importer takes it.
    pub fn folding(self) -> Folding {
        match (self.unfold_batch_norm, self.keep_folded) {
            (true, _) => Folding::Unfold,
            (_, true) => Folding::Keep,
            _ => Folding::Open,
        }
    }
}

impl NetworkArgs {
    /// What was typed as the network.
    pub fn name(&self) -> &str {
        self.net.as_deref().unwrap_or_default()
    }
}

#[derive(Args)]
pub struct PredictArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    /// A GPU (`predict list gpus`) or a device file (data/gpus/README.md)
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "gpus")]
    pub gpu: Option<String>,
    /// Samples per step; max: as many as fit in memory
    #[arg(long, value_name = "N|max", required = true, value_parser = parallel::parse_batch, allow_negative_numbers = true)]
    pub batch: Option<Batch>,
    /// Storage and arithmetic; fp32 means TF32 off
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = parse_precision)]
    pub precision: Precision,
    /// inference: one forward pass; training: forward, backward and update
    #[arg(long, value_name = "MODE", default_value = "inference", value_parser = parse_mode)]
    pub mode: Mode,
    /// Framework profile
    #[arg(long, value_name = "NAME", default_value = "cudnn")]
    pub framework: String,
    /// eager: operation by operation from the host; graph: as one CUDA graph (default: eager, for cudnn graph)
    #[arg(long, value_name = "HOW", value_parser = parse_launch)]
    pub launch: Option<Launch>,
    /// Version of the framework's cuDNN, such as 6.0, where the layer models know how old their libraries were (default:
    /// the newest that each saw)
    #[arg(long, value_name = "VERSION", value_parser = parse_cudnn)]
    pub cudnn: Option<f64>,
    /// What computes convolutions where it can: gemm, implicit_gemm, fft, fft_tiling or winograd_nonfused, in fp32
    /// (default: the library's choice)
    #[arg(long, value_name = "NAME", value_parser = parse_algorithm)]
    pub conv_algorithm: Option<Algorithm>,
    /// With --cudnn: without the jumps that this version's choice of algorithms makes (data/libraries/cudnn.toml)
    #[arg(long)]
    pub best_algorithms: bool,
    #[command(flatten)]
    pub operating: OperatingArgs,
    #[command(flatten)]
    pub parallel: ParallelArgs,
    #[command(flatten)]
    pub training: TrainingArgs,
    #[command(flatten)]
    pub input: InputArgs,
    /// A calibration file of the GPU's chip instead of the built-in one, or all_chips.toml: as if no layer of the GPU
    /// had been measured
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// Table and Markdown: show every layer, not only the costliest (JSON always has them all)
    #[arg(long)]
    pub layers: bool,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Shown>(), default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Fail (exit 1) where the step does not fit in memory
    #[arg(long)]
    pub require_fit: bool,
    /// A language model's answer of so many tokens per sample after a prompt of --sequence tokens: the prompt's step, then
    /// one step per token against a cache of keys and values
    #[arg(long, value_name = "N", value_parser = parse_batch, allow_negative_numbers = true)]
    pub generate: Option<u64>,
}

#[derive(Args)]
pub struct OperatingArgs {
    /// Core clock; the nearest that the GPU has (default: as high as the power limit allows)
    #[arg(long, value_name = "MHZ", value_parser = parse_positive, allow_negative_numbers = true)]
    pub clock: Option<f64>,
    /// Memory clock
    #[arg(long, value_name = "MHZ", value_parser = parse_positive, allow_negative_numbers = true)]
    pub mem_clock: Option<f64>,
    /// Power limit (default: the board's)
    #[arg(long, value_name = "W", value_parser = parse_positive, allow_negative_numbers = true)]
    pub power_cap: Option<f64>,
}

impl OperatingArgs {
    pub fn point(&self) -> OperatingPoint {
        OperatingPoint {
            core_clock: self.clock.map(Hertz::from_mhz),
            memory_clock: self.mem_clock.map(Hertz::from_mhz),
            power_cap: self.power_cap.map(Watts::new),
        }
    }
}

#[derive(Args)]
pub struct DescribeArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Samples per step
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_batch, allow_negative_numbers = true)]
    pub batch: u64,
    /// Storage width for the traffic
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = parse_precision)]
    pub precision: Precision,
    /// Whose rules: ours (a multiply-accumulate is two operations) or those of castro2018 (one; always per sample, in
    /// four-byte words)
    #[arg(long, value_enum, default_value_t = Counting::Own)]
    pub counting: Counting,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Table>(), default_value_t = Format::Table)]
    pub format: Format,
}

#[derive(Args)]
pub struct PapersArgs {
    /// Only this paper; may be repeated (default: all that are shipped)
    #[arg(long, value_name = "KEY")]
    pub paper: Vec<String>,
    /// This framework profile instead of each paper's
    #[arg(long, value_name = "NAME")]
    pub framework: Option<String>,
    /// Take the newest libraries that the layer models saw instead of the age of each paper's
    #[arg(long)]
    pub newest: bool,
    /// A folder of calibrations instead of the built-in ones, such as `calibrate fit --evaluation` writes
    #[arg(long, value_name = "DIR")]
    pub calibrations: Option<PathBuf>,
    /// Table: show every value, not only mean errors (Markdown and JSON always have them all)
    #[arg(long)]
    pub rows: bool,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Beside>(), default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Args)]
pub struct ListArgs {
    /// nets, gpus, interconnects, frameworks, inputs or calibrations
    pub what: Listing,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Listing {
    /// Networks of the zoo
    Nets,
    /// Known devices
    Gpus,
    /// What joins GPUs
    Interconnects,
    /// Framework profiles
    Frameworks,
    /// Input pipelines whose rate the profiles know
    Inputs,
    /// Fitted models that are built in
    Calibrations,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Counting {
    /// Multiply-accumulate = 2
    Own,
    /// As Castro et al. 2018, Table 1
    Castro2018,
}

pub fn parse_batch(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if (1..=joulecast_model::base::shape::MAX_DIMENSION).contains(&n) => Ok(n),
        _ => Err(format!("must be a whole number from 1 to {}", joulecast_model::base::shape::MAX_DIMENSION)),
    }
}

pub fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() && v > 0.0 => Ok(v),
        _ => Err("must be a number above 0".into()),
    }
}

pub fn parse_latency(text: &str) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0).ok_or("must be a number of at least 0".into())
}

pub fn parse_percent(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%')
        .parse::<f64>()
        .ok()
        .filter(|v| v.is_finite() && *v >= 0.0)
        .ok_or("must be a percentage of at least 0, as in 5%".into())
}

pub fn parse_precision(text: &str) -> Result<Precision, String> {
    Precision::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(Precision::ALL.iter().map(|p| p.name())))
}

pub fn parse_mode(text: &str) -> Result<Mode, String> {
    Mode::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(Mode::ALL.iter().map(|m| m.name())))
}

pub fn parse_launch(text: &str) -> Result<Launch, String> {
    Launch::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(Launch::ALL.iter().map(|l| l.name())))
}

/// Algorithms that were measured; cuDNN 9 has no fused Winograd on Hopper, and precomputed offsets too few rows.
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::Heuristic,
    Algorithm::Gemm,
    Algorithm::ImplicitGemm,
    Algorithm::Fft,
    Algorithm::FftTiling,
    Algorithm::WinogradNonfused,
];

pub fn parse_algorithm(text: &str) -> Result<Algorithm, String> {
    let text = text.to_ascii_lowercase().replace('-', "_");
    let known = ALGORITHMS.into_iter().find(|a| a.name() == text);
    known.ok_or_else(|| one_of(ALGORITHMS.iter().map(|a| a.name())))
}

/// Major versions that there are.
const CUDNN: RangeInclusive<u64> = 1..=9;

pub fn parse_cudnn(text: &str) -> Result<f64, String> {
    let (oldest, newest) = (CUDNN.start(), CUDNN.end());
    let known = text.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major| CUDNN.contains(&major));
    let age = library_age(text).filter(|_| known);
    age.ok_or_else(|| format!("must be a version such as 7.6: cuDNN {oldest} to {newest} are known"))
}

pub fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("must be one of {}", names.collect::<Vec<_>>().join(", "))
}

pub fn parse_input(text: &str) -> Result<(String, Shape), String> {
    let (name, dims) = text.split_once('=').ok_or("write it like image=3x299x299")?;
    let dims: Vec<u64> = dims
        .split('x')
        .map(|d| d.parse::<u64>().map_err(|_| format!("\"{d}\" is not a size; write it like image=3x299x299")))
        .collect::<Result<_, _>>()?;
    Ok((name.to_string(), Shape::new(&dims).map_err(|e| e.to_string())?))
}

/// Runs a command line and says how it ended.
pub fn run(cli: Cli) -> Result<(), commands::Failure> {
    match cli.command {
        None => commands::predict(&cli.predict),
        Some(Command::Optimize(args)) => optimize::optimize(&args),
        Some(Command::Compare(args)) => compare::compare(&args),
        Some(Command::Sweep(args)) => sweep::sweep(*args),
        Some(Command::Plan(args)) => plan::plan(&args),
        Some(Command::Describe(args)) => commands::describe(&args),
        Some(Command::Convert(args)) => convert::convert(args),
        Some(Command::Papers(args)) => papers::compare(&args),
        Some(Command::List(args)) => commands::list(args.what),
        Some(Command::Completions { shell }) => commands::completions(shell),
    }
}
