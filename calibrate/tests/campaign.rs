//! A measuring campaign from the plan to the fit, on the fake device.

use joulecast_calibrate::campaign::device::Device;
use joulecast_calibrate::campaign::run::progress::Progress;
use joulecast_calibrate::campaign::run::{ApplyPoint, AsFound, Which};
use joulecast_calibrate::campaign::trials::{self, Level, Measure, Plan};
use joulecast_calibrate::campaign::{device, run};
use joulecast_calibrate::rows::dataset;
use joulecast_calibrate::rows::journal::Journal;
use joulecast_calibrate::rows::writer::Writer;
use joulecast_kernels::ClockControl as _;
use joulecast_kernels::fake::law::Effort;
use joulecast_kernels::fake::{FakeGpu, Faults};
use joulecast_kernels::measure::Rules;
use joulecast_kernels::settings::Point;
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shard::Shard;
use joulecast_model::base::units::{Hertz, Seconds};
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::kernel::work::Trial;
use joulecast_model::law::calibration::{Calibration, LayerModel};
use joulecast_model::rows::measurement::{Measurement, Regime};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const RECIPE: &str = r#"
schema = "plan/1"
seed = 11
gpu = "h200"
networks = 0.3
batch = [1, 256]
memory = "6 GiB"
shortest = "1 us"
longest = "20 ms"
ranges = { channels = [3, 1024], side = [7, 112], features = [64, 8192], tokens = [16, 512], parameters = [1000, 10000000] }

[[stratum]]
kinds = ["linear"]
phases = ["forward"]
precisions = ["fp32"]
count = { quick = 4, standard = 130, reference = 170 }

[[stratum]]
kinds = ["relu"]
phases = ["forward"]
precisions = ["fp32"]
count = { quick = 4, standard = 80, reference = 110 }

[[stratum]]
kinds = ["batch_norm"]
phases = ["forward"]
precisions = ["fp32"]
mode = "training"
count = { quick = 2, standard = 4, reference = 4 }

[[stratum]]
kinds = ["conv2d"]
phases = ["forward"]
precisions = ["fp32"]
algorithms = ["winograd", "fft"]
count = { quick = 1, standard = 2, reference = 2 }

[[stratum]]
kinds = ["linear"]
phases = ["update"]
precisions = ["fp32"]
optimizers = ["sgd", "adam"]
count = { quick = 1, standard = 2, reference = 2 }

[[stratum]]
kinds = ["conv2d"]
phases = ["forward"]
precisions = ["bf16"]
measure = "energy"
count = { quick = 3, standard = 4, reference = 4 }
shortest = "200 us"
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
    /// The expanded plan of a level, and its file.
    fn plan(&self, level: Level) -> (Plan, String) {
        let plan = trials::expand(RECIPE, level).expect("expands");
        let name = format!("{}.jsonl", level.name());
        fs::write(self.path(&name), trials::file::to_text(&plan).expect("json")).expect("written");
        (plan, self.text(&name))
    }
    fn rows(&self) -> Vec<Measurement> {
        dataset::read(&self.path("rows")).expect("a dataset")
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_calibrate"))
}

