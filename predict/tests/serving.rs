//! `predict serve`: what it prints, and what it refuses.

mod program;

use serde_json::Value;
use std::fs;
use std::process::Output;

fn serve(options: &[&str]) -> Output {
    let said = ["serve", "--net", "llama3_2_1b", "--gpu", "h100", "--requests", "200"];
    program::predict().args(said).args(options).output().expect("the program starts")
}

const SHORT: [&str; 4] = ["--prompt", "256", "--answer", "32"];

fn text(options: &[&str]) -> String {
    let output = serve(&[&SHORT, options].concat());
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(options: &[&str]) -> Value {
    serde_json::from_str(&text(&[options, &["--format", "json"]].concat())).expect("JSON")
}

/// What is printed of a load that nothing carries, and the error.
fn not_carried(options: &[&str]) -> (String, String) {
    let output = serve(&[&SHORT, options].concat());
    assert_eq!(output.status.code(), Some(1), "{options:?}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} is no number in {value:#}"))
}

#[test]
fn a_rate_is_answered_with_latencies_watts_and_joules() {
    let found = json(&["--rate", "10"]);
    assert_eq!((&found["schema"], &found["overloaded"]), (&"serving/1".into(), &false.into()));
    let value = |path: &str| number(&found, &format!("/value/{path}"));
    assert!(value("time_to_first_token_s/p50") < value("time_to_first_token_s/p99"));
    assert!(value("end_to_end_s/mean") > 31.0 * value("time_per_token_s/mean"));
    let shares = ["prefill", "decode", "idle"].map(|part| value(&format!("energy_shares/{part}")));
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 && shares.iter().all(|s| *s > 0.0), "{shares:?}");
    let per_request = value("power_w") / value("requests_per_s");
    assert!((value("energy_per_request_j") / per_request - 1.0).abs() < 1e-9);
    assert!(value("power_w") > 60.0 && value("power_w") < 700.0);
    let end = |which: &str| number(&found, &format!("/{which}/end_to_end_s/p90"));
    assert!(end("steps_p05") < end("value") && end("value") < end("steps_p95"));
    assert!(number(&found, "/most_per_s") > 20.0);
}

#[test]
fn every_form_and_every_load_has_its_text() {
    let table = text(&["--rate", "10"]);
    for expected in ["time to first token", "energy for each token of an answer", "160 count"] {
        assert!(table.contains(expected), "{table}");
    }
    assert!(text(&["--rate", "10", "--format", "markdown"]).contains("| --- |"));
    let csv = text(&["--rate", "10", "--format", "csv", "--over", "cap"]);
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.len() > 3 && columns.iter().all(|n| *n == columns[0]), "{csv}");
    assert!(text(&["--concurrency", "4"]).contains("4 users"));
    assert!(
        text(&["--rate", "10", "--disaggregate", "1:1"]).contains("1 for prompts, 1 for answers, joined by nvlink4")
    );
    assert_eq!(text(&["--rate", "10"]), table, "a seed decides all");
    assert_ne!(text(&["--rate", "10", "--seed", "2"]), table);
}

