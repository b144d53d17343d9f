//! From a sandbox to this machine. What a sandbox sends is not trusted: its archives are unpacked only inside
//! the target directory.

use super::pieces::{Piece, PieceReader, queue};
use super::progress::Progress;
use super::remote::{Entry, Remote};
use super::target::{Kind, Place, Source, absolute, names_contents, names_directory, place, split};
use crate::client::output::OutputClosed;
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tar::{Archive, Builder, EntryType, Header};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::task::spawn_blocking;

/// Copies a file, a link or a directory.
pub(super) async fn to_local(
    remote: &Remote,
    path: &[u8],
    target: &Path,
    follow: bool,
    progress: &Progress,
) -> Result<()> {
    let source = absolute(path);
    let entry = find(remote, path, &source, follow).await?;
    let LocalTarget { path: target, is_named } = local_target(&source, path, &entry, target)?;
    let shown = target.display().to_string();
    if entry.kind == Kind::Directory {
        let is_new = !target.is_dir();
        if is_new {
            // Nobody else reads what is in it before it has the mode of the original.
            DirBuilder::new().mode(0o700).create(&target).with_context(|| shown.clone())?;
        }
        let body = remote.read(&source, "tar=1").await?;
        return receive(body, progress, remote.shown(&source), move |pieces| {
            unpack(pieces, &target).with_context(|| format!("cannot write to {shown}"))?;
            if is_new {
                let mode = Permissions::from_mode(entry.mode & 0o777);
                std::fs::set_permissions(&target, mode).with_context(|| shown.clone())?;
            }
            Ok(())
        })
        .await;
    }
    if let Some(link) = &entry.link {
        if target.symlink_metadata().is_ok() {
            std::fs::remove_file(&target).with_context(|| shown.clone())?;
        }
        return symlink(OsStr::from_bytes(link), &target).with_context(|| shown);
    }
    progress.expect(entry.size);
    let body = remote.read(&source, "").await?;
    let file = LocalFile::create(&target, is_named);
    let mut file = file.with_context(|| format!("cannot write {shown}"))?;
    let _unfinished = file.part.clone().map(Unfinished);
    receive(body, progress, remote.shown(&source), move |pieces| {
        let mut reader = PieceReader::new(pieces);
        io::copy(&mut reader, &mut file.file)
            .and_then(|_| file.complete(&entry))
            .with_context(|| format!("cannot write {shown}"))
    })
    .await
}

/// Writes a tar archive to standard output.
pub(super) async fn to_stdout(
    remote: &Remote,
    path: &[u8],
    follow: bool,
    progress: &Progress,
) -> Result<()> {
    if io::stdout().is_terminal() {
        bail!(
            "an archive is not written to a terminal; redirect the output to a file or a program"
        );
    }
    let source = absolute(path);
    let entry = find(remote, path, &source, follow).await?;
    let (_, name) = split(&source);
    let name = PathBuf::from(OsStr::from_bytes(name));
    if let Some(link) = &entry.link {
        let mut builder = Builder::new(io::stdout().lock());
        let mut header = header(&entry, EntryType::Symlink, 0);
        builder.append_link(&mut header, &name, OsStr::from_bytes(link))?;
        return finish(builder);
    }
    let directory = entry.kind == Kind::Directory;
    let body = remote.read(&source, if directory { "tar=1" } else { "" }).await?;
    let contents = names_contents(path) || name.as_os_str().is_empty();
    let done = receive(body, progress, remote.shown(&source), move |pieces| {
        let mut reader = PieceReader::new(pieces);
        let mut stdout = io::stdout().lock();
        if directory && contents {
            io::copy(&mut reader, &mut stdout)?;
            return stdout.flush().map_err(Into::into);
        }
        let mut builder = Builder::new(stdout);
        if directory {
            let mut top = header(&entry, EntryType::Directory, 0);
            builder.append_data(&mut top, &name, io::empty())?;
            below(Archive::new(reader), &name, &mut builder)?;
        } else {
            let mut top = header(&entry, EntryType::Regular, entry.size);
            let whole = Whole { reader, left: entry.size };
            builder.append_data(&mut top, &name, whole)?;
        }
        finish(builder)
    })
    .await;
    done.map_err(|error| match error.downcast_ref::<io::Error>() {
        Some(cause) if cause.kind() == io::ErrorKind::BrokenPipe => OutputClosed.into(),
        _ => error,
    })
}

