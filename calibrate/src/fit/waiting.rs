//! How far fits are, for whoever waits for them.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::Duration;

/// Between two movements of the bar while nothing ends.
const TICK: Duration = Duration::from_secs(1);

/// A bar over the models to fit: candidate terms, not rows, make most of the time of each.
#[derive(Debug)]
pub struct FitBar(ProgressBar);

impl FitBar {
    /// On standard error if that is a terminal; nothing is shown elsewhere, or when quiet.
    pub fn new(quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self::hidden();
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} models{msg}, {elapsed}, {eta} left") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Counts and shows nothing.
    pub fn hidden() -> Self {
        let bar = ProgressBar::hidden();
        bar.set_length(0);
        Self(bar)
    }

    /// So many models are to be fitted.
    pub fn begin(&self, models: usize) {
        self.0.inc_length(models as u64);
    }

    /// A model was fitted.
    pub fn fitted(&self, what: impl std::fmt::Display) {
        self.0.set_message(format!(", last {what}"));
        self.0.inc(1);
    }

    /// Models fitted, and models to fit.
    pub fn state(&self) -> (u64, Option<u64>) {
        (self.0.position(), self.0.length())
    }
}

impl Drop for FitBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
