//! Kernels beyond what was measured, with the calibrations that are shipped: what bounds their times.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::law::calibration::Tier;
use joulecast_model::law::lookup::Substitute;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::step::generation;
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

/// Attention of a new token, or of a prompt, after so many cached ones.
fn attention(heads: u64, kv_heads: u64, dimension: u64, new: u64, cached: u64) -> Network {
    let features = (heads + 2 * kv_heads) * dimension;
    Network::from_toml(&format!(
        r#"
schema = "network/1"
name = "attention"
title = "attention"
layers = [ {{ name = "attention", kind = "attention", heads = {heads}, kv_heads = {kv_heads}, causal = true, cached = {cached} }} ]
inputs.x.shape = [{new}, {features}]
"#
    ))
    .expect("a network")
}

/// Far beyond what was measured a polynomial says whatever it says; memory delivers no more than its bandwidth, and units
/// multiply no faster than at their peak. The second-level cache may hold keys from before, which small models' rows show.
#[test]
fn attention_is_never_faster_than_its_traffic_and_its_products() {
    let mut held = 0;
    for gpu in ["l40s", "h100", "h200", "b200", "a100-sxm4-80gb", "rtx4090", "t4"] {
        let predictor = predictor(gpu);
        let gpu = predictor.gpu().clone();
        let precision = gpu.computes_in(Precision::Bf16).map_or(Precision::Fp16, |_| Precision::Bf16);
        let peak = gpu.peak_on(precision).expect("has one");
        let l2 = gpu.l2.as_ref().map_or(0, |l2| l2.value.get());
        for (heads, kv_heads, dimension) in [(32, 8, 128), (16, 8, 256), (32, 32, 128)] {
            for (new, cached, batch) in [
                (1, 32_767, 8),
                (1, 300_000, 1),
                (1, 300_000, 16),
                (1, 1_000_000, 1),
                (65_536, 0, 1),
                (8192, 300_000, 1),
            ] {
                let network = attention(heads, kv_heads, dimension, new, cached);
                let p = predicted(&predictor, &network, batch, precision, Mode::Inference);
                let layer = &p.layers[0];
                let moved =
                    (layer.read.get() + layer.written.get()).saturating_sub(l2) as f64 / gpu.bandwidth.value.get();
                let floor = moved.max((layer.ops / peak).get());
                let (time, low) = (layer.time.value.get(), layer.time.p05.get());
                let what = format!("{} {heads} {kv_heads} {dimension}, {new} after {cached} by {batch}", gpu.name);
                assert!(time >= floor * (1.0 - 1e-9), "{what}: {time} and {floor}");
                // Where that is all that is known, an interval begins there.
                let is_held = time < floor * 1.0001;
                assert!(low <= time && (!is_held || low >= floor * (1.0 - 1e-9)), "{what}: from {low}");
                held += usize::from(is_held);
            }
        }
    }
    assert!(held > 10, "{held} at the bound");
}

/// Rows of other chips' servers have keys that a tile divides but for the smallest sizes: of all others their models say what
/// they saw of those, on a B200 four times as long.
#[test]
fn a_new_token_attends_no_longer_than_to_more_keys() {
    let mut shorter = 0;
    for gpu in ["b200", "a100-sxm4-80gb", "l40s"] {
        let predictor = predictor(gpu);
        for (cached, batch) in [(200, 2), (1000, 1), (1024, 2), (1030, 64), (9000, 8), (300_000, 2)] {
            let time = |cached| {
                let network = attention(32, 8, 128, 1, cached);
                predicted(&predictor, &network, batch, Precision::Bf16, Mode::Inference).layers[0].time
            };
            let (own, more) = (time(cached), time((cached + 1).next_multiple_of(32) - 1));
            let what = format!("{gpu}, {cached} by {batch}");
            assert!(own.value <= more.value, "{what}: {} and {}", own.value, more.value);
            assert!(own.p05 <= own.value && own.value <= own.p95, "{what}");
            // More traffic makes none faster.
            assert!(own.value * 4.0 > more.value, "{what}: {} and {}", own.value, more.value);
            shorter += usize::from(own.value == more.value);
        }
    }
    assert!(shorter > 5, "{shorter} would take longer than with more keys");
}

/// One layer's rows, again and again, found small caches in an L40S's 96 MiB; in a network whose weights went through it since,
/// nothing of them is left.
#[test]
fn keys_of_a_language_model_come_from_memory() {
    for name in ["qwen3_8b", "gemma2_9b", "llama3_2_1b"] {
        for gpu in ["l40s", "h200", "b200"] {
            let predictor = predictor(gpu);
            let bandwidth = predictor.gpu().bandwidth.value;
            for (cached, batch) in [(1023, 2), (4100, 2), (4095, 64), (300_000, 2)] {
                let network = catalog::network(name).expect("known");
                let Ok(network) = generation::decode(&network, cached) else { continue };
                let p = predicted(&predictor, &network, batch, Precision::Bf16, Mode::Inference);
                let attention = p.layers.iter().filter(|l| l.kind == "attention");
                assert!(attention.clone().count() > 15, "{name}");
                for layer in attention {
                    let moved = (layer.read + layer.written) / bandwidth;
                    assert!(
                        layer.time.value * (1.0 + 1e-9) >= moved,
                        "{name} on {gpu}, {cached} by {batch}: {} in {}",
                        layer.time.value,
                        layer.name
                    );
                }
            }
        }
    }
}
