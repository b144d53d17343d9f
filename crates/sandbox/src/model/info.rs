//! Requested and reported properties of sandboxes and sessions.

pub use isolet_wire::launcher::Limits;

use crate::model::{
    access::FileAccess,
    ids::{SandboxId, SessionId, TenantId},
    network::{
        Network,
        lent::{CredentialSpec, InjectedCredential},
        traffic::Traffic,
    },
    state::State,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most bytes of metadata, as JSON.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;
/// The most bytes of an environment, names and values.
pub const ENV_BYTES_MAX: usize = 128 * 1024;
/// The longest ttl, in seconds: a year.
pub const TTL_S_MAX: u64 = 366 * 24 * 3600;
/// The longest idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// The most sessions of one sandbox, `default` included.
pub const SESSIONS_MAX: usize = 1024;

/// What a client wants a sandbox to be. Every field may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SandboxSpec {
    /// Its id; the server makes one otherwise.
    pub id: Option<SandboxId>,
    /// `host`, or a name of the alias table.
    pub image: Option<String>,
    /// Memory, in MiB.
    pub memory_mib: Option<u64>,
    /// Processor time, in thousandths of one core.
    pub cpu_millis: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Its files, in MiB; 0 unlimited, `None` as configured.
    pub disk_mib: Option<u64>,
    /// Ends by itself after this many seconds; `None` or 0 never.
    pub ttl_s: Option<u64>,
    /// Falls asleep when nobody used it for this many seconds; 0 never, `None` as configured.
    pub sleep_after_s: Option<u64>,
    /// Whether files outlive a sleep; `None`: they do.
    pub persistent: Option<bool>,
    /// The client's own words, an object.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Environment of every shell and program.
    pub env: BTreeMap<String, String>,
    /// Fields that a dialect must give back (`vcpus`, `mem_mib`, …), kept as they are.
    pub dialect: serde_json::Map<String, serde_json::Value>,
    /// Where it may connect to; `None` as configured.
    pub network: Option<Network>,
    /// Put into its requests on their way out. Written nowhere with the rest.
    #[serde(skip)]
    pub credentials: Vec<CredentialSpec>,
}

/// A change to a sandbox; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// Counted from now; 0 never.
    pub ttl_s: Option<u64>,
    /// As in a wish.
    pub sleep_after_s: Option<u64>,
    /// Replaces the metadata.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// For shells and programs started from now on: a value sets, `None` removes.
    pub env: BTreeMap<String, Option<String>>,
    /// Memory, in MiB.
    pub memory_mib: Option<u64>,
    /// Processor time, in thousandths of one core.
    pub cpu_millis: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// An idempotency key, bound to the body that it came with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// The client's key, at most [`KEY_BYTES_MAX`].
    pub key: String,
    /// SHA-256 over the route and the body.
    pub body: [u8; 32],
}

impl IdempotencyKey {
    /// Binds a key to a route and a body.
    #[must_use]
    pub fn new(key: &str, route: &str, body: &[u8]) -> Self {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        hash.update((route.len() as u64).to_be_bytes());
        hash.update(route);
        hash.update(body);
        Self { key: key.to_owned(), body: hash.finalize().into() }
    }
}

/// What is known of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Where it stands.
    pub state: State,
    /// Why it failed, where it has.
    pub cause: Option<String>,
    /// The image as it was asked for.
    pub image: String,
    /// What that name stood for.
    pub image_resolved: String,
    /// Milliseconds since 1970.
    pub created_at_ms: i64,
    /// How long its making took, in ms, with fractions.
    pub create_ms: f64,
    /// Seconds from its creation (or the last change of the ttl); `None` never.
    pub ttl_s: Option<u64>,
    /// When it ends by itself, milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
    /// The client's own words.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Names of its environment; values are never told.
    pub env_names: BTreeSet<String>,
    /// What it may use.
    pub limits: Limits,
    /// Where it may connect to. Answers that were kept by earlier versions say `none`.
    #[serde(deserialize_with = "network")]
    pub network: Network,
    /// What is put into its requests, without values.
    #[serde(default)]
    pub lent: Vec<InjectedCredential>,
    /// Its files outlive a sleep.
    pub persistent: bool,
    /// Seconds without use after which it falls asleep; `None` never.
    pub sleep_after_s: Option<u64>,
    /// A dialect's own fields, as they were given.
    pub dialect: serde_json::Map<String, serde_json::Value>,
}

/// A network, also as versions without one told it.
fn network<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Network, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StoredNetwork {
        Network(Network),
        Word(String),
    }
    match StoredNetwork::deserialize(reader)? {
        StoredNetwork::Network(network) => Ok(network),
        StoredNetwork::Word(word) if word == "none" => Ok(Network::none()),
        StoredNetwork::Word(word) => Err(serde::de::Error::custom(format!("no network {word}"))),
    }
}

/// Something that a sleep does not keep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// Shells that were open, with their directories and variables: private ones, and all of an
    /// ephemeral sandbox.
    Shells,
    /// Processes that ran in the background.
    Processes,
    /// All files of an ephemeral sandbox.
    Files,
    /// Something of what a session's shell held.
    ShellState(LostState),
    /// Terminals that ran.
    Terminals,
    /// Code contexts, with their variables.
    Contexts,
}

