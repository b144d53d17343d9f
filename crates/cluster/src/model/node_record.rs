//! What a node writes about itself.

use crate::model::label::LABELS_MAX;
use crate::model::label::Label;
use crate::model::label::Labels;
use isolet_wire::node::NodeName;
use serde::Deserialize;
use serde::Serialize;

/// Maximum size of a node's record in etcd, in bytes.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of images that a record names: those that were used last.
pub const IMAGES_MAX: usize = 64;
/// Maximum length of the other texts of a record, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// The version of records. A node skips records of another one.
const VERSION: u8 = 1;

/// A node as it describes itself. More than 12 fields are not needed: what changes with the work is
/// in [`Load`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    v: u8,
    /// The format of everything that the node stores. All nodes of a fleet have the same.
    pub format: u32,
    /// The name, unique in the fleet.
    pub name: NodeName,
    /// The identity of the node's data directory. A restarted server has the same, another server
    /// with the same name has not.
    pub identity: String,
    /// Where other nodes reach it: `HOST:PORT`.
    pub address: String,
    /// The region.
    pub region: Label,
    /// The labels.
    pub labels: Labels,
    /// The version of the server.
    pub version: String,
    /// What the node has.
    pub capacity: Capacity,
    /// What is in use.
    pub load: Load,
    /// A digest of the limits of tenants in the node's configuration file.
    pub limits_digest: String,
    /// Whether sandboxes of the class `store` can be placed here.
    pub store: bool,
    /// Whether the node accepts new sandboxes.
    pub state: ReportedState,
    /// When its server started, in milliseconds since 1970.
    pub started_at_ms: i64,
}

/// What a node has for all its sandboxes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Processor time in thousandths of a processor.
    pub cpu_millis: u64,
    /// Space on the disk in MiB.
    pub disk_mib: u64,
    /// Maximum number of sandboxes.
    pub sandboxes: u32,
}

/// What is in use on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Memory in MiB that running sandboxes may use, or that they use if they have no limit.
    pub memory_reserved_mib: u64,
    /// Space on the disk in MiB that is in use.
    pub disk_used_mib: u64,
    /// Sandboxes that exist, also those that sleep.
    pub sandboxes: u32,
    /// Sandboxes that run.
    pub running: u32,
    /// Whether its disk is below its floor: the node creates nothing.
    pub is_full: bool,
    /// Whether its first snapshots of sandboxes of the class `store` do not get to the object store.
    pub pushes_stuck: bool,
    /// The images that the node has, as the first 16 hexadecimal digits of their digests: at most
    /// [`IMAGES_MAX`], those that were used last.
    pub images: Vec<String>,
}

/// Whether a node accepts new sandboxes, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedState {
    /// It does.
    Ready,
    /// It does not: the server is stopping.
    Stopping,
    /// It does not yet: the server does not answer requests of other nodes.
    Starting,
    /// It does not: its lease guard does not answer, so it does not renew its lease.
    Suspect,
}

/// A record of a node cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// Another version wrote it.
    #[error("version {0} of the record is not the one that this program knows")]
    Version(u8),
    /// It is not a record of a node.
    #[error("not the record of a node: {0}")]
    Malformed(String),
    /// The key has another name than the record.
    #[error("the record is of the node {0}")]
    OtherName(NodeName),
    /// A part is over its limit.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },
}

impl NodeRecord {
    /// The record of a node that has no load and is ready, and whose configuration file limits no
    /// tenant.
    #[must_use]
    pub fn new(
        format: u32,
        name: NodeName,
        identity: String,
        address: String,
        region: Label,
    ) -> Self {
        Self {
            v: VERSION,
            format,
            name,
            identity,
            address,
            region,
            labels: Labels::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capacity: Capacity::default(),
            load: Load::default(),
            limits_digest: String::new(),
            store: false,
            state: ReportedState::Ready,
            started_at_ms: isolet_clock::now_ms(),
        }
    }

    /// Reads the record below the key of the node `name`.
    ///
    /// # Errors
    /// [`BadRecord`].
    pub fn read(value: &[u8], name: &NodeName) -> Result<Self, BadRecord> {
        if value.len() > RECORD_BYTES_MAX {
            return Err(BadRecord::TooLarge { what: "the record", limit: RECORD_BYTES_MAX });
        }
        let malformed = |error: serde_json::Error| BadRecord::Malformed(error.to_string());
        let read: Self = serde_json::from_slice(value).map_err(malformed)?;
        if read.v != VERSION {
            return Err(BadRecord::Version(read.v));
        }
        if read.name != *name {
            return Err(BadRecord::OtherName(read.name));
        }
        read.check()?;
        Ok(read)
    }

