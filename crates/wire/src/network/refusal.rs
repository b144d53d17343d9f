//! Denials, and the reasons for a denial other than a rule.

use serde::{Deserialize, Serialize};

/// Reasons why the proxy denies a connection even though rules may allow the host that it is meant
/// for, with an explanation. No rule with a host name opens these connections.
pub const UNPROVEN: [(&str, &str); 3] = [
    ("no name", "the connection does not say which host it means"),
    ("hidden name", "the connection may hide which host it means"),
    ("other host", "the request is for another host than the connection"),
];
/// Reasons why the proxy denies a request regardless of the rules, with an explanation.
pub const UNFIT: [(&str, &str); 3] = [
    (BAD_REQUEST, "it is no HTTP request that can be passed on"),
    (TRACE, "TRACE would reveal the credential of the host"),
    (HEADERS_TOO_LONG, "its headers are too long with the credentials in place of placeholders"),
];
/// An HTTP request that two parsers could read differently, or that asks for a tunnel.
pub const BAD_REQUEST: &str = "bad request";
/// A TRACE request, or one that servers may treat as TRACE, to a host with an injected credential.
pub const TRACE: &str = "trace";
/// A request whose headers exceed the limit once its placeholders are replaced.
pub const HEADERS_TOO_LONG: &str = "headers too long";
/// The sandbox has reached a limit on its own connections or lookups.
pub const LIMIT: &str = "limit";
/// Reported as the rule if a host is allowed for TLS and HTTP but the connection speaks another
/// protocol.
pub const PROTOCOL: &str = "protocol";

/// A denied connection, packet or lookup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkDenial {
    /// The host name if it is known, otherwise the address.
    pub host: String,
    /// The port; `None` for a lookup and for protocols without ports.
    pub port: Option<u16>,
    /// `tcp`, `udp`, `icmp`, `dns`, or an IP protocol number.
    pub protocol: String,
    /// The `deny` rule; `default` if no rule allows the destination; otherwise, the reason why it
    /// is closed, such as `host`, `private` or `metadata`.
    pub rule: String,
    /// Number of equal denials since the last report. Equal denials in quick succession are
    /// reported together.
    pub times: u32,
}
