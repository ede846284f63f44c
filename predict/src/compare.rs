//! `predict compare`: networks on GPUs side by side, which GPU is best for what, and budgets turned round.

use crate::cli::{FoldingArgs, parse_batch, parse_mode, parse_positive, parse_precision};
use crate::commands::{Failure, command_line, refused};
use crate::devices::{Device, FrameworkArgs, How, gpus, identity, names, once};
use crate::generate::answer;
use crate::networks::{network, networks};
use crate::output::OutputArgs;
use anyhow::anyhow;
use clap::Args;
use joulecast_model::ask::budget::{Bound, Budget, largest_batch};
use joulecast_model::ask::comparison::{Entry, Largest};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_model::catalog;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, Step};
use joulecast_reports::compare::{Comparison, figure};
use joulecast_reports::export::{Format, format_of};
use std::path::PathBuf;

/// No larger batch is tried for a budget.
const LARGEST_BATCH: u64 = 4096;

#[derive(Args)]
pub struct CompareArgs {
    /// Networks or network files, separated by commas, or all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub net: Vec<String>,
    /// GPUs or device files, separated by commas, or all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub gpu: Vec<String>,
    /// Samples per step, separated by commas; with a budget: only these are tried (default there: any)
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_batch, allow_negative_numbers = true)]
    pub batch: Vec<u64>,
    /// Storage and arithmetic; fp32 means TF32 off
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = parse_precision)]
    pub precision: Precision,
    /// inference: one forward pass; training: forward, backward and update
    #[arg(long, value_name = "MODE", default_value = "inference", value_parser = parse_mode)]
    pub mode: Mode,
    #[command(flatten)]
    pub framework: FrameworkArgs,
    #[command(flatten)]
    pub folding: FoldingArgs,
    /// Tokens per sample, for networks that read a sequence
    #[arg(long, value_name = "N", value_parser = parse_batch, allow_negative_numbers = true)]
    pub sequence: Option<u64>,
    /// Language models: whole answers of so many tokens per sample to prompts of --sequence tokens, instead of steps
    #[arg(long, value_name = "N", value_parser = parse_batch, allow_negative_numbers = true)]
    pub generate: Option<u64>,
    /// Core clock of all GPUs
    #[arg(long, value_name = "MHZ", value_parser = parse_positive, allow_negative_numbers = true)]
    pub clock: Option<f64>,
    /// Power limit of all GPUs
    #[arg(long, value_name = "W", value_parser = parse_positive, allow_negative_numbers = true)]
    pub power_cap: Option<f64>,
    /// Weight of the error in the energy-precision ratio, error^alpha times energy per sample
    #[arg(long, value_name = "ALPHA", default_value = "1", value_parser = parse_positive, allow_negative_numbers = true)]
    pub alpha: f64,
    /// What a GPU costs per hour, as in v100=2.5,t4=0.4; any currency
    #[arg(long, value_name = "GPU=PRICE", value_delimiter = ',', value_parser = parse_price)]
    pub price: Vec<(String, f64)>,
    /// Budget: longest time of a step
    #[arg(long, value_name = "MS", value_parser = parse_positive, allow_negative_numbers = true)]
    pub target_latency: Option<f64>,
    /// Budget: most energy per sample
    #[arg(long, value_name = "J", value_parser = parse_positive, allow_negative_numbers = true)]
    pub energy_budget: Option<f64>,
    /// Budget: most mean power of the board
    #[arg(long, value_name = "W", value_parser = parse_positive, allow_negative_numbers = true)]
    pub max_power: Option<f64>,
    /// Budgets must be kept by the 95 % quantiles, not only by the values
    #[arg(long)]
    pub sure: bool,
    /// Draw time, power and energy per sample with their intervals as SVG
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_parser = format_of::<Comparison>(), default_value_t = Format::Table)]
    pub format: Format,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn parse_price(text: &str) -> Result<(String, f64), String> {
    let (gpu, price) = text.split_once('=').ok_or("write it like v100=2.5")?;
    Ok((gpu.to_string(), parse_positive(price)?))
}

impl CompareArgs {
    fn budget(&self) -> Budget {
        Budget {
            latency: self.target_latency.map(Seconds::from_ms),
            energy_per_sample: self.energy_budget.map(Joules::new),
            power: self.max_power.map(Watts::new),
            sure: self.sure,
        }
    }

    fn gpus(&self) -> Vec<String> {
        names(&self.gpu, catalog::gpu_names())
    }

    fn check(&self) -> Result<(), Failure> {
        let budget = self.budget();
        let why = if self.batch.is_empty() && budget.is_free() {
            "give --batch, or a budget: --target-latency, --energy-budget or --max-power".to_string()
        } else if self.sure && budget.is_free() {
            "--sure is about budgets: give --target-latency, --energy-budget or --max-power".to_string()
        } else if self.generate.is_some() && self.mode == Mode::Training {
            "--generate is of inference".to_string()
        } else if let Some(why) = self.wrong_price()? {
            why
        } else {
            return Ok(());
        };
        Err(Failure::Usage(anyhow!(why)))
    }

