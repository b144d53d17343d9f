//! The parameters of requests about sandboxes and sessions, and the descriptions in the answers.

mod auto_snapshots;
pub(crate) mod class;
pub mod ownership;

pub use auto_snapshots::{
    AutoSnapshots, AutoSnapshotsChange, KEEP_DEFAULT, KEEP_MAX, STORE_EVERY_S, Trigger,
};
pub use isolet_wire::launcher::Limits;

use crate::model::access::FileAccess;
use crate::model::ids::{SandboxId, SessionId, SnapshotId, TenantId};
use crate::model::info::class::SandboxClass;
use crate::model::info::ownership::{PushedSnapshot, RestoredFrom};
use crate::model::input::{Environment, EnvironmentChange, Metadata, WorkingDirectory};
use crate::model::network::Network;
use crate::model::network::injected_credential::{CredentialSpec, InjectedCredential};
use crate::model::network::traffic::Traffic;
use crate::model::state::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum ttl in seconds: one year.
pub const TTL_S_MAX: u64 = 366 * 24 * 3600;
/// Maximum length of an idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// Maximum number of sessions of one sandbox, including `default`.
pub const SESSIONS_MAX: usize = 1024;

/// The parameters of a new sandbox. Every field is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxSpec {
    /// The id; the server generates one by default.
    pub id: Option<SandboxId>,
    /// `host`, an alias, or an image reference.
    pub image: Option<String>,
    /// Memory limit in MiB.
    pub memory_mib: Option<u64>,
    /// Processor time, in thousandths of one core.
    pub cpu_millis: Option<u64>,
    /// Maximum number of processes and threads.
    pub pids: Option<u64>,
    /// Size of the disk in MiB; 0 means unlimited, `None` means the configured default.
    pub disk_mib: Option<u64>,
    /// Lifetime in seconds; `None` or 0 means unlimited.
    pub ttl_s: Option<u64>,
    /// Idle time in seconds after which the sandbox falls asleep; 0 means never, `None` means the
    /// configured default.
    pub sleep_after_s: Option<u64>,
    /// Whether files survive a sleep; true by default.
    pub persistent: Option<bool>,
    /// Whether a call that needs the sandbox resumes it if it is paused; false by default.
    pub auto_resume: Option<bool>,
    /// Whether the end of its lifetime pauses the sandbox instead of destroying it; false by
    /// default.
    pub pause_on_expiry: Option<bool>,
    /// Arbitrary JSON of the client; `None` means that of the snapshot, or none.
    pub metadata: Option<Metadata>,
    /// Environment of every shell and program.
    pub env: Environment,
    /// Fields that a dialect must return unchanged, such as `vcpus` and `mem_mib`.
    pub dialect: Metadata,
    /// The network policy; `None` means the configured default.
    pub network: Option<Network>,
    /// Credentials to inject into requests. Their values are stored apart from the record.
    pub credentials: Vec<CredentialSpec>,
    /// The id or name of a snapshot to start from. Fields that are left out are those of the
    /// snapshot.
    pub snapshot: Option<SnapshotId>,
    /// When the server takes snapshots of the sandbox.
    pub snapshots: AutoSnapshotsChange,
    /// Whether the sandbox survives its node; [`SandboxClass::Node`] by default.
    pub class: SandboxClass,
    /// Whether programs run as root instead of the user of the image.
    pub as_root: bool,
}

/// A change of a sandbox. Fields that are `None` stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// New lifetime in seconds from now; 0 means unlimited.
    pub ttl_s: Option<u64>,
    /// Stops the lifetime, including a new one: it begins again when the sandbox is resumed or woken.
    pub stop_lifetime: bool,
    /// New idle time before a sleep; see [`SandboxSpec::sleep_after_s`].
    pub sleep_after_s: Option<u64>,
    /// Whether a call that needs the sandbox resumes it if it is paused.
    pub auto_resume: Option<bool>,
    /// Whether the end of its lifetime pauses the sandbox instead of destroying it.
    pub pause_on_expiry: Option<bool>,
    /// New metadata, which replaces all of the old.
    pub metadata: Option<Metadata>,
    /// Change of the environment of shells and programs that start later.
    pub env: EnvironmentChange,
    /// Memory limit in MiB.
    pub memory_mib: Option<u64>,
    /// Processor time, in thousandths of one core.
    pub cpu_millis: Option<u64>,
    /// Maximum number of processes and threads.
    pub pids: Option<u64>,
    /// When the server takes snapshots of the sandbox.
    pub snapshots: AutoSnapshotsChange,
}

/// An idempotency key with the request that it was used for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// The key, at most [`KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// SHA-256 of the route and the body.
    pub body: [u8; 32],
}

