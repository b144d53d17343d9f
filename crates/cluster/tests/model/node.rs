//! One node of the model.

use crate::rules::Rules;
use crate::world::Fleet;
use crate::world::TTL;
use isolet_cluster::model::BootTime;
use isolet_cluster::model::Class;
use isolet_cluster::model::Epoch;
use isolet_cluster::model::LeaseDeadline;
use isolet_cluster::protocol::Action;
use isolet_cluster::protocol::Event;
use isolet_cluster::protocol::Guard;
use isolet_cluster::protocol::Phase;
use isolet_cluster::protocol::View;
use isolet_cluster::protocol::step;

/// The processes of the sandbox on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Processes {
    None,
    Frozen,
    Running,
}

/// The process that guards sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum GuardProcess {
    Runs,
    /// It was stopped, and does nothing.
    Stands,
    /// It has taken the place of one that stood, and knows no sandbox yet.
    New,
}

/// A node's timer of a deadline or of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Timer {
    pub(crate) ticks: u8,
    /// The ticks by which it may still lag.
    pub(crate) lag: u8,
}

/// A renewal or registration on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Renewal {
    None,
    /// etcd has answered with the registration, and whether the node had been declared dead.
    Answered {
        since: Timer,
        registration: Option<Epoch>,
        was_dead: bool,
    },
}

/// The deadline that the guard knows, as ticks that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Deadline {
    pub(crate) registration: Epoch,
    pub(crate) left: Timer,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// In etcd: the registration, the ticks that its lease lasts, and the mark of a dead node.
    pub(crate) live: Option<Epoch>,
    pub(crate) lease_left: u8,
    pub(crate) dead: bool,
    /// The server: whether it runs, the registration that it knows, and its view of the sandbox.
    pub(crate) is_up: bool,
    pub(crate) registration: Option<Epoch>,
    pub(crate) view: View,
    /// Actions that it has not performed yet.
    pub(crate) queue: Vec<Action>,
    /// A transaction that made it the owner, whose answer it has not read: epoch and registration.
    pub(crate) won: Option<(Epoch, Epoch)>,
    pub(crate) renewal: Renewal,
    /// A request to the guard that a server sent before it died: its registration.
    pub(crate) stray: Option<Epoch>,
    /// Whether the sandbox is stored away when it has ended, which its snapshot in the store says, so
    /// that a server that starts knows it.
    pub(crate) departs: bool,
    /// Whether its watch of etcd is silent, so that it counts the other node as alive.
    pub(crate) is_silent: bool,
    /// The push from which the files of its sandbox are.
    pub(crate) files: u8,
    /// The guard and the sandbox.
    pub(crate) guard_process: GuardProcess,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) processes: Processes,
    /// The registration under which the guard admitted what runs.
    pub(crate) admitted_under: Option<Epoch>,
}

impl Node {
    /// A node that has just registered.
    pub(crate) fn registered(fleet: &Fleet, registration: Epoch) -> Self {
        let left = Timer { ticks: TTL - fleet.rules.margin, lag: fleet.bounds.lag };
        Self {
            live: Some(registration),
            lease_left: TTL,
            dead: false,
            is_up: true,
            registration: Some(registration),
            view: View { class: fleet.class, phase: Phase::Absent },
            queue: Vec::new(),
            won: None,
            renewal: Renewal::None,
            stray: None,
            departs: false,
            is_silent: false,
            files: 0,
            guard_process: GuardProcess::Runs,
            deadline: Some(Deadline { registration, left }),
            processes: Processes::None,
            admitted_under: None,
        }
    }

    /// The guard lets the sandbox run.
    pub(crate) fn run(&mut self, registration: Epoch) {
        self.processes = Processes::Running;
        self.is_announced();
        self.admitted_under = Some(registration).filter(|_| self.view.class == Class::Store);
    }

    /// A guard that is new learns of the sandbox.
    fn is_announced(&mut self) {
        if self.guard_process == GuardProcess::New {
            self.guard_process = GuardProcess::Runs;
        }
    }

    /// The sandbox is suspended: by the guard, or by the server while the guard stands.
    pub(crate) fn suspend(&mut self) {
        self.is_announced();
        if self.processes == Processes::Running {
            self.halt(Processes::Frozen);
        }
    }

