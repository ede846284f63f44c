//! Reading power, energy and clocks while something runs.

use crate::DeviceError;
use joulecast_model::base::units::{Hertz, Joules, Seconds, Watts};

/// Accumulated time a board was held back, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThrottleTimes {
    /// By the power limit.
    pub power: Seconds,
    /// By temperature.
    pub thermal: Seconds,
    /// By the hardware's own brakes (power brake, hardware slowdown).
    pub hardware: Seconds,
}

/// Everything read in one go. A sensor that the board lacks is `None`, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Host time in the middle of the read, from an arbitrary but fixed origin.
    pub at: Seconds,
    /// Total energy since the driver was loaded; changes in ticks (0.1 s on an H200).
    pub counter: Option<Joules>,
    /// Instantaneous power.
    pub power: Option<Watts>,
    /// Core clock.
    pub core: Option<Hertz>,
    /// Memory clock.
    pub memory: Option<Hertz>,
    /// GPU temperature in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Clock throttle reasons, NVML's bits.
    pub reasons: Option<u64>,
    /// Time held back so far.
    pub throttled: Option<ThrottleTimes>,
    /// Enforced power limit.
    pub limit: Option<Watts>,
    /// Compute processes on the GPU other than this one.
    pub others: Option<u32>,
}

/// Reads a board's sensors.
pub trait PowerMeter {
    /// Reads everything once; takes milliseconds, so the caller keeps work queued.
    ///
    /// # Errors
    /// When the device stopped answering; a missing sensor is no error.
    fn sample(&mut self) -> Result<Sample, DeviceError>;
}
