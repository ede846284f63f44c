//! Where our own runner (`calibrate measure`) puts the activations and gradients of a step: offsets into one block of memory,
//! known before anything runs. [`super::footprint`] sums the plan, `kernels::cuda` executes it.
//!
//! Inference reuses a buffer once its last reader has run, as a framework's allocator does. Training keeps every activation to
//! the end and reuses the buffers of gradients. What is given back is cut to size again, and not joined with its neighbours.

mod script;

pub(super) use script::Script;

use super::{nodes, passes_on};
use crate::base::precision::{Mode, Phase};
use crate::net::layer::{Layer, Overwrites};
use crate::net::network::{ShapedLayer, ShapedNetwork, Source};
use script::Turn;

/// Buffers begin at multiples of this many bytes.
const ALIGNMENT: u64 = 512;

/// Offsets in bytes of all activations and gradients of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferPlan {
    /// What all buffers take together.
    pub bytes: u64,
    /// Each input of the network.
    pub inputs: Vec<u64>,
    /// Each layer's result, in the order of layers.
    pub forward: Vec<Placed>,
    /// Each layer's gradients, from the last layer to the first; none in inference.
    pub backward: Vec<Gradients>,
}

/// Where a layer's result lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its offset; that of the first input where the result is that, seen otherwise, or overwrites it.
    pub output: u64,
    /// Whether a kernel writes it.
    pub runs: bool,
}

/// Where the gradients of a layer's backward pass lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gradients {
    /// Position of the layer.
    pub layer: usize,
    /// Of its result.
    pub output: u64,
    /// Whether that is the loss's to give, since no layer reads the result.
    pub given: bool,
    /// Of its inputs, all of them; empty where no kernel computes them.
    pub inputs: Vec<u64>,
    /// Sums of gradients of one tensor, which run after the layer's own kernels, in this order.
    pub sums: Vec<Sum>,
}

/// A sum of two gradients of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The two.
    pub terms: [u64; 2],
    /// Their sum.
    pub output: u64,
    /// Size of each of the three.
    pub bytes: u64,
}

/// A size in whole units of the alignment.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

/// Memory that only grows, over which buffers are taken and given back.
#[derive(Default)]
struct Pool {
    used: u64,
    /// Sizes and offsets.
    free: Vec<(u64, u64)>,
    /// Where somebody wants to know.
    noted: Option<Noted>,
}

/// What became of buffers.
#[derive(Default)]
struct Noted {
    turns: Vec<Turn>,
    /// Offsets of those that are in use, and the turns that they were taken in.
    live: Vec<(u64, usize)>,
}

impl Pool {
    fn note(&mut self, turn: impl FnOnce(&mut Vec<(u64, usize)>, usize) -> Turn) {
        if let Some(Noted { turns, live }) = &mut self.noted {
            let turn = turn(live, turns.len());
            turns.push(turn);
        }
    }

    fn grow(&mut self, bytes: u64) -> u64 {
        let at = self.grown(bytes);
        self.note(|live, turn| {
            live.push((at, turn));
            Turn::Grown(bytes)
        });
        at
    }

    fn grown(&mut self, bytes: u64) -> u64 {
        let at = self.used;
        self.used = at.saturating_add(rounded(bytes));
        at
    }

    /// The smallest that is free and large enough, cut to size; else new.
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.taken(bytes);
        self.note(|live, turn| {
            live.push((at, turn));
            Turn::Taken(bytes)
        });
        at
    }

    fn taken(&mut self, bytes: u64) -> u64 {
        let fitting = self.free.iter().enumerate().filter(|(_, (size, _))| *size >= bytes);
        let Some(i) = fitting.min_by_key(|(_, (size, _))| *size).map(|(i, _)| i) else { return self.grown(bytes) };
        let (size, at) = self.free.swap_remove(i);
        let taken = rounded(bytes);
        if size > taken {
            self.free.push((size - taken, at.saturating_add(taken)));
        }
        at
    }

    fn give(&mut self, at: u64, bytes: u64) {
        self.note(|live, _| {
            // Those that were taken last are mostly given back first.
            let known = live.iter().rposition(|(other, _)| *other == at);
            Turn::Given(known.map_or(0, |known| live.swap_remove(known).1), bytes)
        });
        self.free.push((rounded(bytes), at));
    }
}

/// A buffer of a result.
#[derive(Clone, Copy)]
struct Buffer {
    at: u64,
    bytes: u64,
    /// How many have yet to read it.
    readers: usize,
    /// The layer whose kernel wrote it last.
    writer: usize,
}

/// A gradient, and whether it lives in one place only.
#[derive(Clone, Copy)]
struct Gradient {
    at: u64,
    bytes: u64,
    alone: bool,
}

struct Planner<'a> {
    network: &'a ShapedNetwork,
    mode: Mode,
    pool: &'a mut Pool,
}

impl BufferPlan {
    /// The plan of a step.
    pub fn new(network: &ShapedNetwork, mode: Mode) -> Self {
        Self::with(network, mode, &mut Pool::default())
    }

    /// How it comes about, of a network with a batch of one, and its bytes.
    pub(super) fn script(network: &ShapedNetwork, mode: Mode) -> (Script, u64) {
        let mut pool = Pool { noted: Some(Noted::default()), ..Pool::default() };
        let Self { bytes, .. } = Self::with(network, mode, &mut pool);
        (Script::new(pool.noted.map_or_else(Vec::new, |noted| noted.turns)), bytes)
    }

    fn with(network: &ShapedNetwork, mode: Mode, pool: &mut Pool) -> Self {
        let mut planner = Planner { network, mode, pool };
        let inputs = planner.inputs();
        let forward = planner.forward(&inputs);
        let backward = if mode == Mode::Training { planner.backward() } else { Vec::new() };
        Self { bytes: planner.pool.used, inputs, forward, backward }
    }
}

