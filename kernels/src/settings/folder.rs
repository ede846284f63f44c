//! The folder of journals and locks: only its owner may write it, and no symbolic link is followed in it. All files
//! are opened relative to the folder that was checked, so that nothing can be put in its place afterwards.

use super::failed;
use crate::DeviceError;
use std::ffi::CString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Journals are a few hundred bytes.
const LARGEST: u64 = 1 << 16;

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    handle: File,
}

fn own_uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

fn c_name(name: &str) -> Result<CString, Error> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{name:?} is no plain file name")));
    }
    CString::new(name).map_err(Error::from)
}

impl Folder {
    /// Opens the folder, creating it with mode 0700 where it is missing.
    pub(super) fn create(path: &Path) -> Result<Self, DeviceError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|e| failed(format!("creating the folder {}", path.display()), e))?;
        Self::open(path)?.ok_or_else(|| failed(format!("opening the folder {}", path.display()), "it vanished"))
    }

    /// Opens the folder if it is there, belongs to the user, and nobody else may write it.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, DeviceError> {
        let fail = |why: String| failed(format!("opening the folder {}", path.display()), why);
        let handle = match OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path) {
            Ok(handle) => handle,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fail(e.to_string())),
        };
        let metadata = handle.metadata().map_err(|e| fail(e.to_string()))?;
        if metadata.uid() != own_uid() {
            return Err(fail(format!("it belongs to user {}, not to user {}", metadata.uid(), own_uid())));
        }
        if metadata.mode() & 0o022 != 0 {
            return Err(fail("others may write it (chmod go-w)".to_string()));
        }
        let path = path.canonicalize().map_err(|e| fail(e.to_string()))?;
        Ok(Some(Self { path, handle }))
    }

    /// Absolute path, for messages and for the guardian.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the files in it, sorted.
    pub(super) fn names(&self) -> Result<Vec<String>, DeviceError> {
        let fail = |e: Error| failed(format!("reading the folder {}", self.path.display()), e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(fail)? {
            names.extend(entry.map_err(fail)?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open_at(&self, name: &str, flags: libc::c_int) -> Result<File, Error> {
        let name = c_name(name)?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the folder's descriptor is open, the name ends in NUL, and the mode is given as O_CREAT needs it.
        let descriptor = unsafe { libc::openat(self.handle.as_raw_fd(), name.as_ptr(), flags, 0o600 as libc::c_uint) };
        if descriptor < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: just opened and owned by nobody else.
        let file = unsafe { File::from_raw_fd(descriptor) };
        let metadata = file.metadata()?;
        let mode = metadata.mode() & 0o7777;
        let why = if !metadata.is_file() {
            "it is no regular file".to_string()
        } else if metadata.uid() != own_uid() {
            format!("it belongs to user {}, not to user {}", metadata.uid(), own_uid())
        } else if mode != 0o600 {
            format!("its mode is {mode:04o}, not 0600")
        } else if metadata.nlink() != 1 {
            "it has several names".to_string()
        } else {
            return Ok(file);
        };
        Err(Error::new(ErrorKind::PermissionDenied, why))
    }

    /// A file to lock, created where missing and never removed: removing it would let two processes lock two files of
    /// one name.
    pub(super) fn lock_file(&self, name: &str) -> Result<File, DeviceError> {
        self.open_at(name, libc::O_RDWR | libc::O_CREAT)
            .map_err(|e| failed(format!("opening {}", self.path.join(name).display()), e))
    }

    /// Content of a file, `None` where there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DeviceError> {
        let fail = |e: Error| failed(format!("reading {}", self.path.join(name).display()), e);
        let mut file = match self.open_at(name, libc::O_RDONLY) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fail(e)),
        };
        let mut content = Vec::new();
        (&mut file).take(LARGEST).read_to_end(&mut content).map_err(fail)?;
        Ok(Some(content))
    }

    /// Writes a file as a whole and returns when it is on disk under its name. Whoever writes holds the lock.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), DeviceError> {
        let fail = |e: Error| failed(format!("writing {}", self.path.join(name).display()), e);
        let new = format!("{name}.new");
        self.remove(&new)?;
        let mut file = self.open_at(&new, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL).map_err(fail)?;
        file.write_all(content).and_then(|()| file.sync_all()).map_err(fail)?;
        let (from, to) = (c_name(&new).map_err(fail)?, c_name(name).map_err(fail)?);
        let folder = self.handle.as_raw_fd();
        // SAFETY: an open descriptor and names that end in NUL.
        if unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) } != 0 {
            return Err(fail(Error::last_os_error()));
        }
        self.handle.sync_all().map_err(fail)
    }

    /// Removes a file if it is there, on disk before it returns.
    pub(super) fn remove(&self, name: &str) -> Result<(), DeviceError> {
        let fail = |e: Error| failed(format!("removing {}", self.path.join(name).display()), e);
        let c = c_name(name).map_err(fail)?;
        // SAFETY: an open descriptor and a name that ends in NUL.
        if unsafe { libc::unlinkat(self.handle.as_raw_fd(), c.as_ptr(), 0) } != 0 {
            let error = Error::last_os_error();
            return if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(fail(error)) };
        }
        self.handle.sync_all().map_err(fail)
    }
}
