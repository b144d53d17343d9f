//! What a session's shell holds, saved while nobody waits for it, and given to the next one.
//!
//! A copy of bash says it ([`super::saved_state`]), a second after the last command or when all are to be
//! saved. A command that comes meanwhile waits for the copy at most [`super::saves::HURRY`]: then the copy is
//! killed, and the shell saved after the next pause.

use super::Shell;
use super::bash_protocol::Report;
use super::saved_state;
use super::saves::{Saves, UnderWay};
use crate::process_tree;
use crate::reactor::Reactor;
use crate::signals::KILL;
use isolet_wire::tell::{STATE_BYTES_MAX, Saved, Unsaved};
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
        let idle = self.running.is_none() && self.awaited.is_none() && self.queue.is_empty();
        bash && idle && self.closing.is_none() && self.settling.is_none()
    }

    /// Whether it is to be saved and is not.
    pub(crate) fn save_wanted(&self) -> bool {
        self.saves.wanted
    }

    /// Whether a save is under way.
    pub(crate) fn saving(&self) -> bool {
        self.saves.under_way.is_some()
    }

    /// It is to be saved as soon as it can be, if nobody keeps what it holds.
    pub(crate) fn save_now(&mut self) {
        let saves = &self.saves;
        self.saves.wanted = self.open.save && self.bash.is_some() && saves.ended > saves.kept;
    }

    /// Who keeps it is new: what was not said to be kept is saved again.
    pub(crate) fn save_again(&mut self) {
        self.saves.tried = self.saves.kept;
    }

    /// The state after so many commands is kept.
    pub(crate) fn kept(&mut self, number: u64) {
        self.saves.kept = self.saves.kept.max(number.min(self.saves.ended));
    }

    /// What is to be told of its state.
    pub(crate) fn tell_saved(&mut self) -> Vec<Saved> {
        std::mem::take(&mut self.saves.told)
    }

    pub(super) fn save_due(&self, reactor: &Reactor) -> Option<Instant> {
        if let Some(way) = &self.saves.under_way {
            return Some(way.until);
        }
        let saves = &self.saves;
        let due =
            reactor.has_watchers && self.open.save && saves.ended > saves.tried && !saves.seen;
        (due && self.save_free()).then(|| saves.idle_since + IDLE)
    }

    pub(super) fn save_elapsed(&mut self, reactor: &mut Reactor) {
        if self.save_due(reactor).is_none_or(|due| due > reactor.now) {
            return;
        }
        match self.saves.under_way {
            Some(way) => self.end_save(reactor, way),
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
        self.saves.tried = self.saves.ended;
        reactor.pending.shells.mark(self.id);
        if process_tree::resident_mib(bash.pid) > RESIDENT_MIB_MAX {
            self.saves.wanted = false;
            self.saves.told.push(Saved::Not(Unsaved::TooLarge));
            return true;
        }
        self.number += 1;
        self.awaited = Some(self.number);
        self.saves.under_way = Some(UnderWay {
            number: self.number,
            ended: self.saves.ended,
            ticks: process_tree::ticks(),
            until: reactor.now + SAVE_MAX,
            hurried: None,
            killed: false,
        });
        let mut line = String::with_capacity(1024);
        saved_state::dump(&mut line, bash.word, self.number);
        let _ = bash.take_long(0);
        bash.write(reactor, self.id, line.as_bytes());
        reactor.saves_running += 1;
        true
    }

    /// A save has taken too long: its copy is killed. Where bash has made none it is stopped, or
    /// waits for room for one: a command goes in behind the save then.
    fn end_save(&mut self, reactor: &mut Reactor, way: UnderWay) {
        // Its report may just have come.
        self.status(reactor);
        let copies = self.copies_since(way.ticks);
        copies.iter().for_each(|copy| copy.send(KILL));
        let killed = way.killed || !copies.is_empty();
        let patience = way.hurried.map(|since| since + STUCK <= reactor.now);
        let Some(now) = self.saves.under_way.as_mut() else { return };
        if killed && copies.is_empty() || patience == Some(true) {
            if let Some(bash) = self.bash.as_mut() {
                bash.stale = !copies.is_empty() || !killed;
            }
            self.save_over(reactor);
        } else if killed || patience.is_some() {
            (now.killed, now.until) = (killed, reactor.now + LOOK);
        } else {
            now.until = reactor.now + NEVER;
            self.save_given_up();
        }
    }

    fn copies_since(&self, ticks: u64) -> Vec<process_tree::Process> {
        let mut copies = process_tree::children_of(self.pid());
        copies.retain(|copy| copy.start >= ticks && copy.alive());
        copies
    }

    /// It came to nothing.
    fn save_over(&mut self, reactor: &mut Reactor) {
        self.saves.under_way = None;
        self.awaited = None;
        reactor.saves_running -= 1;
        if self.queue.is_empty() {
            self.save_given_up();
        } else {
            self.saves.tried = self.saves.kept;
        }
        self.next(reactor);
    }

    /// Who wants it to be saved waits no longer.
    pub(crate) fn save_given_up(&mut self) {
        if std::mem::take(&mut self.saves.wanted) {
            self.saves.told.push(Saved::Not(Unsaved::NoAnswer));
        }
    }

    /// Bash reported while no command runs. Whether more is to come before it is free.
    pub(super) fn report_of_state(&mut self, reactor: &mut Reactor, report: &Report) -> bool {
        if let Some(way) = self.saves.under_way.take_if(|way| way.number == report.number) {
            reactor.saves_running -= 1;
            self.saved(way);
        }
        let Some(bash) = self.bash.as_mut().filter(|bash| !bash.ready) else { return false };
        if self.saves.restoring.take().is_some() {
            if !bash.take_long(COMPLAINT_BYTES).is_empty() {
                self.saves.told.push(Saved::Unrestored);
            }
            return false;
        }
        match self.open.restore.take() {
            Some(text) => self.restore_state(reactor, &text),
            None => false,
        }
    }

    fn saved(&mut self, way: UnderWay) {
        let Some(bash) = self.bash.as_mut() else { return };
        let raw = bash.take_long(saved_state::DUMP_BYTES_MAX);
        self.saves.wanted = false;
        let told = &mut self.saves.told;
        match saved_state::compose(&raw, &self.open.env) {
            Some(text) if text.len() <= STATE_BYTES_MAX => {
                told.extend(text.chunks(64 * 1024).map(|part| Saved::Part(part.to_vec())));
                told.push(Saved::Whole { number: way.ended });
            }
            Some(_) => told.push(Saved::Not(Unsaved::TooLarge)),
            None if raw.len() >= saved_state::DUMP_BYTES_MAX => {
                told.push(Saved::Not(Unsaved::TooLarge));
            }
            None => told.push(Saved::Not(Unsaved::NoAnswer)),
        }
    }

    /// Gives a new bash what an earlier one held.
    fn restore_state(&mut self, reactor: &Reactor, text: &[u8]) -> bool {
        let Some(bash) = self.bash.as_mut() else { return false };
        if bash.put_long(text).is_err() {
            self.saves.told.push(Saved::Unrestored);
            return false;
        }
        let held = |word: &str| text.windows(word.len()).any(|part| part == word.as_bytes());
        self.traps |= held("trap -- ");
        self.saves.heard |= held("CHLD");
        if held("builtin () ") {
            bash.word = super::bash_protocol::AROUND;
        }
        self.number += 1;
        (self.awaited, self.saves.restoring) = (Some(self.number), Some(self.number));
        let mut lines = String::with_capacity(512);
        saved_state::restore(&mut lines, bash.word, self.number);
        bash.write(reactor, self.id, lines.as_bytes());
        true
    }

    /// Its bash has ended. Whether that was while it took over a state: the next goes without.
    pub(super) fn state_died(&mut self, reactor: &mut Reactor) -> bool {
        let restoring = self.saves.restoring.is_some() && self.closing.is_none();
        reactor.saves_running -= usize::from(self.saving());
        let mut told = std::mem::take(&mut self.saves.told);
        if self.open.save && self.lasting() {
            told.push(if restoring { Saved::Unrestored } else { Saved::Gone });
        }
        self.saves = Saves { told, ..Saves::new(reactor.now) };
        restoring
    }
}
