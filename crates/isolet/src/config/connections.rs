//! The table `[connections]`: limits on the connections of clients.

use anyhow::{Result, bail};
use isolet_http::{ConnectionKind, ConnectionLimits};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// The smallest `max`. With fewer, no connection would be left for new clients.
const MAX_LEAST: usize = 8;
/// The largest `max`: more than the descriptors of any process.
const MAX_MOST: usize = 1_000_000;
/// The largest `stalled_s`: three weeks, because the kernel counts milliseconds in 31 bits.
const STALLED_S_MOST: u64 = 2_000_000;

/// The table in the file. Missing values are derived, from the top down.
#[derive(Debug, Default, Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConnectionsFile {
    max: Option<usize>,
    reserve: Option<usize>,
    tenant_max: Option<usize>,
    calls: Option<usize>,
    event_streams: Option<usize>,
    sockets: Option<usize>,
    execs: Option<usize>,
    uploads: Option<usize>,
    downloads: Option<usize>,
    ports: Option<usize>,
    stalled_s: Option<u64>,
    answers_mib: Option<u64>,
    bodies_mib: Option<u64>,
}

/// The hard limit on descriptors of this process. The server raises its soft limit to it.
fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// The memory that this process may use: that of the machine, or the limit of its control group.
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let all = info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)));
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    own.lines().filter_map(group_limit).fold(all, u64::min)
}

/// The memory limit of the control group in a line of `/proc/self/cgroup`, if it has one.
fn group_limit(line: &str) -> Option<u64> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let file = match controllers {
        "" => format!("/sys/fs/cgroup{path}/memory.max"),
        "memory" => format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"),
        _ => return None,
    };
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl ConnectionsFile {
    fn of(&mut self, kind: ConnectionKind) -> &mut Option<usize> {
        match kind {
            ConnectionKind::Call => &mut self.calls,
            ConnectionKind::EventStream => &mut self.event_streams,
            ConnectionKind::Socket => &mut self.sockets,
            ConnectionKind::Exec => &mut self.execs,
            ConnectionKind::Upload => &mut self.uploads,
            ConnectionKind::Download => &mut self.downloads,
            ConnectionKind::Port => &mut self.ports,
        }
    }

    /// The effective settings, including the defaults.
    ///
    /// # Errors
    /// When a limit is 0 or too large, or the reserve leaves nothing.
    pub(crate) fn settings(mut self) -> Result<ConnectionLimits> {
        let memory = memory();
        let mut limits = match self.max {
            Some(max) => ConnectionLimits::of_max(max).with_memory(memory),
            None => ConnectionLimits::derived(descriptors(), memory),
        };
        if let Some(most) = self.tenant_max {
            limits = limits.with_tenant_max(most);
        }
        for kind in ConnectionKind::ALL {
            let most = self.of(kind).unwrap_or(limits.of(kind));
            if most == 0 {
                bail!("[connections] {} must be at least 1", kind.setting());
            }
            limits.kinds[kind.index()] = most;
        }
        limits.reserve = self.reserve.unwrap_or(limits.reserve);
        if !(MAX_LEAST..=MAX_MOST).contains(&limits.max) {
            bail!("[connections] max must be {MAX_LEAST} to {MAX_MOST}");
        }
        if limits.tenant_max == 0 {
            bail!("[connections] tenant_max must be at least 1");
        }
        if limits.reserve >= limits.max {
            bail!("[connections] reserve must be less than max, which is {}", limits.max);
        }
        if self.stalled_s.is_some_and(|stalled| stalled > STALLED_S_MOST) {
            bail!("[connections] stalled_s must be at most {STALLED_S_MOST}");
        }
        limits.stalled = self.stalled_s.map_or(limits.stalled, Duration::from_secs);
        if let Some(mib) = self.answers_mib {
            limits.answer_bytes = mib.saturating_mul(MIB);
        }
        if let Some(mib) = self.bodies_mib {
            limits.body_bytes = mib.saturating_mul(MIB);
        }
        Ok(limits)
    }

    /// The effective settings as a table of the file.
    pub(crate) fn shown(limits: &ConnectionLimits) -> Self {
        let mut shown = Self {
            max: Some(limits.max),
            reserve: Some(limits.reserve),
            tenant_max: Some(limits.tenant_max),
            stalled_s: Some(limits.stalled.as_secs()),
            answers_mib: Some(limits.answer_bytes / MIB),
            bodies_mib: Some(limits.body_bytes / MIB),
            ..Self::default()
        };
        for kind in ConnectionKind::ALL {
            *shown.of(kind) = Some(limits.of(kind));
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ConnectionLimits> {
        toml::from_str::<ConnectionsFile>(text).expect("TOML").settings()
    }

    #[test]
    fn what_is_not_said_follows_from_what_is() {
        let limits = read("max = 800\nexecs = 7").expect("sound");
        let derived = ConnectionLimits::of_max(800);
        assert_eq!((limits.max, limits.tenant_max), (800, derived.tenant_max));
        assert_eq!(
            (limits.of(ConnectionKind::Exec), limits.of(ConnectionKind::Socket)),
            (7, derived.of(ConnectionKind::Socket))
        );
        let limits = read("tenant_max = 40").expect("sound");
        assert_eq!(
            (limits.of(ConnectionKind::EventStream), limits.of(ConnectionKind::Upload)),
            (20, 10)
        );
        assert_eq!(read("answers_mib = 7").expect("sound").answer_bytes, 7 * MIB);
        assert_eq!(read("bodies_mib = 9").expect("sound").body_bytes, 9 * MIB);
        let again = ConnectionsFile::shown(&limits).settings().expect("sound");
        assert_eq!(again.kinds, limits.kinds, "what is shown says all of it");
        assert_eq!((again.max, again.reserve), (limits.max, limits.reserve));
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        for text in [
            "max = 0",
            "max = 7",
            "max = 1000001",
            "stalled_s = 2000001",
            "tenant_max = 0",
            "calls = 0",
            "max = 10\nreserve = 10",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
