//! Layer kinds: one file each, with shape inference, cost and tests; the enum [`Layer`] delegates.
//!
//! To add a kind: a file here and a row in the table below, `layers!`; CONTRIBUTING.md has the rest.

mod activation;
mod adaptive_pool;
mod add;
mod attention;
mod batch_norm;
mod cast;
mod class_token;
mod concat;
mod conv2d;
mod conv3d;
mod conv_transpose2d;
mod dropout;
mod elementwise;
mod embedding;
mod experts;
mod flatten;
mod global_pool;
mod group_norm;
mod kind;
mod latent_attention;
mod layer_norm;
mod linear;
mod local_response_norm;
mod matmul;
mod multiply;
mod pad;
mod pool;
mod pool3d;
mod position;
mod rearrange;
mod recurrent;
mod reduce;
mod resize;
mod rms_norm;
mod rotary;
mod scale;
mod softmax;
mod window;

pub use activation::{Function, OnnxForm, OnnxValue};
pub use attention::{Context, Heads, ScoreBias};
pub use cast::Width;
pub use conv2d::Groups;
pub use conv3d::Triple;
pub use elementwise::Gradient;
pub use experts::Part;
pub use kind::{Family, Kind, Measured, Overwrites, Reads, Saved, SharedModel};
pub use pool::PoolOp;
pub use rearrange::Copied;
pub use recurrent::Cell;
pub use resize::Interpolation;
pub use window::{Pair, Window};

