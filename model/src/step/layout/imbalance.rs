//! GPUs that wait for the one that has the fullest expert: it decides on the time, all others compute less and spin.

use super::{Deployment, Flow, LayoutError};
use crate::base::units::{Joules, Seconds, Watts};
use crate::law::power::Waits;
use crate::net::layer::Layer;
use crate::net::network::Network;
use crate::step::predictor::{Estimate, NetworkPrediction, OperatingPoint};

/// Whether some experts are busier than others.
fn is_uneven(network: &Network) -> bool {
    network.nodes.iter().any(|node| matches!(&node.layer, Layer::Experts(experts) if experts.imbalance > 1.0))
}

/// The same network with experts that are all as busy.
fn even(network: &Network) -> Network {
    let mut even = network.clone();
    for node in &mut even.nodes {
        if let Layer::Experts(experts) = &mut node.layer {
            experts.imbalance = 1.0;
        }
    }
    even
}

impl Deployment<'_> {
    /// What the fullest GPU runs and, where whole experts lie on several and some are busier, a GPU of the mean.
    fn fullest_and_mean<T>(
        &self,
        network: &Network,
        of: impl Fn(&Network) -> Result<T, LayoutError>,
    ) -> Result<(T, Option<T>), LayoutError> {
        let fullest = of(network)?;
        let differs = self.layout.expert() > 1 && is_uneven(network);
        Ok((fullest, differs.then(|| of(&even(network))).transpose()?))
    }

    /// A step of a network over a batch of all groups of GPUs together. It takes what its slowest GPUs take; kernels, exchanges
    /// and waiting of all GPUs count as energy. Errors of stages are taken as fully dependent.
    ///
    /// # Errors
    /// When the network cannot be laid out so, or a share of it not be predicted.
    pub fn step(&self, network: &Network, batch: u64, flow: Flow) -> Result<NetworkPrediction, LayoutError> {
        let (step, mean) = self.fullest_and_mean(network, |network| self.step_of(network, batch, flow))?;
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
        let (steps, means) = self.fullest_and_mean(network, |network| self.steps_of(network, batch, flow, points))?;
        let mut means = means.unwrap_or_default().into_iter();
        Ok(steps.into_iter().map(|step| self.beside(step, means.next())).collect())
    }

    /// What a step takes in each stage alone, which takes the whole batch at once: by stage, then for each of several shares of
    /// the limits at each of several clocks and limits.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn stages(
        &self,
        network: &Network,
        batch: u64,
        points: &[OperatingPoint],
        shares: &[f64],
    ) -> Result<Vec<Vec<NetworkPrediction>>, LayoutError> {
        let (stages, means) =
            self.fullest_and_mean(network, |network| self.stages_of(network, batch, points, shares))?;
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
