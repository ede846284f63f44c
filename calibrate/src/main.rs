//! Thin shell over the library: parse, run, report. Exit statuses: `joulecast_reports::exit`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use clap::Parser;
use joulecast_calibrate::campaign::limits::ObservedOnly;
use joulecast_calibrate::cli;
use joulecast_calibrate::rows::dataset::NoRows;
use joulecast_calibrate::system::memory;

use joulecast_reports::{error_line, exit, say};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: memory::OrEnd = memory::OrEnd;

fn main() -> ExitCode {
    let error = match cli::run(cli::Cli::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        usage.exit();
    }
    say(format!("error: {}", error_line(error.chain().map(ToString::to_string))));
    ExitCode::from(if error.is::<NoRows>() {
        exit::NO_ROWS
    } else if error.is::<ObservedOnly>() {
        exit::OBSERVED_ONLY
    } else {
        exit::FAILED
    })
}
