//! Attaches clients to terminals, detaches them, and handles their requests.

use super::Agent;
use crate::connection::{Conn, Role, TerminalClient};
use crate::terminal::{self, CLIENTS_MAX, Terminal, TerminalState};
use isolet_wire::activity::ShellKey;
use isolet_wire::response::{AgentResponse, RefusalReason};
use isolet_wire::terminal::{AttachTerminal, Size, TYPE_BYTES_MAX};
use std::time::Instant;

/// Maximum number of terminals, including ended ones with unread output.
const TERMINALS_MAX: usize = 32;

impl Agent {
    pub(super) fn attach_terminal(&mut self, id: u64, mut attach: AttachTerminal) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "this connection has another use",
            );
        }
        let ShellKey::Terminal(session) = attach.terminal.clone() else {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "a terminal's name begins with t/",
            );
        };
        if let Some(size) = attach.size {
            attach.size = terminal::clamp(size);
            if attach.size.is_none() {
                return self.refuse(id, None, RefusalReason::BadRequest, NO_SIZE);
            }
        }
        let found = self.terminals.iter().find(|(_, t)| t.is_running() && t.session == session);
        let (terminal_id, fresh) = match found {
            Some((found, terminal)) if terminal.clients.len() < CLIENTS_MAX => (*found, false),
            Some(_) => {
                let message = format!("at most {CLIENTS_MAX} clients a terminal");
                return self.refuse(id, None, RefusalReason::TooMany, message);
            }
            None => match self.open_terminal(session, &mut attach) {
                Ok(opened) => (opened, true),
                Err((reason, message)) => return self.refuse(id, None, reason, message),
            },
        };
        self.enter_terminal(id, terminal_id, attach, fresh);
    }

    fn enter_terminal(&mut self, id: u64, terminal_id: u64, attach: AttachTerminal, fresh: bool) {
        let alone = self.alone(terminal_id, id);
        let Some(terminal) = self.terminals.get_mut(&terminal_id) else { return };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut terminal_client = TerminalClient::new(
            terminal_id,
            terminal.next_client_number(),
            attach,
            self.reactor.now,
        );
        terminal_client.fresh = fresh;
        if let Some(size) = terminal_client.size.filter(|_| terminal_client.may_resize() && alone) {
            terminal.on_window_resized(&mut self.reactor, id, size, true);
        }
        terminal.add_client(&mut self.reactor, id, &terminal_client);
        conn.role = Role::Terminal(Box::new(terminal_client));
    }

    fn open_terminal(
        &mut self,
        session: String,
        attach: &mut AttachTerminal,
    ) -> Result<u64, terminal::Refusal> {
        let none = || (RefusalReason::NoShell, format!("no terminal {} runs", attach.terminal));
        let open = attach.open.take().ok_or_else(none)?;
        if self.terminals.len() >= TERMINALS_MAX && !self.evict_ended_terminal() {
            let message = format!("at most {TERMINALS_MAX} terminals; end one of them");
            return Err((RefusalReason::TooMany, message));
        }
        let size = attach.size.filter(|_| !attach.view && !attach.hidden).unwrap_or_default();
        let id = self.reactor.next_id();
        let terminal = Terminal::open(&mut self.reactor, id, session, open, size)?;
        self.terminals.insert(id, terminal);
        Ok(id)
    }

    /// Removes an ended terminal whose clients do not read its last bytes.
    fn evict_ended_terminal(&mut self) -> bool {
        let ended = |terminal: &Terminal| matches!(terminal.state, TerminalState::Ended(_));
        let found = self.terminals.iter().find(|(_, one)| ended(one) && !one.is_closing());
        let Some(id) = found.map(|(id, _)| *id) else { return false };
        let clients = self.terminals.remove(&id).map(|terminal| terminal.clients);
        clients.into_iter().flatten().for_each(|client| self.close_connection(client));
        true
    }

    /// Whether no other client could set the size of this terminal.
    fn alone(&self, terminal: u64, id: u64) -> bool {
        let Some(terminal) = self.terminals.get(&terminal) else { return false };
        let others = terminal.clients.iter().filter(|client| **client != id);
        !others
            .filter_map(|client| self.conns.get(client)?.terminal_client())
            .any(TerminalClient::may_resize)
    }

    pub(super) fn typed(&mut self, id: u64, bytes: &[u8]) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Role::Terminal(terminal_client) = &mut conn.role else { return self.no_terminal(id) };
        if !terminal_client.may_type() {
            return self.refuse(id, None, RefusalReason::Denied, "this client only looks");
        }
        if bytes.len() > TYPE_BYTES_MAX {
            let message = format!("at most {TYPE_BYTES_MAX} bytes are typed at once");
            return self.refuse(id, None, RefusalReason::TooLarge, message);
        }
        let Some(terminal) = self.terminals.get_mut(&terminal_client.terminal) else { return };
        let waiting = terminal.push_input(&mut self.reactor, id, terminal_client, bytes);
        if waiting > terminal::INPUT_BYTES_MAX {
            conn.input_paused = true;
            conn.update_interest(&self.reactor.poll);
        }
    }

    pub(super) fn resized(&mut self, id: u64, size: Size) {
        let conn = self.conns.get_mut(&id);
        let Some(terminal_client) = conn.and_then(|conn| conn.terminal_client_mut()) else {
            return self.no_terminal(id);
        };
        if !terminal_client.may_type() {
            return self.refuse(id, None, RefusalReason::Denied, "this client only looks");
        }
        let Some(size) = terminal::clamp(size) else {
            return self.refuse(id, None, RefusalReason::BadRequest, NO_SIZE);
        };
        terminal_client.size = Some(size);
        let of = terminal_client.terminal;
        let alone = self.alone(of, id);
        if let Some(terminal) = self.terminals.get_mut(&of) {
            terminal.on_window_resized(&mut self.reactor, id, size, alone);
        }
    }

    /// Input for a terminal that has just ended is no error.
    fn no_terminal(&mut self, id: u64) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            self.refuse(id, None, RefusalReason::BadRequest, "this connection has another use");
        }
    }

    pub(super) fn list_terminals(&mut self, id: u64) {
        let runs: Vec<_> = self.terminals.values().filter(|one| one.is_running()).collect();
        let count = runs.len();
        let mut list: Vec<_> =
            runs.into_iter().map(|one| one.describe(self.reactor.now, count)).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        self.send(id, &AgentResponse::Terminals(list));
    }

    /// Ends the terminal of this session. The answer comes when nothing of it is left.
    pub(super) fn close_terminal(&mut self, id: u64, session: &str) {
        let mut found: Vec<_> = self
            .terminals
            .values_mut()
            .filter(|one| one.session == session && (one.is_running() || one.is_closing()))
            .collect();
        // Prefers the running one if an earlier terminal of the session is still being closed.
        found.sort_by_key(|one| !one.is_running());
        match found.into_iter().next() {
            Some(terminal) => {
                terminal.closers.push(id);
                terminal.close(&mut self.reactor);
            }
            None => self.send(id, &AgentResponse::Done),
        }
    }

    /// After every round: reads, sends, and removes ended terminals.
    pub(super) fn flush_terminal(&mut self, id: u64) {
        let Some(terminal) = self.terminals.get_mut(&id) else { return };
        if let TerminalState::Failed(reason, message) = &terminal.state {
            let reason = *reason;
            let message = message.clone();
            return self.terminal_failed(id, reason, message);
        }
        self.update_visible_clients(id);
        let waits = self.terminal_paused_until(id);
        let Some(terminal) = self.terminals.get_mut(&id) else { return };
        let more = waits.is_none() && terminal.pull(&mut self.reactor);
        let (gone, over) = self.pump_terminal(id);
        let waits = waits.and_then(|_| self.terminal_paused_until(id));
        let Some(terminal) = self.terminals.get_mut(&id) else { return };
        terminal.feed_screen();
        if more || waits.is_none() && terminal.unread() {
            self.reactor.pending.terminals.mark(id);
        }
        terminal.arm_timer(&mut self.reactor, waits);
        gone.into_iter().for_each(|client| self.close_connection(client));
        over.into_iter().for_each(|client| self.leave_terminal(client));
        self.forget_terminal_if_done(id);
    }

    /// Updates the list of visible clients if it may have changed.
    fn update_visible_clients(&mut self, id: u64) {
        let Some(terminal) = self.terminals.get_mut(&id).filter(|one| one.clients_changed) else {
            return;
        };
        let lead = terminal.size_owner();
        let seen = terminal.clients.iter().filter_map(|client| {
            let terminal_client = self
                .conns
                .get(client)?
                .terminal_client()
                .filter(|terminal_client| !terminal_client.hidden)?;
            Some(terminal_client.describe(lead == Some(*client)))
        });
        let seen = seen.collect();
        terminal.set_visible_clients(&mut self.reactor, seen);
    }

    /// Until when the program waits for its clients.
    fn terminal_paused_until(&self, id: u64) -> Option<Instant> {
        let terminal = self.terminals.get(&id)?;
        let terminal_client = |client: &u64| self.conns.get(client).and_then(Conn::terminal_client);
        terminal.paused(self.reactor.now, terminal.clients.iter().filter_map(terminal_client))
    }

    /// Sends every client what it lacks. Returns the disconnected clients, and those that have
    /// received the end.
    fn pump_terminal(&mut self, id: u64) -> (Vec<u64>, Vec<u64>) {
        let mut gone = Vec::new();
        let mut over = Vec::new();
        let Some(terminal) = self.terminals.get_mut(&id) else { return (gone, over) };
        let now = self.reactor.now;
        let ended = terminal.ended_at();
        for client in terminal.clients.clone() {
            let Some(conn) = self.conns.get_mut(&client) else { continue };
            let sent = terminal.pump(conn, now);
            // From the end on, a client has the full time to read, however long it was idle before.
            let stalled = ended.is_some_and(|ended| {
                let last_progress = conn
                    .terminal_client()
                    .filter(|terminal_client| !terminal_client.caught_up)
                    .map(|terminal_client| terminal_client.last_progress);
                last_progress.is_some_and(|at| {
                    now.duration_since(at.max(ended)) >= self.reactor.config.stall
                })
            });
            if sent.is_err() || stalled {
                gone.push(client);
                continue;
            }
            conn.input_paused &= !terminal.has_input_room();
            if conn.terminal_client().is_some_and(TerminalClient::has_ended) {
                over.push(client);
                conn.input_paused = false;
            }
            if conn.take_resumable() {
                self.reactor.pending.connections.mark(client);
            }
            conn.update_interest(&self.reactor.poll);
        }
        (gone, over)
    }

    /// The connection is no longer a client of a terminal.
    pub(super) fn leave_terminal(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.terminal_client().is_none() {
            return;
        }
        if let Role::Terminal(terminal_client) = std::mem::replace(&mut conn.role, Role::Ready)
            && let Some(terminal) = self.terminals.get_mut(&terminal_client.terminal)
        {
            terminal.remove_client(&mut self.reactor, id, &terminal_client);
        }
    }

    fn terminal_failed(&mut self, id: u64, reason: RefusalReason, message: String) {
        let Some(terminal) = self.terminals.remove(&id) else { return };
        for client in terminal.clients {
            self.leave_terminal(client);
            self.refuse(client, None, reason, message.clone());
        }
        terminal.closers.into_iter().for_each(|closer| self.send(closer, &AgentResponse::Done));
    }

    /// Answers connections that wait for a terminal's end, and removes the terminal if it is no
    /// longer needed.
    fn forget_terminal_if_done(&mut self, id: u64) {
        let Some(terminal) = self.terminals.get_mut(&id) else { return };
        if terminal.is_closed() {
            for closer in std::mem::take(&mut terminal.closers) {
                self.send(closer, &AgentResponse::Done);
            }
        }
        let Some(terminal) = self.terminals.get(&id) else { return };
        let ended = matches!(terminal.state, TerminalState::Ended(_));
        if ended && terminal.clients.is_empty() && !terminal.is_closing() {
            if !self.watchers.is_empty() && self.reactor.unreported.contains(id) {
                self.report_to_watchers();
            }
            self.terminals.remove(&id);
        }
    }
}

const NO_SIZE: &str = "a window has at least one column and one row";
