//! The interrupt key ends a run after the trial in hand; a second one ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether the user asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

#[cfg(unix)]
use std::ffi::c_int;

/// `SIGINT` on every Unix.
#[cfg(unix)]
const INTERRUPT: c_int = 2;
/// `SIG_DFL`: the default action, which ends the program.
#[cfg(unix)]
const DEFAULT: usize = 0;

#[cfg(unix)]
unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
}

/// From here on the interrupt key ends the program, as it does before [`listen`].
#[cfg(unix)]
pub fn stop_listening() {
    // SAFETY: the default action is always a valid handler.
    unsafe { signal(INTERRUPT, DEFAULT) };
}

/// From here on the interrupt key sets [`requested`].
#[cfg(unix)]
pub fn listen() {
    extern "C" fn handle(number: c_int) {
        REQUESTED.store(true, Ordering::Relaxed);
        // SAFETY: signal() may be called in a handler.
        unsafe { signal(number, DEFAULT) };
    }
    // SAFETY: the handler only stores to an atomic and calls signal(), both of which are safe in a handler.
    unsafe { signal(INTERRUPT, handle as extern "C" fn(c_int) as usize) };
}

/// Elsewhere the interrupt key ends the program; rows measured are on disk all the same.
#[cfg(not(unix))]
pub fn listen() {}

/// Nothing was changed.
#[cfg(not(unix))]
pub fn stop_listening() {}
