//! One change of a sandbox's record after the other, while those of other sandboxes go on.

use isolet_cluster::model::SandboxKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::OwnedMutexGuard;

/// When there are more, those that nobody holds or awaits are removed.
const TIDY_AT: usize = 256;

/// A lock for each sandbox.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<SandboxKey, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for the turn of a sandbox, which lasts until the guard is dropped.
    pub(super) async fn of(&self, sandbox: &SandboxKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() > TIDY_AT {
                all.retain(|_, turn| turn.strong_count() > 0);
            }
            let known = all.get(sandbox).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::default();
                all.insert(sandbox.clone(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox_key::key;
    use futures_util::FutureExt;
    use isolet_sandbox::{SandboxId, TenantId};

    #[tokio::test]
    async fn only_changes_of_the_same_sandbox_wait() {
        let of =
            |id: &str| key(&TenantId::parse("t").unwrap(), &SandboxId::parse(id).unwrap()).unwrap();
        let turns = Turns::default();
        let first = turns.of(&of("a")).await;
        assert!(turns.of(&of("a")).now_or_never().is_none());
        assert!(turns.of(&of("b")).now_or_never().is_some());
        drop(first);
        assert!(turns.of(&of("a")).now_or_never().is_some());
        for id in 0..=TIDY_AT + 1 {
            drop(turns.of(&of(&format!("s{id}"))).await);
        }
        assert!(turns.0.lock().unwrap().len() < TIDY_AT, "nobody holds them");
    }
}
