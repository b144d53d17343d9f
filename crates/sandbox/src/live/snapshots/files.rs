//! The directories of snapshots, and how files get into them and out of them.

use crate::live::orphans;
use crate::live::snapshots::layers::{self, Layers, PARTS};
use crate::live::snapshots::space::{CopyGuard, SpaceFloor};
use crate::live::snapshots::stage::with_links;
use crate::live::snapshots::subvolumes;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use crate::model::held::cancel::CancelToken;
use crate::model::record::RecordBody;
use crate::model::record::snapshot_layers::RecordedLayer;
use isolet_storage::{
    Backend, Copied, CopyError, CopyMethod, SpaceCheck, copy_file, copy_tree, measure_tree,
    merge_layers,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tracing::warn;

/// The directory of all snapshots, below the data directory.
const DIRECTORY: &str = "snapshots";
/// Copies that are not complete yet, below [`DIRECTORY`]. Every start empties it.
pub(super) const STAGING: &str = "staging";
/// The disk image of a sandbox, with all its files.
pub(super) const DISK: &str = "disk.ext4";
/// The directories of a sandbox without a disk image.
pub(super) const TREES: [&str; 3] = ["root/upper", "usr/upper", "workspace"];
/// The saved states of shells.
pub(super) const SHELLS: &str = "shells";
/// Names of files with several names while a tree is copied.
pub(super) const LINKS: &str = "links";
/// What the kernel may write for copies of subvolumes, in bytes.
const SUBVOLUMES_BYTES: u64 = 1024 * 1024;

/// The directories of all snapshots.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotFiles {
    directory: PathBuf,
    trash: PathBuf,
    images: PathBuf,
    data: PathBuf,
    pub(crate) layers: Layers,
    backend: Backend,
    /// Ends all copies when the server stops.
    stopping: CancelToken,
}

/// A copy in the staging area.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Staged {
    pub(super) copied: Copied,
    /// Whether the directories were copied without a look at their files.
    is_unmeasured: bool,
}

impl Staged {
    /// A copy whose files were all looked at.
    pub(crate) fn measured(copied: Copied) -> Self {
        Self { copied, is_unmeasured: false }
    }
}

impl SnapshotFiles {
    /// Creates the directories, empties the staging area and finds out what the
    /// file system offers. A full disk is no error: the first snapshot after it creates what is
    /// missing. Blocks.
    pub(super) fn open(data: &Path) -> Result<Self, Error> {
        let directory = data.join(DIRECTORY);
        let failed = |error: io::Error| Error::Fault(format!("{}: {error}", directory.display()));
        let probed = create_private(&directory.join(STAGING))
            .and_then(|()| Backend::probe(&directory).map_err(io::Error::from));
        let backend = match probed {
            Err(error) if is_full(&error) => Backend::Layers,
            probed => probed.map_err(failed)?,
        };
        let files = Self {
            directory: directory.clone(),
            trash: data.join("trash"),
            images: data.join("images"),
            data: data.to_owned(),
            layers: Layers::new(data),
            backend,
            stopping: CancelToken::default(),
        };
        for name in names(&directory.join(STAGING)).map_err(failed)? {
            files.discard(&format!("{STAGING}/{name}")).or_else(unless_full).map_err(failed)?;
        }
        Ok(files)
    }

    /// Ends all copies, because the server stops.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Checks a copy, which ends when the server stops.
    pub(super) fn guard(&self, floor: SpaceFloor) -> CopyGuard {
        CopyGuard::new(&self.directory, floor, vec![self.stopping.clone()])
    }

    /// A directory on the file system of all files that the server may write to at any time.
    pub(crate) fn staging(&self) -> PathBuf {
        self.directory.join(STAGING)
    }

    /// What the file system offers.
    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// Checks that the disk image in a directory of a sandbox or a snapshot has its full size, unless
    /// it has none (`mib` is 0). A copy of a shorter one would be damaged as well. Blocks.
    pub(crate) fn check_disk(&self, directory: &Path, mib: u64) -> Result<(), CopyError> {
        if mib == 0 {
            return Ok(());
        }
        let disk = fs::metadata(directory.join(DISK));
        let bytes = disk.map_err(|error| CopyError::io(DISK, &error))?.len();
        let whole = mib << 20;
        if bytes < whole {
            return Err(CopyError::Refused(format!(
                "{DISK} is damaged: it has {bytes} of {whole} bytes"
            )));
        }
        Ok(())
    }

