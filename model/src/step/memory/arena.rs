//! Memory of our own runner (`calibrate measure`): an arena that only grows, over which buffers are taken and given back
//! without joining what is free. The same steps as in `kernels/src/cuda/network.rs`.

use super::{FP32, Use, nodes, transforms};
use crate::base::precision::{Mode, Phase};
use crate::net::layer::{Function, Layer};
use crate::net::network::{ShapedLayer, ShapedNetwork, Source};

/// Buffers begin at multiples of this many bytes.
const ALIGNMENT: u64 = 512;

#[derive(Default)]
struct Arena {
    used: u64,
    free: Vec<u64>,
}

impl Arena {
    fn grow(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes.next_multiple_of(ALIGNMENT));
    }

    /// The smallest that is free and large enough, cut to size; else new.
    fn take(&mut self, bytes: u64) {
        let fitting = self.free.iter().enumerate().filter(|(_, size)| **size >= bytes);
        match fitting.min_by_key(|(_, size)| **size).map(|(i, _)| i) {
            Some(i) => {
                let size = self.free.swap_remove(i);
                let taken = bytes.next_multiple_of(ALIGNMENT);
                if size > taken {
                    self.free.push(size - taken);
                }
            }
            None => self.grow(bytes),
        }
    }

    fn give(&mut self, bytes: u64) {
        self.free.push(bytes.next_multiple_of(ALIGNMENT));
    }
}

/// A gradient, and whether it lives in one place only.
#[derive(Clone, Copy)]
struct Gradient {
    bytes: u64,
    alone: bool,
}

/// A buffer of a result, and how many have yet to read it.
#[derive(Clone, Copy)]
struct Buffer {
    bytes: u64,
    readers: usize,
}

struct Walk<'a> {
    network: &'a ShapedNetwork,
    mode: Mode,
    arena: Arena,
}

/// What a step takes, without parameters and their optimizer state; one workspace serves all layers.
pub(super) fn used(network: &ShapedNetwork, mode: Mode, gradient_width: u64) -> Use {
    let mut walk = Walk { network, mode, arena: Arena::default() };
    walk.forward();
    if mode == Mode::Training {
        walk.backward();
    }
    let gradients = if mode == Mode::Training { network.parameters().saturating_mul(gradient_width) } else { 0 };
    let workspace = network.layers().iter().map(|l| transforms(network, l)).max().unwrap_or(0);
    Use { activations: walk.arena.used, gradients, workspace }
}

fn is_view(layer: &Layer, mode: Mode) -> bool {
    layer.is_view() || (matches!(layer, Layer::Dropout(_)) && mode == Mode::Inference)
}

/// Whether our runner lets an activation overwrite its input: its own backward must not need the input, and the backward
/// of the layer that made the input must not need that layer's output. `maker`: that layer; none made the network's inputs.
pub fn overwrites(layer: &Layer, maker: Option<&Layer>, mode: Mode) -> bool {
    let Layer::Activation(activation) = layer else { return false };
    let keeps_no_input =
        matches!(activation.function, Function::Relu | Function::Relu6 | Function::Sigmoid | Function::Tanh);
    let maker_keeps_no_output = matches!(
        maker,
        Some(
            Layer::Conv2d(_)
                | Layer::ConvTranspose2d(_)
                | Layer::Linear(_)
                | Layer::BatchNorm(_)
                | Layer::Add(_)
                | Layer::Scale(_)
        )
    );
    mode == Mode::Inference || (keeps_no_input && maker_keeps_no_output)
}

