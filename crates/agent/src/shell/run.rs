//! A command from its first step to its exit.

use super::bash::Bash;
use super::bash_protocol::{self, Report, Step};
use super::running::{Press, Running, Stage};
use super::startup_noise::Complaint;
use super::stderr_filter::Strip;
use super::{HISTORY_MAX, Shell, Waiting};
use crate::connection::shell_log::Note;
use crate::reactor::{READ_BYTES, Reactor};
use crate::signals::CONT;
use isolet_wire::tell::{Exit, STDERR, STDOUT, Why};
use std::time::Duration;

/// What the agent's own steps may say on standard error before it is taken for a tenant's.
const NOISE_BYTES_MAX: usize = 64 * 1024;
/// How long an own step may take; it does nothing that waits, unless a tenant made it so.
const OWN_STEP_MAX: Duration = Duration::from_secs(5);
/// Questions after an interrupt that follow each other soon.
const SETTLE_SOON: u32 = 50;
/// A command shorter than this was not ended by the kernel for memory.
const OOM_AFTER: Duration = Duration::from_millis(2);

/// Why a directory cannot be entered, out of what bash says: `bash: line 1: cd: /x: No such file …`.
fn no_directory(noise: &[u8]) -> String {
    let said = String::from_utf8_lossy(noise);
    let reason = said.lines().rev().find_map(|line| Some(line.split_once(": cd: ")?.1));
    format!("cannot enter the start directory: {}", reason.unwrap_or("no such directory"))
}

impl Shell {
    /// Begins the next command, when there is one and the shell is free.
    pub(super) fn next(&mut self, reactor: &mut Reactor) {
        let free = self.running.is_none() && self.awaited.is_none() && self.closing.is_none();
        let Some(bash) = self.bash.as_mut().filter(|bash| free && bash.ready) else { return };
        let Some(waiting) = self.queue.pop_front() else { return };
        bash.forgive();
        let fresh = std::mem::take(&mut bash.fresh);
        self.running = Some(Box::new(self.begin(reactor, waiting, fresh)));
        reactor.notify_watchers(self.id);
        let wants = bash_protocol::wants_history(&self.running_text());
        if self.running.as_ref().is_some_and(|running| running.borrows()) || wants {
            self.before(reactor, wants);
        } else {
            self.main(reactor);
        }
    }

    fn running_text(&self) -> String {
        self.running.as_ref().map(|running| running.run.text.clone()).unwrap_or_default()
    }

    fn begin(&mut self, reactor: &mut Reactor, waiting: Waiting, fresh: bool) -> Running {
        let Waiting { who, run, input, eof } = waiting;
        let started = run.cwd.as_ref().is_none_or(String::is_empty);
        if started {
            self.log.started(who.clone(), &run.text);
        }
        let first = Duration::from_secs(1);
        Running {
            who,
            run,
            stage: Stage::Main,
            began: reactor.now,
            ticks: crate::process_tree::ticks(),
            count: [0; 2],
            input,
            eof,
            feeder: None,
            left: None,
            ladder: None,
            press: Press::Up,
            pressed: false,
            copies: Vec::new(),
            interrupted: Vec::new(),
            timed_out: false,
            cancelled: false,
            shaken: false,
            probe: (reactor.now + first, first, 0),
            guard: None,
            lines: 0,
            stepped: reactor.now,
            report: None,
            code: 0,
            from: self.log.end(),
            oom: reactor.oom_kills(true),
            fresh,
            started,
            refusal: None,
            complaint: Complaint::new(self.pid()),
            strip: Strip::default(),
            noise: Vec::new(),
        }
    }

    fn before(&mut self, reactor: &mut Reactor, history: bool) {
        let Some(word) = self.bash.as_ref().map(|bash| bash.word) else { return };
        let Some(running) = self.running.as_mut() else { return };
        running.stage = Stage::Before;
        running.guard = Some(reactor.now + OWN_STEP_MAX);
        let mut texts = Vec::new();
        if history {
            self.history_bytes = 0;
            texts.extend(self.history.drain(..));
            texts.push(running.run.text.clone());
        }
        let cwd = running.run.cwd.as_deref().filter(|cwd| !cwd.is_empty());
        let text =
            bash_protocol::before(word, texts.iter().map(String::as_str), cwd, &running.run.env);
        self.step(reactor, Step { own: true, ..Step::default() }, &text);
    }

