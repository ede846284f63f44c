//! What language models have in common, and in what they differ: the form between a `config.json` and layers.

use joulecast_model::net::layer::Function;

/// A language model: tokens in, logits out.
pub(super) struct Decoder {
    pub vocabulary: u64,
    pub features: u64,
    /// Rows of a table of learned positions.
    pub positions: Option<u64>,
    /// Whether embeddings are multiplied by a number.
    pub scaled: bool,
    pub norm: Norm,
    /// Probability of the dropouts behind the embedding and in every block; none of 0.
    pub dropouts: [f64; 2],
    pub blocks: Vec<Block>,
    pub head: Head,
}

/// The product that makes logits.
#[derive(Clone, Copy, Default)]
pub(super) struct Head {
    pub bias: bool,
    /// Its weights are the embedding's.
    pub tied: bool,
    /// Logits are held to a range by a hyperbolic tangent.
    pub capped: bool,
}

/// The norms of a model.
#[derive(Clone, Copy)]
pub(super) enum Norm {
    /// Mean and variance, scale and shift.
    Layer,
    /// Root of the mean square, scale.
    Rms,
}

#[derive(Clone, Copy)]
pub(super) struct Block {
    pub order: Order,
    pub attention: Attend,
    /// Attention to what an encoder made, between both others.
    pub cross: Option<Cross>,
    pub feed: Feed,
}

/// Attention to another sequence, as many positions of as many features as the model has.
#[derive(Clone, Copy)]
pub(super) struct Cross {
    pub heads: u64,
    pub positions: u64,
}

/// Where norms stand, and what is added to what.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// A norm before attention and before the feed-forward network.
    Before,
    /// A norm behind each.
    After,
    /// Before and behind each.
    Around,
    /// Both read the block's input, through one norm or one each, and are added to it.
    Parallel { one_norm: bool },
}

#[derive(Clone, Copy)]
pub(super) enum Attend {
    Heads(Heads),
    Latent(Latent),
}

/// Grouped-query attention.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub heads: u64,
    pub kv_heads: u64,
    /// Features of a head.
    pub dimension: u64,
    pub biases: Biases,
    /// One product for queries, keys and values.
    pub packed: bool,
    pub norms: HeadNorms,
    /// Features of a head that carry the position; 0 where positions are learned.
    pub rotated: u64,
    pub window: Option<u64>,
    pub sinks: bool,
}

/// Which of attention's products have biases.
#[derive(Clone, Copy)]
pub(super) struct Biases {
    /// Those of queries and values.
    pub inputs: bool,
    /// That of keys.
    pub keys: bool,
    /// That of the result.
    pub output: bool,
}

impl Biases {
    pub const NONE: Self = Self { inputs: false, keys: false, output: false };
    pub const ALL: Self = Self { inputs: true, keys: true, output: true };
}

/// Norms of queries and keys.
#[derive(Clone, Copy)]
pub(super) enum HeadNorms {
    None,
    /// Over every head by itself, with the same factors.
    Each,
    /// Over all heads together.
    Whole,
}

/// Multi-head latent attention.
#[derive(Clone, Copy)]
pub(super) struct Latent {
    pub heads: u64,
    /// Features that queries are brought down to first.
    pub query_rank: Option<u64>,
    /// Features of a latent.
    pub rank: u64,
    /// Features of a key that heads share.
    pub rope: u64,
    /// Features of a key that are a head's own.
    pub own: u64,
    /// Features of a head's values.
    pub value: u64,
    pub bias: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Feed {
    Dense(Dense),
    Experts(Mixture),
}

#[derive(Clone, Copy)]
pub(super) struct Dense {
    pub hidden: u64,
    pub function: Function,
    pub bias: bool,
    pub gate: Gate,
}

/// Whether inner features are multiplied by an activated half.
#[derive(Clone, Copy)]
pub(super) enum Gate {
    None,
    /// A product of its own.
    Apart,
    /// One product for both halves.
    Packed,
}

/// A mixture of experts.
#[derive(Clone, Copy)]
pub(super) struct Mixture {
    pub experts: u64,
    /// Experts that a token runs through.
    pub active: u64,
    pub hidden: u64,
    /// Of the router's product.
    pub router_bias: bool,
    /// Of the experts'.
    pub bias: bool,
    /// What every token runs through besides.
    pub shared: Option<Shared>,
}

#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub dense: Dense,
    /// Whether its result is weighted by a product of its own.
    pub weighted: bool,
}
