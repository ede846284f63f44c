//! `calibrate all` on the fake device: from nothing to the line that predicts, stopped wherever it can be stopped.

use joulecast_calibrate::campaign::trials::{self, Level, Measure, Plan};
use joulecast_calibrate::judge::beside;
use joulecast_calibrate::rows::dataset;
use joulecast_calibrate::rows::writer::Writer;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::rows::measurement::Regime;
use joulecast_reports::beside::Line;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// As many rows as a fit needs where a fifth of them is left out, in two sizes.
const RECIPE: &str = r#"
schema = "plan/1"
seed = 5
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
count = { quick = 70, standard = 80, reference = 90 }

[[stratum]]
kinds = ["relu"]
phases = ["forward"]
precisions = ["fp32"]
count = { quick = 60, standard = 60, reference = 60 }

[[stratum]]
kinds = ["conv2d"]
phases = ["forward"]
precisions = ["bf16"]
measure = "energy"
count = { quick = 90, standard = 90, reference = 90 }
shortest = "100 us"
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
    fn command(&self, plan: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
        command.args(["all", "--device", "fake", "--plan", plan, "--out", &self.text("mine")]).args(more);
        command
    }
    fn run(&self, plan: &str, more: &[&str]) -> Output {
        self.command(plan, more).output().expect("the program starts")
    }
    /// What a call that succeeds prints, and what it tells meanwhile.
    fn succeeds(&self, plan: &str, more: &[&str]) -> (String, String) {
        let output = self.run(plan, more);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }
    /// What a call that fails tells.
    fn fails(&self, plan: &str, more: &[&str], code: i32) -> String {
        let output = self.run(plan, more);
        assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "no figure and no line to use");
        text(&output.stderr)
    }
    /// One row per trial and regime, and none missing.
    fn assert_complete(&self, plan: &Plan) {
        let rows = dataset::read(&self.path("mine/rows")).expect("a dataset");
        let keys: HashSet<(&str, Regime)> = rows.iter().map(|r| (r.trial_id.as_str(), r.regime)).collect();
        let expected = plan.count(Measure::Time) + 2 * plan.count(Measure::Energy);
        assert_eq!((rows.len(), keys.len()), (expected, expected), "no trial twice");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Every file with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).expect("readable")),
        }
    }
    found
}

/// Those that a step does again whenever rows are others.
fn made(all: &BTreeMap<PathBuf, Vec<u8>>) -> BTreeMap<&PathBuf, &Vec<u8>> {
    let of_rows = |path: &Path| path.components().any(|c| c.as_os_str() == "rows");
    all.iter().filter(|(path, _)| !of_rows(path) && !path.ends_with("all.json")).collect()
}

#[test]
fn all_ends_with_a_calibration_and_a_second_call_does_nothing() {
    let folder = Folder::new();
    let (plan, file) = folder.plan(Level::Quick);
    let (printed, told) = folder.succeeds(&file, &[]);
    folder.assert_complete(&plan);
    for step in
        ["1 of 4, measure: 130 trials of time, 90 of time and power", "2 of 4, fit: 310 rows", "3 of 4, judge: 5 fits"]
    {
        assert!(told.contains(step), "{told}");
    }
    let calibration = folder.path("mine/calibration/gh100.toml");
    let fitted = Calibration::from_toml(&fs::read_to_string(&calibration).expect("a fit")).expect("reads");
    assert_eq!((fitted.chip.as_str(), fitted.id.as_str()), ("GH100", "gh100-simulated-1"));
    let last = printed.lines().last().unwrap_or_default();
    let expected = format!("predict --gpu h200 --calibration {} --net resnet50 --batch 16", calibration.display());
    assert_eq!(last, expected);
    assert!(printed.contains("times were off by") && printed.contains("; power by"), "{printed}");
    assert!(printed.contains("says nothing of a real GPU"), "{printed}");
    let page = fs::read_to_string(folder.path("mine/report/report.html")).expect("a report");
    assert!(page.contains("calibrate all") && page.contains("relu"), "the page says what made it, and of what it is");
    assert!(!folder.path("mine/.making").exists());
    judged_by_unseen_shapes(&folder);
    // Nothing is measured, fitted, or written once more.
    let before = files(&folder.path("mine"));
    let (again, told) = folder.succeeds(&file, &[]);
    assert_eq!((&again, files(&folder.path("mine")) == before), (&printed, true));
    assert_eq!(told.matches(": done").count(), 4, "{told}");
}

