//! Labels of nodes: names, values and regions.

use serde::Deserialize;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of labels of a node, and of labels that a request demands.
pub const LABELS_MAX: usize = 32;
/// Maximum length of the name or value of a label and of a region, in bytes.
pub const LABEL_BYTES_MAX: usize = 63;

/// Labels: name and value.
pub type Labels = BTreeMap<Label, Label>;

/// The name or value of a label, or a region: 1 to 63 letters, digits, `-`, `_`, `.` and `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

/// The text is neither a label nor a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a region and the name and value of a label must have 1 to {LABEL_BYTES_MAX} letters, digits, \
     `-`, `_`, `.` and `/`"
)]
pub struct BadLabel;

impl Label {
    /// Parses a name, a value or a region.
    ///
    /// # Errors
    /// [`BadLabel`].
    pub fn parse(text: &str) -> Result<Self, BadLabel> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if (1..=LABEL_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_valid) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadLabel)
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Label {
    type Error = BadLabel;

    fn try_from(text: String) -> Result<Self, BadLabel> {
        Self::parse(&text)
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0
    }
}
