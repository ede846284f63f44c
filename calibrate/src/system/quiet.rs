//! Libraries that panic on damaged files: their panics are errors here, and nothing of them is printed.

use anyhow::{Result, anyhow};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::thread;

/// Longest part of a panic's message that is shown.
const MOST_CHARACTERS: usize = 200;
/// Polars names the threads of its pool so, each with a number.
const POOL: &str = "polars-";

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}
static HOOK: Once = Once::new();

/// What `work` returns, or its panic as an error: one line, in the library's words. Prints nothing of a panic in this
/// thread or in a pool of polars, which passes its panics on to whoever waits for it.
///
/// # Errors
/// When `work` panics.
pub fn quietly<T>(work: impl FnOnce() -> T) -> Result<T> {
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let pool = thread::current().name().is_some_and(|name| name.starts_with(POOL));
            if !(pool || QUIET.try_with(Cell::get).unwrap_or(false)) {
                before(info);
            }
        }));
    });
    let outer = QUIET.replace(true);
    // What a panic leaves half-done is dropped with it: callers hand over values of their own.
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(outer);
    result.map_err(|panic| anyhow!("{}", message(panic.as_ref())))
}

/// The first line of a panic's message, not too much of it.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "no reason given",
    };
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(MOST_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_one_line() {
        assert_eq!(quietly(|| 7).map_err(|e| e.to_string()), Ok(7));
        let error = quietly(|| panic!("range end {} out of range\nand more", 9)).map(|()| 0).map_err(|e| e.to_string());
        assert_eq!(error, Err("range end 9 out of range".to_string()));
        let long = quietly(|| panic!("{}", "x".repeat(100_000))).map(|()| 0).map_err(|e| e.to_string().len());
        assert_eq!(long, Err(MOST_CHARACTERS));
        assert!(!QUIET.get(), "other panics of this thread are printed again");
    }
}
