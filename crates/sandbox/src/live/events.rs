//! Events of one sandbox.
//!
//! Each tenant has one ring of events; a reader has only its position in it. A state is published
//! where the driver records it.

use crate::{
    live::entry::Entry,
    model::{
        events::{Events, Happened},
        state::State,
    },
};

impl Events {
    pub(crate) fn say(&self, of: &Entry, what: Happened) {
        self.of(&of.tenant).say(&of.id, &of.incarnation, what);
    }

    /// A sandbox has come from one state to the next.
    pub(crate) fn moved(&self, of: &Entry, (from, to): (State, State), cause: Option<&String>) {
        let log = self.of(&of.tenant);
        let say = |what| log.say(&of.id, &of.incarnation, what);
        let cause = || cause.cloned().unwrap_or_default();
        match (from, to) {
            (State::Creating, State::Running) => say(Happened::Created),
            (State::Sleeping, State::Running) => say(Happened::Woke),
            _ => {}
        }
        say(match to {
            _ if from == to => return,
            State::Running => Happened::Running,
            State::Unreachable => Happened::Unreachable { cause: cause() },
            State::Sleeping => Happened::Sleeping,
            State::Failed => Happened::Failed { cause: cause() },
            State::Destroyed => Happened::Destroyed,
            State::Creating | State::Destroying => return,
        });
    }
}
