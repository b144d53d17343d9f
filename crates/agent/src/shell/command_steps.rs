//! The run of a command from its first step to its exit.

use super::bash::Bash;
use super::bash_protocol::{self, Report, ReportedStep};
use super::parts::Resync;
use super::running_command::{
    CommandInput, CommandOutput, CommandResult, InterruptState, Interrupts, ProbeStep, ReaderProbe,
    RunningCommand, Stage, StepProgress,
};
use super::stderr_filter::StderrFilter;
use super::tty_warning::TtyWarningFilter;
use super::{HISTORY_MAX, Shell, Waiting};
use crate::connection::shell_log::{EndedCommand, LogEvent};
use crate::reaction::ReactionWait;
use crate::reactor::{READ_BYTES, Reactor};
use crate::signals::CONT;
use isolet_wire::response::{CommandExit, RefusalReason, STDERR, STDOUT};
use std::time::Duration;

/// Amount of output of the agent's own steps on standard error, in bytes, above which it counts as
/// the tenant's.
const NOISE_BYTES_MAX: usize = 64 * 1024;
/// Timeout of the agent's own steps. They wait for nothing unless the tenant makes them wait.
const OWN_STEP_MAX: Duration = Duration::from_secs(5);
/// Number of report requests after an interrupt that follow each other quickly.
const SETTLE_SOON: u32 = 50;
/// Time for forks of bash to become other programs.
const FORKS_WAIT: Duration = Duration::from_millis(10);
/// A command shorter than this was not killed for lack of memory.
const OOM_AFTER: Duration = Duration::from_millis(2);

/// Extracts the reason from bash's message: `bash: line 1: cd: /x: No such file …`.
fn no_directory(noise: &[u8]) -> String {
    let said = String::from_utf8_lossy(noise);
    let reason = said.lines().rev().find_map(|line| Some(line.split_once(": cd: ")?.1));
    format!("cannot enter the start directory: {}", reason.unwrap_or("no such directory"))
}

impl Shell {
    /// Starts the next queued command if the shell is free.
    pub(super) fn start_next(&mut self, reactor: &mut Reactor) {
        let free = self.running.is_none() && self.steps.awaited.is_none() && !self.is_closing();
        let Some(bash) = self.state.bash_mut().filter(|bash| free && bash.ready) else { return };
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
    ) -> RunningCommand {
        let Waiting { key, run, input, eof } = waiting;
        let start_reported = run.cwd.as_ref().is_none_or(String::is_empty);
        if start_reported {
            self.log.started(key.clone(), &run.text);
        }
        let first = Duration::from_secs(1);
        RunningCommand {
            key,
            run,
            started_at: reactor.now,
            started_ticks: crate::process_tree::ticks(),
            stdin: CommandInput { bytes: input, eof, pipe: None },
            interrupts: Interrupts {
                escalation: None,
                state: InterruptState::Idle,
                bash_was_stopped: false,
                handler_retries: 0,
                known_forks: Vec::new(),
                processes: Vec::new(),
                line_may_be_lost: false,
            },
            step: StepProgress {
                stage: Stage::Main,
                probe: ReaderProbe {
                    due: reactor.now + first,
                    pause: first,
                    step: ProbeStep::WriteEmptyLine,
                    wait: None,
                },
                own_deadline: None,
                own_wait: None,
                bytes: 0,
                written_at: reactor.now,
                report: None,
            },
            output: CommandOutput {
                counts: [0; 2],
                start: self.log.end(),
                unread: None,
                tty_warning: TtyWarningFilter::new(self.pid()),
                stderr_filter: StderrFilter::default(),
                own_step_stderr: Vec::new(),
            },
            oom_kills_before: reactor.oom_kills(true),
            first_in_new_bash,
            start_reported,
            result: CommandResult { code: 0, timed_out: false, cancelled: false, refusal: None },
        }
    }

    fn run_setup(&mut self, reactor: &mut Reactor, history: bool) {
        let Some(word) = self.state.bash().map(|bash| bash.prefix) else { return };
        let Some(running) = self.running.as_mut() else { return };
        running.step.stage = Stage::Before;
        running.step.own_deadline = Some(reactor.now + OWN_STEP_MAX);
        let mut texts = Vec::new();
        if history {
            self.history.bytes = 0;
            texts.extend(self.history.texts.drain(..));
            texts.push(running.run.text.clone());
        }
        let cwd = running.run.cwd.as_deref().filter(|cwd| !cwd.is_empty());
        let text = bash_protocol::setup_step(
            word,
            texts.iter().map(String::as_str),
            cwd,
            &running.run.env,
        );
        self.write_step(reactor, ReportedStep { own: true, ..ReportedStep::default() }, &text);
    }

