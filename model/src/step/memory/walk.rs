//! A step as a framework's allocator sees it: a walk over its forward and backward pass with every buffer's life.

use super::modules::Held;
use super::{Activations, InPlace, MemoryPolicy, nodes_by_input, passes_on, workspace};
use crate::base::precision::{Mode, Phase, Precision};
use crate::law::choice::Choice;
use crate::net::layer::{Layer, Overwrites, PoolOp, Reads};
use crate::net::network::{ShapedLayer, ShapedNetwork, Source};
use crate::step::autocast::Mixed;

/// Width of an element of dropout's mask.
pub(super) const MASK: u64 = 1;

/// Bytes in use.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    pub activations: u64,
    pub gradients: u64,
    pub workspace: u64,
}

impl Use {
    fn total(&self) -> u64 {
        self.activations.saturating_add(self.gradients).saturating_add(self.workspace)
    }
}

/// A buffer, and how many still want it.
#[derive(Clone, Copy)]
struct Buffer {
    bytes: u64,
    holders: usize,
}

/// The walk.
pub(super) struct Walk<'a> {
    network: &'a ShapedNetwork,
    mode: Mode,
    training: bool,
    policy: &'a MemoryPolicy,
    /// Which engines convolutions run, where that is known.
    choices: &'a [Choice],
    /// What runs in which precision, where that is mixed.
    mixed: Option<Mixed>,
    /// Converted copies of inputs that a layer keeps for its backward pass.
    copies: Vec<Vec<usize>>,
    /// Which buffer a layer's result lies in.
    lies_in: Vec<Option<usize>>,
    buffers: Vec<Buffer>,
    now: Use,
    peak: Use,
}

impl<'a> Walk<'a> {
    /// Of a step of the network under a policy other than [`Activations::Arena`].
    pub fn new(network: &'a ShapedNetwork, mode: Mode, policy: &'a MemoryPolicy, choices: &'a [Choice]) -> Self {
        Self {
            network,
            mode,
            training: mode == Mode::Training,
            policy,
            choices: if policy.algorithm.is_some() { &[] } else { choices },
            mixed: policy.mixed(network, mode),
            copies: Vec::new(),
            lies_in: Vec::new(),
            buffers: Vec::new(),
            now: Use::default(),
            peak: Use::default(),
        }
    }

    /// Bytes of so many elements a sample.
    fn bytes_in(&self, precision: Precision, elements: u64) -> u64 {
        elements.saturating_mul(self.network.batch()).saturating_mul(precision.result_bytes())
    }

    /// What a layer's result, and its gradient, have.
    fn result(&self, layer: usize) -> Precision {
        self.mixed.as_ref().map_or(self.network.precision(), |m| m.result(layer))
    }

    fn autocasts(&self) -> bool {
        self.mixed.as_ref().is_some_and(Mixed::autocasts)
    }

    /// Whether a layer makes no converted copy.
    fn views(&self, layer: usize) -> bool {
        self.mixed.as_ref().is_none_or(|m| m.views(layer))
    }

    /// Whether a layer reads a converted copy of an input.
    fn copies(&self, layer: usize, input: usize) -> bool {
        self.mixed.as_ref().is_some_and(|m| m.copies(layer, input))
    }

    /// Bytes in use when most are; gradients of parameters have `gradient_width` bytes each.
    pub fn peak(mut self, gradient_width: u64) -> Use {
        let inputs: u64 = self.network.inputs().iter().map(|s| s.elements()).sum();
        let precision = if self.autocasts() { Precision::Fp32 } else { self.network.precision() };
        self.now.activations = self.bytes_in(precision, inputs);
        if self.training {
            // What is computed of weights is kept for the layers' backward pass.
            let derived = self.network.derived().iter().map(|layer| layer.output.elements());
            let bytes = derived.fold(0u64, u64::saturating_add).saturating_mul(precision.result_bytes());
            self.now.activations = self.now.activations.saturating_add(bytes);
        }
        self.forward();
        if self.training && self.policy.activations != Activations::Mirrored {
            self.backward(gradient_width);
        } else if self.training {
            // Gradients beside all results, and of all parameters.
            self.now.activations = self.now.activations.saturating_mul(2);
            self.now.gradients = self.network.parameters().saturating_mul(gradient_width);
            self.note(0);
        }
        self.peak
    }