#[test]
fn a_replica_that_is_overloaded_says_so_and_no_percentiles() {
    let (found, why) = not_carried(&["--rate", "100000", "--format", "json"]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!((&found["overloaded"], &found["value"]), (&true.into(), &Value::Null));
    assert!(why.starts_with("error: overloaded: 100000 requests/s come, ") && why.lines().count() == 1, "{why}");
    let (table, _) = not_carried(&["--rate", "100000"]);
    assert!(table.contains("overloaded") && !table.contains("p99"), "{table}");
    // Whether anything that was tried carries it decides.
    let many = json(&["--rate", "10"])["most_per_s"].as_f64().expect("a rate") * 1.5;
    assert_eq!(json(&["--rate", &many.to_string(), "--over", "replicas"])["overloaded"], true, "two replicas carry it");
    let (_, why) = not_carried(&["--rate", "100000", "--over", "replicas"]);
    assert!(why.contains("nor does any other setting that was tried"), "{why}");
}

#[test]
fn the_highest_rate_keeps_its_target_and_a_bit_more_does_not() {
    let target = ["--ttft", "60ms", "--tpot", "8 ms"];
    let found = json(&target);
    let rate = number(&found, "/rate_per_s");
    let p90 = |found: &Value| {
        (number(found, "/value/time_to_first_token_s/p90"), number(found, "/value/time_per_token_s/p90"))
    };
    let (first, each) = p90(&found);
    assert!(first <= 0.06 && each <= 0.008, "{first} {each}");
    // Near what is carried a bit more is an overload.
    let output = serve(&[&SHORT[..], &["--rate", &(1.1 * rate).to_string(), "--format", "json"]].concat());
    let more: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let missed = more["value"].is_null() || p90(&more).0 > 0.06 || p90(&more).1 > 0.008;
    assert!(missed || more["value"]["queue_grows"] == true, "{rate}");
    assert_eq!(found["value"]["queue_grows"], false);
    // Its interval holds it, and is printed beside it.
    let (low, high) = (number(&found, "/rate_per_s_p05"), number(&found, "/rate_per_s_p95"));
    assert!(0.0 < low && low < rate && rate < high, "{low} {rate} {high}");
    assert_eq!(json(&["--rate", "10"])["rate_per_s_p05"], Value::Null);
    let table = text(&target);
    let line = table.lines().find(|line| line.contains("the highest rate that keeps")).expect("a line");
    assert!(line.contains(" to ") && line.ends_with(") requests/s; with it"), "{line}");
    let (none, why) = not_carried(&["--tpot", "1us"]);
    assert!(why.starts_with("error: no rate keeps each token within 1.00 us (p90)"), "{why}");
    let line = none.lines().find(|line| line.contains("no rate keeps")).expect("a line");
    assert!(line.ends_with("each token within 1.00 us (p90): a lone request misses it"), "{line}");
}

#[test]
fn limits_lower_what_is_carried_and_what_a_token_takes() {
    let found = json(&["--tpot", "20ms", "--over", "cap,clock"]);
    let points = found["points"].as_array().expect("a list");
    assert!(points.len() >= 8, "{}", points.len());
    let base = (number(&found, "/rate_per_s"), number(&found, "/value/energy_per_token_j"));
    let last_cap = points.iter().rfind(|p| !p["power_cap_w"].is_null()).expect("limits");
    assert!(number(last_cap, "/rate_per_s") < base.0);
    assert!(points.iter().any(|p| number(p, "/value/energy_per_token_j") < base.1));
}

/// At the lowest clock the largest steps draw more than the limit, though smaller ones keep it.
#[test]
fn a_limit_that_is_not_kept_is_told() {
    let told = |cap: &str| {
        let found = json(&["--rate", "10", "--power-cap", cap]);
        let told = found["warnings"].as_array().expect("a list").iter().filter_map(Value::as_str);
        told.filter(|note| note.ends_with("the board will exceed its limit")).map(str::to_string).collect::<Vec<_>>()
    };
    let low = told("200");
    assert!(
        low.len() == 1 && low[0].starts_with("largest steps of answers: the kernels draw more than 200 W"),
        "{low:?}"
    );
    assert!(told("500").is_empty());
}

#[test]
fn a_trace_is_served_at_its_rate() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.csv");
    let rows: String = (0..50).map(|i| format!("{},{},{}\n", 0.1 * f64::from(i), 100 + i, 5 + i % 7)).collect();
    fs::write(&path, format!("time,prompt,answer\n{rows}")).expect("written");
    let file = path.display().to_string();
    let output = serve(&[]);
    assert!(!output.status.success(), "no lengths");
    let run = |options: &[&str]| {
        let words = ["serve", "--net", "llama3_2_1b", "--gpu", "h100", "--trace", &file, "--format", "json"];
        let output = program::predict().args(words).args(options).output().expect("starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    assert!((number(&run(&[]), "/rate_per_s") - 10.0).abs() < 1e-6);
    assert!((number(&run(&["--rate", "25"]), "/value/requests_per_s") - 25.0).abs() < 0.1);
    fs::write(&path, "time,prompt,answer\n0,10,5\n1,,5\n").expect("written");
    let output = program::predict()
        .args(["serve", "--net", "llama3_2_1b", "--gpu", "h100", "--trace", &file])
        .output()
        .expect("starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("trace.csv, line 3: prompt is \"\"") && error.lines().count() == 1, "{error}");
}

#[test]
fn a_burst_is_answered_all_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("burst.csv");
    fs::write(&path, format!("time,prompt,answer\n{}", "7,100,20\n".repeat(40))).expect("written");
    let file = path.display().to_string();
    let run = |options: &[&str]| {
        let words = ["serve", "--net", "llama3_2_1b", "--gpu", "h100", "--trace", &file];
        program::predict().args(words).args(options).output().expect("starts")
    };
    let output = run(&["--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let keys = ["requests", "value/simulated_requests", "value/counted_requests"]
        .map(|key| number(&found, &format!("/{key}")));
    assert_eq!((keys, &found["rate_per_s"], &found["overloaded"]), ([40.0; 3], &Value::Null, &false.into()));
    let tokens = number(&found, "/value/tokens_per_s") * number(&found, "/value/counted_span_s");
    assert!((tokens - 800.0).abs() < 1e-6, "{tokens}");
    let (last, span) = (number(&found, "/value/end_to_end_s/p99"), number(&found, "/value/counted_span_s"));
    assert!((last / span - 1.0).abs() < 1e-9, "{last} {span}");
    assert!(
        String::from_utf8_lossy(&run(&[]).stdout)
            .contains("burst.csv, all at one time; 40 requests, of which 40 count")
    );
    for options in [["--rate", "5"], ["--tpot", "50ms"]] {
        let output = run(&options);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let one = output.status.code() == Some(2) && error.lines().count() == 1;
        assert!(one && error.contains("come at one time, which has no rate"), "{error}");
    }
    fs::write(&path, "time,prompt,answer,time\n0,9,9,1\n1,9,9,3\n").expect("written");
    let error = String::from_utf8_lossy(&run(&[]).stderr).into_owned();
    assert!(error.contains("line 1: the header has several columns time") && error.lines().count() == 1, "{error}");
}

/// Without a word as many requests come as fill the replica and count.
#[test]
fn enough_requests_come_where_nobody_says_how_many() {
    let run = |rate: &str| {
        let words = ["serve", "--net", "llama3_2_1b", "--gpu", "l4", "--prompt", "256", "--answer", "256"];
        let output =
            program::predict().args(words).args(["--rate", rate, "--format", "json"]).output().expect("starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let light = run("1");
    let counts =
        |found: &Value| ["simulated_requests", "counted_requests"].map(|key| number(found, &format!("/value/{key}")));
    assert_eq!((counts(&light), number(&light, "/requests")), ([2000.0, 1600.0], 2000.0));
    let near = run(&(0.97 * number(&light, "/most_per_s")).to_string());
    let value = |path: &str| number(&near, &format!("/value/{path}"));
    let [simulated, counted] = counts(&near);
    let under_way = value("requests_per_s") * value("end_to_end_s/mean");
    assert!(simulated > 2000.0 && counted >= 8.0 * under_way, "{simulated} {counted} {under_way}");
    assert!((value("tokens_per_s") / (256.0 * value("requests_per_s")) - 1.0).abs() < 0.03);
    let told = near["warnings"].as_array().expect("a list");
    assert!(!told.iter().any(|note| note.as_str().is_some_and(|note| note.contains("more --requests"))), "{told:?}");
}

#[test]
fn how_far_it_is_is_told() {
    use joulecast_predict::{ask, session::Session, typed};
    let words = "--net llama3_2_1b --gpu h100 --requests 100 --prompt 64 --answer 8 --rate 5 --over cap,clock --max-num-seqs 8 --max-num-batched-tokens 64";
    let words: Vec<String> = words.split(' ').map(Into::into).collect();
    let (request, serving) = typed::serve(&words).expect("good words");
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |progress| told.lock().expect("nobody panics with it").push(progress);
    let served = ask::serve_telling(&Session::new(), &request, &serving, &tell).expect("served");
    let mut told = told.into_inner().expect("nobody panics with it");
    told.sort_by_key(|progress| progress.done);
    let all = 13;
    assert_eq!(told, (0..=all).map(|done| ask::Progress { done, all }).collect::<Vec<_>>());
    assert!(served.points.len() < all && served.points.len() > 6, "{}", served.points.len());
    // Threads change nothing.
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
    let again = one.install(|| ask::serve(&Session::new(), &request, &serving)).expect("served");
    assert_eq!(format!("{:?}", again.points), format!("{:?}", served.points));
}

/// Layouts and batches are told apart by their keys; what divides no heads is left out and named.
#[test]
fn layouts_and_batches_are_tried() {
    let found =
        json(&["--rate", "10", "--over", "layout,seqs", "--max-num-seqs", "16", "--max-num-batched-tokens", "256"]);
    let points = found["points"].as_array().expect("points");
    let of = |p: &Value| (p["gpus"].as_u64().expect("a number"), p["max_num_seqs"].as_u64().expect("a number"));
    let all: Vec<_> = std::iter::once(&found).chain(points).map(of).collect();
    let most = all[0].1;
    assert_eq!(all[0].0, 1);
    for gpus in [1, 2, 4, 8] {
        for sequences in [most, most / 2, most / 4, most / 8] {
            assert_eq!(all.iter().filter(|p| **p == (gpus, sequences)).count(), 1, "{all:?}");
        }
    }
    // Two GPUs carry more than one, but not twice as much; fewer sequences less.
    let rate = |place| points.iter().find(|p| of(p) == place).and_then(|p| p["most_per_s"].as_f64()).expect("a rate");
    let (one, two) = (found["most_per_s"].as_f64().expect("a rate"), rate((2, most)));
    assert!(one < two && two < 2.0 * one, "{one} and {two}");
    assert!(rate((1, most / 8)) < one);
    let table = text(&["--rate", "10", "--over", "layout", "--max-num-batched-tokens", "256"]);
    // What is named best is, of what the document has.
    let found = json(&["--rate", "10", "--over", "layout", "--max-num-batched-tokens", "256"]);
    let all: Vec<&Value> = std::iter::once(&found).chain(found["points"].as_array().expect("points")).collect();
    let best = |figure: &dyn Fn(&Value) -> f64| {
        let least = all.iter().min_by(|a, b| figure(a).total_cmp(&figure(b))).expect("points");
        format!("--tensor-parallel {}", least["tensor_parallel"])
    };
    let energy = best(&|p| number(p, "/value/energy_per_token_j"));
    let rate = best(&|p| number(p, "/gpus") / number(p, "/value/tokens_per_s"));
    assert!(table.contains(&format!("least energy for each token: {energy}")), "{energy}\n{table}");
    assert!(table.contains(&format!("most tokens/s for each GPU: {rate}")), "{rate}\n{table}");
    // 14 heads.
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/read/tests/huggingface/qwen2_5_0_5b.json");
    let options = [
        "--gpu",
        "h100",
        "--requests",
        "200",
        "--prompt",
        "256",
        "--answer",
        "32",
        "--tpot",
        "20ms",
        "--over",
        "layout",
    ];
    let output = program::predict().args(["serve", "--net", config]).args(options).output().expect("starts");
    let divided = String::from_utf8_lossy(&output.stdout);
    assert!(divided.contains("--tensor-parallel 4 is left out: "), "{divided}");
    // Where no layout was asked for, the first that fits is what others are beside.
    let large = [
        "--net",
        "llama3_1_70b",
        "--gpu",
        "h100",
        "--requests",
        "60",
        "--prompt",
        "64",
        "--answer",
        "8",
        "--rate",
        "1",
    ];
    let over = ["--over", "layout", "--max-num-seqs", "8", "--max-num-batched-tokens", "64"];
    let output = program::predict().arg("serve").args(large).args(over).output().expect("starts");
    let fitting = String::from_utf8_lossy(&output.stdout);
    assert!(
        fitting.starts_with("llama3_1_70b on 2 x h100") && fitting.contains("--tensor-parallel 1 is left out: "),
        "{fitting}"
    );
}

#[test]
fn what_is_wrong_is_one_line() {
    let rate = ["--rate", "10"];
    for (options, expected) in [
        (vec![], "which load?"),
        (vec!["--rate", "10", "--ttft", "500ms"], "cannot be used with"),
        (vec!["--ttft", "500"], "as in 500ms"),
        (vec!["--rate", "1e-15"], "--rate: from 0.000001 to 1000000 requests a second"),
        (vec!["--concurrency", "51"], "at least 204 of 51"),
        (vec!["--rate", "10", "--disaggregate", "0:1"], "write it like 1:2"),
        (vec!["--concurrency", "4", "--disaggregate", "1:1"], "leave out --concurrency"),
        (vec!["--rate", "10", "--gpu-memory-utilization", "1.5"], "at most 1"),
        (vec!["--rate", "10", "--gpu-memory-utilization", "0.01"], "does not fit in the memory of h100"),
        (vec!["--rate", "10", "--clock", "5"], "core clock"),
        (vec!["--rate", "10", "--framework", "vlm"], "vllm"),
        (vec!["--rate", "10", "--framework", "caffe"], "these do: sglang, tensorrt-llm, vllm"),
    ] {
        let output = serve(&[&SHORT[..], &options].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{options:?}: {error}");
        // What clap refuses has its usage below.
        let first = error.lines().next().unwrap_or_default();
        assert!(first.starts_with("error: "), "{error}");
    }
    let refused = |options: &[&str], expected: &str| {
        let output = program::predict().arg("serve").args(options).args(rate).output().expect("starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(expected) && error.lines().count() == 1,
            "{options:?}: {error}"
        );
    };
    // A network's own fault is no mistake of who asks for it, of whatever question.
    let gpt2 = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/nets/gpt2.toml");
    let gpt2 = fs::read_to_string(gpt2).expect("shipped");
    let from = "name = \"attn.c_proj\", kind = \"linear\", features = 768";
    assert!(gpt2.contains(from));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("skewed.toml");
    fs::write(&path, gpt2.replacen(from, &from.replace("768", "700"), 1)).expect("written");
    let skewed = ["--net", path.to_str().expect("a name"), "--gpu", "h100"];
    let serve = [&["serve"], &skewed[..], &["--prompt", "9", "--answer", "9"], &rate].concat();
    let generate = [&skewed[..], &["--batch", "1", "--sequence", "20", "--generate", "9"]].concat();
    let shared = [&generate[..], &["--tensor-parallel", "2"]].concat();
    for asked in [serve, generate, shared] {
        let output = program::predict().args(&asked).output().expect("starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.lines().count() == 1, "{asked:?}: {error}");
    }
    refused(&["--net", "resnet50", "--gpu", "h100", "--prompt", "9", "--answer", "9"], "does not generate");
    refused(&["--net", "gpt2", "--gpu", "h100", "--prompt", "1000", "--answer", "900"], "1024 positions");
    refused(
        &["--net", "llama3_1_70b", "--gpu", "h100", "--prompt", "9", "--answer", "9"],
        "does not fit in the memory",
    );
    refused(&["--net", "llama3_8b", "--gpu", "l4", "--prompt", "90000", "--answer", "9"], "does not fit in the cache");
    // What would have room is named.
    let lengths = |prompt: &'static str| ["--prompt", prompt, "--answer", "9"];
    let of = |net: &'static str, gpu: &'static str| ["--net", net, "--gpu", gpu];
    refused(&[of("llama3_1_70b", "h100"), lengths("9")].concat(), "; --tensor-parallel 2 has room");
    refused(&[of("llama3_8b", "l40s"), lengths("250000")].concat(), "; --tensor-parallel 2 has room");
    let experts = [&of("qwen3_30b_a3b", "h100")[..], &lengths("9"), &["--expert-parallel", "2"]].concat();
    refused(&experts, "--tensor-parallel 2 --expert-parallel 2 divides attention among them, too");
    let imbalanced = [&of("llama3_8b", "h100")[..], &lengths("9"), &["--imbalance", "2"]].concat();
    refused(&imbalanced, "no mixture of experts");
}

#[test]
fn what_runs_instead_of_int8_is_named_and_runs() {
    let on = ["serve", "--net", "llama3_2_1b", "--gpu", "t4", "--prompt", "9", "--answer", "9", "--rate", "1"];
    let run = |options: &[&str]| program::predict().args(on).args(options).output().expect("starts");
    let output = run(&["--precision", "int8"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let advice = "t4 computes in int8, but not in bf16, in which all else of the network runs: --precision fp16 --weights int8 runs";
    assert!(output.status.code() == Some(2) && error.contains(advice) && error.lines().count() == 1, "{error}");
    let output = run(&["--precision", "fp16", "--weights", "int8"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn answers_of_one_token_have_no_time_for_each_further_one() {
    // Answers of one token have no further ones.
    for targets in [&["--tpot", "50ms"][..], &["--ttft", "1s", "--tpot", "50ms"]] {
        let output = serve(&[&["--prompt", "64", "--answer", "1"], targets].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let one = output.status.code() == Some(2) && error.lines().count() == 1;
        assert!(one && error.contains("leave out --tpot; --ttft is a target for them"), "{error}");
    }
    assert!(serve(&["--prompt", "64", "--answer", "1", "--ttft", "1s"]).status.success());
}

/// What there is to wait for is said before; the answer is where it was.
#[test]
fn how_much_is_simulated_is_told_before() {
    let told = |options: &[&str]| {
        let output = serve(&[&SHORT[..], options].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(told(&["--rate", "10"]), "");
    assert_eq!(told(&["--rate", "10", "--over", "cap"]), "7 settings are simulated\n");
    let searched = told(&["--tpot", "20ms", "--over", "replicas"]);
    assert!(searched.starts_with("4 settings are simulated, each at some thirty rates"), "{searched}");
}

/// Whose part of a token's time was measured nowhere on this GPU is said before any figure.
#[test]
fn what_is_lent_of_a_token_is_said_at_the_head() {
    let head = |gpu: &str| {
        let words = ["serve", "--net", "qwen3_8b", "--gpu", gpu, "--rate", "1", "--requests", "100"];
        let output = program::predict().args(words).args(SHORT).output().expect("starts");
        String::from_utf8_lossy(&output.stdout).lines().nth(1).unwrap_or_default().to_string()
    };
    let b200 = head("b200");
    let lent = " % of it was not measured on this GPU and is estimated from others (";
    assert!(b200.starts_with("a token's time: ") && b200.contains(lent), "{b200}");
    assert!(b200.contains("rms_norm, rotary") && b200.ends_with("); power lent by another GPU"), "{b200}");
    assert!(head("h200").ends_with("; power measured on this GPU"), "{}", head("h200"));
    // Of a chip that nobody measured nothing is its own.
    let unmeasured = head("rtx3090");
    assert!(unmeasured.starts_with("a token's time: ") && !unmeasured.contains("measured on this GPU"), "{unmeasured}");
}

/// No more power than the limit is told of any setting, most likely.
#[test]
fn no_setting_draws_more_than_its_limit() {
    let found = json(&["--tpot", "20ms", "--over", "cap"]);
    let points = found["points"].as_array().expect("a list");
    for point in points {
        let (cap, power) = (number(point, "/power_cap_w"), number(point, "/value/power_w"));
        assert!(power < cap, "{power} under {cap}");
    }
    let near = |point: &&Value| number(point, "/value/power_w") > 0.95 * number(point, "/power_cap_w");
    assert!(points.iter().filter(near).count() > 0);
}

/// Where steps as long as their upper ends are an overload, an interval has no upper end and says why.
#[test]
fn an_interval_that_ends_in_an_overload_says_so() {
    let most = json(&["--rate", "10"])["most_per_s"].as_f64().expect("a rate");
    let table = text(&["--rate", &(0.95 * most).to_string()]);
    assert!(table.contains(" to overload\n") && table.contains("\"to overload\": with steps that long"), "{table}");
    assert!(!table.contains("grows") && !table.contains("from 0"), "{table}");
}

#[test]
fn each_engine_s_rule_and_limits_are_simulated() {
    let few = ["--concurrency", "16", "--max-num-seqs", "32"];
    let of = |framework: &str, more: &[&str]| json(&[&few[..], &["--framework", framework], more].concat());
    let limits = |found: &Value| {
        let rule = found["scheduling"].as_str().unwrap_or_default().to_string();
        (
            rule,
            found["block_size"].as_u64(),
            found["max_num_batched_tokens"].as_u64(),
            found["chunked_prefill"].as_bool(),
        )
    };
    let known = |rule: &str, block, tokens, chunked| (rule.to_string(), Some(block), Some(tokens), Some(chunked));
    let engines = ["vllm", "sglang", "tensorrt-llm"];
    let [vllm, sglang, trt] = engines.map(|engine| of(engine, &[]));
    assert_eq!(limits(&vllm), known("answers_first", 16, 8192, true));
    assert_eq!(limits(&sglang), known("prompts_first", 1, 8192, true));
    assert_eq!(limits(&trt), known("whole_answers", 32, 8192, false));
    let asked = ["--block-size", "8", "--max-num-batched-tokens", "512"];
    for engine in engines {
        let (_, block, tokens, chunked) = limits(&of(engine, &[&asked[..], &["--enable-chunked-prefill"]].concat()));
        assert_eq!((block, tokens, chunked), (Some(8), Some(512), Some(true)), "{engine}");
    }
    // Answers wait for prompts in steps of their own.
    let token = |found: &Value| number(found, "/value/time_per_token_s/mean");
    assert!(token(&sglang) > token(&vllm), "{} {}", token(&sglang), token(&vllm));
    let said = |framework: &str| text(&[&few[..], &["--framework", framework]].concat());
    assert!(said("sglang").contains("32 sequences, prompts in steps of their own; "));
    assert!(said("tensorrt-llm").contains("32 sequences, begun where whole answers have room, prompts whole; "));
    let apart = ["--rate", "10", "--max-num-seqs", "32", "--disaggregate", "1:1", "--framework"];
    for engine in engines {
        let found = json(&[&apart[..], &[engine]].concat());
        assert!(number(&found, "/value/requests_per_s") > 5.0, "{engine}");
    }
}

#[test]
fn what_an_engine_s_rule_does_not_take_is_one_line() {
    let refused = |options: &[&str], expected: &str| {
        let output = serve(&[&["--answer", "32", "--rate", "10", "--max-num-seqs", "32"], options].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let one = output.status.code() == Some(2) && error.lines().count() == 1;
        assert!(one && error.contains(expected), "{options:?}: {error}");
    };
    let stages = ["--prompt", "256", "--pipeline-parallel", "2", "--framework"];
    refused(&[&stages[..], &["sglang"]].concat(), "are not simulated where prompts come before answers, as in SGLang");
    let staged = serve(&[&["--answer", "32", "--rate", "10"], &stages[..], &["tensorrt-llm"]].concat());
    assert!(staged.status.success(), "{}", String::from_utf8_lossy(&staged.stderr));
    let greedy = ["--prompt", "256", "--no-scheduler-reserve-full-isl", "--framework", "sglang"];
    refused(&greedy, "--no-scheduler-reserve-full-isl is vLLM's");
    let whole = ["--prompt", "1024", "--max-num-batched-tokens", "512", "--no-chunked-prefill"];
    refused(&whole, "a prompt of 1024 tokens is longer than a step of 512");
    let long = ["--prompt", "9000", "--framework", "tensorrt-llm"];
    refused(&long, "a prompt of 9000 tokens is longer than a step of 8192");
    let cut = serve(&[&["--answer", "32", "--rate", "10", "--enable-chunked-prefill"], &long[..]].concat());
    assert!(cut.status.success(), "{}", String::from_utf8_lossy(&cut.stderr));
}

/// What is too small, or cannot be, is named before another layout is.
#[test]
fn what_leaves_no_room_is_named() {
    let why = |options: &str| {
        let words = "serve --net llama3_8b --prompt 1024 --answer 256 --rate 1 ".to_string() + options;
        let output = program::predict().args(words.split(' ')).output().expect("starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.lines().count() == 1, "{options}: {error}");
        error
    };
    for (options, expected) in [
        ("--gpu h100 --gpu-memory-utilization 0.1", "; --gpu-memory-utilization 0.1 leaves 8.0 GiB: 0.9 has room"),
        ("--gpu h100 --gpu-memory-utilization 0.2", "; --gpu-memory-utilization 0.2 leaves 16.0 GiB: 0.9 has room"),
        ("--gpu h100 --block-size 1000000", "; a block of --block-size 1000000 is more than the cache: 16 has room"),
        (
            "--gpu t4 --precision bf16",
            "t4 has no units that compute in bf16; it has fp32, fp16, int8: --precision fp16",
        ),
        ("--gpu t4 --precision fp16", "; --tensor-parallel 2 has room"),
    ] {
        let found = why(options);
        assert!(found.trim_end().ends_with(expected), "{found}");
    }
}

#[test]
fn room_for_the_first_chunk_alone_sends_back_more() {
    // Where the cache is short, who begins by the first chunk alone is sent back more often, and more is computed again.
    let tight = "--rate 20 --prompt 2048 --answer 512 --gpu-memory-utilization 0.045 --max-num-batched-tokens 512 --max-num-seqs 32";
    let tight: Vec<&str> = tight.split(' ').collect();
    let run = |more: &[&str]| {
        let output = serve(&[&tight[..], more, &["--format", "json"]].concat());
        assert_eq!(output.status.code(), Some(1), "more comes than is carried");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let (reserved, greedy) = (run(&[]), run(&["--no-scheduler-reserve-full-isl"]));
    let rule = |found: &Value| found["scheduler_reserve_full_isl"].as_bool();
    assert_eq!((rule(&reserved), rule(&greedy)), (Some(true), Some(false)));
    assert!(number(&reserved, "/most_per_s") > 1.05 * number(&greedy, "/most_per_s"));
}

/// What `optimize` makes of a load is what `serve` finds; settings whose limits decide nothing are no lines of their own.
#[test]
fn a_load_is_optimized() {
    let load = "--net llama3_2_1b --gpu h100 --requests 200 --prompt 256 --answer 32 --tpot 20ms --max-num-seqs 16 --max-num-batched-tokens 512";
    let run = |words: &[&str]| {
        let output = program::predict().args(words).args(load.split(' ')).output().expect("starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let over = ["--over", "tokens,seqs", "--format", "json"];
    let found = run(&[&["optimize"][..], &over].concat());
    assert_eq!(found, run(&[&["serve", "--objective", "energy"][..], &over].concat()));
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["best"]["objective"], "energy");
    let points = found["points"].as_array().expect("points");
    assert!(points.iter().any(|p| p["max_num_batched_tokens"] == 256) && points.len() <= 7, "{}", points.len());
    let table = run(&["optimize", "--metric", "time", "--over", "tokens"]);
    assert!(table.contains("last token soonest: ") && table.contains("--max-num-batched-tokens 256"), "{table}");
    for (options, expected) in [
        (&["--generate", "8"][..], "--prompt N --answer N"),
        (&["--tensor-parallel", "2"], "predict serve --over layout"),
        (&["--layouts"], "predict --layouts"),
    ] {
        let asked = ["optimize", "--net", "llama3_2_1b", "--gpu", "h100", "--batch", "1", "--precision", "bf16"];
        let output = program::predict().args(asked).args(options).output().expect("starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{error}");
    }
}

/// Pipelines and replicas: GPUs, memory and what they carry, and what is best by a goal.
#[test]
fn pipelines_and_replicas_are_served() {
    let small = ["--rate", "10", "--max-num-seqs", "16", "--max-num-batched-tokens", "256"];
    let of = |options: &[&str]| json(&[&small[..], options].concat());
    let (one, staged, copied) = (of(&[]), of(&["--pipeline-parallel", "2"]), of(&["--data-parallel", "3"]));
    let keys = |found: &Value| ["gpus", "pipeline_parallel", "data_parallel"].map(|key| found[key].as_u64());
    assert_eq!(keys(&staged), [Some(2), Some(2), Some(1)]);
    assert_eq!(keys(&copied), [Some(3), Some(1), Some(3)]);
    let most = |found: &Value| number(found, "/most_per_s");
    assert!((most(&copied) / most(&one) - 3.0).abs() < 1e-9);
    // So few sequences get into one step, and each step has half of the layers twice.
    assert!(most(&staged) < most(&one));
    let many = |options: &[&str]| most(&json(&[&["--rate", "10"], options].concat()));
    let gain = many(&["--pipeline-parallel", "2"]) / many(&[]);
    assert!(gain > 1.5 && gain < 2.0, "{gain}");
    assert!(number(&staged, "/weights_bytes") < 0.75 * number(&one, "/weights_bytes"));
    assert!((number(&staged, "/cache_bytes_per_token") / number(&one, "/cache_bytes_per_token") - 0.5).abs() < 1e-9);
    assert_eq!((number(&copied, "/value/counted_requests"), number(&copied, "/requests")), (480.0, 600.0));
    assert!(number(&copied, "/value/power_w") > number(&one, "/value/power_w"), "two more of them wait");
    // Every token goes through both stages and is handed on.
    let token = |found: &Value| number(found, "/value/time_per_token_s/mean");
    assert!(token(&staged) > token(&one));
    assert_eq!(of(&["--pipeline-parallel", "1", "--data-parallel", "1"]), one);
    let table = text(&[&small[..], &["--pipeline-parallel", "2", "--data-parallel", "2"]].concat());
    assert!(
        table.contains("on 4 x h100") && table.contains("2 replicas that take requests in turn, 2 stages"),
        "{table}"
    );
    assert!(table.contains("what stages hand on to each other was not measured"), "{table}");

    let found = of(&["--over", "stages,replicas", "--objective", "throughput"]);
    let points = found["points"].as_array().expect("points");
    assert_eq!(points.len(), 9, "1, 2, 4 and 8 stages, of 1 to 8 GPUs all");
    assert!(points.iter().all(|p| p["gpus"].as_u64() <= Some(8) && p["tensor_parallel"] == 1));
    let per_gpu = |p: &Value| number(p, "/value/tokens_per_s") / number(p, "/gpus");
    let all = points.iter().chain([&found]);
    let best = all.map(per_gpu).fold(0.0, f64::max);
    assert!(
        (per_gpu(&found["best"]["setting"]) / best - 1.0).abs() < 1e-12 && found["best"]["objective"] == "throughput"
    );
}

#[test]
fn what_is_served_has_its_price() {
    let priced = ["--price", "2.5", "--price-kwh", "0.2", "--pue", "1.3"];
    let found = json(&[&["--rate", "10", "--tensor-parallel", "2"], &priced[..]].concat());
    let value = |path: &str| number(&found, &format!("/value/{path}"));
    let hour = 2.0 * 2.5 + value("power_w") / 1e3 * 1.3 * 0.2;
    assert!((value("cost_per_hour") / hour - 1.0).abs() < 1e-9);
    let million = hour / (value("tokens_per_s") * 3600.0) * 1e6;
    assert!((value("cost_per_million_tokens") / million - 1.0).abs() < 1e-9);
    let table = text(&[&["--rate", "10"], &priced[..]].concat());
    for part in
        ["prices: 2.50 for every hour of a GPU, 0.200 for a kWh (PUE 1.3)", "cost of a million tokens of answers"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(text(&["--rate", "10", "--price", "2.5"]).contains("energy included"));
    assert!(!text(&["--rate", "10"]).contains("cost of"), "nobody said a price");
    // A plan's prices: written off over its years, with the GPU's part of a server.
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/capacity/assistant.toml");
    let found = json(&["--rate", "10", "--prices", plan]);
    let text_of = fs::read_to_string(plan).expect("a plan");
    let site = |key: &str| -> f64 {
        let line = text_of.lines().find(|line| line.starts_with(&format!("{key} ="))).expect(key);
        line.split('=').nth(1).and_then(|v| v.split('#').next()).and_then(|v| v.trim().parse().ok()).expect(key)
    };
    let hour = (28_000.0 + 60_000.0 / 8.0) / site("amortisation_years") / 8760.0;
    assert!((number(&found, "/price_per_gpu_hour") / hour - 1.0).abs() < 1e-9);
    let electricity = (number(&found, "/value/power_w") + 2500.0 / 8.0) / 1e3 * site("pue") * site("price_per_kwh");
    assert!((number(&found, "/value/cost_per_hour") / (hour + electricity) - 1.0).abs() < 1e-9);
    // The least cost of several settings is named first.
    let over = ["--tpot", "20ms", "--over", "cap", "--objective", "cost"];
    let found = json(&[&over[..], &priced[..]].concat());
    let costs = found["points"].as_array().expect("points").iter().chain([&found]);
    let least = costs.filter_map(|p| p.pointer("/value/cost_per_million_tokens")?.as_f64()).fold(f64::MAX, f64::min);
    assert_eq!(number(&found["best"], "/setting/value/cost_per_million_tokens"), least);
    let table = text(&[&over[..], &priced[..]].concat());
    let (cost, energy) = (table.find("least cost for each token"), table.find("least energy for each token"));
    assert!(cost.is_some() && cost < energy, "{table}");
    assert!(
        text(&[&["--tpot", "20ms", "--over", "cap", "--objective", "latency"][..]].concat())
            .contains("last token soonest")
    );
}

#[test]
fn a_run_that_is_too_short_says_so() {
    let short = "requests that count come for less than 8 times as long as one takes";
    assert!(text(&["--concurrency", "50"]).contains(short));
    let warnings = json(&["--concurrency", "50"])["warnings"].to_string();
    assert!(warnings.contains(short), "{warnings}");
    assert!(!text(&["--rate", "10"]).contains("more --requests"));
}

/// Of users who begin at once nothing would count of 2000 requests.
#[test]
fn many_users_send_enough_requests() {
    let said =
        ["serve", "--net", "llama3_2_1b", "--gpu", "h100", "--concurrency", "300", "--prompt", "64", "--answer", "4"];
    let output = program::predict().args(said).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("3600 requests, of which 2880 count"), "{text}");
}

#[test]
fn what_cannot_be_laid_out_or_priced_is_refused_in_one_line() {
    let over = ["--over", "cap"];
    let folder = tempfile::tempdir().expect("a folder");
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/capacity/tagging.toml");
    let plan = fs::read_to_string(plan).expect("a plan").replace("\"h100\"", "\"gh200\"");
    let path = folder.path().join("plan.toml");
    fs::write(&path, &plan).expect("written");
    let path = path.display().to_string();
    for (options, expected) in [
        (&["--pipeline-parallel", "64", "--interconnect", "nvlink4"][..], "its 16 blocks do not fill the 64 stages"),
        (&["--tensor-parallel", "3"], "do not divide among the 3 GPUs"),
        (&["--data-parallel", "2", "--disaggregate", "1:1"], "leave out --data-parallel"),
        (&["--expert-parallel", "2"], "has no experts"),
        (&[over[0], over[1], "--objective", "cost"], "what does a GPU cost? --price 2.5"),
        (&["--prices", &path], "add a [[candidate]], or give --price"),
        (&["--prices", "nowhere.toml"], "nowhere.toml: there is no such file"),
    ] {
        let output = serve(&[&["--rate", "4", "--prompt", "64", "--answer", "8"], options].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(expected), "{options:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{options:?}: {error}");
    }
    for wrong in [["--pipeline-parallel", "0"], ["--data-parallel", "0"], ["--price", "0"], ["--pue", "0.5"]] {
        assert!(!serve(&[&["--rate", "4", "--prompt", "64", "--answer", "8"], &wrong[..]].concat()).status.success());
    }
}
