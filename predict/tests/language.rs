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
    format!("{}/../model/read/tests/huggingface/{name}.json", env!("CARGO_MANIFEST_DIR"))
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

/// One line and status 1, as of any file that cannot be used, with the key.
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
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(says) && error.trim().lines().count() == 1, "{says}: {error}");
    }
    let empty = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty");
    std::fs::create_dir_all(&empty).expect("a folder");
    let output = run(&format!("--net {} --gpu h100 --batch 1", empty.display()));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("config.json"), "{error}");
}

/// Two GPUs are faster than one and slower than two times as fast, their power and energy are of both.
#[test]
fn a_language_model_lies_on_several_gpus() {
    let config = config("llama3_1_8b");
    let answer = |options: &str| {
        let arguments = format!("--net {config} --gpu h100 --precision bf16 --batch 8 --sequence 256 --format json");
        stdout(format!("{arguments} {options}").trim())
    };
    for what in ["--generate 32", ""] {
        let (one, two) = (answer(what), answer(format!("{what} --tensor-parallel 2").trim()));
        let ratio = value(&two, "time_s") / value(&one, "time_s");
        assert!((0.5..1.0).contains(&ratio), "{what}: {ratio}");
        assert!(value(&two, "energy_per_sample_j") > value(&one, "energy_per_sample_j"), "{what}");
        assert_eq!(
            (value(&two, "gpus"), value(&two, "layout.tensor_parallel"), value(&two, "layout.gpus")),
            (2.0, 2.0, 2.0)
        );
        assert!(value(&two, "layout.exchange_s") > 0.0 && !one.contains("\"layout\""));
        assert!(two.contains("\"kind\": \"all_reduce\""), "{what}");
    }
    let csv = stdout(&format!(
        "--net {config} --gpu h100 --precision bf16 --batch 8 --generate 4 --tensor-parallel 2 --format csv"
    ));
    assert!(csv.lines().count() == 2 && csv.contains("layout.exchange_energy_j"), "{csv}");
    let staged =
        format!("--net {config} --gpu a100 --precision bf16 --batch 8 --pipeline-parallel 4 --data-parallel 2");
    for (form, says) in [("table", "microbatches"), ("markdown", "| microbatches |")] {
        let text = stdout(&format!("{staged} --format {form} --layers"));
        for part in [
            says,
            "tensor 1, pipeline 4, data 2",
            "8 GPUs over nvlink3",
            "replicas",
            "hand on to each other",
            "layers.7.add_2.send",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }
}

/// One line each, with status 2.
#[test]
fn what_cannot_be_laid_out_is_named() {
    let config = |name: &str| format!("--net {} --gpu h100 --precision bf16 --batch 4", config(name));
    for (arguments, says) in [
        (
            format!("{} --tensor-parallel 3", config("llama3_1_8b")),
            "32 heads of queries (layers.0.attention) do not divide",
        ),
        (format!("{} --tensor-parallel 4 --generate 4", config("qwen2_5_0_5b")), "14 heads of queries"),
        (format!("{} --expert-parallel 2", config("llama3_1_8b")), "has no experts: leave --expert-parallel out"),
        (format!("{} --pipeline-parallel 64", config("llama3_1_8b")), "more than the 8"),
        (format!("{} --tensor-parallel 16", config("llama3_1_8b")), "more than the 8"),
        (format!("{} --tensor-parallel 0", config("llama3_1_8b")), "--tensor-parallel"),
        (format!("{} --tensor-parallel 2 --gpus 2", config("llama3_1_8b")), "cannot be used with"),
        (format!("{} --tensor-parallel 2 --mode training", config("llama3_1_8b")), "of inference"),
        (format!("{} --tensor-parallel 2 --input-rate 9", config("llama3_1_8b")), "--input-rate"),
        (format!("{} --data-parallel 3", config("llama3_1_8b")), "a batch of 4 does not divide among the 3 groups"),
        (format!("{} --interconnect nvlink4", config("llama3_1_8b")), "--interconnect joins several GPUs"),
        (format!("{} --gpus 2 --generate 4", config("llama3_1_8b")), "--tensor-parallel N"),
        ("--net vgg16 --gpu h100 --batch 4 --tensor-parallel 2".into(), "vgg16 cannot be shared among GPUs"),
        ("--net gpt2 --gpu i7-6700k --batch 4 --tensor-parallel 2".into(), "is a processor"),
        (format!("optimize {} --tensor-parallel 2", config("llama3_1_8b")), "predict serve --over layout"),
    ] {
        let output = run(&arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
        assert!(error.contains(says), "{says}: {error}");
    }
}

/// Every layout of a node, in every form; what does not divide or fit says why and the others are predicted.
#[test]
fn layouts_of_a_node_are_a_table() {
    let arguments =
        format!("--net {} --gpu a100 --precision bf16 --batch 8 --generate 64 --layouts", config("qwen2_5_0_5b"));
    let table = stdout(&arguments);
    for part in ["14 heads of queries", "largest context", "J/token", "nvlink3", "batch 8, context 1088"] {
        assert!(table.contains(part), "no {part} in {table}");
    }
    let json = stdout(&format!("{arguments} --format json"));
    assert_eq!((value(&json, "context"), json.matches("\"pipeline_parallel\"").count()), (1088.0, 10));
    assert_eq!(json.matches("\"fits\": true").count(), 7, "{json}");
    let csv = stdout(&format!("{arguments} --format csv"));
    assert!(csv.lines().count() == 11 && csv.contains("energy_per_token_j_p95"), "{csv}");
    assert!(stdout(&format!("{arguments} --format markdown")).contains("| GPUs | tensor |"));
    // What one of them takes is what it takes alone.
    let alone =
        format!("--net {} --gpu a100 --precision bf16 --batch 8 --sequence 1087 --generate 2", config("qwen2_5_0_5b"));
    let alone = stdout(&format!("{alone} --tensor-parallel 2 --format json"));
    let line = json.split("\"tensor_parallel\": 2").nth(1).expect("a layout of two");
    let (listed, alone) = (value(line, "time_per_token_s"), value(&alone, "generation.decode.time_s"));
    assert!((listed / alone - 1.0).abs() < 1e-9, "{listed} {alone}");
    let large = format!("--net {} --gpu l40s --precision bf16 --batch 4 --layouts", config("mixtral_8x7b"));
    assert!(stdout(&large).contains("weights alone are 87.0 of 48.0 GiB"));
    for (more, says) in [
        ("--tensor-parallel 2", "are all layouts"),
        ("--gpus 2", "without --gpus"),
        ("--mode training", "of inference"),
    ] {
        let output = run(&format!("{arguments} {more}"));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says), "{says}: {error}");
    }
}

