//! Blocks divided among GPUs that work on the same tokens.
//!
//! From the last layer to the first every layer is asked which of its results' features a GPU needs only a part of: attention
//! needs the queries, keys and values of its own heads, a product that reads what other products made (`row`) the features
//! that its own part of the weights meets. Such wishes lead back through what works feature by feature to the products that
//! make these features (`column`). From the first to the last, sums over GPUs are then put where a `row` product's results are
//! first read by what needs them whole.

use super::{Collective, Exchange, Layout, Share, ShareError};
use crate::base::precision::Precision;
use crate::base::shape::Shape;
use crate::net::layer::{Attention, Experts, LatentAttention, Layer, Part, Reshape, Rotary, Slice};
use crate::net::network::{Network, ShapedLayer, ShapedNetwork, Source};

/// Rows of a vocabulary that does not divide are filled up to a multiple of this, as vLLM does with every vocabulary
/// (`DEFAULT_VOCAB_PADDING_SIZE`).
const VOCABULARY: u64 = 64;

/// Features of a value, of which each GPU has a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    whole: u64,
    own: u64,
}

/// What is known of a network's layers before they are divided.
struct Division<'n> {
    network: &'n Network,
    shaped: ShapedNetwork,
    layout: &'n Layout,
    /// Of every layer the pieces of its result's features that GPUs need parts of; none of what all need.
    wanted: Vec<Vec<Piece>>,
    /// Products over features that other products of the block made.
    rows: Vec<bool>,
    /// The product that makes logits.
    head: usize,
}

/// What a GPU holds of a network in a group that divides its blocks.
pub(super) fn divide(network: &Network, layout: &Layout) -> Result<Share, ShareError> {
    let mut division = Division::of(network, layout)?;
    if layout.tensor > 1 {
        division.ask()?;
    }
    division.shares()
}

impl<'n> Division<'n> {
    fn of(network: &'n Network, layout: &'n Layout) -> Result<Self, ShareError> {
        let shaped = ShapedNetwork::new(network, 1, Precision::Bf16, &[])?;
        let nodes = &network.nodes;
        let has = |of: fn(&Layer) -> bool| nodes.iter().any(|node| of(&node.layer));
        let unknown = |why: &str| Err(ShareError::Unknown { network: network.name.clone(), why: why.into() });
        if !has(|layer| matches!(layer, Layer::Embedding(_))) || !has(|layer| layer.causal().is_some()) {
            return unknown("it is no language model");
        }
        if nodes.iter().any(|node| node.layer.causal() == Some(false)) {
            return unknown("its attention is not causal");
        }
        let Some(head) = network.head().filter(|_| network.inputs.len() == 1 && network.outputs.is_empty()) else {
            return unknown("its last layers are no product that makes logits");
        };
        if layout.expert > 1 && !has(|layer| matches!(layer, Layer::Experts(_))) {
            return Err(ShareError::NoExperts { network: network.name.clone() });
        }
        let mut inner: Vec<bool> = Vec::with_capacity(nodes.len());
        let mut rows = Vec::with_capacity(nodes.len());
        for node in nodes {
            let all = node.from.iter().all(|source| matches!(source, Source::Node(i) if inner[*i]));
            rows.push(all && matches!(node.layer, Layer::Linear(_)));
            inner.push(match &node.layer {
                Layer::Linear(_) | Layer::Attention(_) | Layer::LatentAttention(_) => true,
                Layer::Activation(_) | Layer::Multiply(_) | Layer::Dropout(_) => all,
                Layer::Slice(slice) => all && slice.axis == 1,
                _ => false,
            });
        }
        let wanted = vec![Vec::new(); nodes.len()];
        Ok(Self { network, shaped, layout, wanted, rows, head })
    }

    fn layer(&self, i: usize) -> &ShapedLayer {
        &self.shaped.layers()[i]
    }

    fn unknown<T>(&self, i: usize, why: &str) -> Result<T, ShareError> {
        let why = format!("layer {}: {why}", self.network.nodes[i].name);
        Err(ShareError::Unknown { network: self.network.name.clone(), why })
    }

    /// A GPU's part of what layer `i` has so many of.
    fn part(&self, i: usize, count: u64, what: &'static str) -> Result<u64, ShareError> {
        self.part_of(i, count, what, (self.layout.tensor, "--tensor-parallel"))
    }

