//! Batch norms that an export folded into the weights of the layer before them, as kernels of their own again.

use super::shaped::mark_gradients;
use super::{Folded, Network, Node, ShapedLayer, ShapedNetwork, Source, Sources, relocate};
use crate::net::layer::{BatchNorm, Layer};
use std::collections::HashSet;

/// What becomes of batch norms that an export folded into the layers before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Folding {
    /// What runs the network decides: [`crate::step::framework::Framework::runs`].
    #[default]
    Open,
    /// The file's graph runs as it is, whatever runs it.
    Keep,
    /// They are layers of their own.
    Unfold,
}

/// What is said of a network that holds `count` of them, while nothing has decided how it runs.
pub fn open(count: usize) -> String {
    format!("{count} layers of the file hold a folded batch norm: --unfold-batch-norm runs it as a kernel of its own")
}

/// What is said of them where the file's graph runs as it is, because that was asked for.
pub fn kept(count: usize) -> String {
    format!("{count} layers of the file hold a folded batch norm and run so, as --keep-folded asks for")
}

/// What is said of them where they run as kernels of their own.
pub fn unfolded(count: usize) -> String {
    format!("{count} batch norms that the file's export folded into other layers run as kernels of their own")
}

/// What is said where unfolding was asked for and nothing is known to be folded.
pub fn none() -> String {
    "no layer of the file is known to hold a folded batch norm: none is unfolded".to_string()
}

/// Whether a layer has weights that can hold a batch norm.
pub(crate) fn may_hold(layer: &Layer) -> bool {
    matches!(layer, Layer::Conv2d(_) | Layer::Conv3d(_) | Layer::ConvTranspose2d(_) | Layer::Linear(_))
}

/// The layer without the bias that folding left: the batch norm shifts instead.
fn without_bias(layer: &mut Layer) {
    match layer {
        Layer::Conv2d(conv) => conv.bias = false,
        Layer::Conv3d(conv) => conv.bias = false,
        Layer::ConvTranspose2d(conv) => conv.bias = false,
        Layer::Linear(linear) => linear.bias = false,
        _ => {}
    }
}

/// The layer that was folded.
fn norm() -> Layer {
    Layer::BatchNorm(BatchNorm { affine: true })
}

/// A layer of a graph, as far as unfolding goes.
trait Holds: Clone {
    fn parts(&mut self) -> (&mut Layer, &mut Sources, &mut Folded);
    fn name(&self) -> &str;
    /// The batch norm that it holds, as a layer of that name that reads it at a place.
    fn norm(&self, name: String, at: usize) -> Self;
}

