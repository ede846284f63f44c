//! Language models read from `config.json`, against what transformers counts, what was published, and the zoo's definitions.
//!
//! `huggingface/NAME.json` are written by transformers' configuration classes, `huggingface/parameters.csv` is what it counts
//! on PyTorch's meta device (`calibrate/tools/huggingface_parameters.py`).

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::catalog;
use joulecast_model::net::cost::LayerCost;
use joulecast_model::net::network::{Network, ShapedLayer, ShapedNetwork, Stored, Weights};
use joulecast_model::net::share::{Layout, shares};
use joulecast_model::step::generation;
use joulecast_model::step::memory::footprint;
use joulecast_read::huggingface;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/huggingface").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(&format!("{name}.json"))).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn config(name: &str) -> Value {
    serde_json::from_str(&text(name)).expect("JSON")
}

fn read(name: &str) -> Network {
    huggingface::read(&text(name), name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn shaped(network: &Network) -> ShapedNetwork {
    ShapedNetwork::new(network, 1, Precision::Bf16, &[]).unwrap_or_else(|e| panic!("{}: {e}", network.name))
}

/// Name, architecture, parameters and their source.
fn table() -> Vec<(String, String, u64, String)> {
    let mut rows = csv::Reader::from_path(path("parameters.csv")).expect("the table");
    rows.deserialize().collect::<Result<_, _>>().expect("its rows")
}

#[test]
fn parameters_are_those_that_transformers_counts() {
    let table = table();
    for (name, architecture, parameters, source) in &table {
        let network = read(name);
        assert_eq!(shaped(&network).parameters(), *parameters, "{name}");
        assert!(network.source.ends_with(architecture.as_str()), "{name}: {}", network.source);
        assert!(source.contains("transformers"), "{name}: {source}");
    }
    let published = table.iter().filter(|row| row.3.contains("equals the published total")).count();
    let architectures: BTreeSet<&str> = table.iter().map(|row| row.1.as_str()).collect();
    assert!(table.len() >= 54 && published >= 45 && architectures.len() >= 20, "{} {published}", table.len());
}

/// What the zoo has, written by blocks, is what the reader makes, layer by layer.
#[test]
fn networks_are_the_zoos() {
    for (name, zoo) in [
        ("llama2_7b", "llama_7b"),
        ("llama3_1_8b", "llama3_8b"),
        ("llama3_2_1b", "llama3_2_1b"),
        ("tinyllama_1_1b", "tinyllama"),
        ("llama3_1_70b", "llama3_1_70b"),
        ("llama3_2_3b", "llama3_2_3b"),
        ("qwen3_8b", "qwen3_8b"),
        ("qwen3_32b", "qwen3_32b"),
        ("qwen3_30b_a3b", "qwen3_30b_a3b"),
        ("gemma2_9b", "gemma2_9b"),
        ("phi_4", "phi_4"),
        ("gpt_oss_20b", "gpt_oss_20b"),
        ("deepseek_v3", "deepseek_v3"),
        ("mixtral_8x7b", "mixtral_8x7b"),
    ] {
        let (read, zoo) = (read(name), catalog::network(zoo).expect(zoo));
        assert_eq!(read.nodes.len(), zoo.nodes.len(), "{name}");
        for (ours, theirs) in read.nodes.iter().zip(&zoo.nodes) {
            assert_eq!(ours, theirs, "{name}");
        }
        assert_eq!(read.inputs, zoo.inputs, "{name}");
    }
    let layers = |network: &Network| -> Vec<(&'static str, Shape, u64)> {
        let shaped = shaped(network);
        shaped.layers().iter().map(|l| (l.case.layer.kind(), l.output, l.parameters())).collect()
    };
    for name in ["gpt2", "gpt2_xl"] {
        assert_eq!(layers(&read(name)), layers(&catalog::network(name).expect("zoo")), "{name}");
    }
}

/// Bytes that a token takes in a cache in 16 bits. Grouped heads and latents: DeepSeek-AI 2025 (arXiv 2505.09343), table 1.
/// All heads of a 7B Llama: 512 KiB.
#[test]
fn caches_are_as_large_as_published() {
    for (name, bytes) in
        [("deepseek_v3", 70_272), ("qwen2_5_72b", 327_680), ("llama3_1_405b", 516_096), ("llama2_7b", 512 << 10)]
    {
        let network = read(name);
        let cache = |cached| {
            let step = generation::decode(&network, cached).expect("generates");
            footprint(&shaped(&step), Mode::Inference, &Default::default(), &[]).cache.get()
        };
        assert_eq!((cache(999), cache(1999)), (1000 * bytes, 2000 * bytes), "{name}");
    }
}

/// Layers over a window keep no more of a cache, the others all: Gemma 3 has five of six over 512 or 1024 tokens.
#[test]
fn windows_end_what_a_cache_keeps() {
    let network = read("gemma3_1b");
    let cache = |cached| {
        let step = generation::decode(&network, cached).expect("generates");
        footprint(&shaped(&step), Mode::Inference, &Default::default(), &[]).cache.get()
    };
    let token = 2 * 2 * 256;
    assert_eq!(cache(99), 26 * 100 * token);
    assert_eq!(cache(9_999), (22 * 512 + 4 * 10_000) * token);
}

/// Multiply-accumulates of one token against a cache of one: the parameters that it runs through. Published: Mixtral 12.9
/// billion (arXiv 2401.04088), DeepSeek-V3 37 (arXiv 2412.19437), gpt-oss 3.6 and 5.1 (arXiv 2508.10925), Qwen3 3.3 and 22
/// (arXiv 2505.09388), OLMoE 1.3 (arXiv 2409.02060), some with the embedding and some without.
#[test]
fn a_token_runs_through_as_many_parameters_as_published() {
    for (name, billions, embedding) in [
        ("mixtral_8x7b", 12.9, 32_000 * 4096),
        ("deepseek_v3", 37.0, 0),
        ("gpt_oss_20b", 3.6, 0),
        ("gpt_oss_120b", 5.1, 0),
        ("qwen3_30b_a3b", 3.3, 151_936 * 2048),
        ("qwen3_235b_a22b", 22.0, 151_936 * 4096),
        ("olmoe_1b_7b", 1.3, 50_304 * 2048),
    ] {
        let step = generation::decode(&read(name), 1).expect("generates");
        let active = (shaped(&step).macs() + embedding) as f64 / 1e9;
        assert!((active / billions - 1.0).abs() < 0.025, "{name}: {active} billions, published {billions}");
    }
}

/// Both steps of every model, with as many parameters as the whole has; the prompt's last token alone has logits.
#[test]
fn all_of_them_generate() {
    for (name, _, parameters, _) in table() {
        let network = read(&name);
        let prompt = shaped(&generation::prefill(&network, 64).unwrap_or_else(|e| panic!("{name}: {e}")));
        let token = shaped(&generation::decode(&network, 64).unwrap_or_else(|e| panic!("{name}: {e}")));
        for step in [&prompt, &token] {
            assert_eq!(step.parameters(), parameters, "{name}");
            assert_eq!(step.layers().last().map(|l| l.output.dims()[0]), Some(1), "{name}");
        }
        let logits = |step: &ShapedNetwork| step.layers().iter().find(|l| l.name == "lm_head").map(|l| l.output);
        assert_eq!(logits(&prompt), logits(&token), "{name}");
    }
}

/// With other values of some keys; those that are `null` are left out.
fn changed(name: &str, changes: &[(&str, Value)]) -> Result<Network, String> {
    let mut config = config(name);
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    if let Some(fields) = config.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    huggingface::read(&config.to_string(), name)
}

/// As files are that older releases of transformers wrote, and those that leave out what is usual.
#[test]
fn older_files_say_the_same_by_other_keys() {
    let same = |name: &str, changes: &[(&str, Value)]| {
        assert_eq!(changed(name, changes).map(|n| n.nodes), Ok(read(name).nodes), "{name}: {changes:?}");
    };
    let none = Value::Null;
    same("llama2_7b", &[("num_key_value_heads", none.clone()), ("head_dim", none.clone())]);
    same("llama3_1_8b", &[("rope_parameters", none.clone()), ("rope_theta", json!(500_000.0))]);
    same("gemma2_9b", &[("layer_types", none.clone()), ("tie_word_embeddings", none.clone())]);
    same("gemma3_1b", &[("layer_types", none.clone()), ("sliding_window_pattern", json!(6))]);
    same(
        "gemma3_4b_text",
        &[("layer_types", none.clone()), ("num_attention_heads", none.clone()), ("vocab_size", none.clone())],
    );
    same("gpt_oss_20b", &[("layer_types", none.clone())]);
    same("gpt_oss_20b", &[("attention_bias", none.clone())]);
    same("phi_2", &[("rope_parameters", none.clone())]);
    same("phi_2", &[("partial_rotary_factor", none.clone())]);
    same("pythia_70m", &[("rope_parameters", none.clone()), ("rotary_pct", json!(0.25))]);
    same("gpt2", &[("resid_pdrop", none.clone()), ("n_inner", json!(3072))]);
    same("qwen3_8b", &[("layer_types", none.clone()), ("use_sliding_window", none.clone())]);
    let experts = config("qwen3_30b_a3b")["num_local_experts"].clone();
    same("qwen3_30b_a3b", &[("num_local_experts", none), ("num_experts", experts)]);
    same("deepseek_v3", &[("moe_layer_freq", json!(1))]);
}

/// What a key changes: kinds and sizes that the plain files do not have.
#[test]
fn keys_change_what_they_say() {
    let kinds = |network: &Network, kind: &str| network.nodes.iter().filter(|n| n.layer.kind() == kind).count();
    let parameters = |name, changes: &[(&str, Value)]| changed(name, changes).map(|n| shaped(&n).parameters());
    let plain = |name: &str| shaped(&read(name)).parameters();
    // Biases of queries, keys, values and results of 32 layers.
    let biases = 32 * (4096 + 2 * 1024 + 4096);
    assert_eq!(parameters("llama3_1_8b", &[("attention_bias", json!(true))]), Ok(plain("llama3_1_8b") + biases));
    let inner = 32 * (2 * 14336 + 4096);
    assert_eq!(parameters("llama3_1_8b", &[("mlp_bias", json!(true))]), Ok(plain("llama3_1_8b") + inner));
    let tied = parameters("llama3_1_8b", &[("tie_word_embeddings", json!(true))]);
    assert_eq!(tied, Ok(plain("llama3_1_8b") - 128_256 * 4096));
    // The windows of Qwen's last layers, where the file asks for them.
    let slides =
        [("use_sliding_window", json!(true)), ("sliding_window", json!(4096)), ("max_window_layers", json!(30))];
    let slides = [&slides[..], &[("layer_types", Value::Null)]].concat();
    let network = changed("qwen3_8b", &slides).expect("known");
    let windows = network.to_toml().matches("window = 4096").count();
    assert_eq!(windows, 6);
    // Dense layers among those with experts.
    let dense = changed("qwen3_30b_a3b", &[("mlp_only_layers", json!([0, 5])), ("decoder_sparse_step", json!(2))])
        .expect("known");
    assert_eq!((kinds(&dense, "experts"), kinds(&read("qwen3_30b_a3b"), "experts")), (23, 48));
    let sequential = changed("pythia_70m", &[("use_parallel_residual", json!(false))]).expect("known");
    assert_eq!(shaped(&sequential).parameters(), plain("pythia_70m"));
    assert_ne!(sequential.nodes, read("pythia_70m").nodes);
    // A model that reads images as well, and how weights are kept.
    let wrapped = json!({"model_type": "gemma3", "vision_config": {}, "text_config": config("gemma3_4b_text")});
    let part = huggingface::read(&wrapped.to_string(), "gemma-3-4b-it").expect("its text");
    assert_eq!(part.nodes, read("gemma3_4b_text").nodes);
    assert!(part.notes.iter().any(|n| n.contains("text_config")), "{:?}", part.notes);
    let quantized = changed("llama3_1_8b", &[("quantization_config", json!({"quant_method": "fp8"}))]).expect("known");
    assert!(quantized.notes.iter().any(|n| n.contains("fp8")), "{:?}", quantized.notes);
    assert!(read("deepseek_v3").notes.iter().any(|n| n.contains("num_nextn_predict_layers")));
}

/// Whisper's decoder attends to what its encoder made of 30 s: keys and values of 1500 positions in every block, which are made
/// with the prompt and never again, and lie in a cache that does not grow.
#[test]
fn a_decoder_reads_its_encoder_s_positions_from_a_cache() {
    let (d, blocks, positions) = (1280, 32, 1500);
    let network = read("whisper_large_v3");
    assert!(network.notes.iter().any(|n| n.contains("1500 positions")), "{:?}", network.notes);
    let of = |network: &Network, what: &str| -> Vec<LayerCost> {
        let shaped = shaped(network);
        let all = shaped.layers().iter().filter(|l| l.name.ends_with(what));
        all.filter_map(|l| shaped.cost(l, Phase::Forward, Mode::Inference)).collect()
    };
    let prompt = generation::prefill(&network, 4).expect("generates");
    let step = |cached| generation::decode(&network, cached).expect("generates");
    let made = of(&prompt, "cross_attention");
    assert_eq!(made.len(), blocks as usize);
    // Two products over all positions, then two over pairs with four tokens.
    assert_eq!(made[0].macs, positions * d * 2 * d + 2 * 4 * positions * d);
    assert_eq!(made[0].weights.get(), 2 * (2 * d * d + d));
    for cached in [4, 400] {
        let read = of(&step(cached), "cross_attention");
        assert_eq!((read[0].macs, read[0].weights.get()), (2 * positions * d, 0));
        assert_eq!(read[0].read.get(), 2 * (2 * positions * d + d), "its cache and one query");
        let cache = footprint(&shaped(&step(cached)), Mode::Inference, &Default::default(), &[]).cache.get();
        assert_eq!(cache, 2 * blocks * 2 * d * (positions + cached + 1));
    }
    // 448 positions of its own are learned.
    assert!(generation::prefill(&network, 449).is_err() && generation::prefill(&network, 447).is_ok());
    let wrong = |key: &str, value: Value| changed("whisper_tiny", &[(key, value)]).map(|n| n.name).expect_err("wrong");
    assert!(wrong("decoder_attention_heads", json!(7)).contains("does not divide d_model"));
    assert!(wrong("d_model", Value::Null).contains("d_model is missing"));
}

/// Two GPUs have half of the heads, of the products over the encoder's positions, and of their cache.
#[test]
fn cross_attention_is_divided_by_heads() {
    let network = generation::decode(&read("whisper_large_v3"), 10).expect("generates");
    let layout = Layout::new(2, 1, 1, None).expect("a layout");
    let part = &shares(&network, &layout).expect("divides")[0].network;
    let weights = |network: &Network| {
        let shaped = shaped(network);
        let all = shaped.layers().iter().filter(|l| l.name.contains(".cross_")).map(|l| l.parameters());
        (all.sum::<u64>(), footprint(&shaped, Mode::Inference, &Default::default(), &[]).cache.get())
    };
    let (whole, half) = (weights(&network), weights(part));
    assert_eq!(whole.1, 2 * half.1);
    assert!(half.0 > whole.0 / 2 && half.0 < whole.0 / 2 + 32 * 3 * 1280, "{whole:?} {half:?}");
}

#[test]
fn what_a_file_says_of_its_use_is_kept() {
    let bare = read("llama3_1_8b");
    assert_eq!((bare.stated.precision, bare.stated.is_silent, bare.stated.positions), (None, true, Some(131_072)));
    for (key, dtype, precision) in [
        ("torch_dtype", "bfloat16", Some(Precision::Bf16)),
        ("dtype", "float16", Some(Precision::Fp16)),
        ("dtype", "float32", Some(Precision::Fp32)),
        ("torch_dtype", "float8_e4m3fn", None),
    ] {
        let said = changed("llama3_1_8b", &[(key, json!(dtype))]).expect("known");
        assert_eq!(said.stated.precision, precision, "{dtype}");
        assert_eq!(said.stated.is_silent, precision.is_none(), "{dtype}");
        let told = format!("{key} {dtype} is unknown");
        assert_eq!(said.notes.iter().any(|n| n.starts_with(&told)), precision.is_none(), "{:?}", said.notes);
    }
    let text = config("gemma3_4b_text");
    let text = json!({"model_type": "gemma3", "vision_config": {}, "dtype": "bfloat16", "text_config": text});
    let part = huggingface::read(&text.to_string(), "gemma-3-4b-it").expect("its text");
    assert_eq!(part.stated.precision, Some(Precision::Bf16));
}

/// What is done of weights in fewer bits, and which option asks for what is published.
#[test]
fn weights_in_fewer_bits_name_the_option_that_asks_for_them() {
    let groups = |kind, bits| json!({"group_0": {"weights": {"num_bits": bits, "type": kind}}});
    for (method, option) in [
        (json!({"quant_method": "awq", "bits": 4}), "--weights int4"),
        (json!({"quant_method": "gptq", "bits": 8}), "--weights int8"),
        (json!({"quant_method": "bitsandbytes", "load_in_4bit": true}), "--weights int4"),
        (json!({"quant_method": "compressed-tensors", "config_groups": groups("int", 4)}), "--weights int4"),
        (json!({"quant_method": "compressed-tensors", "config_groups": groups("float", 8)}), "--precision fp8"),
        (json!({"quant_method": "fp8"}), "--precision fp8"),
        (json!({"quant_method": "mxfp4"}), "--weights int4"),
        (json!({"quant_method": "aqlm"}), "--weights fp8, int8 or int4"),
    ] {
        let name = method["quant_method"].as_str().expect("a name").to_string();
        let found = changed("llama3_1_8b", &[("quantization_config", method), ("torch_dtype", json!("bfloat16"))]);
        let found = found.expect("known");
        let expected = format!(
            "its weights are published in {name}: taken in bf16 where nothing else is asked for; {option} asks for what is published"
        );
        assert!(found.notes.contains(&expected), "{:?}", found.notes);
        assert_eq!(found.stated.experts, None, "{name}");
    }
}

/// Published: 20.9 billion parameters in 12.8 GiB (gpt-oss-20b's model card, size of the checkpoint); experts have 4.25 bits.
#[test]
fn experts_in_mxfp4_are_stored_in_four_bits() {
    let method = json!({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]});
    let stored = changed("gpt_oss_20b", &[("quantization_config", method)]).expect("known");
    assert!(stored.notes.iter().any(|n| n.contains("mxfp4") && n.contains("int4")), "{:?}", stored.notes);
    let weights = |network: &Network, precision| {
        let shaped = ShapedNetwork::new(network, 1, precision, &[]).expect("fits");
        footprint(&shaped, Mode::Inference, &Default::default(), &[]).weights
    };
    let (plain, less) = (weights(&read("gpt_oss_20b"), Precision::Bf16), weights(&stored, Precision::Bf16));
    assert!((12.0..13.5).contains(&less.to_gib()) && plain.to_gib() > 38.0, "{} {}", less.to_gib(), plain.to_gib());
    // All but the experts is as it was.
    let experts = |network: &Network| {
        let shaped = shaped(network);
        let of = |l: &&ShapedLayer| l.case.layer.kind() == "experts";
        shaped.layers().iter().filter(of).map(|l| l.weight_bytes(Precision::Bf16)).sum::<u64>()
    };
    assert_eq!(plain.get() - less.get(), experts(&read("gpt_oss_20b")) - experts(&stored));
    assert_eq!(weights(&stored, Precision::Fp32), weights(&read("gpt_oss_20b"), Precision::Fp32));
    // Whatever is asked for goes before.
    let asked = shaped(&stored).storing(Stored { weights: Some(Weights::Fp8), cache: None }, None);
    let eight = footprint(&asked, Mode::Inference, &Default::default(), &[]).weights;
    assert!(eight > less && eight < plain);
}

#[test]
fn what_is_wrong_is_said_by_its_key() {
    let wrong = |name: &str, key: &str, value: Value, says: &str| {
        let error = changed(name, &[(key, value.clone())]).map(|n| n.name).expect_err(&format!("{name} {key} {value}"));
        assert!(error.contains(key) && error.contains(says), "{name} {key} {value}: {error}");
    };
    let none = Value::Null;
    wrong("llama3_1_8b", "model_type", json!("mamba2"), "\"mamba2\" is not known here");
    wrong("llama3_1_8b", "model_type", json!("lama"), "did you mean \"llama\"?");
    wrong("llama3_1_8b", "model_type", none.clone(), "missing");
    for key in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"] {
        wrong("llama3_1_8b", key, none.clone(), "missing");
        wrong("llama3_1_8b", key, json!(0), "not a whole number");
        wrong("llama3_1_8b", key, json!(1u64 << 40), "not a whole number");
        wrong("llama3_1_8b", key, json!("4096"), "not a whole number");
        wrong("llama3_1_8b", key, json!(1.5), "not a whole number");
    }
    wrong("qwen3_8b", "num_key_value_heads", none.clone(), "missing");
    wrong("llama3_1_8b", "num_key_value_heads", json!(5), "does not divide");
    wrong("llama2_7b", "head_dim", json!(127), "");
    let uneven = [("head_dim", none.clone()), ("num_attention_heads", json!(24)), ("num_key_value_heads", json!(8))];
    let error = changed("llama3_1_8b", &uneven).expect_err("does not divide");
    assert!(error.contains("num_attention_heads is 24, which does not divide hidden_size"), "{error}");
    wrong("llama3_1_8b", "hidden_act", json!("gleu"), "did you mean");
    wrong("llama3_1_8b", "attention_bias", json!("yes"), "neither true nor false");
    wrong("gemma3_1b", "layer_types", json!(["full_attention"]), "1 layers");
    wrong("gemma3_1b", "layer_types", json!(vec!["chunked_attention"; 26]), "another word");
    wrong("gemma2_9b", "sliding_window", none.clone(), "missing");
    wrong("phi_2", "qk_layernorm", json!(true), "not known here");
    wrong("phi_2", "partial_rotary_factor", json!(1.5), "from 0 to 1");
    wrong("phi_2", "partial_rotary_factor", json!(0.0001), "no even number");
    wrong("olmoe_1b_7b", "num_experts_per_tok", json!(65), "num_experts 64");
    wrong("deepseek_v3", "kv_lora_rank", none, "missing");
    for (text, says) in [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "no object"),
        ("{}", "model_type"),
        ("{\"model_type\": 3}", "model_type"),
    ] {
        let error = huggingface::read(text, "x").expect_err(text);
        assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
    }
    // Each size is possible, all of them together are not.
    let most = json!(1 << 24);
    let all = [
        ("vocab_size", most.clone()),
        ("hidden_size", most.clone()),
        ("intermediate_size", most),
        ("num_hidden_layers", json!(1000)),
    ];
    let error = changed("llama3_1_8b", &all).expect_err("cannot be counted");
    assert!(error.contains("too large"), "{error}");
}

