//! What papers printed beside what is predicted.

use super::mapping::{Metric, Paper, ProfileOf, Quantity};
use super::printed::{Case, Cell, Printed, from_csv};
use crate::calibration::Calibration;
use crate::catalog;
use crate::framework::Framework;
use crate::gpu::Gpu;
use crate::network::ShapedNetwork;
use crate::parallel::{Interconnect, Share, combine};
use crate::precision::{Mode, Phase, Precision};
use crate::predictor::{Estimate, NetworkPrediction, Setup, predict};
use crate::units::{Joules, Seconds, Watts};
use serde::Serialize;
use std::collections::BTreeMap;

/// Chip of the calibration that holds efficiencies over all chips.
const ANY: &str = "any";
/// Printed time, power and energy of a step that differ by more from energy = power * time contradict each other.
const CONSISTENT_WITHIN: f64 = 0.1;

/// A printed value beside its prediction, in SI units; times and energies of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The paper's key.
    pub paper: String,
    /// The table it is printed in.
    pub table: String,
    /// Device, as in the catalog; what is printed is of one of them.
    pub gpu: String,
    /// All devices of the step.
    pub gpus: u64,
    /// Which they are, as in 2xv100; several kinds separated by commas.
    pub setup: String,
    /// How many of them are of the printed kind.
    pub count: u64,
    /// Network, as printed.
    pub network: String,
    /// Which reading of the paper's description; empty where there is only one.
    pub reading: String,
    /// Network of the catalog that was predicted.
    pub net: String,
    /// forward, backward, train or inference, as printed.
    pub phase: String,
    /// Samples per step.
    pub batch: u64,
    /// Framework profile.
    pub framework: String,
    /// The calibration.
    pub calibration: String,
    /// `shipped`, or `evaluation`: without the shapes of test networks.
    pub fit: String,
    /// Version of cuDNN whose age was predicted with; without one the newest that the layer models saw.
    pub cudnn: Option<String>,
    /// What is compared.
    pub quantity: Quantity,
    /// Printed.
    pub printed: f64,
    /// Predicted.
    pub predicted: f64,
    /// 5 % quantile.
    pub p05: f64,
    /// 95 % quantile.
    pub p95: f64,
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
    /// The paper's key.
    pub paper: String,
    /// The table.
    pub table: String,
    /// The reason.
    pub why: String,
    /// How many.
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// This framework profile, instead of the one that the mapping gives.
    pub framework: Option<&'a str>,
    /// The newest libraries that the layer models saw, whatever the paper ran.
    pub newest_library: bool,
    /// These calibrations, one of them that of all chips, instead of the shipped ones.
    pub calibrations: Option<&'a [Calibration]>,
}

impl Options<'_> {
    /// The calibration of a device; `None` where no layer of it was ever measured.
    fn calibration(&self, gpu: &Gpu) -> Result<Option<Calibration>, String> {
        match self.calibrations {
            Some(list) => Ok(list.iter().find(|c| c.chip == gpu.chip).cloned()),
            None => catalog::calibration_for(gpu).map_err(|e| e.to_string()),
        }
    }

    fn roofline(&self) -> Result<Calibration, String> {
        match self.calibrations {
            Some(list) => {
                let any = list.iter().find(|c| c.chip == ANY).cloned();
                any.ok_or_else(|| format!("no calibration with chip \"{ANY}\", the efficiencies over all chips"))
            }
            None => catalog::roofline().map_err(|e| e.to_string()),
        }
    }
}

