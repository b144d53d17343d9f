//! The archives of a backup.

use super::audit;
use crate::archive::{
    ArchiveWriter, PROCESS_FILES, PackError, Packed, Totals, Tree, allocated, pack,
};
use crate::error::{Error, at};
use crate::files::HashedFile;
use crate::manifest::{Content, FileEntry, is_name};
use crate::progress::Progress;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Compression level. A sandbox stands still while it is compressed: speed matters more than size.
const LEVEL: i32 = 1;
/// Working directories of overlays, whose content has no meaning after the mount.
const WORK: [&[u8]; 2] = [b"root/work", b"usr/work"];
/// The beginning of the name of a file in a layer that the server is just taking.
const TAKEN_FROM: &[u8] = b"taken-from.";
/// Files of the server beside the records.
const SERVER: [&[u8]; 3] = [b"identity", b"isolet.tombstones", b"isolet.revoked"];
/// Attempts to copy what others are changing.
const ATTEMPTS: u32 = 5;
/// Pause before a sandbox is copied again.
const PAUSE: Duration = Duration::from_millis(100);

/// Writes the archives of a backup.
pub(super) struct Archives<'a> {
    pub(super) data: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) progress: &'a dyn Progress,
}

/// An archive that is written, but may not be on the disk yet.
pub(super) struct WrittenArchive {
    content: Content,
    path: PathBuf,
    file: HashedFile,
    packed: Packed,
}

impl WrittenArchive {
    pub(super) fn totals(&self) -> Totals {
        self.packed.totals
    }

    /// Waits until the archive is on the disk.
    pub(super) fn finish(self) -> Result<FileEntry, Error> {
        let digested = self.file.finish().map_err(at(&self.path))?;
        let Packed { totals, skipped } = self.packed;
        Ok(FileEntry {
            content: self.content,
            bytes: digested.bytes,
            sha256: digested.sha256,
            entries: totals.entries,
            restored_bytes: totals.restored_bytes,
            left_out: totals.left_out,
            skipped,
        })
    }
}

pub(super) type Compressed = ArchiveWriter<zstd::Encoder<'static, HashedFile>>;

