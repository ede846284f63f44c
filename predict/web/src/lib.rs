//! The predictor for a page in a browser, or for Node: a module of WebAssembly that imports nothing.
//!
//! Its interface is plain functions over one buffer each way. Who asks [`reserve`]s bytes, writes into them, calls one of the
//! other functions, and reads as many bytes as that returns from where [`answer`] is. Questions and answers are JSON
//! ([`question`]); answers are the documents that the command prints.

mod catalog;
pub mod question;

use joulecast_model::net::network::folding::Folding;
use joulecast_predict::Session;
use joulecast_predict::session::Held;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

struct State {
    session: Session,
    /// What the page writes.
    input: Vec<u8>,
    /// What it reads.
    output: Vec<u8>,
}

static STATE: LazyLock<Mutex<State>> =
    LazyLock::new(|| Mutex::new(State { session: Session::new(), input: Vec::new(), output: Vec::new() }));

fn state() -> MutexGuard<'static, State> {
    // Nothing of it is left half made.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The input without what a file's name takes, and that name.
fn named(state: &mut State, name_length: usize) -> Option<(String, Vec<u8>)> {
    let mut bytes = std::mem::take(&mut state.input);
    if name_length > bytes.len() {
        return None;
    }
    let file = bytes.split_off(name_length);
    Some((String::from_utf8(bytes).ok()?, file))
}

/// Where so many bytes are to be written, before any of the functions below is called.
#[unsafe(no_mangle)]
pub extern "C" fn reserve(length: usize) -> *mut u8 {
    let mut state = state();
    state.input = vec![0; length];
    state.input.as_mut_ptr()
}

/// Where the answer to the last question is.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const u8 {
    state().output.as_ptr()
}

/// Answers the question that was written; how many bytes the answer has.
#[unsafe(no_mangle)]
pub extern "C" fn ask() -> usize {
    let mut state = state();
    let input = std::mem::take(&mut state.input);
    state.output = question::answer(&state.session, &input).into_bytes();
    state.output.len()
}

/// Takes a network's file: its name, of so many bytes, and behind it what it holds. 1 where it was taken, 0 where the name is
/// no text.
#[unsafe(no_mangle)]
pub extern "C" fn hold(name_length: usize) -> u32 {
    let mut state = state();
    let file = named(&mut state, name_length);
    file.map(|(name, bytes)| state.session.hold(&name, Held { content: bytes.into(), folding: Folding::default() }))
        .is_some()
        .into()
}

/// Takes a packed calibration in the same way. 1 where it was wanted, 0 where not.
#[unsafe(no_mangle)]
pub extern "C" fn provide(name_length: usize) -> u32 {
    let file = named(&mut state(), name_length);
    file.is_some_and(|(name, bytes)| joulecast_data::give_calibration(&name, bytes)).into()
}