impl IdempotencyKey {
    /// Binds a key to a route and a request body.
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

/// The description of a sandbox.
///
/// More than 12 fields: one for each field of the record that clients see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxInfo {
    /// The id of the sandbox.
    pub id: SandboxId,
    /// The tenant that owns the sandbox.
    pub tenant: TenantId,
    /// The state, as clients see it.
    pub state: State,
    /// The cause of a failure, or why the sandbox is unreachable.
    pub cause: Option<String>,
    /// The image as the client requested it.
    pub image: String,
    /// The image to which the requested name resolved.
    pub image_resolved: String,
    /// Time of creation, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Duration of the creation, in ms with decimals.
    pub create_ms: f64,
    /// How often it was started.
    pub boots: u64,
    /// Lifetime in seconds from the creation or from the last change; `None` means unlimited.
    pub ttl_s: Option<u64>,
    /// End of the lifetime, in milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
    /// Arbitrary JSON of the client.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Names of the environment variables. Their values are never returned.
    pub env_names: BTreeSet<String>,
    /// The resource limits of all its processes together.
    pub limits: Limits,
    /// The network policy.
    pub network: Network,
    /// Injected credentials, without their values.
    pub credentials: Vec<InjectedCredential>,
    /// Whether files survive a sleep.
    pub persistent: bool,
    /// Whether a call that needs the sandbox resumes it if it is paused.
    pub auto_resume: bool,
    /// Whether the end of its lifetime pauses the sandbox instead of destroying it.
    pub pause_on_expiry: bool,
    /// When the server takes snapshots.
    pub snapshots: AutoSnapshots,
    /// Idle time in seconds after which the sandbox falls asleep; `None` means never.
    pub sleep_after_s: Option<u64>,
    /// Whether the sandbox survives its node.
    pub class: SandboxClass,
    /// Of the class `store`: the newest snapshot from which another node can restore it.
    pub pushed: Option<PushedSnapshot>,
    /// Of the class `store`: from what it was restored on this node.
    pub restored_from: Option<RestoredFrom>,
    /// The dialect's own fields, unchanged.
    pub dialect: serde_json::Map<String, serde_json::Value>,
    /// The protocol version of the running agent; `None` while no agent runs.
    pub agent_version: Option<u16>,
}

impl SandboxInfo {
    /// Whether the running agent is older than this server. It works, but without what newer
    /// agents add. The agent is replaced when the sandbox sleeps and wakes.
    #[must_use]
    pub fn agent_outdated(&self) -> bool {
        self.agent_version.is_some_and(|version| version < isolet_wire::VERSION)
    }
}

/// Something that a sleep or a crash did not preserve.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// Open shells with their directories and variables: the private ones, and all shells of an
    /// ephemeral sandbox.
    Shells,
    /// Background processes that ran when it fell asleep.
    Processes,
    /// All files of an ephemeral sandbox.
    Files,
    /// A part of the state of a session's shell.
    ShellState(LostState),
    /// Terminals that were open when it fell asleep.
    Terminals,
    /// Code contexts with their variables.
    Contexts,
    /// Connections of clients to ports.
    Connections,
    /// Values of credentials, which snapshots do not contain.
    Credentials,
}

/// A session whose shell is restored from an earlier state, or starts fresh.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LostState {
    /// The id of the session.
    pub session: SessionId,
    /// Why the state was lost.
    pub reason: LossReason,
    /// Time of the state that is restored, in milliseconds since 1970; `None` means that the shell
    /// starts fresh.
    pub saved_at_ms: Option<i64>,
}

/// Why the last state of a shell was not preserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// The host ended without a sleep, so changes since the last save are lost.
    Crash,
    /// The state exceeds the limit.
    TooLarge,
    /// Bash did not report its state in time.
    NoAnswer,
    /// The server could not write the state to its disk.
    NotKept,
    /// A part of the saved state could not be restored.
    NotRestored,
}

impl LossReason {
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
            Self::Connections => "connections",
            Self::Credentials => "credentials",
        }
    }

    /// The affected session and the reason, if this is about the state of a shell.
    #[must_use]
    pub fn state(&self) -> Option<&LostState> {
        match self {
            Self::ShellState(state) => Some(state),
            _ => None,
        }
    }
}

/// The answer to a create.
#[derive(Debug, Clone, PartialEq)]
pub struct Created {
    /// The description of the sandbox.
    pub info: SandboxInfo,
    /// Whether this repeats the answer to an earlier request with the same idempotency key.
    pub replayed: bool,
}

/// One page of a list of sandboxes.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The sandboxes, sorted by id.
    pub items: Vec<SandboxInfo>,
    /// The value of `after` for the next page; `None` on the last page.
    pub next: Option<SandboxId>,
}

