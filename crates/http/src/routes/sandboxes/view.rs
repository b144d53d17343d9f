//! A sandbox, as the native API writes it.

use isolet_sandbox::{Ended, Info, Traffic, Usage};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// A sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxView {
    /// Its id, unique among the caller's.
    #[schema(value_type = String)]
    id: String,
    /// `creating`, `running`, `sleeping`, `unreachable`, `failed` or, in the answer to a delete, `destroyed`.
    state: &'static str,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// As it was asked for.
    image: String,
    /// What that name stood for.
    image_resolved: String,
    /// Memory of its processes, in MiB.
    memory_mib: u64,
    /// Processor time, in thousandths of one core.
    cpu_millis: u64,
    /// Processes and threads.
    pids: u64,
    /// Its files, in MiB; 0: as much as the server's disk has.
    disk_mib: u64,
    /// `none` (loopback alone), `open` or `rules`; `GET …/network` tells the rules.
    network: &'static str,
    /// The network profile that its rules were taken from, unless they were changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    network_profile: Option<String>,
    /// Its files outlive a sleep.
    persistent: bool,
    /// Seconds to live, counted from its creation or the last change; `null` never ends by itself.
    ttl_s: Option<u64>,
    /// When it ends by itself, in ms since 1970.
    expires_at_ms: Option<i64>,
    /// Seconds without use after which it falls asleep; `null` never.
    sleep_after_s: Option<u64>,
    /// The client's own words.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// Names of its environment; values are never told.
    env_names: BTreeSet<String>,
    /// In ms since 1970.
    created_at_ms: i64,
    /// How long its making took, in ms.
    create_ms: f64,
    /// What it uses: told of one running sandbox, not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageView>,
}

/// What a sandbox uses.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageView {
    /// Memory now, in bytes.
    memory_bytes: u64,
    /// The most it ever was, in bytes.
    memory_peak_bytes: u64,
    /// Processor time, in ms.
    cpu_ms: f64,
    /// Processes and threads now.
    pids: u64,
    /// Processes that were killed for memory.
    oom_kills: u64,
    /// What its files take of the server's disk, in bytes; only where `disk_mib` limits them.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_bytes: Option<u64>,
    /// Since its creation, in ms.
    uptime_ms: u64,
    /// How much of that it did not sleep, in ms.
    awake_ms: u64,
    /// What went between it and the world; only of one that has or had a way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<TrafficView>,
}

/// What went between a sandbox and the world, over its sleeps. Heads of packets are counted with
/// them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrafficView {
    /// Bytes that it sent.
    sent_bytes: u64,
    /// Bytes that it received.
    received_bytes: u64,
    /// Packets that it sent.
    sent_packets: u64,
    /// Packets that it received.
    received_packets: u64,
    /// Packets, connections and lookups that were refused.
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

impl From<Info> for SandboxView {
    fn from(info: Info) -> Self {
        Self {
            id: info.id.into(),
            state: info.state.word(),
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
            ttl_s: info.ttl_s,
            expires_at_ms: info.expires_at_ms,
            sleep_after_s: info.sleep_after_s,
            metadata: info.metadata,
            env_names: info.env_names,
            created_at_ms: info.created_at_ms,
            create_ms: info.create_ms,
            usage: None,
        }
    }
}

impl SandboxView {
    /// Adds the usage.
    pub(crate) fn using(mut self, usage: Option<Usage>) -> Self {
        self.usage = usage.map(UsageView::from);
        self
    }
}

impl From<Ended> for SandboxView {
    fn from(ended: Ended) -> Self {
        Self::from(ended.info).using(Some(ended.usage))
    }
}
