//! The journal of one GPU: which settings a session found, and which of them it set out to change.

use super::failed;
use super::folder::Folder;
use crate::DeviceError;
use crate::clocks::{ClockControl, Settings};
use joulecast_model::base::units::{Hertz, Watts};
use serde::{Deserialize, Serialize};
use std::path::Path;

const SCHEMA: &str = "settings-journal/1";
const ENDING: &str = ".journal";

/// What a session found and changed. On disk as JSON with mode 0600, named after the GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    schema: String,
    /// GPU, in the spelling of [`crate::nvml::normal_uuid`].
    pub uuid: String,
    /// Process that holds the session.
    pub pid: u32,
    /// When the session began, in seconds since 1970.
    pub started_unix_s: u64,
    /// Power limit before the session.
    pub power_limit_w: f64,
    /// Core clock lock before the session; `None`: not known to be locked.
    pub core_lock_mhz: Option<f64>,
    /// Whether the power limit may have been changed.
    pub power_changed: bool,
    /// Whether the core clock may have been locked.
    pub core_changed: bool,
}

impl Journal {
    /// Of a session of this process that has changed nothing yet.
    pub(super) fn begin(uuid: &str, prior: &Settings) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            schema: SCHEMA.to_string(),
            uuid: uuid.to_string(),
            pid: std::process::id(),
            started_unix_s: now.map_or(0, |d| d.as_secs()),
            power_limit_w: prior.power_limit.get(),
            core_lock_mhz: prior.core_lock.map(Hertz::to_mhz),
            power_changed: false,
            core_changed: false,
        }
    }

    /// Settings before the session.
    pub fn prior(&self) -> Settings {
        Settings { power_limit: Watts::new(self.power_limit_w), core_lock: self.core_lock_mhz.map(Hertz::from_mhz) }
    }

    pub(super) fn file_name(uuid: &str) -> String {
        format!("{uuid}{ENDING}")
    }

    /// The GPU that a file of the folder is the journal of.
    pub(super) fn uuid_of(file_name: &str) -> Option<&str> {
        file_name.strip_suffix(ENDING).filter(|uuid| plain_uuid(uuid))
    }

    /// Splits a journal's path into folder and GPU.
    pub(super) fn locate(path: &Path) -> Result<(&Path, String), DeviceError> {
        let uuid = path.file_name().and_then(|name| name.to_str()).and_then(Self::uuid_of);
        match (path.parent(), uuid) {
            (Some(folder), Some(uuid)) if path.is_absolute() => Ok((folder, uuid.to_string())),
            _ => Err(failed(format!("reading {}", path.display()), "it is no absolute path of a journal")),
        }
    }

    pub(super) fn write(&self, folder: &Folder) -> Result<(), DeviceError> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| failed("writing the journal", e))?;
        folder.write(&Self::file_name(&self.uuid), &text)
    }

    pub(super) fn read(folder: &Folder, uuid: &str) -> Result<Option<Self>, DeviceError> {
        let name = Self::file_name(uuid);
        let Some(text) = folder.read(&name)? else { return Ok(None) };
        let fail = |why: String| failed(format!("reading {}", folder.path().join(&name).display()), why);
        let journal: Self = serde_json::from_slice(&text).map_err(|e| fail(e.to_string()))?;
        if journal.schema != SCHEMA {
            return Err(fail(format!("its schema is {:?}, this program writes {SCHEMA}", journal.schema)));
        }
        if journal.uuid != uuid {
            return Err(fail(format!("it is about GPU {}", journal.uuid)));
        }
        let sane = |value: f64| value.is_finite() && value > 0.0;
        if !sane(journal.power_limit_w) || !journal.core_lock_mhz.is_none_or(sane) {
            return Err(fail("its values are not positive".to_string()));
        }
        Ok(Some(journal))
    }

    pub(super) fn remove(folder: &Folder, uuid: &str) -> Result<(), DeviceError> {
        folder.remove(&Self::file_name(uuid))
    }

    /// Sets what the session may have changed back to what it found, and says so. All of it is tried.
    ///
    /// # Errors
    /// The first failure; the journal must then stay.
    pub(super) fn restore<C: ClockControl + ?Sized>(&self, control: &mut C) -> Result<Vec<String>, DeviceError> {
        let prior = self.prior();
        let mut said = Vec::new();
        let mut failure = None;
        if self.core_changed {
            match control.lock_core_clock(prior.core_lock) {
                Ok(()) => said.push(match prior.core_lock {
                    Some(clock) => format!("core clock locked at {:.0} MHz as before", clock.to_mhz()),
                    None => "core clock unlocked".to_string(),
                }),
                Err(e) => failure = Some(e),
            }
        }
        if self.power_changed {
            match control.set_power_limit(prior.power_limit) {
                Ok(()) => said.push(format!("power limit set back to {:.0} W", prior.power_limit.get())),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(said), Err)
    }
}

/// Whether the text can be a part of a file name: hexadecimal digits, letters and hyphens.
pub(super) fn plain_uuid(uuid: &str) -> bool {
    !uuid.is_empty() && uuid.len() <= 80 && uuid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}
