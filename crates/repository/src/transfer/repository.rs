//! A repository: opening and creating one, and the snapshots of a tenant in it.

use crate::crypto::key_file::{KeyFile, create_key_file};
use crate::crypto::keys::{RepositoryId, RepositoryKeys, Tag, TenantKeys};
use crate::error::Error;
use crate::format::header;
use crate::format::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::format::names::{HEADER, TenantNames};
use crate::objects::client::Objects;
use crate::objects::connect::connect;
use crate::objects::settings::StoreSettings;
use crate::transfer::index_cache::IndexCache;
use futures_util::{StreamExt, TryStreamExt};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// How many objects are read at the same time.
pub(crate) const READS_AT_ONCE: usize = 16;
/// How many manifests are read at the same time; each can have 8 MiB.
const MANIFESTS_AT_ONCE: usize = 4;
/// Maximum number of a tenant's snapshots in one list.
const SNAPSHOTS_MAX: usize = 10_000;

/// An open repository. Clones share it.
#[derive(Clone)]
pub struct Repository {
    pub(crate) objects: Objects,
    pub(crate) keys: Arc<RepositoryKeys>,
    pub(crate) id: RepositoryId,
    indexes: Arc<IndexCache>,
}

/// What [`Repository::create`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// Whether the key file is new.
    pub key_file: bool,
    /// Whether the repository is new.
    pub repository: bool,
}

/// The snapshots of one tenant in a repository.
pub struct TenantRepository {
    pub(crate) objects: Objects,
    pub(crate) repository: RepositoryId,
    pub(crate) tenant: String,
    pub(crate) names: TenantNames,
    pub(crate) keys: Arc<TenantKeys>,
    pub(crate) read_indexes: Arc<IndexCache>,
}

impl Repository {
    /// The id of the repository, the same for all servers that use it.
    #[must_use]
    pub fn id(&self) -> String {
        hex::encode(self.id)
    }

    /// Forgets the index objects that were read, so that the next push or pull reads all of them from the
    /// store.
    pub fn forget_indexes(&self) {
        self.indexes.clear();
    }

    /// Opens the repository.
    ///
    /// # Errors
    /// [`Error::Settings`], [`Error::KeyFile`], [`Error::NoRepository`], [`Error::WrongKey`],
    /// [`Error::Later`], and errors of the store.
    pub async fn open(settings: &StoreSettings) -> Result<Self, Error> {
        let own = settings.clone();
        let read = move || Ok::<_, Error>((KeyFile::read(&own.key_file)?, connect(&own)?));
        let (key, objects) = spawn_blocking(read).await.map_err(Error::fault)??;
        Self::open_with(&key, objects).await
    }

    async fn open_with(key: &KeyFile, objects: Objects) -> Result<Self, Error> {
        let header = objects.get(HEADER, header::HEADER_BYTES_MAX).await?;
        let header = header.ok_or_else(|| Error::NoRepository(objects.shown().to_owned()))?;
        let (id, keys) = header::read(key, &header)?;
        Ok(Self { objects, keys: Arc::new(keys), id, indexes: Arc::default() })
    }

    /// Creates the key file and the repository, each unless it exists, and opens it.
    ///
    /// # Errors
    /// Those of [`Repository::open`].
    pub async fn create(settings: &StoreSettings) -> Result<(Self, Created), Error> {
        let own = settings.clone();
        let make = move || {
            let objects = connect(&own)?;
            match own.key_file.try_exists() {
                Ok(false) => Ok((create_key_file(&own.key_file)?, true, objects)),
                _ => Ok::<_, Error>((KeyFile::read(&own.key_file)?, false, objects)),
            }
        };
        let (key, key_file, objects) = spawn_blocking(make).await.map_err(Error::fault)??;
        let mut id = RepositoryId::default();
        getrandom::fill(&mut id).map_err(Error::fault)?;
        let repository = objects.create(HEADER, header::make(&key, &id)?).await?;
        let open = Self::open_with(&key, objects).await?;
        Ok((open, Created { key_file, repository }))
    }

