//! `predict` itself, and `predict optimize`, which takes the same request.

use super::shared::{
    FeedingArgs, FrameworkArgs, GOAL, HARDWARE, LayoutArgs, MODEL, MixtureArgs, NetArgs, OUTPUT, OperatingArgs,
    OutputArgs, PrecisionArgs, ReadingArgs, SequenceArgs, SharingArgs, TRAINING,
};
use super::values::{parse_count, parse_latency, parse_latency_ms, parse_percent, parse_positive, parse_size};
use crate::failure::Failure;
use crate::request::{Batch, Epochs, Request, Team};
use clap::{ArgGroup, Args, ValueEnum};
use joulecast_ask::metric::Metric;
use joulecast_model::base::units::Seconds;
use joulecast_reports::export::{Format, format_of};
use joulecast_reports::optimum::Found;
use joulecast_reports::prediction::Shown;
use std::path::PathBuf;

/// What help of `predict optimize` ends with.
pub(super) const OPTIMIZED: &str = "--net takes several networks here, separated by commas.
With --prompt and --answer, or --trace, it takes what predict serve takes (predict serve --help):
  predict optimize --net llama3_8b --gpu h100 --prompt 1024 --answer 256 --tpot 50ms";

/// A step that is asked for, as `predict` and `predict optimize` take it.
#[derive(Args)]
pub struct StepArgs {
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    sequence: SequenceArgs,
    /// Samples per step; max: as many as fit in memory
    #[arg(long, visible_alias = "batch-size", value_name = "N|max", required = true, help_heading = MODEL, value_parser = str::parse::<Batch>, allow_negative_numbers = true)]
    batch: Option<Batch>,
    #[command(flatten)]
    precision: PrecisionArgs,
    #[command(flatten)]
    framework: FrameworkArgs,
    #[command(flatten)]
    pub operating: OperatingArgs,
    #[command(flatten)]
    feeding: FeedingArgs,
    #[command(flatten)]
    mixture: MixtureArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Fail (exit 1) where the step does not fit in memory
    #[arg(long, help_heading = OUTPUT)]
    require_fit: bool,
}

impl StepArgs {
    /// What is meant, on a team.
    fn request(&self, team: Team) -> Request {
        let request = Request {
            reading: self.mixture.fill(self.reading.reading(self.sequence.sequence)),
            teams: vec![team],
            batches: vec![self.batch.unwrap_or(Batch::Samples(1))],
            runner: self.framework.runner(),
            point: self.operating.point(),
            require_fit: self.require_fit,
            ..Request::new(self.net.net(), "")
        };
        self.precision.fill(self.feeding.fill(request))
    }
}

#[derive(Args)]
#[command(group = ArgGroup::new("team").args(["gpu", "gpus"]).required(true).multiple(true))]
pub struct PredictArgs {
    #[command(flatten)]
    step: StepArgs,
    /// A GPU (`predict list gpus`) or a device file (data/gpus/README.md)
    #[arg(long, value_name = "NAME|FILE", help_heading = HARDWARE)]
    gpu: Option<String>,
    #[command(flatten)]
    sharing: SharingArgs,
    #[command(flatten)]
    layout: LayoutArgs,
    #[command(flatten)]
    training: TrainingArgs,
    /// Table and Markdown: show every layer, not only the costliest; CSV: a row for each (JSON always has them all)
    #[arg(long, help_heading = OUTPUT)]
    pub layers: bool,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Shown>(), default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
    /// A language model's answer of so many tokens per sample after a prompt of --sequence tokens: the prompt's step, then
    /// one step per token against a cache of keys and values
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true, help_heading = MODEL)]
    pub generate: Option<u64>,
    /// All layouts of a language model over the GPUs of a node: memory, the largest batch and context that fit, time and energy
    /// of a token of --batch samples after --sequence and --generate tokens
    #[arg(long, conflicts_with_all = ["layers", "require_fit"], help_heading = HARDWARE)]
    pub layouts: bool,
}

