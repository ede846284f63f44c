//! The program as a user runs it.

mod program;

use std::path::Path;
use std::process::Output;

fn run(arguments: &[&str]) -> Output {
    program::predict().args(arguments).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scratch(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("joulecast-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

#[test]
fn the_command_of_the_readme_prints_a_prediction() {
    let output = run(&["--net", "vgg16", "--gpu", "v100", "--batch", "64"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in ["vgg16 on v100", "time", "power", "energy", "EDP", "memory", "imported", "conv1_2"] {
        assert!(stdout(&output).contains(part), "no {part} in\n{}", stdout(&output));
    }
}

#[test]
fn formats_agree() {
    let base = ["--net", "resnet50", "--gpu", "t4", "--batch", "8", "--format"];
    let with = |format| {
        let output = run(&[&base[..], &[format]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let json = with("json");
    assert!(json.starts_with("{\n  \"schema\": \"prediction/1\""), "{json}");
    let time = json.lines().find(|l| l.contains("\"time_s\":")).expect("time_s").trim().to_string();
    let value = time.trim_start_matches("\"time_s\": ").trim_end_matches(',').to_string();
    let csv = with("csv");
    assert!(csv.lines().nth(1).expect("a row").contains(&value), "{value} in {csv}");
    assert_eq!(csv.lines().count(), 2);
    assert!(with("markdown").contains("| time |"));
    assert!(with("table").contains("throughput"));
}

/// A number of the JSON document.
fn number(json: &str, key: &str) -> f64 {
    let line = json.lines().find(|l| l.trim().starts_with(&format!("\"{key}\":"))).expect(key);
    line.split(':').nth(1).expect(key).trim().trim_end_matches(',').parse().expect(key)
}

fn json(arguments: &[&str]) -> String {
    let output = run(&[arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn a_lower_limit_or_clock_takes_longer_and_draws_less_on_every_gpu() {
    for gpu in ["v100", "h200", "a40", "a30", "titan-xp"] {
        let base = ["--net", "resnet50", "--gpu", gpu, "--batch", "32"];
        let with = |extra: &[&str]| json(&[&base[..], extra].concat());
        let default = with(&[]);
        let power = number(&default, "power_w");
        let watts = power * 0.9;
        let cap = format!("{watts:.0}");
        let capped = with(&["--power-cap", &cap]);
        assert!(number(&capped, "power_w") <= watts + 1.0, "{gpu}");
        assert!(number(&capped, "time_s") > number(&default, "time_s"), "{gpu}");
        assert_eq!(number(&capped, "power_cap_w"), cap.parse::<f64>().expect("a number"));
        let slow = with(&["--clock", "900"]);
        assert!(number(&slow, "time_s") > number(&default, "time_s"), "{gpu}");
        assert!(number(&slow, "power_w") < power, "{gpu}");
        assert!(number(&slow, "core_clock_mhz") < 901.0, "{gpu}");
        let energy = number(&slow, "power_w") * number(&slow, "time_s");
        assert!((energy / number(&slow, "energy_j") - 1.0).abs() < 1e-9, "{gpu}");
        assert!(slow.contains("not measured") || slow.contains("clocks that were measured"), "{gpu}");
    }
}

#[test]
fn the_default_limit_asked_for_changes_nothing() {
    for gpu in ["v100", "h200", "quadro-rtx6000"] {
        let base = ["--net", "vgg16", "--gpu", gpu, "--batch", "32", "--mode", "training"];
        let default = json(&base);
        let limit = if gpu == "h200" {
            "700"
        } else if gpu == "v100" {
            "300"
        } else {
            "260"
        };
        let same = json(&[&base[..], &["--power-cap", limit]].concat());
        for key in ["time_s", "power_w", "energy_j", "core_clock_mhz"] {
            assert_eq!(number(&default, key), number(&same, key), "{gpu} {key}");
        }
    }
}

#[test]
fn clocks_and_limits_that_do_not_exist_exit_2_and_name_the_range() {
    let base = ["--net", "vgg16", "--gpu", "v100", "--batch", "1"];
    for (extra, range) in [
        (["--power-cap", "100"], "150 to 300 W"),
        (["--power-cap", "400"], "150 to 300 W"),
        (["--clock", "2000"], "135 to 1530 MHz"),
        (["--mem-clock", "800"], "877 to 877 MHz"),
    ] {
        let output = run(&[&base[..], &extra].concat());
        assert_eq!(output.status.code(), Some(2), "{extra:?}");
        assert!(stderr(&output).contains(range), "{extra:?}: {}", stderr(&output));
    }
    let card = ["--net", "vgg16", "--gpu", "rtx2080ti", "--batch", "8"];
    let slow_memory = json(&[&card[..], &["--mem-clock", "5800"]].concat());
    assert!(number(&slow_memory, "time_s") > number(&json(&card), "time_s"));
    assert_eq!(number(&slow_memory, "memory_clock_mhz"), 5800.0);
    // What is transferred to a board is not taken to draw its limit at clocks far below those that it is made for.
    let held =
        json(&["--net", "vgg16", "--gpu", "rtx3090", "--batch", "256", "--precision", "fp16", "--power-cap", "200"]);
    assert!(number(&held, "power_w") <= 200.0 && number(&held, "core_clock_mhz") > 600.0);
    // A limit that no clock keeps: lower than any board's.
    let path = scratch("low").join("low.toml");
    let a40 = include_str!("../../data/gpus/a40.toml").replace("name = \"a40\"", "name = \"low\"");
    let a40 = a40.replace("aliases = [\"nvidia-a40\"]", "aliases = []");
    let deep = a40.replace("limit_minimum = { value = \"100 W\"", "limit_minimum = { value = \"30 W\"");
    std::fs::write(&path, deep).expect("a scratch file");
    let file = path.display().to_string();
    let low = run(&["--net", "vgg19", "--gpu", &file, "--batch", "64", "--mode", "training", "--power-cap", "40"]);
    assert!(stdout(&low).contains("will exceed its limit"), "{}", stdout(&low));
    // One that some layers keep.
    let low =
        run(&["--net", "vgg16", "--gpu", "rtx2080ti", "--batch", "256", "--precision", "fp16", "--power-cap", "75"]);
    assert!(
        stdout(&low).contains("some layers, for longer than the limit takes to act, draw more"),
        "{}",
        stdout(&low)
    );
}

#[test]
fn optimize_keeps_what_it_is_asked_to_keep() {
    let base = ["optimize", "--net", "resnet50", "--gpu", "v100", "--batch", "64", "--mode", "training"];
    let free = json(&[&base[..], &["--metric", "energy"]].concat());
    let kept = json(&[&base[..], &["--metric", "energy", "--max-slowdown", "5%"]].concat());
    let best = |document: &str| {
        let at = document.split("\"best\": true").next().expect("a best point").rfind('{').expect("an object");
        document[at..].to_string()
    };
    let (default, free, quick) = (number(&free, "time_s"), best(&free), best(&kept));
    assert!(number(&quick, "time_s") <= default * 1.05);
    assert!(number(&free, "time_s") > default * 1.05);
    assert!(number(&free, "energy_j") < number(&quick, "energy_j"));
    let none = run(&[&base[..], &["--min-throughput", "1e9"]].concat());
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("as fast as asked for"));
    let plan = run(&[&base[..], &["--per-layer"]].concat());
    assert!(stdout(&plan).contains("10.0 ms for each of"), "{}", stdout(&plan));
}

/// Where batches differ, the columns are those by which they are compared: the best row has the least.
#[test]
fn batches_are_compared_by_what_a_sample_takes() {
    let base = ["optimize", "--net", "resnet18", "--gpu", "v100", "--batch", "8", "--metric", "edp", "--over", "batch"];
    let csv = stdout(&run(&[&base[..], &["--format", "csv"]].concat()));
    let mut lines = csv.lines().map(|l| l.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let column = |name: &str| header.iter().position(|h| *h == name).expect("a column");
    let (value, best) = (column("edp_per_sample_js"), column("best"));
    let rows: Vec<(f64, bool)> = lines.map(|l| (l[value].parse().expect("a number"), l[best] == "true")).collect();
    let least = rows.iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("rows");
    assert!(rows.len() > 5 && least.1, "{rows:?}");
    let text = stdout(&run(&base));
    assert!(text.contains("EDP per sample") && text.contains("energy per step"), "{text}");
    assert!(text.contains("tied with it: edp per sample within 2 % of the best one's"), "{text}");
    let one = stdout(&run(&["optimize", "--net", "resnet18", "--gpu", "v100", "--batch", "8", "--over", "clock"]));
    assert!(!one.contains("EDP per sample"), "{one}");
}

#[test]
fn options_of_optimize_that_would_do_nothing_exit_2_and_say_what_to_do() {
    let base = ["optimize", "--net", "resnet18", "--gpu", "v100", "--batch", "8"];
    for (extra, expected) in [
        (&["--switch-latency", "5"][..], "--per-layer"),
        (&["--format", "csv", "--per-layer"], "--format json"),
        (&["--format", "csv", "--layers"], "--layers lists the layers"),
        (&["--layouts"], "--layouts lists layouts"),
        (&["--over", "clock", "--clock", "1200"], "leave out --clock"),
        (&["--over", "cap", "--power-cap", "200"], "leave out --power-cap"),
        (&["--per-layer", "--clock", "1200"], "leave out --clock"),
        (&["--over", "batch", "--figure", "x.svg"], "add cap or clock"),
    ] {
        let output = run(&[&base[..], extra].concat());
        assert_eq!(output.status.code(), Some(2), "{extra:?}");
        assert!(stderr(&output).contains(expected), "{extra:?}: {}", stderr(&output));
    }
}

#[test]
fn optimize_chooses_no_batch_that_does_not_fit() {
    let base = ["optimize", "--net", "vgg16", "--gpu", "t4", "--mode", "training", "--over", "batch", "--batch"];
    let found = json(&[&base[..], &["1024"]].concat());
    let points = found.split("\"points\"").nth(1).expect("points");
    assert!(!points.contains("\"fits_in_memory\": false"));
    assert!(number(points.split("\"best\": true").next().expect("one"), "batch") < 1024.0);
    let table = run(&[&base[..], &["1024"]].concat());
    assert!(stdout(&table).contains("default, does not fit"), "{}", stdout(&table));
}

#[test]
fn a_sheet_of_curves_is_drawn_for_several_networks() {
    let folder = scratch("figure");
    let file = folder.join("curves.svg");
    let path = file.display().to_string();
    let nets = "resnet18,mobilenet_v2";
    let output =
        run(&["optimize", "--net", nets, "--gpu", "v100", "--batch", "8", "--figure", &path, "--format", "csv"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().filter(|l| l.starts_with("network,")).count(), 1);
    let svg = std::fs::read_to_string(&file).expect("a figure");
    for part in ["resnet18, batch 8", "mobilenet_v2, batch 8", "power limit, W", "EDS (1.5)", "predict optimize --net"]
    {
        assert!(svg.contains(part), "no {part}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn wrong_arguments_exit_2_with_one_line_and_the_nearest_name() {
    for (arguments, expected) in [
        (&["--net", "vgg61", "--gpu", "v100", "--batch", "1"][..], "vgg16"),
        (&["--net", "vgg16", "--gpu", "v10", "--batch", "1"], "v100"),
        (&["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--framework", "cudn"], "cudnn"),
        (&["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--precision", "bf16"], "fp16"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).trim_end().lines().count(), 1, "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
    for arguments in [
        &["--net", "vgg16", "--gpu", "v100", "--batch", "0"][..],
        &["--net", "vgg16", "--gpu", "v100"],
        &["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--input", "image=3x0x0"],
        &["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--input", "picture=3x224x224"],
        &["--net", "vgg16", "--gpu", "v100", "--batch", "99999999999999999999"],
        &["frobnicate"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"));
    }
}

#[test]
fn broken_files_exit_1_with_one_line() {
    let folder = scratch("broken");
    let path = folder.join("net.toml");
    std::fs::write(&path, "schema = \"network/1\"\nname = \"x\"\nlayers = [").expect("written");
    let file = path.to_str().expect("utf-8");
    let missing = folder.join("nowhere.toml");
    for arguments in [
        &["--net", file, "--gpu", "v100", "--batch", "1"][..],
        &["--net", "vgg16", "--gpu", file, "--batch", "1"],
        &["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--calibration", file],
        &["--net", missing.to_str().expect("utf-8"), "--gpu", "v100", "--batch", "1"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).trim_end().lines().count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn a_file_of_ones_own_works_and_output_goes_to_a_file() {
    let folder = scratch("own");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data");
    let net = data.join("nets/alexnet.toml");
    let gpu = data.join("gpus/t4.toml");
    let out = folder.join("out.json");
    let arguments = ["--net", net.to_str().expect("utf-8"), "--gpu", gpu.to_str().expect("utf-8"), "--batch", "4"];
    let output = run(&[&arguments[..], &["--format", "json", "--output", out.to_str().expect("utf-8")]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read_to_string(&out).expect("the file is there");
    assert!(text.contains("\"source\": \"file\""));
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 1, "nothing but the result is left");
}

/// The efficiencies over all chips are a calibration too: of a GPU without rows.
#[test]
fn the_models_over_all_chips_stand_for_a_gpu_without_rows() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/calibrations");
    let with = |gpu: &str, file: &str| {
        let path = data.join(file);
        let base = ["--net", "vgg16", "--gpu", gpu, "--batch", "8", "--format", "json"];
        run(&[&base[..], &["--calibration", path.to_str().expect("utf-8")]].concat())
    };
    let output = with("v100", "all_chips.toml");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in
        ["\"id\": \"any-roofline-1\"", "\"time_tier\": \"transferred\"", "as if no layer of v100 had been measured"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // A GPU that has no rows is predicted just as without the option.
    let time = |text: &str| text.lines().find(|l| l.contains("\"time_s\"")).map(str::to_string).expect("time_s");
    let without = run(&["--net", "vgg16", "--gpu", "l4", "--batch", "8", "--format", "json"]);
    assert_eq!(time(&stdout(&with("l4", "all_chips.toml"))), time(&stdout(&without)));
    let other = with("t4", "gv100.toml");
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    assert!(stderr(&other).contains("is for chip GV100, but t4 is a TU104"), "{}", stderr(&other));
}

#[test]
fn what_does_not_fit_is_a_warning_or_on_request_an_error() {
    let arguments = ["--net", "vgg16", "--gpu", "m40", "--batch", "100000"];
    let output = run(&arguments);
    assert!(output.status.success());
    assert!(stdout(&output).contains("does not fit"));
    let strict = run(&[&arguments[..], &["--require-fit"]].concat());
    assert_eq!(strict.status.code(), Some(1));
}

#[test]
fn lists_descriptions_and_completions() {
    for (arguments, expected) in [
        (&["list", "nets"][..], "mobilenet_v2"),
        (&["list", "gpus"], "h200"),
        (&["list", "calibrations"], "gv100-imported-1"),
        (&["describe", "--net", "caffenet", "--counting", "castro2018"], "727.20"),
        (&["describe", "--net", "vgg16"], "138357544"),
        (&["completions", "bash"], "complete"),
        (&["--help"], "Examples"),
    ] {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        assert!(stdout(&output).contains(expected), "{arguments:?}");
    }
}

/// `--output` follows links, keeps permissions and leaves devices what they are.
#[cfg(unix)]
#[test]
fn output_respects_what_is_there() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = scratch("there");
    let (file, link) = (folder.join("file.json"), folder.join("link.json"));
    std::fs::write(&file, "old").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("permissions");
    symlink(&file, &link).expect("linked");
    let arguments = ["--net", "lenet5", "--gpu", "t4", "--batch", "1", "--format", "json", "--output"];
    let output = run(&[&arguments[..], &[link.to_str().expect("utf-8"), "--force"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(std::fs::read_to_string(&file).expect("there").contains("prediction/1"));
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).expect("permissions");
    let read_only = run(&[&arguments[..], &[file.to_str().expect("utf-8"), "--force"]].concat());
    assert_eq!(read_only.status.code(), Some(1));
    assert!(stderr(&read_only).contains("is read-only"), "{}", stderr(&read_only));
    let (plain, new) = (folder.join("plain"), folder.join("new.json"));
    std::fs::write(&plain, "x").expect("written");
    assert!(run(&[&arguments[..], &[new.to_str().expect("utf-8")]].concat()).status.success());
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode();
    assert_eq!(mode(&new), mode(&plain), "a new file is like any other");
    let standard = run(&[&arguments[..], &["-"]].concat());
    assert!(stdout(&standard).contains("prediction/1"));
}

#[test]
fn what_is_not_a_regular_file_is_not_read() {
    let folder = scratch("folder");
    for option in ["--net", "--gpu", "--calibration"] {
        let path = format!("{}/", folder.to_str().expect("utf-8"));
        let mut arguments = vec!["--net", "lenet5", "--gpu", "t4", "--batch", "1"];
        match arguments.iter().position(|a| *a == option) {
            Some(i) => arguments[i + 1] = &path,
            None => arguments.extend([option, &path]),
        }
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{option}: {}", stderr(&output));
        let expected = match option {
            "--calibration" => "holds no calibration",
            "--net" => "a folder without a config.json",
            _ => "not a regular file",
        };
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn papers_are_compared_in_every_format() {
    let with = |arguments: &[&str]| {
        let output = run(&[&["papers"][..], arguments].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let table = with(&["--paper", "castro2018"]);
    for part in ["Mean errors", "castro2018  table1", "Left out of the means", "Best devices"] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
    assert!(!table.contains("nvidia2015") && !table.contains("Every value"));
    assert!(with(&["--rows"]).contains("Every value"));
    let page = with(&["--paper", "nvidia2015", "--format", "markdown"]);
    assert!(page.contains("`predict papers --paper nvidia2015 --format markdown`"), "{page}");
    let json = with(&["--paper", "nvidia2015", "--framework", "cudnn", "--format", "json"]);
    assert!(json.starts_with("{\n  \"schema\": \"papers_comparison/1\"") && json.contains("\"framework\": \"cudnn\""));
}

#[test]
fn a_wrong_paper_profile_or_library_exits_2() {
    for (arguments, expected) in [
        (&["papers", "--paper", "castro2019"][..], "there are castro2018"),
        (&["papers", "--framework", "cafe"], "caffe"),
        (&["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--cudnn", "new"], "a version such as 7.6"),
        (&["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--cudnn", "99"], "cuDNN 1 to 9 are known"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

/// A convolution as cuDNN 4 computed it is slower than with the library that brought Winograd; the profile that has
/// batch norm in many passes is slower than the kernels alone.
#[test]
fn libraries_age_and_caffe_passes_over_memory_more_often() {
    let time = |arguments: &[&str]| {
        let base = ["--gpu", "titan-x-maxwell", "--batch", "64", "--format", "json"];
        let output = run(&[arguments, &base].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        let line = text.lines().find(|l| l.contains("\"time_s\":")).expect("time_s").to_string();
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>().expect("a number")
    };
    assert!(time(&["--net", "vgg16", "--cudnn", "4"]) > 1.05 * time(&["--net", "vgg16", "--cudnn", "5"]));
    assert_eq!(time(&["--net", "vgg16", "--cudnn", "5"]), time(&["--net", "vgg16"]));
    let resnet = ["--net", "resnet18", "--cudnn", "5"];
    assert!(time(&[&resnet[..], &["--framework", "caffe"]].concat()) > 1.3 * time(&resnet));
}

fn onnx_file(name: &str) -> String {
    format!("{}/../model/read/tests/onnx/{name}.onnx", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn an_onnx_file_is_predicted_like_the_network_it_was_exported_from() {
    let with = |net: &str| json(&["--net", net, "--gpu", "v100", "--batch", "16"]);
    let (file, zoo) = (with(&onnx_file("resnet50")), with("resnet50"));
    assert!(file.contains("\"source\": \"onnx\""), "{file}");
    for key in ["time_s", "energy_j", "parameters"] {
        let ratio = number(&file, key) / number(&zoo, key);
        assert!((ratio - 1.0).abs() < 0.01, "{key}: {ratio}");
    }
}

/// What the export of a model that was not trained dropped is back where PyTorch runs it, whatever reads the file.
#[test]
fn folded_batch_norms_run_under_a_profile_that_runs_modules() {
    let file = onnx_file("zoo/resnet50.dynamo.plain");
    let time = |more: &[&str]| {
        let fixed = ["--gpu", "h200", "--batch", "32", "--precision", "fp16"];
        let found = json(&[&fixed[..], more].concat());
        (number(&found, "time_s"), found)
    };
    let (zoo, _) = time(&["--net", "resnet50", "--framework", "pytorch"]);
    let (pytorch, said) = time(&["--net", &file, "--framework", "pytorch"]);
    assert!((pytorch / zoo - 1.0).abs() < 0.03, "{pytorch} and {zoo}");
    assert!(said.contains("53 batch norms that the file's export folded into other layers run"), "{said}");
    let (kept, said) = time(&["--net", &file, "--framework", "pytorch", "--keep-folded"]);
    assert!(kept < 0.9 * pytorch, "{kept} and {pytorch}");
    assert!(said.contains("as --keep-folded asks for"), "{said}");
    let (graph, said) = time(&["--net", &file]);
    assert!(said.contains("53 layers of the file hold a folded batch norm: --unfold-batch-norm"), "{said}");
    let (unfolded, _) = time(&["--net", &file, "--unfold-batch-norm"]);
    assert!(graph < 0.9 * unfolded, "{graph} and {unfolded}");
    let both = run(&["--net", &file, "--gpu", "h200", "--batch", "1", "--keep-folded", "--unfold-batch-norm"]);
    assert_eq!(both.status.code(), Some(2));
    // Through a network file, and in the commands that take several networks.
    let folder = scratch("folded");
    let own = folder.join("own.toml");
    let own = own.to_str().expect("a path");
    assert!(run(&["convert", &file, "--output", own]).status.success());
    assert_eq!(time(&["--net", own, "--framework", "pytorch"]).0, pytorch);
    assert_eq!(time(&["--net", own]).0, graph);
    let sweep = |more: &[&str]| {
        let fixed = ["sweep", "--net", &file, "--gpu", "h200", "--batch", "32", "--precision", "fp16"];
        stdout(&run(&[&fixed[..], more].concat())).lines().last().expect("a row").to_string()
    };
    let pytorch_row = sweep(&["--framework", "pytorch"]);
    assert_ne!(pytorch_row, sweep(&["--framework", "pytorch", "--keep-folded"]));
    assert_eq!(pytorch_row, sweep(&["--framework", "pytorch", "--unfold-batch-norm"]));
    let compare = |more: &[&str]| {
        let fixed = ["compare", "--net", &file, "--gpu", "h200,t4", "--batch", "32", "--framework", "pytorch"];
        stdout(&run(&[&fixed[..], more].concat()))
    };
    assert_ne!(compare(&[]), compare(&["--keep-folded"]));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn the_largest_batch_of_an_export_is_that_of_the_zoo() {
    let of = |net: &str| {
        let found = json(&["--net", net, "--gpu", "t4", "--batch", "max", "--framework", "pytorch"]);
        number(&found, "batch")
    };
    let (file, zoo) = (of(&onnx_file("zoo/resnet152.script.plain")), of("resnet152"));
    assert!((file / zoo - 1.0).abs() < 0.03, "{file} and {zoo}");
}

#[test]
fn what_is_left_out_is_a_warning() {
    let file = onnx_file("odd/unknown_operator");
    let base = ["--net", &file, "--gpu", "v100", "--batch", "1"];
    let refused = run(&base);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("sampler (HoloSample)"), "{}", stderr(&refused));
    assert!(json(&[&base[..], &["--skip-unknown"]].concat()).contains("left out: sampler (HoloSample)"));
    let open = run(&["describe", "--net", &onnx_file("odd/open_size")]);
    assert_eq!(open.status.code(), Some(2), "what is missing is for the user to say");
    assert!(stderr(&open).contains("--input x=1x3x128x128"), "{}", stderr(&open));
}

#[test]
fn a_network_can_be_converted_edited_and_converted_back() {
    let folder = scratch("convert");
    let (own, back) = (folder.join("own.toml"), folder.join("back.onnx"));
    let path = |p: &Path| p.to_str().expect("a path").to_string();
    let vgg = onnx_file("vgg16");
    for arguments in [
        vec!["convert".to_string(), vgg, "--output".into(), path(&own)],
        vec!["convert".to_string(), path(&own), "--to".into(), "onnx".into(), "--output".into(), path(&back)],
    ] {
        let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let total = |net: &str| {
        let output = run(&["describe", "--net", net]);
        stdout(&output).lines().last().expect("a total").to_string()
    };
    let numbers = |line: String| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    assert_eq!(numbers(total(&path(&back))), numbers(total("vgg16")));
    assert_eq!(numbers(total(&path(&own))), numbers(total("vgg16")));
    let prototxt = folder.join("net.prototxt");
    let text = "input: 'data' input_dim: [1, 3, 8, 8] layer { name: 'r' type: 'ReLU' bottom: 'data' top: 'r' }";
    std::fs::write(&prototxt, text).expect("written");
    let predicted = json(&["--net", &path(&prototxt), "--gpu", "titan-x-maxwell", "--batch", "4"]);
    assert!(predicted.contains("\"source\": \"prototxt\""), "{predicted}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_detector_without_a_batch_is_predicted_for_as_many_boxes_as_are_asked_for() {
    let file = onnx_file("exports/det_fasterrcnn_mobilenet_v3_large_fpn_script");
    let with = |boxes: &str| json(&["--net", &file, "--gpu", "v100", "--batch", "1", "--selected", boxes]);
    let (few, many) = (with("50"), with("2000"));
    assert!(number(&few, "time_s") < number(&many, "time_s"));
    assert!(few.contains("NonMaxSuppression, NonZero select: taken are 50 elements"), "{few}");
    assert!(few.contains("no dimension of the file is the batch"), "{few}");
}

/// An ONNX file cannot mark a batch norm as folded: that is said, and how to keep it.
#[test]
fn onnx_files_that_lose_folded_batch_norms_are_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let net = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/read/tests/onnx/zoo/mobilenet_v2.script.open.onnx");
    for (more, told) in [(&[][..], true), (&["--unfold-batch-norm"], false)] {
        let output = folder.path().join(if told { "folded.onnx" } else { "apart.onnx" }).display().to_string();
        let arguments = [&["convert", net, "--to", "onnx", "--output", &output][..], more].concat();
        let run = program::predict().args(&arguments).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{said}");
        assert_eq!(said.contains("which an ONNX file cannot say"), told, "{said}");
    }
}

/// A batch that cannot be counted is what was typed, not what went wrong.
#[test]
fn an_absurd_batch_is_a_wrong_argument() {
    for command in [&[][..], &["compare"], &["optimize"]] {
        let arguments = ["--net", "resnet50", "--gpu", "v100", "--batch", "999999999"];
        let output = program::predict().args(command).args(arguments).output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{command:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("resnet50 at batch 999999999: "), "{}", stderr(&output));
    }
}

#[test]
fn help_names_every_precision() {
    for command in [&[][..], &["compare"], &["optimize"], &["sweep"], &["describe"]] {
        let output = program::predict().args(command).arg("--help").output().expect("runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let from = text.find("--precision").expect("an option");
        let of = &text[from..(from + 400).min(text.len())];
        for precision in joulecast_model::base::precision::Precision::ALL {
            assert!(of.contains(precision.name()), "{command:?} {precision}: {of}");
        }
    }
}

/// Not the name that a file has while it is written.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_named_and_nothing_else() {
    let arguments = ["--net", "lenet5", "--gpu", "v100", "--batch", "4", "--output", "/proc/joulecast.txt"];
    let output = program::predict().args(arguments).output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.starts_with("error: /proc: no file can be made there (") && !told.contains(".tmp"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// A network of one layer is known no better than that layer, however well networks of many are.
#[test]
fn a_network_of_one_layer_is_as_uncertain_as_it() {
    let path = scratch("one").join("one.toml");
    let text = "schema = \"network/1\"\nname = \"one\"\ntitle = \"one\"\ninputs.x = { shape = [16, 20000, 20000] }\n\
                layers = [{ name = \"c\", kind = \"conv2d\", channels = 16, kernel = 3, padding = 1 }]\n";
    std::fs::write(&path, text).expect("a scratch file");
    let file = path.display().to_string();
    for gpu in ["h200", "v100", "rtx3090"] {
        let one = json(&["--net", &file, "--gpu", gpu, "--batch", "8"]);
        let layer = one.split_once("\"layers\":").expect("layers").1;
        for (end, wider) in [("time_s_p05", -1.0), ("time_s_p95", 1.0)] {
            let (whole, layer) =
                (number(&one, end) / number(&one, "time_s"), number(layer, end) / number(layer, "time_s"));
            assert!(wider * (whole / layer).ln() > -1e-3, "{gpu} {end}: {whole} {layer}");
        }
    }
}

/// Near a batch at which the library changes engines the time jumps, which is told where choices are known.
#[test]
fn engines_that_change_near_a_batch_are_told() {
    let told = |gpu: &str, batch: &str| {
        let output = run(&["--net", "vgg16", "--gpu", gpu, "--batch", batch]);
        stdout(&output).lines().find(|line| line.contains("change the engine")).map(str::to_string)
    };
    let note = told("h200", "30").expect("engines change");
    assert!(note.contains("from batch 27 to 33"), "{note}");
    let share: f64 =
        note.split("that take ").nth(1).and_then(|t| t.split(' ').next()).expect("a share").parse().expect("a number");
    assert!((10.0..=100.0).contains(&share), "{note}");
    assert_eq!((told("h200", "128"), told("v100", "30")), (None, None));
    // Between the ends and the next ones, too.
    let wide = run(&["--net", "wide_resnet101_2", "--gpu", "h200", "--batch", "70"]);
    assert!(stdout(&wide).contains("change the engine"));
}

/// Options of a command are described once it is typed; what it is for is said before, and stays.
#[test]
fn commands_say_the_same_of_themselves_in_both_helps() {
    let all = stdout(&run(&["--help"]));
    for (command, option) in
        [("convert", "--to"), ("sweep", "--shard"), ("serve", "--rate"), ("plan", "--new"), ("list", "<WHAT>")]
    {
        let listed = all.lines().find_map(|line| line.trim_start().strip_prefix(command)?.strip_prefix(' '));
        let own = stdout(&run(&[command, "--help"]));
        let first: String =
            own.lines().next().expect("a line").split_whitespace().take(4).collect::<Vec<_>>().join(" ");
        assert!(listed.is_some_and(|about| about.trim_start().starts_with(&first)), "{command}: {listed:?} {first}");
        assert!(own.contains(option), "{command}: {own}");
    }
}

#[test]
fn what_is_converted_into_is_as_the_name_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let into = |name: &str, to: &[&str]| {
        let file = folder.path().join(name);
        let output = run(&[&["convert", "lenet5", "--output", file.to_str().expect("a path")], to].concat());
        (output.status.code(), std::fs::read(&file).unwrap_or_default())
    };
    let toml = |bytes: &[u8]| bytes.starts_with(b"schema") || String::from_utf8_lossy(bytes).contains("schema = ");
    let (status, bytes) = into("net.onnx", &[]);
    assert!(status == Some(0) && !toml(&bytes) && !bytes.is_empty());
    let (status, bytes) = into("NET.ONNX", &[]);
    assert!(status == Some(0) && !toml(&bytes) && !bytes.is_empty());
    for name in ["net.prototxt", "config.json"] {
        assert_eq!(into(name, &[]), (Some(2), Vec::new()), "{name} would be read as another format");
    }
    for (name, to) in [("net.toml", &[][..]), ("net", &[]), ("net.txt", &["--to", "toml"])] {
        let (status, bytes) = into(name, to);
        assert!(status == Some(0) && toml(&bytes), "{name}");
    }
    assert_eq!(into("other.onnx", &["--to", "toml"]), (Some(2), Vec::new()));
    assert_eq!(into("other.toml", &["--to", "onnx"]), (Some(2), Vec::new()));
}

/// What to type instead is what can be typed.
#[test]
fn hints_name_the_option_that_was_meant() {
    let load = ["optimize", "--net", "llama3_8b", "--gpu", "h100", "--prompt", "1024", "--tpot", "50ms"];
    let compare = ["compare", "--gpu", "t4", "--net", "resnet50"];
    let optimize = ["optimize", "--net", "vgg16", "--gpu", "v100", "--batch", "1"];
    for (arguments, hint) in [
        (vec!["vgg16"], "--net vgg16 --gpu"),
        (vec!["describe", "vgg16"], "predict describe --net vgg16"),
        (vec!["convert", "lenet5", "net.toml"], "--output net.toml"),
        ([&compare[..], &["vgg16", "--batch", "1"]].concat(), "--net vgg16,vgg16"),
        ([&compare[..], &["--batch", "1", "64"]].concat(), "--batch 1,64"),
        ([&compare[..], &["--batch", "1", "--gpu", "t4", "v100"]].concat(), "--gpu t4,v100"),
        (load.to_vec(), "predict optimize --net llama3_8b"),
        ([&load[..], &["--answer", "8", "--metric", "edp"]].concat(), "whose --objective is --metric here"),
        (optimize[..5].to_vec(), "predict optimize --net resnet50"),
        ([&optimize[..], &["--pipeline-parallel", "2"]].concat(), "--layouts lists layouts"),
    ] {
        let output = run(&arguments);
        let last = stderr(&output).trim_end().lines().last().unwrap_or_default().to_string();
        assert!(output.status.code() == Some(2) && last.contains(hint), "{arguments:?}: {last}");
    }
    let output = run(&[&optimize[..], &["--nonsense", "2"]].concat());
    assert!(!stderr(&output).contains("layouts"), "{}", stderr(&output));
}

/// Of options that would do nothing none is taken.
#[test]
fn options_beside_which_another_does_nothing_are_refused() {
    let folder = scratch("refused");
    let file = folder.join("plan.toml");
    let plan = ["plan", "--new", file.to_str().expect("utf-8")];
    let layouts = ["--net", "llama3_8b", "--gpu", "h100", "--batch", "1", "--layouts"];
    let serve = ["serve", "--net", "llama3_8b", "--gpu", "h100", "--prompt", "64", "--answer", "8", "--rate", "4"];
    for arguments in [
        [&layouts[..], &["--layers"]].concat(),
        [&layouts[..], &["--require-fit"]].concat(),
        [&serve[..], &["--quantile", "p99"]].concat(),
        [&plan[..], &["--sequence", "5"]].concat(),
        [&plan[..], &["--host", "1"]].concat(),
        vec!["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--best-algorithms"],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    }
    assert!(!file.exists());
}

#[test]
fn layers_are_rows_of_csv() {
    let base = ["--net", "alexnet", "--gpu", "h200", "--batch", "8", "--layers", "--format"];
    let csv = stdout(&run(&[&base[..], &["csv"]].concat()));
    let document = stdout(&run(&[&base[..], &["json"]].concat()));
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let layers = document["layers"].as_array().expect("layers");
    // Names of engines have commas, and stand behind what is looked at.
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = rows.next().expect("a header");
    let place = |name: &str| header.iter().position(|own| *own == name).expect(name);
    let (time, engine) = (place("time_s"), place("engine"));
    assert_eq!((&header[..2], rows.clone().count()), (&["name", "kind"][..], layers.len()));
    for (row, layer) in rows.zip(layers) {
        assert_eq!(row[0], layer["name"].as_str().expect("a name"));
        let (found, expected) = (row[time].parse::<f64>().expect("a number"), layer["time_s"].as_f64().expect("one"));
        assert!((found / expected - 1.0).abs() < 1e-12, "{row:?}");
        assert_eq!(row[engine].is_empty(), layer["engine"].is_null(), "{row:?}");
        assert_eq!(row.len() - row[engine].matches('"').count(), header.len(), "{row:?}");
    }
    assert!(layers.iter().any(|layer| layer["engine"].is_null()) && !layers[0]["engine"].is_null());
    let elsewhere = stdout(&run(&["--net", "lenet5", "--gpu", "v100", "--batch", "1", "--layers", "--format", "csv"]));
    assert_eq!(elsewhere.lines().next(), csv.lines().next(), "the same columns without engines");
}

/// Blanks after commas are no part of names and numbers.
#[test]
fn lists_may_have_blanks() {
    for arguments in [
        &["optimize", "--net", "alexnet, lenet5", "--gpu", "v100", "--batch", "8"][..],
        &["compare", "--net", "alexnet, lenet5", "--gpu", "v100, t4", "--batch", "1, 8", "--price", "v100=2.5, t4=0.4"],
        &[
            "sweep",
            "--net",
            "alexnet",
            "--gpu",
            "v100",
            "--batch",
            "8",
            "--clock",
            "1200, 1500",
            "--power-cap",
            "200, default",
        ],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    }
}

/// What is larger than anything counts is no batch that fits.
#[test]
fn batches_that_nothing_counts_are_not_tried() {
    let base = ["optimize", "--net", "llama3_8b", "--gpu", "h200", "--precision", "bf16", "--sequence", "32768"];
    let found = json(&[&base[..], &["--batch", "1", "--over", "batch"]].concat());
    assert!(found.contains("\"best\": true"), "{found}");
    let none =
        run(&["optimize", "--net", "vgg16", "--gpu", "t4", "--mode", "training", "--batch", "1024", "--require-fit"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("vgg16 at batch 1024 does not fit in the memory of"), "{}", stderr(&none));
}
