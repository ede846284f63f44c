//! Commands over several networks and GPUs: `predict compare` and `predict sweep`.

use super::shared::{
    FeedingArgs, FrameworkArgs, GOAL, HARDWARE, MODEL, MemoryClockArgs, OUTPUT, OperatingArgs, OutputArgs,
    PrecisionArgs, ReadingArgs, SequenceArgs, SharingArgs, TRAINING,
};
use super::values::{
    Axis, Sizes, parse_caps, parse_clocks, parse_joules, parse_mode, parse_ms, parse_name, parse_positive,
    parse_precision, parse_price, parse_size, parse_sizes, parse_watts, settings, sizes,
};
use crate::ask::Question;
use crate::failure::Failure;
use crate::request::{Batch, Request};
use clap::{Args, ValueEnum};
use joulecast_ask::budget::Budget;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::shard::Shard;
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_model::step::predictor::OperatingPoint;
use joulecast_reports::compare::Comparison;
use joulecast_reports::export::{Format, format_of};
use std::path::PathBuf;

/// What is compared or swept.
#[derive(Args)]
struct ManyArgs {
    /// Networks or network files, separated by commas, or all
    #[arg(long, visible_alias = "model", value_name = "NAMES", value_delimiter = ',', value_parser = parse_name, required = true, help_heading = MODEL)]
    net: Vec<String>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// GPUs or device files, separated by commas, or all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_name, required = true, help_heading = HARDWARE)]
    gpu: Vec<String>,
    #[command(flatten)]
    framework: FrameworkArgs,
    #[command(flatten)]
    sharing: SharingArgs,
    #[command(flatten)]
    feeding: FeedingArgs,
}

impl ManyArgs {
    fn request(&self, batches: &[u64], sequence: Option<u64>) -> Result<Request, Failure> {
        let request = Request {
            networks: self.net.clone(),
            reading: self.reading.reading(sequence),
            teams: self.sharing.teams(&self.gpu)?,
            batches: batches.iter().map(|n| Batch::Samples(*n)).collect(),
            runner: self.framework.runner(),
            ..Request::new("", "")
        };
        Ok(self.sharing.fill(self.feeding.fill(request)))
    }
}

#[derive(Args)]
pub struct CompareArgs {
    #[command(flatten)]
    many: ManyArgs,
    #[command(flatten)]
    sequence: SequenceArgs,
    /// Samples per step, separated by commas, ranges with a step (8..64:8) among them; with a budget: only these are tried
    /// (default there: any)
    #[arg(long, visible_alias = "batch-size", value_name = "N", value_delimiter = ',', value_parser = parse_sizes, allow_negative_numbers = true, help_heading = MODEL)]
    batch: Vec<Sizes>,
    #[command(flatten)]
    precision: PrecisionArgs,
    /// Language models: whole answers of so many tokens per sample to prompts of --sequence tokens, instead of steps
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true, help_heading = MODEL)]
    pub generate: Option<u64>,
    #[command(flatten)]
    operating: OperatingArgs,
    /// Weight of the error in the energy-precision ratio, error^alpha times energy per sample
    #[arg(long, value_name = "ALPHA", default_value = "1", value_parser = parse_positive, allow_negative_numbers = true, help_heading = GOAL)]
    pub alpha: f64,
    /// What a GPU costs per hour, as in v100=2.5,t4=0.4; any currency
    #[arg(long, value_name = "GPU=PRICE", value_delimiter = ',', value_parser = parse_price, help_heading = GOAL)]
    pub price: Vec<(String, f64)>,
    /// Budget: longest time of a step
    #[arg(long, value_name = "MS", value_parser = parse_ms, allow_negative_numbers = true, help_heading = GOAL)]
    pub target_latency: Option<f64>,
    /// Budget: most energy per sample
    #[arg(long, value_name = "J", value_parser = parse_joules, allow_negative_numbers = true, help_heading = GOAL)]
    pub energy_budget: Option<f64>,
    /// Budget: most mean power of the board
    #[arg(long, value_name = "W", value_parser = parse_watts, allow_negative_numbers = true, help_heading = GOAL)]
    pub max_power: Option<f64>,
    /// Budgets must be kept by the 95 % quantiles, not only by the values
    #[arg(long, help_heading = GOAL)]
    pub sure: bool,
    /// Draw time, power and energy per sample with their intervals as SVG
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub figure: Option<PathBuf>,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Comparison>(), default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CompareArgs {
    /// What is meant.
    pub fn request(&self) -> Result<Request, Failure> {
        let many = self.many.request(&sizes(&self.batch), self.sequence.sequence)?;
        Ok(self.precision.fill(Request { point: self.operating.point(), ..many }))
    }

    /// What is compared besides steps.
    pub fn question(&self) -> Question {
        Question {
            generate: self.generate,
            alpha: self.alpha,
            prices: self.price.clone(),
            budget: Budget {
                latency: self.target_latency.map(Seconds::from_ms),
                energy_per_sample: self.energy_budget.map(Joules::new),
                power: self.max_power.map(Watts::new),
                sure: self.sure,
            },
        }
    }
}

