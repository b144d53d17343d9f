//! Sends the log of a process to its followers, each of which is only a position in it.
//!
//! The process waits while the fastest follower is half a log behind, but not for followers that
//! have stopped reading: a follower that does not disconnect delays nothing.

use super::Process;
use crate::connection::{Conn, Follower, SEND_BYTES};
use crate::reactor::Reactor;
use isolet_wire::process::ProcessLogStart;
use isolet_wire::response::AgentResponse;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// A follower that has read nothing for this long is not waited for, unless it asked for patience.
pub(crate) const STALL: Duration = Duration::from_millis(50);

impl Process {
    /// The start position for a follower that asked for `since`, and the first message.
    pub(crate) fn start_following(&self, since: Option<u64>) -> ProcessLogStart {
        let head = self.output.journal.head();
        ProcessLogStart {
            process: self.describe(),
            position: since.map_or(head, |since| since.min(head)),
        }
    }

    /// The end of the log for a follower that does not wait, or that comes after the end.
    pub(crate) fn follow_end(&self, follow: bool) -> Option<u64> {
        (!follow || self.has_ended()).then(|| self.output.journal.head())
    }

    /// Sends a follower what it lacks and accepts now. Returns `true` if it has everything.
    ///
    /// # Errors
    /// The peer has disconnected.
    pub(crate) fn pump(
        &self,
        conn: &mut Conn,
        follower: &mut Follower,
        now: Instant,
    ) -> Result<bool, Errno> {
        let end = self.follower_end(follower);
        let before = conn.queued_bytes();
        if std::mem::take(&mut follower.caught_up) {
            follower.last_progress = now;
        }
        loop {
            while conn.queued_bytes() < SEND_BYTES && self.step(conn, follower, end) {}
            let all = follower.position >= end.unwrap_or_else(|| self.output.journal.head());
            let flushed = conn.flush()?;
            follower.caught_up = flushed && all;
            if follower.caught_up || conn.queued_bytes() < before {
                follower.last_progress = now;
            }
            if !flushed || all {
                return Ok(all && end.is_some());
            }
        }
    }

    /// The position at which a follower receives the status; `None` while the process continues. If
    /// the process ends after a follower asked for the current log, the follower also receives the
    /// last bytes, so that no follower learns of the end before the output.
    fn follower_end(&self, follower: &Follower) -> Option<u64> {
        let last = self.phase.ended().map(|ended| ended.output_end);
        match follower.until {
            Some(until) => Some(last.map_or(until, |last| until.max(last))),
            None => last,
        }
    }

    /// Queues the next part. Returns `false` if there is none.
    fn step(&self, conn: &mut Conn, follower: &mut Follower, end: Option<u64>) -> bool {
        if end.is_some_and(|end| follower.position >= end) {
            return false;
        }
        let first = self.output.journal.first();
        if follower.position < first {
            let to = end.map_or(first, |end| first.min(end));
            conn.queue_message(&AgentResponse::ProcessGap { from: follower.position, to });
            follower.position = to;
            return true;
        }
        let Some(part) = self.output.journal.part(follower.position) else { return false };
        let left = end.map_or(u64::MAX, |end| end - part.position);
        let count = part.bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        conn.queue_data(part.stream, part.offset, &part.bytes[..count]);
        follower.position = part.position + count as u64;
        true
    }

    /// Until when the program waits for its followers; `None` if it does not.
    pub(crate) fn paused_until<'a>(
        &self,
        now: Instant,
        followers: impl Iterator<Item = &'a Follower>,
    ) -> Option<Instant> {
        let mut fastest = None;
        for follower in followers.filter(|follower| follower.until.is_none()) {
            let stalls = follower.last_progress + follower.patience;
            if stalls > now && fastest.is_none_or(|(at, _)| follower.position > at) {
                fastest = Some((follower.position, stalls));
            }
        }
        let (position, stalls) = fastest?;
        let behind = self.output.journal.head() - position;
        (behind > self.output.limit as u64 / 2).then_some(stalls)
    }

    /// Continues to read after every round, unless reading must pause.
    pub(crate) fn apply_backpressure(&mut self, reactor: &mut Reactor, waits: Option<Instant>) {
        let read = waits.is_none() && reactor.may_read_processes();
        self.set_listening(reactor, read);
        self.arm_timer(reactor, waits);
    }
}
