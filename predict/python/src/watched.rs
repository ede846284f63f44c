//! Work that Python waits for: Ctrl-C ends the waiting, and a progress bar is told how far it is.

use crate::failure::error;
use joulecast_predict::Failure;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use std::time::Duration;

/// How long Ctrl-C waits at most, and how often a bar is told.
const POLL: Duration = Duration::from_millis(50);

/// What work and who waits for it know of each other.
#[derive(Default)]
pub struct Watch {
    stop: AtomicBool,
    done: AtomicU64,
}

impl Watch {
    /// Whether nobody waits any longer.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Says that so much more is done.
    pub fn done(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }
}

/// Runs work on a thread of its own, which holds nothing of Python's, and waits. Where Python is told to stop meanwhile, work that
/// does not ask [`Watch::is_stopped`] ends by itself some time later. `bar.update(N)` is called as work is done.
///
/// # Errors
/// The failure; KeyboardInterrupt or what else a handler of signals raises; what the bar raises.
pub fn watched<T: Send + 'static>(
    py: Python<'_>,
    bar: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let watch = Arc::new(Watch::default());
    let (tell, told) = sync_channel(1);
    // A receiver alone is not for a closure that is to leave the interpreter.
    let told = Mutex::new(told);
    let theirs = Arc::clone(&watch);
    let run = move || {
        let _ = tell.send(work(&theirs));
    };
    let thread = std::thread::Builder::new().name("joulecast".into()).spawn(run);
    let thread = thread.map_err(|e| PyRuntimeError::new_err(format!("no thread can be started: {e}")))?;
    let mut shown = 0;
    let mut tell_bar = || -> PyResult<()> {
        let done = watch.done.load(Ordering::Relaxed);
        match bar.filter(|_| done > shown) {
            Some(bar) => bar.call_method1("update", (done - std::mem::replace(&mut shown, done),)).map(|_| ()),
            None => Ok(()),
        }
    };
    loop {
        let answer = py.detach(|| told.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(POLL));
        match answer {
            Ok(made) => {
                tell_bar()?;
                return made.map_err(error);
            }
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => return Err(PyRuntimeError::new_err("there is no answer")),
            },
            Err(RecvTimeoutError::Timeout) => {
                if let Err(exception) = py.check_signals().and_then(|()| tell_bar()) {
                    watch.stop.store(true, Ordering::Relaxed);
                    return Err(exception);
                }
            }
        }
    }
}
