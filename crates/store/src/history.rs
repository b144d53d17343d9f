//! What ended sandboxes had used: the last ones each by itself, all of them as sums; and network
//! profiles. All by tenant.

use crate::{Error, Store};
use rusqlite::{Connection, OptionalExtension, params};

/// Ended sandboxes that are held for a tenant; older ones are in the sums alone.
pub const HISTORY_MAX: usize = 1000;

/// What a tenant's ended sandboxes had used together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many they are.
    pub count: u64,
    /// Processor time, in µs.
    pub cpu_us: u64,
    /// Memory that they might use, times how long they were awake: in MiB times ms.
    pub memory_mib_ms: u64,
}

/// A sandbox that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Whose it was.
    pub tenant: String,
    /// What is told of it, as JSON.
    pub body: String,
    /// What it adds to the sums; `count` is 1.
    pub sums: Totals,
}

impl Store {
    /// Forgets a sandbox and its sessions, and keeps what it had used, once: one that is not there
    /// changes nothing.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn end(&self, name: &str, past: Past) -> Result<(), Error> {
        let name = name.to_owned();
        self.call(move |connection| {
            let all = connection.transaction()?;
            let gone =
                all.prepare_cached("DELETE FROM sandboxes WHERE name = ?1")?.execute([name])?;
            if gone > 0 {
                keep(&all, &past)?;
            }
            Ok(all.commit()?)
        })
        .await
    }

    /// A tenant's ended sandboxes, as they were told, the last one first; at most [`HISTORY_MAX`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn history(&self, tenant: &str) -> Result<Vec<String>, Error> {
        let tenant = tenant.to_owned();
        self.call(move |connection| {
            let mut query = connection
                .prepare_cached("SELECT body FROM ended WHERE tenant = ?1 ORDER BY n DESC")?;
            let rows = query.query_map([tenant], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// What a tenant's ended sandboxes had used.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn totals(&self, tenant: &str) -> Result<Totals, Error> {
        let tenant = tenant.to_owned();
        self.call(move |connection| {
            let found = connection
                .prepare_cached(
                    "SELECT count, cpu_us, memory_mib_ms FROM totals WHERE tenant = ?1",
                )?
                .query_row([tenant], |row| {
                    let sum = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.unsigned_abs());
                    Ok(Totals { count: sum(0)?, cpu_us: sum(1)?, memory_mib_ms: sum(2)? })
                })
                .optional()?;
            Ok(found.unwrap_or_default())
        })
        .await
    }

    /// A tenant's network profiles as JSON, by name.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn profiles(&self, tenant: &str) -> Result<Vec<(String, String)>, Error> {
        let tenant = tenant.to_owned();
        self.call(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT name, body FROM profiles WHERE tenant = ?1 ORDER BY name",
            )?;
            let rows = query.query_map([tenant], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Writes a network profile; whether it is new. `None`: there are `max` others.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn put_profile(
        &self,
        tenant: &str,
        name: &str,
        body: String,
        max: usize,
    ) -> Result<Option<bool>, Error> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.call(move |connection| {
            let all = connection.transaction()?;
            let others: i64 = all
                .prepare_cached("SELECT count(*) FROM profiles WHERE tenant = ?1 AND name <> ?2")?
                .query_row([&tenant, &name], |row| row.get(0))?;
            if usize::try_from(others).unwrap_or(usize::MAX) >= max {
                return Ok(None);
            }
            let changed = all
                .prepare_cached("UPDATE profiles SET body = ?3 WHERE tenant = ?1 AND name = ?2")?
                .execute(params![tenant, name, body])?;
            if changed == 0 {
                all.prepare_cached("INSERT INTO profiles VALUES (?1, ?2, ?3)")?
                    .execute(params![tenant, name, body])?;
            }
            all.commit()?;
            Ok(Some(changed == 0))
        })
        .await
    }

    /// Forgets a network profile; whether there was one.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_profile(&self, tenant: &str, name: &str) -> Result<bool, Error> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.call(move |connection| {
            let gone = connection
                .prepare_cached("DELETE FROM profiles WHERE tenant = ?1 AND name = ?2")?
                .execute([tenant, name])?;
            Ok(gone > 0)
        })
        .await
    }
}

fn keep(connection: &Connection, past: &Past) -> Result<(), Error> {
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
