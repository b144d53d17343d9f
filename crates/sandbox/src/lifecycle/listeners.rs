//! Detects opened and closed ports and the end of background processes, and publishes them as
//! events. No agent is queried unless a client follows the events.

use crate::live::inner::Inner;
use crate::model::events::EventKind;
use crate::model::state::State;
use crate::sandbox::Sandbox;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Minimum pause between two queries.
const LOOK: Duration = Duration::from_millis(500);
/// The pause is at least this many times the duration of a query. With many sandboxes, the queries
/// become less frequent instead of using more processor time.
const REST: u32 = 20;
/// Timeout of one agent's answer.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of changes of one sandbox per query. Further changes follow with the next query.
const CHANGES_MAX: usize = 64;

/// Queries the agents as long as the server runs.
pub(crate) async fn keep(inner: Arc<Inner>) {
    while !inner.stopping.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let followed = inner.events.followed();
        if followed.is_empty() {
            inner.events.wait_for_reader().await;
            continue;
        }
        for (tenant, which) in followed {
            for entry in inner.registry.of(&tenant) {
                if which.as_ref().is_none_or(|ids| ids.contains(&entry.id)) {
                    let sandbox = Sandbox::new(Arc::clone(&inner), entry);
                    look(&sandbox).await;
                    sandbox.entry.background.look(&sandbox).await;
                }
            }
        }
        tokio::time::sleep(LOOK.max(begun.elapsed() * REST)).await;
    }
}

async fn look(sandbox: &Sandbox) {
    let entry = &sandbox.entry;
    let now: BTreeSet<u16> = match entry.state() {
        State::Running => match timeout(ANSWER_WAIT, sandbox.listening()).await {
            Ok(Ok(all)) => all.into_iter().map(|one| one.port).collect(),
            // The state is unknown.
            _ => return,
        },
        State::Sleeping | State::Failed => BTreeSet::new(),
        _ => return,
    };
    let mut announced = entry.listened.lock().unwrap_or_else(PoisonError::into_inner);
    let closed = announced.difference(&now).map(|port| (*port, false));
    let opened = now.difference(&announced).map(|port| (*port, true));
    let changes: Vec<_> = closed.chain(opened).take(CHANGES_MAX).collect();
    for (port, open) in changes {
        if open {
            announced.insert(port);
            sandbox.emit(EventKind::PortOpened(port));
        } else {
            announced.remove(&port);
            sandbox.emit(EventKind::PortClosed(port));
        }
    }
}
