//! Hosts that feed samples, as profiles list them.

use crate::base::file::{FileError, within};
use crate::base::text::shown;
use serde::Deserialize;

/// A host's input pipeline, as a framework profile lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Name on the command line.
    pub name: String,
    /// Which data, read by what on which host, in words.
    pub title: String,
    /// Samples per second, for all GPUs of the host together.
    pub samples_per_second: f64,
}

/// An entry `[[input]]` of a profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputFile {
    name: String,
    title: String,
    samples_per_s: f64,
    #[serde(rename = "source")]
    _source: String,
}

impl InputFile {
    pub(super) fn read(self) -> Result<Input, FileError> {
        let Self { name, title, samples_per_s: rate, .. } = self;
        within(&format!("input {}: samples_per_s", shown(&name)), rate, 1e-6..=1e12)?;
        Ok(Input { name, title, samples_per_second: rate })
    }
}
