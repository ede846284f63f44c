//! Memory of a step over batches: which buffer is taken and given back when, no batch changes.

use super::buffers::{BufferPlan, Script};
use super::walk::Use;
use super::{
    Activations, MemoryFootprint, MemoryPolicy, converted, footprint, kept_by_runner, with_library, workspace_by_runner,
};
use crate::base::precision::Mode;
use crate::base::units::Bytes;
use crate::law::choice::Choice;
use crate::net::layer::Layer;
use crate::net::network::ShapedNetwork;

/// What [`footprint`] says at any batch of a network.
pub(crate) struct FootprintOverBatches<'a> {
    network: &'a ShapedNetwork,
    mode: Mode,
    policy: &'a MemoryPolicy,
    choices: &'a [Choice],
    /// At one sample.
    one: MemoryFootprint,
    /// Of a sample.
    converted: u64,
    peak: Peak,
}

enum Peak {
    /// So many times what one sample takes.
    Samples(Use),
    /// By our own runner's plan, and what layers keep besides.
    Planned { script: Script, kept: Vec<u64>, one: Use },
    /// Walked anew for every batch: gradients of parameters, which no batch changes, lie beside activations.
    Walked,
}

impl<'a> FootprintOverBatches<'a> {
    /// Of a network, whatever batch it has; `None` where it has no batch of one.
    pub fn new(
        network: &'a ShapedNetwork,
        mode: Mode,
        policy: &'a MemoryPolicy,
        choices: &'a [Choice],
    ) -> Option<Self> {
        let alone = network.with_batch(1).ok()?;
        let planned = policy.activations == Activations::Arena && policy.algorithm.is_none();
        let script = planned.then(|| {
            let (script, bytes) = BufferPlan::script(&alone, mode);
            // What the footprint would plan anew.
            alone.buffers(mode, || bytes);
            script
        });
        let one = footprint(&alone, mode, policy, choices);
        let sample =
            |workspace: Bytes| Use { activations: one.activations.get(), gradients: 0, workspace: workspace.get() };
        let peak = match (policy.activations, mode) {
            // The scratch memory of an algorithm is no multiple of a sample's.
            _ if policy.algorithm.is_some() => Peak::Walked,
            // Nor is that of engines that change with the batch.
            (Activations::Saved | Activations::Mirrored, _) if chooses(network, choices) => Peak::Walked,
            (Activations::Arena, _) => Peak::Planned {
                script: script?,
                kept: alone.each(|layer| kept_by_runner(&alone, layer, mode)).filter(|kept| *kept > 0).collect(),
                one: Use { gradients: one.gradients.get(), ..sample(Bytes::new(workspace_by_runner(&alone, mode))) },
            },
            (Activations::Saved | Activations::Mirrored, Mode::Inference) => {
                let walked = super::walk::Walk::new(&alone, mode, policy, choices).peak(0);
                Peak::Samples(walked)
            }
            (Activations::Saved | Activations::Mirrored, Mode::Training) => Peak::Walked,
        };
        Some(Self { network, mode, policy, choices, one, converted: converted(&alone).get(), peak })
    }

    /// At a batch that the network can have.
    pub fn at(&self, batch: u64) -> MemoryFootprint {
        let times = |bytes: u64| bytes.saturating_mul(batch);
        let Use { activations, gradients, workspace } = match &self.peak {
            Peak::Walked => {
                let Ok(network) = self.network.with_batch(batch) else { return self.one };
                return footprint(&network, self.mode, self.policy, self.choices);
            }
            Peak::Samples(one) => {
                Use { activations: times(one.activations), gradients: one.gradients, workspace: times(one.workspace) }
            }
            Peak::Planned { script, kept, one } => {
                let kept = kept.iter().map(|&bytes| super::buffers::rounded(times(bytes)));
                Use {
                    activations: script.bytes(batch).saturating_add(kept.fold(0, u64::saturating_add)),
                    gradients: one.gradients,
                    workspace: times(one.workspace),
                }
            }
        };
        MemoryFootprint {
            cache: Bytes::new(times(self.one.cache.get())),
            gradients: Bytes::new(gradients),
            activations: Bytes::new(activations),
            workspace: with_library(Bytes::new(workspace.max(times(self.converted))), self.network, self.policy),
            ..self.one
        }
    }
}

/// Whether a network's convolutions run engines whose scratch memory is known.
fn chooses(network: &ShapedNetwork, choices: &[Choice]) -> bool {
    choices.iter().any(|choice| !choice.workspaces.is_empty())
        && network.layers().iter().any(|layer| matches!(layer.case.layer, Layer::Conv2d(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Precision;
    use crate::catalog;

    #[test]
    fn memory_over_batches_is_that_of_each_batch() {
        let hopper = catalog::calibration("gh100").expect("readable").expect("shipped").choices;
        for name in catalog::network_names() {
            let network = catalog::network(name).expect("shipped");
            for (profile, choices) in [("cudnn", &[][..]), ("pytorch", &[]), ("pytorch", &hopper), ("caffe", &[])] {
                let policy = catalog::framework(profile).expect("shipped").memory;
                for (precision, mode) in [
                    (Precision::Fp32, Mode::Inference),
                    (Precision::Fp16, Mode::Inference),
                    (Precision::Fp16, Mode::Training),
                    (Precision::Tf32, Mode::Training),
                ] {
                    let Ok(shaped) = ShapedNetwork::new(&network, 37, precision, &[]) else { continue };
                    let over = FootprintOverBatches::new(&shaped, mode, &policy, choices).expect("a batch of one");
                    let batches = [1, 2, 3, 7, 8, 37];
                    for (batch, each) in batches.map(|batch| (batch, over.at(batch))) {
                        let alone = footprint(&shaped.with_batch(batch).expect("fits"), mode, &policy, choices);
                        assert_eq!(each, alone, "{name} {profile} {precision} {mode} {batch}");
                    }
                }
            }
        }
    }
}
