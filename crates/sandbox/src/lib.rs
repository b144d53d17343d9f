//! Creates, finds, changes and ends sandboxes, and runs work in them.
//!
//! [`Service`] is the entry point. One driver task per sandbox owns its state ([`State`] has the
//! table of transitions). A [`Sandbox`] is a handle for work in a running sandbox; its connections
//! go from the caller's task straight to the agent, without a channel or a task in between.
//!
//! The layers, bottom first; each uses only those above it in this list:
//!
//! - `model`: data and rules, without tasks or connections.
//! - `agent_client`: connections to agents.
//! - `live`: what the server holds of running sandboxes, shared by all calls.
//! - `sandbox`: every `impl Sandbox`.
//! - `lifecycle`: the tasks that move sandboxes from state to state.
//! - `service`: every `impl Service`.
//! - `offline`: what maintenance does with sandboxes while no server runs.
#![forbid(unsafe_code)]

mod agent_client;
mod lifecycle;
mod live;
mod model;
pub mod offline;
pub mod sandbox;
pub mod service;

pub use agent_client::connection::{ExecConnection, ShellConnection};
pub use agent_client::wire::AgentEvent;
pub use isolet_image as image;
pub use isolet_jail::identity::DirectoryId;
pub use isolet_jail::{Ended, SLOTS as SANDBOXES_MAX};
pub use isolet_repository as repository;
pub use isolet_storage as storage;
pub use isolet_store::keys::{
    Delegation, Grant, Key, KeyFormat, KeyLimits, Keys, NewKey, count_valid as count_valid_keys,
};
pub use isolet_store::{Error as KeyError, KeyDigest, audit, check_format, check_or_write_format};
pub use lifecycle::recover::lock;
pub use lifecycle::teardown::teardown;
pub use live::snapshot_store::{Transfer, TransferEnd};
pub use live::snapshots::push_watch::PushState;
pub use live::warm_pool::READY_MAX;
pub use model::access::{self, FileAccess};
pub use model::agent_error::AgentError;
pub use model::command::SleepMode;
pub use model::config::{Config, TenantLimits};
pub use model::error::{Error, OpenError};
pub use model::held::HeldSandbox;
pub use model::ids::{
    self, BadId, ContextId, OwnedId, ProcessId, SandboxId, SessionId, SnapshotId, TenantId,
};
pub use model::info::class::SandboxClass;
pub use model::info::ownership::{
    self, Arrival, Departed, Departure, FleetSettings, IdClaims, KnownPushes, LocalSandbox,
    LostSince, PushedSnapshot, RestoredFrom, SnapshotRecords, StartPermits, StoredOwnership,
    StoredSandbox,
};
pub use model::info::{
    self, AutoSnapshots, AutoSnapshotsChange, Created, EndedSandbox, IdempotencyKey, Life, Limits,
    LossReason, Lost, LostState, Page, Patch, RecoveredSandbox, RestoredSandbox, SandboxInfo,
    SandboxSpec, SessionInfo, SessionPatch, SessionSpec, Trigger, Usage,
};
pub use model::input::{
    Argv, BadInput, CommandText, Environment, EnvironmentChange, Metadata, Program,
    WorkingDirectory, absolute_path,
};
pub use model::network::{
    self, CredentialRemoval, CredentialSpec, Denied, InjectedCredential, Network, NetworkChange,
    NetworkDenial, NetworkSpec, Traffic, profiles,
};
pub use model::process::{ProcessInfo, ProcessSpec};
pub use model::record::snapshot::{
    FORKS_MAX, SNAPSHOTS_MAX, SnapshotInfo, SnapshotSpec, StoredSnapshot,
};
pub use model::sessions::{Only, WORKSPACE};
pub use model::state::State;
pub use model::used::{Account, Past};
pub use model::{events, exposed_ports};
pub use sandbox::port::PortConnection;
pub use sandbox::process::ProcessConnection;
pub use sandbox::terminal::{self, TerminalConnection};
pub use sandbox::{
    Denials, ProgramSpec, Sandbox, ShellClientOptions, ShellName, contexts, files, recordings,
};
pub use service::commit::{CommitInfo, CommitSpec};
pub use service::images::UploadPermit;
pub use service::node_use::NodeUse;
pub use service::node_use::ownership::Admission;
pub use service::snapshots::{SnapshotChange, SnapshotDiff};
pub use service::tenant_sessions::HOME;
pub use service::trace::TRACE_TARGET;
pub use service::{Access, Service};
