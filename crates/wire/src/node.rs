//! The name of a node of a fleet.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum length of the name of a node, in bytes: that of a DNS label.
pub const NODE_NAME_BYTES_MAX: usize = 63;

/// The name of a node, unique in its fleet: 1 to 63 lower-case letters, digits and inner hyphens (a
/// DNS label), so that certificates and keys can contain it as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// The text is not a valid name of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a node must have 1 to {NODE_NAME_BYTES_MAX} lower-case letters, digits and inner \
     hyphens, such as \"node-1\""
)]
pub struct BadNodeName;

impl NodeName {
    /// Parses a name.
    ///
    /// # Errors
    /// [`BadNodeName`].
    pub fn parse(text: &str) -> Result<Self, BadNodeName> {
        let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let is_valid = bytes.len() <= NODE_NAME_BYTES_MAX
            && bytes.first().is_some_and(is_inner)
            && bytes.last().is_some_and(is_inner)
            && bytes.iter().all(|byte| is_inner(byte) || *byte == b'-');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(BadNodeName) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NodeName {
    type Err = BadNodeName;

    fn from_str(text: &str) -> Result<Self, BadNodeName> {
        Self::parse(text)
    }
}

impl TryFrom<String> for NodeName {
    type Error = BadNodeName;

    fn try_from(text: String) -> Result<Self, BadNodeName> {
        Self::parse(&text)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dns_labels_in_lower_case_are_names() {
        let longest = "a".repeat(63);
        for valid in ["a", "7", "node-1", "eu--2", longest.as_str()] {
            assert_eq!(NodeName::parse(valid).unwrap().as_str(), valid);
        }
        let too_long = "a".repeat(64);
        for invalid in ["", "-", "a-", "-a", "A", "a.b", "a_b", "a/b", "ä", too_long.as_str()] {
            assert_eq!(NodeName::parse(invalid), Err(BadNodeName), "{invalid}");
        }
        assert!(NodeName::try_from("a/b".to_owned()).is_err());
    }
}
