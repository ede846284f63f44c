//! Memory that cannot be had ends the program in one line instead of an abort: a damaged segment can ask polars for
//! 10^18 bytes, and what an allocator refuses cannot be caught.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// No single piece of a dataset or fit is larger: asking for more is damage.
const MOST_BYTES: usize = 1 << 38;

/// What is being read, for the message.
static READING: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Names what is read while `work` is done.
pub fn reading<T>(path: &Path, work: impl FnOnce() -> T) -> T {
    let set = |to: Option<PathBuf>| std::mem::replace(&mut *READING.lock().unwrap_or_else(PoisonError::into_inner), to);
    let before = set(Some(path.to_path_buf()));
    let done = work();
    set(before);
    done
}

/// Gives memory that is free back to the system: glibc keeps what lay between pieces that are still in use, of hundreds of
/// thousands of measurements a quarter of a gigabyte.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The system's allocator, which ends the program with status 1 where it has nothing to give.
pub struct OrEnd;

fn end() -> ! {
    let mut errors = std::io::stderr();
    let _ = errors.write_all(b"error: ");
    // Nothing here may ask for memory, or wait.
    if let Ok(reading) = READING.try_lock()
        && let Some(path) = reading.as_ref()
    {
        let _ = errors.write_all(path.as_os_str().as_bytes());
        let _ = errors.write_all(b": ");
    }
    let _ = errors.write_all(b"more memory was asked for than there is; is the file damaged?\n");
    std::process::exit(joulecast_reports::exit::FAILED.into())
}

fn given(layout: Layout, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
    if layout.size() > MOST_BYTES {
        end();
    }
    let pointer = allocate();
    if pointer.is_null() {
        end();
    }
    pointer
}

// SAFETY: every call goes to the system's allocator as it came; null is never returned, which callers need not get.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        given(layout, || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        given(layout, || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > MOST_BYTES {
            end();
        }
        // SAFETY: the caller's.
        given(layout, || unsafe { System.realloc(pointer, layout, size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(pointer, layout) };
    }
}
