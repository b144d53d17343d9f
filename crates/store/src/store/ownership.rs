//! What a node of a fleet knows about the ownership of its sandboxes.

use super::Store;
use crate::error::Error;
use crate::rows::OwnershipRow;
use rusqlite::params;

impl Store {
    /// All rows. Those of sandboxes without a record are of sandboxes that were deleted, and whose
    /// ownership has not been given up yet.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn ownership(&self) -> Result<Vec<OwnershipRow>, Error> {
        self.read(|records| {
            let mut query = records.connection.prepare_cached(
                "SELECT name, tenant, id, suspended, view FROM ownership ORDER BY name",
            )?;
            let rows = query.query_map([], |row| {
                Ok(OwnershipRow {
                    name: row.get(0)?,
                    tenant: row.get(1)?,
                    id: row.get(2)?,
                    suspended: row.get(3)?,
                    view: row.get(4)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Writes rows, all or none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn put_ownership(&self, rows: Vec<OwnershipRow>) -> Result<(), Error> {
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            {
                let mut put = transaction.prepare_cached(
                    "INSERT INTO ownership (name, tenant, id, suspended, view) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (name) DO UPDATE SET suspended = ?4, view = ?5",
                )?;
                for row in &rows {
                    put.execute(params![row.name, row.tenant, row.id, row.suspended, row.view])?;
                }
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Removes a row. No error if there is none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_ownership(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.write(move |connection| {
            connection.prepare_cached("DELETE FROM ownership WHERE name = ?1")?.execute([name])?;
            Ok(())
        })
        .await
    }
}