use crate::base::packed::from_table;
use crate::base::precision::{Mode, Phase, Precision, named_enum};
use crate::base::shape::{InvalidShape, Shape};
use crate::base::text::{joined, total};
use crate::net::cost::{LayerCost, Site};
use kind::view;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Why a layer cannot stand where it does. The network adds the layer's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The number of inputs is wrong.
    #[error("takes {expected} but gets {found} inputs")]
    Arity {
        /// In words.
        expected: &'static str,
        /// How many it got.
        found: usize,
    },
    /// The rank is wrong.
    #[error("needs {needs}, gets {found}")]
    Rank {
        /// In words.
        needs: &'static str,
        /// What it got.
        found: Shape,
    },
    /// The window does not fit.
    #[error("a window of {kernel} does not fit in {size} with padding {padding}")]
    WindowTooLarge {
        /// Window size.
        kernel: u64,
        /// Input size.
        size: u64,
        /// Padding on each side.
        padding: u64,
    },
    /// Padding mirrors more than there is.
    #[error("padding of {padding:?} mirrors more than {height} x {width} has")]
    Mirror {
        /// Above, below, left and right.
        padding: [u64; 4],
        /// Of the map.
        height: u64,
        /// Of the map.
        width: u64,
    },
    /// Groups do not divide the channels.
    #[error("{groups} groups do not divide {channels} channels")]
    Groups {
        /// Number of groups.
        groups: u64,
        /// Input or output channels.
        channels: u64,
    },
    /// Inputs do not fit each other.
    #[error("inputs {first} and {other} do not fit together")]
    Mismatch {
        /// One shape.
        first: Shape,
        /// The other.
        other: Shape,
    },
    /// A field has an impossible value.
    #[error("{0}")]
    Field(&'static str),
    /// A dimension is out of range.
    #[error(transparent)]
    Invalid(#[from] InvalidShape),
}

/// What every layer kind answers. There are no defaults: a kind that costs nothing says so.
pub trait LayerOp {
    /// Output shape from the input shapes.
    fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError>;
    /// Number of learned parameters.
    fn parameters(&self, inputs: &[Shape]) -> u64;
    /// Cost of a phase over the batch; `None` where no kernel runs in it. The update phase is the
    /// optimizer's and is costed by [`update_cost`].
    fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost>;
}

macro_rules! layers {
    ($($file:ident::$variant:ident
        $(($field:ident: $of:ident))?
        $({ $($name:literal $(($key:ident = $of_key:ident::$value:ident))?:
            $family:ident, $measured:ident, $shares:ident, $view:ident, $overwrites:ident, $saved:ident;)+ })?
    )+) => {
        $(pub use $file::$variant;)+

        /// A layer of any kind.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum Layer {
            $(#[doc = concat!("See [`", stringify!($variant), "`].")] $variant($variant)),+
        }

        impl LayerOp for Layer {
            fn output(&self, inputs: &[Shape]) -> Result<Shape, ShapeError> {
                match self { $(Self::$variant(l) => l.output(inputs)),+ }
            }
            fn parameters(&self, inputs: &[Shape]) -> u64 {
                match self { $(Self::$variant(l) => l.parameters(inputs)),+ }
            }
            fn cost(&self, phase: Phase, site: &Site<'_>) -> Option<LayerCost> {
                match self { $(Self::$variant(l) => l.cost(phase, site)),+ }
            }
        }

        /// The table, in order: rows of a variant together.
        const ROWS: &[&[Kind]] = &[$(
            $($of::KINDS)?
            $(&[$(row!($name, $family, $measured, $shares, $overwrites, $saved)),+])?
        ),+];

        const NAMES: &[&[&str]] = &[$($($of::NAMES)? $(&[$($name),+])?),+];

        impl Layer {
            /// All kind names, for messages.
            pub const KINDS: &'static [&'static str] = &joined::<{ total(NAMES) }>(NAMES);

            /// What holds of its kind.
            pub fn row(&self) -> &'static Kind {
                match self {$(
                    $(Self::$variant(l) => l.$field.kind(),)?
                    $($(Self::$variant($variant { $($key: $of_key::$value,)? .. }) => {
                        &row!($name, $family, $measured, $shares, $overwrites, $saved)
                    })+)?
                )+}
            }

            /// Whether its result is its input, or a part of it, seen otherwise, so that no kernel runs.
            pub fn is_view(&self, mode: Mode) -> bool {
                match self {$(
                    $(Self::$variant($variant { $field: _ }) => false,)?
                    $($(Self::$variant(l @ $variant { $($key: $of_key::$value,)? .. }) => view::$view(l, mode),)+)?
                )+}
            }

            /// A layer from its kind and the remaining fields of its table; `None` for an unknown kind.
            ///
            /// # Errors
            /// In words, the missing, unknown or malformed field.
            pub fn from_table(kind: &str, mut fields: toml::Table) -> Option<Result<Self, String>> {
                $(
                    $(if let Some(value) = $of::from_name(kind) {
                        fields.insert(stringify!($field).into(), value.name().into());
                        return Some(read(&fields).map(Self::$variant));
                    })?
                    $($(if kind == $name {
                        $(fields.insert(stringify!($key).into(), $of_key::$value.name().into());)?
                        return Some(read(&fields).map(Self::$variant));
                    })+)?
                )+
                None
            }
        }
    };
}

/// The fields of a kind, by the reader that it has for packed files: a second one for each kind, of TOML, would be a twentieth of
/// what programs are large by.
fn read<T: DeserializeOwned>(fields: &toml::Table) -> Result<T, String> {
    from_table(fields).map_err(|wrong| wrong.to_string())
}

macro_rules! row {
    ($name:literal, $family:ident, $measured:ident, $shares:ident, $overwrites:ident, $saved:ident) => {
        Kind {
            name: $name,
            family: Family::$family,
            measured: Measured::$measured,
            shares: SharedModel::$shares,
            overwrites: Overwrites::$overwrites,
            saved: Saved::$saved,
        }
    };
}

