//! Network profiles, by tenant.

use super::Store;
use crate::error::Error;
use crate::tombstones::Removal;
use rusqlite::params;

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
}
