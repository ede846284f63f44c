//! A session of changed settings.

use super::folder::Folder;
use super::guardian::{Guardian, GuardianCommand};
use super::journal::{Journal, plain_uuid};
use super::lock::Lock;
use super::{dry_run::DryRun, failed, restore};
use crate::DeviceError;
use crate::clocks::{ClockControl, Settings};
use crate::nvml::normal_uuid;
use joulecast_model::base::units::{Hertz, Watts};
use std::path::Path;

/// Settings to measure at. `None` is the setting as the session found it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Core clock to lock, one of those that the board can be locked at.
    pub core: Option<Hertz>,
    /// Power limit.
    pub power_limit: Option<Watts>,
}

/// Holds a GPU's settings. Whatever it changed is restored by [`Session::finish`], when it is dropped, and by its
/// guardian when the process ends in any other way.
#[derive(Debug)]
pub struct Session<C: ClockControl> {
    control: C,
    journal: Journal,
    recovered: Vec<String>,
    // `None` in a rehearsal. The lock is declared last: it is released last.
    guardian: Option<Guardian>,
    place: Option<(Folder, Lock)>,
    open: bool,
}

impl<C: ClockControl> Session<C> {
    /// Takes the GPU's lock in `folder` (created with mode 0700), restores what a session before left changed, writes
    /// the journal and starts the guardian. Changes nothing else.
    ///
    /// # Errors
    /// When another session holds the GPU (naming its process), the folder or an old journal in it is not safe, the
    /// board does not answer, or the guardian does not start; nothing has changed then.
    pub fn begin(mut control: C, folder: &Path, guardian: &GuardianCommand) -> Result<Self, DeviceError> {
        let uuid = uuid_of(&control)?;
        let folder = Folder::create(folder)?;
        let lock = Lock::take(&folder, &uuid)?.map_err(|holder| DeviceError::Unavailable {
            what: format!("GPU {uuid}"),
            why: format!("{} holds its settings", holder.name()),
        })?;
        let recovered = restore::recover(&folder, &uuid, &mut control)?;
        let journal = Journal::begin(&uuid, &control.settings()?);
        journal.write(&folder)?;
        let guardian = guardian.start(&folder.path().join(Journal::file_name(&uuid)), &lock);
        let guardian = match guardian {
            Ok(guardian) => guardian,
            Err(e) => {
                Journal::remove(&folder, &uuid)?;
                return Err(e);
            }
        };
        Ok(Self { control, journal, recovered, guardian: Some(guardian), place: Some((folder, lock)), open: true })
    }

    /// What was restored at the beginning because an earlier session had not; empty where nothing was.
    pub fn recovered(&self) -> &[String] {
        &self.recovered
    }

    /// Settings before the session.
    pub fn prior(&self) -> Settings {
        self.journal.prior()
    }

    /// The control, to read through.
    pub fn control(&self) -> &C {
        &self.control
    }

    /// Sets clock and power limit. A locked clock cannot be read back through NVML: the caller compares the clock under
    /// load with the request.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for a clock or limit that the board does not offer, [`DeviceError::NotPermitted`]
    /// without the rights, [`DeviceError::NotApplied`] where a setting reads back differently,
    /// [`DeviceError::Unavailable`] when the guardian is gone. The session stays open and still restores.
    pub fn apply(&mut self, point: Point) -> Result<(), DeviceError> {
        self.check(point)?;
        if self.guardian.as_mut().is_some_and(|guardian| !guardian.is_alive()) {
            return Err(DeviceError::Unavailable {
                what: "the guardian".to_string(),
                why: "it has ended, so nothing is changed any more".to_string(),
            });
        }
        if point.core.is_some() || self.journal.core_changed {
            self.set(
                |j| &mut j.core_changed,
                |control, prior| control.lock_core_clock(point.core.or(prior.core_lock)),
            )?;
            if let (Some(asked), Some(found)) = (point.core, self.control.settings()?.core_lock)
                && (asked - found).to_mhz().abs() > 0.5
            {
                return Err(DeviceError::NotApplied {
                    what: "core clock".to_string(),
                    asked: format!("{:.0} MHz", asked.to_mhz()),
                    found: format!("{:.0} MHz", found.to_mhz()),
                });
            }
        }
        if point.power_limit.is_some() || self.journal.power_changed {
            self.set(
                |j| &mut j.power_changed,
                |control, prior| control.set_power_limit(point.power_limit.unwrap_or(prior.power_limit)),
            )?;
        }
        Ok(())
    }

