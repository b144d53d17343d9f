//! Usage of a sandbox over all its sleeps: control groups count from each waking on, and the
//! sandbox's record contains the sums before that.

use crate::model::{
    clock::{now_ms, steady_ms},
    error::Error,
    info::{Info, Usage},
    network::traffic::Traffic,
    record::Record,
    state::State,
};
use isolet_store::{EndedSandbox, UsageTotals};
use serde::{Deserialize, Serialize};

/// What was counted before its groups were made, or last removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsageCounters {
    cpu_us: u64,
    memory_peak_bytes: u64,
    oom_kills: u64,
    awake_ms: u64,
    /// Awake since then, in ms of [`steady_ms`]; `None`: since its creation.
    since_ms: Option<i64>,
    /// What links have counted that are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<Traffic>,
    /// What its groups count stands here already: nothing may work in it until it wakes.
    counted: bool,
}

/// A sandbox that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The client's name for it.
    pub id: String,
    /// As it was asked for.
    pub image: String,
    /// Processor time that it might use, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory that it might use, in MiB.
    pub memory_mib: u64,
    /// How long its making took, in ms.
    pub create_ms: f64,
    /// Milliseconds since 1970.
    pub created_at_ms: i64,
    /// Milliseconds since 1970.
    pub destroyed_at_ms: i64,
    /// From its creation to its end, in ms.
    pub uptime_ms: u64,
    /// How much of that it did not sleep, in ms.
    pub awake_ms: u64,
    /// Processor time, in µs.
    pub cpu_us: u64,
    /// The most memory that it ever used, in bytes.
    pub memory_peak_bytes: u64,
}

/// What all of a tenant's sandboxes have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Sandboxes that there are.
    pub active: u64,
    /// Sandboxes that have ended.
    pub ended: u64,
    /// Processor time of all, in µs.
    pub cpu_us: u64,
    /// Memory that they might use, times how long they were awake: in MiB times ms.
    pub memory_mib_ms: u64,
}

impl UsageCounters {
    /// Of a sandbox that is being created.
    pub(crate) fn begun() -> Self {
        Self { since_ms: Some(steady_ms()), ..Self::default() }
    }

    /// Whether what the groups of the sandbox count stands in its record already.
    pub(crate) fn counted(&self) -> bool {
        self.counted
    }
}

impl Record {
    /// How long it has not slept, in ms.
    fn awake_ms(&self) -> u64 {
        let used = self.body.used;
        if !matches!(self.state, State::Running | State::Unreachable) {
            return used.awake_ms;
        }
        let since = used.since_ms.unwrap_or(self.body.created_at_ms);
        used.awake_ms + u64::try_from(steady_ms() - since).unwrap_or(0)
    }

    /// It stops to be awake: called before its state says so.
    pub(crate) fn rest(&mut self) {
        self.body.used.awake_ms = self.awake_ms();
        self.body.used.since_ms = Some(steady_ms());
    }

    /// Its groups go, and this is what they have counted.
    pub(crate) fn counted(&mut self, groups: isolet_jail::Usage) {
        let used = &mut self.body.used;
        used.counted = true;
        used.cpu_us += groups.cpu_us;
        used.memory_peak_bytes = used.memory_peak_bytes.max(groups.memory_peak_bytes);
        used.oom_kills += groups.oom_kills;
    }

    /// Its link goes, and this is what went over it.
    pub(crate) fn carried(&mut self, traffic: Option<Traffic>) {
        if let Some(traffic) = traffic {
            let before = self.body.used.network.unwrap_or_default();
            self.body.used.network = Some(before.and(traffic));
        }
    }

    /// It wakes.
    pub(crate) fn woke(&mut self) {
        self.body.used.since_ms = Some(steady_ms());
        self.body.used.counted = false;
    }

    /// What clients are told, with what its groups count now.
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

    /// What stays of it when it has ended.
    pub(crate) fn past(&self, groups: isolet_jail::Usage) -> Result<EndedSandbox, Error> {
        let (info, usage): (Info, Usage) = (self.info(), self.usage(groups));
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
