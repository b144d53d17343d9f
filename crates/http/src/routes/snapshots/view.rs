//! Snapshots and forks in answers.

use crate::foundation::lost::{LostFields, LostStateView};
use crate::routes::sandboxes::view::SandboxView;
use isolet_clock::rfc3339;
use isolet_sandbox::{
    Lost, RestoredSandbox, SandboxInfo, SnapshotInfo, StoredSnapshot, TransferEnd,
};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A snapshot: the files of a sandbox and the state of its shells at one moment.
///
/// More than 12 fields: one for each member of the JSON object.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Snapshot)]
pub(crate) struct SnapshotView {
    /// The id of the snapshot.
    id: String,
    /// The name that can stand for the id.
    #[schema(required = true)]
    name: Option<String>,
    /// The id that the sandbox had.
    sandbox: String,
    /// Why it was taken: `request`, `schedule` (`snapshot_every_s`) or `destroy`
    /// (`snapshot_on_destroy`).
    trigger: &'static str,
    /// The same as `sandbox`, for clients of Isorun.
    run_id: String,
    /// Data of the client.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// When it was taken, as in RFC 3339.
    created_at: String,
    /// When it was taken, in milliseconds since 1970.
    created_at_ms: i64,
    /// When the server deletes it, in milliseconds since 1970. `null` means never.
    #[schema(required = true)]
    expires_at_ms: Option<i64>,
    /// The size of the data in its files, in bytes, and 4,096 bytes for each file, directory and
    /// link. Where files are copied by reference, it takes less of the disk.
    size_bytes: u64,
    /// How long the processes of the sandbox were frozen, in milliseconds. 0 if none ran.
    frozen_ms: f64,
    /// The image as it was requested.
    image: String,
    /// The image that the name stood for.
    image_resolved: String,
    /// The memory limit of a sandbox from this snapshot, in MiB.
    memory_mib: u64,
    /// The CPU limit, in thousandths of one core.
    cpu_millis: u64,
    /// The limit on processes and threads.
    pids: u64,
    /// The size of the disk, in MiB. 0 means that files share the disk of the server.
    disk_mib: u64,
    /// What the sandbox had and is not part of the snapshot: `shells`, `processes`, `shell_state`,
    /// `terminals`, `contexts` and `credentials`.
    lost: Vec<&'static str>,
    /// The sessions whose shell state is not complete. Absent unless `lost` names `shell_state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost_state: Option<Vec<LostStateView>>,
}

/// A list of snapshots.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SnapshotList)]
pub(crate) struct SnapshotListView {
    /// The snapshots, sorted by id.
    pub(crate) snapshots: Vec<SnapshotView>,
    /// In a fleet: the nodes that did not answer, whose snapshots are missing. Absent if all did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) unreachable_nodes: Option<Vec<String>>,
}

/// A snapshot in the store.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StoredSnapshot)]
pub(crate) struct StoredSnapshotView {
    #[serde(flatten)]
    snapshot: SnapshotView,
    /// When it was pushed, as in RFC 3339.
    pushed_at: String,
    /// When it was pushed, in milliseconds since 1970.
    pushed_at_ms: i64,
    /// Whether this server has the snapshot too.
    is_here: bool,
}

/// A list of snapshots in the store.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StoredSnapshotList)]
pub(crate) struct StoredSnapshotListView {
    /// The snapshots, sorted by id.
    pub(crate) snapshots: Vec<StoredSnapshotView>,
}

/// A push or a pull that has ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SnapshotTransfer)]
pub(crate) struct TransferView {
    /// The snapshot.
    snapshot: SnapshotView,
    /// What was sent to the store, or received from it, in bytes.
    transferred_bytes: u64,
    /// Whether the snapshot was there before, so that nothing was transferred.
    existed: bool,
    /// The number of sockets and devices that were not pushed.
    left_out: u64,
}

/// The sandboxes that a fork created.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Forks)]
pub(crate) struct ForksView {
    /// The new sandboxes, sorted by id.
    pub(crate) forks: Vec<SandboxView>,
}

/// A sandbox after a restore in place, with what is lost.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RestoredSandbox)]
pub(crate) struct RestoredView {
    #[serde(flatten)]
    sandbox: SandboxView,
    /// What the restore ended, and what the snapshot does not contain: `shells`, `processes`,
    /// `terminals`, `contexts`, `connections`, `credentials` and `shell_state`. The first command after
    /// the restore reports it again.
    lost: Vec<&'static str>,
    /// The sessions whose shell state is not complete. Absent unless `lost` names `shell_state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost_state: Option<Vec<LostStateView>>,
}

impl RestoredView {
    pub(super) fn new(sandbox: SandboxInfo, lost: &[Lost]) -> Self {
        let LostFields { lost, lost_state } = LostFields::of(lost);
        Self { sandbox: sandbox.into(), lost: lost.unwrap_or_default(), lost_state }
    }
}

impl From<RestoredSandbox> for RestoredView {
    fn from(restored: RestoredSandbox) -> Self {
        Self::new(restored.info, &restored.lost)
    }
}

impl From<StoredSnapshot> for StoredSnapshotView {
    fn from(stored: StoredSnapshot) -> Self {
        Self {
            snapshot: stored.info.into(),
            pushed_at: rfc3339(stored.pushed_at_ms),
            pushed_at_ms: stored.pushed_at_ms,
            is_here: stored.is_here,
        }
    }
}

impl From<TransferEnd> for TransferView {
    fn from(end: TransferEnd) -> Self {
        Self {
            snapshot: end.snapshot.into(),
            transferred_bytes: end.transferred_bytes,
            existed: end.existed,
            left_out: end.left_out,
        }
    }
}

impl From<SnapshotInfo> for SnapshotView {
    fn from(info: SnapshotInfo) -> Self {
        let LostFields { lost, lost_state } = LostFields::of(&info.lost);
        Self {
            id: info.id.into(),
            name: info.name.map(String::from),
            trigger: info.trigger.word(),
            run_id: info.sandbox.to_string(),
            sandbox: info.sandbox.into(),
            metadata: info.metadata,
            created_at: rfc3339(info.created_at_ms),
            created_at_ms: info.created_at_ms,
            expires_at_ms: info.expires_at_ms,
            size_bytes: info.size_bytes,
            frozen_ms: info.frozen_ms,
            image: info.image,
            image_resolved: info.image_resolved,
            memory_mib: info.limits.memory_mib,
            cpu_millis: info.limits.cpu_millis,
            pids: info.limits.pids,
            disk_mib: info.limits.disk_mib,
            lost: lost.unwrap_or_default(),
            lost_state,
        }
    }
}