    /// The data directory of the server.
    pub(super) fn data(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    /// The directory of a snapshot.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The directory of the images' layers.
    pub(super) fn images(&self) -> PathBuf {
        self.images.clone()
    }

    /// Whether the files of a snapshot are there.
    pub(super) fn exist(&self, name: &str) -> bool {
        self.directory.join(name).is_dir()
    }

    /// Moves everything but the named snapshots out of the directory: those that were not recorded
    /// yet to the trash, and others to `DATA/orphaned`, because their records were lost. On a full
    /// disk, they stay until a later start.
    pub(super) async fn retain(&self, names: Vec<String>) -> Result<(), Error> {
        let files = self.clone();
        let retained = move || -> io::Result<()> {
            for name in self::names(&files.directory)? {
                if name == STAGING || name == layers::DIRECTORY {
                    continue;
                }
                let done = if names.contains(&name) {
                    // The server was killed after it had recorded the snapshot.
                    files.claim(&name)
                } else {
                    files.put_away(&name)
                };
                done.or_else(unless_full)?;
            }
            Ok(())
        };
        blocking(retained).await?.map_err(|error| Error::Fault(error.to_string()))
    }

    fn put_away(&self, name: &str) -> io::Result<()> {
        let own = self.directory.join(name);
        if orphans::is_marked(&own) {
            return self.discard(name);
        }
        let to = orphans::move_aside(&self.data, &own, &format!("snapshot-{name}"))?;
        warn!(snapshot = %name, to = %to.display(), "files of a snapshot without a record were moved aside");
        Ok(())
    }

    /// Marks a snapshot as one that can be removed. Blocks.
    pub(super) fn abandon(&self, name: &str) -> io::Result<()> {
        let own = self.directory.join(name);
        if own.is_dir() { orphans::mark(&own) } else { Ok(()) }
    }

    /// Removes the mark after the record of the snapshot is written. Blocks.
    pub(crate) fn claim(&self, name: &str) -> io::Result<()> {
        orphans::unmark(&self.directory.join(name))
    }

    /// Whether files are copied while a sandbox runs, and then the difference while it stands still:
    /// where a copy takes long.
    pub(crate) fn copies_in_two_passes(&self, settings: &RecordBody) -> bool {
        match self.backend {
            Backend::Layers => true,
            // The image of a disk is one file.
            Backend::Reflink => settings.limits.disk_mib == 0,
            // A subvolume is copied as a whole.
            Backend::Btrfs => false,
        }
    }

    /// Whether the directories that hold the changes of a sandbox become a layer, and only its other
    /// files are copied.
    pub(crate) fn uses_layers(&self, settings: &RecordBody) -> bool {
        self.backend == Backend::Layers && settings.limits.disk_mib == 0
    }

    /// Checks a copy until one of `tokens` or the end of the server cancels it.
    pub(crate) fn guard_with(&self, floor: SpaceFloor, mut tokens: Vec<CancelToken>) -> CopyGuard {
        tokens.push(self.stopping.clone());
        CopyGuard::new(&self.directory, floor, tokens)
    }

    /// Creates a directory in the staging area, marked as one that can be removed.
    pub(super) fn create_staged(&self, name: &str) -> Result<PathBuf, CopyError> {
        let staged = self.directory.join(STAGING).join(name);
        create_private(&self.directory.join(STAGING))
            .and_then(|()| create_directory(&staged))
            .and_then(|()| orphans::mark(&staged))
            .map_err(|error| CopyError::io("", &error))?;
        Ok(staged)
    }

    /// Copies the files of a sandbox that stands still into the staging area, except those that
    /// become a layer, until one of `tokens` ends it. The copy is marked as one that can be removed. Blocks.
    pub(crate) fn stage(
        &self,
        name: &str,
        sandbox: &Path,
        settings: &RecordBody,
        floor: SpaceFloor,
        tokens: Vec<CancelToken>,
    ) -> Result<Staged, CopyError> {
        let trees = if self.uses_layers(settings) { &TREES[2..] } else { &TREES[..] };
        let mut guard = self.guard_with(floor, tokens);
        self.create_staged(name)
            .and_then(|staged| {
                self.copy(sandbox, &staged, trees, &mut |bytes| guard.check(bytes), true)
            })
            .inspect_err(|_| self.discard_staged(name))
    }

    /// What a staged copy contains. Blocks.
    pub(crate) fn measure(&self, name: &str, staged: Staged) -> Result<Copied, CopyError> {
        let Staged { mut copied, is_unmeasured } = staged;
        if !is_unmeasured {
            return Ok(copied);
        }
        let directory = self.directory.join(STAGING).join(name);
        let mut check = |_| match self.stopping.is_cancelled() {
            true => Err(CopyError::Cancelled),
            false => Ok(()),
        };
        for tree in TREES {
            let measured = measure_tree(&directory.join(tree), &mut check);
            copied += measured.map_err(|error| error.below(shown(tree)))?;
        }
        Ok(copied)
    }

    /// Writes a staged copy to the disk and gives it its name. Also writes the top layer, which may
    /// be new. A `temporary` copy, which no start keeps, is not written without need. Blocks.
    pub(crate) fn complete(
        &self,
        name: &str,
        settings: &RecordBody,
        temporary: bool,
    ) -> io::Result<()> {
        let staged = self.directory.join(STAGING).join(name);
        let top = settings.layers.iter().next();
        let listed = if top.is_some() { layers::list(&staged, settings) } else { Ok(()) };
        let written = || if temporary && top.is_none() { Ok(()) } else { sync_all(&staged) };
        let completed = listed
            .and_then(|()| written())
            .and_then(|()| top.map_or(Ok(()), |layer| self.layers.sync(layer)))
            .and_then(|()| fs::rename(&staged, self.directory.join(name)))
            .and_then(|()| fs::File::open(&self.directory)?.sync_all());
        completed.inspect_err(|_| self.discard_staged(name))
    }

    /// Moves the files of a snapshot to the trash. No error if there are none. Blocks.
    pub(crate) fn discard(&self, name: &str) -> io::Result<()> {
        let own = self.directory.join(name);
        // If the move is lost with the power, the next start moves it again.
        let _ = self.abandon(name);
        // A name in the trash is never used twice.
        let to = self.trash.join(format!("snapshot-{}", crate::model::ids::random()));
        match fs::rename(&own, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let _ = orphans::unmark(&own);
                return Err(error);
            }
            Ok(()) => {}
        }
        // The files are gone for every client, whatever this says.
        if let Err(error) = fs::File::open(&self.directory).and_then(|opened| opened.sync_all()) {
            warn!(snapshot = %name, %error, "the move of a deleted snapshot is not on the disk yet");
        }
        Ok(())
    }

