//! Tests that cannot run where something is absent say so: the test harness has no such outcome and counts them as passed.

use std::io::Write as _;

/// Says that a test is skipped, and why: a line `skipped: NAME: REASON` on the error stream, past the harness, which keeps
/// what passing tests print to itself. `.ci/run` counts these lines and repeats them at its end.
pub fn skipped(name: &str, reason: &str) {
    // The harness may stand in the middle of a line.
    let line = format!("\n{}\n", line(name, reason));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn line(name: &str, reason: &str) -> String {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("skipped: {}: {}", one_line(name), one_line(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_one_line() {
        assert_eq!(line("a::b", "no\n file"), "skipped: a::b: no file");
    }
}
