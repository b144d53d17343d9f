//! The bookkeeping of a shell's saved states.

use isolet_wire::response::SavedState;
use std::time::{Duration, Instant};

/// How long a command waits for a save in progress; a typical save takes less.
pub(super) const HURRY: Duration = Duration::from_millis(4);

/// Which states of a shell were saved, and the save in progress.
#[derive(Debug)]
pub(super) struct SaveState {
    /// Number of commands of this bash that have ended.
    pub(super) commands_ended: u64,
    /// The value of `commands_ended` at the last attempt to save.
    pub(super) attempted: u64,
    /// The value of `commands_ended` of the state that the server has stored.
    pub(super) stored: u64,
    pub(super) idle_since: Instant,
    pub(super) current: Option<SaveInProgress>,
    /// A save was requested.
    pub(super) requested: bool,
    /// The tenant would notice a save, because of a trap for `CHLD` or an echo of every line.
    pub(super) observable: bool,
    /// A command's text contained `CHLD`.
    pub(super) mentions_chld: bool,
    /// The step in which a state is being restored.
    pub(super) restoring: Option<u64>,
    pub(super) unreported: Vec<SavedState>,
}

/// A save in progress: a fork of bash writes the state.
#[derive(Debug, Clone, Copy)]
pub(super) struct SaveInProgress {
    pub(super) number: u64,
    pub(super) ended: u64,
    /// Start time, in the unit of process start times.
    pub(super) ticks: u64,
    /// When the next action is due.
    pub(super) until: Instant,
    /// Since when a command waits for the save.
    pub(super) command_waits_since: Option<Instant>,
    /// The fork was killed.
    pub(super) killed: bool,
}

impl SaveState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            commands_ended: 0,
            attempted: 0,
            stored: 0,
            idle_since: now,
            current: None,
            requested: false,
            observable: false,
            mentions_chld: false,
            restoring: None,
            unreported: Vec::new(),
        }
    }

    /// Records that a command has ended.
    pub(super) fn command_ended(&mut self, now: Instant) {
        self.commands_ended += 1;
        self.idle_since = now;
    }

    /// Records that a command waits.
    pub(super) fn command_waits(&mut self, now: Instant) {
        if let Some(save) = self.current.as_mut().filter(|save| save.command_waits_since.is_none())
        {
            save.command_waits_since = Some(now);
            save.until = save.until.min(now + HURRY);
        }
    }

    /// Checks a command's text: with a trap for ended children, the tenant would notice a save.
    pub(super) fn note_text(&mut self, text: &str) {
        self.mentions_chld |= text.contains("CHLD");
    }

    /// Checks the value of `$-`: `v` prints every line, and `m` makes the fork a job.
    pub(super) fn flags(&mut self, flags: &str) {
        self.observable = self.mentions_chld || flags.contains(['v', 'm']);
    }
}
