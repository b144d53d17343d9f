//! What may happen next.

use crate::node::GuardProcess;
use crate::node::Node;
use crate::node::Processes;
use crate::node::Renewal;
use crate::node::Timer;
use crate::world::Fleet;
use crate::world::TTL;
use crate::world::World;
use isolet_cluster::model::Class;
use isolet_cluster::protocol::Action;
use isolet_cluster::protocol::Event;
use isolet_cluster::protocol::Phase;

/// One step. The number is that of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Time passes, except on the clock of the first node if it lags. That of the other node need not:
    /// who takes over is as safe with any clock, and each node can be the first owner.
    Tick { lags: bool },
    /// etcd ends a lease whose time is over.
    Expire(usize),
    /// A server without a lease registers; etcd's answer is on its way.
    Register(usize),
    /// A server sends a renewal, which etcd receives at once, and the answer is on its way. A renewal
    /// that arrives later only makes the lease longer.
    Renew(usize),
    /// A server sends a renewal to a leader that was replaced.
    RenewAtReplacedLeader(usize),
    /// The answer reaches the server.
    Answer(usize),
    /// The renewal or its answer is lost.
    Lose(usize),
    /// A server notices that its deadline has passed.
    Notice(usize),
    /// A transaction claims the sandbox; its answer is on its way.
    Claim(usize),
    /// A transaction takes the sandbox over; its answer is on its way.
    TakeOver(usize),
    /// The server reads the answer.
    Learn(usize),
    /// The server performs its next action.
    Perform(usize),
    /// A request that a dead server had sent reaches the guard.
    Stray(usize),
    /// The guard freezes, or the server if the guard does not answer.
    Freeze(usize),
    /// The guard is stopped. Both it and the server are not stopped at the same time.
    StopGuard(usize),
    /// The server has another guard take the place of one that stands.
    ReplaceGuard(usize),
    /// A node gives up its silent watch.
    WatchAgain(usize),
    /// The owner pushes a snapshot, and etcd names it.
    Push(usize),
    /// The server reads the answer of a takeover, and the store does not find the newest snapshot
    /// although it has it.
    LearnFalsely(usize),
    /// The server dies.
    Crash(usize),
    /// The next server starts.
    Start(usize),
    /// A user deletes the sandbox.
    Delete(usize),
    /// The server begins to store the sandbox away.
    Depart(usize),
    /// The server writes with the epoch of its view.
    Write(usize),
    /// An operator declares the node dead.
    DeclareDead(usize),
}

