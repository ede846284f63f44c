//! The line that `calibrate all` ends with, typed into `predict`. Neither program is built for this test: it starts itself as
//! one or the other, by the first argument.

use clap::Parser as _;
use joulecast_calibrate::campaign::trials::{self, Level};
use joulecast_calibrate::cli;
use joulecast_tests::ok;
use std::process::{Command, ExitCode, Output};
use std::{env, fs};

/// A plan that takes seconds: one kind, as often as a fit needs where a fifth of the rows is left out.
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
count = { quick = 70, standard = 70, reference = 70 }
"#;

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some("all") => ok(cli::run(cli::Cli::parse())),
        Some("--gpu") => return joulecast_predict::main(),
        _ => {
            the_last_line_predicts();
            // As the harness does, for who counts tests.
            println!("test the_last_line_predicts ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n");
        }
    }
    ExitCode::SUCCESS
}

fn this(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = ok(Command::new(ok(env::current_exe())).args(arguments).output());
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

fn the_last_line_predicts() {
    let folder = ok(tempfile::tempdir());
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("plan.jsonl"), ok(trials::file::to_text(&ok(trials::expand(RECIPE, Level::Quick)))))
        .expect("a plan");
    // A name that a shell would take apart.
    let printed = this(&["all", "--device", "fake", "--plan", &path("plan.jsonl"), "--out", &path("my GPU's")]);
    let line = printed.lines().last().unwrap_or_default();
    // The shell takes the line apart, as it does for whoever pastes it.
    let apart = ok(Command::new("sh").args(["-c", &format!("printf '%s\\n' {line}")]).output());
    let words = String::from_utf8_lossy(&apart.stdout).into_owned();
    let words: Vec<&str> = words.lines().collect();
    assert_eq!(words.first(), Some(&"predict"), "{line}");
    let predicted = this(&words[1..]);
    assert!(predicted.starts_with("resnet50 on h200") && predicted.contains("gh100-simulated-1"), "{predicted}");
    let shipped = this(&["--gpu", "h200", "--net", "resnet50", "--batch", "16"]);
    assert_ne!(predicted, shipped);
}
