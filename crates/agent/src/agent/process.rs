//! What is done with orders about processes in the background, and who follows them.

use super::Agent;
use crate::connection::{Follower, Role};
use crate::process::{self, Process};
use crate::reactor::poll::{Ready, Source};
use isolet_wire::process::{ENDED_MAX, LIVE_MAX, Order, Start};
use isolet_wire::tell::{STDERR, STDOUT, Tell, Why};
use rustix::io::Errno;
use std::time::Duration;

/// The longest id, in bytes.
const ID_BYTES_MAX: usize = 128;
/// The longest grace: an hour.
const GRACE_MS_MAX: u64 = 3_600_000;
/// Processes in one message of a list: it stays far below the longest frame.
const LIST_PART: usize = 64;
/// Followers of one process.
const FOLLOWERS_MAX: usize = 64;

impl Agent {
    pub(super) fn process(&mut self, id: u64, order: Order) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(id, None, Why::BadAsk, "this connection has another use");
        }
        match order {
            Order::Start(start) => self.process_start(id, start),
            Order::List => {
                let all: Vec<_> =
                    self.processes.values().filter(|one| one.named()).map(Process::told).collect();
                for part in all.chunks(LIST_PART) {
                    self.tell(id, &Tell::Processes(part.to_vec()));
                }
                self.tell(id, &Tell::Done);
            }
            Order::Get(name) => {
                if let Some(process) = self.process_of(id, &name) {
                    let told = self.processes[&process].told();
                    self.tell(id, &Tell::Process(told));
                }
            }
            Order::Follow { id: name, since, follow } => {
                if let Some(process) = self.process_of(id, &name) {
                    self.process_follow(id, process, since, follow);
                }
            }
            Order::Input { id: name, data, eof } => {
                if let Some(process) = self.process_of(id, &name) {
                    self.process_input(id, process, &data, eof);
                }
            }
            Order::Signal { id: name, signal, all } => self.process_signal(id, &name, signal, all),
            Order::Kill { id: name, signal, grace_ms } => {
                if !(1..=64).contains(&signal) {
                    return self.refuse(id, None, Why::BadAsk, "signals are 1 to 64");
                }
                if let Some(process) = self.process_of(id, &name) {
                    let Some(process) = self.processes.get_mut(&process) else { return };
                    let grace = Duration::from_millis(grace_ms.min(GRACE_MS_MAX));
                    process.closers.push(id);
                    process.kill(&mut self.reactor, signal, grace);
                }
            }
            Order::Forget(name) => match self.process_named(&name) {
                None => self.tell(id, &Tell::Done),
                Some(process) => {
                    let Some(process) = self.processes.get_mut(&process) else { return };
                    process.forgotten = true;
                    process.forgetters.push(id);
                    process.kill(&mut self.reactor, 9, Duration::ZERO);
                }
            },
        }
    }

    fn process_named(&self, name: &str) -> Option<u64> {
        let mut all = self.processes.iter();
        all.find(|(_, process)| process.name == name && process.named()).map(|(id, _)| *id)
    }

    /// The process of this name; where there is none the connection is told.
    fn process_of(&mut self, id: u64, name: &str) -> Option<u64> {
        let found = self.process_named(name);
        if found.is_none() {
            self.refuse(id, None, Why::NoSuchProcess, format!("there is no process {name}"));
        }
        found
    }

    fn process_start(&mut self, id: u64, start: Start) {
        if start.id.is_empty() || start.id.len() > ID_BYTES_MAX {
            return self.refuse(id, None, Why::BadAsk, "a process has an id of 1 to 128 bytes");
        }
        let taken = |process: &Process| process.name == start.id && !process.forgotten;
        if self.processes.values().any(taken) {
            let message = format!("there is a process {}", start.id);
            return self.refuse(id, None, Why::IdInUse, message);
        }
        let live = self.processes.values().filter(|process| !process.over()).count();
        if live >= LIVE_MAX {
            let message = format!("at most {LIVE_MAX} processes; end one of them");
            return self.refuse(id, None, Why::TooMany, message);
        }
        let process_id = self.reactor.next_id();
        match Process::start(&mut self.reactor, process_id, id, start) {
            Ok(process) => {
                self.processes.insert(process_id, process);
                self.reactor.pending.processes.mark(process_id);
                self.process_logs();
            }
            Err((why, message)) => self.refuse(id, None, why, message),
        }
    }

    /// Shares the room for logs among all.
    fn process_logs(&mut self) {
        let bytes = process::log_bytes(self.processes.len());
        self.processes.values_mut().for_each(|process| process.limit(bytes));
    }

    fn process_follow(&mut self, id: u64, of: u64, since: Option<u64>, follow: bool) {
        let Some(process) = self.processes.get_mut(&of) else { return };
        if process.followers.len() >= FOLLOWERS_MAX {
            let message = format!("at most {FOLLOWERS_MAX} follow one process");
            return self.refuse(id, None, Why::TooMany, message);
        }
        let log = process.enter(since);
        let (position, until) = (log.position, process.end_now(follow));
        process.followers.push(id);
        self.tell(id, &Tell::ProcessLog(log));
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.role = Role::Process(Follower {
            process: of,
            position,
            until,
            last_progress: self.reactor.now,
            caught_up: true,
        });
        self.reactor.pending.processes.mark(of);
    }

    fn process_input(&mut self, id: u64, of: u64, data: &[u8], eof: bool) {
        let Some(process) = self.processes.get_mut(&of) else { return };
        match process.input(&self.reactor, data, eof) {
            Ok(()) => self.tell(id, &Tell::Done),
            Err(Errno::AGAIN) => {
                let message = "the process has not read what it was given before";
                self.refuse(id, None, Why::QueueFull, message);
            }
            Err(_) => self.refuse(id, None, Why::Ended, "the process takes no input"),
        }
    }

    fn process_signal(&mut self, id: u64, name: &str, signal: i32, all: bool) {
        if !(1..=64).contains(&signal) {
            return self.refuse(id, None, Why::BadAsk, "signals are 1 to 64");
        }
        let Some(of) = self.process_of(id, name) else { return };
        if self.processes[&of].signal(&self.reactor, signal, all) {
            self.tell(id, &Tell::Done);
        } else {
            self.refuse(id, None, Why::Ended, "the process has ended");
        }
    }

    pub(super) fn process_event(&mut self, ready: Ready) {
        let Some(process) = self.processes.get_mut(&ready.id) else { return };
        match ready.source {
            Source::ProcessOut => process.readable(&mut self.reactor, STDOUT),
            Source::ProcessErr => process.readable(&mut self.reactor, STDERR),
            Source::ProcessStdin => process.feed(&self.reactor),
            Source::ProcessGroup => process.changed(&mut self.reactor),
            _ => self.process_born(ready.id),
        }
    }

    /// Whether its program was executed may be known. One that was not is told of no more, and
    /// forgotten once its child was reaped.
    fn process_born(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some((why, message)) = process.born(&mut self.reactor) else { return };
        process.forgotten = true;
        let (starter, waiting) = (process.starter.take(), process.waiting());
        starter.into_iter().chain(waiting).for_each(|conn| {
            self.refuse(conn, None, why, message.clone());
        });
    }

    pub(super) fn process_died(
        &mut self,
        id: u64,
        pid: i32,
        code: Option<i32>,
        signal: Option<i32>,
    ) {
        if !self.processes.get(&id).is_some_and(|process| process.is(pid)) {
            return;
        }
        // Whether it was executed at all is told by another descriptor, perhaps not yet read.
        self.process_born(id);
        if let Some(process) = self.processes.get_mut(&id).filter(|process| process.is(pid)) {
            process.died(&mut self.reactor, code, signal);
        }
    }

    /// The connection follows no process any more.
    pub(super) fn leave_process(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Role::Process(follower) = &conn.role else { return };
        let of = follower.process;
        conn.role = Role::Ready;
        if let Some(process) = self.processes.get_mut(&of) {
            process.followers.retain(|conn| *conn != id);
            self.reactor.pending.processes.mark(of);
        }
    }

    /// After every round: answers, sends, reads on, forgets what is over.
    pub(super) fn flush_process(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.opened()
            && let Some(starter) = process.starter.take()
        {
            let told = process.told();
            self.tell(starter, &Tell::Process(told));
        }
        let gone = self.pump_process(id);
        gone.into_iter().for_each(|conn| self.hang_up(conn));
        let Some(process) = self.processes.get_mut(&id) else { return };
        let followers =
            process.followers.iter().filter_map(|conn| match &self.conns.get(conn)?.role {
                Role::Process(follower) => Some(follower),
                _ => None,
            });
        let waits = process.waits(self.reactor.now, followers);
        process.flow(&mut self.reactor, waits);
        if process.over() {
            self.process_over(id);
        }
    }

    /// Sends every follower what it has not; gives those that have gone.
    fn pump_process(&mut self, id: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        let Some(process) = self.processes.get(&id) else { return gone };
        let mut done = Vec::new();
        for conn_id in process.followers.clone() {
            let Some(conn) = self.conns.get_mut(&conn_id) else { continue };
            let Role::Process(mut follower) = conn.role else { continue };
            let sent = process.pump(conn, &mut follower, self.reactor.now);
            conn.role = Role::Process(follower);
            match sent {
                Err(_) => gone.push(conn_id),
                Ok(all) => {
                    if all {
                        done.push(conn_id);
                    }
                    if conn.take_resumable() {
                        self.reactor.pending.connections.mark(conn_id);
                    }
                    conn.update_interest(&self.reactor.poll);
                }
            }
        }
        let told = Tell::Process(process.told());
        for conn in done {
            self.leave_process(conn);
            self.tell(conn, &told);
        }
        gone
    }

    /// Nothing of it is left: who waited for that is told; the oldest of many is forgotten.
    fn process_over(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let closers = std::mem::take(&mut process.closers);
        let forgetters = std::mem::take(&mut process.forgetters);
        let (forgotten, told) = (process.forgotten, process.told());
        closers.into_iter().for_each(|conn| self.tell(conn, &Tell::Process(told.clone())));
        if forgotten {
            self.process_drop(id);
        }
        forgetters.into_iter().for_each(|conn| self.tell(conn, &Tell::Done));
        let over: Vec<_> =
            self.processes.iter().filter(|(_, one)| one.over()).map(|(id, _)| *id).collect();
        let spare = over.len().saturating_sub(ENDED_MAX);
        over.into_iter().take(spare).for_each(|id| self.process_drop(id));
    }

    fn process_drop(&mut self, id: u64) {
        let Some(process) = self.processes.remove(&id) else { return };
        // They were told its end, or were not yet sent all: what is left of its log goes with it.
        process.followers.into_iter().for_each(|conn| self.hang_up(conn));
        self.process_logs();
    }
}
