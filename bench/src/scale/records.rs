//! The records of sandboxes of the class `store`: an owner, and its newest snapshots.

use crate::scale::etcd_members::EtcdMembers;
use crate::scale::node::SimulatedNode;
use crate::stats::{Times, show};
use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use isolet_cluster::model::{Class, NodeKey, SandboxKey};
use isolet_cluster::ownership::{Claim, Claimed, Fence, Ownership, OwnershipError};
use std::time::Instant;

/// Tenants that own sandboxes, as many each.
const TENANTS: usize = 100;
/// Records of the first node, which is started again later, unless there are fewer than twice as many.
const FIRST: usize = 5000;

/// Name of the fenced key that holds the newest snapshots, as the server writes it.
const PUSHED: &str = "pushed";

/// The name of a tenant.
pub(crate) fn tenant(index: usize) -> String {
    format!("tenant-{:04}", index % TENANTS)
}

/// A claim as the placement of a server makes it.
pub(crate) fn claim(index: usize, id: &str) -> Result<Claim> {
    Ok(Claim {
        sandbox: SandboxKey::new(&tenant(index), id)?,
        class: Class::Store,
        region: "eu-central-1".to_owned(),
        reason: "spread: 200 of 200 nodes in eu-central-1 possible, 201320 of 262144 MiB free, has the image"
            .to_owned(),
    })
}

/// The newest snapshots of a sandbox that was pushed twice or more, as the server writes them.
fn pushed(node: &str) -> Vec<u8> {
    let one = |id: u64| {
        format!(
            r#"{{"snapshot":{{"id":"snap_{id:016x}","created_at_ms":1764000000000,"pushed_at_ms":1764000004000,"automatic":true}},"node":"{node}","epoch":1234567}}"#
        )
    };
    let first = one(1);
    let second = one(2);
    format!(r#"{{"v":1,"is_deleted":false,"is_final":false,"snapshots":[{first},{second}]}}"#)
        .into()
}

/// Writes the newest snapshots of a sandbox.
pub(crate) async fn push(ownership: &Ownership, fence: &Fence) -> Result<(), OwnershipError> {
    ownership.write_fenced(fence, PUSHED, pushed("node-0001")).await
}

/// The id of a sandbox.
fn id(index: usize) -> String {
    format!("agent-session-{index:010}")
}

/// Claims all sandboxes, accepts them and records a push: each node its part, one after the other, all nodes
/// at once. Returns how many
/// the first node owns.
pub(crate) async fn claim_all(nodes: &[SimulatedNode], records: usize) -> Result<usize> {
    let first = FIRST.min(records / 2);
    let others = nodes.len() - 1;
    let begun = Instant::now();
    let parts = nodes.iter().enumerate().map(|(at, node)| async move {
        let range = match at {
            0 => 0..first,
            _ => {
                let part = |at: usize| first + (records - first) * at / others;
                part(at - 1)..part(at)
            }
        };
        let mut times = Vec::with_capacity(range.len());
        for index in range {
            let claim = claim(index, &id(index))?;
            let begun = Instant::now();
            let Claimed::Won(owner) = node.ownership.claim(&claim).await? else {
                bail!("another node owns {}", claim.sandbox)
            };
            let fence = node.ownership.fence(&claim.sandbox, owner.epoch);
            ensure!(node.ownership.accept(&fence).await?, "not accepted");
            push(&node.ownership, &fence).await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    });
    let all = try_join_all(parts).await?;
    let took = begun.elapsed().as_secs_f64();
    let mut times = Times::default();
    all.into_iter().flatten().for_each(|time| times.push(time));
    println!(
        "\n{records} sandboxes in {took:.1} s: {:.0} transactions per second (claim, acceptance, push), {} nodes \
         at once; p50 of the three {}, p99 {}",
        3.0 * records as f64 / took,
        nodes.len(),
        show(times.median()),
        show(times.at(0.99)),
    );
    Ok(first)
}

/// Prints the sizes of a node's record and of one sandbox's records.
pub(crate) async fn print_sizes(etcd: &EtcdMembers, node: &SimulatedNode) -> Result<()> {
    let client = etcd.client(None)?;
    let sandbox = SandboxKey::new(&tenant(0), &id(0))?;
    let keys = &node.keys;
    println!("\n### size of records, in bytes");
    println!("| record | key | value |\n|---|---|---|");
    for (name, key) in [
        ("nodes/live/NODE, and nodes/known/NODE", keys.node(&NodeKey::Live(node.name.clone()))),
        ("owners/TENANT/ID", keys.owner(&sandbox)),
        ("held/NODE/TENANT/ID", keys.held(&node.name, &sandbox)),
        ("fenced/TENANT/ID/accepted", keys.fenced(&sandbox, "accepted")),
        ("fenced/TENANT/ID/pushed", keys.fenced(&sandbox, PUSHED)),
    ] {
        let pair = client.get(&key).await?.with_context(|| format!("{name} is missing"))?;
        println!("| {name} | {} | {} |", pair.key.len(), pair.value.len());
    }
    Ok(())
}
