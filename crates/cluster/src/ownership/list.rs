//! Lists: the sandboxes of a node, and of a tenant.

use crate::etcd::KeyValue;
use crate::etcd::Page;
use crate::model::Class;
use crate::model::Epoch;
use crate::model::Owner;
use crate::model::SandboxKey;
use crate::model::SkippedKey;
use crate::ownership::Ownership;
use crate::ownership::error::OwnershipError;
use isolet_wire::node::NodeName;
use tracing::warn;

/// Maximum length of a skipped key in a report, in bytes.
const KEY_BYTES_MAX: usize = 400;

/// Where a page of a list ends: the last key that was read, also one that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    key: Vec<u8>,
}

/// A sandbox of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldSandbox {
    /// The sandbox.
    pub sandbox: SandboxKey,
    /// Since when the node owns it.
    pub epoch: Epoch,
    /// Its class.
    pub class: Class,
}

/// A part of the list of a node's sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldPage {
    /// The sandboxes, in the order of their keys.
    pub sandboxes: Vec<HeldSandbox>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<ListCursor>,
    /// Keys that could not be used.
    pub skipped: Vec<SkippedKey>,
}

/// A sandbox of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSandbox {
    /// The sandbox.
    pub sandbox: SandboxKey,
    /// Its owner.
    pub owner: Owner,
}

/// A part of the list of a tenant's sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerPage {
    /// The sandboxes, in the order of their keys.
    pub sandboxes: Vec<OwnedSandbox>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<ListCursor>,
    /// Keys that could not be used.
    pub skipped: Vec<SkippedKey>,
}

impl Ownership {
    /// Sandboxes that a node owns, behind `after`: at most `limit`, and at most
    /// [`crate::etcd::PAGE_KEYS_MAX`].
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn held(
        &self,
        node: &NodeName,
        after: Option<&ListCursor>,
        limit: u16,
    ) -> Result<HeldPage, OwnershipError> {
        let behind = after.map(|cursor| cursor.key.as_slice());
        let prefix = self.keys.held_by(node);
        let Page { pairs, has_more, .. } = self.etcd.list(&prefix, behind, limit, None).await?;
        let mut page = HeldPage { next: cursor(&pairs, has_more), ..HeldPage::default() };
        for pair in pairs {
            match (self.keys.read_held(&pair.key), read_held_value(&pair.value)) {
                (Some(sandbox), Some(class)) => {
                    let epoch = Epoch::of_revision(pair.modified_at);
                    page.sandboxes.push(HeldSandbox { sandbox, epoch, class });
                }
                _ => page.skipped.push(skip(&pair.key, "not an entry of a node's list")),
            }
        }
        Ok(page)
    }

    /// Sandboxes of a tenant with their owners, behind `after`: at most `limit`, and at most
    /// [`crate::etcd::PAGE_KEYS_MAX`].
    ///
    /// # Errors
    /// [`OwnershipError::Etcd`].
    pub async fn owned_by_tenant(
        &self,
        tenant: &str,
        after: Option<&ListCursor>,
        limit: u16,
    ) -> Result<OwnerPage, OwnershipError> {
        let behind = after.map(|cursor| cursor.key.as_slice());
        let prefix = self.keys.owners_of_tenant(tenant);
        let Page { pairs, has_more, .. } = self.etcd.list(&prefix, behind, limit, None).await?;
        let mut page = OwnerPage { next: cursor(&pairs, has_more), ..OwnerPage::default() };
        for pair in pairs {
            let Some(sandbox) = self.keys.read_owner(&pair.key) else {
                page.skipped.push(skip(&pair.key, "not the key of an owner"));
                continue;
            };
            match Owner::read(&pair.value, pair.modified_at) {
                Ok(owner) => page.sandboxes.push(OwnedSandbox { sandbox, owner }),
                Err(error) => page.skipped.push(skip(&pair.key, &error.to_string())),
            }
        }
        Ok(page)
    }
}

fn cursor(pairs: &[KeyValue], has_more: bool) -> Option<ListCursor> {
    pairs.last().filter(|_| has_more).map(|pair| ListCursor { key: pair.key.clone() })
}

/// The value of an entry in a node's list.
pub(super) fn held_value(class: Class) -> Vec<u8> {
    let class = match class {
        Class::Node => "node",
        Class::Store => "store",
    };
    class.into()
}

pub(super) fn read_held_value(value: &[u8]) -> Option<Class> {
    match value {
        b"node" => Some(Class::Node),
        b"store" => Some(Class::Store),
        _ => None,
    }
}

fn skip(key: &[u8], reason: &str) -> SkippedKey {
    let key = key[..key.len().min(KEY_BYTES_MAX)].escape_ascii().to_string();
    warn!(%key, %reason, "skipped a key in etcd; delete it if no node of the fleet wrote it");
    SkippedKey { key, reason: reason.to_owned() }
}
