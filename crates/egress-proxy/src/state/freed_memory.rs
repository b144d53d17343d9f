//! Decides when to return freed memory to the kernel: once after each burst.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Freed memory that is worth a walk through the allocator's arenas.
const BURST_BYTES: usize = 8 * 1024 * 1024;
/// A round that frees less than this is quiet, which means that the burst is over. During a burst
/// the memory is reused, and returning it would only cost page faults.
const QUIET_BYTES: usize = 1024 * 1024;

/// Counts the memory that connections of all sandboxes have freed.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreedMemory {
    bytes: Arc<AtomicUsize>,
}

/// Finds the ends of bursts, by looking at [`FreedMemory`] in regular rounds.
#[derive(Debug, Default)]
pub(crate) struct BurstDetector {
    pending_bytes: usize,
}

impl FreedMemory {
    /// Adds memory that went back to the allocator; an estimate is enough.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn take(&self) -> usize {
        self.bytes.swap(0, Relaxed)
    }
}

impl BurstDetector {
    /// Whether a burst has ended since the last round.
    pub(crate) fn burst_ended(&mut self, freed: &FreedMemory) -> bool {
        let now = freed.take();
        self.pending_bytes = self.pending_bytes.saturating_add(now);
        let ended = now < QUIET_BYTES && self.pending_bytes >= BURST_BYTES;
        if ended {
            self.pending_bytes = 0;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: R10.
    #[test]
    fn memory_is_returned_once_after_a_burst_and_not_during_it() {
        let freed = FreedMemory::default();
        let mut detector = BurstDetector::default();
        assert!(!detector.burst_ended(&freed), "nothing was freed");
        freed.add(BURST_BYTES);
        assert!(!detector.burst_ended(&freed), "the burst may go on");
        freed.add(QUIET_BYTES);
        assert!(!detector.burst_ended(&freed), "it does");
        freed.add(1);
        assert!(detector.burst_ended(&freed));
        assert!(!detector.burst_ended(&freed), "once");
        for _ in 0..7 {
            freed.add(QUIET_BYTES - 1);
            assert!(!detector.burst_ended(&freed), "slow traffic adds up first");
        }
    }
}
