//! Files written whole: under another name in the same folder, on disk, then renamed, so that nothing half-written is
//! ever seen under the file's own name.

use anyhow::{Context, Result};
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
}
