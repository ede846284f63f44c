//! Setting clocks and power limits through NVML.

use super::{Board, error};
use crate::DeviceError;
use crate::clocks::{ClockControl, Settings};
use joulecast_model::base::units::{Hertz, Watts};
use nvml_wrapper::enums::device::GpuLockedClocksSetting;
use nvml_wrapper::error::NvmlError;

/// Read-back differs when it differs by more than rounding to a watt.
const SAME_LIMIT_W: f64 = 0.5;

/// Clocks and power limit of one board. NVML does not tell whether a core clock is locked, so
/// [`Settings::core_lock`] is always `None`: the prior state is taken for unlocked, and whoever locks watches the clock
/// under load.
#[derive(Debug)]
pub struct NvmlControl {
    board: Board,
}

impl NvmlControl {
    /// Of a board. Nothing is set.
    pub fn new(board: Board) -> Self {
        Self { board }
    }
}

/// A failed setter; without the rights NVML has changed nothing.
fn refused(what: &str, call: &str, e: &NvmlError) -> DeviceError {
    match e {
        NvmlError::NoPermission => DeviceError::NotPermitted(what.to_string()),
        _ => error(call, e),
    }
}

fn whole(value: f64) -> Option<u32> {
    let rounded = value.round();
    (rounded.is_finite() && rounded > 0.0 && rounded <= f64::from(u32::MAX)).then_some(rounded as u32)
}

impl ClockControl for NvmlControl {
    fn uuid(&self) -> Result<String, DeviceError> {
        Ok(self.board.uuid().to_string())
    }

    fn settings(&self) -> Result<Settings, DeviceError> {
        let limit =
            self.board.device().power_management_limit().map_err(|e| error("nvmlDeviceGetPowerManagementLimit", &e))?;
        Ok(Settings { power_limit: Watts::new(f64::from(limit) * 1e-3), core_lock: None })
    }

    fn core_clocks(&self) -> Result<Vec<Hertz>, DeviceError> {
        let device = self.board.device();
        let memory = device.supported_memory_clocks().map_err(|e| error("nvmlDeviceGetSupportedMemoryClocks", &e))?;
        let memory = memory.into_iter().max().ok_or_else(|| DeviceError::Unsupported {
            what: "nvmlDeviceGetSupportedMemoryClocks".to_string(),
            why: "it lists none".to_string(),
        })?;
        let mut clocks =
            device.supported_graphics_clocks(memory).map_err(|e| error("nvmlDeviceGetSupportedGraphicsClocks", &e))?;
        clocks.sort_unstable();
        clocks.dedup();
        Ok(clocks.into_iter().map(|mhz| Hertz::from_mhz(f64::from(mhz))).collect())
    }

    fn power_limits(&self) -> Result<(Watts, Watts), DeviceError> {
        let limits = self
            .board
            .device()
            .power_management_limit_constraints()
            .map_err(|e| error("nvmlDeviceGetPowerManagementLimitConstraints", &e))?;
        let watts = |mw: u32| Watts::new(f64::from(mw) * 1e-3);
        Ok((watts(limits.min_limit), watts(limits.max_limit)))
    }

    fn lock_core_clock(&mut self, clock: Option<Hertz>) -> Result<(), DeviceError> {
        let mut device = self.board.device();
        match clock {
            None => device
                .reset_gpu_locked_clocks()
                .map_err(|e| refused("the core clock", "nvmlDeviceResetGpuLockedClocks", &e)),
            Some(clock) => {
                let mhz = whole(clock.to_mhz()).ok_or_else(|| DeviceError::Unsupported {
                    what: format!("a core clock of {clock}"),
                    why: "it is no clock".to_string(),
                })?;
                device
                    .set_gpu_locked_clocks(GpuLockedClocksSetting::Numeric { min_clock_mhz: mhz, max_clock_mhz: mhz })
                    .map_err(|e| refused("the core clock", "nvmlDeviceSetGpuLockedClocks", &e))
            }
        }
    }

    fn set_power_limit(&mut self, limit: Watts) -> Result<(), DeviceError> {
        let mw = whole(limit.get() * 1e3).ok_or_else(|| DeviceError::Unsupported {
            what: format!("a power limit of {limit}"),
            why: "it is no power".to_string(),
        })?;
        self.board
            .device()
            .set_power_management_limit(mw)
            .map_err(|e| refused("the power limit", "nvmlDeviceSetPowerManagementLimit", &e))?;
        let found = self.settings()?.power_limit;
        if (found - limit).get().abs() > SAME_LIMIT_W {
            return Err(DeviceError::NotApplied {
                what: "power limit".to_string(),
                asked: limit.to_string(),
                found: found.to_string(),
            });
        }
        Ok(())
    }
}
