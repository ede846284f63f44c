//! Moments as texts: `2026-11-22T20:05:00Z`, which sort as they follow each other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// Seconds since 1970.
pub(crate) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// The present moment.
pub fn now() -> String {
    text(seconds())
}

/// A moment by its seconds since 1970, leap seconds not counted.
pub fn text(seconds: u64) -> String {
    let second = seconds % DAY;
    format!("{}T{:02}:{:02}:{:02}Z", day(seconds), second / 3600, second / 60 % 60, second % 60)
}

/// The day of a moment. Hinnant, "chrono-Compatible Low-Level Date Algorithms" (2014), `civil_from_days`, years beginning in
/// March.
pub(crate) fn day(seconds: u64) -> String {
    let days = seconds / DAY + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_are_known() {
        // As `date -u -d @N +%FT%TZ` prints them.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_377_905, "2026-11-22T20:05:05Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(text(seconds), expected);
            assert_eq!(day(seconds), expected[..10]);
        }
        assert!(now().as_str() > "2026-01-01T00:00:00Z");
    }
}
