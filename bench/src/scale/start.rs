//! The start of nodes: all of an empty fleet, and one of a full one.

use crate::scale::etcd_members::EtcdMembers;
use crate::scale::node::{SimulatedNode, StartTimes};
use crate::scale::records::tenant;
use crate::stats::{Times, show};
use anyhow::{Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::Instant;

/// Nodes that start at once.
const STARTS_AT_ONCE: usize = 16;
/// API keys of the fleet.
const API_KEYS: usize = 1000;
/// Sandboxes of one page of a list.
const PAGE: u16 = 1000;
/// Starts of one node in the full fleet.
const STARTS: usize = 5;

/// The name of a node.
pub(crate) fn name(index: usize) -> String {
    format!("node-{index:04}")
}

/// Starts all nodes.
pub(crate) async fn join_all(etcd: &EtcdMembers, count: usize) -> Result<Vec<SimulatedNode>> {
    ensure!(count >= 2, "a fleet has at least two nodes");
    write_api_keys(etcd).await?;
    let urls = etcd.urls();
    let begun = Instant::now();
    let starts = stream::iter(0..count).map(|index| {
        let urls = &urls;
        async move { SimulatedNode::start(urls, &name(index)).await }
    });
    let all: Vec<(SimulatedNode, StartTimes)> =
        starts.buffered(STARTS_AT_ONCE).try_collect().await?;
    let took = begun.elapsed().as_secs_f64();
    println!("\n{count} nodes joined in {took:.1} s, {STARTS_AT_ONCE} at once");
    Ok(all.into_iter().map(|(node, _)| node).collect())
}

/// Records that every node lists and keeps, as the replication writes them.
async fn write_api_keys(etcd: &EtcdMembers) -> Result<()> {
    let client = etcd.client(None)?;
    let digest = "0123456789abcdef".repeat(4);
    for index in 0..API_KEYS {
        let key = format!("isolet/keys/key_{index:016x}");
        let value = format!(
            r#"{{"v":1,"digest":"{digest}","tenant":"tenant-{index:04}","label":"ci","read_only":false,"created_at_ms":1764000000000}}"#
        );
        client.put(key.as_bytes(), value.as_bytes()).await?;
    }
    Ok(())
}

/// Restarts the first node some times, and prints how long that takes: it continues its registration
/// as the server does after an upgrade. `held` is the number of its records.
pub(crate) async fn print_one(
    etcd: &EtcdMembers,
    nodes: &mut Vec<SimulatedNode>,
    held: usize,
) -> Result<()> {
    let urls = etcd.urls();
    let mut join = Times::default();
    let mut shared = Times::default();
    let mut list = Times::default();
    for _ in 0..STARTS {
        let former = nodes.swap_remove(0);
        former.stop().await;
        let (node, times) = SimulatedNode::start(&urls, &name(0)).await?;
        ensure!(times.count == held, "{} records of {held} were listed", times.count);
        join.push(times.join);
        shared.push(times.shared);
        list.push(times.held);
        nodes.push(node);
        let last = nodes.len() - 1;
        nodes.swap(0, last);
    }
    let known = nodes[0].membership.members().borrow().len();
    println!("\n### start of one node: calls to etcd (p50 of {STARTS})");
    println!("| part | time |\n|---|---|");
    println!("| registration, list of {known} nodes | {} |", show(join.median()));
    println!(
        "| {API_KEYS} API keys, profiles, revocation lists; three watches | {} |",
        show(shared.median())
    );
    println!("| its {held} records of ownership | {} |", show(list.median()));
    let begun = Instant::now();
    let listed = nodes[0].ownership.owned_by_tenant(&tenant(1), None, PAGE).await?.sandboxes.len();
    let mut page = Times::default();
    page.push(begun.elapsed());
    println!("| beside: a page of {listed} sandboxes of one tenant | {} |", show(page.median()));
    Ok(())
}
