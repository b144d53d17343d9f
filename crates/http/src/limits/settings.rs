//! How many connections there may be, and the defaults that follow from the limit on descriptors.

use crate::limits::kind::ConnectionKind;
use std::time::Duration;

/// No more connections than this unless the operator says so.
const MAX: usize = 20_000;
/// A client that reads nothing costs up to 600 KiB: a frame of 64 KiB whose bytes are six each in JSON,
/// in a text that doubles as it grows. The rest is for what does not count clients.
const CONNECTION_BYTES: u64 = 1 << 20;
/// A connection may need three descriptors: its own, one to an agent, and a share of what sandboxes
/// and the server itself keep open.
const DESCRIPTORS_EACH: u64 = 3;
/// Fewer are never derived: a server that can answer nobody is of no use.
const MAX_LEAST: usize = 32;
/// One connection in eight is left for clients that have not sent a request yet.
const ARRIVING_SHARE: usize = 8;
/// How many tenants can find room in the reserve at the same time.
const RESERVE_TENANTS: usize = 16;
/// Memory for answers is never derived to be more than this: sixteen of the longest.
const ANSWER_BYTES_MAX: u64 = 1 << 30;
/// Less would cut what a single command says.
const ANSWER_BYTES_MIN: u64 = 4 << 20;
/// An answer may take twelve times as much while it is written as its output has bytes (each may be
/// six in JSON, in a text that doubles as it grows), and half of the memory is for everything else.
const MEMORY_SHARE: u64 = 24;
/// A client that takes nothing for so long has gone, or has been forgotten.
const STALLED: Duration = Duration::from_secs(300);

/// Limits on the connections of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections at once, of all tenants and of clients that have shown no key yet.
    pub max: usize,
    /// Of one tenant, of all kinds but [`ConnectionKind::Call`].
    pub tenant_max: usize,
    /// The last so many, which only tenants with few connections get.
    pub reserve: usize,
    /// Of one tenant, of each kind.
    pub kinds: [usize; ConnectionKind::COUNT],
    /// How long a client may take nothing of what waits for it; zero: for ever.
    pub stalled: Duration,
    /// Output that is gathered into answers, of all requests together, in bytes.
    pub answer_bytes: u64,
}

impl ConnectionLimits {
    /// For a process that may have so many descriptors and so many bytes of memory.
    #[must_use]
    pub fn derived(descriptors: u64, memory_bytes: u64) -> Self {
        let max = (descriptors / DESCRIPTORS_EACH).min(memory_bytes / CONNECTION_BYTES);
        let max = usize::try_from(max).unwrap_or(MAX);
        Self::of_max(max.clamp(MAX_LEAST, MAX)).with_memory(memory_bytes)
    }

    /// With everything else derived from how many there may be.
    #[must_use]
    pub fn of_max(max: usize) -> Self {
        let requests = max - max / ARRIVING_SHARE;
        let limits = Self {
            max,
            tenant_max: 0,
            reserve: requests / 4,
            kinds: [0; ConnectionKind::COUNT],
            stalled: STALLED,
            answer_bytes: ANSWER_BYTES_MAX,
        };
        limits.with_tenant_max((requests / 2).max(1))
    }

    /// With the limits of one tenant derived from how many it may have.
    #[must_use]
    pub fn with_tenant_max(mut self, most: usize) -> Self {
        self.tenant_max = most;
        self.kinds = ConnectionKind::ALL.map(|kind| (most / kind.share()).max(1));
        self
    }

    /// With room for answers as a server with so many bytes of memory has it.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.answer_bytes = (bytes / MEMORY_SHARE).clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX);
        self
    }

    /// Of one tenant and kind.
    #[must_use]
    pub fn of(&self, kind: ConnectionKind) -> usize {
        self.kinds[kind.index()]
    }

    /// Requests that are answered at once.
    pub(crate) fn requests_max(&self) -> usize {
        (self.max - self.max / ARRIVING_SHARE).max(1)
    }

    /// What the reserve gives to each tenant.
    pub(crate) fn assured(&self) -> usize {
        (self.reserve / RESERVE_TENANTS).max(1)
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::of_max(MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_descriptors_and_memory() {
        let few = ConnectionLimits::derived(1200, u64::MAX);
        assert_eq!((few.max, few.requests_max(), few.tenant_max), (400, 350, 175));
        assert_eq!(ConnectionLimits::derived(1 << 20, u64::MAX), ConnectionLimits::default());
        let small = ConnectionLimits::derived(1 << 20, 200 << 20);
        assert_eq!((small.max, small.answer_bytes >> 20), (200, 8));
        let least = ConnectionLimits::derived(0, 0);
        assert!(ConnectionKind::ALL.into_iter().all(|kind| least.of(kind) > 0), "{least:?}");
    }

    #[test]
    fn one_tenant_never_reaches_the_reserve_alone() {
        for max in [MAX_LEAST, 400, 6666, MAX] {
            let limits = ConnectionLimits::of_max(max);
            let all = limits.tenant_max + limits.of(ConnectionKind::Call);
            assert!(all + limits.reserve <= limits.requests_max(), "{limits:?}");
        }
    }
}
