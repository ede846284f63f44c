//! Thin shell: parse, run, report. Exit statuses: `joulecast_reports::exit`.

// These panic where nobody reads; `joulecast_reports::{say, print}` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod commands;
mod compare;
mod convert;
mod devices;
mod generate;
mod input;
mod networks;
mod optimize;
mod output;
mod papers;
mod parallel;
mod plan;
mod sweep;
mod terminal;
mod training;

use clap::Parser;
use commands::Failure;
use joulecast_reports::{error_line, exit, say};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (code, error) = match cli::run(cli::Cli::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => (exit::USAGE, error),
        Err(Failure::Failed(error)) => (exit::FAILED, error),
    };
    say(format_args!("error: {}", error_line(error.chain().map(ToString::to_string))));
    ExitCode::from(code)
}
