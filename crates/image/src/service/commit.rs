//! Makes an image of the files of a sandbox: one new layer on top of the layers that the sandbox has.
//!
//! A thread packs the files, another one unpacks what it writes, as if the layer came from a
//! registry. So a layer has nothing that an image could not have, whatever a tenant has put into its
//! files, and its name is the digest of its content.

use super::images::{Images, Inner, LayerHold};
use super::import_slots::ImportSlot;
use super::layers::{blocking, discard};
use super::quota::Allowance;
use super::record::{BaseImage, ImageChanges, Settings, inspect_commit};
use crate::disk::staging::StagedDirectory;
use crate::error::Error;
use crate::pack::{Packed, Packer, PrivateFile, SourceTree};
use crate::reference::Reference;
use crate::store::Pin;
use crate::store::image::{Image, Origin, Root, SavedSessions, USR, WORKSPACE};
use crate::store::layer::{keep_split, make_tree};
use crate::store::sessions::check_size;
use crate::unpack::{self, LayerStats};
use bytes::Bytes;
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of layers of an image that is made of a sandbox. Each layer of an image on the
/// host's programs is mounted twice, and a sandbox mounts at most 32.
const LAYERS_MAX: usize = 30;
const HOST_LAYERS_MAX: usize = 14;

/// Mount points of every sandbox, and the files that each sandbox has of its own.
const WITHOUT: &[&str] = &[
    "dev",
    "etc/hostname",
    "etc/hosts",
    "etc/isolet",
    "etc/machine-id",
    "etc/resolv.conf",
    "proc",
    "sys",
    "workspace",
];
/// The same where `/usr` is a tree of its own.
const WITHOUT_AND_USR: &[&str] = &[
    "dev",
    "etc/hostname",
    "etc/hosts",
    "etc/isolet",
    "etc/machine-id",
    "etc/resolv.conf",
    "proc",
    "sys",
    "usr",
    "workspace",
];

/// The files of a sandbox that nothing changes.
#[derive(Debug)]
pub struct CommitSource {
    /// The directories with the changes of the root, the top one first.
    pub root: Vec<OwnedFd>,
    /// The same of `/usr`, for a sandbox on the host's programs.
    pub usr: Vec<OwnedFd>,
    /// The workspace, if it becomes part of the image.
    pub workspace: Option<OwnedFd>,
    /// The root of the sandbox; `None` means the host's programs.
    pub base: Option<Root>,
    /// The first id that the files have on the disk.
    pub id_base: u32,
    /// What the configuration of the image has instead of that of the root.
    pub changes: ImageChanges,
    /// The sessions with the states of their shells, at most [`SESSIONS_BYTES_MAX`](crate::SESSIONS_BYTES_MAX)
    /// bytes that only the caller understands. They become part of the image.
    pub sessions: Option<Bytes>,
}

/// A new layer on the disk, whose image is not recorded yet. It is not collected before it is
/// dropped.
#[derive(Debug)]
pub struct CommittedLayer {
    name: String,
    stats: LayerStats,
    base: Option<Root>,
    has_workspace: bool,
    changes: ImageChanges,
    sessions: Option<Bytes>,
    /// Files of the layer that usually hold secrets; the first 100.
    pub private_files: Vec<PrivateFile>,
    /// How many there are.
    pub private_files_count: u64,
    hold: LayerHold,
    slot: ImportSlot,
}

impl Images {
    /// Makes a layer of the files of a sandbox.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::QuotaExceeded`], [`Error::Full`], [`Error::Busy`] and
    /// [`Error::Disk`]. Nothing is left.
    pub async fn commit(
        &self,
        tenant: &str,
        source: CommitSource,
    ) -> Result<CommittedLayer, Error> {
        let inner = &self.inner;
        check_layers(source.base.as_ref())?;
        let sessions = source.sessions.clone();
        sessions.as_deref().map_or(Ok(()), check_size)?;
        let slot = inner.imports.begin(tenant)?;
        let allowance = inner.allowance(tenant).await?;
        let base = source.base.clone();
        let changes = source.changes.clone();
        let has_workspace = source.workspace.is_some();
        let (staged, mut stats, name, packed) = inner.pack(source, allowance).await?;
        stats.skipped += packed.skipped;
        let hold = inner.install_commit(tenant, staged, &name, &stats, sessions.as_ref()).await?;
        Ok(CommittedLayer {
            name,
            stats,
            base,
            has_workspace,
            changes,
            sessions,
            private_files: packed.private_files.listed,
            private_files_count: packed.private_files.count,
            hold,
            slot,
        })
    }

