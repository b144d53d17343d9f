//! Events of one sandbox.
//!
//! Each tenant has one ring of events; a reader has only its position in it. A state is published
//! where the driver records it.

use crate::live::entry::SandboxEntry;
use crate::model::events::{EventKind, Events};
use crate::model::state::State;

impl Events {
    /// Publishes that another node has taken the sandbox over.
    pub(crate) fn superseded(&self, of: &SandboxEntry) {
        self.emit(of, EventKind::Superseded);
    }

    pub(crate) fn emit(&self, of: &SandboxEntry, kind: EventKind) {
        self.of(&of.tenant).emit(&of.id, &of.incarnation, kind);
    }

    /// Publishes a change of state.
    pub(crate) fn moved(&self, of: &SandboxEntry, from: State, to: State, cause: Option<&String>) {
        let log = self.of(&of.tenant);
        let emit = |kind| log.emit(&of.id, &of.incarnation, kind);
        let cause = || cause.cloned().unwrap_or_default();
        match (from, to) {
            (State::Creating, State::Running) => emit(EventKind::Created),
            (State::Sleeping, State::Running) => emit(EventKind::Woke),
            (State::Paused, State::Running) => emit(EventKind::Resumed),
            _ => {}
        }
        emit(match to {
            _ if from == to => return,
            State::Running => EventKind::Running,
            State::Unreachable => EventKind::Unreachable { cause: cause() },
            State::Paused => EventKind::Paused,
            State::Sleeping => EventKind::Sleeping,
            State::Failed => EventKind::Failed { cause: cause() },
            State::Destroyed => EventKind::Destroyed,
            State::Creating | State::Destroying => return,
        });
    }
}
