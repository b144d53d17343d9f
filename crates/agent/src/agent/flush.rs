//! The end of every round: sends output, resumes reading, and removes what has ended.

use super::Agent;
use crate::connection::Role;
use crate::exec::Exec;
use crate::reactor::Timer;
use crate::shell::ShellState;
use isolet_wire::response::AgentResponse;
use std::time::Duration;

/// Changes of a shell within this time are reported to watchers together. Opening and ending are
/// also reported at once.
const WATCH_PAUSE: Duration = Duration::from_millis(20);
/// How long the start of a command waits for its first output, so that both are sent together.
const STARTED_PAUSE: Duration = Duration::from_millis(5);

impl Agent {
    /// Sends what a connection has queued.
    pub(super) fn send_queued(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let sent = match &conn.role {
            Role::Shell(client) => {
                let shell = client.shell;
                self.reactor.pending.shells.mark(shell);
                return;
            }
            Role::Terminal(terminal_client) => {
                self.reactor.pending.terminals.mark(terminal_client.terminal);
                return;
            }
            Role::Process(follower) => {
                self.reactor.pending.processes.mark(follower.process);
                return;
            }
            Role::Exec(exec) => {
                self.reactor.pending.execs.mark(*exec);
                conn.flush()
            }
            Role::Context(context) => {
                self.reactor.pending.contexts.mark(*context);
                conn.flush()
            }
            _ => conn.flush(),
        };
        match sent {
            Ok(_) => {
                conn.update_interest(&self.reactor.poll);
                if conn.take_resumable() {
                    self.reactor.pending.connections.mark(id);
                }
            }
            Err(_) => self.close_connection(id),
        }
    }

    /// Flushes everything that is pending.
    pub(super) fn flush(&mut self) {
        if std::mem::take(&mut self.reactor.notify_at_once) && !self.watchers.is_empty() {
            // Reported again after the pause, with the state at that time.
            let unreported = self.reactor.unreported.clone();
            self.report_to_watchers();
            self.reactor.unreported = unreported;
        }
        if self.delayed_until.is_some_and(|due| due <= self.reactor.now) {
            self.delayed_until = None;
            let delayed = std::mem::take(&mut self.delayed);
            delayed.into_iter().for_each(|id| self.reactor.pending.shells.mark(id));
        }
        self.check_watchers();
        while !self.reactor.pending.shells.is_empty()
            || !self.reactor.pending.execs.is_empty()
            || self.save_all()
        {
            for id in self.reactor.pending.execs.take() {
                self.flush_exec(id);
            }
            for id in self.reactor.pending.shells.take() {
                if self.contexts.contains_key(&id) {
                    self.reactor.pending.contexts.mark(id);
                } else {
                    self.flush_shell(id);
                }
            }
        }
        for id in self.reactor.pending.terminals.take() {
            self.flush_terminal(id);
        }
        for id in self.reactor.pending.processes.take() {
            self.flush_process(id);
        }
        for id in self.reactor.pending.contexts.take() {
            self.flush_context(id);
        }
        if !self.reactor.unreported.is_empty() {
            if self.watchers.is_empty() {
                self.reactor.unreported.take();
            } else if !self.watch_timer_set {
                self.watch_timer_set = true;
                self.reactor.set_timer(self.reactor.now + WATCH_PAUSE, Timer::Watch);
            }
        }
    }

    pub(super) fn flush_exec(&mut self, id: u64) {
        let Some(exec) = self.execs.get_mut(&id) else { return };
        let conn_id = exec.conn;
        let mut conn = conn_id.and_then(|conn| self.conns.get_mut(&conn));
        if let Some(conn) = &mut conn {
            let _ = conn.flush();
        }
        let exit_message = exec.forward_output(&mut self.reactor, conn.as_deref_mut());
        if let Some(conn) = conn {
            conn.input_paused &= !exec.has_stdin_room();
            if let Some(exit_message) = &exit_message {
                conn.queue_message(exit_message);
                conn.role = Role::Ready;
                conn.input_paused = false;
            }
            let waited = conn.queued_bytes() > 0;
            let _ = conn.flush();
            if waited && conn.queued_bytes() == 0 && exit_message.is_none() {
                // No event reports room in a socket that was full only briefly, so the program is
                // flushed again.
                self.reactor.pending.execs.mark(id);
            }
            conn.update_interest(&self.reactor.poll);
            if conn.take_resumable() {
                conn_id.into_iter().for_each(|id| self.reactor.pending.connections.mark(id));
            }
        }
        if exit_message.is_some() {
            exec.conn = None;
            self.notify_exec_count();
        }
        if self.execs.get(&id).is_some_and(Exec::is_finished) {
            self.execs.remove(&id);
        }
    }

