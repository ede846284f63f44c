//! Every option with every command: it changes the answer, or is refused in one line that says why.

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

const COMMANDS: [&str; 5] = ["predict", "optimize", "compare", "sweep", "plan"];

fn file(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path).display().to_string()
}

/// A step to ask every command for.
#[derive(Clone, Copy)]
struct Step<'a> {
    net: &'a str,
    gpu: &'a str,
    framework: &'a str,
    mode: &'a str,
    batch: &'a str,
}

const USUAL: Step<'_> = Step { net: "resnet18", gpu: "v100", framework: "cudnn", mode: "inference", batch: "8" };

/// A plan for one network on one GPU.
fn plan_file(folder: &Path, Step { net, gpu, framework, .. }: Step<'_>) -> PathBuf {
    let text = fs::read_to_string(file("data/capacity/tagging.toml")).expect("a plan");
    let head = text.split("[[network]]").next().expect("a head").replace("\"cudnn\"", &format!("{framework:?}"));
    let head = head.replace("largest_batch = 128", "largest_batch = 2");
    let site = &text[text.find("[site]").expect("a site")..];
    let rest = format!(
        "[[network]]\nnet = {net:?}\nshare = 1.0\n[[candidate]]\ngpu = {gpu:?}\nprice = 1.0\nprice_source = \"a\"\n\
         gpus_per_server = 4\nserver_overhead_w = 1.0\nvary = []\n"
    );
    let path = folder.join("plan.toml");
    fs::write(&path, format!("{head}{rest}{site}")).expect("written");
    path
}

fn run(command: &str, step: Step<'_>, options: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let mut words: Vec<String> = match command {
        "plan" => vec!["plan".into(), plan_file(folder.path(), step).display().to_string()],
        "predict" => Vec::new(),
        other => vec![other.into()],
    };
    if command != "plan" {
        let Step { net, gpu, framework, mode, batch } = step;
        let said = ["--net", net, "--gpu", gpu, "--batch", batch, "--framework", framework, "--mode", mode];
        words.extend(said.map(String::from));
    }
    if !options.contains(&"--format") {
        words.extend(["--format", "csv"].map(String::from));
    }
    words.extend(options.iter().map(|o| o.to_string()));
    program::predict().args(words).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command says on standard output, the command line that a plan repeats left out.
