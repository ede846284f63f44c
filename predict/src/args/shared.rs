//! Options that several commands take, each written once, and the part of a request that they fill in.

use super::values::{
    Gpus, parse_algorithm, parse_cache, parse_cudnn, parse_gpus, parse_host, parse_input, parse_launch,
    parse_loss_scaling, parse_mhz, parse_mode, parse_optimizer, parse_positive, parse_precision, parse_size,
    parse_watts, parse_weights,
};
use crate::failure::Failure;
use crate::request::{HostAsked, Reading, Request, Runner, Team};
use clap::{Args, ValueEnum};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::catalog;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::net::layer::Optimizer;
use joulecast_model::net::network::folding::Folding;
use joulecast_model::net::network::{Kept, Stored, Weights};
use joulecast_model::net::share::Layout;
use joulecast_model::step::framework::{Launch, LossScaling};
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_reports::given;
use std::path::{Path, PathBuf};

/// Headings of options in help.
pub const MODEL: &str = "Model";
pub const HARDWARE: &str = "Hardware";
pub const TRAINING: &str = "Training";
pub const GOAL: &str = "Goal";
pub const OUTPUT: &str = "Output";

#[derive(Args)]
#[command(next_help_heading = MODEL)]
pub struct NetArgs {
    /// A network of the zoo (`predict list nets`), or a file: .toml (data/nets/README.md), .onnx or Caffe's .prototxt
    #[arg(long, visible_alias = "model", value_name = "NAME|FILE", required = true)]
    net: Option<String>,
}

impl NetArgs {
    /// What was typed as the network.
    pub fn net(&self) -> &str {
        self.net.as_deref().unwrap_or_default()
    }
}

/// How networks are read.
#[derive(Args)]
#[command(next_help_heading = MODEL)]
pub struct ReadingArgs {
    /// Another shape for a named input; may be repeated
    #[arg(long, value_name = "NAME=CxHxW", value_parser = parse_input)]
    input: Vec<(String, Shape)>,
    /// ONNX: leave out operators that are not known instead of failing; the notes list them
    #[arg(long)]
    skip_unknown: bool,
    /// ONNX: batch norms that the export folded into convolutions are layers of their own, as profiles that run modules
    /// as written (pytorch) have them without asking
    #[arg(long, conflicts_with = "keep_folded")]
    unfold_batch_norm: bool,
    /// ONNX: the file's graph runs as it is, with its batch norms folded, whatever the profile
    #[arg(long)]
    keep_folded: bool,
    /// ONNX: the most that operators select whose values decide how much (boxes, non-zero elements) [default: 1000]
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true)]
    selected: Option<u64>,
}

impl ReadingArgs {
    pub fn reading(&self, sequence: Option<u64>) -> Reading {
        let folding = match (self.unfold_batch_norm, self.keep_folded) {
            (true, _) => Folding::Unfold,
            (_, true) => Folding::Keep,
            _ => Folding::Open,
        };
        let (inputs, skip_unknown, selected) = (self.input.clone(), self.skip_unknown, self.selected);
        Reading { inputs, skip_unknown, folding, selected, sequence, imbalance: None }
    }
}

#[derive(Args)]
#[command(next_help_heading = MODEL)]
pub struct SequenceArgs {
    /// Tokens per sample, for networks that read a sequence
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true)]
    pub sequence: Option<u64>,
}

#[derive(Args)]
#[command(next_help_heading = MODEL)]
pub struct PrecisionArgs {
    /// Storage and arithmetic: fp32 (TF32 off), tf32, fp16, bf16, int8, or fp8 (linear layers in it and all others in bf16;
    /// inference only) (default: fp32; of a config.json what it says)
    #[arg(long, value_name = "PRECISION", value_parser = parse_precision)]
    precision: Option<Precision>,
    /// inference: one forward pass; training: forward, backward and update
    #[arg(long, value_name = "MODE", default_value = "inference", value_parser = parse_mode, help_heading = TRAINING)]
    pub mode: Mode,
}

