//! The bookkeeping of a shell's saved states.

use isolet_wire::response::Saved;
use std::time::{Duration, Instant};

/// How long a command waits for a save that is in progress; a usual one takes less.
pub(super) const HURRY: Duration = Duration::from_millis(4);

/// Which states of a shell were saved, and the save that is in progress.
#[derive(Debug)]
pub(super) struct SaveState {
    /// How many commands of this bash have ended.
    pub(super) commands_ended: u64,
    /// How many of them had ended when a save was last attempted.
    pub(super) attempted: u64,
    /// How many of them had ended in the state that the server has confirmed to store.
    pub(super) kept: u64,
    pub(super) idle_since: Instant,
    pub(super) current: Option<SaveInProgress>,
    /// A save was requested.
    pub(super) requested: bool,
    /// The tenant would notice a save: a trap for `CHLD`, or an echo of every line.
    pub(super) observable: bool,
    /// A command's text contained `CHLD`.
    pub(super) mentions_chld: bool,
    /// Step in which a state is restored.
    pub(super) restoring: Option<u64>,
    pub(super) unreported: Vec<Saved>,
}

/// A save that is in progress: a copy of bash writes what the shell holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct SaveInProgress {
    pub(super) number: u64,
    pub(super) ended: u64,
    /// Its start, in the unit of process start times.
    pub(super) ticks: u64,
    /// When something is to be done about it.
    pub(super) until: Instant,
    /// Since when a command waits for it.
    pub(super) command_waits_since: Option<Instant>,
    /// Its copy was killed.
    pub(super) killed: bool,
}

impl SaveState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            commands_ended: 0,
            attempted: 0,
            kept: 0,
            idle_since: now,
            current: None,
            requested: false,
            observable: false,
            mentions_chld: false,
            restoring: None,
            unreported: Vec::new(),
        }
    }

    /// A command has ended.
    pub(super) fn command_ended(&mut self, now: Instant) {
        self.commands_ended += 1;
        self.idle_since = now;
    }

    /// A command waits.
    pub(super) fn command_waits(&mut self, now: Instant) {
        if let Some(save) = self.current.as_mut().filter(|save| save.command_waits_since.is_none())
        {
            save.command_waits_since = Some(now);
            save.until = save.until.min(now + HURRY);
        }
    }

    /// A command's text: with a trap for ended children a save would not go unseen.
    pub(super) fn note_text(&mut self, text: &str) {
        self.mentions_chld |= text.contains("CHLD");
    }

    /// `$-` as last told: `v` says every line, `m` makes a job of the copy.
    pub(super) fn flags(&mut self, flags: &str) {
        self.observable = self.mentions_chld || flags.contains(['v', 'm']);
    }
}
