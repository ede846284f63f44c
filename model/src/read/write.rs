//! Networks as network files.

use crate::base::shape::Shape;
use crate::net::layer::Layer;
use crate::net::network::folded::{AFTER_BIAS, Folded};
use crate::net::network::{Derived, Input, Network, Node, Source};
use std::fmt::Write as _;
use toml::{Table, Value};

impl Network {
    /// The network as a file that [`Network::from_toml`] reads to the same network: a line per layer, blocks written
    /// out, fields that have their default left out.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("schema = \"network/1\"\n");
        let quoted = |s: &str| Value::from(s).to_string();
        let _ = writeln!(text, "name = {}\ntitle = {}", quoted(&self.name), quoted(&self.title));
        if !self.source.is_empty() {
            let _ = writeln!(text, "source = {}", quoted(&self.source));
        }
        if !self.aliases.is_empty() {
            let _ = writeln!(text, "aliases = {}", Value::from(self.aliases.clone()));
        }
        if !self.outputs.is_empty() {
            let names: Vec<&str> = self.outputs.iter().map(|&i| &self.nodes[i].name[..]).collect();
            let _ = writeln!(text, "outputs = {}", Value::from(names));
        }
        for note in &self.notes {
            let _ = writeln!(text, "# {}", note.replace(char::is_control, " "));
        }
        text.push_str("\nlayers = [\n");
        let mut previous = Source::Input(0);
        for (i, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(text, "  {},", self.line(node, previous));
            previous = Source::Node(i);
        }
        text.push_str("]\n");
        if !self.derived.is_empty() {
            text.push_str("\nderived = [\n");
            for derived in &self.derived {
                let _ = writeln!(text, "  {},", line_of(derived));
            }
            text.push_str("]\n");
        }
        text.push_str("\n[inputs]\n");
        for input in &self.inputs {
            let _ = writeln!(text, "{} = {}", Value::from(&input.name[..]), described(input));
        }
        let mut sizes = Table::new();
        for (size, name) in self.inputs.iter().flat_map(|i| i.shape.dims().iter().zip(&i.symbols)) {
            if let Some(name) = name {
                sizes.insert(name.clone(), Value::Integer(*size as i64));
            }
        }
        for (title, table) in [("dimensions", Some(sizes)), ("published", Table::try_from(&self.published).ok())] {
            if let Some(table) = table.filter(|t| !t.is_empty()) {
                let _ = write!(text, "\n[{title}]\n{table}");
            }
        }
        text
    }

    /// A layer as one line.
    fn line(&self, node: &Node, previous: Source) -> Value {
        let mut line = Table::new();
        line.insert("name".into(), Value::from(&node.name[..]));
        line.insert("kind".into(), Value::from(node.layer.kind()));
        line.extend(fields(&node.layer));
        let named = |source: &Source| match *source {
            Source::Input(i) => Value::from(&self.inputs[i].name[..]),
            Source::Node(i) => Value::from(&self.nodes[i].name[..]),
        };
        match &node.from[..] {
            [only] if *only == previous => {}
            [only] => drop(line.insert("from".into(), named(only))),
            several => drop(line.insert("from".into(), Value::Array(several.iter().map(named).collect()))),
        }
        if let Some(other) = node.tied {
            line.insert("tied".into(), Value::from(&self.nodes[other].name[..]));
        }
        match node.folded {
            Folded::No => {}
            Folded::Norm => drop(line.insert("folded".into(), Value::from(true))),
            Folded::NormAfterBias => drop(line.insert("folded".into(), Value::from(AFTER_BIAS))),
        }
        Value::Table(line)
    }
}

/// What is computed of learned values alone, as one line.
fn line_of(derived: &Derived) -> Value {
    let mut line = Table::new();
    line.insert("name".into(), Value::from(&derived.name[..]));
    line.insert("kind".into(), Value::from(derived.case.layer.kind()));
    let dims = |shape: &Shape| Value::Array(shape.dims().iter().map(|&d| Value::Integer(d as i64)).collect());
    line.insert("inputs".into(), Value::Array(derived.case.inputs.iter().map(dims).collect()));
    line.extend(fields(&derived.case.layer));
    if !derived.wants_gradient {
        line.insert("wants_gradient".into(), Value::from(false));
    }
    Value::Table(line)
}

fn described(input: &Input) -> Value {
    let dims = input.shape.dims().iter().zip(&input.symbols);
    let dims = dims.map(|(&size, name)| name.as_ref().map_or(Value::Integer(size as i64), |n| Value::from(&n[..])));
    let mut table = Table::new();
    table.insert("shape".into(), Value::Array(dims.collect()));
    if input.integer {
        table.insert("dtype".into(), Value::from("int"));
    }
    Value::Table(table)
}

/// The fields of a layer's line besides its kind: those without which the line would be read as another layer.
fn fields(layer: &Layer) -> Table {
    let mut fields = Table::try_from(layer).unwrap_or_default();
    for implied in ["kind", "op", "function", "cell"] {
        fields.remove(implied);
    }
    let is_layer =
        |fields: &Table| matches!(Layer::from_table(layer.kind(), fields.clone()), Some(Ok(l)) if l == *layer);
    for name in fields.keys().cloned().collect::<Vec<_>>() {
        let mut fewer = fields.clone();
        fewer.remove(&name);
        if is_layer(&fewer) {
            fields = fewer;
        }
    }
    // Sizes that are the same in both directions are one number.
    for name in fields.keys().cloned().collect::<Vec<_>>() {
        if let Some(Value::Array(pair)) = fields.get(&name)
            && let [a, b] = &pair[..]
            && a == b
        {
            let mut shorter = fields.clone();
            shorter.insert(name, a.clone());
            if is_layer(&shorter) {
                fields = shorter;
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn every_network_of_the_zoo_is_read_back_as_it_was() {
        for name in catalog::network_names() {
            let network = catalog::network(name).expect(name);
            let text = network.to_toml();
            let again = Network::from_toml(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(again, network, "{name}");
        }
    }

    #[test]
    fn names_and_notes_cannot_break_out_of_their_line() {
        let mut network = catalog::network("lenet5").expect("there");
        network.title = "a\"\nschema = \"x\"".to_string();
        network.notes = vec!["one\nlayers = []".to_string()];
        let again = Network::from_toml(&network.to_toml()).expect("readable");
        assert_eq!((&again.title[..], again.nodes.len()), ("a\" schema = \"x\"", network.nodes.len()));
    }
}
