//! The messages of `onnx.proto` (onnx 1.16 and before), as far as a network's structure goes.
//!
//! Payloads of tensors are kept as bytes: all of them are `[packed = true]` or `bytes` in the format, so nothing is
//! converted before it is known to be needed. prost skips fields that are not named here.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub opsets: Vec<Opset>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Opset {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<Node>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializers: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub outputs: Vec<ValueInfo>,
    /// Of other values those of which [`metadata::KIND`] is said.
    #[prost(message, repeated, tag = "13")]
    pub described: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, repeated, tag = "1")]
    pub inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op: String,
    #[prost(message, repeated, tag = "5")]
    pub attributes: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Of what exporters say of a node, [`metadata`].
    #[prost(message, repeated, tag = "9")]
    pub metadata: Vec<Entry>,
}

impl Node {
    /// What an exporter says of it under a key of [`metadata`].
    pub fn said(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|entry| entry.key == key).map(|entry| &entry.value[..])
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, tag = "2")]
    pub f: f32,
    #[prost(int64, tag = "3")]
    pub i: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub s: Vec<u8>,
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<Tensor>>,
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<Graph>>,
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Says which of the others is meant: 1 f, 2 i, 3 s, 4 t, 5 g, 6 floats, 7 ints.
    #[prost(int32, tag = "20")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(bytes = "vec", tag = "4")]
    pub floats: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub int32s: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    pub int64s: Vec<u8>,
    #[prost(string, tag = "8")]
    pub name: String,
    #[prost(bytes = "vec", tag = "9")]
    pub raw: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    pub doubles: Vec<u8>,
    /// Written, never read: the file that it names is nobody's business here.
    #[prost(message, repeated, tag = "13")]
    pub external: Vec<Entry>,
    /// 1: the data are elsewhere.
    #[prost(int32, tag = "14")]
    pub location: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub kind: Option<ValueType>,
    #[prost(message, repeated, tag = "4")]
    pub metadata: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(int32, tag = "1")]
    pub element: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShape>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorShape {
    #[prost(message, repeated, tag = "1")]
    pub dims: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub size: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// Keys of what PyTorch's exporter says of nodes and values, as far as it is read.
pub mod metadata {
    /// The rule of onnxscript's rewriter that made the node.
    pub const RULE: &str = "pkg.onnxscript.rewriter.rule_name";
    /// Classes of the modules that it is in, from the outermost, and its operation: a Python list of strings.
    pub const CLASSES: &str = "pkg.torch.onnx.class_hierarchy";
    /// Names of the same modules, each with those around it (`layer1.0`), and of the operation.
    pub const SCOPES: &str = "pkg.torch.onnx.name_scopes";
    /// What an initializer is in the module: [`PARAMETER`], or `BUFFER`, `CONSTANT_TENSOR` and others that nothing learned.
    pub const KIND: &str = "pkg.torch.export.graph_signature.InputSpec.kind";
    /// Of what a module learned.
    pub const PARAMETER: &str = "PARAMETER";
    /// All that are kept.
    pub const KEPT: [&str; 4] = [RULE, CLASSES, SCOPES, KIND];
}

/// Element types as `onnx.proto` numbers them, those that need to be told apart.
pub mod element {
    pub const FLOAT: i32 = 1;
    pub const UINT8: i32 = 2;
    pub const INT8: i32 = 3;
    pub const INT32: i32 = 6;
    pub const INT64: i32 = 7;
    pub const BOOL: i32 = 9;
    pub const FLOAT16: i32 = 10;
    pub const DOUBLE: i32 = 11;
    pub const BFLOAT16: i32 = 16;

    /// Whether values of the type are real numbers, such as weights are.
    pub fn is_real(element: i32) -> bool {
        matches!(element, FLOAT | FLOAT16 | DOUBLE | BFLOAT16)
    }
}
