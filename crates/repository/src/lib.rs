//! Copies of snapshots in an object store.
//!
//! A snapshot becomes one stream: a record for each file, followed by the file's data without its
//! holes ([`files`]). The stream is cut where its content says so, each piece is compressed,
//! encrypted and stored once for each tenant, and a manifest lists the pieces.
//!
//! ```text
//! isolet-repository                     header: format, id, check value of the key
//! clock                                 in a directory only: its time is the clock of the store
//! tenants/TAG/packs/ID                  about 16 MiB of sealed chunks, one after the other
//! tenants/TAG/index/ID                  which chunks lie in which packs
//! tenants/TAG/doomed/PACK               the same for one pack that a later prune deletes
//! tenants/TAG/snapshots/TAG             manifest of a snapshot, written last
//! ```
//!
//! # What the store learns, and what it can do
//!
//! Every tenant has keys of its own, derived (HKDF-SHA-256) from the repository key, the id of the
//! repository and the tenant's tag. Names are keyed hashes (HMAC-SHA-256) or random, chunks are cut
//! with a secret seed, and everything is sealed with XChaCha20-Poly1305 under the object's name as
//! associated data: a chunk under its id, an index and a manifest under their paths. The store
//! sees sizes, times, and how much two pushes of a tenant have in common.
//!
//! It cannot change anything, or move it to another name, tenant or repository, without being
//! found out. It can withhold objects, and it can return objects that were deleted, so a deleted
//! snapshot can come back. It cannot give a snapshot other content than was pushed under its id,
//! because the files of a snapshot never change. Each answer has a maximum length, which is checked
//! before anything is allocated, and so have the parts of each object.
//!
//! Files are written relative to open directories without following links, with names checked
//! component by component ([`files`]). Manifests are authenticated, so only servers with the
//! repository key can write names at all.
//!
//! # Why not `rustic_core`
//!
//! `rustic_core` 0.13 (the format of restic) was evaluated. It was not taken, because
//! - it restores by joining paths and follows links, while the files of a snapshot are a
//!   tenant's; it neither writes relative to descriptors nor separates tenants: one key reads all;
//! - a list of one tenant's snapshots would read those of all, and deduplication over all tenants
//!   would show one tenant what another one has;
//! - it reads a sparse disk image with its holes, as a file of its full size;
//! - its backend is synchronous and passes whole objects without a limit on their length, and
//!   its index is held in memory whatever its size;
//! - it needs several times as many packages as `object_store` and `fastcdc`.
//!
//! # Layers
//!
//! `crypto`, `objects`, `format`, `files`, `transfer`; each uses only those before it.
#![forbid(unsafe_code)]

mod crypto;
mod error;
mod files;
mod format;
mod objects;
mod transfer;

pub use crypto::key_file::{KeyFile, create_key_file};
pub use error::Error;
pub use files::owner_ids::OwnerIds;
pub use files::source::{Root, RootKind, Source};
pub use format::manifest::Manifest;
pub use objects::settings::StoreSettings;
pub use transfer::checkpoint::Checkpoint;
pub use transfer::deep_check::DeepCheck;
pub use transfer::progress::{Phase, Progress};
pub use transfer::prune::{NotPruned, PRUNE_AGE, Pruned};
pub use transfer::pull::{PullTarget, Pulled};
pub use transfer::push::{PushRequest, Pushed};
pub use transfer::repository::{Created, Repository, TenantRepository};
