//! What is asked: which networks, on which GPUs, run how. A command line is one way to fill it in, Rust the other.

use crate::failure::Failure;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::shape::{MAX_DIMENSION, Shape};
use joulecast_model::base::units::Seconds;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::net::layer::Optimizer;
use joulecast_model::net::network::Stored;
use joulecast_model::net::network::folding::Folding;
use joulecast_model::net::share::Layout;
use joulecast_model::step::framework::{Launch, LossScaling};
use joulecast_model::step::predictor::{OperatingPoint, Warning};
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;

/// How networks are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Other shapes for inputs, by name; without the batch.
    pub inputs: Vec<(String, Shape)>,
    /// ONNX: operators that are not known are left out.
    pub skip_unknown: bool,
    /// What becomes of batch norms that an export folded.
    pub folding: Folding,
    /// ONNX: the most elements that operators select whose values decide how many.
    pub selected: Option<u64>,
    /// Tokens per sample, for networks that read a sequence.
    pub sequence: Option<u64>,
    /// Mixtures of experts: how many times as many tokens busy experts have as the mean; what the network says without.
    pub imbalance: Option<f64>,
}

/// Whose host launches eager steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum HostAsked {
    /// One of those that the framework profile was measured on; which is not known.
    #[default]
    Profile,
    /// One whose launches take so many times as long.
    Factor(f64),
    /// That of a file `host/1`, as `calibrate host` writes it.
    File(PathBuf),
    /// The same, where the user keeps it: steps that no host launches have no use for it.
    Usual(PathBuf),
}

/// What runs steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Runner {
    /// Framework profile.
    pub framework: String,
    /// As the framework usually does without.
    pub launch: Option<Launch>,
    /// Age of the framework's libraries (`joulecast_model::kernel::features::library_age`).
    pub library: Option<f64>,
    /// What computes convolutions where it can.
    pub algorithm: Option<Algorithm>,
    /// Without the jumps of the library's version.
    pub best_algorithms: bool,
    /// A calibration file, or a folder of them, instead of the shipped ones.
    pub calibration: Option<PathBuf>,
    /// Whose host launches eager steps.
    pub host: HostAsked,
    /// Whether trainings in 16 bits scale their loss; fp16 does without.
    pub loss_scaling: Option<LossScaling>,
}

/// GPUs that run a step together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// What it is called.
    pub name: String,
    /// How many of each kind: a built-in name or a device file.
    pub kinds: Vec<(u64, String)>,
}

impl Team {
    /// So many GPUs of a kind, called by its name.
    pub fn of(count: u64, gpu: &str) -> Self {
        Self { name: gpu.to_string(), kinds: vec![(count, gpu.to_string())] }
    }

    /// All GPUs of it.
    pub fn gpus(&self) -> u64 {
        self.kinds.iter().map(|(count, _)| count).sum()
    }
}

/// Samples of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// So many.
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

impl Display for Batch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Samples(n) => n.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

impl FromStr for Batch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u64>() {
            _ if text == "max" => Ok(Self::Max),
            Ok(n) if (1..=MAX_DIMENSION).contains(&n) => Ok(Self::Samples(n)),
            _ => Err(format!("must be a whole number from 1 to {MAX_DIMENSION}, or max")),
        }
    }
}

/// A whole training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epochs {
    /// Passes over the dataset.
    pub epochs: u64,
    /// Samples of the dataset.
    pub dataset_size: u64,
    /// Price of a kilowatt-hour, in any currency.
    pub price_per_kwh: Option<f64>,
    /// What the program takes before the first step; what the framework profile knows without.
    pub start: Option<Seconds>,
}

/// What is asked. Questions about one network, team, batch, precision or mode refuse several.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Networks of the zoo or files; `all` alone for the zoo.
    pub networks: Vec<String>,
    /// How they are read.
    pub reading: Reading,
    /// What runs them.
    pub teams: Vec<Team>,
    /// Whether a batch counts the samples of each GPU, not those of the whole step.
    pub weak: bool,
    /// What joins the GPUs of a team; what such boards have without.
    pub interconnect: Option<String>,
    /// What of a language model is stored in fewer bits.
    pub stored: Stored,
    /// How a language model lies on several GPUs of the team's one kind.
    pub layout: Option<Layout>,
    /// Samples per second that the host feeds to all GPUs of a team, or the name of an input of the profile.
    pub input_rate: Option<String>,
    /// Samples per step.
    pub batches: Vec<Batch>,
    /// Storage and arithmetic.
    pub precisions: Vec<Precision>,
    /// Whether nobody chose that: networks whose files say in what they are published run in it ([`Session::settled`]).
    ///
    /// [`Session::settled`]: crate::Session::settled
    pub open: bool,
    /// What to tell of what was settled so.
    pub told: Vec<Warning>,
    /// Inference or training.
    pub modes: Vec<Mode>,
    /// What runs steps.
    pub runner: Runner,
    /// What updates the parameters in training; momentum without.
    pub optimizer: Option<Optimizer>,
    /// Clocks and power limit.
    pub point: OperatingPoint,
    /// Whether what does not fit in memory is a failure.
    pub require_fit: bool,
    /// The whole training, where that is asked for.
    pub epochs: Option<Epochs>,
}

impl Request {
    /// An inference of one sample in fp32, kernels of cuDNN back to back.
    pub fn new(network: &str, gpu: &str) -> Self {
        Self {
            networks: vec![network.to_string()],
            reading: Reading::default(),
            teams: vec![Team::of(1, gpu)],
            weak: false,
            interconnect: None,
            layout: None,
            stored: Stored::default(),
            input_rate: None,
            batches: vec![Batch::Samples(1)],
            precisions: vec![Precision::Fp32],
            open: false,
            told: Vec::new(),
            modes: vec![Mode::Inference],
            runner: Runner::through("cudnn"),
            optimizer: None,
            point: OperatingPoint::default(),
            require_fit: false,
            epochs: None,
        }
    }

    /// With steps of so many samples.
    #[must_use]
    pub fn batch(self, samples: u64) -> Self {
        Self { batches: vec![Batch::Samples(samples)], ..self }
    }

    /// With steps of a training.
    #[must_use]
    pub fn training(self) -> Self {
        Self { modes: vec![Mode::Training], ..self }
    }

    /// In a precision.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        Self { precisions: vec![precision], ..self }
    }

    /// Through a framework profile.
    #[must_use]
    pub fn through(self, framework: &str) -> Self {
        Self { runner: Runner { framework: framework.to_string(), ..self.runner }, ..self }
    }
}

impl Runner {
    /// A framework profile as it usually runs.
    pub fn through(framework: &str) -> Self {
        let framework = framework.to_string();
        Self {
            framework,
            launch: None,
            library: None,
            algorithm: None,
            best_algorithms: false,
            calibration: None,
            host: HostAsked::Profile,
            loss_scaling: None,
        }
    }
}

/// The one of a list.
///
/// # Errors
/// When there are none or several.
pub(crate) fn only<'a, T>(list: &'a [T], what: &str) -> Result<&'a T, Failure> {
    match list {
        [one] => Ok(one),
        _ => Err(Failure::usage(format_args!("this question is about one {what}, not {}", list.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_number_or_as_many_as_fit() {
        assert_eq!(("64".parse(), "max".parse()), (Ok(Batch::Samples(64)), Ok(Batch::Max)));
        for wrong in ["0", "-3", "many", "1e3"] {
            assert!(wrong.parse::<Batch>().is_err(), "{wrong}");
        }
    }
}
