//! Messages between the server and the process that owns the veth pairs. Each packet of a
//! `SOCK_SEQPACKET` connection holds one postcard value. Every request gets one answer with the
//! same number. Events have number 0 and can come at any time.

use crate::credential::Credential;
use crate::network::{NetworkDenial, Policy};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};

pub use crate::network::PACKET_BYTES_MAX;

/// Maximum number of veth pairs in one answer.
pub const LIST_MAX: usize = 1000;

/// A request with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VethRequest {
    /// Number of the request, not 0, which the answer repeats.
    pub number: u64,
    /// What the server asks for.
    pub body: VethRequestBody,
}

/// The operator's network settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VethSettings {
    /// First of the 65,536 addresses for sandboxes and their gateway, which has the second address.
    /// It cannot change while the process runs.
    pub range: Ipv4Addr,
    /// Maximum number of connections and datagram exchanges of one sandbox at once.
    pub connections_max: u32,
    /// Networks that the operator has opened although they are closed by default.
    pub opened: Vec<(Ipv4Addr, u8)>,
    /// DNS resolvers to forward to; empty means the host's resolvers.
    pub resolvers: Vec<SocketAddr>,
}

impl Default for VethSettings {
    fn default() -> Self {
        Self {
            range: Ipv4Addr::new(10, 231, 0, 0),
            connections_max: 4096,
            opened: Vec::new(),
            resolvers: Vec::new(),
        }
    }
}

/// Requests from the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VethRequestBody {
    /// The greeting, which must be the first request; see [`crate::version`]. Answered with
    /// [`VethResponseBody::Hello`].
    Hello {
        /// The highest version that the server speaks.
        version: u16,
    },
    /// The settings of the operator, answered with [`VethResponseBody::Ready`]. It must be the
    /// second request.
    Begin(VethSettings),
    /// Assign a prepared veth pair, with a network namespace to start in, to the sandbox of this
    /// name. Answered with [`VethResponseBody::Taken`] and the namespace's descriptor.
    Take {
        /// The internal name of the sandbox.
        name: String,
        /// The sandbox's egress rules.
        policy: Policy,
    },
    /// Create a veth pair for a running sandbox in the namespace whose descriptor comes with the
    /// request.
    Attach {
        /// The internal name of the sandbox.
        name: String,
        /// The sandbox's egress rules.
        policy: Policy,
    },
    /// Replace the egress rules. Connections that the new rules forbid are closed before the
    /// answer.
    Set {
        /// The number of the veth pair.
        id: u32,
        /// The new egress rules.
        policy: Policy,
    },
    /// Remove a veth pair. It is no error if the pair is gone. A pair also disappears with its
    /// namespace.
    Release {
        /// The number of the veth pair.
        id: u32,
    },
    /// List assigned veth pairs whose number is greater than `after`, at most [`LIST_MAX`].
    List {
        /// The last number of the previous page; 0 for the first page.
        after: u32,
    },
    /// Read the traffic counters of a veth pair.
    Counters {
        /// The number of the veth pair.
        id: u32,
    },
    /// Answered when all earlier denials have been reported.
    Settle,
    /// Replace the injected credentials of a veth pair. The process keeps them in memory for a
    /// restarted egress proxy. Answered with [`VethResponseBody::CredentialsSet`].
    SetCredentials {
        /// The number of the veth pair.
        id: u32,
        /// All credentials of the sandbox.
        credentials: Vec<Credential>,
    },
}

/// An answer or an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VethResponse {
    /// Number of the request; 0 for an event.
    pub number: u64,
    /// The answer or event itself.
    pub body: VethResponseBody,
}

/// Answers to requests, and events that nobody requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VethResponseBody {
    /// The answer to `Hello`.
    Hello {
        /// See [`crate::version::answer`].
        version: u16,
    },
    /// The process is ready, or the machine lacks something.
    Ready {
        /// Random number of this run of the process. Veth pairs of an earlier run no longer exist.
        boot: u64,
        /// Whether rules with host names work, because the egress proxy runs.
        names: bool,
        /// What the machine lacks, with one sentence of advice for each item; empty if veth pairs
        /// can be created.
        missing: Vec<String>,
        /// Problems that affect some sandboxes although veth pairs can be created, with advice.
        warnings: Vec<String>,
    },
    /// The assigned veth pair.
    Taken(AssignedVeth),
    /// The request was carried out.
    Done,
    /// A page of assigned veth pairs.
    Listed(Vec<AssignedVeth>),
    /// The traffic counters of a veth pair.
    Counted(Counters),
    /// The request failed, and nothing has changed.
    Failed {
        /// The reason, in words.
        reason: String,
    },
    /// Event: a connection, packet or lookup was denied.
    Refused {
        /// The internal name of the sandbox.
        name: String,
        /// Details of the denial.
        refused: NetworkDenial,
    },
    /// Event: the namespace of a veth pair has ended.
    Gone {
        /// The internal name of the sandbox.
        name: String,
        /// The number of the veth pair.
        id: u32,
    },
    /// Event: another program changed the network configuration, and this process repaired it.
    Repaired {
        /// A description of the change and the repair.
        description: String,
    },
    /// The credentials were replaced.
    CredentialsSet {
        /// The CA certificate as PEM that the sandbox must trust; `None` if no credential applies
        /// to TLS.
        certificate: Option<String>,
    },
    /// Event: the egress proxy was restarted, and the sandbox must trust a new CA certificate.
    Authority {
        /// The internal name of the sandbox.
        name: String,
        /// The CA certificate, as PEM.
        certificate: String,
    },
    /// Event: the egress proxy has ended and is being started again.
    ProxyRestarted,
}

/// A veth pair that is assigned to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedVeth {
    /// The number of the veth pair.
    pub id: u32,
    /// The IPv4 address inside the sandbox.
    pub address: Ipv4Addr,
    /// The internal name of the sandbox.
    pub name: String,
}

/// Traffic of a veth pair since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes that the sandbox sent.
    pub out_bytes: u64,
    /// Bytes that the sandbox received.
    pub back_bytes: u64,
    /// Packets that the sandbox sent.
    pub out_packets: u64,
    /// Packets that the sandbox received.
    pub back_packets: u64,
    /// Number of connections, packets and lookups that were denied and reported.
    pub refused: u64,
}
