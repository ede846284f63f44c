//! What is predicted, as numbers: some fifty setups, from LeNet-5 on one GPU to an answer of GPT-2, fleets among them. A
//! mistake of a sign, a side or a unit anywhere between a layer and a total changes a line of `golden/values.txt`.
//!
//! `UPDATE_GOLDEN=1 cargo test -p joulecast-model --test values` writes that file anew; read the difference before it is
//! committed.

use joulecast_ask::capacity::{
    Assumptions, Board, Fleet, Headroom, Minimise, Price, Scenario, Server, Service, Site, Target, best, plan_fleet,
    sensitivity,
};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::features::library_age;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::net::layer::Optimizer;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::generation;
use joulecast_model::step::input::fed;
use joulecast_model::step::parallel::{Fabric, Share, combine};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{Estimate, NetworkPrediction, OperatingPoint};
use joulecast_reports::warnings::words;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// Network, GPUs, batch of each, precision, mode, profile; then what is asked besides.
const SETUPS: &[&str] = &[
    "lenet5 v100 1 fp32 inference cudnn layers",
    "lenet5 v100 64 fp32 training cudnn layers",
    "alexnet p100-pcie 32 fp32 inference cudnn layers",
    "alexnet h200 16 fp16 training cudnn layers",
    "vgg16 v100 64 fp32 inference cudnn",
    "vgg16 h200 64 fp32 inference cudnn",
    "vgg16 h200 64 tf32 inference cudnn",
    "vgg16 h200 64 fp16 inference cudnn",
    "vgg16 h200 64 bf16 inference cudnn",
    "resnet50 h200 16 fp32 training cudnn",
    "resnet50 h200 128 fp16 training cudnn",
    "googlenet titan-x-pascal 16 fp32 inference cudnn",
    "googlenet titan-x-pascal 16 fp32 training cudnn",
    "mobilenet_v2 t4 8 fp32 inference cudnn layers",
    "mobilenet_v2 l4 8 fp16 inference cudnn",
    "efficientnet_b0 a40 8 fp32 training cudnn",
    "densenet121 a100-sxm4-40gb 8 fp32 inference cudnn",
    "resnet18 v100 32 fp32 training cudnn optimizer=sgd",
    "resnet18 v100 32 fp32 training cudnn optimizer=adam",
    "resnet18 t4 32 fp16 training cudnn optimizer=momentum",
    "bert_base h200 8 bf16 inference cudnn sequence=128",
    "bert_base v100 8 fp32 training cudnn sequence=128",
    "swin_t h200 4 fp16 inference pytorch",
    "vit_b_16 h200 8 fp16 inference pytorch launch=graph",
    "resnet50 h200 16 fp32 inference pytorch",
    "resnet50 h200 1 fp16 inference pytorch",
    "resnet50 h200 16 fp16 training pytorch",
    "resnet50 h200 16 fp32 training pytorch launch=graph optimizer=adam",
    "resnet50 v100 4 fp32 training pytorch",
    "efficientnet_b0 h200 4 fp32 training pytorch",
    "mobilenet_v2 v100 4 fp32 training mxnet",
    "caffenet titan-x-maxwell 128 fp32 training caffe",
    "googlenet titan-x-maxwell 128 fp32 inference caffe cudnn=4",
    "resnet50 titan-x-pascal 64 fp32 training caffe cudnn=6.0",
    "resnet50 v100 64 fp32 inference cudnn cap=200",
    "resnet50 v100 64 fp32 inference cudnn clock=1200",
    "resnet18 v100 4 fp32 inference cudnn clock=1530",
    "resnet18 h200 4 fp32 inference cudnn clock=1500 cudnn=7.5",
    "alexnet titan-x-maxwell 4 fp32 inference cudnn cudnn=7.5",
    "resnet50 t4 16 fp32 inference cudnn clock=900 cap=60",
    "vgg16 h200 64 fp16 inference cudnn cap=400",
    "vgg16 h200 16 fp32 inference cudnn clock=1200",
    "vgg16 rtx2080ti 16 fp32 inference cudnn memory=6000",
    "vgg16 h200 32 fp32 inference cudnn algorithm=winograd_nonfused layers",
    "vgg16 h200 32 fp32 inference cudnn algorithm=gemm",
    "alexnet h200 32 fp32 inference cudnn algorithm=implicit_gemm",
    "vgg16 v100 32 fp32 training cudnn algorithm=fft",
    "alexnet h200 32 fp32 inference cudnn algorithm=fft_tiling",
    "resnet50 t4 16 fp16 inference tensorrt layers",
    "alexnet xeon-e5-2698v3 16 fp32 inference cudnn layers",
    "squeezenet1_1 i7-6700k 1 fp32 inference cudnn",
    "resnet50 8xv100 64 fp32 training cudnn",
    "resnet50 16xv100 64 fp32 training pytorch interconnect=infiniband-fdr",
    "vgg16 2xh200 32 fp16 training pytorch",
    "resnet18 4xt4 8 fp32 inference cudnn",
    "caffenet 2xtitan-x-pascal,2xtitan-x-maxwell 32 fp32 training caffe",
    "alexnet v100 512 fp32 training mxnet rate=1600",
    "gpt2 h200 8 fp16 inference cudnn sequence=512 generate=128",
    "gpt2 h200 2 fp16 inference pytorch sequence=64 generate=4 layers",
    "tinyllama v100 4 fp16 inference cudnn sequence=128 generate=64",
    "odd v100 4 fp32 inference cudnn layers",
    "odd h200 4 fp32 training pytorch layers",
    "odd t4 4 fp16 training cudnn layers",
];

