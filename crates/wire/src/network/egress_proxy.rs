//! The messages between the process that owns the veth pairs and the egress proxy.

use super::{Guard, NetworkDenial, Policy};
use crate::credential::Credential;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};

/// Maximum size of a packet on the control socket of the egress proxy, in bytes.
pub const PACKET_BYTES_MAX: usize = 128 * 1024;

/// Requests to the egress proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProxyRequest {
    /// Sent first, and again when the addresses of this machine change.
    Guard {
        /// The addresses that are closed to every sandbox.
        guard: Guard,
        /// DNS resolvers to forward to; empty means the host's resolvers.
        resolvers: Vec<SocketAddr>,
    },
    /// Replace the egress rules of a sandbox. Connections that the new rules forbid are closed.
    Set {
        /// The address of the sandbox.
        address: Ipv4Addr,
        /// The new egress rules.
        policy: Policy,
    },
    /// Replace the injected credentials of a sandbox.
    SetCredentials {
        /// The address of a sandbox whose rules have been set.
        address: Ipv4Addr,
        /// All credentials of the sandbox.
        credentials: Vec<Credential>,
        /// Also inject credentials within TLS, with a certificate authority for this sandbox.
        /// Answered with [`ProxyResponse::Authority`].
        tls: bool,
    },
    /// A veth pair is gone. Its connections are closed.
    Forget {
        /// The address of the sandbox.
        address: Ipv4Addr,
    },
    /// Answered with [`ProxyResponse::Settled`] when all earlier denials have been reported.
    Settle {
        /// Number that the answer repeats.
        number: u64,
    },
}

/// Answers and events from the egress proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProxyResponse {
    /// The proxy listens and has installed its filter.
    Ready,
    /// Event: a connection, packet or lookup was denied.
    Refused {
        /// The address of the sandbox.
        address: Ipv4Addr,
        /// Details of the denial.
        refused: NetworkDenial,
    },
    /// The certificate authority that the sandbox must trust so that credentials can be injected
    /// within TLS. Its key never leaves the proxy, so a restarted proxy has another one.
    Authority {
        /// The address of the sandbox.
        address: Ipv4Addr,
        /// The CA certificate, as PEM.
        certificate: String,
    },
    /// All denials before the request have been reported.
    Settled {
        /// Number of the request.
        number: u64,
    },
    /// Event: traffic of a sandbox since the last such event, about once a second.
    Carried {
        /// The address of the sandbox.
        address: Ipv4Addr,
        /// Bytes that the sandbox sent.
        out: u64,
        /// Bytes that the sandbox received.
        back: u64,
    },
}
