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
//! handler for a wait and before it stored the previous one; that handler then signals itself.
//! About one interrupt in a thousand hits it in a loop that does nothing but start programs or
//! subshells of a millisecond. The last step of the escalation ends it after 1.5 s, and the session
//! gets a new shell.

use super::Shell;
use super::bash::Bash;
use super::running::{INTERRUPT_RETRY, InterruptState};
use crate::process_tree::{self, Process};
use crate::reactor::Reactor;
use crate::signals::{CONT, INT, KILL, STOP, TERM};
use isolet_sys::signal;
use std::time::Duration;

/// A command younger than this may just be starting a program.
const YOUNG: Duration = Duration::from_millis(20);
/// How long bash may take to wait for something. While it sets up a wait there is a moment in which
/// an interrupt makes it signal itself for ever (5.2: its handler is in place, and the one to go
/// back to is not yet kept).
const REST_MAX: Duration = Duration::from_millis(4);
/// After this it may as well wait for something other than a program.
const REST_LEAST: Duration = Duration::from_millis(1);
/// How long each further step of an interrupt may take; and the time between two looks.
const STEP_MAX: Duration = Duration::from_millis(100);
const STEP_PAUSE: Duration = Duration::from_micros(200);
/// How long bash may take from its reader to its answer. If it were interrupted there, it would say
/// a newline that nobody could tell from the command's.
const ANSWER_MAX: Duration = Duration::from_millis(2);
/// Questions after an interrupt, 20 ms apart, until what is left of the command is asked harder to
/// end; and how often copies of bash are waited for.
const SWEEP_TERM: u32 = 20;
const SWEEP_KILL: u32 = 35;
const SWEEP_COPIES_MAX: u32 = 5;

/// Children of bash since then that may still be mere copies of it: a copy has its parent's
/// handlers, would act on an interrupt as if it were the shell, and take the shell's further
/// lines. Some stay copies for good, and do no such thing.
fn bash_forks(bash: &Process, since: u64) -> Vec<i32> {
    let shell = bash.signals();
    let copy = |child: &Process| {
        let own = child.signals();
        let part = own.caught & !shell.caught == 0 && own.catches_interrupt();
        own.caught == shell.caught || part && child.is_young()
    };
    let mut found = process_tree::children_of(bash.pid);
    found.retain(|child| child.start >= since && copy(child));
    found.into_iter().map(|child| child.pid).collect()
}

/// Whether a child of bash has ended that it has not taken notice of.
fn has_ended(bash: i32) -> bool {
    process_tree::children_of(bash).iter().any(Process::is_zombie)
}

