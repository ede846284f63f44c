//! How long a network takes on a GPU, at which power, with how much energy: the questions of the program `predict`, for
//! Rust.
//!
//! A [`Request`] says what is asked, a [`Session`] keeps what was read, and the functions of [`ask`] answer with values.
//! The program is a command line (`args`, as typed), which becomes a request, and text made of the answer (`run`).

// These panic where nobody reads; `joulecast_reports::{say, print}` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod failure;
pub mod request;
pub mod source;
pub mod cluster;
pub mod session;
pub mod ask;
pub mod typed;
mod args;
mod output;
mod terminal;
mod run;

pub use failure::Failure;
pub use request::Request;
pub use session::Session;

use clap::Parser;
use joulecast_reports::{exit, say};
use std::ffi::OsString;
use std::process::ExitCode;

/// The program: parse, run, report. Exit statuses: `joulecast_reports::exit`.
pub fn main() -> ExitCode {
    ExitCode::from(program("predict", std::env::args_os().skip(1)))
}

/// The program as something else starts it: how it is called there, and the words behind that. Its exit status.
pub fn program(called: &str, words: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let line = std::iter::once(OsString::from(called)).chain(words.iter().cloned());
    let cli = match args::Cli::try_parse_from(line) {
        Ok(cli) => cli,
        // Help is no error.
        Err(e) => {
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(exit::USAGE);
        }
    };
    let Err(failure) = run::run(cli, &words) else { return 0 };
    say(format_args!("error: {failure}"));
    match failure {
        Failure::Usage(_) => exit::USAGE,
        Failure::Failed(_) => exit::FAILED,
    }
}
