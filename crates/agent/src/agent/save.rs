//! Sends the state of shells to the watchers that store it.

use super::Agent;
use crate::connection::{Conn, Role};
use crate::reactor::Timer;
use crate::shell::Shell;
use isolet_wire::activity::ShellKey;
use isolet_wire::response::{AgentResponse, RefusalReason};
use std::time::Duration;

/// Amount of unsent data of a watcher, in bytes, above which no further shell is saved.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// Timeout of saving all shells.
const ALL_MAX: Duration = Duration::from_secs(3);

impl Agent {
    /// Saves all states that are not stored yet. The answer comes when all of them have been sent.
    pub(super) fn save(&mut self, id: u64) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Watch)) {
            return self.refuse(
                id,
                None,
                RefusalReason::BadRequest,
                "only who watches keeps shells",
            );
        }
        self.shells.values_mut().for_each(Shell::save_now);
        let until = self.reactor.now + ALL_MAX;
        self.savers.push((id, until));
        self.reactor.set_timer(until, Timer::Save);
    }

    /// The server has stored this state of a shell.
    pub(super) fn state_stored(&mut self, shell: &ShellKey, number: u64) {
        let shell = self.shells_by_key.get(shell).and_then(|id| self.shells.get_mut(id));
        if let Some(shell) = shell {
            shell.state_stored(number);
        }
    }

    /// Sends the saved state of a shell to the watchers.
    pub(super) fn report_saved(&mut self, id: u64) {
        let Some(shell) = self.shells.get_mut(&id) else { return };
        let updates = shell.tell_saved();
        let key = shell.key.clone();
        for update in updates {
            let response = AgentResponse::ShellState { shell: key.clone(), update };
            for watcher in self.watchers.clone() {
                self.send(watcher, &response);
            }
        }
    }

    /// Updates whether there are watchers, and whether they read too slowly.
    pub(super) fn check_watchers(&mut self) {
        let held = |id: &u64| self.conns.get(id).map_or(0, Conn::queued_bytes);
        self.reactor.has_watchers = !self.watchers.is_empty();
        self.reactor.watchers_behind = self.watchers.iter().any(|id| held(id) > WAITING_BYTES_MAX);
    }

    /// Continues to save all shells if that was requested. Returns whether a save has started.
    pub(super) fn save_all(&mut self) -> bool {
        let Some(until) = self.savers.iter().map(|(_, until)| *until).max() else { return false };
        let late = self.reactor.now >= until;
        let mut begun = false;
        let mut wanted = false;
        for (id, shell) in &mut self.shells {
            if !shell.save_wanted() {
                continue;
            }
            if late {
                shell.save_given_up();
                self.reactor.pending.shells.mark(*id);
                begun = true;
                continue;
            }
            wanted = true;
            begun |= !self.reactor.save_limit_reached() && shell.begin_save(&mut self.reactor);
        }
        if begun || wanted && !late {
            return begun;
        }
        for (saver, _) in std::mem::take(&mut self.savers) {
            self.send(saver, &AgentResponse::Done);
        }
        false
    }
}