/// What the source is.
async fn find(remote: &Remote, path: &[u8], source: &[u8], follow: bool) -> Result<Entry> {
    // A slash behind a link means the directory that it points to.
    let follow = follow || names_directory(path);
    let shown = remote.shown(source);
    let entry = remote.stat(source, follow).await?;
    let entry = entry.with_context(|| format!("{shown} does not exist"))?;
    if names_directory(path) && entry.kind != Kind::Directory {
        bail!("{shown} is not a directory");
    }
    Ok(entry)
}

/// Where the source goes on this machine.
struct LocalTarget {
    path: PathBuf,
    /// A person named all of it. Otherwise its last name is from the sandbox, and a link with that name,
    /// which an earlier copy may have made, leads nowhere.
    is_named: bool,
}

fn local_target(source: &[u8], path: &[u8], entry: &Entry, target: &Path) -> Result<LocalTarget> {
    let (_, name) = split(source);
    let from =
        Source { directory: entry.kind == Kind::Directory, contents: names_contents(path), name };
    let shown = target.display().to_string();
    let slash = names_directory(target.as_os_str().as_bytes());
    match place(from, kind(target)?, slash, &shown)? {
        Place::Inside => {
            let inside = target.join(OsStr::from_bytes(name));
            match (from.directory, kind_of(std::fs::symlink_metadata(&inside), &inside)?) {
                (true, Kind::Other) => {
                    bail!("cannot copy a directory onto the file or link {}", inside.display())
                }
                (false, Kind::Directory) => {
                    bail!("cannot copy a file onto the directory {}", inside.display())
                }
                _ => Ok(LocalTarget { path: inside, is_named: false }),
            }
        }
        Place::Itself => {
            let parent = target.parent().filter(|parent| *parent != Path::new(""));
            if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
                bail!("the directory {} does not exist", parent.display());
            }
            Ok(LocalTarget { path: target.to_owned(), is_named: true })
        }
    }
}

fn kind(path: &Path) -> Result<Kind> {
    kind_of(std::fs::metadata(path), path)
}

fn kind_of(found: io::Result<Metadata>, path: &Path) -> Result<Kind> {
    match found {
        Ok(metadata) if metadata.is_dir() => Ok(Kind::Directory),
        Ok(_) => Ok(Kind::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kind::Missing),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Gives the body to a blocking thread.
async fn receive(
    mut body: Incoming,
    progress: &Progress,
    shown: String,
    read: impl FnOnce(Receiver<Piece>) -> Result<()> + Send + 'static,
) -> Result<()> {
    let (sender, receiver) = queue();
    let reading = spawn_blocking(move || read(receiver));
    let received = pass(&mut body, &sender, progress).await;
    drop(sender);
    let read = reading.await.map_err(|error| anyhow!(error))?;
    received.with_context(|| format!("{shown}: the transfer broke off"))?;
    read
}

/// Passes the body on until the thread has gone.
async fn pass(body: &mut Incoming, sender: &Sender<Piece>, progress: &Progress) -> Result<()> {
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                let broken = io::Error::other("the connection ended early");
                let _ = sender.send(Err(broken)).await;
                return Err(error.into());
            }
        };
        let Some(bytes) = frame.into_data().ok().filter(|bytes| !bytes.is_empty()) else {
            continue;
        };
        progress.add(bytes.len() as u64);
        if sender.send(Ok(bytes)).await.is_err() {
            return Ok(());
        }
    }
    let _ = sender.send(Ok(Bytes::new())).await;
    Ok(())
}

