//! Replacing all sessions of a sandbox by those of a snapshot.

use crate::model::ids::SessionId;
use crate::model::sessions::Sessions;

/// How the set of sessions has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplacedSessions {
    pub(crate) created: Vec<SessionId>,
    pub(crate) deleted: Vec<SessionId>,
}

impl Sessions {
    /// Replaces all sessions, as [`Sessions::new`] creates them. No shell is open afterwards. Requires
    /// the lock `turn`.
    pub(crate) fn replace(
        &self,
        created_at_ms: i64,
        home: &str,
        rows: Vec<(SessionId, String)>,
    ) -> ReplacedSessions {
        let new = Self::new(&self.sandbox, created_at_ms, home, rows);
        let mut held = self.lock();
        let old = std::mem::replace(&mut *held, std::mem::take(&mut *new.lock()));
        let mut replaced = ReplacedSessions::default();
        replaced.created.extend(held.keys().filter(|id| !old.contains_key(*id)).cloned());
        for (id, gone) in old {
            match held.get_mut(&id) {
                // A call that is opening its shell opens it in the session that replaces it.
                Some(same) => same.lifetime = gone.lifetime,
                None => {
                    gone.lifetime.mark_ended();
                    replaced.deleted.push(id);
                }
            }
        }
        replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::SandboxId;
    use crate::model::sessions::{Session, WORKSPACE};

    #[test]
    fn sessions_are_those_of_the_snapshot_afterwards() {
        let id = |text: &str| SessionId::parse(text).unwrap();
        let row = |name: &str, cwd: &str| {
            let session = Session { cwd: cwd.to_owned(), ..Session::plain(1, WORKSPACE) };
            (id(name), session.json().unwrap())
        };
        let sandbox = SandboxId::parse("box").unwrap();
        let rows = vec![row("gone", "/a"), row("same", "/a")];
        let sessions = Sessions::new(&sandbox, 1, WORKSPACE, rows);
        let (gone, _guard) = sessions.opening(&id("gone")).unwrap();
        let (same, _guard) = sessions.opening(&id("same")).unwrap();
        let rows = vec![row("new", "/b"), row("same", "/b")];
        let replaced = sessions.replace(1, WORKSPACE, rows);
        assert_eq!((replaced.created, replaced.deleted), (vec![id("new")], vec![id("gone")]));
        let names: Vec<_> = sessions.list().into_iter().map(|one| (one.id, one.cwd)).collect();
        let default = (SessionId::default_session(), WORKSPACE.to_owned());
        let new = (id("new"), "/b".to_owned());
        assert_eq!(names, [default, new, (id("same"), "/b".to_owned())]);
        assert!(gone.ended() && !same.ended());
    }
}
