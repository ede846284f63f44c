//! Files written whole: under another name in the same folder, on disk, then renamed, so that nothing half-written is
//! ever seen under the file's own name.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use tempfile::NamedTempFile;

/// A file of that content without its name yet. Its permissions are those of any new file (what the umask leaves of
/// reading and writing), not the private ones of temporary files.
///
/// # Errors
/// When the folder cannot be written; the message names it.
pub fn nameless(folder: &Path, bytes: &[u8]) -> Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let write = || -> std::io::Result<NamedTempFile> {
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    write().with_context(|| folder.display().to_string())
}

/// Writes a file, or replaces one and keeps its permissions.
///
/// # Errors
/// When it cannot be written; the message names it or its folder.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = nameless(folder, content.as_ref())?;
    if let Ok(existing) = fs::metadata(path) {
        file.as_file().set_permissions(existing.permissions()).with_context(|| path.display().to_string())?;
    }
    file.persist(path).with_context(|| path.display().to_string())?;
    Ok(())
}

/// Makes sure, before anything is computed, that a file of that name would not be lost.
///
/// # Errors
/// When there is one, unless it is to be written over.
pub fn check_free(path: &Path, force: bool) -> Result<()> {
    if !force && path.symlink_metadata().is_ok() {
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> Result<u32> {
        Ok(fs::metadata(path)?.permissions().mode() & 0o777)
    }

    #[test]
    fn a_file_has_the_permissions_of_any_other() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (plain, ours) = (folder.path().join("plain"), folder.path().join("ours"));
        fs::write(&plain, "x")?;
        write(&ours, "x")?;
        assert_eq!(mode(&ours)?, mode(&plain)?);
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o640))?;
        write(&ours, "y")?;
        assert_eq!((mode(&ours)?, fs::read_to_string(&ours)?.as_str()), (0o640, "y"), "what was chosen stays");
        assert_eq!(fs::read_dir(folder.path())?.count(), 2, "nothing else is left");
        Ok(())
    }

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
