//! Interrupts a running command so that bash and its programs all see the interrupt, and ends what
//! an interrupted command leaves behind.
//!
//! An interrupt (a cancel or a timeout) is not one signal:
//!
//! - The agent waits up to 4 ms until bash waits for something, and stops it, so that it forks
//!   nothing in parallel. It then waits until no child is a mere copy of bash with bash's handlers.
//! - If bash waits for a program, both get SIGINT while bash is stopped, and bash continues last.
//!   It takes that for a Ctrl-C and prints one newline, which `stderr_filter` removes.
//! - If bash does something else, or the program had just ended, bash alone gets SIGINT and
//!   continues. If it is not back at its reader soon, it and its programs get one more.
//!
//! In another order bash takes a program's end for an ordinary one and continues with the line, or
//! a copy of it reads the shell's input. A lost interrupt is sent again unless a process that
//! received it still runs. Stronger signals follow by the schedule of [`super::escalation`].
//! Processes that bash abandoned are ended before the next command.
//!
//! Known limit: bash 5.2 can spin for ever when an interrupt meets it after it installed its
//! handler for a wait and before it stored the previous one; that handler then signals itself. If
//! bash stops at the end of the system call that installs the handler, the agent lets it continue
//! and stops it again. The few instructions behind that call, and the further interrupts of a bash
//! that is not stopped, remain. The last step of the escalation ends a bash that spins after 1.5 s
//! ([`super::escalation`]), and the session gets a new shell.

use super::Shell;
use super::bash::Bash;
use super::running_command::{INTERRUPT_RETRY, InterruptState};
use crate::process_tree::{self, ProcessHandle};
use crate::reactor::Reactor;
use crate::signals::{CONT, INT, KILL, STOP, TERM};
use isolet_sys::signal;
use std::time::Duration;

/// A command younger than this may just be starting a program.
const YOUNG: Duration = Duration::from_millis(20);
/// How long bash may take to start waiting. While bash sets up a wait, there is a moment in which
/// an interrupt makes it signal itself forever (in 5.2: its handler is installed, and the previous
/// one is not saved yet).
const REST_MAX: Duration = Duration::from_millis(4);
/// After this time, bash may wait for something other than a program.
const REST_LEAST: Duration = Duration::from_millis(1);
/// How often an interrupt lets bash continue because bash has just installed a handler for SIGINT.
const HANDLER_RETRIES_MAX: u32 = 20;
/// Timeout of each further step of an interrupt, of the time in which bash could react.
const STEP_MAX: Duration = Duration::from_millis(100);
const STEP_PAUSE: Duration = Duration::from_micros(200);
/// Time for bash to get from its reader to its report. An interrupt during this time would print a
/// newline that cannot be distinguished from the command's output.
const ANSWER_MAX: Duration = Duration::from_millis(2);
/// Number of report requests, 20 ms apart, before the rest of a command gets a stronger signal and
/// before forks of bash are no longer waited for.
const SWEEP_TERM: u32 = 20;
const SWEEP_KILL: u32 = 35;
const SWEEP_COPIES_MAX: u32 = 5;

/// Children of bash since a moment that may still be forks of it. A fork has its parent's handlers,
/// would handle an interrupt as if it were the shell, and would read the shell's lines. Some
/// children remain forks and do none of this.
fn bash_forks(bash: &ProcessHandle, since: u64) -> Vec<i32> {
    let shell = bash.signals();
    let copy = |child: &ProcessHandle| {
        let own = child.signals();
        let part = own.caught & !shell.caught == 0 && own.catches_interrupt();
        own.caught == shell.caught || part && child.is_young()
    };
    let mut found = process_tree::children_of(bash.pid);
    found.retain(|child| child.start >= since && copy(child));
    found.into_iter().map(|child| child.pid).collect()
}

/// Whether a child of bash has ended that bash has not noticed yet.
fn has_ended(bash: i32) -> bool {
    process_tree::children_of(bash).iter().any(ProcessHandle::is_zombie)
}

/// Interrupts processes together, so that none sees another's end before its own signal. The
/// parents come first, so that none sees a stopped child.
fn interrupt_together(processes: &[ProcessHandle]) {
    let several = processes.len() > 1;
    if several {
        processes.iter().for_each(|process| process.send(STOP));
    }
    processes.iter().for_each(|process| process.send(INT));
    if several {
        processes.iter().rev().for_each(|process| process.send(CONT));
    }
}