impl Walk<'_> {
    fn bytes(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.network.batch()).saturating_mul(self.network.precision().bytes())
    }

    fn forward(&mut self) {
        let training = self.mode == Mode::Training;
        let network = self.network;
        let layers = network.layers();
        for shape in network.inputs() {
            self.arena.grow(self.bytes(shape.elements()));
        }
        let mut readers = vec![0usize; layers.len()];
        for k in layers.iter().flat_map(nodes) {
            readers[k] += 1;
        }
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut holds: Vec<Option<usize>> = Vec::with_capacity(layers.len());
        for (i, layer) in layers.iter().enumerate() {
            let first = match layer.from.first() {
                Some(Source::Node(k)) => holds[*k].map(|b| (*k, b)),
                _ => None,
            };
            let reuses = first.filter(|(k, b)| {
                let alone = buffers[*b].readers == 1;
                is_view(&layer.case.layer, self.mode)
                    || (alone && overwrites(&layer.case.layer, Some(&layers[*k].case.layer), self.mode))
            });
            match reuses {
                Some((_, b)) => {
                    buffers[b].readers += readers[i];
                    holds.push(Some(b));
                }
                None => {
                    let bytes = self.bytes(layer.output.elements());
                    if training {
                        self.arena.grow(bytes)
                    } else {
                        self.arena.take(bytes)
                    }
                    buffers.push(Buffer { bytes, readers: readers[i] });
                    holds.push(Some(buffers.len() - 1));
                }
            }
            if training {
                self.keep_state(layer);
                continue;
            }
            for b in nodes(layer).filter_map(|k| holds[k]) {
                let buffer = &mut buffers[b];
                buffer.readers = buffer.readers.saturating_sub(1);
                if buffer.readers == 0 && buffer.bytes > 0 {
                    self.arena.give(std::mem::take(&mut buffer.bytes));
                }
            }
        }
    }

    /// What a layer's backward needs beside its input and result.
    fn keep_state(&mut self, layer: &ShapedLayer) {
        let elements = |n: u64, width: u64| n.saturating_mul(self.network.batch()).saturating_mul(width);
        let inputs: u64 = layer.case.inputs.iter().map(|s| s.elements()).sum();
        self.arena.grow(match &layer.case.layer {
            Layer::Dropout(_) => elements(inputs, 1),
            Layer::LocalResponseNorm(_) => elements(inputs, FP32),
            _ => 0,
        });
    }

    fn backward(&mut self) {
        let network = self.network;
        let layers = network.layers();
        let mut gradients: Vec<Option<Gradient>> = vec![None; layers.len()];
        for (i, layer) in layers.iter().enumerate().rev() {
            let gradient = gradients[i].take().unwrap_or_else(|| {
                let bytes = self.bytes(layer.output.elements());
                self.arena.take(bytes);
                Gradient { bytes, alone: true }
            });
            let mut kept = false;
            if is_view(&layer.case.layer, Mode::Training) || matches!(layer.case.layer, Layer::Add(_)) {
                for k in nodes(layer) {
                    kept = true;
                    self.contribute(Gradient { alone: false, ..gradient }, k, &mut gradients);
                }
            } else if network.cost(layer, Phase::BackwardData, Mode::Training).is_some() {
                let sizes: Vec<u64> = layer.case.inputs.iter().map(|s| self.bytes(s.elements())).collect();
                sizes.iter().for_each(|&bytes| self.arena.take(bytes));
                for (source, &bytes) in layer.from.iter().zip(&sizes) {
                    match source {
                        Source::Node(k) => self.contribute(Gradient { bytes, alone: true }, *k, &mut gradients),
                        Source::Input(_) => self.arena.give(bytes),
                    }
                }
            }
            if !kept && gradient.alone {
                self.arena.give(gradient.bytes);
            }
        }
    }

    /// Adds a gradient to that of a layer's result: a sum is a buffer of its own.
    fn contribute(&mut self, made: Gradient, target: usize, gradients: &mut [Option<Gradient>]) {
        let Some(before) = gradients[target] else {
            gradients[target] = Some(made);
            return;
        };
        self.arena.take(made.bytes);
        for old in [before, made].into_iter().filter(|g| g.alone) {
            self.arena.give(old.bytes);
        }
        gradients[target] = Some(Gradient { bytes: made.bytes, alone: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_used_again_and_cut_to_size() {
        let mut arena = Arena::default();
        arena.take(1000);
        assert_eq!(arena.used, 1024);
        arena.give(1000);
        arena.take(400);
        arena.take(500);
        assert_eq!((arena.used, arena.free.len()), (1024, 0));
        arena.give(400);
        arena.give(500);
        // Neighbours are not joined.
        arena.take(1000);
        assert_eq!(arena.used, 2048);
    }
}
