//! Credentials that the egress proxy injects into the requests of a sandbox. Their values are never
//! visible inside.

pub mod headers;

use crate::network::{NetworkDestination, Rule};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A secret value that `Debug` does not print.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret value.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// Returns the secret value. Never log it.
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

/// Maximum number of credentials of one sandbox.
pub const CREDENTIALS_MAX: usize = 32;
/// Maximum size of all credentials of one sandbox, in bytes, so that they fit into one packet.
pub const CREDENTIALS_BYTES_MAX: usize = 64 * 1024;

/// The port of plain HTTP, on which no TLS is expected.
const HTTP_PORT: u16 = 80;

/// A value that the egress proxy injects into requests to certain hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The hosts whose requests receive the value. A rule without a port applies to TLS only. Plain
    /// HTTP, which everyone on the network path can read, needs a rule with its port.
    pub to: Rule,
    /// The request header that receives the value; `None` means every header that contains the
    /// placeholder.
    pub header: Option<String>,
    /// The text that the value replaces; `None` means that the whole header is set to the value.
    pub placeholder: Option<String>,
    /// The value, which is never printed.
    pub value: Secret,
}

impl Credential {
    /// Whether requests to this host and port receive the value.
    #[must_use]
    pub fn applies_to(&self, host: &str, port: u16, tls: bool) -> bool {
        let to = NetworkDestination { name: Some(host), address: None, port: Some(port) };
        self.to.place.is_name() && self.to.matches(&to) && (tls || self.to.port.is_some())
    }

    /// Whether requests within TLS may receive the value: true unless the rule names the port of
    /// plain HTTP.
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
        assert!(of("api.example").applies_to("api.example", 443, true));
        assert!(!of("api.example").applies_to("api.example", 80, false));
        assert!(of("api.example:80").applies_to("api.example", 80, false));
        assert!(!of("api.example:80").applies_to("api.example", 443, true));
        assert!(!of("api.example").applies_to("evil.example", 443, true));
        assert!(!of("*").applies_to("api.example", 443, true), "to everybody is to nobody");
        assert!(!format!("{:?}", of("api.example")).contains("hunter2"));
    }
}
