//! Steps that several GPUs share: `--gpus`, `--interconnect`, `--scaling`.

use crate::cli::PredictArgs;
use crate::commands::{Failure, Parts, refused};
use crate::devices::identity;
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use joulecast_model::base::precision::Mode;
use joulecast_model::base::shape::MAX_DIMENSION;
use joulecast_model::base::units::Watts;
use joulecast_model::catalog;
use joulecast_model::device::gpu::{Device, Gpu};
use joulecast_model::law::power::waiting;
use joulecast_model::step::input::fed;
use joulecast_model::step::memory::{MOST_UNITS, largest_batch};
use joulecast_model::step::parallel::{Fabric, Share, combine};
use joulecast_model::step::predictor::Warning;
use joulecast_model::step::predictor::{NetworkPrediction, Step};
use std::collections::HashMap;

/// No machine park has more.
const MOST_GPUS: u64 = 65_536;

#[derive(Args)]
pub struct ParallelArgs {
    /// Share each step among several GPUs: how many of --gpu, or kinds, as in 2xtitan-x-pascal,2xtitan-x-maxwell (then
    /// without --gpu)
    #[arg(long, value_name = "N|NxNAME,…", value_parser = parse_gpus)]
    pub gpus: Option<Gpus>,
    /// What joins them (`predict list interconnects`; default: what such boards have)
    #[arg(long, value_name = "NAME", requires = "gpus")]
    pub interconnect: Option<String>,
    /// What --batch counts: strong: the whole step's samples, divided among the GPUs; weak: those of each GPU
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Scaling::Strong, requires = "gpus")]
    pub scaling: Scaling,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scaling {
    /// One batch, split
    Strong,
    /// A batch for each GPU
    Weak,
}

/// What `--gpus` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// So many of `--gpu`.
    Count(u64),
    /// So many of each name.
    Kinds(Vec<(u64, String)>),
}

/// What `--batch` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// So many samples.
    Samples(u64),
    /// As many as fit in memory.
    Max,
}

impl Batch {
    /// The number, where it is one.
    pub fn samples(self) -> Option<u64> {
        match self {
            Self::Samples(n) => Some(n),
            Self::Max => None,
        }
    }
}

pub fn parse_batch(text: &str) -> Result<Batch, String> {
    match text.parse::<u64>() {
        _ if text == "max" => Ok(Batch::Max),
        Ok(n) if (1..=MAX_DIMENSION).contains(&n) => Ok(Batch::Samples(n)),
        _ => Err(format!("must be a whole number from 1 to {MAX_DIMENSION}, or max")),
    }
}

fn parse_gpus(text: &str) -> Result<Gpus, String> {
    let count = |text: &str| {
        text.parse::<u64>()
            .ok()
            .filter(|n| (1..=MOST_GPUS).contains(n))
            .ok_or_else(|| format!("\"{text}\" is not a number of GPUs from 1 to {MOST_GPUS}"))
    };
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Gpus::Count(count(text)?));
    }
    let kind = |part: &str| match part.split_once('x') {
        Some((n, name)) if !name.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) && !n.is_empty() => {
            Ok((count(n)?, name.to_string()))
        }
        _ => Err(format!("\"{part}\" is not like 2xv100")),
    };
    Ok(Gpus::Kinds(text.split(',').map(|part| kind(part.trim())).collect::<Result<_, _>>()?))
}

/// The kinds of GPU that a command line names, each with how many.
///
/// # Errors
/// When it names none, or twice.
pub fn kinds(args: &PredictArgs) -> Result<Vec<(u64, String)>, Failure> {
    let usage = |text: &str| Err(Failure::Usage(anyhow!("{text}")));
    match (&args.parallel.gpus, &args.gpu) {
        (None, Some(gpu)) => Ok(vec![(1, gpu.clone())]),
        (Some(Gpus::Count(n)), Some(gpu)) => Ok(vec![(*n, gpu.clone())]),
        (Some(Gpus::Kinds(kinds)), None) => {
            let mut seen = HashMap::new();
            for (count, name) in kinds {
                if let Some((before, other)) = seen.insert(identity(name)?, (count, name)) {
                    let sum = before + count;
                    return usage(&format!("--gpus: {other} and {name} are one kind of GPU: write {sum}x{name}"));
                }
            }
            Ok(kinds.clone())
        }
        (Some(Gpus::Kinds(_)), Some(_)) => usage("--gpus already names the GPUs: leave --gpu out"),
        (_, None) => usage("which GPU? --gpu NAME, or --gpus 2xNAME,2xOTHER"),
    }
}

