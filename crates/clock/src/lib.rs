//! The wall clock, and timestamps as text.
//!
//! Records, wire frames and answers hold milliseconds since 1970 as an `i64`. Answers for people and
//! audit logs hold the same moment as RFC 3339, in UTC and always with three digits of a second, so
//! that timestamps sort as text. Audit lines are signed: the form must never change.
#![forbid(unsafe_code)]

use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

const FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// The first and the last millisecond whose year has the four digits that RFC 3339 demands.
const FIRST_MS: i64 = -62_167_219_200_000;
const LAST_MS: i64 = 253_402_300_799_999;

/// The current time in milliseconds since 1970; 0 while the host's clock is set to an earlier date.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Formats milliseconds since 1970 as RFC 3339: `2024-02-29T23:59:59.000Z`.
///
/// A time outside the years 0 to 9999 has no such form; the nearest one that has is used.
#[must_use]
pub fn rfc3339(ms: i64) -> String {
    let nanos = i128::from(ms.clamp(FIRST_MS, LAST_MS)) * 1_000_000;
    let date = OffsetDateTime::from_unix_timestamp_nanos(nanos).expect("a year of four digits");
    date.format(FORMAT).expect("every part of the format is part of a date")
}

/// The milliseconds since 1970 of a time in any form of RFC 3339, with any offset from UTC:
/// `2024-03-01T00:59:59.000+01:00`. Parts of a millisecond are cut off. `None` if it is not such a time.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let date = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(date.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arithmetic that wrote every timestamp before the `time` crate was used. Old audit lines
    /// and answers have its form.
    fn by_hand(ms: i64) -> String {
        let days = ms.div_euclid(86_400_000);
        let rest = ms.rem_euclid(86_400_000);
        // Counts days of years that begin in March, so that leap days come last.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day = shifted.rem_euclid(146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        let hour = rest / 3_600_000;
        let minute = rest / 60_000 % 60;
        let second = rest / 1000 % 60;
        let ms = rest % 1000;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1, "1970-01-01T00:00:00.001Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (FIRST_MS, "0000-01-01T00:00:00.000Z"),
            (LAST_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
            assert_eq!(by_hand(ms), text);
        }
    }

    #[test]
    fn timestamps_keep_the_form_of_older_releases() {
        // Steps of some 37 days, which meet every hour, minute, second and millisecond in turn.
        let step = 3_196_801_001;
        let mut ms = FIRST_MS;
        while ms <= LAST_MS {
            assert_eq!(rfc3339(ms), by_hand(ms), "{ms}");
            ms += step;
        }
        // Both ends of each day around each leap day, and of each new year.
        for year in 1968..2450_i64 {
            let new_year = (year - 1970) * 31_556_952_000;
            for day in (-4..=64).map(|day| new_year + day * 86_400_000) {
                let midnight = day - day.rem_euclid(86_400_000);
                for ms in [midnight - 1, midnight, midnight + 999] {
                    assert_eq!(rfc3339(ms), by_hand(ms), "{ms}");
                }
            }
        }
    }

    #[test]
    fn a_time_that_needs_five_digits_for_its_year_is_clamped() {
        assert_eq!(rfc3339(i64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(rfc3339(i64::MIN), "0000-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_time_is_parsed_with_its_offset() {
        for (text, ms) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("1969-12-31T23:59:59.9995Z", -1),
            ("2024-02-29T23:59:59Z", 1_709_251_199_000),
            ("2024-03-01T00:59:59.000000+01:00", 1_709_251_199_000),
            ("2024-02-29T18:29:59.123456-05:30", 1_709_251_199_123),
        ] {
            assert_eq!(parse_rfc3339(text), Some(ms), "{text}");
        }
        for bad in [
            "",
            "0",
            "2024-02-30T00:00:00Z",
            "2024-02-29",
            "2024-02-29T23:59:59",
            "2024-02-29T23:59:59Zx",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
        assert_eq!(parse_rfc3339(&rfc3339(1_709_251_199_001)), Some(1_709_251_199_001));
    }

    #[test]
    fn the_clock_is_past_its_first_release() {
        assert!(now_ms() > 1_700_000_000_000);
    }
}
