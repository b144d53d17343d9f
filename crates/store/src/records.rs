//! The tables, and the removals that could not be written to them yet.
//!
//! Each removal is first tried in SQLite. On a full disk, a tombstone is written in its place (see
//! [`crate::tombstones`]), and the removal is complete: every read respects it, it survives a killed
//! server, and it is applied before anything else is written.

use crate::error::Error;
use crate::rows::{EndedSandbox, HISTORY_MAX, SandboxRow};
use crate::schema::NEXT_CHANGE;
use crate::tombstones::{Removal, SERVER_RESERVE, Tombstones};
use isolet_clock::now_ms;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::path::Path;

/// State of a sandbox in its record once its removal has begun.
pub(crate) const DESTROYING: &str = "destroying";

/// The connection to SQLite, and the pending removals.
pub(crate) struct Records {
    pub(crate) connection: Connection,
    tombstones: Tombstones,
    /// Removed sandboxes with their usage, which a full disk could not store. A record or tombstone marks
    /// each as `destroying`, so that a crash loses only the usage.
    pending_ended: Vec<(String, Option<EndedSandbox>)>,
}

impl Records {
    pub(crate) fn new(connection: Connection, file: &Path) -> Result<Self, Error> {
        Ok(Self {
            connection,
            tombstones: Tombstones::open(file, SERVER_RESERVE)?,
            pending_ended: Vec::new(),
        })
    }

    /// Writes the removals that were made on a full disk to the records.
    ///
    /// # Errors
    /// [`Error::Full`] while the disk is still full; nothing is changed then.
    pub(crate) fn apply_pending(&mut self) -> Result<(), Error> {
        if self.tombstones.is_empty() && self.pending_ended.is_empty() {
            return Ok(());
        }
        let transaction = self.connection.transaction()?;
        for removal in self.tombstones.all() {
            apply(&transaction, removal)?;
        }
        for (name, ended) in &self.pending_ended {
            delete_sandbox(&transaction, name, ended.as_ref())?;
        }
        transaction.commit()?;
        self.pending_ended.clear();
        self.tombstones.clear()
    }

    /// Applies a removal in SQLite, or writes a tombstone when the disk is full.
    pub(crate) fn remove(&mut self, removal: Removal) -> Result<(), Error> {
        let written = self.apply_pending().and_then(|()| {
            let transaction = self.connection.transaction()?;
            apply(&transaction, &removal)?;
            Ok(transaction.commit()?)
        });
        match written {
            Err(Error::Full) => self.tombstones.add(removal),
            done => done,
        }
    }

