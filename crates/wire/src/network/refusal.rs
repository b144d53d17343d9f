//! What was refused, and the reasons that are no rules.

use serde::{Deserialize, Serialize};

/// Why the edge refuses a connection although rules may allow the host that it means, and what that
/// says: no rule with a name opens these.
pub const UNPROVEN: [(&str, &str); 3] = [
    ("no name", "the connection does not say which host it means"),
    ("hidden name", "the connection may hide which host it means"),
    ("other host", "the request is for another host than the connection"),
];
/// Why the edge refuses a request whatever rules say, and what that says.
pub const UNFIT: [(&str, &str); 3] = [
    (BAD_REQUEST, "it is no HTTP request that can be passed on"),
    (TRACE, "TRACE shows what is lent for the host"),
    (HEADERS_TOO_LONG, "its headers are too long with the credentials in place of placeholders"),
];
/// HTTP that two readers may read in two ways, or that asks for a tunnel.
pub const BAD_REQUEST: &str = "bad request";
/// A TRACE, or what servers take for one, to a host that something is lent for.
pub const TRACE: &str = "trace";
/// A request whose placeholders stand for more than a head may have.
pub const HEADERS_TOO_LONG: &str = "headers too long";
/// More at once than one sandbox may have.
pub const LIMIT: &str = "limit";
/// Told as the rule where a host is allowed for TLS and HTTP, and something else was spoken.
pub const PROTOCOL: &str = "protocol";

/// A connection, a packet or a lookup that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The name, where one is known, else the address.
    pub host: String,
    /// The port; `None` of a name that was looked up, and of protocols without ports.
    pub port: Option<u16>,
    /// `tcp`, `udp`, `icmp`, `dns`, or a number of IP's.
    pub protocol: String,
    /// The rule of `deny`; `default`: no rule allows it; else why it is closed: `host`,
    /// `private`, `metadata`, …
    pub rule: String,
    /// How often since it was last told; equal ones that come close together are told once.
    pub times: u32,
}