/// Fewer bits are told, on one GPU and several; what is not multiplied in 16 bits is refused.
#[test]
fn weights_and_caches_in_fewer_bits() {
    let base = format!("--net {} --gpu h100 --batch 8 --generate 32", config("llama3_1_8b"));
    let of = |options: &str| stdout(format!("{base} --precision bf16 --format json {options}").trim());
    let (usual, fewer) = (of("--tensor-parallel 1"), of("--weights int4 --cache fp8"));
    assert!(value(&fewer, "generation.decode.time_s") < 0.7 * value(&usual, "generation.decode.time_s"));
    assert!(value(&fewer, "memory_bytes") < 0.5 * value(&usual, "memory_bytes"));
    assert!(fewer.contains("weights in int4, cache in fp8: fewer bytes"), "{fewer}");
    assert!(value(&of("--weights int4 --tensor-parallel 2"), "memory_bytes") < 0.6 * value(&fewer, "memory_bytes"));
    let table = stdout(&format!("{base} --precision bf16 --weights int8 --layouts"));
    assert!(table.contains("weights in int8"), "{table}");
    for (options, says) in [
        ("--precision fp32 --weights int4", "--precision bf16 or fp16"),
        ("--precision fp32 --cache fp8", "--precision bf16, fp16 or fp8"),
        ("--precision bf16 --weights int3", "known: fp8, int8, int4"),
        ("--precision bf16 --cache int8", "known: fp8"),
    ] {
        let output = run(&format!("{base} {options}"));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says), "{says}: {error}");
    }
    let output = run("--net vgg16 --gpu h100 --batch 8 --precision bf16 --weights int8");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is no language model"));
}