// The structs, each with its kinds: family, what measures it, the model that it shares, when it is a view, who lets it overwrite its input, what its
// backward pass reads. Kinds of one struct differ by a field.
layers! {
    conv2d::Conv2d { "conv2d": Gemm, ByRunner, Own, never, Never, Inputs; }
    linear::Linear { "linear": Gemm, ByRunner, Own, never, Never, Inputs; }
    matmul::Matmul { "matmul": Gemm, ByRunner, Own, never, Never, Inputs; }
    pool::Pool2d {
        "max_pool2d" (op = PoolOp::Max): Stream, ByRunner, Own, never, Never, Maximum;
        "avg_pool2d" (op = PoolOp::Avg): Stream, ByRunner, Own, never, Never, Mean;
    }
    global_pool::GlobalPool2d {
        "global_avg_pool2d" (op = PoolOp::Avg): Stream, ByRunner, Own, never, Never, Nothing;
        "global_max_pool2d" (op = PoolOp::Max): Stream, ByRunner, Own, never, Never, Inputs;
    }
    adaptive_pool::AdaptivePool2d {
        "adaptive_avg_pool2d" (op = PoolOp::Avg): Stream, ByRunner, Own, never, Never, Nothing;
        "adaptive_max_pool2d" (op = PoolOp::Max): Stream, ByRunner, Own, never, Never, Inputs;
    }
    activation::Activation (function: Function)
    batch_norm::BatchNorm { "batch_norm": Stream, ByRunner, Own, never, Elementwise, Inputs; }
    scale::Scale { "scale": Stream, ByRunner, Own, never, Elementwise, Inputs; }
    local_response_norm::LocalResponseNorm { "local_response_norm": Stream, ByRunner, Own, never, Never, Both; }
    layer_norm::LayerNorm { "layer_norm": Stream, ByRunner, Own, never, Never, Inputs; }
    group_norm::GroupNorm { "group_norm": Stream, ByItsFramework, Own, never, Never, Inputs; }
    softmax::Softmax { "softmax": Stream, ByRunner, Own, never, Never, Output; }
    dropout::Dropout { "dropout": Stream, ByRunner, Pointwise, in_inference, Elementwise, Nothing; }
    concat::Concat { "concat": Stream, ByRunner, Pointwise, never, Never, Nothing; }
    add::Add { "add": Stream, ByRunner, Pointwise, never, Never, Nothing; }
    multiply::Multiply { "multiply": Stream, ByRunner, Pointwise, never, Never, Inputs; }
    flatten::Flatten { "flatten": Stream, ByRunner, Own, always, Never, Nothing; }
    cast::Cast { "cast": Stream, Nowhere, Own, always, Never, Nothing; }
    pad::Pad { "pad": Stream, ByRunner, Own, never, Never, Nothing; }
    attention::Attention { "attention": Gemm, ByAnyFramework, Own, never, Never, Inputs; }
    latent_attention::LatentAttention { "latent_attention": Gemm, Nowhere, Own, never, Never, Inputs; }
    experts::Experts { "experts": Gemm, Nowhere, Own, never, Never, Inputs; }
    embedding::Embedding { "embedding": Stream, ByAnyFramework, Copies, never, Never, Inputs; }
    rms_norm::RmsNorm { "rms_norm": Stream, ByAnyFramework, Own, never, Never, Inputs; }
    rotary::Rotary { "rotary": Stream, ByItsFramework, Own, never, Never, Inputs; }
    recurrent::Recurrent {
        "lstm" (cell = Cell::Lstm): Gemm, ByAnyFramework, Own, never, Never, Inputs;
        "gru" (cell = Cell::Gru): Gemm, ByAnyFramework, Own, never, Never, Inputs;
        "rnn" (cell = Cell::Rnn): Gemm, ByAnyFramework, Own, never, Never, Inputs;
    }
    position::PositionEmbedding { "position_embedding": Stream, ByAnyFramework, Copies, never, Never, Inputs; }
    position::RelativePositionBias { "relative_position_bias": Stream, ByItsFramework, Own, never, Never, Inputs; }
    class_token::ClassToken { "class_token": Stream, ByAnyFramework, Copies, never, Never, Inputs; }
    rearrange::Reshape { "reshape": Stream, ByAnyFramework, Copies, unless_copied, Never, Nothing; }
    rearrange::Permute { "permute": Stream, ByAnyFramework, Copies, unless_copied, Never, Nothing; }
    rearrange::Slice { "slice": Stream, ByAnyFramework, Copies, unless_copied, Never, Nothing; }
    elementwise::Elementwise { "elementwise": Stream, Nowhere, Own, never, Never, Inputs; }
    reduce::Reduce { "reduce": Stream, Nowhere, Own, never, Never, Nothing; }
    resize::Resize { "resize": Stream, ByItsFramework, Own, never, Never, Inputs; }
    conv_transpose2d::ConvTranspose2d { "conv_transpose2d": Gemm, ByRunner, Own, never, Never, Inputs; }
    conv3d::Conv3d { "conv3d": Gemm, Nowhere, Own, never, Never, Inputs; }
    pool3d::Pool3d {
        "max_pool3d" (op = PoolOp::Max): Stream, Nowhere, Own, never, Never, Inputs;
        "avg_pool3d" (op = PoolOp::Avg): Stream, Nowhere, Own, never, Never, Inputs;
    }
}

