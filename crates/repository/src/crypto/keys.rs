//! The keys of a repository and of each tenant, derived from the key file.

use super::key_file::KeyFile;
use super::seal::Sealer;
use crate::error::Error;
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;

/// The id of a repository, random.
pub(crate) type RepositoryId = [u8; 16];
/// The name of a tenant, a snapshot, a pack or an index in the store.
pub(crate) type Tag = [u8; 16];

/// The keyed hash of a chunk's content.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct ChunkId(pub(crate) [u8; 32]);

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

fn keyed_hash(key: &[u8; 32], data: &[u8]) -> [u8; 32] {
    // A key of any length is accepted.
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).unwrap_or_else(|_| unreachable!());
    mac.update(data);
    mac.finalize().into_bytes().into()
}

fn tag(key: &[u8; 32], text: &str) -> Tag {
    let mut tag = Tag::default();
    tag.copy_from_slice(&keyed_hash(key, text.as_bytes())[..16]);
    tag
}

/// A random name.
pub(crate) fn random_tag() -> Result<Tag, Error> {
    let mut tag = Tag::default();
    getrandom::fill(&mut tag).map_err(Error::fault)?;
    Ok(tag)
}

/// The keys of a repository.
pub(crate) struct RepositoryKeys {
    derived: Hkdf<Sha256>,
}

impl RepositoryKeys {
    pub(crate) fn new(file: &KeyFile, repository: &RepositoryId) -> Self {
        Self { derived: Hkdf::new(Some(repository), &file.key) }
    }

    fn derive(&self, purpose: &[&[u8]]) -> [u8; 32] {
        let mut key = [0; 32];
        // 32 bytes are within what HKDF gives.
        let done = self.derived.expand_multi_info(purpose, &mut key);
        done.unwrap_or_else(|_| unreachable!());
        key
    }

    /// What the header says about the key, so that a wrong key is found out at once.
    pub(crate) fn check_value(&self) -> [u8; 32] {
        self.derive(&[b"isolet check"])
    }

    /// The name of a tenant in the store.
    pub(crate) fn tenant_tag(&self, tenant: &str) -> Tag {
        tag(&self.derive(&[b"isolet tenant name"]), tenant)
    }

    /// The keys of the tenant with this name in the store.
    pub(crate) fn tenant(&self, tenant: &Tag) -> TenantKeys {
        let of = |purpose: &[u8]| self.derive(&[b"isolet tenant ", tenant, purpose]);
        let seed = of(b" chunk seed");
        TenantKeys {
            chunk_key: of(b" chunk id"),
            snapshot_key: of(b" snapshot name"),
            sealer: Sealer::new(&of(b" seal")),
            seed: u64::from_le_bytes([
                seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6], seed[7],
            ]),
        }
    }
}

/// The keys of one tenant.
pub(crate) struct TenantKeys {
    chunk_key: [u8; 32],
    snapshot_key: [u8; 32],
    pub(crate) sealer: Sealer,
    /// Where chunks are cut depends on it, so that their sizes do not identify known files.
    pub(crate) seed: u64,
}

impl TenantKeys {
    pub(crate) fn chunk_id(&self, content: &[u8]) -> ChunkId {
        ChunkId(keyed_hash(&self.chunk_key, content))
    }

    /// The name of a snapshot in the store.
    pub(crate) fn snapshot_tag(&self, id: &str) -> Tag {
        tag(&self.snapshot_key, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_between_tenants_repositories_and_key_files() {
        let file = KeyFile { key: [7; 32] };
        let keys = RepositoryKeys::new(&file, &[1; 16]);
        let others = [
            RepositoryKeys::new(&file, &[2; 16]),
            RepositoryKeys::new(&KeyFile { key: [8; 32] }, &[1; 16]),
        ];
        let own = keys.tenant(&keys.tenant_tag("a"));
        let id = own.chunk_id(b"text");
        assert_eq!(own.chunk_id(b"text"), id);
        assert_ne!(keys.tenant(&keys.tenant_tag("b")).chunk_id(b"text"), id);
        for other in others {
            assert_ne!(other.check_value(), keys.check_value());
            assert_ne!(other.tenant_tag("a"), keys.tenant_tag("a"));
            assert_ne!(other.tenant(&keys.tenant_tag("a")).chunk_id(b"text"), id);
        }
    }
}
