//! Ends long responses early: when the server stops, the caller's key is revoked, or a link
//! expires.

use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use axum::http::StatusCode;
use isolet_sandbox::Keys;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// The longest time between the revocation of a key and the end of its responses.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a response ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancellationReason {
    /// The server stops. Sandboxes keep running.
    Stopping,
    /// The key was revoked or has expired.
    Revoked,
    /// The signed link has expired.
    Expired,
    /// The node of the sandbox has lost its lease, so another node may take the sandbox over.
    OwnerLost,
}

impl From<CancellationReason> for ApiError {
    fn from(reason: CancellationReason) -> Self {
        match reason {
            CancellationReason::Stopping => isolet_sandbox::Error::Stopping.into(),
            CancellationReason::Revoked => Self::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "the key was revoked or has expired",
                "use another key; programs in the sandbox keep running",
            ),
            CancellationReason::OwnerLost => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "node_unreachable",
                "the node of the sandbox has lost its lease before it answered",
                "the call may have had an effect: look before you repeat it",
            ),
            CancellationReason::Expired => Self::new(
                StatusCode::UNAUTHORIZED,
                "bad_link",
                "the link has expired",
                "create another link; programs in the sandbox keep running",
            ),
        }
    }
}

/// Resolves when one response must end.
#[derive(Debug, Clone)]
pub(crate) struct Cancellation {
    stop: watch::Receiver<bool>,
    key_revoked: Option<watch::Receiver<bool>>,
    owner_lost: Option<watch::Receiver<bool>>,
    deadline: Option<Instant>,
}

impl Cancellation {
    /// Cancels only when the server stops.
    #[cfg(test)]
    pub(crate) fn of_stop(stop: watch::Receiver<bool>) -> Self {
        Self { stop, key_revoked: None, owner_lost: None, deadline: None }
    }

    /// Also cancels at the deadline, if there is one.
    pub(crate) fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Also cancels when the node of the sandbox loses its lease.
    pub(crate) fn with_owner(self, owner_lost: Option<watch::Receiver<bool>>) -> Self {
        Self { owner_lost, ..self }
    }

    /// Waits until the response must end. Cancel-safe.
    pub(crate) async fn cancelled(&mut self) -> CancellationReason {
        let revoked = async {
            match &mut self.key_revoked {
                Some(ended) => drop(ended.wait_for(|ended| *ended).await),
                None => std::future::pending().await,
            }
        };
        let lost = async {
            match &mut self.owner_lost {
                // The channel ends when the node has lost its lease.
                Some(lost) => drop(lost.wait_for(|lost| *lost).await),
                None => std::future::pending().await,
            }
        };
        let over = async {
            match self.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.stop.wait_for(|stop| *stop) => CancellationReason::Stopping,
            () = revoked => CancellationReason::Revoked,
            () = lost => CancellationReason::OwnerLost,
            () = over => CancellationReason::Expired,
        }
    }
}

/// Issues a [`Cancellation`] for each long response. Clones share their state.
#[derive(Clone)]
pub(crate) struct CancellationRegistry {
    keys: Keys,
    stop: watch::Receiver<bool>,
    /// By the id of a key; all responses of a key share one channel.
    open: Arc<Mutex<HashMap<String, watch::Sender<bool>>>>,
}

impl CancellationRegistry {
    pub(crate) fn new(keys: Keys, stop: watch::Receiver<bool>) -> Self {
        Self { keys, stop, open: Arc::default() }
    }

    /// Subscribes one response. The key from the environment is never revoked. The key of a
    /// forwarded caller is checked by the node that received the request.
    pub(crate) fn subscribe(&self, caller: &Caller) -> Cancellation {
        let own_key = caller.key.as_ref().filter(|_| !caller.forwarded);
        let key_revoked = own_key.map(|key| {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.entry(key.clone()).or_insert_with(|| watch::channel(false).0).subscribe()
        });
        Cancellation { stop: self.stop.clone(), key_revoked, owner_lost: None, deadline: None }
    }

    /// Subscribes one response that ends only when the server stops.
    pub(crate) fn subscribe_to_stop(&self) -> Cancellation {
        Cancellation {
            stop: self.stop.clone(),
            key_revoked: None,
            owner_lost: None,
            deadline: None,
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Checks the keys of open responses until it is dropped. Reads no records while none is open.
    pub(crate) async fn watch(self) {
        let mut clock = interval(KEY_CHECK_INTERVAL);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            self.keys.reload();
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|key, ended| {
                // When the records cannot be read, nothing is cancelled.
                let holds = ended.receiver_count() > 0 && self.keys.is_valid(key).unwrap_or(true);
                if !holds {
                    let _ = ended.send(true);
                }
                holds
            });
        }
    }
}
