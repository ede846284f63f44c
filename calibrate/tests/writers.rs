//! Several processes at once on one dataset or one file of rows, on the fake device: one writes, the others are told, and
//! no row is there twice. Who dies, by whatever signal, holds nothing any more.

use joulecast_calibrate::rows::dataset;
use joulecast_calibrate::rows::writer::Writer;
use joulecast_reports::lock::Lock;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(arguments: &[&str]) -> Child {
    program(arguments).spawn().expect("the program starts")
}

fn calibrate(arguments: &[&str]) -> Output {
    program(arguments).output().expect("the program starts")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Refused at once: one line that names what is written to, and status 1.
fn told(output: &Output, name: &str) {
    let error = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(name) && error.contains("another process is writing"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(output.stdout.is_empty());
}

/// The same command three times at once: each does its work or is told.
fn thrice(arguments: &[&str], name: &str) {
    let running: Vec<Child> = (0..3).map(|_| start(arguments)).collect();
    let outputs: Vec<Output> = running.into_iter().map(|c| c.wait_with_output().expect("it ended")).collect();
    assert!(outputs.iter().any(|o| o.status.success()), "{}", said(&outputs[0].stderr));
    outputs.iter().filter(|o| !o.status.success()).for_each(|o| told(o, name));
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).expect("a table").lines().map(str::to_string).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

fn sweep(out: &Path) -> Vec<String> {
    let list =
        ["sweep", "--net", "resnet18", "--batch", "64", "--device", "fake", "--over", "cap", "--patience", "1000"];
    list.iter().chain(&["--metric", "edp", "--out", text(out)]).map(|a| (*a).to_string()).collect()
}

fn measure(out: &Path, layers: bool) -> Vec<String> {
    let list = ["measure", "--net", "resnet18,nin", "--batch", "1,4,8", "--device", "fake", "--out", text(out)];
    list.iter().copied().chain(layers.then_some("--layers")).map(str::to_string).collect()
}

fn as_text(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn tables_have_no_row_twice_whoever_begins_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for (file, arguments) in [
        ("sweep.csv", sweep(&path("sweep.csv"))),
        ("runs.csv", measure(&path("runs.csv"), false)),
        ("layers.csv", measure(&path("layers.csv"), true)),
    ] {
        let arguments = as_text(&arguments);
        thrice(&arguments, file);
        let before = lines(&path(file));
        let distinct: HashSet<&String> = before.iter().collect();
        assert!(before.len() > 2 && distinct.len() == before.len(), "{file}");
        let again = calibrate(&arguments);
        assert!(again.status.success(), "the file is read again: {}", said(&again.stderr));
        assert!(said(&again.stdout).contains(": 0 rows added"), "{}", said(&again.stdout));
        assert_eq!(lines(&path(file)), before);
    }
}

#[test]
fn a_table_that_is_held_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    for there in [false, true] {
        let path = folder.path().join(format!("{there}.csv"));
        if there {
            assert!(calibrate(&as_text(&measure(&path, false))).status.success());
        }
        let held = Lock::take(&path).expect("nobody else writes");
        let before = fs::read(&path).expect("a file");
        for arguments in [sweep(&path), measure(&path, false), measure(&path, true)] {
            told(&calibrate(&as_text(&arguments)), &format!("{there}.csv"));
        }
        assert_eq!(fs::read(&path).expect("a file"), before);
        drop(held);
        assert!(calibrate(&as_text(&measure(&path, false))).status.success());
    }
}

fn run(folder: &Path, plan: &str) -> Vec<String> {
    let list = ["run", "--plan", plan, "--device", "fake", "--dataset", text(folder)];
    list.iter().map(|a| (*a).to_string()).collect()
}

#[test]
fn a_dataset_has_no_row_twice_whoever_begins_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = folder.path().join("rows");
    thrice(&as_text(&run(&rows, "quick")), "rows");
    let read = dataset::read(&rows).expect("rows");
    let ids: HashSet<&str> = read.iter().map(|r| r.row_id.as_str()).collect();
    assert!(!read.is_empty());
    assert_eq!(ids.len(), read.len());
}

/// Waits until a run has rows on disk.
fn rows_of(child: &mut Child, journal: &PathBuf) {
    for _ in 0..6000 {
        if fs::read(journal).is_ok_and(|bytes| bytes.iter().filter(|b| **b == b'\n').count() >= 3) {
            return;
        }
        assert!(child.try_wait().expect("a process").is_none(), "the run ended before it was killed");
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no row after two minutes");
}

#[test]
fn a_run_keeps_others_from_writing_and_none_from_reading_until_it_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = folder.path().join("rows");
    let arguments = run(&rows, "reference");
    let mut first = start(&as_text(&arguments));
    rows_of(&mut first, &rows.join("fake-001.rows"));
    told(&calibrate(&as_text(&arguments)), "rows");
    let table = folder.path().join("linear.csv");
    fs::write(&table, LINEAR).expect("written");
    let import = ["import", "neusight", text(&table), "--dataset", text(&rows)];
    told(&calibrate(&import), "rows");
    // Its journal is read where it is, and left alone.
    let status = calibrate(&["status", text(&rows)]);
    assert!(status.status.success() && rows.join("fake-001.rows").exists(), "{}", said(&status.stderr));
    fs::write(rows.join(".tmpAb3dEf"), "half a segment").expect("written");
    first.kill().expect("killed");
    first.wait().expect("ended");
    let imported = calibrate(&import);
    assert!(imported.status.success(), "{}", said(&imported.stderr));
    let again = calibrate(&[&as_text(&arguments)[..], &["--budget", "2"]].concat());
    assert!(again.status.success(), "{}", said(&again.stderr));
    let read = dataset::read(&rows).expect("rows");
    let ids: HashSet<&str> = read.iter().map(|r| r.row_id.as_str()).collect();
    assert_eq!(ids.len(), read.len());
    let names: Vec<String> = fs::read_dir(&rows)
        .expect("a folder")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!names.iter().any(|n| n.starts_with('.')), "{names:?}");
}

#[test]
fn an_import_is_told_that_another_process_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = folder.path().join("rows");
    let table = folder.path().join("linear.csv");
    fs::write(&table, LINEAR).expect("written");
    let import = ["import", "neusight", text(&table), "--dataset", text(&rows)];
    assert!(calibrate(&import).status.success());
    let held = Writer::open(&rows).expect("nobody else writes");
    told(&calibrate(&import), "rows");
    let status = calibrate(&["status", text(&rows)]);
    assert!(status.status.success(), "{}", said(&status.stderr));
    drop(held);
    assert!(said(&calibrate(&import).stdout).contains("imported before"));
}

const LINEAR: &str = "OPName,Latency,Device,Torch Version,CUDNN Version,Kernel Name,B,M,N,K,CUDA Version,Kernels
linear,0.065,Tesla V100-PCIE-32GB,p2.1.0,8902,volta_sgemm_32x128_tn,1,58,13,141,cu121,;volta_sgemm_32x128_tn
";
