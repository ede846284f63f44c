//! Language models and inference engines on the command line.

mod program;

use std::process::Output;

fn run(arguments: &str) -> Output {
    program::predict().args(arguments.split(' ')).output().expect("the program starts")
}

fn stdout(arguments: &str) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The JSON document without its layers: a value by path, `null` where it is null.
fn value(json: &str, path: &str) -> f64 {
    let mut text = json;
    for key in path.split('.') {
        let at = text.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {path} in {json}"));
        text = &text[at + key.len() + 3..];
    }
    text.split([',', '\n', '}']).next().map(str::trim).and_then(|t| t.parse().ok()).unwrap_or(f64::NAN)
}

#[test]
fn an_answer_is_its_prompt_and_its_steps() {
    let answer = "--net gpt2 --gpu h200 --batch 8 --precision fp16 --sequence 64 --generate 32 --format";
    let json = stdout(&format!("{answer} json"));
    let (prefill, decode) = (value(&json, "generation.prefill.time_s"), value(&json, "generation.decode.time_s"));
    assert!(prefill > 0.0 && decode > prefill);
    assert!((value(&json, "time_s") / (prefill + decode) - 1.0).abs() < 1e-9);
    assert!((value(&json, "generation.tokens_per_s") * value(&json, "time_s") / 256.0 - 1.0).abs() < 1e-9);
    // Two tensors, 12 layers, 768 features, two bytes, 8 samples, all tokens but the last.
    assert_eq!(value(&json, "generation.kv_cache_bytes"), (2 * 12 * 768 * 2 * 8 * (64 + 31)) as f64);
    let table = stdout(&format!("{answer} table"));
    for part in ["32 tokens after a prompt of 64", "prefill", "decode", "answer", "keys and values"] {
        assert!(table.contains(part), "no {part} in {table}");
    }
    assert!(stdout(&format!("{answer} csv")).lines().next().is_some_and(|l| l.contains("generation.decode.time_s")));
    assert!(stdout(&format!("{answer} markdown")).contains("| decode |"));
}

#[test]
fn what_cannot_generate_is_a_mistake_in_what_was_typed() {
    for (arguments, says) in [
        ("--net bert_base --gpu h200 --batch 1 --generate 4", "bert_base does not generate"),
        ("--net gpt2 --gpu h200 --batch 1 --sequence 1000 --generate 100", "1024 positions"),
        ("--net gpt2 --gpu h200 --batch 1 --mode training --generate 4", "inference"),
        ("--net vgg16 --gpu h200 --batch 1 --sequence 16", "no dimension named \"sequence\""),
        ("--net resnet50 --gpu h200 --batch 1 --framework tensorrt --mode training", "inference only"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
        assert!(error.contains(says), "{arguments}: {error}");
    }
}

#[test]
fn a_longer_sequence_costs_more() {
    let time = |sequence| {
        let json = stdout(&format!("--net bert_base --gpu v100 --batch 8 --sequence {sequence} --format json"));
        value(&json, "time_s")
    };
    assert!(time(256) > 1.5 * time(128));
}

#[test]
fn an_engine_runs_fewer_kernels_of_the_same_work() {
    let layers = |framework| stdout(&format!("--net resnet50 --gpu v100 --batch 8 --framework {framework} --layers"));
    let (plain, fused) = (layers("cudnn"), layers("tensorrt"));
    assert!(fused.contains("layer1.0.conv1+layer1.0.bn1+layer1.0.relu1"), "{fused}");
    assert!(fused.lines().count() + 90 < plain.lines().count());
    let parameters = |framework| {
        let json = stdout(&format!("--net resnet50 --gpu v100 --batch 8 --framework {framework} --format json"));
        (value(&json, "parameters"), value(&json, "time_s"))
    };
    let (plain, fused) = (parameters("cudnn"), parameters("tensorrt"));
    assert_eq!(plain.0, fused.0);
    assert!(fused.1 < plain.1);
}

/// No attention was ever measured on a V100, but products and element-wise kernels were.
#[test]
fn what_attention_rests_on_is_said() {
    let json = stdout("--net gpt2 --gpu v100 --batch 4 --sequence 128 --generate 16 --format json");
    let tier = |layer: &str| {
        let at = json.find(&format!("\"name\": \"{layer}\"")).unwrap_or_else(|| panic!("no {layer}"));
        let text = &json[at..];
        let at = text.find("\"tier\": \"").expect("a tier") + 9;
        text[at..].split('"').next().unwrap_or_default().to_string()
    };
    assert_eq!((tier("h.0.attn"), tier("decode/h.0.attn")), ("transferred".into(), "roofline".into()));
    assert!(json.contains("prefill: attention"), "{json}");
}

/// A `config.json` of the model's tests.
fn config(name: &str) -> String {
    format!("{}/../model/tests/huggingface/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_configuration_generates_as_the_zoos_network_does() {
    for name in ["qwen3_8b", "qwen3_30b_a3b", "deepseek_v3"] {
        let answer = |net: &str| {
            stdout(&format!("--net {net} --gpu h100 --precision bf16 --batch 1 --generate 64 --format json"))
        };
        let (read, zoo) = (answer(&config(name)), answer(name));
        assert!(read.contains("\"source\": \"huggingface\""), "{read}");
        for path in ["generation.prefill.time_s", "generation.decode.time_s", "energy_j", "generation.kv_cache_bytes"] {
            assert_eq!(value(&read, path), value(&zoo, path), "{name} {path}");
        }
        assert!(value(&read, "generation.prefill.time_s") > 0.0);
    }
    let longer = |tokens| {
        let arguments =
            format!("--net {} --gpu h100 --precision bf16 --batch 1 --sequence {tokens} --generate 2", config("phi_4"));
        value(&stdout(&format!("{arguments} --format json")), "generation.prefill.time_s")
    };
    assert!(longer(2048) > 1.5 * longer(512));
}

#[test]
fn a_folder_that_holds_a_configuration_is_a_network() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("Tiny-Pythia");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(config("pythia_70m"), folder.join("config.json")).expect("a copy");
    let typed = folder.display();
    let described = stdout(&format!("describe --net {typed}"));
    assert!(described.contains("layers.5.o_proj"), "{described}");
    let written = stdout(&format!("convert {typed} --output -"));
    assert!(written.contains("name = \"Tiny-Pythia\"") && written.contains("rotated = 16"), "{written}");
}

/// One line and status 2, with the key.
#[test]
fn what_a_configuration_lacks_is_named() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("damaged");
    std::fs::create_dir_all(&folder).expect("a folder");
    let whole = std::fs::read_to_string(config("llama3_1_8b")).expect("readable");
    for (from, to, says) in [
        ("\"llama\"", "\"bloom\"", "model_type \"bloom\""),
        ("\"hidden_size\": 4096", "\"hidden\": 4096", "hidden_size is missing"),
        ("\"num_hidden_layers\": 32", "\"num_hidden_layers\": 99999999", "num_hidden_layers is 99999999"),
        ("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 7", "num_key_value_heads is 7"),
        ("{", "[", "not JSON"),
    ] {
        assert!(whole.contains(from), "{from}");
        let path = folder.join("config.json");
        std::fs::write(&path, whole.replacen(from, to, 1)).expect("written");
        let output = run(&format!("--net {} --gpu h100 --batch 1", path.display()));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says) && error.trim().lines().count() == 1, "{says}: {error}");
    }
    let empty = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty");
    std::fs::create_dir_all(&empty).expect("a folder");
    let output = run(&format!("--net {} --gpu h100 --batch 1", empty.display()));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("config.json"), "{error}");
}
