//! What an engine that serves language models adds to the kernels of its steps.

use crate::base::file::{FileError, quantity};
use crate::base::units::{Dimension, Seconds};
use serde::Deserialize;

/// What an engine adds to a step: its scheduler, sampling, launches, whatever the GPU waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Serving {
    /// For each step.
    pub step: Seconds,
    /// For each sequence in it.
    pub sequence: Seconds,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServingFile {
    step: String,
    sequence: String,
    #[serde(rename = "source")]
    _source: String,
}

impl ServingFile {
    pub(super) fn read(&self) -> Result<Serving, FileError> {
        let time = |what: &str, text: &str| quantity(what, text, Dimension::Time).map(Seconds::new);
        Ok(Serving { step: time("serving step", &self.step)?, sequence: time("serving sequence", &self.sequence)? })
    }
}