impl Archives<'_> {
    /// The files of a sandbox that stands still. The kernel may still release free blocks of a
    /// sandbox's own disk in the background: then the copy is repeated.
    pub(super) fn standing_sandbox(&self, name: &str) -> Result<WrittenArchive, Error> {
        let mut attempt = 1;
        loop {
            match self.sandbox(name) {
                Err(error) if error.is_busy() && attempt < ATTEMPTS => {
                    attempt += 1;
                    let content = Content::Sandbox { name: name.to_owned() };
                    remove(self.folder, &content)?;
                    std::thread::sleep(PAUSE);
                }
                written => return written,
            }
        }
    }

    fn sandbox(&self, name: &str) -> Result<WrittenArchive, Error> {
        let root = self.data.join("sandboxes").join(name);
        let without = |path: &[u8]| PROCESS_FILES.contains(&path);
        let empty = |path: &[u8]| WORK.contains(&path);
        let tree = Tree { root: &root, without: &without, empty: &empty, live: false };
        self.tree(Content::Sandbox { name: name.to_owned() }, &tree)
    }

    /// A layer of a snapshot, which never changes. `None` if it does not exist any more.
    pub(super) fn layer(&self, name: &str) -> Result<Option<FileEntry>, Error> {
        let root = self.data.join("snapshots/layers").join(name);
        let without = |path: &[u8]| path.starts_with(TAKEN_FROM);
        let no = |_: &[u8]| false;
        let tree = Tree { root: &root, without: &without, empty: &no, live: true };
        let content = Content::Layer { name: name.to_owned() };
        let written = self.tree(content.clone(), &tree).and_then(WrittenArchive::finish);
        if written.is_err() {
            remove(self.folder, &content)?;
        }
        match written {
            Err(Error::Source { .. }) if !root.is_dir() => Ok(None),
            written => written.map(Some),
        }
    }

    /// The names of directories that the server moved aside.
    pub(super) fn orphan_names(&self) -> Result<Vec<String>, Error> {
        let folder = self.data.join("orphaned");
        let names = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            names => names.map_err(at(&folder))?,
        };
        let names: io::Result<Vec<String>> =
            names.map(|name| Ok(name?.file_name().to_string_lossy().into_owned())).collect();
        let mut names = names.map_err(at(&folder))?;
        names.retain(|name| is_name(name));
        Ok(names)
    }

    /// Files that the server moved aside, without the credentials among them.
    pub(super) fn orphan(&self, name: &str) -> Result<FileEntry, Error> {
        let root = self.data.join("orphaned").join(name);
        let without = |path: &[u8]| path == b"credentials" || PROCESS_FILES.contains(&path);
        let empty = |path: &[u8]| WORK.contains(&path);
        let tree = Tree { root: &root, without: &without, empty: &empty, live: true };
        self.tree(Content::Orphan { name: name.to_owned() }, &tree)?.finish()
    }

    /// All images. Layers never change once they have their name.
    pub(super) fn images(&self) -> Result<FileEntry, Error> {
        let root = self.data.join("images");
        DirBuilder::new().recursive(true).mode(0o700).create(&root).map_err(at(&root))?;
        let without = |path: &[u8]| path == b"staging" || path == b"frames/staging";
        let no = |_: &[u8]| false;
        let tree = Tree { root: &root, without: &without, empty: &no, live: true };
        self.retried(&Content::Images, || self.tree(Content::Images, &tree))
    }

    pub(super) fn server(&self) -> Result<FileEntry, Error> {
        let without = |path: &[u8]| !SERVER.contains(&path);
        let no = |_: &[u8]| false;
        let tree = Tree { root: self.data, without: &without, empty: &no, live: true };
        self.retried(&Content::Server, || self.tree(Content::Server, &tree))
    }

    pub(super) fn audit(&self) -> Result<FileEntry, Error> {
        let tenants = self.data.join("audit/tenants");
        self.retried(&Content::Audit, || {
            let fill = |archive: &mut Compressed| audit::pack(&tenants, archive, self.progress);
            self.write(Content::Audit, &tenants, fill)
        })
    }

    /// Repeats what others may have changed while it was read.
    fn retried(
        &self,
        content: &Content,
        write: impl Fn() -> Result<WrittenArchive, Error>,
    ) -> Result<FileEntry, Error> {
        let mut attempt = 1;
        loop {
            match write() {
                Err(Error::Source { .. }) if attempt < ATTEMPTS => {
                    attempt += 1;
                    remove(self.folder, content)?;
                }
                written => return written?.finish(),
            }
        }
    }

    fn tree(&self, content: Content, tree: &Tree<'_>) -> Result<WrittenArchive, Error> {
        self.write(content, tree.root, |archive| pack(tree, archive, self.progress))
    }

    fn write(
        &self,
        content: Content,
        root: &Path,
        fill: impl FnOnce(&mut Compressed) -> Result<Packed, PackError>,
    ) -> Result<WrittenArchive, Error> {
        let path = self.folder.join(content.path());
        if let Some(folder) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(at(folder))?;
        }
        let file = HashedFile::create(&path)?;
        let filled = || -> Result<(HashedFile, Packed), PackError> {
            let encoder = zstd::Encoder::new(file, LEVEL).map_err(PackError::Target)?;
            let mut archive = ArchiveWriter::new(encoder);
            let packed = fill(&mut archive)?;
            let file = archive.finish()?.finish().map_err(PackError::Target)?;
            Ok((file, packed))
        };
        let (file, packed) = filled().map_err(|error| match error {
            PackError::Target(error) => at(&path)(error),
            PackError::Source(source) => Error::Source { root: root.to_owned(), source },
            PackError::Unfit(reason) => {
                Error::Source { root: root.to_owned(), source: io::Error::other(reason) }
            }
        })?;
        Ok(WrittenArchive { content, path, file, packed })
    }
}

fn absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes an archive, if there is one.
pub(super) fn remove(folder: &Path, content: &Content) -> Result<(), Error> {
    let path = folder.join(content.path());
    absent(fs::remove_file(&path)).map_err(at(&path))
}

/// Bytes that a backup has to read, without the files of the server.
pub(super) fn estimate(data: &Path, with_images: bool) -> u64 {
    let mut sum = ["sandboxes", "snapshots/layers", "orphaned", "audit"]
        .map(|name| allocated(&data.join(name)));
    if with_images {
        sum[0] += allocated(&data.join("images"));
    }
    let records = fs::metadata(data.join("isolet.db")).map_or(0, |about| about.len());
    sum.iter().sum::<u64>() + records
}