    fn part_of(&self, i: usize, count: u64, what: &'static str, by: (u64, &'static str)) -> Result<u64, ShareError> {
        if count.is_multiple_of(by.0) {
            return Ok(count / by.0);
        }
        let (network, layer) = (self.network.name.clone(), self.network.nodes[i].name.clone());
        Err(ShareError::Divide { network, layer: layer.to_string(), what, count, gpus: by.0, option: by.1 })
    }

    /// Notes that of what layer `i` reads as its input `k` GPUs need parts.
    fn want(&mut self, i: usize, k: usize, pieces: &[Piece]) -> Result<(), ShareError> {
        let Some(Source::Node(from)) = self.network.nodes[i].from.get(k).copied() else {
            return self.unknown(i, "it reads the network's input in parts");
        };
        for piece in pieces {
            let known = &mut self.wanted[from];
            let beside =
                |other: &Piece| other.start + other.whole <= piece.start || piece.start + piece.whole <= other.start;
            if known.contains(piece) {
                continue;
            }
            if !known.iter().all(beside) {
                return self.unknown(from, "its result is divided in two ways");
            }
            known.push(*piece);
            known.sort_by_key(|piece| piece.start);
        }
        Ok(())
    }

    /// Heads of queries, keys and values of attention that a GPU has: heads of keys and values that are fewer than GPUs lie on
    /// several of them.
    fn heads(&self, i: usize, attention: &Attention) -> Result<(u64, u64), ShareError> {
        let heads = self.part(i, attention.heads, "heads of queries")?;
        let (shared, gpus) = (attention.kv_heads.unwrap_or(attention.heads), self.layout.tensor);
        match gpus.is_multiple_of(shared) {
            true => Ok((heads, 1)),
            false => Ok((heads, self.part(i, shared, "heads of keys and values")?)),
        }
    }

    /// Asks every layer, from the last to the first.
    fn ask(&mut self) -> Result<(), ShareError> {
        for (i, node) in self.network.nodes.iter().enumerate() {
            match &node.layer {
                Layer::Attention(attention) => self.heads(i, attention).map(drop)?,
                Layer::LatentAttention(attention) => self.part(i, attention.heads, "heads").map(drop)?,
                _ => {}
            }
        }
        for i in (0..self.network.nodes.len()).rev() {
            self.ask_one(i)?;
        }
        Ok(())
    }

    fn ask_one(&mut self, i: usize) -> Result<(), ShareError> {
        let (network, own) = (self.network, self.wanted[i].clone());
        let node = &network.nodes[i];
        match &node.layer {
            Layer::Attention(attention) => return self.ask_attention(i, attention),
            Layer::LatentAttention(attention) => {
                let heads = self.part(i, attention.heads, "heads")?;
                let wide = self.layer(i).case.inputs.first().map_or(0, Shape::last);
                return self.want(i, 0, &[Piece { start: 0, whole: wide, own: wide / attention.heads * heads }]);
            }
            Layer::Linear(_) if self.rows[i] => {
                if !own.is_empty() {
                    return self.unknown(i, "a third product in a row is not known");
                }
                let whole = self.layer(i).case.inputs.first().map_or(0, Shape::last);
                let part = self.part(i, whole, "inner features")?;
                return self.want(i, 0, &[Piece { start: 0, whole, own: part }]);
            }
            _ if own.is_empty() => return Ok(()),
            Layer::Linear(linear) => {
                let end = own.iter().try_fold(0, |end, piece| (piece.start == end).then_some(end + piece.whole));
                return match end == Some(linear.features) {
                    true => Ok(()),
                    false => self.unknown(i, "only some of its features are divided"),
                };
            }
            Layer::Slice(slice) if slice.axis == 1 && slice.step == 1 && own.len() == 1 => {
                return self.want(i, 0, &[Piece { start: slice.start, ..own[0] }]);
            }
            Layer::Activation(_) | Layer::Dropout(_) | Layer::Rotary(_) => {}
            Layer::RmsNorm(_) if own.len() == 1 => {}
            Layer::Multiply(_) if self.layer(i).case.inputs.windows(2).all(|pair| pair[0] == pair[1]) => {}
            Layer::Reshape(reshape) if reshape.shape.len() == 2 && reshape.shape[0] == -1 && own.len() == 1 => {}
            _ => return self.unknown(i, "whether it works feature by feature is not known"),
        }
        (0..node.from.len()).try_for_each(|k| self.want(i, k, &own))
    }

    fn ask_attention(&mut self, i: usize, attention: &Attention) -> Result<(), ShareError> {
        let (heads, kv_heads) = self.heads(i, attention)?;
        let Ok(sizes) = attention.sizes(&self.layer(i).case.inputs) else {
            return self.unknown(i, "its sizes are not known");
        };
        let piece = |start, all, own| Piece { start, whole: all * sizes.dimension, own: own * sizes.dimension };
        let queries = piece(0, sizes.heads, heads);
        let narrow = |start| piece(start, sizes.kv_heads, kv_heads);
        match self.network.nodes[i].from.len() {
            1 if attention.context.is_some() => self.want(i, 0, &[queries]),
            1 => {
                let keys = narrow(queries.whole);
                self.want(i, 0, &[queries, keys, narrow(keys.start + keys.whole)])
            }
            _ => {
                self.want(i, 0, &[queries])?;
                self.want(i, 1, &[narrow(0)])?;
                self.want(i, 2, &[narrow(0)])
            }
        }
    }

    /// A layer as a GPU runs it.
    fn layer_of(&self, i: usize) -> Result<Layer, ShareError> {
        let (node, gpus) = (&self.network.nodes[i], self.layout.tensor);
        let (own, mut layer) = (&self.wanted[i], node.layer.clone());
        let narrower = |size: u64| own.first().map_or(size, |piece| size * piece.own / piece.whole.max(1));
        match &mut layer {
            Layer::Embedding(table) => table.vocabulary = rows(table.vocabulary, gpus),
            Layer::Linear(linear) if i == self.head => linear.features = rows(linear.features, gpus),
            Layer::Linear(linear) if !own.is_empty() => linear.features = own.iter().map(|piece| piece.own).sum(),
            Layer::Rotary(Rotary { heads, .. }) => *heads = narrower(*heads),
            Layer::Reshape(Reshape { shape, .. }) => {
                // Rows of heads stay as wide as a head; rows of tokens do not.
                if let (Some(piece), Some(wide)) = (own.first(), shape.last_mut())
                    && *wide == piece.whole as i64
                {
                    *wide = piece.own as i64;
                }
            }
            Layer::Slice(Slice { axis: 1, start, size, .. }) if !own.is_empty() => {
                let Some(Source::Node(from)) = node.from.first() else { return Ok(layer) };
                let before = self.wanted[*from].iter().filter(|piece| piece.start < *start);
                (*start, *size) = (before.map(|piece| piece.own).sum(), narrower(*size));
            }
            Layer::Attention(attention) if gpus > 1 => {
                let (heads, kv_heads) = self.heads(i, attention)?;
                if let Some(bias) = &mut attention.bias {
                    bias.heads = self.part(i, bias.heads, "heads")?;
                    bias.parameters /= gpus;
                }
                (attention.heads, attention.kv_heads) = (heads, Some(kv_heads).filter(|n| *n != heads));
            }
            Layer::LatentAttention(LatentAttention { heads, .. }) => *heads = self.part(i, *heads, "heads")?,
            Layer::Experts(experts) => self.experts(i, experts)?,
            _ => {}
        }
        Ok(layer)
    }

    fn experts(&self, i: usize, experts: &mut Experts) -> Result<(), ShareError> {
        let within = (self.layout.within_experts(), "--tensor-parallel");
        experts.hidden = self.part_of(i, experts.hidden, "inner features of an expert", within)?;
        let of = self.layout.expert;
        self.part_of(i, experts.experts, "experts", (of, "--expert-parallel"))?;
        if of > 1 {
            experts.part = Some(Part { of, groups: self.layout.exchanging() });
        }
        Ok(())
    }

    /// The layers of a GPU, and what it exchanges with the others of its group.
    fn shares(&self) -> Result<Share, ShareError> {
        let mut network = self.network.clone();
        for (i, node) in network.nodes.iter_mut().enumerate() {
            node.layer = self.layer_of(i)?;
        }
        Ok(Share { exchanges: self.exchanges(), network })
    }

    /// What GPUs exchange, in the order of layers.
    fn exchanges(&self) -> Vec<Exchange> {
        let gpus = self.layout.tensor;
        let mut sums = Sums { shaped: &self.shaped, gpus, partial: Vec::new(), list: Vec::new() };
        for (i, node) in self.network.nodes.iter().enumerate() {
            let values = self.layer(i).output.elements();
            let from: Vec<usize> =
                node.from.iter().filter_map(|s| if let Source::Node(k) = s { Some(*k) } else { None }).collect();
            let some = from.iter().filter(|k| sums.partial[**k]).count();
            let stays = match &node.layer {
                // The sum of parts is a part of the sum.
                Layer::Add(_) => some == from.len(),
                Layer::Multiply(_) => some == 1,
                Layer::Dropout(_) => some == 1,
                _ => false,
            };
            if some > 0 && !stays {
                from.iter().for_each(|k| sums.reduce(*k));
            }
            let partial = match &node.layer {
                Layer::Embedding(_) => true,
                Layer::Linear(_) => self.rows[i],
                Layer::Experts(_) => self.layout.exchanging() == 1,
                _ => some > 0 && stays,
            };
            sums.partial.push(partial && gpus > 1);
            match &node.layer {
                Layer::Embedding(_) => sums.reduce(i),
                // Attention's results are summed at once, as frameworks do; experts' together with those of all tokens.
                Layer::Linear(_) if self.rows[i] && self.follows_attention(i) => sums.reduce(i),
                Layer::Linear(linear) if i == self.head => {
                    let all = rows(linear.features, gpus) * gpus;
                    sums.push(i, Collective::AllGather, gpus, values / linear.features.max(1) * all);
                }
                Layer::RmsNorm(_) if self.wanted[i].first().is_some_and(|piece| across(piece, self.layer(i))) => {
                    // Each GPU has a part of the squares: a sum of 32 bits a token.
                    sums.push(i, Collective::AllReduce, gpus, 2 * values / self.layer(i).output.last());
                }
                Layer::Experts(experts) if self.layout.exchanging() > 1 => {
                    let parts = self.layout.expert;
                    // A token goes once to every GPU that has one of its experts, as far as experts are chosen evenly; GPUs of
                    // a group that divides blocks send a share of its tokens each.
                    let away = parts as f64 * (1.0 - (1.0 - 1.0 / parts as f64).powf(experts.active as f64));
                    let sent = (values as f64 * away / gpus as f64).ceil() as u64;
                    sums.push(i, Collective::AllToAll, parts, sent);
                    sums.push(i, Collective::AllToAll, parts, sent);
                    sums.push(i, Collective::AllGather, gpus, values);
                }
                _ => {}
            }
        }
        if let Some(last) = self.network.nodes.len().checked_sub(1) {
            sums.reduce(last);
        }
        sums.list.sort_by_key(|exchange| exchange.layer);
        sums.list
    }

    /// Whether a `row` product reads attention, perhaps through what works feature by feature.
    fn follows_attention(&self, i: usize) -> bool {
        let Some(Source::Node(from)) = self.network.nodes[i].from.first() else { return false };
        self.network.nodes[*from].layer.causal().is_some()
    }
}

/// Whether a norm is over features that GPUs have parts of, not over every head by itself.
fn across(piece: &Piece, norm: &ShapedLayer) -> bool {
    piece.own < piece.whole && norm.output.last() == piece.whole
}

/// Where results are parts of sums over GPUs.
struct Sums<'n> {
    shaped: &'n ShapedNetwork,
    gpus: u64,
    partial: Vec<bool>,
    list: Vec<Exchange>,
}

impl Sums<'_> {
    fn push(&mut self, layer: usize, kind: Collective, gpus: u64, values: u64) {
        if gpus > 1 {
            self.list.push(Exchange { layer, kind, gpus, values });
        }
    }

    /// The sum of a layer's results, once.
    fn reduce(&mut self, layer: usize) {
        if std::mem::take(&mut self.partial[layer]) {
            self.push(layer, Collective::AllReduce, self.gpus, self.shaped.layers()[layer].output.elements());
        }
    }
}

/// Rows of a vocabulary that each GPU has.
fn rows(vocabulary: u64, gpus: u64) -> u64 {
    match vocabulary.is_multiple_of(gpus) {
        true => vocabulary / gpus,
        false => vocabulary.next_multiple_of(VOCABULARY).div_ceil(gpus),
    }
}