impl Planner<'_> {
    fn bytes(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.network.batch()).saturating_mul(self.network.precision().result_bytes())
    }

    fn inputs(&mut self) -> Vec<u64> {
        let sizes: Vec<u64> = self.network.inputs().iter().map(|s| self.bytes(s.elements())).collect();
        sizes.into_iter().map(|bytes| self.pool.grow(bytes)).collect()
    }

    /// Whether a layer's result overwrites its first input, which nothing else reads: its own backward pass must not need
    /// that, nor that of the layer which wrote it.
    fn overwrites(&self, layer: &Layer, writer: &Layer) -> bool {
        let reads = |layer: &Layer| layer.saved().by_runner();
        let in_place = match layer.row().overwrites {
            Overwrites::OurRunner | Overwrites::Activations => true,
            Overwrites::Never | Overwrites::Elementwise => false,
        };
        in_place && (self.mode == Mode::Inference || !reads(layer).inputs && !reads(writer).output)
    }

    fn forward(&mut self, inputs: &[u64]) -> Vec<Placed> {
        let layers = self.network.layers();
        let mut readers = vec![0usize; layers.len()];
        layers.iter().flat_map(nodes).for_each(|k| readers[k] += 1);
        let mut buffers: Vec<Buffer> = Vec::new();
        // The buffer of each layer's result; none where that is a network's input.
        let mut holds: Vec<Option<usize>> = Vec::with_capacity(layers.len());
        let mut placed: Vec<Placed> = Vec::with_capacity(layers.len());
        for (i, layer) in layers.iter().enumerate() {
            let first = layer.from.first().and_then(|source| match source {
                Source::Node(k) => holds[*k],
                Source::Input(_) => None,
            });
            let view = layer.case.layer.is_view(self.mode);
            let overwritten = first.filter(|&b| {
                buffers[b].readers == 1 && self.overwrites(&layer.case.layer, &layers[buffers[b].writer].case.layer)
            });
            let output = if view {
                holds.push(first);
                match layer.from.first() {
                    Some(Source::Node(k)) => placed[*k].output,
                    Some(Source::Input(k)) => inputs[*k],
                    None => 0,
                }
            } else if let Some(b) = overwritten {
                buffers[b].writer = i;
                holds.push(Some(b));
                buffers[b].at
            } else {
                let bytes = self.bytes(layer.output.elements());
                let at = if self.mode == Mode::Training { self.pool.grow(bytes) } else { self.pool.take(bytes) };
                buffers.push(Buffer { at, bytes, readers: 0, writer: i });
                holds.push(Some(buffers.len() - 1));
                at
            };
            if let Some(b) = holds[i] {
                buffers[b].readers += readers[i];
            }
            placed.push(Placed { output, runs: !view });
            if self.mode == Mode::Inference {
                self.release(layer, &holds, &mut buffers);
            }
        }
        placed
    }

    /// Gives back the buffers whose last reader has run.
    fn release(&mut self, layer: &ShapedLayer, holds: &[Option<usize>], buffers: &mut [Buffer]) {
        for b in nodes(layer).filter_map(|k| holds[k]) {
            let buffer = &mut buffers[b];
            buffer.readers = buffer.readers.saturating_sub(1);
            if buffer.readers == 0 && buffer.bytes > 0 {
                self.pool.give(buffer.at, std::mem::take(&mut buffer.bytes));
            }
        }
    }

    fn backward(&mut self) -> Vec<Gradients> {
        let layers = self.network.layers();
        let mut gradients: Vec<Option<Gradient>> = vec![None; layers.len()];
        let mut plan = Vec::with_capacity(layers.len());
        for (i, layer) in layers.iter().enumerate().rev() {
            let known = gradients[i].take();
            let gradient = known.unwrap_or_else(|| self.made(layer.output.elements()));
            let mut step =
                Gradients { layer: i, output: gradient.at, given: known.is_none(), inputs: vec![], sums: vec![] };
            let mut kept = false;
            if passes_on(self.network, layer) {
                for k in nodes(layer) {
                    kept = true;
                    step.sums.extend(self.contribute(Gradient { alone: false, ..gradient }, &mut gradients[k]));
                }
            } else if self.network.cost(layer, Phase::BackwardData, Mode::Training).is_some() {
                let made: Vec<Gradient> = layer.case.inputs.iter().map(|s| self.made(s.elements())).collect();
                step.inputs = made.iter().map(|g| g.at).collect();
                for (source, made) in layer.from.iter().zip(made) {
                    match source {
                        Source::Node(k) => step.sums.extend(self.contribute(made, &mut gradients[*k])),
                        Source::Input(_) => self.pool.give(made.at, made.bytes),
                    }
                }
            }
            // What was passed on lives in several places; it is not reused within the step.
            if !kept && gradient.alone {
                self.pool.give(gradient.at, gradient.bytes);
            }
            plan.push(step);
        }
        plan
    }

    fn made(&mut self, elements: u64) -> Gradient {
        let bytes = self.bytes(elements);
        Gradient { at: self.pool.take(bytes), bytes, alone: true }
    }

    /// Adds a gradient to that of a layer's result: the sum of two is a buffer of its own.
    fn contribute(&mut self, made: Gradient, target: &mut Option<Gradient>) -> Option<Sum> {
        let before = target.replace(made)?;
        let output = self.pool.take(made.bytes);
        for old in [before, made].into_iter().filter(|g| g.alone) {
            self.pool.give(old.at, old.bytes);
        }
        *target = Some(Gradient { at: output, bytes: made.bytes, alone: true });
        Some(Sum { terms: [before.at, made.at], output, bytes: made.bytes })
    }
}

#[cfg(test)]
mod tests;
