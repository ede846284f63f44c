//! Setting clocks and power limits: a separate, explicit act, never a side effect of measuring.

use crate::DeviceError;
use joulecast_model::base::units::{Hertz, Watts};

/// Settings that can be changed, as they are now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Power limit.
    pub power_limit: Watts,
    /// Core clock lock, where the driver tells; it does not tell whether one is set, so `None` is "not known to be".
    pub core_lock: Option<Hertz>,
}

/// Reads and, where permitted, sets clocks and power limits. Whoever sets must have written the prior value to a
/// journal first.
pub trait ClockControl {
    /// Board, as NVML names it.
    ///
    /// # Errors
    /// When the device stops answering.
    fn uuid(&self) -> Result<String, DeviceError>;
    /// Settings now.
    ///
    /// # Errors
    /// When the device stops answering.
    fn settings(&self) -> Result<Settings, DeviceError>;
    /// Core clocks that can be locked, ascending.
    ///
    /// # Errors
    /// When the device does not tell.
    fn core_clocks(&self) -> Result<Vec<Hertz>, DeviceError>;
    /// Lowest and highest power limit that can be set.
    ///
    /// # Errors
    /// When the device does not tell.
    fn power_limits(&self) -> Result<(Watts, Watts), DeviceError>;
    /// Locks the core clock, or with `None` unlocks it.
    ///
    /// # Errors
    /// [`DeviceError::NotPermitted`] without the rights; then nothing has changed.
    fn lock_core_clock(&mut self, clock: Option<Hertz>) -> Result<(), DeviceError>;
    /// Sets the power limit and reads it back.
    ///
    /// # Errors
    /// [`DeviceError::NotPermitted`] without the rights, then nothing has changed;
    /// [`DeviceError::NotApplied`] when it reads back differently.
    fn set_power_limit(&mut self, limit: Watts) -> Result<(), DeviceError>;
}
