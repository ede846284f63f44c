//! Which results modules hold: their callers' variables keep a module's input until all of it has run.

use super::nodes;
use crate::base::precision::Mode;
use crate::net::network::ShapedLayer;
use std::collections::HashMap;

/// Results that modules hold.
pub(super) struct Held {
    /// Per layer: whether its result is held.
    pub holds: Vec<bool>,
    /// Per layer: whose results are let go once it has run.
    pub until: Vec<Vec<usize>>,
}

impl Held {
    /// Of layers whose modules hold nothing.
    pub fn none(layers: &[ShapedLayer]) -> Self {
        Self { holds: vec![false; layers.len()], until: vec![Vec::new(); layers.len()] }
    }

    /// Of layers whose modules hold their inputs.
    pub fn inputs(layers: &[ShapedLayer]) -> Self {
        let mut held = Self::none(layers);
        let calls = Calls::of(layers);
        let mut until: Vec<Option<usize>> = vec![None; layers.len()];
        for (i, layer) in layers.iter().enumerate() {
            for k in nodes(layer) {
                let end = calls.of_layer[i].iter().map(|&c| calls.spans[c]).filter(|(start, _)| k < *start);
                until[k] = until[k].max(end.map(|(_, end)| end).max());
            }
        }
        for (k, end) in until.into_iter().enumerate() {
            if let Some(end) = end {
                held.holds[k] = true;
                held.until[end].push(k);
            }
        }
        held
    }
}

/// The modules that a layer is in, from the outermost, by the dots in its name.
fn modules(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(at, _)| &name[..at])
}

/// Calls of modules: layers of a module one after the other, first and last. A module may be called again later, as a
/// rectifier that a block has one of is; views in both modes, which run nothing, end no call.
struct Calls {
    spans: Vec<(usize, usize)>,
    /// Per layer the calls that it is part of.
    of_layer: Vec<Vec<usize>>,
}

impl Calls {
    fn of(layers: &[ShapedLayer]) -> Self {
        let mut calls = Self { spans: Vec::new(), of_layer: Vec::with_capacity(layers.len()) };
        let mut open: HashMap<&str, usize> = HashMap::new();
        for (i, layer) in layers.iter().enumerate() {
            if layer.case.layer.is_view(Mode::Training) {
                calls.of_layer.push(modules(&layer.name).filter_map(|m| open.get(m).copied()).collect());
            } else {
                let mut now = HashMap::new();
                for module in modules(&layer.name) {
                    let call = open.get(module).copied().unwrap_or_else(|| {
                        calls.spans.push((i, i));
                        calls.spans.len() - 1
                    });
                    now.insert(module, call);
                }
                calls.of_layer.push(now.values().copied().collect());
                open = now;
            }
            for &call in &calls.of_layer[i] {
                calls.spans[call].1 = i;
            }
        }
        calls
    }
}
