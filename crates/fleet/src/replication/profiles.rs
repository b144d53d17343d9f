//! Network profiles of tenants, as records that all nodes have.

use crate::replication::fleet_id;
use crate::replication::records::RecordKind;
use crate::replication::records::SharedRecord;
use crate::replication::values;
use crate::replication::values::BadValue;
use isolet_cluster::model::Keys as KeyNames;
use isolet_sandbox::profiles::PROFILES_MAX;
use isolet_store::Error as StoreError;
use isolet_store::ProfileRow;
use isolet_store::Store;
use std::collections::HashSet;

/// Maximum number of network profiles of all tenants.
pub const ALL_PROFILES_MAX: usize = 100_000;

/// Network profiles.
pub(super) struct Profiles;

impl RecordKind for Profiles {
    const KIND: &'static str = "network profiles";
    const WHAT: &'static str = "network profile";
    /// 40 of the largest ones are smaller than an answer of etcd may be.
    const PAGE: u16 = 40;
    const VALUE_BYTES_MAX: usize = values::PROFILE_BYTES_MAX;
    const TENANT_MAX: usize = PROFILES_MAX;
    const ALL_MAX: usize = ALL_PROFILES_MAX;
    const FLEET_FILE: &'static str = fleet_id::FILE;

    fn prefix(names: &KeyNames) -> Vec<u8> {
        names.profiles()
    }

    fn prefix_of(names: &KeyNames, tenant: &str) -> Vec<u8> {
        names.profiles_of_tenant(tenant)
    }

    fn key(names: &KeyNames, tenant: &str, name: &str) -> Vec<u8> {
        names.profile(tenant, name)
    }

    fn read_key(names: &KeyNames, key: &[u8]) -> Option<(String, String)> {
        names.read_profile(key)
    }

    fn value(body: &str) -> Option<Vec<u8>> {
        Some(values::of_profile(&serde_json::from_str(body).ok()?))
    }

    fn read_value(name: &str, value: &[u8]) -> Result<String, BadValue> {
        let profile = values::read_profile(name, value)?;
        serde_json::to_string(&profile).map_err(|_| BadValue::Malformed("a network profile"))
    }

    async fn all(
        store: &Store,
        after: (String, String),
        limit: u32,
    ) -> Result<Vec<SharedRecord>, StoreError> {
        let rows = store.all_profiles(after, limit).await?;
        let record = |ProfileRow { tenant, name, body }| SharedRecord { tenant, name, body };
        Ok(rows.into_iter().map(record).collect())
    }

    async fn set(store: &Store, records: Vec<SharedRecord>) -> Result<(), StoreError> {
        let row = |SharedRecord { tenant, name, body }| ProfileRow { tenant, name, body };
        store.set_profiles(records.into_iter().map(row).collect()).await
    }

    async fn retain(store: &Store, kept: HashSet<(String, String)>) -> Result<u64, StoreError> {
        store.retain_profiles(kept).await
    }

    async fn remove(store: &Store, tenant: &str, name: &str) -> Result<bool, StoreError> {
        store.remove_profile(tenant, name).await
    }
}
