//! Data of clients that the server stores and returns unchanged.

use crate::model::input::BadInput;
use serde_json::{Map, Value};

/// Arbitrary JSON of a client, at most [`Metadata::BYTES_MAX`] as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata(Map<String, Value>);

impl Metadata {
    /// Maximum size as JSON without spaces, in bytes.
    pub const BYTES_MAX: usize = 16 * 1024;

    /// Parses metadata from a client.
    ///
    /// # Errors
    /// [`BadInput`] of the field `metadata`.
    pub fn parse(metadata: Map<String, Value>) -> Result<Self, BadInput> {
        let bytes = serde_json::to_vec(&metadata).map_or(usize::MAX, |json| json.len());
        if bytes > Self::BYTES_MAX {
            return Err(BadInput::new("metadata", "must be at most 16 KiB as JSON"));
        }
        Ok(Self(metadata))
    }

    /// The JSON for the record.
    #[must_use]
    pub fn into_inner(self) -> Map<String, Value> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_as_json_is_limited() {
        let of = |bytes: usize| {
            let text = "x".repeat(bytes - r#"{"a":""}"#.len());
            Metadata::parse([("a".to_owned(), Value::String(text))].into_iter().collect())
        };
        assert!(of(Metadata::BYTES_MAX).is_ok());
        let error = of(Metadata::BYTES_MAX + 1).unwrap_err();
        assert_eq!(error.to_string(), "metadata: must be at most 16 KiB as JSON");
    }
}
