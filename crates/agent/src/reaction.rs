//! Tells processes that do not react from processes that could not.
//!
//! What the agent sends a process, a signal or a line, is followed by something stronger if the
//! process does not react. On a busy machine, in a sandbox at its processor limit, or frozen from
//! outside, a process may not run at all for seconds. Time in which it had no chance to react does
//! not count here, so that it is not killed for being slow.
//!
//! | state of a process | what counts |
//! |---|---|
//! | it waits, or is stopped | the time, without what it spent waiting for a processor |
//! | it waits although a signal is pending (it is frozen) | nothing |
//! | it wants to run | four times its processor time, at most the time |
//! | it waits for a disk, or is frozen (`D`) | nothing |
//!
//! Of several processes, the one with the least chance decides. Time in which the agent itself did
//! not look does not count either: it may have been without a processor, too. Every wait ends after
//! ten times its length, whatever the processes do.

use crate::process_tree::{ProcessHandle, ProcessorTime};
use std::time::{Duration, Instant};

/// Pause between two looks at the processes, and the least pause, before a limit. The kernel counts
/// the time of a process that goes on running every few milliseconds.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(10);
/// The most time that counts from one look to the next.
const LOOK_MAX: Duration = Duration::from_millis(50);
/// A process that gets this part of one processor (one in 4) counts as running all the time: what a process
/// needs for a reaction is far less than the time that it is given for it.
const SHARES: u32 = 4;
/// How many times its length a wait lasts at most.
const STRETCH_MAX: u32 = 10;
/// Maximum number of processes that are looked at. The others are most likely programs of the same
/// kind.
const PROCESSES_MAX: usize = 16;

/// The time that some processes had for a reaction, since a moment.
#[derive(Debug, Clone)]
pub(crate) struct ReactionTime {
    /// The last look, or the start.
    looked_at: Instant,
    /// The processes at the last look; `None` before the first.
    samples: Option<Vec<Sample>>,
    /// The time in which all of them could have reacted.
    chance: Duration,
    /// The time in which the agent looked at them.
    total: Duration,
}

/// A process at the last look.
#[derive(Debug, Clone, Copy)]
struct Sample {
    process: ProcessHandle,
    used: ProcessorTime,
}

/// A moment of a [`ReactionTime`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReactionLimit {
    chance: Duration,
    total: Duration,
}

impl ReactionTime {
    /// Starts to count.
    #[must_use]
    pub(crate) fn new(now: Instant) -> Self {
        Self { looked_at: now, samples: None, chance: Duration::ZERO, total: Duration::ZERO }
    }

    /// When the next look is due, while this limit is waited for.
    #[must_use]
    pub(crate) fn next_look(&self, limit: ReactionLimit) -> Instant {
        if self.samples.is_none() {
            return self.looked_at;
        }
        let left = limit.chance.saturating_sub(self.chance);
        self.looked_at + left.clamp(LOOK_PAUSE_MIN, LOOK_PAUSE)
    }

    /// Looks at these processes, if that is due. Those that are gone are passed over, and a new one
    /// does not count before the next look.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        limit: ReactionLimit,
        pids: impl FnOnce() -> Vec<i32>,
    ) {
        if now < self.next_look(limit) {
            return;
        }
        let passed = now.duration_since(self.looked_at).min(LOOK_MAX);
        self.looked_at = now;
        let mut samples = Vec::new();
        let mut chance = passed;
        let before = self.samples.take().unwrap_or_default();
        let processes = pids().into_iter().filter_map(ProcessHandle::read);
        for process in processes.take(PROCESSES_MAX) {
            let sample = Sample { process, used: ProcessorTime::read(&process) };
            if let Some(before) = before.iter().find(|old| old.process.is_same(&process)) {
                chance = chance.min(chance_of(&sample, before.used, passed));
            }
            samples.push(sample);
        }
        self.samples = Some(samples);
        self.chance += chance;
        self.total += passed;
    }

    /// The limit that is reached when the processes have had this time from now on.
    #[must_use]
    pub(crate) fn limit(&self, time: Duration) -> ReactionLimit {
        ReactionLimit { chance: self.chance + time, total: self.total + time * STRETCH_MAX }
    }

    /// The limit that is reached when the processes have had this time since the start.
    #[must_use]
    pub(crate) fn limit_since_start(time: Duration) -> ReactionLimit {
        ReactionLimit { chance: time, total: time * STRETCH_MAX }
    }

    /// Whether the processes have had the time of this limit, or were waited for ten times as long.
    #[must_use]
    pub(crate) fn has_reached(&self, limit: ReactionLimit) -> bool {
        self.chance >= limit.chance || self.total >= limit.total
    }
}