    /// The format of a node's record, which may be of any version; 0: it has none. `None`: it is not
    /// the record of a node.
    pub(crate) fn read_format(value: &[u8]) -> Option<u32> {
        #[derive(Deserialize)]
        struct AnyRecord {
            #[serde(default)]
            format: u32,
        }
        Some(serde_json::from_slice::<AnyRecord>(value).ok()?.format)
    }

    /// The value for etcd.
    ///
    /// # Errors
    /// [`BadRecord::TooLarge`].
    pub fn value(&self) -> Result<Vec<u8>, BadRecord> {
        self.check()?;
        let value =
            serde_json::to_vec(self).map_err(|error| BadRecord::Malformed(error.to_string()))?;
        if value.len() > RECORD_BYTES_MAX {
            return Err(BadRecord::TooLarge { what: "the record", limit: RECORD_BYTES_MAX });
        }
        Ok(value)
    }

    /// The free memory in MiB, after what is reserved.
    #[must_use]
    pub fn memory_free_mib(&self) -> u64 {
        self.capacity.memory_mib.saturating_sub(self.load.memory_reserved_mib)
    }

    fn check(&self) -> Result<(), BadRecord> {
        let within = |what, length: usize, limit: usize| {
            if length <= limit { Ok(()) } else { Err(BadRecord::TooLarge { what, limit }) }
        };
        within("the number of labels", self.labels.len(), LABELS_MAX)?;
        within("the number of images", self.load.images.len(), IMAGES_MAX)?;
        within("the identity", self.identity.len(), TEXT_BYTES_MAX)?;
        within("the address", self.address.len(), TEXT_BYTES_MAX)?;
        within("the version", self.version.len(), TEXT_BYTES_MAX)?;
        within("the digest of limits", self.limits_digest.len(), TEXT_BYTES_MAX)?;
        let longest = self.load.images.iter().map(String::len).max();
        within("the digest of an image", longest.unwrap_or_default(), TEXT_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> NodeRecord {
        let name = NodeName::parse("a").unwrap();
        let region = Label::parse("eu").unwrap();
        NodeRecord::new(1, name, "id".into(), "127.0.0.1:1".into(), region)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut written = record();
        written.labels.insert(Label::parse("gpu").unwrap(), Label::parse("yes").unwrap());
        written.capacity.memory_mib = 10;
        written.load.memory_reserved_mib = 11;
        let value = written.value().unwrap();
        assert_eq!(NodeRecord::read(&value, &written.name).unwrap(), written);
        assert_eq!(written.memory_free_mib(), 0);
        let other = NodeName::parse("b").unwrap();
        let read = NodeRecord::read(&value, &other);
        assert_eq!(read, Err(BadRecord::OtherName(written.name.clone())));
        let later = String::from_utf8(value).unwrap().replace("\"v\":1", "\"v\":9");
        let read = NodeRecord::read(later.as_bytes(), &written.name);
        assert_eq!(read, Err(BadRecord::Version(9)));
    }

    #[test]
    fn parts_over_their_limit_are_refused() {
        let mut images = record();
        images.load.images = vec!["0".into(); IMAGES_MAX + 1];
        let mut address = record();
        address.address = "a".repeat(TEXT_BYTES_MAX + 1);
        let mut labels = record();
        for index in 0..=LABELS_MAX {
            let label = Label::parse(&index.to_string()).unwrap();
            labels.labels.insert(label.clone(), label);
        }
        for large in [images, address, labels] {
            assert!(matches!(large.value(), Err(BadRecord::TooLarge { .. })));
            let value = serde_json::to_vec(&large).unwrap();
            assert!(NodeRecord::read(&value, &large.name).is_err());
        }
        let spaces = vec![b' '; RECORD_BYTES_MAX + 1];
        let read = NodeRecord::read(&spaces, &record().name);
        assert!(matches!(read, Err(BadRecord::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn garbage_is_an_error(value in proptest::collection::vec(any::<u8>(), 0..200)) {
            let name = NodeName::parse("a").unwrap();
            prop_assert!(NodeRecord::read(&value, &name).is_err());
        }
    }
}
