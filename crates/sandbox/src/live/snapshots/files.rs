//! The directories of snapshots, and how files get into them and out of them.

use crate::live::orphans;
use crate::model::blocking::blocking;
use crate::model::error::Error;
use isolet_storage::{Backend, Copied, CopyError, CopyMethod, copy_file, copy_tree};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The directory of all snapshots, below the data directory.
const DIRECTORY: &str = "snapshots";
/// Copies that are not complete yet, below [`DIRECTORY`]. Every start empties it.
pub(super) const STAGING: &str = "staging";
/// The disk image of a sandbox, with all its files.
pub(super) const DISK: &str = "disk.ext4";
/// The directories of a sandbox without a disk image.
pub(super) const TREES: [&str; 3] = ["root/upper", "usr/upper", "workspace"];
/// Directories that overlays need beside them.
const WORK: [&str; 2] = ["root/work", "usr/work"];
/// The saved states of shells.
pub(super) const SHELLS: &str = "shells";
/// Names of files with several names while a tree is copied.
const LINKS: &str = "links";
const MIB: u64 = 1024 * 1024;

/// The directories of all snapshots.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotFiles {
    directory: PathBuf,
    trash: PathBuf,
    images: PathBuf,
    backend: Backend,
}

/// What a copy must leave free on the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpaceFloor {
    pub(crate) floor_mib: u64,
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
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Backend::Layers,
            probed => probed.map_err(failed)?,
        };
        let files = Self {
            directory: directory.clone(),
            trash: data.join("trash"),
            images: data.join("images"),
            backend,
        };
        for name in names(&directory.join(STAGING)).map_err(failed)? {
            files.discard(&format!("{STAGING}/{name}")).map_err(failed)?;
        }
        Ok(files)
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
        let at = |errno| CopyError::File { path: DISK.into(), errno };
        let disk = fs::metadata(directory.join(DISK));
        let bytes =
            disk.map_err(|error| at(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?.len();
        let whole = mib * MIB;
        if bytes < whole {
            return Err(CopyError::Refused(format!(
                "{DISK} is damaged: it has {bytes} of {whole} bytes"
            )));
        }
        Ok(())
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

    /// Moves everything but the named snapshots to the trash.
    pub(super) async fn retain(&self, names: Vec<String>) -> Result<(), Error> {
        let files = self.clone();
        let retained = move || -> io::Result<()> {
            for name in self::names(&files.directory)? {
                if name != STAGING && !names.contains(&name) {
                    files.discard(&name)?;
                }
            }
            Ok(())
        };
        blocking(retained).await?.map_err(|error| Error::Fault(error.to_string()))
    }

    /// Copies the files of a sandbox that stands still into the staging area. Returns their size.
    /// Blocks.
    pub(crate) fn stage(
        &self,
        name: &str,
        sandbox: &Path,
        floor: SpaceFloor,
    ) -> Result<Copied, CopyError> {
        let staged = self.directory.join(STAGING).join(name);
        let created =
            create_private(&self.directory.join(STAGING)).and_then(|()| create_directory(&staged));
        let created = created.map_err(|error| CopyError::File {
            path: ".".into(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        });
        created
            .and_then(|()| self.copy(sandbox, &staged, floor))
            .inspect_err(|_| self.discard_staged(name))
    }

    /// Writes a staged copy to the disk and gives it its name. Blocks.
    pub(crate) fn complete(&self, name: &str) -> io::Result<()> {
        let staged = self.directory.join(STAGING).join(name);
        let completed = sync_all(&staged)
            .and_then(|()| fs::rename(&staged, self.directory.join(name)))
            .and_then(|()| fs::File::open(&self.directory)?.sync_all());
        completed.inspect_err(|_| self.discard_staged(name))
    }

    /// Copies the files of a snapshot into the directory of a new sandbox, which must not exist. The
    /// directory is marked as unclaimed, so that it is removed if no record names it. Blocks.
    pub(crate) fn restore(
        &self,
        name: &str,
        sandbox: &Path,
        floor: SpaceFloor,
    ) -> Result<Copied, CopyError> {
        let marked = create_directory(sandbox).and_then(|()| orphans::mark(sandbox));
        marked.map_err(|error| CopyError::File {
            path: ".".into(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        let copied = self.copy(&self.directory.join(name), sandbox, floor)?;
        prepare_work(sandbox).map_err(|errno| CopyError::File { path: "work".into(), errno })?;
        Ok(copied)
    }

    /// Writes files that [`SnapshotFiles::restore`] has copied to the disk. Blocks.
    pub(super) fn write_to_disk(restored: &Path) -> io::Result<()> {
        sync_all(restored)
    }

    /// Moves the files of a snapshot to the trash. No error if there are none. Blocks.
    pub(crate) fn discard(&self, name: &str) -> io::Result<()> {
        // A name in the trash is never used twice.
        let to = self.trash.join(format!("snapshot-{}", crate::model::ids::random()));
        match fs::rename(self.directory.join(name), to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(()) => fs::File::open(&self.directory)?.sync_all(),
            failed => failed,
        }
    }

    fn discard_staged(&self, name: &str) {
        let _ = self.discard(&format!("{STAGING}/{name}"));
    }

    fn copy(&self, from: &Path, to: &Path, floor: SpaceFloor) -> Result<Copied, CopyError> {
        let at = |error: io::Error| CopyError::File {
            path: ".".into(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        let mut check = |bytes: u64| floor.check(&self.directory, bytes);
        let disk = from.join(DISK);
        let mut copied = match disk.try_exists().map_err(at)? {
            true => {
                let data = fs::metadata(&disk).map_err(at)?.blocks() * 512;
                if self.backend.copies() == CopyMethod::Full {
                    check(data)?;
                }
                copy_file(self.backend.copies(), &disk, &to.join(DISK), &mut check)?
            }
            false => self.copy_trees(from, to, &TREES, &mut check)?,
        };
        if from.join(SHELLS).try_exists().map_err(at)? {
            let shells = self.copy_trees(from, to, &[SHELLS], &mut check)?;
            copied.entries += shells.entries;
            copied.bytes += shells.bytes;
        }
        Ok(copied)
    }

    fn copy_trees(
        &self,
        from: &Path,
        to: &Path,
        names: &[&str],
        check: &mut dyn FnMut(u64) -> Result<(), CopyError>,
    ) -> Result<Copied, CopyError> {
        let at = |error: io::Error| CopyError::File {
            path: LINKS.into(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        let links = to.join(LINKS);
        let mut copied = Copied::default();
        for name in names {
            if let Some((parent, _)) = name.split_once('/') {
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o755)
                    .create(to.join(parent))
                    .map_err(at)?;
            }
            // Apart for each tree, because a file cannot have names in two mounts of a sandbox.
            fs::DirBuilder::new().mode(0o700).create(&links).map_err(at)?;
            let one =
                copy_tree(self.backend.copies(), &from.join(name), &to.join(name), &links, check)?;
            isolet_sys::tree::remove(&links).map_err(|errno| at(errno.into()))?;
            copied.entries += one.entries;
            copied.bytes += one.bytes;
        }
        Ok(copied)
    }
}

impl SpaceFloor {
    pub(crate) fn check(self, directory: &Path, bytes: u64) -> Result<(), CopyError> {
        let Ok(disk) = rustix::fs::statvfs(directory) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free.saturating_sub(bytes) < self.floor_mib * MIB {
            Err(CopyError::Full)
        } else {
            Ok(())
        }
    }
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

/// Creates the directories that overlays need, with the owner of the directories beside them.
fn prepare_work(sandbox: &Path) -> Result<(), Errno> {
    if sandbox.join(DISK).is_file() {
        return Ok(());
    }
    for work in WORK {
        let work = sandbox.join(work);
        let upper = rustix::fs::stat(work.with_file_name("upper"))?;
        rustix::fs::mkdir(&work, Mode::from_raw_mode(0o755))?;
        let uid = Some(Uid::from_raw(upper.st_uid));
        let gid = Some(Gid::from_raw(upper.st_gid));
        rustix::fs::chownat(CWD, &work, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Writes a staged copy to the disk. That of a disk image is written already, so that a snapshot of
/// one sandbox does not wait for what others have written.
fn sync_all(staged: &Path) -> io::Result<()> {
    if !staged.join(DISK).is_file() {
        return sync_file_system(staged);
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
