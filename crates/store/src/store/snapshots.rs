//! Records of snapshots.

use super::Store;
use super::answers::insert_answer;
use crate::error::Error;
use crate::rows::{SnapshotRow, StoredAnswer};
use rusqlite::{OptionalExtension, Row, params};

const COLUMNS: &str = "SELECT name, tenant, id, body FROM snapshots";

fn row(row: &Row<'_>) -> rusqlite::Result<SnapshotRow> {
    Ok(SnapshotRow { name: row.get(0)?, tenant: row.get(1)?, id: row.get(2)?, body: row.get(3)? })
}

impl Store {
    /// The snapshots of all tenants, sorted by tenant and id.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn all_snapshots(&self) -> Result<Vec<SnapshotRow>, Error> {
        self.read(|records| {
            let query = format!("{COLUMNS} ORDER BY tenant, id");
            let mut query = records.connection.prepare(&query)?;
            Ok(query.query_map([], row)?.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The snapshots of a tenant, sorted by id.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn snapshots(&self, tenant: &str) -> Result<Vec<SnapshotRow>, Error> {
        let tenant = tenant.to_owned();
        self.read(move |records| {
            let query = format!("{COLUMNS} WHERE tenant = ?1 ORDER BY id");
            let mut query = records.connection.prepare_cached(&query)?;
            Ok(query.query_map([tenant], row)?.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// One snapshot of a tenant.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn snapshot(&self, tenant: &str, id: &str) -> Result<Option<SnapshotRow>, Error> {
        let tenant = tenant.to_owned();
        let id = id.to_owned();
        self.read(move |records| {
            let query = format!("{COLUMNS} WHERE tenant = ?1 AND id = ?2");
            let mut query = records.connection.prepare_cached(&query)?;
            Ok(query.query_row([tenant, id], row).optional()?)
        })
        .await
    }

    /// Records a snapshot, and stores the response of an idempotency key in the same transaction.
    ///
    /// # Errors
    /// [`Error::Exists`] when its name or (tenant, id) is taken; neither is changed then.
    pub async fn insert_snapshot(
        &self,
        snapshot: SnapshotRow,
        answer: Option<StoredAnswer>,
    ) -> Result<(), Error> {
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            transaction
                .prepare_cached("INSERT INTO snapshots VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![snapshot.name, snapshot.tenant, snapshot.id, snapshot.body])?;
            if let Some(answer) = &answer {
                insert_answer(&transaction, answer)?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// The next number of a snapshot of a sandbox, by its internal name, from 1 on. No number is given twice,
    /// and when this returns, the number is on the disk.
    ///
    /// # Errors
    /// [`Error`]: the sandbox has no record.
    pub async fn next_snapshot_number(&self, sandbox: &str) -> Result<u64, Error> {
        let sandbox = sandbox.to_owned();
        self.write(move |connection| {
            let number: i64 = connection
                .prepare_cached(
                    "INSERT INTO snapshot_numbers VALUES (?1, 1)
                     ON CONFLICT (sandbox) DO UPDATE SET number = number + 1 RETURNING number",
                )?
                .query_row([sandbox], |row| row.get(0))?;
            Ok(number.unsigned_abs())
        })
        .await
    }

    /// The last number that a snapshot of a sandbox got; 0: none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn last_snapshot_number(&self, sandbox: &str) -> Result<u64, Error> {
        let sandbox = sandbox.to_owned();
        self.read(move |records| {
            let query = "SELECT number FROM snapshot_numbers WHERE sandbox = ?1";
            let mut query = records.connection.prepare_cached(query)?;
            let number: Option<i64> = query.query_row([sandbox], |row| row.get(0)).optional()?;
            Ok(number.unwrap_or_default().unsigned_abs())
        })
        .await
    }

    /// Replaces the body of the record of a snapshot, if there is one.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn update_snapshot(&self, name: &str, body: String) -> Result<(), Error> {
        let name = name.to_owned();
        self.write(move |connection| {
            connection
                .prepare_cached("UPDATE snapshots SET body = ?2 WHERE name = ?1")?
                .execute(params![name, body])?;
            Ok(())
        })
        .await
    }

    /// Deletes the record of a snapshot, if there is one.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn remove_snapshot(&self, name: &str) -> Result<(), Error> {
        self.remove_snapshot_with_answer(name, None).await
    }

    /// Deletes the record of a snapshot, and stores the response of an idempotency key in the same
    /// transaction.
    ///
    /// # Errors
    /// [`Error`]; neither is changed then.
    pub async fn remove_snapshot_with_answer(
        &self,
        name: &str,
        answer: Option<StoredAnswer>,
    ) -> Result<(), Error> {
        let name = name.to_owned();
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            transaction.prepare_cached("DELETE FROM snapshots WHERE name = ?1")?.execute([name])?;
            if let Some(answer) = &answer {
                insert_answer(&transaction, answer)?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }
}
