//! How a run ended, for the user and for the dataset's folder.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Nothing is left to run.
    Finished,
    /// The budget ended.
    Budget,
    /// The user interrupted it.
    Interrupted,
    /// The device failed.
    Failed,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Rows written.
    pub rows: usize,
    /// Flagged ones among them.
    pub flagged: usize,
    /// Trials whose rows were there already.
    pub known: usize,
    /// Trials that cannot run, by reason, this time and before.
    pub skipped: BTreeMap<&'static str, usize>,
    /// Trials not begun.
    pub left: usize,
    /// The segment written.
    pub segment: Option<PathBuf>,
}

impl Outcome {
    /// What a run did, in lines for the user.
    pub fn text(&self) -> String {
        let mut text = format!("{} rows written, {} of them flagged", self.rows, self.flagged);
        if self.known > 0 {
            text += &format!("; {} trials were there already", self.known);
        }
        text.push('\n');
        for (reason, count) in &self.skipped {
            text += &format!("{count} trials skipped: {reason}\n");
        }
        let why = match self.end {
            End::Budget => "the budget ended",
            End::Interrupted => "interrupted",
            End::Finished | End::Failed => "",
        };
        if self.left > 0 {
            text += &format!("{why}: {} trials are left; the same command goes on with them\n", self.left);
        }
        if let Some(segment) = &self.segment {
            text += &format!("{}\n", segment.display());
        }
        text
    }
}

/// A line of `CAMPAIGN.runs.jsonl`: what a run took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// Plan.
    pub plan_id: String,
    /// Program and version.
    pub tool: String,
    /// Product, as the driver gives it.
    pub product: String,
    /// Why it ended.
    pub end: End,
    /// Length in the device's time (virtual for the fake).
    pub seconds: f64,
    /// Trials run.
    pub trials: usize,
    /// Rows written.
    pub rows: usize,
}
