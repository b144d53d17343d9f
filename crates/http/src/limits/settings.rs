//! How many connections there may be, and the defaults that follow from the limit on descriptors.

use crate::limits::kind::ConnectionKind;
use std::time::Duration;

/// The largest default for the number of connections.
const MAX: usize = 20_000;
/// The memory for one connection. A client that does not read costs up to 600 KiB: a frame of 64
/// KiB in which JSON escapes each byte with six, in a buffer that doubles as it grows. The rest is
/// for everything that does not depend on the number of clients.
const CONNECTION_BYTES: u64 = 1 << 20;
/// A connection may need three descriptors: its own, one to an agent, and a share of what sandboxes
/// and the server itself keep open.
const DESCRIPTORS_EACH: u64 = 3;
/// The smallest default, with which the server can still answer requests.
const MAX_LEAST: usize = 32;
/// One connection in eight is left for clients that have not sent a request yet.
const ARRIVING_SHARE: usize = 8;
/// The number of tenants whose connections fit into the reserve at the same time.
const RESERVE_TENANTS: usize = 16;
/// The largest default for the memory of responses: sixteen of the longest ones.
const ANSWER_BYTES_MAX: u64 = 1 << 30;
/// The smallest default for that memory. Less would truncate the output of a single command.
const ANSWER_BYTES_MIN: u64 = 4 << 20;
/// The divisor from all memory to the memory for responses. While a response is serialised, it may
/// take twelve times the size of its output (JSON may escape a byte with six, in a buffer that
/// doubles as it grows), and half of the memory is for everything else.
const MEMORY_SHARE: u64 = 24;
/// The divisor from all memory to the memory for bodies and what is parsed from them.
const BODY_MEMORY_SHARE: u64 = 8;
/// The largest default for that memory.
const BODY_BYTES_MAX: u64 = 1 << 30;
/// The smallest default for that memory. With less, the longest bodies of JSON would be refused.
const BODY_BYTES_MIN: u64 = 32 << 20;
/// The default time after which a client that does not read is disconnected.
const STALLED: Duration = Duration::from_secs(300);

/// Limits on the connections of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections at the same time, of all tenants and of clients that have not sent a key yet.
    pub max: usize,
    /// The limit for one tenant, for all kinds but [`ConnectionKind::Call`].
    pub tenant_max: usize,
    /// The number of connections that are reserved for tenants with few connections.
    pub reserve: usize,
    /// The limit for one tenant, for each kind.
    pub kinds: [usize; ConnectionKind::COUNT],
    /// How long a client may leave sent data unread before it is disconnected; zero means without
    /// limit.
    pub stalled: Duration,
    /// Memory for output that is captured into responses, of all requests together, in bytes.
    pub answer_bytes: u64,
    /// Memory for bodies of JSON and what is parsed from them, of all requests together, in bytes.
    pub body_bytes: u64,
}

impl ConnectionLimits {
    /// The defaults for a process with this limit on descriptors and this much memory, in bytes.
    #[must_use]
    pub fn derived(descriptors: u64, memory_bytes: u64) -> Self {
        let max = (descriptors / DESCRIPTORS_EACH).min(memory_bytes / CONNECTION_BYTES);
        let max = usize::try_from(max).unwrap_or(MAX);
        Self::of_max(max.clamp(MAX_LEAST, MAX)).with_memory(memory_bytes)
    }

    /// Derives all other limits from the number of connections.
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
            body_bytes: BODY_BYTES_MAX,
        };
        limits.with_tenant_max((requests / 2).max(1))
    }

    /// Derives the limits of one tenant for each kind from its limit for all kinds.
    #[must_use]
    pub fn with_tenant_max(mut self, most: usize) -> Self {
        self.tenant_max = most;
        self.kinds = ConnectionKind::ALL.map(|kind| (most / kind.share()).max(1));
        self
    }

    /// Sets the memory for responses and bodies to the default of a server with this much memory, in
    /// bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.answer_bytes = (bytes / MEMORY_SHARE).clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX);
        self.body_bytes = (bytes / BODY_MEMORY_SHARE).clamp(BODY_BYTES_MIN, BODY_BYTES_MAX);
        self
    }

    /// The limit for one tenant and kind.
    #[must_use]
    pub fn of(&self, kind: ConnectionKind) -> usize {
        self.kinds[kind.index()]
    }

    /// The number of requests that are answered at the same time.
    pub(crate) fn requests_max(&self) -> usize {
        (self.max - self.max / ARRIVING_SHARE).max(1)
    }

    /// The number of connections that the reserve assures to each tenant.
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
        assert_eq!((small.max, small.answer_bytes >> 20, small.body_bytes >> 20), (200, 8, 32));
        assert_eq!(ConnectionLimits::derived(1 << 20, 512 << 20).body_bytes, 64 << 20);
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