    /// What is wrong with the prices: of a GPU that is not compared, or two of one.
    fn wrong_price(&self) -> Result<Option<String>, Failure> {
        if self.price.is_empty() {
            return Ok(None);
        }
        let compared = self.gpus().iter().map(|gpu| identity(gpu)).collect::<Result<Vec<_>, _>>()?;
        let mut priced = Vec::new();
        for (typed, _) in &self.price {
            let gpu = identity(typed)?;
            if !compared.contains(&gpu) {
                return Ok(Some(format!("--price names {typed}, which --gpu does not")));
            }
            if priced.contains(&gpu) {
                return Ok(Some(format!("--price names {typed} more than once, however it is written")));
            }
            priced.push(gpu);
        }
        Ok(None)
    }

    /// What a GPU costs per hour, whatever it is called there.
    fn price_of(&self, gpu: &str) -> Result<Option<f64>, Failure> {
        if self.price.is_empty() {
            return Ok(None);
        }
        let wanted = identity(gpu)?;
        for (name, price) in &self.price {
            if identity(name)? == wanted {
                return Ok(Some(*price));
            }
        }
        Ok(None)
    }

    fn point(&self) -> OperatingPoint {
        OperatingPoint {
            core_clock: self.clock.map(Hertz::from_mhz),
            memory_clock: None,
            power_cap: self.power_cap.map(Watts::new),
        }
    }

    fn title(&self, how: &How) -> String {
        let mut title =
            format!("{} {}, {} profile ({})", how.precision, how.mode, how.framework.name, how.launch().name());
        let mut also = |text: Option<String>| title.extend(text.map(|t| format!(", {t}")));
        also(how.framework.algorithm().map(|a| format!("convolutions by {}", a.name())));
        also(self.sequence.map(|n| format!("{n} tokens")));
        also(self.generate.map(|n| format!("answers of {n} tokens")));
        title
    }
}

/// A network on a GPU at any batch.
struct Pair<'a> {
    args: &'a CompareArgs,
    how: &'a How,
    device: &'a Device,
    typed: &'a str,
    network: &'a Network,
    price: Option<f64>,
}

impl Pair<'_> {
    fn at(&self, batch: u64) -> Result<NetworkPrediction, Failure> {
        let (how, setup, point) = (self.how, self.device.setup(self.how), self.args.point());
        if let Some(tokens) = self.args.generate {
            return Ok(answer(self.network, tokens, (batch, how.precision), &setup, point)?.total);
        }
        let shaped = ShapedNetwork::new(self.network, batch, how.precision, &[])
            .map_err(|e| Failure::Failed(anyhow!("{}: {e}", self.network.name)))?;
        let shaped = how.framework.runs(shaped);
        Step::new(&shaped, &setup).and_then(|s| s.at(point)).map_err(refused)
    }

    fn entry(&self, prediction: NetworkPrediction) -> Entry {
        Entry::new(self.typed, prediction, self.network.published.top1_error, self.args.alpha, self.price)
    }

    /// The largest batch within the budget, of those asked for or of all.
    fn largest(&self, budget: &Budget) -> Result<Largest, Failure> {
        let broken = |batch| Ok::<_, Failure>(budget.broken(&self.at(batch)?));
        let (batch, stopped) = if self.args.batch.is_empty() {
            largest_batch(LARGEST_BATCH, broken)?
        } else {
            let mut asked = self.args.batch.clone();
            asked.sort_unstable();
            let (mut best, mut stopped) = (None, Bound::Tried);
            for batch in asked {
                match broken(batch)? {
                    None => (best, stopped) = (Some(batch), Bound::Tried),
                    Some(bound) if stopped == Bound::Tried => stopped = bound,
                    Some(_) => {}
                }
            }
            (best, stopped)
        };
        let entry = match batch {
            Some(batch) => Some(self.entry(self.at(batch)?)),
            None => None,
        };
        Ok(Largest { network: self.network.name.clone(), gpu: self.typed.to_string(), entry, stopped })
    }
}

/// `predict compare`
pub fn compare(args: &CompareArgs) -> Result<(), Failure> {
    args.check()?;
    args.output.check(args.figure.clone())?;
    let how = How::new(&args.framework, args.precision, args.mode)?;
    let networks = networks(&args.net, |n| network(n, args.sequence, args.folding))?;
    let networks: Vec<Network> = networks.into_iter().map(|(_, network)| network).collect();
    let devices = gpus(&args.gpus())?
        .into_iter()
        .map(|(typed, gpu)| Ok((args.price_of(&typed)?, typed, Device::of(gpu, &how)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let batches = once(args.batch.clone(), "--batch", u64::to_string);
    let budget = args.budget();
    let (mut entries, mut largest) = (Vec::new(), Vec::new());
    for network in &networks {
        for (price, typed, device) in &devices {
            let pair = Pair { args, how: &how, device, typed, network, price: *price };
            for &batch in &batches {
                entries.push(pair.entry(pair.at(batch)?));
            }
            if !budget.is_free() {
                largest.push(pair.largest(&budget)?);
            }
        }
    }
    let comparison = Comparison {
        title: args.title(&how),
        alpha: args.alpha,
        entries,
        budget: (!budget.is_free()).then_some(budget),
        largest,
    };
    if let Some(path) = &args.figure {
        let svg = figure(&comparison, command_line()).map_err(|e| Failure::Failed(e.into()))?;
        args.output.write(path, &svg)?;
    }
    args.output.export(&comparison, args.format)
}
