//! The faults, each from its beginning to its end.

use super::Field;
use super::random::Random;
use crate::NODES;
use isolet_fleet_tests::{CutDirection, LocalFleet, StoreFailure};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    ServerKilled,
    MachineLost,
    NodeCut,
    OneWayCut,
    MemberKilled,
    LeaderKilled,
    MajorityLost,
    EtcdSlow,
    StoreFails,
    EverythingRestarted,
}

impl Fault {
    /// All kinds, with their names in the note and how often `make soak` wants each.
    pub(super) const ALL: [(Self, &'static str, usize); 10] = [
        (Self::ServerKilled, "server of a node killed", 25),
        (Self::MachineLost, "node killed with all its processes", 25),
        (Self::NodeCut, "node cut from etcd and its peers", 50),
        (Self::OneWayCut, "one-way cut", 10),
        (Self::MemberKilled, "member of etcd killed", 10),
        (Self::LeaderKilled, "leader of etcd killed", 10),
        (Self::MajorityLost, "majority of etcd lost", 10),
        (Self::EtcdSlow, "etcd 200 ms slower", 10),
        (Self::StoreFails, "object store fails", 10),
        (Self::EverythingRestarted, "everything restarted", 10),
    ];

    pub(super) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(fault, ..)| *fault == self);
        found.map_or("", |(_, name, _)| name)
    }
}

/// How long a fault lasts that ends before the lease of 5 s does, in ms.
const SHORT_MS: (usize, usize) = (200, 2_000);
/// How long a fault lasts that outlives the lease, in ms.
const LONG_MS: (usize, usize) = (6_000, 9_000);

fn last(random: &mut Random) {
    let (least, most) = if random.below(2) == 0 { SHORT_MS } else { LONG_MS };
    sleep(Duration::from_millis((least + random.below(most - least)) as u64));
}

/// Lets a fault happen and end.
pub(super) fn inflict(fleet: &mut LocalFleet, field: &Field, fault: Fault, random: &mut Random) {
    let victim = random.below(NODES.len());
    let name = NODES[victim];
    match fault {
        Fault::ServerKilled => {
            // Agents and the lease guard live on.
            fleet.node_mut(name).server.kill();
            // A server that is restarted at once, and one that is away for some time.
            if random.below(3) > 0 {
                last(random);
            }
            fleet.node_mut(name).server.launch();
        }
        Fault::MachineLost => {
            field.deaths[victim].fetch_add(1, Ordering::SeqCst);
            let peers = fleet.addresses_of_others(name);
            fleet.node_mut(name).server.lose_machine();
            // A machine that does not even refuse connections, or one that restarts.
            let is_silent = random.below(2) == 0;
            let cut = is_silent.then(|| fleet.node(name).cut("soak", &peers, CutDirection::Both));
            last(random);
            drop(cut);
            fleet.node_mut(name).server.launch();
        }
        Fault::NodeCut => {
            let mut from = fleet.etcd().addresses();
            match random.below(3) {
                0 => from.extend(fleet.addresses_of_others(name)),
                1 => from = fleet.addresses_of_others(name),
                _ => {}
            }
            let cut = fleet.node(name).cut("soak", &from, CutDirection::Both);
            last(random);
            drop(cut);
        }
        Fault::OneWayCut => {
            let ways = [CutDirection::Outgoing, CutDirection::Incoming];
            let mut from = fleet.etcd().addresses();
            if random.below(2) == 0 {
                from = fleet.addresses_of_others(name);
            }
            let cut = fleet.node(name).cut("soak", &from, ways[random.below(2)]);
            last(random);
            drop(cut);
        }
        Fault::MemberKilled | Fault::LeaderKilled => {
            let leader = fleet.etcd().wait_for_leader();
            let other = (leader + 1 + random.below(2)) % 3;
            let member = if fault == Fault::LeaderKilled { leader } else { other };
            let etcd = fleet.etcd.as_mut().expect("a fleet");
            etcd.kill(member);
            last(random);
            etcd.launch_all();
        }
        Fault::MajorityLost => {
            let etcd = fleet.etcd.as_mut().expect("a fleet");
            let spared = random.below(3);
            (0..3).filter(|member| *member != spared).for_each(|member| etcd.kill(member));
            last(random);
            etcd.launch_all();
        }
        Fault::EtcdSlow => {
            let slow = Duration::from_millis(200);
            let delays: Vec<_> = fleet.nodes.iter().map(|node| node.delay_etcd(3, slow)).collect();
            last(random);
            drop(delays);
        }
        Fault::StoreFails => {
            let failure = StoreFailure::ALL[random.below(StoreFailure::ALL.len())];
            // While snapshots are pushed, or restored too.
            let is_restored = random.below(2) == 0;
            if is_restored {
                field.deaths[victim].fetch_add(1, Ordering::SeqCst);
                fleet.node_mut(name).server.lose_machine();
            }
            let fails: Vec<_> = fleet.nodes.iter().map(|node| node.fail_store(failure)).collect();
            if is_restored {
                sleep(Duration::from_millis(LONG_MS.1 as u64));
            } else {
                last(random);
            }
            drop(fails);
            if is_restored {
                fleet.node_mut(name).server.launch();
            }
        }
        Fault::EverythingRestarted => {
            let with_machines = random.below(2) == 0;
            for (node, name) in NODES.iter().enumerate() {
                let server = &mut fleet.node_mut(name).server;
                if with_machines {
                    field.deaths[node].fetch_add(1, Ordering::SeqCst);
                    server.lose_machine();
                } else {
                    server.kill();
                }
            }
            let etcd = fleet.etcd.as_mut().expect("a fleet");
            (0..3).for_each(|member| etcd.kill(member));
            etcd.launch_all();
            fleet.nodes.iter_mut().for_each(|node| node.server.launch());
        }
    }
}