    /// Records the image of a layer under names of the tenant, which other images of the tenant
    /// lose.
    ///
    /// # Errors
    /// [`Error::Bad`] if no sandbox could start from the image, [`Error::Full`], [`Error::Disk`].
    pub async fn record_commit(
        &self,
        tenant: &str,
        names: &[Reference],
        layer: CommittedLayer,
    ) -> Result<(Arc<Image>, Pin), Error> {
        let CommittedLayer {
            name: new,
            stats,
            base,
            has_workspace,
            changes,
            sessions,
            hold,
            slot,
            ..
        } = layer;
        let store = Arc::clone(&self.inner.store);
        let sessions_of = sessions.as_deref().map(SavedSessions::of);
        let settings = Settings { changes, has_workspace, sessions: sessions_of };
        let base = base.map_or(BaseImage::Host, BaseImage::Root);
        let image = blocking(move || inspect_commit(&store, &new, stats, base, settings)).await?;
        let names: Vec<String> = names.iter().map(Reference::to_string).collect();
        let content = sessions.as_deref();
        let done = self.inner.store.record(image, tenant, &names, Origin::Snapshot, content);
        drop(hold);
        drop(slot);
        done
    }
}

fn check_layers(base: Option<&Root>) -> Result<(), Error> {
    let layers = base.map_or(0, |root| root.layers.len());
    let is_host = base.is_none_or(Root::is_on_host);
    let max = if is_host { HOST_LAYERS_MAX } else { LAYERS_MAX };
    if layers < max {
        return Ok(());
    }
    let quantity = "layers of an image (export it and import it again to merge them)";
    Err(Error::large(quantity, max.to_string()))
}

impl Inner {
    /// Packs and unpacks the files at the same time.
    async fn pack(
        &self,
        source: CommitSource,
        allowance: Option<Allowance>,
    ) -> Result<(StagedDirectory, LayerStats, String, Packed), Error> {
        let staged = self.store.staging.stage()?;
        let split = self.split_writer(&staged)?;
        let budget = self.budget(allowance.map(Allowance::bytes));
        let limit = self.budget(None).bytes;
        let entries = budget.entries;
        let free_space = Arc::clone(&self.free_space);
        let thread_slot = self.slots.work().await?;
        let (from, to) = io::pipe()?;
        let has_no_reader = Arc::<AtomicBool>::default();
        let to = Noting { to, has_no_reader: Arc::clone(&has_no_reader) };
        let packing = blocking(move || pack(&source, to, entries));
        // A failed directory is removed on the thread that made it.
        let unpacking = blocking(move || {
            let _thread_slot = thread_slot;
            let tree = make_tree(&staged.0)?;
            let (stats, digests) =
                unpack::layer(from, Some(tree.as_fd()), budget, &free_space, split)?;
            keep_split(&staged, digests.is_recorded)?;
            Ok((staged, stats, digests.diff_id.hex().to_owned()))
        });
        // If one of them fails, so does the other one, for want of bytes or of a reader.
        match tokio::join!(packing, unpacking) {
            (Ok(packed), Ok((staged, stats, name))) => Ok((staged, stats, name, packed)),
            (Err(error), Ok((staged, ..))) => {
                discard(Some(staged)).await;
                Err(error)
            }
            (Err(error), Err(_)) if !has_no_reader.load(Ordering::Relaxed) => Err(error),
            (_, Err(error)) => Err(match allowance {
                Some(allowance) => allowance.explain(error, limit),
                None => error,
            }),
        }
    }

    /// Moves the layer into its place.
    async fn install_commit(
        &self,
        tenant: &str,
        staged: StagedDirectory,
        name: &str,
        stats: &LayerStats,
        sessions: Option<&Bytes>,
    ) -> Result<LayerHold, Error> {
        let hold = self.hold_layer(name);
        let _lock = self.lock_layer(tenant, name).await;
        let bytes = stats.bytes + sessions.map_or(0, |content| content.len() as u64);
        let _reserved = match self.reserve(tenant, bytes).await {
            Ok(reserved) => reserved,
            Err(error) => {
                discard(Some(staged)).await;
                return Err(error);
            }
        };
        self.install(staged, name, stats, &hold).await?;
        self.store.record_proof(name, tenant)?;
        Ok(hold)
    }
}

/// Notes that the other end has failed, which then has the error to report.
struct Noting {
    to: PipeWriter,
    has_no_reader: Arc<AtomicBool>,
}

impl Write for Noting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes).inspect_err(|_| self.has_no_reader.store(true, Ordering::Relaxed))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn pack(source: &CommitSource, to: impl Write, entries_max: u64) -> Result<Packed, Error> {
    let is_on_host = source.base.as_ref().is_none_or(Root::is_on_host);
    let mut packer = Packer::new(to, source.id_base, entries_max);
    let without = if is_on_host { WITHOUT_AND_USR } else { WITHOUT };
    packer.tree(&SourceTree {
        directories: &source.root,
        prefix: "",
        is_layer: true,
        without,
        replaces: false,
    })?;
    if is_on_host {
        packer.tree(&SourceTree {
            directories: &source.usr,
            prefix: USR,
            is_layer: true,
            without: &[],
            replaces: false,
        })?;
    }
    if let Some(workspace) = &source.workspace {
        packer.tree(&SourceTree {
            directories: std::slice::from_ref(workspace),
            prefix: WORKSPACE,
            is_layer: false,
            without: &[],
            replaces: true,
        })?;
    }
    Ok(packer.finish()?.1)
}
