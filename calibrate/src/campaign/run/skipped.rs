//! Trials that a device cannot run: `CAMPAIGN.skipped.jsonl`, one line each.

use anyhow::{Context, Result};
use joulecast_kernels::DeviceError;
use joulecast_model::base::precision::{Phase, Precision};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Extension of the files.
pub const EXTENSION: &str = "skipped.jsonl";

/// Why a trial was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The device or library does not do this layer in this way.
    Unsupported,
    /// It does not fit in memory.
    OutOfMemory,
    /// A call failed; it is tried again by the next run.
    Failed,
}

impl Reason {
    /// Why an error makes a trial be skipped; `None` where it ends the run.
    pub fn of(error: &DeviceError) -> Option<Self> {
        match error {
            DeviceError::Unsupported { .. } => Some(Self::Unsupported),
            DeviceError::OutOfMemory { .. } => Some(Self::OutOfMemory),
            DeviceError::Call { .. } => Some(Self::Failed),
            _ => None,
        }
    }

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::OutOfMemory => "out_of_memory",
            Self::Failed => "failed",
        }
    }

    /// Whether trying again is pointless.
    pub fn is_final(self) -> bool {
        self != Self::Failed
    }
}

/// A skipped trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// The trial.
    pub trial_id: String,
    /// Its stratum.
    pub stratum: String,
    /// Layer kind.
    pub kind: String,
    /// Phase.
    pub phase: Phase,
    /// Precision.
    pub precision: Precision,
    /// Samples.
    pub batch: u64,
    /// Repeat.
    pub repeat: u32,
    /// Why.
    pub reason: Reason,
    /// Why, in the device's words.
    pub why: String,
}

/// The file of a campaign.
#[derive(Debug)]
pub struct SkippedLog(PathBuf);

impl SkippedLog {
    /// Of a campaign in a dataset's folder; nothing is created.
    pub fn new(folder: &Path, campaign: &str) -> Self {
        Self(folder.join(format!("{campaign}.{EXTENSION}")))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Appends a trial, on disk when this returns.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append(&self, skipped: &Skipped) -> Result<()> {
        super::append_line(&self.0, skipped)
    }

    /// The trials so far. A last line that was cut off is left out.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read(&self) -> Result<Vec<Skipped>> {
        read(&self.0)
    }
}

/// Reads a file of skipped trials; none where there is no file.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn read(path: &Path) -> Result<Vec<Skipped>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}
