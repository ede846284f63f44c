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
    fails(&["status", "--dataset", nowhere], 1, "no dataset");
    fails(&["import", "deepbench", junk, "--dataset", nowhere], 1, "junk.xlsx");
    fails(&["import", "neusight", junk, "--dataset", nowhere], 1, "junk.xlsx");
    fails(&["import", "table", junk, "--dataset", nowhere], 1, "--mapping");
    fails(&["import", "deepbench", nowhere, "--dataset", nowhere], 1, "nowhere");
    fails(&["show", "v10000"], 1, "v10000");
    fails(&["import", "excel", junk], 2, "deepbench");
    fails(&["status", nowhere], 1, "no dataset");
    fails(&["plan", "--recipe", nowhere], 1, "nowhere");
    fails(&["plan", "--recipe", junk], 1, "junk.xlsx");
    fails(&["plan", "--level", "whole"], 2, "standard");
    fails(&["run", "--plan", "quik", "--device", "fake", "--dataset", nowhere], 1, "no plan quik");
    fails(&["run", "--plan", junk, "--device", "fake", "--dataset", nowhere], 1, "junk.xlsx");
    fails(&["run", "--plan", "quick", "--device", "gpu", "--dataset", nowhere], 2, "cuda");
    fails(&["run", "--plan", "quick", "--device", "fake", "--gpu", "h2000", "--dataset", nowhere], 1, "h200");
    fails(&["run", "--plan", "quick", "--device", "fake", "--only", "rulu", "--dataset", nowhere], 2, "relu");
    assert!(!std::path::Path::new(nowhere).exists(), "nothing half-written");
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
