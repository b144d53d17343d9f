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

impl Totals {
    fn and(self, more: Self) -> Self {
        Self {
            count: self.count.saturating_add(more.count),
            cpu_us: self.cpu_us.saturating_add(more.cpu_us),
            memory_mib_ms: self.memory_mib_ms.saturating_add(more.memory_mib_ms),
        }
    }
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
    /// A tenant's ended sandboxes, as they were told, the last one first; at most [`HISTORY_MAX`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn history(&self, tenant: &str) -> Result<Vec<String>, Error> {
        let tenant = tenant.to_owned();
        self.read(move |records| {
            let mut query = records
                .connection
                .prepare_cached("SELECT body FROM ended WHERE tenant = ?1 ORDER BY n DESC")?;
            let rows = query.query_map([&tenant], |row| row.get(0))?;
            let waiting = records.ended_of(&tenant).rev().map(|past| Ok(past.body.clone()));
            Ok(waiting.chain(rows).take(HISTORY_MAX).collect::<Result<_, _>>()?)
        })
        .await
    }

    /// What a tenant's ended sandboxes had used.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn totals(&self, tenant: &str) -> Result<Totals, Error> {
        let tenant = tenant.to_owned();
        self.read(move |records| {
            let found = records
                .connection
                .prepare_cached(
                    "SELECT count, cpu_us, memory_mib_ms FROM totals WHERE tenant = ?1",
                )?
                .query_row([&tenant], |row| {
                    let sum = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.unsigned_abs());
                    Ok(Totals { count: sum(0)?, cpu_us: sum(1)?, memory_mib_ms: sum(2)? })
                })
                .optional()?;
            let waiting = records.ended_of(&tenant).map(|past| past.sums);
            Ok(waiting.fold(found.unwrap_or_default(), Totals::and))
        })
        .await
    }

    /// A tenant's network profiles as JSON, by name.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn profiles(&self, tenant: &str) -> Result<Vec<(String, String)>, Error> {
        let tenant = tenant.to_owned();
        self.read(move |records| {
            let mut query = records.connection.prepare_cached(
                "SELECT name, body FROM profiles WHERE tenant = ?1 ORDER BY name",
            )?;
            let rows = query.query_map([&tenant], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let mut all: Vec<(String, String)> = rows.collect::<Result<_, _>>()?;
            all.retain(|(name, _)| !records.removed_profile(&tenant, name));
            Ok(all)
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
}

pub(crate) fn keep(connection: &Connection, past: &Past) -> Result<(), Error> {
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
