//! The state of the whole fleet, and the properties that it must have.

use crate::KEEPS_RUNNING;
use crate::MOVED;
use crate::NEWEST_RUNS;
use crate::NO_STALE_WRITE;
use crate::ONE_RUNS;
use crate::RESUMED;
use crate::SUPERSEDED;
use crate::TAKEN_OVER;
use crate::node::Node;
use crate::node::Processes;
use crate::rules::Rules;
use crate::steps::Step;
use isolet_cluster::model::Class;
use isolet_cluster::model::Epoch;
use isolet_cluster::protocol::Phase;
use stateright::Model;
use stateright::Property;

/// The lifetime of a lease, in ticks of etcd's clock.
pub(crate) const TTL: u8 = 3;

/// How far the checker goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The last revision of etcd: each registration, claim, takeover and release takes one.
    pub(crate) revision: i64,
    /// How often servers die.
    pub(crate) crashes: u8,
    /// How often the sandbox is deleted.
    pub(crate) deletions: u8,
    /// How often the sandbox is stored away: evicted, or moved to the other node.
    pub(crate) departures: u8,
    /// The ticks by which the first node's clock may lag within the lifetime of a lease.
    pub(crate) lag: u8,
    /// Whether both nodes can lose their leases and die, or only the first.
    pub(crate) both_fail: bool,
    /// How often a guard is stopped.
    pub(crate) guard_stops: u8,
    /// Whether the watch of the second node is silent from the beginning.
    pub(crate) is_silent: bool,
    /// How often the owner pushes a snapshot.
    pub(crate) pushes: u8,
    /// How often the store does not find what it has.
    pub(crate) false_answers: u8,
}

impl Bounds {
    fn none() -> Self {
        Self {
            revision: 0,
            crashes: 0,
            deletions: 0,
            departures: 0,
            lag: 0,
            both_fail: false,
            guard_stops: 0,
            is_silent: false,
            pushes: 0,
            false_answers: 0,
        }
    }

    /// The guard of the first node is stopped at any step, while its server runs.
    pub(crate) fn guard_stops() -> Self {
        Self { revision: 6, crashes: 1, lag: 1, guard_stops: 1, ..Self::none() }
    }

    /// The second node hears nothing of its watch.
    pub(crate) fn silent() -> Self {
        Self { revision: 5, is_silent: true, ..Self::none() }
    }

    /// The store does not find snapshots that it has.
    pub(crate) fn false_answers() -> Self {
        Self { revision: 5, pushes: 2, false_answers: 1, ..Self::none() }
    }

    /// The first node fails at any step and its clock lags; the other one does not fail.
    pub(crate) fn one_fails() -> Self {
        Self {
            revision: 6,
            crashes: 1,
            deletions: 0,
            departures: 0,
            lag: 1,
            both_fail: false,
            ..Self::none()
        }
    }

    /// Both nodes lose their leases at any time.
    pub(crate) fn both_fail() -> Self {
        Self {
            revision: 5,
            crashes: 0,
            deletions: 0,
            departures: 0,
            lag: 0,
            both_fail: true,
            ..Self::none()
        }
    }

    /// Wider bounds, which take minutes.
    pub(crate) fn wide() -> Self {
        Self {
            revision: 7,
            crashes: 2,
            deletions: 1,
            departures: 0,
            lag: 1,
            both_fail: false,
            ..Self::none()
        }
    }

    /// The sandbox is stored away while the first node fails at any step.
    pub(crate) fn departs() -> Self {
        Self {
            revision: 6,
            crashes: 1,
            deletions: 0,
            departures: 1,
            lag: 0,
            both_fail: false,
            ..Self::none()
        }
    }

    /// Whether a node can fail.
    pub(crate) fn can_fail(&self, index: usize) -> bool {
        index == 0 || self.both_fail
    }
}

/// The model.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    pub(crate) class: Class,
    pub(crate) rules: Rules,
    pub(crate) bounds: Bounds,
}

/// A state of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// etcd: its revision, and the owner of the sandbox.
    pub(crate) revision: i64,
    pub(crate) owner: Option<(usize, Epoch)>,
    /// Whether the owner has stored it away, so that the other node need not wait for a lease.
    pub(crate) is_stored: bool,
    pub(crate) nodes: [Node; 2],
    pub(crate) crashes: u8,
    pub(crate) deletions: u8,
    pub(crate) departures: u8,
    pub(crate) guard_stops: u8,
    pub(crate) false_answers: u8,
    /// The newest push that etcd names; 0: none.
    pub(crate) pushed: u8,
    /// History: whether a node was declared dead, and a write of a former owner was accepted.
    pub(crate) was_declared_dead: bool,
    pub(crate) has_stale_write: bool,
}

impl World {
    /// The next revision.
    pub(crate) fn next_revision(&mut self) -> Epoch {
        self.revision += 1;
        Epoch::of_revision(self.revision)
    }

    fn running(&self) -> usize {
        self.nodes.iter().filter(|node| node.processes == Processes::Running).count()
    }
}

impl Model for Fleet {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let of = Epoch::of_revision;
        let node = |revision| Node::registered(self, of(revision));
        // The first node has claimed the sandbox, and has not read the answer.
        let first = Node { won: Some((of(3), of(1))), ..node(1) };
        vec![World {
            revision: 3,
            owner: Some((0, of(3))),
            is_stored: false,
            nodes: [first, Node { is_silent: self.bounds.is_silent, ..node(2) }],
            crashes: 0,
            deletions: 0,
            departures: 0,
            guard_stops: 0,
            false_answers: 0,
            pushed: 0,
            was_declared_dead: false,
            has_stale_write: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend(Step::all().filter(|step| step.is_possible(self, world)));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        step.take(self, &mut next);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_RUNS, |fleet: &Fleet, world: &World| {
                fleet.class == Class::Node || world.running() <= 1
            }),
            Property::always(NEWEST_RUNS, |_, world: &World| {
                let Some((owner, epoch)) = world.owner else { return true };
                let node = &world.nodes[owner];
                node.processes != Processes::Running
                    || node.epoch() != Some(epoch)
                    || node.files == world.pushed
            }),
            Property::always(NO_STALE_WRITE, |_, world: &World| !world.has_stale_write),
            Property::always(KEEPS_RUNNING, |fleet: &Fleet, world: &World| {
                let is_frozen = |node: &Node| node.processes == Processes::Frozen;
                fleet.class == Class::Store
                    || world.was_declared_dead
                    || !world.nodes.iter().any(is_frozen)
            }),
            Property::sometimes(TAKEN_OVER, |_, world: &World| {
                let frozen = world.nodes.iter().any(|node| node.processes == Processes::Frozen);
                frozen && world.running() == 1
            }),
            Property::sometimes(MOVED, |_, world: &World| {
                let is_first_alive = world.nodes[0].live == Some(Epoch::of_revision(1));
                let runs = world.nodes[1].processes == Processes::Running;
                is_first_alive && runs && world.departures > 0
            }),
            Property::sometimes(RESUMED, |_, world: &World| {
                world.nodes.iter().any(|node| match node.view.phase {
                    Phase::Running { epoch, registration } => {
                        registration > epoch && node.processes == Processes::Running
                    }
                    _ => false,
                })
            }),
            Property::sometimes(SUPERSEDED, |_, world: &World| {
                let is_superseded =
                    |node: &Node| matches!(node.view.phase, Phase::Superseded { .. });
                world.nodes.iter().any(is_superseded)
            }),
        ]
    }
}