impl Shell {
    /// Interrupts a command in steps. First, bash is stopped so that it cannot fork. If it waits
    /// for a program, both receive SIGINT while bash is stopped: otherwise bash would treat the
    /// program's end as an ordinary one, or forget its own interrupt, and continue with the next
    /// command. In all other cases, bash alone is interrupted. If it has handled the signal and is
    /// not back at its reader, it is interrupted again with its programs, so that an interrupt may
    /// fall between two programs that end normally.
    pub(super) fn advance_interrupt(&mut self, reactor: &Reactor) {
        let pid = self.pid();
        let Some(running) = self.running.as_mut() else { return };
        let Some(bash) = ProcessHandle::read(pid) else { return };
        if running.interrupts.state == InterruptState::Idle {
            running.interrupts.state = InterruptState::WaitingForRest(reactor.now + REST_MAX);
        }
        let Some(escalation) = &running.interrupts.escalation else { return };
        let step_limit = escalation.limit(STEP_MAX);
        if let InterruptState::WaitingForRest(until) = running.interrupts.state {
            let waits = !running.interrupts.bash_was_stopped && process_tree::waits_for_child(pid);
            let rests = bash.is_sleeping() && reactor.now + REST_MAX >= until + REST_LEAST;
            if waits || rests || running.interrupts.bash_was_stopped || reactor.now >= until {
                running.interrupts.bash_was_stopped = true;
                running.interrupts.state = InterruptState::Stopping(step_limit, waits);
                let _ = signal::send(pid, STOP);
            }
        }
        if matches!(running.interrupts.state, InterruptState::Stopping(..))
            && running.interrupts.handler_retries < HANDLER_RETRIES_MAX
            && bash.is_stopped()
            && signal::has_just_set_handler(pid, INT)
        {
            running.interrupts.handler_retries += 1;
            running.interrupts.bash_was_stopped = false;
            running.interrupts.state = InterruptState::WaitingForRest(reactor.now + REST_MAX);
            let _ = signal::send(pid, CONT);
        }
        if let InterruptState::Stopping(limit, waits) = running.interrupts.state
            && (bash.is_stopped() && bash_forks(&bash, running.started_ticks).is_empty()
                || running.has_reached(limit))
        {
            if self.state.bash().is_some_and(Bash::has_read_everything) {
                // Bash has read the line with which it reports, and an interrupt would damage the
                // report.
                let _ = signal::send(pid, CONT);
                running.interrupts.state = InterruptState::Idle;
                if let Some(escalation) = running.interrupts.escalation.as_mut() {
                    escalation.retry_after(reactor.now, INTERRUPT_RETRY);
                }
                return;
            }
            let _ = signal::send(pid, INT);
            let together = waits && !has_ended(pid);
            if together {
                self.interrupt_each(reactor, together);
            } else {
                running.interrupts.known_forks = bash_forks(&bash, running.started_ticks);
                running.interrupts.state = InterruptState::Interrupted(step_limit);
            }
            let _ = signal::send(pid, CONT);
            if together {
                self.request_report_again(reactor);
                return;
            }
        }
        let Some(running) = self.running.as_mut() else { return };
        let known = &running.interrupts.known_forks;
        let fresh =
            || bash_forks(&bash, running.started_ticks).iter().any(|copy| !known.contains(copy));
        if let InterruptState::Interrupted(limit) = running.interrupts.state
            && (!bash.signals().interrupt_pending() && !fresh() || running.has_reached(limit))
        {
            running.interrupts.state = InterruptState::WaitingForReport(reactor.now + ANSWER_MAX);
            self.request_report_again(reactor);
        }
        let Some(running) = self.running.as_mut() else { return };
        if let InterruptState::WaitingForReport(until) = running.interrupts.state
            && (process_tree::waits_for_child(pid) || reactor.now >= until)
        {
            if self.state.bash().is_some_and(Bash::has_read_everything) {
                running.interrupts.state = InterruptState::Idle;
                if let Some(escalation) = running.interrupts.escalation.as_mut() {
                    escalation.retry_after(reactor.now, INTERRUPT_RETRY);
                }
                return;
            }
            self.interrupt_each(reactor, false);
            self.request_report_again(reactor);
            return;
        }
        if let Some(escalation) =
            self.running.as_mut().and_then(|running| running.interrupts.escalation.as_mut())
        {
            escalation.look_at(reactor.now + STEP_PAUSE);
        }
    }

