//! A sandbox, as the native API writes it.

use crate::fleet::Placement;
use crate::foundation::lost::{LostFields, LostStateView};
use isolet_sandbox::{
    EndedSandbox, Lost, RecoveredSandbox, RestoredFrom, SandboxClass, SandboxInfo, Traffic, Usage,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// A sandbox and its settings.
// More than 12 fields: one for each member of the JSON object.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sandbox)]
pub(crate) struct SandboxView {
    /// The id, unique among the sandboxes of the tenant.
    #[schema(value_type = String)]
    id: String,
    /// `creating`, `running`, `paused`, `sleeping`, `unreachable`, `failed`, or `destroyed` in the
    /// answer to a delete.
    state: &'static str,
    /// Why the sandbox failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cause: Option<String>,
    /// The image as it was requested.
    image: String,
    /// The image that this name stood for.
    image_resolved: String,
    /// The memory limit, in MiB.
    memory_mib: u64,
    /// The CPU limit, in thousandths of one core.
    cpu_millis: u64,
    /// The limit on processes and threads.
    pids: u64,
    /// The size of its disk, in MiB. 0 means that its files share the disk of the server.
    disk_mib: u64,
    /// `none` (loopback only), `open`, or `rules`. `GET /v1/sandboxes/{id}/network` returns the
    /// rules.
    network: &'static str,
    /// The network profile that the rules were taken from. Absent if there is none, or if the rules
    /// were changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    network_profile: Option<String>,
    /// Whether files outlive a sleep.
    persistent: bool,
    /// Whether a call that works in the sandbox resumes it when it is paused.
    auto_resume: bool,
    /// The lifetime in seconds, counted from the creation or its last change. `null` means no
    /// limit.
    #[schema(required = true)]
    ttl_s: Option<u64>,
    /// When the lifetime ends, in milliseconds since 1970.
    #[schema(required = true)]
    expires_at_ms: Option<i64>,
    /// The idle time in seconds after which the sandbox falls asleep. `null` means never.
    #[schema(required = true)]
    sleep_after_s: Option<u64>,
    /// The interval in seconds at which the server takes a snapshot. `null` means never.
    #[schema(required = true)]
    snapshot_every_s: Option<u64>,
    /// How many snapshots at intervals exist at most.
    keep: u32,
    /// Whether the server takes a snapshot before it deletes the sandbox.
    snapshot_on_destroy: bool,
    /// `node`, or `store` if another node of the fleet may take the sandbox over.
    class: &'static str,
    /// Of the class `store`: whether another node can restore it. `false` from its creation until its first
    /// snapshot is in the object store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    durable: Option<bool>,
    /// Of the class `store`: the newest snapshot in the object store from which another node can
    /// restore it. Absent until there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_pushed_snapshot: Option<String>,
    /// When that snapshot was complete in the object store, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_pushed_at_ms: Option<i64>,
    /// From what it was last restored, because its former node had failed or had stored it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    restored_from: Option<RestoredFromView>,
    /// The snapshot that was taken before the deletion. Only in the answer to a delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    snapshot: Option<String>,
    /// Data of the client, returned unchanged.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// The names of the environment variables. Values are never returned.
    env_names: BTreeSet<String>,
    /// When it was created, in milliseconds since 1970.
    created_at_ms: i64,
    /// How long its creation took, in milliseconds.
    create_ms: f64,
    /// How often it was started: 1 after its creation, and one more after each wake. A pause is no
    /// start.
    boots: u64,
    /// The protocol version of the agent that runs in it. Absent while no agent runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    agent_version: Option<u16>,
    /// Whether the agent was started by an earlier version of Isolet. It is replaced when the
    /// sandbox sleeps and wakes.
    agent_outdated: bool,
    /// In a fleet: the node that has the sandbox. Absent while only the object store has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    node: Option<String>,
    /// In a fleet: the region in which it was placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    region: Option<String>,
    /// In a fleet: why it was placed on this node, for people. Absent in lists after a restart of the
    /// server, until the sandbox is requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    placement_reason: Option<String>,
    /// The resource usage. Present when a single running or paused sandbox is requested, and after a
    /// delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    usage: Option<UsageView>,
}

/// From what a sandbox was restored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RestoredFrom)]
pub(crate) struct RestoredFromView {
    /// The snapshot in the object store.
    snapshot: String,
    /// When the snapshot was taken, in milliseconds since 1970.
    created_at_ms: i64,
    /// The node that pushed the snapshot.
    node: String,
    /// When the sandbox was restored, in milliseconds since 1970.
    restored_at_ms: i64,
    /// Newer snapshots that were not used, because a client has called for this one. They stay in the
    /// store. Absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    skipped: Vec<String>,
    /// What was lost. Absent if the sandbox had not run since the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost: Option<LostSinceView>,
}

/// What a restored sandbox lost.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LostSince)]
pub(crate) struct LostSinceView {
    /// Changes of the last `seconds` before the restore may be lost.
    seconds: u64,
    /// What the snapshot does not contain, such as `processes`.
    items: Vec<&'static str>,
}

impl From<RestoredFrom> for RestoredFromView {
    fn from(restored: RestoredFrom) -> Self {
        let lost = restored.lost.map(|lost| {
            let mut items: Vec<&str> = lost.items.iter().map(Lost::word).collect();
            items.dedup();
            LostSinceView { seconds: lost.seconds, items }
        });
        Self {
            snapshot: restored.snapshot.into(),
            created_at_ms: restored.created_at_ms,
            node: restored.node,
            restored_at_ms: restored.restored_at_ms,
            skipped: restored.skipped.into_iter().map(Into::into).collect(),
            lost,
        }
    }
}

/// A sandbox after its recovery, with what is lost.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RecoveredSandbox)]
pub(crate) struct RecoveredView {
    #[serde(flatten)]
    sandbox: SandboxView,
    /// `shells`, `processes` and `shell_state`. Absent if nothing is lost, or a client has received
    /// it already. The first command after the recovery reports it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost: Option<Vec<&'static str>>,
    /// The sessions whose shell does not come back as it was. Absent unless `lost` names
    /// `shell_state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost_state: Option<Vec<LostStateView>>,
}

impl From<RecoveredSandbox> for RecoveredView {
    fn from(recovered: RecoveredSandbox) -> Self {
        let LostFields { lost, lost_state } =
            recovered.lost.map_or_else(LostFields::default, |lost| LostFields::of(&lost));
        Self { sandbox: recovered.info.into(), lost, lost_state }
    }
}

/// The resource usage of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SandboxUsage)]
pub(crate) struct UsageView {
    /// Current memory, in bytes.
    memory_bytes: u64,
    /// Peak memory, in bytes.
    memory_peak_bytes: u64,
    /// CPU time, in milliseconds.
    cpu_ms: f64,
    /// Current number of processes and threads.
    pids: u64,
    /// The number of processes that were killed for lack of memory.
    oom_kills: u64,
    /// The space that its files occupy on the disk of the server, in bytes. Present only with
    /// `disk_mib`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    disk_bytes: Option<u64>,
    /// Milliseconds since its creation.
    uptime_ms: u64,
    /// Milliseconds that it did not sleep.
    awake_ms: u64,
    /// Its network traffic. Present only for a sandbox that has or had access to a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    network: Option<TrafficView>,
}

/// The network traffic of a sandbox, summed over its sleeps. Packet headers are included.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NetworkTraffic)]
pub(crate) struct TrafficView {
    /// Bytes that the sandbox sent.
    sent_bytes: u64,
    /// Bytes that the sandbox received.
    received_bytes: u64,
    /// Packets that the sandbox sent.
    sent_packets: u64,
    /// Packets that the sandbox received.
    received_packets: u64,
    /// Packets, connections and DNS lookups that were denied.
    refused: u64,
}

impl From<Traffic> for TrafficView {
    fn from(traffic: Traffic) -> Self {
        Self {
            sent_bytes: traffic.sent_bytes,
            received_bytes: traffic.received_bytes,
            sent_packets: traffic.sent_packets,
            received_packets: traffic.received_packets,
            refused: traffic.refused,
        }
    }
}

impl From<Usage> for UsageView {
    fn from(usage: Usage) -> Self {
        Self {
            memory_bytes: usage.memory_bytes,
            memory_peak_bytes: usage.memory_peak_bytes,
            cpu_ms: usage.cpu_us as f64 / 1000.0,
            pids: usage.pids,
            oom_kills: usage.oom_kills,
            disk_bytes: usage.disk_bytes,
            uptime_ms: usage.uptime_ms,
            awake_ms: usage.awake_ms,
            network: usage.network.map(Into::into),
        }
    }
}

impl From<SandboxInfo> for SandboxView {
    fn from(info: SandboxInfo) -> Self {
        Self {
            agent_version: info.agent_version,
            agent_outdated: info.agent_outdated(),
            id: info.id.into(),
            state: info.state.word(),
            class: info.class.word(),
            cause: info.cause,
            image: info.image,
            image_resolved: info.image_resolved,
            memory_mib: info.limits.memory_mib,
            cpu_millis: info.limits.cpu_millis,
            pids: info.limits.pids,
            disk_mib: info.limits.disk_mib,
            network: info.network.mode().word(),
            network_profile: info.network.profile().map(ToOwned::to_owned),
            persistent: info.persistent,
            auto_resume: info.auto_resume,
            ttl_s: info.ttl_s,
            expires_at_ms: info.expires_at_ms,
            sleep_after_s: info.sleep_after_s,
            snapshot_every_s: info.snapshots.every_s,
            keep: info.snapshots.keep,
            snapshot_on_destroy: info.snapshots.on_destroy,
            durable: (info.class == SandboxClass::Store).then_some(info.pushed.is_some()),
            last_pushed_at_ms: info.pushed.as_ref().map(|pushed| pushed.pushed_at_ms),
            last_pushed_snapshot: info.pushed.map(|pushed| pushed.id.into()),
            restored_from: info.restored_from.map(RestoredFromView::from),
            snapshot: None,
            metadata: info.metadata,
            env_names: info.env_names,
            created_at_ms: info.created_at_ms,
            boots: info.boots,
            create_ms: info.create_ms,
            node: None,
            region: None,
            placement_reason: None,
            usage: None,
        }
    }
}

impl SandboxView {
    /// Sets the fields about its place in a fleet, or leaves them out.
    pub(crate) fn placed(mut self, placement: Option<Placement>) -> Self {
        if let Some(Placement { node, region, reason }) = placement {
            self.node = Some(node.to_string());
            self.region = Some(region);
            self.placement_reason = reason;
        }
        self
    }

    /// The view of a sandbox that only the object store has.
    pub(crate) fn in_store(mut self, region: Option<String>) -> Self {
        self.region = region;
        self.placement_reason = Some("in the object store".to_owned());
        self
    }

    /// The last view of a sandbox that was deleted.
    pub(crate) fn destroyed(mut self) -> Self {
        self.state = "destroyed";
        self
    }

    /// Sets the field `usage`, or leaves it out.
    pub(crate) fn using(mut self, usage: Option<Usage>) -> Self {
        self.usage = usage.map(UsageView::from);
        self
    }
}

impl From<EndedSandbox> for SandboxView {
    fn from(ended: EndedSandbox) -> Self {
        let snapshot = ended.snapshot.map(String::from);
        Self { snapshot, ..Self::from(ended.info).using(Some(ended.usage)) }
    }
}
