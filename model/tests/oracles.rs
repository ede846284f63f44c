//! Totals of a step, computed anew from its layers and from what the device and profile say, without the code that adds
//! them up.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::units::{Bytes, Hertz, Watts};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Sourced;
use joulecast_model::law::power::waiting;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::memory::{footprint, largest_batch};
use joulecast_model::step::parallel::{Fabric, Share, combine};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint};

fn ok<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| panic!("{e:#}"))
}

fn close(a: f64, b: f64, what: &str) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-12), "{what}: {a} and {b}");
}

fn at(net: &str, gpu: &str, batch: u64, precision: Precision, mode: Mode, point: OperatingPoint) -> NetworkPrediction {
    let (gpu, framework) = (ok(catalog::gpu(gpu)), ok(catalog::framework("cudnn")));
    let predictor = Predictor::shipped(gpu, framework);
    let network = ok(ShapedNetwork::new(&ok(catalog::network(net)), batch, precision, &[]));
    ok(ok(predictor.step(&network, mode)).at(point))
}

fn usual(net: &str, gpu: &str, batch: u64, precision: Precision, mode: Mode) -> NetworkPrediction {
    at(net, gpu, batch, precision, mode, OperatingPoint::default())
}

#[test]
fn a_step_is_its_kernels_and_the_gaps_between_them() {
    let gap = ok(catalog::framework("cudnn")).dispatch.get();
    assert!(gap > 0.0);
    for (net, gpu, mode) in [
        ("alexnet", "v100", Mode::Inference),
        ("resnet18", "h200", Mode::Training),
        ("mobilenet_v2", "t4", Mode::Inference),
    ] {
        let p = usual(net, gpu, 4, Precision::Fp32, mode);
        let idle = waiting(&ok(catalog::gpu(gpu))).get();
        let gaps = gap * p.layers.len() as f64;
        let sum = |of: &dyn Fn(&joulecast_model::step::predictor::LayerPrediction) -> f64| {
            p.layers.iter().map(of).sum::<f64>()
        };
        close(p.time.value.get(), sum(&|l| l.time.value.get()) + gaps, "time");
        close(p.waiting * p.time.value.get(), gaps, "gaps");
        close(p.energy.value.get(), sum(&|l| l.power.get() * l.time.value.get()) + idle * gaps, "energy");
        close(p.power.value.get(), p.energy.value.get() / p.time.value.get(), "power");
        close(p.ops.get() as f64, sum(&|l| l.ops.get() as f64), "operations");
        close(p.read.get() as f64, sum(&|l| l.read.get() as f64), "bytes read");
        close(p.written.get() as f64, sum(&|l| l.written.get() as f64), "bytes written");
        close(p.bound.get(), sum(&|l| l.bound.get()), "bound");
        for phase in &p.phases {
            let of = |value: &dyn Fn(&joulecast_model::step::predictor::LayerPrediction) -> f64| {
                p.layers.iter().filter(|l| l.phase == phase.phase).map(value).sum::<f64>()
            };
            close(phase.time.get(), of(&|l| l.time.value.get()), "a phase's time");
            close(phase.energy.get(), of(&|l| l.energy.get()), "a phase's energy");
        }
        let expected: &[Phase] = mode.phases();
        assert_eq!(p.phases.iter().map(|t| t.phase).collect::<Vec<_>>(), expected);
        // What a network's interval was before whole networks were compared: the layers' ends, each on its side.
        let low = (p.time.value.get() / (sum(&|l| l.time.p05.get()) + gaps)).ln();
        let high = ((sum(&|l| l.time.p95.get()) + gaps) / p.time.value.get()).ln();
        close(p.widths.time.0, low, "below");
        close(p.widths.time.1, high, "above");
        close(p.widths.energy.0, low.hypot(p.widths.power.0), "energy, below");
        close(p.widths.energy.1, high.hypot(p.widths.power.1), "energy, above");
    }
}

/// Another chip's law is a factor of 1.3 less certain, on both sides.
#[test]
fn a_law_that_was_lent_is_less_certain() {
    let all = ok(catalog::all_chips());
    let law = all.power.as_ref().expect("a law");
    let p = usual("alexnet", "v100", 4, Precision::Fp32, Mode::Inference);
    close(p.widths.power.0, 1.3f64.ln() - law.residuals.0, "below");
    close(p.widths.power.1, 1.3f64.ln() + law.residuals.1, "above");
}

