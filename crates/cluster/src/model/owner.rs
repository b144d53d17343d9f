//! Which node owns a sandbox, and since when.

use isolet_wire::lease::Epoch;
use isolet_wire::node::NodeName;
use serde::Deserialize;
use serde::Serialize;
use thiserror::Error;

/// Maximum length of the reason for a placement, in bytes.
pub const REASON_BYTES_MAX: usize = 200;
/// The version of the stored value. A node skips values of another one.
const VERSION: u8 = 1;

/// Whether a sandbox survives its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Its files are only on its node. It keeps running while its node is cut off. Nobody takes it over
    /// unless a move has put all of it into the object store and an operator declares the node dead.
    Node,
    /// Its snapshots are in the object store. Another node may take it over once its node's lease
    /// has ended, so its node freezes it before that.
    Store,
}

/// Where the files of an owned sandbox are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Custody {
    /// On its node, or they will be once it is created there.
    Held,
    /// Only in the object store: its node has stored it away and has nothing of it. Any node may take
    /// it over.
    Stored,
    /// Its node has taken it over after it was stored away, and restores it from the object store,
    /// unless it has done so.
    Fetched,
}

/// The owner of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The node.
    pub node: NodeName,
    /// Since when. Every write to the owner's key changes it.
    pub epoch: Epoch,
    /// The class of the sandbox.
    pub class: Class,
    /// The region in which the sandbox was placed.
    pub region: String,
    /// Why it was placed on this node, for people.
    pub reason: String,
    /// Where its files are.
    pub custody: Custody,
    /// Of one that was stored away to be moved: the node that restores it, unless that node fails.
    pub destination: Option<NodeName>,
    /// Of one that was stored away: when its lifetime ends, in milliseconds since 1970.
    pub ends_at_ms: Option<i64>,
    /// Tells one claim from another of the same node: an attempt whose answer was lost finds its own.
    pub(crate) claim: u64,
}

/// The value of an owner's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerValue {
    v: u8,
    node: NodeName,
    class: Class,
    region: String,
    reason: String,
    custody: Custody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    destination: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_at_ms: Option<i64>,
    claim: u64,
}

impl Owner {
    /// Whether no node has the sandbox, so that any node may take it over.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.custody == Custody::Stored
    }
}

/// The value of an owner's key cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BadOwner {
    /// Another version wrote it.
    #[error("version {0} of the record is not the one that this program knows")]
    Version(u8),
    /// It is not the value of an owner.
    #[error("not the record of an owner: {0}")]
    Malformed(String),
}

impl Owner {
    /// Reads the value of an owner's key, which was last written at `revision`.
    pub(crate) fn read(value: &[u8], revision: i64) -> Result<Self, BadOwner> {
        let read: OwnerValue = serde_json::from_slice(value)
            .map_err(|error| BadOwner::Malformed(error.to_string()))?;
        if read.v != VERSION {
            return Err(BadOwner::Version(read.v));
        }
        Ok(Self {
            node: read.node,
            epoch: Epoch::of_revision(revision),
            class: read.class,
            region: read.region,
            reason: read.reason,
            custody: read.custody,
            destination: read.destination,
            ends_at_ms: read.ends_at_ms,
            claim: read.claim,
        })
    }

    /// The value of the owner's key. The epoch is not part of it: it is the key's revision.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut reason = self.reason.clone();
        let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev();
        let end = end.into_iter().find(|end| reason.is_char_boundary(*end));
        reason.truncate(end.unwrap_or(0));
        let value = OwnerValue {
            v: VERSION,
            node: self.node.clone(),
            class: self.class,
            region: self.region.clone(),
            reason,
            custody: self.custody,
            destination: self.destination.clone(),
            ends_at_ms: self.ends_at_ms,
            claim: self.claim,
        };
        // Strings, numbers and enums only.
        serde_json::to_vec(&value).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner {
            node: NodeName::parse("a").unwrap(),
            epoch: Epoch::of_revision(7),
            class: Class::Store,
            region: "eu".into(),
            reason: "most free memory".into(),
            custody: Custody::Held,
            destination: None,
            ends_at_ms: None,
            claim: u64::MAX,
        }
    }

    #[test]
    fn a_stored_sandbox_is_read_as_one() {
        let destination = Some(NodeName::parse("b").unwrap());
        let stored = Owner {
            custody: Custody::Stored,
            destination,
            ends_at_ms: Some(1_700_000_000_000),
            ..owner()
        };
        assert_eq!(Owner::read(&stored.value(), 7).unwrap(), stored);
        assert!(!Owner::read(&owner().value(), 7).unwrap().is_stored());
    }

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        assert_eq!(Owner::read(&owner().value(), 7).unwrap(), owner());
        let long = Owner { reason: "ä".repeat(REASON_BYTES_MAX), ..owner() };
        let read = Owner::read(&long.value(), 7).unwrap();
        assert_eq!(read.reason.len(), REASON_BYTES_MAX);
    }

    #[test]
    fn another_version_and_garbage_are_errors() {
        let text = String::from_utf8(owner().value()).unwrap();
        let later = text.replace("\"v\":1", "\"v\":2");
        assert_eq!(Owner::read(later.as_bytes(), 7), Err(BadOwner::Version(2)));
        for garbage in ["", "{}", "null", &text.replace("\"a\"", "\"A/B\"")] {
            let read = Owner::read(garbage.as_bytes(), 7);
            assert!(matches!(read, Err(BadOwner::Malformed(_))), "{garbage}");
        }
    }
}
