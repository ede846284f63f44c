//! Where results go: files that are there, readers that are gone, and names that would be more than names.

mod program;

use std::fs;
use std::io::pipe;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = program::predict();
    command.args(arguments);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(arguments).current_dir(folder).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data").join(path)
}

/// A plan of one small network and candidate.
fn small_plan() -> String {
    let text = fs::read_to_string(data("capacity/tagging.toml")).expect("a plan");
    let head = text.split("[[network]]").next().expect("a head");
    let site = &text[text.find("[site]").expect("a site")..];
    let rest = "[[network]]\nnet = \"lenet5\"\nshare = 1.0\n[[candidate]]\ngpu = \"t4\"\nprice = 1.0\nprice_source = \"a\"\n\
                gpus_per_server = 4\nserver_overhead_w = 1.0\nvary = []\n";
    format!("{head}{rest}{site}")
}

const PREDICT: [&str; 6] = ["--net", "lenet5", "--gpu", "t4", "--batch", "2"];

/// Every command that writes files, each with the option that names one.
const WRITERS: [(&[&str], &str, &str); 8] = [
    (&PREDICT, "--output", "out"),
    (&["--net", "gpt2", "--gpu", "t4", "--batch", "1", "--sequence", "16", "--generate", "2"], "--output", "out"),
    (&["convert", "lenet5"], "--output", "out"),
    (&["optimize", "--net", "lenet5", "--gpu", "t4", "--batch", "2"], "--output", "out"),
    (&["optimize", "--net", "lenet5", "--gpu", "t4", "--batch", "2"], "--figure", "out"),
    (&["compare", "--net", "lenet5", "--gpu", "t4,v100", "--batch", "2"], "--figure", "out"),
    (&["plan", "plan.toml"], "--output", "out"),
    (&["plan", "plan.toml"], "--figures", "fleets.svg"),
];

#[test]
fn two_results_need_two_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let compare = ["compare", "--net", "lenet5", "--gpu", "t4,v100", "--batch", "2"];
    for (files, why) in [
        (&["--figure", "one", "--output", "one", "--force"][..], "one: named for two results"),
        (&["--figure", "-"], "a dash is standard output"),
    ] {
        let refused = run(folder, &[&compare[..], files].concat());
        assert_eq!(refused.status.code(), Some(2), "{files:?}");
        assert!(stderr(&refused).contains(why) && refused.stdout.is_empty(), "{}", stderr(&refused));
        assert_eq!(fs::read_dir(folder).expect("there").count(), 0, "{files:?}");
    }
}

#[test]
fn what_is_there_is_written_over_only_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("plan.toml"), small_plan()).expect("written");
    for (arguments, option, file) in WRITERS {
        let path = folder.join(file);
        let there = || fs::read_to_string(&path).expect("there");
        let named = if option == "--figures" { "." } else { file };
        let arguments = [arguments, &[option, named]].concat();
        fs::write(&path, "edited by hand").expect("written");
        let refused = run(folder, &arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", stderr(&refused));
        let line = stderr(&refused);
        assert!(line.contains(&format!("{file} is there already: --force")) && line.lines().count() == 1, "{line}");
        assert!(refused.stdout.is_empty(), "{arguments:?}: refused before anything is done");
        assert_eq!(there(), "edited by hand", "{arguments:?}");
        let forced = run(folder, &[&arguments[..], &["--force"]].concat());
        assert!(forced.status.success(), "{arguments:?}: {}", stderr(&forced));
        assert!(there().len() > 100, "{arguments:?}");
        // A new file needs no force, and an empty one holds nothing.
        for make in [&|| fs::remove_file(&path), &|| fs::write(&path, "")] as [&dyn Fn() -> std::io::Result<()>; 2] {
            make().expect("made");
            for besides in ["costs.svg", "sensitivity.svg", "day.svg"] {
                fs::remove_file(folder.join(besides)).ok();
            }
            let new = run(folder, &arguments);
            assert!(new.status.success(), "{arguments:?}: {}", stderr(&new));
            assert!(there().len() > 100, "{arguments:?}");
        }
        for left in fs::read_dir(folder).expect("a folder").flatten() {
            if left.file_name() != "plan.toml" {
                fs::remove_file(left.path()).expect("removed");
            }
        }
    }
    let made = run(folder, &["papers", "--paper", "unknown", "--output", "plan.toml"]);
    assert!(stderr(&made).contains("plan.toml is there already"), "{}", stderr(&made));
}