    /// Tells that the running command began, where that was not told.
    fn tell_started(&mut self) {
        let Some(running) = self.running.as_mut() else { return };
        if !std::mem::replace(&mut running.started, true) {
            self.log.started(running.who.clone(), &running.run.text);
        }
    }

    /// Tells the first command of a shell that could not begin in its start directory.
    fn tell_place(&mut self) {
        let Some(running) = self.running.as_mut() else { return };
        let Some(place) = self.notice.take() else { return };
        let text = format!("isolet: cannot enter {}; the shell starts in {place}\n", self.open.cwd);
        running.count[1] += text.len() as u64;
        self.log.data(STDERR, Some(&running.who), text.as_bytes());
    }

    fn main(&mut self, reactor: &mut Reactor) {
        self.tell_started();
        self.tell_place();
        let (Some(running), Some(bash)) = (self.running.as_mut(), self.bash.as_mut()) else {
            return;
        };
        if running.run.text.contains(bash_protocol::DIRECT) {
            bash.word = bash_protocol::AROUND;
        }
        running.stage = Stage::Main;
        running.guard = None;
        let how = Step {
            word: bash.word,
            number: self.number + 1,
            last: bash.last,
            stdin: running.run.stdin,
            merge: running.run.merge,
            own: false,
        };
        let text = std::mem::take(&mut running.run.text);
        self.traps |= text.contains("trap");
        self.saves.heed(&text);
        let long = text.len() >= bash_protocol::INLINE_BYTES_MAX;
        running.strip = Strip::new(how, &text, bash.traced, long);
        if how.stdin {
            running.feeder = bash.feeder(reactor, self.id).ok();
        }
        self.step(reactor, how, &text);
        self.feed(reactor);
        if let Some(running) = self.running.as_mut() {
            running.run.text = text;
        }
    }

    fn after(&mut self, reactor: &mut Reactor) {
        let Some(word) = self.bash.as_ref().map(|bash| bash.word) else { return };
        let Some(running) = self.running.as_mut() else { return };
        running.stage = Stage::After;
        running.ladder = None;
        running.guard = Some(reactor.now + OWN_STEP_MAX);
        let cwd = running.run.cwd.as_ref().is_some_and(|cwd| !cwd.is_empty());
        let text = bash_protocol::after(word, cwd, &running.run.env);
        self.step(reactor, Step { own: true, ..Step::default() }, &text);
    }

    fn step(&mut self, reactor: &mut Reactor, how: Step, text: &str) {
        let Some(bash) = self.bash.as_mut() else { return };
        self.number += 1;
        self.awaited = Some(self.number);
        let long = text.len() >= bash_protocol::INLINE_BYTES_MAX && !bash.stale;
        let long = long && bash.put_long(text.as_bytes()).is_ok();
        let mut lines = String::with_capacity(text.len().min(1024) + 160);
        let how = Step { number: self.number, word: bash.word, ..how };
        bash_protocol::step(&mut lines, how, (!long).then_some(text));
        if let Some(running) = self.running.as_mut() {
            (running.lines, running.stepped) = (lines.len(), reactor.now);
        }
        bash.write(reactor, self.id, lines.as_bytes());
    }

    /// Output of the shell.
    pub(super) fn said(&mut self, stream: u8, bytes: &[u8]) {
        let Some(running) = self.running.as_deref_mut() else {
            let ready = self.bash.as_ref().is_some_and(|bash| bash.ready);
            // Before the first report it is bash saying that it has no terminal; after an
            // interrupt a newline of its own.
            let own = stream == STDERR
                && (!ready && self.state != super::State::Dead
                    || self.settling.is_some() && bytes == b"\n");
            if !own {
                self.log.data(stream, None, bytes);
            }
            return;
        };
        let slot = usize::from(stream == STDERR);
        if stream == STDERR && running.stage != Stage::Main && running.noise.len() < NOISE_BYTES_MAX
        {
            running.noise.extend_from_slice(bytes);
        } else if stream == STDERR {
            let mut out = running.complaint.push(bytes);
            if !running.strip.idle() {
                out = running.strip.push(&out);
            }
            running.count[slot] += out.len() as u64;
            self.log.data(stream, Some(&running.who), &out);
        } else {
            running.count[slot] += bytes.len() as u64;
            self.log.data(stream, Some(&running.who), bytes);
        }
    }

