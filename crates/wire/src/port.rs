//! Messages about TCP ports inside a sandbox.
//!
//! The agent answers `AgentRequest::Dial` with `AgentResponse::Dialed` and passes the connected
//! socket with that frame (`SCM_RIGHTS`). The server then uses the socket directly, and the agent
//! keeps no copy. The connection to the agent is free for the next request.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Maximum number of listening sockets in one answer.
pub const LISTENERS_MAX: usize = 1024;

/// A TCP socket on which a program in the sandbox listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listener {
    /// The port number, 1 to 65535.
    pub port: u16,
    /// The bound address; the unspecified address means all addresses of the sandbox.
    pub address: IpAddr,
}
