//! File calls, in a worker of their own: a copy of the agent, confined as a tenant, that owns
//! the connection and may block. Constant memory: contents go by 64 KiB.

mod atomic_write;
mod connection;
mod copy;
mod disk;
mod names;
mod owned;
mod pack;
mod search;
mod walk;
mod watch;

use atomic_write::AtomicWrite;
use bytes::{Bytes, BytesMut};
use connection::{Broken, Connection, Ended};
use disk::Failure;
use isolet_wire::frame::{self, DATA_BYTES_MAX};
use isolet_wire::request::{File as Call, Pair, Save, Span, Walk};
use isolet_wire::response::{AgentResponse, Entry, Found, Kind, RefusalReason, Stat};
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

/// How long the server may neither send nor take a byte.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes of a path that an error repeats.
const NAMED_BYTES_MAX: usize = 256;
/// Bytes of names in one `FileList` message.
const LIST_BYTES: usize = 32 * 1024;
/// Entries of one `FileList` message.
const LIST_ENTRIES: usize = 256;

/// A directory with more entries than this is not looked through for what killed writers have left.
const TEMPORARY_FILES_MAX: usize = 64;
/// How hard an archive is compressed: fast, as the network is.
const ZSTD_LEVEL: i32 = 3;
/// What whoever unpacks it must hold: 2 to this power, in bytes.
const ZSTD_WINDOW_LOG: u32 = 21;

/// Serves the call and ends. `input` is what was read after it.
pub(crate) fn serve(socket: OwnedFd, input: BytesMut, call: Call) -> i32 {
    // Standard error is closed here, and its number may be a file's by the time of a fault.
    std::panic::set_hook(Box::new(|_| {}));
    let mut connection = Connection { socket, input };
    let ready = rustix::io::ioctl_fionbio(&connection.socket, false).is_ok()
        && [sockopt::Timeout::Recv, sockopt::Timeout::Send]
            .into_iter()
            .all(|way| sockopt::set_socket_timeout(&connection.socket, way, Some(SILENCE)).is_ok());
    if !ready {
        return 1;
    }
    let named = named(&call);
    let told = match connection.call(call) {
        Ok(()) => connection.send_message(&AgentResponse::Done),
        Err(Ended::Failure(Failure(why, message))) => {
            let message =
                named.map_or_else(|| message.clone(), |path| format!("{path}: {message}"));
            connection.send_message(&AgentResponse::Refused { id: None, why, message })
        }
        Err(Ended::Broken) => Err(Broken),
    };
    i32::from(told.is_err())
}

/// The path that a call is about, for people.
fn named(call: &Call) -> Option<String> {
    let path = match call {
        Call::End => return None,
        Call::Read { path, .. }
        | Call::Write { path, .. }
        | Call::List { path, .. }
        | Call::Stat { path }
        | Call::MakeDir { path }
        | Call::Remove { path, .. }
        | Call::Fetch { path, .. }
        | Call::Save { path, .. }
        | Call::Walk { path, .. }
        | Call::Look { path, .. }
        | Call::Chmod { path, .. }
        | Call::Pack { path }
        | Call::PackZstd { path }
        | Call::PackBut { path, .. }
        | Call::Search { path, .. }
        | Call::Watch { path, .. }
        | Call::Unpack { path } => path,
        Call::Move(pair) | Call::Copy(pair) => &pair.from,
    };
    let text = String::from_utf8_lossy(&path[..path.len().min(NAMED_BYTES_MAX)]);
    Some(text.escape_debug().to_string())
}

impl Connection {
    fn call(&mut self, call: Call) -> Result<(), Ended> {
        match call {
            Call::Read { path, offset, limit } => {
                self.read(&path, Span::From { offset, limit }, false)
            }
            Call::Write { path, mode } => self.write(&path, Some(mode), Save::default()).map(drop),
            Call::End => Err(Failure::order("no write was begun").into()),
            Call::List { path, max } => self.list(&path, max),
            Call::Stat { path } => {
                let path = disk::path(&path)?;
                let stat = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(self.send_message(&AgentResponse::FileStat(disk::stat(&stat)))?)
            }
            Call::MakeDir { path } => Ok(disk::make_dirs(&disk::path(&path)?)?),
            Call::Remove { path, recursive } => Ok(remove(&disk::path(&path)?, recursive)?),
            Call::Fetch { path, span } => self.read(&path, span, true),
            Call::Save { path, how } => {
                let (stat, created) = self.write(&path, None, how)?;
                Ok(self.send_message(&AgentResponse::FileSaved { stat, created })?)
            }
            Call::Walk { path, wish } => self.walk(&path, &wish),
            Call::Pack { path } => self.pack(&path, false, &[]),
            Call::PackZstd { path } => self.pack(&path, true, &[]),
            Call::PackBut { path, without } => self.pack(&path, false, &without),
            Call::Search { path, wish } => search::search(self, &disk::path(&path)?, &wish),
            Call::Watch { path, recursive } => watch::watch(self, &disk::path(&path)?, recursive),
            Call::Unpack { path } => self.unpack(&path),
            Call::Look { path, follow } => self.look(path, follow),
            Call::Move(Pair { from, to, replace }) => {
                Ok(copy::rename(&disk::path(&from)?, &disk::path(&to)?, replace)?)
            }
            Call::Copy(Pair { from, to, replace }) => {
                Ok(copy::copy(&disk::path(&from)?, &disk::path(&to)?, replace)?)
            }
            Call::Chmod { path, mode } => {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                Ok(rustix::fs::chmodat(CWD, &disk::path(&path)?, mode, AtFlags::empty())?)
            }
        }
    }

