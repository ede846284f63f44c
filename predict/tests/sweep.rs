//! `predict sweep` as a user runs it.

mod program;

use std::fs;
use std::path::Path;
use std::process::Output;

const BASE: [&str; 13] = [
    "sweep",
    "--net",
    "resnet18,lenet5",
    "--gpu",
    "v100,t4",
    "--batch",
    "1,32",
    "--power-cap",
    "default,180..220:20",
    "--precision",
    "fp32,tf32",
    "--mode",
    "inference,training",
];

fn run(arguments: &[&str]) -> Output {
    program::predict().args(arguments).output().expect("the program starts")
}

fn swept(extra: &[&str]) -> String {
    let output = run(&[&BASE[..], extra].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn rows_come_in_order_whatever_the_threads_and_agree_with_predictions() {
    let text = swept(&[]);
    assert_eq!(text, swept(&["--threads", "1"]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 2 * 2 * 2 * 2 * 2 * 4);
    let header: Vec<&str> = lines[0].split(',').collect();
    let column = |name: &str| header.iter().position(|h| *h == name).expect(name);
    let first: Vec<&str> = lines[1].split(',').collect();
    assert_eq!(first[..11], ["resnet18", "v100", "1", "fp32", "inference", "", "", "", "cudnn", "graph", ""]);
    // What a board does not do or take has a row that says so.
    let wrong = lines.iter().filter(|l| l.contains("has no units that compute in tf32")).count();
    assert_eq!(wrong, 64);
    assert!(lines.iter().any(|l| l.contains("t4 has no power limit of 180 W")));
    let output =
        run(&["--net", "resnet18", "--gpu", "v100", "--batch", "32", "--power-cap", "200", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = lines.iter().find(|l| l.starts_with("resnet18,v100,32,fp32,inference,,200,")).expect("a row");
    let cells: Vec<&str> = row.split(',').collect();
    for name in ["time_s", "power_w", "energy_j_p95", "core_clock_mhz", "memory_bytes", "ops"] {
        let (swept, predicted) = (cells[column(name)].parse::<f64>().expect("a number"), &document[name]);
        let predicted = predicted.as_f64().expect("a number");
        assert!((swept / predicted - 1.0).abs() < 2e-3, "{name}: {swept} {predicted}");
    }
}

fn resumed(format: &str, cut: impl Fn(&str) -> String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows");
    let name = path.to_str().expect("a name");
    swept(&["--format", format, "--output", name, "--quiet"]);
    let whole = fs::read_to_string(&path).expect("rows");
    for share in [0.0, 0.31, 0.77, 1.0] {
        fs::write(&path, &whole[..(whole.len() as f64 * share) as usize]).expect("cut");
        swept(&["--format", format, "--output", name, "--resume", "--quiet"]);
        assert_eq!(fs::read_to_string(&path).expect("rows"), whole, "cut at {share}");
    }
    fs::write(&path, cut(&whole)).expect("written");
    let other = run(&[&BASE[..], &["--format", format, "--output", name, "--resume", "--quiet"]].concat());
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&other.stderr).contains("row 3 is not of this sweep"));
    assert_eq!(fs::read_to_string(Path::new(name)).expect("rows"), cut(&whole), "nothing is overwritten");
}

#[test]
fn a_sweep_goes_on_where_it_stopped_and_not_on_another_s_rows() {
    // Without the third row, the fourth stands in its place.
    let without = |row: usize| {
        move |text: &str| text.lines().enumerate().filter(|(i, _)| *i != row).map(|(_, l)| format!("{l}\n")).collect()
    };
    resumed("csv", without(3));
    resumed("jsonl", without(2));
}

/// One after the other, whatever the number of parts; a part that stopped goes on, and not as another.
#[test]
fn shards_together_are_the_sweep() {
    let rows = |extra: &[&str]| {
        let text = swept(&[&["--quiet"], extra].concat());
        let (_, rows) = text.split_once('\n').expect("a header");
        rows.to_string()
    };
    let whole = rows(&[]);
    for of in [1, 2, 3, 7, 1000] {
        let parts: String = (1..=of.min(200)).map(|i| rows(&["--shard", &format!("{i}/{of}")])).collect();
        assert!(whole.starts_with(&parts) && (of > 200 || parts == whole), "{of} parts");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.csv");
    let name = path.to_str().expect("a name");
    swept(&["--quiet", "--output", name, "--shard", "2/3"]);
    let second = fs::read_to_string(&path).expect("rows");
    fs::write(&path, &second[..second.len() / 2]).expect("cut");
    swept(&["--quiet", "--output", name, "--shard", "2/3", "--resume"]);
    assert_eq!(fs::read_to_string(&path).expect("rows"), second);
    let other = run(&[&BASE[..], &["--quiet", "--output", name, "--shard", "3/3", "--resume"]].concat());
    assert_eq!(other.status.code(), Some(1), "another part's rows");
    for wrong in ["0/2", "3/2", "1/0", "2", "a/b"] {
        assert_eq!(run(&[&BASE[..], &["--shard", wrong]].concat()).status.code(), Some(2), "{wrong}");
    }
}

/// Many batches of a network are worked on together; few go the plain way. Where tasks begin changes no row.
#[test]
fn many_batches_together_are_as_few() {
    let rows = |batches: std::ops::RangeInclusive<u64>, extra: &[&str]| -> Vec<String> {
        let batches: Vec<String> = batches.map(|batch| batch.to_string()).collect();
        let of = [
            "sweep",
            "--net",
            "resnet18",
            "--gpu",
            "v100,mi250x",
            "--power-cap",
            "default,200",
            "--mode",
            "inference,training",
        ];
        let output = run(&[&of[..], &["--quiet", "--batch", &batches.join(",")], extra].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().skip(1).map(str::to_string).collect()
    };
    let together = rows(1..=33, &[]);
    let parts = (1..=5).flat_map(|part| rows(1..=33, &["--shard", &format!("{part}/5")]));
    assert_eq!(together, parts.collect::<Vec<_>>());
    let sorted = |mut rows: Vec<String>| {
        rows.sort();
        rows
    };
    let few = [1..=11, 12..=22, 23..=33].into_iter().flat_map(|batches| rows(batches, &[])).collect();
    let (together, few) = (sorted(together), sorted(few));
    assert_eq!((together.len(), few.len()), (2 * 2 * 2 * 33, 2 * 2 * 2 * 33));
    for (together, few) in together.iter().zip(&few) {
        let same = |(a, b): (&str, &str)| match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(a), Ok(b)) => (a - b).abs() <= 1e-11 * b.abs(),
            _ => a == b,
        };
        assert!(together.split(',').zip(few.split(',')).all(same), "{together}\n{few}");
    }
}

/// What no column says is refused, too, whichever of the two asked for it.
#[test]
fn a_sweep_does_not_go_on_with_other_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.csv");
    let name = path.to_str().expect("a name");
    let base = [
        "sweep", "--net", "lenet5", "--gpu", "v100", "--batch", "8,16", "--gpus", "2", "--mode", "training", "--quiet",
    ];
    let go = |extra: &[&str]| {
        let output = program::predict().args(base).args(["--output", name]).args(extra).output().expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let all = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/calibrations/all_chips.toml");
    let settings: [&[&str]; 5] = [
        &["--input-rate", "50"],
        &["--optimizer", "adam"],
        &["--mem-clock", "877"],
        &["--calibration", all],
        &["--interconnect", "pcie3"],
    ];
    for setting in settings {
        for (first, then) in [(&[][..], setting), (setting, &[][..])] {
            let made = go(&[first, &["--force"]].concat());
            assert_eq!(made.0, Some(0), "{setting:?}: {}", made.1);
            let rows = fs::read_to_string(&path).expect("rows");
            let cut: String = rows.lines().take(2).map(|line| format!("{line}\n")).collect();
            fs::write(&path, &cut).expect("cut");
            let (status, said) = go(&[then, &["--resume"]].concat());
            assert!(status == Some(1) && said.contains("is not the one that the rows there"), "{setting:?}: {said}");
            assert_eq!(fs::read_to_string(&path).expect("rows"), cut, "nothing is written");
            assert_eq!(go(&[first, &["--resume"]].concat()).0, Some(0));
            assert_eq!(fs::read_to_string(&path).expect("rows"), rows);
        }
    }
}

/// Whatever was there when it stopped, a file that is whole or nothing is the one that an unbroken sweep writes.
#[cfg(any(feature = "arrow", feature = "parquet"))]
fn goes_on_where_it_stopped(format: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("rows.{format}");
    let (path, rows) = (folder.path().join(&file), folder.path().join(format!("{file}.rows.csv")));
    let name = path.to_str().expect("a name");
    let swept = |extra: &[&str]| swept(&[&["--format", format, "--output", name, "--quiet"], extra].concat());
    swept(&[]);
    let whole = fs::read(&path).expect("a file");
    assert!(!rows.exists());
    self::swept(&["--output", rows.to_str().expect("a name"), "--quiet"]);
    let beside = folder.path().join(format!("{file}.rows.csv.sweep.json"));
    let (text, made_from) = (fs::read_to_string(&rows).expect("rows"), fs::read(&beside).expect("what they are of"));
    for share in [0.0, 0.31, 0.77, 1.0] {
        fs::remove_file(&path).expect("removed");
        fs::write(&rows, &text[..(text.len() as f64 * share) as usize]).expect("cut");
        fs::write(&beside, &made_from).expect("written");
        swept(&["--resume"]);
        assert_eq!(fs::read(&path).expect("a file"), whole, "cut at {share}");
        assert!(!rows.exists() && !beside.exists());
    }
    fs::write(&rows, text.replacen("resnet18", "resnet34", 1)).expect("written");
    let other = run(&[&BASE[..], &["--format", format, "--output", name, "--resume", "--quiet"]].concat());
    assert!(String::from_utf8_lossy(&other.stderr).contains("row 1 is not of this sweep"));
    assert_eq!(fs::read(&path).expect("a file"), whole, "nothing is overwritten");
    let printed = run(&[&BASE[..], &["--format", format, "--quiet"]].concat());
    assert_eq!(printed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&printed.stderr).contains("needs --output"));
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_sweep_goes_on_where_it_stopped() {
    goes_on_where_it_stopped("parquet");
}

#[cfg(feature = "arrow")]
#[test]
fn an_arrow_sweep_goes_on_where_it_stopped() {
    goes_on_where_it_stopped("arrow");
}

#[test]
fn rows_of_another_framework_or_algorithm_are_not_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.csv");
    let base = ["sweep", "--net", "resnet18", "--gpu", "h200", "--batch", "1,8", "--quiet", "--output"];
    let run = |extra: &[&str]| run(&[&base[..], &[path.to_str().expect("a name")], extra].concat());
    assert!(run(&["--conv-algorithm", "fft"]).status.success());
    let text = fs::read_to_string(&path).expect("rows");
    assert_eq!(text.lines().filter(|l| l.contains(",cudnn,graph,fft,")).count(), 2);
    assert!(run(&["--conv-algorithm", "fft", "--resume"]).status.success());
    assert_eq!(fs::read_to_string(&path).expect("rows"), text);
    for other in [&["--conv-algorithm", "gemm"][..], &[], &["--framework", "pytorch"]] {
        let output = run(&[other, &["--resume"]].concat());
        assert!(String::from_utf8_lossy(&output.stderr).contains("row 1 is not of this sweep"), "{other:?}");
    }
    // Nothing is written over where a later GPU or precision cannot be.
    for wrong in [&["--precision", "fp32,fp16"][..], &["--gpu", "i7-6700k"]] {
        let refused = run(&[&["--conv-algorithm", "fft"], wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert_eq!(fs::read_to_string(&path).expect("rows"), text, "{wrong:?}");
    }
}

/// Rows say networks and GPUs by name; what these rest on is compared by what it is.
#[test]
fn rows_that_were_made_from_something_else_are_not_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data");
    let at = |name: &str| folder.path().join(name);
    for (from, to) in [("nets/lenet5.toml", "net.toml"), ("gpus/t4.toml", "gpu.toml")] {
        fs::copy(data.join(from), at(to)).expect("copied");
    }
    let sweep = |batch: &str, extra: &[&str]| {
        let base = ["sweep", "--net", "net.toml,vgg16", "--gpu", "gpu.toml,v100", "--quiet", "--output", "rows.csv"];
        let arguments = [&base[..], &["--batch", batch], extra].concat();
        program::predict().args(arguments).current_dir(folder.path()).output().expect("starts")
    };
    let read = |name: &str| fs::read_to_string(at(name)).expect("there");
    assert!(sweep("1,2", &[]).status.success());
    let (rows, made_from) = (read("rows.csv"), read("rows.csv.sweep.json"));
    // The rows are what they always were, for whoever reads them.
    assert!(rows.starts_with("network,gpu,batch,") && rows.lines().all(|l| l.split(',').count() == 32));
    let refused = |what: &str| {
        for (batch, cut) in [("1,2", rows.len()), ("1,2", rows.len() / 2)] {
            fs::write(at("rows.csv"), &rows[..cut]).expect("written");
            let output = sweep(batch, &["--resume"]);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{what}: {error}");
            assert!(error.contains(what) && error.contains("--force") && error.lines().count() == 1, "{what}: {error}");
            assert_eq!(read("rows.csv"), &rows[..cut], "{what}: nothing is written");
        }
    };
    for (file, from, to, what) in [
        ("net.toml", "channels = 20", "channels = 200", "network lenet5 is not the one"),
        ("gpu.toml", "\"70 W\"", "\"69 W\"", "GPU gpu.toml is not the one"),
    ] {
        let text = read(file);
        assert!(text.contains(from), "{file} has {from}");
        fs::write(at(file), text.replacen(from, to, 1)).expect("changed");
        refused(what);
        // Remarks are no content.
        fs::write(at(file), format!("# a remark\n{text}")).expect("changed");
        let output = sweep("1,2", &["--resume"]);
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(read("rows.csv"), rows);
        fs::write(at(file), text).expect("back");
    }
    // What is built in changes with the program: as if another build had written these.
    let keys = [
        "program",
        "calibration tu104",
        "calibration gv100",
        "calibration all_chips",
        "framework profile cudnn",
        "network vgg16",
        "GPU v100",
    ];
    let document: serde_json::Value = serde_json::from_str(&made_from).expect("JSON");
    for what in keys {
        let mut other = document.clone();
        assert!(other["made_from"][what].is_string(), "{what}: {made_from}");
        other["made_from"][what] = "0.0.9 0123456789abcdef".into();
        fs::write(at("rows.csv.sweep.json"), other.to_string()).expect("written");
        refused(&format!("{what} is not the one"));
    }
    for damaged in ["", "{}", "{\"schema\":\"sweep/9\",\"made_from\":{}}"] {
        fs::write(at("rows.csv.sweep.json"), damaged).expect("written");
        fs::write(at("rows.csv"), &rows).expect("written");
        assert_eq!(sweep("1,2", &["--resume"]).status.code(), Some(1), "{damaged}");
        assert_eq!(read("rows.csv"), rows);
    }
    // Rows of before, which do not say what they were made from.
    fs::remove_file(at("rows.csv.sweep.json")).expect("removed");
    refused("rows.csv.sweep.json does not say what the rows were made from");
    assert!(!at("rows.csv.sweep.json").exists());
    assert!(sweep("1,2", &["--force"]).status.success());
    assert_eq!((read("rows.csv"), read("rows.csv.sweep.json")), (rows.clone(), made_from.clone()));
    // More of the same goes on, and what came is remembered with what was there.
    let more = ["sweep", "--net", "net.toml,vgg16", "--gpu", "gpu.toml,v100,p4", "--quiet", "--output", "rows.csv"];
    let more = [&more[..], &["--batch", "1,2", "--resume"]].concat();
    let output = program::predict().args(more).current_dir(folder.path()).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(read("rows.csv").starts_with(&rows) && read("rows.csv").lines().count() == 13);
    assert!(read("rows.csv.sweep.json").contains("GPU p4"));
}

#[cfg(unix)]
#[test]
fn devices_have_nothing_beside_them_and_links_have_it_where_they_lead() {
    let folder = tempfile::tempdir().expect("a folder");
    let sweep = |to: &str| {
        let base = ["sweep", "--net", "lenet5", "--gpu", "v100", "--batch", "1", "--quiet", "--output", to];
        program::predict().args(base).current_dir(folder.path()).output().expect("starts")
    };
    for device in ["/dev/null", "/dev/stdout"] {
        let output = sweep(device);
        assert!(output.status.success(), "{device}: {}", String::from_utf8_lossy(&output.stderr));
    }
    fs::create_dir(folder.path().join("other")).expect("a folder");
    std::os::unix::fs::symlink("other/rows.csv", folder.path().join("link.csv")).expect("linked");
    assert!(sweep("link.csv").status.success());
    assert!(folder.path().join("other/rows.csv.sweep.json").exists());
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
}

#[test]
fn networks_of_one_name_are_told_apart_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let net = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/nets/lenet5.toml");
    for name in ["a.toml", "b.toml"] {
        fs::copy(&net, folder.path().join(name)).expect("copied");
    }
    for (nets, rows) in
        [("a.toml,./a.toml", Some(2)), ("vgg16,VGG-16", Some(2)), ("a.toml,b.toml", None), ("a.toml,lenet5", None)]
    {
        let arguments = ["sweep", "--net", nets, "--gpu", "v100", "--batch", "1", "--quiet"];
        let output = program::predict().args(arguments).current_dir(folder.path()).output().expect("starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        match rows {
            Some(rows) => {
                assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), rows, "{nets}");
                assert!(error.contains("more than once"), "{nets}: {error}");
            }
            None => {
                assert_eq!(output.status.code(), Some(2), "{nets}");
                assert!(error.contains("are both called lenet5"), "{nets}: {error}");
            }
        }
    }
}