/// Kinds that few networks have, with and without biases and remainders.
const ODD: &str = r#"
schema = "network/1"
name = "odd"
title = "odd"
layers = [
  { name = "volume", kind = "conv3d", channels = 18, kernel = 3, padding = 1, groups = 3 },
  { name = "frames", kind = "conv3d", channels = 16, kernel = [1, 3, 3], padding = [0, 1, 1], bias = false },
  { name = "pooled", kind = "max_pool3d", kernel = 2 },
  { name = "mean", kind = "avg_pool3d", kernel = [2, 1, 1] },
  { name = "map", kind = "reshape", shape = [16, 9, 9] },
  { name = "up", kind = "conv_transpose2d", channels = 8, kernel = 4, stride = 2, padding = 1 },
  { name = "depthwise", kind = "conv_transpose2d", channels = 8, kernel = 2, stride = 2, groups = "depthwise" },
  { name = "clipped", kind = "max_pool2d", kernel = 2, stride = 3, ceil = true },
  { name = "averaged", kind = "avg_pool2d", kernel = 3, stride = 2, padding = 1, ceil = true },
  { name = "grouped", kind = "conv2d", channels = 12, kernel = 3, groups = 2, dilation = 2, padding = 2 },
  { name = "normed", kind = "local_response_norm" },
  { name = "larger", kind = "resize", output = 40, interpolation = "linear" },
  { name = "shifted", kind = "elementwise", ops = 2 },
  { name = "rows", kind = "reshape", shape = [8, 2400] },
  { name = "steps", kind = "lstm", hidden = 32, bidirectional = true },
  { name = "more_steps", kind = "rnn", hidden = 32 },
  { name = "norm", kind = "rms_norm" },
  { name = "out", kind = "linear", features = 10, bias = false },
  { name = "chances", kind = "softmax" },
]
inputs.x.shape = [3, 4, 18, 18]
"#;

fn ok<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|e| panic!("{e:#}"))
}

/// Six significant digits.
fn six(value: f64) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    if !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    if (-4..7).contains(&magnitude) {
        format!("{value:.*}", (5 - magnitude).max(0) as usize)
    } else {
        format!("{value:.5e}")
    }
}

fn between<T>(estimate: &Estimate<T>, number: fn(T) -> f64) -> String
where
    T: Copy,
{
    format!("{} {} {}", six(number(estimate.p05)), six(number(estimate.value)), six(number(estimate.p95)))
}

/// What is asked besides, by name.
struct Asked<'a> {
    words: BTreeMap<&'a str, &'a str>,
}

impl<'a> Asked<'a> {
    fn number(&self, name: &str) -> Option<f64> {
        self.words.get(name).map(|text| ok(text.parse()))
    }

