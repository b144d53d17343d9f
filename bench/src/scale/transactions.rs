//! The calls that creating and deleting a sandbox costs, while the fleet has other traffic.

use crate::scale::node::SimulatedNode;
use crate::scale::records::{claim, tenant};
use crate::stats::{Times, rows};
use anyhow::{Result, bail};
use futures_util::future::try_join_all;
use isolet_cluster::ownership::Claimed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sandboxes that are created and deleted at once.
const WORKERS: usize = 16;
/// The calls of one round.
const CALLS: [&str; 4] = ["count of a tenant", "claim", "lookup", "release"];

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
        for of_worker in try_join_all(workers).await?.into_iter().flatten() {
            times.iter_mut().zip(of_worker).for_each(|(all, one)| all.push(one));
        }
        println!("\n{name}: {:.0} rounds per second", times[0].count() as f64 / time.as_secs_f64());
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

async fn work(
    nodes: &[Arc<SimulatedNode>],
    worker: usize,
    end: Instant,
) -> Result<Vec<[Duration; CALLS.len()]>> {
    let mut all = Vec::new();
    while Instant::now() < end {
        let round = all.len();
        let at = worker + round * WORKERS;
        let ownership = &nodes[at % nodes.len()].ownership;
        let new = claim(at, &format!("new-{worker}-{round}"))?;
        let start = Instant::now();
        ownership.count(&tenant(at)).await?;
        let counted = start.elapsed();
        let owner = match ownership.claim(&new).await? {
            Claimed::Won(owner) => owner,
            Claimed::Owned(owner) => bail!("owned by {}", owner.node),
        };
        let claimed = start.elapsed();
        ownership.owner_in_etcd(&new.sandbox).await?;
        let found = start.elapsed();
        ownership.release(&ownership.fence(&new.sandbox, owner.epoch)).await?;
        let released = start.elapsed();
        all.push([counted, claimed - counted, found - claimed, released - found]);
    }
    Ok(all)
}