/// Whose shell comes back as it was saved earlier, or as new.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LostState {
    /// Its session.
    pub session: SessionId,
    /// Why.
    pub why: WhyLost,
    /// It comes back as it was then, in milliseconds since 1970; `None`: as new.
    pub saved_at_ms: Option<i64>,
}

/// Why a shell does not come back as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyLost {
    /// The machine ended without a sleep: what was done in it since it was saved is lost.
    Crash,
    /// It held more than is saved.
    TooLarge,
    /// It did not tell in time.
    NoAnswer,
    /// The server's disk did not take it.
    NotKept,
    /// Part of what was saved could not be made again.
    NotRestored,
}

impl WhyLost {
    /// The word for clients and records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::TooLarge => "too_large",
            Self::NoAnswer => "no_answer",
            Self::NotKept => "not_kept",
            Self::NotRestored => "not_restored",
        }
    }
}

impl Lost {
    /// The word for clients and records.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Shells => "shells",
            Self::Processes => "processes",
            Self::Files => "files",
            Self::ShellState(_) => "shell_state",
            Self::Terminals => "terminals",
            Self::Contexts => "contexts",
        }
    }

    /// Whose shell it is about, and why.
    #[must_use]
    pub fn state(&self) -> Option<&LostState> {
        match self {
            Self::ShellState(state) => Some(state),
            _ => None,
        }
    }
}

/// What a create answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Created {
    /// The sandbox.
    pub info: Info,
    /// The same idempotency key had done it before: this is that answer.
    pub replayed: bool,
}

/// What a list answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Sorted by id.
    pub items: Vec<Info>,
    /// Give this as `after` for the next page; `None`: this was the last.
    pub next: Option<SandboxId>,
}

/// What a sandbox uses, as its control groups count; what is summed is so over its sleeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Memory now, in bytes.
    pub memory_bytes: u64,
    /// The most it ever was.
    pub memory_peak_bytes: u64,
    /// Processor time, in µs.
    pub cpu_us: u64,
    /// Processes and threads now.
    pub pids: u64,
    /// Processes killed for memory.
    pub oom_kills: u64,
    /// What its disk takes of the server's, in bytes; `None` unless it is limited.
    pub disk_bytes: Option<u64>,
    /// Since its creation.
    pub uptime_ms: u64,
    /// How much of that it did not sleep.
    pub awake_ms: u64,
    /// What went over its links; `None` of one that never had one.
    pub network: Option<Traffic>,
}

/// What a delete answers: the last words about a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// As it was, with state `destroyed`.
    pub info: Info,
    /// What it had used.
    pub usage: Usage,
}

/// What a client wants a session to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SessionSpec {
    /// Its id; the server makes one otherwise.
    pub id: Option<SessionId>,
    /// Start directory; `/workspace` unless told.
    pub cwd: Option<String>,
    /// Over the sandbox's environment.
    pub env: BTreeMap<String, String>,
    /// For commands that name none; 0 or `None` never.
    pub command_timeout_ms: Option<u64>,
    /// The client's own words, an object.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// When it ends by itself; `None` with its sandbox.
    pub life: Option<Life>,
    /// What of the workspace it sees; `None`: all of it.
    pub file_access: Option<FileAccess>,
}

/// When a session ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Seconds from its creation, also in the middle of a command.
    pub ttl_s: u64,
    /// Also [`crate::Config::session_idle`] after its last command, unless a client is attached.
    pub ends_idle: bool,
    /// It is one of those that a tenant keeps across its sandboxes.
    #[serde(default = "across")]
    pub across: bool,
}

/// Sessions of older records had an end only when they were such ones.
fn across() -> bool {
    true
}

impl Life {
    /// Whether it is of a session that a tenant keeps across its sandboxes.
    pub(crate) fn is_across(life: Option<Self>) -> bool {
        life.is_some_and(|life| life.across)
    }
}

/// What is known of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its id.
    pub id: SessionId,
    /// Its sandbox.
    pub sandbox_id: SandboxId,
    /// Start directory.
    pub cwd: String,
    /// Names of its own environment.
    pub env_names: BTreeSet<String>,
    /// For commands that name none; 0 never.
    pub command_timeout_ms: u64,
    /// The client's own words.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Milliseconds since 1970.
    pub created_at_ms: i64,
    /// Last begin or end of a command or a client's call, milliseconds since 1970.
    pub last_activity_ms: i64,
    /// A command is running in its shell.
    pub busy: bool,
    /// Its shell's process id inside, when it is open.
    pub shell_pid: Option<i32>,
    /// It has a terminal that runs.
    #[serde(default)]
    pub terminal: bool,
    /// When it ends by itself; `None` with its sandbox.
    #[serde(default)]
    pub life: Option<Life>,
    /// What of the workspace it sees, as it was asked for; `None`: all of it.
    #[serde(default)]
    pub file_access: Option<FileAccess>,
}
