//! Usage of ended sandboxes by tenant: the latest ones in detail, and totals of all.

use super::Store;
use crate::error::Error;
use crate::rows::{HISTORY_MAX, UsageTotals};
use rusqlite::OptionalExtension;

impl Store {
    /// At most [`HISTORY_MAX`] ended sandboxes of a tenant as JSON, the latest first.
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
            let waiting =
                records.pending_ended_of(&tenant).rev().map(|ended| Ok(ended.body.clone()));
            Ok(waiting.chain(rows).take(HISTORY_MAX).collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Total usage of all ended sandboxes of a tenant.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn totals(&self, tenant: &str) -> Result<UsageTotals, Error> {
        let tenant = tenant.to_owned();
        self.read(move |records| {
            let found = records
                .connection
                .prepare_cached(
                    "SELECT count, cpu_us, memory_mib_ms FROM totals WHERE tenant = ?1",
                )?
                .query_row([&tenant], |row| {
                    let sum = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.unsigned_abs());
                    Ok(UsageTotals { count: sum(0)?, cpu_us: sum(1)?, memory_mib_ms: sum(2)? })
                })
                .optional()?;
            let waiting = records.pending_ended_of(&tenant).map(|ended| ended.sums);
            Ok(waiting.fold(found.unwrap_or_default(), UsageTotals::and))
        })
        .await
    }
}