    fn point(&self) -> OperatingPoint {
        OperatingPoint {
            core_clock: self.number("clock").map(Hertz::from_mhz),
            memory_clock: self.number("memory").map(Hertz::from_mhz),
            power_cap: self.number("cap").map(Watts::new),
        }
    }
}

/// A prediction's numbers, line by line.
fn print(text: &mut String, p: &NetworkPrediction, layers: bool) {
    let _ = writeln!(text, "  {}, time {}, power {}", p.calibration, p.time_tier, p.power_tier);
    let _ = writeln!(text, "  time s     {}", between(&p.time, Seconds::get));
    let _ = writeln!(text, "  power W    {}", between(&p.power, Watts::get));
    let _ = writeln!(text, "  energy J   {}", between(&p.energy, Joules::get));
    let w = &p.widths;
    let widths = [w.time.0, w.time.1, w.power.0, w.power.1, w.energy.0, w.energy.1].map(six).join(" ");
    let _ = writeln!(text, "  widths     {widths}");
    let rates = [p.edp().get(), p.samples_per_second(), p.samples_per_joule(), p.ops_per_joule()].map(six).join(" ");
    let _ = writeln!(text, "  rates      {rates} {}", six(p.energy_per_sample().get()));
    let mhz = p.memory_clock.map_or(String::new(), |c| format!(", memory {}", six(c.to_mhz())));
    let bound = if p.launch_bound { ", launch-bound" } else { "" };
    let _ = writeln!(text, "  clock MHz  {}{mhz}, waiting {}{bound}", six(p.clock.to_mhz()), six(p.waiting));
    let _ = writeln!(
        text,
        "  counted    {} op, {} B read, {} B written, {} parameters, bound {}",
        p.ops.get(),
        p.read.get(),
        p.written.get(),
        p.parameters,
        six(p.bound.get())
    );
    let m = &p.memory;
    let parts = [m.weights, m.gradients, m.optimizer_state, m.activations, m.cache, m.workspace, m.context];
    let parts = parts.map(|b| b.get().to_string()).join(" ");
    let _ = writeln!(text, "  memory B   {parts}{}", if p.fits_in_memory { "" } else { ", does not fit" });
    for phase in &p.phases {
        let _ = writeln!(text, "  {:<10} {} s {} J", phase.phase, six(phase.time.get()), six(phase.energy.get()));
    }
    if let Some(c) = &p.communication {
        let (time, exposed) = (six(c.time.get()), six(c.exposed.get()));
        let _ = writeln!(text, "  {}: {} B, {time} s, exposed {exposed}", c.interconnect, c.bytes.get());
    }
    for d in p.devices.iter().filter(|_| p.devices.len() > 1 || p.communication.is_some()) {
        let (time, waiting) = (six(d.time.get()), six(d.waiting.get()));
        let power = between(&d.power, Watts::get);
        let _ = writeln!(text, "  {} x {}: {} each, {time} s, {power} W, waiting {waiting} J", d.count, d.gpu, d.batch);
    }
    if let Some(fed) = &p.fed {
        let _ = writeln!(text, "  {}", rounded(&format!("{fed:?}")));
    }
    // Shares of the time by what it rests on, and by kind.
    let kernels: f64 = p.layers.iter().map(|l| l.time.value.get()).sum();
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for l in &p.layers {
        let inside = if l.in_domain { "" } else { ", outside" };
        *shares.entry(format!("{}{inside}", l.tier)).or_default() += l.time.value.get() / kernels;
    }
    let shares: Vec<String> = shares.iter().map(|(name, share)| format!("{name} {}", six(*share))).collect();
    let _ = writeln!(text, "  rests on   {}", shares.join("; "));
    if layers {
        for l in &p.layers {
            let inside = if l.in_domain { "" } else { ", outside" };
            let by = l.algorithm.map_or(String::new(), |a| format!(" by {a}"));
            let jump = l.jump.as_ref().map_or(String::new(), |j| format!(" jump {j}"));
            let _ = writeln!(
                text,
                "    {} {} {}: {} s, {} W, {} J, bound {}, {}{inside}{by}{jump}",
                l.name,
                l.kind,
                l.phase,
                between(&l.time, Seconds::get),
                six(l.power.get()),
                six(l.energy.get()),
                six(l.bound.get()),
                l.tier
            );
        }
    }
    for warning in &p.warnings {
        let _ = writeln!(text, "  note: {}", words(warning));
    }
}