    /// How far the clock of this machine is ahead of that of the store, in milliseconds; negative: behind.
    /// What both may differ by while an answer travels is not counted.
    ///
    /// # Errors
    /// Errors of the store, also if its answers have no date.
    pub async fn clock_ahead_ms(&self) -> Result<i64, Error> {
        let before = isolet_clock::now_ms();
        let store = self.objects.now_ms().await?;
        let after = isolet_clock::now_ms();
        // The store read its clock in between, and may have cut off parts of a second.
        Ok(match (before > store + 1000, after < store) {
            (true, _) => before - store,
            (_, true) => after - store,
            _ => 0,
        })
    }

    /// The snapshots of a tenant.
    #[must_use]
    pub fn tenant(&self, tenant: &str) -> TenantRepository {
        let tag = self.keys.tenant_tag(tenant);
        self.tenant_with(tenant.to_owned(), &tag)
    }

    pub(crate) fn tenant_with(&self, tenant: String, tag: &Tag) -> TenantRepository {
        TenantRepository {
            objects: self.objects.clone(),
            repository: self.id,
            tenant,
            names: TenantNames::new(tag),
            keys: Arc::new(self.keys.tenant(tag)),
            read_indexes: Arc::clone(&self.indexes),
        }
    }
}

impl TenantRepository {
    pub(crate) fn snapshot_name(&self, id: &str) -> String {
        self.names.snapshot(&self.keys.snapshot_tag(id))
    }

    /// The manifest of a snapshot.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`], [`Error::Damaged`], and errors of the store.
    pub async fn snapshot(&self, id: &str) -> Result<Manifest, Error> {
        let found = self.find(id).await?;
        found.ok_or_else(|| Error::NoSnapshot(id.to_owned()))
    }

    pub(crate) async fn find(&self, id: &str) -> Result<Option<Manifest>, Error> {
        let name = self.snapshot_name(id);
        let Some(manifest) = self.read_manifest(&name).await? else { return Ok(None) };
        match manifest.id == id && manifest.tenant == self.tenant {
            true => Ok(Some(manifest)),
            false => Err(Error::damaged(&name, "it is that of another snapshot")),
        }
    }

    pub(crate) async fn read_manifest(&self, name: &str) -> Result<Option<Manifest>, Error> {
        let Some(sealed) = self.objects.get(name, MANIFEST_BYTES_MAX).await? else {
            return Ok(None);
        };
        Manifest::open(&self.repository, &self.keys, name, &sealed).map(Some)
    }

    /// All snapshots of the tenant, sorted by id.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::TooLarge`], and errors of the store.
    pub async fn snapshots(&self) -> Result<Vec<Manifest>, Error> {
        let listed = self.objects.list(&self.names.snapshots()).await?;
        if listed.len() > SNAPSHOTS_MAX {
            let limit = SNAPSHOTS_MAX.to_string();
            return Err(Error::TooLarge { what: "the snapshots of the tenant", limit });
        }
        let read = listed.into_iter().map(|one| async move {
            let name = self.names.snapshot(&one.tag);
            let manifest = self.read_manifest(&name).await?;
            match manifest {
                Some(manifest) if self.keys.snapshot_tag(&manifest.id) != one.tag => {
                    Err(Error::damaged(&name, "it is that of another snapshot"))
                }
                manifest => Ok(manifest),
            }
        });
        let read = futures_util::stream::iter(read).buffered(MANIFESTS_AT_ONCE);
        let mut all: Vec<Manifest> =
            read.try_filter_map(|found| async move { Ok(found) }).try_collect().await?;
        all.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(all)
    }

    /// Deletes a snapshot. A prune later deletes the chunks that no other snapshot has.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`], and errors of the store.
    pub async fn delete(&self, id: &str) -> Result<Manifest, Error> {
        let manifest = self.snapshot(id).await?;
        self.objects.delete(&self.snapshot_name(id)).await?;
        Ok(manifest)
    }

    /// Deletes a snapshot without reading it first, so that a damaged one goes too. No error if there is
    /// none.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn discard(&self, id: &str) -> Result<(), Error> {
        self.objects.delete(&self.snapshot_name(id)).await
    }
}