impl PrecisionArgs {
    /// A request in that precision and mode.
    pub fn fill(&self, request: Request) -> Request {
        Request {
            precisions: vec![self.precision.unwrap_or(Precision::Fp32)],
            // Trainings in 16 bits are a choice of their own.
            open: self.precision.is_none() && self.mode == Mode::Inference,
            modes: vec![self.mode],
            ..request
        }
    }
}

#[derive(Args)]
#[command(next_help_heading = "Framework")]
pub struct FrameworkArgs {
    /// Framework profile
    #[arg(long, value_name = "NAME", default_value = "cudnn")]
    pub framework: String,
    #[command(flatten)]
    pub library: LibraryArgs,
}

/// How a profile runs, and what is known of its layers.
#[derive(Args)]
#[command(next_help_heading = "Framework")]
pub struct LibraryArgs {
    /// eager: operation by operation from the host; graph: as one CUDA graph (default: eager, for cudnn graph)
    #[arg(long, value_name = "HOW", value_parser = parse_launch)]
    launch: Option<Launch>,
    /// Version of the framework's cuDNN, such as 6.0, where the layer models know how old their libraries were (default:
    /// the newest that each saw)
    #[arg(long, value_name = "VERSION", value_parser = parse_cudnn)]
    cudnn: Option<f64>,
    /// What computes convolutions where it can: gemm, implicit_gemm, fft, fft_tiling or winograd_nonfused, in fp32
    /// (default: the library's choice)
    #[arg(long, value_name = "NAME", value_parser = parse_algorithm)]
    conv_algorithm: Option<Algorithm>,
    /// With --cudnn: without the jumps that this version's choice of algorithms makes (data/libraries/cudnn.toml)
    #[arg(long, requires = "cudnn")]
    best_algorithms: bool,
    /// A calibration file of the GPU's chip instead of the built-in one, or an all_chips.toml: as if no layer of the GPU
    /// had been measured; or a folder with one file per chip and an all_chips.toml, as `calibrate fit` writes it
    #[arg(long, value_name = "FILE|DIR")]
    calibration: Option<PathBuf>,
    /// How fast this machine's host launches eager steps: a file that `calibrate host` wrote, or how many times as long as the
    /// profile says its launches take; 1 for the profile's own hosts (default: ~/.config/joulecast/host.toml if it is there)
    #[arg(long, value_name = "FILE|FACTOR", value_parser = parse_host, allow_negative_numbers = true)]
    host: Option<HostAsked>,
    /// Training in 16 bits: dynamic, the loss is scaled and gradients are looked at before each update; none, it is not
    /// (default: dynamic in fp16, none in bf16)
    #[arg(long, value_name = "HOW", value_parser = parse_loss_scaling, help_heading = TRAINING)]
    loss_scaling: Option<LossScaling>,
}

impl LibraryArgs {
    /// The host that is asked for, or else the one that the user keeps.
    fn host(&self) -> HostAsked {
        let kept = || given::host_file().filter(|path| path.exists()).map(HostAsked::Usual);
        self.host.clone().or_else(kept).unwrap_or_default()
    }

    pub fn runner(&self, framework: &str) -> Runner {
        Runner {
            framework: framework.to_string(),
            launch: self.launch,
            library: self.cudnn,
            algorithm: self.conv_algorithm.filter(|a| *a != Algorithm::Heuristic),
            best_algorithms: self.best_algorithms,
            calibration: self.calibration.clone(),
            host: self.host(),
            loss_scaling: self.loss_scaling,
        }
    }
}

impl FrameworkArgs {
    pub fn runner(&self) -> Runner {
        self.library.runner(&self.framework)
    }
}

#[derive(Args)]
#[command(next_help_heading = HARDWARE)]
pub struct MemoryClockArgs {
    /// Memory clock
    #[arg(long, value_name = "MHZ", value_parser = parse_mhz, allow_negative_numbers = true)]
    mem_clock: Option<f64>,
}

impl MemoryClockArgs {
    pub fn clock(&self) -> Option<Hertz> {
        self.mem_clock.map(Hertz::from_mhz)
    }
}

