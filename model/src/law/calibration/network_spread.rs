//! How far whole networks were from their predictions.

use crate::base::file::{FileError, within};
use crate::base::precision::Mode;
use serde::{Deserialize, Serialize};

/// What the pooled half-width (`Width::pooled`) of an interval is multiplied by below and above its value, on a logarithmic
/// scale.
pub type Factors = (f64, f64);

/// No interval is so many times as wide as the sum of its layers'.
const MOST: f64 = 100.0;

/// The intervals of networks, from networks that were measured whole. The layers' intervals add up as if all layers
/// erred alike, and are pooled with what is usual; these factors say how much of that is needed. They are of runs of a
/// framework and mode in which the GPU is, or is not, the slower part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpread {
    /// Name of the framework profile that the runs are of.
    pub framework: String,
    /// Whether steps of inference or of training.
    pub mode: Mode,
    /// Whether steps in which the host, not the GPU, is the slower part.
    pub launch_bound: bool,
    /// Factors of the pooled half-widths of time, down and up.
    pub time: Factors,
    /// Factors of the pooled half-widths of power, down and up.
    pub power: Factors,
    /// Factors of the pooled half-widths of energy, down and up.
    pub energy: Factors,
    /// How many networks the factors are of.
    pub networks: usize,
    /// Their names in the catalog.
    #[serde(default)]
    pub names: Vec<String>,
    /// How many runs of these networks: batches, precisions.
    pub runs: usize,
    /// Share of the runs of a network that intervals from the other networks hold: time, power, energy.
    pub held: (f64, f64, f64),
}

impl NetworkSpread {
    /// Factors of time, power and energy.
    pub fn factors(&self) -> [Factors; 3] {
        [self.time, self.power, self.energy]
    }

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
