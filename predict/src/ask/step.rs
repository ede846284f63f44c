//! One step, and the whole training that it is of.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::request::{Request, only};
use crate::session::Session;
use joulecast_model::base::precision::Mode;
use joulecast_model::base::units::Seconds;
use joulecast_model::step::predictor::NetworkPrediction;
use joulecast_model::step::training::{Plan, Training};

/// A step.
#[derive(Debug)]
pub struct Answer {
    /// What is predicted.
    pub prediction: NetworkPrediction,
    /// The whole training, where that was asked for.
    pub training: Option<Training>,
    /// What runs it.
    pub cluster: Cluster,
    /// Where the network came from: `zoo`, `file`, `onnx`, `prototxt` or `huggingface`.
    pub source: &'static str,
}

/// A step of one network on one team.
///
/// # Errors
/// When what is asked is wrong, or nothing can be predicted.
pub fn step(session: &Session, request: &Request) -> Result<Answer, Failure> {
    let (precision, mode) = (*only(&request.precisions, "precision")?, *only(&request.modes, "mode")?);
    if request.epochs.is_some() && mode != Mode::Training {
        return Err(Failure::usage("--epochs is of a training: --mode training"));
    }
    let cluster = session.cluster(request, only(&request.teams, "GPU or team")?, precision, mode)?;
    let source = session.network(only(&request.networks, "network")?, &request.reading)?;
    let mut prediction = cluster.step(&source, *only(&request.batches, "batch")?, request.point)?;
    let plan = request.epochs.map(|e| {
        let start = e.start.or(cluster.first().framework().start).unwrap_or(Seconds::ZERO);
        Plan { epochs: e.epochs, dataset_size: e.dataset_size, price_per_kwh: e.price_per_kwh, start }
    });
    prediction.warnings.extend(plan.and_then(|plan| plan.leftover(prediction.batch)));
    cluster.check_fit(request, &prediction)?;
    let training = plan.map(|plan| Training::of(&prediction, plan, cluster.waiting()));
    Ok(Answer { prediction, training, cluster, source: source.kind })
}
