//! Who adds to a dataset: one process at a time.

use anyhow::{Context, Result, bail};
use joulecast_reports::lock::{Lock, held};
use std::fs;
use std::io::{self, Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Name of the file that a writer locks; nothing is in it, and it is gone when the writer is.
const LOCK: &str = ".lock";
/// How the names of files begin that have none yet, and how many characters follow.
const TEMPORARY: (&str, usize) = (".tmp", 6);
/// How often a folder may be taken away while its lock is asked for.
const TRIES: u32 = 100;

/// The right to add to a dataset, which one process at a time has. Readers need none.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    made: bool,
    lock: Option<Lock>,
}

impl Writer {
    /// Takes the dataset in hand, whose folder is made where it is not there, and removes what killed writers left of
    /// files that had no name yet.
    ///
    /// # Errors
    /// When another process writes to it, or the folder cannot be written.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::try_open(folder)?.with_context(|| held(folder))
    }

    /// The same; `None` where another process writes.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn try_open(folder: &Path) -> Result<Option<Self>> {
        for _ in 0..TRIES {
            let made = !folder.exists();
            let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", folder.display()));
            let folder_and_lock = || -> io::Result<Option<Lock>> {
                fs::create_dir_all(folder).map_err(named)?;
                Lock::try_take(&folder.join(LOCK))
            };
            let taken = folder_and_lock();
            // A writer that had nothing to write takes the folder with it, even between two looks at it.
            let kind = taken.as_ref().err().map(Error::kind);
            if kind == Some(ErrorKind::NotFound) || (kind == Some(ErrorKind::AlreadyExists) && !folder.is_file()) {
                continue;
            }
            let Some(mut lock) = taken? else { return Ok(None) };
            lock.remove_at_end();
            let writer = Self { folder: folder.to_path_buf(), made, lock: Some(lock) };
            writer.remove_temporaries()?;
            return Ok(Some(writer));
        }
        bail!("{} comes and goes", folder.display())
    }

    /// The dataset's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn remove_temporaries(&self) -> Result<()> {
        let name = || self.folder.display().to_string();
        for entry in fs::read_dir(&self.folder).with_context(name)? {
            let entry = entry.with_context(name)?;
            let random = entry.file_name().to_str().and_then(|n| n.strip_prefix(TEMPORARY.0)).map(str::to_string);
            let ours = |r: &String| r.len() == TEMPORARY.1 && r.chars().all(|c| c.is_ascii_alphanumeric());
            if random.as_ref().is_some_and(ours) && entry.file_type().is_ok_and(|t| t.is_file()) {
                fs::remove_file(entry.path()).with_context(|| entry.path().display().to_string())?;
            }
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.lock = None;
        if self.made {
            // Fails where there is something in it, as it should.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Each takes its folder and its lock with it, while others are about to take the lock.
    #[test]
    fn writers_that_come_and_go_never_meet() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("rows");
        let (here, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let come_and_go = || -> Result<()> {
            for _ in 0..300 {
                if let Some(writer) = Writer::try_open(&path)? {
                    assert_eq!(here.fetch_add(1, Ordering::SeqCst), 0, "two write at once");
                    served.fetch_add(1, Ordering::SeqCst);
                    here.fetch_sub(1, Ordering::SeqCst);
                    drop(writer);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(come_and_go)).collect();
            threads.into_iter().try_for_each(|t| t.join().expect("no panic"))
        })?;
        assert!(served.into_inner() > 0);
        Ok(())
    }
}
