//! Saves the state of a session's shell while it is idle, and restores it in the next shell.
//!
//! A fork of bash writes the state ([`super::state_text`]), a second after the last command or when
//! all shells must be saved. A command that arrives in between waits for the fork at most
//! [`super::save_progress::HURRY`]. Then the fork is killed, and the state is saved after the next
//! pause.

use super::bash_protocol::Report;
use super::save_progress::{SaveInProgress, SaveState};
use super::{Shell, state_text};
use crate::process_tree;
use crate::reactor::Reactor;
use crate::signals::KILL;
use isolet_wire::response::{STATE_BYTES_MAX, SaveFailure, SavedState};
use std::time::{Duration, Instant};

/// Time without a command after which a shell is idle.
const IDLE: Duration = Duration::from_secs(1);
/// Memory of a bash, in MiB, above which its state is not saved, because a fork stops it for 50 µs
/// per MiB.
const RESIDENT_MIB_MAX: usize = 64;
/// Timeout of a save while no command waits.
const SAVE_MAX: Duration = Duration::from_secs(2);
/// How long a command waits for a bash that does nothing.
const STUCK: Duration = Duration::from_millis(100);
/// Time between two checks whether a killed fork is gone.
const LOOK: Duration = Duration::from_millis(2);
/// Pause before another attempt if too many saves are in progress.
const CROWDED: Duration = Duration::from_millis(100);
/// Longer than any wait.
const NEVER: Duration = Duration::from_secs(400 * 24 * 3600);
/// Maximum amount of error output of a restoring bash, in bytes. Only its presence matters.
const COMPLAINT_BYTES: usize = 16;

impl Shell {
    fn save_free(&self) -> bool {
        let bash = self.state.bash().is_some_and(|bash| bash.ready);
        let idle = self.running.is_none() && self.steps.awaited.is_none() && self.queue.is_empty();
        bash && idle && !self.is_closing() && self.steps.resync.is_none()
    }

    /// Whether the state must be saved and is not.
    pub(crate) fn save_wanted(&self) -> bool {
        self.saves.requested
    }

    /// Whether a save is in progress.
    pub(crate) fn saving(&self) -> bool {
        self.saves.current.is_some()
    }

    /// Requests a save as soon as possible, unless the latest state is stored.
    pub(crate) fn save_now(&mut self) {
        let saves = &self.saves;
        self.saves.requested =
            self.open.save && self.state.bash().is_some() && saves.commands_ended > saves.stored;
    }

    /// Requests the states again that no watcher has confirmed, because a new watcher stores
    /// states.
    pub(crate) fn save_again(&mut self) {
        self.saves.attempted = self.saves.stored;
    }

    /// The server has stored the state after this number of commands.
    pub(crate) fn state_stored(&mut self, number: u64) {
        self.saves.stored = self.saves.stored.max(number.min(self.saves.commands_ended));
    }

    /// Takes the messages about the state.
    pub(crate) fn tell_saved(&mut self) -> Vec<SavedState> {
        std::mem::take(&mut self.saves.unreported)
    }

    pub(super) fn save_due(&self, reactor: &Reactor) -> Option<Instant> {
        if let Some(save) = &self.saves.current {
            return Some(save.until);
        }
        let saves = &self.saves;
        let due = reactor.has_watchers
            && self.open.save
            && saves.commands_ended > saves.attempted
            && !saves.observable;
        (due && self.save_free()).then(|| saves.idle_since + IDLE)
    }

    pub(super) fn save_elapsed(&mut self, reactor: &mut Reactor) {
        if self.save_due(reactor).is_none_or(|due| due > reactor.now) {
            return;
        }
        match self.saves.current {
            Some(save) => self.end_save(reactor, save),
            None if reactor.save_limit_reached() => {
                self.saves.idle_since = reactor.now - IDLE + CROWDED
            }
            None => drop(self.begin_save(reactor)),
        }
    }

    /// Starts a save. Returns false if the shell is not free.
    pub(crate) fn begin_save(&mut self, reactor: &mut Reactor) -> bool {
        if !self.save_free() || self.saving() {
            return false;
        }
        let Some(bash) = self.state.bash_mut() else { return false };
        self.saves.attempted = self.saves.commands_ended;
        reactor.pending.shells.mark(self.id);
        if process_tree::resident_mib(bash.pid) > RESIDENT_MIB_MAX {
            self.saves.requested = false;
            self.saves.unreported.push(SavedState::Failed(SaveFailure::TooLarge));
            return true;
        }
        self.steps.number += 1;
        self.steps.awaited = Some(self.steps.number);
        self.saves.current = Some(SaveInProgress {
            number: self.steps.number,
            ended: self.saves.commands_ended,
            ticks: process_tree::ticks(),
            until: reactor.now + SAVE_MAX,
            command_waits_since: None,
            killed: false,
        });
        let mut line = String::with_capacity(1024);
        state_text::dump(&mut line, bash.prefix, self.steps.number);
        let _ = bash.take_long_text(0);
        bash.write(reactor, self.id, line.as_bytes());
        reactor.saves_running += 1;
        true
    }

