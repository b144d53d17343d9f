//! Stored responses to idempotency keys. Expired ones are deleted in small steps, and the file then gets
//! smaller in small steps, so that no other write waits for long.

use super::Store;
use crate::error::Error;
use crate::rows::{ANSWER_MS, AnswerTotals, StoredAnswer};
use isolet_clock::now_ms;
use rusqlite::{Connection, OptionalExtension, params};

/// Maximum number of expired answers that one step deletes.
pub const EXPIRED_STEP: usize = 500;
/// Maximum number of pages of 4 KiB by which one step makes the file smaller.
const PAGES_STEP: i64 = 256;

pub(super) fn insert_answer(connection: &Connection, answer: &StoredAnswer) -> Result<(), Error> {
    // Deleted first, because a replacing insert would not run the trigger that counts.
    connection
        .prepare_cached("DELETE FROM answers WHERE tenant = ?1 AND key = ?2")?
        .execute(params![answer.tenant, answer.key])?;
    connection.prepare_cached("INSERT INTO answers VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(
        params![answer.tenant, answer.key, answer.body, answer.answer, now_ms() + ANSWER_MS],
    )?;
    Ok(())
}

impl Store {
    /// The stored response of an idempotency key, unless it has expired.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn answer(&self, tenant: &str, key: &str) -> Result<Option<StoredAnswer>, Error> {
        let tenant = tenant.to_owned();
        let key = key.to_owned();
        self.read(move |records| {
            let found = records
                .connection
                .prepare_cached(
                    "SELECT body, answer FROM answers WHERE tenant = ?1 AND key = ?2 AND expires_ms >= ?3",
                )?
                .query_row(params![tenant, key, now_ms()], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            Ok(found.map(|(body, answer)| StoredAnswer { tenant, key, body, answer }))
        })
        .await
    }

    /// The stored responses of a tenant, with those that have expired and are not deleted yet.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn answer_totals(&self, tenant: &str) -> Result<AnswerTotals, Error> {
        let tenant = tenant.to_owned();
        self.read(move |records| {
            let found: Option<(i64, i64)> = records
                .connection
                .prepare_cached("SELECT count, bytes FROM answer_totals WHERE tenant = ?1")?
                .query_row([tenant], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let (count, bytes) = found.unwrap_or_default();
            Ok(AnswerTotals { count: count.unsigned_abs(), bytes: bytes.unsigned_abs() })
        })
        .await
    }

    /// Records an answer whose effect is not in the database.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn insert_answer(&self, answer: StoredAnswer) -> Result<(), Error> {
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            insert_answer(&transaction, &answer)?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Deletes at most [`EXPIRED_STEP`] expired answers, the oldest first. Returns how many.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn delete_expired_answers(&self) -> Result<usize, Error> {
        self.write(|connection| {
            let deleted = connection
                .prepare_cached(
                    "DELETE FROM answers WHERE (tenant, key) IN \
                     (SELECT tenant, key FROM answers WHERE expires_ms < ?1 \
                      ORDER BY expires_ms LIMIT ?2)",
                )?
                .execute(params![now_ms(), i64::try_from(EXPIRED_STEP).unwrap_or(i64::MAX)])?;
            Ok(deleted)
        })
        .await
    }

    /// Makes the file smaller by at most 1 MiB if more than a quarter of it is free. Returns whether it
    /// did.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn shrink(&self) -> Result<bool, Error> {
        self.write(|connection| {
            let number = |name| -> rusqlite::Result<i64> {
                connection.pragma_query_value(None, name, |row| row.get(0))
            };
            let free = number("freelist_count")?;
            if free < PAGES_STEP || free < number("page_count")? / 4 {
                return Ok(false);
            }
            {
                let mut step =
                    connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_STEP})"))?;
                let mut pages = step.query([])?;
                // Each page that is given back is one step of the statement.
                while pages.next()?.is_some() {}
            }
            if number("freelist_count")? == free {
                // The file was not created by `schema::open`.
                return Ok(false);
            }
            // The file itself ends earlier only after a checkpoint.
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            Ok(true)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const LONG_ANSWER: usize = 1000;

    fn answer(tenant: &str, key: &str) -> StoredAnswer {
        let answer = "\u{e4}".repeat(LONG_ANSWER);
        StoredAnswer { tenant: tenant.into(), key: key.into(), body: [0; 32], answer }
    }

    /// Adds answers of the tenant `busy` that have expired.
    fn add_expired(file: &Path, count: usize) {
        let mut raw = Connection::open(file).unwrap();
        let all = raw.transaction().unwrap();
        for n in 0..count {
            let one = answer("busy", &n.to_string());
            all.prepare_cached("INSERT INTO answers VALUES (?1, ?2, ?3, ?4, 1)")
                .unwrap()
                .execute(params![one.tenant, one.key, one.body, one.answer])
                .unwrap();
        }
        all.commit().unwrap();
    }

    async fn totals(store: &Store, tenant: &str) -> (u64, u64) {
        let AnswerTotals { count, bytes } = store.answer_totals(tenant).await.unwrap();
        (count, bytes)
    }

    /// The first create after a busy day once deleted all of them, and every other write waited.
    /// Promises: P20.
    #[tokio::test]
    async fn expired_answers_are_deleted_in_steps_and_never_by_a_request() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("isolet.db");
        let store = Store::open(&file).unwrap();
        add_expired(&file, 2 * EXPIRED_STEP + 1);
        store.insert_answer(answer("t", "k")).await.unwrap();
        assert_eq!(totals(&store, "busy").await.0, 2 * EXPIRED_STEP as u64 + 1);
        let mut steps = Vec::new();
        while totals(&store, "busy").await.0 > 0 {
            steps.push(store.delete_expired_answers().await.unwrap());
        }
        assert_eq!(steps, [EXPIRED_STEP, EXPIRED_STEP, 1]);
        assert_eq!(store.delete_expired_answers().await.unwrap(), 0);
        assert_eq!(store.answer("t", "k").await.unwrap(), Some(answer("t", "k")));
    }

    /// Promises: P20.
    #[tokio::test]
    async fn the_totals_of_a_tenant_are_those_of_its_answers() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("isolet.db")).unwrap();
        let bytes = 2 * LONG_ANSWER as u64;
        for key in ["a", "b", "a"] {
            store.insert_answer(answer("t", key)).await.unwrap();
        }
        store.insert_answer(answer("u", "a")).await.unwrap();
        assert_eq!(totals(&store, "t").await, (2, 2 * bytes));
        assert_eq!(totals(&store, "u").await, (1, bytes));
        assert_eq!(totals(&store, "none").await, (0, 0));
    }

    /// Promises: P20.
    #[tokio::test]
    async fn the_file_gets_smaller_when_answers_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("isolet.db");
        let store = Store::open(&file).unwrap();
        store.insert_answer(answer("t", "k")).await.unwrap();
        add_expired(&file, 10 * EXPIRED_STEP);
        let length = || std::fs::metadata(&file).unwrap().len();
        let before = length();
        while store.delete_expired_answers().await.unwrap() > 0 {}
        while store.shrink().await.unwrap() {}
        assert!(length() < before / 4, "{before} {}", length());
        assert!(!store.shrink().await.unwrap());
        assert_eq!(store.answer("t", "k").await.unwrap(), Some(answer("t", "k")));
        Store::check(&file).unwrap();
        let log = std::fs::metadata(file.with_extension("db-wal")).unwrap().len();
        assert!(log <= 16 << 20, "{log}");
    }
}
