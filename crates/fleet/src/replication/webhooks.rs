//! Webhooks of tenants, as records that all nodes have. Each node has its own progress.

use crate::replication::records::RecordKind;
use crate::replication::records::SharedRecord;
use crate::replication::values;
use crate::replication::values::BadValue;
use isolet_cluster::model::Keys as KeyNames;
use isolet_store::Error as StoreError;
use isolet_store::Store;
use isolet_store::WebhookRow;
use isolet_webhook::WEBHOOKS_MAX;
use std::collections::HashSet;

/// Maximum number of webhooks of all tenants: each has a task on each node.
pub const ALL_WEBHOOKS_MAX: usize = 10_000;

/// Webhooks.
pub(super) struct Webhooks;

impl RecordKind for Webhooks {
    const KIND: &'static str = "webhooks";
    const WHAT: &'static str = "webhook";
    const PAGE: u16 = 100;
    const VALUE_BYTES_MAX: usize = values::WEBHOOK_BYTES_MAX;
    const TENANT_MAX: usize = WEBHOOKS_MAX;
    const ALL_MAX: usize = ALL_WEBHOOKS_MAX;
    const FLEET_FILE: &'static str = "fleet-webhooks";

    fn prefix(names: &KeyNames) -> Vec<u8> {
        names.webhooks()
    }

    fn prefix_of(names: &KeyNames, tenant: &str) -> Vec<u8> {
        names.webhooks_of_tenant(tenant)
    }

    fn key(names: &KeyNames, tenant: &str, name: &str) -> Vec<u8> {
        names.webhook(tenant, name)
    }

    fn read_key(names: &KeyNames, key: &[u8]) -> Option<(String, String)> {
        names.read_webhook(key)
    }

    fn value(body: &str) -> Option<Vec<u8>> {
        values::of_webhook(body)
    }

    fn read_value(_: &str, value: &[u8]) -> Result<String, BadValue> {
        values::read_webhook(value)
    }

    async fn all(
        store: &Store,
        after: (String, String),
        limit: u32,
    ) -> Result<Vec<SharedRecord>, StoreError> {
        let rows = store.webhooks().await?.into_iter();
        let record = |row: WebhookRow| {
            let WebhookRow { tenant, id, body, .. } = row;
            SharedRecord { tenant, name: id, body }
        };
        // They are sorted, and all of them fit into memory, where each has a task anyway.
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let behind = |one: &SharedRecord| (&one.tenant, &one.name) > (&after.0, &after.1);
        Ok(rows.map(record).filter(behind).take(limit).collect())
    }

    async fn set(store: &Store, records: Vec<SharedRecord>) -> Result<(), StoreError> {
        let row = |SharedRecord { tenant, name, body }| WebhookRow {
            tenant,
            id: name,
            body,
            progress: None,
        };
        store.set_webhooks(records.into_iter().map(row).collect()).await
    }

    async fn retain(store: &Store, kept: HashSet<(String, String)>) -> Result<u64, StoreError> {
        store.retain_webhooks(kept).await
    }

    async fn remove(store: &Store, tenant: &str, name: &str) -> Result<bool, StoreError> {
        store.remove_webhook(tenant, name).await
    }
}