    pub(super) fn flush_shell(&mut self, id: u64) {
        loop {
            self.report_opened(id);
            let gone = self.pump_clients(id);
            gone.into_iter().for_each(|conn| self.close_connection(conn));
            let Some(shell) = self.shells.get_mut(&id) else { return };
            let mut fastest = shell.last_detached.cursor;
            let mut last_progress = shell.last_detached.at;
            let mut first = true;
            for client in &shell.clients {
                let Some(Role::Shell(client)) = self.conns.get(client).map(|conn| &conn.role)
                else {
                    continue;
                };
                if !shell.waits_for(&client.view.owner) {
                    continue;
                }
                last_progress = if first {
                    client.last_progress
                } else {
                    last_progress.max(client.last_progress)
                };
                if first || shell.log.lag(&client.cursor) < shell.log.lag(&fastest) {
                    fastest = client.cursor;
                }
                first = false;
            }
            shell.apply_backpressure(&mut self.reactor, fastest, last_progress);
            if !shell.drain_ended_step(&mut self.reactor) {
                break;
            }
        }
        self.report_saved(id);
        self.forget_shell_if_done(id);
    }

    /// Sends every client of a shell what it lacks. Returns the disconnected clients.
    pub(super) fn pump_clients(&mut self, id: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        let Some(shell) = self.shells.get_mut(&id) else { return gone };
        let now = self.reactor.now;
        let delay = shell.only_start_unsent(now, STARTED_PAUSE)
            && self.delayed_until.is_none_or(|due| due > now);
        if delay {
            self.delayed_until.get_or_insert(now + STARTED_PAUSE);
            self.delayed.push(id);
            return gone;
        }
        shell.mark_sent();
        for conn_id in &shell.clients {
            let Some(conn) = self.conns.get_mut(conn_id) else { continue };
            match conn.pump(&shell.log, now) {
                Ok(()) => {
                    if conn.input_paused
                        && let Role::Shell(client) = &conn.role
                    {
                        conn.input_paused = !shell.has_stdin_room(&client.view.owner);
                    }
                    if conn.take_resumable() {
                        self.reactor.pending.connections.mark(*conn_id);
                    }
                    conn.update_interest(&self.reactor.poll);
                }
                Err(_) => gone.push(*conn_id),
            }
        }
        gone
    }

    /// Answers clients that wait for the result of opening their shell.
    pub(super) fn report_opened(&mut self, id: u64) {
        let Some(shell) = self.shells.get_mut(&id) else { return };
        if matches!(shell.state, ShellState::Opening(_)) {
            return;
        }
        let mut refused = Vec::new();
        for conn_id in &shell.clients {
            let Some(conn) = self.conns.get_mut(conn_id) else { continue };
            let Role::Shell(client) = &mut conn.role else { continue };
            if client.attach_reported {
                continue;
            }
            if let ShellState::Failed(reason, message) = &shell.state {
                let message = message.clone();
                conn.queue_message(&AgentResponse::Refused { id: None, reason: *reason, message });
                refused.push(*conn_id);
                continue;
            }
            client.attach_reported = true;
            let fresh = client.opened_shell;
            let at = shell.log.end_since();
            conn.queue_message(&AgentResponse::Attached { pid: shell.pid(), fresh, at });
        }
        for conn in refused {
            self.detach(conn, id);
            self.send_queued(conn);
        }
    }

    /// Answers connections that wait for a shell's end, and removes the shell if it is no longer
    /// needed.
    pub(super) fn forget_shell_if_done(&mut self, id: u64) {
        let Some(shell) = self.shells.get_mut(&id) else { return };
        if shell.is_over() {
            if self.shells_by_key.get(&shell.key) == Some(&id) {
                self.shells_by_key.remove(&shell.key);
            }
            for closer in std::mem::take(&mut shell.closers) {
                self.send(closer, &AgentResponse::Done);
            }
        }
        let Some(shell) = self.shells.get(&id) else { return };
        if shell.is_over() || (shell.state.is_dead() && !shell.is_session()) {
            for client in shell.clients.clone() {
                let informed = self.conns.get(&client).is_none_or(|conn| match &conn.role {
                    Role::Shell(client) => {
                        client.attach_reported && self.shells[&id].log.lag(&client.cursor).1 == 0
                    }
                    _ => true,
                });
                if informed {
                    self.detach(client, id);
                    self.send_queued(client);
                }
            }
        }
        if self.shells.get(&id).is_some_and(|shell| shell.can_be_forgotten(self.reactor.now)) {
            if !self.watchers.is_empty() && self.reactor.unreported.contains(id) {
                self.report_to_watchers();
            }
            self.forget(id);
        }
    }
}
