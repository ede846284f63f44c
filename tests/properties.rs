//! Properties of predictions, over the whole zoo and all devices.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::units::{Hertz, Seconds};
use joulecast_model::catalog;
use joulecast_model::law::calibration::Tier;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::step::framework::Launch;
use joulecast_model::step::predictor::Warning;
use joulecast_model::step::predictor::{Estimate, OperatingPoint, Prepared, core_range};
use joulecast_tests::{ok, predicted, predictor, seeded, shaped};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Every network on every device, in inference and training: finite, positive, consistent.
#[test]
fn every_network_on_every_device() {
    let networks: Vec<ShapedNetwork> = catalog::network_names().map(|n| shaped(n, 8, Precision::Fp32)).collect();
    for gpu in catalog::gpu_names() {
        for network in &networks {
            for mode in [Mode::Inference, Mode::Training] {
                let p = predicted(network, gpu, mode);
                let label = format!("{} on {gpu}, {mode}", p.network);
                let (t, w, e) = (p.time, p.power, p.energy);
                assert!(t.value.get().is_finite() && t.value.get() > 0.0, "{label}: {t:?}");
                assert!(t.p05 <= t.value && t.value <= t.p95, "{label}: {t:?}");
                assert!(w.p05 <= w.value && w.value <= w.p95, "{label}: {w:?}");
                assert!(e.p05 <= e.value && e.value <= e.p95, "{label}: {e:?}");
                let product = (w.value * t.value).get();
                assert!((product / e.value.get() - 1.0).abs() < 1e-9, "{label}: E = P t");
                let sum: f64 = p.layers.iter().map(|l| l.time.value.get()).sum();
                let gaps = p.waiting * t.value.get();
                assert!(((sum + gaps) / t.value.get() - 1.0).abs() < 1e-9, "{label}: layers and gaps add up");
                let phases: f64 = p.phases.iter().map(|l| l.time.get()).sum();
                assert!((phases / sum - 1.0).abs() < 1e-9, "{label}: phases add up");
                let limit = ok(catalog::gpu(gpu)).power.limit.value;
                assert!(w.p95 <= limit * (1.0 + 1e-9), "{label}: {w:?} beyond {limit}");
            }
        }
    }
}

#[test]
fn every_precision_a_device_has_can_be_predicted() {
    for gpu in catalog::gpu_names() {
        for &precision in ok(catalog::gpu(gpu)).peaks.keys() {
            let p = predicted(&shaped("resnet18", 16, precision), gpu, Mode::Training);
            assert!(p.time.value.get() > 0.0, "{gpu} {precision}");
        }
    }
}

/// Kinds that no network of the zoo has and no GPU was measured with.
#[test]
fn what_was_measured_nowhere_is_predicted_everywhere() {
    let text = r#"
schema = "network/1"
name = "unmeasured"
title = "unmeasured"
layers = [
  { name = "volume", kind = "conv3d", channels = 16, kernel = 3, padding = 1 },
  { name = "frames", kind = "conv3d", channels = 16, kernel = [1, 3, 3], padding = [0, 1, 1] },
  { name = "pooled", kind = "max_pool3d", kernel = 2 },
  { name = "mean", kind = "avg_pool3d", kernel = [2, 1, 1] },
  { name = "map", kind = "reshape", shape = [16, 8, 8] },
  { name = "up", kind = "conv_transpose2d", channels = 8, kernel = 4, stride = 2, padding = 1 },
  { name = "depthwise", kind = "conv_transpose2d", channels = 8, kernel = 2, stride = 2, groups = "depthwise" },
  { name = "larger", kind = "resize", output = 40, interpolation = "linear" },
  { name = "shifted", kind = "elementwise", ops = 2 },
  { name = "rows", kind = "reshape", shape = [8, 1600] },
  { name = "steps", kind = "rnn", hidden = 32 },
  { name = "mean_of_rows", kind = "reduce" },
]
inputs.x.shape = [3, 4, 16, 16]
"#;
    let network = ok(Network::from_toml(text));
    for gpu in catalog::gpu_names() {
        for &precision in ok(catalog::gpu(gpu)).peaks.keys().filter(|p| !matches!(p, Precision::Int8 | Precision::Fp8))
        {
            let shaped = ok(ShapedNetwork::new(&network, 4, precision, &[]));
            for mode in [Mode::Inference, Mode::Training] {
                let p = predicted(&shaped, gpu, mode);
                for layer in &p.layers {
                    let t = layer.time;
                    assert!(
                        t.value.get().is_finite() && t.p05 <= t.value && t.value <= t.p95,
                        "{gpu} {precision}: {layer:?}"
                    );
                    let own = layer.name == "volume" && layer.phase != Phase::Update;
                    let measured = own && layer.tier < Tier::Transferred;
                    assert!(t.value.get() > 1e-7 && !measured, "{gpu}: {layer:?}");
                }
            }
        }
    }
}

