//! A step at one batch that was asked for before: its totals at any clocks and limit are at hand, what it is layer by layer is
//! made when somebody reads it.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::kept::Kept;
use joulecast_model::net::cost::LayerCost;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::memory::MemoryFootprint;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, Prepared, Summary, Warning};
use self_cell::self_cell;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, OnceLock};

/// What a step is of.
struct Ground {
    cluster: Arc<Cluster>,
    network: ShapedNetwork,
}

type Kernels<'a> = Prepared<'a, 'a>;

self_cell!(
    struct Made {
        owner: Ground,
        #[not_covariant]
        dependent: Kernels,
    }
);

/// A step of a network on one GPU.
pub(crate) struct Ready {
    made: Made,
    /// What to tell of it besides.
    notes: Vec<Warning>,
    by_default: OnceLock<Summary>,
}

/// Steps by the question that they are of and by samples of each GPU.
pub(crate) type Steps = Kept<(u64, u64), Arc<Ready>>;

impl Debug for Ready {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let network = &self.made.borrow_owner().network;
        f.debug_struct("Ready").field("network", &network.name()).field("batch", &network.batch()).finish()
    }
}

impl Ready {
    /// Of a network as it runs on the one GPU of a cluster, with what to tell of it besides.
    pub fn new(cluster: Arc<Cluster>, network: ShapedNetwork, notes: Vec<Warning>) -> Result<Self, Failure> {
        let made = Made::try_new(Ground { cluster, network }, |Ground { cluster, network }| {
            Ok::<_, Failure>(cluster.first().step(network, cluster.mode)?.into_prepared())
        })?;
        Ok(Self { made, notes, by_default: OnceLock::new() })
    }

    /// The network as it runs.
    pub fn network(&self) -> &ShapedNetwork {
        &self.made.borrow_owner().network
    }

    /// The cluster.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.made.borrow_owner().cluster
    }

    /// Its totals at clocks and under a limit.
    ///
    /// # Errors
    /// For clocks or a limit that the device does not take.
    pub fn at(&self, point: OperatingPoint) -> Result<Summary, Failure> {
        let known = self.by_default.get().filter(|_| point == OperatingPoint::default());
        if let Some(known) = known {
            return Ok(*known);
        }
        let summary = self.made.with_dependent(|_, kernels| match point.power_cap {
            // The clock that a limit leaves is found in steps, of sums with others than of kernels one by one.
            Some(_) => kernels.plainly_at(point),
            None => kernels.at(point),
        })?;
        if point == OperatingPoint::default() {
            let _ = self.by_default.set(summary);
        }
        Ok(summary)
    }

    /// Operations and traffic, device memory, and whether that is within the device's.
    pub fn holds(&self) -> (LayerCost, MemoryFootprint, bool) {
        self.made.with_dependent(|_, kernels| (kernels.cost, kernels.memory, kernels.fits_in_memory))
    }

    /// All of it at clocks and under a limit, whose totals are those that [`Self::at`] gives.
    ///
    /// # Errors
    /// As there.
    pub fn whole_at(&self, point: OperatingPoint) -> Result<NetworkPrediction, Failure> {
        let whole = self.made.with_dependent(|_, kernels| kernels.whole_at(point))?;
        let Summary { clock, time, power, energy, .. } = self.at(point)?;
        let mut whole = NetworkPrediction { clock, time, power, energy, ..whole };
        for device in &mut whole.devices {
            (device.clock, device.time, device.power, device.energy) = (clock, time.value, power, energy);
        }
        let Ground { cluster, network } = self.made.borrow_owner();
        whole.warnings.extend(cluster.engines_beside(network, &whole));
        whole.warnings.splice(..0, self.notes.iter().cloned());
        Ok(whole)
    }
}