#[derive(Args)]
#[command(next_help_heading = HARDWARE)]
pub struct OperatingArgs {
    /// Core clock; the nearest that the GPU has (default: as high as the power limit allows)
    #[arg(long, value_name = "MHZ", value_parser = parse_mhz, allow_negative_numbers = true)]
    pub clock: Option<f64>,
    #[command(flatten)]
    memory: MemoryClockArgs,
    /// Power limit (default: the board's)
    #[arg(long, value_name = "W", value_parser = parse_watts, allow_negative_numbers = true)]
    pub power_cap: Option<f64>,
}

impl OperatingArgs {
    pub fn point(&self) -> OperatingPoint {
        OperatingPoint {
            core_clock: self.clock.map(Hertz::from_mhz),
            memory_clock: self.memory.clock(),
            power_cap: self.power_cap.map(Watts::new),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scaling {
    /// One batch, split
    Strong,
    /// A batch for each GPU
    Weak,
}

/// What updates parameters, and what feeds samples.
#[derive(Args)]
#[command(next_help_heading = TRAINING)]
pub struct FeedingArgs {
    /// What updates the parameters in training: sgd, momentum or adam (default: momentum)
    #[arg(long, value_name = "NAME", value_parser = parse_optimizer)]
    optimizer: Option<Optimizer>,
    /// Samples per second that the host feeds to all GPUs together, or an input pipeline of the framework profile
    /// (`predict list inputs`); GPUs wait for it (default: as many as they take)
    #[arg(long, value_name = "N|NAME", allow_negative_numbers = true)]
    input_rate: Option<String>,
}

impl FeedingArgs {
    /// A request with what these options say.
    pub fn fill(&self, request: Request) -> Request {
        Request { input_rate: self.input_rate.clone(), optimizer: self.optimizer, ..request }
    }
}

/// How several GPUs share a step.
#[derive(Args)]
#[command(next_help_heading = HARDWARE)]
pub struct SharingArgs {
    /// Share each step among several GPUs: how many of --gpu, or kinds, as in 2xtitan-x-pascal,2xtitan-x-maxwell (then
    /// without --gpu)
    #[arg(long, value_name = "N|NxNAME,…", value_parser = parse_gpus)]
    gpus: Option<Gpus>,
    /// What joins them (`predict list interconnects`; default: what such boards have)
    #[arg(long, value_name = "NAME")]
    interconnect: Option<String>,
    /// What --batch counts: strong: the whole step's samples, divided among the GPUs; weak: those of each GPU
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Scaling::Strong, requires = "gpus")]
    scaling: Scaling,
}

impl SharingArgs {
    /// Refuses to join one GPU. `several`: whether options beside these ask for more.
    fn check(&self, several: bool) -> Result<(), Failure> {
        if self.interconnect.is_some() && self.gpus.is_none() && !several {
            return Err(Failure::usage("--interconnect joins several GPUs: --gpus N, or --tensor-parallel N"));
        }
        Ok(())
    }

    /// Refuses two ways of sharing.
    pub fn beside(&self, layout: Option<&Layout>) -> Result<(), Failure> {
        match (&self.gpus, layout) {
            (Some(_), Some(_)) => Err(Failure::usage(
                "--gpus share the samples of a step: it cannot be used with --tensor-parallel and the like",
            )),
            _ => Ok(()),
        }
    }

    /// The team that `--gpu` and `--gpus` name together. `several`: whether a layout has further GPUs of the kind.
    pub fn team(&self, gpu: Option<&str>, several: bool) -> Result<Team, Failure> {
        self.check(several)?;
        match (&self.gpus, gpu) {
            (None, Some(gpu)) => Ok(Team::of(1, gpu)),
            (Some(Gpus::Count(n)), Some(gpu)) => Ok(Team::of(*n, gpu)),
            (Some(Gpus::Kinds(kinds)), None) => {
                let name = kinds.iter().map(|(n, name)| format!("{n}x{name}")).collect::<Vec<_>>().join(",");
                Ok(Team { name, kinds: kinds.clone() })
            }
            (Some(Gpus::Kinds(_)), Some(_)) => Err(Failure::usage("--gpus already names the GPUs: leave --gpu out")),
            (_, None) => Err(Failure::usage("which GPU? --gpu NAME, or --gpus 2xNAME,2xOTHER")),
        }
    }