    /// Reports the start of the running command, unless that was already done.
    fn report_start(&mut self) {
        let Some(running) = self.running.as_mut() else { return };
        if !std::mem::replace(&mut running.start_reported, true) {
            self.log.started(running.key.clone(), &running.run.text);
        }
    }

    /// Writes a notice to the first command of a shell that could not enter its start directory.
    fn report_cwd_fallback(&mut self) {
        let Some(running) = self.running.as_mut() else { return };
        let Some(place) = self.start_dir.notice.take() else { return };
        let text = format!("isolet: cannot enter {}; the shell starts in {place}\n", self.open.cwd);
        running.output.counts[1] += text.len() as u64;
        self.log.push_output(STDERR, Some(&running.key), text.as_bytes());
    }

    fn run_text(&mut self, reactor: &mut Reactor) {
        self.report_start();
        self.report_cwd_fallback();
        let Some(running) = self.running.as_mut() else { return };
        let Some(bash) = self.state.bash_mut() else { return };
        if running.run.text.contains(bash_protocol::BUILTIN) {
            bash.prefix = bash_protocol::COMMAND_BUILTIN;
        }
        running.step.stage = Stage::Main;
        running.step.own_deadline = None;
        running.step.own_wait = None;
        let how = ReportedStep {
            prefix: bash.prefix,
            number: self.steps.number + 1,
            last: bash.last,
            stdin: running.run.stdin,
            merge: running.run.merge,
            own: false,
        };
        let text = std::mem::take(&mut running.run.text);
        self.may_have_traps |= text.contains("trap");
        self.saves.note_text(&text);
        let long = text.len() >= bash_protocol::INLINE_BYTES_MAX;
        running.output.stderr_filter = StderrFilter::new(how, &text, bash.xtrace, long);
        if how.stdin {
            running.stdin.pipe = bash.open_stdin_pipe(reactor, self.id).ok();
        }
        self.write_step(reactor, how, &text);
        self.write_stdin(reactor);
        if let Some(running) = self.running.as_mut() {
            running.run.text = text;
        }
    }

    fn run_cleanup(&mut self, reactor: &mut Reactor) {
        let Some(word) = self.state.bash().map(|bash| bash.prefix) else { return };
        let Some(running) = self.running.as_mut() else { return };
        running.step.stage = Stage::After;
        running.interrupts.escalation = None;
        running.step.own_deadline = Some(reactor.now + OWN_STEP_MAX);
        let cwd = running.run.cwd.as_ref().is_some_and(|cwd| !cwd.is_empty());
        let text = bash_protocol::cleanup_step(word, cwd, &running.run.env);
        self.write_step(reactor, ReportedStep { own: true, ..ReportedStep::default() }, &text);
    }

    fn write_step(&mut self, reactor: &mut Reactor, how: ReportedStep, text: &str) {
        let Some(bash) = self.state.bash_mut() else { return };
        self.steps.number += 1;
        self.steps.awaited = Some(self.steps.number);
        let long = text.len() >= bash_protocol::INLINE_BYTES_MAX && !bash.long_text_busy;
        let long = long && bash.write_long_text(text.as_bytes()).is_ok();
        let mut lines = String::with_capacity(text.len().min(1024) + 160);
        let how = ReportedStep { number: self.steps.number, prefix: bash.prefix, ..how };
        bash_protocol::write_step(&mut lines, how, (!long).then_some(text));
        if let Some(running) = self.running.as_mut() {
            (running.step.bytes, running.step.written_at) = (lines.len(), reactor.now);
        }
        bash.write(reactor, self.id, lines.as_bytes());
    }

    /// Filters output of the shell and appends it to the log.
    pub(super) fn push_output(&mut self, stream: u8, bytes: &[u8]) {
        let Some(running) = self.running.as_deref_mut() else {
            let ready = self.state.bash().is_some_and(|bash| bash.ready);
            // Before the first report, bash complains about the missing terminal, and after an
            // interrupt it prints a newline of its own.
            let own = stream == STDERR
                && (!ready && !self.state.is_dead()
                    || self.steps.resync.is_some() && bytes == b"\n");
            if !own {
                self.log.push_output(stream, None, bytes);
            }
            return;
        };
        let slot = usize::from(stream == STDERR);
        if stream == STDERR
            && running.step.stage != Stage::Main
            && running.output.own_step_stderr.len() < NOISE_BYTES_MAX
        {
            running.output.own_step_stderr.extend_from_slice(bytes);
        } else if stream == STDERR {
            let mut out = running.output.tty_warning.push(bytes);
            if !running.output.stderr_filter.is_passthrough() {
                out = running.output.stderr_filter.push(&out);
            }
            running.output.counts[slot] += out.len() as u64;
            self.log.push_output(stream, Some(&running.key), &out);
        } else {
            running.output.counts[slot] += bytes.len() as u64;
            self.log.push_output(stream, Some(&running.key), bytes);
        }
    }