/// The fake obeys a law of its own: a fit to its rows finds it, and what is shipped does not.
fn judged_by_unseen_shapes(folder: &Folder) {
    let rows = dataset::read(&folder.path("mine/rows")).expect("a dataset");
    let of = |kinds: &[&str], regime| {
        rows.iter().filter(|r| r.usable() && r.regime == regime && kinds.contains(&r.case.layer.kind())).count()
    };
    let lines: Vec<Line> =
        serde_json::from_str(&fs::read_to_string(folder.path("mine/judged.json")).expect("judged")).expect("JSON");
    let line = |name: &str| lines.iter().find(|l| l.rows_of == name).unwrap_or_else(|| panic!("{name}: {lines:?}"));
    for (name, kind) in [("matrix products", "linear"), ("memory-bound kinds", "relu"), ("convolutions", "conv2d")] {
        assert_eq!(line(name).rows, of(&[kind], Regime::Burst), "{name}");
    }
    assert_eq!(line("all").rows, of(&["linear", "relu", "conv2d"], Regime::Burst));
    assert!((60..=of(&["conv2d"], Regime::Sustained)).contains(&line("power").rows), "{lines:?}");
    for name in ["matrix products", "memory-bound kinds"] {
        let line = line(name);
        assert!(line.after.mape < line.before.mape / 2.0, "{line:?}");
        assert!(line.after.held.is_some_and(|held| (60.0..=100.0).contains(&held)), "{line:?}");
    }
}

/// Stopped by an obstacle before each of the steps, then let go.
#[test]
fn what_is_done_is_not_done_again_wherever_it_stopped() {
    let folder = Folder::new();
    let (plan, file) = folder.plan(Level::Quick);
    fs::create_dir(folder.path("mine")).expect("a folder");
    let block = |name: &str| fs::write(folder.path("mine").join(name), "in the way").expect("written");
    // A file where the folder of calibrations is to be; a folder where the judgement; a file where the report.
    block("calibration");
    fs::create_dir(folder.path("mine/judged.json")).expect("a folder");
    fs::write(folder.path("mine/judged.json/x"), "").expect("written");
    block("report");
    let told = folder.fails(&file, &[], 1);
    assert!(told.contains("2 of 4, fit") && told.contains("calibration") && !told.contains("3 of 4"), "{told}");
    folder.assert_complete(&plan);
    let rows = files(&folder.path("mine/rows"));
    fs::remove_file(folder.path("mine/calibration")).expect("removed");
    let told = folder.fails(&file, &[], 1);
    assert!(told.contains("1 of 4, measure: done") && told.contains("3 of 4, judge: 5 fits"), "{told}");
    let fits = files(&folder.path("mine/calibration"));
    fs::remove_dir_all(folder.path("mine/judged.json")).expect("removed");
    let told = folder.fails(&file, &[], 1);
    assert!(told.contains("2 of 4, fit: done") && told.contains("4 of 4, report: "), "{told}");
    let judged = fs::read(folder.path("mine/judged.json")).expect("judged");
    fs::remove_file(folder.path("mine/report")).expect("removed");
    let (_, told) = folder.succeeds(&file, &[]);
    assert!(told.contains("3 of 4, judge: done") && !told.contains("report: done"), "{told}");
    assert_eq!(files(&folder.path("mine/rows")), rows, "measured once");
    assert_eq!(files(&folder.path("mine/calibration")), fits, "fitted once");
    assert_eq!(fs::read(folder.path("mine/judged.json")).expect("judged"), judged);
    // In one go it is the same.
    let other = Folder::new();
    other.succeeds(&other.plan(Level::Quick).1, &[]);
    let text = |f: &Folder| fs::read_to_string(f.path("mine/calibration/gh100.toml")).expect("a fit");
    assert_eq!(text(&folder), text(&other));
}

