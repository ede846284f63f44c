//! One step, and the whole training that it is of.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::request::{Batch, Request, only};
use crate::session::Session;
use crate::source::Source;
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::Seconds;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint};
use joulecast_model::step::training::{Plan, Training};
use std::sync::{Arc, Mutex, PoisonError};

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

/// A step whose network, GPUs and calibrations are at hand: for callers that ask again, at another batch, clock or limit.
#[derive(Debug)]
pub struct Prepared {
    request: Request,
    cluster: Arc<Cluster>,
    source: Arc<Source>,
    /// The network as it runs at the batch of the last question.
    shaped: Mutex<Option<(u64, Arc<ShapedNetwork>)>>,
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
        let cluster = session.cluster(request, only(&request.teams, "GPU or team")?, precision, mode)?;
        let source = session.network(only(&request.networks, "network")?, &request.reading)?;
        Ok(Self { request: request.clone(), cluster: Arc::new(cluster), source, shaped: Mutex::default() })
    }

    /// The network that runs with so many samples on each GPU.
    fn shape(&self, each: u64) -> Result<Arc<ShapedNetwork>, Failure> {
        let kept = || self.shaped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, shaped)) = kept().as_ref().filter(|(of, _)| *of == each) {
            return Ok(Arc::clone(shaped));
        }
        let shaped = Arc::new(self.cluster.shape(&self.source, each)?);
        *kept() = Some((each, Arc::clone(&shaped)));
        Ok(shaped)
    }

    /// The step.
    ///
    /// # Errors
    /// When the network cannot have that batch, or nothing can be predicted.
    pub fn step(&self, batch: Batch, point: OperatingPoint) -> Result<Answer, Failure> {
        let (request, cluster) = (&self.request, &self.cluster);
        let mut prediction = cluster.step_by(&self.source, batch, point, |each| self.shape(each))?;
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
