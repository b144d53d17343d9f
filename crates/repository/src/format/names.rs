//! Names of objects.

use crate::crypto::keys::Tag;

/// The header.
pub(crate) const HEADER: &str = "isolet-repository";
/// The directory of all tenants.
pub(crate) const TENANTS: &str = "tenants";

/// The directories and objects of a tenant.
#[derive(Debug, Clone)]
pub(crate) struct TenantNames {
    directory: String,
}

impl TenantNames {
    pub(crate) fn new(tenant: &Tag) -> Self {
        Self { directory: format!("{TENANTS}/{}", hex::encode(tenant)) }
    }

    pub(crate) fn packs(&self) -> String {
        format!("{}/packs", self.directory)
    }

    pub(crate) fn pack(&self, pack: &Tag) -> String {
        format!("{}/{}", self.packs(), hex::encode(pack))
    }

    pub(crate) fn indexes(&self) -> String {
        format!("{}/index", self.directory)
    }

    pub(crate) fn index(&self, index: &Tag) -> String {
        format!("{}/{}", self.indexes(), hex::encode(index))
    }

    pub(crate) fn all_doomed(&self) -> String {
        format!("{}/doomed", self.directory)
    }

    pub(crate) fn doomed(&self, pack: &Tag) -> String {
        format!("{}/{}", self.all_doomed(), hex::encode(pack))
    }

    pub(crate) fn snapshots(&self) -> String {
        format!("{}/snapshots", self.directory)
    }

    pub(crate) fn snapshot(&self, snapshot: &Tag) -> String {
        format!("{}/{}", self.snapshots(), hex::encode(snapshot))
    }
}
