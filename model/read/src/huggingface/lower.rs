//! A language model's layers. Names are those of the zoo's.

use super::config::Outcome;
use super::decoder::{
    Attend, Block, Cross, Decoder, Dense, Feed, Gate, HeadNorms, Heads, Latent, Mixture, Norm, Order,
};
use joulecast_model::base::shape::Shape;
use joulecast_model::net::layer::{
    Activation, Add, Attention, Context, Copied, Dropout, Elementwise, Embedding, Experts, Function, LatentAttention,
    Layer, LayerNorm, LayerOp, Linear, Multiply, PositionEmbedding, Reshape, RmsNorm, Rotary, Slice,
};
use joulecast_model::net::network::Folded;
use joulecast_model::net::network::{Node, Source};
use joulecast_model::read::MAX_LAYERS;

/// What logits that are held to a range take: a division, a hyperbolic tangent, a product.
const CAP: u64 = 3;

/// The layers of a model over the input `tokens`.
///
/// # Errors
/// When a layer's sizes do not fit, with its name.
pub(super) fn lower(model: &Decoder, tokens: Shape) -> Outcome<Vec<Node>> {
    let mut writer = Writer { model, tokens, prefix: String::new(), nodes: Vec::new(), shapes: Vec::new() };
    let table = Embedding { vocabulary: model.vocabulary, features: model.features };
    let mut x = writer.push("embed_tokens", Layer::Embedding(table), &[Source::Input(0)])?;
    if model.scaled {
        x = writer.pointwise("embed_scale", 1, x)?;
    }
    if model.positions.is_some() {
        let table = PositionEmbedding { positions: model.positions };
        x = writer.push("embed_positions", Layer::PositionEmbedding(table), &[x])?;
    }
    x = writer.dropout("embed_dropout", model.dropouts[0], x)?;
    for (i, block) in model.blocks.iter().enumerate() {
        writer.prefix = format!("layers.{i}.");
        x = writer.block(block, x)?;
    }
    writer.prefix.clear();
    x = writer.norm("norm", x)?;
    let head = Linear { features: model.vocabulary, bias: model.head.bias };
    x = writer.push("lm_head", Layer::Linear(head), &[x])?;
    if model.head.tied
        && let Some(node) = writer.nodes.last_mut()
    {
        node.tied = Some(0);
    }
    if model.head.capped {
        writer.pointwise("logits_cap", CAP, x)?;
    }
    Ok(writer.nodes)
}

struct Writer<'m> {
    model: &'m Decoder,
    tokens: Shape,
    /// Before every name: the block that is being written.
    prefix: String,
    nodes: Vec<Node>,
    shapes: Vec<Shape>,
}

