//! Listing the calls that would be made, without making them.

use crate::DeviceError;
use crate::clocks::{ClockControl, Settings};
use joulecast_model::base::units::{Hertz, Watts};
use std::sync::{Arc, Mutex, PoisonError};

/// Calls listed so far; clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    /// All of them, in order.
    pub fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, call: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

/// Reads through another control and only lists what would be set.
#[derive(Debug)]
pub struct DryRun<C> {
    inner: C,
    calls: Calls,
}

impl<C: ClockControl> DryRun<C> {
    /// Around a control.
    pub fn new(inner: C) -> Self {
        Self { inner, calls: Calls::default() }
    }

    /// The list that grows with every call.
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }
}

impl<C: ClockControl> ClockControl for DryRun<C> {
    fn uuid(&self) -> Result<String, DeviceError> {
        self.inner.uuid()
    }

    fn settings(&self) -> Result<Settings, DeviceError> {
        self.inner.settings()
    }

    fn core_clocks(&self) -> Result<Vec<Hertz>, DeviceError> {
        self.inner.core_clocks()
    }

    fn power_limits(&self) -> Result<(Watts, Watts), DeviceError> {
        self.inner.power_limits()
    }

    fn lock_core_clock(&mut self, clock: Option<Hertz>) -> Result<(), DeviceError> {
        let uuid = self.uuid()?;
        self.calls.push(match clock {
            Some(clock) => format!("GPU {uuid}: lock the core clock at {:.0} MHz", clock.to_mhz()),
            None => format!("GPU {uuid}: unlock the core clock"),
        });
        Ok(())
    }

    fn set_power_limit(&mut self, limit: Watts) -> Result<(), DeviceError> {
        let uuid = self.uuid()?;
        self.calls.push(format!("GPU {uuid}: set the power limit to {:.0} W", limit.get()));
        Ok(())
    }
}