    /// Nothing of the sandbox runs any more.
    pub(crate) fn halt(&mut self, processes: Processes) {
        self.processes = processes;
        self.admitted_under = None;
    }

    /// The server learns something.
    pub(crate) fn learn(&mut self, event: Event) {
        let (view, actions) = step(self.view, event);
        self.view = view;
        // A repeated event would only repeat the same actions.
        for action in actions {
            if !self.queue.contains(&action) {
                self.queue.push(action);
            }
        }
    }

    /// The guard, at the time 0.
    fn guard(&self) -> Guard {
        match self.deadline {
            None => Guard::default(),
            Some(Deadline { registration, left }) => {
                Guard::default().renewed(lease_deadline(registration, left.ticks))
            }
        }
    }

    /// The guard gets a deadline.
    pub(crate) fn renew(&mut self, registration: Epoch, left: Timer) {
        let guard = self.guard().renewed(lease_deadline(registration, left.ticks));
        if guard != self.guard() {
            self.deadline = Some(Deadline { registration, left });
        }
    }

    pub(crate) fn has_expired(&self) -> bool {
        self.guard().has_expired(BootTime::default())
    }

    pub(crate) fn admits(&self, registration: Epoch, rules: &Rules) -> bool {
        if self.view.class == Class::Node || !rules.guard {
            return true;
        }
        if rules.registration_compared {
            self.guard().admits(registration, BootTime::default())
        } else {
            !self.has_expired()
        }
    }

    /// Whether the guard, or the server in its place, must freeze the sandbox before time passes.
    pub(crate) fn must_freeze(&self, rules: &Rules) -> bool {
        let void = |under: Epoch| {
            if rules.registration_compared {
                self.guard().must_freeze(under, BootTime::default())
            } else {
                self.has_expired()
            }
        };
        let is_enforced = match self.guard_process {
            GuardProcess::Runs => true,
            GuardProcess::Stands | GuardProcess::New => rules.server_freezes && self.is_up,
        };
        rules.guard
            && is_enforced
            && self.view.class == Class::Store
            && self.processes == Processes::Running
            && self.admitted_under.is_none_or(void)
    }

    /// Whether the clock may stand still for a tick.
    pub(crate) fn may_lag(&self, rules: &Rules) -> bool {
        let deadline = self.deadline.map(|deadline| deadline.left).filter(|left| left.ticks > 0);
        let renewal = match self.renewal {
            Renewal::None => None,
            Renewal::Answered { since, .. } => Some(since),
        };
        let renewal = renewal.filter(|since| since.ticks < TTL - rules.margin);
        let timers: Vec<Timer> = deadline.into_iter().chain(renewal).collect();
        !timers.is_empty() && timers.iter().all(|timer| timer.lag > 0)
    }

    /// A tick of etcd's clock, in which this node's clock advances or not. What cannot matter any more
    /// becomes equal, so that there are fewer states.
    pub(crate) fn tick(&mut self, lags: bool, rules: &Rules) {
        self.lease_left = self.lease_left.saturating_sub(1);
        if let Some(Deadline { left, .. }) = &mut self.deadline {
            if lags {
                left.lag = left.lag.saturating_sub(1);
            } else {
                left.ticks = left.ticks.saturating_sub(1);
            }
            if left.ticks == 0 {
                left.lag = 0;
            }
        }
        if let Renewal::Answered { since, .. } = &mut self.renewal {
            if lags {
                since.lag = since.lag.saturating_sub(1);
            } else {
                since.ticks += 1;
            }
            let most = TTL - rules.margin;
            if since.ticks >= most {
                *since = Timer { ticks: most, lag: 0 };
            }
        }
    }

    /// The epoch of the view.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        match self.view.phase {
            Phase::Absent => None,
            Phase::Claimed { epoch, .. }
            | Phase::Running { epoch, .. }
            | Phase::Suspended { epoch }
            | Phase::Superseded { epoch }
            | Phase::Stopping { epoch }
            | Phase::Released { epoch } => Some(epoch),
        }
    }
}

fn lease_deadline(registration: Epoch, left: u8) -> LeaseDeadline {
    LeaseDeadline { registration, at: BootTime::from_millis(u64::from(left)) }
}
