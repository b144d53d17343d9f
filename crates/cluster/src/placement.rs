//! Where a new sandbox is placed: a pure function of the request and of the nodes.
//!
//! A node is possible if it is in the region that the request names, or else in that of the node that
//! received the first request; has all required labels; holds sandboxes of the class `store` if that is
//! the class, and its pushes to the object store advance; accepts sandboxes (neither cordoned nor suspect nor
//! starting nor stopping nor without a lease); has space on its disk; has fewer sandboxes than it may have; and
//! has enough free memory after what is reserved. Among these, the score decides: up to 16 points
//! for free memory ([`PlacementStrategy::Spread`]) or for memory in use ([`PlacementStrategy::Pack`]), 6 points for a
//! node that has the snapshot, 3 for one that has the image. So a node that saves a download is
//! preferred until it has clearly less memory than another. Among equal scores, the node that
//! received the request wins, which saves forwarding; then a hash of the sandbox and the node, so that
//! many nodes that place at once do not all choose the same one.

mod refusal;

use crate::model::Class;
use crate::model::Label;
use crate::model::Labels;
use crate::model::Member;
use crate::model::Members;
use crate::model::PlacementStrategy;
use crate::model::SandboxKey;
use isolet_wire::node::NodeName;
pub use refusal::{Missing, NoPlace};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Points for free or used memory.
const MEMORY_POINTS: u64 = 16;
/// Points for a node that has the snapshot.
const SNAPSHOT_POINTS: u64 = 6;
/// Points for a node that has the image.
const IMAGE_POINTS: u64 = 3;

/// A sandbox that needs a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementRequest {
    /// The sandbox.
    pub sandbox: SandboxKey,
    /// The node that received the first request.
    pub origin: NodeName,
    /// The region: that of `origin`, unless the request names another.
    pub region: Label,
    /// The class.
    pub class: Class,
    /// Labels that the node must have.
    pub labels: Labels,
    /// The image, as [`crate::model::Load::images`] has it.
    pub image: Option<String>,
    /// Nodes that have the snapshot from which the sandbox is made.
    pub snapshot_nodes: Vec<NodeName>,
    /// The memory that the sandbox may use, in MiB.
    pub memory_mib: u64,
    /// Memory in MiB of sandboxes that were placed and are not yet part of the reported load.
    pub reserved_mib: BTreeMap<NodeName, u64>,
    /// Which of several nodes is preferred.
    pub strategy: PlacementStrategy,
}

/// The node for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The node.
    pub node: NodeName,
    /// Its region.
    pub region: Label,
    /// Why, for people and for the record.
    pub reason: String,
}

/// A node that can take the sandbox.
struct Candidate<'a> {
    member: &'a Member,
    free_mib: u64,
    points: u64,
    saves: &'static str,
}

/// Chooses a node. The same arguments give the same node.
///
/// # Errors
/// [`NoPlace`] says what is missing and when to retry.
pub fn place(request: &PlacementRequest, members: &Members) -> Result<Placed, NoPlace> {
    let all = possible(request, members)?;
    let best = all.iter().max_by_key(|candidate| {
        let name = &candidate.member.record.name;
        let is_origin = *name == request.origin;
        (candidate.points, is_origin, tie_break(&request.sandbox, name), Reverse(name))
    });
    // `possible` returns an error instead of an empty list.
    let Some(best) = best else {
        return Err(NoPlace::of(Missing::NoNode { region: request.region.clone() }));
    };
    let record = &best.member.record;
    let order = match request.strategy {
        PlacementStrategy::Spread => "spread",
        PlacementStrategy::Pack => "pack",
    };
    let reason = format!(
        "{order}: {} of {} nodes in {} possible, {} of {} MiB free{}",
        all.len(),
        members.iter().filter(|member| member.record.region == request.region).count(),
        request.region,
        best.free_mib,
        record.capacity.memory_mib,
        best.saves,
    );
    Ok(Placed { node: record.name.clone(), region: record.region.clone(), reason })
}

