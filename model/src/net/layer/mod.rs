//! Layer kinds: one file each, with shape inference, cost and tests; the enum [`Layer`] delegates.
//!
//! To add a kind: a file here, a variant and an arm in the macro call below, an arm in
//! [`Layer::from_table`], a line in `tests/golden/kinds.txt`.

mod activation;
mod adaptive_pool;
mod add;
mod attention;
mod batch_norm;
mod class_token;
mod concat;
mod conv2d;
mod conv3d;
mod conv_transpose2d;
mod dropout;
mod elementwise;
mod embedding;
mod flatten;
mod global_pool;
mod layer_norm;
mod linear;
mod local_response_norm;
mod matmul;
mod measured;
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

pub use activation::{Activation, Function};
pub use adaptive_pool::AdaptivePool2d;
pub use add::Add;
pub use attention::{Attention, Heads};
pub use batch_norm::BatchNorm;
pub use class_token::ClassToken;
pub use concat::Concat;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::{Conv2d, Groups};
pub use conv3d::{Conv3d, Triple};
pub use dropout::Dropout;
pub use elementwise::Elementwise;
pub use embedding::Embedding;
pub use flatten::Flatten;
pub use global_pool::GlobalPool2d;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use local_response_norm::LocalResponseNorm;
pub use matmul::Matmul;
pub use measured::Measured;
pub use multiply::Multiply;
pub use pad::Pad;
pub use pool::{Pool2d, PoolOp};
pub use pool3d::Pool3d;
pub use position::{PositionEmbedding, RelativePositionBias};
pub use rearrange::{Permute, Reshape, Slice};
pub use recurrent::{Cell, Recurrent};
pub use reduce::Reduce;
pub use resize::{Interpolation, Resize};
pub use rms_norm::RmsNorm;
pub use rotary::Rotary;
pub use scale::Scale;
pub use softmax::Softmax;
pub use window::{Pair, Window};

use crate::base::precision::{Phase, named_enum};
use crate::base::shape::{InvalidShape, Shape};
use crate::net::cost::{LayerCost, Site};
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
    ($($variant:ident),+ $(,)?) => {
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
    };
}

layers!(
    Conv2d,
    Linear,
    Matmul,
    Pool2d,
    GlobalPool2d,
    AdaptivePool2d,
    Activation,
    BatchNorm,
    Scale,
    LocalResponseNorm,
    LayerNorm,
    Softmax,
    Dropout,
    Concat,
    Add,
    Multiply,
    Flatten,
    Pad,
    Attention,
    Embedding,
    RmsNorm,
    Rotary,
    Recurrent,
    PositionEmbedding,
    RelativePositionBias,
    ClassToken,
    Reshape,
    Permute,
    Slice,
    Elementwise,
    Reduce,
    Resize,
    ConvTranspose2d,
    Conv3d,
    Pool3d,
);

