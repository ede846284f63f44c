//! Restoring what sessions left changed because neither they nor their guardians came to it.

use super::folder::Folder;
use super::journal::Journal;
use super::lock::Lock;
use crate::DeviceError;
use crate::clocks::ClockControl;
use std::path::Path;

/// What became of one journal.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Settings are as before; what was done, in words (nothing, where the session had changed nothing).
    Restored(Vec<String>),
    /// A session is running and was left alone: who holds it.
    Running(String),
    /// Settings or journal could not be handled; the journal is still there.
    Failed(DeviceError),
}

/// Restores every journal in `folder` that no session holds, and removes it. `open` gives the control of a GPU by its
/// UUID. Returns GPU and outcome; empty where there is no folder or no journal.
///
/// As root, only journals that root owns, with mode 0600, in a folder that root owns and nobody else may write, are
/// accepted; as another user the same holds for that user.
///
/// # Errors
/// When the folder cannot be read or is not safe.
pub fn restore_all<C: ClockControl>(
    folder: &Path,
    mut open: impl FnMut(&str) -> Result<C, DeviceError>,
) -> Result<Vec<(String, Outcome)>, DeviceError> {
    let Some(folder) = Folder::open(folder)? else { return Ok(Vec::new()) };
    let mut outcomes = Vec::new();
    for name in folder.names()? {
        let Some(uuid) = Journal::uuid_of(&name) else { continue };
        let outcome = one(&folder, uuid, &mut open).unwrap_or_else(Outcome::Failed);
        outcomes.push((uuid.to_string(), outcome));
    }
    Ok(outcomes)
}

fn one<C: ClockControl>(
    folder: &Folder,
    uuid: &str,
    open: &mut impl FnMut(&str) -> Result<C, DeviceError>,
) -> Result<Outcome, DeviceError> {
    let _lock = match Lock::take(folder, uuid)? {
        Ok(lock) => lock,
        Err(holder) => return Ok(Outcome::Running(holder.name())),
    };
    // Refuse a journal that is not to be trusted before touching the board.
    Journal::read(folder, uuid)?;
    recover(folder, uuid, &mut open(uuid)?).map(Outcome::Restored)
}

/// Restores from the journal of a GPU, if there is one, and removes it. Whoever calls holds the lock, which says that
/// the journal is stale: a session holds its lock as long as it or its guardian lives.
pub(super) fn recover<C: ClockControl>(
    folder: &Folder,
    uuid: &str,
    control: &mut C,
) -> Result<Vec<String>, DeviceError> {
    let Some(journal) = Journal::read(folder, uuid)? else { return Ok(Vec::new()) };
    let said = journal.restore(control)?;
    Journal::remove(folder, uuid)?;
    Ok(said)
}