/// Resource usage of a sandbox from its cgroups. Totals include the time before its sleeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Current memory, in bytes.
    pub memory_bytes: u64,
    /// Peak memory, in bytes.
    pub memory_peak_bytes: u64,
    /// Processor time, in µs.
    pub cpu_us: u64,
    /// Current number of processes and threads.
    pub pids: u64,
    /// Number of processes that were killed for lack of memory.
    pub oom_kills: u64,
    /// Space that the sandbox's disk occupies on the server, in bytes; `None` unless the disk is
    /// limited.
    pub disk_bytes: Option<u64>,
    /// Time since the creation, in ms.
    pub uptime_ms: u64,
    /// Time in which the sandbox did not sleep, in ms.
    pub awake_ms: u64,
    /// Network traffic; `None` if the sandbox never had a veth pair.
    pub network: Option<Traffic>,
}

/// The answer to a delete.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedSandbox {
    /// The last description, with the state `destroyed`.
    pub info: SandboxInfo,
    /// The total resource usage.
    pub usage: Usage,
    /// The snapshot that was taken before the deletion.
    pub snapshot: Option<SnapshotId>,
}

/// The answer to a recovery.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveredSandbox {
    /// The sandbox, asleep unless it had not failed.
    pub info: SandboxInfo,
    /// What is lost; `None` if nothing is, or a client has received it already.
    pub lost: Option<Vec<Lost>>,
}

/// The answer to a restore in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RestoredSandbox {
    /// The sandbox: running if it ran before, otherwise asleep.
    pub info: SandboxInfo,
    /// What was ended, and what the snapshot does not contain.
    pub lost: Vec<Lost>,
    /// The internal name of the sandbox, so that an answer about an earlier sandbox with the same id
    /// does not count.
    pub(crate) incarnation: String,
}

/// Changes to a session. What is `None` keeps its value.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    /// Environment variables to set or unset.
    pub env: EnvironmentChange,
    /// The timeout of commands that name none, in ms; 0 means none.
    pub command_timeout_ms: Option<u64>,
    /// Replaces the data of the client.
    pub metadata: Option<Metadata>,
}

/// The parameters of a new session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSpec {
    /// The id; the server generates one by default.
    pub id: Option<SessionId>,
    /// The directory in which shells start, absolute or below [`crate::WORKSPACE`]; by default the
    /// image's, or [`crate::WORKSPACE`].
    pub cwd: Option<WorkingDirectory>,
    /// Variables that override the sandbox's environment.
    pub env: Environment,
    /// Default timeout of commands, in ms; 0 or `None` means no timeout.
    pub command_timeout_ms: Option<u64>,
    /// Arbitrary JSON of the client.
    pub metadata: Metadata,
    /// When the session ends; `None` means with its sandbox.
    pub life: Option<Life>,
    /// The part of the workspace that the session sees; `None` means all of it.
    pub file_access: Option<FileAccess>,
}

/// When a session ends before its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Lifetime in seconds from the creation. It also ends a session in the middle of a command.
    pub ttl_s: u64,
    /// The session also ends after an idle time of [`crate::Config::session_idle`], unless a client
    /// is attached.
    pub ends_idle: bool,
    /// The session belongs to the tenant's list of sessions across sandboxes.
    pub across: bool,
}

impl Life {
    /// Whether a session with this lifetime belongs to the tenant's list across sandboxes.
    pub(crate) fn is_across(life: Option<Self>) -> bool {
        life.is_some_and(|life| life.across)
    }
}

/// The description of a session.
///
/// More than 12 fields: one for each field of the record that clients see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The id of the session.
    pub id: SessionId,
    /// The id of its sandbox.
    pub sandbox_id: SandboxId,
    /// The directory in which shells start.
    pub cwd: String,
    /// Names of the session's own environment variables.
    pub env_names: BTreeSet<String>,
    /// Default timeout of commands, in ms; 0 means no timeout.
    pub command_timeout_ms: u64,
    /// Arbitrary JSON of the client.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Time of creation, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Time of the last call, or of the last start or end of a command, in milliseconds since 1970.
    pub last_activity_ms: i64,
    /// A command is running in the session's shell, or a program in the session.
    pub busy: bool,
    /// Process id of bash inside the sandbox while the shell is open.
    pub shell_pid: Option<i32>,
    /// The session's terminal is running.
    pub terminal: bool,
    /// When the session ends; `None` means with its sandbox.
    pub life: Option<Life>,
    /// The part of the workspace that the session sees, as requested; `None` means all of it.
    pub file_access: Option<FileAccess>,
}
