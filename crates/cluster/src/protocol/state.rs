//! The node's view of one sandbox, and its steps.

use crate::model::Class;
use crate::model::Epoch;
use serde::Deserialize;
use serde::Serialize;

/// The node's view of one sandbox. It is part of the sandbox's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// The class of the sandbox.
    pub class: Class,
    /// The phase.
    pub phase: Phase,
}

/// What a node may do with a sandbox. `epoch` is that at which the node became the owner, and
/// `registration` the one under which that was last known to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// The node has nothing of it.
    Absent,
    /// The node owns it. It starts, or continues, when the guard admits it.
    Claimed {
        /// The epoch.
        epoch: Epoch,
        /// The registration.
        registration: Epoch,
    },
    /// It runs, or sleeps and may be woken.
    Running {
        /// The epoch.
        epoch: Epoch,
        /// The registration.
        registration: Epoch,
    },
    /// It is frozen, because another node may own it now.
    Suspended {
        /// The epoch.
        epoch: Epoch,
    },
    /// Another node owns it. It is being ended, and its unsaved files are being moved away.
    Superseded {
        /// The epoch.
        epoch: Epoch,
    },
    /// It was deleted or moved away. Its processes are being ended.
    Stopping {
        /// The epoch.
        epoch: Epoch,
    },
    /// Nothing of it runs. The ownership is being given up.
    Released {
        /// The epoch.
        epoch: Epoch,
    },
}

/// Something that the node has learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A claim or a takeover succeeded.
    Owned {
        /// The epoch.
        epoch: Epoch,
        /// The registration that the transaction compared.
        registration: Epoch,
    },
    /// The guard lets it run.
    Admitted {
        /// The epoch of the request.
        epoch: Epoch,
        /// The registration of the request.
        registration: Epoch,
    },
    /// The guard refuses it.
    NotAdmitted {
        /// The epoch of the request.
        epoch: Epoch,
        /// The registration of the request.
        registration: Epoch,
    },
    /// The node does not hold its lease any more, or cannot know.
    LeaseLost,
    /// The node holds its lease: after a loss, after a restart of the server, or under a new
    /// registration.
    LeaseRegained {
        /// The registration, possibly the same as before.
        registration: Epoch,
    },
    /// The guard has frozen it.
    GuardExpired,
    /// The node was declared dead before it registered again.
    DeclaredDead,
    /// The owner was read from etcd.
    Compared {
        /// The epoch of the question.
        epoch: Epoch,
        /// The registration that the node held when it asked.
        registration: Epoch,
        /// The epoch of the owner in etcd; `None`: nobody owns it.
        owner: Option<Epoch>,
    },
    /// A write with this epoch was refused because the sandbox has another owner or none.
    Outdated {
        /// The epoch of the write.
        epoch: Epoch,
    },
    /// The sandbox is to be deleted, or moved to another node.
    Delete,
    /// Its processes have ended.
    Stopped {
        /// The epoch of the action.
        epoch: Epoch,
    },
    /// The ownership was given up.
    Released {
        /// The epoch of the action.
        epoch: Epoch,
    },
    /// Its processes have ended and its files were moved away.
    Ended {
        /// The epoch of the action.
        epoch: Epoch,
    },
    /// The server has started and read this view from its records.
    Restarted,
}

/// What the node has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Ask the guard to let it run: start it, or thaw it and open its egress. A sandbox of the class
    /// `node` needs no guard.
    Admit {
        /// The epoch.
        epoch: Epoch,
        /// The registration, which the guard compares.
        registration: Epoch,
    },
    /// Freeze it and cut its egress, if it runs.
    Suspend,
    /// Read the owner from etcd while this registration is held.
    Compare {
        /// The epoch.
        epoch: Epoch,
        /// The registration.
        registration: Epoch,
    },
    /// End its processes, move its files to `DATA/superseded/`, and report it.
    End {
        /// The epoch.
        epoch: Epoch,
    },
    /// End its processes.
    Stop {
        /// The epoch.
        epoch: Epoch,
    },
    /// Give up the ownership, with a transaction that compares the epoch.
    Release {
        /// The epoch.
        epoch: Epoch,
    },
}

