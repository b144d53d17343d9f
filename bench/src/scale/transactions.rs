//! The calls that creating and deleting a sandbox costs, while the fleet has other traffic.

use crate::scale::node::SimulatedNode;
use crate::scale::records::{claim, push, tenant};
use crate::stats::{Times, rows};
use anyhow::Result;
use futures_util::future::try_join_all;
use isolet_cluster::ownership::{Claim, Claimed, Ownership, OwnershipError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sandboxes that are created and deleted at once.
const WORKERS: usize = 16;
/// The calls of one round.
const CALLS: [&str; 6] = ["count of a tenant", "claim", "acceptance", "lookup", "push", "release"];

/// Times of the calls, for each traffic.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<(&'static str, [Times; CALLS.len()])>,
}

impl Table {
    /// Creates and deletes for some time.
    pub(crate) async fn measure(
        &mut self,
        name: &'static str,
        nodes: &[Arc<SimulatedNode>],
        time: Duration,
    ) -> Result<()> {
        let end = Instant::now() + time;
        let workers = (0..WORKERS).map(|worker| work(nodes, worker, end));
        let mut times: [Times; CALLS.len()] = Default::default();
        let mut failed = 0;
        for round in try_join_all(workers).await?.into_iter().flatten() {
            match round {
                Some(of_round) => {
                    times.iter_mut().zip(of_round).for_each(|(all, one)| all.push(one));
                }
                None => failed += 1,
            }
        }
        let rate = times[0].count() as f64 / time.as_secs_f64();
        println!("\n{name}: {rate:.0} rounds per second, {failed} failed");
        self.rows.push((name, times));
        Ok(())
    }

    pub(crate) fn print(&self) {
        for (at, call) in CALLS.iter().enumerate() {
            let times: Vec<(&str, Times)> =
                self.rows.iter().map(|(name, times)| (*name, times[at].clone())).collect();
            rows(&format!("### {call}, {WORKERS} at once"), &times);
        }
    }
}

/// Times of the calls of a round, in their order; `None`: one of them failed.
type Round = Option<Vec<Duration>>;

async fn work(nodes: &[Arc<SimulatedNode>], worker: usize, end: Instant) -> Result<Vec<Round>> {
    let mut all = Vec::new();
    while Instant::now() < end {
        let at = worker + all.len() * WORKERS;
        let new = claim(at, &format!("new-{worker}-{}", all.len()))?;
        let done = round(&nodes[at % nodes.len()].ownership, &new, &tenant(at)).await;
        all.push(done.ok());
    }
    Ok(all)
}

async fn round(
    ownership: &Ownership,
    new: &Claim,
    tenant: &str,
) -> Result<Vec<Duration>, OwnershipError> {
    let mut times = Vec::with_capacity(CALLS.len());
    let mut begun = Instant::now();
    let mut lap = || {
        times.push(begun.elapsed());
        begun = Instant::now();
    };
    ownership.count(tenant).await?;
    lap();
    let (Claimed::Won(owner) | Claimed::Owned(owner)) = ownership.claim(new).await?;
    lap();
    let fence = ownership.fence(&new.sandbox, owner.epoch);
    ownership.accept(&fence).await?;
    lap();
    ownership.owner_in_etcd(&new.sandbox).await?;
    lap();
    push(ownership, &fence).await?;
    lap();
    ownership.release(&fence).await?;
    lap();
    Ok(times)
}