impl Writer<'_> {
    fn push(&mut self, name: &str, layer: Layer, from: &[Source]) -> Outcome<Source> {
        let name = format!("{}{name}", self.prefix);
        let shape = |source: &Source| match *source {
            Source::Input(_) => self.tokens,
            Source::Node(i) => self.shapes[i],
        };
        let read: Vec<Shape> = from.iter().map(shape).collect();
        let output = layer.output(&read).map_err(|why| format!("layer {name}: {why}"))?;
        if self.nodes.len() >= MAX_LAYERS {
            return Err(format!("num_hidden_layers: more than {MAX_LAYERS} layers in all"));
        }
        self.shapes.push(output);
        self.nodes.push(Node { name: name.into(), layer, from: from.into(), tied: None, folded: Folded::No });
        Ok(Source::Node(self.nodes.len() - 1))
    }

    fn linear(&mut self, name: &str, features: u64, bias: bool, x: Source) -> Outcome<Source> {
        self.push(name, Layer::Linear(Linear { features, bias }), &[x])
    }

    fn norm(&mut self, name: &str, x: Source) -> Outcome<Source> {
        let layer = match self.model.norm {
            Norm::Layer => Layer::LayerNorm(LayerNorm { affine: true }),
            Norm::Rms => Layer::RmsNorm(RmsNorm {}),
        };
        self.push(name, layer, &[x])
    }

    fn rms_norm(&mut self, name: &str, x: Source) -> Outcome<Source> {
        self.push(name, Layer::RmsNorm(RmsNorm {}), &[x])
    }

    fn add(&mut self, name: &str, a: Source, b: Source) -> Outcome<Source> {
        self.push(name, Layer::Add(Add {}), &[a, b])
    }

    fn activation(&mut self, name: &str, function: Function, x: Source) -> Outcome<Source> {
        self.push(name, Layer::Activation(Activation { function }), &[x])
    }

    fn multiply(&mut self, name: &str, a: Source, b: Source) -> Outcome<Source> {
        self.push(name, Layer::Multiply(Multiply {}), &[a, b])
    }

    fn pointwise(&mut self, name: &str, ops: u64, x: Source) -> Outcome<Source> {
        self.push(name, Layer::Elementwise(Elementwise::of(ops, None)), &[x])
    }

    fn dropout(&mut self, name: &str, probability: f64, x: Source) -> Outcome<Source> {
        if probability == 0.0 {
            return Ok(x);
        }
        self.push(name, Layer::Dropout(Dropout { probability }), &[x])
    }

    /// Features `start` to `start + size` of every token: a view.
    fn part(&mut self, name: &str, start: u64, size: u64, x: Source) -> Outcome<Source> {
        self.push(name, Layer::Slice(Slice { axis: 1, start, size, step: 1, copy: false }), &[x])
    }

    fn block(&mut self, block: &Block, x: Source) -> Outcome<Source> {
        let probability = self.model.dropouts[1];
        if let Order::Parallel { one_norm } = block.order {
            let normed = self.norm("input_norm", x)?;
            let attended = self.attention(&block.attention, normed)?;
            let attended = self.dropout("attention_dropout", probability, attended)?;
            let read = if one_norm { normed } else { self.norm("post_norm", x)? };
            let fed = self.feed(&block.feed, read)?;
            let fed = self.dropout("feed_dropout", probability, fed)?;
            let both = self.add("add_1", attended, fed)?;
            return self.add("add_2", both, x);
        }
        let before = matches!(block.order, Order::Before | Order::Around);
        let behind = matches!(block.order, Order::After | Order::Around);
        let read = if before { self.norm("input_norm", x)? } else { x };
        let mut attended = self.attention(&block.attention, read)?;
        if behind {
            attended = self.norm("attention_norm", attended)?;
        }
        attended = self.dropout("attention_dropout", probability, attended)?;
        let mut sum = self.add("add_1", attended, x)?;
        if let Some(cross) = &block.cross {
            sum = self.cross(cross, sum)?;
        }
        let read = if before { self.norm("post_norm", sum)? } else { sum };
        let mut fed = self.feed(&block.feed, read)?;
        if behind {
            fed = self.norm("feed_norm", fed)?;
        }
        fed = self.dropout("feed_dropout", probability, fed)?;
        self.add("add_2", fed, sum)
    }

    /// Attention to an encoder's positions, behind a norm and added to what it reads.
    fn cross(&mut self, cross: &Cross, x: Source) -> Outcome<Source> {
        let features = self.model.features;
        let read = self.norm("cross_norm", x)?;
        let queries = self.linear("cross_q_proj", features, true, read)?;
        let context = Some(Context { positions: cross.positions, features, bias: true });
        let layer = Attention { context, ..Attention::of(cross.heads) };
        let attended = self.push("cross_attention", Layer::Attention(layer), &[queries])?;
        let attended = self.linear("cross_o_proj", features, true, attended)?;
        let attended = self.dropout("cross_dropout", self.model.dropouts[1], attended)?;
        self.add("cross_add", attended, x)
    }

    fn attention(&mut self, attention: &Attend, x: Source) -> Outcome<Source> {
        match attention {
            Attend::Heads(heads) => self.heads(heads, x),
            Attend::Latent(latent) => self.latent(latent, x),
        }
    }

    fn heads(&mut self, h: &Heads, x: Source) -> Outcome<Source> {
        let [wide, narrow] = [h.heads, h.kv_heads].map(|heads| heads.saturating_mul(h.dimension));
        let mut from = if h.packed {
            let whole = wide.saturating_add(narrow.saturating_mul(2));
            let packed = self.linear("qkv_proj", whole, h.biases.inputs, x)?;
            if h.rotated == 0 && matches!(h.norms, HeadNorms::None) {
                vec![packed]
            } else {
                vec![
                    self.part("q", 0, wide, packed)?,
                    self.part("k", wide, narrow, packed)?,
                    self.part("v", wide + narrow, narrow, packed)?,
                ]
            }
        } else {
            vec![
                self.linear("q_proj", wide, h.biases.inputs, x)?,
                self.linear("k_proj", narrow, h.biases.keys, x)?,
                self.linear("v_proj", narrow, h.biases.inputs, x)?,
            ]
        };
        if let [q, k, _] = &mut from[..] {
            *q = self.head_norm("q", h.norms, h.dimension, wide, *q)?;
            *k = self.head_norm("k", h.norms, h.dimension, narrow, *k)?;
            if h.rotated > 0 {
                let rotated = Some(h.rotated).filter(|n| *n != h.dimension);
                *q = self.push("q_rotary", Layer::Rotary(Rotary { heads: h.heads, rotated }), &[*q])?;
                *k = self.push("k_rotary", Layer::Rotary(Rotary { heads: h.kv_heads, rotated }), &[*k])?;
            }
        }
        let layer = Attention {
            kv_heads: Some(h.kv_heads).filter(|n| *n != h.heads),
            causal: true,
            window: h.window,
            sinks: h.sinks,
            ..Attention::of(h.heads)
        };
        let attended = self.push("attention", Layer::Attention(layer), &from)?;
        self.linear("o_proj", self.model.features, h.biases.output, attended)
    }

    /// The norm of queries or keys `[tokens, wide]`.
    fn head_norm(&mut self, of: &str, norms: HeadNorms, head: u64, wide: u64, x: Source) -> Outcome<Source> {
        let name = |what: &str| format!("{of}_{what}");
        let rows = |features: u64| Layer::Reshape(Reshape { shape: vec![-1, features as i64], copy: Copied::Never });
        match norms {
            HeadNorms::None => Ok(x),
            HeadNorms::Whole => self.rms_norm(&name("norm"), x),
            HeadNorms::Each => {
                let heads = self.push(&name("heads"), rows(head), &[x])?;
                let normed = self.rms_norm(&name("norm"), heads)?;
                self.push(&name("rows"), rows(wide), &[normed])
            }
        }
    }

    fn latent(&mut self, l: &Latent, x: Source) -> Outcome<Source> {
        let wide = l.heads.saturating_mul(l.own.saturating_add(l.rope));
        let queries = match l.query_rank {
            Some(rank) => {
                let low = self.linear("q_a_proj", rank, l.bias, x)?;
                let low = self.rms_norm("q_a_norm", low)?;
                self.linear("q_b_proj", wide, false, low)?
            }
            None => self.linear("q_proj", wide, false, x)?,
        };
        let both = self.linear("kv_a_proj", l.rank.saturating_add(l.rope), l.bias, x)?;
        let latents = self.part("kv_a", 0, l.rank, both)?;
        let latents = self.rms_norm("kv_a_norm", latents)?;
        let shared = self.part("k_shared", l.rank, l.rope, both)?;
        let rotary = |heads, rotated| Layer::Rotary(Rotary { heads, rotated });
        let queries = self.push("q_rotary", rotary(l.heads, Some(l.rope)), &[queries])?;
        let shared = self.push("k_rotary", rotary(1, None), &[shared])?;
        let layer = LatentAttention { heads: l.heads, value: l.value, causal: true, cached: None };
        let attended = self.push("attention", Layer::LatentAttention(layer), &[queries, latents, shared])?;
        self.linear("o_proj", self.model.features, l.bias, attended)
    }

    fn feed(&mut self, feed: &Feed, x: Source) -> Outcome<Source> {
        match feed {
            Feed::Dense(dense) => self.dense("", dense, x),
            Feed::Experts(mixture) => self.mixture(mixture, x),
        }
    }

    fn dense(&mut self, of: &str, d: &Dense, x: Source) -> Outcome<Source> {
        let name = |what: &str| format!("{of}{what}");
        let inner = match d.gate {
            Gate::None => {
                let up = self.linear(&name("up_proj"), d.hidden, d.bias, x)?;
                self.activation(&name(d.function.name()), d.function, up)?
            }
            Gate::Apart => {
                let gate = self.linear(&name("gate_proj"), d.hidden, d.bias, x)?;
                let gate = self.activation(&name(d.function.name()), d.function, gate)?;
                let up = self.linear(&name("up_proj"), d.hidden, d.bias, x)?;
                self.multiply(&name("gate"), gate, up)?
            }
            Gate::Packed => {
                let both = self.linear(&name("gate_up_proj"), d.hidden.saturating_mul(2), d.bias, x)?;
                let gate = self.part(&name("gate_half"), 0, d.hidden, both)?;
                let gate = self.activation(&name(d.function.name()), d.function, gate)?;
                let up = self.part(&name("up_half"), d.hidden, d.hidden, both)?;
                self.multiply(&name("gate"), gate, up)?
            }
        };
        self.linear(&name("down_proj"), self.model.features, d.bias, inner)
    }

    fn mixture(&mut self, m: &Mixture, x: Source) -> Outcome<Source> {
        let logits = self.linear("router", m.experts, m.router_bias, x)?;
        let layer = Experts {
            experts: m.experts,
            active: m.active,
            hidden: m.hidden,
            gated: true,
            bias: m.bias,
            imbalance: 1.0,
            part: None,
        };
        let routed = self.push("experts", Layer::Experts(layer), &[x, logits])?;
        let Some(shared) = m.shared else { return Ok(routed) };
        let mut beside = self.dense("shared.", &shared.dense, x)?;
        if shared.weighted {
            let weight = self.linear("shared.router", 1, false, x)?;
            let weight = self.activation("shared.sigmoid", Function::Sigmoid, weight)?;
            beside = self.multiply("shared.weighted", beside, weight)?;
        }
        self.add("shared.add", routed, beside)
    }
}
