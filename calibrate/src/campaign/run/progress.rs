//! How far a run is, for whoever waits: a bar on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use joulecast_reports::say;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(30);

/// Is told how far a run is.
pub trait Progress {
    /// So many trials are to be run.
    fn begin(&mut self, trials: usize);
    /// So many have been, and so many rows written.
    fn done(&mut self, trials: usize, rows: usize);
    /// Something worth knowing.
    fn say(&mut self, line: &str);
    /// Nothing more comes.
    fn finish(&mut self);
}

/// On standard error.
pub struct OnStderr {
    bar: Option<ProgressBar>,
    total: usize,
    begun: Instant,
    last: Instant,
}

impl OnStderr {
    /// A bar if standard error is a terminal, else lines.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} trials, {msg}, {eta} left");
            let bar = ProgressBar::new(0);
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        let now = Instant::now();
        Self { bar, total: 0, begun: now, last: now }
    }
}

impl Default for OnStderr {
    fn default() -> Self {
        Self::new()
    }
}

/// Time left in words, by the mean time of a trial so far; nothing before the first is done.
fn left(elapsed: Duration, done: usize, total: usize) -> Option<String> {
    let each = elapsed.as_secs_f64() / (done > 0).then_some(done as f64)?;
    let seconds = each * total.saturating_sub(done) as f64;
    Some(if seconds < 90.0 { format!("{seconds:.0} s left") } else { format!("{:.0} min left", seconds / 60.0) })
}

impl Progress for OnStderr {
    fn begin(&mut self, trials: usize) {
        (self.total, self.begun, self.last) = (trials, Instant::now(), Instant::now());
        if let Some(bar) = &self.bar {
            bar.set_length(trials as u64);
            bar.reset_eta();
        }
    }

    fn done(&mut self, trials: usize, rows: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(trials as u64);
            bar.set_message(format!("{rows} rows"));
        } else if self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            let left = left(self.begun.elapsed(), trials, self.total).unwrap_or_default();
            say(format!("{trials} of {} trials, {rows} rows, {left}", self.total));
        }
    }

    fn say(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(line)),
            None => say(line),
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_mean() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(left(elapsed, 10, 30).as_deref(), Some("20 s left"));
        assert_eq!(left(elapsed, 1, 61).as_deref(), Some("10 min left"));
        assert_eq!(left(elapsed, 0, 61), None);
        assert_eq!(left(elapsed, 9, 3).as_deref(), Some("0 s left"));
    }
}
