//! What people type: units, the names that drivers print, the options of other programs, weights instead of networks; and what
//! they read first.

mod program;

use std::process::Output;

fn run(arguments: &[&str]) -> Output {
    program::predict().args(arguments).output().expect("predict starts")
}

fn stdout(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn units_may_be_typed_or_left_out() {
    let step = ["--net", "alexnet", "--gpu", "v100", "--batch", "8"];
    let with = |options: &[&str]| stdout(&[&step[..], options, &["--format", "csv"]].concat());
    for (plain, typed) in
        [(["--power-cap", "200"], &["0.2kW", "200W", "200 W"][..]), (["--clock", "1005"], &["1005MHz", "1.005GHz"])]
    {
        let expected = with(&plain);
        for text in typed {
            assert_eq!(with(&[plain[0], text]), expected, "{text}");
        }
    }
    let compared = |latency: &str| {
        stdout(&["compare", "--net", "alexnet", "--gpu", "t4", "--target-latency", latency, "--format", "csv"])
    };
    assert_eq!(compared("5ms"), compared("5"));
    for wrong in [["--power-cap", "5ms"], ["--clock", "1W"], ["--power-cap", "-5W"], ["--clock", "0MHz"]] {
        let output = run(&[&step[..], &wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn what_drivers_call_gpus_and_other_programs_their_options_is_understood() {
    for (driver, ours) in [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
    ] {
        let of = |options: &[&str]| {
            let text = stdout(&[options, &["--format", "json"]].concat());
            let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            document["devices"].clone()
        };
        let own = of(&["--net", "alexnet", "--gpu", ours, "--batch", "2"]);
        assert_eq!(of(&["--model", "alexnet", "--gpu", driver, "--batch-size", "2"]), own, "{driver}");
    }
}

#[test]
fn weights_are_answered_with_how_to_export_them() {
    for (file, says) in [
        ("model.pt", "torch.onnx.export("),
        ("folder/model.PTH", "torch.onnx.export("),
        ("model.safetensors", "config.json"),
        ("model.h5", "tf2onnx"),
        ("model.gguf", "config.json"),
    ] {
        let output = run(&["--net", file, "--gpu", "v100", "--batch", "1"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(file) && said.contains(says) && said.trim_end().lines().count() == 1, "{said}");
    }
}

#[test]
fn help_is_in_groups() {
    for (command, groups) in [
        (&["--help"][..], &["Model:", "Framework:", "Hardware:", "Training:", "Output:"][..]),
        (&["compare", "--help"], &["Goal:", "Model:", "Framework:", "Hardware:", "Training:", "Output:"]),
        (&["optimize", "--help"], &["Model:", "Hardware:", "Goal:", "Output:"]),
    ] {
        let text = stdout(command);
        for group in groups {
            assert!(text.lines().any(|line| line == *group), "{command:?} has no {group}\n{text}");
        }
    }
    let text = stdout(&["--help"]);
    let group = |option: &str| {
        let before = text.split(&format!("\n      --{option}")).next().unwrap_or_default();
        before.lines().rev().find(|line| line.ends_with(':') && !line.starts_with(' ')).unwrap_or_default().to_string()
    };
    assert_eq!(
        ["net", "batch", "gpu", "power-cap", "mode", "optimizer", "epochs", "format", "layers", "framework"].map(group),
        [
            "Model:",
            "Model:",
            "Hardware:",
            "Hardware:",
            "Training:",
            "Training:",
            "Training:",
            "Output:",
            "Output:",
            "Framework:"
        ]
    );
}

#[test]
fn the_verdict_comes_first_and_is_the_same_everywhere() {
    let step = ["--net", "resnet50", "--gpu", "v100", "--batch", "32"];
    let text = stdout(&step);
    let line = text.lines().nth(1).unwrap_or_default();
    assert!(line.contains(", fits. Trust: good in time (measured by others on this GPU, expected error "), "{line}");
    let document: serde_json::Value =
        serde_json::from_str(&stdout(&[&step[..], &["--format", "json"]].concat())).expect("JSON");
    assert_eq!(document["verdict"]["text"], line);
    assert!(stdout(&[&step[..], &["--format", "markdown"]].concat()).contains(line));
    let trust = line.split("Trust: ").nth(1).unwrap_or_default();
    let why = format!("Why so long: {}.", document["verdict"]["why_so_long"].as_str().unwrap_or_default());
    assert_eq!(text.lines().nth(2), Some(&why[..]));
    let shares: f64 = document["verdict"]["doubts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|d| d["share_of_time"].as_f64())
        .sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    // A plan words it alike.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("verdict");
    std::fs::create_dir_all(&folder).expect("a folder");
    assert!(!trust.is_empty() && text.contains("174 kernels by kind"), "{text}");
    assert!(!text.contains("layer3.4.bn1") && stdout(&[&step[..], &["--layers"]].concat()).contains("layer3.4.bn1"));
}

#[test]
fn compare_names_no_first_place_that_is_not_sure() {
    let text = stdout(&["compare", "--net", "resnet50", "--gpu", "v100,l4,m40", "--batch", "32"]);
    let row = |least: &str| {
        text.lines().find(|line| line.contains(least) && line.starts_with("resnet50")).unwrap_or_default()
    };
    let time = text.lines().filter(|l| l.starts_with("resnet50")).find(|l| l.contains("  time  ")).unwrap_or_default();
    assert!(time.contains("  no") && time.contains("v100 or l4"), "{text}");
    assert!(!row("power").is_empty());
    let document: serde_json::Value = serde_json::from_str(&stdout(&[
        "compare",
        "--net",
        "resnet50",
        "--gpu",
        "h200,k20m",
        "--batch",
        "32",
        "--format",
        "json",
    ]))
    .expect("JSON");
    let best = &document["best"][0];
    assert!(best["metric"] == "time" && best["gpu"] == "h200" && best["sure"] == true && best["decided_by"].is_null());
}

#[test]
fn the_name_of_the_output_says_its_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let step = ["--net", "lenet5", "--gpu", "v100", "--batch", "2"];
    let written = |name: &str, more: &[&str]| {
        let path = folder.path().join(name);
        let output = format!("--output={}", path.display());
        stdout(&[&step[..], &[&output], more].concat());
        std::fs::read_to_string(path).expect("written")
    };
    assert!(written("a.html", &[]).starts_with("<!doctype html>"));
    assert!(written("a.json", &[]).starts_with('{') && written("a.md", &[]).contains("| --- |"));
    assert!(written("b.json", &["--format", "table"]).starts_with("lenet5 on"));
    assert!(written("a.txt", &[]).starts_with("lenet5 on"));
}

#[test]
fn words_of_frameworks_are_understood_and_mistakes_say_what_to_type() {
    let step = ["--net", "lenet5", "--gpu", "h100", "--batch", "2", "--precision"];
    for (theirs, ours) in [("float16", "fp16"), ("half", "fp16"), ("float32", "fp32"), ("bfloat16", "bf16")] {
        let of = |name| stdout(&[&step[..], &[name]].concat());
        assert_eq!(of(theirs), of(ours), "{theirs}");
    }
    let wrong = |arguments: &[&str]| String::from_utf8_lossy(&run(arguments).stderr).into_owned();
    assert!(wrong(&["describe", "resnet50"]).contains("predict describe --net resnet50"));
    assert!(wrong(&["optimize", "--net", "lenet5"]).contains("For example: predict optimize --net "));
    let absent = |net| wrong(&["--net", net, "--gpu", "v100", "--batch", "1"]);
    assert!(absent("meta-llama/Llama-3.1-8B").contains("config.json"), "{}", absent("meta-llama/Llama-3.1-8B"));
    assert!(absent("./nets/mine.onnx").ends_with("there is no such file\n"), "{}", absent("./nets/mine.onnx"));
}

#[test]
fn what_a_gpu_is_called_is_said_once() {
    let text = stdout(&["--net", "lenet5", "--gpu", "NVIDIA A100-SXM4-80GB", "--batch", "1"]);
    assert!(text.starts_with("lenet5 on NVIDIA A100-SXM4-80GB, batch 1"), "{text}");
}

#[test]
fn of_many_gpus_that_may_be_the_best_a_few_are_named() {
    let text = stdout(&["compare", "--net", "lenet5", "--gpu", "all", "--batch", "1"]);
    let line = text.lines().find(|line| line.contains("not sure between")).expect("many may be");
    assert!(line.contains(" others; measure ") && line.len() < 200, "{line}");
}