    fn look(&mut self, path: Vec<u8>, follow: bool) -> Result<(), Ended> {
        let at = disk::path(&path)?;
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = disk::stat(&rustix::fs::statat(CWD, &at, flags)?);
        let target = disk::target(CWD, at.as_os_str().as_bytes(), &stat);
        Ok(self.send_message(&AgentResponse::FileFound(vec![Found { path, stat, target }]))?)
    }

    fn read(&mut self, path: &[u8], span: Span, folder: bool) -> Result<(), Ended> {
        let (mut file, stat) = disk::open(&disk::path(path)?)?;
        if stat.kind == Kind::Directory && !folder {
            return Err(Failure(RefusalReason::WrongKind, "not a regular file".to_owned()).into());
        }
        self.send_message(&AgentResponse::FileStat(stat.clone()))?;
        let (offset, limit) = match span {
            Span::From { offset, limit } => (offset, limit),
            Span::Last(count) => (stat.size.saturating_sub(count), Some(count.min(stat.size))),
        };
        if stat.kind == Kind::Directory || i64::try_from(offset).is_err() {
            return Ok(());
        }
        file.seek(SeekFrom::Start(offset))?;
        self.send_all(&mut file.take(limit.unwrap_or(u64::MAX)), offset)
    }

    fn pack(&mut self, path: &[u8], zstd: bool, without: &[Vec<u8>]) -> Result<(), Ended> {
        let path = disk::path(path)?;
        let (_, stat) = disk::open(&path)?;
        if stat.kind != Kind::Directory {
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

    fn unpack(&mut self, path: &[u8]) -> Result<(), Ended> {
        let path = disk::path(path)?;
        let mut source = Source { connection: self, bytes: Bytes::new(), ended: false };
        let unpacked = pack::unpack(&path, &mut source);
        // What follows the archive, or its fault, is still taken: the answer is to find a reader.
        while !source.ended {
            source.fill()?;
        }
        Ok(unpacked?)
    }

    fn write(&mut self, path: &[u8], fresh: Option<u32>, how: Save) -> Result<(Stat, bool), Ended> {
        let path = disk::path(path)?;
        let mut failed: Option<Failure> = None;
        let mut write = AtomicWrite::new(&path, fresh, how, Owner::Kept)
            .map_err(|failure| failed = Some(failure))
            .ok();
        // After a failure the rest is still taken, so that the answer finds a reader.
        while let Some(bytes) = self.next_bytes()? {
            if let Some(Err(error)) = write.as_mut().map(|d| d.file.write_all(&bytes)) {
                failed = Some(error.into());
                write = None;
            }
        }
        match (write, failed) {
            (Some(write), None) => Ok(write.commit()?),
            (_, failed) => Err(failed.unwrap_or_else(|| Failure::order("no write")).into()),
        }
    }

    fn walk(&mut self, path: &[u8], wish: &Walk) -> Result<(), Ended> {
        let mut part = Vec::new();
        let mut bytes = 0;
        walk::walk(&disk::path(path)?, wish, |found, unread| {
            if let Some(Failure(why, _)) = unread {
                self.send_message(&AgentResponse::FileUnread { path: found.path.clone(), why })?;
            }
            bytes += found.path.len() + found.target.as_ref().map_or(0, Vec::len);
            part.push(found);
            if bytes >= LIST_BYTES || part.len() >= LIST_ENTRIES {
                bytes = 0;
                self.send_message(&AgentResponse::FileFound(std::mem::take(&mut part)))?;
            }
            Ok::<_, Ended>(())
        })?;
        if !part.is_empty() {
            self.send_message(&AgentResponse::FileFound(part))?;
        }
        Ok(())
    }

    fn list(&mut self, path: &[u8], max: u32) -> Result<(), Ended> {
        let path = disk::path(path)?;
        let mut names = disk::names(&path, max as usize)?;
        names.sort_unstable();
        let dir = File::open(&path)?;
        let mut part = Vec::new();
        let mut bytes = 0;
        for name in names {
            let stat = match rustix::fs::statat(&dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(errno) if walk::gone(errno) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if names::is_temporary(&name, stat.st_ino) {
                names::sweep(&dir, &name);
                continue;
            }
            bytes += name.len();
            part.push(Entry { name, stat: disk::stat(&stat) });
            if bytes >= LIST_BYTES || part.len() >= LIST_ENTRIES {
                self.send_message(&AgentResponse::FileList(std::mem::take(&mut part)))?;
                bytes = 0;
            }
        }
        if !part.is_empty() {
            self.send_message(&AgentResponse::FileList(part))?;
        }
        Ok(())
    }
}

/// Removes a path. A directory that holds nothing but what a killed writer has left counts as empty,
/// as it does in lists.
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

/// What is written goes out as data, until it is cut.
struct Sink<'a> {
    connection: &'a mut Connection,
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

/// What comes as data is read.
struct Source<'a> {
    connection: &'a mut Connection,
    bytes: Bytes,
    ended: bool,
}

impl Source<'_> {
    fn fill(&mut self) -> Result<(), Ended> {
        let more = self.connection.next_bytes()?;
        self.ended = more.is_none();
        self.bytes = more.unwrap_or_default();
        Ok(())
    }
}

impl Read for Source<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.bytes.is_empty() && !self.ended {
            self.fill().map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        }
        let count = self.bytes.len().min(into.len());
        into[..count].copy_from_slice(&self.bytes.split_to(count));
        Ok(count)
    }
}
