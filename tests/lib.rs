//! What the tests across crates share.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::NetworkPrediction;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// Unwraps with the error as the test's message.
pub fn ok<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| panic!("{e:#}"))
}

/// A network of the zoo with shapes.
pub fn shaped(name: &str, batch: u64, precision: Precision) -> ShapedNetwork {
    ok(ShapedNetwork::new(&ok(catalog::network(name)), batch, precision, &[]))
}

/// Predictions for a GPU with what is built in, read once for all tests.
pub fn predictor(gpu: &str) -> Predictor {
    static CALIBRATIONS: LazyLock<Arc<Calibrations>> = LazyLock::new(Calibrations::shipped);
    Predictor::with(ok(catalog::gpu(gpu)), CALIBRATIONS.clone(), ok(catalog::framework("cudnn")))
}

/// A prediction with what is built in.
pub fn predicted(network: &ShapedNetwork, gpu: &str, mode: Mode) -> NetworkPrediction {
    ok(predictor(gpu).predict(network, mode))
}

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Property tests draw the same cases on every machine, so that a failure concerns the change that shows it.
/// `PROPTEST_RNG_SEED=N` draws others.
pub fn seeded() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match config.rng_seed {
        RngSeed::Random => ProptestConfig { rng_seed: RngSeed::Fixed(16), ..config },
        RngSeed::Fixed(_) => config,
    }
}