#[test]
fn halving_the_width_never_adds_memory_and_more_samples_never_take_less() {
    for name in ["vgg16", "resnet50", "mobilenet_v2"] {
        let memory = |precision| predicted(&shaped(name, 8, precision), "v100", Mode::Inference).memory.total();
        assert!(memory(Precision::Fp16) < memory(Precision::Fp32));
        let time = |batch| predicted(&shaped(name, batch, Precision::Fp32), "v100", Mode::Inference).time.value;
        assert!(time(64) > time(16) && time(16) > time(1), "{name}");
    }
}

/// More samples take longer, but for the jumps between tiles and algorithms.
#[test]
fn time_does_not_fall_much_as_the_batch_grows() {
    for gpu in ["v100", "p100", "t4", "p4", "a100", "m40", "titan-xp", "h200"] {
        for name in ["vgg16", "alexnet", "resnet50", "mobilenet_v2", "alexnet_cifar10"] {
            let times: Vec<f64> = [1, 2, 4, 8, 16, 32, 64]
                .map(|batch| predicted(&shaped(name, batch, Precision::Fp32), gpu, Mode::Inference).time.value.get())
                .to_vec();
            for pair in times.windows(2) {
                // The P4's rows of random sizes fall by up to a fifth where sizes begin to divide.
                let least = if gpu == "p4" { 0.75 } else { 0.85 };
                assert!(pair[1] > least * pair[0], "{name} on {gpu}: {times:?}");
            }
        }
    }
}

/// A polynomial may fall with the batch where no row is: AlexNet's and VGG's pools are larger than any that PyTorch's smallest
/// rows were of. No such kernel takes much longer than for 64 times as many samples, which those of yet more bound in turn.
#[test]
fn beyond_what_was_measured_fewer_samples_take_no_longer() {
    let pytorch = ok(catalog::framework("pytorch"));
    let predictor = predictor("h200").through(pytorch).launched(Some(Launch::Graph));
    let mut beyond = 0;
    for name in ["alexnet", "vgg16"] {
        let layers = |batch| ok(predictor.predict(&shaped(name, batch, Precision::Fp16), Mode::Inference)).layers;
        for (few, many) in layers(1).iter().zip(layers(64)).filter(|(few, _)| !few.in_domain) {
            assert!(few.time.value <= many.time.value * 2.0, "{name} {}: {:?} {:?}", few.name, few.time, many.time);
            beyond += 1;
        }
    }
    assert!(beyond > 2, "{beyond} kernels are beyond what was measured");
}

/// Times of a step along settings, each of which allows more than the one before.
fn along(prepared: &Prepared<'_, '_>, points: impl Iterator<Item = OperatingPoint>, label: &str) {
    let times: Vec<f64> = points.map(|point| ok(prepared.at(point)).time.value.get()).collect();
    for pair in times.windows(2) {
        // Clocks are solved for to a part in 10^9.
        assert!(pair[1] <= pair[0] * (1.0 + 1e-7), "{label}: {times:?}");
    }
}

