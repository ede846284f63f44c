//! A case that a paper printed, as it is predicted here.

use super::beside::{Compared, Doubt, Nuisance, Options};
use super::error::{PaperError, Refusal};
use super::line::Case;
use super::mapping::{Metric, Paper, ProfileOf, Quantity};
use super::printed::{Cell, Printed};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::power::waiting;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::Framework;
use joulecast_model::step::parallel::{Fabric, Share, combine};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{Estimate, NetworkPrediction, OperatingPoint};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

/// Predictors by device and number of sockets: models are read once for all cases of a paper.
pub(super) struct Devices<'a> {
    calibrations: Arc<Calibrations>,
    options: &'a Options<'a>,
    known: BTreeMap<(String, u64), Arc<Gpu>>,
}

impl<'a> Devices<'a> {
    pub fn new(options: &'a Options<'a>) -> Self {
        let calibrations = options.calibrations.clone().unwrap_or_else(Calibrations::shipped);
        Self { calibrations, options, known: BTreeMap::new() }
    }

    /// A device of so many sockets, or a GPU with one.
    fn get(&mut self, name: &str, sockets: u64) -> Result<Arc<Gpu>, PaperError> {
        let key = (name.to_string(), sockets);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let gpu = catalog::gpu(name)?;
        let device = Arc::new(gpu.with_sockets(sockets));
        self.known.insert(key, device.clone());
        Ok(device)
    }
}

/// What a case is here, where it can be predicted.
pub(super) struct Subject {
    /// The device that is printed.
    gpu: String,
    /// How many of each kind of device take part.
    members: Vec<(u64, Predictor)>,
    fabric: Option<Fabric>,
    framework: Arc<Framework>,
    cudnn: Option<(String, f64)>,
    precision: Precision,
    batch: u64,
    point: OperatingPoint,
    mode: Mode,
    phases: &'static [Phase],
    readings: Vec<(String, String)>,
}

/// A prediction of a case under one reading.
#[derive(Clone)]
pub(super) struct Predicted {
    reading: String,
    gpu: String,
    framework: String,
    calibration: String,
    fit: String,
    cudnn: Option<String>,
    prediction: NetworkPrediction,
    /// What the program takes before the first step.
    start: Seconds,
    /// Power of a board of the printed kind with nothing to do: with a context, and without.
    waiting: Watts,
    idle: Watts,
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
    /// A case as it is predicted.
    ///
    /// # Errors
    /// Why it cannot be predicted, or a defect of the paper's files.
    pub fn of(paper: &Paper, case: &Case, batch: Option<u64>, devices: &mut Devices<'_>) -> Result<Self, Refusal> {
        let Some(name) = paper.gpus.get(&case.gpu) else {
            return Err(Refusal::Case(format!("no device file of {}", case.gpu)));
        };
        let sockets = paper.sockets.get(&case.gpu).copied().unwrap_or(1);
        let gpu = devices.get(name, sockets)?;
        let Some(ProfileOf { profile, cudnn }) = paper.frameworks.get(&case.framework) else {
            return Err(Refusal::Case(format!("no profile of {}", case.framework)));
        };
        // A run on the CPU has no GPU.
        let count = case.gpus.max(1);
        let alike = vec![(count, name.clone())];
        let options = devices.options;
        let cudnn = cudnn.clone().filter(|_| !options.newest_library);
        let framework = Arc::new(catalog::framework(options.framework.unwrap_or(profile))?);
        let mut members = Vec::new();
        for (count, name) in paper.groups.get(&case.gpus).unwrap_or(&alike) {
            let gpu = devices.get(name, sockets)?;
            let predictor = Predictor::with(gpu, devices.calibrations.clone(), framework.clone());
            members.push((*count, predictor.with_library(cudnn.as_ref().map(|(_, age)| *age))));
        }
        let fabric = match count {
            1 => None,
            _ => Some(Fabric::of(
                &catalog::interconnects()?,
                &members.iter().map(|(_, p)| p.gpu()).collect::<Vec<_>>(),
                count,
                None,
            )?),
        };
        let Some(readings) = paper.readings(case) else {
            return Err(Refusal::Case(format!("no network file of {}", case.network)));
        };
        let Some(&precision) = paper.precisions.get(&case.precision) else {
            return Err(Refusal::Case(format!("precision {}", case.precision)));
        };
        if gpu.peak(precision).is_none() {
            return Err(Refusal::Case(format!("{name} has no peak in {precision}")));
        }
        let Some(batch) = case.batch.parse::<u64>().ok().or(batch) else {
            return Err(Refusal::Case("no batch is printed".into()));
        };
        if !batch.is_multiple_of(count) {
            return Err(Refusal::Case(format!("a batch of {batch} on {count} GPUs")));
        }
        let Some((mode, phases)) = phases(&case.phase) else {
            return Err(Refusal::Case(format!("phase {}", case.phase)));
        };
        if case.power_cap_w.parse::<f64>().is_ok_and(|cap| (cap / gpu.power.limit.value.get() - 1.0).abs() > 1e-3) {
            return Err(Refusal::Case("a power limit that is not the default one".into()));
        }
        // Boards whose clock was raised had been measured at what they raise it to by themselves.
        let boost = gpu.core_clock.boost.value;
        let clock = case.core_mhz.parse::<f64>().ok().map(Hertz::from_mhz).filter(|clock| *clock < boost);
        Ok(Self {
            point: OperatingPoint { core_clock: clock, ..OperatingPoint::default() },
            framework,
            cudnn,
            gpu: name.clone(),
            members,
            fabric,
            precision,
            batch,
            mode,
            phases,
            readings: readings.clone(),
        })
    }

