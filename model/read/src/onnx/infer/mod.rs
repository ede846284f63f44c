//! Shapes of what every operator makes, and values where they follow from constants and shapes alone.
//!
//! Operators are those of the ONNX specification (github.com/onnx/onnx, docs/Operators.md), opset 9 to 23. Values of
//! shape computations (`Shape`, `Gather`, `Concat` ...) are computed as they are met, so that a `Reshape` finds its target.

mod arithmetic;
mod movement;
mod products;
mod selection;
mod windows;

pub use arithmetic::reduced_axes;
pub use movement::{pads, permutation};
pub use products::einsum_letters;
pub use windows::{cut, padding};

use super::tensor::{Data, Tensor};
use super::wire::{self, Attribute, Node};
use joulecast_model::base::shape::InvalidShape;
use joulecast_model::net::layer::Function;

/// Why a node's results are not known.
#[derive(Debug, PartialEq)]
pub enum Issue {
    /// No such operator is known.
    Unknown,
    /// Control flow: what runs is decided while it runs.
    ControlFlow,
    /// More layers than a network may have.
    TooMany,
    /// What is wrong with it.
    Wrong(String),
}

impl From<String> for Issue {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

impl From<InvalidShape> for Issue {
    fn from(why: InvalidShape) -> Self {
        Self::Wrong(why.to_string())
    }
}

impl From<&str> for Issue {
    fn from(why: &str) -> Self {
        Self::Wrong(why.to_string())
    }
}

/// A node with what is known of its inputs.
pub struct Call<'a> {
    /// The node.
    pub node: &'a Node,
    /// Per input; `None` where an optional one is left out.
    pub inputs: Vec<Option<&'a Tensor>>,
    /// Version of the operator set.
    pub opset: i64,
    /// The marker of the batch, and the batch that the file was made for where it says one (see [`super::graph`]).
    pub batch: (i64, Option<i64>),
    /// The most that an operator selects whose values decide how much.
    pub selected: u64,
}

impl<'a> Call<'a> {
    /// An input that must be there.
    pub fn input(&self, position: usize) -> Result<&'a Tensor, Issue> {
        self.optional(position).ok_or_else(|| Issue::Wrong(format!("input {position} is missing")))
    }

    /// An input that may be left out.
    pub fn optional(&self, position: usize) -> Option<&'a Tensor> {
        self.inputs.get(position).copied().flatten()
    }

    fn attribute(&self, name: &str) -> Option<&'a Attribute> {
        self.node.attributes.iter().find(|a| a.name == name)
    }

    /// An integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|a| a.i)
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.attribute(name).map(|a| &a.ints[..])
    }

    /// A real attribute.
    pub fn real(&self, name: &str) -> Option<f64> {
        self.attribute(name).map(|a| f64::from(a.f))
    }

    /// A word.
    pub fn word(&self, name: &str) -> Option<&'a str> {
        self.attribute(name).and_then(|a| std::str::from_utf8(&a.s).ok())
    }

    /// A tensor attribute.
    pub fn tensor(&self, name: &str) -> Option<&'a wire::Tensor> {
        self.attribute(name).and_then(|a| a.t.as_deref())
    }

    /// Integers that newer operator sets take as an input and older ones as an attribute; `None` where left out.
    pub fn list(&self, position: usize, name: &str) -> Result<Option<Vec<i64>>, Issue> {
        if let Some(values) = self.ints(name) {
            return Ok(Some(values.to_vec()));
        }
        match self.optional(position) {
            None => Ok(None),
            Some(tensor) => match tensor.ints() {
                Some(values) => Ok(Some(values.to_vec())),
                None => Err(Issue::Wrong(format!("{name} is computed from the network's input, not from shapes"))),
            },
        }
    }

    /// A dimension's position, counted from the end where negative.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, Issue> {
        let position = if axis < 0 { axis + rank as i64 } else { axis };
        match usize::try_from(position) {
            Ok(p) if p < rank => Ok(p),
            _ => Err(Issue::Wrong(format!("axis {axis} of a tensor with {rank} dimensions"))),
        }
    }
}

