//! Durations such as `1h30m`.

use std::time::Duration;

/// The longest duration, in seconds: a year.
const MAX_S: u64 = 366 * 24 * 3600;

/// Parses hours, minutes and seconds, each at most once and in this order: `2h`, `1h30m`, `45s`.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0_u64;
    for (unit, length) in [('h', 3600), ('m', 60), ('s', 1)] {
        let Some((number, after)) = rest.split_once(unit) else { continue };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(length)?)?;
        rest = after;
    }
    let whole = rest.is_empty() && !text.is_empty() && seconds <= MAX_S;
    whole.then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: P6.
    #[test]
    fn units_combine() {
        for (text, seconds) in
            [("2h", 7200), ("1h30m", 5400), ("90m", 5400), ("45s", 45), ("1h0m1s", 3601), ("0s", 0)]
        {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
    }

    /// Promises: P6.
    #[test]
    fn what_is_no_duration_is_none() {
        for text in [
            "",
            "1",
            "h",
            "-1s",
            "+1s",
            "1.5h",
            "1 h",
            "30m1h",
            "1h1h",
            "1d",
            "1H",
            "1h30",
            "９s",
            "99999999999999999999h",
            "9999999h",
            "1h\0",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
