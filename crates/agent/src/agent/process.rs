//! Handles requests about background processes and flushes their followers.

use super::Agent;
use crate::connection::{Follower, Role};
use crate::process::follow::STALL;
use crate::process::{self, Process};
use crate::reactor::poll::{EventSource, Ready};
use isolet_wire::process::{
    ENDED_MAX, FollowMode, LIVE_MAX, PATIENCE_MS, ProcessRequest, StartProcess,
};
use isolet_wire::response::{AgentResponse, RefusalReason, STDERR, STDOUT};
use rustix::io::Errno;
use std::time::Duration;

/// How long a process waits for a follower that asked for patience.
const PATIENCE: Duration = Duration::from_millis(PATIENCE_MS);
/// Maximum length of an id, in bytes.
const ID_BYTES_MAX: usize = 128;
/// Maximum grace period: one hour.
const GRACE_MS_MAX: u64 = 3_600_000;
/// Number of processes in one message of a list, far below the maximum size of a frame.
const LIST_PART: usize = 64;
/// Maximum number of followers of one process.
const FOLLOWERS_MAX: usize = 64;

impl Agent {
    pub(super) fn process(&mut self, id: u64, request: ProcessRequest) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "this connection has another use",
            );
        }
        match request {
            ProcessRequest::Start(start) => self.process_start(id, start),
            ProcessRequest::List => {
                let all: Vec<_> = self
                    .processes
                    .values()
                    .filter(|one| one.is_visible())
                    .map(Process::describe)
                    .collect();
                for part in all.chunks(LIST_PART) {
                    self.send(id, &AgentResponse::Processes(part.to_vec()));
                }
                self.send(id, &AgentResponse::Done);
            }
            ProcessRequest::Get(name) => {
                if let Some(process) = self.process_of(id, &name) {
                    let status = self.processes[&process].describe();
                    self.send(id, &AgentResponse::Process(status));
                }
            }
            ProcessRequest::Follow { id: name, since, mode } => {
                let patience = match mode {
                    FollowMode::Current => None,
                    FollowMode::Live => Some(STALL),
                    FollowMode::Patient => Some(PATIENCE),
                };
                if let Some(process) = self.process_of(id, &name) {
                    self.process_follow(id, process, since, patience);
                }
            }
            ProcessRequest::Input { id: name, data, eof } => {
                if let Some(process) = self.process_of(id, &name) {
                    self.process_input(id, process, &data, eof);
                }
            }
            ProcessRequest::Signal { id: name, signal, all } => {
                self.process_signal(id, &name, signal, all)
            }
            ProcessRequest::Kill { id: name, signal, grace_ms } => {
                if !(1..=64).contains(&signal) {
                    return self.refuse(id, None, RefusalReason::BadRequest, "signals are 1 to 64");
                }
                if let Some(process) = self.process_of(id, &name) {
                    let Some(process) = self.processes.get_mut(&process) else { return };
                    let grace = Duration::from_millis(grace_ms.min(GRACE_MS_MAX));
                    process.exit_waiters.push(id);
                    process.kill(&mut self.reactor, signal, grace);
                }
            }
            ProcessRequest::Forget(name) => match self.process_named(&name) {
                None => self.send(id, &AgentResponse::Done),
                Some(process) => {
                    let Some(process) = self.processes.get_mut(&process) else { return };
                    process.forgotten = true;
                    process.forget_waiters.push(id);
                    process.kill(&mut self.reactor, 9, Duration::ZERO);
                }
            },
        }
    }

    fn process_named(&self, name: &str) -> Option<u64> {
        let mut all = self.processes.iter();
        all.find(|(_, process)| process.name == name && process.is_visible()).map(|(id, _)| *id)
    }

    /// Finds a process by its id. If there is none, the request is refused.
    fn process_of(&mut self, id: u64, name: &str) -> Option<u64> {
        let found = self.process_named(name);
        if found.is_none() {
            self.refuse(
                id,
                None,
                RefusalReason::NoSuchProcess,
                format!("there is no process {name}"),
            );
        }
        found
    }

    fn process_start(&mut self, id: u64, start: StartProcess) {
        if start.id.is_empty() || start.id.len() > ID_BYTES_MAX {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "a process has an id of 1 to 128 bytes",
            );
        }
        let taken = |process: &Process| process.name == start.id && !process.forgotten;
        if self.processes.values().any(taken) {
            let message = format!("there is a process {}", start.id);
            return self.refuse(id, None, RefusalReason::IdInUse, message);
        }
        let live = self.processes.values().filter(|process| !process.is_over()).count();
        if live >= LIVE_MAX {
            let message = format!("at most {LIVE_MAX} processes; end one of them");
            return self.refuse(id, None, RefusalReason::TooMany, message);
        }
        let process_id = self.reactor.next_id();
        match Process::start(&mut self.reactor, process_id, id, start) {
            Ok(process) => {
                self.processes.insert(process_id, process);
                self.reactor.pending.processes.mark(process_id);
                self.process_logs();
            }
            Err((reason, message)) => self.refuse(id, None, reason, message),
        }
    }

    /// Divides the room for logs among all processes.
    fn process_logs(&mut self) {
        let bytes = process::log_bytes(self.processes.len());
        self.processes.values_mut().for_each(|process| process.set_log_limit(bytes));
    }

    /// Sends a connection the log of a process. `patience`: how long the process waits for it;
    /// `None` sends only what the log holds now.
    fn process_follow(&mut self, id: u64, of: u64, since: Option<u64>, patience: Option<Duration>) {
        let Some(process) = self.processes.get_mut(&of) else { return };
        if process.followers.len() >= FOLLOWERS_MAX {
            let message = format!("at most {FOLLOWERS_MAX} follow one process");
            return self.refuse(id, None, RefusalReason::TooMany, message);
        }
        let log = process.start_following(since);
        let position = log.position;
        let until = process.follow_end(patience.is_some());
        process.followers.push(id);
        self.send(id, &AgentResponse::ProcessLog(log));
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.role = Role::Process(Follower {
            process: of,
            position,
            until,
            last_progress: self.reactor.now,
            patience: patience.unwrap_or_default(),
            caught_up: true,
        });
        self.reactor.pending.processes.mark(of);
    }

    fn process_input(&mut self, id: u64, of: u64, data: &[u8], eof: bool) {
        let Some(process) = self.processes.get_mut(&of) else { return };
        match process.push_stdin(&self.reactor, data, eof) {
            Ok(()) => self.send(id, &AgentResponse::Done),
            Err(Errno::AGAIN) => {
                let message = "the process has not read what it was given before";
                self.refuse(id, None, RefusalReason::QueueFull, message);
            }
            Err(_) => self.refuse(id, None, RefusalReason::Ended, "the process takes no input"),
        }
    }

    fn process_signal(&mut self, id: u64, name: &str, signal: i32, all: bool) {
        if !(1..=64).contains(&signal) {
            return self.refuse(id, None, RefusalReason::BadRequest, "signals are 1 to 64");
        }
        let Some(of) = self.process_of(id, name) else { return };
        if self.processes[&of].signal(&self.reactor, signal, all) {
            self.send(id, &AgentResponse::Done);
        } else {
            self.refuse(id, None, RefusalReason::Ended, "the process has ended");
        }
    }

    pub(super) fn process_event(&mut self, ready: Ready) {
        let Some(process) = self.processes.get_mut(&ready.id) else { return };
        match ready.source {
            EventSource::ProcessOut => process.on_output(&mut self.reactor, STDOUT),
            EventSource::ProcessErr => process.on_output(&mut self.reactor, STDERR),
            EventSource::ProcessStdin => process.write_stdin(&self.reactor),
            EventSource::ProcessGroup => process.on_group_changed(&mut self.reactor),
            _ => self.process_exec_status(ready.id),
        }
    }

    /// The exec status of a program may be available. A program that was not executed is no longer
    /// reported, and is removed after its child was reaped.
    fn process_exec_status(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some((reason, message)) = process.on_exec_status(&mut self.reactor) else { return };
        process.forgotten = true;
        let starter = process.starter.take();
        let waiting = process.take_waiters();
        starter.into_iter().chain(waiting).for_each(|conn| {
            self.refuse(conn, None, reason, message.clone());
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
        // Another descriptor, which may not have been read yet, tells whether the program was
        // executed at all.
        self.process_exec_status(id);
        if let Some(process) = self.processes.get_mut(&id).filter(|process| process.is(pid)) {
            process.on_exit(&mut self.reactor, code, signal);
        }
    }

    /// The connection stops following a process.
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

    /// After every round: answers, sends, continues to read, and removes ended processes.
    pub(super) fn flush_process(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.is_executed()
            && let Some(starter) = process.starter.take()
        {
            let status = process.describe();
            self.send(starter, &AgentResponse::Process(status));
        }
        let gone = self.pump_process(id);
        gone.into_iter().for_each(|conn| self.close_connection(conn));
        let Some(process) = self.processes.get_mut(&id) else { return };
        let followers =
            process.followers.iter().filter_map(|conn| match &self.conns.get(conn)?.role {
                Role::Process(follower) => Some(follower),
                _ => None,
            });
        let waits = process.paused_until(self.reactor.now, followers);
        process.apply_backpressure(&mut self.reactor, waits);
        if process.is_over() {
            self.process_over(id);
        }
    }

    /// Sends every follower what it lacks. Returns the disconnected followers.
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
        let response = AgentResponse::Process(process.describe());
        for conn in done {
            self.leave_process(conn);
            self.send(conn, &response);
        }
        gone
    }

    /// Nothing of the process is left: answers the waiting connections, and removes the oldest
    /// process of many.
    fn process_over(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let exit_waiters = std::mem::take(&mut process.exit_waiters);
        let forget_waiters = std::mem::take(&mut process.forget_waiters);
        let forgotten = process.forgotten;
        let status = process.describe();
        exit_waiters
            .into_iter()
            .for_each(|conn| self.send(conn, &AgentResponse::Process(status.clone())));
        if forgotten {
            self.process_drop(id);
        }
        forget_waiters.into_iter().for_each(|conn| self.send(conn, &AgentResponse::Done));
        let over: Vec<_> =
            self.processes.iter().filter(|(_, one)| one.is_over()).map(|(id, _)| *id).collect();
        let spare = over.len().saturating_sub(ENDED_MAX);
        over.into_iter().take(spare).for_each(|id| self.process_drop(id));
    }

    fn process_drop(&mut self, id: u64) {
        let Some(process) = self.processes.remove(&id) else { return };
        // The followers have received the end or have not read everything. The rest of the log is
        // removed with the process.
        process.followers.into_iter().for_each(|conn| self.close_connection(conn));
        self.process_logs();
    }
}
