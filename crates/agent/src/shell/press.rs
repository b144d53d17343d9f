//! One interrupt of a running command, so that bash, its programs and the shell all take it for
//! what it is; and what is left over afterwards.

use super::Shell;
use super::end::{INT, KILL, TERM};
use super::run::CONT;
use crate::hub::Hub;
use crate::tree::{self, Process};
use isolet_sys::signal;
use std::time::{Duration, Instant};

const STOP: i32 = 19;
/// A command younger than this may just be starting a program.
const YOUNG: Duration = Duration::from_millis(20);
/// How long each step of an interrupt may take; and the time between two looks.
const PRESS_MAX: Duration = Duration::from_millis(100);
const PRESS_PAUSE: Duration = Duration::from_micros(200);
/// Between interrupts of which the first may have been lost.
pub(super) const AGAIN: Duration = Duration::from_millis(30);
/// Questions after an interrupt, 20 ms apart, until what is left of the command is asked harder to
/// end; and how often copies of bash are waited for.
const SWEEP_TERM: u32 = 20;
const SWEEP_KILL: u32 = 35;
const SWEEP_COPIES_MAX: u32 = 5;
/// How far an interrupt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Press {
    /// None is under way.
    Up,
    /// Bash was told to stop, and has until then.
    Stops(Instant),
    /// Bash was interrupted, and has until then to notice.
    Notices(Instant),
}

/// Children of bash since then that may still be mere copies of it: a copy has its parent's
/// handlers, would act on an interrupt as if it were the shell, and take the shell's further
/// lines. Some stay copies for good, and do no such thing.
fn copies(bash: &Process, since: u64) -> Vec<i32> {
    let shell = bash.signals();
    let copy = |child: &Process| {
        let own = child.signals();
        let part = own.caught & !shell.caught == 0 && own.catches_interrupt();
        own.caught == shell.caught || part && child.young()
    };
    let mut found = tree::children_of(bash.pid);
    found.retain(|child| child.start >= since && copy(child));
    found.into_iter().map(|child| child.pid).collect()
}

impl Shell {
    /// An interrupt, in steps: bash stops, so that nothing is forked beside it; bash is
    /// interrupted; and when it has noticed, its programs are. In another order it would take a
    /// program's end for an ordinary one and go on with what comes after.
    pub(super) fn press(&mut self, hub: &Hub) {
        let pid = self.pid();
        let Some(running) = self.running.as_mut() else { return };
        if running.press == Press::Up {
            running.press = Press::Stops(hub.now + PRESS_MAX);
            let _ = signal::send(pid, STOP);
        }
        let Some(bash) = Process::read(pid) else { return };
        if let Press::Stops(until) = running.press
            && (bash.stopped() && copies(&bash, running.ticks).is_empty() || hub.now >= until)
        {
            running.copies = copies(&bash, running.ticks);
            running.press = Press::Notices(hub.now + PRESS_MAX);
            let _ = signal::send(pid, INT);
            let _ = signal::send(pid, CONT);
        }
        let known = &running.copies;
        let fresh = || copies(&bash, running.ticks).iter().any(|copy| !known.contains(copy));
        if let Press::Notices(until) = running.press
            && (!bash.signals().interrupt_pending() && !fresh() || hub.now >= until)
        {
            running.press = Press::Up;
            self.interrupt_each(hub);
            self.ask_again(hub);
            return;
        }
        if let Some(ladder) = running.ladder.as_mut() {
            ladder.again(hub.now + PRESS_PAUSE);
        }
    }

    fn interrupt_each(&mut self, hub: &Hub) {
        let Some(since) = self.running.as_ref().map(|running| running.ticks) else { return };
        let targets = self.strike(hub, since);
        // Bash forgets an interrupt when the program that it waits for ends in another way. But
        // with a trap of its own it may be running that by now, and the programs of that.
        if let Some(running) = self.running.as_mut() {
            let fresh = hub.now.duration_since(running.stepped) < YOUNG;
            if let Some(ladder) = running.ladder.as_mut().filter(|_| fresh || !self.traps) {
                ladder.again(hub.now + AGAIN);
            }
            running.interrupted = targets;
        }
    }

    /// Sends SIGINT to what was started since then and does not ignore it; gives what that was. A whole group at once, where nothing else is in it: of a pipeline nobody is to see
    /// another one's end before its own.
    fn strike(&self, hub: &Hub, since: u64) -> Vec<Process> {
        let (targets, others) = self.sorted(hub, since);
        let mut groups = Vec::new();
        for target in &targets {
            if others.iter().any(|other| other.group == target.group) {
                target.send(INT);
            } else if !groups.contains(&target.group) {
                groups.push(target.group);
                // Bash is in its programs' group, and takes no harm from a second interrupt.
                let _ = signal::send(-target.group, INT);
            }
        }
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
    pub(super) fn sorted(&self, hub: &Hub, since: u64) -> (Vec<Process>, Vec<Process>) {
        let all = tree::below(self.pid(), |pid| hub.parents.contains_key(&pid));
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
            || process.start == since && !self.jobs.iter().any(|job| job.is(process))
    }

    /// What an interrupted command left running in the foreground, when bash was back at its
    /// reader before its programs were interrupted, is ended now; and bash is not asked whether it
    /// is back before a copy of it has become something else. `false`: not yet.
    pub(super) fn sweep(&mut self, hub: &Hub, tries: u32) -> bool {
        let Some(since) = self.sweeping else { return true };
        let Some(bash) = Process::read(self.pid()) else { return true };
        if !copies(&bash, since).is_empty() && tries < SWEEP_COPIES_MAX {
            return false;
        }
        let number = match tries {
            0..SWEEP_TERM => INT,
            SWEEP_TERM..SWEEP_KILL => TERM,
            _ => KILL,
        };
        let (targets, _) = self.sorted(hub, since);
        targets.iter().for_each(|process| process.send(number));
        true
    }
}
