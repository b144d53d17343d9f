//! The names of shells, terminals, contexts and spare kernels.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest name on the wire, in bytes, with its prefix.
pub const KEY_BYTES_MAX: usize = 256;

/// Names a shell, a terminal, a code context or a spare kernel of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ShellKey {
    /// The one shell of the session with this id; `s/<session>` on the wire.
    Session(String),
    /// The shell that one client opened for itself, by its id; `p/<id>` on the wire.
    Private(String),
    /// The terminal of the session with this id; `t/<session>` on the wire.
    Terminal(String),
    /// The code context with this id; `c/<id>` on the wire.
    Context(String),
    /// The spare kernel, of which an agent has at most one; `k/` on the wire.
    SpareKernel,
}

/// A text that names no shell, terminal, context or spare kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name is s/, p/, t/ or c/ with an id, or k/, of at most {KEY_BYTES_MAX} bytes")]
pub struct BadKey;

impl fmt::Display for ShellKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(out, "s/{id}"),
            Self::Private(id) => write!(out, "p/{id}"),
            Self::Terminal(id) => write!(out, "t/{id}"),
            Self::Context(id) => write!(out, "c/{id}"),
            Self::SpareKernel => out.write_str("k/"),
        }
    }
}

impl FromStr for ShellKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        if text.len() > KEY_BYTES_MAX {
            return Err(BadKey);
        }
        let (prefix, id) = text.split_once('/').ok_or(BadKey)?;
        match (prefix, id) {
            ("k", "") => Ok(Self::SpareKernel),
            (_, "") => Err(BadKey),
            ("s", id) => Ok(Self::Session(id.to_owned())),
            ("p", id) => Ok(Self::Private(id.to_owned())),
            ("t", id) => Ok(Self::Terminal(id.to_owned())),
            ("c", id) => Ok(Self::Context(id.to_owned())),
            _ => Err(BadKey),
        }
    }
}

impl TryFrom<String> for ShellKey {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
        text.parse()
    }
}

impl From<ShellKey> for String {
    fn from(key: ShellKey) -> Self {
        key.to_string()
    }
}

impl ShellKey {
    /// Whether this names a shell that clients can attach to.
    #[must_use]
    pub fn is_shell(&self) -> bool {
        matches!(self, Self::Session(_) | Self::Private(_))
    }

    /// The id without the prefix; empty for the spare kernel.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Session(id) | Self::Private(id) | Self::Terminal(id) | Self::Context(id) => id,
            Self::SpareKernel => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_as_it_is_written() {
        for text in ["s/dev", "p/sh_1", "t/dev", "c/notebook", "c/a/b", "k/"] {
            let key: ShellKey = text.parse().expect(text);
            assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn a_text_that_names_nothing_is_refused() {
        let long = format!("s/{}", "a".repeat(KEY_BYTES_MAX));
        for text in ["", "/", "s", "s/", "t/", "k", "k/1", "x/dev", "S/dev", "dev", &long] {
            assert_eq!(text.parse::<ShellKey>(), Err(BadKey), "{text:?}");
        }
    }
}
