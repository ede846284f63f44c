//! `predict plan` as a user runs it.

mod program;

use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn run(arguments: &[&str]) -> Output {
    program::predict().args(arguments).output().expect("the program starts")
}

fn worked() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/capacity/tagging.toml").display().to_string()
}

fn planned(file: &str, format: &str) -> String {
    let output = run(&["plan", file, "--format", format]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-6, "{a} is not {b}");
}

fn candidate<'a>(plan: &'a Value, gpu: &str) -> &'a Value {
    plan["candidates"].as_array().expect("candidates").iter().find(|c| c["gpu"] == gpu).expect("the GPU")
}

/// The chosen option of a candidate.
fn chosen<'a>(plan: &'a Value, gpu: &str) -> &'a Value {
    candidate(plan, gpu)["options"]
        .as_array()
        .expect("options")
        .iter()
        .find(|o| o["chosen"] == true)
        .expect("a chosen one")
}

/// The worked plan's figures, put together again from the plan's own inputs.
#[test]
fn the_worked_plan_adds_up() {
    let plan = json(&planned(&worked(), "json"));
    for (gpu, per_server, overhead, price, server_price, embodied) in [
        ("t4", 4.0, 250.0, 1500.0, 4000.0, (50.0, 1000.0)),
        ("v100", 8.0, 600.0, 3000.0, 8000.0, (120.0, 1500.0)),
        ("h200", 8.0, 2500.0, 30000.0, 60000.0, (160.0, 2500.0)),
    ] {
        let option = chosen(&plan, gpu);
        let figure = |name: &str| number(&option["figures"][name]["value"]);
        let pools = option["pools"].as_array().expect("pools");
        let pooled: f64 = pools.iter().map(|p| number(&p["gpus"])).sum();
        // One of twenty, as the plan does not say otherwise.
        let spares = (pooled / 20.0).ceil();
        let gpus = pooled + spares;
        let servers = (gpus / per_server).ceil();
        assert_eq!((figure("gpus"), figure("spares"), figure("servers")), (gpus, spares, servers));
        let boards: f64 = pools.iter().map(|p| number(&p["board_power_w"])).sum();
        let boards = boards + spares * number(&candidate(&plan, gpu)["waiting_w"]);
        close(figure("it_peak_w"), boards + servers * overhead);
        close(figure("facility_peak_w"), 1.4 * figure("it_peak_w"));
        let each = (12_000.0 / (per_server * number(&option["power_cap_w"]) + overhead)).floor();
        assert_eq!(number(&option["racks"]), (servers / each).ceil());
        let kwh = figure("facility_mean_w") * 8.76;
        close(figure("kwh_per_year"), kwh);
        close(figure("energy_cost_per_year"), 0.2 * kwh);
        close(figure("cost_per_year"), (price * gpus + server_price * servers) / 4.0 + 0.2 * kwh);
        let carbon = 300.0 * kwh + 1000.0 * (embodied.0 * gpus + embodied.1 * servers) / 4.0;
        close(figure("carbon_g_per_year"), carbon);
        // The profile's 24 hours add up to 245,400 per second.
        let requests = 245_400.0 / 24.0 * 31_536_000.0;
        close(figure("carbon_g_per_million"), carbon / requests * 1e6);
        close(figure("energy_per_inference_j"), 3.6e6 * kwh / requests);
        let day = candidate(&plan, gpu)["day"].as_array().expect("a day");
        let mean = |name: &str| day.iter().map(|part| number(&part[name])).sum::<f64>() / 24.0;
        close(mean("facility_w"), figure("facility_mean_w"));
        close(8760.0 * mean("cost_per_h"), figure("cost_per_year"));
        close(8760.0 * mean("carbon_g_per_h"), figure("carbon_g_per_year"));
        for pool in pools {
            assert!(number(&pool["latency_s"]) <= 0.1 && number(&pool["utilisation"]) <= 0.9 + 1e-9);
        }
        for name in ["gpus", "facility_peak_w", "cost_per_year", "kwh_per_year"] {
            let f = &option["figures"][name];
            assert!(number(&f["p05"]) <= number(&f["value"]), "{gpu} {name}");
            assert!(f["p95"].is_null() || number(&f["value"]) <= number(&f["p95"]), "{gpu} {name}");
        }
    }
    let cost = |gpu: &str| number(&chosen(&plan, gpu)["figures"]["cost_per_year"]["value"]);
    let winner = plan["chosen_gpu"].as_str().expect("a winner");
    assert!(["t4", "v100", "h200"].iter().all(|gpu| cost(winner) <= cost(gpu)));
}

