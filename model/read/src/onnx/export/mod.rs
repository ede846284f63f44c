//! Networks as ONNX files.
//!
//! The structure is complete; weights have names, types and shapes, and point to a file `weights.bin` that is not
//! written, so that files stay small. Views are written as the operators that change shapes or orders; what order the
//! elements of a copy end up in is not part of a network here, so a copy becomes a transposition of as many elements.

mod layers;
mod sequences;
mod site;

use super::wire::{
    Attribute, Dimension, Entry, Graph, Model, Node, Opset, Tensor, TensorShape, TensorType, ValueInfo, ValueType,
    element,
};
use joulecast_model::base::shape::{Shape, product};
use joulecast_model::net::layer::LayerOp;
use joulecast_model::net::network::{Network, NetworkError, Source};
use prost::Message as _;
use site::Site;

/// The last operator set without attention, and the first one with it.
const OPSETS: [i64; 2] = [20, 23];

/// Writes a network as an ONNX file, its batch open.
///
/// # Errors
/// Names the layer that no operator computes, or that does not fit.
pub fn write(network: &Network) -> Result<Vec<u8>, NetworkError> {
    let mut writer = Writer { network, graph: Graph::default(), shapes: vec![], modern: false, external: 0 };
    for input in &network.inputs {
        let element = if input.integer { element::INT64 } else { element::FLOAT };
        writer.graph.inputs.push(value(&input.name, element, Some(&input.shape)));
    }
    for position in 0..network.nodes.len() {
        writer.layer(position)?;
    }
    let outputs = network.outputs.iter().copied().chain([network.nodes.len() - 1]);
    for output in outputs {
        let info = value(&network.nodes[output].name, element::FLOAT, Some(&writer.shapes[output]));
        writer.graph.outputs.push(info);
    }
    writer.graph.name = network.name.clone();
    let version = if writer.modern { OPSETS[1] } else { OPSETS[0] };
    let model = Model {
        ir_version: 9,
        producer: "joulecast".into(),
        graph: Some(writer.graph),
        opsets: vec![Opset { domain: String::new(), version }],
    };
    Ok(model.encode_to_vec())
}

fn value(name: &str, element: i32, shape: Option<&Shape>) -> ValueInfo {
    let batch = Dimension { size: None, name: Some("batch".into()) };
    let fixed = |d: &u64| Dimension { size: Some(*d as i64), name: None };
    let dims = std::iter::once(batch).chain(shape.into_iter().flat_map(|s| s.dims()).map(fixed)).collect();
    let tensor = TensorType { element, shape: Some(TensorShape { dims }) };
    ValueInfo { name: name.to_string(), kind: Some(ValueType { tensor: Some(tensor) }), ..ValueInfo::default() }
}

struct Writer<'n> {
    network: &'n Network,
    graph: Graph,
    /// Shapes of the layers' results.
    shapes: Vec<Shape>,
    /// Whether an operator is used that the older operator set does not have.
    modern: bool,
    /// Bytes of weights so far.
    external: u64,
}

/// An attribute's value.
enum Value<'v> {
    Int(i64),
    Ints(&'v [i64]),
    Real(f32),
    Word(&'v str),
}
use Value::{Int, Ints, Real, Word};

impl Writer<'_> {
    fn name_of(&self, source: Source) -> String {
        match source {
            Source::Input(i) => self.network.inputs[i].name.clone(),
            Source::Node(i) => self.network.nodes[i].name.to_string(),
        }
    }

    fn layer(&mut self, position: usize) -> Result<(), NetworkError> {
        let node = &self.network.nodes[position];
        let at = |why: String| NetworkError::Layer { name: node.name.to_string(), why };
        let read: Vec<Shape> = node
            .from
            .iter()
            .map(|source| match *source {
                Source::Input(i) => self.network.inputs[i].shape,
                Source::Node(i) => self.shapes[i],
            })
            .collect();
        let output = node.layer.output(&read).map_err(|e| at(e.to_string()))?;
        self.shapes.push(output);
        let from: Vec<String> = node.from.iter().map(|source| self.name_of(*source)).collect();
        let weights = node.tied.map_or_else(|| node.name.clone(), |owner| self.network.nodes[owner].name.clone());
        let site = Site { name: &node.name, weights: &weights, tied: node.tied.is_some(), from, read, output };
        self.translate(&node.layer, &site).map_err(at)
    }

    /// Appends an operator; it is called as what it makes.
    fn node(&mut self, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, Value<'_>)]) {
        self.node_of_many(op, inputs, &[output], attributes);
    }

    fn node_of_many(&mut self, op: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, Value<'_>)]) {
        let attributes = attributes.iter().map(|(name, value)| {
            let mut attribute = Attribute { name: name.to_string(), ..Attribute::default() };
            match *value {
                Int(i) => (attribute.i, attribute.kind) = (i, 2),
                Ints(ints) => (attribute.ints, attribute.kind) = (ints.to_vec(), 7),
                Real(f) => (attribute.f, attribute.kind) = (f, 1),
                Word(word) => (attribute.s, attribute.kind) = (word.as_bytes().to_vec(), 3),
            }
            attribute
        });
        self.graph.nodes.push(Node {
            name: outputs[0].to_string(),
            op: op.to_string(),
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            outputs: outputs.iter().map(|s| s.to_string()).collect(),
            attributes: attributes.collect(),
            ..Node::default()
        });
    }

    /// Learned values, elsewhere.
    fn weight(&mut self, name: &str, dims: &[u64]) -> String {
        let length = product(dims).saturating_mul(4);
        let entry = |key: &str, value: String| Entry { key: key.into(), value };
        self.graph.initializers.push(Tensor {
            name: name.to_string(),
            data_type: element::FLOAT,
            dims: dims.iter().map(|&d| d as i64).collect(),
            external: vec![
                entry("location", "weights.bin".into()),
                entry("offset", self.external.to_string()),
                entry("length", length.to_string()),
            ],
            location: 1,
            ..Tensor::default()
        });
        self.external = self.external.saturating_add(length);
        name.to_string()
    }

    /// A list of integers, such as a shape.
    fn integers(&mut self, name: &str, values: &[i64]) -> String {
        self.graph.initializers.push(Tensor {
            name: name.to_string(),
            data_type: element::INT64,
            dims: vec![values.len() as i64],
            raw: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            ..Tensor::default()
        });
        name.to_string()
    }

    /// A single number.
    fn number(&mut self, name: &str, value: f32) -> String {
        self.graph.initializers.push(Tensor {
            name: name.to_string(),
            data_type: element::FLOAT,
            raw: value.to_le_bytes().to_vec(),
            ..Tensor::default()
        });
        name.to_string()
    }

    /// Another view of a tensor, one sample after another.
    fn reshape(&mut self, input: &str, dims: &[u64], output: &str) {
        let mut target: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        target.insert(0, -1);
        let target = self.integers(&format!("{output}.shape"), &target);
        self.node("Reshape", &[input, &target], output, &[]);
    }
}