    /// A team for each GPU that is named, `all` for those that are built in.
    pub fn teams(&self, gpus: &[String]) -> Result<Vec<Team>, Failure> {
        self.check(false)?;
        let count = match &self.gpus {
            None => 1,
            Some(Gpus::Count(n)) => *n,
            Some(Gpus::Kinds(_)) => {
                return Err(Failure::usage("--gpu names the GPUs here: --gpus says how many of each share a step"));
            }
        };
        let team = |name: &String| {
            let called = if count == 1 { name.clone() } else { format!("{count}x{name}") };
            Team { name: called, ..Team::of(count, name) }
        };
        Ok(names(gpus, catalog::gpu_names()).iter().map(team).collect())
    }

    /// A request with what these options say.
    pub fn fill(&self, request: Request) -> Request {
        Request { weak: self.scaling == Scaling::Weak, interconnect: self.interconnect.clone(), ..request }
    }
}

/// How evenly a mixture of experts is busy.
#[derive(Args)]
#[command(next_help_heading = MODEL)]
pub struct MixtureArgs {
    /// A mixture of experts: how many times as many tokens busy experts have as the mean of all (default: what the network says,
    /// 1); of whole experts on several GPUs the one with the fullest decides
    #[arg(long, value_name = "N", value_parser = parse_positive, allow_negative_numbers = true)]
    imbalance: Option<f64>,
}

impl MixtureArgs {
    /// How networks are read, with that.
    pub fn fill(&self, reading: Reading) -> Reading {
        Reading { imbalance: self.imbalance, ..reading }
    }
}

/// How a language model lies on several GPUs.
#[derive(Args)]
#[command(next_help_heading = HARDWARE)]
pub struct LayoutArgs {
    /// A language model on N GPUs that divide every block among them: heads, inner features, the vocabulary
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true)]
    tensor_parallel: Option<u64>,
    /// A language model in N stages of consecutive blocks, one after the other
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true)]
    pipeline_parallel: Option<u64>,
    /// Whole experts on N GPUs or groups of them; more than --tensor-parallel: each of these attends to samples of its own
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true)]
    expert_parallel: Option<u64>,
    /// A language model on N groups of GPUs among which --batch, or what comes to be served, is divided (default: as many as
    /// --expert-parallel needs)
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true)]
    data_parallel: Option<u64>,
    /// A language model's weights stored in fp8, int8 or int4 and multiplied in 16 bits; embedding, logits and routers as they are
    #[arg(long, value_name = "FORMAT", value_parser = parse_weights)]
    weights: Option<Weights>,
    /// A language model's keys and values cached in fp8
    #[arg(long, value_name = "FORMAT", value_parser = parse_cache)]
    cache: Option<Kept>,
}

impl LayoutArgs {
    /// What is stored in fewer bits.
    pub fn stored(&self) -> Stored {
        Stored { weights: self.weights, cache: self.cache }
    }

    /// What is meant; none where nothing was typed.
    pub fn layout(&self) -> Result<Option<Layout>, Failure> {
        let typed = [self.tensor_parallel, self.pipeline_parallel, self.expert_parallel];
        if typed.iter().all(Option::is_none) && self.data_parallel.is_none() {
            // Formats are of layouts, if of one GPU.
            return Ok((!self.stored().is_usual()).then_some(Layout::ALONE));
        }
        let [tensor, pipeline, expert] = typed.map(|n| n.unwrap_or(1));
        Layout::new(tensor, pipeline, expert, self.data_parallel).map(Some).map_err(Failure::usage)
    }
}

/// What was typed, where it is `all` every name that is built in.
fn names(typed: &[String], all: impl Iterator<Item = &'static str>) -> Vec<String> {
    if typed == ["all"] { all.map(str::to_string).collect() } else { typed.to_vec() }
}

#[derive(Args, Default)]
#[command(next_help_heading = OUTPUT)]
pub struct OutputArgs {
    /// Write there instead of to standard output (- is standard output)
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write over files that are there
    #[arg(long)]
    pub force: bool,
}

impl OutputArgs {
    /// The file that is written; none for standard output.
    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| *path != Path::new("-"))
    }
}