    fn discard_staged(&self, name: &str) {
        let _ = self.discard(&format!("{STAGING}/{name}"));
    }

    pub(super) fn copy(
        &self,
        from: &Path,
        to: &Path,
        trees: &[&str],
        check: SpaceCheck<'_>,
        read_only: bool,
    ) -> Result<Staged, CopyError> {
        let at = |error: io::Error| CopyError::io("", &error);
        let mut is_unmeasured = false;
        let mut copied = if from.join(DISK).try_exists().map_err(at)? {
            self.copy_disk(from, to, check)?
        } else if self.copy_subvolumes(from, to, check, read_only)? {
            is_unmeasured = true;
            Copied::default()
        } else {
            self.copy_trees(from, to, trees, check)?
        };
        copied += self.copy_shells(from, to, check)?;
        Ok(Staged { copied, is_unmeasured })
    }

    /// Copies the saved states of shells.
    pub(super) fn copy_shells(
        &self,
        from: &Path,
        to: &Path,
        check: SpaceCheck<'_>,
    ) -> Result<Copied, CopyError> {
        match from.join(SHELLS).try_exists() {
            Ok(false) => Ok(Copied::default()),
            Ok(true) => self.copy_trees(from, to, &[SHELLS], check),
            Err(error) => Err(CopyError::io(SHELLS, &error)),
        }
    }

    /// Copies the directories that hold the changes of a sandbox, which stands still, into a new
    /// layer. Returns their size. Blocks.
    pub(crate) fn copy_layer(
        &self,
        layer: &RecordedLayer,
        sandbox: &Path,
        floor: SpaceFloor,
        tokens: Vec<CancelToken>,
    ) -> Result<Copied, CopyError> {
        let mut guard = self.guard_with(floor, tokens);
        let mut copied = Copied::default();
        for part in PARTS {
            let from = sandbox.join(part).join("upper");
            let to = self.layers.part(layer, part);
            let one = self.copy_one(&from, &to, &mut |bytes| guard.check(bytes));
            copied += one.map_err(|error| error.below(shown(&format!("{part}/upper"))))?;
        }
        Ok(copied)
    }

