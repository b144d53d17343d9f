//! Removing records, which works on a full disk too.
//!
//! Each removal is tried in SQLite first. When that has no space, a tombstone takes its place (see
//! [`crate::tombstones`]), and the removal is done: it counts for every read, outlives a kill of the
//! server, and is applied before anything else is written.

use crate::{
    Error, Sandbox, Store,
    history::{self, Past},
    record::now_ms,
    tombstones::{Removal, SERVERS, Tombstones},
};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::path::Path;

/// What a sandbox's record says from the moment that its end is decided.
const DESTROYING: &str = "destroying";

/// The records, and what was removed from them and could not be written yet.
pub(crate) struct Records {
    pub(crate) connection: Connection,
    tombstones: Tombstones,
    /// Sandboxes of which nothing is left, with what they had used. A record or a tombstone says
    /// that each is being destroyed, so a kill loses none of this but the usage.
    ended: Vec<(String, Option<Past>)>,
}

/// A member of an object in a sandbox's body, named so that a later one under the same key is
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The object's name in the body.
    pub object: String,
    /// The member's key in the object.
    pub key: String,
    /// A field of the member, which is text.
    pub field: String,
    /// What it says; a member with another value is not removed.
    pub value: String,
}

impl Records {
    pub(crate) fn new(connection: Connection, file: &Path) -> Result<Self, Error> {
        Ok(Self { connection, tombstones: Tombstones::open(file, SERVERS)?, ended: Vec::new() })
    }

    /// Writes what was removed while the disk was full.
    ///
    /// # Errors
    /// [`Error::Full`] while it still is; nothing is changed then.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        if self.tombstones.is_empty() && self.ended.is_empty() {
            return Ok(());
        }
        let all = self.connection.transaction()?;
        for removal in self.tombstones.all() {
            apply(&all, removal)?;
        }
        for (name, past) in &self.ended {
            end(&all, name, past.as_ref())?;
        }
        all.commit()?;
        self.ended.clear();
        self.tombstones.clear()
    }

    /// Removes something: in SQLite, or where that is full by a tombstone.
    fn remove(&mut self, removal: Removal) -> Result<(), Error> {
        let written = self.settle().and_then(|()| {
            let all = self.connection.transaction()?;
            apply(&all, &removal)?;
            Ok(all.commit()?)
        });
        match written {
            Err(Error::Full) => self.tombstones.add(removal),
            done => done,
        }
    }

    /// Forgets a sandbox of which nothing is left.
    fn end(&mut self, name: String, past: Option<Past>) -> Result<(), Error> {
        let written = self.settle().and_then(|()| {
            let all = self.connection.transaction()?;
            end(&all, &name, past.as_ref())?;
            Ok(all.commit()?)
        });
        match written {
            Err(Error::Full) => {
                self.ended.push((name, past));
                Ok(())
            }
            done => done,
        }
    }

    /// A record as it is once every removal is applied.
    pub(crate) fn as_removed(&self, mut row: Sandbox) -> Sandbox {
        for removal in self.tombstones.all() {
            match removal {
                Removal::Sandbox { name } if *name == row.name => row.state = DESTROYING.to_owned(),
                Removal::Member { sandbox, .. } if *sandbox == row.name => {
                    row.body = without(&row.body, removal).unwrap_or(row.body);
                }
                _ => {}
            }
        }
        row
    }

    pub(crate) fn removed_session(&self, sandbox: &str, id: &str) -> bool {
        self.tombstones.has(&Removal::Session { sandbox: sandbox.to_owned(), id: id.to_owned() })
    }

    pub(crate) fn removed_profile(&self, tenant: &str, name: &str) -> bool {
        self.tombstones.has(&Removal::Profile { tenant: tenant.to_owned(), name: name.to_owned() })
    }

    /// A tenant's sandboxes that have ended and are not in the history yet, the oldest first.
    pub(crate) fn ended_of(&self, tenant: &str) -> impl DoubleEndedIterator<Item = &Past> {
        let all = self.ended.iter().filter_map(|(_, past)| past.as_ref());
        all.filter(move |past| past.tenant == tenant)
    }
}

/// Applies a removal to the tables. One that was applied before changes nothing.
pub(crate) fn apply(connection: &Connection, removal: &Removal) -> Result<(), Error> {
    match removal {
        Removal::Sandbox { name } => connection
            .prepare_cached("UPDATE sandboxes SET state = ?2 WHERE name = ?1")?
            .execute(params![name, DESTROYING]),
        Removal::Session { sandbox, id } => connection
            .prepare_cached("DELETE FROM sessions WHERE sandbox = ?1 AND id = ?2")?
            .execute(params![sandbox, id]),
        Removal::Profile { tenant, name } => connection
            .prepare_cached("DELETE FROM profiles WHERE tenant = ?1 AND name = ?2")?
            .execute(params![tenant, name]),
        Removal::Key { id } => connection
            .prepare_cached("UPDATE keys SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms IS NULL")?
            .execute(params![id, now_ms()]),
        Removal::Member { sandbox, .. } => {
            let body: Option<String> = connection
                .prepare_cached("SELECT body FROM sandboxes WHERE name = ?1")?
                .query_row([sandbox], |row| row.get(0))
                .optional()?;
            let Some(body) = body.and_then(|body| without(&body, removal)) else { return Ok(()) };
            connection
                .prepare_cached("UPDATE sandboxes SET body = ?2 WHERE name = ?1")?
                .execute(params![sandbox, body])
        }
    }?;
    Ok(())
}

