//! Whose host launches eager steps: said, kept in the user's configuration, or not known.

mod program;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

const STEP: [&str; 8] = ["--net", "mobilenet_v2", "--gpu", "h200", "--batch", "1", "--framework", "pytorch"];
const FILE: &str = "schema = \"host/1\"\nframework = \"pytorch\"\ncpu = \"A CPU\"\ndevice = \"B\"\ntorch = \"2.11\"\n\
    date = \"2026-11-22T20:00:00Z\"\nrounds = 12\n[factor]\ninference = 0.5\ntraining = 2.0\nautocast = 3.0\n\
    [spread]\ninference = 1.02\ntraining = 1.0\nautocast = 1.1\n";

fn run(words: &[&str]) -> Output {
    program::predict().args(words).output().expect("the program starts")
}

/// With a configuration folder.
fn run_in(folder: &Path, words: &[&str]) -> Output {
    program::predict().env("XDG_CONFIG_HOME", folder).args(words).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn kept(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("joulecast")).expect("made");
    fs::write(folder.path().join("joulecast/host.toml"), text).expect("written");
    folder
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn of(options: &[&str]) -> Value {
    json(&run(&[&STEP[..], &["--format", "json"], options].concat()))
}

fn warned(step: &Value, what: &str) -> bool {
    step["warnings"].as_array().expect("a list").iter().any(|w| w.as_str().is_some_and(|w| w.contains(what)))
}

#[test]
fn a_host_scales_what_it_decides_and_is_named() {
    let (unknown, faster, slower) = (of(&[]), of(&["--host", "0.8"]), of(&["--host", "1.6"]));
    let time = |step: &Value| number(step, "time_s");
    assert!((time(&faster) / time(&unknown) - 0.8).abs() < 0.02 && (time(&slower) / time(&unknown) - 1.6).abs() < 0.02);
    assert_eq!(unknown["host"]["decides"], true);
    assert_eq!((number(&unknown["host"], "factor"), &unknown["host"]["source"]), (1.0, &Value::Null));
    assert_eq!((number(&slower["host"], "factor"), &slower["host"]["source"]), (1.6, &Value::from("--host")));
    assert!(warned(&unknown, "`calibrate host` measures") && !warned(&slower, "`calibrate host`"));
    assert!(warned(&slower, "1.60 times as long as the pytorch profile says"));
    // As wide as hosts differ without it, less so with it.
    let width = |step: &Value| number(step, "time_s_p95") / number(step, "time_s_p05");
    let spread = number(&unknown["host"], "spread");
    assert!((width(&unknown) / (spread * spread) - 1.0).abs() < 0.1, "{}", width(&unknown));
    assert!(width(&slower) < 0.8 * width(&unknown));
    // A slower host leaves the GPU waiting: less power, more energy.
    assert!(number(&slower, "power_w") < number(&faster, "power_w"));
    assert!(number(&slower, "energy_j") > number(&faster, "energy_j"));
    assert_eq!(of(&["--launch", "graph"])["host"], Value::Null);
}

#[test]
fn every_command_takes_it_and_refuses_it_where_no_host_launches() {
    for command in [&[][..], &["optimize"], &["compare"], &["sweep"]] {
        let answer = |options: &[&str]| {
            let output = run(&[command, &STEP[..], &["--format", "csv"], options].concat());
            assert!(output.status.success(), "{command:?}: {}", stderr(&output));
            output.stdout
        };
        assert_ne!(answer(&[]), answer(&["--host", "2"]), "{command:?}");
        assert_eq!(answer(&[]), answer(&["--host", "1"]), "{command:?}");
        for (options, why) in [
            (["--host", "2", "--launch", "graph"], "--launch eager"),
            (["--host", "2", "--framework", "cudnn"], "cudnn profile does not say"),
            (["--host", "0", "--launch", "eager"], "from 0.01 to 100"),
        ] {
            let step = if options.contains(&"--framework") { &STEP[..6] } else { &STEP[..] };
            let output = run(&[command, step, &options[..]].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?} {options:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(why), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_file_that_the_user_keeps_is_taken_and_said() {
    let folder = kept(FILE);
    let in_home = |options: &[&str]| run_in(folder.path(), &[&STEP[..], &["--format", "json"], options].concat());
    let kept_one = json(&in_home(&[]));
    let source = kept_one["host"]["source"].as_str().expect("a source");
    assert!(source.contains("joulecast/host.toml (A CPU, 2026-11-22)"), "{source}");
    assert!(warned(&kept_one, "joulecast/host.toml") && number(&kept_one["host"], "factor") == 0.5);
    let training = json(&in_home(&["--mode", "training"]));
    assert_eq!(number(&training["host"], "factor"), 2.0);
    assert_eq!(json(&in_home(&["--mode", "training", "--precision", "bf16"]))["host"]["factor"], 3.0);
    // 1 is the profile's host, as if nothing were kept.
    assert_eq!(in_home(&["--host", "1"]).stdout, run(&[&STEP[..], &["--format", "json"]].concat()).stdout);
    assert!(json(&in_home(&["--launch", "graph"]))["host"].is_null());
    let path = folder.path().join("joulecast/host.toml").display().to_string();
    assert_eq!(of(&["--host", &path])["time_s"], kept_one["time_s"]);
    let caffe = [&STEP[..6], &["--framework", "caffe", "--format", "json"]].concat();
    assert!(json(&run_in(folder.path(), &caffe))["host"]["source"].is_null(), "of another profile");
    let named = run(&[&caffe[..], &["--host", &path]].concat());
    assert!(named.status.code() == Some(2) && stderr(&named).contains("of the pytorch profile"), "{}", stderr(&named));
}

#[test]
fn a_file_that_cannot_be_used_says_how_to_go_without() {
    let folder = kept("schema = 3");
    let output = run_in(folder.path(), &STEP);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("--host 1"), "{}", stderr(&output));
    assert!(run_in(folder.path(), &[&STEP[..], &["--launch", "graph"]].concat()).status.success());
    let output = run(&[&STEP[..], &["--host", "no/such/file.toml"]].concat());
    assert!(output.status.code() == Some(1) && stderr(&output).contains("no/such/file.toml"), "{}", stderr(&output));
}

#[test]
fn no_gpu_is_the_best_where_the_host_decides() {
    let asked = ["compare", "--net", "resnet18", "--gpu", "h200,a100-sxm4-80gb", "--framework", "pytorch"];
    let at = |batch: &str, options: &[&str]| {
        json(&run(&[&asked[..], &["--batch", batch, "--format", "json"], options].concat()))
    };
    let small = at("1", &[]);
    assert!(small["best"].as_array().expect("a list").is_empty(), "{}", small["best"]);
    let none: Vec<&str> =
        small["none_best"].as_array().expect("a list").iter().filter_map(|b| b["metric"].as_str()).collect();
    assert_eq!(none, ["time", "energy per sample", "EDP", "power"]);
    assert_eq!(small["rows"][0]["host_decides"], true);
    let large = at("256", &[]);
    let winner = large["best"].as_array().expect("a list").iter().find(|b| b["metric"] == "time").expect("one");
    assert_eq!(winner["gpu"], "h200");
    let text = String::from_utf8(run(&[&asked[..], &["--batch", "1"]].concat()).stdout).expect("text");
    assert!(text.contains("none, the host") && text.contains("no GPU is the best"), "{text}");
    let priced = ["--batch", "1", "--target-latency", "100", "--price", "h200=3,a100-sxm4-80gb=1"];
    let text = String::from_utf8(run(&[&asked[..], &priced].concat()).stdout).expect("text");
    assert!(text.contains("no GPU is called cheapest") && !text.contains("cheapest GPU for"), "{text}");
}