/// A pool's utilisation and power are those of the steps that `predict` prints.
#[test]
fn pools_rest_on_predictions() {
    let plan = json(&planned(&worked(), "json"));
    let both = ["v100", "h200"].map(|gpu| (gpu, chosen(&plan, gpu)));
    let pools = both.iter().flat_map(|(gpu, o)| o["pools"].as_array().expect("pools").iter().map(move |p| (gpu, o, p)));
    for ((gpu, option, pool), rate) in pools.zip([14_000.0, 6000.0, 14_000.0, 6000.0]) {
        let batch = number(&pool["batch"]).to_string();
        let net = pool["network"].as_str().expect("a name");
        let (name, setting) = match &option["clock_mhz"] {
            Value::Null => ("--power-cap", option["power_cap_w"].to_string()),
            clock => ("--clock", clock.to_string()),
        };
        let step = ["--net", net, "--gpu", gpu, "--batch", &batch, name, &setting, "--format", "json"];
        let step = json(&String::from_utf8_lossy(&run(&step).stdout));
        let busy = rate / number(&pool["batch"]) * number(&step["time_s"]) / number(&pool["gpus"]);
        assert!((number(&pool["utilisation"]) / busy - 1.0).abs() < 2e-3, "{net}: {busy}");
        let power = rate / number(&pool["batch"]) * number(&step["energy_j"]);
        assert!(number(&pool["board_power_w"]) >= power * 0.998, "waiting comes on top");
    }
}

#[test]
fn every_format_has_its_figures() {
    let text = planned(&worked(), "table");
    for part in [
        "Not sure which has the least cost, v100",
        "Choice: ",
        "the least cost, as predicted",
        "Cost: ",
        "Risk: Were all steps as long as their 95 % quantiles",
        "What would change it: Within the predictions' intervals",
        "Candidates",
        "Sensitivity",
        "not wall power",
        "location-based",
        "Made by: predict plan",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    assert!(planned(&worked(), "markdown").contains("| gpu | setting |"));
    let csv = planned(&worked(), "csv");
    assert!(csv.starts_with("gpu,power_cap_w,clock_mhz,chosen,racks,racks_p05,racks_p95,gpus,gpus_p05,gpus_p95"));
    assert_eq!(csv.lines().filter(|l| l.contains(",true,")).count(), 3);
    let html = planned(&worked(), "html");
    assert_eq!(html.matches("<svg ").count(), 12, "four figures for three widths");
    for outside in ["src=", "<script", "url(", "@import", "href=\"http"] {
        assert!(!html.contains(outside), "{outside} asks for something");
    }
}

/// Every number that has ends lies between them, wherever it is in the document.
fn within_its_ends(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(within_its_ends).sum(),
        Value::Object(map) => {
            let (of, mut found) = (|name: &str| map.get(name).and_then(Value::as_f64), 0);
            for name in map.keys() {
                let (low, high) = if name == "value" {
                    (of("p05"), of("p95"))
                } else {
                    (of(&format!("{name}_p05")), of(&format!("{name}_p95")))
                };
                if let (Some(low), Some(value), Some(high)) = (low, of(name), high) {
                    assert!(low <= value && value <= high, "{name}: {low} {value} {high}");
                    found += 1;
                }
            }
            found + map.values().map(within_its_ends).sum::<usize>()
        }
        _ => 0,
    }
}

#[test]
fn every_figure_lies_in_its_interval() {
    let plan = json(&planned(&worked(), "json"));
    // 12 figures of an option, 5 of a pool and of a part of the day.
    assert!(within_its_ends(&plan) > 12 * 20 + 3 * 24 * 5);
}

