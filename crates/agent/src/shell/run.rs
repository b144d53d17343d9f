//! A command from its first step to its exit.

use super::bash::Bash;
use super::bash_protocol::{self, Report, Step};
use super::running::{InterruptState, ProbeStep, ReaderProbe, Running, Stage};
use super::stderr_filter::StderrFilter;
use super::tty_warning::TtyWarningFilter;
use super::{HISTORY_MAX, Resync, Shell, Waiting};
use crate::connection::shell_log::LogEvent;
use crate::reactor::{READ_BYTES, Reactor};
use crate::signals::CONT;
use isolet_wire::response::{Exit, RefusalReason, STDERR, STDOUT};
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
    pub(super) fn start_next(&mut self, reactor: &mut Reactor) {
        let free = self.running.is_none() && self.awaited_step.is_none() && self.closing.is_none();
        let Some(bash) = self.bash.as_mut().filter(|bash| free && bash.ready) else { return };
        let Some(waiting) = self.queue.pop_front() else { return };
        bash.reset_garbage();
        let fresh = std::mem::take(&mut bash.fresh);
        self.running = Some(Box::new(self.begin(reactor, waiting, fresh)));
        reactor.notify_watchers(self.id);
        let wants = bash_protocol::mentions_history(&self.command_text());
        if self.running.as_ref().is_some_and(|running| running.changes_cwd_or_env()) || wants {
            self.run_setup(reactor, wants);
        } else {
            self.run_text(reactor);
        }
    }

    fn command_text(&self) -> String {
        self.running.as_ref().map(|running| running.run.text.clone()).unwrap_or_default()
    }

    fn begin(
        &mut self,
        reactor: &mut Reactor,
        waiting: Waiting,
        first_in_new_bash: bool,
    ) -> Running {
        let Waiting { key, run, input, eof } = waiting;
        let start_reported = run.cwd.as_ref().is_none_or(String::is_empty);
        if start_reported {
            self.log.started(key.clone(), &run.text);
        }
        let first = Duration::from_secs(1);
        Running {
            key,
            run,
            stage: Stage::Main,
            started_at: reactor.now,
            started_ticks: crate::process_tree::ticks(),
            output_bytes: [0; 2],
            input,
            eof,
            stdin_pipe: None,
            unread: None,
            escalation: None,
            interrupt: InterruptState::Idle,
            bash_was_stopped: false,
            known_forks: Vec::new(),
            interrupted_processes: Vec::new(),
            timed_out: false,
            cancelled: false,
            line_may_be_lost: false,
            probe: ReaderProbe {
                due: reactor.now + first,
                pause: first,
                step: ProbeStep::WriteEmptyLine,
            },
            own_step_deadline: None,
            step_bytes: 0,
            step_written_at: reactor.now,
            report: None,
            code: 0,
            output_start: self.log.end(),
            oom_kills_before: reactor.oom_kills(true),
            first_in_new_bash,
            start_reported,
            refusal: None,
            tty_warning: TtyWarningFilter::new(self.pid()),
            stderr_filter: StderrFilter::default(),
            own_step_stderr: Vec::new(),
        }
    }

    fn run_setup(&mut self, reactor: &mut Reactor, history: bool) {
        let Some(word) = self.bash.as_ref().map(|bash| bash.prefix) else { return };
        let Some(running) = self.running.as_mut() else { return };
        running.stage = Stage::Before;
        running.own_step_deadline = Some(reactor.now + OWN_STEP_MAX);
        let mut texts = Vec::new();
        if history {
            self.history_bytes = 0;
            texts.extend(self.history.drain(..));
            texts.push(running.run.text.clone());
        }
        let cwd = running.run.cwd.as_deref().filter(|cwd| !cwd.is_empty());
        let text = bash_protocol::setup_step(
            word,
            texts.iter().map(String::as_str),
            cwd,
            &running.run.env,
        );
        self.write_step(reactor, Step { own: true, ..Step::default() }, &text);
    }

    /// Tells that the running command began, where that was not told.
    fn report_start(&mut self) {
        let Some(running) = self.running.as_mut() else { return };
        if !std::mem::replace(&mut running.start_reported, true) {
            self.log.started(running.key.clone(), &running.run.text);
        }
    }

    /// Tells the first command of a shell that could not begin in its start directory.
    fn report_cwd_fallback(&mut self) {
        let Some(running) = self.running.as_mut() else { return };
        let Some(place) = self.cwd_notice.take() else { return };
        let text = format!("isolet: cannot enter {}; the shell starts in {place}\n", self.open.cwd);
        running.output_bytes[1] += text.len() as u64;
        self.log.push_output(STDERR, Some(&running.key), text.as_bytes());
    }

    fn run_text(&mut self, reactor: &mut Reactor) {
        self.report_start();
        self.report_cwd_fallback();
        let (Some(running), Some(bash)) = (self.running.as_mut(), self.bash.as_mut()) else {
            return;
        };
        if running.run.text.contains(bash_protocol::BUILTIN) {
            bash.prefix = bash_protocol::COMMAND_BUILTIN;
        }
        running.stage = Stage::Main;
        running.own_step_deadline = None;
        let how = Step {
            prefix: bash.prefix,
            number: self.step_number + 1,
            last: bash.last,
            stdin: running.run.stdin,
            merge: running.run.merge,
            own: false,
        };
        let text = std::mem::take(&mut running.run.text);
        self.may_have_traps |= text.contains("trap");
        self.saves.note_text(&text);
        let long = text.len() >= bash_protocol::INLINE_BYTES_MAX;
        running.stderr_filter = StderrFilter::new(how, &text, bash.xtrace, long);
        if how.stdin {
            running.stdin_pipe = bash.open_stdin_pipe(reactor, self.id).ok();
        }
        self.write_step(reactor, how, &text);
        self.write_stdin(reactor);
        if let Some(running) = self.running.as_mut() {
            running.run.text = text;
        }
    }

    fn run_cleanup(&mut self, reactor: &mut Reactor) {
        let Some(word) = self.bash.as_ref().map(|bash| bash.prefix) else { return };
        let Some(running) = self.running.as_mut() else { return };
        running.stage = Stage::After;
        running.escalation = None;
        running.own_step_deadline = Some(reactor.now + OWN_STEP_MAX);
        let cwd = running.run.cwd.as_ref().is_some_and(|cwd| !cwd.is_empty());
        let text = bash_protocol::cleanup_step(word, cwd, &running.run.env);
        self.write_step(reactor, Step { own: true, ..Step::default() }, &text);
    }

    fn write_step(&mut self, reactor: &mut Reactor, how: Step, text: &str) {
        let Some(bash) = self.bash.as_mut() else { return };
        self.step_number += 1;
        self.awaited_step = Some(self.step_number);
        let long = text.len() >= bash_protocol::INLINE_BYTES_MAX && !bash.long_text_busy;
        let long = long && bash.write_long_text(text.as_bytes()).is_ok();
        let mut lines = String::with_capacity(text.len().min(1024) + 160);
        let how = Step { number: self.step_number, prefix: bash.prefix, ..how };
        bash_protocol::write_step(&mut lines, how, (!long).then_some(text));
        if let Some(running) = self.running.as_mut() {
            (running.step_bytes, running.step_written_at) = (lines.len(), reactor.now);
        }
        bash.write(reactor, self.id, lines.as_bytes());
    }

    /// Filters output of the shell and appends it to the log.
    pub(super) fn push_output(&mut self, stream: u8, bytes: &[u8]) {
        let Some(running) = self.running.as_deref_mut() else {
            let ready = self.bash.as_ref().is_some_and(|bash| bash.ready);
            // Before the first report it is bash saying that it has no terminal; after an
            // interrupt a newline of its own.
            let own = stream == STDERR
                && (!ready && self.state != super::State::Dead
                    || self.resyncing.is_some() && bytes == b"\n");
            if !own {
                self.log.push_output(stream, None, bytes);
            }
            return;
        };
        let slot = usize::from(stream == STDERR);
        if stream == STDERR
            && running.stage != Stage::Main
            && running.own_step_stderr.len() < NOISE_BYTES_MAX
        {
            running.own_step_stderr.extend_from_slice(bytes);
        } else if stream == STDERR {
            let mut out = running.tty_warning.push(bytes);
            if !running.stderr_filter.is_passthrough() {
                out = running.stderr_filter.push(&out);
            }
            running.output_bytes[slot] += out.len() as u64;
            self.log.push_output(stream, Some(&running.key), &out);
        } else {
            running.output_bytes[slot] += bytes.len() as u64;
            self.log.push_output(stream, Some(&running.key), bytes);
        }
    }

    /// Whether output on this stream goes into the log as it is.
    pub(super) fn is_unfiltered(&self, stream: u8) -> bool {
        let ready = self.bash.as_ref().is_some_and(|bash| bash.ready);
        let free = self.running.is_none() || stream == STDOUT;
        ready && self.resyncing.is_none() && free
    }

    /// Bash reported the end of the step that was awaited.
    pub(super) fn report(&mut self, reactor: &mut Reactor, report: Report) {
        let Some(bash) = self.bash.as_mut() else { return };
        self.awaited_step = None;
        bash.xtrace = report.flags.contains('x');
        bash.long_text_busy = false;
        let left = bash.unread_output();
        self.saves.flags(&report.flags);
        let Some(running) = self.running.as_mut() else {
            self.pull(reactor, STDERR, left[1]);
            if self.report_of_state(reactor, &report) {
                return;
            }
            if let Some(bash) = self.bash.as_mut() {
                bash.ready = true;
            }
            self.resyncing = None;
            self.sweep_since = None;
            self.start_next(reactor);
            return;
        };
        running.unread = Some(left);
        if running.interrupt != InterruptState::Idle {
            // It was to be interrupted, and has ended before it stopped.
            running.interrupt = InterruptState::Idle;
            let _ = isolet_sys::signal::send(bash.pid, CONT);
        }
        if running.stage == Stage::Main && bash.xtrace && running.stderr_filter.is_passthrough() {
            // Found out only now that the driver's lines stand at the end.
            let step = Step { prefix: bash.prefix, number: report.number, ..Step::default() };
            running.stderr_filter = StderrFilter::new(step, "set -", false, false);
        }
        running.report = Some(report);
        self.drain_step(reactor);
    }

    /// Reads on what an ended step left in the pipes, 64 KiB a stream at once, and goes on to
    /// the next step after the last byte.
    pub(super) fn drain_step(&mut self, reactor: &mut Reactor) {
        for (slot, stream) in [(0, STDOUT), (1, STDERR)] {
            let Some(left) = self.running.as_ref().and_then(|running| running.unread) else {
                return;
            };
            if left[slot] > 0 {
                let count = self.pull(reactor, stream, left[slot].min(READ_BYTES));
                if let Some(left) = self.running.as_mut().and_then(|r| r.unread.as_mut()) {
                    left[slot] = if count == 0 { 0 } else { left[slot] - count.min(left[slot]) };
                }
            }
        }
        if let Some(running) = self.running.as_mut()
            && running.unread == Some([0, 0])
        {
            running.unread = None;
            if let Some(report) = running.report.take() {
                self.step_ended(reactor, &report);
            }
        }
    }

    /// A step has ended and all it said is read.
    fn step_ended(&mut self, reactor: &mut Reactor, report: &Report) {
        let (Some(running), Some(bash)) = (self.running.as_deref_mut(), self.bash.as_mut()) else {
            return;
        };
        match running.stage {
            Stage::Before => {
                let failed = report.code != 0 || !report.whole || running.escalation.is_some();
                running.code = if report.whole { 1 } else { report.code };
                let noise = std::mem::take(&mut running.own_step_stderr);
                let whole = report.whole && running.escalation.is_none();
                if whole && report.code == bash_protocol::NO_DIRECTORY {
                    running.refusal = Some((RefusalReason::BadCwd, no_directory(&noise)));
                    return self.clean_up(reactor);
                }
                if failed {
                    self.report_start();
                }
                let Some(running) = self.running.as_deref_mut() else { return };
                let traced = self.bash.as_ref().is_some_and(|bash| bash.xtrace);
                if failed || !traced {
                    running.output_bytes[1] += noise.len() as u64;
                    self.log.push_output(STDERR, Some(&running.key), &noise);
                }
                if failed { self.clean_up(reactor) } else { self.run_text(reactor) }
            }
            Stage::Main => {
                let held = running.tty_warning.rest();
                let mut rest = running.stderr_filter.push(&held);
                rest.extend(running.stderr_filter.finish(report));
                running.output_bytes[1] += rest.len() as u64;
                self.log.push_output(STDERR, Some(&running.key), &rest);
                running.code = report.code;
                bash.last = report.code;
                running.stdin_pipe = None;
                if running.run.stdin {
                    bash.discard_unread_stdin(reactor);
                }
                self.record_history(reactor);
                self.clean_up(reactor);
            }
            Stage::After => self.finish(reactor, None),
        }
    }

    fn clean_up(&mut self, reactor: &mut Reactor) {
        if self.running.as_ref().is_some_and(|running| running.changes_cwd_or_env()) {
            self.run_cleanup(reactor);
        } else {
            self.finish(reactor, None);
        }
    }

    fn record_history(&mut self, reactor: &Reactor) {
        let Some(running) = self.running.as_mut() else { return };
        let text = std::mem::take(&mut running.run.text);
        if bash_protocol::may_start_job(&text) {
            let pid = self.pid();
            self.background_jobs =
                crate::process_tree::descendants(pid, |pid| reactor.children.contains_key(&pid));
        }
        if bash_protocol::mentions_history(&text) || text.len() > HISTORY_MAX.1 {
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
            self.report_start();
        }
        let Some(mut running) = self.running.take() else { return };
        let held = running.tty_warning.rest();
        let mut rest = running.stderr_filter.push(&held);
        rest.extend(
            running.stderr_filter.finish_at_exit(death.is_some_and(|(_, signal)| signal.is_none())),
        );
        let noise = std::mem::take(&mut running.own_step_stderr);
        let traced = self.bash.as_ref().is_some_and(|bash| bash.xtrace);
        for bytes in [rest, if traced { Vec::new() } else { noise }] {
            running.output_bytes[1] += bytes.len() as u64;
            self.log.push_output(STDERR, Some(&running.key), &bytes);
        }
        let took = reactor.now.duration_since(running.started_at);
        let exit = Exit {
            id: running.key.id.clone(),
            code: death.map_or(running.code, |(code, _)| code),
            signal: death.and_then(|(_, signal)| signal),
            timed_out: running.timed_out,
            cancelled: running.cancelled,
            oom: took >= OOM_AFTER && reactor.oom_kills(false) > running.oom_kills_before,
            fresh: running.first_in_new_bash,
            out: running.output_bytes[0],
            err: running.output_bytes[1],
            lost: 0,
            micros: took.as_micros() as u64,
            seq: 0,
        };
        let note = match running.refusal.take() {
            Some((why, message)) => LogEvent::Refused(running.key.clone(), why, message),
            None => LogEvent::Exit(running.key.clone(), exit, running.output_start),
        };
        self.log.push_event(note);
        reactor.notify_watchers(self.id);
        if death.is_none() {
            self.saves.command_ended(reactor.now);
            if running.line_may_be_lost {
                self.sweep_since = Some(running.started_ticks);
                self.resync(reactor);
            } else {
                self.start_next(reactor);
            }
        }
    }

    /// After an interrupt bash may still drop a line: it is asked until it answers, and only then
    /// given the next command.
    pub(super) fn resync(&mut self, reactor: &mut Reactor) {
        let tries = self.resyncing.map_or(0, |resync| resync.tries + 1);
        if !self.sweep(reactor, tries) {
            self.resyncing = Some(Resync { due: reactor.now + Duration::from_millis(2), tries });
            // Nothing has asked under this number: the shell is just not free yet.
            self.step_number += 1;
            self.awaited_step = Some(self.step_number);
            return;
        }
        let pause = Duration::from_millis(if tries < SETTLE_SOON { 20 } else { 200 });
        self.resyncing = Some(Resync { due: reactor.now + pause, tries });
        self.step_number += 1;
        self.awaited_step = Some(self.step_number);
        if let Some(bash) = self.bash.as_mut() {
            let mut lines = String::new();
            bash_protocol::request_report(&mut lines, bash.prefix, self.step_number);
            bash.write(reactor, self.id, lines.as_bytes());
        }
    }

    /// Asks again for the report of the step that is awaited.
    pub(super) fn request_report_again(&mut self, reactor: &Reactor) {
        let Some(number) = self.awaited_step else { return };
        if let Some(bash) = self.bash.as_mut() {
            let mut lines = String::new();
            bash_protocol::request_report(&mut lines, bash.prefix, number);
            bash.write(reactor, self.id, lines.as_bytes());
        }
    }

    /// Writes a line that says nothing; when bash has read it, it is back at its reader.
    pub(super) fn write_empty_line(bash: &mut Bash, reactor: &Reactor, id: u64) {
        bash.write(reactor, id, b"\n");
    }
}