    fn note(&mut self, workspace: u64) {
        let now = Use { workspace, ..self.now };
        if now.total() > self.peak.total() {
            self.peak = now;
        }
    }

    /// The largest workspace of a layer's kernels in some phases.
    fn workspace(&self, i: usize, layer: &ShapedLayer, phases: &[Phase]) -> u64 {
        if !matches!(layer.case.layer, Layer::Conv2d(_)) {
            return 0;
        }
        let precision = self.mixed.as_ref().map_or(self.network.precision(), |m| m.works(i));
        let of = |phase: &Phase| workspace(self.network, layer, *phase, precision, self.mode, self.choices);
        phases.iter().map(of).max().unwrap_or(0)
    }

    fn keep(&mut self, bytes: u64, holders: usize) -> usize {
        self.now.activations = self.now.activations.saturating_add(bytes);
        self.buffers.push(Buffer { bytes, holders });
        self.buffers.len() - 1
    }

    fn release(&mut self, buffer: usize) {
        let held = &mut self.buffers[buffer];
        held.holders = held.holders.saturating_sub(1);
        if held.holders == 0 {
            self.now.activations = self.now.activations.saturating_sub(held.bytes);
            held.bytes = 0;
        }
    }

    fn forward(&mut self) {
        let layers = self.network.layers();
        let mut held = match self.policy.modules_hold_input {
            true => Held::inputs(layers),
            false => Held::none(layers),
        };
        let mut readers = vec![0usize; layers.len()];
        for source in layers.iter().flat_map(|l| l.from.iter()) {
            if let Source::Node(k) = source {
                readers[*k] += 1;
            }
        }
        for (i, layer) in layers.iter().enumerate() {
            let first = match layer.from.first() {
                Some(Source::Node(k)) => self.lies_in[*k].map(|b| (*k, b)),
                _ => None,
            };
            // The last layer's result is the caller's.
            let mut holders = readers[i].max(1) + usize::from(self.policy.activations == Activations::Mirrored);
            if self.training && self.reads(&layer.case.layer).output {
                holders += 1;
            }
            holders += usize::from(held.holds[i]);
            match first {
                Some((k, b)) if self.views(i) && self.reuses(&layer.case.layer, &layers[k].case.layer, readers[k]) => {
                    self.buffers[b].holders += holders;
                    self.lies_in.push(Some(b));
                }
                _ => {
                    let bytes = self.bytes_in(self.result(i), layer.output.elements());
                    let buffer = self.keep(bytes, holders);
                    self.lies_in.push(Some(buffer));
                }
            }
            let beside = self.beside(layer);
            self.now.activations = self.now.activations.saturating_add(beside);
            let copied = layer.case.inputs.iter().enumerate().filter(|(j, _)| self.copies(i, *j));
            let works = self.mixed.as_ref().map_or(self.network.precision(), |m| m.works(i));
            let copied: Vec<u64> = copied.map(|(_, shape)| self.bytes_in(works, shape.elements())).collect();
            let copied: Vec<usize> = copied.into_iter().map(|bytes| self.keep(bytes, 1)).collect();
            self.note(self.workspace(i, layer, &[Phase::Forward]));
            let kept = self.training && self.reads(&layer.case.layer).inputs;
            if !kept {
                copied.iter().for_each(|copy| self.release(*copy));
            }
            self.copies.push(if kept { copied } else { Vec::new() });
            if !self.training {
                self.now.activations = self.now.activations.saturating_sub(beside);
            }
            for (j, k) in nodes_by_input(layer) {
                if let Some(b) = self.lies_in[k] {
                    // Kept for backward by one more holder, unless a copy is.
                    if !kept || self.copies(i, j) {
                        self.release(b);
                    }
                }
            }
            for k in std::mem::take(&mut held.until[i]) {
                if let Some(b) = self.lies_in[k] {
                    self.release(b);
                }
            }
        }
    }

