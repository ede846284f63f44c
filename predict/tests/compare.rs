//! `predict compare` as a user runs it.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_predict")).arg("compare").args(arguments).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(&run(&[arguments, &["--format", "json"]].concat()))).expect("JSON")
}

#[test]
fn the_best_gpu_is_the_least_of_its_rows() {
    let document = json(&["--net", "resnet50,vgg16", "--gpu", "v100,t4,h200", "--batch", "1,16"]);
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 12);
    let best = document["best"].as_array().expect("best");
    let key = |metric: &str| match metric {
        "time" => "time_s",
        "energy per sample" => "energy_per_sample_j",
        "EDP" => "edp_js",
        "power" => "power_w",
        other => panic!("{other}"),
    };
    assert_eq!(best.len(), 4 * 4, "four metrics for each network and batch; no prices were given");
    for winner in best {
        let same = |r: &&serde_json::Value| r["network"] == winner["network"] && r["batch"] == winner["batch"];
        let column = key(winner["metric"].as_str().expect("a name"));
        let least = rows
            .iter()
            .filter(same)
            .min_by(|a, b| a[column].as_f64().expect("a number").total_cmp(&b[column].as_f64().expect("a number")));
        assert_eq!(least.expect("a row")["gpu"], winner["gpu"]);
    }
    let epr = |r: &serde_json::Value| {
        let (error, energy) = (r["top1_error"].as_f64().expect("known"), r["energy_per_sample_j"].as_f64());
        (r["epr_j"].as_f64().expect("known") / (error * energy.expect("a number")) - 1.0).abs() < 1e-9
    };
    assert!(rows.iter().all(epr));
}

#[test]
fn the_largest_batch_keeps_the_budget_and_the_next_one_does_not() {
    let base = ["--net", "resnet50", "--gpu", "t4", "--target-latency", "50"];
    let document = json(&base);
    let found = &document["within_budget"][0];
    assert_eq!(found["stopped_by"], "latency");
    let batch = found["largest"]["batch"].as_u64().expect("a batch");
    assert!(found["largest"]["time_s"].as_f64().expect("a time") <= 0.05);
    let next = (batch + 1).to_string();
    let row = &json(&["--net", "resnet50", "--gpu", "t4", "--batch", &next])["rows"][0];
    assert!(row["time_s"].as_f64().expect("a time") > 0.05, "{row}");
    let sure = json(&[&base[..], &["--sure"]].concat());
    assert!(sure["within_budget"][0]["largest"]["batch"].as_u64().expect("a batch") < batch);
}

#[test]
fn the_cheapest_and_the_most_accurate_are_named() {
    let base = ["--net", "resnet50,resnet18", "--gpu", "v100,t4", "--target-latency", "20", "--price", "v100=2,t4=0.4"];
    let text = stdout(&run(&base));
    for part in ["most accurate network that does: resnet50", "cheapest GPU for resnet18: t4", "larger breaks"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let none = stdout(&run(&["--net", "vgg16", "--gpu", "t4", "--target-latency", "1"]));
    assert!(none.contains("no batch of vgg16 on t4 does: latency"), "{none}");
}

#[test]
fn a_figure_has_a_row_per_gpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("compare.svg");
    let path = path.to_str().expect("a name");
    stdout(&run(&["--net", "resnet18", "--gpu", "v100,t4", "--batch", "1,8", "--figure", path]));
    let svg = std::fs::read_to_string(path).expect("a figure");
    for part in
        ["resnet18", "v100", "t4", "batch 8", "mean power, W", "4 predictions", "predict compare --net resnet18"]
    {
        assert!(svg.contains(part), "no {part}");
    }
}

#[test]
fn options_that_mean_nothing_exit_2() {
    for (arguments, expected) in [
        (&["--net", "vgg16", "--gpu", "t4"][..], "give --batch"),
        (&["--net", "vgg16", "--gpu", "t4", "--batch", "1", "--sure"], "--target-latency"),
        (&["--net", "vgg16", "--gpu", "t4", "--batch", "1", "--price", "v100=1"], "v100"),
        (&["--net", "vgg61", "--gpu", "t4", "--batch", "1"], "vgg16"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{stderr}");
    }
}
