//! How far whole networks were from their predictions.

use crate::base::file::{FileError, within};
use crate::base::precision::Mode;
use serde::{Deserialize, Serialize};

/// What the half-widths of an interval below and above its value are multiplied by, on a logarithmic scale.
pub type Factors = (f64, f64);

/// No interval is so many times as wide as the sum of its layers'.
const MOST: f64 = 100.0;

/// The intervals of networks, from networks that were measured whole. The layers' intervals add up as if all layers
/// erred alike; these factors say how much of that sum is needed. They are of runs of a framework and mode in which the
/// GPU is, or is not, the slower part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpread {
    /// Framework profile.
    pub framework: String,
    /// Mode.
    pub mode: Mode,
    /// Whether the GPU waits for the host.
    pub launch_bound: bool,
    /// For time.
    pub time: Factors,
    /// For power.
    pub power: Factors,
    /// For energy.
    pub energy: Factors,
    /// Networks behind them.
    pub networks: usize,
    /// Their names in the catalog.
    #[serde(default)]
    pub names: Vec<String>,
    /// Runs of these.
    pub runs: usize,
    /// Share of the runs of a network that intervals from the other networks hold: time, power, energy.
    pub held: (f64, f64, f64),
}

impl NetworkSpread {
    /// Whether its numbers can be used.
    ///
    /// # Errors
    /// Names the factor that is none.
    pub(super) fn check(&self) -> Result<(), FileError> {
        for (field, (low, high)) in [("time", self.time), ("power", self.power), ("energy", self.energy)] {
            within(field, low, 0.0..=MOST)?;
            within(field, high, 0.0..=MOST)?;
        }
        let (time, power, energy) = self.held;
        [time, power, energy].into_iter().try_for_each(|share| within("held", share, 0.0..=1.0).map(drop))
    }
}
