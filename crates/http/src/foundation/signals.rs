//! Signals by name and number.

use crate::foundation::error::ApiError;
use utoipa::openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// How the OpenAPI document describes a signal that [`parse`] accepts.
pub(crate) enum SignalValue {}

impl PartialSchema for SignalValue {
    fn schema() -> RefOr<Schema> {
        let name = ObjectBuilder::new().schema_type(Type::String);
        let number =
            ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(64));
        OneOfBuilder::new()
            .item(name)
            .item(number)
            .description(Some("A number from 1 to 64, or a name such as `INT` or `SIGINT`."))
            .into()
    }
}

impl ToSchema for SignalValue {}

/// A signal by number or name (`15`, `"TERM"`, `"SIGTERM"`).
pub(crate) fn parse(value: &serde_json::Value) -> Result<i32, ApiError> {
    let wrong = || {
        ApiError::bad_field("signal", "must be a number from 1 to 64, or a name such as \"INT\"")
    };
    if let Some(number) = value.as_i64() {
        return i32::try_from(number).ok().filter(|n| (1..=64).contains(n)).ok_or_else(wrong);
    }
    let name = value.as_str().ok_or_else(wrong)?;
    let name = name.strip_prefix("SIG").unwrap_or(name);
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number).ok_or_else(wrong)
}

/// The name of a signal, such as `SIGTERM`; real-time signals by number, such as `SIG34`.
pub(crate) fn name(number: i32) -> String {
    let known = SIGNALS.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| format!("SIG{number}"), |(name, _)| format!("SIG{name}"))
}

/// Linux's numbers, which are the same on all supported architectures.
const SIGNALS: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn signals_have_numbers_and_names() {
        for good in [json!(15), json!("TERM"), json!("SIGTERM")] {
            assert_eq!(parse(&good).unwrap(), 15);
        }
        assert_eq!(parse(&json!(64)).unwrap(), 64);
        for bad in [
            json!(0),
            json!(65),
            json!(-1),
            json!(1.5),
            json!("KILL\0"),
            json!("term"),
            json!(null),
        ] {
            assert!(parse(&bad).is_err(), "{bad}");
        }
        assert_eq!((name(15), name(40)), ("SIGTERM".to_owned(), "SIG40".to_owned()));
    }
}