    /// Sets the state `destroying` in SQLite, or writes a tombstone when the disk is full.
    pub(crate) fn mark_destroying(&mut self, name: String, body: &str) -> Result<(), Error> {
        let written = self.apply_pending().and_then(|()| {
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

    /// Deletes the record of a sandbox that is removed.
    pub(crate) fn delete_sandbox(
        &mut self,
        name: String,
        ended: Option<EndedSandbox>,
    ) -> Result<(), Error> {
        let written = self.apply_pending().and_then(|()| {
            let transaction = self.connection.transaction()?;
            delete_sandbox(&transaction, &name, ended.as_ref())?;
            Ok(transaction.commit()?)
        });
        match written {
            Err(Error::Full) => {
                self.pending_ended.push((name, ended));
                Ok(())
            }
            done => done,
        }
    }

    /// Adds an ended sandbox that has no record here to the history.
    pub(crate) fn add_ended(&mut self, ended: &EndedSandbox) -> Result<(), Error> {
        let transaction = self.connection.transaction()?;
        insert_ended(&transaction, ended)?;
        Ok(transaction.commit()?)
    }

    /// The row as it will be after the pending removals.
    pub(crate) fn with_removals_applied(&self, mut row: SandboxRow) -> SandboxRow {
        for removal in self.tombstones.all() {
            match removal {
                Removal::Sandbox { name } if *name == row.name => row.state = DESTROYING.to_owned(),
                Removal::Member { sandbox, .. } if *sandbox == row.name => {
                    row.body = without_member(&row.body, removal).unwrap_or(row.body);
                }
                _ => {}
            }
        }
        row
    }

    pub(crate) fn session_is_removed(&self, sandbox: &str, id: &str) -> bool {
        self.tombstones
            .contains(&Removal::Session { sandbox: sandbox.to_owned(), id: id.to_owned() })
    }

    pub(crate) fn profile_is_removed(&self, tenant: &str, name: &str) -> bool {
        self.tombstones
            .contains(&Removal::Profile { tenant: tenant.to_owned(), name: name.to_owned() })
    }

    pub(crate) fn webhook_is_removed(&self, tenant: &str, id: &str) -> bool {
        self.tombstones.contains(&Removal::Webhook { tenant: tenant.to_owned(), id: id.to_owned() })
    }

    /// A tenant's ended sandboxes that are not in the history yet, the oldest first.
    pub(crate) fn pending_ended_of(
        &self,
        tenant: &str,
    ) -> impl DoubleEndedIterator<Item = &EndedSandbox> {
        let all = self.pending_ended.iter().filter_map(|(_, ended)| ended.as_ref());
        all.filter(move |ended| ended.tenant == tenant)
    }
}

/// Applies a removal to the tables. This is idempotent.
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
        Removal::Webhook { tenant, id } => {
            connection
                .prepare_cached("DELETE FROM webhook_progress WHERE tenant = ?1 AND id = ?2")?
                .execute(params![tenant, id])?;
            connection
                .prepare_cached("DELETE FROM webhooks WHERE tenant = ?1 AND id = ?2")?
                .execute(params![tenant, id])
        }
        Removal::Key { id } => connection
            .prepare_cached(&format!(
                "UPDATE keys SET revoked_ms = ?2, changed = {NEXT_CHANGE} \
                 WHERE id = ?1 AND revoked_ms IS NULL"
            ))?
            .execute(params![id, now_ms()]),
        Removal::Member { sandbox, .. } => {
            let body: Option<String> = connection
                .prepare_cached("SELECT body FROM sandboxes WHERE name = ?1")?
                .query_row([sandbox], |row| row.get(0))
                .optional()?;
            let Some(body) = body.and_then(|body| without_member(&body, removal)) else {
                return Ok(());
            };
            connection
                .prepare_cached("UPDATE sandboxes SET body = ?2 WHERE name = ?1")?
                .execute(params![sandbox, body])
        }
    }?;
    Ok(())
}

/// Deletes a sandbox with its sessions, and adds its usage to the history, once.
fn delete_sandbox(
    connection: &Connection,
    name: &str,
    ended: Option<&EndedSandbox>,
) -> Result<(), Error> {
    let gone =
        connection.prepare_cached("DELETE FROM sandboxes WHERE name = ?1")?.execute([name])?;
    match ended.filter(|_| gone > 0) {
        Some(ended) => insert_ended(connection, ended),
        None => Ok(()),
    }
}

/// Adds an ended sandbox to the history and the sums of its tenant.
fn insert_ended(connection: &Connection, ended: &EndedSandbox) -> Result<(), Error> {
    let sum = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let tenant = &ended.tenant;
    let sums = ended.sums;
    connection
        .prepare_cached("INSERT INTO ended (tenant, body) VALUES (?1, ?2)")?
        .execute(params![tenant, ended.body])?;
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

/// Returns the body without the member of a removal; `None` if it has no such member, or one with another
/// value.
fn without_member(body: &str, removal: &Removal) -> Option<String> {
    let Removal::Member { object, key, field, value, .. } = removal else { return None };
    let mut body: Value = serde_json::from_str(body).ok()?;
    let members = body.get_mut(object)?.as_object_mut()?;
    if members.get(key)?.get(field)? != value.as_str() {
        return None;
    }
    members.remove(key);
    serde_json::to_string(&body).ok()
}
