//! The messages of `onnx.proto` (onnx 1.16 and before), as far as a network's structure goes.
//!
//! Payloads of tensors are kept as bytes: all of them are `[packed = true]` or `bytes` in the format, so nothing is
//! converted before it is known to be needed. Behind a field is its tag; those that are not named here are skipped.

use super::message::{Field as _, messages};

messages! {
    pub struct Model {
        ir_version: i64 = 1,
        producer: String = 2,
        graph: Option<Graph> = 7,
        opsets: Vec<Opset> = 8,
    }

    pub struct Opset {
        domain: String = 1,
        version: i64 = 2,
    }

    pub struct Graph {
        nodes: Vec<Node> = 1,
        name: String = 2,
        initializers: Vec<Tensor> = 5,
        inputs: Vec<ValueInfo> = 11,
        outputs: Vec<ValueInfo> = 12,
        /// Of other values those of which [`metadata::KIND`] is said.
        described: Vec<ValueInfo> = 13,
    }

    pub struct Node {
        inputs: Vec<String> = 1,
        outputs: Vec<String> = 2,
        name: String = 3,
        op: String = 4,
        attributes: Vec<Attribute> = 5,
        domain: String = 7,
        /// Of what exporters say of a node, [`metadata`].
        metadata: Vec<Entry> = 9,
    }

    pub struct Attribute {
        name: String = 1,
        f: f32 = 2,
        i: i64 = 3,
        s: Vec<u8> = 4,
        t: Option<Box<Tensor>> = 5,
        g: Option<Box<Graph>> = 6,
        floats: Vec<f32> = 7,
        ints: Vec<i64> = 8,
        /// Says which of the others is meant: 1 f, 2 i, 3 s, 4 t, 5 g, 6 floats, 7 ints.
        kind: i32 = 20,
    }

    pub struct Tensor {
        dims: Vec<i64> = 1,
        data_type: i32 = 2,
        floats: Vec<u8> = 4,
        int32s: Vec<u8> = 5,
        int64s: Vec<u8> = 7,
        name: String = 8,
        raw: Vec<u8> = 9,
        doubles: Vec<u8> = 10,
        /// Written, never read: the file that it names is nobody's business here.
        external: Vec<Entry> = 13,
        /// 1: the data are elsewhere.
        location: i32 = 14,
    }

    pub struct Entry {
        key: String = 1,
        value: String = 2,
    }

    pub struct ValueInfo {
        name: String = 1,
        kind: Option<ValueType> = 2,
        metadata: Vec<Entry> = 4,
    }

    pub struct ValueType {
        tensor: Option<TensorType> = 1,
    }

    pub struct TensorType {
        element: i32 = 1,
        shape: Option<TensorShape> = 2,
    }

    pub struct TensorShape {
        dims: Vec<Dimension> = 1,
    }

    pub struct Dimension {
        size: Option<i64> = 1,
        name: Option<String> = 2,
    }
}

impl Node {
    /// What an exporter says of it under a key of [`metadata`].
    pub fn said(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|entry| entry.key == key).map(|entry| &entry.value[..])
    }
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
