//! `predict compare` as a user runs it.

mod program;

use std::process::Output;

fn run(arguments: &[&str]) -> Output {
    program::predict().arg("compare").args(arguments).output().expect("the program starts")
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
    for part in [
        "most accurate network that does: resnet50",
        "cheapest GPU for resnet18: not sure between t4 and v100; least: t4",
        "larger breaks",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let none = stdout(&run(&["--net", "vgg16", "--gpu", "t4", "--target-latency", "1"]));
    assert!(none.contains("no batch of vgg16 on t4 does: latency"), "{none}");
}

/// CSV says of every row which bounds it keeps, and which one is the answer.
#[test]
fn csv_has_the_budget_and_its_answer() {
    let base = ["--net", "resnet50", "--gpu", "t4,v100", "--target-latency", "30", "--max-power", "200"];
    let rows = |extra: &[&str]| {
        let text = stdout(&run(&[&base[..], extra, &["--format", "csv"]].concat()));
        let mut lines = text.lines().map(|l| l.split(',').map(String::from).collect::<Vec<_>>());
        let header = lines.next().expect("a header");
        let rows: Vec<Vec<String>> = lines.collect();
        move |row: usize, name: &str| {
            let column = header.iter().position(|h| h == name).expect("a column");
            rows.get(row).map(|r| r[column].clone())
        }
    };
    let asked = rows(&["--batch", "1,2,64"]);
    for row in 0..6 {
        let number = |name| asked(row, name).and_then(|v| v.parse::<f64>().ok()).expect("a number");
        let meets = |name| asked(row, name).expect("a cell") == "true";
        assert_eq!(meets("meets_latency"), number("time_s") <= 0.03, "{row}");
        assert_eq!(meets("meets_power"), number("power_w") <= 200.0, "{row}");
        assert_eq!(asked(row, "meets_energy_per_sample").as_deref(), Some(""), "no such budget");
    }
    let answers = |gpu: &str| {
        let of = |row: &usize| asked(*row, "gpu").as_deref() == Some(gpu);
        let answer = |row: &usize| asked(*row, "largest_within_budget").as_deref() == Some("true");
        (0..6).filter(of).filter(answer).map(|row| asked(row, "batch").expect("a batch")).collect::<Vec<_>>()
    };
    assert_eq!(answers("t4"), ["2"]);
    let free = rows(&[]);
    assert_eq!(free(0, "stopped_by").as_deref(), Some("latency"));
    assert_eq!(free(0, "largest_within_budget").as_deref(), Some("true"));
    let none = rows(&["--energy-budget", "0.000001"]);
    assert_eq!(
        (none(0, "network").as_deref(), none(0, "stopped_by").as_deref()),
        (Some("resnet50"), Some("energy per sample"))
    );
    assert!(none(1, "gpu").as_deref() == Some("v100") && none(2, "gpu").is_none());
}

#[test]
fn what_is_named_twice_is_compared_once() {
    let output = run(&["--net", "lenet5,lenet5", "--gpu", "t4,t4", "--batch", "1,1", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr.matches("more than once: taken once").count(), 3, "{stderr}");
}

/// Rows of the same network are those that `predict` prints with the same options.
#[test]
fn algorithms_lengths_and_answers_are_compared() {
    for options in [
        &["--net", "resnet18", "--conv-algorithm", "gemm"][..],
        &["--net", "gpt2", "--sequence", "64"],
        &["--net", "gpt2", "--sequence", "64", "--generate", "16"],
    ] {
        let row = &json(&[options, &["--gpu", "h200", "--batch", "2"]].concat())["rows"][0];
        let single = program::predict()
            .args([options, &["--gpu", "h200", "--batch", "2", "--format", "json"]].concat())
            .output()
            .expect("the program starts");
        let single: serde_json::Value = serde_json::from_str(&stdout(&single)).expect("JSON");
        assert_eq!((&row["time_s"], &row["energy_j_p95"]), (&single["time_s"], &single["energy_j_p95"]), "{options:?}");
    }
}

/// What stops every batch is what stops the smallest, whether all batches are tried or some.
#[test]
fn a_budget_that_no_batch_keeps_is_the_one_that_is_named() {
    let base = ["--net", "resnet50", "--gpu", "v100", "--energy-budget", "0.0001"];
    for batches in [&[][..], &["--batch", "1,4096"]] {
        let document = json(&[&base[..], batches].concat());
        assert_eq!(document["within_budget"][0]["stopped_by"], "energy per sample", "{batches:?}");
    }
}

#[test]
fn all_gpus_are_compared() {
    let rows = json(&["--net", "lenet5", "--gpu", "all", "--batch", "1", "--price", "t4=0.4"]);
    let listed = program::predict().args(["list", "gpus"]).output().expect("the program starts");
    let listed = stdout(&listed);
    let rows = rows["rows"].as_array().expect("rows");
    assert!(rows.len() > 10 && rows.iter().all(|r| listed.contains(r["gpu"].as_str().expect("a name"))));
}

#[test]
fn a_network_that_fits_nowhere_is_said_to_be_left_out() {
    let text = stdout(&run(&["--net", "llama3_8b,resnet18", "--gpu", "t4,v100", "--batch", "1"]));
    assert!(text.contains("no choice: llama3_8b at batch 1 on t4, v100 (does not fit in memory)"), "{text}");
    assert!(!text.contains("no choice: resnet18"), "{text}");
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

/// A GPU is the same by whatever name, in --gpu and in --price.
#[test]
fn prices_are_of_gpus_however_they_are_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("g.toml");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/gpus/t4.toml"), &file).expect("copied");
    let (file, other) = (file.display().to_string(), folder.path().join("../").join(folder.path()).join("./g.toml"));
    let other = other.display().to_string();
    for (gpu, name) in
        [("a100", "a100-sxm4-40gb"), ("a100-sxm4-40gb", "a100"), ("V100", "v100-sxm2"), (&file[..], &other[..])]
    {
        let rows =
            json(&["--net", "lenet5", "--gpu", &format!("{gpu},p4"), "--batch", "1", "--price", &format!("{name}=3")]);
        assert_eq!(rows["rows"][0]["price_per_hour"], 3.0, "{gpu} and {name}: {rows}");
        assert!(rows["rows"][1]["price_per_hour"].is_null());
    }
}

#[test]
fn options_that_mean_nothing_exit_2() {
    for (arguments, expected) in [
        (&["--net", "vgg16", "--gpu", "t4"][..], "give --batch"),
        (&["--net", "vgg16", "--gpu", "t4", "--batch", "1", "--sure"], "--target-latency"),
        (&["--net", "vgg16", "--gpu", "t4", "--batch", "1", "--price", "v100=1"], "v100"),
        (
            &["--net", "vgg16", "--gpu", "v100", "--batch", "1", "--price", "v100=1,v100-sxm2=2"],
            "v100-sxm2 more than once",
        ),
        (&["--net", "vgg16", "--gpu", "t4", "--batch", "1", "--price", "t5=1"], "no gpu named"),
        (&["--net", "vgg16", "--gpu", "t4", "--batch", "1", "--sequence", "8"], "sequence"),
        (&["--net", "resnet18", "--gpu", "t4", "--batch", "1", "--generate", "8"], "does not generate"),
        (&["--net", "vgg61", "--gpu", "t4", "--batch", "1"], "vgg16"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{stderr}");
    }
}

/// What is asked of all GPUs is asked of those that can; the others are named with the reason.
#[test]
fn gpus_that_cannot_are_left_out_and_named() {
    let all = ["--net", "lenet5", "--gpu", "all", "--precision", "bf16", "--batch", "4"];
    let document = json(&all);
    let names = |key: &str| -> Vec<String> {
        let list = document[key].as_array().expect("a list");
        list.iter().map(|row| row["gpu"].as_str().expect("a name").to_string()).collect()
    };
    let (compared, left_out) = (names("rows"), names("left_out"));
    assert!(compared.contains(&"h200".into()) && left_out.contains(&"v100".into()), "{left_out:?}");
    assert!(left_out.iter().all(|gpu| !compared.contains(gpu)));
    assert_eq!(compared.len() + left_out.len(), joulecast_model::catalog::gpu_names().count());
    let text = stdout(&run(&["--net", "lenet5", "--gpu", "t4,h200,v100", "--precision", "bf16", "--batch", "4"]));
    assert!(text.contains("\nleft out: t4, v100 (no units that compute in bf16)\n"), "{text}");
    let other = stdout(&run(&["--net", "lenet5", "--gpu", "h200,xeon-e5-2630", "--launch", "graph", "--batch", "4"]));
    assert!(other.contains("left out: xeon-e5-2630 (") && other.contains("processor"), "{other}");
    for named in ["v100", "v100,t4"] {
        let output = run(&["--net", "lenet5", "--gpu", named, "--precision", "bf16", "--batch", "4"]);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("error: v100 has no units that compute in bf16; it has fp32"), "{told}");
    }
}

/// A note that is not of all batches says of which it is.
#[test]
fn a_note_names_its_batches() {
    let output = run(&["--net", "resnet50", "--gpu", "v100", "--batch", "1,999"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let of = |text: &str| told.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {told}"));
    assert!(of("holds the clock").starts_with("note: resnet50 on v100 at batch 999: "), "{told}");
    assert!(of("power was not measured").starts_with("note: resnet50 on v100: "), "{told}");
}

/// What `predict` would tell of each is told once, with what it is of.
#[test]
fn what_predictions_have_to_tell_is_told_once() {
    let output = program::predict()
        .args(["compare", "--net", "vgg16,resnet18", "--gpu", "h200,v100", "--batch", "8,16", "--cudnn", "6"])
        .output()
        .expect("runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let of = |text: &str| told.lines().filter(|line| line.contains(text)).collect::<Vec<_>>();
    assert_eq!(
        of("is taken as the nearest that the layer models of v100"),
        [
            "note: vgg16 on v100, resnet18 on v100: cuDNN 6.0 is taken as the nearest that the layer models of v100 saw: they know 7.6 to 8.9"
        ]
    );
    let nothing = of("--cudnn changes nothing");
    assert!(nothing.len() == 1 && nothing[0].starts_with("note: vgg16 on h200, resnet18 on h200: "), "{told}");
    assert_eq!(of("power was not measured on this GPU").len(), 1, "{told}");
    let output = program::predict()
        .args(["compare", "--net", "vgg16,resnet18", "--gpu", "all", "--batch", "8"])
        .output()
        .expect("runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(told.lines().filter(|line| line.starts_with("note: ")).count(), 13, "{told}");
    assert!(told.lines().last().is_some_and(|line| line.ends_with("predict tells them")), "{told}");
}
