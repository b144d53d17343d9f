//! What this node has seen of etcd's history, so that it notices when etcd goes back in time.
//!
//! An etcd that was restored from a backup counts its revisions on from there. Epochs repeat, and what
//! happened since is forgotten, so nothing that this node knows about ownership may be believed. Every
//! answer names etcd's cluster and revision.

use crate::etcd::error::EtcdError;
use crate::etcd::messages::ResponseHeader;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The history that a client has seen.
#[derive(Debug)]
pub(super) struct History {
    seen: Mutex<Mark>,
    generation: watch::Sender<u64>,
}

/// A moment in a history.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    /// How often etcd has gone back.
    generation: u64,
    /// The id of the cluster; 0 before the first answer.
    cluster: u64,
    /// The highest revision.
    revision: i64,
}

impl Default for History {
    fn default() -> Self {
        Self { seen: Mutex::default(), generation: watch::Sender::new(0) }
    }
}

impl History {
    /// The present moment, before a call is sent.
    pub(super) fn mark(&self) -> Mark {
        *self.lock()
    }

    /// How often etcd has gone back, now and whenever it does.
    pub(super) fn generations(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Compares an answer of a call that was sent after `mark`. `is_current`: etcd answers such a call
    /// from its newest state, so that its revision cannot be earlier than the mark's.
    ///
    /// # Errors
    /// [`EtcdError::WentBack`]. Later answers are compared with this one.
    pub(super) fn check(
        &self,
        header: Option<&ResponseHeader>,
        mark: Mark,
        is_current: bool,
        endpoint: &str,
    ) -> Result<(), EtcdError> {
        let Some(header) = header.filter(|header| header.cluster_id != 0) else { return Ok(()) };
        let mut seen = self.lock();
        if mark.generation != seen.generation {
            // Sent before etcd went back, which is known already.
            return Ok(());
        }
        let is_other = seen.cluster != 0 && header.cluster_id != seen.cluster;
        let is_earlier = is_current && header.revision < mark.revision;
        if !is_other && !is_earlier {
            seen.cluster = header.cluster_id;
            if is_current {
                seen.revision = seen.revision.max(header.revision);
            }
            return Ok(());
        }
        let error = EtcdError::WentBack {
            endpoint: endpoint.to_owned(),
            known: seen.revision,
            found: header.revision,
            is_other_cluster: is_other,
        };
        seen.generation += 1;
        seen.cluster = header.cluster_id;
        seen.revision = header.revision;
        self.generation.send_replace(seen.generation);
        Err(error)
    }

    fn lock(&self) -> MutexGuard<'_, Mark> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cluster_id: u64, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id, revision, ..ResponseHeader::default() }
    }

    fn check(history: &History, mark: Mark, cluster_id: u64, revision: i64) -> bool {
        history.check(Some(&header(cluster_id, revision)), mark, true, "e").is_ok()
    }

    #[test]
    fn answers_may_overtake_each_other_and_an_earlier_revision_is_noticed_once() {
        let history = History::default();
        let before = history.mark();
        assert!(check(&history, before, 1, 10));
        let sent = history.mark();
        assert!(check(&history, sent, 1, 12));
        assert!(check(&history, sent, 1, 11), "it was sent before the other answer");
        let sent = history.mark();
        assert!(!check(&history, sent, 1, 11));
        assert!(check(&history, sent, 1, 11), "it is known");
        assert!(check(&history, history.mark(), 1, 11));
        assert_eq!(*history.generations().borrow(), 1);
    }

    #[test]
    fn another_cluster_is_noticed_at_any_revision_and_by_any_call() {
        let history = History::default();
        assert!(check(&history, history.mark(), 1, 10));
        let other = history.check(Some(&header(2, 50)), history.mark(), false, "e");
        assert!(matches!(other, Err(EtcdError::WentBack { is_other_cluster: true, .. })));
        assert!(check(&history, history.mark(), 2, 50));
        assert_eq!(*history.generations().borrow(), 1);
    }

    #[test]
    fn a_member_that_lags_may_answer_what_needs_no_newest_state() {
        let history = History::default();
        assert!(check(&history, history.mark(), 1, 10));
        assert!(history.check(Some(&header(1, 9)), history.mark(), false, "e").is_ok());
        assert!(history.check(None, history.mark(), true, "e").is_ok());
    }
}
