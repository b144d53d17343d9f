//! Sends the log of a process to its followers: each has a position in it, and nothing else.
//!
//! The process waits while the fastest of them is half a log behind, and for none that has read
//! nothing for a moment: a follower that forgot to disconnect holds nothing up.

use super::Process;
use crate::connection::{Conn, Follower, SEND_BYTES};
use crate::reactor::Reactor;
use isolet_wire::process::Log;
use isolet_wire::response::AgentResponse;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// One that has taken nothing for so long is not waited for.
const STALL: Duration = Duration::from_millis(50);

impl Process {
    /// Where a follower begins that asked for this position, and what it is told first.
    pub(crate) fn start_following(&self, since: Option<u64>) -> Log {
        let head = self.journal.head();
        Log { process: self.describe(), position: since.map_or(head, |since| since.min(head)) }
    }

    /// Where the log ends for one who does not wait, or who comes after the end.
    pub(crate) fn follow_end(&self, follow: bool) -> Option<u64> {
        (!follow || self.end.is_some()).then(|| self.journal.head())
    }

    /// Sends a follower what it has not and takes now. `true`: it has all there is to be had.
    ///
    /// # Errors
    /// The peer has gone.
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
            let all = follower.position >= end.unwrap_or_else(|| self.journal.head());
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

    /// The position at which a follower is told how the process is; `None`: it goes on. A process
    /// may end after a follower asked for what there was: it is then sent the last bytes too, so
    /// that none hears of an end before the output that belongs to it.
    fn follower_end(&self, follower: &Follower) -> Option<u64> {
        let last = self.end.as_ref().map(|_| self.own_output_end);
        match follower.until {
            Some(until) => Some(last.map_or(until, |last| until.max(last))),
            None => last,
        }
    }

    /// Puts the next part in line; `false`: there is none.
    fn step(&self, conn: &mut Conn, follower: &mut Follower, end: Option<u64>) -> bool {
        if end.is_some_and(|end| follower.position >= end) {
            return false;
        }
        let first = self.journal.first();
        if follower.position < first {
            let to = end.map_or(first, |end| first.min(end));
            conn.queue_message(&AgentResponse::ProcessGap { from: follower.position, to });
            follower.position = to;
            return true;
        }
        let Some(part) = self.journal.part(follower.position) else { return false };
        let left = end.map_or(u64::MAX, |end| end - part.position);
        let count = part.bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        conn.queue_data(part.stream, part.offset, &part.bytes[..count]);
        follower.position = part.position + count as u64;
        true
    }

    /// Until when the program waits for those who follow it; `None`: it does not.
    pub(crate) fn paused_until<'a>(
        &self,
        now: Instant,
        followers: impl Iterator<Item = &'a Follower>,
    ) -> Option<Instant> {
        let mut fastest = None;
        for follower in followers.filter(|follower| follower.until.is_none()) {
            let stalls = follower.last_progress + STALL;
            if stalls > now && fastest.is_none_or(|(at, _)| follower.position > at) {
                fastest = Some((follower.position, stalls));
            }
        }
        let (position, stalls) = fastest?;
        let behind = self.journal.head() - position;
        (behind > self.log_limit as u64 / 2).then_some(stalls)
    }

    /// After every round: reads on, unless it is to wait.
    pub(crate) fn apply_backpressure(&mut self, reactor: &mut Reactor, waits: Option<Instant>) {
        let read = waits.is_none() && reactor.may_read_processes();
        self.set_listening(reactor, read);
        self.arm_timer(reactor, waits);
    }
}