    /// Whether output on this stream goes into the log unchanged.
    pub(super) fn is_unfiltered(&self, stream: u8) -> bool {
        let ready = self.state.bash().is_some_and(|bash| bash.ready);
        let free = self.running.is_none() || stream == STDOUT;
        ready && self.steps.resync.is_none() && free
    }

    /// Handles a report of the awaited step.
    pub(super) fn report(&mut self, reactor: &mut Reactor, report: Report) {
        let Some(bash) = self.state.bash_mut() else { return };
        self.steps.awaited = None;
        bash.xtrace = report.flags.contains('x');
        bash.long_text_busy = false;
        let left = bash.unread_output();
        self.saves.flags(&report.flags);
        let Some(running) = self.running.as_mut() else {
            self.pull(reactor, STDERR, left[1]);
            if self.report_of_state(reactor, &report) {
                return;
            }
            if let Some(bash) = self.state.bash_mut() {
                bash.ready = true;
            }
            self.steps.resync = None;
            self.steps.sweep_since = None;
            self.start_next(reactor);
            return;
        };
        running.output.unread = Some(left);
        if running.interrupts.state != InterruptState::Idle {
            // The command has ended before the interrupt stopped it.
            running.interrupts.state = InterruptState::Idle;
            let _ = isolet_sys::signal::send(bash.pid, CONT);
        }
        if running.step.stage == Stage::Main
            && bash.xtrace
            && running.output.stderr_filter.is_passthrough()
        {
            // Only now does the agent know that its own lines are at the end.
            let step = ReportedStep {
                prefix: bash.prefix,
                number: report.number,
                ..ReportedStep::default()
            };
            running.output.stderr_filter = StderrFilter::new(step, "set -", false, false);
        }
        running.step.report = Some(report);
        self.drain_step(reactor);
    }

    /// Reads the rest of an ended step's output, 64 KiB of each stream at once, and continues with
    /// the next step after the last byte.
    pub(super) fn drain_step(&mut self, reactor: &mut Reactor) {
        for (slot, stream) in [(0, STDOUT), (1, STDERR)] {
            let Some(left) = self.running.as_ref().and_then(|running| running.output.unread) else {
                return;
            };
            if left[slot] > 0 {
                let count = self.pull(reactor, stream, left[slot].min(READ_BYTES));
                if let Some(left) = self.running.as_mut().and_then(|r| r.output.unread.as_mut()) {
                    left[slot] = if count == 0 { 0 } else { left[slot] - count.min(left[slot]) };
                }
            }
        }
        if let Some(running) = self.running.as_mut()
            && running.output.unread == Some([0, 0])
        {
            running.output.unread = None;
            if let Some(report) = running.step.report.take() {
                self.step_ended(reactor, &report);
            }
        }
    }

