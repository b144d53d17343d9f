//! Which port of which sandbox a request is for, and which kind of URL it came by.

use crate::foundation::error::ApiError;
use isolet_sandbox::SandboxId;

/// The query parameter that holds the token of a signed link.
pub(crate) const TOKEN: &str = "isolet-token";

/// Where a request goes.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) sandbox: SandboxId,
    /// The port inside the sandbox, 1 to 65535.
    pub(crate) port: u16,
    /// The kind of URL that the request came by.
    pub(crate) entry: UrlKind,
    /// When the right to the port expires, for signed links.
    pub(crate) ends: Option<tokio::time::Instant>,
}

/// The cookie that opens a port's own host name.
pub(crate) const COOKIE: &str = "isolet-port";

/// Parses a port in a path or a host name.
pub(crate) fn parse_port(text: &str) -> Result<u16, ApiError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let port = text.parse().ok().filter(|port| digits && *port > 0);
    port.ok_or_else(|| ApiError::bad_field("port", "must be a number from 1 to 65535"))
}

/// The kind of URL that a request came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UrlKind {
    /// Below this path of the server's own origin.
    Path(String),
    /// Below the path of a signed link.
    Link(String),
    /// The port's own host name.
    Host {
        /// Whether `Authorization` is for the program.
        keep_authorization: bool,
        /// Whether a page of this host sent the request.
        own_page: bool,
    },
}

impl UrlKind {
    pub(crate) fn own_origin(&self) -> bool {
        matches!(self, Self::Host { .. })
    }

    /// The path prefix before the program's own paths.
    pub(super) fn prefix(&self) -> &str {
        match self {
            Self::Path(prefix) | Self::Link(prefix) => prefix,
            Self::Host { .. } => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: O5.
    #[test]
    fn i15_a_port_is_a_number_that_can_be_one() {
        assert_eq!(parse_port("1").unwrap(), 1);
        assert_eq!(parse_port("65535").unwrap(), 65535);
        for bad in [
            "",
            "0",
            "00",
            "080",
            "65536",
            "-1",
            "+1",
            " 1",
            "1 ",
            "0x50",
            "1e3",
            "99999999999",
            "http",
        ] {
            assert!(parse_port(bad).is_err(), "{bad:?}");
        }
    }
}