/// A higher clock or power limit never makes a step longer, whatever the other allows: there is one solution of the limit.
#[test]
fn more_clock_or_power_never_takes_longer() {
    let networks: Vec<Vec<ShapedNetwork>> =
        [1, 8, 128].map(|batch| catalog::network_names().map(|n| shaped(n, batch, Precision::Fp32)).collect()).into();
    for (i, name) in catalog::gpu_names().enumerate() {
        let predictor = predictor(name);
        let gpu = predictor.gpu();
        let ((slow, fast), limit) = (core_range(gpu), gpu.power.limit.value);
        let least = gpu.power.limit_minimum.as_ref().map_or(limit * 0.3, |p| p.value);
        let most = gpu.power.limit_maximum.as_ref().map_or(limit, |p| p.value);
        let clock = |share: f64| Some(slow + (fast - slow) * share);
        let cap = |share: f64| Some(least + (most - least) * share);
        // Every network on every GPU, each GPU at another batch.
        for network in &networks[i % networks.len()] {
            let step = ok(predictor.step(network, Mode::Inference));
            let prepared = step.prepare();
            let shares = || (0..=8).map(|i| f64::from(i) / 8.0);
            for other in [0.4, 1.0] {
                let label = format!("{} on {name}, {other}", network.name());
                let clocks = shares().map(|s| OperatingPoint {
                    core_clock: clock(s),
                    power_cap: cap(other),
                    ..OperatingPoint::default()
                });
                along(&prepared, clocks, &label);
                let caps = shares().map(|s| OperatingPoint {
                    core_clock: clock(other),
                    power_cap: cap(s),
                    ..OperatingPoint::default()
                });
                along(&prepared, caps, &label);
            }
        }
    }
}

/// Where a limit jumped between two solutions: the highest clock that was asked for decided which was found.
#[test]
fn a_ceiling_that_does_not_bind_changes_nothing() {
    let (network, predictor) = (shaped("resnet18", 8, Precision::Fp32), predictor("titan-x-pascal"));
    let (step, gpu) = (ok(predictor.step(&network, Mode::Inference)), predictor.gpu());
    let at = |mhz: f64| {
        let point = OperatingPoint { core_clock: Some(Hertz::from_mhz(mhz)), ..OperatingPoint::default() };
        ok(step.at(point))
    };
    let first = at(1650.0);
    assert!(first.clock < Hertz::from_mhz(1649.0) && first.power.value <= gpu.power.limit.value, "{:?}", first.clock);
    for mhz in (1650..=1911).step_by(7) {
        let other = at(f64::from(mhz));
        assert!((other.time.value / first.time.value - 1.0).abs() < 1e-7, "{mhz} MHz: {:?}", other.time);
    }
}

/// Rows of one board say less of another: a tier of its own, wider intervals, and nothing that whole networks showed.
#[test]
fn another_board_of_a_measured_chip_is_a_sibling() {
    let network = shaped("resnet50", 16, Precision::Fp32);
    let (measured, sibling) =
        (predicted(&network, "h200", Mode::Inference), predicted(&network, "h100-nvl", Mode::Inference));
    assert_eq!((measured.time_tier, measured.power_tier), (Tier::Measured, Tier::Measured));
    assert_eq!((sibling.time_tier, sibling.power_tier), (Tier::Sibling, Tier::Sibling));
    let boards = vec!["h100-sxm".into(), "h200".into()];
    let of_others = Warning::OtherBoard { boards, gpu: "h100-nvl".into() };
    assert!(sibling.warnings.contains(&of_others), "{:?}", sibling.warnings);
    assert!(sibling.warnings.iter().any(|w| matches!(w, Warning::OtherPower { sibling: true, .. })));
    let width = |e: Estimate<Seconds>| (e.p95 / e.p05).ln();
    let mut wider = 0;
    for (own, other) in measured.layers.iter().zip(&sibling.layers).filter(|(own, _)| own.tier == Tier::Measured) {
        assert_eq!(other.tier, Tier::Sibling, "{}", own.name);
        assert!(width(other.time) > (width(own.time) - 1e-9).max(0.4), "{}: {:?} {:?}", own.name, own.time, other.time);
        wider += usize::from(width(other.time) > width(own.time) * 1.1);
    }
    assert!(wider > measured.layers.len() / 2, "{wider} of {}", measured.layers.len());
    assert!(width(sibling.time) > 1.25 * width(measured.time), "{:?} {:?}", sibling.time, measured.time);
    // Boards of a chip were measured with different kinds: convolutions on one A100, products on another.
    let network = shaped("vgg11", 16, Precision::Fp32);
    let tier = |gpu: &str, kind: &str| {
        let p = predicted(&network, gpu, Mode::Inference);
        p.layers.iter().find(|l| l.kind == kind).unwrap_or_else(|| panic!("a {kind}")).tier
    };
    assert_eq!((tier("a100-pcie-80gb", "conv2d"), tier("a100-pcie-80gb", "linear")), (Tier::Imported, Tier::Sibling));
    assert_eq!((tier("a100-pcie-40gb", "conv2d"), tier("a100-pcie-40gb", "linear")), (Tier::Sibling, Tier::Imported));
}

