//! From this machine into a sandbox.

use super::local_tree;
use super::pieces::{PIECE_BYTES, Piece, PieceWriter, queue};
use super::progress::Progress;
use super::remote::Remote;
use super::target::{
    Kind, Place, Source, absolute, join, names_contents, names_directory, place, split,
};
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::Sender;
use tokio::task::spawn_blocking;

/// Unpacks the archive on standard input.
pub(super) async fn from_stdin(remote: &Remote, path: &[u8], progress: &Progress) -> Result<()> {
    let target = absolute(path);
    let shown = remote.shown(&target);
    match remote.kind(&target).await? {
        Kind::Directory => {}
        Kind::Other => bail!("{shown} is not a directory, into which an archive can be unpacked"),
        Kind::Missing => bail!("the directory {shown} does not exist"),
    }
    let counter = progress.counter();
    send(remote, &target, "untar=1", move |sender| {
        feed(io::stdin().lock(), &sender, |count| {
            counter.fetch_add(count, Ordering::Relaxed);
        })
    })
    .await
}

/// Copies a file, a link or a directory.
pub(super) async fn from_local(
    remote: &Remote,
    source: &Path,
    path: &[u8],
    follow: bool,
    progress: &Progress,
) -> Result<()> {
    let typed = source.as_os_str().as_bytes();
    let failed = || source.display().to_string();
    // A slash behind a link means the directory that it points to.
    let follow = follow || names_directory(typed);
    let found = if follow { std::fs::metadata(source) } else { std::fs::symlink_metadata(source) };
    let metadata = found.with_context(failed)?;
    if names_directory(typed) && !metadata.is_dir() {
        bail!("{} is not a directory", source.display());
    }
    let name = local_name(source)?;
    let from = Source {
        directory: metadata.is_dir(),
        contents: names_contents(typed),
        name: name.as_bytes(),
    };
    let target = target(remote, from, path).await?;
    if metadata.is_dir() {
        if remote.kind(&target).await? == Kind::Missing {
            remote.create_directory(&target, metadata.mode()).await?;
        }
        let root = source.to_owned();
        let counter = progress.counter();
        return send(remote, &target, "untar=1", move |sender| {
            local_tree::archive(&root, PieceWriter::new(sender), counter)
        })
        .await;
    }
    if metadata.is_symlink() {
        let (directory, name) = split(&target);
        let name = OsStr::from_bytes(name).to_owned();
        let link = source.to_owned();
        return send(remote, directory, "untar=1", move |sender| {
            local_tree::archive_link(&link, Path::new(&name), PieceWriter::new(sender))
        })
        .await;
    }
    // A FIFO of a tree waits for its other end when it is opened; the standard input does not.
    if !metadata.is_file() && !source.starts_with("/dev") {
        bail!("{} is neither a file, a directory nor a link", source.display());
    }
    let file = std::fs::File::open(source).with_context(failed)?;
    if metadata.is_file() {
        progress.expect(metadata.len());
    }
    let mode = format!("mode={:04o}", metadata.mode() & 0o777);
    let counter = progress.counter();
    send(remote, &target, &mode, move |sender| {
        feed(file, &sender, |count| {
            counter.fetch_add(count, Ordering::Relaxed);
        })
    })
    .await
}

/// Where the source goes in the sandbox.
async fn target(remote: &Remote, source: Source<'_>, path: &[u8]) -> Result<Vec<u8>> {
    let target = absolute(path);
    let shown = remote.shown(&target);
    let kind = remote.kind(&target).await?;
    match place(source, kind, names_directory(path), &shown)? {
        Place::Inside => {
            let inside = join(&target, source.name);
            match (source.directory, remote.kind(&inside).await?) {
                (true, Kind::Other) => {
                    bail!("cannot copy a directory onto the file {}", remote.shown(&inside))
                }
                (false, Kind::Directory) => {
                    bail!("cannot copy a file onto the directory {}", remote.shown(&inside))
                }
                _ => Ok(inside),
            }
        }
        Place::Itself => {
            let (directory, _) = split(&target);
            if kind == Kind::Missing && remote.kind(directory).await? != Kind::Directory {
                bail!("the directory {} does not exist", remote.shown(directory));
            }
            Ok(target)
        }
    }
}

/// The last name of a local path, also of `.` and `..`.
fn local_name(path: &Path) -> Result<OsString> {
    match path.file_name() {
        Some(name) if !names_contents(path.as_os_str().as_bytes()) => Ok(name.to_owned()),
        _ => {
            let whole = std::fs::canonicalize(path).with_context(|| path.display().to_string())?;
            Ok(whole.file_name().unwrap_or_default().to_owned())
        }
    }
}

/// Sends what a blocking thread writes.
async fn send(
    remote: &Remote,
    target: &[u8],
    query: &str,
    write: impl FnOnce(Sender<Piece>) -> Result<()> + Send + 'static,
) -> Result<()> {
    let (sender, receiver) = queue();
    let last = sender.clone();
    let writing = spawn_blocking(move || {
        let written = write(sender);
        if let Err(error) = &written {
            // A body without an end: the server must not take it for complete.
            let broken = io::Error::other(format!("{error:#}"));
            let _ = last.blocking_send(Err(broken));
        }
        written
    });
    let answered = remote.write(target, query, receiver).await;
    let written = writing.await.map_err(|error| anyhow!(error))?;
    match (written, answered) {
        // The thread fails too when the server does not take the rest.
        (Err(error), answered) if is_broken_pipe(&error) => {
            answered.and(Err(anyhow!("{}: the upload ended early", remote.shown(target))))
        }
        (written, answered) => written.and(answered),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    kind.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Sends all of a file.
fn feed(mut from: impl Read, sender: &Sender<Piece>, count: impl Fn(u64)) -> Result<()> {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let read = match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("cannot read the source"),
        };
        piece.truncate(read);
        let sent = sender.blocking_send(Ok(Bytes::from(piece)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        count(read as u64);
    }
}
