//! Thin shell over the library: parse, run, report. Exit 3 where the rows to work on are absent, 4 where
//! settings were asked for, not permitted, and the device was only observed.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match joulecast_calibrate::cli::run(joulecast_calibrate::cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", joulecast_reports::error_line(error.chain().map(ToString::to_string)));
            if error.is::<joulecast_calibrate::cli::NoRows>() {
                ExitCode::from(3)
            } else if error.is::<joulecast_calibrate::sweep::ObservedOnly>() {
                ExitCode::from(4)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
