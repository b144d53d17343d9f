//! The faults, each from its beginning to its end.

use super::random::Random;
use crate::NODES;
use isolet_fleet_tests::{CutDirection, LocalFleet};
use std::thread::sleep;
use std::time::Duration;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    NodeKilled,
    NodeCut,
    OneWayCut,
    MemberKilled,
    LeaderKilled,
    MajorityLost,
    EtcdSlow,
    EverythingRestarted,
}

impl Fault {
    /// All kinds, with their names in the note and how often `make soak` wants each.
    pub(super) const ALL: [(Self, &'static str, usize); 8] = [
        (Self::NodeKilled, "node killed", 50),
        (Self::NodeCut, "node cut from etcd and its peers", 50),
        (Self::OneWayCut, "one-way cut", 10),
        (Self::MemberKilled, "member of etcd killed", 10),
        (Self::LeaderKilled, "leader of etcd killed", 10),
        (Self::MajorityLost, "majority of etcd lost", 10),
        (Self::EtcdSlow, "etcd 200 ms slower", 10),
        (Self::EverythingRestarted, "everything restarted", 10),
    ];

    pub(super) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(fault, ..)| *fault == self);
        found.map_or("", |(_, name, _)| name)
    }
}

/// How long a fault lasts, in ms: shorter and longer than a lease of 5 s.
const LASTS_MS: (usize, usize) = (500, 8_000);

fn last(random: &mut Random) {
    let ms = LASTS_MS.0 + random.below(LASTS_MS.1 - LASTS_MS.0);
    sleep(Duration::from_millis(ms as u64));
}

/// Lets a fault happen and end.
pub(super) fn inflict(fleet: &mut LocalFleet, fault: Fault, random: &mut Random) {
    let victim = NODES[random.below(NODES.len())];
    match fault {
        Fault::NodeKilled => {
            fleet.node_mut(victim).server.kill();
            // A server that is restarted at once, and one that is away for longer than its lease.
            if random.below(2) == 0 {
                last(random);
            }
            fleet.node_mut(victim).server.launch();
        }
        Fault::NodeCut => {
            let mut from = fleet.etcd().addresses();
            match random.below(3) {
                0 => from.extend(fleet.addresses_of_others(victim)),
                1 => from = fleet.addresses_of_others(victim),
                _ => {}
            }
            let cut = fleet.node(victim).cut("soak", &from, CutDirection::Both);
            last(random);
            drop(cut);
        }
        Fault::OneWayCut => {
            let ways = [CutDirection::Outgoing, CutDirection::Incoming];
            let mut from = fleet.etcd().addresses();
            if random.below(2) == 0 {
                from = fleet.addresses_of_others(victim);
            }
            let cut = fleet.node(victim).cut("soak", &from, ways[random.below(2)]);
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
        Fault::EverythingRestarted => {
            fleet.nodes.iter_mut().for_each(|node| node.server.kill());
            let etcd = fleet.etcd.as_mut().expect("a fleet");
            (0..3).for_each(|member| etcd.kill(member));
            etcd.launch_all();
            fleet.nodes.iter_mut().for_each(|node| node.server.launch());
        }
    }
}
