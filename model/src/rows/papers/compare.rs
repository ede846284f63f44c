//! What papers printed beside what is predicted.

use super::error::{PaperError, Refusal};
use super::line::Case;
use super::mapping::{Metric, Paper, Quantity};
use super::printed::{Cell, Printed, from_csv};
use super::subject::{Devices, Predicted, Subject};
use super::unknown;
use crate::base::units::{Joules, Seconds, Watts};
use crate::step::calibrations::Calibrations;
use serde::Serialize;
use std::collections::BTreeMap;
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

/// Compares one paper's values.
///
/// # Errors
/// When its file is malformed or a prediction fails, in one line that says where.
pub fn compare(paper: &Paper, text: &str, options: &Options<'_>) -> Result<Comparison, PaperError> {
    let cells = from_csv(paper, text).map_err(|why| PaperError::Values { key: paper.key.clone(), why })?;
    let mut doubts: BTreeMap<Case, Doubt> = BTreeMap::new();
    for cell in &cells {
        doubts.entry(cell.case.clone()).or_default().add(cell);
    }
    let mut comparison = Comparison::default();
    let mut missing: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut predicted: BTreeMap<Case, Result<Vec<Predicted>, String>> = BTreeMap::new();
    let mut devices = Devices::new(options);
    let nuisances = unknown::fit(paper, &cells, &mut devices)?;
    for cell in &cells {
        let nuisance = nuisances.get(&cell.case.subject());
        let found = match cell.metric {
            Metric::Other => Err("not a time, power, energy or memory".to_string()),
            _ => match predicted.get(&cell.case) {
                Some(found) => found.clone(),
                None => {
                    let found = match Subject::of(paper, &cell.case, nuisance.map(|n| n.batch), &mut devices) {
                        Ok(subject) => Ok(subject.predict(paper, &cell.case)?),
                        Err(Refusal::Case(why)) => Err(why),
                        Err(Refusal::Paper(error)) => return Err(error),
                    };
                    predicted.insert(cell.case.clone(), found.clone());
                    found
                }
            },
        };
        match found {
            Ok(readings) => {
                let doubt = doubts.get(&cell.case);
                for reading in readings {
                    comparison.rows.extend(reading.beside(paper, cell, doubt, nuisance)?);
                }
            }
            Err(why) => *missing.entry((cell.table.clone(), why)).or_default() += 1,
        }
    }
    let not = |((table, why), values)| NotPredicted { paper: paper.key.clone(), table, why, values };
    comparison.not_predicted = missing.into_iter().map(not).collect();
    Ok(comparison)
}

/// The three printed values of a case.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    time: Option<Seconds>,
    power: Option<Watts>,
    energy: Option<Joules>,
}

impl Doubt {
    fn add(&mut self, cell: &Cell) {
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