fn setup(line: &str, calibrations: &Arc<Calibrations>, text: &mut String) {
    let words: Vec<&str> = line.split(' ').collect();
    let &[net, gpus, batch, precision, mode, profile, ref more @ ..] = &words[..] else { panic!("{line}") };
    let words = more.iter().map(|w| w.split_once('=').unwrap_or((w, ""))).collect();
    let asked = Asked { words };
    let precision = Precision::from_name(precision).unwrap_or_else(|| panic!("{line}"));
    let mode = Mode::from_name(mode).unwrap_or_else(|| panic!("{line}"));
    let algorithm = asked.words.get("algorithm").map(|a| Algorithm::from_name(a).unwrap_or_else(|| panic!("{line}")));
    let framework = ok(catalog::framework(profile)).by(algorithm);
    let launch = asked.words.get("launch").map(|l| Launch::from_name(l).unwrap_or_else(|| panic!("{line}")));
    let library = asked.words.get("cudnn").and_then(|v| library_age(v));
    let on = |text: &str| {
        let (count, name) = text.split_once('x').filter(|(n, _)| n.parse::<u64>().is_ok()).unwrap_or(("1", text));
        let predictor = Predictor::with(ok(catalog::gpu(name)), calibrations.clone(), framework.clone());
        (ok(count.parse::<u64>()), predictor.launched(launch).with_library(library))
    };
    let on: Vec<(u64, Predictor)> = gpus.split(',').map(on).collect();
    let mut network = if net == "odd" { ok(Network::from_toml(ODD)) } else { ok(catalog::network(net)) };
    if let Some(tokens) = asked.number("sequence") {
        ok(network.bind("sequence", tokens as u64));
    }
    let layers = asked.words.contains_key("layers");
    let batch: u64 = ok(batch.parse());
    if let (Some(tokens), Some(prompt)) = (asked.number("generate"), asked.number("sequence")) {
        let tokens = (prompt as u64, tokens as u64);
        let all = ok(generation::predict(&on[0].1, &network, tokens, (batch, precision), asked.point()));
        let decode = all.decode.as_ref().map_or(String::new(), |d| between(&d.time, Seconds::get));
        let prefill = between(&all.prefill.time, Seconds::get);
        let _ = writeln!(text, "  prefill s  {prefill}\n  decode s   {decode}\n  cache B    {}", all.cache.get());
        let each = all.time_per_step().map_or(f64::NAN, Seconds::get);
        let tokens = [all.tokens_per_second(), all.energy_per_token().get(), each].map(six).join(" ");
        let _ = writeln!(text, "  tokens     {tokens}");
        return print(text, &all.total, layers);
    }
    let network = ok(ShapedNetwork::new(&network, batch, precision, &[]));
    let network = match asked.words.get("optimizer") {
        Some(name) => network.with_optimizer(Optimizer::from_name(name).unwrap_or_else(|| panic!("{line}"))),
        None => network,
    };
    let network = framework.runs(network);
    let gpus: u64 = on.iter().map(|(count, _)| count).sum();
    let mut shares = Vec::new();
    for (count, predictor) in &on {
        let step = ok(predictor.step(&network, mode));
        let alone = ok(step.at(asked.point()));
        let prepared = step.prepare();
        let totals = ok(prepared.at(asked.point()));
        // Along many points only totals are computed, by another way.
        for (one, other) in [
            (totals.time.value.get(), alone.time.value.get()),
            (totals.time.p95.get(), alone.time.p95.get()),
            (totals.power.p05.get(), alone.power.p05.get()),
            (totals.energy.value.get(), alone.energy.value.get()),
            (totals.clock.get(), alone.clock.get()),
        ] {
            assert!((one / other - 1.0).abs() < 1e-6, "{line}: {one} and {other}");
        }
        shares.push(Share { count: *count, gpu: predictor.gpu(), alone });
    }
    let mut p = if gpus > 1 {
        let boards: Vec<&Gpu> = on.iter().map(|(_, p)| p.gpu()).collect();
        let joined = asked.words.get("interconnect").map(|name| ok(catalog::interconnect(name)));
        let across = if mode == Mode::Training { gpus } else { 1 };
        let fabric = ok(Fabric::of(&ok(catalog::interconnects()), &boards, across, joined));
        combine(shares, &network, &fabric, &framework).unwrap_or_else(|| panic!("{line}"))
    } else {
        shares.swap_remove(0).alone
    };
    if let Some(rate) = asked.number("rate") {
        let boards: Vec<&Gpu> = on.iter().map(|(_, p)| p.gpu()).collect();
        p = fed(p, rate, &boards);
    }
    print(text, &p, layers);
}