impl Layer {
    /// The kind's name, as in network files, measurements and calibrations.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Conv2d(_) => "conv2d",
            Self::Linear(_) => "linear",
            Self::Matmul(_) => "matmul",
            Self::Pool2d(p) => match p.op {
                PoolOp::Max => "max_pool2d",
                PoolOp::Avg => "avg_pool2d",
            },
            Self::GlobalPool2d(p) => match p.op {
                PoolOp::Max => "global_max_pool2d",
                PoolOp::Avg => "global_avg_pool2d",
            },
            Self::AdaptivePool2d(p) => match p.op {
                PoolOp::Max => "adaptive_max_pool2d",
                PoolOp::Avg => "adaptive_avg_pool2d",
            },
            Self::Activation(a) => a.function.name(),
            Self::BatchNorm(_) => "batch_norm",
            Self::Scale(_) => "scale",
            Self::LocalResponseNorm(_) => "local_response_norm",
            Self::LayerNorm(_) => "layer_norm",
            Self::Softmax(_) => "softmax",
            Self::Dropout(_) => "dropout",
            Self::Concat(_) => "concat",
            Self::Add(_) => "add",
            Self::Multiply(_) => "multiply",
            Self::Flatten(_) => "flatten",
            Self::Pad(_) => "pad",
            Self::Attention(_) => "attention",
            Self::Embedding(_) => "embedding",
            Self::RmsNorm(_) => "rms_norm",
            Self::Rotary(_) => "rotary",
            Self::Recurrent(r) => r.cell.name(),
            Self::PositionEmbedding(_) => "position_embedding",
            Self::RelativePositionBias(_) => "relative_position_bias",
            Self::ClassToken(_) => "class_token",
            Self::Reshape(_) => "reshape",
            Self::Permute(_) => "permute",
            Self::Slice(_) => "slice",
            Self::Elementwise(_) => "elementwise",
            Self::Reduce(_) => "reduce",
            Self::Resize(_) => "resize",
            Self::ConvTranspose2d(_) => "conv_transpose2d",
            Self::Conv3d(_) => "conv3d",
            Self::Pool3d(p) => match p.op {
                PoolOp::Max => "max_pool3d",
                PoolOp::Avg => "avg_pool3d",
            },
        }
    }

    /// Whether its result is its input, or a part of it, seen otherwise.
    pub fn is_view(&self) -> bool {
        match self {
            Self::Flatten(_) => true,
            Self::Reshape(r) => !r.copy,
            Self::Permute(p) => !p.copy,
            Self::Slice(s) => !s.copy,
            _ => false,
        }
    }

    /// All kind names, for messages.
    pub const KINDS: &'static [&'static str] = &[
        "conv2d",
        "linear",
        "matmul",
        "max_pool2d",
        "avg_pool2d",
        "global_avg_pool2d",
        "global_max_pool2d",
        "adaptive_avg_pool2d",
        "adaptive_max_pool2d",
        "relu",
        "relu6",
        "sigmoid",
        "tanh",
        "silu",
        "hardswish",
        "gelu",
        "gelu_tanh",
        "batch_norm",
        "scale",
        "local_response_norm",
        "layer_norm",
        "softmax",
        "dropout",
        "concat",
        "add",
        "multiply",
        "flatten",
        "pad",
        "attention",
        "embedding",
        "rms_norm",
        "rotary",
        "lstm",
        "gru",
        "position_embedding",
        "relative_position_bias",
        "class_token",
        "reshape",
        "permute",
        "slice",
        "elementwise",
        "reduce",
        "resize",
        "conv_transpose2d",
        "conv3d",
        "max_pool3d",
        "avg_pool3d",
        "rnn",
    ];

    /// A layer from its kind and the remaining fields of its table; `None` for an unknown kind.
    ///
    /// # Errors
    /// The inner error names the missing, unknown or malformed field.
    pub fn from_table(kind: &str, mut fields: toml::Table) -> Option<Result<Self, toml::de::Error>> {
        fn read<T: serde::de::DeserializeOwned>(
            fields: toml::Table,
            wrap: impl FnOnce(T) -> Layer,
        ) -> Option<Result<Layer, toml::de::Error>> {
            Some(T::deserialize(fields).map(wrap))
        }
        if let Some(function) = Function::from_name(kind) {
            fields.insert("function".into(), function.name().into());
            return read(fields, Self::Activation);
        }
        if let Some(cell) = Cell::from_name(kind) {
            fields.insert("cell".into(), cell.name().into());
            return read(fields, Self::Recurrent);
        }
        if let Some(op) = kind.strip_suffix("_pool3d") {
            fields.insert("op".into(), op.into());
            return read(fields, Self::Pool3d);
        }
        let structure = match kind.split_once("_pool2d") {
            Some((head, "")) => {
                let (structure, op) = head.rsplit_once('_').unwrap_or(("pool2d", head));
                fields.insert("op".into(), op.into());
                structure
            }
            _ => kind,
        };
        match structure {
            "conv2d" => read(fields, Self::Conv2d),
            "linear" => read(fields, Self::Linear),
            "matmul" => read(fields, Self::Matmul),
            "pool2d" if kind != structure => read(fields, Self::Pool2d),
            "global" => read(fields, Self::GlobalPool2d),
            "adaptive" => read(fields, Self::AdaptivePool2d),
            "batch_norm" => read(fields, Self::BatchNorm),
            "scale" => read(fields, Self::Scale),
            "local_response_norm" => read(fields, Self::LocalResponseNorm),
            "layer_norm" => read(fields, Self::LayerNorm),
            "softmax" => read(fields, Self::Softmax),
            "dropout" => read(fields, Self::Dropout),
            "concat" => read(fields, Self::Concat),
            "add" => read(fields, Self::Add),
            "multiply" => read(fields, Self::Multiply),
            "flatten" => read(fields, Self::Flatten),
            "pad" => read(fields, Self::Pad),
            "attention" => read(fields, Self::Attention),
            "embedding" => read(fields, Self::Embedding),
            "rms_norm" => read(fields, Self::RmsNorm),
            "rotary" => read(fields, Self::Rotary),
            "position_embedding" => read(fields, Self::PositionEmbedding),
            "relative_position_bias" => read(fields, Self::RelativePositionBias),
            "class_token" => read(fields, Self::ClassToken),
            "reshape" => read(fields, Self::Reshape),
            "permute" => read(fields, Self::Permute),
            "slice" => read(fields, Self::Slice),
            "elementwise" => read(fields, Self::Elementwise),
            "reduce" => read(fields, Self::Reduce),
            "resize" => read(fields, Self::Resize),
            "conv_transpose2d" => read(fields, Self::ConvTranspose2d),
            "conv3d" => read(fields, Self::Conv3d),
            _ => None,
        }
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
    fn every_kind_name_reads_and_reads_back() {
        for kind in Layer::KINDS {
            let fields = match *kind {
                "conv2d" | "conv3d" | "conv_transpose2d" => "channels = 8\nkernel = 3",
                "linear" => "features = 8",
                "max_pool2d" | "avg_pool2d" | "max_pool3d" | "avg_pool3d" => "kernel = 2",
                "adaptive_avg_pool2d" | "adaptive_max_pool2d" => "output = 2",
                "pad" => "padding = [0, 1, 0, 1]",
                "attention" | "rotary" => "heads = 2",
                "embedding" => "vocabulary = 10\nfeatures = 4",
                "lstm" | "gru" | "rnn" => "hidden = 4",
                "relative_position_bias" => "heads = 2\nwindow = 7",
                "reshape" => "shape = [-1]",
                "permute" => "order = [0]",
                "slice" => "axis = 0\nsize = 1",
                "resize" => "output = 8",
                _ => "",
            };
            let table: toml::Table = fields.parse().expect("test table");
            let layer = Layer::from_table(kind, table).expect("known kind").expect("valid fields");
            assert_eq!(&layer.kind(), kind);
        }
        assert!(Layer::from_table("pool2d", toml::Table::new()).is_none());
        assert!(Layer::from_table("conv4d", toml::Table::new()).is_none());
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
