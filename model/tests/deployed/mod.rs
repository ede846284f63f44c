//! Steps of language models on layouts of shipped GPUs, for the tests of this crate and of those above it.

use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::device::interconnect::Interconnect;
use joulecast_model::net::network::Stored;
use joulecast_model::net::share::Layout;
use joulecast_model::step::generation;
use joulecast_model::step::layout::{Deployment, Flow};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

pub fn predictor(gpu: &str) -> Outcome<Predictor> {
    Ok(Predictor::shipped(catalog::gpu(gpu)?, catalog::framework("cudnn")?))
}

/// `(tensor, pipeline, expert, data)`.
pub fn on(predictor: &Predictor, (t, p, e, d): (u64, u64, u64, Option<u64>)) -> Outcome<Deployment<'_>> {
    let layout = Layout::new(t, p, e, d)?;
    let known = catalog::interconnects()?;
    let interconnect = Interconnect::serving(&known, predictor.gpu(), layout.gpus(), None)?;
    Ok(Deployment {
        predictor,
        layout,
        interconnect,
        precision: Precision::Bf16,
        stored: Stored::default(),
        point: OperatingPoint::default(),
    })
}

pub fn step(
    deployment: &Deployment<'_>,
    net: &str,
    tokens: (u64, u64),
    batch: u64,
    flow: Flow,
) -> Outcome<NetworkPrediction> {
    Ok(generation::step_on(deployment, &catalog::network(net)?, tokens, (batch, flow))?)
}

pub fn near(found: f64, expected: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{what}: {found}, {expected}");
}
