//! The only crate that touches a GPU: what calibration needs from one, as traits.
//!
//! The traits say what a trial needs, not how a vendor library gives it; implementations open their libraries at
//! run time and return [`DeviceError`] where one is missing.

use joulecast_model::measurement::LayerCase;
use joulecast_model::precision::{Phase, Precision};
use joulecast_model::units::{Hertz, Joules, Seconds, Watts};

/// Why a device could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A library or the device itself is not there.
    #[error("{what} is not available: {why}")]
    Unavailable {
        /// Library or device.
        what: String,
        /// In words.
        why: String,
    },
    /// The device cannot run this layer in this way.
    #[error("cannot run {what}: {why}")]
    Unsupported {
        /// Layer, phase or precision.
        what: String,
        /// In words.
        why: String,
    },
    /// Not allowed to change this setting.
    #[error("not permitted to set {0}")]
    NotPermitted(String),
    /// The device stopped answering.
    #[error("device lost: {0}")]
    Lost(String),
}

/// What runs in a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Layer and input shapes.
    pub case: LayerCase,
    /// Phase.
    pub phase: Phase,
    /// Samples.
    pub batch: u64,
    /// Precision.
    pub precision: Precision,
}

/// Timings of back-to-back executions.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// One value per block of executions, per execution.
    pub blocks: Vec<Seconds>,
    /// Algorithm or engine that ran, where the library says.
    pub algorithm: Option<String>,
    /// Scratch memory in bytes.
    pub workspace_bytes: Option<u64>,
}

/// Runs layers and times them.
pub trait LayerRunner {
    /// Runs a trial until a time budget is used.
    ///
    /// # Errors
    /// When the layer cannot run on this device, or the device fails.
    fn run(&mut self, trial: &Trial, budget: Seconds) -> Result<Timing, DeviceError>;
}

/// How an energy was read: different sensors are different quantities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergyMethod {
    /// Difference of the total-energy counter between two of its ticks.
    CounterTicks,
    /// Integral of instantaneous power samples.
    PowerIntegral,
}

/// What was read over a window.
#[derive(Clone, Debug, PartialEq)]
pub struct EnergyReading {
    /// Energy in the window.
    pub energy: Joules,
    /// Length of the window.
    pub window: Seconds,
    /// How it was read.
    pub method: EnergyMethod,
    /// Core clocks sampled in the window.
    pub core_clocks: Vec<Hertz>,
    /// Names of the throttle reasons seen.
    pub throttle_reasons: Vec<String>,
}

impl EnergyReading {
    /// Mean power; `None` for an empty window.
    pub fn power(&self) -> Option<Watts> {
        (self.window > Seconds::ZERO).then(|| self.energy / self.window)
    }
}

/// Reads energy while something runs.
pub trait PowerMeter {
    /// Measures over at least `window`, while the device is kept busy by the caller.
    ///
    /// # Errors
    /// When the device has no such sensor or stops answering.
    fn measure(&mut self, window: Seconds) -> Result<EnergyReading, DeviceError>;
}

/// Reads and, where permitted, sets clocks and power limits. Setting is a separate, explicit act; whoever sets
/// must have recorded the prior value first.
pub trait ClockControl {
    /// Core clock now.
    ///
    /// # Errors
    /// When the device stops answering.
    fn core_clock(&self) -> Result<Hertz, DeviceError>;
    /// Locks the core clock.
    ///
    /// # Errors
    /// [`DeviceError::NotPermitted`] without the rights; then nothing has changed.
    fn lock_core_clock(&mut self, clock: Hertz) -> Result<(), DeviceError>;
    /// Enforced power limit now.
    ///
    /// # Errors
    /// When the device stops answering.
    fn power_limit(&self) -> Result<Watts, DeviceError>;
    /// Sets the power limit.
    ///
    /// # Errors
    /// [`DeviceError::NotPermitted`] without the rights; then nothing has changed.
    fn set_power_limit(&mut self, limit: Watts) -> Result<(), DeviceError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_energy_over_the_window() {
        let reading = |window| EnergyReading {
            energy: Joules::new(300.0),
            window: Seconds::new(window),
            method: EnergyMethod::CounterTicks,
            core_clocks: Vec::new(),
            throttle_reasons: Vec::new(),
        };
        assert_eq!(reading(2.0).power(), Some(Watts::new(150.0)));
        assert_eq!(reading(0.0).power(), None);
    }
}