    /// Merges layers, the top one first, into a new one. Blocks.
    pub(crate) fn merge(
        &self,
        top: &[RecordedLayer],
        merged: &RecordedLayer,
        floor: SpaceFloor,
    ) -> Result<(), CopyError> {
        let mut guard = self.guard(floor);
        let mut check = |bytes: u64| guard.check(bytes);
        for part in PARTS {
            let paths: Vec<_> = top.iter().map(|layer| self.layers.part(layer, part)).collect();
            let paths: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
            let to = self.layers.part(merged, part);
            let method = self.backend.copies();
            with_links(&to, |links| merge_layers(method, &paths, &to, links, &mut check))?;
        }
        self.layers.sync_files().map_err(|error| CopyError::io("", &error))
    }

    fn copy_disk(
        &self,
        from: &Path,
        to: &Path,
        check: SpaceCheck<'_>,
    ) -> Result<Copied, CopyError> {
        let disk = from.join(DISK);
        if self.backend.copies() == CopyMethod::Full {
            let about = fs::metadata(&disk).map_err(|error| CopyError::io(DISK, &error))?;
            check(about.blocks() * 512)?;
        }
        copy_file(self.backend.copies(), &disk, &to.join(DISK), check)
    }

    /// Copies the directories as a whole. Returns `false` if that is not possible.
    fn copy_subvolumes(
        &self,
        from: &Path,
        to: &Path,
        check: SpaceCheck<'_>,
        read_only: bool,
    ) -> Result<bool, CopyError> {
        if self.backend != Backend::Btrfs || !subvolumes::are_in(from) {
            return Ok(false);
        }
        check(SUBVOLUMES_BYTES)?;
        match subvolumes::copy(from, to, read_only) {
            Err(CopyError::File { path, errno: Errno::PERM | Errno::NOTTY | Errno::XDEV }) => {
                warn!(path, "the kernel refuses to copy a subvolume: its files are copied");
                subvolumes::remove(to)?;
                Ok(false)
            }
            copied => copied.map(|()| true),
        }
    }

    fn copy_trees(
        &self,
        from: &Path,
        to: &Path,
        names: &[&str],
        check: SpaceCheck<'_>,
    ) -> Result<Copied, CopyError> {
        let mut copied = Copied::default();
        for name in names {
            let from = from.join(name);
            // A snapshot has them in its layers.
            if name.ends_with("/upper") && !from.is_dir() {
                continue;
            }
            let one = self.copy_one(&from, &to.join(name), check);
            copied += one.map_err(|error| error.below(shown(name)))?;
        }
        Ok(copied)
    }

    fn copy_one(&self, from: &Path, to: &Path, check: SpaceCheck<'_>) -> Result<Copied, CopyError> {
        create_parent(to).map_err(|error| CopyError::io("", &error))?;
        with_links(to, |links| copy_tree(self.backend.copies(), from, to, links, check))
    }
}

/// The path of a directory of files inside the sandbox, for errors.
fn shown(tree: &str) -> &str {
    match tree {
        "root/upper" => "",
        other => other.trim_end_matches("/upper"),
    }
}

/// Whether an error means that the disk is full.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A full disk does not keep the server from starting: what is left is removed by a later start.
fn unless_full(error: io::Error) -> io::Result<()> {
    if is_full(&error) {
        warn!(%error, "files of snapshots are removed at a later start");
        return Ok(());
    }
    Err(error)
}

/// Creates the directory above a tree of a sandbox.
pub(super) fn create_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)
}

/// Creates a directory that only the server reads, with its parents.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The names in a directory; none if it does not exist.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        }
    }
}

/// Creates a directory with the mode of a sandbox's directory.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o711).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o711))
}

/// Writes a staged copy to the disk. Disk images and subvolumes are written already, so that a
/// snapshot of one sandbox does not wait for what others have written.
pub(super) fn sync_all(staged: &Path) -> io::Result<()> {
    if !staged.join(DISK).is_file() && !subvolumes::are_in(staged) {
        return sync_file_system(staged);
    }
    let disk = staged.join(DISK);
    if disk.is_file() {
        fs::File::open(disk)?.sync_all()?;
    }
    let shells = staged.join(SHELLS);
    if shells.is_dir() {
        for entry in fs::read_dir(&shells)? {
            fs::File::open(entry?.path())?.sync_all()?;
        }
        fs::File::open(&shells)?.sync_all()?;
    }
    fs::File::open(staged)?.sync_all()
}

/// Writes everything on the file system of a directory to the disk.
fn sync_file_system(directory: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    Ok(rustix::fs::syncfs(directory)?)
}
