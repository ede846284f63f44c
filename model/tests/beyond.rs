//! Kernels beyond what was measured, with the calibrations that are shipped: what bounds their times.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::law::calibration::Tier;
use joulecast_model::law::lookup::Substitute;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, Warning};

fn predictor(gpu: &str) -> Predictor {
    Predictor::shipped(catalog::gpu(gpu).expect("known"), catalog::framework("cudnn").expect("known"))
}

fn predicted(on: &Predictor, network: &Network, batch: u64, precision: Precision, mode: Mode) -> NetworkPrediction {
    let shaped = ShapedNetwork::new(network, batch, precision, &[]).expect("fits");
    on.predict(&shaped, mode).expect("runs")
}

/// A depthwise convolution with so many results of every one of its channels.
fn several_results(channels: u64, results: u64, side: u64) -> Network {
    let all = channels * results;
    Network::from_toml(&format!(
        r#"
schema = "network/1"
name = "several"
title = "several"
layers = [
  {{ name = "several", kind = "conv2d", channels = {all}, kernel = 3, padding = 1, groups = "depthwise", bias = false }},
]
inputs.x.shape = [{channels}, {side}, {side}]
"#
    ))
    .expect("a network")
}

/// What one chip was measured with says how others do it, not surely: it is told, the interval reaches down to what so many
/// kernels of one result take, and more results never take less.
#[test]
fn several_results_of_every_channel_on_chips_that_nobody_measured_so() {
    for (gpu, precision) in [
        ("rtx4090", Precision::Fp32),
        ("rtx4090", Precision::Fp16),
        ("v100", Precision::Fp16),
        ("p100", Precision::Fp32),
    ] {
        let predictor = predictor(gpu);
        for (channels, side, batch) in [(64, 28, 1), (64, 28, 64), (32, 112, 8), (256, 7, 32)] {
            let at = |results| {
                predicted(&predictor, &several_results(channels, results, side), batch, precision, Mode::Training)
            };
            let one = at(1);
            let mut before = one.clone();
            for results in 2..10 {
                let more = at(results);
                let label = format!("{gpu} {precision}, {results} x {channels} of {side}, batch {batch}");
                let told = |w: &Warning| matches!(w, Warning::Substituted { by: Substitute::OneChip, .. });
                assert!(more.warnings.iter().any(told), "{label}: {:?}", more.warnings);
                let kernels = one.layers.iter().zip(&before.layers).zip(&more.layers);
                for ((one, before), more) in kernels.filter(|(_, l)| l.phase != Phase::Update) {
                    assert_eq!((more.tier, more.in_domain), (Tier::Transferred, false), "{label} {}", more.phase);
                    let (few, many) = (before.time.value, more.time.value);
                    assert!(many >= few * (1.0 - 1e-9), "{label} {}: {few:?} then {many:?}", more.phase);
                    let apart = one.time.value * results as f64;
                    assert!(more.time.p05 <= apart * (1.0 + 1e-9), "{label} {}: {:?}", more.phase, more.time);
                }
                before = more;
            }
        }
    }
}

/// Where what was measured ends, a polynomial is held to what was usual: without the edge's time 65 samples took a sixth less than
/// 64 here.
#[test]
fn beyond_the_edge_of_what_was_measured_more_samples_take_no_less() {
    let predictor = predictor("h200");
    for (channels, results, side, precision) in
        [(32, 3, 56, Precision::Fp32), (32, 3, 56, Precision::Tf32), (32, 4, 56, Precision::Fp16)]
    {
        let network = several_results(channels, results, side);
        let at = |batch| predicted(&predictor, &network, batch, precision, Mode::Inference).layers[0].clone();
        // The last batch that lies inside; rows of more samples move it.
        let (mut inside, mut outside) = (64, 128);
        assert!(at(inside).in_domain, "{results} {precision}: the edge lies elsewhere");
        while at(outside).in_domain {
            assert!(outside < 1 << 16, "{results} {precision}: no edge");
            (inside, outside) = (outside, 2 * outside);
        }
        while outside - inside > 1 {
            let middle = u64::midpoint(inside, outside);
            if at(middle).in_domain { inside = middle } else { outside = middle }
        }
        let edge = at(inside);
        for batch in [outside, outside + 5, outside * 3 / 2, outside * 2] {
            let beyond = at(batch);
            assert!(
                !beyond.in_domain && beyond.time.value >= edge.time.value,
                "{results} {precision} {batch}: {beyond:?}"
            );
        }
    }
}
