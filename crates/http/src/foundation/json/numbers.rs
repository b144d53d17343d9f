//! Numbers in JSON fields, with their bounds.

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A number within bounds, which the error names.
struct NumberWithin<const LEAST: u16, const MOST: u16>;

impl<const LEAST: u16, const MOST: u16> Visitor<'_> for NumberWithin<LEAST, MOST> {
    type Value = u16;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {LEAST} to {MOST}")
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u16, E> {
        let fits = u16::try_from(number).ok().filter(|fits| (LEAST..=MOST).contains(fits));
        fits.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u16, E> {
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }
}

/// Reads a port, 1 to 65535.
pub(crate) fn port<'de, D: Deserializer<'de>>(reader: D) -> Result<u16, D::Error> {
    reader.deserialize_u16(NumberWithin::<1, 65_535>)
}

/// Reads a port that may be absent, but not `null`.
pub(crate) fn not_null_port<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<u16>, D::Error> {
    port(reader).map(Some)
}

/// Reads an HTTP status code that may be absent, but not `null`.
pub(crate) fn not_null_status<'de, D: Deserializer<'de>>(
    reader: D,
) -> Result<Option<u16>, D::Error> {
    reader.deserialize_u16(NumberWithin::<100, 599>).map(Some)
}

/// For optional numbers in which `null` means the same as 0: never.
pub(crate) fn null_as_zero<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<u64>, D::Error> {
    Option::deserialize(reader).map(|number: Option<u64>| Some(number.unwrap_or(0)))
}
