//! What a board is and how it is set: written down beside every campaign.

use super::{Board, sensor};
use crate::DeviceError;
use joulecast_model::base::units::{Hertz, Watts};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::device::DeviceArchitecture;
use std::fmt;

/// A board and its settings; what it does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Name of the product.
    pub name: Option<String>,
    /// UUID in the spelling of [`super::normal_uuid`].
    pub uuid: String,
    /// PCI address.
    pub pci: Option<String>,
    /// Architecture, as `Hopper`.
    pub architecture: Option<String>,
    /// CUDA compute capability.
    pub compute_capability: Option<(u32, u32)>,
    /// Driver version.
    pub driver: Option<String>,
    /// Highest CUDA version that the driver supports, as `13.0`.
    pub cuda_driver: Option<String>,
    /// NVML's own version.
    pub nvml: Option<String>,
    /// Error correction of the memory.
    pub ecc: Option<bool>,
    /// Whether the driver stays loaded without clients; else settings are lost when the last one ends.
    pub persistence: Option<bool>,
    /// Whether the board is cut into instances.
    pub mig: Option<bool>,
    /// Power limit as set.
    pub power_limit: Option<Watts>,
    /// Power limit that the board keeps to, all limiters together.
    pub power_limit_enforced: Option<Watts>,
    /// Power limit after a reset.
    pub power_limit_default: Option<Watts>,
    /// Lowest and highest power limit that can be set.
    pub power_limits: Option<(Watts, Watts)>,
    /// Core clock that applications get by default; newer drivers no longer tell.
    pub core_default: Option<Hertz>,
    /// Highest core clock.
    pub core_max: Option<Hertz>,
    /// Highest memory clock.
    pub memory_max: Option<Hertz>,
}

pub(super) fn describe(board: &Board) -> Result<Description, DeviceError> {
    let (device, api) = (board.device(), &board.nvml.api);
    let watts = |mw: Option<u32>| mw.map(|mw| Watts::new(f64::from(mw) * 1e-3));
    let mhz = |mhz: Option<u32>| mhz.map(|mhz| Hertz::from_mhz(f64::from(mhz)));
    Ok(Description {
        name: sensor(device.name())?,
        uuid: board.uuid.clone(),
        pci: sensor(device.pci_info())?.map(|pci| pci.bus_id),
        architecture: sensor(device.architecture())?.map(|a| a.to_string()),
        compute_capability: sensor(capability(&device))?,
        driver: sensor(api.sys_driver_version())?,
        cuda_driver: sensor(api.sys_cuda_driver_version())?.map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)),
        nvml: sensor(api.sys_nvml_version())?,
        ecc: sensor(device.is_ecc_enabled())?.map(|state| state.currently_enabled),
        persistence: sensor(device.is_in_persistent_mode())?,
        mig: sensor(device.mig_mode())?.map(|mode| mode.current != 0),
        power_limit: watts(sensor(device.power_management_limit())?),
        power_limit_enforced: watts(sensor(device.enforced_power_limit())?),
        power_limit_default: watts(sensor(device.power_management_limit_default())?),
        power_limits: sensor(device.power_management_limit_constraints())?
            .and_then(|c| watts(Some(c.min_limit)).zip(watts(Some(c.max_limit)))),
        core_default: mhz(sensor(device.default_applications_clock(Clock::Graphics))?),
        core_max: mhz(sensor(device.max_clock_info(Clock::SM))?),
        memory_max: mhz(sensor(device.max_clock_info(Clock::Memory))?),
    })
}

fn capability(device: &Device<'_>) -> Result<(u32, u32), nvml_wrapper::error::NvmlError> {
    let version = device.cuda_compute_capability()?;
    Ok((u32::try_from(version.major).unwrap_or(0), u32::try_from(version.minor).unwrap_or(0)))
}

/// Whether `nvmlDeviceGetPowerUsage` is instantaneous: on GA100 (compute capability 8.0) and what is older. On other
/// Ampere and newer it is an average over a second (NVML API reference, `nvmlDeviceGetPowerUsage`).
pub(super) fn usage_is_instantaneous(board: &Board) -> Result<bool, DeviceError> {
    let device = board.device();
    Ok(match sensor(device.architecture())? {
        Some(
            DeviceArchitecture::Kepler
            | DeviceArchitecture::Maxwell
            | DeviceArchitecture::Pascal
            | DeviceArchitecture::Volta
            | DeviceArchitecture::Turing,
        ) => true,
        Some(DeviceArchitecture::Ampere) => sensor(capability(&device))? == Some((8, 0)),
        _ => false,
    })
}

impl fmt::Display for Description {
    /// One line per item that is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |state: Option<bool>| state.map(|s| if s { "on" } else { "off" }.to_string());
        let watts = |limit: Option<Watts>| limit.map(|w| format!("{:.0} W", w.get()));
        let mhz = |clock: Option<Hertz>| clock.map(|c| format!("{:.0} MHz", c.to_mhz()));
        let items = [
            ("name", self.name.clone()),
            ("uuid", Some(self.uuid.clone())),
            ("PCI", self.pci.clone()),
            ("architecture", self.architecture.clone()),
            ("compute capability", self.compute_capability.map(|(major, minor)| format!("{major}.{minor}"))),
            ("driver", self.driver.clone()),
            ("CUDA of the driver", self.cuda_driver.clone()),
            ("NVML", self.nvml.clone()),
            ("ECC", on(self.ecc)),
            ("persistence", on(self.persistence)),
            ("MIG", on(self.mig)),
            ("power limit", watts(self.power_limit)),
            ("enforced power limit", watts(self.power_limit_enforced)),
            ("default power limit", watts(self.power_limit_default)),
            ("lowest power limit", watts(self.power_limits.map(|l| l.0))),
            ("highest power limit", watts(self.power_limits.map(|l| l.1))),
            ("default core clock", mhz(self.core_default)),
            ("highest core clock", mhz(self.core_max)),
            ("highest memory clock", mhz(self.memory_max)),
        ];
        for (name, value) in items {
            if let Some(value) = value {
                writeln!(f, "{name}: {value}")?;
            }
        }
        Ok(())
    }
}