#[test]
fn sequences_are_an_axis() {
    let output = run(&["sweep", "--net", "gpt2,bert_base", "--gpu", "h200", "--batch", "1,4", "--sequence", "64,256"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let cells: Vec<Vec<&str>> = text.lines().skip(1).map(|l| l.split(',').collect()).collect();
    let lengths: Vec<(&str, &str, &str)> = cells.iter().map(|c| (c[0], c[7], c[2])).collect();
    let first = [("gpt2", "64", "1"), ("gpt2", "64", "4"), ("gpt2", "256", "1"), ("gpt2", "256", "4")];
    assert_eq!((lengths.len(), &lengths[..4]), (8, &first[..]));
    let time = |row: usize| cells[row][12].parse::<f64>().expect("a time");
    assert!(time(3) > 2.0 * time(1), "four times the tokens");
    let refused = run(&["sweep", "--net", "gpt2,resnet18", "--gpu", "h200", "--batch", "1", "--sequence", "64"]);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stdout));
}

#[test]
fn what_is_named_twice_is_swept_once() {
    let base = ["sweep", "--net", "lenet5,LeNet-5", "--gpu", "v100,v100-sxm2", "--batch", "1,1"];
    let output = run(&[&base[..], &["--precision", "fp32,FP32", "--mode", "inference,inference"]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in [
        "--net names lenet5 more than once",
        "--gpu names v100 more than once",
        "--batch names 1 more than once",
        "--precision names fp32 more than once",
        "--mode names inference more than once",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn every_json_line_has_every_column() {
    let text = swept(&["--format", "jsonl"]);
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(object.as_object().map(serde_json::Map::len), Some(32), "{line}");
        assert_ne!(object["time_s"].is_null(), object["error"].is_null(), "{line}");
    }
}

#[test]
fn rows_in_error_are_counted_and_a_sweep_of_nothing_else_fails() {
    let base = ["sweep", "--net", "resnet18", "--gpu", "v100", "--batch", "1", "--quiet", "--clock"];
    let none = run(&[&base[..], &["5000,6000"]].concat());
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&none.stdout).lines().count(), 3, "rows are written all the same");
    let stderr = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(stderr.contains("no row has a prediction") && stderr.contains("5000 MHz"), "{stderr}");
    let some = run(&[&base[..], &["default,5000"]].concat());
    assert!(some.status.success());
    let stderr = String::from_utf8_lossy(&some.stderr).into_owned();
    assert!(stderr.contains("1 of 2 rows have an error") && stderr.lines().count() == 1, "{stderr}");
    let all = run(&[&base[..], &["default"]].concat());
    assert!(all.status.success() && all.stderr.is_empty());
}

#[test]
fn a_dash_is_standard_output() {
    let base = ["sweep", "--net", "lenet5", "--gpu", "v100", "--batch", "1,2", "--quiet"];
    let (plain, dash) = (run(&base), run(&[&base[..], &["--output", "-"]].concat()));
    assert!(dash.status.success() && !plain.stdout.is_empty());
    assert_eq!(plain.stdout, dash.stdout);
    let resumed = run(&[&base[..], &["--output", "-", "--resume"]].concat());
    assert_eq!(resumed.status.code(), Some(2));
}

#[test]
fn an_output_is_of_its_name_s_format_and_loses_no_rows_unasked() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = ["sweep", "--net", "lenet5", "--gpu", "v100", "--quiet", "--output"];
    let to = |name: &str, extra: &[&str]| {
        let path = folder.path().join(name);
        run(&[&base[..], &[path.to_str().expect("a name")], extra].concat())
    };
    for (name, format, expected) in [
        ("rows.parquet", "csv", "parquet"),
        ("rows.arrow", "csv", "arrow"),
        ("rows.feather", "csv", "arrow"),
        ("rows.jsonl", "csv", "--format jsonl"),
        ("rows.json", "csv", "--format jsonl"),
        ("rows.csv", "jsonl", "--format csv"),
    ] {
        let output = to(name, &["--batch", "1", "--format", format]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{name}");
        assert!(!folder.path().join(name).exists());
    }
    assert!(to("rows.csv", &["--batch", "1,2"]).status.success());
    let rows = || fs::read_to_string(folder.path().join("rows.csv")).expect("rows").lines().count();
    let refused = to("rows.csv", &["--batch", "1"]);
    assert_eq!((refused.status.code(), rows()), (Some(2), 3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--resume goes on"));
    assert!(to("rows.csv", &["--batch", "1", "--force"]).status.success());
    assert_eq!(rows(), 2);
}

#[test]
fn wrong_axes_exit_2() {
    for axis in ["600..700", "700..600:5", "abc"] {
        let output = run(&["sweep", "--net", "lenet5", "--gpu", "t4", "--batch", "1", "--clock", axis]);
        assert_eq!(output.status.code(), Some(2), "{axis}");
    }
}

/// Two sweeps would mix their rows in one file.
#[test]
fn one_sweep_at_a_time_writes_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.csv");
    let other = fs::OpenOptions::new().create_new(true).write(true).open(&path).expect("made");
    other.lock().expect("locked");
    let shown = path.display().to_string();
    let lenet = ["sweep", "--net", "lenet5", "--gpu", "t4", "--batch", "1", "--output", &shown];
    for more in [&[][..], &["--force"], &["--resume"]] {
        let output = run(&[&lenet[..], more].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("another process is writing there"), "{told}");
        assert_eq!(fs::metadata(&path).expect("there").len(), 0, "untouched");
    }
    drop(other);
    assert!(run(&lenet).status.success());
}

/// Boards of a measured chip are told from those that were measured, as in a prediction's headline.
#[test]
fn lists_say_what_predictions_say() {
    let list = String::from_utf8_lossy(&run(&["list", "gpus"]).stdout).into_owned();
    for (gpu, tier) in [
        ("h200", "measured"),
        ("h100-sxm", "measured"),
        ("h100-nvl", "sibling"),
        ("t4", "imported"),
        ("titan-v", "sibling"),
        ("l4", "roofline"),
    ] {
        let line = list.lines().find(|l| l.split_whitespace().next() == Some(gpu)).expect(gpu);
        assert_eq!(line.split_whitespace().nth(2), Some(tier), "{line}");
    }
}

#[test]
fn batches_are_a_list_of_numbers_and_ranges() {
    let rows = |batch: &str| {
        let output = program::predict()
            .args(["sweep", "--net", "lenet5", "--gpu", "v100", "--quiet", "--batch", batch])
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ranged = rows("1,4..10:3");
    assert_eq!(ranged, rows("1,4,7,10"));
    assert_eq!(ranged.lines().count(), 5);
}
