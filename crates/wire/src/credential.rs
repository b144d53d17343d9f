//! Credentials that are lent to a sandbox: put into its requests by the edge, and never inside.

pub mod headers;

use crate::network::{Rule, To};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A value that is shown nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Holds a value.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

/// Credentials that are lent to one sandbox.
pub const CREDENTIALS_MAX: usize = 32;
/// Bytes of all of them together, so that they fit into a packet.
pub const CREDENTIALS_BYTES_MAX: usize = 64 * 1024;

/// The port on which nobody speaks TLS.
const HTTP_PORT: u16 = 80;

/// A value that is put into requests on their way out, and never comes inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// For hosts that this names. Without a port it holds for TLS alone; plain HTTP, which
    /// everybody on the way reads, only where the port is named.
    pub to: Rule,
    /// The header; `None`: any, where `placeholder` stands.
    pub header: Option<String>,
    /// What stands for the value; `None`: the header is set to the value, whatever it was.
    pub placeholder: Option<String>,
    /// The value.
    pub value: Secret,
}

impl Credential {
    /// Whether it is for requests to this host and port.
    #[must_use]
    pub fn holds(&self, host: &str, port: u16, tls: bool) -> bool {
        let to = To { name: Some(host), address: None, port: Some(port) };
        self.to.place.is_name() && self.to.holds(&to) && (tls || self.to.port.is_some())
    }

    /// Whether it may be put into requests within TLS: for all but the port of plain HTTP.
    #[must_use]
    pub fn within_tls(&self) -> bool {
        self.to.port != Some(HTTP_PORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_for_its_host_and_not_for_everybody_on_the_way() {
        let of = |rule: &str| Credential {
            to: Rule::parse(rule).expect("a rule"),
            header: None,
            placeholder: None,
            value: Secret::new("hunter2".to_owned()),
        };
        assert!(of("api.example").holds("api.example", 443, true));
        assert!(!of("api.example").holds("api.example", 80, false));
        assert!(of("api.example:80").holds("api.example", 80, false));
        assert!(!of("api.example:80").holds("api.example", 443, true));
        assert!(!of("api.example").holds("evil.example", 443, true));
        assert!(!of("*").holds("api.example", 443, true), "to everybody is to nobody");
        assert!(!format!("{:?}", of("api.example")).contains("hunter2"));
    }
}
