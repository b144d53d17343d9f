//! Publishes changes of sandboxes as events, and writes them to the audit log. Actions of callers
//! are written to that log where the caller is known (in `http`).

use crate::{
    live::{entry, inner::Inner},
    model::state::State,
};
use isolet_store::audit::AuditEntry;

impl Inner {
    /// A sandbox has come from one state to the next.
    pub(crate) fn moved(
        &self,
        of: &entry::Entry,
        (from, to): (State, State),
        cause: Option<&String>,
    ) {
        self.events.moved(of, (from, to), cause);
        let Some(event) = event(from, to) else { return };
        let entry = AuditEntry::now(of.tenant.as_str(), Some(of.id.as_str()), event);
        let entry = entry.with("from", "server");
        let told = matches!(to, State::Failed | State::Unreachable);
        self.audit.put(match cause.filter(|_| told) {
            Some(cause) => entry.with("cause", cause.as_str()),
            None => entry,
        });
    }
}

fn event(from: State, to: State) -> Option<&'static str> {
    Some(match (from, to) {
        _ if from == to => return None,
        (State::Creating, State::Running) => "sandbox.created",
        (State::Sleeping, State::Running) => "sandbox.woke",
        (_, State::Running) => "sandbox.answers",
        (_, State::Unreachable) => "sandbox.unreachable",
        (_, State::Sleeping) => "sandbox.slept",
        (_, State::Failed) => "sandbox.failed",
        (_, State::Destroyed) => "sandbox.destroyed",
        (_, State::Creating | State::Destroying) => return None,
    })
}
