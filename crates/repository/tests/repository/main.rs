//! A repository in a directory, with the files of real trees. Needs root, as everything that writes
//! files with owners.

mod contents;
mod damage;
mod incremental;
mod prune;

use isolet_repository::{
    Checkpoint, Error, Manifest, OwnerIds, Progress, PullTarget, Pulled, PushRequest, Pushed,
    Repository, Root, RootKind, Source, StoreSettings,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::sync::watch;

/// A directory with a store, and with files to push.
struct Place {
    folder: TempDir,
    repository: Repository,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("store")).unwrap();
        fs::create_dir(folder.path().join("workspace")).unwrap();
        let (repository, created) = Repository::create(&settings(folder.path())).await.unwrap();
        assert!(created.key_file && created.repository);
        Self { folder, repository }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn workspace(&self) -> PathBuf {
        self.path("workspace")
    }

    async fn push(&self, tenant: &str, id: &str) -> Result<Pushed, Error> {
        self.push_with(tenant, id, &Checkpoint::default()).await
    }

    async fn push_with(&self, tenant: &str, id: &str, point: &Checkpoint) -> Result<Pushed, Error> {
        let root = Root { name: "workspace".into(), kind: RootKind::Tree };
        let source = Source { root, path: self.workspace(), ids: OwnerIds::From(0) };
        self.push_sources(tenant, id, vec![source], point).await
    }

    async fn push_sources(
        &self,
        tenant: &str,
        id: &str,
        sources: Vec<Source>,
        point: &Checkpoint,
    ) -> Result<Pushed, Error> {
        let request = PushRequest { id: id.into(), record: json!({"for": id}), sources, bytes: 0 };
        let progress = watch::channel(Progress::default()).0;
        self.repository.tenant(tenant).push(request, &progress, point).await
    }

    /// Pulls into a directory that does not exist.
    async fn pull(&self, tenant: &str, id: &str, to: &str) -> Result<(Manifest, Pulled), Error> {
        let tenant = self.repository.tenant(tenant);
        let manifest = tenant.snapshot(id).await?;
        let directory = self.path(to);
        fs::create_dir(&directory).unwrap();
        let target = PullTarget { directory, check: Box::new(|_| Ok(())) };
        let progress = watch::channel(Progress::default()).0;
        let pulled = tenant.pull(&manifest, target, &progress, &Checkpoint::default()).await?;
        Ok((manifest, pulled))
    }

    /// Opens the same store with the same key.
    async fn open(&self) -> Result<Repository, Error> {
        Repository::open(&settings(self.folder.path())).await
    }

    /// All objects in directories with this name.
    fn objects(&self, kind: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let tenants = self.path("store/tenants");
        for tenant in fs::read_dir(tenants).into_iter().flatten().flatten() {
            let directory = tenant.path().join(kind);
            found.extend(fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()));
        }
        found.sort();
        found
    }

    fn store_bytes(&self) -> u64 {
        ["packs", "index", "snapshots", "doomed"]
            .iter()
            .flat_map(|kind| self.objects(kind))
            .map(|path| fs::metadata(path).unwrap().len())
            .sum()
    }
}

fn settings(folder: &Path) -> StoreSettings {
    StoreSettings {
        url: format!("file://{}", folder.join("store").display()),
        key_file: folder.join("key"),
        credentials_file: None,
        options: BTreeMap::new(),
    }
}

/// Bytes that neither repeat nor compress.
fn noise(count: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (state ^ (state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 33)).to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}
