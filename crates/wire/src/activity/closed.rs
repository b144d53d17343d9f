//! How and why a shell or a terminal ended.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a shell or a terminal ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The exit code, if its program exited.
    pub code: Option<i32>,
    /// The signal, if one ended its program.
    pub signal: Option<i32>,
    /// Why the shell or terminal ended.
    pub cause: CloseCause,
}

/// Why a shell or a terminal ended. On the wire and for clients it is a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum CloseCause {
    /// The program exited with a code.
    Exit,
    /// A signal ended the program.
    Killed,
    /// A client closed it.
    ClosedByClient,
    /// A private shell had no client for longer than its linger time.
    NobodyAttached,
    /// Bash was executed and did not report in time.
    DidNotStart,
    /// A command closed the descriptor on which bash reports.
    StatusChannelClosed,
    /// A command wrote too much to the descriptor on which bash reports.
    StatusChannelFlooded,
    /// Any other cause in words: from the server, or from an agent, which is not trusted.
    Other(String),
}

impl CloseCause {
    const KNOWN: [Self; 7] = [
        Self::Exit,
        Self::Killed,
        Self::ClosedByClient,
        Self::NobodyAttached,
        Self::DidNotStart,
        Self::StatusChannelClosed,
        Self::StatusChannelFlooded,
    ];

    /// The text that clients see.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exit => "exit",
            Self::Killed => "killed",
            Self::ClosedByClient => "closed by client",
            Self::NobodyAttached => "nobody attached",
            Self::DidNotStart => "did not start",
            Self::StatusChannelClosed => "status channel closed",
            Self::StatusChannelFlooded => "status channel flooded",
            Self::Other(text) => text,
        }
    }
}

impl Default for CloseCause {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl fmt::Display for CloseCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl From<String> for CloseCause {
    fn from(text: String) -> Self {
        let known = Self::KNOWN.into_iter().find(|cause| cause.as_str() == text);
        known.unwrap_or(Self::Other(text))
    }
}

impl From<CloseCause> for String {
    fn from(cause: CloseCause) -> Self {
        match cause {
            CloseCause::Other(text) => text,
            known => known.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_text_reads_as_its_cause_and_any_other_stays_as_it_is() {
        for cause in CloseCause::KNOWN {
            assert_eq!(CloseCause::from(String::from(cause.clone())), cause);
        }
        let other = CloseCause::from("out of luck".to_owned());
        assert_eq!(other, CloseCause::Other("out of luck".to_owned()));
        assert_eq!(other.to_string(), "out of luck");
    }
}
