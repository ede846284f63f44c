//! `predict serve`.

use super::shared::{
    GOAL, HARDWARE, LayoutArgs, MODEL, MixtureArgs, NetArgs, OUTPUT, OperatingArgs, OutputArgs, ReadingArgs,
};
use super::values::{one_of, parse_count, parse_positive, parse_precision, parse_size, parse_time};
use crate::failure::Failure;
use crate::request::{Request, Runner, Team};
use clap::{ArgGroup, Args, ValueEnum};
use joulecast_ask::capacity::Goal;
use joulecast_ask::serving::{Lengths, Which};
use joulecast_model::base::precision::Precision;
use joulecast_model::base::units::Seconds;
use joulecast_reports::export::{Format, format_of};
use joulecast_reports::serving::Served;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "Examples:
  predict serve --net llama3_8b --gpu h100 --rate 4 --prompt 1024 --answer 256
  predict serve --net llama3_8b --gpu h100 --ttft 500ms --tpot 50ms --prompt 512..1536 --answer lognormal:256:0.5
  predict serve --net llama3_8b --gpu h100 --ttft 500ms --tpot 50ms --prompt 1024 --answer 256 --over cap
  predict serve --net llama3_1_70b --gpu h100 --tensor-parallel 4 --rate 2 --prompt 1024 --answer 256
  predict serve --net llama3_1_70b --gpu h100 --tensor-parallel 4 --tpot 50ms --prompt 1024 --answer 256 --over layout,cap
  predict serve --net llama3_8b --gpu h100 --tpot 50ms --prompt 1024 --answer 256 --over layout,stages,cap --objective cost --price 2.5 --price-kwh 0.2 --pue 1.3
  predict serve --net llama3_1_70b --gpu h100 --pipeline-parallel 2 --tensor-parallel 2 --data-parallel 2 --rate 8 --prompt 1024 --answer 256
  predict serve --net Qwen3-8B/config.json --gpu h200 --concurrency 32 --prompt 1024 --answer 256 --format json
  predict serve --net llama3_8b --gpu a100-sxm4-80gb --trace requests.csv    with the columns time,prompt,answer";

/// Further headings of options in help.
const LOAD: &str = "Load";
const ENGINE: &str = "Engine";
const PRICES: &str = "Prices";

#[derive(Args)]
#[command(group = ArgGroup::new("sought").args(["ttft", "tpot", "objective"]).multiple(true))]
pub struct ServeArgs {
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    reading: ReadingArgs,
    /// A GPU (`predict list gpus`) or a device file (data/gpus/README.md)
    #[arg(long, value_name = "NAME|FILE", required = true, help_heading = HARDWARE)]
    gpu: Option<String>,
    /// Storage and arithmetic: bf16, fp16, fp8 (linear layers in it and all others in bf16), fp32, tf32 or int8 (default: bf16;
    /// of a config.json what it says)
    #[arg(long, value_name = "PRECISION", value_parser = parse_precision, help_heading = MODEL)]
    precision: Option<Precision>,
    /// Framework profile: the engine, whose scheduler is simulated, and what it adds to a step's kernels: vllm, sglang or
    /// tensorrt-llm
    #[arg(long, value_name = "NAME", default_value = "vllm", help_heading = ENGINE)]
    framework: String,
    /// A calibration file or folder instead of the built-in ones, as `predict --calibration` takes it
    #[arg(long, value_name = "FILE|DIR", help_heading = ENGINE)]
    calibration: Option<PathBuf>,
    #[command(flatten)]
    operating: OperatingArgs,
    #[command(flatten)]
    layout: LayoutArgs,
    #[command(flatten)]
    mixture: MixtureArgs,

