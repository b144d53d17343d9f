//! What requests and responses carry besides HTTP, from one layer to another.

use isolet_sandbox::SandboxId;
use std::net::IpAddr;

/// Marks an answer that a program in a sandbox gave, or that stands in for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proxied {
    /// It came under a host name of its own.
    pub(crate) own_origin: bool,
}

/// The address that a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The sandbox that an answer is of, where neither the path nor `Location` names it.
#[derive(Debug, Clone)]
pub(crate) struct AuditedSandbox(pub(crate) SandboxId);
