//! Files written whole, as both programs write them, and never over what somebody may have edited unasked.

pub use joulecast_reports::whole::{folder, holds, nameless, write};

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::Path;

/// Makes names in a folder durable.
///
/// # Errors
/// When the folder cannot be synchronized.
pub fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder).and_then(|f| f.sync_all()).with_context(|| folder.display().to_string())
}

/// Makes sure, before anything is computed, that a file of that name would not be lost.
///
/// # Errors
/// When there is one, unless it is to be written over.
pub fn check_free(path: &Path, force: bool) -> Result<()> {
    if !force && holds(path) {
        bail!("{} is there already: --force writes over it", path.display());
    }
    Ok(())
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It is new, or replaced.
    Written,
    /// It was there with the same content.
    Unchanged,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Written => "written",
            Self::Unchanged => "unchanged",
        })
    }
}

/// Writes a file that is not there yet, or is to be written over; one with the same content stays as it is.
///
/// # Errors
/// When another is there and may not be written over, or it cannot be written.
pub fn write_new(path: &Path, content: impl AsRef<[u8]>, force: bool) -> Result<Done> {
    if fs::read(path).is_ok_and(|old| old == content.as_ref()) {
        return Ok(Done::Unchanged);
    }
    check_free(path, force)?;
    write(path, content)?;
    Ok(Done::Written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_file_is_not_lost_unasked() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("plan");
        assert_eq!(write_new(&path, "x", false)?, Done::Written);
        assert_eq!(write_new(&path, "x", false)?, Done::Unchanged);
        let told = write_new(&path, "y", false).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(told.contains("plan is there already: --force"), "{told}");
        assert_eq!(fs::read_to_string(&path)?, "x");
        assert_eq!(write_new(&path, "y", true)?, Done::Written);
        assert_eq!(fs::read_to_string(&path)?, "y");
        Ok(())
    }
}
