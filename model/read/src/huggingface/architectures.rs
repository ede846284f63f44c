//! What each architecture's `config.json` means: keys, what they are where they are missing, and what the code behind the
//! name does without saying so. After `configuration_*.py` and `modeling_*.py` of transformers, by `model_type`.

use super::config::{Config, Outcome};
use super::decoder::{
    Attend, Biases, Block, Cross, Decoder, Dense, Feed, Gate, Head, HeadNorms, Heads, Latent, Mixture, Norm, Order,
    Shared,
};
use joulecast_model::net::layer::Function;

/// A model from its file.
pub(super) type Read = fn(Config<'_>) -> Outcome<Decoder>;

/// Architectures by `model_type`.
pub(super) const KNOWN: &[(&str, Read)] = &[
    ("deepseek_v2", deepseek_v2),
    ("deepseek_v3", deepseek_v3),
    ("gemma", gemma),
    ("gemma2", gemma2),
    ("gemma3_text", gemma3),
    ("gpt2", gpt2),
    ("gpt_neox", gpt_neox),
    ("gpt_oss", gpt_oss),
    ("llama", llama),
    ("mistral", mistral),
    ("mixtral", mixtral),
    ("olmo2", olmo2),
    ("olmoe", olmoe),
    ("phi", phi),
    ("phi3", phi3),
    ("qwen2", qwen2),
    ("qwen2_moe", qwen2_moe),
    ("qwen3", qwen3),
    ("qwen3_moe", qwen3_moe),
    ("whisper", whisper),
];

/// What most architectures say by the same keys.
struct Common {
    vocabulary: u64,
    features: u64,
    layers: u64,
    heads: u64,
}

impl Common {
    fn of(c: &Config<'_>) -> Outcome<Self> {
        Ok(Self {
            vocabulary: c.size("vocab_size")?,
            features: c.size("hidden_size")?,
            layers: c.layers("num_hidden_layers")?,
            heads: c.size("num_attention_heads")?,
        })
    }

    /// Features of a head: as the file says, or heads share the features.
    fn dimension(&self, c: &Config<'_>) -> Outcome<u64> {
        match c.size_if_any("head_dim")? {
            Some(dimension) => Ok(dimension),
            None => shared_out(self.features, self.heads, "hidden_size", "num_attention_heads"),
        }
    }

    /// Attention whose heads of keys and values are as many as the file says, or as those of queries.
    fn heads(&self, c: &Config<'_>, biases: Biases) -> Outcome<Heads> {
        let kv_heads = c.size_if_any("num_key_value_heads")?.unwrap_or(self.heads);
        grouped(self.heads, kv_heads)?;
        let dimension = self.dimension(c)?;
        Ok(Heads {
            heads: self.heads,
            kv_heads,
            dimension,
            biases,
            packed: false,
            norms: HeadNorms::None,
            rotated: rotated(c, dimension, "partial_rotary_factor", 1.0)?,
            window: None,
            sinks: false,
        })
    }

    /// The same where the file has to say how many heads keys and values have.
    fn heads_as_said(&self, c: &Config<'_>, biases: Biases) -> Outcome<Heads> {
        c.size("num_key_value_heads")?;
        self.heads(c, biases)
    }

    /// A model with root-mean-square norms whose blocks are all alike.
    fn model(self, order: Order, attention: Heads, feed: Dense, tied: bool) -> Decoder {
        let block = Block { order, attention: Attend::Heads(attention), cross: None, feed: Feed::Dense(feed) };
        let blocks = vec![block; self.layers as usize];
        self.decoder(blocks, tied)
    }

    fn decoder(self, blocks: Vec<Block>, tied: bool) -> Decoder {
        Decoder {
            vocabulary: self.vocabulary,
            features: self.features,
            positions: None,
            scaled: false,
            norm: Norm::Rms,
            dropouts: [0.0; 2],
            blocks,
            head: Head { tied, ..Head::default() },
        }
    }
}

/// A whole that is shared out.
fn shared_out(whole: u64, parts: u64, of: &str, by: &str) -> Outcome<u64> {
    if whole.is_multiple_of(parts) {
        return Ok(whole / parts);
    }
    Err(format!("{by} is {parts}, which does not divide {of}, {whole}"))
}

fn grouped(heads: u64, kv_heads: u64) -> Outcome<()> {
    shared_out(heads, kv_heads, "num_attention_heads", "num_key_value_heads").map(drop)
}

/// Features of a head that carry the position, by the share of them under `key`, here or among the positions' own fields.
fn rotated(c: &Config<'_>, dimension: u64, key: &str, otherwise: f64) -> Outcome<u64> {
    let apart = c.part("rope_parameters").map(|part| part.share("partial_rotary_factor")).transpose()?.flatten();
    let share = c.share(key)?.or(apart).unwrap_or(otherwise);
    let turned = (dimension as f64 * share) as u64;
    if turned == 0 || !turned.is_multiple_of(2) {
        if turned == dimension {
            return Err(format!("head_dim is {dimension}, but positions turn pairs of a head's features"));
        }
        return Err(format!(
            "{key} is {share}: {turned} of a head's {dimension} features, which is no even number from 2"
        ));
    }
    Ok(turned)
}

/// A gated feed-forward network without biases.
fn gated(c: &Config<'_>, hidden: &str, function: (&str, &str)) -> Outcome<Dense> {
    let function = c.function(function.0, function.1)?;
    Ok(Dense { hidden: c.size(hidden)?, function, bias: false, gate: Gate::Apart })
}

const SILU: (&str, &str) = ("hidden_act", "silu");

fn tied(c: &Config<'_>, otherwise: bool) -> Outcome<bool> {
    c.truth("tie_word_embeddings", otherwise)
}

/// The window of every layer: by `layer_types`, or where that is missing by a rule over the layers' numbers, from 0.
fn windows(c: &Config<'_>, layers: u64, slides: impl Fn(u64) -> bool) -> Outcome<Vec<Option<u64>>> {
    let window = |slides: bool| if slides { c.size("sliding_window").map(Some) } else { Ok(None) };
    let Some(types) = c.list("layer_types")? else {
        return (0..layers).map(|i| window(slides(i))).collect();
    };
    if types.len() as u64 != layers {
        return Err(format!("layer_types names {} layers, num_hidden_layers is {layers}", types.len()));
    }
    let each = types.iter().map(|kind| match kind.as_str() {
        Some("full_attention") => window(false),
        Some("sliding_attention") => window(true),
        _ => Err("layer_types has another word than full_attention and sliding_attention".to_string()),
    });
    each.collect()
}

/// Gives every block the window of its layer.
fn with_windows(mut model: Decoder, windows: &[Option<u64>]) -> Decoder {
    for (block, window) in model.blocks.iter_mut().zip(windows) {
        if let Attend::Heads(heads) = &mut block.attention {
            heads.window = *window;
        }
    }
    model
}

fn llama(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let bias = c.truth("attention_bias", false)?;
    let attention = common.heads(&c, Biases { inputs: bias, keys: bias, output: bias })?;
    let feed = Dense { bias: c.truth("mlp_bias", false)?, ..gated(&c, "intermediate_size", SILU)? };
    Ok(common.model(Order::Before, attention, feed, tied(&c, false)?))
}

fn mistral(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let attention = common.heads_as_said(&c, Biases::NONE)?;
    let slides = c.size_if_any("sliding_window")?.is_some();
    let windows = windows(&c, common.layers, |_| slides)?;
    let feed = gated(&c, "intermediate_size", SILU)?;
    Ok(with_windows(common.model(Order::Before, attention, feed, tied(&c, false)?), &windows))
}

fn mixtral(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let attention = common.heads_as_said(&c, Biases::NONE)?;
    let slides = c.size_if_any("sliding_window")?.is_some();
    let windows = windows(&c, common.layers, |_| slides)?;
    c.function("hidden_act", "silu")?;
    let mixture = experts(&c, "num_local_experts", "intermediate_size")?;
    let block =
        Block { order: Order::Before, attention: Attend::Heads(attention), cross: None, feed: Feed::Experts(mixture) };
    let blocks = vec![block; common.layers as usize];
    Ok(with_windows(common.decoder(blocks, tied(&c, false)?), &windows))
}

/// Experts of whom a token chooses some, without biases.
fn experts(c: &Config<'_>, count: &str, hidden: &str) -> Outcome<Mixture> {
    let (experts, active) = (c.size(count)?, c.size("num_experts_per_tok")?);
    if active > experts {
        return Err(format!("num_experts_per_tok is {active}, {count} {experts}"));
    }
    Ok(Mixture { experts, active, hidden: c.size(hidden)?, router_bias: false, bias: false, shared: None })
}

/// Layers that slide in Qwen's models: from `max_window_layers` on where `use_sliding_window` says so.
fn qwen_windows(c: &Config<'_>, layers: u64) -> Outcome<Vec<Option<u64>>> {
    let (slides, first) = (c.truth("use_sliding_window", false)?, c.count("max_window_layers", layers)?);
    windows(c, layers, |i| slides && i >= first)
}

fn qwen2(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let attention = common.heads_as_said(&c, Biases { inputs: true, keys: true, output: false })?;
    let windows = qwen_windows(&c, common.layers)?;
    let feed = gated(&c, "intermediate_size", SILU)?;
    Ok(with_windows(common.model(Order::Before, attention, feed, tied(&c, false)?), &windows))
}

/// Heads of Qwen 3, each with norms of its queries and keys.
fn qwen3_heads(c: &Config<'_>, common: &Common) -> Outcome<Heads> {
    let bias = c.truth("attention_bias", false)?;
    let heads = common.heads_as_said(c, Biases { inputs: bias, keys: bias, output: bias })?;
    Ok(Heads { norms: HeadNorms::Each, ..heads })
}

fn qwen3(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let attention = qwen3_heads(&c, &common)?;
    let windows = qwen_windows(&c, common.layers)?;
    let feed = gated(&c, "intermediate_size", SILU)?;
    Ok(with_windows(common.model(Order::Before, attention, feed, tied(&c, false)?), &windows))
}

/// Blocks of which every so many have experts, but for those that are named.
fn sparse(c: &Config<'_>, common: &Common, attention: Heads, mixture: Mixture) -> Outcome<Vec<Block>> {
    let step = c.size_if_any("decoder_sparse_step")?.unwrap_or(1);
    let dense = c.numbers("mlp_only_layers")?;
    let block = |i: u64| {
        let feed = match (i + 1).is_multiple_of(step) && !dense.contains(&i) {
            true => Feed::Experts(mixture),
            false => Feed::Dense(gated(c, "intermediate_size", SILU)?),
        };
        Ok(Block { order: Order::Before, attention: Attend::Heads(attention), cross: None, feed })
    };
    (0..common.layers).map(block).collect()
}

fn qwen2_moe(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let inputs = c.truth("qkv_bias", true)?;
    let attention = common.heads_as_said(&c, Biases { inputs, keys: inputs, output: false })?;
    let windows = qwen_windows(&c, common.layers)?;
    let shared = Shared { dense: gated(&c, "shared_expert_intermediate_size", SILU)?, weighted: true };
    let mixture = Mixture { shared: Some(shared), ..experts(&c, "num_experts", "moe_intermediate_size")? };
    let blocks = sparse(&c, &common, attention, mixture)?;
    Ok(with_windows(common.decoder(blocks, tied(&c, false)?), &windows))
}

fn qwen3_moe(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let attention = qwen3_heads(&c, &common)?;
    let windows = qwen_windows(&c, common.layers)?;
    c.function("hidden_act", "silu")?;
    // Releases of transformers since the fifth write the second.
    let count = if c.has("num_local_experts") { "num_local_experts" } else { "num_experts" };
    let mixture = experts(&c, count, "moe_intermediate_size")?;
    let blocks = sparse(&c, &common, attention, mixture)?;
    Ok(with_windows(common.decoder(blocks, tied(&c, false)?), &windows))
}

/// Gemma's name of its activation: the newer key, else the older.
fn gemma_feed(c: &Config<'_>) -> Outcome<Dense> {
    let key = if c.text("hidden_activation")?.is_some() { "hidden_activation" } else { "hidden_act" };
    gated(c, "intermediate_size", (key, "gelu_pytorch_tanh"))
}

/// Gemma's attention, whose heads have a width of their own.
fn gemma_heads(c: &Config<'_>, common: &Common) -> Outcome<Heads> {
    c.size("head_dim")?;
    let bias = c.truth("attention_bias", false)?;
    common.heads_as_said(c, Biases { inputs: bias, keys: bias, output: bias })
}

fn gemma(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let attention = gemma_heads(&c, &common)?;
    // Whatever older files call it, the code takes the approximation by a tangent.
    let feed = Dense { function: Function::GeluTanh, ..gemma_feed(&c)? };
    let model = common.model(Order::Before, attention, feed, tied(&c, true)?);
    Ok(Decoder { scaled: true, ..model })
}

fn gemma2(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let attention = gemma_heads(&c, &common)?;
    let windows = windows(&c, common.layers, |i| i.is_multiple_of(2))?;
    let model = common.model(Order::Around, attention, gemma_feed(&c)?, tied(&c, true)?);
    Ok(with_windows(capped(&c, Decoder { scaled: true, ..model }), &windows))
}

/// With logits held to a range where the file says to which.
fn capped(c: &Config<'_>, mut model: Decoder) -> Decoder {
    model.head.capped = c.has("final_logit_softcapping");
    model
}

/// Files of Gemma 3 leave out what is as in its smallest model.
fn gemma3(c: Config<'_>) -> Outcome<Decoder> {
    let size = |key, otherwise| Ok::<u64, String>(c.size_if_any(key)?.unwrap_or(otherwise));
    let common = Common {
        vocabulary: size("vocab_size", 262_208)?,
        features: c.size("hidden_size")?,
        layers: c.layers("num_hidden_layers")?,
        heads: size("num_attention_heads", 8)?,
    };
    let (kv_heads, dimension) = (size("num_key_value_heads", 4)?, size("head_dim", 256)?);
    grouped(common.heads, kv_heads)?;
    let bias = c.truth("attention_bias", false)?;
    let attention = Heads {
        heads: common.heads,
        kv_heads,
        dimension,
        biases: Biases { inputs: bias, keys: bias, output: bias },
        packed: false,
        norms: HeadNorms::Each,
        rotated: dimension,
        window: None,
        sinks: false,
    };
    // Every sixth layer sees all.
    let pattern = size("sliding_window_pattern", 6)?;
    let windows = windows(&c, common.layers, |i| !(i + 1).is_multiple_of(pattern))?;
    let model = common.model(Order::Around, attention, gemma_feed(&c)?, tied(&c, true)?);
    Ok(with_windows(capped(&c, Decoder { scaled: true, ..model }), &windows))
}

/// Probabilities of dropouts behind the embedding and in blocks.
fn dropouts(c: &Config<'_>, [embedding, block]: [&str; 2], otherwise: f64) -> Outcome<[f64; 2]> {
    Ok([c.share(embedding)?.unwrap_or(otherwise), c.share(block)?.unwrap_or(otherwise)])
}

fn phi(c: Config<'_>) -> Outcome<Decoder> {
    c.without("qk_layernorm")?;
    let common = Common::of(&c)?;
    let heads = common.heads(&c, Biases::ALL)?;
    let rotated = rotated(&c, heads.dimension, "partial_rotary_factor", 0.5)?;
    let (hidden, function) = (c.size("intermediate_size")?, c.function("hidden_act", "gelu_new")?);
    let feed = Dense { hidden, function, bias: true, gate: Gate::None };
    let model = common.model(Order::Parallel { one_norm: true }, Heads { rotated, ..heads }, feed, tied(&c, false)?);
    let head = Head { bias: true, ..model.head };
    let dropouts = dropouts(&c, ["embd_pdrop", "resid_pdrop"], 0.0)?;
    Ok(Decoder { norm: Norm::Layer, head, dropouts, ..model })
}

fn phi3(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let attention = Heads { packed: true, ..common.heads(&c, Biases::NONE)? };
    let slides = c.size_if_any("sliding_window")?.is_some();
    let windows = windows(&c, common.layers, |_| slides)?;
    let feed = Dense { gate: Gate::Packed, ..gated(&c, "intermediate_size", SILU)? };
    let model = common.model(Order::Before, attention, feed, tied(&c, false)?);
    let dropouts = dropouts(&c, ["embd_pdrop", "resid_pdrop"], 0.0)?;
    // Of the two the code has the second alone.
    Ok(with_windows(Decoder { dropouts: [0.0, dropouts[1]], ..model }, &windows))
}

fn gpt2(c: Config<'_>) -> Outcome<Decoder> {
    c.without("add_cross_attention")?;
    let (features, heads) = (c.size("n_embd")?, c.size("n_head")?);
    let common = Common { vocabulary: c.size("vocab_size")?, features, layers: c.layers("n_layer")?, heads };
    let attention = Heads {
        heads,
        kv_heads: heads,
        dimension: shared_out(features, heads, "n_embd", "n_head")?,
        biases: Biases::ALL,
        packed: true,
        norms: HeadNorms::None,
        rotated: 0,
        window: None,
        sinks: false,
    };
    let hidden = c.size_if_any("n_inner")?.unwrap_or(features * 4);
    let function = c.function("activation_function", "gelu_new")?;
    let feed = Dense { hidden, function, bias: true, gate: Gate::None };
    let model = common.model(Order::Before, attention, feed, tied(&c, true)?);
    let dropouts = dropouts(&c, ["embd_pdrop", "resid_pdrop"], 0.1)?;
    Ok(Decoder { norm: Norm::Layer, positions: Some(c.size("n_positions")?), dropouts, ..model })
}

fn gpt_neox(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let bias = c.truth("attention_bias", true)?;
    let heads = Heads { packed: true, ..common.heads(&c, Biases { inputs: bias, keys: bias, output: bias })? };
    let rotated = rotated(&c, heads.dimension, "rotary_pct", 0.25)?;
    let (hidden, function) = (c.size("intermediate_size")?, c.function("hidden_act", "gelu")?);
    let feed = Dense { hidden, function, bias: true, gate: Gate::None };
    let parallel = c.truth("use_parallel_residual", true)?;
    let order = if parallel { Order::Parallel { one_norm: false } } else { Order::Before };
    let model = common.model(order, Heads { rotated, ..heads }, feed, tied(&c, false)?);
    let dropouts = [c.share("hidden_dropout")?.unwrap_or(0.0); 2];
    Ok(Decoder { norm: Norm::Layer, dropouts, ..model })
}

fn gpt_oss(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    c.size("head_dim")?;
    let bias = c.truth("attention_bias", true)?;
    let heads = common.heads_as_said(&c, Biases { inputs: bias, keys: bias, output: bias })?;
    let attention = Heads { sinks: true, ..heads };
    let windows = windows(&c, common.layers, |i| i.is_multiple_of(2))?;
    let mixture = Mixture { router_bias: true, bias: true, ..experts(&c, "num_local_experts", "intermediate_size")? };
    let block =
        Block { order: Order::Before, attention: Attend::Heads(attention), cross: None, feed: Feed::Experts(mixture) };
    let blocks = vec![block; common.layers as usize];
    Ok(with_windows(common.decoder(blocks, tied(&c, false)?), &windows))
}

fn olmo2(c: Config<'_>) -> Outcome<Decoder> {
    let common = Common::of(&c)?;
    let bias = c.truth("attention_bias", false)?;
    let heads = common.heads(&c, Biases { inputs: bias, keys: bias, output: bias })?;
    let attention = Heads { norms: HeadNorms::Whole, ..heads };
    let feed = gated(&c, "intermediate_size", SILU)?;
    Ok(common.model(Order::After, attention, feed, tied(&c, false)?))
}

fn olmoe(c: Config<'_>) -> Outcome<Decoder> {
    c.without("clip_qkv")?;
    let common = Common::of(&c)?;
    let bias = c.truth("attention_bias", false)?;
    let heads = common.heads(&c, Biases { inputs: bias, keys: bias, output: bias })?;
    let attention = Heads { norms: HeadNorms::Whole, ..heads };
    c.function("hidden_act", "silu")?;
    let mixture = experts(&c, "num_experts", "intermediate_size")?;
    let block =
        Block { order: Order::Before, attention: Attend::Heads(attention), cross: None, feed: Feed::Experts(mixture) };
    let blocks = vec![block; common.layers as usize];
    Ok(common.decoder(blocks, tied(&c, false)?))
}

fn deepseek_v2(c: Config<'_>) -> Outcome<Decoder> {
    deepseek(&c, false)
}

/// The corrections of its router's scores, by which experts are kept as busy as each other, are a bias.
fn deepseek_v3(c: Config<'_>) -> Outcome<Decoder> {
    deepseek(&c, true)
}

/// Latent attention, and experts behind the first layers, which are dense.
fn deepseek(c: &Config<'_>, router_bias: bool) -> Outcome<Decoder> {
    let common = Common::of(c)?;
    let attention = Attend::Latent(Latent {
        heads: common.heads,
        query_rank: c.size_if_any("q_lora_rank")?,
        rank: c.size("kv_lora_rank")?,
        rope: c.size("qk_rope_head_dim")?,
        own: c.size("qk_nope_head_dim")?,
        value: c.size("v_head_dim")?,
        bias: c.truth("attention_bias", false)?,
    });
    let dense = gated(c, "intermediate_size", SILU)?;
    let (first, step) = (c.count("first_k_dense_replace", 0)?, c.size_if_any("moe_layer_freq")?.unwrap_or(1));
    let mixture = match c.size_if_any("n_routed_experts")? {
        None => None,
        Some(_) => {
            let mixture = experts(c, "n_routed_experts", "moe_intermediate_size")?;
            let hidden = mixture.hidden.saturating_mul(c.count("n_shared_experts", 0)?);
            let shared = Shared { dense: Dense { hidden, ..dense }, weighted: false };
            Some(Mixture { router_bias, shared: (hidden > 0).then_some(shared), ..mixture })
        }
    };
    let block = |i: u64| {
        let mixture = mixture.filter(|_| i >= first && i.is_multiple_of(step));
        Block { order: Order::Before, attention, cross: None, feed: mixture.map_or(Feed::Dense(dense), Feed::Experts) }
    };
    let blocks = (0..common.layers).map(block).collect();
    Ok(common.decoder(blocks, tied(c, false)?))
}

/// The half that writes: what the encoder heard is there before its first token.
fn whisper(c: Config<'_>) -> Outcome<Decoder> {
    let (features, heads) = (c.size("d_model")?, c.size("decoder_attention_heads")?);
    let common = Common { vocabulary: c.size("vocab_size")?, features, layers: c.layers("decoder_layers")?, heads };
    let attention = Heads {
        heads,
        kv_heads: heads,
        dimension: shared_out(features, heads, "d_model", "decoder_attention_heads")?,
        biases: Biases { keys: false, ..Biases::ALL },
        packed: false,
        norms: HeadNorms::None,
        rotated: 0,
        window: None,
        sinks: false,
    };
    let (hidden, function) = (c.size("decoder_ffn_dim")?, c.function("activation_function", "gelu")?);
    let feed = Dense { hidden, function, bias: true, gate: Gate::None };
    let cross = Some(Cross { heads, positions: c.size_if_any("max_source_positions")?.unwrap_or(1500) });
    let mut model = common.model(Order::Before, attention, feed, tied(&c, true)?);
    model.blocks.iter_mut().for_each(|block| block.cross = cross);
    let positions = Some(c.size_if_any("max_target_positions")?.unwrap_or(448));
    let (scaled, dropouts) = (c.truth("scale_embedding", false)?, [c.share("dropout")?.unwrap_or(0.0); 2]);
    Ok(Decoder { norm: Norm::Layer, positions, scaled, dropouts, ..model })
}