/// A board that its limit holds back draws the share of it that its file says, kernels alone, and no more.
#[test]
fn a_limit_holds_the_share_of_it_that_the_board_keeps_to() {
    let gpu = ok(catalog::gpu("v100"));
    let held = gpu.power.held.as_ref().expect("known of this board").value;
    assert!(held < 1.0);
    let vgg = |cap: f64| {
        let point = OperatingPoint { power_cap: Some(Watts::new(cap)), ..OperatingPoint::default() };
        at("vgg16", "v100", 64, Precision::Fp32, Mode::Inference, point)
    };
    for cap in [180.0, 220.0, 260.0] {
        let p = vgg(cap);
        let power = p.power.value.get();
        assert!(power <= held * cap * 1.001 && power > 0.95 * held * cap, "{power} W of {held} x {cap}");
        assert!(p.clock < gpu.core_clock.boost.value && p.power.p95 <= Watts::new(cap));
    }
    assert!(vgg(180.0).time.value > vgg(220.0).time.value);
}

/// What was found beside a lent law is not the business of a board's own: only a share that was found alone is.
#[test]
fn a_law_of_its_own_takes_no_constants_of_a_lent_one() {
    let under = |held: Option<f64>, draw: Option<f64>| {
        let (mut gpu, framework) = (ok(catalog::gpu("h200")), ok(catalog::framework("cudnn")));
        let sourced = |value: f64| Sourced { value, ..gpu.power.held.clone().expect("known of this board") };
        (gpu.power.held, gpu.power.draw) = (held.map(sourced), draw.map(sourced));
        let network = ok(ShapedNetwork::new(&ok(catalog::network("vgg16")), 64, Precision::Fp32, &[]));
        let point = OperatingPoint { power_cap: Some(Watts::new(300.0)), ..OperatingPoint::default() };
        let predictor = Predictor::shipped(gpu, framework);
        ok(ok(predictor.step(&network, Mode::Inference)).at(point)).power.value.get()
    };
    let plain = under(None, None);
    assert!((under(Some(0.9), None) / 270.0 - 1.0).abs() < 1e-3 && plain > 285.0, "{plain}");
    assert_eq!(under(Some(0.9), Some(0.5)), plain);
    assert_eq!(under(None, Some(0.5)), plain);
}

/// Sixteen bits draw what their own units do, not those of tf32: measured on an H200, more of the limit, sooner.
#[test]
fn precisions_have_powers_of_their_own() {
    let power = |precision| {
        let clock = OperatingPoint { core_clock: Some(Hertz::from_mhz(1200.0)), ..OperatingPoint::default() };
        at("vgg16", "h200", 64, precision, Mode::Inference, clock).power.value.get()
    };
    let all = [Precision::Fp32, Precision::Tf32, Precision::Fp16].map(power);
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        assert!((all[a] / all[b] - 1.0).abs() > 1e-3, "{all:?}");
    }
}

/// What lies outside of the fitted sizes has a wider interval than what lies inside.
#[test]
fn outside_of_what_was_measured_intervals_are_wider() {
    let p = usual("lenet5", "v100", 1, Precision::Fp32, Mode::Inference);
    let inside = usual("vgg16", "v100", 64, Precision::Fp32, Mode::Inference);
    let width = |p: &NetworkPrediction, kind: &str, inside: bool| {
        let layers = p.layers.iter().filter(|l| l.kind == kind && l.in_domain == inside);
        let of = layers.map(|l| l.time.p95.get() / l.time.p05.get()).collect::<Vec<_>>();
        assert!(!of.is_empty(), "{kind}");
        of
    };
    let widest = width(&inside, "conv2d", true).into_iter().fold(0.0, f64::max);
    let narrowest = width(&p, "conv2d", false).into_iter().fold(f64::MAX, f64::min);
    assert!(narrowest > 1.5 * widest, "{narrowest} outside, {widest} inside");
}

