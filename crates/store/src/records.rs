//! The tables, and what was removed from them and could not be written yet.
//!
//! Each removal is tried in SQLite first. When that has no space, a tombstone takes its place (see
//! [`crate::tombstones`]), and the removal is done: it counts for every read, outlives a kill of the
//! server, and is applied before anything else is written.

use crate::error::Error;
use crate::rows::{EndedSandbox, HISTORY_MAX, Sandbox};
use crate::time::now_ms;
use crate::tombstones::{Removal, SERVERS, Tombstones};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::path::Path;

/// What a sandbox's record says from the moment that its end is decided.
pub(crate) const DESTROYING: &str = "destroying";

/// The records, and what was removed from them and could not be written yet.
pub(crate) struct Records {
    pub(crate) connection: Connection,
    tombstones: Tombstones,
    /// Sandboxes of which nothing is left, with what they had used. A record or a tombstone says
    /// that each is being destroyed, so a kill loses none of this but the usage.
    ended: Vec<(String, Option<EndedSandbox>)>,
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
    pub(crate) fn remove(&mut self, removal: Removal) -> Result<(), Error> {
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

    /// Records that a sandbox is being destroyed: in SQLite, or where that is full by a tombstone.
    pub(crate) fn condemn(&mut self, name: String, body: &str) -> Result<(), Error> {
        let written = self.settle().and_then(|()| {
            self.connection
                .prepare_cached("UPDATE sandboxes SET state = ?2, body = ?3 WHERE name = ?1")?
                .execute(params![name, DESTROYING, body])?;
            Ok(())
        });
        match written {
            Err(Error::Full) => self.tombstones.add(Removal::Sandbox { name }),
            done => done,
        }
    }

    /// Forgets a sandbox of which nothing is left.
    pub(crate) fn end(&mut self, name: String, past: Option<EndedSandbox>) -> Result<(), Error> {
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
    pub(crate) fn ended_of(&self, tenant: &str) -> impl DoubleEndedIterator<Item = &EndedSandbox> {
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
fn end(connection: &Connection, name: &str, past: Option<&EndedSandbox>) -> Result<(), Error> {
    let gone =
        connection.prepare_cached("DELETE FROM sandboxes WHERE name = ?1")?.execute([name])?;
    match past.filter(|_| gone > 0) {
        Some(past) => keep(connection, past),
        None => Ok(()),
    }
}

/// Adds an ended sandbox to the history and the sums of its tenant.
fn keep(connection: &Connection, past: &EndedSandbox) -> Result<(), Error> {
    let sum = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (tenant, sums) = (&past.tenant, past.sums);
    connection
        .prepare_cached("INSERT INTO ended (tenant, body) VALUES (?1, ?2)")?
        .execute(params![tenant, past.body])?;
    connection
        .prepare_cached(
            "DELETE FROM ended WHERE tenant = ?1 AND n <= \
             (SELECT n FROM ended WHERE tenant = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)",
        )?
        .execute(params![tenant, sum(HISTORY_MAX as u64)])?;
    connection
        .prepare_cached(
            "INSERT INTO totals VALUES (?1, ?2, ?3, ?4) ON CONFLICT (tenant) DO UPDATE SET \
             count = count + ?2, cpu_us = cpu_us + ?3, memory_mib_ms = memory_mib_ms + ?4",
        )?
        .execute(params![tenant, sum(sums.count), sum(sums.cpu_us), sum(sums.memory_mib_ms)])?;
    Ok(())
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
