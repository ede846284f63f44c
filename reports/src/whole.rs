//! Files written whole: under another name in the same folder, on disk, then renamed, so that nothing half-written is
//! ever seen under the file's own name. Both programs write their files here.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Links that are followed from a name that leads to no file yet.
const MOST_LINKS: usize = 40;

/// With the name of the file in front.
pub(crate) fn of(path: &Path) -> impl Fn(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |e| {
        let why = match e.kind() {
            // What the system says of these has a number that helps nobody.
            io::ErrorKind::NotFound if e.raw_os_error().is_some() => "there is no such file".to_string(),
            io::ErrorKind::IsADirectory if e.raw_os_error().is_some() => "is a folder, not a file".to_string(),
            _ => e.to_string(),
        };
        io::Error::new(e.kind(), format!("{path}: {why}"))
    }
}

/// A file of that content without its name yet, made anew: no file or link that was there is written through. Its
/// permissions are those of any new file (what the umask leaves of reading and writing), not the private ones of
/// temporary files.
///
/// # Errors
/// When the folder cannot be written; the message names it.
pub fn nameless(folder: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "modes are Unix's"))]
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let write = || {
        // Its own words would name the file by a name that nobody knows.
        let mut file = builder
            .tempfile_in(folder)
            .map_err(|e| io::Error::new(e.kind(), format!("no file can be made there ({})", e.kind())))?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    // Else the error would name the file by the name that it has meanwhile.
    if !folder.is_dir() {
        let why = format!("{}: there is no such folder", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    write().map_err(of(folder))
}

/// Whether a file is there that has something in it: what must not be lost unasked. Devices and pipes have nothing.
pub fn holds(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() > 0)
}

/// Where a name leads that has no file yet: a link's end.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&at) {
            Ok(next) => at = at.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(at),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{}: too many links", path.display())))
}

/// The file that a name means: a link's end.
fn target(path: &Path) -> io::Result<PathBuf> {
    if path.exists() { path.canonicalize().map_err(of(path)) } else { end_of_links(path) }
}

/// The folder that a file lies in, by its name alone.
pub fn folder(file: &Path) -> &Path {
    file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file, or replaces one and keeps its permissions. A link is followed, also one to a file that is yet to be; a
/// device or pipe is written to as it is.
///
/// # Errors
/// When it cannot be written; the message names it or its folder.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let existing = fs::metadata(path).ok();
    if existing.as_ref().is_some_and(|m| !m.is_file()) {
        let write = || OpenOptions::new().write(true).open(path)?.write_all(content.as_ref());
        return write().map_err(of(path));
    }
    if existing.as_ref().is_some_and(|m| m.permissions().readonly()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is read-only", path.display())));
    }
    let target = target(path)?;
    persist(nameless(folder(&target), content.as_ref())?, &target)
}

/// An empty file without its name yet, in the folder of the file that it is to become by [`persist`].
///
/// # Errors
/// When the folder cannot be written; the message names it.
pub fn begin(path: &Path) -> io::Result<NamedTempFile> {
    nameless(folder(&target(path)?), &[])
}

/// Gives a file its name, with the permissions of the file that has it now.
///
/// # Errors
/// When that cannot be; the message names it.
pub fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    let target = target(path)?;
    if let Ok(existing) = fs::metadata(&target) {
        file.as_file().set_permissions(existing.permissions()).map_err(of(path))?;
    }
    file.persist(&target).map_err(|e| of(path)(e.error))?;
    Ok(())
}

/// Makes sure, before anything is computed, that a file of that name would not be lost.
///
/// # Errors
/// When there is one, unless it is to be written over.
pub fn check_free(path: &Path, force: bool) -> io::Result<()> {
    if !force && holds(path) {
        let why = format!("{} is there already: --force writes over it", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
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
pub fn write_new(path: &Path, content: impl AsRef<[u8]>, force: bool) -> io::Result<Done> {
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
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> io::Result<u32> {
        Ok(fs::metadata(path)?.permissions().mode() & 0o777)
    }

    #[test]
    fn a_file_has_the_permissions_of_any_other() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (plain, ours) = (folder.path().join("plain"), folder.path().join("ours"));
        fs::write(&plain, "x")?;
        write(&ours, "x")?;
        assert_eq!(mode(&ours)?, mode(&plain)?);
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o640))?;
        write(&ours, "y")?;
        assert_eq!((mode(&ours)?, fs::read_to_string(&ours)?.as_str()), (0o640, "y"), "what was chosen stays");
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o440))?;
        assert!(write(&ours, "z").is_err_and(|e| e.to_string().contains("ours is read-only")));
        assert_eq!(fs::read_dir(folder.path())?.count(), 2, "nothing else is left");
        Ok(())
    }

    #[test]
    fn links_are_followed_to_files_that_are_and_that_are_not() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("other"))?;
        fs::write(at("other/there"), "old")?;
        symlink("other/there", at("link"))?;
        symlink("second", at("first"))?;
        symlink("other/new", at("second"))?;
        symlink("nowhere/new", at("lost"))?;
        symlink("loop", at("loop"))?;
        for (link, file) in [("link", "other/there"), ("first", "other/new")] {
            write(&at(link), "new")?;
            assert!(fs::symlink_metadata(at(link))?.is_symlink(), "{link} stays a link");
            assert_eq!(fs::read_to_string(at(file))?, "new");
        }
        assert!(write(&at("lost"), "x").is_err_and(|e| e.to_string().contains("nowhere")));
        assert!(write(&at("loop"), "x").is_err());
        assert_eq!(fs::read_dir(at("other"))?.count(), 2, "nothing else is left");
        Ok(())
    }

    /// The name that a file has until it is whole cannot be foreseen, and what has that name is never opened.
    #[test]
    fn no_planted_link_is_written_through() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (victim, ours) = (folder.path().join("victim"), folder.path().join("ours"));
        fs::write(&victim, "precious")?;
        for name in [format!("ours.{}.part", std::process::id()), format!(".ours.{}.part", std::process::id())] {
            symlink(&victim, folder.path().join(name))?;
        }
        write(&ours, "x")?;
        assert_eq!(fs::read_to_string(&victim)?, "precious");
        assert_ne!(nameless(folder.path(), b"")?.path(), nameless(folder.path(), b"")?.path());
        Ok(())
    }

    #[test]
    fn devices_are_written_to_and_hold_nothing() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (empty, full) = (folder.path().join("empty"), folder.path().join("full"));
        fs::write(&empty, "")?;
        fs::write(&full, "x")?;
        assert_eq!(["/dev/null", "nowhere"].map(|p| holds(Path::new(p))), [false; 2]);
        assert_eq!([&empty, &full].map(|p| holds(p)), [false, true]);
        write(Path::new("/dev/null"), "x")?;
        assert!(!fs::metadata("/dev/null")?.is_file());
        assert!(write(folder.path(), "x").is_err(), "a folder is no file");
        Ok(())
    }

    #[test]
    fn an_edited_file_is_not_lost_unasked() -> io::Result<()> {
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
