//! Network profiles, by tenant.

use super::Store;
use crate::error::Error;
use crate::tombstones::Removal;
use rusqlite::params;
use std::collections::HashSet;

/// A network profile of a tenant, in the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRow {
    /// The tenant.
    pub tenant: String,
    /// The name, unique for the tenant.
    pub name: String,
    /// The profile as JSON.
    pub body: String,
}

impl Store {
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
            all.retain(|(name, _)| !records.profile_is_removed(&tenant, name));
            Ok(all)
        })
        .await
    }

    /// Writes a network profile. Returns whether it is new, or `None` if the tenant has `max` others.
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
        let tenant = tenant.to_owned();
        let name = name.to_owned();
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            let others: i64 = transaction
                .prepare_cached("SELECT count(*) FROM profiles WHERE tenant = ?1 AND name <> ?2")?
                .query_row([&tenant, &name], |row| row.get(0))?;
            if usize::try_from(others).unwrap_or(usize::MAX) >= max {
                return Ok(None);
            }
            let changed = transaction
                .prepare_cached("UPDATE profiles SET body = ?3 WHERE tenant = ?1 AND name = ?2")?
                .execute(params![tenant, name, body])?;
            if changed == 0 {
                transaction
                    .prepare_cached("INSERT INTO profiles VALUES (?1, ?2, ?3)")?
                    .execute(params![tenant, name, body])?;
            }
            transaction.commit()?;
            Ok(Some(changed == 0))
        })
        .await
    }

    /// Deletes a network profile; returns whether it existed.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn remove_profile(&self, tenant: &str, name: &str) -> Result<bool, Error> {
        let tenant = tenant.to_owned();
        let name = name.to_owned();
        self.run(move |records| {
            let there: i64 = records
                .connection
                .prepare_cached("SELECT count(*) FROM profiles WHERE tenant = ?1 AND name = ?2")?
                .query_row([&tenant, &name], |row| row.get(0))?;
            if there == 0 || records.profile_is_removed(&tenant, &name) {
                return Ok(false);
            }
            records.remove(Removal::Profile { tenant, name })?;
            Ok(true)
        })
        .await
    }

    /// Network profiles of all tenants, at most `limit`: those behind a tenant and a name, in their
    /// order. Empty only if there is none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn all_profiles(
        &self,
        after: (String, String),
        limit: u32,
    ) -> Result<Vec<ProfileRow>, Error> {
        self.read(move |records| {
            let (mut tenant, mut name) = after;
            loop {
                let mut query = records.connection.prepare_cached(
                    "SELECT tenant, name, body FROM profiles WHERE (tenant, name) > (?1, ?2) \
                     ORDER BY tenant, name LIMIT ?3",
                )?;
                let rows = query.query_map(params![tenant, name, limit], |row| {
                    Ok(ProfileRow { tenant: row.get(0)?, name: row.get(1)?, body: row.get(2)? })
                })?;
                let mut rows: Vec<ProfileRow> = rows.collect::<Result<_, _>>()?;
                let Some(last) = rows.last() else { return Ok(rows) };
                tenant.clone_from(&last.tenant);
                name.clone_from(&last.name);
                rows.retain(|row| !records.profile_is_removed(&row.tenant, &row.name));
                if !rows.is_empty() {
                    return Ok(rows);
                }
            }
        })
        .await
    }

    /// Writes network profiles, without a limit on their number.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn set_profiles(&self, rows: Vec<ProfileRow>) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            for ProfileRow { tenant, name, body } in &rows {
                transaction
                    .prepare_cached(
                        "INSERT INTO profiles VALUES (?1, ?2, ?3) \
                         ON CONFLICT (tenant, name) DO UPDATE SET body = excluded.body \
                         WHERE body <> excluded.body",
                    )?
                    .execute(params![tenant, name, body])?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Deletes all network profiles but these, given as tenant and name. Returns how many.
    ///
    /// # Errors
    /// [`Error`]; some may have been deleted.
    pub async fn retain_profiles(&self, kept: HashSet<(String, String)>) -> Result<u64, Error> {
        self.run(move |records| {
            let mut others: Vec<(String, String)> = records
                .connection
                .prepare_cached("SELECT tenant, name FROM profiles")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            others.retain(|key| !kept.contains(key) && !records.profile_is_removed(&key.0, &key.1));
            let mut count = 0;
            for (tenant, name) in others {
                records.remove(Removal::Profile { tenant, name })?;
                count += 1;
            }
            Ok(count)
        })
        .await
    }
}
