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
pub mod typed;
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

/// Version, commit (where the build knew it) and version of the data, as `--version` says them.
pub fn version() -> &'static str {
    static VERSION: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    VERSION.get_or_init(|| {
        let commit = match env!("JOULECAST_COMMIT") {
            "" => String::new(),
            commit => format!("commit {commit}, "),
        };
        format!("{} ({commit}data {})", env!("CARGO_PKG_VERSION"), joulecast_model::catalog::data_version())
    })
}

/// The program: parse, run, report. Exit statuses: `joulecast_reports::exit`.
#[cfg(feature = "program")]
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(program("predict", std::env::args_os().skip(1)))
}

/// The program as something else starts it: how it is called there, and the words behind that. Its exit status.
#[cfg(feature = "program")]
pub fn program(called: &str, words: impl IntoIterator<Item = std::ffi::OsString>) -> u8 {
    use clap::Parser;
    use joulecast_reports::{exit, say};
    use std::ffi::OsString;
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
