//! One step, and the whole training that it is of.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::kept::Stamp;
use crate::ready::{Ready, Steps};
use crate::request::{Batch, Request, only};
use crate::session::Session;
use crate::source::Source;
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::Seconds;
use joulecast_model::net::cost::LayerCost;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::memory::{MOST_UNITS, MemoryFootprint};
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, Summary, Warning};
use joulecast_model::step::training::{Plan, Training};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A step.
#[derive(Debug)]
pub struct Answer {
    /// What is predicted.
    pub prediction: NetworkPrediction,
    /// The whole training, where that was asked for.
    pub training: Option<Training>,
    /// What runs it.
    pub cluster: Arc<Cluster>,
    /// Where the network came from: `zoo`, `file`, `onnx`, `prototxt` or `huggingface`.
    pub source: &'static str,
}

/// The sums of a step, whose layers are made when somebody reads them.
#[derive(Clone, Debug)]
pub struct Brief {
    ready: Arc<Ready>,
    point: OperatingPoint,
    /// Time, power and energy.
    pub summary: Summary,
    /// Operations and traffic.
    pub cost: LayerCost,
    /// Device memory.
    pub memory: MemoryFootprint,
    /// Whether that is within the device's.
    pub fits_in_memory: bool,
    largest_tried: bool,
}

impl Brief {
    /// The network as it runs.
    pub fn network(&self) -> &ShapedNetwork {
        self.ready.network()
    }

    /// What runs it.
    pub fn cluster(&self) -> &Arc<Cluster> {
        self.ready.cluster()
    }

    /// Clocks and limit.
    pub fn point(&self) -> OperatingPoint {
        self.point
    }

    /// All of the step.
    ///
    /// # Errors
    /// When nothing can be predicted.
    pub fn whole(&self) -> Result<NetworkPrediction, Failure> {
        let mut whole = self.ready.whole_at(self.point)?;
        whole.warnings.extend(self.largest_tried.then_some(Warning::LargestTried { batch: MOST_UNITS }));
        Ok(whole)
    }
}

/// A step whose network, GPUs and calibrations are at hand: for callers that ask again, at another batch, clock or limit.
#[derive(Debug)]
pub struct Prepared {
    request: Request,
    cluster: Arc<Cluster>,
    source: Arc<Source>,
    /// The files that all that is of.
    files: Stamp,
    /// The network as it runs at the largest batch that was asked for: at smaller ones there is less to count.
    largest: Mutex<Option<Arc<ShapedNetwork>>>,
    /// Steps that the session keeps, among them those of this question.
    steps: Arc<Steps>,
    question: u64,
    /// The largest batch that fits in memory, once somebody asked.
    fits: OnceLock<u64>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.steps.forget(|(question, _)| *question == self.question);
    }
}

impl Prepared {
    /// Reads what a request names, whose batch and point are those of each question.
    ///
    /// # Errors
    /// When what is asked is wrong, or cannot be read.
    pub fn new(session: &Session, request: &Request) -> Result<Self, Failure> {
        let request = &session.settled(request)?;
        let (precision, mode) = (*only(&request.precisions, "precision")?, *only(&request.modes, "mode")?);
        if request.epochs.is_some() && mode != Mode::Training {
            return Err(Failure::usage("--epochs is of a training: --mode training"));
        }
        let files = session.stamp(request);
        let cluster = session.cluster(request, only(&request.teams, "GPU or team")?, precision, mode)?;
        let source = session.network(only(&request.networks, "network")?, &request.reading)?;
        let (steps, question) = session.steps();
        let (request, cluster, largest, fits) = (request.clone(), Arc::new(cluster), Mutex::default(), OnceLock::new());
        Ok(Self { request, cluster, source, files, largest, steps, question, fits })
    }

    /// Whether the files that it is of are as they were.
    pub fn is_current(&self) -> bool {
        self.files.is_current()
    }

