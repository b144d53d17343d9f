//! Attaches clients to shells, and detaches them.

use super::Agent;
use crate::connection::shell_log::LogFilter;
use crate::connection::{Role, ShellClient};
use crate::shell::{Detached, Shell};
use isolet_wire::activity::KEY_BYTES_MAX;
use isolet_wire::request::AttachShell;
use isolet_wire::response::RefusalReason;

/// Maximum number of shells, including ended ones whose log is kept.
const SHELLS_MAX: usize = 1024;

impl Agent {
    pub(super) fn attach(&mut self, id: u64, attach: AttachShell) {
        match self.conns.get(&id).map(|conn| &conn.role) {
            Some(Role::Ready) => {}
            Some(Role::Shell(client)) => {
                let shell = client.shell;
                if self.shells.get(&shell).is_some_and(|shell| !shell.state.is_dead()) {
                    let message = "this connection is a client of a shell already";
                    return self.refuse(id, None, RefusalReason::BadRequest, message);
                }
                self.detach(id, shell);
            }
            _ => {
                return self.refuse(
                    id,
                    None,
                    RefusalReason::BadRequest,
                    "this connection has another use",
                );
            }
        }
        let Some((shell_id, opened_shell)) = self.shell_for(id, &attach) else { return };
        let Some(shell) = self.shells.get_mut(&shell_id) else { return };
        let cursor = match attach.since {
            since if shell.state.is_dead() && !shell.is_session() => {
                shell.log.cursor_for_ended(since)
            }
            Some(since) => shell.log.cursor_to_resume_from(since),
            None => shell.log.cursor_at_end(),
        };
        shell.clients.push(id);
        self.reactor.notify_watchers(shell_id);
        self.reactor.pending.shells.mark(shell_id);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Shell(ShellClient {
                shell: shell_id,
                view: LogFilter { owner: attach.owner, watch: attach.watch },
                cursor,
                attach_reported: false,
                opened_shell,
                last_progress: self.reactor.now,
            });
        }
    }

    /// Finds or opens the shell for an attach, and returns whether it was opened. `None` if the
    /// request was refused.
    pub(super) fn shell_for(&mut self, id: u64, attach: &AttachShell) -> Option<(u64, bool)> {
        let name_bytes = attach.shell.to_string().len() + attach.owner.len();
        if !attach.shell.is_shell() || name_bytes > KEY_BYTES_MAX {
            self.refuse(id, None, RefusalReason::BadRequest, "a shell's name begins with s/ or p/");
            return None;
        }
        if let Some(shell_id) = self.shells_by_key.get(&attach.shell).copied() {
            let shell = self.shells.get_mut(&shell_id)?;
            let dead = shell.state.can_start();
            let again = dead && shell.is_session();
            if again {
                if let Some(open) = &attach.open {
                    shell.open = open.clone();
                }
                shell.start(&mut self.reactor);
            }
            return Some((shell_id, again));
        }
        let Some(open) = attach.open.clone() else {
            self.refuse(id, None, RefusalReason::NoShell, "there is no such shell");
            return None;
        };
        if self.shells.len() >= SHELLS_MAX && !self.evict_ended_shell() {
            self.refuse(id, None, RefusalReason::TooMany, format!("at most {SHELLS_MAX} shells"));
            return None;
        }
        let shell_id = self.reactor.next_id();
        let mut shell = Shell::new(shell_id, attach.shell.clone(), open, self.reactor.now);
        shell.start(&mut self.reactor);
        self.shells_by_key.insert(attach.shell.clone(), shell_id);
        self.shells.insert(shell_id, shell);
        Some((shell_id, true))
    }

    /// Removes an ended shell without clients.
    pub(super) fn evict_ended_shell(&mut self) -> bool {
        let dead = self.shells.iter().find(|(_, shell)| {
            shell.state.is_dead() && shell.clients.is_empty() && shell.pid() == 0
        });
        let Some(id) = dead.map(|(id, _)| *id) else { return false };
        self.forget(id);
        true
    }

    pub(super) fn forget(&mut self, id: u64) {
        if let Some(shell) = self.shells.remove(&id)
            && self.shells_by_key.get(&shell.key) == Some(&id)
        {
            self.shells_by_key.remove(&shell.key);
        }
    }

    pub(super) fn detach(&mut self, id: u64, shell: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Role::Shell(client) = std::mem::replace(&mut conn.role, Role::Ready)
            && let Some(shell) = self.shells.get_mut(&shell)
        {
            shell.clients.retain(|client| *client != id);
            // Of several clients that leave together, the position of the last one is kept. The
            // other half of the log covers the difference.
            if shell.clients.is_empty() || shell.waits_for(&client.view.owner) {
                shell.last_detached = Detached { cursor: client.cursor, at: self.reactor.now };
            }
        }
        self.reactor.pending.shells.mark(shell);
        self.reactor.notify_watchers(shell);
    }
}
