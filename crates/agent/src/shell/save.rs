//! What a session's shell holds, saved while nobody waits for it, and given to the next one.
//!
//! A copy of bash writes it ([`super::saved_state`]), a second after the last command or when all
//! shells are to be saved. A command that comes in between waits for the copy at most
//! [`super::saves::HURRY`]; then the copy is killed, and the shell is saved after the next pause.

use super::Shell;
use super::bash_protocol::Report;
use super::saved_state;
use super::saves::{SaveInProgress, SaveState};
use crate::process_tree;
use crate::reactor::Reactor;
use crate::signals::KILL;
use isolet_wire::response::{STATE_BYTES_MAX, Saved, Unsaved};
use std::time::{Duration, Instant};

/// Without a command for so long a shell is idle.
const IDLE: Duration = Duration::from_secs(1);
/// A bash that holds more is not copied: it stands still for 50 µs a MiB meanwhile.
const RESIDENT_MIB_MAX: usize = 64;
/// How long a save may take that nobody waits for.
const SAVE_MAX: Duration = Duration::from_secs(2);
/// How long a command waits for a bash that does nothing.
const STUCK: Duration = Duration::from_millis(100);
/// Between two looks whether a copy that was killed is gone.
const LOOK: Duration = Duration::from_millis(2);
/// Until it is tried again to save it when many are.
const CROWDED: Duration = Duration::from_millis(100);
/// Further away than anybody waits.
const NEVER: Duration = Duration::from_secs(400 * 24 * 3600);
/// What a restoring bash may complain of, for the reader: only whether it does is of interest.
const COMPLAINT_BYTES: usize = 16;

impl Shell {
    fn save_free(&self) -> bool {
        let bash = self.bash.as_ref().is_some_and(|bash| bash.ready);
        let idle = self.running.is_none() && self.awaited_step.is_none() && self.queue.is_empty();
        bash && idle && self.closing.is_none() && self.resyncing.is_none()
    }

    /// Whether it is to be saved and is not.
    pub(crate) fn save_wanted(&self) -> bool {
        self.saves.requested
    }

    /// Whether a save is in progress.
    pub(crate) fn saving(&self) -> bool {
        self.saves.current.is_some()
    }

    /// It is to be saved as soon as it can be, if nobody keeps what it holds.
    pub(crate) fn save_now(&mut self) {
        let saves = &self.saves;
        self.saves.requested =
            self.open.save && self.bash.is_some() && saves.commands_ended > saves.kept;
    }

    /// A new watcher stores states: what no watcher has confirmed is saved again.
    pub(crate) fn save_again(&mut self) {
        self.saves.attempted = self.saves.kept;
    }

    /// The state after so many commands is kept.
    pub(crate) fn kept(&mut self, number: u64) {
        self.saves.kept = self.saves.kept.max(number.min(self.saves.commands_ended));
    }

