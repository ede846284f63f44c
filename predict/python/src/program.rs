//! The command line.

use joulecast_machine::cli as machine;
use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the program with these words and says its exit status.
#[pyfunction]
pub fn program(py: Python<'_>, words: Vec<OsString>) -> u8 {
    let of_the_machine = words.first().is_some_and(|word| word.to_str().is_some_and(machine::is_command));
    py.detach(|| match of_the_machine {
        true => machine::program("joulecast", "joulecast predict", words),
        false => joulecast_predict::program("joulecast", words),
    })
}
