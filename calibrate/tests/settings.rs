//! Clocks and power limits of a run, and whole networks, on the fake device.

use joulecast_calibrate::campaign::trials::{self, Level};
use joulecast_calibrate::rows::dataset;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const RECIPE: &str = r#"
schema = "plan/1"
seed = 5
gpu = "h200"
networks = 0.0
batch = [1, 64]
memory = "6 GiB"
shortest = "1 us"
longest = "20 ms"
ranges = { channels = [3, 1024], side = [7, 112], features = [64, 8192], tokens = [16, 512], parameters = [1000, 10000000] }

[[stratum]]
kinds = ["linear"]
phases = ["forward"]
precisions = ["fp32"]
count = { quick = 3, standard = 3, reference = 3 }
"#;

fn calibrate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_calibrate")).args(arguments).output().expect("the program starts")
}

fn run(folder: &Path, more: &[&str]) -> Output {
    let plan = folder.join("plan.jsonl");
    let expanded = trials::expand(RECIPE, Level::Reference).expect("expands");
    fs::write(&plan, trials::file::to_text(&expanded).expect("json")).expect("written");
    let (plan, rows) = (plan.display().to_string(), folder.join("rows").display().to_string());
    let mut arguments = vec!["run", "--plan", &plan, "--device", "fake", "--dataset", &rows];
    arguments.extend(more);
    calibrate(&arguments)
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_sweep_measures_every_trial_at_every_point() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["--clocks", "1980,990", "--power-caps", "700,400"]);
    assert!(output.status.success(), "{}", said(&output.stderr));
    let rows = dataset::read(&folder.path().join("rows")).expect("rows");
    assert_eq!(rows.len(), 3 * 4);
    for row in &rows {
        assert_eq!(row.core_mhz_requested, row.core_mhz_mean.map(f64::round), "{}", row.row_id);
    }
    let mut limits: Vec<Option<f64>> = rows.iter().map(|r| r.power_limit_w).collect();
    limits.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    limits.dedup();
    assert_eq!(limits, [Some(400.0), Some(700.0)]);
}

#[test]
fn a_dry_run_lists_the_calls_and_measures_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["--clocks", "990", "--dry-run"]);
    assert!(output.status.success(), "{}", said(&output.stderr));
    assert!(said(&output.stdout).contains("990"), "{}", said(&output.stdout));
    assert!(!folder.path().join("rows").exists());
    let output = run(folder.path(), &["--dry-run"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn without_permission_the_device_is_observed_and_the_exit_status_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["--clocks", "990", "--fault", "permission"]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output.stderr));
    assert!(said(&output.stderr).contains("nothing was set"), "{}", said(&output.stderr));
    let rows = dataset::read(&folder.path().join("rows")).expect("rows");
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|r| r.core_mhz_requested.is_none()));
}

#[test]
fn a_clock_off_the_grid_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["--clocks", "991", "--dry-run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output.stderr).contains("990"), "{}", said(&output.stderr));
}

#[test]
fn networks_are_measured_whole_and_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("runs.csv").display().to_string();
    let measure = |more: &[&str]| {
        let mut arguments = vec!["measure", "--device", "fake", "--out", &out, "--net", "resnet18,nin"];
        arguments.extend(more);
        let output = calibrate(&arguments);
        assert!(output.status.success(), "{}", said(&output.stderr));
        said(&output.stdout)
    };
    assert!(measure(&["--batch", "4", "--mode", "inference,training"]).contains("8 rows added"));
    let text = measure(&["--batch", "4,8", "--mode", "inference,training"]);
    assert!(text.contains("8 rows added") && text.contains("8 were there"), "{text}");
    let table = fs::read_to_string(&out).expect("a table");
    assert_eq!(table.lines().count(), 17);
}

#[test]
fn layers_of_a_network_are_measured_one_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("layers.csv").display().to_string();
    let arguments = ["measure", "--layers", "--device", "fake", "--out", &out, "--net", "nin", "--batch", "4"];
    let output = calibrate(&[&arguments[..], &["--precision", "fp32", "--energy-share", "0.5"]].concat());
    assert!(output.status.success(), "{}", said(&output.stderr));
    let mut reader = csv::Reader::from_path(&out).expect("a table");
    let header = reader.headers().expect("a header").clone();
    let column = |name: &str| header.iter().position(|h| h == name).expect("the column");
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("rows");
    assert!(rows.len() > 10);
    assert!(rows.iter().all(|r| r[column("time_us")].parse::<f64>().is_ok_and(|t| t > 0.0)));
    let with_power = rows.iter().filter(|r| !r[column("watts")].is_empty()).count();
    assert!(with_power > 0 && with_power < rows.len());
}
