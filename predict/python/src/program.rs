//! The command line.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the program with these words and says its exit status.
#[pyfunction]
pub fn program(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| joulecast_predict::program("joulecast", words))
}
