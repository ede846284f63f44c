//! How long a network takes on a GPU, at which power, with how much energy: the questions of the program `predict`, for
//! Rust.
//!
//! A [`Request`] says what is asked, a [`Session`] keeps what was read, and the functions of [`ask`] answer with values.
//! The program (feature `program`) is a command line (`args`, as typed), which becomes a request, and text made of the
//! answer (`run`).

// These panic where nobody reads; `joulecast_reports::{say, print}` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod failure;
pub mod request;
pub mod source;
pub mod cluster;
pub mod session;
pub mod ask;
#[cfg(feature = "program")]
mod args;
#[cfg(feature = "program")]
mod output;
#[cfg(feature = "program")]
mod terminal;
#[cfg(feature = "program")]
mod run;

pub use failure::Failure;
pub use request::Request;
pub use session::Session;

/// The program: parse, run, report. Exit statuses: `joulecast_reports::exit`.
#[cfg(feature = "program")]
pub fn main() -> std::process::ExitCode {
    use clap::Parser;
    use joulecast_reports::{exit, say};
    use std::process::ExitCode;
    let Err(failure) = run::run(args::Cli::parse()) else { return ExitCode::SUCCESS };
    say(format_args!("error: {failure}"));
    ExitCode::from(match failure {
        Failure::Usage(_) => exit::USAGE,
        Failure::Failed(_) => exit::FAILED,
    })
}
