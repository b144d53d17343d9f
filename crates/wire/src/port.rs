//! Ports inside a sandbox: the words by which a server comes to one.
//!
//! `AgentRequest::Dial` is answered by `AgentResponse::Dialed`, and with that frame comes the connected socket itself
//! (`SCM_RIGHTS`): the server then speaks over it directly, and the agent keeps nothing of it. The
//! connection to the agent is free for the next use.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Listening sockets that are told at most.
pub const LISTENERS_MAX: usize = 1024;

/// A TCP socket on which something in the sandbox listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listener {
    /// 1 to 65535.
    pub port: u16,
    /// The address that it is bound to; unspecified for all of the sandbox's.
    pub address: IpAddr,
}
