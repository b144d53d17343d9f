//! The state of the process that outlives the server and lets sandboxes run.

use crate::lease::{BootTime, Epoch, LeaseDeadline};
use serde::Deserialize;
use serde::Serialize;

/// Decides whether sandboxes of the class `store` may run on this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    deadline: Option<LeaseDeadline>,
}

impl Guard {
    /// Takes a new deadline. Messages may arrive late and in any order: one of an earlier
    /// registration, or an earlier end of the same one, changes nothing.
    #[must_use]
    pub fn renewed(self, deadline: LeaseDeadline) -> Self {
        let is_newer = self.deadline.is_none_or(|known| {
            let order = |deadline: LeaseDeadline| (deadline.registration, deadline.at);
            order(deadline) > order(known)
        });
        Self { deadline: if is_newer { Some(deadline) } else { self.deadline } }
    }

    /// Whether a sandbox may run whose ownership was confirmed under this registration.
    #[must_use]
    pub fn admits(&self, registration: Epoch, now: BootTime) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline.registration == registration && now < deadline.at)
    }

    /// Whether a sandbox that was admitted under this registration must be frozen now. What a former
    /// registration allowed is void, whatever its deadline was.
    #[must_use]
    pub fn must_freeze(&self, admitted_under: Epoch, now: BootTime) -> bool {
        !self.admits(admitted_under, now)
    }

    /// Whether all sandboxes of the class `store` must be frozen.
    #[must_use]
    pub fn has_expired(&self, now: BootTime) -> bool {
        self.deadline.is_none_or(|deadline| now >= deadline.at)
    }

    /// The deadline, for which the process waits.
    #[must_use]
    pub fn deadline(&self) -> Option<LeaseDeadline> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(registration: i64, at: u64) -> LeaseDeadline {
        LeaseDeadline {
            registration: Epoch::of_revision(registration),
            at: BootTime::from_millis(at),
        }
    }

    #[test]
    fn late_messages_neither_extend_nor_revive_a_registration() {
        let now = BootTime::from_millis;
        let of = Epoch::of_revision;
        let guard = Guard::default();
        assert!(guard.has_expired(now(0)) && !guard.admits(of(1), now(0)));
        let guard = guard.renewed(deadline(1, 100)).renewed(deadline(1, 50));
        assert!(guard.admits(of(1), now(99)) && !guard.admits(of(1), now(100)));
        assert!(!guard.has_expired(now(99)) && guard.has_expired(now(100)));
        let guard = guard.renewed(deadline(2, 80)).renewed(deadline(1, 1000));
        assert!(!guard.admits(of(1), now(0)), "an earlier registration");
        assert!(guard.admits(of(2), now(79)) && guard.has_expired(now(80)));
        assert!(guard.must_freeze(of(1), now(0)), "it was admitted under an earlier registration");
        assert!(!guard.must_freeze(of(2), now(79)) && guard.must_freeze(of(2), now(80)));
    }
}