    /// What the backward pass of a layer reads.
    fn reads(&self, layer: &Layer) -> Reads {
        layer.saved().by_framework(self.policy.clipped_in_place, self.policy.pooling_index.is_some())
    }

    /// Whether a layer's result lies where its input did.
    fn reuses(&self, layer: &Layer, maker: &Layer, readers: usize) -> bool {
        let overwrites = match layer.row().overwrites {
            Overwrites::Never | Overwrites::OurRunner => false,
            Overwrites::Activations => !self.training || !self.reads(layer).inputs,
            Overwrites::Elementwise => self.policy.in_place == InPlace::Elementwise,
        };
        let free = readers == 1 && !(self.training && self.reads(maker).output);
        layer.is_view(self.mode) || overwrites && free
    }

    /// What a layer makes beside its result, and keeps for backward.
    fn beside(&self, layer: &ShapedLayer) -> u64 {
        let elements = |n: u64, width: u64| n.saturating_mul(self.network.batch()).saturating_mul(width);
        match (&layer.case.layer, self.policy.pooling_index) {
            (Layer::Dropout(_), _) if self.training => elements(layer.output.elements(), MASK),
            (Layer::Pool2d(p), Some(width)) if p.op == PoolOp::Max => elements(layer.output.elements(), width),
            // The probabilities in 32 bits and their copy in 16, instead of two of 16.
            (Layer::Attention(_), _) if self.autocasts() => super::scores(self.network, layer) / 2 * 3,
            (Layer::Attention(_), _) => super::scores(self.network, layer),
            _ => super::between(self.network, layer),
        }
    }

    fn backward(&mut self, width: u64) {
        let layers = self.network.layers();
        let mut gradients: Vec<Option<usize>> = vec![None; layers.len()];
        for (i, layer) in layers.iter().enumerate().rev() {
            let gradient = match gradients[i].take() {
                Some(buffer) => buffer,
                None => self.keep(self.bytes_in(self.result(i), layer.output.elements()), 1),
            };
            let learned = layer.parameters().saturating_mul(width);
            self.now.gradients = self.now.gradients.saturating_add(learned);
            let passes_on = passes_on(self.network, layer);
            let mut made: Vec<(usize, usize)> = Vec::new();
            for (k, shape) in layer.from.iter().zip(&layer.case.inputs).filter_map(|(s, shape)| match s {
                Source::Node(k) => Some((*k, shape)),
                Source::Input(_) => None,
            }) {
                let buffer = if passes_on && self.result(k) == self.result(i) {
                    self.buffers[gradient].holders += 1;
                    gradient
                } else {
                    self.keep(self.bytes_in(self.result(k), shape.elements()), 1)
                };
                made.push((k, buffer));
            }
            self.note(self.workspace(i, layer, &[Phase::BackwardData, Phase::BackwardWeights]));
            for (k, buffer) in made {
                gradients[k] = Some(match gradients[k] {
                    // A gradient that nothing else holds is added to where it lies.
                    Some(before) if self.buffers[before].holders == 1 => {
                        self.release(buffer);
                        before
                    }
                    Some(before) => {
                        let sum = self.keep(self.buffers[before].bytes, 1);
                        self.note(0);
                        self.release(before);
                        self.release(buffer);
                        sum
                    }
                    None => buffer,
                });
            }
            self.release(gradient);
            self.forget(i, layer);
        }
        self.note(0);
    }

    /// A layer's backward is done: what it kept goes.
    fn forget(&mut self, i: usize, layer: &ShapedLayer) {
        self.now.activations = self.now.activations.saturating_sub(self.beside(layer));
        if self.reads(&layer.case.layer).inputs {
            for (j, k) in nodes_by_input(layer) {
                if let Some(b) = self.lies_in[k].filter(|_| !self.copies(i, j)) {
                    self.release(b);
                }
            }
        }
        for copy in std::mem::take(&mut self.copies[i]) {
            self.release(copy);
        }
        if self.reads(&layer.case.layer).output
            && let Some(b) = self.lies_in[i]
        {
            self.release(b);
        }
    }
}