fn calibrate(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(arguments: &[&str]) -> String {
    let output = calibrate(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// `calibrate run` on the fake.
fn run_fake(folder: &Folder, plan: &str, more: &[&str]) -> Output {
    let rows = folder.text("rows");
    let mut arguments = vec!["run", "--plan", plan, "--device", "fake", "--dataset", &rows];
    arguments.extend(more);
    calibrate(&arguments)
}

fn run_well(folder: &Folder, plan: &str, more: &[&str]) -> String {
    let output = run_fake(folder, plan, more);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn status(folder: &Folder) -> serde_json::Value {
    serde_json::from_str(&succeeds(&["status", &folder.text("rows"), "--format", "json"])).expect("JSON")
}

fn expected_rows(plan: &Plan) -> usize {
    plan.count(Measure::Time) + 2 * plan.count(Measure::Energy)
}

/// One row per trial, repeat and regime, and none missing.
fn assert_complete(folder: &Folder, plan: &Plan) {
    let rows = folder.rows();
    let keys: HashSet<(&str, u32, Regime)> = rows.iter().map(|r| (r.trial_id.as_str(), r.repeat, r.regime)).collect();
    assert_eq!((rows.len(), keys.len()), (expected_rows(plan), expected_rows(plan)));
}

#[test]
fn a_plan_is_tabled_and_written() {
    let folder = Folder::new();
    let recipe = folder.path("recipe.toml");
    fs::write(&recipe, RECIPE).expect("written");
    let out = folder.text("quick.jsonl");
    let text = succeeds(&["plan", "--recipe", &recipe.display().to_string(), "--level", "quick", "--out", &out]);
    assert!(text.contains("linear forward fp32") && text.contains("14 trials of time, 3 of time and energy"), "{text}");
    assert_eq!(Plan::named(&out).expect("reads"), trials::expand(RECIPE, Level::Quick).expect("expands"));
}

#[test]
fn a_run_ends_with_its_budget_and_goes_on_where_it_stopped() {
    let folder = Folder::new();
    let (plan, file) = folder.plan(Level::Quick);
    // The budget counts the fake's virtual seconds.
    let first = run_well(&folder, &file, &["--budget", "3"]);
    assert!(first.contains("the budget ended"), "{first}");
    let begun = folder.rows().len();
    assert!(begun > 0 && begun < expected_rows(&plan), "{begun}");
    let second = run_well(&folder, &file, &[]);
    assert!(second.contains("were there already"), "{second}");
    assert_complete(&folder, &plan);
    let third = run_well(&folder, &file, &[]);
    assert!(third.starts_with("0 rows written"), "{third}");
    assert_complete(&folder, &plan);
    let names: HashSet<String> = fs::read_dir(folder.path("rows"))
        .expect("a folder")
        .map(|f| f.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    for name in ["fake-001.parquet", "fake-001.parquet.sha256", "fake-002.parquet", "fake.runs.jsonl"] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    assert!(!names.iter().any(|n| n.ends_with(".rows")), "{names:?}");
}

#[test]
fn rows_say_what_ran_where_and_that_it_was_simulated() {
    let folder = Folder::new();
    let (plan, file) = folder.plan(Level::Quick);
    run_well(&folder, &file, &[]);
    let rows = folder.rows();
    for row in &rows {
        assert_eq!((row.source.as_str(), row.gpu.as_str(), row.campaign.as_str()), ("fake", "h200", "fake"));
        assert_eq!(row.plan_id.as_deref(), Some(plan.id.as_str()));
        assert!(row.cache.is_some() && row.core_mhz_mean.is_some() && row.n.is_some_and(|n| n >= 5));
        assert!(row.work().and_then(|w| w.cost()).expect("fits").is_some(), "the row tells what ran: {row:?}");
        assert_eq!(row.energy_j.is_some(), row.regime == Regime::Sustained);
    }
    let of = |phase: Phase| rows.iter().filter(move |r| r.phase == phase);
    let optimizers: HashSet<&str> = of(Phase::Update).filter_map(|r| Some(r.optimizer?.name())).collect();
    assert_eq!(optimizers, HashSet::from(["sgd", "adam"]));
    assert!(of(Phase::Update).all(|r| r.algo.is_none() && r.algorithm.is_none()));
    let normalized: Vec<&Measurement> = rows.iter().filter(|r| r.case.layer.kind() == "batch_norm").collect();
    assert!(normalized.iter().all(|r| r.mode == Some(Mode::Training)));
    let sustained: Vec<&Measurement> = rows.iter().filter(|r| r.regime == Regime::Sustained).collect();
    for row in sustained {
        let (energy, power) = (row.energy_j.expect("energy"), row.power_w.expect("power"));
        assert!((energy / (power * row.time_s) - 1.0).abs() < 1e-9);
        assert!(row.window_s.is_some_and(|w| w > 1.4) && row.energy_method.as_deref() == Some("counter_ticks"));
    }
}

#[test]
fn a_status_tells_quality() {
    let folder = Folder::new();
    let (plan, file) = folder.plan(Level::Quick);
    run_well(&folder, &file, &["--repeat", "2"]);
    let status = status(&folder);
    assert_eq!(status["rows"], 2 * expected_rows(&plan));
    assert_eq!(status["trials"], plan.items.len());
    assert_eq!(status["repeats"]["pairs"], expected_rows(&plan));
    let near = |value: &serde_json::Value, most: f64| value.as_f64().is_some_and(|v| v > 0.0 && v < most);
    assert!(near(&status["repeats"]["time"], 0.01), "{status}");
    assert!(near(&status["repeats"]["energy"], 0.01), "{status}");
    assert_eq!(status["cross_check"]["within_2_percent"], 1.0);
    assert_eq!(status["clocks"]["pairs"], 2 * plan.count(Measure::Energy));
    assert!(near(&status["spread"]["p50"], 0.04));
    let ceiling = |precision: &str| {
        let list = status["ceilings"].as_array().expect("a list").iter();
        list.clone().find(|c| c["precision"] == precision).expect("measured")["tflop_per_s"].as_f64().expect("a number")
    };
    assert!(ceiling("bf16") > ceiling("fp32") && ceiling("bf16") < 1071.0);
    assert!(status["runs"]["rows_per_minute"].as_f64().is_some_and(|r| r > 1.0));
    let rows = folder.text("rows");
    let table = succeeds(&["status", &rows]);
    assert!(table.contains("conv2d") && table.contains("repeats on one board: median difference"), "{table}");
    assert!(succeeds(&["status", "--dataset", &rows, "--format", "markdown"]).contains("| h200 | conv2d |"));
}

#[test]
fn a_journal_that_was_cut_off_is_recovered_and_its_trial_measured_again() {
    let folder = Folder::new();
    let (plan, file) = folder.plan(Level::Quick);
    run_well(&folder, &file, &[]);
    let rows = folder.rows();
    fs::remove_dir_all(folder.path("rows")).expect("removed");
    let writer = Writer::open(&folder.path("rows")).expect("nobody else writes");
    let mut journal = Journal::begin(&writer, "fake").expect("begins");
    for row in &rows[..5] {
        journal.append(std::slice::from_ref(row)).expect("written");
    }
    drop((journal, writer));
    let path = folder.path("rows/fake-001.rows");
    let bytes = fs::read(&path).expect("a journal");
    fs::write(&path, &bytes[..bytes.len() - 20]).expect("cut");
    let output = run_fake(&folder, &file, &[]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("fake-001.rows: line 5 is cut off"), "{said}");
    assert_complete(&folder, &plan);
}

/// Waits until a running campaign has rows on disk.
fn wait_for_rows(folder: &Folder, child: &mut Child) {
    let path = folder.path("rows/fake-001.rows");
    for _ in 0..6000 {
        if fs::read(&path).is_ok_and(|bytes| bytes.iter().filter(|b| **b == b'\n').count() >= 3) {
            return;
        }
        assert!(child.try_wait().expect("a process").is_none(), "the run ended before it was killed");
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no row after two minutes");
}

fn start(folder: &Folder, plan: &str) -> Child {
    program()
        .args(["run", "--plan", plan, "--device", "fake", "--dataset", &folder.text("rows")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

#[test]
fn a_killed_run_keeps_its_rows() {
    let folder = Folder::new();
    let mut child = start(&folder, "reference");
    wait_for_rows(&folder, &mut child);
    let live = status(&folder)["rows"].as_u64().expect("a number");
    assert!(folder.path("rows/fake-001.rows").exists(), "a journal that grows is left alone");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let kept = status(&folder)["rows"].as_u64().expect("a number");
    assert!(kept >= live && live >= 3);
    assert!(folder.path("rows/fake-001.parquet").exists());
    let more = run_well(&folder, "reference", &["--budget", "2"]);
    assert!(more.contains("were there already"), "{more}");
    let rows = folder.rows();
    let keys: HashSet<&str> = rows.iter().map(|r| r.row_id.as_str()).collect();
    assert_eq!(keys.len(), rows.len(), "no trial twice");
    assert!(rows.len() as u64 > kept);
}

#[cfg(unix)]
#[test]
fn the_interrupt_key_ends_a_run_after_the_trial_in_hand() {
    let folder = Folder::new();
    let mut child = start(&folder, "reference");
    wait_for_rows(&folder, &mut child);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("interrupted: "), "{}", text(&output.stdout));
    assert!(folder.path("rows/fake-001.parquet").exists() && !folder.path("rows/fake-001.rows").exists());
}

#[test]
fn a_lost_gpu_ends_the_run_and_keeps_what_was_measured() {
    let folder = Folder::new();
    let (plan, file) = folder.plan(Level::Quick);
    // Trials of time take about a dozen calls each.
    let output = run_fake(&folder, &file, &["--time-only", "--fault", "lost_after=100"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("device lost") && error.contains("rows are kept"), "{error}");
    let kept = folder.rows().len();
    assert!(kept > 0 && kept < expected_rows(&plan));
    run_well(&folder, &file, &[]);
    assert_complete(&folder, &plan);
}

#[test]
fn a_frozen_counter_and_drifting_power_are_flagged() {
    for (fault, flag) in [("frozen_counter", "counter_frozen"), ("drifting", "drifting")] {
        let folder = Folder::new();
        let (plan, file) = folder.plan(Level::Quick);
        run_well(&folder, &file, &["--energy-only", "--fault", fault]);
        let rows = folder.rows();
        let flagged: Vec<&Measurement> = rows.iter().filter(|r| r.flags.iter().any(|f| f == flag)).collect();
        assert_eq!(flagged.len(), plan.count(Measure::Energy), "{flag}");
        assert!(flagged.iter().all(|r| r.regime == Regime::Sustained && r.time_s > 0.0));
        let status = status(&folder);
        assert_eq!(status["flags"][0]["flag"], flag);
        assert_eq!(status["flags"][0]["rows"], flagged.len());
    }
}

#[test]
fn what_cannot_run_is_skipped_with_its_reason() {
    let folder = Folder::new();
    let (plan, file) = folder.plan(Level::Quick);
    let faults = ["--fault", "unsupported=relu", "--fault", "memory=50000000"];
    let said = run_well(&folder, &file, &faults);
    let status = status(&folder);
    let skipped = &status["skipped"];
    assert_eq!(skipped["unsupported"], 4, "{said}");
    let large = plan
        .items
        .iter()
        .filter(|i| i.trial.case.layer.kind() != "relu" && i.trial.footprint().expect("fits").get() > 50_000_000);
    assert_eq!(skipped["out_of_memory"], large.count(), "{said}");
    let file_text = fs::read_to_string(folder.path("rows/fake.skipped.jsonl")).expect("a side file");
    assert!(file_text.contains("refused on request") && file_text.contains("bytes of device memory"), "{file_text}");
    // They are not tried again unless asked for.
    assert!(run_well(&folder, &file, &[]).starts_with("0 rows written"));
    assert!(!run_well(&folder, &file, &["--retry-skipped"]).starts_with("0 rows written"));
    assert_complete(&folder, &plan);
}

#[test]
fn a_damaged_segment_is_named() {
    let folder = Folder::new();
    let (_, file) = folder.plan(Level::Quick);
    run_well(&folder, &file, &["--time-only"]);
    let segment = folder.path("rows/fake-001.parquet");
    let mut bytes = fs::read(&segment).expect("a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&segment, bytes).expect("written");
    let rows = folder.text("rows");
    for arguments in [vec!["status", &rows], vec!["fit", "--dataset", &rows]] {
        let output = calibrate(&arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(error.contains("fake-001.parquet is damaged"), "{error}");
    }
}

#[test]
fn kinds_and_measures_can_be_chosen() {
    let folder = Folder::new();
    let (_, file) = folder.plan(Level::Quick);
    run_well(&folder, &file, &["--only", "relu", "batch_norm", "--campaign", "mine"]);
    let rows = folder.rows();
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|r| ["relu", "batch_norm"].contains(&r.case.layer.kind()) && r.campaign == "mine"));
    for (mistake, expected) in [
        (vec!["--only", "rulu"], "relu"),
        (vec!["--campaign", "../x"], "campaign"),
        (vec!["--budget", "0"], "--budget"),
        (vec!["--gpu", "h2000"], "h200"),
        (vec!["--energy-only", "--time-only"], "--time-only"),
        (vec!["--fault", "gremlins"], "gremlins"),
    ] {
        let output = run_fake(&folder, &file, &mistake);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{error}");
    }
}

/// Sets the fake's clock.
struct Locks(FakeGpu);

impl ApplyPoint for Locks {
    fn apply(&mut self, point: Point) -> anyhow::Result<()> {
        Ok(self.0.lock_core_clock(point.core)?)
    }
}

/// Tells nobody.
struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _: usize) {}
    fn done(&mut self, _: usize, _: usize) {}
    fn say(&mut self, _: &str) {}
    fn finish(&mut self) {}
}

#[test]
fn every_operating_point_has_its_rows() {
    let folder = Folder::new();
    let (plan, _) = folder.plan(Level::Quick);
    let gpu = device::described("h200").expect("in the catalog");
    let fake = FakeGpu::new(&gpu, 3, Faults::default());
    let options = run::Options {
        campaign: "clocks".into(),
        budget: None,
        repeats: 1,
        only: vec!["linear".into()],
        which: Which::Time,
        retry_skipped: false,
        rules: Rules::default(),
        shard: Shard::default(),
    };
    let slow = Hertz::from_mhz(990.0);
    let points = [Point::default(), Point { core: Some(slow), power_limit: None }];
    let measure = |points: &[Point], settings: &mut dyn ApplyPoint| {
        let mut device = Device::of_fake(&fake, gpu.clone());
        let writer = Writer::open(&folder.path("rows")).expect("nobody else writes");
        run::run(&plan, &mut device, points, settings, (&options, &writer), &mut Silent)
    };
    let outcome = measure(&points, &mut Locks(fake.clone())).expect("runs");
    assert_eq!((outcome.rows, outcome.flagged), (12, 0));
    let rows = folder.rows();
    let (locked, free): (Vec<&Measurement>, Vec<&Measurement>) =
        rows.iter().partition(|r| r.core_mhz_requested.is_some());
    assert_eq!((locked.len(), free.len()), (6, 6));
    for row in &locked {
        assert_eq!(row.core_mhz_mean.map(f64::round), Some(990.0));
        assert!(row.row_id.ends_with("@990MHz"), "{}", row.row_id);
        let other = free.iter().find(|r| r.trial_id == row.trial_id).expect("a pair");
        assert!(row.time_s > other.time_s * 0.97, "a lower clock is no faster");
    }
    assert!(locked.iter().any(|r| free.iter().any(|f| f.trial_id == r.trial_id && r.time_s > f.time_s * 1.5)));
    assert_eq!(measure(&points, &mut Locks(fake.clone())).expect("runs").known, 12);
    let third = [Point { core: Some(Hertz::from_mhz(1500.0)), power_limit: None }];
    assert!(measure(&third, &mut AsFound).is_err(), "a run that sets nothing refuses");
}

/// What a layer model of a calibration predicts for a trial.
fn predicted(model: &LayerModel, trial: &Trial) -> Seconds {
    let gpu = device::described("h200").expect("in the catalog");
    let cost = trial.cost().expect("fits").expect("runs");
    let view = model.view(trial.clone(), cost, &gpu, None, None).expect("a peak");
    model.expects(view.seen()).time()
}

#[test]
fn a_fit_to_a_campaign_finds_the_law_that_the_device_obeys() {
    let folder = Folder::new();
    let (standard, file) = folder.plan(Level::Standard);
    run_well(&folder, &file, &["--time-only"]);
    let out = folder.text("fits");
    succeeds(&["fit", "--dataset", &folder.text("rows"), "--out", &out]);
    let text = fs::read_to_string(Path::new(&out).join("gh100.toml")).expect("a calibration of the chip");
    let calibration = Calibration::from_toml(&text).expect("reads");
    let known: HashSet<&str> = standard.items.iter().map(|i| i.trial_id.as_str()).collect();
    let held_out: Vec<Trial> = trials::expand(RECIPE, Level::Reference)
        .expect("expands")
        .items
        .into_iter()
        .filter(|i| !known.contains(i.trial_id.as_str()))
        .map(|i| i.trial)
        .collect();
    let gpu = device::described("h200").expect("in the catalog");
    for kind in ["linear", "relu"] {
        let model = calibration
            .models
            .iter()
            .find(|m| m.is_for(ModelKey::Kind(kind), Phase::Forward, Precision::Fp32, None))
            .unwrap_or_else(|| panic!("a model of {kind}"));
        let trials: Vec<&Trial> = held_out.iter().filter(|t| t.case.layer.kind() == kind).collect();
        assert!(trials.len() >= 25, "{kind}: {}", trials.len());
        let mut errors: Vec<f64> = trials
            .iter()
            .map(|t| (predicted(model, t) / Effort::of_trial(t, &gpu).expect("runs").time(1.0) - 1.0).abs())
            .collect();
        errors.sort_by(f64::total_cmp);
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.03, "{kind}: mean {mean}, {errors:?}");
    }
}
