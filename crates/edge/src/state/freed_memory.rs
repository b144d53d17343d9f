//! When to return memory to the kernel: after a burst, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What must have been freed to be worth the walk through the allocator's arenas.
const BURST_BYTES: usize = 8 * 1024 * 1024;
/// A round that frees less than this is quiet: the burst is over. Until then its memory is used
/// again, and to return it would only cost page faults.
const QUIET_BYTES: usize = 1024 * 1024;

/// Counts what connections of all links have freed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Freed {
    bytes: Arc<AtomicUsize>,
}

/// What one reader has seen of it.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pending: usize,
}

impl Freed {
    /// Notes that so many bytes were given back to the allocator, more or less.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn take(&self) -> usize {
        self.bytes.swap(0, Relaxed)
    }
}

impl Rounds {
    /// Whether a burst has ended since the last round.
    pub(crate) fn burst_ended(&mut self, freed: &Freed) -> bool {
        let now = freed.take();
        self.pending = self.pending.saturating_add(now);
        let ended = now < QUIET_BYTES && self.pending >= BURST_BYTES;
        if ended {
            self.pending = 0;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_once_after_a_burst_and_not_within() {
        let (freed, mut rounds) = (Freed::default(), Rounds::default());
        assert!(!rounds.burst_ended(&freed), "nothing was freed");
        freed.add(BURST_BYTES);
        assert!(!rounds.burst_ended(&freed), "the burst may go on");
        freed.add(QUIET_BYTES);
        assert!(!rounds.burst_ended(&freed), "it does");
        freed.add(1);
        assert!(rounds.burst_ended(&freed));
        assert!(!rounds.burst_ended(&freed), "once");
        for _ in 0..7 {
            freed.add(QUIET_BYTES - 1);
            assert!(!rounds.burst_ended(&freed), "slow traffic adds up first");
        }
    }
}
