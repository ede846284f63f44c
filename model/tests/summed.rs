//! What sums over kernels say at any clocks and limit is what the kernels say one by one.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::catalog;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{OperatingPoint, Summary, core_range};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

static CALIBRATIONS: LazyLock<Arc<Calibrations>> = LazyLock::new(Calibrations::shipped);

/// Values that are compared, with their names.
fn values(s: &Summary) -> [(&'static str, f64); 10] {
    [
        ("clock", s.clock.get()),
        ("time", s.time.value.get()),
        ("time p05", s.time.p05.get()),
        ("time p95", s.time.p95.get()),
        ("power", s.power.value.get()),
        ("power p05", s.power.p05.get()),
        ("power p95", s.power.p95.get()),
        ("energy", s.energy.value.get()),
        ("energy p05", s.energy.p05.get()),
        ("energy p95", s.energy.p95.get()),
    ]
}

/// Largest relative difference of a value, and which it is.
fn apart(a: &Summary, b: &Summary) -> (f64, &'static str) {
    assert_eq!((a.time_tier, a.power_tier, a.launch_bound), (b.time_tier, b.power_tier, b.launch_bound));
    let differences = values(a).into_iter().zip(values(b)).map(|((name, a), (_, b))| ((a / b - 1.0).abs(), name));
    differences.fold((0.0, ""), |most, next| if next.0 <= most.0 { most } else { next })
}

/// Clocks are solved for to this share of the boost clock.
const RESOLUTION: f64 = 1e-9;

/// At clocks that are set sums only add up in another order; a limit's clock is as good as it is solved for.
fn same(net: &str, gpu: &str, batch: u64, precision: Precision, mode: Mode, profile: &str, at: (f64, f64, f64)) {
    let gpu = catalog::gpu(gpu).expect("known");
    let Some(precision) = gpu.computes_in(precision).map(|_| precision) else { return };
    let predictor = Predictor::with(gpu, CALIBRATIONS.clone(), catalog::framework(profile).expect("known"));
    let gpu = predictor.gpu();
    let network = catalog::network(net).expect("known");
    let network = predictor.shape(&network, batch, precision, &[]).expect("fits");
    let step = predictor.step(&network, mode).expect("runs");
    let prepared = step.prepare();
    let (clock, limit, memory) = at;
    let between = |(low, high): (f64, f64), share: f64| low + (high - low) * share;
    let (low, high) = core_range(gpu);
    let core = Hertz::new(between((low.get(), high.get()), clock));
    let most = gpu.power.limit_maximum.as_ref().map_or(gpu.power.limit.value, |p| p.value).get();
    let least = gpu.power.limit_minimum.as_ref().map_or(0.2 * most, |p| p.value.get());
    let cap = Watts::new(between((least, most), limit));
    let memory = gpu
        .memory_clock_range
        .as_ref()
        .map(|(low, high)| Hertz::new(between((low.value.get(), high.value.get()), memory)));
    for point in [
        OperatingPoint::default(),
        OperatingPoint { core_clock: Some(core), ..OperatingPoint::default() },
        OperatingPoint { power_cap: Some(cap), ..OperatingPoint::default() },
        OperatingPoint { core_clock: Some(core), power_cap: Some(cap), memory_clock: memory },
    ] {
        let (quick, plain) = (prepared.at(point).expect("taken"), prepared.plainly_at(point).expect("taken"));
        let (most, which) = apart(&quick, &plain);
        let set = point.on(gpu).expect("taken").ceiling * gpu.core_clock.boost.value.get();
        let held_back = (plain.clock.get() / set - 1.0).abs() > 1e-12;
        let allowed = if held_back { 4.0 * RESOLUTION } else { 1e-12 };
        let of = || format!("{net} {} {batch} {precision} {mode} {profile} {point:?}", gpu.name);
        assert!(most <= allowed, "{}: {which} {most:e}\n{quick:?}\n{plain:?}", of());
    }
    // One after the other, as a sweep has them: limits up and down at two clocks.
    let mut along = prepared.along();
    let limits = [0.3, limit, 0.8, 1.0, 0.5].map(|share| Watts::new(between((least, most), share)));
    for (core, cap) in
        [core, Hertz::new(between((low.get(), high.get()), 0.7))].iter().flat_map(|c| limits.map(|l| (*c, l)))
    {
        let point = OperatingPoint { core_clock: Some(core), power_cap: Some(cap), memory_clock: None };
        assert_eq!(along.at(point).ok(), prepared.at(point).ok(), "{net} {} {batch} {point:?}", gpu.name);
    }
}

#[test]
fn sums_say_what_kernels_say_for_every_network_and_gpu() {
    let gpus: Vec<&str> = catalog::gpu_names().collect();
    for (i, net) in catalog::network_names().enumerate() {
        for j in 0..3 {
            let (gpu, mode) = (gpus[(7 * i + 19 * j) % gpus.len()], Mode::ALL[(i + j) % 2]);
            let profile = if mode == Mode::Training { "pytorch" } else { ["cudnn", "pytorch"][j % 2] };
            let at = (0.1 + 0.3 * j as f64, 0.9 - 0.4 * j as f64, 0.5);
            same(net, gpu, [1, 16, 128][j], Precision::ALL[(i + j) % 4], mode, profile, at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn sums_say_what_kernels_say(
        net in prop::sample::select(vec!["resnet50", "vgg16", "alexnet", "mobilenet_v2", "bert_base", "densenet121"]),
        gpu in prop::sample::select(vec!["v100", "h200", "h100-sxm", "t4", "l4", "a100-pcie-40gb", "titan-x-maxwell", "p100", "mi250x"]),
        batch in 1u64..300,
        precision in prop::sample::select(vec![Precision::Fp32, Precision::Tf32, Precision::Fp16]),
        mode in prop::sample::select(Mode::ALL.to_vec()),
        at in (0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64),
    ) {
        let known = |name: &&str| catalog::gpu(name).is_ok();
        prop_assume!(known(&gpu) && catalog::network(net).is_ok());
        same(net, gpu, batch, precision, mode, "pytorch", at);
    }
}