/// What a node makes: one tensor per output.
///
/// # Errors
/// When the operator is not known, is control flow, or does not fit its inputs.
pub fn infer(call: &Call<'_>) -> Result<Vec<Tensor>, Issue> {
    let same = || call.input(0).cloned();
    let unvalued = || call.input(0).map(|t| Tensor { data: None, ..t.clone() });
    let one = |tensor: Result<Tensor, Issue>| tensor.map(|t| vec![t]);
    match call.node.op.as_str() {
        "If" | "Loop" | "Scan" | "SequenceMap" | "SequenceInsert" | "SequenceAt" | "SequenceLength"
        | "SplitToSequence" | "ConcatFromSequence" => Err(Issue::ControlFlow),
        "Identity" => one(same()),
        "Dropout" => {
            let kept = same()?;
            let mask = Tensor { real: false, data: None, ..kept.clone() };
            Ok(vec![kept, mask])
        }
        "Constant" => one(constant(call)),
        "Shape" => one(shape(call)),
        "Size" => one(Ok(Tensor { dims: vec![], ..Tensor::list(vec![call.input(0)?.elements()]) })),
        operator if Function::of_onnx(operator).is_some() => one(unvalued()),
        "LeakyRelu"
        | "Elu"
        | "Selu"
        | "Celu"
        | "ThresholdedRelu"
        | "Softsign"
        | "Erf"
        | "Sin"
        | "Cos"
        | "Tan"
        | "Atan"
        | "Asin"
        | "Acos"
        | "Sinh"
        | "Cosh"
        | "Softmax"
        | "LogSoftmax"
        | "Hardmax"
        | "LRN"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "InstanceNormalization"
        | "GroupNormalization"
        | "RMSNormalization"
        | "CumSum"
        | "Trilu"
        | "Shrink"
        | "ScatterND"
        | "ScatterElements"
        | "Scatter"
        | "Bernoulli"
        | "RandomNormalLike"
        | "RandomUniformLike"
        | "EyeLike" => one(unvalued()),
        "BatchNormalization" | "LayerNormalization" => {
            let normal = unvalued()?;
            let channels = Tensor::new(vec![normal.dims.get(1).copied().unwrap_or(1)], true)?;
            Ok(std::iter::once(normal).chain(std::iter::repeat_n(channels, 4)).collect())
        }
        "Clip" => one(arithmetic::clip(call)),
        "Cast" => one(cast(call)),
        "CastLike" => one(arithmetic::converted(call.input(0)?, call.input(1)?.real, false)),
        "Not" | "Neg" | "Abs" | "Sqrt" | "Reciprocal" | "Exp" | "Log" | "Floor" | "Ceil" | "Round" | "Sign"
        | "IsNaN" | "IsInf" => one(arithmetic::unary(call)),
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Min" | "Max" | "Sum" | "Mean" | "And" | "Or" | "Xor"
        | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "PRelu" => one(arithmetic::binary(call)),
        "Where" => one(arithmetic::choose(call)),
        "Range" => one(arithmetic::range(call)),
        "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceL1" | "ReduceL2"
        | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceSumSquare" => one(arithmetic::reduce(call)),
        "ArgMax" | "ArgMin" => one(arithmetic::extreme(call)),
        "TopK" => selection::top(call),
        "NonZero" => one(selection::non_zero(call)),
        "NonMaxSuppression" => one(selection::boxes(call)),
        "Unique" => selection::unique(call),
        "Compress" => one(selection::compress(call)),
        "Conv" => one(windows::convolution(call)),
        "ConvTranspose" => one(windows::transposed(call)),
        "GridSample" => one(windows::sampled(call)),
        "RoiAlign" | "MaxRoiPool" => one(windows::regions(call)),
        "Col2Im" => one(windows::columns(call)),
        "MaxPool" | "AveragePool" => {
            let pooled = windows::pooling(call)?;
            let indices = Tensor { real: false, ..pooled.clone() };
            Ok(vec![pooled, indices])
        }
        "GlobalAveragePool" | "GlobalMaxPool" => one(windows::global(call)),
        "Gemm" => one(products::gemm(call)),
        "MatMul" => one(products::matmul(call)),
        "Einsum" => one(products::einsum(call)),
        "LSTM" | "GRU" | "RNN" => products::recurrent(call),
        "Attention" => one(products::attention(call)),
        "RotaryEmbedding" => one(unvalued()),
        _ => movement::infer(call),
    }
}

fn constant(call: &Call<'_>) -> Result<Tensor, Issue> {
    if let Some(tensor) = call.tensor("value") {
        return Ok(Tensor::from_wire(tensor)?);
    }
    let reals = |values: Vec<f64>| Some(Data::Reals(values.into()));
    if let Some(value) = call.int("value_int") {
        return Ok(Tensor { dims: vec![], ..Tensor::list(vec![value]) });
    }
    if let Some(values) = call.ints("value_ints") {
        return Ok(Tensor::list(values.to_vec()));
    }
    if let Some(value) = call.real("value_float") {
        return Ok(Tensor { data: reals(vec![value]), ..Tensor::new(vec![], true)? });
    }
    if let Some(values) = call.attribute("value_floats").map(|a| &a.floats) {
        let tensor = Tensor::new(vec![values.len() as i64], true)?;
        return Ok(Tensor { data: reals(values.iter().map(|&v| f64::from(v)).collect()), ..tensor });
    }
    Err("a constant of a kind that is not read".into())
}

fn shape(call: &Call<'_>) -> Result<Tensor, Issue> {
    let dims = &call.input(0)?.dims;
    let rank = dims.len() as i64;
    let edge = |name: &str, default: i64| {
        let at = call.int(name).unwrap_or(default);
        (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize
    };
    let (start, end) = (edge("start", 0), edge("end", rank));
    Ok(Tensor::list(dims[start..end.max(start)].to_vec()))
}

fn cast(call: &Call<'_>) -> Result<Tensor, Issue> {
    let to = i32::try_from(call.int("to").ok_or("it does not say to which type")?).unwrap_or(0);
    arithmetic::converted(call.input(0)?, wire::element::is_real(to), to == wire::element::BOOL)
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A node with attributes: a word, or integers.
    pub fn node(op: &str, attributes: &[(&str, Result<&str, &[i64]>)]) -> Node {
        let attribute = |(name, value): &(&str, Result<&str, &[i64]>)| {
            let mut made = Attribute { name: name.to_string(), ..Attribute::default() };
            match *value {
                Ok(word) => made.s = word.as_bytes().to_vec(),
                Err(&[one]) => made.i = one,
                Err(list) => made.ints = list.to_vec(),
            }
            made
        };
        let attributes = attributes.iter().map(attribute).collect();
        Node { op: op.into(), outputs: vec!["y".into()], attributes, ..Node::default() }
    }

    /// A node's call on tensors, not more than three elements selected.
    pub fn call<'a>(node: &'a Node, inputs: &'a [Tensor]) -> Call<'a> {
        Call { node, inputs: inputs.iter().map(Some).collect(), opset: 17, batch: (1, Some(1)), selected: 3 }
    }

    pub fn tensor(dims: &[i64]) -> Tensor {
        Tensor::new(dims.to_vec(), true).expect("dimensions")
    }
}