impl Step {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of_node: [fn(usize) -> Self; 24] = [
            Self::Expire,
            Self::Register,
            Self::Renew,
            Self::RenewAtReplacedLeader,
            Self::Answer,
            Self::Lose,
            Self::Notice,
            Self::Claim,
            Self::TakeOver,
            Self::Learn,
            Self::Perform,
            Self::Stray,
            Self::Freeze,
            Self::StopGuard,
            Self::ReplaceGuard,
            Self::WatchAgain,
            Self::Push,
            Self::LearnFalsely,
            Self::Crash,
            Self::Start,
            Self::Delete,
            Self::Depart,
            Self::Write,
            Self::DeclareDead,
        ];
        let of_nodes = of_node.into_iter().flat_map(|step| [step(0), step(1)]);
        [false, true].into_iter().map(|lags| Self::Tick { lags }).chain(of_nodes)
    }

    /// The node, if the step is part of a failure or of a renewal.
    fn failing(self) -> Option<usize> {
        match self {
            Self::Expire(index)
            | Self::Register(index)
            | Self::Renew(index)
            | Self::RenewAtReplacedLeader(index)
            | Self::Crash(index)
            | Self::StopGuard(index)
            | Self::DeclareDead(index) => Some(index),
            _ => None,
        }
    }

    pub(crate) fn is_possible(self, fleet: &Fleet, world: &World) -> bool {
        let has_revision = world.revision < fleet.bounds.revision;
        if self.failing().is_some_and(|index| !fleet.bounds.can_fail(index)) {
            return false;
        }
        match self {
            Self::Tick { lags } => {
                let must_freeze = |node: &Node| node.must_freeze(&fleet.rules);
                !world.nodes.iter().any(must_freeze)
                    && (!lags || world.nodes[0].may_lag(&fleet.rules))
            }
            Self::Expire(index) => {
                let node = &world.nodes[index];
                node.live.is_some() && node.lease_left == 0
            }
            Self::Register(index) => {
                let node = &world.nodes[index];
                has_revision
                    && node.is_up
                    && node.live.is_none()
                    && node.registration.is_none()
                    && node.renewal == Renewal::None
            }
            Self::Renew(index) => {
                let node = &world.nodes[index];
                let has_reason = node.registration.is_some() || node.live.is_some();
                let is_acknowledged = node.guard_process != GuardProcess::Stands;
                node.is_up && has_reason && is_acknowledged && node.renewal == Renewal::None
            }
            Self::RenewAtReplacedLeader(index) => {
                let node = &world.nodes[index];
                !fleet.rules.renewals_proved
                    && node.is_up
                    && node.registration.is_some()
                    && node.renewal == Renewal::None
            }
            Self::Answer(index) => {
                let node = &world.nodes[index];
                node.is_up && matches!(node.renewal, Renewal::Answered { .. })
            }
            Self::Lose(index) => world.nodes[index].renewal != Renewal::None,
            Self::Notice(index) => {
                let node = &world.nodes[index];
                node.is_up && node.registration.is_some() && node.has_expired()
            }
            Self::Claim(index) => {
                has_revision && world.owner.is_none() && may_own(&world.nodes[index])
            }
            Self::TakeOver(index) => has_revision && may_take_over(fleet, world, index),
            Self::Learn(index) => {
                let node = &world.nodes[index];
                node.is_up && node.won.is_some()
            }
            Self::Perform(index) => {
                let node = &world.nodes[index];
                let waits = node.guard_process == GuardProcess::Stands
                    && matches!(node.queue.first(), Some(Action::Admit { .. }));
                node.is_up && !node.queue.is_empty() && !waits
            }
            Self::Stray(index) => {
                let node = &world.nodes[index];
                node.stray.is_some() && node.guard_process == GuardProcess::Runs
            }
            Self::StopGuard(index) => {
                let node = &world.nodes[index];
                node.is_up
                    && node.guard_process == GuardProcess::Runs
                    && world.guard_stops < fleet.bounds.guard_stops
            }
            Self::ReplaceGuard(index) => {
                let node = &world.nodes[index];
                node.is_up && node.guard_process == GuardProcess::Stands
            }
            Self::WatchAgain(index) => fleet.rules.silence_ends && world.nodes[index].is_silent,
            Self::Push(index) => {
                let node = &world.nodes[index];
                let owns = |epoch| world.owner == Some((index, epoch));
                node.is_up
                    && node.processes == Processes::Running
                    && node.epoch().is_some_and(owns)
                    && world.pushed < fleet.bounds.pushes
            }
            Self::LearnFalsely(index) => {
                let node = &world.nodes[index];
                node.is_up
                    && node.won.is_some()
                    && node.files != world.pushed
                    && world.false_answers < fleet.bounds.false_answers
            }
            Self::Freeze(index) => world.nodes[index].must_freeze(&fleet.rules),
            Self::Crash(index) => {
                let node = &world.nodes[index];
                node.is_up
                    && node.guard_process == GuardProcess::Runs
                    && world.crashes < fleet.bounds.crashes
            }
            Self::Start(index) => !world.nodes[index].is_up,
            Self::Delete(index) => {
                let node = &world.nodes[index];
                let is_present = matches!(
                    node.view.phase,
                    Phase::Claimed { .. } | Phase::Running { .. } | Phase::Suspended { .. }
                );
                node.is_up && is_present && world.deletions < fleet.bounds.deletions
            }
            Self::Depart(index) => {
                let node = &world.nodes[index];
                let owns = |epoch| world.owner == Some((index, epoch));
                node.is_up
                    && matches!(node.view.phase, Phase::Running { epoch, .. } if owns(epoch))
                    && world.departures < fleet.bounds.departures
            }
            Self::Write(index) => {
                let node = &world.nodes[index];
                let owner = world.owner.map(|(_, epoch)| epoch);
                // A write of the owner changes nothing in this model.
                node.is_up && node.epoch().is_some_and(|epoch| owner != Some(epoch))
            }
            Self::DeclareDead(index) => {
                let node = &world.nodes[index];
                fleet.class == Class::Node && node.live.is_none() && !node.dead
            }
        }
    }

    pub(crate) fn take(self, fleet: &Fleet, world: &mut World) {
        match self {
            Self::Tick { lags } => {
                world.nodes[0].tick(lags, &fleet.rules);
                if fleet.bounds.can_fail(1) {
                    world.nodes[1].tick(false, &fleet.rules);
                }
            }
            Self::Expire(index) => {
                world.nodes[index].live = None;
                world.nodes[index].lease_left = 0;
            }
            Self::Register(index) => {
                let registration = world.next_revision();
                let node = &mut world.nodes[index];
                node.live = Some(registration);
                node.lease_left = TTL;
                let since = Timer { ticks: 0, lag: fleet.bounds.lag };
                let was_dead = std::mem::take(&mut node.dead);
                node.renewal =
                    Renewal::Answered { since, registration: Some(registration), was_dead };
            }
            Self::Renew(index) => {
                let node = &mut world.nodes[index];
                if node.live.is_some() {
                    node.lease_left = TTL;
                }
                let since = Timer { ticks: 0, lag: fleet.bounds.lag };
                let registration = node.live;
                node.renewal = Renewal::Answered { since, registration, was_dead: false };
            }
            Self::RenewAtReplacedLeader(index) => {
                let node = &mut world.nodes[index];
                let since = Timer { ticks: 0, lag: fleet.bounds.lag };
                let registration = node.registration;
                node.renewal = Renewal::Answered { since, registration, was_dead: false };
            }
            Self::Answer(index) => answer(fleet, &mut world.nodes[index]),
            Self::Lose(index) => world.nodes[index].renewal = Renewal::None,
            Self::Notice(index) => {
                let node = &mut world.nodes[index];
                node.registration = None;
                node.learn(Event::LeaseLost);
            }
            Self::Claim(index) | Self::TakeOver(index) => {
                let epoch = world.next_revision();
                world.owner = Some((index, epoch));
                world.is_stored = false;
                let node = &mut world.nodes[index];
                node.won = node.registration.map(|registration| (epoch, registration));
            }
            Self::Learn(index) => {
                let pushed = world.pushed;
                learn(&mut world.nodes[index], pushed);
            }
            Self::LearnFalsely(index) => {
                world.false_answers += 1;
                if !fleet.rules.not_found_is_no_answer {
                    let older = world.pushed.saturating_sub(1);
                    learn(&mut world.nodes[index], older);
                }
            }
            Self::Push(index) => {
                world.pushed += 1;
                world.nodes[index].files = world.pushed;
            }
            Self::StopGuard(index) => {
                world.guard_stops += 1;
                world.nodes[index].guard_process = GuardProcess::Stands;
            }
            Self::ReplaceGuard(index) => {
                let node = &mut world.nodes[index];
                node.guard_process = GuardProcess::New;
                node.learn(Event::Restarted);
            }
            Self::WatchAgain(index) => world.nodes[index].is_silent = false,
            Self::Perform(index) => perform(fleet, world, index),
            Self::Stray(index) => {
                let node = &mut world.nodes[index];
                if let Some(registration) = node.stray.take()
                    && node.processes == Processes::Frozen
                    && node.admits(registration, &fleet.rules)
                {
                    node.run(registration);
                }
            }
            Self::Freeze(index) => {
                let node = &mut world.nodes[index];
                node.halt(Processes::Frozen);
                if node.is_up {
                    node.learn(Event::GuardExpired);
                }
            }
            Self::Crash(index) => {
                world.crashes += 1;
                let node = &mut world.nodes[index];
                node.stray = node.queue.iter().find_map(|action| match action {
                    Action::Admit { registration, .. } => Some(*registration),
                    _ => None,
                });
                node.is_up = false;
                node.registration = None;
                node.won = None;
                node.queue.clear();
                node.renewal = Renewal::None;
            }
            Self::Start(index) => {
                let node = &mut world.nodes[index];
                node.is_up = true;
                node.learn(Event::Restarted);
            }
            Self::Delete(index) => {
                world.deletions += 1;
                world.nodes[index].learn(Event::Delete);
            }
            Self::Depart(index) => {
                world.departures += 1;
                world.nodes[index].departs = true;
                world.nodes[index].learn(Event::Delete);
                if !fleet.rules.stored_after_end {
                    let epoch = world.next_revision();
                    world.owner = Some((index, epoch));
                    world.is_stored = true;
                }
            }
            Self::Write(index) => {
                if !fleet.rules.writes_fenced {
                    world.has_stale_write = true;
                } else if let Some(epoch) = world.nodes[index].epoch() {
                    world.nodes[index].learn(Event::Outdated { epoch });
                }
            }
            Self::DeclareDead(index) => {
                world.nodes[index].dead = true;
                world.was_declared_dead = true;
            }
        }
    }
}

