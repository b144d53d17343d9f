//! The messages between the process that owns the veth pairs and the egress proxy.

use super::{Guard, Policy, Refused};
use crate::credential::Credential;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};

/// The longest packet on the edge's control socket.
pub const PACKET_BYTES_MAX: usize = 128 * 1024;

/// What the edge is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProxyRequest {
    /// First of all, and when the machine's addresses change.
    Guard {
        /// What is closed.
        guard: Guard,
        /// Who is asked for names; the host's own resolvers when empty.
        resolvers: Vec<SocketAddr>,
    },
    /// The rules of the link with this address, from now on; what they forbid and runs is cut.
    Set {
        /// Who speaks from there.
        address: Ipv4Addr,
        /// Its rules.
        policy: Policy,
    },
    /// What is lent to the link, from now on, in place of what was.
    Lend {
        /// Its address; its rules have been set.
        address: Ipv4Addr,
        /// All that it has.
        credentials: Vec<Credential>,
        /// Also within TLS, by an authority of its own: answered with [`ProxyResponse::Authority`].
        tls: bool,
    },
    /// The link is gone; what runs is cut.
    Forget {
        /// Its address.
        address: Ipv4Addr,
    },
    /// To be answered with [`ProxyResponse::Settled`] once all refusals until now are told.
    Settle {
        /// Comes back with the answer.
        number: u64,
    },
}

/// What the edge says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProxyResponse {
    /// It listens.
    Ready,
    /// Somebody was refused.
    Refused {
        /// The link's address.
        address: Ipv4Addr,
        /// What.
        refused: Refused,
    },
    /// Whom the sandbox is to trust, so that credentials reach hosts within TLS. The key stays
    /// with the edge, and is gone with it: then there is another.
    Authority {
        /// The link's address.
        address: Ipv4Addr,
        /// The certificate, as PEM.
        certificate: String,
    },
    /// Everything before is told.
    Settled {
        /// Of the order.
        number: u64,
    },
    /// Bytes that connections of a link carried since it was last said; about once a second.
    Carried {
        /// The link's address.
        address: Ipv4Addr,
        /// From the sandbox.
        out: u64,
        /// To the sandbox.
        back: u64,
    },
}
