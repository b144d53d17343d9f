//! Writes the memory of sandboxes that were paused for a while to the swap of the host, if it has
//! some.

use crate::live::inner::Inner;
use crate::model::blocking::blocking;
use crate::model::state::State;
use isolet_jail::{SandboxHandle, free_swap_bytes};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

/// The interval at which paused sandboxes are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// Swap that stays free, in bytes.
const SWAP_FREE_MIN_BYTES: u64 = 64 * 1024 * 1024;

/// A paused sandbox.
struct PausedSandbox {
    since: Instant,
    is_done: bool,
}

/// Pages out one sandbox after the other. Runs until the server stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let after = Duration::from_secs(inner.config.page_out_after_s);
    if !inner.launch.missing().is_empty() {
        return;
    }
    let jail = inner.jail.clone();
    let names: Vec<String> =
        inner.registry.all().into_iter().map(|entry| entry.name.clone()).collect();
    let forbid = move || {
        names.iter().for_each(|name| SandboxHandle::open(&jail, name).forbid_swap());
    };
    if let Err(error) = blocking(forbid).await {
        warn!(%error, "sandboxes may still use swap");
    }
    if after.is_zero() {
        return;
    }
    // One entry for each paused sandbox, by its internal name.
    let mut paused: HashMap<String, PausedSandbox> = HashMap::new();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let entries = inner.registry.all();
        let mut all: Vec<_> =
            entries.into_iter().filter(|entry| entry.state() == State::Paused).collect();
        paused.retain(|name, _| all.iter().any(|entry| entry.name == *name));
        all.retain(|entry| {
            let new = PausedSandbox { since: Instant::now(), is_done: false };
            let known = paused.entry(entry.name.clone()).or_insert(new);
            !known.is_done && known.since.elapsed() >= after
        });
        for entry in all {
            if free_swap_bytes().unwrap_or(0) < SWAP_FREE_MIN_BYTES {
                break;
            }
            if entry.state() != State::Paused {
                continue;
            }
            let jail = inner.jail.clone();
            let name = entry.name.clone();
            let paged =
                blocking(move || SandboxHandle::open(&jail, &name).page_out(SWAP_FREE_MIN_BYTES))
                    .await;
            match paged {
                Ok(Ok(bytes)) => {
                    info!(sandbox = %entry.id, tenant = %entry.tenant, bytes, "memory written to swap");
                }
                Ok(Err(error)) => {
                    warn!(sandbox = %entry.id, %error, "memory is not written to swap");
                }
                Err(error) => {
                    warn!(sandbox = %entry.id, %error, "memory is not written to swap");
                }
            }
            if let Some(known) = paused.get_mut(&entry.name) {
                known.is_done = true;
            }
        }
    }
}
