//! `calibrate validate --report` as a user runs it: layers of one kind of the committed rows, and a few runs of networks.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const RUNS: &str = "\
network,mode,precision,batch,launch,ms_per_iter,watts,sm_mhz_mean,device,torch
vgg16,infer,fp32,16,graph,12.5,640,1700,NVIDIA H200,
vgg16,infer,fp16,64,graph,9.1,650,1700,NVIDIA H200,
resnet50,infer,fp16,64,eager,8.0,500,1900,NVIDIA H200,2.11
resnet50,train,fp16,64,eager,30.0,500,1900,NVIDIA H200,2.11
resnet18,infer,fp16,64,graph,2.0,500,1900,NVIDIA H200,
";

fn repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path).display().to_string()
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_calibrate")).args(arguments).output().expect("the program starts")
}

/// The shipped calibrations as if they had seen no test network; what they predict does not matter here.
fn calibrations(folder: &Path) -> String {
    let copies = folder.join("calibrations");
    fs::create_dir(&copies).expect("a folder");
    for name in ["gh100.toml", "all_chips.toml"] {
        let text = fs::read_to_string(repository(&format!("data/calibrations/{name}"))).expect("shipped");
        let said = text.replacen("fit = \"shipped\"", "fit = \"evaluation\"", 1);
        assert_ne!(said, text, "{name}");
        fs::write(copies.join(name), said).expect("written");
    }
    copies.display().to_string()
}

/// The report of a folder, and what the program printed.
fn report(folder: &Path) -> (String, String) {
    report_by(folder, &calibrations(folder))
}

fn report_by(folder: &Path, calibrations: &str) -> (String, String) {
    let runs = folder.join("runs & <b>.csv");
    fs::write(&runs, RUNS).expect("written");
    let out = folder.join("report");
    let output = run(&[
        "validate",
        "--report",
        out.to_str().expect("utf-8"),
        "--layers",
        "--kind",
        "max_pool2d",
        "--dataset",
        &repository("data/measurements/h200/layers"),
        "--networks",
        runs.to_str().expect("utf-8"),
        "--calibrations",
        calibrations,
        "--quiet",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    (page, String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_report_has_every_figure_and_asks_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (page, printed) = report(folder.path());
    let figures = [
        "networks_measured_predicted",
        "networks_errors_cudnn",
        "networks_errors_pytorch",
        "networks_coverage",
        "networks_roofline",
        "networks_kinds",
        "networks_layers",
        "networks_caps",
        "networks_clocks",
        "layers_gh100_measured_predicted",
        "layers_gh100_errors",
        "layers_gh100_residuals",
        "layers_coverage",
    ];
    assert_eq!(page.matches("<svg ").count(), figures.len());
    for name in figures {
        let path = |end: &str| folder.path().join("report").join(format!("{name}.{end}"));
        let svg = fs::read_to_string(path("svg")).expect("a figure");
        assert!(page.contains(&svg), "{name} stands in the page");
        assert!(svg.contains("calibrate validate"), "{name} says what made it");
        assert!(fs::read(path("png")).expect("a bitmap").starts_with(b"\x89PNG"), "{name}");
        assert!(printed.contains(&format!("{name}.svg: written")), "{printed}");
    }
    // A verdict for each board first, tables of all values last.
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part}"));
    let (head, first) = (place("h200, networks"), place("Whole networks: measured against predicted</h2>"));
    assert!(head < first && place("GH100, layers") < first && first < place("Appendix: layers, the numbers</h2>"));
    let kept = fs::read_to_string(folder.path().join("report/verdicts.json")).expect("verdicts");
    assert!(kept.contains("\"verdicts/1\"") && kept.contains("\"layers\""), "{kept}");
    for outside in ["src=", "<script", "url(", "@import", "href=\"http", "<b>"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("runs &amp; &lt;b&gt;.csv"));
    assert!(page.contains("Through cudnn and pytorch it is made of the errors of other networks."));
    // Four runs of test networks, each with time, power and energy; resnet18 is none.
    let scatter = fs::read_to_string(folder.path().join("report/networks_measured_predicted.svg")).expect("a figure");
    assert!(scatter.contains("12 points") && !scatter.contains("resnet18"), "{scatter}");
    assert!(page.contains("max_pool2d") && !page.contains("softmax:"), "only the kind that was asked for");
}

/// A calibration need not know how whole networks err.
#[test]
fn what_intervals_are_made_of_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let calibrations = calibrations(folder.path());
    let path = Path::new(&calibrations).join("gh100.toml");
    let mut known: toml::Table = fs::read_to_string(&path).expect("a copy").parse().expect("TOML");
    let networks = known.get_mut("network").and_then(toml::Value::as_array_mut).expect("whole networks");
    networks.retain(|n| n["framework"].as_str() == Some("pytorch"));
    fs::write(&path, known.to_string()).expect("written");
    let (page, _) = report_by(folder.path(), &calibrations);
    assert!(page.contains("Through pytorch it is made of the errors of other networks. Through cudnn no network"));
}

#[test]
fn what_a_report_is_of_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("report");
    let out = out.to_str().expect("utf-8");
    for arguments in [
        &["validate", "--report", out, "--levels", "--layers"][..],
        &["validate", "--layers", "--networks", "runs.csv"],
        &["validate", "--report", out],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let runs = folder.path().join("runs.csv");
    fs::write(&runs, RUNS).expect("written");
    let runs = runs.to_str().expect("utf-8");
    let shipped = repository("data/calibrations");
    let output = run(&["validate", "--report", out, "--networks", runs, "--calibrations", &shipped]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("fit --evaluation"), "{error}");
}

#[test]
fn a_browser_shows_every_figure_on_phones_and_desktops() {
    let folder = tempfile::tempdir().expect("a folder");
    let (page, _) = report(folder.path());
    joulecast_browser::check(
        "calibrate/report::a_browser_shows_every_figure_on_phones_and_desktops",
        &page,
        page.matches("<svg ").count(),
    );
}
