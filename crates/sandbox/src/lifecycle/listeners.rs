//! Reports ports that open and close, and ends of background work, as events. Agents are asked only
//! while a client follows the events.

use crate::{
    live::inner::Inner,
    model::{events::Happened, state::State},
    sandbox::Sandbox,
};
use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(500);
/// The pause is so many times as long as the look took, where that is longer: many sandboxes are
/// looked at less often, rather than for more of a processor.
const REST: u32 = 20;
/// How long one agent may take.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Changes of one sandbox that are told at a look; more follow at the next.
const CHANGES_MAX: usize = 64;

/// Looks for as long as the server lives.
pub(crate) async fn keep(inner: Arc<Inner>) {
    while !inner.stopping.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let followed = inner.events.followed();
        if followed.is_empty() {
            inner.events.somebody().await;
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
            // It is not known.
            _ => return,
        },
        State::Sleeping | State::Failed => BTreeSet::new(),
        _ => return,
    };
    let mut told = entry.listened.lock().unwrap_or_else(PoisonError::into_inner);
    let closed = told.difference(&now).map(|port| (*port, false));
    let opened = now.difference(&told).map(|port| (*port, true));
    let changes: Vec<_> = closed.chain(opened).take(CHANGES_MAX).collect();
    for (port, open) in changes {
        if open {
            told.insert(port);
            sandbox.say(Happened::PortOpened(port));
        } else {
            told.remove(&port);
            sandbox.say(Happened::PortClosed(port));
        }
    }
}