#[derive(Args)]
pub struct SweepArgs {
    #[command(flatten)]
    many: ManyArgs,
    /// Samples per step: a list (1,16,64), ranges with a step (8..64:8)
    #[arg(long, visible_alias = "batch-size", value_name = "N", value_delimiter = ',', required = true, value_parser = parse_sizes, allow_negative_numbers = true, help_heading = MODEL)]
    batch: Vec<Sizes>,
    /// Storage and arithmetic, separated by commas: fp32, tf32, fp16, bf16, int8, fp8
    #[arg(long, value_name = "PRECISIONS", value_delimiter = ',', default_value = "fp32", value_parser = parse_precision, help_heading = MODEL)]
    precision: Vec<Precision>,
    /// inference and training, separated by commas
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "inference", value_parser = parse_mode, help_heading = TRAINING)]
    mode: Vec<Mode>,
    /// Tokens per sample, separated by commas, for networks that read a sequence (default: the network's own)
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_size, allow_negative_numbers = true, help_heading = MODEL)]
    pub sequence: Vec<u64>,
    /// Core clocks in MHz: a list (1200,1500), ranges with a step (600..1500:15), default for what the driver does
    #[arg(long, value_name = "MHZ", value_delimiter = ',', default_value = "default", value_parser = parse_clocks, help_heading = HARDWARE)]
    clock: Vec<Axis>,
    #[command(flatten)]
    memory: MemoryClockArgs,
    /// Power limits in W, written alike
    #[arg(long, value_name = "W", value_delimiter = ',', default_value = "default", value_parser = parse_caps, help_heading = HARDWARE)]
    power_cap: Vec<Axis>,
    /// How to write rows
    #[arg(long, value_enum, default_value_t = SweepFormat::Csv, help_heading = OUTPUT)]
    pub format: SweepFormat,
    /// Write there instead of to standard output (- is standard output)
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub output: Option<PathBuf>,
    /// Go on where the rows of --output end; they must be of the same sweep, made from the same networks, GPUs and program,
    /// as FILE.sweep.json beside them says
    #[arg(long, requires = "output", help_heading = OUTPUT)]
    pub resume: bool,
    /// Write over what --output has
    #[arg(long, requires = "output", conflicts_with = "resume", help_heading = OUTPUT)]
    pub force: bool,
    /// Only the I-th of N parts of the rows, one after the other: the parts together are the sweep
    #[arg(long, value_name = "I/N", default_value = "1/1", hide_default_value = true, help_heading = OUTPUT)]
    pub shard: Shard,
    /// Threads (default: all cores)
    #[arg(long, value_name = "N", help_heading = OUTPUT)]
    pub threads: Option<usize>,
    /// No progress on standard error
    #[arg(long, help_heading = OUTPUT)]
    pub quiet: bool,
}

impl SweepArgs {
    /// What is meant.
    pub fn request(&self) -> Result<Request, Failure> {
        let request = self.many.request(&sizes(&self.batch), None)?;
        Ok(Request { precisions: self.precision.clone(), modes: self.mode.clone(), ..request })
    }

    /// Clocks, and limits for each.
    pub fn points(&self) -> Vec<OperatingPoint> {
        let point = |clock: Option<f64>, cap: Option<f64>| OperatingPoint {
            core_clock: clock.map(Hertz::from_mhz),
            memory_clock: self.memory.clock(),
            power_cap: cap.map(Watts::new),
        };
        let caps = settings(&self.power_cap);
        settings(&self.clock).into_iter().flat_map(|clock| caps.iter().map(move |cap| point(clock, *cap))).collect()
    }

    /// The file that rows go to; none for standard output.
    pub fn file(&self) -> Option<&PathBuf> {
        self.output.as_ref().filter(|path| path.as_os_str() != "-")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SweepFormat {
    /// A header and a row per prediction
    Csv,
    /// One JSON object per line
    Jsonl,
    /// Columns in groups of rows, written from FILE.rows.csv when all rows are there; needs the cargo feature parquet
    #[cfg(feature = "parquet")]
    Parquet,
    /// An Arrow IPC file (Feather), written alike; needs the cargo feature arrow
    #[cfg(feature = "arrow")]
    Arrow,
}
