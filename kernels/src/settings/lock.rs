//! The lock of one GPU: held by its session and by that session's guardian, so that it is free only when neither
//! changes settings any more.

use super::failed;
use super::folder::Folder;
use crate::DeviceError;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

/// How long to wait for a lock that is about to be free.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) pid: Option<u32>,
}

impl Holder {
    /// A session as text, for messages.
    pub(super) fn name(self) -> String {
        self.pid.map_or("another process".to_string(), |pid| format!("process {pid}"))
    }

    /// Whether there is a session, and not only a guardian that restores after one that was killed. Without a number
    /// the session is over, and what is left is a process about to start that has inherited the file.
    fn is_alive(self) -> bool {
        let Some(pid) = self.pid else { return false };
        // The state follows the name in parentheses; Z is dead, but not yet waited for.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
    }
}

impl Lock {
    /// Takes the lock, or says who holds it. Waits a little where that is no session any more.
    pub(super) fn take(folder: &Folder, uuid: &str) -> Result<Result<Self, Holder>, DeviceError> {
        let name = format!("{uuid}.lock");
        let fail = |e: std::io::Error| failed(format!("locking {}", folder.path().join(&name).display()), e);
        let mut file = folder.lock_file(&name)?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(e)) => return Err(fail(e)),
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    file.rewind().map_err(fail)?;
                    (&mut file).take(32).read_to_string(&mut text).map_err(fail)?;
                    let holder = Holder { pid: text.trim().parse().ok() };
                    if holder.is_alive() || begin.elapsed() > PATIENCE {
                        return Ok(Err(holder));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        file.rewind().map_err(fail)?;
        file.set_len(0).map_err(fail)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(fail)?;
        Ok(Ok(Self { file }))
    }

    /// The locked file, for the guardian to inherit: the lock lasts until all descriptors of it are closed.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Only whoever waits for the lock reads the number.
        let _ = self.file.set_len(0);
    }
}
