//! The keys in etcd. `docs/fleet.md` lists them with their values.

use crate::model::sandbox_key::SandboxKey;
use crate::model::sandbox_key::encoded;
use isolet_wire::lease::Epoch;
use isolet_wire::node::NodeName;
use std::sync::Arc;

/// Maximum length of the prefix of all keys, in bytes.
pub const PREFIX_BYTES_MAX: usize = 64;

/// Makes the keys of one fleet, below its prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    prefix: Arc<str>,
}

/// The text is no prefix of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the prefix of keys must have 1 to {PREFIX_BYTES_MAX} lower-case letters, digits, `-` and `_`, \
     so that the prefix of one fleet is never part of another's"
)]
pub struct BadPrefix;

/// A key about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKey {
    /// The node's record, as long as it holds its lease.
    Live(NodeName),
    /// The node's record when it last registered.
    Known(NodeName),
    /// An operator has excluded the node from placement.
    Cordoned(NodeName),
    /// An operator has declared the node dead.
    Dead(NodeName),
}

impl Keys {
    /// Keys below this prefix.
    ///
    /// # Errors
    /// [`BadPrefix`].
    pub fn new(prefix: &str) -> Result<Self, BadPrefix> {
        let is_valid = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_'
        };
        if (1..=PREFIX_BYTES_MAX).contains(&prefix.len()) && prefix.bytes().all(is_valid) {
            Ok(Self { prefix: prefix.into() })
        } else {
            Err(BadPrefix)
        }
    }

    /// The prefix.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The prefix of all keys about nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<u8> {
        format!("{}/nodes/", self.prefix).into_bytes()
    }

    /// The key about a node.
    #[must_use]
    pub fn node(&self, key: &NodeKey) -> Vec<u8> {
        let (kind, name) = match key {
            NodeKey::Live(name) => ("live", name),
            NodeKey::Known(name) => ("known", name),
            NodeKey::Cordoned(name) => ("cordoned", name),
            NodeKey::Dead(name) => ("dead", name),
        };
        format!("{}/nodes/{kind}/{name}", self.prefix).into_bytes()
    }

    /// The node that a key is about; `None`: the key was not made by [`Self::node`].
    #[must_use]
    pub fn read_node(&self, key: &[u8]) -> Option<NodeKey> {
        let rest = self.below(key, "nodes")?;
        let (kind, name) = rest.split_once('/')?;
        let name = NodeName::parse(name).ok()?;
        match kind {
            "live" => Some(NodeKey::Live(name)),
            "known" => Some(NodeKey::Known(name)),
            "cordoned" => Some(NodeKey::Cordoned(name)),
            "dead" => Some(NodeKey::Dead(name)),
            _ => None,
        }
    }

    /// The key of a sandbox's owner.
    #[must_use]
    pub fn owner(&self, sandbox: &SandboxKey) -> Vec<u8> {
        format!("{}/owners/{}", self.prefix, sandbox.path()).into_bytes()
    }

    /// The prefix of the owners of a tenant's sandboxes.
    #[must_use]
    pub fn owners_of_tenant(&self, tenant: &str) -> Vec<u8> {
        format!("{}/owners/{}/", self.prefix, encoded(tenant)).into_bytes()
    }

    /// The sandbox whose owner a key names; `None`: the key was not made by [`Self::owner`].
    #[must_use]
    pub fn read_owner(&self, key: &[u8]) -> Option<SandboxKey> {
        SandboxKey::of_path(self.below(key, "owners")?)
    }

    /// The key that describes a sandbox that was stored away.
    #[must_use]
    pub fn stored(&self, sandbox: &SandboxKey) -> Vec<u8> {
        format!("{}/stored/{}", self.prefix, sandbox.path()).into_bytes()
    }

    /// The prefix of the descriptions of a tenant's sandboxes that were stored away.
    #[must_use]
    pub fn stored_of_tenant(&self, tenant: &str) -> Vec<u8> {
        format!("{}/stored/{}/", self.prefix, encoded(tenant)).into_bytes()
    }

    /// The sandbox that a key describes; `None`: the key was not made by [`Self::stored`].
    #[must_use]
    pub fn read_stored(&self, key: &[u8]) -> Option<SandboxKey> {
        SandboxKey::of_path(self.below(key, "stored")?)
    }

    /// The key that lists a sandbox that was stored away by the end of its lifetime, in milliseconds since
    /// 1970. Such keys are in the order of these times.
    #[must_use]
    pub fn ending(&self, at_ms: i64, sandbox: &SandboxKey) -> Vec<u8> {
        let at_ms = at_ms.max(0);
        format!("{}/ending/{at_ms:019}/{}", self.prefix, sandbox.path()).into_bytes()
    }

    /// The prefix of all keys of [`Self::ending`].
    #[must_use]
    pub fn endings(&self) -> Vec<u8> {
        format!("{}/ending/", self.prefix).into_bytes()
    }

    /// The time and the sandbox of a key; `None`: the key was not made by [`Self::ending`].
    #[must_use]
    pub fn read_ending(&self, key: &[u8]) -> Option<(i64, SandboxKey)> {
        let (at_ms, path) = self.below(key, "ending")?.split_once('/')?;
        Some((at_ms.parse().ok()?, SandboxKey::of_path(path)?))
    }

    /// The key that lists what the object store must delete of a sandbox that was given up at this epoch, in
    /// the order of the times from which that is allowed, in milliseconds since 1970.
    #[must_use]
    pub fn discarded(&self, not_before_ms: i64, sandbox: &SandboxKey, epoch: Epoch) -> Vec<u8> {
        let at_ms = not_before_ms.max(0);
        let revision = epoch.revision();
        format!("{}/discarded/{at_ms:019}/{}/{revision}", self.prefix, sandbox.path()).into_bytes()
    }

    /// The prefix of all keys of [`Self::discarded`].
    #[must_use]
    pub fn all_discarded(&self) -> Vec<u8> {
        format!("{}/discarded/", self.prefix).into_bytes()
    }

    /// The time, the sandbox and the epoch of a key; `None`: the key was not made by [`Self::discarded`].
    #[must_use]
    pub fn read_discarded(&self, key: &[u8]) -> Option<(i64, SandboxKey, Epoch)> {
        let (at_ms, rest) = self.below(key, "discarded")?.split_once('/')?;
        let (path, revision) = rest.rsplit_once('/')?;
        let epoch = Epoch::of_revision(revision.parse().ok()?);
        Some((at_ms.parse().ok()?, SandboxKey::of_path(path)?, epoch))
    }

    /// The key that lists a sandbox below its node.
    #[must_use]
    pub fn held(&self, node: &NodeName, sandbox: &SandboxKey) -> Vec<u8> {
        format!("{}/held/{node}/{}", self.prefix, sandbox.path()).into_bytes()
    }

    /// The prefix of the list of a node's sandboxes.
    #[must_use]
    pub fn held_by(&self, node: &NodeName) -> Vec<u8> {
        format!("{}/held/{node}/", self.prefix).into_bytes()
    }

    /// The sandbox that a key lists below its node; `None`: the key was not made by [`Self::held`].
    #[must_use]
    pub fn read_held(&self, key: &[u8]) -> Option<SandboxKey> {
        let (node, path) = self.below(key, "held")?.split_once('/')?;
        NodeName::parse(node).ok()?;
        SandboxKey::of_path(path)
    }

    /// A key whose writes carry the epoch of the sandbox's owner. It is deleted with the owner.
    #[must_use]
    pub fn fenced(&self, sandbox: &SandboxKey, name: &str) -> Vec<u8> {
        format!("{}/fenced/{}/{}", self.prefix, sandbox.path(), encoded(name)).into_bytes()
    }

    /// The prefix of all keys of a sandbox whose writes carry the epoch of its owner.
    #[must_use]
    pub fn fenced_of(&self, sandbox: &SandboxKey) -> Vec<u8> {
        format!("{}/fenced/{}/", self.prefix, sandbox.path()).into_bytes()
    }

    pub(super) fn below<'a>(&self, key: &'a [u8], kind: &str) -> Option<&'a str> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&*self.prefix)?;
        rest.strip_prefix('/')?.strip_prefix(kind)?.strip_prefix('/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_read_as_they_were_written_and_others_are_not() {
        let keys = Keys::new("isolet").unwrap();
        let node = NodeName::parse("n-1").unwrap();
        for key in [
            NodeKey::Live(node.clone()),
            NodeKey::Known(node.clone()),
            NodeKey::Cordoned(node.clone()),
            NodeKey::Dead(node.clone()),
        ] {
            assert_eq!(keys.read_node(&keys.node(&key)), Some(key));
        }
        let sandbox = SandboxKey::new("t/../x", "a b").unwrap();
        assert_eq!(keys.owner(&sandbox), b"isolet/owners/t%2F%2E%2E%2Fx/a%20b");
        assert_eq!(keys.read_owner(&keys.owner(&sandbox)), Some(sandbox.clone()));
        assert_eq!(keys.read_held(&keys.held(&node, &sandbox)), Some(sandbox.clone()));
        assert_eq!(keys.read_stored(&keys.stored(&sandbox)), Some(sandbox.clone()));
        let ending = keys.ending(12, &sandbox);
        assert_eq!(keys.read_ending(&ending), Some((12, sandbox.clone())));
        assert!(ending.starts_with(&keys.endings()) && ending < keys.ending(100, &sandbox));
        let epoch = Epoch::of_revision(7);
        let discarded = keys.discarded(12, &sandbox, epoch);
        assert_eq!(keys.read_discarded(&discarded), Some((12, sandbox.clone(), epoch)));
        assert!(discarded.starts_with(&keys.all_discarded()));
        assert!(discarded < keys.discarded(100, &sandbox, epoch));
        assert!(keys.stored(&sandbox).starts_with(&keys.stored_of_tenant(sandbox.tenant())));
        assert!(keys.held(&node, &sandbox).starts_with(&keys.held_by(&node)));
        assert!(keys.fenced(&sandbox, "a/b").starts_with(&keys.fenced_of(&sandbox)));
        for other in [
            "isolet/nodes/live/",
            "isolet/nodes/x/n",
            "isolet/nodes/live/N",
            "isolet2/nodes/live/n",
        ] {
            assert_eq!(keys.read_node(other.as_bytes()), None, "{other}");
        }
        assert_eq!(keys.read_node(&[0xFF]), None);
    }

    #[test]
    fn a_prefix_is_one_part_of_a_path() {
        for bad in ["", "a/b", "/a", "A", "a.b", "ä", "a b", &"a".repeat(PREFIX_BYTES_MAX + 1)] {
            assert!(Keys::new(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_tenant_reaches_the_keys_of_another(a in ".{1,12}", b in ".{1,12}", id in ".{1,12}") {
            prop_assume!(a != b);
            let keys = Keys::new("p").unwrap();
            let of_a = SandboxKey::new(&a, &id).unwrap();
            prop_assert!(keys.owner(&of_a).starts_with(&keys.owners_of_tenant(&a)));
            prop_assert!(!keys.owner(&of_a).starts_with(&keys.owners_of_tenant(&b)));
            prop_assert!(keys.owner(&of_a).starts_with(b"p/owners/"));
        }
    }
}