/// Interrupts processes of which none is to see another one's end before its own. They stand
/// parents first, so that none sees a child stopped either.
fn interrupt_together(processes: &[Process]) {
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
    /// An interrupt, in steps. Bash stops, so that nothing is forked beside it. If it waits for a
    /// program, both are interrupted while it stands: in another order it would take the program's
    /// end for an ordinary one, or forget its own interrupt at another end, and go on with what
    /// comes after. Else, and when that did not do it, bash is interrupted alone, and when it has
    /// noticed and is not back at its reader then, again with its programs: so one interrupt falls
    /// between two programs that end by themselves.
    pub(super) fn advance_interrupt(&mut self, reactor: &Reactor) {
        let pid = self.pid();
        let Some(running) = self.running.as_mut() else { return };
        let Some(bash) = Process::read(pid) else { return };
        if running.interrupt == InterruptState::Idle {
            running.interrupt = InterruptState::WaitingForRest(reactor.now + REST_MAX);
        }
        if let InterruptState::WaitingForRest(until) = running.interrupt {
            let waits = !running.bash_was_stopped && process_tree::waits_for_child(pid);
            let rests = bash.is_sleeping() && reactor.now + REST_MAX >= until + REST_LEAST;
            if waits || rests || running.bash_was_stopped || reactor.now >= until {
                running.bash_was_stopped = true;
                running.interrupt = InterruptState::Stopping(reactor.now + STEP_MAX, waits);
                let _ = signal::send(pid, STOP);
            }
        }
        if let InterruptState::Stopping(until, waits) = running.interrupt
            && (bash.is_stopped() && bash_forks(&bash, running.started_ticks).is_empty()
                || reactor.now >= until)
        {
            if self.bash.as_ref().is_some_and(Bash::has_read_everything) {
                // It has read the line with which it reports: an interrupt would tear that.
                let _ = signal::send(pid, CONT);
                running.interrupt = InterruptState::Idle;
                if let Some(escalation) = running.escalation.as_mut() {
                    escalation.retry_at(reactor.now + INTERRUPT_RETRY);
                }
                return;
            }
            let _ = signal::send(pid, INT);
            let together = waits && !has_ended(pid);
            if together {
                self.interrupt_each(reactor, together);
            } else {
                running.known_forks = bash_forks(&bash, running.started_ticks);
                running.interrupt = InterruptState::Interrupted(reactor.now + STEP_MAX);
            }
            let _ = signal::send(pid, CONT);
            if together {
                self.request_report_again(reactor);
                return;
            }
        }
        let Some(running) = self.running.as_mut() else { return };
        let known = &running.known_forks;
        let fresh =
            || bash_forks(&bash, running.started_ticks).iter().any(|copy| !known.contains(copy));
        if let InterruptState::Interrupted(until) = running.interrupt
            && (!bash.signals().interrupt_pending() && !fresh() || reactor.now >= until)
        {
            running.interrupt = InterruptState::WaitingForReport(reactor.now + ANSWER_MAX);
            self.request_report_again(reactor);
        }
        let Some(running) = self.running.as_mut() else { return };
        if let InterruptState::WaitingForReport(until) = running.interrupt
            && (process_tree::waits_for_child(pid) || reactor.now >= until)
        {
            if self.bash.as_ref().is_some_and(Bash::has_read_everything) {
                running.interrupt = InterruptState::Idle;
                if let Some(escalation) = running.escalation.as_mut() {
                    escalation.retry_at(reactor.now + INTERRUPT_RETRY);
                }
                return;
            }
            self.interrupt_each(reactor, false);
            self.request_report_again(reactor);
            return;
        }
        if let Some(escalation) =
            self.running.as_mut().and_then(|running| running.escalation.as_mut())
        {
            escalation.retry_at(reactor.now + STEP_PAUSE);
        }
    }

    /// The last step. `stands`: bash has its interrupt and is stopped.
    fn interrupt_each(&mut self, reactor: &Reactor, stands: bool) {
        let Some(since) = self.running.as_ref().map(|running| running.started_ticks) else {
            return;
        };
        let targets = self.interrupt_targets(reactor, since, stands);
        // Bash forgets an interrupt when the program that it waits for ends in another way. But
        // with a trap of its own it may be running that by now, and the programs of that.
        if let Some(running) = self.running.as_mut() {
            running.interrupt = InterruptState::Idle;
            let fresh = reactor.now.duration_since(running.step_written_at) < YOUNG;
            if let Some(escalation) =
                running.escalation.as_mut().filter(|_| fresh || !self.may_have_traps)
            {
                escalation.retry_at(reactor.now + INTERRUPT_RETRY);
            }
            running.interrupted_processes = targets;
        }
    }

    /// Sends SIGINT to what was started since then and does not ignore it; gives what that was. A
    /// whole group at once, where nothing else is in it: of a pipeline nobody is to see another
    /// one's end before its own. Bash is in its programs' group; it is interrupted with them,
    /// unless it `stands` and was.
    fn interrupt_targets(&self, reactor: &Reactor, since: u64, stands: bool) -> Vec<Process> {
        let (targets, others) = self.interruptible(reactor, since);
        let spared = Process::read(self.pid()).filter(|_| stands).map(|bash| bash.group);
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
            if Process::read(target.pid).is_some_and(|now| now.group != target.group) {
                // It left its group meanwhile, as setsid(1) does.
                target.send(INT);
            }
        }
        targets
    }

    /// Of what runs below bash and does not ignore SIGINT: what was started since then, and what
    /// else is in the groups of that.
    pub(super) fn interruptible(
        &self,
        reactor: &Reactor,
        since: u64,
    ) -> (Vec<Process>, Vec<Process>) {
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

    pub(super) fn is_since(&self, process: &Process, since: u64) -> bool {
        // In the hundredth of a second of its start a background job of the command before looks
        // as if it were this one's.
        process.start > since
            || process.start == since
                && !self.background_jobs.iter().any(|job| job.is_same(process))
    }

    /// What an interrupted command left running in the foreground, when bash was back at its
    /// reader before its programs were interrupted, is ended now; and bash is not asked whether it
    /// is back before a copy of it has become something else. `false`: not yet.
    pub(super) fn sweep(&mut self, reactor: &Reactor, tries: u32) -> bool {
        let Some(since) = self.sweep_since else { return true };
        let Some(bash) = Process::read(self.pid()) else { return true };
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
