//! The PTYs that requests currently open or follow. Their sessions are not removed as those of
//! ended PTYs: the terminal may not run yet, or a client may still read its last output.

use isolet_sandbox::{OwnedId, Sandbox, SessionId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Users = BTreeMap<(OwnedId, SessionId), usize>;

/// The number of requests that use each PTY. It only delays removals, so the servers of one process may
/// share it.
static USERS: Mutex<Users> = Mutex::new(BTreeMap::new());

/// A request that opens or follows a PTY, until this is dropped.
#[derive(Debug)]
pub(super) struct PtyUser {
    key: (OwnedId, SessionId),
}

fn users() -> MutexGuard<'static, Users> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(sandbox: &Sandbox, session: &SessionId) -> (OwnedId, SessionId) {
    let owned = OwnedId { tenant: sandbox.tenant().clone(), id: sandbox.id().clone() };
    (owned, session.clone())
}

/// Whether a request uses the PTY of a session.
pub(super) fn is_used(sandbox: &Sandbox, session: &SessionId) -> bool {
    users().contains_key(&key(sandbox, session))
}

impl PtyUser {
    pub(super) fn new(sandbox: &Sandbox, session: &SessionId) -> Self {
        Self::of(key(sandbox, session))
    }

    fn of(key: (OwnedId, SessionId)) -> Self {
        *users().entry(key.clone()).or_default() += 1;
        Self { key }
    }
}

impl Drop for PtyUser {
    fn drop(&mut self) {
        let mut all = users();
        let Some(count) = all.get_mut(&self.key) else { return };
        *count -= 1;
        if *count == 0 {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_sandbox::{SandboxId, TenantId};

    #[test]
    fn a_pty_is_used_until_its_last_request_ends() {
        let tenant = TenantId::parse("users").unwrap();
        let id = SandboxId::parse("a").unwrap();
        let key = (OwnedId { tenant, id }, SessionId::parse("e2b-pty-a").unwrap());
        let first = PtyUser::of(key.clone());
        let second = PtyUser::of(key.clone());
        drop(first);
        assert!(users().contains_key(&key));
        drop(second);
        assert!(!users().contains_key(&key));
    }
}
