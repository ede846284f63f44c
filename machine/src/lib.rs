//! What Joulecast has to know of the machine that it runs on: which GPU is here, and how fast its host launches kernels.
//! Reads; what is measured, fitted and judged is `joulecast_calibrate`'s.

// They end the program where nobody reads; `joulecast_reports::{say, print}` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod gpu;
#[cfg(target_os = "linux")]
pub mod detect;
pub mod host;
pub mod cli;
