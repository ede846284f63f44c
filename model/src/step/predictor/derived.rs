//! Kernels over learned values alone, which a step runs once, whatever its batch.

use super::kernel::{Kernel, Models, predict_kernel};
use super::{PredictError, Setup};
use crate::base::precision::{Phase, Precision};
use crate::net::network::ShapedNetwork;
use crate::net::network::derived::mode_of;
use crate::step::autocast::Mixed;

/// Those of a phase: none updates, for their parameters are those of the layers that use their results. Where training is mixed
/// their values have 32 bits, but for products.
pub(super) fn of_derived<'a>(
    network: &'a ShapedNetwork,
    phase: Phase,
    setup: &Setup<'a>,
    models: &mut Models<'a>,
) -> Result<Vec<Kernel<'a>>, PredictError> {
    let mut kernels: Vec<Option<Kernel<'a>>> = Vec::with_capacity(network.derived().len());
    let Some(first) = network.derived().first().filter(|_| phase != Phase::Update) else { return Ok(Vec::new()) };
    let once = network.with_batch(1).map_err(|_| PredictError::Empty(first.name.to_string()))?;
    let mixed = setup.framework.mixed(network, setup.mode).is_some_and(|mixed| mixed.autocasts());
    for (layer, &alike) in network.derived().iter().zip(network.derived_alike()) {
        let wide = mixed && !Mixed::narrows_parameters(layer);
        let runs = if wide { Precision::Fp32 } else { network.precision() };
        let setup = Setup { mode: mode_of(&layer.case.layer, setup.mode), ..*setup };
        let kernel = match (kernels.get(alike), once.cost_in(runs, layer, phase, setup.mode)) {
            (Some(known), _) => known.map(|known| Kernel { name: &layer.name, ..known }),
            (None, Some(cost)) => {
                let kernel = predict_kernel((&once, runs), (&layer.name, layer), phase, cost, &setup, models)?;
                Some(Kernel { repeats: None, ..kernel })
            }
            (None, None) => None,
        };
        kernels.push(kernel);
    }
    Ok(kernels.into_iter().flatten().collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::base::precision::Mode;
    use crate::catalog;
    use crate::net::network::Network;
    use crate::step::memory::footprint;
    use crate::step::predict::Predictor;

    /// A convolution whose weights are standardized, and a table that a linear layer makes of places.
    pub(in crate::step::predictor) const STANDARDIZED: &str = r#"
schema = "network/1"
name = "standardized"
title = "standardized"
inputs.x.shape = [3, 32, 32]
layers = [
  { name = "conv", kind = "conv2d", channels = 64, kernel = 3, bias = false },
  { name = "relu", kind = "relu" },
]
derived = [
  { name = "conv.gain", kind = "elementwise", inputs = [[64]] },
  { name = "conv.standardized", kind = "batch_norm", inputs = [[64, 1, 27]] },
  { name = "table", kind = "linear", features = 96, inputs = [[225, 2]], wants_gradient = false },
]
"#;

    /// Names, phases and times of a step's kernels that are of no layer.
    fn kernels(profile: &str, batch: u64, precision: Precision, mode: Mode) -> Vec<(String, Phase, f64)> {
        let network = Network::from_toml(STANDARDIZED).expect("valid");
        let predictor = Predictor::shipped(
            catalog::gpu("h100-sxm").expect("shipped"),
            catalog::framework(profile).expect("shipped"),
        );
        let shaped = predictor.shape(&network, batch, precision, &[]).expect("fits");
        let step = predictor.step(&shaped, mode).expect("runs");
        let of_no_layer = |k: &&Kernel<'_>| network.derived.iter().any(|d| d.name == *k.name);
        let seen = step.kernels.iter().filter(of_no_layer);
        seen.map(|k| (k.name.to_string(), k.phase, k.time.value.get())).collect()
    }

    #[test]
    fn they_run_once_and_forward_in_inference() {
        let (one, many) = (
            kernels("pytorch", 1, Precision::Fp16, Mode::Inference),
            kernels("pytorch", 64, Precision::Fp16, Mode::Inference),
        );
        let names: Vec<(&str, Phase)> = one.iter().map(|(name, phase, _)| (&name[..], *phase)).collect();
        let all = ["conv.gain", "conv.standardized", "table"];
        assert_eq!(names, all.map(|name| (name, Phase::Forward)));
        assert_eq!(one, many);
        assert!(one.iter().all(|(.., time)| *time > 1e-6), "{one:?}");
    }

    #[test]
    fn statistics_are_taken_in_inference_too() {
        let time = |mode| kernels("pytorch", 1, Precision::Fp32, mode)[1].2;
        assert_eq!(time(Mode::Inference), time(Mode::Training));
    }

    #[test]
    fn training_wants_gradients_but_of_what_nothing_learned() {
        let made = kernels("pytorch", 8, Precision::Fp32, Mode::Training);
        let of = |wanted| -> Vec<&str> {
            made.iter().filter(|(_, phase, _)| *phase == wanted).map(|(name, ..)| &name[..]).collect()
        };
        assert_eq!(of(Phase::BackwardData), ["conv.gain", "conv.standardized"]);
        assert_eq!(of(Phase::BackwardWeights), ["table"]);
        assert_eq!(of(Phase::Update), [""; 0]);
    }

    /// Parameters have 32 bits under autocast, which narrows those of products alone.
    #[test]
    fn mixed_training_keeps_weights_wide_but_for_products() {
        let time = |precision, mode, name: &str| {
            let made = kernels("pytorch", 8, precision, mode);
            made.into_iter().find(|(n, phase, _)| n == name && *phase == Phase::Forward).expect("runs").2
        };
        let norm = |precision, mode| time(precision, mode, "conv.standardized");
        let (fp16, bf16) = (Precision::Fp16, Precision::Bf16);
        assert_eq!(norm(bf16, Mode::Training), norm(fp16, Mode::Training));
        assert_ne!(norm(bf16, Mode::Training), norm(bf16, Mode::Inference), "which has all in 16 bits");
        let table = |precision| time(precision, Mode::Training, "table");
        assert_ne!(table(bf16), table(Precision::Fp32));
    }

    /// A kernel that repeats another has its own name.
    #[test]
    fn alike_ones_are_predicted_once_and_named_apart() {
        let text = STANDARDIZED.replace("\"table\"", "\"table\", kind = \"linear\", features = 96, inputs = [[225, 2]], wants_gradient = false },\n  { name = \"again\"");
        let network = Network::from_toml(&text).expect("valid");
        let shaped = ShapedNetwork::new(&network, 4, Precision::Fp32, &[]).expect("fits");
        assert_eq!(shaped.derived_alike(), [0, 1, 2, 2]);
        let predictor = Predictor::shipped(
            catalog::gpu("h100-sxm").expect("shipped"),
            catalog::framework("pytorch").expect("shipped"),
        );
        let step = predictor.step(&shaped, Mode::Inference).expect("runs");
        let named = |name| step.kernels.iter().find(|k| k.name == name).expect("runs").time.value;
        assert_eq!(named("table"), named("again"));
    }

    #[test]
    fn what_computes_constants_beforehand_runs_none() {
        for profile in ["cudnn", "tensorrt"] {
            assert_eq!(kernels(profile, 1, Precision::Fp32, Mode::Inference), []);
        }
    }

    #[test]
    fn training_keeps_their_results() {
        let network = Network::from_toml(STANDARDIZED).expect("valid");
        let shaped = ShapedNetwork::new(&network, 4, Precision::Fp32, &[]).expect("fits");
        let policy = catalog::framework("pytorch").expect("shipped").memory;
        let activations = |network: &ShapedNetwork, mode| footprint(network, mode, &policy, &[]).activations.get();
        let without = shaped.clone().without_derived();
        let more = activations(&shaped, Mode::Training) - activations(&without, Mode::Training);
        assert_eq!(more, 4 * (64 + 64 * 27 + 225 * 96));
        assert_eq!(activations(&shaped, Mode::Inference), activations(&without, Mode::Inference));
    }
}