    /// What is to be told of its state.
    pub(crate) fn tell_saved(&mut self) -> Vec<Saved> {
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

    /// Begins to save it; false when it is not free for that.
    pub(crate) fn begin_save(&mut self, reactor: &mut Reactor) -> bool {
        if !self.save_free() || self.saving() {
            return false;
        }
        let Some(bash) = self.bash.as_mut() else { return false };
        self.saves.attempted = self.saves.commands_ended;
        reactor.pending.shells.mark(self.id);
        if process_tree::resident_mib(bash.pid) > RESIDENT_MIB_MAX {
            self.saves.requested = false;
            self.saves.unreported.push(Saved::Not(Unsaved::TooLarge));
            return true;
        }
        self.step_number += 1;
        self.awaited_step = Some(self.step_number);
        self.saves.current = Some(SaveInProgress {
            number: self.step_number,
            ended: self.saves.commands_ended,
            ticks: process_tree::ticks(),
            until: reactor.now + SAVE_MAX,
            command_waits_since: None,
            killed: false,
        });
        let mut line = String::with_capacity(1024);
        saved_state::dump(&mut line, bash.prefix, self.step_number);
        let _ = bash.take_long_text(0);
        bash.write(reactor, self.id, line.as_bytes());
        reactor.saves_running += 1;
        true
    }

    /// A save has taken too long: its copy is killed. Where bash has made none it is stopped, or
    /// waits for room for one: a command goes in behind the save then.
    fn end_save(&mut self, reactor: &mut Reactor, save: SaveInProgress) {
        // Its report may just have come.
        self.on_status(reactor);
        let copies = self.copies_since(save.ticks);
        copies.iter().for_each(|copy| copy.send(KILL));
        let killed = save.killed || !copies.is_empty();
        let patience = save.command_waits_since.map(|since| since + STUCK <= reactor.now);
        let Some(now) = self.saves.current.as_mut() else { return };
        if killed && copies.is_empty() || patience == Some(true) {
            if let Some(bash) = self.bash.as_mut() {
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

    fn copies_since(&self, ticks: u64) -> Vec<process_tree::Process> {
        let mut copies = process_tree::children_of(self.pid());
        copies.retain(|copy| copy.start >= ticks && copy.is_alive());
        copies
    }

    /// It came to nothing.
    fn abandon_save(&mut self, reactor: &mut Reactor) {
        self.saves.current = None;
        self.awaited_step = None;
        reactor.saves_running -= 1;
        if self.queue.is_empty() {
            self.save_given_up();
        } else {
            self.saves.attempted = self.saves.kept;
        }
        self.start_next(reactor);
    }

    /// Tells whoever requested a save that it failed.
    pub(crate) fn save_given_up(&mut self) {
        if std::mem::take(&mut self.saves.requested) {
            self.saves.unreported.push(Saved::Not(Unsaved::NoAnswer));
        }
    }

    /// Bash reported while no command runs. Whether more is to come before it is free.
    pub(super) fn report_of_state(&mut self, reactor: &mut Reactor, report: &Report) -> bool {
        if let Some(save) = self.saves.current.take_if(|save| save.number == report.number) {
            reactor.saves_running -= 1;
            self.finish_save(save);
        }
        let Some(bash) = self.bash.as_mut().filter(|bash| !bash.ready) else { return false };
        if self.saves.restoring.take().is_some() {
            if !bash.take_long_text(COMPLAINT_BYTES).is_empty() {
                self.saves.unreported.push(Saved::Unrestored);
            }
            return false;
        }
        match self.open.restore.take() {
            Some(text) => self.restore_state(reactor, &text),
            None => false,
        }
    }

    fn finish_save(&mut self, save: SaveInProgress) {
        let Some(bash) = self.bash.as_mut() else { return };
        let raw = bash.take_long_text(saved_state::DUMP_BYTES_MAX);
        self.saves.requested = false;
        let unreported = &mut self.saves.unreported;
        match saved_state::compose(&raw, &self.open.env) {
            Some(text) if text.len() <= STATE_BYTES_MAX => {
                unreported.extend(text.chunks(64 * 1024).map(|part| Saved::Part(part.to_vec())));
                unreported.push(Saved::Whole { number: save.ended });
            }
            Some(_) => unreported.push(Saved::Not(Unsaved::TooLarge)),
            None if raw.len() >= saved_state::DUMP_BYTES_MAX => {
                unreported.push(Saved::Not(Unsaved::TooLarge));
            }
            None => unreported.push(Saved::Not(Unsaved::NoAnswer)),
        }
    }

    /// Gives a new bash what an earlier one held.
    fn restore_state(&mut self, reactor: &Reactor, text: &[u8]) -> bool {
        let Some(bash) = self.bash.as_mut() else { return false };
        if bash.write_long_text(text).is_err() {
            self.saves.unreported.push(Saved::Unrestored);
            return false;
        }
        let held = |word: &str| text.windows(word.len()).any(|part| part == word.as_bytes());
        self.may_have_traps |= held("trap -- ");
        self.saves.mentions_chld |= held("CHLD");
        if held("builtin () ") {
            bash.prefix = super::bash_protocol::COMMAND_BUILTIN;
        }
        self.step_number += 1;
        (self.awaited_step, self.saves.restoring) =
            (Some(self.step_number), Some(self.step_number));
        let mut lines = String::with_capacity(512);
        saved_state::restore(&mut lines, bash.prefix, self.step_number);
        bash.write(reactor, self.id, lines.as_bytes());
        true
    }

    /// Its bash has ended. Whether that was while it took over a state: the next goes without.
    pub(super) fn state_died(&mut self, reactor: &mut Reactor) -> bool {
        let restoring = self.saves.restoring.is_some() && self.closing.is_none();
        reactor.saves_running -= usize::from(self.saving());
        let mut unreported = std::mem::take(&mut self.saves.unreported);
        if self.open.save && self.is_session() {
            unreported.push(if restoring { Saved::Unrestored } else { Saved::Gone });
        }
        self.saves = SaveState { unreported, ..SaveState::new(reactor.now) };
        restoring
    }
}