/// The server learns that it owns the sandbox, and restores it from a push.
fn learn(node: &mut Node, files: u8) {
    if let Some((epoch, registration)) = node.won.take() {
        node.files = files;
        node.learn(Event::Owned { epoch, registration });
    }
}

/// Whether a transaction of this node that compares its registration can succeed.
fn may_own(node: &Node) -> bool {
    node.is_up
        && node.registration.is_some()
        && node.registration == node.live
        && node.view.phase == Phase::Absent
        && node.queue.is_empty()
        && node.won.is_none()
}

fn may_take_over(fleet: &Fleet, world: &World, index: usize) -> bool {
    let Some((from, _)) = world.owner else { return false };
    if !may_own(&world.nodes[index]) || (world.nodes[index].is_silent && from != index) {
        return false;
    }
    let former = &world.nodes[from];
    let lease_ended = former.live.is_none() || !fleet.rules.lease_compared;
    from == index
        || world.is_stored
        || (lease_ended && (fleet.class == Class::Store || former.dead))
}

fn answer(fleet: &Fleet, node: &mut Node) {
    let Renewal::Answered { since, registration, was_dead } = node.renewal else { return };
    node.renewal = Renewal::None;
    let Some(registration) = registration else {
        node.registration = None;
        node.learn(Event::LeaseLost);
        return;
    };
    let most = TTL - fleet.rules.margin;
    let (ticks, lag) = if fleet.rules.counted_from_sending {
        (most.saturating_sub(since.ticks), since.lag)
    } else {
        (most, fleet.bounds.lag)
    };
    let lag = if ticks == 0 { 0 } else { lag };
    node.renew(registration, Timer { ticks, lag });
    if was_dead {
        node.learn(Event::DeclaredDead);
    }
    if node.registration != Some(registration) {
        node.registration = Some(registration);
        node.learn(Event::LeaseRegained { registration });
    }
}