    /// The step under each reading.
    ///
    /// # Errors
    /// When a prediction fails, in one line that says which.
    pub fn predict(&self, paper: &Paper, case: &Case) -> Result<Vec<Predicted>, PaperError> {
        let gpus: u64 = self.members.iter().map(|(count, _)| count).sum();
        let one = |(reading, net): &(String, String)| {
            let at = |why: Box<dyn Error + Send + Sync>| PaperError::Step {
                key: paper.key.clone(),
                network: case.network.clone(),
                net: net.clone(),
                why,
            };
            let own = self.members.iter().find(|(_, p)| p.gpu().name == self.gpu).or(self.members.first());
            let (_, own) = own.ok_or_else(|| at("no device".into()))?;
            let network = catalog::network(net).map_err(|e| at(e.into()))?;
            let shaped = own.shape(&network, self.batch / gpus, self.precision, &[]).map_err(|e| at(e.into()))?;
            let mut shares = Vec::new();
            for (count, predictor) in &self.members {
                let step = predictor.phases(&shaped, self.mode, self.phases).map_err(|e| at(e.into()))?;
                let alone = step.at(self.point).map_err(|e| at(e.into()))?;
                shares.push(Share { count: *count, gpu: predictor.gpu(), alone });
            }
            let prediction = match &self.fabric {
                Some(fabric) => combine(shares, &shaped, fabric, &self.framework),
                None => shares.pop().map(|share| share.alone),
            };
            let basis = own.basis(self.precision, self.mode).map_err(|e| at(e.into()))?;
            let fit = basis.chip.as_ref().unwrap_or(&basis.all);
            let waiting = waiting(own.gpu());
            Ok(Predicted {
                start: self.framework.start.unwrap_or(Seconds::ZERO),
                waiting,
                idle: own.gpu().power.idle.as_ref().map_or(waiting, |idle| idle.value),
                reading: reading.clone(),
                gpu: self.gpu.clone(),
                framework: self.framework.name.clone(),
                calibration: fit.id.clone(),
                fit: fit.fit.clone(),
                cudnn: self.cudnn.as_ref().map(|(version, _)| version.clone()),
                prediction: prediction.ok_or_else(|| at("no device".into()))?,
            })
        };
        self.readings.iter().map(one).collect()
    }
}

impl Predicted {
    /// Time of a step under the first of the readings.
    pub fn time(&self) -> Seconds {
        self.prediction.time.value
    }

    /// Whether it could run.
    pub fn fits_in_memory(&self) -> bool {
        self.prediction.fits_in_memory
    }

