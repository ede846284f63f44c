//! What a step keeps in device memory.

use super::{ShapedNetwork, Source};
use crate::layer::{Layer, Optimizer};
use crate::precision::{Mode, Precision};
use crate::units::Bytes;

/// Device memory of a step, without cuDNN workspace, allocator slack and the framework's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFootprint {
    /// Parameters (with fp32 master copies in mixed-precision training).
    pub weights: Bytes,
    /// Gradients and optimizer state; none in inference.
    pub training_state: Bytes,
    /// Inference: the most that is alive at once. Training: everything kept for backward.
    pub activations: Bytes,
    /// Keys and values of attention that a language model keeps while it generates.
    pub cache: Bytes,
}

impl MemoryFootprint {
    /// Their sum.
    pub fn total(&self) -> Bytes {
        self.weights + self.training_state + self.activations + self.cache
    }
}

/// Memory of a step of the network.
pub fn footprint(network: &ShapedNetwork, mode: Mode) -> MemoryFootprint {
    let parameters = network.parameters();
    let width = network.precision().bytes();
    let master = match (mode, network.precision()) {
        (Mode::Training, Precision::Fp16 | Precision::Bf16) => 4,
        _ => 0,
    };
    let training_state = match mode {
        Mode::Inference => 0,
        Mode::Training => parameters * 4 * (1 + Optimizer::Momentum.state_per_parameter()),
    };
    let elements = match mode {
        Mode::Inference => peak_live_elements(network),
        Mode::Training => kept_elements(network),
    };
    let cached = network.layers().iter().map(|l| match &l.layer {
        Layer::Attention(attention) => attention.cache_elements(&l.inputs),
        _ => 0,
    });
    MemoryFootprint {
        cache: Bytes::new(cached.sum::<u64>() * network.batch() * width),
        weights: Bytes::new(parameters * (width + master)),
        training_state: Bytes::new(training_state),
        activations: Bytes::new(elements * network.batch() * width),
    }
}

/// Layers that run in place on their input, or are views of it.
fn reuses_input(layer: &Layer) -> bool {
    match layer {
        Layer::Activation(_) | Layer::Dropout(_) | Layer::Flatten(_) => true,
        Layer::Reshape(r) => !r.copy,
        Layer::Permute(p) => !p.copy,
        Layer::Slice(s) => !s.copy,
        _ => false,
    }
}

/// The most elements per sample alive at once when every tensor is freed after its last reader.
fn peak_live_elements(network: &ShapedNetwork) -> u64 {
    let layers = network.layers();
    let inputs: u64 = network.inputs().iter().map(|s| s.elements()).sum();
    // The buffer a layer's result lies in: that of the layer it reuses, or its own.
    let mut buffer: Vec<Option<usize>> = Vec::with_capacity(layers.len());
    for (i, layer) in layers.iter().enumerate() {
        buffer.push(match (reuses_input(&layer.layer), layer.from.first()) {
            (true, Some(Source::Node(j))) => buffer[*j],
            _ => Some(i),
        });
    }
    let mut last_use: Vec<usize> = (0..layers.len()).collect();
    for (i, layer) in layers.iter().enumerate() {
        for source in &layer.from {
            if let Source::Node(j) = source
                && let Some(b) = buffer[*j]
            {
                last_use[b] = last_use[b].max(i);
            }
        }
    }
    let mut freed_at: Vec<Vec<usize>> = vec![Vec::new(); layers.len()];
    for (b, &end) in last_use.iter().enumerate() {
        freed_at[end].push(b);
    }
    let owns = |i: usize| buffer[i] == Some(i);
    let (mut live, mut peak) = (inputs, inputs);
    for (i, freed) in freed_at.iter().enumerate() {
        if owns(i) {
            live += layers[i].output.elements();
        }
        peak = peak.max(live);
        live -= freed.iter().filter(|&&b| owns(b)).map(|&b| layers[b].output.elements()).sum::<u64>();
    }
    peak
}

/// Elements per sample kept for backward: the inputs and every result that is not in place or a view,
/// plus as much again as the largest for the gradient in flight.
fn kept_elements(network: &ShapedNetwork) -> u64 {
    let inputs: u64 = network.inputs().iter().map(|s| s.elements()).sum();
    let outputs = || network.layers().iter().filter(|l| !reuses_input(&l.layer)).map(|l| l.output.elements());
    inputs + outputs().sum::<u64>() + outputs().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;

    #[test]
    fn a_shortcut_keeps_its_tensor_alive() {
        let net = Network::from_toml(
            r#"
schema = "network/1"
name = "r"
title = "r"
layers = [
  { name = "a", kind = "conv2d", channels = 4, kernel = 1 },
  { name = "relu", kind = "relu" },
  { name = "b", kind = "conv2d", channels = 4, kernel = 1 },
  { name = "c", kind = "conv2d", channels = 4, kernel = 1 },
  { name = "sum", kind = "add", from = ["c", "relu"] },
]
inputs.x.shape = [1, 2, 2]
"#,
        )
        .expect("valid");
        let shaped = ShapedNetwork::new(&net, 1, Precision::Fp32, &[]).expect("fits");
        // At c: the input (4), relu's buffer (16), b (16) and c (16).
        assert_eq!(footprint(&shaped, Mode::Inference).activations.get(), 4 * (4 + 48));
        // Everything but relu, and the gradient in flight.
        assert_eq!(footprint(&shaped, Mode::Training).activations.get(), 4 * (4 + 4 * 16 + 16));
    }
}