impl Kind {
    /// The kind of a name; `None` for an unknown one, models of several kinds among them.
    pub fn named(name: &str) -> Option<&'static Self> {
        ROWS.iter().copied().flatten().find(|kind| kind.name == name)
    }
}

impl Layer {
    /// The same in a network of a precision, where it is known in which order maps lie.
    pub fn within(&self, precision: Precision) -> Self {
        match self {
            Self::Reshape(reshape) => Self::Reshape(reshape.within(precision)),
            other => other.clone(),
        }
    }

    /// What its backward pass reads: what its kind's does, but for element-wise layers and norms, which say so themselves.
    pub fn saved(&self) -> Saved {
        match self {
            Self::Elementwise(elementwise) if !elementwise.saves() => Saved::Nothing,
            Self::Reduce(reduce) if reduce.norm => Saved::Both,
            Self::Reduce(reduce) if reduce.variance => Saved::Inputs,
            other => other.row().saved,
        }
    }

    /// Whether its result has a gradient where something learned lies before it.
    pub(crate) fn has_gradient(&self) -> bool {
        !matches!(self, Self::Elementwise(Elementwise { gradient: Gradient::Absent, .. }))
    }

    /// Whether its result's gradient is the gradient of each of its inputs.
    pub(crate) fn sums(&self) -> bool {
        matches!(self, Self::Add(_) | Self::Elementwise(Elementwise { gradient: Gradient::Passes, .. }))
    }

    /// The kind's name, as in network files, measurements and calibrations.
    pub fn kind(&self) -> &'static str {
        self.row().name
    }

    /// What can measure the layers of a kind, by its name.
    pub fn measured(kind: &str) -> Measured {
        Kind::named(kind).map_or(Measured::Nowhere, |kind| kind.measured)
    }
}

named_enum!(
    /// Optimizers whose update step is costed.
    Optimizer {
        /// Plain stochastic gradient descent.
        Sgd = "sgd",
        /// With momentum.
        Momentum = "momentum",
        /// Adam.
        Adam = "adam",
    }
);

impl Optimizer {
    /// Fp32 state values kept per parameter.
    pub fn state_per_parameter(self) -> u64 {
        match self {
            Self::Sgd => 0,
            Self::Momentum => 1,
            Self::Adam => 2,
        }
    }
}

/// Cost of the optimizer's step over `parameters` fp32 master weights: weights, gradients and state are
/// read, weights and state written. Operations per parameter: 2 (w -= lr g), 4 with momentum, 12 for Adam.
pub fn update_cost(parameters: u64, optimizer: Optimizer) -> Option<LayerCost> {
    if parameters == 0 {
        return None;
    }
    let state = optimizer.state_per_parameter();
    let ops = match optimizer {
        Optimizer::Sgd => 2,
        Optimizer::Momentum => 4,
        Optimizer::Adam => 12,
    };
    let bytes = |per_parameter: u64| crate::base::units::Bytes::new(product4(parameters, per_parameter));
    Some(LayerCost {
        ops: crate::base::units::Ops::new(parameters.saturating_mul(ops)),
        macs: 0,
        read: bytes(2 + state),
        written: bytes(1 + state),
        weights: bytes(1),
    })
}

fn product4(a: u64, b: u64) -> u64 {
    crate::base::shape::product(&[a, b, 4])
}