/// Samples of each GPU.
fn part(args: &PredictArgs, kinds: &[(u64, Parts)]) -> Result<u64, Failure> {
    let gpus: u64 = kinds.iter().map(|(n, _)| n).sum();
    let weak = args.parallel.scaling == Scaling::Weak;
    match args.batch.unwrap_or(Batch::Samples(1)) {
        Batch::Samples(n) if weak => Ok(n),
        Batch::Samples(n) if n.is_multiple_of(gpus) => Ok(n / gpus),
        Batch::Samples(n) => {
            let near = [n / gpus * gpus, n.div_ceil(gpus) * gpus];
            let near = near.iter().filter(|n| **n > 0).map(u64::to_string).collect::<Vec<_>>().join(" or ");
            Err(Failure::Usage(anyhow!("a batch of {n} does not divide among {gpus} GPUs: {near} does")))
        }
        Batch::Max => {
            let mut least = None;
            for (_, parts) in kinds {
                let policy = &parts.framework.memory;
                let found = largest_batch(parts.gpu.memory.value, args.mode, policy, 1, |b| parts.network(args, b))?;
                let Some(batch) = found else {
                    let why = anyhow!("not even one sample fits in the memory of {}", parts.gpu.name);
                    return Err(Failure::Failed(why));
                };
                least = Some(least.map_or(batch, |b: u64| b.min(batch)));
            }
            Ok(least.unwrap_or(1))
        }
    }
}

/// A step that a command line asks for.
pub struct Asked {
    pub prediction: NetworkPrediction,
    /// Of the first kind of GPU.
    pub parts: Parts,
    /// What all GPUs together draw with nothing to do.
    pub waiting: Watts,
}

/// The step that a command line asks for, on one GPU or several.
///
/// # Errors
/// When an argument is wrong, or nothing can be predicted.
pub fn step(args: &PredictArgs) -> Result<Asked, Failure> {
    let net = args.network.name();
    let mut kinds: Vec<(u64, Parts)> = kinds(args)?
        .into_iter()
        .map(|(n, name)| Ok((n, Parts::read(args, &name, net)?)))
        .collect::<Result<_, Failure>>()?;
    let gpus: u64 = kinds.iter().map(|(n, _)| n).sum();
    if let Some((_, cpu)) = kinds.iter().find(|(_, parts)| gpus > 1 && parts.gpu.device == Device::Cpu) {
        return Err(Failure::Usage(anyhow!("{} is a processor: --gpus shares a step among GPUs", cpu.gpu.name)));
    }
    let batch = part(args, &kinds)?;
    let network = kinds[0].1.network(args, batch)?;
    let mut shares = Vec::new();
    for (count, parts) in &kinds {
        let step = Step::new(&network, &parts.setup(args)).map_err(refused)?;
        let mut alone = step.at(args.operating.point()).map_err(refused)?;
        alone.warnings.splice(..0, parts.note());
        shares.push(Share { count: *count, gpu: &parts.gpu, alone });
    }
    let prediction = if gpus > 1 {
        let boards: Vec<_> = kinds.iter().map(|(_, parts)| &parts.gpu).collect();
        let asked = args.parallel.interconnect.as_deref().map(catalog::interconnect).transpose();
        let asked = asked.map_err(|e| Failure::Usage(e.into()))?;
        // Inference sums nothing: no node is too small for it.
        let across = if args.mode == Mode::Training { gpus } else { 1 };
        let known = catalog::interconnects().map_err(|e| Failure::Failed(e.into()))?;
        let fabric = Fabric::of(&known, &boards, across, asked).map_err(|e| Failure::Usage(e.into()))?;
        combine(shares, &network, &fabric, &kinds[0].1.framework)
    } else {
        shares.pop().map(|share| share.alone)
    };
    let mut prediction = prediction.ok_or_else(|| Failure::Usage(anyhow!("--gpus names no GPU")))?;
    if args.batch == Some(Batch::Max) && batch == MOST_UNITS {
        prediction.warnings.push(Warning::LargestTried { batch: MOST_UNITS });
    }
    let gpus: Vec<&Gpu> = kinds.iter().map(|(_, parts)| &parts.gpu).collect();
    let prediction = match args.input.samples_per_second(&kinds[0].1.framework)? {
        Some(rate) => fed(prediction, rate, &gpus),
        None => prediction,
    };
    let waiting = kinds.iter().map(|(n, parts)| waiting(&parts.gpu) * *n as f64).sum();
    Ok(Asked { prediction, parts: kinds.swap_remove(0).1, waiting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_a_number_or_kinds() {
        assert_eq!(parse_gpus("4"), Ok(Gpus::Count(4)));
        let mixed = vec![(2, "titan-x-pascal".to_string()), (2, "titan-x-maxwell".to_string())];
        assert_eq!(parse_gpus("2xtitan-x-pascal,2xtitan-x-maxwell"), Ok(Gpus::Kinds(mixed)));
        for wrong in ["0", "-1", "v100", "2x", "x2", "2xv100,", "99999999", ""] {
            assert!(parse_gpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_batch_is_a_number_or_as_many_as_fit() {
        assert_eq!((parse_batch("64"), parse_batch("max")), (Ok(Batch::Samples(64)), Ok(Batch::Max)));
        for wrong in ["0", "-3", "many", "1e3"] {
            assert!(parse_batch(wrong).is_err(), "{wrong}");
        }
    }
}
