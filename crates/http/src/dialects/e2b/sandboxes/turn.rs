//! One create at a time for each idempotency key, from the create to the end of the preparation: a
//! request that repeats a create never learns of a sandbox that is not prepared yet.

use crate::foundation::error::ApiError;
use isolet_sandbox::{Error, TenantId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedMutexGuard;

/// How many keys may be at work, over all tenants.
const TURNS_MAX: usize = 10_000;

type Turns = BTreeMap<(TenantId, String), Arc<tokio::sync::Mutex<()>>>;

/// The keys at work. These are locks and nothing else, so the servers of one process may share them.
static TURNS: Mutex<Turns> = Mutex::new(BTreeMap::new());

/// The turn of a request with an idempotency key, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    key: (TenantId, String),
    lock: Option<Arc<tokio::sync::Mutex<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn {
    /// Waits until no other create with this key is at work.
    ///
    /// # Errors
    /// 503 when too many keys are at work.
    pub(super) async fn take(tenant: &TenantId, key: &str) -> Result<Self, ApiError> {
        let key = (tenant.clone(), key.to_owned());
        let lock = {
            let mut all = turns();
            if all.len() >= TURNS_MAX && !all.contains_key(&key) {
                return Err(Error::ServerFull("too many idempotency keys are at work").into());
            }
            Arc::clone(all.entry(key.clone()).or_default())
        };
        // Exists while this waits, so that a request that is dropped then leaves no entry.
        let mut turn = Self { key, lock: Some(Arc::clone(&lock)), guard: None };
        turn.guard = Some(lock.lock_owned().await);
        Ok(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut all = turns();
        // Dropped while the map is locked, so that the last of several turns sees that it is alone.
        drop(self.lock.take());
        if all.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_key_has_one_turn_at_a_time_and_leaves_no_entry() {
        let tenant = TenantId::parse("turns").unwrap();
        let known = || turns().contains_key(&(tenant.clone(), "a".to_owned()));
        let first = Turn::take(&tenant, "a").await.unwrap();
        drop(Turn::take(&tenant, "b").await.unwrap());
        // A request that is dropped while it waits leaves nothing either.
        let wait = Duration::from_millis(20);
        assert!(timeout(wait, Turn::take(&tenant, "a")).await.is_err());
        let waiting = Turn::take(&tenant, "a");
        let (second, ()) = tokio::join!(waiting, async move { drop(first) });
        assert!(known());
        drop(second.unwrap());
        assert!(!known());
    }
}