/// What may be set decides which settings are tried: limits, clocks, both or neither.
#[test]
fn clocks_and_limits_may_be_forbidden() {
    let text = std::fs::read_to_string(worked()).expect("the worked plan");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.toml");
    for (vary, limits, clocks) in [("[]", false, false), ("[\"cap\"]", true, false), ("[\"clock\"]", false, true)] {
        let line = "vary = [\"cap\", \"clock\"]";
        assert!(text.contains(line));
        std::fs::write(&path, text.replace(line, &format!("vary = {vary}"))).expect("written");
        let plan = json(&planned(path.to_str().expect("a name"), "json"));
        let options = candidate(&plan, "v100")["options"].as_array().expect("options");
        assert_eq!(options.iter().any(|o| o["power_cap_w"] != 300.0), limits, "{vary}");
        assert_eq!(options.iter().any(|o| !o["clock_mhz"].is_null()), clocks, "{vary}");
    }
}

#[test]
fn figures_are_written_beside_a_markdown_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let figures = folder.path().join("my figures");
    let output = run(&["plan", &worked(), "--format", "markdown", "--figures", figures.to_str().expect("a name")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in ["fleets", "day", "sensitivity"] {
        let path = figures.join(format!("{name}.svg"));
        assert!(page.contains(&format!("](<{}>)", path.display())), "{page}");
        assert!(std::fs::read_to_string(path).expect("written").starts_with("<svg "));
    }
}

#[test]
fn what_is_wrong_with_a_plan_is_said_in_one_line() {
    let text = std::fs::read_to_string(worked()).expect("the worked plan");
    let folder = tempfile::tempdir().expect("a folder");
    for (from, to, status, expected) in [
        ("carbon_g_per_kwh = 300\n", "", 1, "carbon_g_per_kwh"),
        ("gpu = \"t4\"", "gpu = \"t5\"", 2, "no gpu named \"t5\""),
        ("net = \"resnet50\"", "net = \"resnot50\"", 2, "resnet50"),
        ("share = 0.7", "share = 0.6", 1, "add up to 0.9,"),
    ] {
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, text.replacen(from, to, 1)).expect("written");
        let output = run(&["plan", path.to_str().expect("a name")]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{stderr}");
    }
    let path = folder.path().join("tight.toml");
    std::fs::write(&path, text.replace("target_ms = 100", "target_ms = 0.1")).expect("written");
    let output = run(&["plan", path.to_str().expect("a name")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("No candidate carries the load"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("t4: latency; v100: latency") && stderr.lines().count() == 1, "{stderr}");
}

/// A plan of some networks on T4 and V100, bought or rented, and what follows.
fn small(precision: &str, net: &str, peak: f64, candidates: &[(&str, &str)], site: &str) -> Output {
    let mut text = format!(
        "schema = \"capacity/1\"\ntitle = \"small\"\ncurrency = \"EUR\"\nminimise = \"carbon\"\nprecision = \"{precision}\"\n\
         largest_batch = 8\nvary = []\n[load]\nprofile_per_s = [{peak:.1}]\n[latency]\npercentile = 95\ntarget_ms = 500\n\
         [[network]]\nnet = \"{net}\"\nshare = 1\n"
    );
    for (gpu, more) in candidates {
        text += &format!(
            "[[candidate]]\ngpu = \"{gpu}\"\n{more}\nprice_source = \"a\"\ngpus_per_server = 4\nserver_overhead_w = 200\n"
        );
    }
    text += &format!(
        "[site]\n{site}\npue = 1.2\nprice_per_kwh = 0.2\ncarbon_g_per_kwh = 300\ncarbon_source = \"b\"\namortisation_years = 4\n"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, text).expect("written");
    let name = path.to_str().expect("a name");
    // The table is for people, the document for the reasons.
    let mut output = run(&["plan", name, "--format", "json"]);
    let table = run(&["plan", name]);
    assert_eq!(output.status, table.status);
    output.stderr.extend(table.stdout);
    output
}

/// The document, and the table after what went wrong.
fn read(output: &Output) -> (Value, String) {
    (json(&String::from_utf8_lossy(&output.stdout)), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_carries_no_load_has_its_reason() {
    let one = [("t4", "price = 1"), ("v100", "price = 1")];
    for (net, site, expected) in [("llama3_8b", "", "memory"), ("resnet50", "rack_kw = 0.3", "rack power")] {
        let output = small("fp32", net, 10.0, &one, site);
        assert_eq!(output.status.code(), Some(1), "{net}");
        let (plan, table) = read(&output);
        assert_eq!(candidate(&plan, "t4")["reason"], expected);
        assert!(table.contains(&format!("t4: {expected}; v100: {expected}")), "{table}");
        assert!(table.contains(&format!("{expected}: no fleet")) && !table.contains("rests on: ."), "{table}");
    }
    let (_, table) = read(&small("fp32", "llama3_8b", 10.0, &one, ""));
    assert!(table.contains("t4: llama3_8b takes ") && table.contains("GiB at batch 1, of 16.0 GiB"), "{table}");
    // What generates is asked otherwise.
    let hint = "llama3_8b is a language model: as a [[network]] a request is one step";
    assert!(table.contains(hint) && table.contains("a [[service]] has prompts and answers"), "{table}");
    let (_, table) = read(&small("fp32", "resnet50", 10.0, &one, ""));
    assert!(!table.contains("[[service]]"), "{table}");
}

#[test]
fn an_unsuitable_candidate_leaves_the_others() {
    let both = [("v100", "price = 1"), ("h200", "price = 1")];
    let output = small("bf16", "resnet50", 10.0, &both, "");
    assert!(output.status.success());
    let (plan, table) = read(&output);
    assert_eq!(plan["chosen_gpu"], "h200");
    assert!(candidate(&plan, "h200")["reason"].is_null());
    let reason = candidate(&plan, "v100")["reason"].as_str().expect("a reason");
    assert!(reason.contains("bf16") && table.contains(reason), "{reason}");
    assert!(table.contains("What keeps it from being smaller: one GPU."), "{table}");
    let output = small("bf16", "resnet50", 1e9, &both, "");
    assert_eq!(output.status.code(), Some(1));
    assert!(read(&output).1.contains("no plan is made for more than"));
}

#[test]
fn candidates_of_one_gpu_are_told_apart_and_what_carbon_lacks_is_said() {
    let both = [("v100", "price = 1\nembodied_kg = 100"), ("v100", "price_per_hour = 1")];
    let (plan, table) = read(&small("fp32", "resnet50", 10.0, &both, ""));
    assert_eq!(plan["chosen_candidate"], "v100 (per hour)");
    for expected in [
        "(v100 (per hour)) limited to",
        "\nv100 (to buy) ",
        "embodied carbon of v100 (per hour) is not",
        "not all embodied",
        "power of a waiting board of v100 (to buy)",
    ] {
        assert!(table.contains(expected), "{expected} in {table}");
    }
}

/// A plan of language models, with what follows the services; whatever is set has one setting.
fn language(services: &str, candidates: &[(&str, u64)], more: &str) -> String {
    let mut text = "schema = \"capacity/1\"\ntitle = \"language\"\ncurrency = \"EUR\"\nvary = []\n".to_string();
    text += more;
    text += services;
    for (gpu, gpus) in candidates {
        text += &format!(
            "[[candidate]]\ngpu = \"{gpu}\"\nprice = 9000\nprice_source = \"a\"\ngpus_per_server = {gpus}\nserver_overhead_w = 600\n"
        );
    }
    text + "[site]\npue = 1.25\nprice_per_kwh = 0.2\ncarbon_g_per_kwh = 300\ncarbon_source = \"b\"\namortisation_years = 4\n"
}

/// A service of a small model.
fn chat(peak: f64) -> String {
    format!(
        "[[service]]\nname = \"chat\"\nnet = \"llama3_2_1b\"\nprompt = \"100..400\"\nanswer = 24\nrequests = 300\nprofile_per_s = [{:.1}, {peak:.1}]\ntensor_parallel = [1]\nttft_ms = 40\ntpot_ms = 8\n",
        peak / 4.0
    )
}

/// What a plan of that text gives in a form, and what goes wrong.
fn of_text(text: &str, format: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, text).expect("written");
    run(&["plan", path.to_str().expect("a name"), "--format", format])
}

fn document(text: &str) -> Value {
    let output = of_text(text, "json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    json(&String::from_utf8_lossy(&output.stdout))
}

/// What a plan says of a language model's replicas is what `predict serve` says of one at its part of the load.
#[test]
fn replicas_rest_on_what_is_served() {
    let plan = document(&language(&chat(1200.0), &[("h100", 8)], ""));
    let option = chosen(&plan, "h100");
    let [of] = &option["services"].as_array().expect("services")[..] else { panic!("one") };
    let of = |name: &str| number(&of[name]);
    assert_eq!((of("gpus_per_replica"), of("gpus")), (1.0, of("replicas")));
    let requests =
        ["--net", "llama3_2_1b", "--gpu", "h100", "--prompt", "100..400", "--answer", "24", "--requests", "300"];
    let served = |load: &[&str]| {
        let output = run(&[&["serve"], &requests[..], load, &["--format", "json"]].concat());
        json(&String::from_utf8_lossy(&output.stdout))
    };
    let highest = number(&served(&["--ttft", "40ms", "--tpot", "8ms"])["rate_per_s"]);
    assert!((of("highest_rate_per_s") / highest - 1.0).abs() < 1e-2, "{highest}");
    assert_eq!(of("replicas"), (1200.0 / (0.9 * of("highest_rate_per_s"))).ceil());
    assert!(of("replicas") > 1.0);
    let alone = served(&["--rate", &(1200.0 / of("replicas")).to_string()]);
    let near = |found: f64, path: &str, within: f64| {
        let said = number(alone.pointer(path).expect(path));
        assert!((found / said - 1.0).abs() < within, "{path}: {found} and {said}");
    };
    near(of("board_power_w") / of("replicas"), "/value/power_w", 0.02);
    near(of("utilisation"), "/value/busy", 0.03);
    near(of("time_per_token_s"), "/value/time_per_token_s/p90", 0.1);
    assert!(of("time_to_first_token_s") <= 0.04 && of("time_per_token_s") <= 0.008);
}

#[test]
fn language_models_and_networks_make_one_fleet_under_one_limit() {
    let networks = "precision = \"fp16\"\nlargest_batch = 8\n[load]\nprofile_per_s = [2000.0]\n[latency]\npercentile = 95\ntarget_ms = 100\n[[network]]\nnet = \"resnet50\"\nshare = 1\n";
    let both = document(&language(&chat(900.0), &[("h100", 4), ("l40s", 2)], networks));
    for gpu in ["h100", "l40s"] {
        let option = chosen(&both, gpu);
        let figure = |name: &str| number(&option["figures"][name]["value"]);
        let of = |name: &str| number(&option["services"][0][name]);
        let pool = |name: &str| number(&option["pools"][0][name]);
        assert_eq!(figure("gpus"), of("gpus") + pool("gpus") + figure("spares"));
        assert_eq!(figure("spares"), ((of("gpus") + pool("gpus")) / 20.0).ceil());
        let spare = figure("spares") * number(&candidate(&both, gpu)["waiting_w"]);
        let servers = figure("servers");
        close(figure("it_peak_w"), of("board_power_w") + pool("board_power_w") + spare + 600.0 * servers);
        // Of both parts of the day together.
        let requests = (2000.0 + (900.0 + 225.0) / 2.0) * 31_536_000.0;
        close(figure("energy_per_inference_j"), 3.6e6 * figure("kwh_per_year") / requests);
        close(of("board_energy_per_request_j"), (of("prefill_w") + of("decode_w") + of("idle_w")) / 562.5);
        let day = candidate(&both, gpu)["day"].as_array().expect("a day");
        assert_eq!(day.len(), 2);
        close(number(&day[1]["requests_per_s"]), 2900.0);
    }
    // Figures of two boards; how many have two ends is the fits' affair.
    assert!(within_its_ends(&both) > 2 * 19);
    // Alone, what it draws, its servers and what is around them are the whole.
    let alone = document(&language(&chat(900.0), &[("h100", 4)], ""));
    let option = chosen(&alone, "h100");
    let watts = ["prefill_w", "decode_w", "idle_w"].map(|name| number(&option["services"][0][name]));
    assert!(watts.iter().all(|w| *w > 0.0), "{watts:?}");
    let figure = |name: &str| number(&option["figures"][name]["value"]);
    let spare = figure("spares") * number(&candidate(&alone, "h100")["waiting_w"]);
    close(figure("facility_mean_w"), 1.25 * (watts.iter().sum::<f64>() + spare + 600.0 * figure("servers")));
    assert!(alone["percentile"].is_null() && option["pools"].as_array().is_some_and(Vec::is_empty));
    // One site's power is of all.
    let needed = number(&chosen(&both, "h100")["figures"]["facility_peak_w"]["value"]);
    let tight = language(&chat(900.0), &[("h100", 4)], networks);
    let site = |kw: f64| tight.replace("[site]\n", &format!("[site]\nsite_kw = {kw:.4}\n"));
    assert!(of_text(&site(needed / 1e3 + 0.001), "json").status.success());
    let output = of_text(&site(needed / 1e3 - 0.001), "json");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("h100: site power"), "{error}");
}

#[test]
fn a_page_says_where_the_joules_go() {
    let text = language(&chat(900.0), &[("h100", 4)], "");
    let said = |format: &str| {
        let output = of_text(&text, format);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let table = said("table");
    for part in [
        "Language models on h100",
        "Where the joules go",
        "chat: prompts (prefill)",
        "chat: answers (decode)",
        "chat: idle",
        "cooling and distribution",
        "first token within 40.0 ms, each token within 8.00 ms (p90)",
        "chat: times",
        "as `predict serve` does it",
    ] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
    for part in ["Pools of", "peak load", "Erlang", "boards of the networks"] {
        assert!(!table.contains(part), "{part} in\n{table}");
    }
    let made = |text: &str| text.split("Made by").next().map(str::to_string);
    assert_eq!(made(&table), made(&said("table")), "a seed decides all");
    assert!(said("markdown").contains("| service |") && said("html").contains("Where the joules go"));
}

#[test]
fn what_is_wrong_with_a_service_is_said_in_one_line() {
    let plain = language(&chat(20.0), &[("h100", 4)], "");
    for (from, to, status, expected) in [
        ("ttft_ms = 40\ntpot_ms = 8\n", "", 1, "chat has no target: ttft_ms, tpot_ms or both"),
        ("profile_per_s = [5.0, 20.0]", "profile_per_s = [0]", 1, "load of chat is never above 0"),
        ("\"llama3_2_1b\"", "\"llama3_2_1c\"", 2, "no net named \"llama3_2_1c\"; nearest: llama3_2_1b"),
        ("\"llama3_2_1b\"", "\"resnet50\"", 2, "service chat: resnet50 does not generate"),
        ("ttft_ms", "framework = \"vlm\"\nttft_ms", 2, "vllm"),
        ("parallel = [1]", "parallel = [3]", 1, "h100: chat: "),
        ("parallel = [1]", "parallel = [8]", 1, "h100: chat: a server of h100 has 4 GPUs"),
        (
            "tensor_parallel = [1]",
            "gpu_memory_utilization = 0.001",
            1,
            "h100: chat: llama3_2_1b does not fit in the memory of h100",
        ),
        ("ttft_ms", "max_num_seqs = 8\nweights = \"int4\"\nprecision = \"fp8\"\nttft_ms", 2, "--precision bf16"),
        ("ttft_ms = 40", "ttft_ms = 0.01", 1, "h100: latency"),
        ("prompt = \"100..400\"", "prompt = \"400..100\"", 1, "prompt of chat: 400 is above 100"),
        ("[5.0, 20.0]", "[1e9]", 1, "no plan is made for more than"),
    ] {
        assert!(plain.contains(from), "{from}");
        let output = of_text(&plain.replacen(from, to, 1), "table");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{to}: {error}");
        assert!(error.contains(expected) && error.lines().count() == 1, "{to}: {error}");
    }
    // A layout of a list that cannot be is told; the others are taken.
    let text = plain.replacen("parallel = [1]", "parallel = [1, 3]", 1);
    let output = of_text(&text, "table");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && table.contains("chat on 3 GPUs (tensor 3) is left out: "), "{table}");
    // What is too large for one GPU lies on several.
    let large = language(&chat(1.0), &[("h100", 4)], "").replacen("llama3_2_1b", "llama3_1_70b", 1);
    let large = large.replacen("ttft_ms = 40\ntpot_ms = 8", "ttft_ms = 900\ntpot_ms = 90", 1);
    let plan = document(&large.replacen("parallel = [1]", "parallel = [1, 2]", 1));
    let of = &chosen(&plan, "h100")["services"][0];
    assert!(number(&of["gpus_per_replica"]) >= 2.0 && of["binding"] == "one replica", "{of}");
}

#[test]
fn a_browser_shows_every_figure_on_phones_and_desktops() {
    joulecast_browser::check(
        "predict/plan::a_browser_shows_every_figure_on_phones_and_desktops",
        &planned(&worked(), "html"),
        4,
    );
}

/// `predict plan --new` writes a plan that plans, over nothing that is there.
#[test]
fn a_new_plan_is_a_plan() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    let path = file.to_str().expect("a path");
    let made = run(&["plan", "--new", path]);
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && made.stdout.is_empty(), "{said}");
    assert!(said.contains(&format!("then: predict plan {path}")), "{said}");
    let plan = json(&planned(path, "json"));
    assert!(
        plan["chosen_gpu"].is_string() && plan["candidates"].as_array().is_some_and(|all| all.len() == 2),
        "{plan}"
    );
    // What is left out by a mark is right, too: a language model alone.
    let text = std::fs::read_to_string(&file).expect("text");
    let service =
        text.lines().skip_while(|line| !line.starts_with("# [[service]]")).take_while(|line| line.starts_with("# "));
    let service: String = service.map(|line| format!("{}\n", &line[2..])).collect();
    assert!(service.contains("ttft_ms") && service.contains("quantile"), "{service}");
    let small = service.replace("llama3_8b", "llama3_2_1b").replace("mean_per_s = 2", "requests = 100\nmean_per_s = 2");
    std::fs::write(&file, text.replacen("[[candidate]]", &format!("{small}[[candidate]]"), 1)).expect("written");
    let both = json(&planned(path, "json"));
    assert!(both.pointer("/candidates/1/options/0/services/0").is_some(), "{both}");
    let again = run(&["plan", "--new", path]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already: --force"), "{again:?}");
}

#[test]
fn all_mistakes_of_a_plan_are_told_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.toml");
    let text = std::fs::read_to_string(worked()).expect("the worked plan");
    let text =
        text.replace("pue = 1.4", "pue = 0.4").replace("share = 0.3", "part = 0.3").replace("price = 3000\n", "");
    std::fs::write(&file, text.replace("currency", "money")).expect("written");
    let output = run(&["plan", file.to_str().expect("a path")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    for (place, part) in [
        ("", "unknown field `money`"),
        ("", "missing field `currency`"),
        ("line ", "[[network]] 2: unknown field `part`"),
        ("line ", "[[network]] 2: missing field `share`"),
        ("", "v100 has either price or price_per_hour"),
        ("", "site.pue is facility power over IT power, from 1 to 5, not 0.4"),
    ] {
        let found = lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part} in\n{said}"));
        assert!(found.starts_with("error: ") && found.contains("wrong.toml: ") && found.contains(place), "{found}");
    }
    assert_eq!(lines.len(), 6, "{said}");
    let unknown = std::fs::read_to_string(worked()).expect("the worked plan");
    let unknown =
        unknown.replace("\"v100\"", "\"v1000\"").replace("\"resnet50\"", "\"resnet51\"").replace("\"h200\"", "\"h2\"");
    std::fs::write(&file, unknown).expect("written");
    let output = run(&["plan", file.to_str().expect("a path")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(["v1000", "resnet51", "\"h2\""].iter().all(|name| said.contains(name)), "{said}");
}
