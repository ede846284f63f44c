//! What the tests across crates share.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predictor::{NetworkPrediction, Setup, predict};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use std::path::PathBuf;
use std::sync::LazyLock;

/// Unwraps with the error as the test's message.
pub fn ok<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| panic!("{e:#}"))
}

/// A network of the zoo with shapes.
pub fn shaped(name: &str, batch: u64, precision: Precision) -> ShapedNetwork {
    ok(ShapedNetwork::new(&ok(catalog::network(name)), batch, precision, &[]))
}

/// The built-in calibration of a GPU's chip, and the models over all chips.
pub fn calibrations(gpu: &Gpu) -> (Option<&'static Calibration>, &'static Calibration) {
    static ALL_CHIPS: LazyLock<Calibration> = LazyLock::new(|| ok(catalog::all_chips()));
    static CHIPS: LazyLock<Vec<Calibration>> = LazyLock::new(|| {
        let of = |(name, _): &(&str, &str)| ok(catalog::calibration(name));
        catalog::calibrations().iter().filter_map(of).collect()
    });
    (CHIPS.iter().find(|c| c.chip == gpu.chip), &ALL_CHIPS)
}

/// A prediction with what is built in.
pub fn predicted(network: &ShapedNetwork, gpu: &str, mode: Mode) -> NetworkPrediction {
    let gpu = ok(catalog::gpu(gpu));
    let framework = ok(catalog::framework("cudnn"));
    ok(predict(network, &Setup::usual(&gpu, calibrations(&gpu), &framework, mode)))
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
