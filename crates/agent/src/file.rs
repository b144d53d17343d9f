//! File operations. Each runs in a worker process: a fork of the agent, confined as a tenant, that
//! owns the connection and may block. Contents are moved in parts of 64 KiB, so memory is constant.

mod atomic_write;
mod attributes;
mod connection;
mod copy;
mod disk;
mod fingerprints;
mod names;
mod owned;
mod pack;
mod search;
mod walk;
mod watch;

use atomic_write::AtomicWrite;
use bytes::{Bytes, BytesMut};
use connection::{Broken, ConnectionEnded, FileConnection};
use disk::Failure;
use isolet_wire::frame::{self, DATA_BYTES_MAX};
use isolet_wire::request::{
    ByteRange, ExpectedFile, FileRequest, PathPair, WalkOptions, WriteOptions,
};
use isolet_wire::response::{AgentResponse, FileKind, FileStat, FoundFile, RefusalReason};
use owned::Owner;
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::net::sockopt;
use std::cell::Cell;
use std::fs::File;
use std::io::{BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

/// Timeout without a byte from or to the server.
const SILENCE: Duration = Duration::from_secs(60);
/// Maximum length of a path in an error message, in bytes.
const NAMED_BYTES_MAX: usize = 256;
/// Maximum size of the paths in one `FileFound` message, in bytes.
const LIST_BYTES: usize = 32 * 1024;
/// Maximum number of entries in one `FileFound` message.
const LIST_ENTRIES: usize = 256;

/// Maximum number of files in one `FileAttributes` message, whose attributes have 4 KiB each.
const ATTRIBUTES_IN_FRAME: usize = 16;
/// Directories with more entries than this are not searched for leftover temporary files.
const TEMPORARY_FILES_MAX: usize = 64;
/// Compression level of archives: fast, because the network is fast.
const ZSTD_LEVEL: i32 = 3;
/// Base-2 logarithm of the memory that unpacking needs, in bytes.
const ZSTD_WINDOW_LOG: u32 = 21;

/// Serves one operation. `input` contains the bytes that were received after it.
pub(crate) fn serve(socket: OwnedFd, input: BytesMut, call: FileRequest) -> i32 {
    // Standard error is closed here, and its number may belong to a file at the time of a panic.
    std::panic::set_hook(Box::new(|_| {}));
    let mut connection = FileConnection { socket, input };
    let ready = rustix::io::ioctl_fionbio(&connection.socket, false).is_ok()
        && [sockopt::Timeout::Recv, sockopt::Timeout::Send]
            .into_iter()
            .all(|way| sockopt::set_socket_timeout(&connection.socket, way, Some(SILENCE)).is_ok());
    if !ready {
        return 1;
    }
    let named = named(&call);
    let sent = match connection.call(call) {
        Ok(()) => connection.send_message(&AgentResponse::Done),
        Err(ConnectionEnded::Failure(Failure(reason, message))) => {
            let message =
                named.map_or_else(|| message.clone(), |path| format!("{path}: {message}"));
            connection.send_message(&AgentResponse::Refused { id: None, reason, message })
        }
        Err(ConnectionEnded::Broken) => Err(Broken),
    };
    i32::from(sent.is_err())
}

/// The path of an operation, for error messages.
fn named(call: &FileRequest) -> Option<String> {
    let path = match call {
        FileRequest::End => return None,
        FileRequest::Read { path, .. }
        | FileRequest::Write { path, .. }
        | FileRequest::MakeDir { path }
        | FileRequest::Remove { path, .. }
        | FileRequest::Walk { path, .. }
        | FileRequest::Metadata { path, .. }
        | FileRequest::Chmod { path, .. }
        | FileRequest::Pack { path, .. }
        | FileRequest::Search { path, .. }
        | FileRequest::Fingerprints { path, .. }
        | FileRequest::Watch { path, .. }
        | FileRequest::Unpack { path } => path,
        FileRequest::Move(pair) | FileRequest::Copy(pair) => &pair.from,
        FileRequest::SetAttributes { path, .. } => path,
        FileRequest::Attributes { .. } => return None,
    };
    let text = String::from_utf8_lossy(&path[..path.len().min(NAMED_BYTES_MAX)]);
    Some(text.escape_debug().to_string())
}

impl FileConnection {
    fn call(&mut self, call: FileRequest) -> Result<(), ConnectionEnded> {
        match call {
            FileRequest::Read { path, range } => self.read(&path, range),
            FileRequest::Write { path, options, expected } => {
                let (stat, created) = self.write(&path, options, expected)?;
                Ok(self.send_message(&AgentResponse::FileSaved { stat, created })?)
            }
            FileRequest::End => Err(Failure::request("no write was begun").into()),
            FileRequest::MakeDir { path } => Ok(disk::make_dirs(&disk::path(&path)?)?),
            FileRequest::Remove { path, recursive } => Ok(remove(&disk::path(&path)?, recursive)?),
            FileRequest::Walk { path, options } => self.walk(&path, &options),
            FileRequest::Pack { path, zstd, without } => self.pack(&path, zstd, &without),
            FileRequest::Search { path, query } => {
                search::search(self, &disk::path(&path)?, &query)
            }
            FileRequest::Watch { path, recursive } => {
                watch::watch(self, &disk::path(&path)?, recursive)
            }
            FileRequest::Fingerprints { path, recursive } => {
                fingerprints::send(self, &disk::path(&path)?, recursive)
            }
            FileRequest::Unpack { path } => self.unpack(&path),
            FileRequest::Metadata { path, follow } => self.look(path, follow),
            FileRequest::Move(PathPair { from, to, replace }) => {
                Ok(copy::rename(&disk::path(&from)?, &disk::path(&to)?, replace)?)
            }
            FileRequest::Copy(PathPair { from, to, replace }) => {
                Ok(copy::copy(&disk::path(&from)?, &disk::path(&to)?, replace)?)
            }
            FileRequest::Chmod { path, mode } => {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                Ok(rustix::fs::chmodat(CWD, &disk::path(&path)?, mode, AtFlags::empty())?)
            }
            FileRequest::Attributes { paths, prefix } => {
                attributes::check(&prefix, paths.len())?;
                for paths in paths.chunks(ATTRIBUTES_IN_FRAME) {
                    let all = paths.iter().map(|path| attributes::read(path, &prefix)).collect();
                    self.send_message(&AgentResponse::FileAttributes(all))?;
                }
                Ok(())
            }
            FileRequest::SetAttributes { path, prefix, attributes } => {
                attributes::check(&prefix, 1)?;
                Ok(attributes::write(&path, &prefix, &attributes)?)
            }
        }
    }

    fn look(&mut self, path: Vec<u8>, follow: bool) -> Result<(), ConnectionEnded> {
        let at = disk::path(&path)?;
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = disk::stat(&rustix::fs::statat(CWD, &at, flags)?);
        let target = disk::target(CWD, at.as_os_str().as_bytes(), &stat);
        Ok(self.send_message(&AgentResponse::FileFound(vec![FoundFile { path, stat, target }]))?)
    }

    fn read(&mut self, path: &[u8], range: ByteRange) -> Result<(), ConnectionEnded> {
        let (mut file, stat) = disk::open(&disk::path(path)?)?;
        self.send_message(&AgentResponse::FileStat(stat.clone()))?;
        let (offset, limit) = match range {
            ByteRange::From { offset, limit } => (offset, limit),
            ByteRange::Last(count) => (stat.size.saturating_sub(count), Some(count.min(stat.size))),
        };
        if stat.kind == FileKind::Directory || i64::try_from(offset).is_err() {
            return Ok(());
        }
        file.seek(SeekFrom::Start(offset))?;
        self.send_all(&mut file.take(limit.unwrap_or(u64::MAX)), offset)
    }

    fn pack(
        &mut self,
        path: &[u8],
        zstd: bool,
        without: &[Vec<u8>],
    ) -> Result<(), ConnectionEnded> {
        let path = disk::path(path)?;
        let (_, stat) = disk::open(&path)?;
        if stat.kind != FileKind::Directory {
            return Err(Failure(RefusalReason::WrongKind, "not a directory".to_owned()).into());
        }
        self.send_message(&AgentResponse::FileStat(stat))?;
        let cut = Cell::new(false);
        let sink = Sink { connection: self, at: 0, cut: &cut };
        let out = BufWriter::with_capacity(DATA_BYTES_MAX, sink);
        if !zstd {
            return Ok(pack::pack(&path, without, out, &cut).map(drop)?);
        }
        let mut out = zstd::Encoder::new(out, ZSTD_LEVEL)?;
        out.window_log(ZSTD_WINDOW_LOG)?;
        Ok(pack::pack(&path, without, out, &cut)?.finish()?.flush()?)
    }

    fn unpack(&mut self, path: &[u8]) -> Result<(), ConnectionEnded> {
        let path = disk::path(path)?;
        let mut source = ByteSource { connection: self, bytes: Bytes::new(), ended: false };
        let unpacked = pack::unpack(&path, &mut source);
        // The bytes after the archive, or after an error in it, are still received, so that the
        // server reads the answer.
        while !source.ended {
            source.fill()?;
        }
        Ok(unpacked?)
    }

    fn write(
        &mut self,
        path: &[u8],
        options: WriteOptions,
        expected: Option<ExpectedFile>,
    ) -> Result<(FileStat, bool), ConnectionEnded> {
        let path = disk::path(path)?;
        let mut failed: Option<Failure> = None;
        let mut write = AtomicWrite::new(&path, None, options, Owner::Kept, expected)
            .map_err(|failure| failed = Some(failure))
            .ok();
        // After a failure the rest is still received, so that the server reads the answer.
        while let Some(bytes) = self.next_bytes()? {
            if let Some(Err(error)) = write.as_mut().map(|d| d.file.write_all(&bytes)) {
                failed = Some(error.into());
                write = None;
            }
        }
        match (write, failed) {
            (Some(write), None) => Ok(write.commit()?),
            (_, failed) => Err(failed.unwrap_or_else(|| Failure::request("no write")).into()),
        }
    }

    fn walk(&mut self, path: &[u8], options: &WalkOptions) -> Result<(), ConnectionEnded> {
        let mut part = Vec::new();
        let mut bytes = 0;
        walk::walk(&disk::path(path)?, options, |found, unread| {
            if let Some(Failure(reason, _)) = unread {
                self.send_message(&AgentResponse::FileUnread { path: found.path.clone(), reason })?;
            }
            bytes += found.path.len() + found.target.as_ref().map_or(0, Vec::len);
            part.push(found);
            if bytes >= LIST_BYTES || part.len() >= LIST_ENTRIES {
                bytes = 0;
                self.send_message(&AgentResponse::FileFound(std::mem::take(&mut part)))?;
            }
            Ok::<_, ConnectionEnded>(())
        })?;
        if !part.is_empty() {
            self.send_message(&AgentResponse::FileFound(part))?;
        }
        Ok(())
    }
}

/// Removes a path. A directory that contains only leftover temporary files counts as empty, as it
/// does in lists.
fn remove(path: &Path, recursive: bool) -> Result<(), Failure> {
    match disk::remove(path, recursive) {
        Err(Failure(RefusalReason::NotEmpty, _)) => {
            let dir = File::open(path)?;
            disk::names(path, TEMPORARY_FILES_MAX)
                .unwrap_or_default()
                .iter()
                .for_each(|name| names::sweep(&dir, name));
            disk::remove(path, recursive)
        }
        result => result,
    }
}

/// Sends written bytes as data frames until it is cut off.
struct Sink<'a> {
    connection: &'a mut FileConnection,
    at: u64,
    cut: &'a Cell<bool>,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.cut.get() {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        let bytes = &bytes[..bytes.len().min(DATA_BYTES_MAX)];
        let mut head = Vec::new();
        frame::put_data_head(&mut head, 0, self.at, "", bytes.len());
        let sent = self.connection.send(&head).and_then(|()| self.connection.send(bytes));
        sent.map_err(|Broken| std::io::ErrorKind::BrokenPipe)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads the bytes of received data frames.
struct ByteSource<'a> {
    connection: &'a mut FileConnection,
    bytes: Bytes,
    ended: bool,
}

impl ByteSource<'_> {
    fn fill(&mut self) -> Result<(), ConnectionEnded> {
        let more = self.connection.next_bytes()?;
        self.ended = more.is_none();
        self.bytes = more.unwrap_or_default();
        Ok(())
    }
}

impl Read for ByteSource<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.bytes.is_empty() && !self.ended {
            self.fill().map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        }
        let count = self.bytes.len().min(into.len());
        into[..count].copy_from_slice(&self.bytes.split_to(count));
        Ok(count)
    }
}
