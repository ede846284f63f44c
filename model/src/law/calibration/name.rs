//! Names in calibration files: of kinds and of terms.

use serde::Deserialize;
use std::borrow::Cow;
use std::fmt;

/// A name, borrowed from the file where that can be.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AsRef<str> for Name<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
