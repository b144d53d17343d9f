//! Removes records, also on a full disk.

use super::Store;
use crate::error::Error;
use crate::rows::{EndedSandbox, Member};
use crate::tombstones::Removal;

impl Store {
    /// Records that a sandbox is being destroyed. From then on no restart of the server recovers it.
    ///
    /// # Errors
    /// [`Error::Full`] when the disk is full and no tombstone is free; nothing is changed then.
    pub async fn mark_destroying(&self, name: &str, body: String) -> Result<(), Error> {
        let name = name.to_owned();
        self.run(move |records| records.mark_destroying(name, &body)).await
    }

    /// Deletes a sandbox that is being destroyed, with its sessions, and adds its usage to the history. A
    /// sandbox that does not exist changes nothing. A full disk is no error.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn remove_ended(&self, name: &str, ended: EndedSandbox) -> Result<(), Error> {
        let name = name.to_owned();
        self.run(move |records| records.delete_sandbox(name, Some(ended))).await
    }

    /// Adds the usage of a sandbox to the history that ended elsewhere than on this server.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn add_ended(&self, ended: EndedSandbox) -> Result<(), Error> {
        self.run(move |records| records.add_ended(&ended)).await
    }

    /// Deletes a sandbox that was never started, with its sessions and without usage. A sandbox that does
    /// not exist is no error, nor is a full disk.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.run(move |records| records.delete_sandbox(name, None)).await
    }

    /// Deletes a session.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn remove_session(&self, sandbox: &str, id: &str) -> Result<(), Error> {
        let removal = Removal::Session { sandbox: sandbox.to_owned(), id: id.to_owned() };
        self.run(|records| records.remove(removal)).await
    }

    /// Removes a member of an object in a sandbox's body.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn remove_member(&self, sandbox: &str, member: Member) -> Result<(), Error> {
        let Member { object, key, field, value } = member;
        let sandbox = sandbox.to_owned();
        let removal = Removal::Member { sandbox, object, key, field, value };
        self.run(|records| records.remove(removal)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Keys, NewKey};
    use crate::records::DESTROYING;
    use crate::rows::{SandboxRow, SessionRow};
    use crate::tombstones::{KEY_RESERVE, SERVER_RESERVE, Tombstones};

    fn sandbox(name: &str, body: &str) -> SandboxRow {
        SandboxRow {
            name: name.into(),
            tenant: "t".into(),
            id: name.into(),
            slot: u32::from(name.as_bytes()[0]),
            state: "running".into(),
            body: body.into(),
        }
    }

    /// As after a server that was killed while its disk was full.
    #[tokio::test]
    async fn what_was_removed_on_a_full_disk_is_removed_by_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("isolet.db");
        let body = r#"{"exposed":{"80":{"secret":"a"},"81":{"secret":"b"}}}"#;
        {
            let store = Store::open(&file).unwrap();
            store.insert(sandbox("a", "{}")).await.unwrap();
            store.insert(sandbox("b", body)).await.unwrap();
            let session = SessionRow { sandbox: "b".into(), id: "dev".into(), body: "{}".into() };
            store.insert_session(session, None).await.unwrap();
            store.put_profile("t", "web", "{}".into(), 9).await.unwrap();
        }
        let member = |key: &str, value: &str| Removal::Member {
            sandbox: "b".into(),
            object: "exposed".into(),
            key: key.into(),
            field: "secret".into(),
            value: value.into(),
        };
        let mut left = Tombstones::open(&file, SERVER_RESERVE).unwrap();
        for removal in [
            Removal::Sandbox { name: "a".into() },
            Removal::Session { sandbox: "b".into(), id: "dev".into() },
            Removal::Profile { tenant: "t".into(), name: "web".into() },
            member("80", "a"),
            member("81", "another"),
        ] {
            left.add(removal).unwrap();
        }
        drop(left);
        let store = Store::open(&file).unwrap();
        let (mut rows, _) = store.sandboxes().await.unwrap();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!((rows[0].state.as_str(), rows[1].state.as_str()), (DESTROYING, "running"));
        assert_eq!(rows[1].body, r#"{"exposed":{"81":{"secret":"b"}}}"#);
        assert_eq!(store.sessions().await.unwrap().0, []);
        assert_eq!(store.profiles("t").await.unwrap(), []);
        assert!(
            Tombstones::open(&file, SERVER_RESERVE).unwrap().is_empty(),
            "the records were changed"
        );
    }

    #[test]
    fn a_key_that_was_revoked_on_a_full_disk_opens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("isolet.db");
        let keys = Keys::open(&file).unwrap();
        let (key, secret) = keys.add(&NewKey { tenant: "t".into(), ..NewKey::default() }).unwrap();
        assert!(keys.grant_of(&crate::KeyDigest::of(&secret)).unwrap().is_some());
        // As another process does it.
        let mut others = Tombstones::open(&file, KEY_RESERVE).unwrap();
        others.add(Removal::Key { id: key.id.clone() }).unwrap();
        keys.reload();
        assert!(keys.grant_of(&crate::KeyDigest::of(&secret)).unwrap().is_none());
        assert!(!keys.is_valid(&key.id).unwrap());
        let keys = Keys::open(&file).unwrap();
        assert!(keys.grant_of(&crate::KeyDigest::of(&secret)).unwrap().is_none());
        assert!(Tombstones::open(&file, KEY_RESERVE).unwrap().is_empty(), "the record was changed");
    }
}