/// A reading that can be given shapes, or one short line.
fn one_line_or_network(text: &str) -> Option<Network> {
    match huggingface::read(text, "damaged") {
        Ok(network) => {
            let _ = ShapedNetwork::new(&network, 7, Precision::Fp16, &[]);
            Some(network)
        }
        Err(error) => {
            assert!(!error.is_empty() && !error.contains(char::is_control) && error.len() < 700, "{error:?}");
            None
        }
    }
}

/// One file of every architecture with any field gone or absurd: nothing panics, what is read is a network.
#[test]
fn absurd_values_are_refused_or_read() {
    let absurd = [
        Value::Null,
        json!(-1),
        json!(0),
        json!(1),
        json!(3),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(1 << 24),
        json!("x\u{1b}[31m\n"),
        json!([]),
        json!([0, "full_attention", null]),
        json!({"quant_method": 3}),
        json!(true),
    ];
    let mut seen = BTreeSet::new();
    for (name, architecture, ..) in table() {
        // The smallest models first: what is read of large ones is longer, not other.
        if !seen.insert(architecture) {
            continue;
        }
        let plain = config(&name);
        for key in plain.as_object().expect("an object").keys() {
            for value in &absurd {
                let mut config = plain.clone();
                config[key.as_str()] = value.clone();
                // Few layers make as many mistakes.
                if key != "num_hidden_layers" && key != "layer_types" && config.get("layer_types").is_none() {
                    config["num_hidden_layers"] = json!(4);
                }
                one_line_or_network(&config.to_string());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes of a file changed, left out or repeated.
    #[test]
    fn damaged_files_are_errors_or_networks(
        which in 0usize..3, start in 0.0..1.0f64, length in 0usize..60, new in proptest::collection::vec(any::<u8>(), 0..6),
    ) {
        let mut bytes = text(["pythia_70m", "gemma3_1b", "deepseek_v2_lite"][which]).into_bytes();
        let start = (bytes.len() as f64 * start) as usize;
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, new);
        if let Some(network) = one_line_or_network(&String::from_utf8_lossy(&bytes)) {
            prop_assert!(Network::from_toml(&network.to_toml()).is_ok_and(|again| again.nodes == network.nodes));
        }
    }
}
