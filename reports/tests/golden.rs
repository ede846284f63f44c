//! Tables and documents of made-up values, which must not change unnoticed. `UPDATE_GOLDEN=1 cargo test -p joulecast-reports
//! --test golden` rewrites them; look at the difference before committing it.

use joulecast_ask::budget::{Bound, Budget};
use joulecast_ask::capacity::{
    Assumptions, Board, Carriers, Headroom, PlanFile, Scenario, Service, Slower, Wanted, best, plan_fleet, sensitivity,
};
use joulecast_ask::comparison::{Entry, Largest};
use joulecast_ask::metric::Metric;
use joulecast_ask::serving::{Limits, Replica, StepCost, StepWork};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::units::{Bytes, Hertz, Joules, Ops, Seconds, Watts};
use joulecast_model::catalog;
use joulecast_model::law::calibration::Tier;
use joulecast_model::net::share::Layout;
use joulecast_model::step::framework::{Launch, Scheduling};
use joulecast_model::step::generation::Generation;
use joulecast_model::step::layout::{LayoutOf, StageOf};
use joulecast_model::step::memory::MemoryFootprint;
use joulecast_model::step::parallel::DevicePrediction;
use joulecast_model::step::predictor::Warning;
use joulecast_model::step::predictor::{Doubts, Estimate, NetworkPrediction, OperatingPoint, PhaseTotal, Widths};
use joulecast_reports::compare::{Comparison, LeftOut};
use joulecast_reports::export::{Export, Format};
use joulecast_reports::fleet::{self, AtSetting, Plan};
use joulecast_reports::optimum::{Candidate, Found};
use joulecast_reports::prediction::{Asked, Shown};
use std::path::Path;

fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).expect("written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{name} changed");
}

fn in_form<E: Export + ?Sized>(result: &E, format: Format) -> String {
    result.export(format).expect("a form that it has")
}

