//! Nobody reads: standard output and standard error are pipes that are closed at their other end. Whatever that does to
//! what is printed, rows are kept, limits come back, and the program ends in good order.

use joulecast_fake_nvml::testing::FakeGpu;
use joulecast_kernels::nvml::LIBRARY_VARIABLE;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// The end of a pipe that one writes to and nobody reads from.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    Stdio::from(writer)
}

fn unread(command: &mut Command, output: bool, errors: bool) -> ExitStatus {
    command.stdout(if output { closed() } else { Stdio::null() });
    command.stderr(if errors { closed() } else { Stdio::null() });
    command.status().expect("the program starts")
}

fn calibrate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
    command.args(arguments);
    command
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// The prior power limit of a board that is swept, which is not its default.
const BEFORE_MW: u32 = 650_000;

#[test]
fn limits_come_back_and_a_sweep_goes_on_where_nobody_reads() {
    for (output, errors) in [(true, false), (false, true), (true, true)] {
        let gpu = FakeGpu::new();
        gpu.change(|s| s.limit_mw = BEFORE_MW);
        let (rows, figure) = (gpu.folder().join("rows.csv"), gpu.folder().join("curve.svg"));
        let journals = gpu.journals();
        let arguments = [
            &["sweep", "--net", "resnet18", "--batch", "64", "--device", "fake", "--fault", "nvml", "--over", "cap"][..],
            &["--points", "600,500,400", "--patience", "1000", "--out", text(&rows), "--figure", text(&figure)],
            &["--journals", text(&journals)],
        ];
        let status = unread(calibrate(&arguments.concat()).env(LIBRARY_VARIABLE, gpu.library()), output, errors);
        assert_eq!(status.code(), Some(0), "output closed {output}, errors closed {errors}: {status}");
        assert_eq!(gpu.state().limit_mw, BEFORE_MW);
        assert!(gpu.state().lock_mhz.is_none());
        let left =
            fs::read_dir(&journals).expect("a folder").flatten().filter(|e| text(&e.path()).ends_with(".journal"));
        assert_eq!(left.count(), 0, "nothing is left to restore");
        let table = fs::read_to_string(&rows).expect("a table");
        assert_eq!(table.lines().count(), 5, "the default and three limits: {table}");
        assert!(figure.exists());
    }
}

#[test]
fn every_command_ends_in_good_order_where_nobody_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (rows, runs) = (path("rows"), path("runs.csv"));
    let nowhere = path("nowhere");
    let commands: [(&[&str], i32); 9] = [
        (&["run", "--plan", "quick", "--device", "fake", "--dataset", &rows, "--budget", "2"], 0),
        (&["status", &rows], 0),
        (&["measure", "--net", "nin", "--batch", "4", "--device", "fake", "--out", &runs], 0),
        (&["measure", "--net", "nin", "--batch", "4", "--device", "fake", "--layers", "--out", &path("layers.csv")], 0),
        (
            &[
                "sweep",
                "--net",
                "nin",
                "--batch",
                "4",
                "--device",
                "fake",
                "--over",
                "cap",
                "--dry-run",
                "--out",
                &runs,
            ],
            0,
        ),
        (&["plan", "--level", "quick"], 0),
        (&["status", &nowhere], 3),
        (&["run", "--plan", "quick", "--device", "fake", "--dataset", &rows, "--fault", "lost_after=20"], 1),
        (&["run", "--plan", "quik", "--device", "fake", "--dataset", &rows], 2),
    ];
    for (arguments, code) in commands {
        let status = unread(&mut calibrate(arguments), true, true);
        assert_eq!(status.code(), Some(code), "{arguments:?}: {status}");
    }
    assert!(fs::read_to_string(runs).expect("a table").lines().count() > 2);
}