/// The single input of a layer that takes one.
fn one(inputs: &[Shape]) -> Result<Shape, ShapeError> {
    match inputs {
        [shape] => Ok(*shape),
        _ => Err(ShapeError::Arity { expected: "one", found: inputs.len() }),
    }
}

/// The first input's shape, to which every other one can be broadcast: its dimensions, aligned at the last, are the same
/// or 1.
fn broadcast(inputs: &[Shape]) -> Result<Shape, ShapeError> {
    let [first, rest @ ..] = inputs else {
        return Err(ShapeError::Arity { expected: "two or more", found: 0 });
    };
    let misfits = |other: &&Shape| {
        let (wide, narrow) = (first.dims(), other.dims());
        let pairs = wide.iter().rev().zip(narrow.iter().rev());
        narrow.len() > wide.len() || pairs.into_iter().any(|(a, b)| a != b && *b != 1)
    };
    match rest.iter().find(misfits) {
        Some(other) => Err(ShapeError::Mismatch { first: *first, other: *other }),
        None => Ok(*first),
    }
}

/// The single volume of a layer over frames or slices: channels, depth, height, width.
fn one_volume(inputs: &[Shape]) -> Result<[u64; 4], ShapeError> {
    let shape = one(inputs)?;
    <[u64; 4]>::try_from(shape.dims())
        .map_err(|_| ShapeError::Rank { needs: "a [channels, depth, height, width] volume", found: shape })
}

/// The single feature map of a spatial layer.
fn one_map(inputs: &[Shape]) -> Result<(u64, u64, u64), ShapeError> {
    let shape = one(inputs)?;
    shape.as_map().ok_or(ShapeError::Rank { needs: "a [channels, height, width] map", found: shape })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::base::precision::{Mode, Precision};

    pub fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).expect("a test shape")
    }

    /// Cost of a layer at fp32.
    pub fn cost(layer: &impl LayerOp, inputs: &[Shape], batch: u64, phase: Phase, mode: Mode) -> Option<LayerCost> {
        let output = layer.output(inputs).expect("inputs fit");
        layer.cost(phase, &Site { batch, inputs, output, precision: Precision::Fp32, mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_is_of_a_kind_in_the_table() {
        let mut layers: Vec<Layer> = Vec::new();
        layers.extend(Function::ALL.iter().map(|&function| Layer::Activation(Activation { function })));
        for &op in PoolOp::ALL {
            layers.push(Layer::GlobalPool2d(GlobalPool2d { op }));
            layers.push(Layer::AdaptivePool2d(AdaptivePool2d { op, output: Pair::one() }));
        }
        for cell in Cell::ALL {
            let fields = "hidden = 4".parse().expect("test table");
            layers.push(Layer::from_table(cell.name(), fields).expect("a kind").expect("valid fields"));
        }
        for layer in layers {
            assert!(Layer::KINDS.contains(&layer.kind()), "{layer:?}");
            assert_eq!(Kind::named(layer.kind()), Some(layer.row()));
        }
        let unique: std::collections::HashSet<_> = Layer::KINDS.iter().collect();
        assert_eq!(unique.len(), Layer::KINDS.len());
        assert_eq!((Kind::named("conv2d_3x3"), Function::Relu.kind().name), (None, Function::Relu.name()));
    }

    #[test]
    fn unknown_kinds_are_none() {
        for kind in ["pool2d", "conv4d", "global_sum_pool2d", "activation"] {
            assert!(Layer::from_table(kind, toml::Table::new()).is_none(), "{kind}");
        }
    }

    #[test]
    fn unknown_fields_are_errors() {
        let table: toml::Table = "channels = 8\nkernel = 3\nstrides = 2".parse().expect("test table");
        let error = Layer::from_table("conv2d", table).expect("known kind").expect_err("unknown field");
        assert!(error.to_string().contains("strides"), "{error}");
    }

    #[test]
    fn update_moves_weights_gradients_and_state() {
        let cost = update_cost(10, Optimizer::Momentum).expect("parameters");
        assert_eq!((cost.read.get(), cost.written.get(), cost.ops.get()), (120, 80, 40));
        assert_eq!(update_cost(0, Optimizer::Adam), None);
    }
}
