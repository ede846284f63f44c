//! Thin shell: parse, run, report. Exit 2 for wrong arguments, 1 for failures.

mod cli;
mod commands;
mod optimize;

use clap::Parser;
use commands::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (code, error) = match cli::run(cli::Cli::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => (2, error),
        Err(Failure::Failed(error)) => (1, error),
    };
    eprintln!("error: {}", joulecast_reports::error_line(error.chain().map(ToString::to_string)));
    ExitCode::from(code)
}