/// Committed rows of the H200, which the shipped calibration was fitted to.
#[test]
fn the_shipped_calibration_is_judged_as_it_predicts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/measurements/h200/layers");
    let mut rows = dataset::read(&folder).expect("committed");
    rows.retain(|r| {
        let linear = r.case.layer.kind() == "linear" && r.phase == Phase::Forward && r.precision == Precision::Fp32;
        linear && r.regime == Regime::Burst && r.algorithm.is_none()
    });
    assert!(rows.len() > 200, "{}", rows.len());
    let h200 = catalog::gpu("h200").expect("shipped");
    let shipped = catalog::calibration_for(&h200).expect("readable").expect("of its chip");
    let same = beside::lines(&rows, &h200, |_| Ok(Some(shipped.clone()))).expect("judged");
    let all = beside::of_all(&same).expect("times");
    assert_eq!(all.before, all.after, "the same calibration is as good as itself");
    assert!(all.before.mape < 13.0 && all.before.bias.abs() < 4.0, "{all:?}");
    // Rows that the fit saw: nearly all, but not whatever they are.
    assert!(all.before.held.is_some_and(|held| (85.0..=99.5).contains(&held)), "{all:?}");
    let without = beside::lines(&rows, &h200, |_| Ok(None)).expect("judged");
    let all = beside::of_all(&without).expect("times");
    assert!(all.after.mape > 1.5 * all.before.mape, "models of all chips alone are no better: {all:?}");
    // A fit is not told the shapes that judge it.
    let seen = Mutex::new(Vec::new());
    beside::lines(&rows, &h200, |rows| {
        let keys: HashSet<String> = rows.iter().map(|r| r.case.fold_key()).collect();
        seen.lock().expect("no panic").push(keys);
        Ok(None)
    })
    .expect("judged");
    let shapes: HashSet<String> = rows.iter().map(|r| r.case.fold_key()).collect();
    let left: Vec<HashSet<String>> =
        seen.lock().expect("no panic").iter().map(|keys| shapes.difference(keys).cloned().collect()).collect();
    assert_eq!(left.len(), beside::FOLDS);
    assert_eq!(left.iter().map(HashSet::len).sum::<usize>(), shapes.len(), "each shape is left out once");
}

