//! A directory of this machine as a tar archive. It runs in a blocking thread.

use super::pieces::PieceWriter;
use crate::client::output::print_message;
use anyhow::{Context, Result, bail};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tar::{Builder, EntryType, Header};

/// Writes an archive of what is below `root`.
pub(super) fn archive(root: &Path, to: PieceWriter, copied: Arc<AtomicU64>) -> Result<()> {
    let mut builder = Builder::new(to);
    // A stack instead of recursion: a tree can be deeper than the stack of a thread.
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let path = root.join(&directory);
        let failed = || format!("cannot read the directory {}", path.display());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).with_context(failed)? {
            names.push(entry.with_context(failed)?.file_name());
        }
        names.sort();
        for name in names {
            let relative = directory.join(name);
            let kind = append(&mut builder, root, &relative, &copied)?;
            if kind == EntryType::Directory {
                directories.push(relative);
            }
        }
    }
    finish(builder)
}

/// Writes an archive with a symbolic link of this name.
pub(super) fn archive_link(link: &Path, name: &Path, to: PieceWriter) -> Result<()> {
    let mut builder = Builder::new(to);
    let metadata = std::fs::symlink_metadata(link)?;
    let target = std::fs::read_link(link)?;
    let mut header = header(&metadata, EntryType::Symlink);
    builder.append_link(&mut header, name, target)?;
    finish(builder)
}

fn finish(builder: Builder<PieceWriter>) -> Result<()> {
    let mut writer = builder.into_inner()?;
    io::Write::flush(&mut writer)?;
    Ok(())
}

/// Appends one entry, and returns its type.
fn append(
    builder: &mut Builder<PieceWriter>,
    root: &Path,
    relative: &Path,
    copied: &Arc<AtomicU64>,
) -> Result<EntryType> {
    let path = root.join(relative);
    let failed = || format!("cannot read {}", path.display());
    let metadata = std::fs::symlink_metadata(&path).with_context(failed)?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        let mut header = header(&metadata, EntryType::Directory);
        builder.append_data(&mut header, relative, io::empty())?;
        return Ok(EntryType::Directory);
    }
    if kind.is_symlink() {
        let target = std::fs::read_link(&path).with_context(failed)?;
        let mut header = header(&metadata, EntryType::Symlink);
        builder.append_link(&mut header, relative, target)?;
        return Ok(EntryType::Symlink);
    }
    if !kind.is_file() {
        print_message(format_args!("{} is no file, directory or link; left out", path.display()));
        return Ok(EntryType::Fifo);
    }
    let file = File::open(&path).with_context(failed)?;
    // The size belongs to the file that was opened: the name may have got another one.
    let metadata = file.metadata().with_context(failed)?;
    if !metadata.is_file() {
        bail!("{} changed while it was copied", path.display());
    }
    let mut header = header(&metadata, EntryType::Regular);
    header.set_size(metadata.len());
    let reader = Exact { file, left: metadata.len(), copied: copied.clone() };
    builder.append_data(&mut header, relative, reader).with_context(failed)?;
    Ok(EntryType::Regular)
}

/// Owners are those of the sandbox, so they are left out.
fn header(metadata: &Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o777);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// A file with the size that its header names. One that grows is cut; one that shrinks is an error.
struct Exact {
    file: File,
    left: u64,
    copied: Arc<AtomicU64>,
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.file.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::Error::other("the file became shorter while it was copied"));
        }
        self.left -= count as u64;
        self.copied.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pieces::{PieceReader, queue};
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn an_archive_has_modes_links_and_any_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        std::fs::create_dir_all(root.join("a b/\n")).unwrap();
        let long = "x".repeat(200);
        std::fs::write(root.join("a b/\n").join(&long), b"content").unwrap();
        std::fs::set_permissions(root.join("a b"), PermissionsExt::from_mode(0o750)).unwrap();
        symlink("/etc/passwd", root.join("link")).unwrap();
        let (sender, receiver) = queue();
        let from = root.clone();
        let copied = Arc::new(AtomicU64::new(0));
        let counter = copied.clone();
        let writing = std::thread::spawn(move || {
            archive(&from, PieceWriter::new(sender.clone()), counter).unwrap();
            // The reader may be gone: an archive says where it ends.
            let _ = sender.blocking_send(Ok(bytes::Bytes::new()));
        });
        let to = dir.path().join("copy");
        tar::Archive::new(PieceReader::new(receiver)).unpack(&to).unwrap();
        writing.join().unwrap();
        assert_eq!(std::fs::read(to.join("a b/\n").join(long)).unwrap(), b"content");
        assert_eq!(to.join("a b").metadata().unwrap().mode() & 0o777, 0o750);
        assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(copied.load(Ordering::Relaxed), 7);
    }
}