    /// Handles the end of a step after all of its output was read.
    fn step_ended(&mut self, reactor: &mut Reactor, report: &Report) {
        let Some(running) = self.running.as_deref_mut() else { return };
        let Some(bash) = self.state.bash_mut() else { return };
        match running.step.stage {
            Stage::Before => {
                let failed =
                    report.code != 0 || !report.whole || running.interrupts.escalation.is_some();
                running.result.code = if report.whole { 1 } else { report.code };
                let noise = std::mem::take(&mut running.output.own_step_stderr);
                let whole = report.whole && running.interrupts.escalation.is_none();
                if whole && report.code == bash_protocol::NO_DIRECTORY {
                    running.result.refusal = Some((RefusalReason::BadCwd, no_directory(&noise)));
                    return self.clean_up(reactor);
                }
                if failed {
                    self.report_start();
                }
                let Some(running) = self.running.as_deref_mut() else { return };
                let traced = self.state.bash().is_some_and(|bash| bash.xtrace);
                if failed || !traced {
                    running.output.counts[1] += noise.len() as u64;
                    self.log.push_output(STDERR, Some(&running.key), &noise);
                }
                if failed { self.clean_up(reactor) } else { self.run_text(reactor) }
            }
            Stage::Main => {
                let held = running.output.tty_warning.rest();
                let mut rest = running.output.stderr_filter.push(&held);
                rest.extend(running.output.stderr_filter.finish(report));
                running.output.counts[1] += rest.len() as u64;
                self.log.push_output(STDERR, Some(&running.key), &rest);
                running.result.code = report.code;
                bash.last = report.code;
                running.stdin.pipe = None;
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
        self.history.bytes += text.len();
        self.history.texts.push_back(text);
        while self.history.texts.len() > HISTORY_MAX.0 || self.history.bytes > HISTORY_MAX.1 {
            self.history.bytes -= self.history.texts.pop_front().map_or(0, |text| text.len());
        }
    }

    /// Reports the command's exit. `death` is set if bash ended with this code and signal.
    pub(super) fn finish(&mut self, reactor: &mut Reactor, death: Option<(i32, Option<i32>)>) {
        let refused = self.running.as_ref().is_some_and(|running| running.result.refusal.is_some());
        if !refused {
            self.report_start();
        }
        let Some(mut running) = self.running.take() else { return };
        let held = running.output.tty_warning.rest();
        let mut rest = running.output.stderr_filter.push(&held);
        rest.extend(
            running
                .output
                .stderr_filter
                .finish_at_exit(death.is_some_and(|(_, signal)| signal.is_none())),
        );
        let noise = std::mem::take(&mut running.output.own_step_stderr);
        let traced = self.state.bash().is_some_and(|bash| bash.xtrace);
        for bytes in [rest, if traced { Vec::new() } else { noise }] {
            running.output.counts[1] += bytes.len() as u64;
            self.log.push_output(STDERR, Some(&running.key), &bytes);
        }
        let took = reactor.now.duration_since(running.started_at);
        let exit = CommandExit {
            id: running.key.id.clone(),
            code: death.map_or(running.result.code, |(code, _)| code),
            signal: death.and_then(|(_, signal)| signal),
            timed_out: running.result.timed_out,
            cancelled: running.result.cancelled,
            oom: took >= OOM_AFTER && reactor.oom_kills(false) > running.oom_kills_before,
            fresh: running.first_in_new_bash,
            ends_shell: death.is_some(),
            out: running.output.counts[0],
            err: running.output.counts[1],
            lost: 0,
            micros: took.as_micros() as u64,
            seq: 0,
        };
        let note = match running.result.refusal.take() {
            Some((reason, message)) => LogEvent::Refused(running.key.clone(), reason, message),
            None => {
                let from = running.output.start;
                LogEvent::Exit(running.key.clone(), EndedCommand { exit, from })
            }
        };
        self.log.push_event(note);
        reactor.notify_watchers(self.id);
        if death.is_none() {
            self.saves.command_ended(reactor.now);
            if running.interrupts.line_may_be_lost {
                self.steps.sweep_since = Some(running.started_ticks);
                self.resync(reactor);
            } else {
                self.start_next(reactor);
            }
        }
    }

    /// Requests reports until bash answers, because it may still drop a line after an interrupt.
    /// The next command starts only after that.
    pub(super) fn resync(&mut self, reactor: &mut Reactor) {
        let tries = self.steps.resync.as_ref().map_or(0, |resync| resync.tries + 1);
        if !self.sweep(reactor, tries) {
            let wait = ReactionWait::new(reactor.now, FORKS_WAIT, self.bash_and_children());
            self.steps.resync = Some(Resync { wait, tries });
            // No report was requested with this number; the shell is just not free yet.
            self.steps.number += 1;
            self.steps.awaited = Some(self.steps.number);
            return;
        }
        let pause = Duration::from_millis(if tries < SETTLE_SOON { 20 } else { 200 });
        let wait = ReactionWait::new(reactor.now, pause, vec![self.pid()]);
        self.steps.resync = Some(Resync { wait, tries });
        self.steps.number += 1;
        self.steps.awaited = Some(self.steps.number);
        if let Some(bash) = self.state.bash_mut() {
            let mut lines = String::new();
            bash_protocol::request_report(&mut lines, bash.prefix, self.steps.number);
            bash.write(reactor, self.id, lines.as_bytes());
        }
    }

    /// Requests the report of the awaited step again.
    pub(super) fn request_report_again(&mut self, reactor: &Reactor) {
        let Some(number) = self.steps.awaited else { return };
        if let Some(bash) = self.state.bash_mut() {
            let mut lines = String::new();
            bash_protocol::request_report(&mut lines, bash.prefix, number);
            bash.write(reactor, self.id, lines.as_bytes());
        }
    }

    /// Writes a line without effect. When bash has read it, bash is back at its reader.
    pub(super) fn write_empty_line(bash: &mut Bash, reactor: &Reactor, id: u64) {
        bash.write(reactor, id, b"\n");
    }
}
