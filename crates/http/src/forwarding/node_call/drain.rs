//! Moves all sandboxes of a node away, as an operator requests it.
//!
//! A drain runs on the node that is drained, until its server stops. Running it again continues with what
//! is left, so its state is in memory only.

use crate::app::App;
use crate::fleet::MoveTo;
use crate::fleet::draining::{DrainLeft, DrainOptions, DrainProgress, LEFT_MAX};
use crate::fleet::joined::JoinedFleet;
use crate::forwarding::node_call::moving;
use crate::foundation::error::ApiError;
use futures_util::{StreamExt, stream};
use isolet_sandbox::{Departure, LocalSandbox};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;

/// Sandboxes that are moved at the same time.
const AT_ONCE: usize = 4;
/// How often what could not be moved is tried again within one drain.
const ROUNDS: usize = 3;
/// The pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_secs(1);
/// Begins to drain this node unless a drain runs, and says how far it is. `None`: there was none.
pub(crate) fn here(
    app: &App,
    joined: &Arc<JoinedFleet>,
    begin: Option<DrainOptions>,
) -> Option<DrainProgress> {
    let mut current = joined.drains.lock();
    let runs = current.as_ref().is_some_and(|progress| progress.running);
    if let Some(options) = begin.filter(|_| !runs) {
        let total = app.service.local_sandboxes().len();
        let progress = DrainProgress {
            node: joined.fleet.here().to_string(),
            running: true,
            total,
            remaining: total,
            ..DrainProgress::default()
        };
        *current = Some(progress);
        tokio::spawn(run(app.clone(), Arc::clone(joined), options));
    }
    current.clone()
}

async fn run(app: App, joined: Arc<JoinedFleet>, options: DrainOptions) {
    let wait = options.timeout_s.map(Duration::from_secs);
    let until = wait.and_then(|wait| Instant::now().checked_add(wait));
    let is_late = || until.is_some_and(|until| Instant::now() >= until);
    let app = &app;
    let joined = &joined;
    let mut failures = 0;
    // Forks, and creates that were placed before the node was cordoned, may still arrive.
    let left = loop {
        let all = app.service.local_sandboxes();
        if all.is_empty() || failures == ROUNDS || is_late() || app.cancellations.is_stopping() {
            break all.len();
        }
        if failures > 0 {
            tokio::time::sleep(ROUND_PAUSE).await;
        }
        joined.drains.change(|progress| {
            progress.left.clear();
            progress.remaining = all.len();
            progress.total = progress.total.max(progress.moved + progress.stored + all.len());
        });
        let work = stream::iter(all).map(|one| async move {
            if is_late() || app.cancellations.is_stopping() {
                let message = "the time of the drain is over".to_owned();
                return Some((one, "timeout".to_owned(), message));
            }
            match leave(app, joined, &one).await {
                Ok(was_moved) => {
                    joined.drains.change(|progress| {
                        progress.remaining = progress.remaining.saturating_sub(1);
                        match was_moved {
                            Some(true) => progress.moved += 1,
                            Some(false) => progress.stored += 1,
                            None => {}
                        }
                    });
                    None
                }
                Err(error) => Some((one, error.code.to_owned(), error.message)),
            }
        });
        let mut has_failed = false;
        let mut ended = work.buffer_unordered(AT_ONCE);
        while let Some(failed) = ended.next().await {
            let Some((one, code, reason)) = failed else { continue };
            let sandbox = format!("{}/{}", one.tenant, one.id);
            joined.drains.change(|progress| {
                if progress.left.len() < LEFT_MAX {
                    progress.left.push(DrainLeft { sandbox, code, reason });
                }
            });
            has_failed = true;
        }
        failures += usize::from(has_failed);
    };
    joined.drains.change(|progress| {
        progress.running = false;
        progress.remaining = left;
        info!(
            moved = progress.moved,
            stored = progress.stored,
            left,
            "the drain of this node has ended"
        );
    });
}

/// Returns whether the sandbox was moved, or only stored away; `None`: it is gone.
async fn leave(
    app: &App,
    joined: &Arc<JoinedFleet>,
    sandbox: &LocalSandbox,
) -> Result<Option<bool>, ApiError> {
    if !app.service.exists(sandbox) {
        return Ok(None);
    }
    let tenant = &sandbox.tenant;
    let id = &sandbox.id;
    if app.service.sleeps_in_store_class(sandbox) {
        match app.service.depart(tenant, id, Departure::Evicted).await {
            Ok(departed) => {
                joined.fleet.store_away(&departed.sandbox).await;
                return Ok(Some(false));
            }
            // It was woken.
            Err(isolet_sandbox::Error::InUse(_)) => {}
            Err(isolet_sandbox::Error::NoSandbox(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    match moving::move_away(app, joined, tenant, id, MoveTo::Away).await {
        Ok(_) => Ok(Some(true)),
        Err(error) if error.code == "no_sandbox" => Ok(None),
        Err(error) => Err(error),
    }
}