/// All or nothing: where one file is in the way, none of the others is written.
#[test]
fn nothing_is_written_where_one_file_is_in_the_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("plan.toml"), small_plan()).expect("written");
    let both = ["--output", "out", "--figure", "figure"];
    let compare = [&["compare", "--net", "lenet5", "--gpu", "t4", "--batch", "2"], &both[..]].concat();
    let optimize = [&["optimize", "--net", "lenet5", "--gpu", "t4", "--batch", "2"], &both[..]].concat();
    let plan = ["plan", "plan.toml", "--output", "out", "--figures", "."];
    let cases: [(&[&str], &[&str]); 3] =
        [(&compare, &["out", "figure"]), (&optimize, &["out", "figure"]), (&plan, &["out", "fleets.svg", "day.svg"])];
    for (arguments, files) in cases {
        for in_the_way in files {
            fs::write(folder.join(in_the_way), "edited by hand").expect("written");
            assert_eq!(run(folder, arguments).status.code(), Some(2), "{arguments:?}");
            let written = files.iter().filter(|file| folder.join(file).exists()).collect::<Vec<_>>();
            assert_eq!(written, [in_the_way], "{arguments:?}");
            fs::remove_file(folder.join(in_the_way)).expect("removed");
        }
        assert!(run(folder, arguments).status.success(), "{arguments:?}");
        for file in files {
            fs::remove_file(folder.join(file)).expect("written and removed");
        }
    }
}

#[cfg(unix)]
#[test]
fn dashes_devices_and_pipes_go_on_working() {
    let folder = tempfile::tempdir().expect("a folder");
    let plain = run(folder.path(), &PREDICT).stdout;
    for to in ["-", "/dev/stdout"] {
        let output = run(folder.path(), &[&PREDICT[..], &["--output", to]].concat());
        assert!(output.status.success(), "{to}: {}", stderr(&output));
        assert_eq!(output.stdout, plain, "{to}");
    }
    let null = run(folder.path(), &[&PREDICT[..], &["--output", "/dev/null"]].concat());
    assert!(null.status.success() && null.stdout.is_empty());
    let full = run(folder.path(), &[&PREDICT[..], &["--output", "/dev/full"]].concat());
    assert_eq!(full.status.code(), Some(1));
    // A link to a file that is yet to be stays a link.
    std::os::unix::fs::symlink("target", folder.path().join("link")).expect("linked");
    let output = run(folder.path(), &[&PREDICT[..], &["--output", "link"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::symlink_metadata(folder.path().join("link")).expect("there").is_symlink());
    assert_eq!(fs::read(folder.path().join("target")).expect("followed"), plain);
}

/// Whoever reads may go: no command panics, and each ends as it would with a reader.
#[test]
fn nobody_need_read() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("plan.toml"), small_plan()).expect("written");
    let sweep = ["sweep", "--net", "lenet5,lenet5", "--gpu", "v100", "--batch", "1", "--clock", "default,5000"];
    let commands: [(&[&str], i32); 17] = [
        (&PREDICT, 0),
        (&["--net", "lenet5", "--gpu", "none", "--batch", "2"], 2),
        (&["--net", "none.toml", "--gpu", "t4", "--batch", "2"], 1),
        (&["--net", "gpt2", "--gpu", "t4", "--batch", "1", "--sequence", "16", "--generate", "2"], 0),
        (&["--net", "lenet5"], 2),
        (&["--help"], 0),
        (&["--version"], 0),
        (&["describe", "--net", "vgg16"], 0),
        (&["list", "nets"], 0),
        (&["completions", "bash"], 0),
        (&["convert", "resnet50"], 0),
        (&["convert", "none"], 2),
        (&["optimize", "--net", "lenet5", "--gpu", "t4", "--batch", "2"], 0),
        (&["compare", "--net", "lenet5,lenet5", "--gpu", "t4,t4", "--batch", "2,2"], 0),
        (&["plan", "plan.toml"], 0),
        (&["papers", "--paper", "none"], 2),
        (&sweep, 0),
    ];
    for (arguments, expected) in commands {
        for closed in ["stdout", "stderr", "both"] {
            let gone = || {
                let (reader, writer) = pipe().expect("a pipe");
                drop(reader);
                Stdio::from(writer)
            };
            let mut command = command(arguments);
            command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
            if closed != "stderr" {
                command.stdout(gone());
            }
            if closed != "stdout" {
                command.stderr(gone());
            }
            let status = command.status().expect("the program starts");
            assert_eq!(status.code(), Some(expected), "{arguments:?}, nobody reads {closed}");
        }
    }
    // A sweep into a file says on standard error how fast it was.
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    let mut to_file = command(&[&sweep[..], &["--output", "rows.csv"]].concat());
    let status = to_file.current_dir(folder.path()).stderr(writer).status().expect("the program starts");
    assert_eq!(status.code(), Some(0));
    assert_eq!(fs::read_to_string(folder.path().join("rows.csv")).expect("rows").lines().count(), 3);
}

