//! What server and launcher say to each other: one postcard value a packet, over a
//! `SOCK_SEQPACKET` pair, so packets need no frame of their own.

use serde::{Deserialize, Serialize};

/// The longest packet.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;

/// Encodes one packet.
///
/// # Panics
/// Never for the types of this module.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("packets encode")
}

/// What the server asks of the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Make a sandbox and start its agent.
    Launch(Spec),
}

/// One sandbox, as the launcher needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The server's own name for it: `[a-z0-9]{1,40}`; names its directory and its cgroups.
    pub name: String,
    /// Which uid range: `uid_base + slot * 65536`.
    pub slot: u32,
    /// Host name inside.
    pub hostname: String,
    /// What it may use.
    pub limits: Limits,
    /// Its directory stands, with the files of an earlier life: they are used, and stay when a
    /// step fails.
    pub kept: bool,
}

/// What a sandbox may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of its processes and its tmpfs, in MiB.
    pub memory_mib: u64,
    /// Processor time, in thousandths of one core.
    pub cpu_millis: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// What the launcher answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Sent once at its start: it is ready, or what this machine lacks.
    Ready {
        /// Empty when sandboxes can be made; otherwise one sentence a missing thing, with what to do.
        missing: Vec<String>,
    },
    /// The sandbox's agent runs and listens.
    Launched {
        /// Which sandbox.
        name: String,
        /// Process id of the agent, as seen by the server.
        pid: i32,
    },
    /// It could not be made; nothing of it is left.
    Failed {
        /// Which sandbox.
        name: String,
        /// The step that failed, by its name in the list of steps.
        step: String,
        /// The kernel's answer.
        errno: i32,
    },
}
