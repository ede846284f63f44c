//! Answers are as the book's JSON Schemas say, in every form that a schema has a key for.

mod program;

use joulecast_documents::{root, schema, text};
use joulecast_model::net::layer::{Layer, ScoreBias};
use serde_json::Value;

fn schema_of(name: &str) -> Value {
    serde_json::from_str(&text(&root(), &format!("reports/book/src/schemas/{name}.json"))).expect("JSON")
}

fn printed(arguments: &str) -> String {
    let output = program::predict().args(arguments.split_whitespace()).current_dir(root()).output().expect("it starts");
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A rule with what it refers to; of several ways the one that is not null.
fn resolved<'a>(schema: &'a Value, rule: &'a Value) -> &'a Value {
    let rule = rule["anyOf"].as_array().and_then(|ways| ways.iter().find(|way| way["type"] != "null")).unwrap_or(rule);
    let path = rule["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| schema.pointer(path)).unwrap_or(rule)
}

/// Keys of a rule of a schema that no value had: they would be described without ever being looked at.
fn unseen(schema: &Value, rule: &Value, values: &[&Value], at: &str, list: &mut Vec<String>) {
    for (key, rule) in resolved(schema, rule)["properties"].as_object().into_iter().flatten() {
        let of: Vec<&Value> =
            values.iter().filter_map(|value| value.get(key)).filter(|value| !value.is_null()).collect();
        if of.is_empty() {
            list.push(format!("{at}/{key}"));
            continue;
        }
        let items: Vec<&Value> = of.iter().filter_map(|value| value.as_array()).flatten().collect();
        unseen(schema, rule, &of, &format!("{at}/{key}"), list);
        let each = &resolved(schema, rule)["items"];
        if !items.is_empty() {
            unseen(schema, each, &items, &format!("{at}/{key}"), list);
        }
    }
}

/// Keys of a value that its schema does not know.
fn unknown(schema: &Value, rule: &Value, value: &Value, at: &str, list: &mut Vec<String>) {
    let rule = resolved(schema, rule);
    for item in value.as_array().into_iter().flatten() {
        unknown(schema, &rule["items"], item, at, list);
    }
    let Some(properties) = rule["properties"].as_object() else { return };
    for (key, value) in value.as_object().into_iter().flatten() {
        match properties.get(key) {
            Some(rule) => unknown(schema, rule, value, &format!("{at}/{key}"), list),
            None => list.push(format!("{at}/{key}")),
        }
    }
}

/// Holds answers against a schema: they are as it says, it knows all their keys, and of its keys every one is in one of them
/// but for those that `rare` names.
fn holds(name: &str, answers: &[(String, Value)], rare: &[&str]) {
    let schema = schema_of(name);
    for (setup, answer) in answers {
        let wrong = schema::wrong(&schema, answer);
        assert!(wrong.is_empty(), "{setup}: {wrong:#?}");
        let mut more = Vec::new();
        unknown(&schema, &schema, answer, "", &mut more);
        assert!(more.is_empty(), "{setup}: {name}.json does not describe {more:?}");
    }
    let mut list = Vec::new();
    unseen(&schema, &schema, &answers.iter().map(|(_, answer)| answer).collect::<Vec<_>>(), "", &mut list);
    list.retain(|key| !rare.contains(&key.as_str()));
    assert_eq!(list, [""; 0], "no setup of {name} here has these");
}

fn answers(command: &str, setups: &[&str]) -> Vec<(String, Value)> {
    let answer = |setup: &&str| {
        let line = format!("{command} {setup} --format json");
        let answer = serde_json::from_str(&printed(&line)).expect("JSON");
        (line, answer)
    };
    setups.iter().map(answer).collect()
}

/// A golden document of `reports/tests`.
fn golden(name: &str) -> (String, Value) {
    (name.to_string(), serde_json::from_str(&text(&root(), &format!("tests/golden/{name}.json"))).expect("JSON"))
}

#[test]
fn optima_are_as_their_schema_says() {
    let setups = [
        "--net resnet18 --gpu v100 --batch 16 --per-layer --over clock",
        "--net lenet5 --gpu h200 --batch 1 --precision fp16 --metric eds:1.5 --max-slowdown 5%",
    ];
    let mut all = answers("optimize", &setups);
    all.push(golden("optimum"));
    const RARE: [&str; 2] = ["/default/clock_mhz", "/default/power_cap_w"];
    holds("optimum-1", &all, &RARE);
    // Of several networks a list.
    let two = answers("optimize", &["--net lenet5,resnet18 --gpu v100 --batch 4"]);
    assert_eq!(two[0].1.as_array().map(Vec::len), Some(2));
    let each = two[0].1.as_array().into_iter().flatten().map(|one| (two[0].0.clone(), one.clone()));
    holds("optimum-1", &each.chain(all).collect::<Vec<_>>(), &RARE);
}

#[test]
fn comparisons_are_as_their_schema_says() {
    let setups = [
        "--net lenet5,resnet18 --gpu t4,v100,h100 --batch 1,64 --price t4=0.35 --price v100=2.5",
        "--net resnet18 --gpu all --precision bf16 --batch 1",
        "--net alexnet,resnet50 --gpu t4,v100 --target-latency 20ms --energy-budget 1J --max-power 290W --price t4=0.35 --price v100=2.5",
        "--net resnet50 --gpu v100,h200 --batch 1 --framework pytorch --mode training --host 0.8",
        "--net alexnet --gpu v100,h200 --batch 1,8 --energy-budget 1J --framework pytorch --host 0.8",
    ];
    let mut all = answers("compare", &setups);
    all.push(golden("compare"));
    holds("comparison-1", &all, &[]);
}

#[test]
fn layouts_are_as_their_schema_says() {
    let setups = ["--net llama3_1_70b --gpu h100 --precision bf16 --batch 8 --sequence 1024 --generate 32 --layouts"];
    holds("layouts-1", &answers("", &setups), &["/warnings"]);
}

#[test]
fn services_are_as_their_schema_says() {
    let setups = [
        "--net llama3_8b --gpu h100 --rate 4 --prompt 256 --answer 32 --requests 200 --over cap,clock",
        "--net llama3_8b --gpu h100 --prompt 256 --answer 32 --requests 200 --ttft 500ms --tpot 50ms --over layout --objective throughput",
        "--net llama3_8b --gpu h100 --concurrency 4 --prompt 256 --answer 1 --requests 200 --power-cap 400 --clock 1500 --mem-clock 2619",
        "--net llama3_1_70b --gpu h100 --tensor-parallel 4 --rate 1 --prompt 256 --answer 32 --requests 200",
        "--net llama3_8b --gpu h100 --pipeline-parallel 2 --data-parallel 2 --rate 4 --prompt 256 --answer 32 --requests 200 --over cap --objective cost --price 2.5 --price-kwh 0.2 --pue 1.3",
        "--net llama3_8b --gpu h100 --rate 4 --prompt 64 --answer 16 --requests 50 --over clock --objective energy --prices data/capacity/assistant.toml",
    ];
    holds(
        "serving-1",
        &answers("serve", &setups),
        &[
            "/points/memory_clock_mhz",
            "/best/setting/memory_clock_mhz",
            "/prefill_replicas",
            "/decode_replicas",
            "/interconnect",
            "/left_out",
            "/warnings",
        ],
    );
}

#[test]
fn predictions_are_as_their_schema_says() {
    const SETUPS: [&str; 13] = [
        "--net vgg16 --gpu v100 --batch 64 --power-cap 200",
        "--net resnet50 --gpu h200 --batch 16 --framework pytorch --precision fp16",
        "--net resnet50 --gpu h200 --batch 64 --mode training --precision fp16 --framework pytorch --host 0.8",
        "--net resnet50 --gpu v100 --gpus 8 --batch 512 --mode training --epochs 90 --dataset-size 1281167 --price-kwh 0.3",
        "--net alexnet --gpu v100 --batch 512 --mode training --framework mxnet --input-rate 1600",
        "--net gpt2 --gpu h200 --batch 8 --precision fp16 --sequence 512 --generate 128",
        "--net gpt2 --gpu h200 --batch 1 --precision fp16 --sequence 64 --generate 1",
        "--net llama3_1_70b --gpu h100 --precision bf16 --batch 8 --sequence 1024 --tensor-parallel 4",
        "--net vgg16 --gpu h200 --batch 64 --conv-algorithm winograd_nonfused",
        "--net lenet5 --gpu titan-x-maxwell --batch 1 --cudnn 5.0",
        "--net lenet5 --gpu mi300x --batch 2",
        "--net lenet5 --gpu xeon-e5-2620 --batch 2",
        "--net model/read/tests/huggingface/qwen3_8b.json --gpu a100 --precision bf16 --batch 1",
    ];
    holds("prediction-1", &answers("", &SETUPS), &[]);
}

#[test]
fn rows_of_sweeps_are_as_their_schema_says() {
    let schema = schema_of("sweep-row");
    let mut rows = 0;
    for sweep in [
        "--net resnet18,gpt2 --gpu v100,h200 --batch 1,64 --precision fp32,fp16 --clock 1000,1200",
        "--net resnet18 --gpu v100 --batch 4 --mode training --framework pytorch --power-cap 200",
        // What has no prediction.
        "--net lenet5 --gpu v100 --batch 1 --precision fp32,fp8",
    ] {
        for line in printed(&format!("sweep {sweep} --format jsonl")).lines() {
            let row: Value = serde_json::from_str(line).expect("JSON");
            let wrong = schema::wrong(&schema, &row);
            assert!(wrong.is_empty(), "{line}: {wrong:#?}");
            rows += 1;
        }
    }
    assert!(rows >= 18, "{rows}");
    let csv = printed("sweep --net lenet5 --gpu v100 --batch 1");
    let named: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert_eq!(csv.lines().next().map(|head| head.split(',').collect::<Vec<_>>()), Some(named));
}

#[test]
fn plans_are_as_their_schema_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let example = text(&root(), "data/capacity/tagging.toml");
    let without_racks = example.lines().filter(|line| !line.starts_with("rack_kw")).collect::<Vec<_>>().join("\n");
    assert!(without_racks.len() < example.len());
    // Nothing carries the second.
    let hopeless = without_racks.replace("target_ms = 100", "target_ms = 0.1");
    for (place, plan) in [example, without_racks, hopeless].iter().enumerate() {
        let file = folder.path().join(format!("plan-{place}.toml"));
        std::fs::write(&file, plan).expect("written");
        let output = program::predict().args(["plan", "--format", "json"]).arg(&file).output().expect("it starts");
        assert_eq!(output.status.success(), place < 2);
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let wrong = schema::wrong(&schema_of("capacity_plan-1"), &answer);
        assert!(wrong.is_empty(), "{place}: {wrong:#?}");
        assert_eq!(answer["chosen_gpu"].is_null(), place == 2);
    }
}

#[test]
fn the_schema_of_networks_knows_every_kind() {
    let schema = schema_of("network-1");
    let kinds = schema.pointer("/$defs/layer/properties/kind/anyOf/0/enum").and_then(Value::as_array).expect("kinds");
    let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
    for kind in Layer::KINDS {
        assert!(kinds.contains(kind), "{kind} is not in network-1.json");
    }
    assert_eq!(kinds.len(), Layer::KINDS.len());
}

/// All that the reader may write of a bias of scores.
#[test]
fn the_schema_of_networks_knows_what_a_bias_is() {
    let bias = |bias: Value| {
        let attention = serde_json::json!({"name": "a", "kind": "attention", "heads": 6, "bias": bias});
        let file = serde_json::json!({"schema": "network/1", "name": "n", "title": "N", "source": "test", "inputs": {"x": {"shape": [16, 144]}}, "layers": [attention]});
        schema::wrong(&schema_of("network-1"), &file)
    };
    let whole = ScoreBias { heads: 6, parameters: 30, turned: true, unbatched: true };
    let whole = serde_json::to_value(whole).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(whole.as_object().map(|fields| fields.len()), Some(4));
    let found = bias(whole);
    assert!(found.is_empty(), "{found:#?}");
    assert!(!bias(serde_json::json!({"heads": 6, "bent": true})).is_empty());
}