    /// Whether output on this stream goes into the log as it is.
    pub(super) fn plain(&self, stream: u8) -> bool {
        let ready = self.bash.as_ref().is_some_and(|bash| bash.ready);
        let free = self.running.is_none() || stream == STDOUT;
        ready && self.settling.is_none() && free
    }

    /// Bash reported the end of the step that was awaited.
    pub(super) fn report(&mut self, reactor: &mut Reactor, report: Report) {
        let Some(bash) = self.bash.as_mut() else { return };
        self.awaited = None;
        bash.traced = report.flags.contains('x');
        bash.stale = false;
        let left = bash.left();
        self.saves.flags(&report.flags);
        let Some(running) = self.running.as_mut() else {
            self.pull(reactor, STDERR, left[1]);
            if self.report_of_state(reactor, &report) {
                return;
            }
            if let Some(bash) = self.bash.as_mut() {
                bash.ready = true;
            }
            self.settling = None;
            self.sweeping = None;
            self.next(reactor);
            return;
        };
        running.left = Some(left);
        if running.press != Press::Up {
            // It was to be interrupted, and has ended before it stopped.
            running.press = Press::Up;
            let _ = isolet_sys::signal::send(bash.pid, CONT);
        }
        if running.stage == Stage::Main && bash.traced && running.strip.idle() {
            // Found out only now that the driver's lines stand at the end.
            let step = Step { word: bash.word, number: report.number, ..Step::default() };
            running.strip = Strip::new(step, "set -", false, false);
        }
        running.report = Some(report);
        self.advance(reactor);
    }

    /// Reads on what an ended step left in the pipes, 64 KiB a stream at once, and goes on to
    /// the next step after the last byte.
    pub(super) fn advance(&mut self, reactor: &mut Reactor) {
        for (slot, stream) in [(0, STDOUT), (1, STDERR)] {
            let Some(left) = self.running.as_ref().and_then(|running| running.left) else { return };
            if left[slot] > 0 {
                let count = self.pull(reactor, stream, left[slot].min(READ_BYTES));
                if let Some(left) = self.running.as_mut().and_then(|r| r.left.as_mut()) {
                    left[slot] = if count == 0 { 0 } else { left[slot] - count.min(left[slot]) };
                }
            }
        }
        if let Some(running) = self.running.as_mut()
            && running.left == Some([0, 0])
        {
            running.left = None;
            if let Some(report) = running.report.take() {
                self.stepped(reactor, &report);
            }
        }
    }

    /// A step has ended and all it said is read.
    fn stepped(&mut self, reactor: &mut Reactor, report: &Report) {
        let (Some(running), Some(bash)) = (self.running.as_deref_mut(), self.bash.as_mut()) else {
            return;
        };
        match running.stage {
            Stage::Before => {
                let failed = report.code != 0 || !report.whole || running.ladder.is_some();
                running.code = if report.whole { 1 } else { report.code };
                let noise = std::mem::take(&mut running.noise);
                let whole = report.whole && running.ladder.is_none();
                if whole && report.code == bash_protocol::NO_DIRECTORY {
                    running.refusal = Some((Why::BadCwd, no_directory(&noise)));
                    return self.restore(reactor);
                }
                if failed {
                    self.tell_started();
                }
                let Some(running) = self.running.as_deref_mut() else { return };
                let traced = self.bash.as_ref().is_some_and(|bash| bash.traced);
                if failed || !traced {
                    running.count[1] += noise.len() as u64;
                    self.log.data(STDERR, Some(&running.who), &noise);
                }
                if failed { self.restore(reactor) } else { self.main(reactor) }
            }
            Stage::Main => {
                let held = running.complaint.rest();
                let mut rest = running.strip.push(&held);
                rest.extend(running.strip.end(report));
                running.count[1] += rest.len() as u64;
                self.log.data(STDERR, Some(&running.who), &rest);
                running.code = report.code;
                bash.last = report.code;
                running.feeder = None;
                if running.run.stdin {
                    bash.empty_feed(reactor);
                }
                self.remember(reactor);
                self.restore(reactor);
            }
            Stage::After => self.finish(reactor, None),
        }
    }

    fn restore(&mut self, reactor: &mut Reactor) {
        if self.running.as_ref().is_some_and(|running| running.borrows()) {
            self.after(reactor);
        } else {
            self.finish(reactor, None);
        }
    }