/// Every number of a value as it is printed, to six significant digits.
fn rounded(text: &str) -> String {
    let mut out = String::new();
    let mut number = String::new();
    for c in text.chars().chain(['\n']) {
        let more =
            c.is_ascii_digit() || c == '.' || (number.ends_with('e') && c == '-') || (c == 'e' && !number.is_empty());
        if more && (!number.is_empty() || c.is_ascii_digit()) {
            number.push(c);
            continue;
        }
        match number.parse::<f64>() {
            Ok(value) if number.contains(['.', 'e']) => out.push_str(&six(value)),
            _ => out.push_str(&number),
        }
        number.clear();
        out.push(c);
    }
    out.trim_end().to_string()
}

fn fleet(text: &mut String, name: &str, fleet: &Option<Fleet>) {
    let Some(f) = fleet else {
        let _ = writeln!(text, "  {name}: none");
        return;
    };
    let totals = [
        f.it_peak.get(),
        f.facility_peak.get(),
        f.facility_mean.get(),
        f.energy_per_year.get(),
        f.cost_per_year,
        f.energy_cost_per_year,
        f.operational_g_per_year,
        f.embodied_g_per_year.unwrap_or(f64::NAN),
        f.requests_per_year,
        f.energy_per_request().get(),
        f.cost_per_million(),
        f.carbon_g_per_million(),
    ];
    let _ = writeln!(text, "  {name}: {} GPUs, {} servers, {:?} racks", f.gpus, f.servers, f.racks);
    let _ = writeln!(text, "    {}", totals.map(six).join(" "));
    for (pool, limit) in &f.pools {
        let _ = writeln!(text, "    {} {limit}", rounded(&format!("{pool:?}")));
    }
    for part in &f.day {
        let _ = writeln!(text, "    {}", rounded(&format!("{part:?}")));
    }
}