/// Forgets a sandbox and its sessions, and keeps what it had used, once.
fn end(connection: &Connection, name: &str, past: Option<&Past>) -> Result<(), Error> {
    let gone =
        connection.prepare_cached("DELETE FROM sandboxes WHERE name = ?1")?.execute([name])?;
    match past.filter(|_| gone > 0) {
        Some(past) => history::keep(connection, past),
        None => Ok(()),
    }
}

/// A body without the member of a removal; `None` when it has none, or another.
fn without(body: &str, removal: &Removal) -> Option<String> {
    let Removal::Member { object, key, field, value, .. } = removal else { return None };
    let mut body: Value = serde_json::from_str(body).ok()?;
    let members = body.get_mut(object)?.as_object_mut()?;
    if members.get(key)?.get(field)? != value.as_str() {
        return None;
    }
    members.remove(key);
    serde_json::to_string(&body).ok()
}

impl Store {
    /// Records that a sandbox is being destroyed. From then on no start of a server brings it back.
    ///
    /// # Errors
    /// [`Error::Full`] when the disk is full and no tombstone is free; nothing is changed then.
    pub async fn condemn(&self, name: &str, body: String) -> Result<(), Error> {
        let name = name.to_owned();
        self.run(move |records| {
            let written = records.settle().and_then(|()| {
                records
                    .connection
                    .prepare_cached("UPDATE sandboxes SET state = ?2, body = ?3 WHERE name = ?1")?
                    .execute(params![name, DESTROYING, body])?;
                Ok(())
            });
            match written {
                Err(Error::Full) => records.tombstones.add(Removal::Sandbox { name }),
                done => done,
            }
        })
        .await
    }

    /// Forgets a sandbox that was condemned and its sessions, and keeps what it had used, once: one
    /// that is not there changes nothing. A full disk is no error.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn end(&self, name: &str, past: Past) -> Result<(), Error> {
        let name = name.to_owned();
        self.run(move |records| records.end(name, Some(past))).await
    }

    /// Forgets a sandbox that was never made, and its sessions. One that is not there is no error,
    /// nor is a full disk.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.run(move |records| records.end(name, None)).await
    }

    /// Forgets a session.
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

    /// Forgets a network profile; whether there was one.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn remove_profile(&self, tenant: &str, name: &str) -> Result<bool, Error> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.run(move |records| {
            let there: i64 = records
                .connection
                .prepare_cached("SELECT count(*) FROM profiles WHERE tenant = ?1 AND name = ?2")?
                .query_row([&tenant, &name], |row| row.get(0))?;
            if there == 0 || records.removed_profile(&tenant, &name) {
                return Ok(false);
            }
            records.remove(Removal::Profile { tenant, name })?;
            Ok(true)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Session, keys::Keys, keys::NewKey, tombstones::KEYS};

    fn sandbox(name: &str, body: &str) -> Sandbox {
        Sandbox {
            name: name.into(),
            tenant: "t".into(),
            id: name.into(),
            slot: u32::from(name.as_bytes()[0]),
            state: "running".into(),
            body: body.into(),
        }
    }

    /// As a server leaves it that was killed while its disk was full.
    #[tokio::test]
    async fn what_was_removed_on_a_full_disk_is_removed_by_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("isolet.db");
        let body = r#"{"exposed":{"80":{"secret":"a"},"81":{"secret":"b"}}}"#;
        {
            let store = Store::open(&file).unwrap();
            store.insert(sandbox("a", "{}")).await.unwrap();
            store.insert(sandbox("b", body)).await.unwrap();
            let session = Session { sandbox: "b".into(), id: "dev".into(), body: "{}".into() };
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
        let mut left = Tombstones::open(&file, SERVERS).unwrap();
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
        assert!(Tombstones::open(&file, SERVERS).unwrap().is_empty(), "the records have them");
    }

    #[test]
    fn a_key_that_was_revoked_on_a_full_disk_opens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("isolet.db");
        let keys = Keys::open(&file).unwrap();
        let (key, secret) = keys.add(&NewKey { tenant: "t".into(), ..NewKey::default() }).unwrap();
        assert!(keys.check(&crate::KeyDigest::of(&secret)).unwrap().is_some());
        // By another process.
        let mut others = Tombstones::open(&file, KEYS).unwrap();
        others.add(Removal::Key { id: key.id.clone() }).unwrap();
        keys.look();
        assert!(keys.check(&crate::KeyDigest::of(&secret)).unwrap().is_none());
        assert!(!keys.holds(&key.id).unwrap());
        let keys = Keys::open(&file).unwrap();
        assert!(keys.check(&crate::KeyDigest::of(&secret)).unwrap().is_none());
        assert!(Tombstones::open(&file, KEYS).unwrap().is_empty(), "the records have it");
    }
}