/// A folder with a `config.json` that has further keys.
fn config_with(name: &str, keys: &[(&str, serde_json::Value)]) -> (tempfile::TempDir, String) {
    let path = format!("{}/../model/read/tests/huggingface/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("there");
    let mut file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for (key, value) in keys {
        file[*key] = value.clone();
    }
    let folder = tempfile::tempdir().expect("a folder");
    let written = folder.path().join("config.json");
    std::fs::write(&written, file.to_string()).expect("written");
    let net = folder.path().display().to_string();
    (folder, net)
}

#[test]
fn a_config_says_its_precision_and_how_long_sequences_are() {
    let keys = [("torch_dtype", "bfloat16".into()), ("max_position_embeddings", 2048.into())];
    let (_kept, net) = config_with("llama3_2_1b", &keys);
    let asked = format!("--net {net} --gpu h100 --batch 1 --sequence 64");
    let told = "in bf16, as the network's config.json says (torch_dtype)";
    for command in ["", " --generate 8", " --generate 8 --layouts"] {
        let said = stdout(&format!("{asked}{command}"));
        assert!(said.contains(told) && said.contains("bf16") && !said.contains("was made for"), "{command}: {said}");
        let other = stdout(&format!("{asked}{command} --precision fp16"));
        assert!(other.contains("fp16") && !other.contains(told), "{command}: {other}");
    }
    let served = stdout(&format!("serve --net {net} --gpu h100 --rate 4 --prompt 64 --answer 8 --requests 100"));
    assert!(served.contains(told) && !served.contains("was made for"), "{served}");
    // The zoo's networks have no such file.
    assert!(!stdout("--net llama3_2_1b --gpu h100 --batch 1 --sequence 64").contains("config.json"));
    let long = "was made for 2048 (max_position_embeddings)";
    for command in ["--sequence 4096", "--sequence 2000 --generate 100", "--sequence 2000 --generate 100 --layouts"] {
        let said = stdout(&format!("--net {net} --gpu h100 --batch 1 {command}"));
        assert!(said.contains(long), "{command}: {said}");
    }
    let served = stdout(&format!("serve --net {net} --gpu h100 --rate 1 --prompt 2000 --answer 100 --requests 100"));
    assert!(served.contains(long), "{served}");
}

/// One rule for steps and servers, and it is told.
#[test]
fn a_config_that_says_no_precision_is_taken_in_sixteen_bits() {
    let (_kept, net) = config_with("llama3_2_1b", &[]);
    let told = |precision: &str| format!("in {precision}: config.json says no precision that is known (torch_dtype)");
    let serve = "--rate 1 --prompt 64 --answer 8 --requests 100";
    for (gpu, precision) in [("h100", "bf16"), ("v100", "fp16")] {
        let step = format!("--net {net} --gpu {gpu} --batch 1 --sequence 64");
        for line in [step.clone(), format!("{step} --generate 8"), format!("serve --net {net} --gpu {gpu} {serve}")] {
            let said = stdout(&line);
            assert!(
                said.contains(&told(precision)) && said.contains(&format!(", {precision} inference")),
                "{line}: {said}"
            );
        }
        let asked = stdout(&format!("{step} --precision fp32"));
        assert!(asked.contains("fp32 inference") && !asked.contains("torch_dtype"), "{asked}");
    }
    // Who trains says in what; the zoo's networks have no such file.
    let trained = stdout(&format!("--net {net} --gpu h100 --batch 1 --sequence 64 --mode training"));
    assert!(trained.contains("fp32 training"), "{trained}");
    assert!(stdout("--net llama3_2_1b --gpu h100 --batch 1 --sequence 64").contains("fp32 inference"));
}

#[test]
fn an_answer_of_millions_of_tokens_is_refused() {
    let asked = "--net qwen3_8b --gpu h100 --precision bf16 --batch 1";
    let refused = |line: &str, expected: &str| {
        let output = run(line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && error.lines().count() == 1 && error.contains(expected),
            "{line}: {error}"
        );
    };
    for more in ["", " --layouts"] {
        refused(&format!("{asked} --generate 10000000{more}"), "are a sequence of 10001024; at most 1048576");
    }
    refused(&format!("{asked} --generate 1047553"), "at most 1048576");
    refused("--net qwen3_8b --gpu h100 --precision bf16 --batch 100 --generate 1000000", "more than 2^64");
    // The longest that is taken: one memory, operations that add up, no shorter than its roofline.
    let said = stdout(&format!("{asked} --generate 1047552 --format json"));
    assert!(value(&said, "time_s") > value(&said, "bound_s") && value(&said, "ops") < 1.8e19, "{said}");
    let gib = value(&said, "memory_bytes") / f64::from(1 << 30);
    assert!(said.contains(&format!("decode: needs about {gib:.1} GiB")), "{gib}");
    // A model that is made for more may have more.
    let (_kept, net) = config_with("llama3_2_1b", &[("max_position_embeddings", 2_000_000.into())]);
    assert!(run(&format!("--net {net} --gpu h100 --batch 1 --generate 1500000")).status.success());
}

#[test]
fn the_clock_of_a_device_is_that_of_the_whole_answer() {
    let said =
        stdout("--net qwen3_8b --gpu h100 --precision bf16 --batch 1 --sequence 1024 --generate 64 --format json");
    let found: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let clock = |path: &str| found.pointer(path).and_then(serde_json::Value::as_f64).expect("a clock");
    let device = clock("/devices/0/core_clock_mhz");
    assert_eq!(device, clock("/core_clock_mhz"));
    assert!(clock("/generation/prefill/core_clock_mhz") < device - 100.0, "the limit holds the prompt's back");
}

#[test]
fn experts_of_gpt_oss_are_as_published() {
    let method = serde_json::json!({"quant_method": "mxfp4"});
    let (_kept, net) =
        config_with("gpt_oss_20b", &[("quantization_config", method), ("torch_dtype", "bfloat16".into())]);
    let asked = format!("--net {net} --gpu h100 --batch 1 --sequence 64 --generate 8 --format");
    let gib = value(&stdout(&format!("{asked} json")), "memory.weights") / (1u64 << 30) as f64;
    assert!((12.0..13.5).contains(&gib), "{gib}");
    assert!(stdout(&format!("{asked} table")).contains("mxfp4"));
}

#[test]
fn imbalance_is_asked_of_steps_layouts_and_services() {
    let net = "--net qwen3_30b_a3b --gpu h100 --batch 64 --precision bf16 --sequence 512 --generate 8";
    let four = format!("{net} --tensor-parallel 4 --expert-parallel 4");
    let time = |more: &str| value(&stdout(&format!("{four} --format json{more}")), "generation.decode.time_s");
    assert!(time(" --imbalance 2") > time(""));
    let listed = |more: &str| stdout(&format!("{net} --layouts{more}"));
    assert_ne!(listed(" --imbalance 3"), listed(""));
    let told = "busy experts have 2 times as many tokens as the mean of all";
    assert!(stdout(&format!("{four} --imbalance 2")).contains(told));
    let load = "serve --net qwen3_30b_a3b --gpu h100 --tensor-parallel 4 --expert-parallel 4 --rate 8 --prompt 256 --answer 32";
    let served = |more: &str| stdout(&format!("{load} --requests 100 --max-num-batched-tokens 512{more}"));
    assert_ne!(served(" --imbalance 2"), served(""));
}