const EVIL: &str = "\\u001b]0;pwn\\u0007\\u009b2J<script>alert(1)</script> [x](javascript:y)\\r\\nforged: 1 ms";

/// Text that is more than text to a terminal: an escape, a line of its own.
fn escapes(text: &str) -> bool {
    text.contains(|c: char| c.is_control() && c != '\n') || text.contains("\nforged")
}

/// Text that is more than text on a page: an element, and in Markdown a link.
fn marks(text: &str) -> bool {
    text.contains("<script") || !text.starts_with("<!doctype html>") && text.contains("](javascript")
}

#[test]
fn names_and_titles_of_files_are_only_names_in_every_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let title = |path: PathBuf, to: &str, field: &str| {
        let text = fs::read_to_string(path).expect("a file");
        let lines = text.lines().map(|l| match l.starts_with(&format!("{field} = ")) {
            true => format!("{field} = \"{EVIL}\"\n"),
            false => format!("{l}\n"),
        });
        fs::write(folder.join(to), lines.collect::<String>()).expect("written");
    };
    title(data("gpus/t4.toml"), "gpu.toml", "title");
    title(data("gpus/t4.toml"), "named.toml", "name");
    title(data("nets/lenet5.toml"), "net.toml", "name");
    title(data("nets/lenet5.toml"), "titled.toml", "title");
    let calibration = fs::read_to_string(data("calibrations/tu104.toml")).expect("a calibration");
    let calibration = calibration.replacen("id = \"tu104-imported-1\"", &format!("id = \"{EVIL}\""), 1);
    fs::write(folder.join("calibration.toml"), calibration).expect("written");
    let plan = small_plan().replacen("gpu = \"t4\"", &format!("gpu = \"t4\"\nname = \"{EVIL}\""), 1);
    let plan = plan.replacen("price_source = \"a\"", &format!("price_source = \"{EVIL}\""), 1);
    let plan = plan.replacen("title = \"", &format!("title = \"{EVIL}"), 1).replace("\"lenet5\"", "\"net.toml\"");
    fs::write(folder.join("plan.toml"), plan).expect("written");
    let prototxt = "name: '\u{1b}[2J<script>[x](javascript:y)' input: 'x\u{7}' input_dim: [1, 3, 8, 8] \
                    layer { name: '<script>\u{1b}' type: 'ReLU' bottom: 'x\u{7}' top: 'y' }";
    fs::write(folder.join("net.prototxt"), prototxt).expect("written");
    let of = |net: &'static str, gpu: &'static str| ["--net", net, "--gpu", gpu, "--batch", "2"];
    let mut runs: Vec<Vec<&str>> = Vec::new();
    for format in ["table", "markdown", "json", "csv"] {
        for (net, gpu) in [("net.toml", "gpu.toml"), ("titled.toml", "named.toml"), ("net.prototxt", "gpu.toml")] {
            runs.push([&of(net, gpu)[..], &["--format", format]].concat());
            runs.push([&["optimize"], &of(net, gpu)[..], &["--format", format]].concat());
            runs.push([&["compare"], &of(net, gpu)[..], &["--format", format]].concat());
        }
        runs.push([&of("net.toml", "t4")[..], &["--calibration", "calibration.toml", "--format", format]].concat());
        runs.push(vec!["plan", "plan.toml", "--format", format]);
    }
    runs.push(vec!["plan", "plan.toml", "--format", "html"]);
    for net in ["net.toml", "titled.toml", "net.prototxt"] {
        runs.extend([vec!["convert", net], vec!["describe", "--net", net, "--format", "markdown"]]);
        runs.push(vec!["sweep", "--net", net, "--gpu", "gpu.toml", "--batch", "1", "--format", "jsonl"]);
    }
    for arguments in runs {
        let output = run(folder, &arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        // Sources are sentences: what they hold besides is cleaned where it would mean something.
        let sentences = arguments[0] == "plan" && !["markdown", "html"].iter().any(|page| arguments.contains(page));
        for text in [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)] {
            assert!(!escapes(&text) && (sentences || !marks(&text)), "{arguments:?}: {text:?}");
        }
        assert!(String::from_utf8_lossy(&output.stdout).chars().count() > 50);
    }
    // What names are kept goes on with its own rows.
    let sweep = |extra: &[&'static str]| {
        let base = ["sweep", "--net", "net.toml", "--gpu", "t4", "--batch", "1", "--output", "rows.csv", "--quiet"];
        run(folder, &[&base[..], extra].concat())
    };
    assert!(sweep(&[]).status.success());
    let resumed = sweep(&["--resume"]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
}

