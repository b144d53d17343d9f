//! What is known of the saved states of one shell.

use isolet_wire::tell::Saved;
use std::time::{Duration, Instant};

/// How long a command waits for a save that is under way; a usual one takes less.
pub(super) const HURRY: Duration = Duration::from_millis(4);

/// What of a shell is saved.
#[derive(Debug)]
pub(super) struct Saves {
    /// Commands of this bash that have ended; of these, what a save was tried after, and what the
    /// server said it keeps.
    pub(super) ended: u64,
    pub(super) tried: u64,
    pub(super) kept: u64,
    pub(super) idle_since: Instant,
    pub(super) under_way: Option<UnderWay>,
    /// It is to be saved now.
    pub(super) wanted: bool,
    /// A save would be seen: a trap for the end of children, or an echo of every line.
    pub(super) seen: bool,
    pub(super) heard: bool,
    /// Step in which a state is restored.
    pub(super) restoring: Option<u64>,
    pub(super) told: Vec<Saved>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    pub(super) number: u64,
    pub(super) ended: u64,
    /// Its start, in the unit of process start times.
    pub(super) ticks: u64,
    /// When something is to be done about it.
    pub(super) until: Instant,
    /// Since when a command waits for it.
    pub(super) hurried: Option<Instant>,
    /// Its copy was killed.
    pub(super) killed: bool,
}

impl Saves {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            ended: 0,
            tried: 0,
            kept: 0,
            idle_since: now,
            under_way: None,
            wanted: false,
            seen: false,
            heard: false,
            restoring: None,
            told: Vec::new(),
        }
    }

    /// A command has ended.
    pub(super) fn ended(&mut self, now: Instant) {
        self.ended += 1;
        self.idle_since = now;
    }

    /// A command waits.
    pub(super) fn hurry(&mut self, now: Instant) {
        if let Some(way) = self.under_way.as_mut().filter(|way| way.hurried.is_none()) {
            way.hurried = Some(now);
            way.until = way.until.min(now + HURRY);
        }
    }

    /// A command's text: with a trap for ended children a save would not go unseen.
    pub(super) fn heed(&mut self, text: &str) {
        self.heard |= text.contains("CHLD");
    }

    /// `$-` as last told: `v` says every line, `m` makes a job of the copy.
    pub(super) fn flags(&mut self, flags: &str) {
        self.seen = self.heard || flags.contains(['v', 'm']);
    }
}