/// The view after an event, and what to do.
#[must_use]
pub fn step(view: View, event: Event) -> (View, Vec<Action>) {
    let (phase, actions) = match (view.phase, event) {
        (Phase::Absent, Event::Owned { epoch, registration }) => {
            (Phase::Claimed { epoch, registration }, vec![Action::Admit { epoch, registration }])
        }
        (Phase::Absent, _) => (Phase::Absent, Vec::new()),
        (
            Phase::Claimed { epoch, registration } | Phase::Running { epoch, registration },
            event,
        ) => active(view, epoch, registration, event),
        (Phase::Suspended { epoch }, event) => suspended(epoch, event),
        (Phase::Superseded { epoch }, event) => superseded(epoch, event),
        (Phase::Stopping { epoch }, event) => stopping(epoch, event),
        (Phase::Released { epoch }, event) => released(epoch, event),
    };
    (View { phase, ..view }, actions)
}

fn active(view: View, epoch: Epoch, held: Epoch, event: Event) -> (Phase, Vec<Action>) {
    let is_store = view.class == Class::Store;
    let suspended = Phase::Suspended { epoch };
    match event {
        Event::Admitted { epoch: of, registration } if (of, registration) == (epoch, held) => {
            (Phase::Running { epoch, registration }, Vec::new())
        }
        Event::NotAdmitted { epoch: of, registration } if (of, registration) == (epoch, held) => {
            (suspended, vec![Action::Suspend])
        }
        Event::LeaseLost | Event::GuardExpired if is_store => (suspended, vec![Action::Suspend]),
        Event::DeclaredDead => (suspended, vec![Action::Suspend]),
        Event::LeaseRegained { registration } if registration != held => {
            let compare = Action::Compare { epoch, registration };
            if is_store {
                (suspended, vec![Action::Suspend, compare])
            } else {
                (view.phase, vec![compare])
            }
        }
        Event::Compared { epoch: of, registration, owner } if of == epoch => {
            match (owner == Some(epoch), view.phase) {
                (false, _) => superseding(epoch),
                (true, Phase::Running { .. }) if !is_store => {
                    (Phase::Running { epoch, registration }, Vec::new())
                }
                (true, Phase::Claimed { .. }) if !is_store => (
                    Phase::Claimed { epoch, registration },
                    vec![Action::Admit { epoch, registration }],
                ),
                // It was suspended when the question was asked, and has been admitted since.
                (true, phase) => (phase, Vec::new()),
            }
        }
        Event::Outdated { epoch: of } if of == epoch => superseding(epoch),
        Event::Delete => (Phase::Stopping { epoch }, vec![Action::Stop { epoch }]),
        Event::Restarted => (view.phase, vec![Action::Admit { epoch, registration: held }]),
        _ => (view.phase, Vec::new()),
    }
}

fn suspended(epoch: Epoch, event: Event) -> (Phase, Vec<Action>) {
    let same = Phase::Suspended { epoch };
    match event {
        Event::LeaseRegained { registration } => {
            (same, vec![Action::Compare { epoch, registration }])
        }
        Event::Compared { epoch: of, registration, owner } if of == epoch => {
            if owner == Some(epoch) {
                let admit = Action::Admit { epoch, registration };
                (Phase::Claimed { epoch, registration }, vec![admit])
            } else {
                superseding(epoch)
            }
        }
        Event::Outdated { epoch: of } if of == epoch => superseding(epoch),
        Event::Delete => (Phase::Stopping { epoch }, vec![Action::Stop { epoch }]),
        Event::Restarted => (same, vec![Action::Suspend]),
        _ => (same, Vec::new()),
    }
}

fn superseding(epoch: Epoch) -> (Phase, Vec<Action>) {
    (Phase::Superseded { epoch }, vec![Action::Suspend, Action::End { epoch }])
}

fn superseded(epoch: Epoch, event: Event) -> (Phase, Vec<Action>) {
    match event {
        Event::Ended { epoch: of } if of == epoch => (Phase::Absent, Vec::new()),
        Event::Restarted => superseding(epoch),
        _ => (Phase::Superseded { epoch }, Vec::new()),
    }
}

fn stopping(epoch: Epoch, event: Event) -> (Phase, Vec<Action>) {
    match event {
        Event::Stopped { epoch: of } if of == epoch => {
            (Phase::Released { epoch }, vec![Action::Release { epoch }])
        }
        Event::Restarted => (Phase::Stopping { epoch }, vec![Action::Stop { epoch }]),
        _ => (Phase::Stopping { epoch }, Vec::new()),
    }
}

fn released(epoch: Epoch, event: Event) -> (Phase, Vec<Action>) {
    match event {
        Event::Released { epoch: of } | Event::Outdated { epoch: of } if of == epoch => {
            (Phase::Absent, Vec::new())
        }
        Event::LeaseRegained { .. } | Event::Restarted => {
            (Phase::Released { epoch }, vec![Action::Release { epoch }])
        }
        _ => (Phase::Released { epoch }, Vec::new()),
    }
}

#[cfg(test)]
mod tests;
