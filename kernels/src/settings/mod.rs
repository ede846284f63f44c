//! Changing clocks and power limits so that they come back, whatever happens to the program.
//!
//! A [`Session`] holds a lock file per GPU, writes the prior settings to a [`journal`] that is on disk before the
//! first change, and starts a [`guardian`]: a second process that restores them when the first one ends in any way,
//! SIGKILL included. What even that misses (power failure, both processes killed) stays in the journal, which the next
//! session or [`restore`](restore::restore_all) reads. Use one folder per machine: the lock lies in it, too.

mod dry_run;
mod folder;
pub mod guardian;
pub mod journal;
mod lock;
pub mod restore;
mod session;

pub use dry_run::{Calls, DryRun};
pub use guardian::GuardianCommand;
pub use session::{Point, Session};

use crate::DeviceError;
use std::path::PathBuf;

/// Where journals and locks lie if nobody says otherwise: `/var/lib/joulecast` for root, else `joulecast` in the
/// user's state folder. `None` without a home.
pub fn default_folder() -> Option<PathBuf> {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Some(PathBuf::from("/var/lib/joulecast"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|f| f.join("joulecast"))
}

/// An operating system call that failed.
fn failed(call: impl Into<String>, why: impl ToString) -> DeviceError {
    DeviceError::Call { call: call.into(), why: why.to_string() }
}