/// Numbers of a JSON document with six digits, since the last ones differ between machines.
fn rounded(text: &str) -> String {
    fn walk(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(n) if n.is_f64() => {
                let short: f64 = format!("{:.5e}", n.as_f64().unwrap_or(f64::NAN)).parse().unwrap_or(f64::NAN);
                *value = short.into();
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(walk),
            serde_json::Value::Object(map) => map.values_mut().for_each(walk),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).expect("JSON");
    walk(&mut value);
    serde_json::to_string_pretty(&value).expect("JSON") + "\n"
}

/// The same of the cells of a CSV document.
fn rounded_cells(text: &str) -> String {
    let cell = |cell: &str| match cell.parse::<f64>() {
        Ok(value) if cell.contains('.') => format!("{value:.5e}"),
        _ => cell.to_string(),
    };
    text.lines().map(|line| line.split(',').map(cell).collect::<Vec<_>>().join(",") + "\n").collect()
}

fn around<T>(value: f64, of: fn(f64) -> T) -> Estimate<T> {
    Estimate { value: of(value), p05: of(0.8 * value), p95: of(1.3 * value) }
}

fn prediction(network: &str, batch: u64, ms: f64, watts: f64) -> NetworkPrediction {
    let time = Seconds::from_ms(ms);
    NetworkPrediction {
        network: network.into(),
        batch,
        precision: Precision::Fp32,
        mode: Mode::Inference,
        calibration: "toy".into(),
        by_voltage: Vec::new(),
        time_tier: Tier::Imported,
        power_tier: Tier::Transferred,
        clock: Hertz::from_mhz(1500.0),
        memory_clock: None,
        power_cap: None,
        waiting: 0.0,
        launch_bound: false,
        host: None,
        doubts: Doubts { kernels: 0.13, power: 0.24, ..Doubts::default() },
        widths: Widths::default(),
        time: around(ms, Seconds::from_ms),
        power: around(watts, Watts::new),
        energy: around(watts * time.get(), Joules::new),
        ops: Ops::new(8_000_000_000 * batch),
        read: Bytes::new(1 << 20),
        written: Bytes::new(1 << 20),
        parameters: 1000,
        memory: MemoryFootprint {
            weights: Bytes::new(100),
            gradients: Bytes::ZERO,
            optimizer_state: Bytes::ZERO,
            activations: Bytes::new(20),
            cache: Bytes::ZERO,
            workspace: Bytes::ZERO,
            context: Bytes::ZERO,
        },
        devices: Vec::new(),
        communication: None,
        layout: None,
        fed: None,
        fits_in_memory: true,
        bound: time,
        phases: vec![PhaseTotal { phase: Phase::Forward, time, energy: Watts::new(watts) * time }],
        layers: Vec::new(),
        warnings: vec![Warning::Network("a warning".into())],
    }
}

#[test]
fn a_comparison() {
    let entry = |gpu: &str, network: &str, batch, ms, watts, price: Option<f64>| {
        let error = (network == "resnet50").then_some(0.2387);
        Entry::new((&network.into(), &gpu.into()), &prediction(network, batch, ms, watts), error, 2.0, price)
    };
    let entries = vec![
        entry("v100", "resnet50", 1, 2.5, 115.0, Some(2.5)),
        entry("t4", "resnet50", 1, 5.0, 45.0, Some(0.4)),
        entry("h200", "resnet50", 1, 2.0, 200.0, None),
        entry("v100", "own", 1, 1.0, 100.0, Some(2.5)),
        entry("t4", "resnet50", 6, 19.0, 62.0, Some(0.4)),
    ];
    let kept = entries[4].clone();
    let largest = |gpu: &str, entry, stopped| Largest { network: "resnet50".into(), gpu: gpu.into(), entry, stopped };
    let comparison = Comparison {
        title: "fp32 inference, cudnn profile (graph)".into(),
        alpha: 2.0,
        notes: vec![Vec::new(); entries.len()],
        entries,
        left_out: ["m40", "p4"]
            .map(|gpu| LeftOut { gpu: gpu.into(), why: "no units that compute in bf16".into() })
            .into(),
        budget: Some(Budget {
            latency: Some(Seconds::from_ms(20.0)),
            power: Some(Watts::new(100.0)),
            ..Budget::default()
        }),
        largest: vec![largest("t4", Some(kept), Bound::Latency), largest("v100", None, Bound::Power)],
    };
    check("compare.txt", &in_form(&comparison, Format::Table));
    check("compare.md", &in_form(&comparison, Format::Markdown));
    check("compare.json", &rounded(&in_form(&comparison, Format::Json)));
    check("compare.csv", &rounded_cells(&in_form(&comparison, Format::Csv)));
}

/// An answer of a language model on eight GPUs: a pipeline of two stages, whose blocks two GPUs divide, twice.
#[test]
fn an_answer_of_several_gpus() {
    let gib = |gib: u64| Bytes::new(gib << 30);
    let memory =
        |weights| MemoryFootprint { weights: gib(weights), cache: gib(3), ..prediction("llama", 16, 1.0, 1.0).memory };
    let layout = |ms| LayoutOf {
        layout: Layout::new(2, 2, 1, Some(2)).expect("numbers that go together"),
        interconnect: "nvlink4".into(),
        micro: 4,
        microbatches: 2,
        bubble: 0.25,
        communication: Seconds::from_ms(ms),
        communication_energy: Joules::new(2.0 * ms),
        stages: [(9.0, 40), (10.0, 42)]
            .map(|(ms, weights)| StageOf { time: Seconds::from_ms(ms), parameters: 7000, memory: memory(weights) })
            .into(),
    };
    let on = |ms, watts| NetworkPrediction {
        memory: memory(42),
        devices: vec![DevicePrediction {
            gpu: "h100-sxm".into(),
            count: 8,
            batch: 8,
            clock: Hertz::from_mhz(1500.0),
            time: Seconds::from_ms(0.75 * ms),
            power: around(watts / 8.0, Watts::new),
            energy: around(watts * ms / 8e3, Joules::new),
            waiting: Joules::new(1.0),
        }],
        layout: Some(layout(0.1 * ms)),
        ..prediction("llama", 16, ms, watts)
    };
    let (prefill, decode) = (on(100.0, 4000.0), on(1270.0, 3000.0));
    let total = on(1370.0, 3073.0);
    let answer = Generation { prompt: 1024, tokens: 128, prefill, decode: Some(decode), cache: gib(3), total };
    let gpu = catalog::gpu("h100").expect("known");
    let asked = Asked { gpu: "h100", source: "huggingface", framework: "cudnn", launch: Launch::Graph, training: None };
    let shown = Shown { prediction: &answer, gpu: &gpu, asked: &asked, layers: false };
    check("layout.txt", &in_form(&shown, Format::Table));
    check("layout.json", &rounded(&in_form(&shown, Format::Json)));
}

#[test]
fn an_optimum() {
    let at = |cap: Option<f64>, ms, watts| Candidate {
        point: OperatingPoint { power_cap: cap.map(Watts::new), ..OperatingPoint::default() },
        prediction: prediction("resnet50", 64, ms, watts),
    };
    let candidates = vec![at(None, 50.0, 265.0), at(Some(250.0), 50.0, 250.0), at(Some(150.0), 62.0, 145.0)];
    let found = Found {
        title: "resnet50 on a toy".into(),
        metric: Metric::Energy,
        default: candidates[0].clone(),
        candidates,
        best: 2,
        by_voltage: vec![2, 0],
        tied: vec![2],
        front: vec![1, 2],
        plan: None,
        warnings: vec![Warning::Network("a warning".into())],
    };
    let found = [found];
    check("optimum.txt", &in_form(found.as_slice(), Format::Table));
    check("optimum.json", &rounded(&in_form(found.as_slice(), Format::Json)));
}

const PLAN: &str = r#"
schema = "capacity/1"
title = "A toy"
currency = "EUR"
[load]
profile_per_s = [200.0, 800.0]
peak_per_s = 1000.0
[latency]
percentile = 95.0
target_ms = 60.0
[[network]]
net = "a"
share = 0.75
[[network]]
net = "b"
share = 0.25
[[candidate]]
gpu = "toy"
price = 5000.0
price_source = "nobody"
embodied_kg = 150.0
gpus_per_server = 4
server_overhead_w = 400.0
server_price = 10000.0
[[candidate]]
gpu = "rented"
price_per_hour = 1.5
price_source = "nobody"
gpus_per_server = 8
server_overhead_w = 500.0
[site]
rack_kw = 8.0
site_kw = 6.0
pue = 1.4
price_per_kwh = 0.2
carbon_g_per_kwh = 350.0
carbon_source = "nobody"
amortisation_years = 4.0
"#;

/// A plan of two imaginary networks, and language models whose replicas are the same on all boards.
fn planned(text: &str, languages: &[Carriers]) -> Plan {
    let file = PlanFile::from_toml(text).expect("a valid plan");
    let service = |batch, ms: f64, watts: f64| Service {
        batch,
        time: around(ms, Seconds::from_ms),
        energy: around(watts * ms * 1e-3, Joules::new),
    };
    let mut candidates = Vec::new();
    for c in &file.candidates {
        let load = Assumptions {
            peak_per_s: file.peak_per_s,
            profile_per_s: file.profile_per_s.clone(),
            target: file.target,
            shares: file.networks.iter().map(|n| n.share).collect(),
            languages: file.languages.iter().map(|of| of.requests.clone()).collect(),
            server: c.server,
            site: file.site,
            headroom: Headroom { busiest: file.utilisation, spares: c.spares },
        };
        let board = |(cap, slower): (f64, f64)| Board {
            cap: Watts::new(cap),
            clock: (slower == 1.3).then_some(Hertz::from_mhz(900.0)),
            waiting: Watts::new(50.0),
            price: c.price,
            embodied_kg: c.embodied_kg,
            services: [5.0, 20.0]
                .map(|ms| vec![service(1, ms * slower, 0.8 * cap), service(4, 2.0 * ms * slower, 0.9 * cap)])
                .to_vec(),
            more_fit: vec![true, true],
            languages: languages.to_vec(),
        };
        let boards: Vec<Board> = [(300.0, 1.0), (200.0, 1.15), (150.0, 1.3)].map(board).to_vec();
        let fleets: Vec<_> = boards.iter().map(|b| plan_fleet(b, &load, Scenario::Value).ok()).collect();
        let chosen = best(&fleets, file.minimise, file.site.site);
        let at_setting = |(b, value): (&Board, _)| AtSetting {
            cap: b.cap,
            clock: b.clock,
            value,
            low: plan_fleet(b, &load, Scenario::Low).ok(),
            high: plan_fleet(b, &load, Scenario::High).ok(),
        };
        candidates.push(fleet::Candidate {
            name: c.name.clone(),
            gpu: c.gpu.clone(),
            waiting: (Watts::new(50.0), "nobody".into()),
            reason: chosen.is_none().then(|| "site power".into()),
            title: format!("A {} GPU", c.gpu),
            price: c.price,
            price_source: c.price_source.clone(),
            server: c.server,
            embodied_kg: c.embodied_kg,
            site_bound: chosen != best(&fleets, file.minimise, None),
            sensitivity: chosen.map_or_else(Vec::new, |i| sensitivity(&boards[i], &load, [Some(&boards[1]), None])),
            options: boards.iter().zip(fleets).map(at_setting).collect(),
            chosen,
            rests_on: vec!["a: times imported, power transferred".into()],
            warnings: vec!["a warning".into()],
            surer: Some("conv2d on toy".into()),
        });
    }
    let chosen: Vec<_> = candidates.iter().map(|c| c.chosen.and_then(|i| c.options[i].value.clone())).collect();
    let winner = best(&chosen, file.minimise, None);
    let (command, figures) = ("predict plan toy.toml".into(), Some("figures".into()));
    Plan { file, launch: Launch::Graph, candidates, winner, command, figures }
}

#[test]
fn a_plan() {
    let plan = planned(PLAN, &[]);
    check("plan.txt", &in_form(&plan, Format::Table));
    check("plan.md", &in_form(&plan, Format::Markdown));
    check("plan.json", &rounded(&in_form(&plan, Format::Json)));
    check("plan.csv", &rounded_cells(&in_form(&plan, Format::Csv)));
    if cfg!(feature = "figures") {
        a_plan_has_figures(&plan);
    }
}

/// Steps of a language model on an imaginary GPU: a millisecond for ten tokens of a prompt, ten for each token of answers.
struct Steps;

impl Replica for Steps {
    fn step(&self, work: &StepWork) -> StepCost {
        let (prompts, answers) = (1e-4 * work.prompt_tokens() as f64, if work.decodes > 0 { 1e-2 } else { 0.0 });
        StepCost {
            time: Seconds::new(prompts + answers),
            prefill: Joules::new(280.0 * prompts),
            decode: Joules::new(200.0 * answers),
            waiting: Joules::ZERO,
        }
    }

    fn waiting(&self) -> Watts {
        Watts::new(50.0)
    }
}

#[test]
fn a_plan_with_a_language_model() {
    let service = "[[service]]\nname = \"chat\"\nnet = \"c\"\nprompt = \"100..300\"\nanswer = 40\nprofile_per_s = [20.0, 60.0]\nttft_ms = 200\ntpot_ms = 30\nrequests = 500\n";
    let text = PLAN.replace("site_kw = 6.0", "site_kw = 12.0") + service;
    let of = &PlanFile::from_toml(&text).expect("a valid plan").languages[0];
    let (demand, limits) = (
        of.demand(),
        Limits {
            rule: Scheduling::AnswersFirst,
            tokens: 2048,
            sequences: 32,
            blocks: 10_000,
            block: 16,
            chunked: true,
            reserve: true,
        },
    );
    let at = |factor: f64| {
        let slower = Slower { replica: &Steps, factor };
        let wanted = Wanted { demand: &demand, target: &of.target };
        wanted.carriers([(Layout::ALONE, limits, &slower)].into_iter()).expect("fits")
    };
    let [targets, steps] = [[at(1.0), at(1.0)], [at(0.9), at(1.1)]].map(Some);
    let plan = planned(&text, &[Carriers { low: at(0.8), value: at(1.0), high: at(1.25), targets, steps }]);
    check("services.txt", &in_form(&plan, Format::Table));
    check("services.json", &rounded(&in_form(&plan, Format::Json)));
}

fn a_plan_has_figures(plan: &Plan) {
    let html = in_form(plan, Format::Html);
    for part in [
        "<svg class=\"figure narrow\"",
        "Cost of a year, ",
        "GPUs against facility power",
        "Change of the cost of a year, ",
        "A toy GPU",
        "Through the day, ",
    ] {
        assert!(html.contains(part), "no {part}");
    }
    let figures = fleet::figures(plan).expect("drawn");
    assert_eq!(figures.iter().map(|f| f.0).collect::<Vec<_>>(), ["costs", "fleets", "day", "sensitivity"]);
}
