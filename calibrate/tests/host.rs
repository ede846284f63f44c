//! `calibrate host` as a user runs it, on chains that were recorded (made of the profile's table times 0.8, 1.1 and 1.25).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host_chains.json");

/// With a configuration folder, whatever the home of who runs tests holds.
fn host(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
    command.env("XDG_CONFIG_HOME", folder).arg("host").args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn recorded_chains_become_the_user_s_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = host(folder.path(), &["--from", RECORDED]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let path = folder.path().join("joulecast/host.toml");
    let file = fs::read_to_string(&path).expect("written");
    for expected in ["schema = \"host/1\"", "cpu = \"Recorded CPU @ 3.1 GHz\"", "rounds = 12", "inference = 0.79"] {
        assert!(file.contains(expected), "{expected}: {file}");
    }
    assert!(shown.contains("autocast") && shown.contains("1.25") && shown.contains("take from now on"), "{shown}");
    assert_eq!(shown.lines().last(), Some("predict --net resnet50 --gpu h200 --framework pytorch"), "{shown}");
    // The same again changes nothing, another is not written over unasked.
    assert!(text(&host(folder.path(), &["--from", RECORDED]).stdout).contains("unchanged"));
    fs::write(&path, "other").expect("written");
    let output = host(folder.path(), &["--from", RECORDED]);
    assert!(!output.status.success() && text(&output.stderr).contains("--force"), "{}", text(&output.stderr));
    assert!(host(folder.path(), &["--from", RECORDED, "--force"]).status.success());
    assert_eq!(fs::read_to_string(&path).expect("written"), file);
    let out = folder.path().join("mine.toml").display().to_string();
    let shown = text(&host(folder.path(), &["--from", RECORDED, "--out", &out]).stdout);
    assert!(shown.trim_end().ends_with(&format!("--host {out}")), "{shown}");
}

#[cfg(unix)]
#[test]
fn a_python_measures_where_it_can_and_says_why_where_not() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let python = folder.path().join("python");
    let program = |body: &str| {
        fs::write(&python, format!("#!/bin/sh\n{body}\n")).expect("written");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("its own file");
        host(folder.path(), &["--python", &python.display().to_string(), "--seconds", "1"])
    };
    let output =
        program("cat > /dev/null; echo 'Traceback' >&2; echo \"torch_host: No module named 'torch'\" >&2; exit 1");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let error: Vec<&str> = said.lines().filter(|line| line.contains("error")).collect();
    assert!(error.len() == 1 && error[0].contains("No module named 'torch'"), "{said}");
    assert!(!folder.path().join("joulecast/host.toml").exists());
    // The script that it is given is the one of the tools.
    let script = folder.path().join("script.py");
    let output = program(&format!("cat > {}; cat {RECORDED}", script.display()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(folder.path().join("joulecast/host.toml").exists());
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../machine/tools/torch_host.py");
    assert_eq!(fs::read(script).expect("given"), fs::read(tool).expect("a tool"));
    let output = program("cat > /dev/null; echo nonsense");
    assert!(text(&output.stderr).contains("--force"), "a file is there, so nothing is measured");
}

#[test]
fn visits_are_told_apart_and_a_host_is_judged_by_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = folder.path().join("runs.csv");
    let row = |ms: f64, visit: u32| format!("mobilenet_v2,infer,tf32,1,eager,{ms},,1980,NVIDIA H200,2.11.0,{visit}\n");
    let header = "network,mode,precision,batch,launch,ms_per_iter,watts,sm_mhz_mean,device,torch,visit\n";
    fs::write(&runs, format!("{header}{}{}", row(2.0, 1), row(4.0, 2))).expect("written");
    let runs = runs.display().to_string();
    let output = host(folder.path(), &["--runs", &runs]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let medians: Vec<f64> = shown
        .lines()
        .filter(|line| line.contains("runs.csv"))
        .map(|line| line.split_whitespace().nth(4).expect("a median").parse().expect("a number"))
        .collect();
    assert!(medians.len() == 2 && (medians[1] / medians[0] - 2.0).abs() < 0.02, "{shown}");
    // On a host that is slower, runs are faster than foreseen.
    let out = folder.path().join("mine.toml").display().to_string();
    assert!(host(folder.path(), &["--from", RECORDED, "--out", &out]).status.success());
    let shown = text(&host(folder.path(), &["--runs", &runs, "--host", &out]).stdout);
    let first = shown.lines().find(|line| line.contains("runs.csv")).expect("a visit");
    let median: f64 = first.split_whitespace().nth(4).expect("a median").parse().expect("a number");
    let record = fs::read_to_string(&out).expect("written");
    let factor = record.parse::<toml::Table>().expect("TOML")["factor"]["inference"].as_float().expect("a number");
    assert!((median * factor / medians[0] - 1.0).abs() < 0.02, "{median} {medians:?} {factor}");
}