    /// What a printed memory means, in bytes: the mean over boards of a node.
    pub fn memory(&self, paper: &Paper) -> f64 {
        let running: u64 = self.prediction.devices.iter().map(|d| d.count).sum();
        self.prediction.memory.total().to_f64() * running as f64 / paper.boards.max(running) as f64
    }

    /// What a printed power means: the mean over boards of a node. Where steps take longer than foreseen, the GPU waits.
    fn power(&self, boards: u64, running: u64, busy: f64, slower: f64) -> f64 {
        let share = 1.0 / slower.max(1.0);
        let runs = busy * share + self.waiting.get() * (1.0 - share);
        let others = boards.saturating_sub(running) as f64;
        (runs * running as f64 + self.idle.get() * others) / (running as f64 + others)
    }

    /// The row of a printed value; `None` for a value that nothing is predicted of.
    pub fn beside(
        &self,
        paper: &Paper,
        cell: &Cell,
        doubt: Option<&Doubt>,
        nuisance: Option<&Nuisance>,
    ) -> Result<Option<Compared>, PaperError> {
        let p = &self.prediction;
        let slower = nuisance.map_or(1.0, |n| n.factor_on(cell.case.gpus));
        let scaled = |e: Estimate<f64>| e.times(slower);
        // Of a run: how many steps it has. Its start is spread over them.
        let steps = paper.samples.get(&cell.case.dataset).map(|samples| *samples as f64 / p.batch as f64);
        let of_step = |value: f64| match (cell.metric, steps) {
            (Metric::RunTime | Metric::RunEnergy, Some(steps)) => Ok(value / steps),
            (Metric::RunTime | Metric::RunEnergy, None) => {
                Err(PaperError::NoSamples { key: paper.key.clone(), dataset: cell.case.dataset.clone() })
            }
            _ => Ok(value),
        };
        let start = steps.map_or(Seconds::ZERO, |steps| self.start / steps);
        let and_start =
            |e: Estimate<f64>, start: f64| Estimate { value: e.value + start, p05: e.p05 + start, p95: e.p95 + start };
        let own = p.devices.iter().find(|d| d.gpu == self.gpu).unwrap_or(&p.devices[0]);
        let (quantity, printed, predicted) = match cell.value {
            Printed::Time(time) => {
                let predicted = and_start(scaled(numbers(p.time, Seconds::get)), start.get());
                (Quantity::Time, of_step(time.get())?, predicted)
            }
            Printed::Rate(rate) => (Quantity::Time, p.batch as f64 / rate, scaled(numbers(p.time, Seconds::get))),
            Printed::Power(power) => {
                let busy = p.time.value / (p.time.value + start);
                let running = p.devices.iter().map(|d| d.count).sum();
                let mean = |watts: Watts| {
                    let mean = (watts * busy + self.waiting * (1.0 - busy)).get();
                    self.power(paper.boards, running, mean, slower)
                };
                let of = own.power;
                let predicted = Estimate { value: mean(of.value), p05: mean(of.p05), p95: mean(of.p95) };
                (Quantity::Power, power.get(), predicted)
            }
            Printed::Energy(energy) => {
                let predicted = scaled(numbers(own.energy, Joules::get));
                let predicted = and_start(predicted, (self.waiting * start).get());
                (Quantity::Energy, of_step(energy.get())?, predicted)
            }
            Printed::Memory(bytes) => {
                let total = self.memory(paper);
                (Quantity::Memory, bytes.to_f64(), Estimate { value: total, p05: total, p95: total })
            }
            Printed::Other => return Ok(None),
        };
        let rule = paper.rule_of(cell);
        let contradiction = if [Quantity::Time, Quantity::Memory].contains(&quantity) {
            None
        } else {
            doubt.and_then(Doubt::contradiction)
        };
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
            fitted: paper.fitted.iter().any(|rule| rule.holds(cell))
                || nuisance.is_some_and(|n| n.fitted_on.contains(&cell.case.framework))
                    && [Quantity::Time, Quantity::Memory].contains(&quantity),
            distorted: rule.map(|rule| rule.why.clone()).or(contradiction),
        }))
    }
}

fn numbers<T>(estimate: Estimate<T>, number: fn(T) -> f64) -> Estimate<f64> {
    Estimate { value: number(estimate.value), p05: number(estimate.p05), p95: number(estimate.p95) }
}