fn answer(command: &str, step: Step<'_>, options: &[&str]) -> String {
    let output = run(command, step, options);
    // A load that no candidate carries is an answer too.
    let no_fleet = command == "plan" && text(&output.stderr).contains("no candidate carries the load");
    assert!(output.status.success() || no_fleet, "{command} {options:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Both sets of options have answers, and not the same.
fn differ(commands: &[&str], step: Step<'_>, one: &[&str], other: &[&str]) {
    for command in commands {
        let same = answer(command, step, one) == answer(command, step, other);
        assert!(!same, "{command}: {other:?} is as {one:?}");
    }
}

fn changes(commands: &[&str], step: Step<'_>, before: &[&str], options: &[&str]) {
    differ(commands, step, before, &[before, options].concat());
}

fn refuses(commands: &[&str], step: Step<'_>, options: &[&str], why: &str) {
    for command in commands {
        let output = run(command, step, options);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command} {options:?}: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{command} {options:?}: {said}");
    }
}

const STEPS: [&str; 4] = ["predict", "optimize", "compare", "sweep"];
const SHARED: [&str; 3] = ["predict", "compare", "sweep"];
/// What the parser says of an option that a command does not have.
const ABSENT: &str = "unexpected argument";

#[test]
fn networks_are_read_alike() {
    let onnx = |name: &str| file(&format!("model/read/tests/onnx/{name}.onnx"));
    changes(&COMMANDS, USUAL, &[], &["--input", "image=3x128x128"]);
    refuses(&STEPS[..3], USUAL, &["--input", "picture=3x128x128"], "picture");
    differ(&COMMANDS, Step { net: "gpt2", ..USUAL }, &["--sequence", "32"], &["--sequence", "64"]);
    let folded = onnx("zoo/resnet50.dynamo.plain");
    changes(&COMMANDS, Step { net: &folded, ..USUAL }, &[], &["--unfold-batch-norm"]);
    changes(&COMMANDS, Step { net: &folded, framework: "pytorch", ..USUAL }, &[], &["--keep-folded"]);
    refuses(&COMMANDS, Step { net: &folded, ..USUAL }, &["--keep-folded", "--unfold-batch-norm"], "--keep-folded");
    let boxes = onnx("exports/det_fasterrcnn_mobilenet_v3_large_fpn_script");
    differ(&COMMANDS, Step { net: &boxes, ..USUAL }, &["--selected", "50"], &["--selected", "2000"]);
    let odd = onnx("odd/unknown_operator");
    for command in COMMANDS {
        let step = Step { net: &odd, ..USUAL };
        assert_eq!(run(command, step, &[]).status.code(), Some(1), "{command}");
        answer(command, step, &["--skip-unknown"]);
    }
}

#[test]
fn what_runs_a_step_is_said_alike() {
    changes(&COMMANDS, USUAL, &[], &["--conv-algorithm", "gemm"]);
    refuses(&COMMANDS, Step { gpu: "i7-6700k", ..USUAL }, &["--conv-algorithm", "gemm"], "is a processor");
    changes(&COMMANDS, Step { net: "vgg11", gpu: "titan-x-maxwell", ..USUAL }, &[], &["--cudnn", "4"]);
    changes(&STEPS, Step { framework: "pytorch", ..USUAL }, &[], &["--launch", "graph"]);
    let jumps =
        Step { net: "gait_resnet_text", gpu: "titan-x-pascal", framework: "caffe", mode: "training", batch: "64" };
    changes(&STEPS, jumps, &["--cudnn", "6.0"], &["--best-algorithms"]);
    changes(&STEPS, Step { gpu: "rtx2080ti", ..USUAL }, &[], &["--mem-clock", "5800"]);
    refuses(&["plan"], USUAL, &["--mem-clock", "800"], ABSENT);
    refuses(&COMMANDS, USUAL, &["--launch", "lazy"], "must be one of");
}

/// The file of another chip is no calibration of this one; a folder has one for each.
#[test]
fn calibrations_are_given_alike() {
    let folder = file("data/calibrations");
    let of = |name: &str| file(&format!("data/calibrations/{name}.toml"));
    changes(&COMMANDS, USUAL, &[], &["--calibration", &of("all_chips")]);
    refuses(&COMMANDS, USUAL, &["--calibration", &of("tu104")], "is for chip TU104, but v100 is a GV100");
    for given in [&folder, &of("gv100")] {
        for command in COMMANDS {
            let given = answer(command, USUAL, &["--calibration", given]);
            assert_eq!(given, answer(command, USUAL, &[]), "{command} with the shipped ones");
        }
    }
    let empty = tempfile::tempdir().expect("a folder");
    for command in COMMANDS {
        let output = run(command, USUAL, &["--calibration", &empty.path().display().to_string()]);
        assert!(output.status.code() == Some(1) && text(&output.stderr).contains("holds no calibration"), "{command}");
        fs::copy(of("gv100"), empty.path().join("gv100.toml")).expect("copied");
        let output = run(command, USUAL, &["--calibration", &empty.path().display().to_string()]);
        assert!(text(&output.stderr).contains("no calibration with chip \"any\""), "{command}");
        fs::remove_file(empty.path().join("gv100.toml")).expect("removed");
    }
}

#[test]
fn what_is_to_be_known_of_a_calibration_is_told_by_every_command() {
    let all = file("data/calibrations/all_chips.toml");
    for command in COMMANDS {
        let form = if command == "sweep" { "csv" } else { "json" };
        let folder = tempfile::tempdir().expect("a folder");
        let plan = plan_file(folder.path(), USUAL).display().to_string();
        let asked = ["--net", "resnet18", "--gpu", "v100", "--batch", "8"];
        let words = match command {
            "plan" => vec!["plan", &plan],
            "predict" => asked.to_vec(),
            other => [&[other], &asked[..]].concat(),
        };
        let words = [&words[..], &["--calibration", &all, "--format", form]].concat();
        let output = program::predict().args(words).output().expect("it starts");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(said.matches("as if no layer of v100 had been measured").count(), 1, "{command}: {said}");
    }
}

#[test]
fn steps_are_shared_updated_and_fed_alike() {
    changes(&SHARED, USUAL, &[], &["--gpus", "2"]);
    changes(&SHARED, USUAL, &["--gpus", "2"], &["--scaling", "weak"]);
    let training = Step { mode: "training", ..USUAL };
    changes(&SHARED, training, &["--gpus", "2"], &["--interconnect", "pcie3-host"]);
    refuses(&["optimize"], USUAL, &["--gpus", "2"], "optimize is for one step of one GPU");
    refuses(&["compare", "sweep"], USUAL, &["--gpus", "2xv100,2xt4"], "--gpus says how many of each");
    refuses(&["predict"], USUAL, &["--gpus", "2xv100,2xt4"], "leave --gpu out");
    refuses(&["predict", "compare"], USUAL, &["--gpus", "3"], "does not divide among 3 GPUs");
    refuses(&SHARED, USUAL, &["--gpus", "2", "--interconnect", "nvlnk2"], "nearest: nvlink2");
    refuses(&SHARED, Step { gpu: "i7-6700k", ..USUAL }, &["--gpus", "2"], "is a processor");
    changes(&STEPS, training, &[], &["--optimizer", "adam"]);
    refuses(&STEPS, USUAL, &["--optimizer", "adam"], "--optimizer is of a training");
    let mixed = Step { framework: "pytorch", gpu: "h200", ..training };
    for launch in ["eager", "graph"] {
        let base = ["--precision", "fp16", "--launch", launch];
        changes(&STEPS, mixed, &base, &["--loss-scaling", "none"]);
        for (precision, usual) in [("fp16", "dynamic"), ("bf16", "none"), ("tf32", "dynamic")] {
            let base = ["--precision", precision, "--launch", launch];
            let said = [&base[..], &["--loss-scaling", usual]].concat();
            assert_eq!(answer("predict", mixed, &base), answer("predict", mixed, &said), "{precision}");
        }
    }
    refuses(&STEPS, Step { framework: "pytorch", ..USUAL }, &["--loss-scaling", "none"], "is of a training");
    refuses(&STEPS, training, &["--loss-scaling", "none"], "cudnn profile does not say");
    changes(&STEPS, USUAL, &[], &["--input-rate", "100"]);
    refuses(&STEPS, USUAL, &["--input-rate", "fast"], "no input named \"fast\"");
    let layers = ["--input-rate", "100", "--per-layer", "--format", "json"];
    refuses(&["optimize"], USUAL, &layers, "leave out --input-rate");
    for options in [&["--gpus", "2"][..], &["--optimizer", "adam"], &["--input-rate", "9"], &["--epochs", "1"]] {
        refuses(&["plan"], USUAL, options, ABSENT);
    }
    let epochs = ["--epochs", "2", "--dataset-size", "100"];
    changes(&["predict"], training, &[], &epochs);
    refuses(&["optimize"], training, &epochs, "optimize is for one step of one GPU");
    // The largest batch that fits is one to compare with.
    let largest = Step { batch: "max", ..USUAL };
    let found = answer("predict", largest, &[]);
    let (head, row) = found.split_once('\n').expect("a header and a row");
    let at = head.split(',').position(|column| column == "batch").expect("a batch");
    let batch = row.split(',').nth(at).expect("a batch");
    assert!(batch.parse::<u64>().is_ok_and(|batch| batch > 100), "{batch}");
    assert_eq!(answer("optimize", largest, &[]), answer("optimize", Step { batch, ..USUAL }, &[]));
    refuses(&["compare", "sweep"], training, &epochs, ABSENT);
}

/// What no framework does is refused, in a sweep by the rows that it is of.
#[test]
fn what_cannot_run_is_not_predicted() {
    let training = Step { mode: "training", ..USUAL };
    let cases = [
        (Step { framework: "tensorrt", ..training }, &[][..], "inference only"),
        (Step { gpu: "t4", ..training }, &["--precision", "int8"], "no framework trains in int8"),
        (Step { gpu: "h100", ..training }, &["--precision", "fp8"], "fp8 is predicted in inference only"),
        (Step { gpu: "t4", ..USUAL }, &["--precision", "fp8"], "t4 has no units that compute in fp8"),
        (Step { gpu: "i7-6700k", ..USUAL }, &["--launch", "graph"], "has no CUDA graphs"),
    ];
    for (step, options, why) in cases {
        refuses(&["predict", "optimize", "compare"], step, options, why);
        let both = ["--gpu", "v100,i7-6700k,t4", "--precision", "fp32,int8,fp8", "--mode", "inference,training"];
        let words = ["sweep", "--net", step.net, "--batch", "8", "--framework", step.framework];
        let words = [&words[..], &both, if why.contains("graphs") { options } else { &[] }].concat();
        let output = program::predict().args(words).output().expect("it starts");
        let rows = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(rows.lines().any(|row| row.contains(why)), "{why}: {rows}");
        assert!(rows.lines().skip(1).any(|row| row.ends_with(',')), "others are predicted: {rows}");
    }
}

/// A row of a sweep is what `predict` says of that step.
#[test]
fn rows_of_shared_and_fed_steps_are_those_of_predict() {
    for options in [&["--gpus", "4"][..], &["--gpus", "4", "--scaling", "weak"], &["--input-rate", "50"]] {
        let step = Step { mode: "training", ..USUAL };
        let cell = |command, name: &str| {
            let csv = answer(command, step, options);
            let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let column = lines.next().expect("a header").iter().position(|c| *c == name).expect("a column");
            lines.next().expect("a row")[column].parse::<f64>().expect("a number")
        };
        for name in ["batch", "time_s", "time_s_p95", "power_w", "energy_j", "samples_per_s", "energy_per_sample_j"] {
            assert_eq!(cell("sweep", name), cell("predict", name), "{options:?} {name}");
            assert_eq!(cell("compare", name), cell("predict", name), "{options:?} {name}");
        }
    }
}
