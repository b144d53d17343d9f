//! Extensions of requests and responses, by which one layer informs another.

use isolet_sandbox::SandboxId;
use std::net::IpAddr;

/// Marks a response that a program in a sandbox sent, or that replaces such a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proxied {
    /// The response belongs to the port's own origin.
    pub(crate) own_origin: bool,
}

/// The address that a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The sandbox that a response is about, when neither the path nor `Location` names it.
#[derive(Debug, Clone)]
pub(crate) struct AuditedSandbox(pub(crate) SandboxId);
