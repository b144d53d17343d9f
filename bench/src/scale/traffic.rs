//! What a fleet costs etcd in a second, by etcd's own metrics.

use crate::scale::etcd_members::{ClusterState, EtcdMembers};
use crate::scale::node::{MEMORY_MIB, SimulatedNode};
use crate::scale::own_cpu_s;
use anyhow::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{interval_at, sleep, timeout};

/// How long nodes may take to register again.
const WAIT: Duration = Duration::from_secs(60);

/// Rows of the table of traffic.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    seconds: f64,
    before: ClusterState,
    after: ClusterState,
    own_cpu_s: f64,
}

impl Row {
    /// How much a number of all members grew in a second.
    fn rate(&self, metric: &str) -> f64 {
        (self.after.sum(metric) - self.before.sum(metric)) / self.seconds
    }

    /// The same of the member where it is largest.
    fn rate_of_one(&self, metric: &str) -> f64 {
        (self.after.most(metric) - self.before.most(metric)) / self.seconds
    }
}

impl Table {
    /// Measures while `work` runs.
    pub(crate) async fn row(
        &mut self,
        name: &'static str,
        etcd: &EtcdMembers,
        work: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let before = etcd.state().await?;
        let cpu = own_cpu_s()?;
        let begun = Instant::now();
        work.await?;
        let seconds = begun.elapsed().as_secs_f64();
        let own_cpu_s = (own_cpu_s()? - cpu) / seconds;
        let after = etcd.state().await?;
        self.rows.push(Row { name, seconds, before, after, own_cpu_s });
        Ok(())
    }

    pub(crate) fn print(&self, nodes: usize) {
        println!("\n### traffic in a second: {nodes} nodes");
        println!(
            "| traffic | raft entries | events to watches | to clients | between members | \
             processors: etcd | all nodes | etcd, memory |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        for row in &self.rows {
            let kib = |metric: &str| row.rate(metric) / 1024.0;
            println!(
                "| {} | {:.1} | {:.0} | {:.0} KiB | {:.0} KiB | {:.2} | {:.2} | {:.0} MiB |",
                row.name,
                row.rate_of_one("etcd_server_proposals_applied_total"),
                row.rate("etcd_debugging_mvcc_events_total"),
                kib("etcd_network_client_grpc_sent_bytes_total"),
                kib("etcd_network_peer_sent_bytes_total"),
                row.rate("process_cpu_seconds_total"),
                row.own_cpu_s,
                row.after.most("process_resident_memory_bytes") / f64::from(1 << 20),
            );
        }
        let Some(last) = self.rows.last() else { return };
        let sum = |metric: &str| last.after.sum(metric);
        println!(
            "\n{:.0} watches, {:.0} of them behind; {:.0} open calls",
            sum("etcd_debugging_mvcc_watcher_total"),
            sum("etcd_debugging_mvcc_slow_watcher_total"),
            sum("grpc_server_started_total") - sum("grpc_server_handled_total"),
        );
    }
}

/// Waits.
pub(crate) async fn rest(time: Duration) -> Result<()> {
    sleep(time).await;
    Ok(())
}

/// Waits until all nodes hold their leases, and prints how many did not at first.
pub(crate) async fn recover(nodes: &[Arc<SimulatedNode>]) -> Result<()> {
    let holds =
        |node: &&Arc<SimulatedNode>| node.membership.state().borrow().registration().is_some();
    let lost = nodes.len() - nodes.iter().filter(holds).count();
    if lost > 0 {
        println!("{lost} nodes had lost their leases");
    }
    for node in nodes {
        let mut state = node.membership.state();
        timeout(WAIT, state.wait_for(|state| state.registration().is_some())).await??;
    }
    Ok(())
}

/// Reports of all nodes. They end when it is dropped.
pub(crate) struct Reports(Vec<JoinHandle<()>>);

impl Drop for Reports {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Lets each node report another load every so often, the nodes spread over that time. Each of these
/// loads differs enough to be written, also from those of other calls with another `at` (0 to 3).
pub(crate) fn report(nodes: &[Arc<SimulatedNode>], every: Duration, at: u64) -> Reports {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let task = |(index, node): (usize, &Arc<SimulatedNode>)| {
        let node = Arc::clone(node);
        let first = every / count * u32::try_from(index).unwrap_or_default();
        let mut clock = interval_at(tokio::time::Instant::now() + first, every);
        tokio::spawn(async move {
            for round in 1_u64.. {
                clock.tick().await;
                node.report(MEMORY_MIB / 8 * (1 + 2 * at + round % 2));
            }
        })
    };
    Reports(nodes.iter().enumerate().map(task).collect())
}
