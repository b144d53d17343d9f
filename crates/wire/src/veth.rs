//! What the server and the process that owns links say to each other: one postcard value a packet,
//! over a `SOCK_SEQPACKET` connection. Every order is answered once, with its number; news (number
//! 0) comes whenever there is some.

use crate::credential::Credential;
use crate::network::{Policy, Refused};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};

pub use crate::network::PACKET_BYTES_MAX;

/// The most links in one answer.
pub const LIST_MAX: usize = 1000;

/// What is asked, with the number of its answer; not 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VethRequest {
    /// Comes back with the answer.
    pub number: u64,
    /// What.
    pub ask: VethRequestBody,
}

/// What whoever runs the server has set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// First of the 65,536 addresses that sandboxes and their gateway have (the second of them).
    /// Holds from the process's start on.
    pub range: Ipv4Addr,
    /// Connections (and exchanges of datagrams) of one sandbox at once.
    pub connections_max: u32,
    /// Networks that are opened though they are closed by default.
    pub opened: Vec<(Ipv4Addr, u8)>,
    /// Who is asked for names; the host's own resolvers when empty.
    pub resolvers: Vec<SocketAddr>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            range: Ipv4Addr::new(10, 231, 0, 0),
            connections_max: 4096,
            opened: Vec::new(),
            resolvers: Vec::new(),
        }
    }
}

/// What the server asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VethRequestBody {
    /// First of all: what the operator has set. Answered with [`LinkAnswer::Ready`].
    Begin(Settings),
    /// A link that was prepared, with a network namespace to be born in, for the sandbox of this
    /// name. Answered with [`LinkAnswer::Taken`] and the namespace's descriptor.
    Take {
        /// The server's own name of the sandbox.
        name: String,
        /// Its rules.
        policy: Policy,
    },
    /// A link for a sandbox that runs, into the namespace whose descriptor comes with this.
    Attach {
        /// The server's own name of the sandbox.
        name: String,
        /// Its rules.
        policy: Policy,
    },
    /// Other rules, from the answer on; what they forbid and runs is cut.
    Set {
        /// Which link.
        id: u32,
        /// Its rules.
        policy: Policy,
    },
    /// Takes a link away. One that is gone is no error. A link whose namespace ends goes by itself.
    Release {
        /// Which link.
        id: u32,
    },
    /// Links that were taken and stand, from the first after this number on; [`LIST_MAX`] at most.
    List {
        /// 0 for all.
        after: u32,
    },
    /// What went over a link.
    Counters {
        /// Which link.
        id: u32,
    },
    /// Answered once every refusal until now was told.
    Settle,
    /// What is lent to a link, from the answer on, in place of what was; kept in memory, for an
    /// edge that is started anew. Answered with [`VethResponseBody::Lent`].
    Lend {
        /// Which link.
        id: u32,
        /// All that it has.
        credentials: Vec<Credential>,
    },
}

/// An answer (with the number of its order) or news (number 0).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VethResponse {
    /// Of the order; 0 for news.
    pub number: u64,
    /// What.
    pub tell: VethResponseBody,
}

/// What the process that owns links says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VethResponseBody {
    /// Links can be had, or what this machine lacks: one sentence a thing, with what to do.
    Ready {
        /// Another after every start: links of an earlier one are gone.
        boot: u64,
        /// Whether rules with names can be had: the edge runs.
        names: bool,
        /// Empty when links can be had.
        missing: Vec<String>,
        /// What is in the way of some or all although links can be had, with what to do.
        warnings: Vec<String>,
    },
    /// A link stands.
    Taken(AssignedVeth),
    /// Done.
    Done,
    /// Links that stand.
    Listed(Vec<AssignedVeth>),
    /// Over a link.
    Counted(Counters),
    /// It cannot be done; nothing has changed.
    Failed {
        /// Why.
        why: String,
    },
    /// News: somebody was refused.
    Refused {
        /// The sandbox.
        name: String,
        /// What.
        refused: Refused,
    },
    /// News: a link's namespace has ended.
    Gone {
        /// The sandbox.
        name: String,
        /// Its link.
        id: u32,
    },
    /// News: something of ours was changed from outside, and what was done about it.
    Repaired {
        /// In words.
        what: String,
    },
    /// Lent; whom the sandbox is to trust, as PEM, where something is for TLS.
    Lent {
        /// The certificate.
        certificate: Option<String>,
    },
    /// News: whom a sandbox is to trust from now on, after the edge was started anew.
    Authority {
        /// The sandbox.
        name: String,
        /// The certificate, as PEM.
        certificate: String,
    },
}

/// A link that somebody has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedVeth {
    /// Its number.
    pub id: u32,
    /// Its address inside.
    pub address: Ipv4Addr,
    /// The server's own name of the sandbox.
    pub name: String,
}

/// What went over a link since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes from the sandbox.
    pub out_bytes: u64,
    /// Bytes to the sandbox.
    pub back_bytes: u64,
    /// Packets from the sandbox.
    pub out_packets: u64,
    /// Packets to the sandbox.
    pub back_packets: u64,
    /// Connections, packets and lookups that were refused and told.
    pub refused: u64,
}
