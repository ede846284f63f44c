//! Layers that an inference engine runs as one kernel: what follows a convolution, in the kernel's epilogue.

use super::shaped::mark_gradients;
use super::{ShapedLayer, ShapedNetwork, Source, relocate};
use crate::net::layer::Layer;

impl ShapedNetwork {
    /// The network as it runs where layers of the kinds `absorbed` are folded into the convolution before them, as long
    /// as nobody else reads what lies between: batch norm and scale into its weights, at most one sum, whose other
    /// operands the kernel reads besides, and at most one activation, the last. A bias is added in the kernel. Attention runs as one
    /// kernel however it was written.
    pub fn fused(&self, absorbed: &[String]) -> Self {
        let readers = self.readers();
        let mut groups: Vec<Option<Vec<usize>>> = vec![None; self.layers.len()];
        let mut taken = vec![false; self.layers.len()];
        // Of two convolutions that one sum reads, the later one's kernel does it: the other's result is there by then.
        for first in (0..self.layers.len()).rev() {
            if matches!(self.layers[first].case.layer, Layer::Conv2d(_)) && !taken[first] {
                let group = self.chain(first, &readers, absorbed, &taken);
                group.iter().for_each(|&i| taken[i] = true);
                if let Some(&last) = group.last() {
                    groups[last] = Some(group);
                }
            }
        }
        let mut place: Vec<usize> = vec![0; self.layers.len()];
        let mut layers: Vec<ShapedLayer> = Vec::new();
        for (i, layer) in self.layers.iter().enumerate() {
            let mut made = match &groups[i] {
                Some(group) => self.folded(group),
                None if taken[i] => continue,
                None => layer.clone(),
            };
            if let Layer::Attention(attention) = &mut made.case.layer {
                attention.fused = true;
            }
            place[i] = layers.len();
            layers.push(made);
        }
        for layer in &mut layers {
            relocate(&mut layer.from, &place);
        }
        mark_gradients(&mut layers);
        let mut network = self.clone();
        network.set_layers(layers);
        network
    }

    /// Who reads each layer's result.
    pub(super) fn readers(&self) -> Vec<Vec<usize>> {
        let mut readers = vec![Vec::new(); self.layers.len()];
        for (i, layer) in self.layers.iter().enumerate() {
            for source in layer.from.iter() {
                if let Source::Node(j) = source {
                    readers[*j].push(i);
                }
            }
        }
        readers
    }

    /// The convolution and what its kernel does besides, in order.
    fn chain(&self, first: usize, readers: &[Vec<usize>], absorbed: &[String], taken: &[bool]) -> Vec<usize> {
        let mut group = vec![first];
        let mut summed = false;
        let mut last = first;
        while let [next] = readers[last][..] {
            let layer = &self.layers[next].case.layer;
            if taken[next] || !absorbed.iter().any(|kind| kind == layer.kind()) {
                break;
            }
            match layer {
                Layer::BatchNorm(_) | Layer::Scale(_) if !summed => {}
                Layer::Add(_)
                    if !summed && self.layers[next].case.inputs.iter().all(|s| *s == self.layers[next].output) =>
                {
                    summed = true;
                }
                Layer::Activation(_) => {
                    group.push(next);
                    break;
                }
                _ => break,
            }
            group.push(next);
            last = next;
        }
        group
    }

    fn folded(&self, group: &[usize]) -> ShapedLayer {
        let members: Vec<&ShapedLayer> = group.iter().map(|&i| &self.layers[i]).collect();
        let mut made = members[0].clone();
        made.name = members.iter().map(|l| l.name.as_str()).collect::<Vec<_>>().join("+").into();
        if let Layer::Conv2d(conv) = &mut made.case.layer {
            // In the epilogue, not in a kernel of its own.
            made.bias = conv.bias;
            conv.bias = false;
        }
        let inside = |source: &Source| matches!(source, Source::Node(j) if group.contains(j));
        let others = members[1..].iter().flat_map(|member| member.from.iter().filter(|s| !inside(s)));
        made.from = made.from.iter().chain(others).copied().collect();
        made.absorbed.extend(members[1..].iter().map(|member| (*member).clone()));
        made
    }
}

#[cfg(test)]
mod tests {
    use crate::base::precision::{Mode, Phase, Precision};
    use crate::net::layer::Layer;
    use crate::net::network::{Network, ShapedNetwork, Source};

    const RESIDUAL: &str = r#"
schema = "network/1"
name = "r"
title = "r"
layers = [
  { name = "stem", kind = "conv2d", channels = 4, kernel = 1 },
  { name = "stem.relu", kind = "relu" },
  { name = "conv", kind = "conv2d", channels = 8, kernel = 1, bias = false },
  { name = "bn", kind = "batch_norm" },
  { name = "down", kind = "conv2d", channels = 8, kernel = 1, bias = false, from = "stem.relu" },
  { name = "down.bn", kind = "batch_norm" },
  { name = "sum", kind = "add", from = ["bn", "down.bn"] },
  { name = "relu", kind = "relu" },
  { name = "pool", kind = "global_avg_pool2d" },
]
inputs.x.shape = [3, 5, 5]
"#;

    fn both(kinds: &[&str]) -> (ShapedNetwork, ShapedNetwork) {
        let network = Network::from_toml(RESIDUAL).expect("valid");
        let shaped = ShapedNetwork::new(&network, 2, Precision::Fp16, &[]).expect("fits");
        let fused = shaped.fused(&kinds.iter().map(|k| k.to_string()).collect::<Vec<_>>());
        (shaped, fused)
    }

    #[test]
    fn a_kernel_takes_the_sum_and_the_activation() {
        let (plain, fused) = both(&["batch_norm", "add", "relu"]);
        let names: Vec<&str> = fused.layers().iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names, ["stem+stem.relu", "conv+bn", "down+down.bn+sum+relu", "pool"]);
        assert_eq!(*fused.layers()[2].from, [Source::Node(0), Source::Node(1)]);
        assert_eq!(*fused.layers()[3].from, [Source::Node(2)]);
        assert_eq!(fused.parameters(), plain.parameters());
        assert_eq!(fused.macs(), plain.macs());
        let read = |net: &ShapedNetwork, i: usize| {
            net.cost(&net.layers()[i], Phase::Forward, Mode::Inference).expect("runs").read.get()
        };
        // The operand of the sum that another kernel made: 8 channels of 5x5, two samples, two bytes.
        assert_eq!(read(&fused, 2) - read(&plain, 4), 8 * 25 * 2 * 2);
    }

    #[test]
    fn an_engine_computes_attention_in_one_kernel_however_it_was_written() {
        let text = r#"
schema = "network/1"
name = "a"
title = "a"
layers = [{ name = "a", kind = "attention", heads = 2, fused = false, from = ["x", "x", "x"] }]
inputs.x.shape = [16, 8]
"#;
        let network = Network::from_toml(text).expect("valid");
        let written = ShapedNetwork::new(&network, 2, Precision::Fp16, &[]).expect("fits");
        let unfused = |net: &ShapedNetwork| matches!(&net.layers()[0].case.layer, Layer::Attention(a) if !a.fused);
        assert!(unfused(&written) && !unfused(&written.fused(&[])));
    }

    #[test]
    fn only_what_the_rules_name_is_absorbed() {
        let (plain, fused) = both(&[]);
        assert_eq!(fused.layers().len(), plain.layers().len());
        let (_, fused) = both(&["batch_norm"]);
        assert_eq!(fused.layers().len(), plain.layers().len() - 2);
    }
}