    fn remember(&mut self, reactor: &Reactor) {
        let Some(running) = self.running.as_mut() else { return };
        let text = std::mem::take(&mut running.run.text);
        if bash_protocol::has_job(&text) {
            let pid = self.pid();
            self.jobs = crate::process_tree::below(pid, |pid| reactor.children.contains_key(&pid));
        }
        if bash_protocol::wants_history(&text) || text.len() > HISTORY_MAX.1 {
            return;
        }
        self.history_bytes += text.len();
        self.history.push_back(text);
        while self.history.len() > HISTORY_MAX.0 || self.history_bytes > HISTORY_MAX.1 {
            self.history_bytes -= self.history.pop_front().map_or(0, |text| text.len());
        }
    }

    /// Tells the command's exit. `death`: bash ended with this code and signal.
    pub(super) fn finish(&mut self, reactor: &mut Reactor, death: Option<(i32, Option<i32>)>) {
        let refused = self.running.as_ref().is_some_and(|running| running.refusal.is_some());
        if !refused {
            self.tell_started();
        }
        let Some(mut running) = self.running.take() else { return };
        let held = running.complaint.rest();
        let mut rest = running.strip.push(&held);
        rest.extend(running.strip.rest(death.is_some_and(|(_, signal)| signal.is_none())));
        let noise = std::mem::take(&mut running.noise);
        let traced = self.bash.as_ref().is_some_and(|bash| bash.traced);
        for bytes in [rest, if traced { Vec::new() } else { noise }] {
            running.count[1] += bytes.len() as u64;
            self.log.data(STDERR, Some(&running.who), &bytes);
        }
        let took = reactor.now.duration_since(running.began);
        let exit = Exit {
            id: running.who.id.clone(),
            code: death.map_or(running.code, |(code, _)| code),
            signal: death.and_then(|(_, signal)| signal),
            timed_out: running.timed_out,
            cancelled: running.cancelled,
            oom: took >= OOM_AFTER && reactor.oom_kills(false) > running.oom,
            fresh: running.fresh,
            out: running.count[0],
            err: running.count[1],
            lost: 0,
            micros: took.as_micros() as u64,
            seq: 0,
        };
        let note = match running.refusal.take() {
            Some((why, message)) => Note::Refused(running.who.clone(), why, message),
            None => Note::Exit(running.who.clone(), exit, running.from),
        };
        self.log.note(note);
        reactor.notify_watchers(self.id);
        if death.is_none() {
            self.saves.ended(reactor.now);
            if running.shaken {
                self.sweeping = Some(running.ticks);
                self.settle(reactor);
            } else {
                self.next(reactor);
            }
        }
    }

    /// After an interrupt bash may still drop a line: it is asked until it answers, and only then
    /// given the next command.
    pub(super) fn settle(&mut self, reactor: &mut Reactor) {
        let tries = self.settling.map_or(0, |(_, tries)| tries + 1);
        if !self.sweep(reactor, tries) {
            self.settling = Some((reactor.now + Duration::from_millis(2), tries));
            // Nothing has asked under this number: the shell is just not free yet.
            self.number += 1;
            self.awaited = Some(self.number);
            return;
        }
        let pause = Duration::from_millis(if tries < SETTLE_SOON { 20 } else { 200 });
        self.settling = Some((reactor.now + pause, tries));
        self.number += 1;
        self.awaited = Some(self.number);
        if let Some(bash) = self.bash.as_mut() {
            let mut lines = String::new();
            bash_protocol::ask(&mut lines, bash.word, self.number);
            bash.write(reactor, self.id, lines.as_bytes());
        }
    }

    /// Asks again for the report of the step that is awaited.
    pub(super) fn ask_again(&mut self, reactor: &Reactor) {
        let Some(number) = self.awaited else { return };
        if let Some(bash) = self.bash.as_mut() {
            let mut lines = String::new();
            bash_protocol::ask(&mut lines, bash.word, number);
            bash.write(reactor, self.id, lines.as_bytes());
        }
    }

    /// Writes a line that says nothing; when bash has read it, it is back at its reader.
    pub(super) fn probe(bash: &mut Bash, reactor: &Reactor, id: u64) {
        bash.write(reactor, id, b"\n");
    }
}