fn perform(fleet: &Fleet, world: &mut World, index: usize) {
    let owner = world.owner.map(|(_, epoch)| epoch);
    let node = &mut world.nodes[index];
    let action = node.queue.remove(0);
    match action {
        Action::Admit { epoch, registration } => {
            if node.admits(registration, &fleet.rules) {
                node.run(registration);
                node.learn(Event::Admitted { epoch, registration });
            } else {
                node.learn(Event::NotAdmitted { epoch, registration });
                // What was refused under an earlier registration is asked again under the present one.
                if let Some(registration) = node.registration {
                    node.learn(Event::LeaseRegained { registration });
                }
            }
        }
        Action::Suspend => node.suspend(),
        Action::Compare { epoch, registration } => {
            let owner = if fleet.rules.epochs_compared { owner } else { Some(epoch) };
            node.learn(Event::Compared { epoch, registration, owner });
        }
        Action::End { epoch } => {
            node.halt(Processes::None);
            node.learn(Event::Ended { epoch });
        }
        Action::Stop { epoch } => {
            node.halt(Processes::None);
            node.learn(Event::Stopped { epoch });
        }
        Action::Release { epoch } => {
            node.learn(Event::Released { epoch });
            let departs = std::mem::take(&mut node.departs);
            if owner == Some(epoch) {
                if departs {
                    let stored = world.next_revision();
                    world.owner = Some((index, stored));
                    world.is_stored = true;
                } else {
                    world.owner = None;
                    world.pushed = 0;
                }
            }
        }
    }
}