/// A step as somebody measured it takes that time and draws that power: less by waiting, more by kernels that draw more.
#[test]
fn a_measured_step_is_given_back() {
    let (gpu, framework) = (ok(catalog::gpu("v100")), ok(catalog::framework("cudnn")));
    let predictor = Predictor::shipped(gpu, framework);
    let network = ok(ShapedNetwork::new(&ok(catalog::network("resnet18")), 32, Precision::Fp32, &[]));
    let step = ok(predictor.step(&network, Mode::Inference));
    let plain = ok(step.at(OperatingPoint::default()));
    for (slower, stronger) in [(1.0, 0.7), (1.4, 0.9), (1.2, 1.02), (0.8, 1.06)] {
        let (time, power) = (plain.time.value * slower, plain.power.value * stronger);
        let anchored = ok(ok(step.clone().anchored(time, power)).at(OperatingPoint::default()));
        let error = |a: f64, b: f64| (a / b - 1.0).abs();
        let (t, w) = (anchored.time.value.get(), anchored.power.value.get());
        assert!(error(t, time.get()) < 0.02 && error(w, power.get()) < 0.02, "{slower} {stronger}: {t} {w}");
    }
}

/// GPUs that share a step: as many samples, operations and bytes as all of them, the energy of all, and who is faster waits.
#[test]
fn gpus_that_share_a_step_add_up() {
    let framework = ok(catalog::framework("cudnn"));
    let network = ok(ShapedNetwork::new(&ok(catalog::network("alexnet")), 16, Precision::Fp32, &[]));
    let boards = ["v100", "titan-x-pascal"].map(|name| ok(catalog::gpu(name)));
    let alone = boards.each_ref().map(|gpu| usual("alexnet", &gpu.name, 16, Precision::Fp32, Mode::Training));
    let shares = boards.iter().zip(&alone).zip([2, 1]).map(|((gpu, p), count)| Share { count, gpu, alone: p.clone() });
    let fabric = ok(Fabric::of(&ok(catalog::interconnects()), &[&boards[0], &boards[1]], 3, None));
    let all = combine(shares.collect(), &network, &fabric, &framework).expect("three GPUs");
    let sum = |of: fn(&NetworkPrediction) -> u64| 2 * of(&alone[0]) + of(&alone[1]);
    assert_eq!((all.batch, all.ops.get(), all.read.get()), (48, sum(|p| p.ops.get()), sum(|p| p.read.get())));
    assert_eq!(all.written.get(), sum(|p| p.written.get()));
    let c = all.communication.as_ref().expect("gradients are summed");
    let parameters = 4 * network.parameters();
    assert_eq!(c.bytes.get(), parameters);
    assert!(c.exposed <= c.time && c.exposed.get() > 0.0);
    let slowest = alone.iter().map(|p| p.time.value.get()).fold(0.0, f64::max);
    // But for rounding.
    assert!(all.time.value.get() >= (slowest + c.exposed.get()) * (1.0 - 1e-12));
    assert!(all.time.p05 <= all.time.value && all.time.value <= all.time.p95);
    let energy: f64 = all.devices.iter().map(|d| d.count as f64 * d.energy.value.get()).sum();
    close(all.energy.value.get(), energy, "energy");
    close(all.power.value.get(), energy / all.time.value.get(), "power");
    for ((device, own), gpu) in all.devices.iter().zip(&alone).zip(&boards) {
        // A kernel of the sum waits for the others: 0.18 of the range up to the limit above waiting.
        let drawn = waiting(gpu).get() + 0.18 * (gpu.power.limit.value.get() - waiting(gpu).get());
        let wait = (all.time.value.get() - own.time.value.get()) * drawn;
        close(device.energy.value.get(), own.energy.value.get() + wait, "its own step, then it waits");
        close(device.waiting.get(), wait, "waiting");
    }
}

/// The largest batch fits, and one multiple more does not, whatever the memory.
#[test]
fn the_largest_batch_is_the_largest() {
    let framework = ok(catalog::framework("pytorch"));
    let shaped = |batch: u64| ShapedNetwork::new(&ok(catalog::network("lenet5")), batch, Precision::Fp32, &[]);
    let needed = |batch: u64| footprint(&ok(shaped(batch)), Mode::Training, &framework.memory, &[]).total();
    for (batch, multiple) in [(1, 1), (2, 1), (3, 1), (37, 1), (100, 1), (129, 1), (36, 4), (96, 32)] {
        let memory = needed(batch);
        let found = ok(largest_batch(memory, multiple, |batch| Ok::<_, std::convert::Infallible>(needed(batch))));
        let found = found.unwrap_or_else(|| panic!("{batch} fits"));
        assert!(needed(found) <= memory && needed(found + multiple) > memory, "{batch}: {found}");
        assert!(found >= batch && found % multiple == 0, "{batch}: {found}");
    }
    assert_eq!(ok(largest_batch(Bytes::new(1), 1, |batch| Ok::<_, std::convert::Infallible>(needed(batch)))), None);
}
