//! Calibration: published files into datasets, datasets into fitted models, models against held-out rows.

// They end the program where nobody reads; `joulecast_reports::{say, print}` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod system;
pub mod rows;
pub mod campaign;
pub mod fit;
pub mod judge;
pub mod cli;
