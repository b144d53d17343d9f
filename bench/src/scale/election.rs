//! The end of etcd's leader: how long nothing can be written, and whether leases survive.

use crate::scale::etcd_members::EtcdMembers;
use crate::scale::node::{MEMORY_MIB, SimulatedNode};
use crate::scale::records::claim;
use crate::stats::{Times, show};
use anyhow::{Context, Result};
use futures_util::future::join_all;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::membership::MemberState;
use isolet_cluster::model::{BootTime, Epoch};
use isolet_cluster::ownership::Claimed;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How long anything may take after a leader has ended.
const WAIT: Duration = Duration::from_secs(60);
/// Rest after a member was started again.
const REST: Duration = Duration::from_secs(10);
/// The pause between two attempts of the probes.
const PAUSE: Duration = Duration::from_millis(20);
/// Kills of each kind.
const ROUNDS: usize = 3;

/// Kills the leader: one to which few nodes are connected, and one to which most are.
pub(crate) async fn kill_leaders(
    etcd: &mut EtcdMembers,
    nodes: &[Arc<SimulatedNode>],
) -> Result<()> {
    println!("\n### the leader of etcd is killed");
    println!(
        "| watches on the leader | a lease is renewed | a claim succeeds | all nodes have renewed | \
         a change reaches all nodes | suspect | lost | leases that survived | the member is back |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for round in 0..2 * ROUNDS {
        let by_watches = etcd.by_watches().await?;
        let (leader, watches) = if round % 2 == 0 { by_watches.first() } else { by_watches.last() }
            .copied()
            .context("a member")?;
        etcd.move_leader(leader).await?;
        sleep(REST).await;
        print!("| {watches:.0} of {} ", 4 * nodes.len());
        kill(etcd, nodes, leader, round).await?;
    }
    Ok(())
}

async fn kill(
    etcd: &mut EtcdMembers,
    nodes: &[Arc<SimulatedNode>],
    leader: usize,
    round: usize,
) -> Result<()> {
    let client = etcd.client(None)?;
    let lease = client.grant_lease(300).await?.id;
    let registrations: Vec<Option<Epoch>> = nodes.iter().map(|node| registration(node)).collect();
    let ttl = ttl(&client, nodes).await?;
    etcd.kill(leader)?;
    let killed = Instant::now();
    let killed_at = BootTime::now();
    // Differs enough from the last one to be written at once.
    let reported = MEMORY_MIB / 8 * (3 + round as u64 % 2);
    nodes[0].report(reported);
    let renewed = async {
        let client = client.with_timeout(Duration::from_millis(500));
        while client.renew_lease(lease).await.is_err() {
            sleep(PAUSE).await;
        }
        killed.elapsed()
    };
    let claimed = async {
        for attempt in 0.. {
            let claim = claim(attempt, &format!("after-{round}-{attempt}"))?;
            if let Ok(Claimed::Won(_)) = nodes[1].ownership.claim(&claim).await {
                break;
            }
            sleep(PAUSE).await;
        }
        anyhow::Ok(killed.elapsed())
    };
    let all_renewed = join_all(nodes.iter().map(|node| async move {
        let mut deadlines = node.membership.deadline();
        // A deadline lies nine tenths of the lifetime behind the beginning of the renewal.
        let least = killed_at.after(ttl - ttl / 10);
        let _ = timeout(WAIT, deadlines.wait_for(|deadline| deadline.at >= least)).await;
        killed.elapsed()
    }));
    let seen = join_all(nodes.iter().skip(1).map(|node| async {
        let mut members = node.membership.members();
        let first = nodes[0].name.clone();
        let is_there = |load: u64| load == reported;
        let _ = timeout(
            WAIT,
            members.wait_for(|all| {
                all.get(&first).is_some_and(|one| is_there(one.record.load.memory_reserved_mib))
            }),
        )
        .await;
        killed.elapsed()
    }));
    let failures = join_all(nodes.iter().map(|node| failures(node)));
    let (renewed, claimed, all_renewed, seen, failures) =
        tokio::join!(renewed, claimed, all_renewed, seen, failures);
    let survived =
        nodes.iter().zip(&registrations).filter(|(node, former)| registration(node) == **former);
    let survived = survived.count();
    etcd.launch(leader)?;
    let restarted = Instant::now();
    let member = etcd.client(Some(leader))?;
    while member.get(b"none").await.is_err() && restarted.elapsed() < WAIT {
        sleep(PAUSE).await;
    }
    let back = restarted.elapsed();
    let time = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let suspect = failures.iter().filter(|failed| failed.suspect).count();
    let lost = failures.iter().filter(|failed| failed.lost).count();
    println!(
        "| {} | {} | {} | {} | {suspect} | {lost} | {survived} of {} | {} |",
        time(renewed),
        time(claimed?),
        times(all_renewed),
        times(seen),
        nodes.len(),
        time(back),
    );
    Ok(())
}

/// The median and the longest.
fn times(all: Vec<Duration>) -> String {
    let mut times = Times::default();
    all.into_iter().for_each(|time| times.push(time));
    format!("p50 {}, last {}", show(times.median()), show(times.at(1.0)))
}

fn registration(node: &SimulatedNode) -> Option<Epoch> {
    node.membership.state().borrow().registration()
}

/// The lifetime of the nodes' leases.
async fn ttl(client: &Etcd, nodes: &[Arc<SimulatedNode>]) -> Result<Duration> {
    let node = nodes.first().context("a node")?;
    let key = node.keys.node(&isolet_cluster::model::NodeKey::Live(node.name.clone()));
    let lease = client.get(&key).await?.context("the record of a node")?.lease;
    Ok(Duration::from_secs(u64::from(client.lease_time_to_live(lease).await?.granted_s)))
}

/// What a node went through.
struct Failures {
    suspect: bool,
    lost: bool,
}

/// Watches the state of a node for the lifetime of a lease.
async fn failures(node: &SimulatedNode) -> Failures {
    let mut state = node.membership.state();
    let mut all = Failures { suspect: false, lost: false };
    let watched = async {
        loop {
            match *state.borrow_and_update() {
                MemberState::Suspect { .. } => all.suspect = true,
                MemberState::Lost => all.lost = true,
                MemberState::Member { .. } => {}
            }
            if state.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = timeout(REST, watched).await;
    all
}