/// The headline's tier is what most of the uncertainty rests on, not what most of the time does.
#[test]
fn the_tier_is_that_of_the_uncertainty() {
    for name in ["v100", "t4", "h200", "a100-pcie-40gb"] {
        for net in ["vgg16", "mobilenet_v2", "vit_b_16"] {
            let p = predicted(&shaped(net, 16, Precision::Fp32), name, Mode::Inference);
            let mut widths: BTreeMap<Tier, f64> = BTreeMap::new();
            for l in &p.layers {
                *widths.entry(l.tier).or_default() += (l.time.p95 - l.time.p05).get();
            }
            let widest = widths.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(tier, _)| *tier);
            assert_eq!(Some(p.time_tier), widest, "{net} on {name}: {widths:?}");
        }
    }
}

/// A random chain of layers, as a network file.
fn chain() -> impl Strategy<Value = String> {
    let layer = prop_oneof![
        (1u64..64, 1u64..6, 1u64..3, 0u64..3).prop_map(|(c, k, s, p)| format!(
            "kind = \"conv2d\", channels = {c}, kernel = {k}, stride = {s}, padding = {p}"
        )),
        (1u64..4).prop_map(|k| format!("kind = \"max_pool2d\", kernel = {k}, ceil = true")),
        (1u64..32, 1u64..5, 1u64..4)
            .prop_map(|(c, k, s)| format!("kind = \"conv_transpose2d\", channels = {c}, kernel = {k}, stride = {s}")),
        Just("kind = \"relu\"".to_string()),
        Just("kind = \"batch_norm\"".to_string()),
        Just("kind = \"global_avg_pool2d\"".to_string()),
    ];
    (proptest::collection::vec(layer, 1..12), 1u64..8, 1u64..40).prop_map(|(layers, channels, size)| {
        let lines: Vec<String> =
            layers.iter().enumerate().map(|(i, fields)| format!("  {{ name = \"l{i}\", {fields} }},\n")).collect();
        format!(
            "schema = \"network/1\"\nname = \"chain\"\ntitle = \"chain\"\nlayers = [\n{}]\ninputs.x.shape = [{channels}, {size}, {size}]\n",
            lines.concat()
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..seeded() })]

    /// Either a clear error or a prediction whose parts agree.
    #[test]
    fn a_random_network_is_refused_or_predicted(text in chain(), batch in 1u64..100) {
        let network = ok(Network::from_toml(&text));
        match ShapedNetwork::new(&network, batch, Precision::Fp32, &[]) {
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
            Ok(shaped) => {
                let p = predicted(&shaped, "t4", Mode::Training);
                prop_assert!(p.time.value.get() > 0.0);
                prop_assert!(p.memory.total().get() > 0);
                let one = ok(ShapedNetwork::new(&network, 1, Precision::Fp32, &[]));
                prop_assert_eq!(shaped.macs(), batch * one.macs());
                prop_assert_eq!(shaped.parameters(), one.parameters());
            }
        }
    }
}
