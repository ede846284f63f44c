//! Stages of a pipeline: consecutive blocks of a network.

use super::{Collective, Exchange, Layout, Share, ShareError};
use crate::base::precision::Precision;
use crate::net::network::{Input, Network, Node, SEQUENCE, ShapedNetwork, Source};

/// The stages of a share, blocks divided as evenly as they can be; the first has what comes before the blocks, the last what
/// comes after them. A stage hands on what its last layer makes: each GPU its part, which the next stage gathers.
pub(super) fn cut(whole: Share, layout: &Layout) -> Result<Vec<Share>, ShareError> {
    let stages = layout.pipeline as usize;
    if stages == 1 {
        return Ok(vec![whole]);
    }
    let (network, starts) = (&whole.network, blocks(&whole.network));
    if starts.len() < stages {
        let (network, blocks) = (network.name.clone(), starts.len());
        return Err(ShareError::Stages { network, blocks, stages: layout.pipeline });
    }
    let mut ends: Vec<usize> = (1..stages).map(|stage| starts[stage * starts.len() / stages]).collect();
    ends.push(network.nodes.len());
    let shaped = ShapedNetwork::new(network, 1, Precision::Bf16, &[])?;
    let mut from = 0;
    let stage = |end: usize| {
        let range = std::mem::replace(&mut from, end)..end;
        let mut exchanges: Vec<Exchange> =
            whole.exchanges.iter().filter(|e| range.contains(&e.layer)).copied().collect();
        if end < network.nodes.len() {
            let values = shaped.layers()[end - 1].output.elements();
            let each = values.div_ceil(layout.tensor);
            exchanges.push(Exchange { layer: end - 1, kind: Collective::Send, gpus: 2, values: each });
            if layout.tensor > 1 {
                let (kind, gpus) = (Collective::AllGather, layout.tensor);
                exchanges.push(Exchange { layer: end - 1, kind, gpus, values });
            }
        }
        exchanges.iter_mut().for_each(|exchange| exchange.layer -= range.start);
        let network = part(network, &shaped, range.start, end);
        Share { network, exchanges }
    };
    Ok(ends.into_iter().map(stage).collect())
}

/// Layers `start` to `end`, the first of which reads what the layer before it made.
fn part(network: &Network, shaped: &ShapedNetwork, start: usize, end: usize) -> Network {
    let moved = |source: &Source| match *source {
        Source::Node(i) if i >= start => Source::Node(i - start),
        Source::Node(_) => Source::Input(0),
        input => input,
    };
    let node = |node: &Node| Node {
        from: node.from.iter().map(moved).collect(),
        // Of parameters that lie in another stage it has a copy.
        tied: node.tied.and_then(|i| i.checked_sub(start)),
        ..node.clone()
    };
    let inputs = match start.checked_sub(1) {
        None => network.inputs.clone(),
        Some(before) => {
            let shape = shaped.layers()[before].output;
            let symbols = shape.dims().iter().enumerate().map(|(i, _)| (i == 0).then(|| SEQUENCE.to_string()));
            vec![Input { name: "hidden".into(), shape, symbols: symbols.collect(), integer: false }]
        }
    };
    Network { inputs, nodes: network.nodes[start..end].iter().map(node).collect(), ..network.clone() }
}

/// First layers of blocks: behind a layer whose result is all that is still read, up to such a one behind which attention
/// follows again.
fn blocks(network: &Network) -> Vec<usize> {
    let mut last_read = vec![0; network.nodes.len()];
    let mut input_read = 0;
    for (i, node) in network.nodes.iter().enumerate() {
        for source in node.from.iter() {
            match *source {
                Source::Node(k) => last_read[k] = i,
                Source::Input(_) => input_read = i,
            }
        }
    }
    // `reach`: until where results of layers before this one are read.
    let (mut starts, mut start, mut reach) = (Vec::new(), 0, input_read);
    for (i, node) in network.nodes.iter().enumerate() {
        if node.layer.causal().is_some() && starts.last() != Some(&start) {
            starts.push(start);
        }
        if reach <= i {
            start = i + 1;
        }
        reach = reach.max(last_read[i]);
    }
    starts
}