/// How much of the `passed` time the process could have used for a reaction.
fn chance_of(sample: &Sample, before: ProcessorTime, passed: Duration) -> Duration {
    let process = &sample.process;
    if process.wants_to_run() {
        let ran = sample.used.ran.saturating_sub(before.ran);
        return passed.min(ran * SHARES);
    }
    if process.is_uninterruptible() || process.is_sleeping() && process.signals().is_held_back() {
        return Duration::ZERO;
    }
    passed.saturating_sub(sample.used.waited.saturating_sub(before.waited))
}

/// A wait for the reaction of processes, which ends when they have had the time for it.
#[derive(Debug, Clone)]
pub(crate) struct ReactionWait {
    time: ReactionTime,
    limit: ReactionLimit,
}

impl ReactionWait {
    /// Starts to wait for these processes.
    #[must_use]
    pub(crate) fn new(now: Instant, time: Duration, pids: Vec<i32>) -> Self {
        let limit = ReactionTime::limit_since_start(time);
        let mut time = ReactionTime::new(now);
        time.look(now, limit, || pids);
        Self { time, limit }
    }

    /// When the next look is due.
    #[must_use]
    pub(crate) fn next_look(&self) -> Instant {
        self.time.next_look(self.limit)
    }

    /// Looks at these processes, if that is due. Returns whether they have had the time for a
    /// reaction.
    pub(crate) fn is_over(&mut self, now: Instant, pids: impl FnOnce() -> Vec<i32>) -> bool {
        self.time.look(now, self.limit, pids);
        self.time.has_reached(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// Looks at a process every 20 ms by a clock of its own until the limit is reached. Returns the
    /// time on that clock.
    fn reached_after(pid: i32, limit: Duration, pause: Duration) -> Duration {
        let start = Instant::now();
        let mut time = ReactionTime::new(start);
        let limit = ReactionTime::limit_since_start(limit);
        let mut at = Duration::ZERO;
        loop {
            time.look(start + at, limit, || vec![pid]);
            if time.has_reached(limit) {
                return at;
            }
            std::thread::sleep(pause);
            at += LOOK_PAUSE;
        }
    }

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn bash(text: &str) -> (Ended, i32) {
        let child = Command::new("bash").args(["-c", text]).spawn().expect("bash runs");
        let pid = child.id() as i32;
        (Ended(child), pid)
    }

    #[test]
    fn a_process_that_waits_has_its_chance_at_once() {
        let (_child, pid) = bash("read -t 100 <> <(:)");
        while !ProcessHandle::read(pid).expect("it lives").is_sleeping() {}
        let took = reached_after(pid, Duration::from_millis(400), Duration::ZERO);
        assert!(took <= Duration::from_millis(440), "{took:?}");
    }

    #[test]
    fn a_process_that_is_gone_is_not_waited_for() {
        let took = reached_after(i32::MAX, Duration::from_millis(100), Duration::ZERO);
        assert_eq!(took, Duration::from_millis(100));
    }

    /// It runs for as long as the test sleeps between two looks, on a loaded machine for less, and
    /// the clock of the test does not know how long that is.
    #[test]
    fn a_process_that_runs_reaches_the_limit() {
        let (_child, pid) = bash("while :; do :; done");
        while !ProcessHandle::read(pid).expect("it lives").wants_to_run() {}
        let took = reached_after(pid, Duration::from_millis(100), LOOK_PAUSE);
        assert!(took < Duration::from_millis(1000), "{took:?}");
    }

    /// Without any time between the looks, the process could not run.
    #[test]
    fn a_process_without_a_processor_is_waited_for_ten_times_as_long() {
        let (_child, pid) = bash("while :; do :; done");
        while !ProcessHandle::read(pid).expect("it lives").wants_to_run() {}
        let time = ReactionTime::limit_since_start(Duration::from_millis(100));
        assert_eq!(time.total, Duration::from_millis(1000));
        let sample = |ran, waited| {
            let process = ProcessHandle::read(pid).expect("it lives");
            Sample { process, used: ProcessorTime { ran, waited } }
        };
        let ms = Duration::from_millis;
        let before = ProcessorTime { ran: ms(7), waited: ms(0) };
        assert_eq!(chance_of(&sample(ms(7), ms(0)), before, ms(20)), ms(0));
        assert_eq!(chance_of(&sample(ms(8), ms(0)), before, ms(20)), ms(4));
        assert_eq!(chance_of(&sample(ms(27), ms(0)), before, ms(20)), ms(20));
    }

    #[test]
    fn time_without_a_look_does_not_count() {
        let start = Instant::now();
        let mut time = ReactionTime::new(start);
        let limit = ReactionTime::limit_since_start(Duration::from_millis(400));
        let pid = std::process::id() as i32;
        time.look(start, limit, || vec![pid]);
        time.look(start + Duration::from_secs(3600), limit, || vec![pid]);
        assert!(!time.has_reached(limit));
    }
}
