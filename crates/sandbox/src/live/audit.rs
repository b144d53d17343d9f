//! Publishes the changes of a sandbox's state as events and in the audit log. The HTTP layer writes
//! the actions of clients to the same log.

use crate::live::entry;
use crate::live::inner::Inner;
use crate::model::events::EventKind;
use crate::model::info::ownership::Departure;
use crate::model::state::State;
use isolet_store::audit::AuditEntry;

impl Inner {
    /// Publishes a change of state.
    pub(crate) fn moved(
        &self,
        of: &entry::SandboxEntry,
        from: State,
        to: State,
        cause: Option<&String>,
    ) {
        self.events.moved(of, from, to, cause);
        let Some(event) = event(from, to) else { return };
        let entry = AuditEntry::now(of.tenant.as_str(), Some(of.id.as_str()), event);
        let entry = entry.with("from", "server");
        let with_cause = matches!(to, State::Failed | State::Unreachable);
        self.audit.put(match cause.filter(|_| with_cause) {
            Some(cause) => entry.with("cause", cause.as_str()),
            None => entry,
        });
    }
}

impl Inner {
    /// Publishes that another node has taken the sandbox over.
    pub(crate) fn superseded(&self, of: &entry::SandboxEntry) {
        self.events.superseded(of);
        let tenant = of.tenant.as_str();
        let entry = AuditEntry::now(tenant, Some(of.id.as_str()), "sandbox.superseded");
        self.audit.put(entry.with("from", "server"));
    }
}

impl Inner {
    /// Publishes that the sandbox has left this node.
    pub(crate) fn departed(&self, of: &entry::SandboxEntry, why: Departure) {
        let (kind, event) = match why {
            Departure::Evicted => (EventKind::Evicted, "sandbox.evicted"),
            Departure::Moved => (EventKind::Moved, "sandbox.moved"),
        };
        self.events.emit(of, kind);
        let tenant = of.tenant.as_str();
        let entry = AuditEntry::now(tenant, Some(of.id.as_str()), event);
        self.audit.put(entry.with("from", "server"));
    }
}

fn event(from: State, to: State) -> Option<&'static str> {
    Some(match (from, to) {
        _ if from == to => return None,
        (State::Creating, State::Running) => "sandbox.created",
        (State::Sleeping, State::Running) => "sandbox.woke",
        (State::Paused, State::Running) => "sandbox.resumed",
        (_, State::Running) => "sandbox.answers",
        (_, State::Unreachable) => "sandbox.unreachable",
        (_, State::Paused) => "sandbox.paused",
        (_, State::Sleeping) => "sandbox.slept",
        (_, State::Failed) => "sandbox.failed",
        (_, State::Destroyed) => "sandbox.destroyed",
        (_, State::Creating | State::Destroying) => return None,
    })
}