#[derive(Args)]
#[command(next_help_heading = TRAINING)]
struct TrainingArgs {
    /// Also the whole training: passes over the dataset
    #[arg(long, value_name = "N", requires = "dataset_size", value_parser = parse_count)]
    epochs: Option<u64>,
    /// Samples of the dataset
    #[arg(long, value_name = "N", requires = "epochs", value_parser = parse_count)]
    dataset_size: Option<u64>,
    /// Price of a kilowatt-hour, for the cost of the whole training
    #[arg(long, value_name = "PRICE", requires = "epochs", value_parser = parse_positive, allow_negative_numbers = true)]
    price_kwh: Option<f64>,
    /// What the program takes before the first step of the whole training, in seconds (default: what the framework
    /// profile knows, else nothing)
    #[arg(long, value_name = "S", requires = "epochs", value_parser = parse_latency, allow_negative_numbers = true)]
    program_start: Option<f64>,
}

impl TrainingArgs {
    fn epochs(&self) -> Option<Epochs> {
        let (epochs, dataset_size) = (self.epochs?, self.dataset_size?);
        let (price_per_kwh, start) = (self.price_kwh, self.program_start.map(Seconds::new));
        Some(Epochs { epochs, dataset_size, price_per_kwh, start })
    }
}

impl PredictArgs {
    /// What is meant.
    pub fn request(&self) -> Result<Request, Failure> {
        let layout = self.layout.layout()?;
        self.sharing.beside(layout.as_ref())?;
        let team = self.sharing.team(self.gpu.as_deref(), layout.is_some() || self.layouts)?;
        let request =
            Request { layout, stored: self.layout.stored(), epochs: self.training.epochs(), ..self.step.request(team) };
        Ok(self.sharing.fill(request))
    }

    /// Where it goes.
    pub fn output(&self) -> &OutputArgs {
        &self.step.output
    }
}

#[derive(Args)]
pub struct OptimizeArgs {
    #[command(flatten)]
    pub step: StepArgs,
    /// A GPU (`predict list gpus`) or a device file (data/gpus/README.md)
    #[arg(long, value_name = "NAME|FILE", required = true, help_heading = HARDWARE)]
    gpu: Option<String>,
    /// What to make small: energy, time, edp (E t), ed2p (E t^2), eds:K (energy-delay sum of weight K, as in eds:1.5)
    #[arg(long, value_name = "METRIC", default_value = "energy", value_parser = str::parse::<Metric>, help_heading = GOAL)]
    pub metric: Metric,
    /// What may be changed, separated by commas (default: cap and clock, but for what --power-cap and --clock set)
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = GOAL)]
    pub over: Vec<Over>,
    /// Leave out what is slower than the default by more than this, as in 5%
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, allow_hyphen_values = true, help_heading = GOAL)]
    pub max_slowdown: Option<f64>,
    /// Leave out what handles fewer samples per second
    #[arg(long, value_name = "RATE", value_parser = parse_positive, allow_negative_numbers = true, help_heading = GOAL)]
    pub min_throughput: Option<f64>,
    /// Also a clock for every layer
    #[arg(long, help_heading = GOAL)]
    pub per_layer: bool,
    /// Milliseconds that a change of the core clock is taken to last, with the GPU waiting (default: 10)
    #[arg(long, value_name = "MS", value_parser = parse_latency_ms, allow_negative_numbers = true, requires = "per_layer", help_heading = GOAL)]
    pub switch_latency: Option<f64>,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<[Found]>(), default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
    /// Draw energy, time, power, EDP and EDS over the power limit (over the clock with --over clock) as SVG
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub figure: Option<PathBuf>,
}

impl OptimizeArgs {
    /// What is meant.
    pub fn request(&self) -> Request {
        let mut request = self.step.request(Team::of(1, self.gpu.as_deref().unwrap_or_default()));
        request.networks = request.networks[0].split(',').map(|name| name.trim().to_string()).collect();
        request
    }
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
