//! One writer at a time: a lock that others ask for, and that the kernel gives back when its holder ends in any way,
//! SIGKILL included. Who only reads does not ask.

use crate::whole::of;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// How often a file may be taken away between its opening and its locking.
const TRIES: u32 = 100;

/// What another process holds, in one line.
pub fn held(what: &Path) -> String {
    format!("{}: another process is writing there; wait until it ends, or name another place", what.display())
}

/// A file that this process alone writes, open for reading and appending.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    made: bool,
}

impl Lock {
    /// Opens and locks a file, which is made where it is not there; `None` where another process holds it.
    ///
    /// # Errors
    /// When it cannot be opened or locked, or is no regular file.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            let mut options = OpenOptions::new();
            options.read(true).append(true);
            let (file, made) = match options.clone().create_new(true).open(path) {
                Ok(file) => (file, true),
                // A link to a file that is not there yet makes that file.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    (options.create(true).open(path).map_err(of(path))?, false)
                }
                Err(e) => return Err(of(path)(e)),
            };
            if !file.metadata().map_err(of(path))?.is_file() {
                let why = format!("{} is not a regular file", path.display());
                return Err(io::Error::new(ErrorKind::InvalidInput, why));
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => {
                    let why = format!("{} cannot be locked: {e}", path.display());
                    return Err(io::Error::new(e.kind(), why));
                }
            }
            let lock = Self { file, path: path.to_path_buf(), made };
            // Whoever held it before may have removed it since it was opened.
            if lock.is_there() {
                return Ok(Some(lock));
            }
        }
        Err(io::Error::other(format!("{} comes and goes", path.display())))
    }

    /// Opens and locks a file, which is made where it is not there.
    ///
    /// # Errors
    /// When another process holds it, it cannot be opened or locked, or is no regular file.
    pub fn take(path: &Path) -> io::Result<Self> {
        Self::try_take(path)?.ok_or_else(|| io::Error::new(ErrorKind::WouldBlock, held(path)))
    }

    /// Whether the locked file is still the one of that name.
    pub fn is_there(&self) -> bool {
        let same = |ours: Metadata| fs::metadata(&self.path).is_ok_and(|there| identity(&ours) == identity(&there));
        self.file.metadata().is_ok_and(same)
    }

    /// The file.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Removes the file when the lock is given back, whoever made it.
    pub fn remove_at_end(&mut self) {
        self.made = true;
    }
}

/// What tells a file from others.
#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}
#[cfg(not(unix))]
fn identity(_: &Metadata) {}

impl Drop for Lock {
    fn drop(&mut self) {
        // An empty file of ours is nothing to keep. It goes before the lock, so that who waits for it sees that it went.
        if self.made && self.is_there() && self.file.metadata().is_ok_and(|m| m.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
        // A process that is about to start may have inherited the file: closing it would not be enough.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn one_holds_it_and_the_next_is_told() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("rows.csv");
        let mut first = Lock::take(&path)?;
        let told = Lock::take(&path).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(told.contains("rows.csv: another process is writing"), "{told}");
        first.file().write_all(b"x\n")?;
        drop(first);
        assert_eq!(fs::read(&path)?, b"x\n");
        drop(Lock::take(&path)?);
        assert!(path.exists(), "what has content stays");
        Ok(())
    }

    #[test]
    fn an_empty_file_of_ours_goes_and_another_stays() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        fs::write(&theirs, "")?;
        for path in [&ours, &theirs] {
            drop(Lock::take(path)?);
        }
        assert!(!ours.exists() && theirs.exists());
        Ok(())
    }

    #[test]
    fn a_file_that_was_replaced_is_no_longer_held() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("rows.csv");
        let lock = Lock::take(&path)?;
        fs::remove_file(&path)?;
        assert!(!lock.is_there());
        let next = Lock::take(&path)?;
        drop(lock);
        assert!(next.is_there(), "who lost it removes nothing of the next");
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_taken_and_links_are_followed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let error = |path: &Path| Lock::take(path).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error(Path::new("/dev/full")).contains("not a regular file"), "{}", error(Path::new("/dev/full")));
        assert!(!error(&folder.path().join("no/rows.csv")).is_empty());
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::os::unix::fs::symlink(&file, &link)?;
        Lock::take(&link)?.file().write_all(b"x")?;
        assert_eq!(fs::read(&file)?, b"x");
        Ok(())
    }
}
