//! Steps on Hopper under power limits: what follows the voltage, and what is not known of it.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::Watts;
use joulecast_model::catalog;
use joulecast_model::device::clock::VoltageCurve;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint};

fn at(gpu: &str, limits: &[f64]) -> Vec<NetworkPrediction> {
    let (gpu, framework) = (catalog::gpu(gpu).expect("shipped"), catalog::framework("cudnn").expect("shipped"));
    let predictor = Predictor::with(gpu, Calibrations::shipped(), framework).launched(Some(Launch::Graph));
    let network = catalog::network("vit_b_16").expect("shipped");
    let network = ShapedNetwork::new(&network, 64, Precision::Fp32, &[]).expect("fits");
    let step = predictor.step(&network, Mode::Inference).expect("predicted");
    let point = |watts: &f64| OperatingPoint { power_cap: Some(Watts::new(*watts)), ..OperatingPoint::default() };
    limits.iter().map(|watts| step.at(point(watts)).expect("within the range")).collect()
}

#[test]
fn a_lower_limit_saves_energy_however_little_the_voltage_rises() {
    for gpu in ["h200", "h100-sxm"] {
        let found = at(gpu, &[700.0, 500.0, 400.0]);
        for pair in found.windows(2) {
            let (more, less) = (&pair[0], &pair[1]);
            assert!(less.energy.value < more.energy.value && less.time.value > more.time.value, "{gpu}");
            for (more, less) in more.by_voltage.iter().zip(&less.by_voltage) {
                assert!(less.1 < more.1, "{gpu}: {less:?} {more:?}");
            }
        }
    }
}

#[test]
fn the_interval_at_another_limit_holds_what_the_voltage_may_do() {
    let found = at("h200", &[700.0, 300.0]);
    let [default, low] = &found[..] else { panic!("two limits") };
    let [little, much] = low.by_voltage[..] else { panic!("two ends") };
    assert!(little.1 > low.energy.value && much.1 < low.energy.value, "{little:?} {much:?} {:?}", low.energy);
    assert!(low.energy.p05 < much.1 && little.1 < low.energy.p95);
    let width = |p: &NetworkPrediction| (p.energy.p95 / p.energy.p05).ln();
    assert!(width(low) > width(default) + 0.05, "{} {}", width(low), width(default));
    // At the default limit kernels draw what they draw, whatever the voltage does below.
    for (time, energy) in &default.by_voltage {
        assert!((*time / default.time.value - 1.0).abs() < 1e-6 && (*energy / default.energy.value - 1.0).abs() < 1e-6);
    }
}

#[test]
fn what_is_likely_comes_from_the_file_else_from_what_is_known_of_others() {
    let rises = |name: &str| {
        let gpu = catalog::gpu(name).expect("shipped");
        let lowest = |curve: VoltageCurve| 1.0 / curve.relative(0.0) - 1.0;
        VoltageCurve::likely(&gpu).map(lowest)
    };
    let near = |found: [f64; 2], expected: [f64; 2]| {
        assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-9), "{found:?} {expected:?}");
    };
    near(rises("h200"), [0.2, 0.5]);
    near(rises("a100-sxm4-80gb"), [0.218 / 1.25, 0.218 * 1.25]);
    near(
        rises("a40"),
        catalog::gpu("a40")
            .expect("shipped")
            .voltage
            .map_or([0.117, 0.478], |v| [v.rise.value / 1.25, v.rise.value * 1.25]),
    );
}
