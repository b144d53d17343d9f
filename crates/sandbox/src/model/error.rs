//! Errors of calls on sandboxes, with one variant for each cause and the data that an HTTP answer
//! needs.

use crate::model::agent_error::AgentError;
use crate::model::ids::{ProcessId, SandboxId, SessionId, SnapshotId};
use crate::model::input::BadInput;
use isolet_wire::response::RefusalReason;
use rustix::io::Errno;

/// An error of a call on sandboxes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The tenant has no sandbox with this id. The answer is the same if another tenant has one.
    #[error("no sandbox {0}")]
    NoSandbox(SandboxId),
    /// The sandbox has left this node: another one has it, or the object store.
    #[error("sandbox {0} has just left its node")]
    Departed(SandboxId),
    /// The sandbox cannot leave its node.
    #[error("sandbox {id} cannot be moved: {reason}")]
    NotMovable {
        /// The id of the sandbox.
        id: SandboxId,
        /// Why, in words.
        reason: String,
    },
    /// The sandbox stays on its node, because the object store takes too long for its last changes.
    #[error(
        "sandbox {0} stays on its node, and has run on: the object store has not taken its last changes while it \
         stood still"
    )]
    NotDeparted(SandboxId),
    /// A sandbox with this id already exists.
    #[error("sandbox {0} exists")]
    SandboxExists(SandboxId),
    /// The sandbox has failed. Its disk is kept until the sandbox is deleted.
    #[error("sandbox {id} has failed: {cause}")]
    Failed {
        /// The id of the sandbox.
        id: SandboxId,
        /// The cause in words, such as `agent killed` or `out of memory`.
        cause: String,
    },
    /// The agent of the sandbox does not answer. Nothing was killed.
    #[error("sandbox {0} does not answer")]
    Unreachable(SandboxId),
    /// The sandbox is asleep, and this call does not wake it.
    #[error("sandbox {0} is asleep")]
    Sleeping(SandboxId),
    /// The sandbox is paused, and this call does not resume it.
    #[error("sandbox {0} is paused")]
    Paused(SandboxId),
    /// The sandbox could not be paused. It continues to run.
    #[error("sandbox {id} cannot be paused: {reason}; it continues to run")]
    NotPaused {
        /// The id of the sandbox.
        id: SandboxId,
        /// What did not stop, in words.
        reason: String,
    },
    /// Another node of the fleet may own the sandbox, so nothing of it runs here.
    #[error("sandbox {id} is suspended: {reason}")]
    Suspended {
        /// The id of the sandbox.
        id: SandboxId,
        /// Why, in words.
        reason: String,
    },
    /// The records of the fleet cannot be read or written.
    #[error("the records of the fleet are unavailable: {reason}")]
    FleetUnavailable {
        /// Why, in words.
        reason: String,
    },
    /// This server has no sandboxes of this class.
    #[error("class {class}: {lack}")]
    NoClass {
        /// The word for the class.
        class: &'static str,
        /// What is needed.
        lack: &'static str,
    },
    /// The sandbox is in use, so it cannot be put to sleep.
    #[error("sandbox {0} is in use")]
    InUse(SandboxId),
    /// The sandbox has no session with this id.
    #[error("no session {session} in sandbox {id}")]
    NoSession {
        /// The id of the sandbox.
        id: SandboxId,
        /// The id of the session.
        session: SessionId,
    },
    /// A session with this id already exists.
    #[error("session {0} exists")]
    SessionExists(SessionId),
    /// The session `default` always exists and cannot be deleted.
    #[error("cannot delete default session")]
    DefaultSession,
    /// A field of the request has an invalid value.
    #[error("{field}: {reason}")]
    BadField {
        /// Name of the field in the native API.
        field: &'static str,
        /// What is wrong, and which values are allowed.
        reason: String,
    },
    /// A path that a session may write cannot be granted any more, because another session has
    /// replaced it.
    #[error("session {session} cannot be entered: {reason}")]
    ScopeBlocked {
        /// The id of the session.
        session: SessionId,
        /// The path, and what exists there now.
        reason: String,
    },
    /// This machine does not support the value of a field.
    #[error("{field}: this machine cannot: {reason}")]
    Lacks {
        /// Name of the field in the native API.
        field: &'static str,
        /// What is missing, and how to provide it.
        reason: String,
    },
    /// This machine cannot give sandboxes a network.
    #[error("this machine cannot give sandboxes a network: {0}")]
    NoWay(String),
    /// The process that owns the veth pairs has ended or does not answer. The server restarts it.
    #[error("sandbox networking is temporarily unavailable: {0}")]
    WayLost(String),
    /// The disk of the data directory is nearly full, so the server creates nothing and accepts no
    /// uploads.
    #[error("{free_mib} MiB are free on the server's disk, {floor_mib} are kept free")]
    NoSpace {
        /// Free space, in MiB.
        free_mib: u64,
        /// Minimum free space, in MiB.
        floor_mib: u64,
    },
    /// The files of the tenant's sandboxes have reached its quota.
    #[error("files of the tenant's sandboxes take {used_mib} MiB of its quota of {quota_mib} MiB")]
    QuotaExceeded {
        /// What they take on the server's disk, in MiB.
        used_mib: u64,
        /// The quota, in MiB.
        quota_mib: u64,
    },
    /// The image cannot be used.
    #[error(transparent)]
    Image(#[from] isolet_image::Error),
    /// The operator has configured what the name of an image stands for.
    #[error("the operator of this server lets the image name {name:?} stand for {image}")]
    NameConfigured {
        /// The name in the configuration.
        name: String,
        /// The image that it stands for.
        image: String,
    },
    /// The tenant has reached its limit of sandboxes.
    #[error("tenant has {max} sandboxes, the most it may have")]
    TooManySandboxes {
        /// The largest number that is allowed.
        max: u32,
    },
    /// The sandbox has reached its limit of sessions.
    #[error("sandbox has {max} sessions, the most it may have")]
    TooManySessions {
        /// The largest number that is allowed.
        max: usize,
    },
    /// The sandbox has no such recording.
    #[error("no recording {recording} of sandbox {id}")]
    NoRecording {
        /// The id of the sandbox.
        id: SandboxId,
        /// The id of the recording.
        recording: String,
    },
    /// The sandbox has no process with this id.
    #[error("no process {process} in sandbox {id}")]
    NoProcess {
        /// The id of the sandbox.
        id: SandboxId,
        /// The id of the process.
        process: ProcessId,
    },
    /// The process and its log were lost when the sandbox slept or ended.
    #[error("process {process} of sandbox {id} was lost when the sandbox slept or ended")]
    ProcessLost {
        /// The id of the sandbox.
        id: SandboxId,
        /// The id of the process.
        process: ProcessId,
    },
    /// The sandbox has reached its limit of recordings.
    #[error("sandbox has {max} recordings, the most it may have")]
    TooManyRecordings {
        /// The largest number that is allowed.
        max: usize,
    },
    /// The port is not exposed, so there are no signed URLs for it.
    #[error("no link leads to port {port} of sandbox {id}")]
    NotExposed {
        /// The id of the sandbox.
        id: SandboxId,
        /// The port without links.
        port: u16,
    },
    /// The sandbox has reached its limit of exposed ports.
    #[error("links lead to {max} ports of the sandbox, the most there may be")]
    TooManyExposed {
        /// The largest number that is allowed.
        max: usize,
    },
    /// Another key chose this token for a URL of the port.
    #[error("the token is in use for port {port}")]
    LinkTokenInUse {
        /// The port.
        port: u16,
    },
    /// The sandbox has reached its limit of URLs with chosen tokens.
    #[error("the sandbox has {max} links with chosen tokens, the most it may have")]
    TooManyLinkTokens {
        /// The largest number that is allowed.
        max: usize,
    },
    /// The tenant has no snapshot with this id or name.
    #[error("no snapshot {0}")]
    NoSnapshot(SnapshotId),
    /// A snapshot with this name already exists.
    #[error("snapshot {0} exists")]
    SnapshotExists(SnapshotId),
    /// Sandboxes are being created from the snapshot, so it cannot be deleted.
    #[error("sandboxes are being created from snapshot {0}")]
    SnapshotInUse(SnapshotId),
    /// The snapshot cannot be restored in place of the files of this sandbox.
    #[error("snapshot {snapshot} cannot be restored into sandbox {id}: {reason}")]
    SnapshotIncompatible {
        /// The id of the snapshot.
        snapshot: SnapshotId,
        /// The id of the sandbox.
        id: SandboxId,
        /// What differs, in words.
        reason: String,
    },
    /// The tenant has reached its limit of snapshots.
    #[error("tenant has {max} snapshots, the most it may have")]
    TooManySnapshots {
        /// The largest number that is allowed.
        max: usize,
    },
    /// The operator has configured no object store.
    #[error("this server has no store for snapshots")]
    NoStore,
    /// The object store has no such snapshot of the tenant.
    #[error("the store has no snapshot {0}")]
    NotInStore(SnapshotId),
    /// The object store failed, or what it contains cannot be used.
    #[error("snapshot {id} was not {what}: {reason}")]
    Transfer {
        /// The id of the snapshot, or `*` for all.
        id: String,
        /// `pushed`, `pulled`, `listed` or `deleted`.
        what: &'static str,
        /// Why.
        reason: isolet_repository::Error,
    },
    /// A snapshot of the object store needs an image that the tenant does not have here.
    #[error("snapshot {id} needs the image {image}, which is not on this server")]
    ImageMissing {
        /// The id of the snapshot.
        id: SnapshotId,
        /// The image with its digest.
        image: String,
    },
    /// The tenant has too many pushes and pulls at once.
    #[error("tenant has {max} pushes and pulls that have not ended, the most it may have")]
    TooManyTransfers {
        /// The largest number that is allowed.
        max: usize,
    },
    /// The files of a snapshot could not be copied. Nothing of the copy is left.
    #[error("cannot copy the files of {of}: {reason}")]
    Copy {
        /// The sandbox or the snapshot.
        of: String,
        /// Why, in words.
        reason: String,
    },
    /// The snapshot before the deletion of a sandbox failed. The sandbox continues.
    #[error("sandbox {id} is not deleted, because its snapshot failed: {cause}")]
    NotSnapshotted {
        /// The id of the sandbox.
        id: SandboxId,
        /// Why the snapshot failed.
        cause: Box<Error>,
    },
    /// The lifetime of the sandbox was extended before it ended.
    #[error("the lifetime of sandbox {0} was extended")]
    NotOver(SandboxId),
    /// The server has reached one of its limits.
    #[error("this server is full: {0}")]
    ServerFull(&'static str),
    /// The idempotency key was used before with another request body.
    #[error("idempotency key was used with another body")]
    OtherBody,
    /// The tenant has as many stored answers of idempotency keys as it may have.
    #[error(
        "the tenant has {count} stored answers of idempotency keys with {mib} MiB, which is the most"
    )]
    TooManyAnswers {
        /// How many there are.
        count: u64,
        /// Their length, in MiB.
        mib: u64,
    },
    /// This machine lacks something that every sandbox needs.
    #[error("this machine cannot make sandboxes: {}", .0.join("; "))]
    Missing(Vec<String>),
    /// The sandbox could not be created, and nothing of it is left.
    #[error("cannot make the sandbox: step {step}: {reason}")]
    Launch {
        /// Name of the step that failed.
        step: String,
        /// The kernel's error in words.
        reason: String,
    },
    /// A granted path of a session's scope was refused; nothing of the scope is left.
    #[error("cannot start the session's scope: grant {index}: {errno}")]
    GrantRefused {
        /// The index of the grant in the request.
        index: usize,
        /// Why the launcher could not open the path.
        errno: Errno,
    },
    /// The server's disk is full. Nothing of the sandbox is left.
    #[error("cannot make the sandbox: step {step}: no space left on the server's disk")]
    DiskFull {
        /// Name of the step that failed.
        step: String,
    },
    /// The server's disk is too full for a copy of files. Nothing of the copy is left.
    #[error("cannot copy the files of {of}: no space or no free inodes left on the server's disk")]
    CopyFull {
        /// The sandbox or the snapshot.
        of: String,
    },
    /// The fleet does not know what was done or is to be done. The call can be repeated.
    #[error("the records of the fleet about sandbox {id} cannot be written: {reason}")]
    NotRecorded {
        /// The sandbox.
        id: SandboxId,
        /// Why.
        reason: String,
    },
    /// The agent refused the request.
    #[error("{message}")]
    Refused {
        /// The reason, for programs.
        reason: RefusalReason,
        /// The reason, for people.
        message: String,
    },
    /// The connection to the agent failed.
    #[error(transparent)]
    Link(#[from] AgentError),
    /// The deadline of an operation has passed.
    #[error("{0} took too long")]
    TooLate(&'static str),
    /// The disk of the store is full. Nothing was changed.
    #[error("no space left for records")]
    StoreFull,
    /// The disk of the store has failed. The store accepts no writes until the server restarts.
    #[error("the disk of the records did not take what was written")]
    StoreBroken,
    /// The store cannot be read or written. Nothing was changed.
    #[error("records: {0}")]
    Store(String),
    /// The server is stopping. Sandboxes continue to run.
    #[error("the server is stopping")]
    Stopping,
    /// The changes since a version of files are not known any more.
    #[error("the changes since version {0} are not known any more")]
    VersionExpired(String),
    /// There is no network profile with this name.
    #[error("no network profile {0}")]
    NoProfile(String),
    /// The tenant has reached its limit of network profiles.
    #[error("at most {max} network profiles")]
    TooManyProfiles {
        /// The largest number that is allowed.
        max: usize,
    },
    /// An internal error of this server, which affects only this call.
    #[error("internal fault: {0}")]
    Fault(String),
}

impl From<BadInput> for Error {
    fn from(BadInput { field, reason }: BadInput) -> Self {
        Self::BadField { field, reason }
    }
}

impl From<isolet_store::Error> for Error {
    fn from(error: isolet_store::Error) -> Self {
        match error {
            isolet_store::Error::Full => Self::StoreFull,
            isolet_store::Error::Unsynced => Self::StoreBroken,
            other => Self::Store(other.to_string()),
        }
    }
}

/// An error that prevents the server from starting on its data directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server uses the data directory.
    #[error("{path} is held by process {holder}")]
    Held {
        /// Path of the lock file.
        path: String,
        /// The process id in the lock file.
        holder: String,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] isolet_store::Error),
    /// An error of a file or a directory of the server.
    #[error("{path}")]
    Io {
        /// The path on the host that the error is about.
        path: String,
        #[source]
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// An error that no other variant describes, as text for the log.
    #[error("{0}")]
    Fault(String),
    /// A restore into this directory did not end.
    #[error("{0} contains an incomplete restore; run `isolet restore` again")]
    Restoring(String),
    /// The launcher could not be started.
    #[error("launcher: {0}")]
    Launcher(String),
}

impl Error {
    /// Whether the object store has answered something that does not say that a snapshot cannot be restored,
    /// so that it is read again: that it failed, that there is no such object, or something else than what was
    /// written.
    #[must_use]
    pub(crate) fn is_uncertain_in_store(&self) -> bool {
        match self {
            Self::NotInStore(_) => true,
            Self::Transfer { reason, .. } => reason.is_uncertain(),
            _ => false,
        }
    }
}