/// The nodes that can take the sandbox: at least one.
fn possible<'a>(
    request: &PlacementRequest,
    members: &'a Members,
) -> Result<Vec<Candidate<'a>>, NoPlace> {
    let region = || request.region.clone();
    let in_region: Vec<&Member> =
        members.iter().filter(|member| member.record.region == request.region).collect();
    if in_region.is_empty() {
        return Err(NoPlace::of(Missing::NoNode { region: region() }));
    }
    let has_labels = |member: &&Member| {
        let has = |(name, value)| member.record.labels.get(name) == Some(value);
        request.labels.iter().all(has)
    };
    let labelled: Vec<&Member> = in_region.into_iter().filter(has_labels).collect();
    if labelled.is_empty() {
        let labels = request.labels.clone();
        return Err(NoPlace::of(Missing::Labels { region: region(), labels }));
    }
    let holds_class = |member: &&Member| request.class == Class::Node || member.record.store;
    let of_class: Vec<&Member> = labelled.into_iter().filter(holds_class).collect();
    if of_class.is_empty() {
        return Err(NoPlace::of(Missing::Store { region: region() }));
    }
    let count = of_class.len();
    let accepting: Vec<&Member> =
        of_class.into_iter().filter(|member| member.accepts_sandboxes()).collect();
    if accepting.is_empty() {
        return Err(NoPlace::of(Missing::Accepting { region: region(), nodes: count }));
    }
    let count = accepting.len();
    let with_space: Vec<&Member> =
        accepting.into_iter().filter(|member| !member.record.load.is_full).collect();
    if with_space.is_empty() {
        return Err(NoPlace::of(Missing::Disk { region: region(), nodes: count }));
    }
    let pushes =
        |member: &&Member| request.class == Class::Node || !member.record.load.pushes_stuck;
    let count = with_space.len();
    let pushing: Vec<&Member> = with_space.into_iter().filter(pushes).collect();
    if pushing.is_empty() {
        return Err(NoPlace::of(Missing::Pushes { region: region(), nodes: count }));
    }
    let count = pushing.len();
    let below_count =
        |member: &&Member| member.record.load.sandboxes < member.record.capacity.sandboxes;
    let below_count: Vec<&Member> = pushing.into_iter().filter(below_count).collect();
    if below_count.is_empty() {
        return Err(NoPlace::of(Missing::Sandboxes { region: region(), nodes: count }));
    }
    let all: Vec<Candidate<'_>> =
        below_count.into_iter().map(|member| candidate(request, member)).collect();
    let most_free_mib = all.iter().map(|candidate| candidate.free_mib).max().unwrap_or_default();
    let fitting: Vec<Candidate<'_>> =
        all.into_iter().filter(|candidate| candidate.free_mib >= request.memory_mib).collect();
    if fitting.is_empty() {
        let needed_mib = request.memory_mib;
        return Err(NoPlace::of(Missing::Memory { region: region(), needed_mib, most_free_mib }));
    }
    Ok(fitting)
}

fn candidate<'a>(request: &PlacementRequest, member: &'a Member) -> Candidate<'a> {
    let record = &member.record;
    let placed_mib = request.reserved_mib.get(&record.name).copied().unwrap_or_default();
    let free_mib = record.memory_free_mib().saturating_sub(placed_mib);
    let memory_mib = record.capacity.memory_mib.max(1);
    // A step is large enough that nodes with nearly the same memory count as equal.
    let free_points = free_mib.min(memory_mib).saturating_mul(MEMORY_POINTS) / memory_mib;
    let memory_points = match request.strategy {
        PlacementStrategy::Spread => free_points,
        PlacementStrategy::Pack => MEMORY_POINTS - free_points,
    };
    let has_snapshot = request.snapshot_nodes.contains(&record.name);
    let has_image = request.image.as_ref().is_some_and(|image| record.load.images.contains(image));
    let (saved_points, saves) = match (has_snapshot, has_image) {
        (true, _) => (SNAPSHOT_POINTS, ", has the snapshot"),
        (false, true) => (IMAGE_POINTS, ", has the image"),
        (false, false) => (0, ""),
    };
    Candidate { member, free_mib, points: memory_points + saved_points, saves }
}

/// FNV-1a, mixed: the same on every node and in every version.
fn tie_break(sandbox: &SandboxKey, node: &NodeName) -> u64 {
    let parts = [sandbox.tenant(), sandbox.id(), node.as_str()];
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash: u64 = bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The last bytes have hardly reached the upper bits, which decide: the mixing step of SplitMix64.
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests;
