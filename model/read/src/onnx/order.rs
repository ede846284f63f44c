//! An order in which every operator finds what it reads.

use super::OnnxError;
use super::wire::Node;
use joulecast_model::base::text::shown;
use std::collections::HashMap;

/// Position of a tensor in the graph's values.
pub type Id = usize;

/// Positions of the nodes such that each comes after those whose results it reads.
pub fn order(nodes: &[Node], known: &HashMap<&str, Id>) -> Result<Vec<usize>, OnnxError> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (position, node) in nodes.iter().enumerate() {
        for name in node.outputs.iter().filter(|n| !n.is_empty()) {
            if known.contains_key(&name[..]) || makers.insert(name, position).is_some() {
                return Err(OnnxError::Format(format!("tensor {} is made twice", shown(name))));
            }
        }
    }
    let mut waiting: Vec<usize> = vec![0; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (position, node) in nodes.iter().enumerate() {
        let mut inner = Vec::new();
        captured(node, &mut inner);
        for name in node.inputs.iter().filter(|n| !n.is_empty() && !known.contains_key(&n[..])) {
            let maker = makers
                .get(&name[..])
                .ok_or_else(|| OnnxError::at(node, format!("it reads {}, which nothing makes", shown(name)).into()))?;
            readers[*maker].push(position);
            waiting[position] += 1;
        }
        for maker in inner.into_iter().filter_map(|name| makers.get(name)).filter(|maker| **maker != position) {
            readers[*maker].push(position);
            waiting[position] += 1;
        }
    }
    // As in the file where that is an order, so that layers keep it.
    let mut ready: std::collections::BTreeSet<usize> = (0..nodes.len()).filter(|&i| waiting[i] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(next) = ready.pop_first() {
        order.push(next);
        for &reader in &readers[next] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    match (0..nodes.len()).find(|&i| waiting[i] > 0) {
        Some(stuck) => Err(OnnxError::at(&nodes[stuck], "it depends on its own result: the graph has a cycle".into())),
        None => Ok(order),
    }
}

/// What the branches of a node read, from inside or outside of them.
pub fn captured<'n>(node: &'n Node, names: &mut Vec<&'n str>) {
    for inner in node.attributes.iter().filter_map(|a| a.g.as_ref()) {
        names.extend(inner.outputs.iter().map(|o| &o.name[..]));
        for node in &inner.nodes {
            names.extend(node.inputs.iter().map(|n| &n[..]));
            captured(node, names);
        }
    }
}