#[test]
fn errors_about_files_are_short_and_change_no_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).expect("written");
    let long = "x".repeat(100_000);
    let gpu = fs::read_to_string(data("gpus/t4.toml")).expect("a GPU");
    write("type.toml", gpu.replacen("sms = { value = ", &format!("sms = {{ value = \"{long}\" # "), 1));
    write("source.toml", gpu.replacen("source = \"", &format!("source = \"{EVIL}{long}"), 1));
    write("key.toml", format!("\"{EVIL}{long}\" = 1\n{gpu}"));
    let net = fs::read_to_string(data("nets/lenet5.toml")).expect("a network");
    write("kind.toml", net.replacen("kind = \"", &format!("kind = \"{EVIL}{long}"), 1));
    let plan = small_plan();
    write("plan.toml", plan.replacen("gpu = \"t4\"", &format!("gpu = \"{long}\""), 1));
    let candidate = &plan[plan.find("[[candidate]]").expect("one")..plan.find("[site]").expect("a site")];
    write("many.toml", plan.replacen("[site]", &format!("{}[site]", candidate.repeat(9000)), 1));
    for (arguments, expected) in [
        (["--net", "lenet5", "--gpu", "type.toml", "--batch", "2"].as_slice(), "type.toml: line "),
        (&["--net", "lenet5", "--gpu", "source.toml", "--batch", "2"], "is not in [sources]"),
        (&["--net", "lenet5", "--gpu", "key.toml", "--batch", "2"], "key.toml: line 1: unknown field"),
        (&["--net", "kind.toml", "--gpu", "t4", "--batch", "2"], "kind.toml: layer "),
        (&["plan", "plan.toml"], "no gpu named \"xxx"),
        (&["plan", "many.toml"], "many.toml: 9001 [[candidate]]: a plan is made for at most 200"),
        (&["--net", "lenet5", "--gpu", &long, "--batch", "2"], "no gpu named \"xxx"),
    ] {
        let output = run(folder.path(), arguments);
        let error = stderr(&output);
        assert!(!output.status.success() && error.contains(expected), "{expected}: {}", &error[..error.len().min(400)]);
        assert!(error.chars().count() <= 310 && error.lines().count() == 1, "{} bytes: {error}", error.len());
        assert!(!escapes(&error), "{error:?}");
    }
}

/// Magnitudes that no fit or board has are refused where they stand, in the user's file.
#[test]
fn absurd_numbers_of_calibrations_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(data("calibrations/tu104.toml")).expect("a calibration");
    let at = text.find("residuals = [\n  [").expect("residuals") + "residuals = [\n  [".len();
    let first = &text[at..at + text[at..].find(']').expect("an end")];
    let cells: Vec<&str> = first.split(", ").collect();
    for (value, field) in [("6.4e99", "residuals is 6.4e99"), ("inf", "residuals is inf"), ("nan", "residuals is NaN")]
    {
        let wrong = format!("{}, {}, {value}, {}", cells[0], cells[1], cells[3]);
        fs::write(folder.path().join("c.toml"), text.replacen(first, &wrong, 1)).expect("written");
        let output = run(folder.path(), &[&PREDICT[..], &["--calibration", "c.toml"]].concat());
        assert_eq!(output.status.code(), Some(1), "{value}");
        assert!(
            stderr(&output).starts_with("error: c.toml: model ") && stderr(&output).contains(field),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn the_largest_batch_says_where_it_stops_looking() {
    let folder = tempfile::tempdir().expect("a folder");
    let gpu = fs::read_to_string(data("gpus/t4.toml")).expect("a GPU");
    let line = gpu.lines().find(|l| l.starts_with("size = ")).expect("a size");
    let huge = line.replacen(line.split('"').nth(1).expect("a value"), "9000 TB", 1);
    fs::write(folder.path().join("huge.toml"), gpu.replacen(line, &huge, 1)).expect("written");
    let at = |gpu: &str| run(folder.path(), &["--net", "lenet5", "--gpu", gpu, "--batch", "max"]);
    let text = String::from_utf8_lossy(&at("huge.toml").stdout).into_owned();
    assert!(text.contains("batch 16777215,") && text.contains("looks no further than 16777215"), "{text}");
    assert!(!String::from_utf8_lossy(&at("t4").stdout).contains("looks no further"));
    let words = ["optimize", "--net", "lenet5", "--gpu", "huge.toml", "--batch", "max", "--over", "clock"];
    let output = run(folder.path(), &words);
    assert!(String::from_utf8_lossy(&output.stdout).contains("looks no further than 16777215"));
}