    /// What runs it.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Where the network came from: `zoo`, `file`, `onnx`, `prototxt` or `huggingface`.
    pub fn source(&self) -> &'static str {
        self.source.kind
    }

    /// The network that runs with so many samples on each GPU.
    fn shape(&self, each: u64) -> Result<ShapedNetwork, Failure> {
        let largest = || self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = largest().clone();
        // What cannot be had of it says why when it is made anew.
        if let Some(shaped) = known.and_then(|known| known.with_batch(each).ok()) {
            let mut largest = largest();
            if largest.as_ref().is_none_or(|largest| largest.batch() < each) {
                *largest = Some(Arc::new(shaped.clone()));
            }
            return Ok(shaped);
        }
        let shaped = self.cluster.shape(&self.source, each)?;
        *largest() = Some(Arc::new(shaped.clone()));
        Ok(shaped)
    }

    /// The sums of the step, where one GPU runs it alone and nothing more is asked of it.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn brief(&self, batch: Batch, point: OperatingPoint) -> Result<Option<Brief>, Failure> {
        let (request, cluster) = (&self.request, &self.cluster);
        if !cluster.is_whole() || request.epochs.is_some() || request.require_fit {
            return Ok(None);
        }
        let each = match (batch, self.fits.get()) {
            (Batch::Max, Some(known)) => *known,
            _ => cluster.part(&self.source, batch)?,
        };
        if batch == Batch::Max {
            let _ = self.fits.set(each);
        }
        let notes = || cluster.notes_of(&self.source);
        let ready = || Ready::new(Arc::clone(cluster), self.shape(each)?, notes()).map(Arc::new);
        let ready = self.steps.get((self.question, each), Vec::new, ready)?;
        let (summary, (cost, memory, fits_in_memory)) = (ready.at(point)?, ready.holds());
        let largest_tried = batch == Batch::Max && each == MOST_UNITS;
        Ok(Some(Brief { ready, point, summary, cost, memory, fits_in_memory, largest_tried }))
    }

    /// The step.
    ///
    /// # Errors
    /// When the network cannot have that batch, or nothing can be predicted.
    pub fn step(&self, batch: Batch, point: OperatingPoint) -> Result<Answer, Failure> {
        let (request, cluster) = (&self.request, &self.cluster);
        let mut prediction = cluster.step_by(&self.source, batch, point, |each| self.shape(each).map(Arc::new))?;
        let plan = request.epochs.map(|e| {
            let start = e.start.or(cluster.first().framework().start).unwrap_or(Seconds::ZERO);
            Plan { epochs: e.epochs, dataset_size: e.dataset_size, price_per_kwh: e.price_per_kwh, start }
        });
        prediction.warnings.extend(plan.and_then(|plan| plan.leftover(prediction.batch)));
        cluster.check_fit(request, &prediction)?;
        let training = plan.map(|plan| Training::of(&prediction, plan, cluster.waiting()));
        Ok(Answer { prediction, training, cluster: Arc::clone(cluster), source: self.source.kind })
    }
}

