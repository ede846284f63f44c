//! What a page says of its making: the day, the program and its versions, and the command line.

use crate::utc;
use joulecast_model::catalog;
use std::sync::OnceLock;

static MADE: OnceLock<(String, String)> = OnceLock::new();

/// Says which program makes pages, and by which command line; what is said first counts.
pub fn made_by(program: String, command: String) {
    let _ = MADE.set((program, command));
}

/// The lines under a page.
pub(crate) fn lines() -> Vec<String> {
    let day = utc::day(now());
    match MADE.get() {
        Some((program, command)) => vec![format!("Made on {day} by {program}:"), command.clone()],
        None => {
            vec![format!("Made on {day} by Joulecast {}, data {}.", env!("CARGO_PKG_VERSION"), catalog::data_version())]
        }
    }
}

/// Seconds since 1970, or what reproducible builds say instead (`SOURCE_DATE_EPOCH`).
fn now() -> u64 {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    said.unwrap_or_else(utc::seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_767_225_599, "2025-12-31"),
            (1_767_225_600, "2026-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(utc::day(seconds), expected);
        }
    }

    #[test]
    fn a_page_says_what_made_it() {
        let lines = lines().join(" ");
        assert!(lines.starts_with("Made on 2") && lines.contains(env!("CARGO_PKG_VERSION")), "{lines}");
    }
}
