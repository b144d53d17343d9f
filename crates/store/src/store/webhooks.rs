//! Webhooks, by tenant, and how far their deliveries are.

use super::Store;
use super::answers::insert_answer;
use crate::error::Error;
use crate::rows::{StoredAnswer, WebhookRow};
use crate::tombstones::Removal;
use rusqlite::params;
use std::collections::HashSet;

impl Store {
    /// The webhooks of all tenants.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn webhooks(&self) -> Result<Vec<WebhookRow>, Error> {
        self.read(|records| {
            let mut query = records.connection.prepare_cached(
                "SELECT tenant, id, webhooks.body, webhook_progress.body FROM webhooks \
                 LEFT JOIN webhook_progress USING (tenant, id) ORDER BY tenant, id",
            )?;
            let rows = query.query_map([], |row| {
                Ok(WebhookRow {
                    tenant: row.get(0)?,
                    id: row.get(1)?,
                    body: row.get(2)?,
                    progress: row.get(3)?,
                })
            })?;
            let mut all: Vec<WebhookRow> = rows.collect::<Result<_, _>>()?;
            all.retain(|row| !records.webhook_is_removed(&row.tenant, &row.id));
            Ok(all)
        })
        .await
    }

    /// Records a new webhook, and the response of an idempotency key in the same transaction. Returns
    /// `false` and records nothing if the tenant has `max` already.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn insert_webhook(
        &self,
        row: WebhookRow,
        max: usize,
        answer: Option<StoredAnswer>,
    ) -> Result<bool, Error> {
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            let count: i64 = transaction
                .prepare_cached("SELECT count(*) FROM webhooks WHERE tenant = ?1")?
                .query_row([&row.tenant], |row| row.get(0))?;
            if usize::try_from(count).unwrap_or(usize::MAX) >= max {
                return Ok(false);
            }
            transaction
                .prepare_cached("INSERT INTO webhooks VALUES (?1, ?2, ?3)")?
                .execute(params![row.tenant, row.id, row.body])?;
            if let Some(progress) = &row.progress {
                transaction
                    .prepare_cached("INSERT INTO webhook_progress VALUES (?1, ?2, ?3)")?
                    .execute(params![row.tenant, row.id, progress])?;
            }
            if let Some(answer) = &answer {
                insert_answer(&transaction, answer)?;
            }
            transaction.commit()?;
            Ok(true)
        })
        .await
    }

    /// Replaces what the owner of a webhook has set. Returns whether the webhook exists.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn update_webhook(
        &self,
        tenant: &str,
        id: &str,
        body: String,
    ) -> Result<bool, Error> {
        let tenant = tenant.to_owned();
        let id = id.to_owned();
        self.write(move |connection| {
            let changed = connection
                .prepare_cached("UPDATE webhooks SET body = ?3 WHERE tenant = ?1 AND id = ?2")?
                .execute(params![tenant, id, body])?;
            Ok(changed > 0)
        })
        .await
    }

    /// Writes what the owners of webhooks have set, without a limit on their number.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn set_webhooks(&self, rows: Vec<WebhookRow>) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            for WebhookRow { tenant, id, body, .. } in &rows {
                transaction
                    .prepare_cached(
                        "INSERT INTO webhooks VALUES (?1, ?2, ?3) \
                         ON CONFLICT (tenant, id) DO UPDATE SET body = excluded.body \
                         WHERE body <> excluded.body",
                    )?
                    .execute(params![tenant, id, body])?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Deletes all webhooks but these, given as tenant and id. Returns how many.
    ///
    /// # Errors
    /// [`Error`]; some may have been deleted.
    pub async fn retain_webhooks(&self, kept: HashSet<(String, String)>) -> Result<u64, Error> {
        let mut count = 0;
        for WebhookRow { tenant, id, .. } in self.webhooks().await? {
            if !kept.contains(&(tenant.clone(), id.clone())) {
                count += u64::from(self.remove_webhook(&tenant, &id).await?);
            }
        }
        Ok(count)
    }

    /// Records how far the deliveries of a webhook are. Does nothing if the webhook was deleted.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn set_webhook_progress(
        &self,
        tenant: &str,
        id: &str,
        progress: String,
    ) -> Result<(), Error> {
        let tenant = tenant.to_owned();
        let id = id.to_owned();
        self.write(move |connection| {
            connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO webhook_progress SELECT tenant, id, ?3 FROM webhooks \
                     WHERE tenant = ?1 AND id = ?2",
                )?
                .execute(params![tenant, id, progress])?;
            Ok(())
        })
        .await
    }

    /// Deletes a webhook; returns whether it existed. Works on a full disk too.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn remove_webhook(&self, tenant: &str, id: &str) -> Result<bool, Error> {
        let tenant = tenant.to_owned();
        let id = id.to_owned();
        self.run(move |records| {
            let there: i64 = records
                .connection
                .prepare_cached("SELECT count(*) FROM webhooks WHERE tenant = ?1 AND id = ?2")?
                .query_row([&tenant, &id], |row| row.get(0))?;
            if there == 0 || records.webhook_is_removed(&tenant, &id) {
                return Ok(false);
            }
            records.remove(Removal::Webhook { tenant, id })?;
            Ok(true)
        })
        .await
    }
}
