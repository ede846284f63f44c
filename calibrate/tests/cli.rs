//! The program as a user runs it.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_calibrate")).args(arguments).output().expect("the program starts")
}

fn fails(arguments: &[&str], code: i32, expected: &str) {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(expected), "{arguments:?}: {error}");
    assert!(!error.contains("panicked"), "{error}");
    if code != 2 {
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
}

#[test]
fn mistakes_are_one_clear_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = folder.path().join("nowhere");
    let nowhere = nowhere.to_str().expect("utf-8");
    let junk = folder.path().join("junk.xlsx");
    std::fs::write(&junk, b"PK\x03\x04 not a workbook").expect("written");
    let junk = junk.to_str().expect("utf-8");
    fails(&["validate", "--layers", "--dataset", nowhere], 3, "sources.toml");
    fails(&["fit", "--dataset", nowhere], 3, "sources.toml");
    fails(&["status", "--dataset", nowhere], 3, "no dataset");
    fails(&["import", "deepbench", junk, "--dataset", nowhere], 1, "junk.xlsx");
    fails(&["import", "neusight", junk, "--dataset", nowhere], 1, "junk.xlsx");
    fails(&["import", "table", junk, "--dataset", nowhere], 2, "--mapping");
    fails(&["import", "deepbench", nowhere, "--dataset", nowhere], 1, "nowhere");
    fails(&["show", "v10000"], 2, "nearest: v100");
    fails(&["import", "excel", junk], 2, "deepbench");
    fails(&["status", nowhere], 3, "no dataset");
    fails(&["plan", "--recipe", nowhere], 1, "nowhere");
    fails(&["plan", "--recipe", junk], 1, "junk.xlsx");
    fails(&["plan", "--level", "whole"], 2, "standard");
    fails(&["run", "--plan", junk, "--device", "fake", "--dataset", nowhere], 1, "junk.xlsx");
    fails(&["run", "--plan", "quick", "--device", "gpu", "--dataset", nowhere], 2, "cuda");
    fails(&["run", "--plan", "no.jsonl", "--device", "fake", "--dataset", nowhere], 1, "no plan no.jsonl");
    fails(&["show", junk], 1, "junk.xlsx");
    assert!(!std::path::Path::new(nowhere).exists(), "nothing half-written");
}

/// What was typed wrong exits with 2, as in `predict`, before anything is read: no dataset is there.
#[test]
fn names_that_do_not_exist_come_with_the_nearest_that_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = folder.path().join("nowhere");
    let nowhere = nowhere.to_str().expect("utf-8");
    for (arguments, expected) in [
        (&["validate", "--layers", "--kind", "con2d"][..], "nearest: conv2d"),
        (&["validate", "--layers", "--kind", "foo"], "softmax"),
        (&["validate", "--layers", "--gpu", "h2000"], "nearest: h200"),
        (&["validate", "--networks", "runs.csv", "--framework", "pytorsh"], "pytorch"),
        (&["validate", "--networks", "runs.csv", "--role", "tset"], "nearest: test"),
        (&["validate", "--layers", "--seeds", "0"], "1..=1000"),
        (&["run", "--plan", "quik", "--device", "fake"], "nearest: quick"),
        (&["run", "--plan", "foo", "--device", "fake"], "standard"),
        (&["run", "--plan", "quick", "--device", "fake", "--gpu", "h2000"], "nearest: h200"),
        (&["run", "--plan", "quick", "--device", "fake", "--only", "rulu"], "nearest: relu"),
        (&["run", "--plan", "quick", "--device", "fake", "--campaign", "a b"], "letters"),
        (&["run", "--plan", "quick", "--device", "fake", "--dry-run"], "--clocks"),
        (&["run", "--plan", "quick", "--device", "fake", "--fault", "gremlins"], "drifting"),
        (&["import", "neusight", "conv.csv", "--gpu", "v10"], "v100"),
    ] {
        fails(&[arguments, &["--dataset", nowhere]].concat(), 2, expected);
    }
    fails(&["show", "v100", "--kind", "lineer"], 2, "nearest: linear");
    for (arguments, code, expected) in [
        (&["--net", "vgg61"][..], 2, "vgg16"),
        (&["--net", "vgg16", "--layers", "--energy-share", "2"], 2, "between 0 and 1"),
        (&["--net", "nowhere.toml"], 1, "nowhere.toml"),
    ] {
        fails(&[&["measure", "--device", "fake", "--out", nowhere], arguments].concat(), code, expected);
    }
    assert!(!std::path::Path::new(nowhere).exists(), "nothing written");
}

#[test]
fn a_shipped_calibration_is_explained() {
    let output = run(&["show", "v100", "--kind", "linear"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for part in ["gv100-imported-1", "cuDNN", "t_ref", "linear forward fp32", "90 % of held-out rows"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}
