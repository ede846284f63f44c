//! Answers are as the book's JSON Schemas say, in every form that a schema has a key for.

mod program;

use joulecast_documents::{root, schema, text};
use joulecast_model::net::layer::Layer;
use serde_json::Value;

fn schema_of(name: &str) -> Value {
    serde_json::from_str(&text(&root(), &format!("reports/book/src/schemas/{name}.json"))).expect("JSON")
}

fn printed(arguments: &str) -> String {
    let output = program::predict().args(arguments.split_whitespace()).current_dir(root()).output().expect("it starts");
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Keys of a schema that no value had: they would be described without ever being looked at.
fn unseen(schema: &Value, values: &[&Value], at: &str, list: &mut Vec<String>) {
    for (key, rule) in schema["properties"].as_object().into_iter().flatten() {
        let of: Vec<&Value> =
            values.iter().filter_map(|value| value.get(key)).filter(|value| !value.is_null()).collect();
        if of.is_empty() {
            list.push(format!("{at}/{key}"));
        }
        let items: Vec<&Value> = of.iter().filter_map(|value| value.as_array()).flatten().collect();
        unseen(rule, &of, &format!("{at}/{key}"), list);
        unseen(&rule["items"], &items, &format!("{at}/{key}"), list);
    }
}

#[test]
fn predictions_are_as_their_schema_says() {
    const SETUPS: [&str; 12] = [
        "--net vgg16 --gpu v100 --batch 64 --power-cap 200",
        "--net resnet50 --gpu h200 --batch 16 --framework pytorch --precision fp16",
        "--net resnet50 --gpu h200 --batch 64 --mode training --precision fp16 --framework pytorch --host 0.8",
        "--net resnet50 --gpu v100 --gpus 8 --batch 512 --mode training --epochs 90 --dataset-size 1281167 --price-kwh 0.3",
        "--net alexnet --gpu v100 --batch 512 --mode training --framework mxnet --input-rate 1600",
        "--net gpt2 --gpu h200 --batch 8 --precision fp16 --sequence 512 --generate 128",
        "--net llama3_1_70b --gpu h100 --precision bf16 --batch 8 --sequence 1024 --tensor-parallel 4",
        "--net vgg16 --gpu h200 --batch 64 --conv-algorithm winograd_nonfused",
        "--net lenet5 --gpu titan-x-maxwell --batch 1 --cudnn 5.0",
        "--net lenet5 --gpu mi300x --batch 2",
        "--net lenet5 --gpu xeon-e5-2620 --batch 2",
        "--net model/tests/huggingface/qwen3_8b.json --gpu a100 --precision bf16 --batch 1",
    ];
    let schema = schema_of("prediction-1");
    let answers = SETUPS.map(|setup| {
        let answer: Value = serde_json::from_str(&printed(&format!("{setup} --format json"))).expect("JSON");
        let wrong = schema::wrong(&schema, &answer);
        assert!(wrong.is_empty(), "{setup}: {wrong:#?}");
        // Optional keys are described, too.
        let unknown: Vec<_> = answer.as_object().into_iter().flatten().map(|(key, _)| key).collect();
        let unknown: Vec<_> = unknown.into_iter().filter(|key| schema["properties"].get(key).is_none()).collect();
        assert!(unknown.is_empty(), "{setup}: the schema does not describe {unknown:?}");
        answer
    });
    let mut list = Vec::new();
    unseen(&schema, &answers.iter().collect::<Vec<_>>(), "", &mut list);
    assert_eq!(list, [""; 0], "no setup here has these");
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
    let answer: Value = serde_json::from_str(&printed("plan data/capacity/tagging.toml --format json")).expect("JSON");
    let wrong = schema::wrong(&schema_of("capacity_plan-1"), &answer);
    assert!(wrong.is_empty(), "{wrong:#?}");
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
