//! Table (s): a three-member etcd on this machine with the records of a large fleet. Each node is
//! simulated: it has a membership, an ownership and watches of its own, by the code that servers
//! run, and no sandboxes.

mod election;
mod etcd_members;
mod node;
mod records;
mod start;
mod traffic;
mod transactions;

use anyhow::{Context, Result, bail};
use etcd_members::EtcdMembers;
use node::SimulatedNode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often each node reports another load, in seconds, and the names of the rows.
const REPORTS: [(u64, &str, &str); 3] = [
    (60, "reports every 60 s", "claims, reports every 60 s"),
    (10, "reports every 10 s", "claims, reports every 10 s"),
    (2, "reports every 2 s", "claims, reports every 2 s"),
];

/// What the table `scale` measures. It takes about ten minutes with these defaults.
#[derive(clap::Args)]
pub(crate) struct Scale {
    /// `scale`: number of nodes.
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    nodes: usize,
    /// `scale`: number of sandboxes with a record of ownership.
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    records: usize,
    /// `scale`: how long each traffic is measured, in seconds.
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    traffic_s: u64,
}

pub(crate) fn table(scale: &Scale) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        // Dropping the measurement ends etcd, and deletes its data.
        tokio::select! {
            done = measure(scale) => done,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminated.recv() => bail!("terminated"),
        }
    })
}

async fn measure(scale: &Scale) -> Result<()> {
    let mut etcd = EtcdMembers::start().await?;
    println!("{}", machine());
    println!(
        "etcd {}, three members on this machine, with fsync, without TLS",
        etcd.version().await?
    );
    let empty = etcd.state().await?;
    let mut nodes = start::join_all(&etcd, scale.nodes).await?;
    let joined = etcd.state().await?;
    let of_first = records::claim_all(&nodes, scale.records).await?;
    records::print_sizes(&etcd, &nodes[0]).await?;
    let claimed = etcd.state().await?;
    start::print_one(&etcd, &mut nodes, of_first).await?;
    etcd.compact().await?;
    let compacted = etcd.state().await?;
    etcd_members::print_states(&[
        ("empty", &empty),
        ("nodes joined", &joined),
        ("records written", &claimed),
        ("compacted, defragmented", &compacted),
    ]);

    let nodes: Vec<Arc<SimulatedNode>> = nodes.into_iter().map(Arc::new).collect();
    let time = Duration::from_secs(scale.traffic_s);
    let mut traffic = traffic::Table::default();
    let mut times = transactions::Table::default();
    traffic.row("no load changes", &etcd, traffic::rest(time)).await?;
    let work = times.measure("no load changes", &nodes, time);
    traffic.row("claims, no load changes", &etcd, work).await?;
    for (at, (every_s, alone, with_claims)) in (0..).zip(REPORTS) {
        let reports = traffic::report(&nodes, Duration::from_secs(every_s), at);
        traffic.row(alone, &etcd, traffic::rest(time)).await?;
        let work = times.measure(alone, &nodes, time);
        traffic.row(with_claims, &etcd, work).await?;
        drop(reports);
        traffic::recover(&nodes).await?;
    }
    traffic.print(nodes.len());
    times.print();

    election::kill_leaders(&mut etcd, &nodes).await
}

/// The machine, which is part of every number.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{}, {cores} cores, kernel {}", model.map_or("", |(_, name)| name), kernel.trim())
}

/// The processor time of this process, which is that of all nodes, in seconds.
fn own_cpu_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in brackets, may contain spaces.
    let (_, fields) = stat.rsplit_once(") ").context("/proc/self/stat")?;
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}