    /// A save has taken too long, so its fork is killed. If bash has made no fork, it is stopped or
    /// waits for room for one, and a command is sent behind the save.
    fn end_save(&mut self, reactor: &mut Reactor, save: SaveInProgress) {
        // The report may just have arrived.
        self.on_status(reactor);
        let copies = self.copies_since(save.ticks);
        copies.iter().for_each(|copy| copy.send(KILL));
        let killed = save.killed || !copies.is_empty();
        let patience = save.command_waits_since.map(|since| since + STUCK <= reactor.now);
        let Some(now) = self.saves.current.as_mut() else { return };
        if killed && copies.is_empty() || patience == Some(true) {
            if let Some(bash) = self.state.bash_mut() {
                bash.long_text_busy = !copies.is_empty() || !killed;
            }
            self.abandon_save(reactor);
        } else if killed || patience.is_some() {
            (now.killed, now.until) = (killed, reactor.now + LOOK);
        } else {
            now.until = reactor.now + NEVER;
            self.save_given_up();
        }
    }

    fn copies_since(&self, ticks: u64) -> Vec<process_tree::ProcessHandle> {
        let mut copies = process_tree::children_of(self.pid());
        copies.retain(|copy| copy.start >= ticks && copy.is_alive());
        copies
    }

    /// Gives up a failed save.
    fn abandon_save(&mut self, reactor: &mut Reactor) {
        self.saves.current = None;
        self.steps.awaited = None;
        reactor.saves_running -= 1;
        if self.queue.is_empty() {
            self.save_given_up();
        } else {
            self.saves.attempted = self.saves.stored;
        }
        self.start_next(reactor);
    }

    /// Reports a failed save to those who requested it.
    pub(crate) fn save_given_up(&mut self) {
        if std::mem::take(&mut self.saves.requested) {
            self.saves.unreported.push(SavedState::Failed(SaveFailure::NoAnswer));
        }
    }

    /// Handles a report while no command runs. Returns whether another one must follow before the
    /// shell is free.
    pub(super) fn report_of_state(&mut self, reactor: &mut Reactor, report: &Report) -> bool {
        if let Some(save) = self.saves.current.take_if(|save| save.number == report.number) {
            reactor.saves_running -= 1;
            self.finish_save(save);
        }
        let Some(bash) = self.state.bash_mut().filter(|bash| !bash.ready) else { return false };
        if self.saves.restoring.take().is_some() {
            if !bash.take_long_text(COMPLAINT_BYTES).is_empty() {
                self.saves.unreported.push(SavedState::NotRestored);
            }
            return false;
        }
        match self.open.restore.take() {
            Some(text) => self.restore_state(reactor, &text),
            None => false,
        }
    }

    fn finish_save(&mut self, save: SaveInProgress) {
        let Some(bash) = self.state.bash_mut() else { return };
        let raw = bash.take_long_text(state_text::DUMP_BYTES_MAX);
        self.saves.requested = false;
        let unreported = &mut self.saves.unreported;
        match state_text::compose(&raw, &self.open.env) {
            Some(text) if text.len() <= STATE_BYTES_MAX => {
                unreported
                    .extend(text.chunks(64 * 1024).map(|part| SavedState::Part(part.to_vec())));
                unreported.push(SavedState::Complete { number: save.ended });
            }
            Some(_) => unreported.push(SavedState::Failed(SaveFailure::TooLarge)),
            None if raw.len() >= state_text::DUMP_BYTES_MAX => {
                unreported.push(SavedState::Failed(SaveFailure::TooLarge));
            }
            None => unreported.push(SavedState::Failed(SaveFailure::NoAnswer)),
        }
    }

    /// Sends an earlier shell's state to a new bash.
    fn restore_state(&mut self, reactor: &Reactor, text: &[u8]) -> bool {
        let Some(bash) = self.state.bash_mut() else { return false };
        if bash.write_long_text(text).is_err() {
            self.saves.unreported.push(SavedState::NotRestored);
            return false;
        }
        let held = |word: &str| text.windows(word.len()).any(|part| part == word.as_bytes());
        self.may_have_traps |= held("trap -- ");
        self.saves.mentions_chld |= held("CHLD");
        if held("builtin () ") {
            bash.prefix = super::bash_protocol::COMMAND_BUILTIN;
        }
        self.steps.number += 1;
        (self.steps.awaited, self.saves.restoring) =
            (Some(self.steps.number), Some(self.steps.number));
        let mut lines = String::with_capacity(512);
        state_text::restore(&mut lines, bash.prefix, self.steps.number);
        bash.write(reactor, self.id, lines.as_bytes());
        true
    }

    /// Handles the end of bash. Returns whether it ended while restoring a state, so that the next
    /// bash starts without it.
    pub(super) fn state_died(&mut self, reactor: &mut Reactor) -> bool {
        let restoring = self.saves.restoring.is_some() && !self.is_closing();
        reactor.saves_running -= usize::from(self.saving());
        let mut unreported = std::mem::take(&mut self.saves.unreported);
        if self.open.save && self.is_session() {
            unreported.push(if restoring { SavedState::NotRestored } else { SavedState::Gone });
        }
        self.saves = SaveState { unreported, ..SaveState::new(reactor.now) };
        restoring
    }
}
