//! GPUs that wait for the one that has the fullest expert: it decides on the time, all others compute less and spin.

use super::{Deployment, Flow, LayoutError};
use crate::base::units::{Joules, Seconds, Watts};
use crate::law::power::Waits;
use crate::net::layer::Layer;
use crate::net::network::Network;
use crate::step::predictor::{Estimate, NetworkPrediction, OperatingPoint};

/// The same with experts that are all as busy; nothing where they are.
fn even(network: &Network) -> Option<Network> {
    let mut even = network.clone();
    let mut found = false;
    for node in &mut even.nodes {
        if let Layer::Experts(experts) = &mut node.layer {
            found |= experts.imbalance > 1.0;
            experts.imbalance = 1.0;
        }
    }
    found.then_some(even)
}

impl Deployment<'_> {
    /// What a GPU of the mean runs, where whole experts lie on several and some are busier.
    fn of_the_mean(&self, network: &Network) -> Option<Network> {
        if self.layout.expert() > 1 { even(network) } else { None }
    }

    /// A step of a network over a batch of all groups of GPUs together. It takes what its slowest GPUs take; kernels, exchanges
    /// and waiting of all GPUs count as energy. Errors of stages are taken as fully dependent.
    ///
    /// # Errors
    /// When the network cannot be laid out so, or a share of it not be predicted.
    pub fn step(&self, network: &Network, batch: u64, flow: Flow) -> Result<NetworkPrediction, LayoutError> {
        let step = self.step_of(network, batch, flow)?;
        let mean = self.of_the_mean(network).map(|even| self.step_of(&even, batch, flow)).transpose()?;
        Ok(self.beside(step, mean))
    }

    /// [`Self::step`] at several clocks and limits, whatever the deployment's own are.
    ///
    /// # Errors
    /// As there.
    pub fn steps(
        &self,
        network: &Network,
        batch: u64,
        flow: Flow,
        points: &[OperatingPoint],
    ) -> Result<Vec<NetworkPrediction>, LayoutError> {
        let steps = self.steps_of(network, batch, flow, points)?;
        let means = self.of_the_mean(network).map(|even| self.steps_of(&even, batch, flow, points)).transpose()?;
        let mut means = means.unwrap_or_default().into_iter();
        Ok(steps.into_iter().map(|step| self.beside(step, means.next())).collect())
    }

    /// What a step takes in each stage alone, which takes the whole batch at once: by stage, then at each of several clocks and
    /// limits.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn stages(
        &self,
        network: &Network,
        batch: u64,
        points: &[OperatingPoint],
    ) -> Result<Vec<Vec<NetworkPrediction>>, LayoutError> {
        let stages = self.stages_of(network, batch, points)?;
        let means = self.of_the_mean(network).map(|even| self.stages_of(&even, batch, points)).transpose()?;
        let mut means = means.unwrap_or_default().into_iter().flatten();
        let beside = |stage: Vec<_>| stage.into_iter().map(|step| self.beside(step, means.next())).collect();
        Ok(stages.into_iter().map(beside).collect())
    }

    /// A step in which all GPUs are the fullest, with the work and the energy of GPUs of the mean that spin until it is done.
    fn beside(&self, step: NetworkPrediction, mean: Option<NetworkPrediction>) -> NetworkPrediction {
        let Some(mean) = mean else { return step };
        let spinning = Waits::spinning(self.predictor.gpu());
        let gpus = mean.devices.iter().map(|device| device.count).sum::<u64>() as f64;
        let of = |energy: Joules, draws: Watts, time: Seconds, own: Seconds| {
            energy + draws * ((time - own).max(Seconds::ZERO) * gpus)
        };
        let energy = Estimate {
            value: of(mean.energy.value, spinning.value, step.time.value, mean.time.value),
            p05: of(mean.energy.p05, spinning.p05, step.time.p05, mean.time.p05),
            p95: of(mean.energy.p95, spinning.p95, step.time.p95, mean.time.p95),
        };
        let share = energy.value / step.energy.value;
        let mut step = NetworkPrediction {
            energy,
            power: step.power.times(share),
            ops: mean.ops,
            read: mean.read,
            written: mean.written,
            ..step
        };
        for device in &mut step.devices {
            (device.power, device.energy) = (device.power.times(share), energy.times(1.0 / gpus));
        }
        step.phases.iter_mut().for_each(|phase| phase.energy = phase.energy * share);
        step
    }
}