/// A step of one network on one team.
///
/// # Errors
/// When what is asked is wrong, or nothing can be predicted.
pub fn step(session: &Session, request: &Request) -> Result<Answer, Failure> {
    Prepared::new(session, request)?.step(*only(&request.batches, "batch")?, request.point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Epochs, Reading, Team};
    use joulecast_model::base::precision::Precision;
    use joulecast_model::base::units::{Hertz, Watts};
    use joulecast_model::catalog;
    use std::fs;
    use std::thread;
    use std::time::Duration;

    /// All that two predictions say, but for sums over kernels in another order.
    fn words(whole: &NetworkPrediction) -> String {
        let mut whole = whole.clone();
        whole.devices.clear();
        let NetworkPrediction { time, power, energy, clock, .. } = &mut whole;
        (time.value, time.p05, time.p95) = (Seconds::ZERO, Seconds::ZERO, Seconds::ZERO);
        (power.value, power.p05, power.p95) = (Watts::ZERO, Watts::ZERO, Watts::ZERO);
        (energy.value, energy.p05, energy.p95) = Default::default();
        *clock = Hertz::new(1.0);
        format!("{whole:?}")
    }

    fn check(brief: &Brief, plain: &NetworkPrediction, what: &str) {
        let whole = brief.whole().expect("predicted");
        assert_eq!(words(&whole), words(plain), "{what}");
        let numbers = |p: &NetworkPrediction| {
            let (time, power, energy) = (p.time, p.power, p.energy);
            let times = [time.value, time.p05, time.p95].map(Seconds::get);
            let powers = [power.value, power.p05, power.p95].map(Watts::get);
            let energies = [energy.value, energy.p05, energy.p95].map(|e| e.get());
            times.into_iter().chain(powers).chain(energies).chain([p.clock.get()])
        };
        let apart = numbers(&whole).zip(numbers(plain)).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-12, "{what}: {apart}");
        let Brief { summary, cost, memory, fits_in_memory, .. } = brief;
        assert_eq!((summary.time, summary.power, summary.energy), (whole.time, whole.power, whole.energy));
        assert_eq!((cost.ops, cost.read, *memory), (plain.ops, plain.read, plain.memory));
        assert_eq!(*fits_in_memory, plain.fits_in_memory);
    }

    #[test]
    fn sums_are_those_of_the_plain_way() {
        let session = Session::new();
        let request = |net, gpu, profile| Request::new(net, gpu).through(profile);
        let training = Request { modes: vec![Mode::Training], ..request("mobilenet_v2", "h200", "pytorch") };
        for request in [
            request("resnet50", "v100", "cudnn"),
            request("alexnet", "k20m", "cudnn"),
            request("vit_b_16", "h200", "pytorch").precision(Precision::Fp16),
            training.precision(Precision::Bf16),
            request("gpt2", "a100", "pytorch"),
        ] {
            let asked = Prepared::new(&session, &request).expect("known");
            let gpu = asked.cluster().first().gpu();
            let limit = Some(gpu.power.limit.value * 0.7);
            let clock = Some(gpu.core_clock.boost.value * 0.8);
            let point = OperatingPoint::default();
            for batch in [64, 3, 200, 64, 1].map(Batch::Samples).into_iter().chain([Batch::Max, Batch::Max]) {
                for point in [
                    point,
                    OperatingPoint { power_cap: limit, ..point },
                    OperatingPoint { core_clock: clock, ..point },
                    point,
                ] {
                    let what = format!("{:?} {:?} {batch} {point:?}", request.networks, request.teams);
                    let brief = asked.brief(batch, point).expect("predicted").expect("one GPU");
                    let again = Request { batches: vec![batch], point, ..request.clone() };
                    let plain = Prepared::new(&Session::new(), &again).and_then(|asked| asked.step(batch, point));
                    check(&brief, &plain.expect("predicted").prediction, &what);
                }
            }
        }
    }

    #[test]
    fn what_more_is_asked_of_is_made_as_a_whole() {
        let session = Session::new();
        let brief = |request: Request| {
            let asked = Prepared::new(&session, &request).expect("known");
            asked.brief(Batch::Samples(8), OperatingPoint::default()).expect("predicted").is_some()
        };
        let request = Request::new("alexnet", "v100");
        assert!(brief(request.clone()));
        assert!(!brief(Request { teams: vec![Team::of(2, "v100")], ..request.clone() }));
        assert!(!brief(Request { require_fit: true, ..request.clone() }));
        let epochs = Some(Epochs { epochs: 1, dataset_size: 8, price_per_kwh: None, start: None });
        assert!(!brief(Request { epochs, ..request.training() }));
    }

    /// A prompt beyond the positions that the file says, and what the request brings.
    #[test]
    fn what_is_told_of_a_step_is_told_of_its_sums() {
        let phi = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/read/tests/huggingface/phi_2.json");
        let plain = Request::new(phi, "h100").precision(Precision::Bf16);
        let reading = Reading { sequence: Some(3000), ..plain.reading.clone() };
        let told = vec![Warning::Published { precision: Precision::Bf16 }];
        let asked = Prepared::new(&Session::new(), &Request { reading, told, ..plain }).expect("read");
        let (batch, point) = (Batch::Samples(1), OperatingPoint::default());
        let brief = asked.brief(batch, point).expect("predicted").expect("one GPU");
        let step = asked.step(batch, point).expect("predicted").prediction;
        let beyond = Warning::Positions { tokens: 3000, positions: 2048 };
        assert!(step.warnings.contains(&beyond) && step.warnings.len() > 1, "{:?}", step.warnings);
        assert_eq!(brief.whole().expect("predicted").warnings, step.warnings);
    }

    #[test]
    fn what_cannot_be_asked_is_told_as_ever() {
        let session = Session::new();
        let asked = Prepared::new(&session, &Request::new("alexnet", "v100")).expect("known");
        let why = |batch, point| asked.brief(batch, point).expect_err("wrong").to_string();
        let plain = |batch, point| asked.step(batch, point).expect_err("wrong").to_string();
        let point = OperatingPoint::default();
        asked.brief(Batch::Samples(64), point).expect("predicted");
        let cold = OperatingPoint { power_cap: Some(Watts::new(1.0)), ..point };
        for (batch, point) in [(1 << 31, point), (64, cold), (65, cold)] {
            let batch = Batch::Samples(batch);
            assert_eq!(why(batch, point), plain(batch, point));
        }
    }

    #[test]
    fn a_network_file_that_changed_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        let put = |net: &str| {
            fs::write(&path, catalog::network(net).expect("known").to_toml()).expect("written");
            thread::sleep(Duration::from_millis(50));
        };
        put("alexnet");
        let session = Session::new();
        let request = Request::new(&path.display().to_string(), "v100");
        let ops = || {
            let asked = Prepared::new(&session, &request).expect("read");
            let brief = asked.brief(Batch::Samples(8), OperatingPoint::default()).expect("predicted");
            (brief.expect("one GPU").cost.ops, asked)
        };
        let (before, asked) = ops();
        assert!(asked.is_current());
        put("vgg16");
        assert!(!asked.is_current());
        let (after, again) = ops();
        assert!(after.get() > 2 * before.get() && again.is_current());
        assert!(Prepared::new(&session, &Request::new("alexnet", "v100")).expect("known").is_current());
    }

    #[test]
    fn threads_ask_side_by_side() {
        let session = Session::new();
        let asked = Prepared::new(&session, &Request::new("alexnet", "v100")).expect("known");
        let time = |batch: u64| {
            let brief = asked.brief(Batch::Samples(batch), OperatingPoint::default()).expect("predicted");
            brief.expect("one GPU").summary.time.value
        };
        let alone: Vec<Seconds> = (1..=40).map(time).collect();
        let together = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (1..=40).map(time).collect::<Vec<_>>())).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(together.iter().all(|times| *times == alone));
    }
}