/// Unpacks an archive in a directory, and reads it to its end.
fn unpack(pieces: Receiver<Piece>, directory: &Path) -> Result<()> {
    let mut archive = Archive::new(PieceReader::new(pieces));
    archive.set_preserve_permissions(false);
    archive.set_preserve_mtime(true);
    archive.set_unpack_xattrs(false);
    let mut directories = Vec::new();
    for entry in archive.entries()? {
        let entry = entry?;
        match entry.header().entry_type() {
            // Last, because one that may not be written gets its mode then.
            EntryType::Directory => directories.push(entry),
            EntryType::Regular | EntryType::Link | EntryType::Symlink => put(entry, directory)?,
            // Devices and FIFOs are left out.
            _ => {}
        }
    }
    directories.sort_by(|one, other| other.path_bytes().cmp(&one.path_bytes()));
    for entry in directories {
        put(entry, directory)?;
    }
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

/// Unpacks an entry, and refuses one outside of the directory.
fn put(mut entry: tar::Entry<'_, impl Read>, directory: &Path) -> Result<()> {
    let name = entry.path()?.into_owned();
    if name.is_absolute() || !entry.unpack_in(directory)? {
        bail!("the sandbox sent {}, which is outside of the directory", name.display());
    }
    Ok(())
}

/// Copies the entries of an archive with names below another one.
fn below(
    mut archive: Archive<PieceReader>,
    name: &Path,
    to: &mut Builder<impl Write>,
) -> Result<()> {
    for entry in archive.entries()? {
        let entry = entry?;
        let inside = entry.path()?.into_owned();
        let inside = inside.strip_prefix("./").unwrap_or(&inside);
        if inside.as_os_str().is_empty() || inside == Path::new(".") {
            continue;
        }
        let mut header = entry.header().clone();
        let path = name.join(inside);
        let link = entry.link_name()?.map(std::borrow::Cow::into_owned);
        match (header.entry_type(), link) {
            (EntryType::Link, Some(link)) => {
                to.append_link(&mut header, path, name.join(link))?;
            }
            (EntryType::Symlink, Some(link)) => to.append_link(&mut header, path, link)?,
            _ => {
                header.set_size(entry.size());
                to.append_data(&mut header, path, entry)?;
            }
        }
    }
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

fn finish(builder: Builder<impl Write>) -> Result<()> {
    builder.into_inner()?.flush().map_err(Into::into)
}

fn header(entry: &Entry, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(entry.mode & 0o777);
    header.set_mtime(u64::try_from(entry.modified_ms / 1000).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header
}

/// A file with the size that its header names; another size is an error.
struct Whole {
    reader: PieceReader,
    left: u64,
}

impl Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if count as u64 > self.left || (count == 0 && self.left > 0 && !buffer.is_empty()) {
            return Err(io::Error::other("the file changed while it was copied"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// A file of this machine that gets its name when it is complete. A device or FIFO is written as it is.
struct LocalFile {
    file: File,
    target: PathBuf,
    /// The name until then.
    part: Option<PathBuf>,
}

/// Removes an incomplete file when the copy ends: nothing is left of it after a complete one.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl LocalFile {
    fn create(target: &Path, is_named: bool) -> io::Result<Self> {
        let mut target = target.to_owned();
        if is_named {
            // A link stays, and its target is replaced.
            target = std::fs::canonicalize(&target).unwrap_or(target);
        }
        if is_named && target.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            let file = OpenOptions::new().write(true).open(&target)?;
            return Ok(Self { file, target, part: None });
        }
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".isolet-{}", std::process::id()));
        let part = target.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        Ok(Self { file, target, part: Some(part) })
    }

    fn complete(&mut self, entry: &Entry) -> io::Result<()> {
        let Some(part) = &self.part else { return self.file.flush() };
        self.file.set_permissions(Permissions::from_mode(entry.mode & 0o777))?;
        if let Ok(ms) = u64::try_from(entry.modified_ms) {
            self.file.set_modified(UNIX_EPOCH + Duration::from_millis(ms))?;
        }
        std::fs::rename(part, &self.target)
    }
}
