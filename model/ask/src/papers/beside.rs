//! What papers printed beside what is predicted: values, and what is known of them.

use super::mapping::Quantity;
use super::printed::{Cell, Printed};
use joulecast_model::base::units::{Joules, Seconds, Watts};
use joulecast_model::step::calibrations::Calibrations;
use serde::Serialize;
use std::sync::Arc;

/// Printed time, power and energy of a step that differ by more from energy = power * time contradict each other.
const CONSISTENT_WITHIN: f64 = 0.1;

/// A printed value beside its prediction, in SI units; times and energies of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Key of the paper in `papers.toml`, such as `castro2018`.
    pub paper: String,
    /// The table that it is printed in, such as `Table 4`.
    pub table: String,
    /// Device, as in the catalog; what is printed is of one of them.
    pub gpu: String,
    /// All devices of the step.
    pub gpus: u64,
    /// Which they are, as in 2xv100; several kinds separated by commas.
    pub setup: String,
    /// How many of them are of the printed kind.
    pub count: u64,
    /// The network, in the words of the paper.
    pub network: String,
    /// Which reading of the paper's description; empty where there is only one.
    pub reading: String,
    /// Network of the catalog that was predicted.
    pub net: String,
    /// forward, backward, train or inference, as printed.
    pub phase: String,
    /// Samples per step.
    pub batch: u64,
    /// Name of the framework profile that was predicted with.
    pub framework: String,
    /// Id of the calibration that was predicted with.
    pub calibration: String,
    /// `shipped`, or `evaluation`: without the shapes of networks that are held out.
    pub fit: String,
    /// Version of cuDNN whose age was predicted with; without one the newest that the layer models saw.
    pub cudnn: Option<String>,
    /// Which quantity, hence the unit: seconds, watts, joules, bytes.
    pub quantity: Quantity,
    /// What the paper prints, of a step.
    pub printed: f64,
    /// What is predicted.
    pub predicted: f64,
    /// 5 % quantile of the prediction.
    pub p05: f64,
    /// 95 % quantile of the prediction.
    pub p95: f64,
    /// Whether it was among those that the paper's unknowns were fitted to.
    pub fitted: bool,
    /// Why the printed value enters no mean.
    pub distorted: Option<String>,
}

impl Compared {
    /// Signed error in percent of the printed value.
    pub fn error(&self) -> f64 {
        100.0 * (self.predicted / self.printed - 1.0)
    }

    /// Whether the 90 % interval holds the printed value.
    pub fn holds(&self) -> bool {
        (self.p05..=self.p95).contains(&self.printed)
    }
}

/// Values that are not predicted, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotPredicted {
    /// Key of the paper in `papers.toml`, such as `castro2018`.
    pub paper: String,
    /// The table that they are printed in.
    pub table: String,
    /// Why nothing is predicted of them.
    pub why: String,
    /// How many printed values.
    pub values: usize,
}

/// A paper's tables beside predictions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// Values that are predicted, in the order of the paper's file; once per reading.
    pub rows: Vec<Compared>,
    /// The others.
    pub not_predicted: Vec<NotPredicted>,
}

/// Which predictor stands beside the papers.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// This framework profile, instead of the one that the mapping gives.
    pub framework: Option<&'a str>,
    /// The newest libraries that the layer models saw, whatever the paper ran.
    pub newest_library: bool,
    /// These calibrations instead of the shipped ones.
    pub calibrations: Option<Arc<Calibrations>>,
}

/// The three printed values of a case.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    time: Option<Seconds>,
    power: Option<Watts>,
    energy: Option<Joules>,
}

impl Doubt {
    pub fn add(&mut self, cell: &Cell) {
        match cell.value {
            Printed::Time(time) => self.time = Some(time),
            Printed::Power(power) => self.power = Some(power),
            Printed::Energy(energy) => self.energy = Some(energy),
            Printed::Rate(_) | Printed::Memory(_) | Printed::Other => {}
        }
    }

    pub fn contradiction(&self) -> Option<String> {
        let (time, power, energy) = (self.time?, self.power?, self.energy?);
        let mean = energy / time;
        let apart = (power / mean - 1.0).abs() > CONSISTENT_WITHIN;
        apart.then(|| format!("energy over time is {:.0} W, printed power {:.0} W", mean.get(), power.get()))
    }
}

/// What was fitted for a network.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Nuisance {
    /// Samples per step.
    pub batch: u64,
    /// Times as long as foreseen on GPUs.
    pub factor: f64,
    /// The same on processors.
    pub on_processors: f64,
    /// Frameworks whose rows it was fitted to.
    pub fitted_on: Vec<String>,
}

impl Nuisance {
    /// Times as long as foreseen; of a run on processors where it has no GPU.
    pub fn factor_on(&self, gpus: u64) -> f64 {
        if gpus == 0 { self.on_processors } else { self.factor }
    }
}
