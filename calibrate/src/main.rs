//! Thin shell over the library: parse, run, report.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match joulecast_calibrate::cli::run(joulecast_calibrate::cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}
