//! Amounts with units on the command line: memory (`2g`), processor time (`0.5cpu`) and times (`10m`).

/// The names of units of memory, and their size in MiB. All are powers of 1024, as with Docker.
const MEMORY_UNITS: [(&[&str], f64); 4] = [
    (&["k", "kb", "kib"], 1.0 / 1024.0),
    (&["m", "mb", "mib"], 1.0),
    (&["g", "gb", "gib"], 1024.0),
    (&["t", "tb", "tib"], 1024.0 * 1024.0),
];

/// The names of units of time, and their length in milliseconds.
const TIME_UNITS: [(&[&str], f64); 5] = [
    (&["ms"], 1.0),
    (&["s", "sec"], 1000.0),
    (&["m", "min"], 60_000.0),
    (&["h"], 3_600_000.0),
    (&["d"], 86_400_000.0),
];

/// The largest number without a unit that is certainly not meant as a number of processors: a server
/// accepts no limit below.
const MILLIS_MIN: u64 = 10;

/// The longest timeout of a command, in milliseconds: the limit of the server.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// The largest whole number that a calculation with fractions keeps exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Parses an amount of memory or disk space in MiB: `512m`, `2g`, or a number of MiB.
pub(crate) fn mebibytes(text: &str) -> Result<u64, String> {
    let wrong = || "must be an amount such as 512m or 2g; without a unit it is in MiB".to_owned();
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let size = factor(&MEMORY_UNITS, &unit, "m").ok_or_else(wrong)?;
    let mib = number * size;
    match mib {
        _ if mib > 0.0 && mib < 1.0 => Err("must be at least 1m".to_owned()),
        _ => whole(mib.ceil()).ok_or_else(wrong),
    }
}

/// Parses processor time in thousandths of one core: `0.5cpu`, `500m`, `0.5`, or a number of thousandths.
pub(crate) fn cpu_millis(text: &str) -> Result<u64, String> {
    let wrong = || "must be an amount such as 0.5cpu, 2cpu or 500m".to_owned();
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let millis = match unit.as_str() {
        "cpu" | "cpus" | "core" | "cores" => number * 1000.0,
        "m" => number,
        "" if text.contains('.') => number * 1000.0,
        "" if number > 0.0 && number < MILLIS_MIN as f64 => {
            return Err(format!(
                "{text} is ambiguous, and less than {MILLIS_MIN} thousandths: write {text}cpu for processors"
            ));
        }
        "" => number,
        _ => return Err(wrong()),
    };
    whole(millis.round()).ok_or_else(wrong)
}

/// Parses a time in whole seconds: `90s`, `10m`, `1h`, `7d`, or a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "must be a time such as 90s, 10m, 1h or 7d".to_owned();
    let ms = milliseconds(text).map_err(|_| wrong())?;
    if ms % 1000 != 0 { Err(wrong()) } else { Ok(ms / 1000) }
}

/// Parses a time in milliseconds: `500ms`, `90s`, `10m`, or a number of seconds, which may have decimals.
pub(crate) fn milliseconds(text: &str) -> Result<u64, String> {
    let wrong = || "must be a time such as 0.5, 500ms, 90s, 10m or 1h".to_owned();
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let length = factor(&TIME_UNITS, &unit, "s").ok_or_else(wrong)?;
    whole((number * length).ceil()).ok_or_else(wrong)
}

/// Parses the timeout of a command: a time in milliseconds, at most a day; 0 means none.
pub(crate) fn timeout_ms(text: &str) -> Result<u64, String> {
    match milliseconds(text)? {
        ms if ms > TIMEOUT_MS_MAX => Err("must be at most 1d; 0 means no timeout".to_owned()),
        ms => Ok(ms),
    }
}

/// Splits an amount into its number and its unit in lower case.
fn split(text: &str) -> Option<(f64, String)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some((number.parse().ok()?, unit.trim().to_ascii_lowercase()))
}

fn factor(units: &[(&[&str], f64)], unit: &str, default: &str) -> Option<f64> {
    let unit = if unit.is_empty() { default } else { unit };
    units.iter().find(|(names, _)| names.contains(&unit)).map(|(_, size)| *size)
}

fn whole(number: f64) -> Option<u64> {
    (0.0..=EXACT_MAX).contains(&number).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_units_of_docker_and_kubernetes() {
        let memory = ["2048", "512m", "2g", "1.5GiB", "1tb", "2048k", "0"].map(mebibytes);
        assert_eq!(memory.map(Result::unwrap), [2048, 512, 2048, 1536, 1_048_576, 2, 0]);
        let cpu = ["500", "500m", "0.5", "0.5cpu", "2cpu", "1.0", "2 cpus"].map(cpu_millis);
        assert_eq!(cpu.map(Result::unwrap), [500, 500, 500, 500, 2000, 1000, 2000]);
        let times = ["90", "90s", "10m", "1h", "7d", "0"].map(seconds);
        assert_eq!(times.map(Result::unwrap), [90, 90, 600, 3600, 604_800, 0]);
        let exact = ["0.2", "500ms", "1.5s", "10m"].map(milliseconds);
        assert_eq!(exact.map(Result::unwrap), [200, 500, 1500, 600_000]);
    }

    #[test]
    fn wrong_amounts_are_refused_with_an_example() {
        for text in
            ["", "g", "-1g", "1x", "2gg", ".5g", "1e9", "99999999999999t", "1.2.3m", "\u{e9}"]
        {
            assert!(mebibytes(text).unwrap_err().contains("512m"), "{text}");
        }
        assert!(mebibytes("10k").unwrap_err().contains("at least"));
        for text in ["", "cpu", "1gpu", "-1", "0.5.5"] {
            assert!(cpu_millis(text).unwrap_err().contains("0.5cpu"), "{text}");
        }
        assert!(cpu_millis("2").unwrap_err().contains("2cpu"));
        for text in ["h", "1w", "18446744073709551615d", "0.5", "1ms", "-1s"] {
            assert!(seconds(text).unwrap_err().contains("10m"), "{text}");
        }
    }
}