/// A fleet of an imaginary board, every scenario and every input moved.
fn fleets(text: &mut String) {
    let estimate = |value: f64| (0.9 * value, value, 1.2 * value);
    let service = |batch: u64, ms: f64, joules: f64| {
        let ((a, b, c), (d, e, f)) = (estimate(ms), estimate(joules));
        Service {
            batch,
            time: Estimate { p05: Seconds::from_ms(a), value: Seconds::from_ms(b), p95: Seconds::from_ms(c) },
            energy: Estimate { p05: Joules::new(d), value: Joules::new(e), p95: Joules::new(f) },
        }
    };
    let board = |cap: f64, slower: f64| Board {
        cap: Watts::new(cap),
        clock: None,
        waiting: Watts::new(45.0),
        price: Price::Buy(5000.0),
        embodied_kg: Some(150.0),
        services: [7.0, 23.0]
            .map(|ms| {
                let at = |batch: u64| {
                    let time = slower * ms * (0.4 + 0.6 * batch as f64);
                    service(batch, time, 0.8 * cap * time * 1e-3)
                };
                [1, 2, 4, 8].map(at).to_vec()
            })
            .to_vec(),
        more_fit: vec![true, false],
        languages: Vec::new(),
    };
    let load = |target_ms: f64| Assumptions {
        peak_per_s: 3000.0,
        profile_per_s: vec![100.0, 700.0, 1900.0, 0.0],
        target: Some(Target { quantile: 0.99, latency: Seconds::from_ms(target_ms) }),
        shares: vec![0.7, 0.3],
        languages: Vec::new(),
        server: Server { gpus: 4, overhead: Watts::new(400.0), price: 10_000.0, embodied_kg: Some(1000.0) },
        site: Site {
            rack: Some(Watts::new(8000.0)),
            site: None,
            pue: 1.4,
            price_per_kwh: 0.2,
            carbon_g_per_kwh: 350.0,
            amortisation_years: 4.0,
        },
        headroom: Headroom::NONE,
    };
    for ms in [40.0, 60.0, 150.0, 1000.0] {
        let _ = writeln!(text, "fleet within {ms} ms");
        for scenario in [Scenario::Low, Scenario::Value, Scenario::High] {
            fleet(text, &format!("{scenario:?}"), &plan_fleet(&board(300.0, 1.0), &load(ms), scenario).ok());
        }
    }
    let rented = Board { price: Price::PerHour(2.5), embodied_kg: None, ..board(300.0, 1.0) };
    let _ = writeln!(text, "rented");
    fleet(text, "Value", &plan_fleet(&rented, &load(100.0), Scenario::Value).ok());
    let moved = [board(270.0, 1.05), board(330.0, 0.98)];
    for change in sensitivity(&board(300.0, 1.0), &load(100.0), [Some(&moved[0]), Some(&moved[1])]) {
        let totals = |f: &Option<Fleet>| {
            f.as_ref().map_or("none".to_string(), |f| {
                let totals = [f.cost_per_year, f.kwh_per_year(), f.carbon_g_per_year()].map(six).join(" ");
                format!("{} {totals}", f.gpus)
            })
        };
        let _ = writeln!(text, "  {}: {}; {}", change.input, totals(&change.less), totals(&change.more));
    }
    let boards = [board(300.0, 1.0), board(200.0, 1.2), board(150.0, 1.6), rented];
    let fleets: Vec<Option<Fleet>> = boards.iter().map(|b| plan_fleet(b, &load(100.0), Scenario::Value).ok()).collect();
    for (minimise, site) in [
        (Minimise::Cost, None),
        (Minimise::Energy, None),
        (Minimise::Carbon, None),
        (Minimise::Gpus, None),
        (Minimise::Gpus, Some(Watts::new(15_000.0))),
        (Minimise::Cost, Some(Watts::new(1000.0))),
    ] {
        let _ = writeln!(text, "  best of four, {minimise:?}, {site:?}: {:?}", best(&fleets, minimise, site));
    }
}

/// Whether lines are the same; what rounding leaves of nothing is nothing.
fn are_alike(is: &str, was: &str) -> bool {
    let none = |word: &str| word.parse::<f64>().is_ok_and(|value| value.abs() < 1e-14);
    let words = || is.split(' ').zip(was.split(' '));
    is.split(' ').count() == was.split(' ').count() && words().all(|(is, was)| is == was || none(is) && none(was))
}

#[test]
fn values_are_those_that_were_looked_at() {
    let mut text = String::new();
    let calibrations = Calibrations::shipped();
    for line in SETUPS {
        let _ = writeln!(text, "{line}");
        setup(line, &calibrations, &mut text);
    }
    fleets(&mut text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/values.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        ok(std::fs::write(&path, &text));
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    // The first line that differs, under the setup that it is of.
    let mut of = "";
    for (was, is) in expected.lines().zip(text.lines()) {
        if !is.starts_with(' ') {
            of = is;
        }
        assert!(are_alike(is, was), "{of}: read the difference; UPDATE_GOLDEN=1 accepts all of them\n{is}\n{was}");
    }
    assert_eq!(text.lines().count(), expected.lines().count(), "setups were added or left out");
}

#[test]
fn numbers_have_six_digits() {
    for (value, text) in
        [(0.123_456_78, "0.123457"), (1_234_567.8, "1234568"), (12.3, "12.3000"), (1.5e-9, "1.50000e-9")]
    {
        assert_eq!(six(value), text);
    }
    assert_eq!(
        rounded("A { a: 1.23456789, b: 12, c: Some(4.56789123e-7) }"),
        "A { a: 1.23457, b: 12, c: Some(4.56789e-7) }"
    );
}