impl Holds for Node {
    fn parts(&mut self) -> (&mut Layer, &mut Sources, &mut Folded) {
        (&mut self.layer, &mut self.from, &mut self.folded)
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn norm(&self, name: String, at: usize) -> Self {
        Self { name: name.into(), layer: norm(), from: [Source::Node(at)].into(), tied: None, folded: Folded::No }
    }
}

impl Holds for ShapedLayer {
    fn parts(&mut self) -> (&mut Layer, &mut Sources, &mut Folded) {
        (&mut self.case.layer, &mut self.from, &mut self.folded)
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn norm(&self, name: String, at: usize) -> Self {
        let from = [Source::Node(at)].into();
        Self { name: name.into(), from, ..Self::alone(norm(), vec![self.output], self.output) }
    }
}

/// The layers with every batch norm that one of them holds behind it, and where each of them and its result is now.
fn apart<T: Holds>(layers: &[T]) -> (Vec<T>, Vec<usize>, Vec<usize>) {
    let mut names: HashSet<String> = layers.iter().map(|l| l.name().to_string()).collect();
    let (mut made, mut places, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for layer in layers {
        let mut layer = layer.clone();
        let at = made.len();
        let (kind, from, folded) = layer.parts();
        relocate(from, &results);
        let held = std::mem::take(folded);
        let holds = held.holds();
        if held == Folded::Norm {
            without_bias(kind);
        }
        // A module beside the layer's, not in it.
        let mut name = format!("{}_batch_norm", layer.name());
        while holds && !names.insert(name.clone()) {
            name.push('_');
        }
        let norm = holds.then(|| layer.norm(name, at));
        made.push(layer);
        made.extend(norm);
        places.push(at);
        results.push(made.len() - 1);
    }
    (made, places, results)
}

impl Network {
    /// How many of its layers hold a batch norm that an export folded into them.
    pub fn folded(&self) -> usize {
        self.nodes.iter().filter(|n| n.folded.holds()).count()
    }

    /// Decides what becomes of folded batch norms, and says so in the notes.
    #[must_use]
    pub fn with_folding(mut self, folding: Folding) -> Self {
        let count = self.folded();
        let before = open(count);
        match folding {
            Folding::Open => return self,
            Folding::Unfold if count == 0 => self.notes.push(none()),
            _ if count == 0 => {}
            Folding::Keep => {
                self.nodes.iter_mut().for_each(|n| n.folded = Folded::No);
                self.notes.push(kept(count));
            }
            Folding::Unfold => {
                let (mut nodes, places, results) = apart(&self.nodes);
                for node in &mut nodes {
                    node.tied = node.tied.map(|i| places[i]);
                }
                self.outputs.iter_mut().for_each(|i| *i = results[*i]);
                self.nodes = nodes;
                self.notes.push(unfolded(count));
            }
        }
        self.notes.retain(|note| *note != before);
        self
    }
}

impl ShapedNetwork {
    /// The network as what runs its modules as they are written runs it: each batch norm that an export folded into the
    /// weights before it is a layer of its own behind them.
    #[must_use]
    pub fn unfolded(mut self) -> Self {
        let count = self.layers.iter().filter(|l| l.folded.holds()).count();
        if count == 0 {
            return self;
        }
        let (mut layers, ..) = apart(&self.layers);
        mark_gradients(&mut layers);
        let before = open(count);
        self.notes.retain(|note| *note != before);
        self.notes.push(unfolded(count));
        self.set_layers(layers);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Folding;
    use crate::base::precision::Precision;
    use crate::catalog;
    use crate::net::network::{Network, ShapedNetwork, Source};

    /// Two folded convolutions whose results one sum reads.
    fn folded() -> Network {
        Network::from_toml(
            r#"
schema = "network/1"
name = "r"
title = "r"
layers = [
  { name = "a", kind = "conv2d", channels = 8, kernel = 1, folded = true },
  { name = "b", kind = "conv2d", channels = 8, kernel = 1, folded = true },
  { name = "sum", kind = "add", from = ["b", "a"] },
]
inputs.x.shape = [3, 5, 5]
"#,
        )
        .expect("valid")
    }

    fn through(profile: &str) -> ShapedNetwork {
        let shaped = ShapedNetwork::new(&folded(), 2, Precision::Fp32, &[]).expect("fits");
        catalog::framework(profile).expect("shipped").runs(shaped)
    }

    #[test]
    fn a_profile_that_runs_modules_as_written_runs_their_batch_norms() {
        let apart = through("pytorch");
        let names: Vec<&str> = apart.layers().iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names, ["a", "a_batch_norm", "b", "b_batch_norm", "sum"]);
        assert_eq!(*apart.layers()[2].from, [Source::Node(1)]);
        assert_eq!(*apart.layers()[4].from, [Source::Node(3), Source::Node(1)]);
        assert_eq!(apart.notes(), [super::unfolded(2)]);
        // No bias, two values per channel.
        assert_eq!(apart.parameters(), 8 * 3 + 8 * 8 + 2 * 16);
    }

    #[test]
    fn a_profile_of_kernels_runs_the_graph_as_it_is() {
        for profile in ["cudnn", "tensorrt"] {
            let kept = through(profile);
            assert!(kept.layers().iter().all(|l| l.case.layer.kind() != "batch_norm"), "{profile}");
            assert_eq!(kept.notes(), [super::open(2)], "{profile}");
        }
    }

    #[test]
    fn what_is_asked_for_holds_for_every_profile() {
        let shaped = |folding, profile: &str| {
            let network = folded().with_folding(folding);
            let shaped = ShapedNetwork::new(&network, 2, Precision::Fp32, &[]).expect("fits");
            catalog::framework(profile).expect("shipped").runs(shaped)
        };
        let seen = |n: &ShapedNetwork| {
            let layers = n.layers().iter().map(|l| (l.name.clone(), l.case.layer.clone(), l.from.clone()));
            (layers.collect::<Vec<_>>(), n.notes().to_vec())
        };
        assert_eq!(seen(&shaped(Folding::Unfold, "cudnn")), seen(&shaped(Folding::Open, "pytorch")));
        assert_eq!(seen(&shaped(Folding::Unfold, "pytorch")), seen(&shaped(Folding::Open, "pytorch")));
        let kept = shaped(Folding::Keep, "pytorch");
        assert_eq!(kept.layers().len(), 3);
        assert_eq!(kept.notes(), [super::kept(2)]);
    }

    #[test]
    fn a_file_keeps_what_is_folded_and_nothing_else_can_be() {
        let network = folded();
        assert_eq!(Network::from_toml(&network.to_toml()).expect("read back"), network);
        let wrong = network.to_toml().replacen("kind = \"add\"", "folded = true, kind = \"add\"", 1);
        let error = Network::from_toml(&wrong).expect_err("a sum has no weights").to_string();
        assert!(error.contains("layer sum: folded"), "{error}");
    }

    /// Whatever held a batch norm gives its bias up: the batch norm shifts instead.
    #[test]
    fn every_kind_that_can_hold_one_loses_its_bias() {
        let maps = "channels = 8\nkernel = 3";
        let linear = "features = 8";
        for (kind, fields) in [("conv2d", maps), ("conv3d", maps), ("conv_transpose2d", maps), ("linear", linear)] {
            let of = |bias: bool| {
                let table = format!("{fields}\nbias = {bias}").parse().expect("a table");
                crate::net::layer::Layer::from_table(kind, table).expect("known").expect("valid")
            };
            let mut layer = of(true);
            assert!(super::may_hold(&layer), "{kind}");
            super::without_bias(&mut layer);
            assert_eq!(layer, of(false), "{kind}");
        }
    }
}
