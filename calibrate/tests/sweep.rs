//! `calibrate sweep` on the fake device: along limits and clocks to the least of a metric.

use joulecast_calibrate::campaign::device::Device;
use joulecast_calibrate::campaign::limits::{Permission, Settings};
use joulecast_calibrate::campaign::measure::curve::CurveRow;
use joulecast_calibrate::campaign::run::ApplyPoint;
use joulecast_kernels::ClockControl;
use joulecast_kernels::fake::{FakeGpu, Faults};
use joulecast_kernels::settings::Point;
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::catalog;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A sweep of ResNet-18 at batch 64 into a folder.
fn sweep(folder: &Path, more: &[&str]) -> Output {
    let out = folder.join("rows.csv").display().to_string();
    let mut arguments = vec!["sweep", "--net", "resnet18", "--batch", "64", "--device", "fake", "--out", &out];
    arguments.extend(more);
    Command::new(env!("CARGO_BIN_EXE_calibrate")).args(arguments).output().expect("the program starts")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn well(folder: &Path, more: &[&str]) -> String {
    let output = sweep(folder, more);
    assert!(output.status.success(), "{}", said(&output.stderr));
    said(&output.stdout)
}

fn rows(folder: &Path) -> Vec<CurveRow> {
    let mut reader = csv::Reader::from_path(folder.join("rows.csv")).expect("a table");
    reader.deserialize().collect::<Result<_, _>>().expect("rows")
}

/// The row with the least energy.
fn least(rows: &[CurveRow]) -> &CurveRow {
    let energy = |row: &CurveRow| row.energy_j.expect("an energy");
    rows.iter().min_by(|a, b| energy(a).total_cmp(&energy(b))).expect("rows")
}

const CLOCKS: [&str; 4] = ["--over", "clock", "--step", "30"];

#[test]
fn the_least_is_found_in_fewer_points_than_there_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let figure = folder.path().join("curves.svg").display().to_string();
    let text = well(folder.path(), &[&CLOCKS[..], &["--figure", &figure]].concat());
    let searched = rows(folder.path());
    assert_eq!((searched[0].clock_mhz, searched[0].power_cap_w), (None, None), "the default comes first");
    for row in &searched[1..] {
        // The power limit may hold the highest clocks back.
        assert!(row.clock_mhz.zip(row.core_mhz_mean).is_some_and(|(asked, found)| found < asked + 0.5), "{row:?}");
    }
    assert!(searched.len() < 30, "{} of 55 points", searched.len());
    // Walked through clock by clock about the least, nothing is better than what the search found.
    let best = least(&searched).clock_mhz.expect("below the default");
    let whole = tempfile::tempdir().expect("a folder");
    let list: Vec<String> = (-3..=4).map(|i| (best + 30.0 * f64::from(i)).to_string()).collect();
    well(whole.path(), &["--over", "clock", "--patience", "100", "--points", &list.join(",")]);
    let (found, near) = (least(&searched).energy_j.expect("one"), rows(whole.path()));
    assert_eq!(near.len(), 9, "few points are all measured");
    assert!(found <= least(&near).energy_j.expect("one") * 1.005);
    assert!(text.contains("least energy measured: ") && text.contains("least energy predicted: "), "{text}");
    let figure = fs::read_to_string(figure).expect("a figure");
    assert!(figure.contains("measured (marks)") && figure.contains("core clock, MHz"));
}

#[test]
fn limits_are_swept_and_a_sweep_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--over", "cap", "--from", "650", "--to", "250", "--step", "50", "--metric", "edp"];
    let first = well(folder.path(), &arguments);
    let path = folder.path().join("rows.csv");
    let table = fs::read_to_string(&path).expect("a table");
    assert!(
        rows(folder.path())[1..].iter().all(|r| r.power_cap_w.zip(r.power_w).is_some_and(|(cap, p)| p < cap * 1.01))
    );
    let again = well(folder.path(), &arguments);
    assert!(again.contains(": 0 rows added"), "{again}");
    assert_eq!(fs::read_to_string(&path).expect("a table"), table);
    // Two rows and a piece of the third, as a killed sweep leaves them.
    let lines: Vec<&str> = table.lines().collect();
    fs::write(&path, lines[..3].join("\n") + "\n" + &lines[3][..20]).expect("written");
    let resumed = well(folder.path(), &arguments);
    assert!(resumed.contains(", 2 were there"), "{resumed}");
    let (before, after) = (lines.len(), fs::read_to_string(&path).expect("a table").lines().count());
    assert_eq!(before, after, "{first}");
}

#[test]
fn repeats_are_rows_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    well(folder.path(), &["--over", "cap", "--points", "500", "--repeat", "3"]);
    let repeats: Vec<u32> = rows(folder.path()).iter().map(|r| r.repeat).collect();
    assert_eq!(repeats, [1, 2, 3, 1, 2, 3]);
}

#[test]
fn a_dry_run_lists_and_measures_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = well(folder.path(), &["--over", "cap", "--points", "500,400", "--dry-run"]);
    assert!(text.contains("500 W") && text.contains("400 W"), "{text}");
    assert!(!folder.path().join("rows.csv").exists());
    let refused = sweep(folder.path(), &["--over", "clock", "--points", "991"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused.stderr).contains("990"), "the nearest is named");
    assert!(!folder.path().join("rows.csv").exists(), "nothing is measured before all settings are known to be there");
}

#[test]
fn without_permission_the_default_is_observed() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = sweep(folder.path(), &["--over", "cap", "--points", "500", "--fault", "permission"]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output.stderr));
    assert!(said(&output.stderr).contains("nothing was set"), "{}", said(&output.stderr));
    let rows = rows(folder.path());
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].power_cap_w, None);
}

#[test]
fn a_lost_gpu_ends_the_sweep_and_keeps_its_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--over", "cap", "--points", "600,500,400"];
    let output = sweep(folder.path(), &[&arguments[..], &["--fault", "lost_after=3000"]].concat());
    let error = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("device lost") && error.contains("not restored"), "{error}");
    let kept = rows(folder.path()).len();
    assert!((1..4).contains(&kept), "{kept}");
    assert!(well(folder.path(), &arguments).contains(&format!(", {kept} were there")));
}

#[test]
fn what_was_found_is_restored() {
    let gpu = catalog::gpu("h200").expect("in the catalog");
    let mut fake = FakeGpu::new(&gpu, 1, Faults::default());
    fake.set_power_limit(Watts::new(650.0)).expect("permitted");
    let found = fake.settings().expect("answers");
    let device = Device::of_fake(&fake, gpu);
    let point = Point { core: Some(Hertz::from_mhz(990.0)), power_limit: Some(Watts::new(400.0)) };
    let Permission::Given(mut settings) = Settings::begin(&device, None, Some(point)).expect("begins") else {
        panic!("permission is given");
    };
    assert_eq!(fake.settings().expect("answers").power_limit, Watts::new(400.0));
    settings.apply(Point::default()).expect("permitted");
    assert_eq!(fake.settings().expect("answers"), found, "the default is what was found, not what was set before");
    settings.apply(point).expect("permitted");
    settings.finish().expect("restores");
    assert_eq!(fake.settings().expect("answers"), found);
}
