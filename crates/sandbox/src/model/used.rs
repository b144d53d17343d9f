//! The total usage of a sandbox. Its cgroups count from the last waking, and its record holds the
//! totals before that.

use crate::model::clock::{now_ms, steady_ms};
use crate::model::error::Error;
use crate::model::info::Usage;
use crate::model::network::traffic::Traffic;
use crate::model::record::Record;
use isolet_store::{EndedSandbox, UsageTotals};
use serde::{Deserialize, Serialize};

/// Totals from before the current cgroups were created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsageCounters {
    cpu_us: u64,
    memory_peak_bytes: u64,
    oom_kills: u64,
    awake_ms: u64,
    /// Start of the current awake period by [`steady_ms`]; `None` means since the creation.
    since_ms: Option<i64>,
    /// Traffic of earlier veth pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<Traffic>,
    /// The totals already include the current cgroups, so nothing may run until the sandbox wakes.
    counted: bool,
}

/// The usage of a deleted sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The id of the sandbox.
    pub id: String,
    /// The image as the client requested it.
    pub image: String,
    /// Limit on processor time, in thousandths of one core.
    pub cpu_millis: u64,
    /// Memory limit, in MiB.
    pub memory_mib: u64,
    /// Duration of the creation, in ms.
    pub create_ms: f64,
    /// Time of creation, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Time of deletion, in milliseconds since 1970.
    pub destroyed_at_ms: i64,
    /// Time from creation to deletion, in ms.
    pub uptime_ms: u64,
    /// Time in which the sandbox did not sleep, in ms.
    pub awake_ms: u64,
    /// Processor time, in µs.
    pub cpu_us: u64,
    /// Peak memory, in bytes.
    pub memory_peak_bytes: u64,
}

/// The total usage of all sandboxes of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Number of current sandboxes.
    pub active: u64,
    /// Number of deleted sandboxes.
    pub ended: u64,
    /// Processor time, in µs.
    pub cpu_us: u64,
    /// Memory limit multiplied by awake time, in MiB times ms.
    pub memory_mib_ms: u64,
}

impl UsageCounters {
    /// The counters of a new sandbox.
    pub(crate) fn begun() -> Self {
        Self { since_ms: Some(steady_ms()), ..Self::default() }
    }

    /// The totals when the sandbox continues on another machine, whose clock is another one.
    pub(crate) fn elsewhere(self) -> Self {
        Self { since_ms: Some(steady_ms()), counted: false, ..self }
    }

    /// Whether the totals already include the current cgroups.
    pub(crate) fn counted(&self) -> bool {
        self.counted
    }
}

impl Record {
    /// Time in which the sandbox did not sleep, in ms.
    pub(crate) fn awake_ms(&self) -> u64 {
        let used = self.body.used;
        if !self.state.has_processes() {
            return used.awake_ms;
        }
        let since = used.since_ms.unwrap_or(self.body.created_at_ms);
        used.awake_ms + u64::try_from(steady_ms() - since).unwrap_or(0)
    }

    /// Ends the awake period. Must be called before the state changes.
    pub(crate) fn rest(&mut self) {
        self.body.used.awake_ms = self.awake_ms();
        self.body.used.since_ms = Some(steady_ms());
    }

    /// Adds the usage of cgroups that are removed.
    pub(crate) fn counted(&mut self, groups: isolet_jail::Usage) {
        let used = &mut self.body.used;
        used.counted = true;
        used.cpu_us += groups.cpu_us;
        used.memory_peak_bytes = used.memory_peak_bytes.max(groups.memory_peak_bytes);
        used.oom_kills += groups.oom_kills;
    }

    /// Adds the traffic of a veth pair that is removed.
    pub(crate) fn carried(&mut self, traffic: Option<Traffic>) {
        if let Some(traffic) = traffic {
            let before = self.body.used.network.unwrap_or_default();
            self.body.used.network = Some(before.and(traffic));
        }
    }

    /// Starts an awake period.
    pub(crate) fn woke(&mut self) {
        self.body.used.since_ms = Some(steady_ms());
        self.body.used.counted = false;
        self.body.boots = self.body.boots.saturating_add(1);
    }

    /// The usage for clients, including the current cgroups.
    pub(crate) fn usage(&self, groups: isolet_jail::Usage) -> Usage {
        let used = self.body.used;
        let groups = match used.counted {
            true => isolet_jail::Usage { disk_bytes: groups.disk_bytes, ..Default::default() },
            false => groups,
        };
        Usage {
            memory_bytes: groups.memory_bytes,
            memory_peak_bytes: used.memory_peak_bytes.max(groups.memory_peak_bytes),
            cpu_us: used.cpu_us + groups.cpu_us,
            pids: groups.pids,
            oom_kills: used.oom_kills + groups.oom_kills,
            disk_bytes: groups.disk_bytes,
            uptime_ms: u64::try_from(now_ms() - self.body.created_at_ms).unwrap_or(0),
            awake_ms: self.awake_ms(),
            network: used.network,
        }
    }

    /// The usage record of a deleted sandbox.
    pub(crate) fn past(&self, groups: isolet_jail::Usage) -> Result<EndedSandbox, Error> {
        let info = self.info();
        let usage = self.usage(groups);
        let past = Past {
            id: info.id.into(),
            image: info.image,
            cpu_millis: info.limits.cpu_millis,
            memory_mib: info.limits.memory_mib,
            create_ms: info.create_ms,
            created_at_ms: info.created_at_ms,
            destroyed_at_ms: now_ms(),
            uptime_ms: usage.uptime_ms,
            awake_ms: usage.awake_ms,
            cpu_us: usage.cpu_us,
            memory_peak_bytes: usage.memory_peak_bytes,
        };
        let memory_mib_ms = past.memory_mib.saturating_mul(past.awake_ms);
        let sums = UsageTotals { count: 1, cpu_us: past.cpu_us, memory_mib_ms };
        let body = serde_json::to_string(&past).map_err(|error| Error::Fault(error.to_string()))?;
        Ok(EndedSandbox { tenant: self.tenant.to_string(), body, sums })
    }
}
