//! Language models on several GPUs: what shares hold, compute, read and exchange, against the whole network.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::net::layer::Layer;
use joulecast_model::net::network::{Network, ShapedLayer, ShapedNetwork};
use joulecast_model::net::share::{Collective, Layout, Share, shares};
use joulecast_model::step::generation;
use joulecast_read::huggingface;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("read/tests/huggingface")
}

fn names() -> Vec<String> {
    let files = fs::read_dir(folder()).expect("a folder").map(|file| file.expect("an entry").path());
    let configs = files.filter(|path| path.extension().is_some_and(|e| e == "json"));
    let mut names: Vec<String> =
        configs.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    assert!(names.len() >= 50, "{}", names.len());
    names
}

fn read(name: &str) -> Network {
    let text = fs::read_to_string(folder().join(format!("{name}.json"))).expect("readable");
    huggingface::read(&text, name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn shaped(network: &Network, batch: u64) -> ShapedNetwork {
    ShapedNetwork::new(network, batch, Precision::Bf16, &[]).unwrap_or_else(|e| panic!("{}: {e}", network.name))
}

fn layout(tensor: u64, pipeline: u64, expert: u64) -> Layout {
    Layout::new(tensor, pipeline, expert, None).expect("numbers that go together")
}

fn one(network: &Network, layout: &Layout) -> Result<Share, String> {
    shares(network, layout).map(|mut list| list.remove(0)).map_err(|e| e.to_string())
}

/// Of a layer of a share and of the whole one: how many GPUs hold each of its learned values. Products of what all GPUs have
/// before heads and experts are told apart, and norms over all features, are held by all.
fn copies(share: &ShapedLayer, whole: &ShapedLayer, gpus: u64, kv_heads: u64) -> u64 {
    let name = share.name.as_str();
    let last = name.rsplit('.').next().unwrap_or(name);
    let held_by_all = ["router", "q_a_proj", "kv_a_proj", "q_a_norm", "kv_a_norm", "embed_positions"];
    match last {
        "k_proj" | "v_proj" if gpus > kv_heads => gpus / kv_heads,
        "norm" | "input_norm" | "post_norm" | "attention_norm" | "feed_norm" | "cross_norm" => gpus,
        // A norm of every head; over all heads together every GPU has its heads' factors.
        "q_norm" | "k_norm" if whole.output.last() == share.output.last() => gpus,
        _ if held_by_all.contains(&last) => gpus,
        _ => 1,
    }
}

/// Every model of the configurations over the usual numbers of GPUs: learned values, multiply-accumulates and, in a step of
/// generation, bytes of weights and of the cache that all GPUs read together, layer by layer.
#[test]
fn shares_are_the_whole_and_what_they_hold_twice() {
    let (mut divided, mut refused) = (0, Vec::new());
    for name in names() {
        // Whisper has no more positions.
        let cached = if name.starts_with("whisper") { 447 } else { 1023 };
        let network = generation::decode(&read(&name), cached).expect("generates");
        let whole = shaped(&network, 16);
        let kv_heads = network.nodes.iter().find_map(|node| match &node.layer {
            Layer::Attention(a) => Some(a.kv_heads.unwrap_or(a.heads)),
            Layer::LatentAttention(a) => Some(a.heads),
            _ => None,
        });
        let kv_heads = kv_heads.expect("attention");
        for gpus in [1, 2, 4, 8] {
            let share = match one(&network, &layout(gpus, 1, 1)) {
                Ok(share) => share,
                Err(why) => {
                    refused.push(format!("{gpus}: {why}"));
                    continue;
                }
            };
            divided += 1;
            if gpus == 1 {
                assert_eq!((&share.network, share.exchanges.len()), (&network, 0), "{name}");
            }
            let part = shaped(&share.network, 16);
            assert_eq!(part.layers().len(), whole.layers().len(), "{name}");
            for (l, w) in part.layers().iter().zip(whole.layers()) {
                let place = format!("{name} {} over {gpus}", l.name);
                let copies = copies(l, w, gpus, kv_heads);
                let (held, all) = (gpus * l.parameters(), w.parameters());
                // Biases of sums lie on every GPU; keys and values in one product with queries, and rows of a vocabulary that
                // does not divide, are counted beside.
                let beside = match &w.case.layer {
                    Layer::Linear(linear)
                        if linear.bias && (l.name.ends_with("o_proj") || l.name.ends_with("down_proj")) =>
                    {
                        (gpus - 1) * linear.features
                    }
                    Layer::Linear(_) if l.name.ends_with("qkv_proj") => {
                        let twice = gpus.max(kv_heads) - kv_heads;
                        let head = head_features(&network);
                        2 * twice
                            * head
                            * (w.case.inputs[0].last()
                                + u64::from(w.parameters() != w.case.inputs[0].last() * w.output.last()))
                    }
                    Layer::Embedding(table) => padding(table.vocabulary, gpus) * table.features,
                    Layer::Linear(linear) if l.name == "lm_head" && w.parameters() > 0 => {
                        padding(linear.features, gpus) * (w.case.inputs[0].last() + u64::from(linear.bias))
                    }
                    // A bias that is added once the sum is made.
                    Layer::Experts(experts) if experts.bias => (gpus - 1) * experts.experts * w.case.inputs[0].last(),
                    _ => 0,
                };
                assert_eq!(held, copies * all + beside, "{place}: parameters");
                reads_as_much(&place, l, w, (gpus, copies, beside), (&part, &whole), kv_heads);
            }
        }
    }
    // What has 14, 12, 25 or 40 heads is not for 4 or 8 GPUs.
    assert!(divided >= 170, "{divided}, refused: {refused:#?}");
    assert!(refused.iter().all(|why| why.contains("do not divide among") && why.lines().count() == 1), "{refused:#?}");
}

fn padding(vocabulary: u64, gpus: u64) -> u64 {
    let filled = if vocabulary.is_multiple_of(gpus) { vocabulary } else { vocabulary.next_multiple_of(64) };
    filled - vocabulary
}

fn head_features(network: &Network) -> u64 {
    let shaped = shaped(network, 1);
    let mut heads = shaped.layers().iter().filter_map(|l| match &l.case.layer {
        Layer::Attention(a) => a.sizes(&l.case.inputs).ok().map(|s| s.dimension),
        _ => None,
    });
    heads.next().unwrap_or(0)
}

/// Multiply-accumulates and bytes of a layer over all GPUs.
fn reads_as_much(
    place: &str,
    l: &ShapedLayer,
    w: &ShapedLayer,
    (gpus, copies, beside): (u64, u64, u64),
    (part, whole): (&ShapedNetwork, &ShapedNetwork),
    kv_heads: u64,
) {
    let (Some(each), Some(all)) =
        (part.cost(l, Phase::Forward, Mode::Inference), whole.cost(w, Phase::Forward, Mode::Inference))
    else {
        assert_eq!(
            part.cost(l, Phase::Forward, Mode::Inference),
            whole.cost(w, Phase::Forward, Mode::Inference),
            "{place}"
        );
        return;
    };
    match &w.case.layer {
        Layer::Linear(linear) if beside == 0 && (l.name != "lm_head" || padding(linear.features, gpus) == 0) => {
            assert_eq!(gpus * each.macs, copies * all.macs, "{place}: multiply-accumulates");
            assert_eq!(gpus * each.weights.get(), copies * all.weights.get(), "{place}: weights");
        }
        Layer::Attention(_) => {
            assert_eq!(gpus * each.macs, all.macs, "{place}: multiply-accumulates");
            let cache = |l: &ShapedLayer| l.case.layer.cache_elements(&l.case.inputs);
            assert_eq!(gpus * cache(l), gpus.max(kv_heads) / kv_heads * cache(w), "{place}: cache");
        }
        Layer::LatentAttention(_) => {
            assert_eq!(gpus * each.macs, all.macs, "{place}: multiply-accumulates");
            // Every GPU's heads read all latents.
            assert_eq!(l.case.layer.cache_elements(&l.case.inputs), w.case.layer.cache_elements(&w.case.inputs));
        }
        Layer::Experts(experts) => {
            assert_eq!(gpus * each.macs, all.macs, "{place}: multiply-accumulates");
            if !experts.bias {
                let ratio = (gpus * each.weights.get()) as f64 / all.weights.to_f64();
                assert!((ratio - 1.0).abs() < 1e-6, "{place}: weights {ratio}");
            }
        }
        _ => {}
    }
}

/// Two sums of tokens times features for every block, one of the embedding, and the logits; all of it of a prompt, too.
#[test]
fn blocks_are_summed_twice() {
    for name in names() {
        let network = generation::prefill(&read(&name), 64).expect("generates");
        let Ok(share) = one(&network, &layout(2, 1, 1)) else { continue };
        let whole = shaped(&network, 1);
        let features = whole.layers()[0].output.last();
        let blocks = network.nodes.iter().filter(|node| node.layer.causal().is_some()).count();
        let of = |kind, values| share.exchanges.iter().filter(|e| e.kind == kind && e.values == values).count();
        // What attends to another network's positions as well has a sum more.
        let sums = if name.starts_with("whisper") { 3 * blocks / 2 } else { 2 * blocks };
        assert_eq!(of(Collective::AllReduce, 64 * features), sums + 1, "{name}");
        // Queries and keys that are normed over all heads need the sum of two GPUs' squares.
        let squares = if name.starts_with("olmo") { 2 * blocks } else { 0 };
        assert_eq!(of(Collective::AllReduce, 2 * 64), squares, "{name}");
        let logits = whole.layers().iter().rev().find(|l| l.name == "lm_head").expect("a head").output.last();
        assert_eq!(of(Collective::AllGather, logits + padding(logits, 2)), 1, "{name}");
        assert_eq!(share.exchanges.len(), sums + 2 + squares, "{name}");
        assert!(share.exchanges.windows(2).all(|pair| pair[0].layer <= pair[1].layer), "{name}");
    }
}

/// Whole experts on each GPU: with the same tokens their results are summed, with tokens of their own they are sent there and
/// back.
#[test]
fn experts_lie_whole_on_some_gpu() {
    let network = generation::decode(&read("qwen3_30b_a3b"), 1023).expect("generates");
    let whole = shaped(&network, 512);
    let experts = |share: &Share| {
        let shaped = shaped(&share.network, 512);
        let layer = shaped.layers().iter().find(|l| l.name.ends_with("experts")).expect("experts");
        let cost = shaped.cost(layer, Phase::Forward, Mode::Inference).expect("runs");
        (layer.parameters(), cost.macs, cost.weights.get())
    };
    let all = experts(&Share { network: network.clone(), exchanges: vec![] });
    let (tensor, whole_experts) = (one(&network, &layout(8, 1, 1)), one(&network, &layout(8, 1, 8)));
    let (tensor, whole_experts) = (tensor.expect("divides"), whole_experts.expect("divides"));
    assert_eq!(tensor.exchanges, whole_experts.exchanges);
    assert_eq!((8 * experts(&tensor).0, 8 * experts(&whole_experts).0), (all.0, all.0));
    assert_eq!((8 * experts(&tensor).1, 8 * experts(&whole_experts).1), (all.1, all.1));
    let apart = layout(1, 1, 8);
    assert_eq!((apart.gpus(), apart.data(), apart.replicas()), (8, 8, 1));
    let apart = one(&network, &apart).expect("divides");
    // Each GPU brings 512 tokens of its own, and all 4096 meet the experts of each.
    assert_eq!(experts(&apart).1, all.1);
    assert!(apart.exchanges.iter().all(|e| e.kind == Collective::AllToAll && e.gpus == 8));
    let blocks = network.nodes.iter().filter(|node| node.layer.causal().is_some()).count();
    assert_eq!(apart.exchanges.len(), 2 * blocks);
    // Eight experts of a token on eight GPUs: 8 (1 - (7/8)^8) GPUs in the mean.
    let copies = 8.0 * (1.0 - (7.0f64 / 8.0).powi(8));
    assert_eq!(apart.exchanges[0].values, (2048.0 * copies).ceil() as u64);
    assert_eq!(whole.layers().len(), apart.network.nodes.len());
}

#[test]
fn stages_are_the_network_one_after_the_other() {
    for name in names() {
        let network = generation::decode(&read(&name), 100).expect("generates");
        let blocks = network.nodes.iter().filter(|node| node.layer.causal().is_some()).count();
        let whole = shaped(&network, 2);
        let cache = |network: &ShapedNetwork| -> u64 {
            network.layers().iter().map(|l| l.case.layer.cache_elements(&l.case.inputs)).sum()
        };
        for stages in [2, 4, 8] {
            if stages > blocks {
                continue;
            }
            let list = shares(&network, &layout(1, stages as u64, 1)).unwrap_or_else(|e| panic!("{name}: {e}"));
            let nodes: Vec<_> = list.iter().flat_map(|s| &s.network.nodes).map(|n| (&n.name, &n.layer)).collect();
            assert_eq!(nodes, network.nodes.iter().map(|n| (&n.name, &n.layer)).collect::<Vec<_>>(), "{name}");
            let parts: Vec<ShapedNetwork> = list.iter().map(|share| shaped(&share.network, 2)).collect();
            let sum = |of: &dyn Fn(&ShapedNetwork) -> u64| parts.iter().map(of).sum::<u64>();
            // A head that shares the embedding's values has a copy of them in the last stage.
            let tied = network.nodes.iter().any(|node| node.tied.is_some());
            let table = whole.layers()[0].parameters();
            assert_eq!(sum(&|p| p.parameters()), whole.parameters() + if tied { table } else { 0 }, "{name}");
            assert_eq!((sum(&|p| p.macs()), sum(&cache)), (whole.macs(), cache(&whole)), "{name}");
            let each = |share: &Share| share.network.nodes.iter().filter(|n| n.layer.causal().is_some()).count();
            let (least, most) = (list.iter().map(each).min(), list.iter().map(each).max());
            assert!(most <= least.map(|n| n + 1), "{name}: {least:?} to {most:?} blocks");
            let sends: Vec<usize> = list.iter().map(|s| s.exchanges.len()).collect();
            assert_eq!(sends, [vec![1; stages - 1], vec![0]].concat(), "{name}");
            assert_eq!(list[0].exchanges[0].values, whole.layers()[0].output.last(), "{name}");
        }
    }
}

/// The zoo's own networks, which name layers otherwise, are divided as well.
#[test]
fn blocks_are_recognised_whatever_they_are_called() {
    for name in ["gpt2", "llama3_8b", "qwen3_30b_a3b", "gemma2_9b", "deepseek_v3", "phi_4", "gpt_oss_20b"] {
        let network = generation::decode(&catalog::network(name).expect("zoo"), 100).expect("generates");
        let share = one(&network, &layout(2, 1, 1)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (part, whole) = (shaped(&share.network, 8).parameters(), shaped(&network, 8).parameters());
        assert!(2 * part > whole && (2 * part) as f64 / (whole as f64) < 1.01, "{name}: {part} of {whole}");
        assert_eq!(shares(&network, &layout(2, 3, 1)).expect("stages").len(), 3, "{name}");
    }
}

#[test]
fn what_cannot_be_shared_says_why_in_one_line() {
    let zoo = |name: &str| catalog::network(name).expect("zoo");
    let why = |network: &Network, layout: Result<Layout, _>| {
        let error = layout.and_then(|layout| shares(network, &layout)).expect_err("refused").to_string();
        assert_eq!(error.lines().count(), 1);
        error
    };
    let (llama, mixtral) = (read("llama3_1_8b"), read("mixtral_8x7b"));
    for (network, tensor, pipeline, expert, data, says) in [
        (
            &llama,
            3,
            1,
            1,
            None,
            "32 heads of queries (layers.0.attention) do not divide among the 3 GPUs of --tensor-parallel",
        ),
        (&llama, 64, 1, 1, None, "32 heads of queries"),
        (&llama, 1, 33, 1, None, "its 32 blocks do not fill the 33 stages"),
        (&llama, 1, 1, 2, None, "llama3_1_8b has no experts"),
        (&llama, 0, 1, 1, None, "--tensor-parallel 0"),
        (&llama, 1, 5000, 1, None, "--pipeline-parallel 5000"),
        (&mixtral, 1, 1, 16, None, "8 experts (layers.0.experts) do not divide among the 16 GPUs of --expert-parallel"),
        (&mixtral, 3, 1, 4, None, "--tensor-parallel 3 and --expert-parallel 4"),
        (&mixtral, 1, 1, 4, Some(6), "--data-parallel 6"),
        (&read("qwen2_5_0_5b"), 4, 1, 1, None, "14 heads of queries"),
        (&zoo("vgg16"), 2, 1, 1, None, "vgg16 cannot be shared among GPUs: it is no language model"),
        (&zoo("bert_base"), 2, 1, 1, None, "its attention is not causal"),
    ] {
        let error = why(network, Layout::new(tensor, pipeline, expert, data));
        assert!(error.contains(says), "{says}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any layout of any model, of a step over any tokens: all stages can be given shapes, together they hold the blocks once,
    /// and no GPU has more to compute than one alone.
    #[test]
    fn any_layout_that_divides_can_run(
        name in prop::sample::select(names()), tensor in 0u32..4, stages in 0u32..4, experts in 0u32..4,
        new in prop::sample::select(vec![1u64, 7, 64]), batch in 1u64..5,
    ) {
        let network = read(&name);
        let network = if new == 1 { generation::decode(&network, 99) } else { generation::prefill(&network, new) };
        let network = network.expect("generates");
        let has_experts = network.nodes.iter().any(|n| matches!(n.layer, Layer::Experts(_)));
        let layout = layout(1 << tensor, 1 << stages, if has_experts { 1 << experts } else { 1 });
        match shares(&network, &layout) {
            Err(why) => {
                let why = why.to_string();
                prop_assert!(why.contains("do not divide") || why.contains("do not fill"), "{}", why);
            }
            Ok(list) => {
                let parts: Vec<ShapedNetwork> = list.iter().map(|share| shaped(&share.network, batch)).collect();
                let whole = shaped(&network, batch);
                let macs: u64 = parts.iter().map(ShapedNetwork::macs).sum();
                let exchanging = layout.exchanging();
                prop_assert!(macs <= whole.macs() * exchanging + whole.macs() / 50, "{} {}", macs, whole.macs());
                prop_assert!(macs * layout.tensor() * 101 / 100 >= whole.macs(), "{} {}", macs, whole.macs());
                prop_assert_eq!(parts.iter().map(|p| p.layers().len()).sum::<usize>(), whole.layers().len());
            }
        }
    }
}
