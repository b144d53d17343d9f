//! Timestamps in responses.

pub(crate) use isolet_clock::{now_ms, rfc3339};