    /// Marks a setting as changed, on disk, then changes it; takes the mark back where nothing was permitted.
    fn set(
        &mut self,
        mark: impl Fn(&mut Journal) -> &mut bool,
        change: impl FnOnce(&mut C, Settings) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let before = std::mem::replace(mark(&mut self.journal), true);
        if !before && let Err(e) = self.write_journal() {
            *mark(&mut self.journal) = false;
            return Err(e);
        }
        let result = change(&mut self.control, self.journal.prior());
        if !before && matches!(result, Err(DeviceError::NotPermitted(_))) {
            *mark(&mut self.journal) = false;
            self.write_journal()?;
        }
        result
    }

    fn write_journal(&self) -> Result<(), DeviceError> {
        self.place.as_ref().map_or(Ok(()), |(folder, _)| self.journal.write(folder))
    }

    fn check(&self, point: Point) -> Result<(), DeviceError> {
        if let Some(core) = point.core {
            let offered = self.control.core_clocks()?;
            let distance = |clock: &Hertz| (*clock - core).to_mhz().abs();
            let nearest = offered.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
            if !nearest.is_some_and(|clock| distance(clock) < 0.5) {
                let why = nearest.map_or("the board offers none".to_string(), |clock| {
                    format!("the nearest that the board offers is {:.0} MHz", clock.to_mhz())
                });
                return Err(DeviceError::Unsupported {
                    what: format!("a core clock of {:.0} MHz", core.to_mhz()),
                    why,
                });
            }
        }
        if let Some(limit) = point.power_limit {
            let (low, high) = self.control.power_limits()?;
            if !(low <= limit && limit <= high) {
                return Err(DeviceError::Unsupported {
                    what: format!("a power limit of {limit}"),
                    why: format!("the board offers {low} to {high}"),
                });
            }
        }
        Ok(())
    }

    /// Restores everything and ends guardian, journal and lock.
    ///
    /// # Errors
    /// When a setting could not be restored, by the guardian neither; the journal then stays for `restore`.
    pub fn finish(mut self) -> Result<(), DeviceError> {
        self.close()
    }

    fn close(&mut self) -> Result<(), DeviceError> {
        if !std::mem::replace(&mut self.open, false) {
            return Ok(());
        }
        let mut result = self.journal.restore(&mut self.control).map(|_| ());
        if let (Ok(()), Some((folder, _))) = (&result, &self.place) {
            result = Journal::remove(folder, &self.journal.uuid);
        }
        if let Some(guardian) = self.guardian.take() {
            guardian.end(result.is_ok());
        }
        if let Some((folder, _)) = self.place.take()
            && result.is_err()
            && matches!(Journal::read(&folder, &self.journal.uuid), Ok(None))
        {
            // The guardian, which tries several times, has succeeded.
            return Ok(());
        }
        result
    }
}

impl<C: ClockControl> Session<DryRun<C>> {
    /// A session that changes nothing and writes nothing: its control lists the calls that a real one would make.
    ///
    /// # Errors
    /// When the board does not answer.
    pub fn rehearse(control: DryRun<C>) -> Result<Self, DeviceError> {
        let journal = Journal::begin(&uuid_of(&control)?, &control.settings()?);
        Ok(Self { control, journal, recovered: Vec::new(), guardian: None, place: None, open: true })
    }
}

impl<C: ClockControl> Drop for Session<C> {
    fn drop(&mut self) {
        // A failure stays visible: the journal is still there.
        let _ = self.close();
    }
}

fn uuid_of<C: ClockControl>(control: &C) -> Result<String, DeviceError> {
    let uuid = normal_uuid(&control.uuid()?);
    if plain_uuid(&uuid) { Ok(uuid) } else { Err(failed("reading the GPU's UUID", format!("{uuid:?} is none"))) }
}
