//! The results of steps, as snapshots of the tenant whose names contain the digest of the step. They
//! count as any other snapshot; the oldest make room for later ones.

use super::BuildRun;
use crate::chain::ChainDigest;
use isolet_sandbox::{Error, Metadata, SnapshotId, SnapshotInfo, SnapshotSpec, ids};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// What the names of all such snapshots begin with.
const PREFIX: &str = "build-cache.";
/// Maximum number of results of a tenant.
const CACHED_MAX: usize = 40;
/// How long a result is kept, in seconds: two weeks.
const TTL_S: u64 = 14 * 24 * 3600;
/// Letters of a name behind the digest, because the same step may run again.
const SUFFIX_LETTERS: usize = 8;

/// A result that a build begins with.
#[derive(Debug)]
pub(super) struct CachedSteps {
    /// How many steps it contains.
    pub(super) steps: usize,
    pub(super) snapshot: SnapshotId,
}

/// The member of the metadata of sandboxes and snapshots of builds.
const MEMBER: &str = "isolet.build";

/// Whether a snapshot holds the result of a step. The name alone does not tell: clients may choose one
/// that begins like it.
#[must_use]
pub fn is_cached_step(snapshot: &SnapshotInfo) -> bool {
    digest_of(snapshot).is_some()
}

/// The digest of the steps whose result a snapshot holds.
fn digest_of(snapshot: &SnapshotInfo) -> Option<&str> {
    if !snapshot.metadata.contains_key(MEMBER) {
        return None;
    }
    snapshot.name.as_ref()?.as_str().strip_prefix(PREFIX)?.split('.').next()
}

/// The metadata of a sandbox of a build, and so of its snapshots.
pub(super) fn metadata(build: &str) -> Result<Metadata, Error> {
    let all = Map::from_iter([(MEMBER.to_owned(), Value::from(build))]);
    Metadata::parse(all).map_err(Into::into)
}

impl BuildRun<'_> {
    /// The results that the tenant has, the latest first.
    fn cached(&self) -> Vec<SnapshotInfo> {
        let mut all = self.service.snapshots(self.tenant);
        all.retain(is_cached_step);
        all.sort_by_key(|info| std::cmp::Reverse(info.created_at_ms));
        all
    }

    /// The latest result of the longest beginning of the steps.
    pub(super) fn find_cached(&self, chain: &[ChainDigest]) -> Option<CachedSteps> {
        let steps = &self.recipe.steps;
        if self.recipe.no_cache {
            return None;
        }
        let usable = steps.iter().position(|step| step.force).unwrap_or(steps.len());
        let all = self.cached();
        let with_files = (0..usable).rev().filter(|at| steps[*at].action.changes_files());
        with_files.map(|at| at + 1).chain(std::iter::once(0)).find_map(|steps| {
            let name = chain[steps].name();
            let found = all.iter().find(|info| digest_of(info) == Some(name.as_str()));
            found.map(|info| CachedSteps { steps, snapshot: info.id.clone() })
        })
    }

    /// Takes a snapshot of the sandbox as the result of a step.
    pub(super) async fn keep(&self, digest: &ChainDigest) -> Result<SnapshotId, Error> {
        // A build with many steps must not fill the quota of the tenant before it ends.
        self.leave(CACHED_MAX - 1).await;
        let suffix: String = ids::random().chars().take(SUFFIX_LETTERS).collect();
        let name = SnapshotId::parse(&format!("{PREFIX}{}.{suffix}", digest.name()));
        let name = name.map_err(|error| Error::Fault(error.to_string()))?;
        let spec =
            SnapshotSpec { name: Some(name), metadata: metadata(self.build)?, ttl_s: Some(TTL_S) };
        let taken = self.service.create_snapshot(self.tenant, self.sandbox, spec, None).await?;
        Ok(taken.0.id)
    }

    /// Removes the oldest results beyond the limit, and those that a later one replaces.
    pub(crate) async fn evict(&self) {
        self.leave(CACHED_MAX).await;
    }

    async fn leave(&self, count: usize) {
        for info in superfluous(&self.cached(), count) {
            // One that is in use goes with a later build.
            let _ = self.service.delete_snapshot(self.tenant, &info.id).await;
        }
    }
}

/// Those beyond the first `count`, and those with the digest of an earlier one.
fn superfluous(all: &[SnapshotInfo], count: usize) -> Vec<&SnapshotInfo> {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut out = Vec::new();
    for info in all {
        let digest = digest_of(info).unwrap_or_default();
        if seen.len() >= count || !seen.insert(digest) {
            out.push(info);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn snapshot(name: &str, metadata: Value) -> SnapshotInfo {
        let limits = json!({"memory_mib": 1, "cpu_millis": 1, "pids": 1, "disk_mib": 1});
        let info = json!({
            "id": name, "name": name, "sandbox": "s", "trigger": "request", "metadata": metadata, "created_at_ms": 1,
            "expires_at_ms": null, "size_bytes": 1, "frozen_ms": 0.0, "image_resolved": "host",
            "image": "host", "limits": limits, "lost": [],
        });
        serde_json::from_value(info).unwrap()
    }

    #[test]
    fn a_snapshot_of_a_client_with_such_a_name_is_no_result() {
        assert!(is_cached_step(&snapshot("build-cache.00.aa", json!({MEMBER: "b"}))));
        assert!(!is_cached_step(&snapshot("build-cache.00.aa", json!({}))));
        assert!(!is_cached_step(&snapshot("mine", json!({MEMBER: "b"}))));
    }

    #[test]
    fn the_latest_results_stay_each_once() {
        let names = ["a.1", "b.1", "a.2", "c.1", "d.1"];
        let all = names.map(|name| snapshot(&format!("{PREFIX}{name}"), json!({MEMBER: "b"})));
        let out: Vec<&str> = superfluous(&all, 3).iter().map(|info| info.id.as_str()).collect();
        assert_eq!(out, ["build-cache.a.2", "build-cache.d.1"]);
    }
}
