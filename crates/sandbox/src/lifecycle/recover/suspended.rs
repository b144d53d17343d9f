//! Sandboxes that must not continue when a server starts, because another node may own them.

use crate::live::launch_queue::lease_guard::Guard;
use crate::model::blocking::blocking;
use crate::model::error::OpenError;
use crate::model::info::class::SandboxClass;
use crate::model::record::Record;
use isolet_store::Store;
use isolet_wire::lease_guard::GuardedState;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tracing::{info, warn};

/// The internal names of the sandboxes that stay stopped until the protocol of the fleet lets them
/// continue: those that were suspended, and those of the class `store` that the lease guard does not
/// watch, or that it has stopped. Without a guard, all of the class `store`.
pub(super) async fn find(
    store: &Store,
    guard: Option<&Arc<Guard>>,
    records: &[Record],
) -> Result<HashSet<String>, OpenError> {
    let rows = store.ownership().await?;
    let mut suspended: HashSet<String> =
        rows.into_iter().filter(|row| row.suspended).map(|row| row.name).collect();
    let guarded = match guard {
        Some(guard) => list(Arc::clone(guard)).await?,
        None => HashMap::new(),
    };
    let is_watched = |name: &str| guarded.get(name) == Some(&GuardedState::Watched);
    for record in records {
        if record.body.class == SandboxClass::Store && !is_watched(&record.name) {
            suspended.insert(record.name.clone());
        }
    }
    let known: HashSet<&str> = records.iter().map(|record| record.name.as_str()).collect();
    suspended.retain(|name| known.contains(name.as_str()));
    if suspended.is_empty() {
        return Ok(suspended);
    }
    info!(
        count = suspended.len(),
        "sandboxes stay stopped until this node knows that it still owns them"
    );
    let is_stopped =
        |name: &String| guarded.get(name).is_some_and(|state| *state != GuardedState::Watched);
    let to_stop: Vec<String> = suspended.iter().filter(|name| !is_stopped(name)).cloned().collect();
    if let Some(guard) = guard {
        let guard = Arc::clone(guard);
        match blocking(move || guard.stop(&to_stop)).await? {
            Ok(()) => {}
            Err(error) => return Err(OpenError::Fault(error.to_string())),
        }
    } else {
        warn!(
            "this server has sandboxes of a fleet, and no [cluster] in its configuration file: \
             they stay stopped"
        );
    }
    Ok(suspended)
}

async fn list(guard: Arc<Guard>) -> Result<HashMap<String, GuardedState>, OpenError> {
    let listed = blocking(move || guard.list()).await?;
    let listed = listed.map_err(|error| OpenError::Fault(error.to_string()))?;
    Ok(listed.into_iter().map(|one| (one.name, one.state)).collect())
}