    /// The last step. With `stands`, bash has received its interrupt and is stopped.
    fn interrupt_each(&mut self, reactor: &Reactor, stands: bool) {
        let Some(since) = self.running.as_ref().map(|running| running.started_ticks) else {
            return;
        };
        let targets = self.interrupt_targets(reactor, since, stands);
        // Bash forgets an interrupt if the program that it waits for ends in another way. With a
        // trap, however, it may already run the trap and its programs.
        if let Some(running) = self.running.as_mut() {
            running.interrupts.state = InterruptState::Idle;
            let fresh = reactor.now.duration_since(running.step.written_at) < YOUNG;
            if let Some(escalation) =
                running.interrupts.escalation.as_mut().filter(|_| fresh || !self.may_have_traps)
            {
                escalation.retry_after(reactor.now, INTERRUPT_RETRY);
            }
            running.interrupts.processes = targets;
        }
    }

    /// Sends SIGINT to processes that were started since a moment and do not ignore it, and returns
    /// them. A process group without other members is signalled as a whole, so that no process of a
    /// pipeline sees another's end before its own signal. Bash is in the process group of its
    /// programs, so it is interrupted with them unless it already was.
    fn interrupt_targets(&self, reactor: &Reactor, since: u64, stands: bool) -> Vec<ProcessHandle> {
        let (targets, others) = self.interruptible(reactor, since);
        let spared = ProcessHandle::read(self.pid()).filter(|_| stands).map(|bash| bash.group);
        let mut groups = Vec::new();
        let mut beside = Vec::new();
        for target in &targets {
            if others.iter().any(|other| other.group == target.group) {
                target.send(INT);
            } else if spared == Some(target.group) {
                beside.push(*target);
            } else if !groups.contains(&target.group) {
                groups.push(target.group);
                let _ = signal::send(-target.group, INT);
            }
        }
        interrupt_together(&beside);
        for target in targets.iter().filter(|target| groups.contains(&target.group)) {
            if ProcessHandle::read(target.pid).is_some_and(|now| now.group != target.group) {
                // The process has left its group in the meantime, as setsid(1) does.
                target.send(INT);
            }
        }
        targets
    }

    /// The descendants of bash that do not ignore SIGINT and were started since a moment, and the
    /// other members of their process groups.
    pub(super) fn interruptible(
        &self,
        reactor: &Reactor,
        since: u64,
    ) -> (Vec<ProcessHandle>, Vec<ProcessHandle>) {
        let all = process_tree::descendants(self.pid(), |pid| reactor.children.contains_key(&pid));
        let (mut new, mut old): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|process| self.is_since(process, since));
        new.retain(|process| !process.signals().ignore_interrupt());
        old.retain(|process| {
            new.iter().any(|target| target.group == process.group)
                && !process.signals().ignore_interrupt()
        });
        (new, old)
    }

    pub(super) fn is_since(&self, process: &ProcessHandle, since: u64) -> bool {
        // In the hundredth of a second of its start, a background job of the previous command looks
        // like one of this command.
        process.start > since
            || process.start == since
                && !self.background_jobs.iter().any(|job| job.is_same(process))
    }

    /// Ends foreground processes that an interrupted command left behind because bash was back at
    /// its reader before they were interrupted. Returns `false` while a fork of bash has not become
    /// another program yet, because bash must not be asked for a report before that.
    pub(super) fn sweep(&mut self, reactor: &Reactor, tries: u32) -> bool {
        let Some(since) = self.steps.sweep_since else { return true };
        let Some(bash) = ProcessHandle::read(self.pid()) else { return true };
        if !bash_forks(&bash, since).is_empty() && tries < SWEEP_COPIES_MAX {
            return false;
        }
        let number = match tries {
            0..SWEEP_TERM => INT,
            SWEEP_TERM..SWEEP_KILL => TERM,
            _ => KILL,
        };
        let (targets, _) = self.interruptible(reactor, since);
        targets.iter().for_each(|process| process.send(number));
        true
    }
}