fn start(folder: &Folder, plan: &str) -> Child {
    let mut command = folder.command(plan, &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let path = folder.path("mine/rows/fake-001.rows");
    for _ in 0..6000 {
        if fs::read(&path).is_ok_and(|bytes| bytes.iter().filter(|b| **b == b'\n').count() >= 3) {
            return child;
        }
        assert!(child.try_wait().expect("a process").is_none(), "it ended before it was stopped");
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no row after two minutes");
}

#[test]
fn a_killed_call_goes_on_with_its_rows() {
    let folder = Folder::new();
    let mut child = start(&folder, "reference");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let (plan, file) = folder.plan(Level::Quick);
    let kept = dataset::read(&folder.path("mine/rows")).expect("rows").len();
    assert!(kept >= 3);
    let (printed, told) = folder.succeeds(&file, &[]);
    assert!(told.contains("rows are there; what has none yet is measured"), "{told}");
    let rows = dataset::read(&folder.path("mine/rows")).expect("a dataset");
    let keys: HashSet<(&str, Regime)> = rows.iter().map(|r| (r.trial_id.as_str(), r.regime)).collect();
    assert_eq!(keys.len(), rows.len(), "no trial twice");
    assert!(rows.len() >= kept + plan.items.len() && printed.contains("predict --gpu"), "{printed}");
}

#[cfg(unix)]
#[test]
fn the_interrupt_key_leaves_a_folder_that_goes_on() {
    let folder = Folder::new();
    let child = start(&folder, "reference");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    let output = child.wait_with_output().expect("ended");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "nothing was fitted");
    let told = text(&output.stderr);
    assert!(told.contains("error: interrupted with") && told.contains("the same command goes on"), "{told}");
    assert!(folder.path("mine/rows/fake-001.parquet").exists() && !folder.path("mine/calibration").exists());
    let (_, file) = folder.plan(Level::Quick);
    folder.succeeds(&file, &[]);
}

#[test]
fn more_rows_make_another_fit_and_what_was_edited_is_kept() {
    let folder = Folder::new();
    let (_, quick) = folder.plan(Level::Quick);
    let (standard, more) = folder.plan(Level::Standard);
    // What a budget leaves is fitted as it is, and is not the end.
    let (_, told) = folder.succeeds(&quick, &["--budget", "176"]);
    assert!(told.contains("the budget ended") && told.contains("2 of 4, fit"), "{told}");
    folder.succeeds(&quick, &[]);
    let first = files(&folder.path("mine"));
    let (_, told) = folder.succeeds(&more, &[]);
    assert!(told.contains("10 rows written") && !told.contains(": done"), "{told}");
    folder.assert_complete(&standard);
    let second = files(&folder.path("mine"));
    let old = made(&first);
    assert!(made(&second).iter().filter(|(path, _)| path.ends_with("gh100.toml")).all(|(p, new)| old[p] != *new));
    let calibration = folder.path("mine/calibration/gh100.toml");
    let mut edited = fs::read_to_string(&calibration).expect("a fit");
    edited += "\n# mine\n";
    fs::write(&calibration, &edited).expect("written");
    let told = folder.fails(&more, &[], 1);
    assert!(told.contains("gh100.toml was changed") && told.contains("--force"), "{told}");
    assert_eq!(fs::read_to_string(&calibration).expect("kept"), edited);
    folder.succeeds(&more, &["--force"]);
    assert_eq!(files(&folder.path("mine/calibration")), {
        let of_fit = |path: &Path| path.components().any(|c| c.as_os_str() == "calibration");
        second.into_iter().filter(|(path, _)| of_fit(path)).collect()
    });
}

#[test]
fn mistakes_of_a_first_call_say_what_to_do() {
    let folder = Folder::new();
    let (_, file) = folder.plan(Level::Quick);
    let mine = folder.text("mine");
    let run = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_calibrate")).args(arguments).output().expect("the program starts");
        (output.status.code(), text(&output.stderr))
    };
    // This machine may have a GPU: then there is nothing to see here.
    let (code, told) = run(&["all", "--out", &mine, "--gpu", "k20m", "--budget", "0.001"]);
    if told.contains("CUDA is not available") {
        assert!(code == Some(1) && told.contains("--device fake rehearses"), "{told}");
        assert!(!folder.path("mine").exists(), "nothing is left");
    }
    fs::write(folder.path("plain"), "").expect("written");
    let (code, told) = run(&["all", "--device", "fake", "--out", &folder.text("plain/x")]);
    assert!(code == Some(1) && told.contains("plain/x/rows"), "{told}");
    let told = folder.fails(&file, &["--budget", "0.000001"], 1);
    assert!(told.contains("rows, which are kept") && told.contains("no --budget"), "{told}");
    let told = folder.fails(&file, &["--gpu", "v100"], 1);
    assert!(told.contains("holds rows of a simulated h200, this is a simulated v100: name another --out"), "{told}");
    let own = folder.path("own.toml");
    let h200 = joulecast_data::GPUS.iter().find(|(name, _)| *name == "h200").expect("shipped").1;
    fs::write(&own, h200.replacen("name = \"h200\"", "name = \"mine\"", 1)).expect("written");
    let other = Folder::new();
    let told = other.fails(&file, &["--gpu", &own.display().to_string()], 1);
    assert!(told.contains("mine is not as data/gpus has it") && !other.path("mine").exists(), "{told}");
    let writer = Writer::open(&folder.path("mine/rows")).expect("nobody else writes");
    let told = folder.fails(&file, &[], 1);
    assert!(told.contains("another process is writing there"), "{told}");
    drop(writer);
    folder.succeeds(&file, &[]);
    let (code, told) = run(&["all", "--plan", &file, "--out", &mine]);
    assert!(code == Some(1) && told.contains("with --device fake it goes on with these"), "{told}");
    assert_eq!(folder.run(&file, &["--level", "quick"]).status.code(), Some(2));
}
