//! Memory for answers that are made whole before they are sent, of all requests together.
//!
//! Output that is gathered takes its part only as long as there is some, and is cut beyond. An answer
//! that is made takes what it needs, and holds it until its client has read it: then less is left for
//! the next ones to gather.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

/// What is left.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    /// In bytes; less than nothing while answers that are made hold more than there was.
    free: AtomicI64,
}

/// The part of one request; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<AnswerMemory>,
    bytes: i64,
}

impl AnswerMemory {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { free: AtomicI64::new(i64::try_from(bytes).unwrap_or(i64::MAX)) })
    }

    /// A part that holds nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { of: Arc::clone(self), bytes: 0 }
    }

    /// The part of an answer that is made.
    pub(crate) fn made(self: &Arc<Self>, bytes: u64) -> Share {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.free.fetch_sub(bytes, Ordering::Relaxed);
        Share { of: Arc::clone(self), bytes }
    }
}

impl Share {
    /// Takes up to so many bytes more, and says how many.
    pub(crate) fn take(&mut self, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        let most = i64::try_from(wanted).unwrap_or(i64::MAX);
        let part = |free: i64| most.min(free.max(0));
        let relaxed = Ordering::Relaxed;
        let before = self.of.free.fetch_update(relaxed, relaxed, |free| Some(free - part(free)));
        let taken = part(before.unwrap_or_default());
        self.bytes += taken;
        usize::try_from(taken).unwrap_or_default()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_bounded_and_comes_back() {
        let memory = AnswerMemory::new(100);
        let (mut one, mut two) = (memory.share(), memory.share());
        assert_eq!((one.take(70), two.take(70), one.take(1)), (70, 30, 0));
        let made = memory.made(500);
        drop((one, two));
        assert_eq!(memory.share().take(1), 0, "the answer holds more than there was");
        drop(made);
        assert_eq!(memory.share().take(200), 100);
    }
}
