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
pub enum LauncherRequest {
    /// Make a sandbox and start its agent.
    Launch(Spec),
    /// Start the agent of a session's scope in a sandbox that runs.
    Scope(Scope),
}

/// What a session with a scope sees of its sandbox's workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The server's own name for the sandbox.
    pub name: String,
    /// Which uid range the sandbox has.
    pub slot: u32,
    /// The session's id; names its directory and its group.
    pub session: String,
    /// Sorted by the parts of their paths, each path once.
    pub grants: Vec<Grant>,
    /// The sandbox's memory limit, in MiB: bounds what the scope holds in memory for itself.
    pub memory_mib: u64,
    /// User and group of its sandbox's programs.
    pub user: (u32, u32),
    /// Refused where a path to be read is not there (or is a link by now); otherwise it is left out.
    pub strict: bool,
}

/// A path of the workspace that a session sees, with all below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Below the workspace, without `.`, `..`, empty parts and slashes at its ends; empty is all of it.
    pub path: String,
    /// Also to be written; made as a directory where it is not there.
    pub write: bool,
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
    /// What its root is made of; `None`: the host's programs.
    pub root: Option<Root>,
    /// Its directory stands, with the files of an earlier life: they are used, and stay when a
    /// step fails.
    pub kept: bool,
    /// It is born in the network namespace whose descriptor comes with the order; otherwise in one
    /// of its own that has loopback alone.
    pub linked: bool,
}

/// A root that is made of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its layers, the top one first, by their places below the image directory.
    pub layers: Vec<String>,
    /// Where programs begin: made, with what is above it, where it is not there.
    pub cwd: Option<String>,
    /// User id of its programs, inside.
    pub uid: u32,
    /// Group id of its programs, inside.
    pub gid: u32,
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
    /// Its files, in MiB, on a file system of its own; 0: as much as the host's disk has. Cannot
    /// be changed later.
    #[serde(default)]
    pub disk_mib: u64,
}

/// What the launcher answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherResponse {
    /// Sent once at its start: it is ready, or what this machine lacks.
    Ready {
        /// Empty when sandboxes can be made; otherwise one sentence a missing thing, with what to do.
        missing: Vec<String>,
    },
    /// Every grant of a scope can be had; its start goes on.
    Granted {
        /// In which sandbox.
        name: String,
    },
    /// The sandbox's agent runs and listens.
    Launched {
        /// Which sandbox.
        name: String,
        /// Process id of the agent, as seen by the server; 0 for a scope's, whose group names it.
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
    /// A grant of a scope was refused; nothing of the scope is left.
    GrantRefused {
        /// The sandbox of the scope.
        name: String,
        /// The index of the grant in [`Scope::grants`].
        index: usize,
        /// The kernel's error number.
        errno: i32,
    },
}