    /// Requests that come in a second, independently of each other (Poisson)
    #[arg(long, value_name = "N", value_parser = parse_positive, allow_negative_numbers = true, conflicts_with = "concurrency", help_heading = LOAD)]
    pub rate: Option<f64>,
    /// So many users, each of whom sends the next request when the last one is answered
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true, help_heading = LOAD)]
    pub concurrency: Option<u64>,
    /// Requests as they came: CSV with the columns time (seconds), prompt and answer (tokens); at another rate with --rate. Where all
    /// come at one time all count
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "answer", "requests"], help_heading = LOAD)]
    pub trace: Option<PathBuf>,
    /// Tokens of a prompt: 1024; from 512 to 1536, all alike likely: 512..1536; log-normal by its median and the deviation
    /// of the logarithm: lognormal:1024:0.5
    #[arg(long, value_name = "TOKENS", value_parser = str::parse::<Lengths>, required_unless_present = "trace", allow_negative_numbers = true, help_heading = LOAD)]
    pub prompt: Option<Lengths>,
    /// Tokens of an answer, written alike
    #[arg(long, value_name = "TOKENS", value_parser = str::parse::<Lengths>, required_unless_present = "trace", allow_negative_numbers = true, help_heading = LOAD)]
    pub answer: Option<Lengths>,
    /// Requests to simulate, for each replica of --data-parallel. Those that come while they fill (three times as long as a request
    /// takes, at least the first tenth, at most a quarter) and the last tenth do not count. Without it 2000, or as many as are
    /// under way twelve times over, at most 40000 for each replica; of many users twelve for each
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true, help_heading = LOAD)]
    pub requests: Option<u64>,
    /// Decides arrivals and lengths
    #[arg(long, value_name = "N", default_value = "1", help_heading = LOAD)]
    pub seed: u64,

    /// Target: time to the first token, as in 500ms; the highest rate that keeps it is looked for
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = ["rate", "concurrency"], help_heading = GOAL)]
    pub ttft: Option<Seconds>,
    /// Target: time for each further token, as in 50ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = ["rate", "concurrency"], help_heading = GOAL)]
    pub tpot: Option<Seconds>,
    /// Which requests keep the target or are what --objective compares: p50, p90, p99, or their mean
    #[arg(long, value_name = "WHICH", default_value = "p90", value_parser = parse_which, requires = "sought", help_heading = GOAL)]
    pub quantile: Which,
    /// Also other settings, separated by commas: with a target each at the rate that keeps it
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = GOAL)]
    pub over: Vec<ServeOver>,

    /// Most new tokens of a step (default: as the engine; vLLM 8192 on GPUs of 70 GiB and more but A100s, else 2048;
    /// TensorRT-LLM 8192; SGLang, of prompts alone, 2048 to 16384 by the GPU's memory)
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true, help_heading = ENGINE)]
    pub max_num_batched_tokens: Option<u64>,
    /// Most sequences that run at once (default: vLLM 1024 and 256 on the same GPUs, the others 2048)
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true, help_heading = ENGINE)]
    pub max_num_seqs: Option<u64>,
    /// Tokens of a block of the cache (default: vLLM 16, TensorRT-LLM 32, SGLang 1)
    #[arg(long, value_name = "N", value_parser = parse_size, allow_negative_numbers = true, help_heading = ENGINE)]
    pub block_size: Option<u64>,
    /// Share of the GPU's memory that weights, activations and the cache take
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = parse_share, allow_negative_numbers = true, help_heading = ENGINE)]
    pub gpu_memory_utilization: f64,
    /// Prompts may be computed in chunks that fill a step: as vLLM and SGLang do without a word
    #[arg(long, conflicts_with = "no_chunked_prefill", help_heading = ENGINE)]
    pub enable_chunked_prefill: bool,
    /// Prompts are computed whole, not in chunks: as TensorRT-LLM does without a word
    #[arg(long, help_heading = ENGINE)]
    pub no_chunked_prefill: bool,
    /// A request begins where the first chunk of its prompt fits in the cache, not all of it: as vLLM before 2026; of vLLM only
    #[arg(long, help_heading = ENGINE)]
    pub no_scheduler_reserve_full_isl: bool,

    /// What a GPU costs per hour, in any currency: also the cost of a million tokens of answers
    #[arg(long, value_name = "PRICE", value_parser = parse_positive, allow_negative_numbers = true, help_heading = PRICES)]
    pub price: Option<f64>,
    /// Price of a kilowatt-hour that is paid besides (default: the hour's price includes energy)
    #[arg(long, value_name = "PRICE", value_parser = parse_positive, allow_negative_numbers = true, requires = "price", help_heading = PRICES)]
    pub price_kwh: Option<f64>,
    /// Facility power over that of the GPUs, of which electricity is paid
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_pue, allow_negative_numbers = true, requires = "price_kwh", help_heading = PRICES)]
    pub pue: f64,
    /// Prices of the GPU, its part of a server, electricity and cooling from a plan, as `predict plan` reads them
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["price", "price_kwh", "pue"], help_heading = PRICES)]
    pub prices: Option<PathBuf>,
    /// With --over: the best setting by cost, energy, throughput (tokens/s for each GPU), ttft, tpot or latency (of answers), at
    /// --quantile
    #[arg(long, value_name = "GOAL", value_parser = parse_goal, requires = "over", help_heading = GOAL)]
    pub objective: Option<Goal>,

    /// Prompts and answers on replicas of their own: so many for prompts, and so many for answers, as in 1:2
    #[arg(long, value_name = "N:N", value_parser = parse_pools, allow_negative_numbers = true, help_heading = HARDWARE)]
    pub disaggregate: Option<(usize, usize)>,
    /// What joins several GPUs (`predict list interconnects`; default: what such boards have)
    #[arg(long, value_name = "NAME", help_heading = HARDWARE)]
    interconnect: Option<String>,

    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Served>(), default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ServeArgs {
    /// The GPU as typed.
    pub fn typed_gpu(&self) -> &str {
        self.gpu.as_deref().unwrap_or_default()
    }

    /// What runs, as far as other questions know it.
    ///
    /// # Errors
    /// When there is no such layout.
    pub fn request(&self) -> Result<Request, Failure> {
        let gpu = self.typed_gpu();
        Ok(Request {
            reading: self.mixture.fill(self.reading.reading(None)),
            teams: vec![Team::of(1, gpu)],
            precisions: vec![self.precision.unwrap_or(Precision::Bf16)],
            open: self.precision.is_none(),
            runner: Runner { calibration: self.calibration.clone(), ..Runner::through(&self.framework) },
            point: self.operating.point(),
            interconnect: self.interconnect.clone(),
            layout: self.layout.layout()?,
            stored: self.layout.stored(),
            ..Request::new(self.net.net(), gpu)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServeOver {
    /// Power limits
    Cap,
    /// Core clocks
    Clock,
    /// Layouts over the GPUs of a node that divide every block
    Layout,
    /// Pipelines over the GPUs of a node
    Stages,
    /// Several replicas on the GPUs of a node, which take requests in turn
    Replicas,
    /// Smaller batches: fewer sequences of a step
    Seqs,
    /// Smaller budgets: fewer tokens of a step
    Tokens,
}

fn parse_which(text: &str) -> Result<Which, String> {
    let known = Which::ALL.into_iter().find(|(_, name)| *name == text);
    known.map(|(which, _)| which).ok_or_else(|| one_of(Which::ALL.iter().map(|(_, name)| *name)))
}

fn parse_goal(text: &str) -> Result<Goal, String> {
    let known = Goal::ALL.into_iter().find(|(_, name, _)| *name == text);
    known.map(|(goal, ..)| goal).ok_or_else(|| one_of(Goal::ALL.iter().map(|(_, name, _)| *name)))
}

fn parse_pue(text: &str) -> Result<f64, String> {
    let pue = text.parse::<f64>().ok().filter(|pue| (1.0..=5.0).contains(pue));
    pue.ok_or("is facility power over that of the GPUs, from 1 to 5".into())
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or("must be a number above 0 and at most 1".into())
}

/// No more replicas are side by side.
const MOST_REPLICAS: usize = 1024;

fn parse_pools(text: &str) -> Result<(usize, usize), String> {
    let count = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=MOST_REPLICAS).contains(n));
    let pools = text.split_once(':').and_then(|(prefill, decode)| Some((count(prefill)?, count(decode)?)));
    pools.ok_or_else(|| format!("write it like 1:2, two numbers from 1 to {MOST_REPLICAS}"))
}