/// Compares one paper's values.
///
/// # Errors
/// When its file is malformed or a prediction fails, in one line that says where.
pub fn compare(paper: &Paper, text: &str, options: &Options<'_>) -> Result<Comparison, String> {
    let name = format!("{}.csv", paper.key);
    let cells = from_csv(paper, text).map_err(|e| format!("{name}: {e}"))?;
    let mut doubts: BTreeMap<Case, Doubt> = BTreeMap::new();
    for cell in &cells {
        doubts.entry(cell.case.clone()).or_default().add(cell);
    }
    let roofline = options.roofline()?;
    let mut comparison = Comparison::default();
    let mut missing: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut predicted: BTreeMap<Case, Result<Vec<Predicted>, String>> = BTreeMap::new();
    for cell in &cells {
        let found = match cell.metric {
            Metric::Other => Err("not a time, power or energy".to_string()),
            _ => match predicted.get(&cell.case) {
                Some(found) => found.clone(),
                None => {
                    let found = match Subject::of(paper, &cell.case, options)? {
                        Ok(subject) => Ok(subject.predict(paper, &cell.case, &roofline)?),
                        Err(why) => Err(why),
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
                    comparison.rows.extend(reading.beside(paper, cell, doubt)?);
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
struct Doubt {
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
            Printed::Rate(_) | Printed::Other => {}
        }
    }

    fn contradiction(&self) -> Option<String> {
        let (time, power, energy) = (self.time?, self.power?, self.energy?);
        let mean = energy / time;
        let apart = (power / mean - 1.0).abs() > CONSISTENT_WITHIN;
        apart.then(|| format!("energy over time is {:.0} W, printed power {:.0} W", mean.get(), power.get()))
    }
}

/// Devices of one kind.
struct Member {
    count: u64,
    gpu: Gpu,
    calibration: Option<Calibration>,
}

/// What a case is here, where it can be predicted.
struct Subject {
    /// The device that is printed.
    gpu: String,
    members: Vec<Member>,
    interconnect: Option<Interconnect>,
    framework: Framework,
    cudnn: Option<(String, f64)>,
    precision: Precision,
    batch: u64,
    mode: Mode,
    phases: &'static [Phase],
    readings: Vec<(String, String)>,
}

/// A prediction of a case under one reading.
#[derive(Clone)]
struct Predicted {
    reading: String,
    gpu: String,
    framework: String,
    calibration: String,
    fit: String,
    cudnn: Option<String>,
    prediction: NetworkPrediction,
}

/// What a printed phase runs. Forward and backward passes were timed in training; the update is apart.
fn phases(printed: &str) -> Option<(Mode, &'static [Phase])> {
    match printed {
        "inference" => Some((Mode::Inference, Mode::Inference.phases())),
        "train" => Some((Mode::Training, Mode::Training.phases())),
        "forward" => Some((Mode::Training, &[Phase::Forward])),
        "backward" => Some((Mode::Training, &[Phase::BackwardData, Phase::BackwardWeights])),
        _ => None,
    }
}

impl Subject {
    /// The inner error is the reason why the case cannot be predicted; the outer one a defect of the data.
    fn of(paper: &Paper, case: &Case, options: &Options<'_>) -> Result<Result<Self, String>, String> {
        if case.gpus == 0 {
            return Ok(Err("runs on a CPU".into()));
        }
        let Some(name) = paper.gpus.get(&case.gpu) else { return Ok(Err(format!("no device file of {}", case.gpu))) };
        let gpu = catalog::gpu(name).map_err(|e| e.to_string())?;
        let Some(ProfileOf { profile, cudnn }) = paper.frameworks.get(&case.framework) else {
            return Ok(Err(format!("no profile of {}", case.framework)));
        };
        let alike = vec![(case.gpus, name.clone())];
        let mut members = Vec::new();
        for (count, name) in paper.groups.get(&case.gpus).unwrap_or(&alike) {
            let gpu = catalog::gpu(name).map_err(|e| e.to_string())?;
            let calibration = options.calibration(&gpu)?;
            members.push(Member { count: *count, gpu, calibration });
        }
        let interconnect = match case.gpus {
            1 => None,
            _ => Some(Interconnect::usual(&members.iter().map(|m| &m.gpu).collect::<Vec<_>>())?),
        };
        let on_data = format!("{} on {}", case.network, case.dataset);
        let Some(readings) = paper.networks.get(&on_data).or_else(|| paper.networks.get(&case.network)) else {
            return Ok(Err(format!("no network file of {}", case.network)));
        };
        let Some(&precision) = paper.precisions.get(&case.precision) else {
            return Ok(Err(format!("precision {}", case.precision)));
        };
        if gpu.peak(precision).is_none() {
            return Ok(Err(format!("{name} has no peak in {precision}")));
        }
        let Ok(batch) = case.batch.parse::<u64>() else { return Ok(Err("no batch is printed".into())) };
        if !batch.is_multiple_of(case.gpus) {
            return Ok(Err(format!("a batch of {batch} on {} GPUs", case.gpus)));
        }
        let Some((mode, phases)) = phases(&case.phase) else { return Ok(Err(format!("phase {}", case.phase))) };
        if case.power_cap_w.parse::<f64>().is_ok_and(|cap| (cap / gpu.power.limit.value.get() - 1.0).abs() > 1e-3) {
            return Ok(Err("a power limit that is not the default one".into()));
        }
        Ok(Ok(Self {
            framework: Framework::named(options.framework.unwrap_or(profile))?,
            cudnn: cudnn.clone().filter(|_| !options.newest_library),
            gpu: name.clone(),
            members,
            interconnect,
            precision,
            batch,
            mode,
            phases,
            readings: readings.clone(),
        }))
    }

    fn setup<'a>(&'a self, member: &'a Member, roofline: &'a Calibration) -> Setup<'a> {
        Setup {
            gpu: &member.gpu,
            calibration: member.calibration.as_ref(),
            roofline,
            framework: &self.framework,
            launch: self.framework.usual_launch(),
            mode: self.mode,
            phases: self.phases,
            library: self.cudnn.as_ref().map(|(_, age)| *age),
        }
    }

    fn predict(&self, paper: &Paper, case: &Case, roofline: &Calibration) -> Result<Vec<Predicted>, String> {
        let gpus: u64 = self.members.iter().map(|m| m.count).sum();
        let one = |(reading, net): &(String, String)| {
            let at = |e: &dyn std::fmt::Display| format!("{}: {} as {net}: {e}", paper.key, case.network);
            let network = catalog::network(net).map_err(|e| at(&e))?;
            let shaped = ShapedNetwork::new(&network, self.batch / gpus, self.precision, &[]).map_err(|e| at(&e))?;
            let mut shares = Vec::new();
            for member in &self.members {
                let alone = predict(&shaped, &self.setup(member, roofline)).map_err(|e| at(&e))?;
                shares.push(Share { count: member.count, gpu: &member.gpu, alone });
            }
            let prediction = match &self.interconnect {
                Some(interconnect) => combine(shares, &shaped, interconnect, &self.framework),
                None => shares.pop().map(|share| share.alone),
            };
            let fit = self.members.iter().find(|m| m.gpu.name == self.gpu).and_then(|m| m.calibration.as_ref());
            Ok(Predicted {
                reading: reading.clone(),
                gpu: self.gpu.clone(),
                framework: self.framework.name.clone(),
                calibration: fit.unwrap_or(roofline).id.clone(),
                fit: fit.unwrap_or(roofline).fit.clone(),
                cudnn: self.cudnn.as_ref().map(|(version, _)| version.clone()),
                prediction: prediction.ok_or_else(|| at(&"no device"))?,
            })
        };
        self.readings.iter().map(one).collect()
    }
}

impl Predicted {
    /// The row of a printed value; `None` for a value that nothing is predicted of.
    fn beside(&self, paper: &Paper, cell: &Cell, doubt: Option<&Doubt>) -> Result<Option<Compared>, String> {
        let p = &self.prediction;
        let steps = || {
            let samples = paper.samples.get(&cell.case.dataset);
            let samples = samples.ok_or_else(|| format!("{}: no samples of \"{}\"", paper.key, cell.case.dataset))?;
            Ok::<_, String>(*samples as f64 / p.batch as f64)
        };
        let of_step = |value: f64| match cell.metric {
            Metric::RunTime | Metric::RunEnergy => steps().map(|steps| value / steps),
            _ => Ok(value),
        };
        let own = p.devices.iter().find(|d| d.gpu == self.gpu).unwrap_or(&p.devices[0]);
        let (quantity, printed, predicted) = match cell.value {
            Printed::Time(time) => (Quantity::Time, of_step(time.get())?, numbers(p.time, Seconds::get)),
            Printed::Rate(rate) => (Quantity::Time, p.batch as f64 / rate, numbers(p.time, Seconds::get)),
            Printed::Power(power) => (Quantity::Power, power.get(), numbers(own.power, Watts::get)),
            Printed::Energy(energy) => (Quantity::Energy, of_step(energy.get())?, numbers(own.energy, Joules::get)),
            Printed::Other => return Ok(None),
        };
        let rule = paper.distorted.iter().find(|rule| {
            rule.quantities.contains(&quantity) && rule.only.iter().all(|(name, text)| cell.case.column(name) == *text)
        });
        let contradiction = if quantity == Quantity::Time { None } else { doubt.and_then(Doubt::contradiction) };
        Ok(Some(Compared {
            paper: paper.key.clone(),
            table: cell.table.clone(),
            gpu: self.gpu.clone(),
            gpus: p.devices.iter().map(|d| d.count).sum(),
            setup: p.devices.iter().map(|d| format!("{}x{}", d.count, d.gpu)).collect::<Vec<_>>().join(","),
            count: own.count,
            network: cell.case.network.clone(),
            reading: self.reading.clone(),
            net: p.network.clone(),
            phase: cell.case.phase.clone(),
            batch: p.batch,
            framework: self.framework.clone(),
            calibration: self.calibration.clone(),
            fit: self.fit.clone(),
            cudnn: self.cudnn.clone(),
            quantity,
            printed,
            predicted: predicted.value,
            p05: predicted.p05,
            p95: predicted.p95,
            distorted: rule.map(|rule| rule.why.clone()).or(contradiction),
        }))
    }
}

fn numbers<T>(estimate: Estimate<T>, number: fn(T) -> f64) -> Estimate<f64> {
    Estimate { value: number(estimate.value), p05: number(estimate.p05), p95: number(estimate.p95) }
}
