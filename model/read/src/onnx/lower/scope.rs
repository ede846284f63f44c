//! Which modules of a model an operator is in: dots in the names of layers say it, whichever exporter named the operator.

use crate::onnx::graph::label;
use crate::onnx::wire::{Node, metadata};

/// What to call the layer of an operator: the modules that it is in, from the outermost, and its own name, with dots between.
///
/// PyTorch's exporter lists the modules (`['', 'layer1', 'layer1.0', 'add_2']`: `layer1.0.add_2`), TorchScript's writes them
/// into the name (`/layer1/layer1.0/Add`: `layer1.0.Add`). Of other exporters nothing is known, and the name stays.
pub(super) fn path(node: &Node) -> String {
    of_scopes(node).or_else(|| of_name(node)).unwrap_or_else(|| label(node))
}

/// The module that an operator is of, where it is the only one: what to call the layer of an operator whose weights have no
/// name of their own.
pub(super) fn module(node: &Node) -> Option<String> {
    let path = of_scopes(node).or_else(|| of_name(node))?;
    path.rsplit_once('.').map(|(module, _)| module.to_string())
}

/// The same, where the exporter lists the modules.
pub(super) fn said_module(node: &Node) -> Option<String> {
    of_scopes(node)?.rsplit_once('.').map(|(module, _)| module.to_string())
}

fn of_scopes(node: &Node) -> Option<String> {
    let list = node.said(metadata::SCOPES)?.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut scopes: Vec<&str> =
        list.split(',').map(|s| s.trim().trim_matches(['\'', '"'])).filter(|s| !s.is_empty()).collect();
    let own = scopes.pop()?;
    Some(scopes.last().map_or_else(|| own.to_string(), |module| format!("{module}.{own}")))
}

fn of_name(node: &Node) -> Option<String> {
    let mut path: Vec<&str> = Vec::new();
    for part in node.name.strip_prefix('/')?.split('/') {
        // Modules of a sequence are called as the sequence and their number.
        match path.last() {
            Some(last) if part.strip_prefix(*last).is_some_and(|rest| rest.starts_with('.')) => {
                path.pop();
            }
            _ => {}
        }
        path.push(part);
    }
    Some(path.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::wire::Entry;

    #[test]
    fn both_exporters_name_the_same_modules() {
        let named = |name: &str| path(&Node { name: name.into(), ..Node::default() });
        assert_eq!(named("/features/features.0/features.0.0/Conv"), "features.0.0.Conv");
        assert_eq!(named("/encoder/layers/layer_0/mlp/mlp.1/Mul_1"), "encoder.layers.layer_0.mlp.1.Mul_1");
        assert_eq!(named("/layers.1/layers.10/Add"), "layers.1.layers.10.Add");
        assert_eq!(named("model/conv/Conv2D"), "model/conv/Conv2D");
        let said = |scopes: &str| {
            let metadata = vec![Entry { key: metadata::SCOPES.into(), value: scopes.into() }];
            path(&Node { name: "node_add_2".into(), metadata, ..Node::default() })
        };
        assert_eq!(said("['', 'layer1', 'layer1.0', 'add_2']"), "layer1.0.add_2");
        assert_eq!(said("['', 'flatten']"), "flatten");
        assert_eq!(said("nonsense"), "node_add_2");
        assert_eq!(said("[]"), "node_add_2");
    }
}
