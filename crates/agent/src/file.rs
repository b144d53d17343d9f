//! File calls, in a worker of their own: a copy of the agent, confined as a tenant, that owns
//! the connection and may block. Constant memory: contents go by 64 KiB.

use crate::disk::{self, Failure};
use bytes::BytesMut;
use isolet_wire::ask::{Ask, File as Call};
use isolet_wire::frame::{self, DATA_BYTES_MAX, Data, Frame, SERVER_FRAME_BYTES_MAX};
use isolet_wire::tell::{Entry, Tell};
use rustix::fs::{AtFlags, CWD};
use rustix::net::{SendFlags, sockopt};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long the server may neither send nor take a byte.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes of a path that an error repeats.
const NAMED_BYTES_MAX: usize = 256;
/// Bytes of names in one `FileList` message.
const LIST_BYTES: usize = 32 * 1024;
/// Entries of one `FileList` message.
const LIST_ENTRIES: usize = 256;

/// The server has gone or does not speak our words: nothing more can be told.
struct Broken;

/// Why a call did not succeed.
enum Ended {
    Failure(Failure),
    Broken,
}

impl From<Broken> for Ended {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

impl<T: Into<Failure>> From<T> for Ended {
    fn from(failure: T) -> Self {
        Self::Failure(failure.into())
    }
}

/// Serves the call and ends. `input` is what was read after it.
pub(crate) fn serve(socket: OwnedFd, input: BytesMut, call: Call) -> i32 {
    let mut line = Line { socket, input };
    let ready = rustix::io::ioctl_fionbio(&line.socket, false).is_ok()
        && [sockopt::Timeout::Recv, sockopt::Timeout::Send]
            .into_iter()
            .all(|way| sockopt::set_socket_timeout(&line.socket, way, Some(SILENCE)).is_ok());
    if !ready {
        return 1;
    }
    let named = named(&call);
    let told = match line.call(call) {
        Ok(()) => line.tell(&Tell::Done),
        Err(Ended::Failure(Failure(why, message))) => {
            let message =
                named.map_or_else(|| message.clone(), |path| format!("{path}: {message}"));
            line.tell(&Tell::Refused { id: None, why, message })
        }
        Err(Ended::Broken) => Err(Broken),
    };
    i32::from(told.is_err())
}

/// The path that a call is about, for people.
fn named(call: &Call) -> Option<String> {
    let (Call::Read { path, .. }
    | Call::Write { path, .. }
    | Call::List { path, .. }
    | Call::Stat { path }
    | Call::MakeDir { path }
    | Call::Remove { path, .. }) = call
    else {
        return None;
    };
    let text = String::from_utf8_lossy(&path[..path.len().min(NAMED_BYTES_MAX)]);
    Some(text.escape_debug().to_string())
}

struct Line {
    socket: OwnedFd,
    input: BytesMut,
}

impl Line {
    fn send(&self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Broken),
            }
        }
        Ok(())
    }

    fn tell(&self, tell: &Tell) -> Result<(), Broken> {
        let mut out = Vec::new();
        frame::put(&mut out, tell);
        self.send(&out)
    }

    fn frame(&mut self) -> Result<Frame, Broken> {
        let mut buffer = vec![0; DATA_BYTES_MAX];
        loop {
            if let Some(frame) =
                frame::next(&mut self.input, SERVER_FRAME_BYTES_MAX).map_err(|_| Broken)?
            {
                return Ok(frame);
            }
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return Err(Broken),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Broken),
            }
        }
    }

    fn call(&mut self, call: Call) -> Result<(), Ended> {
        match call {
            Call::Read { path, offset, limit } => self.read(&path, offset, limit),
            Call::Write { path, mode } => self.write(&path, mode),
            Call::End => Err(Failure::order("no write was begun").into()),
            Call::List { path, max } => self.list(&path, max),
            Call::Stat { path } => {
                let path = disk::path(&path)?;
                let stat = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(self.tell(&Tell::FileStat(disk::stat(&stat)))?)
            }
            Call::MakeDir { path } => Ok(disk::make_dirs(&disk::path(&path)?)?),
            Call::Remove { path, recursive } => Ok(disk::remove(&disk::path(&path)?, recursive)?),
        }
    }

    fn read(&mut self, path: &[u8], offset: u64, limit: Option<u64>) -> Result<(), Ended> {
        let (mut file, stat) = disk::open(&disk::path(path)?)?;
        self.tell(&Tell::FileStat(disk::stat(&stat)))?;
        if i64::try_from(offset).is_err() {
            return Ok(());
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut left = limit.unwrap_or(u64::MAX);
        let mut at = offset;
        let mut bytes = vec![0; DATA_BYTES_MAX];
        let mut head = Vec::new();
        while left > 0 {
            let count = file.read(&mut bytes[..left.min(DATA_BYTES_MAX as u64) as usize])?;
            if count == 0 {
                break;
            }
            head.clear();
            frame::put_data_head(&mut head, 0, at, "", count);
            self.send(&head)?;
            self.send(&bytes[..count])?;
            at += count as u64;
            left -= count as u64;
        }
        Ok(())
    }

    fn write(&mut self, path: &[u8], mode: u32) -> Result<(), Ended> {
        let path = disk::path(path)?;
        let mut failed: Option<Failure> = None;
        let mut draft =
            disk::Draft::new(&path, mode).map_err(|failure| failed = Some(failure)).ok();
        // After a failure the rest is still taken, so that the answer finds a reader.
        loop {
            match self.frame()? {
                Frame::Data(body) => {
                    let bytes = Data::parse(body).map_err(|_| Broken)?.bytes;
                    if let Some(Err(error)) = draft.as_mut().map(|d| d.file.write_all(&bytes)) {
                        failed = Some(error.into());
                        draft = None;
                    }
                }
                Frame::Message(body) => match frame::decode(&body) {
                    Ok(Ask::File(Call::End)) => break,
                    _ => return Err(Failure::order("a write goes on with data or its end").into()),
                },
            }
        }
        match (draft, failed) {
            (Some(draft), None) => Ok(draft.keep()?),
            (_, failed) => Err(failed.unwrap_or_else(|| Failure::order("no write")).into()),
        }
    }

    fn list(&mut self, path: &[u8], max: u32) -> Result<(), Ended> {
        let path = disk::path(path)?;
        let mut names = disk::names(&path, max as usize)?;
        names.sort_unstable();
        let dir = File::open(&path)?;
        let (mut part, mut bytes) = (Vec::new(), 0);
        for name in names {
            let Ok(stat) = rustix::fs::statat(&dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            bytes += name.len();
            part.push(Entry { name, stat: disk::stat(&stat) });
            if bytes >= LIST_BYTES || part.len() >= LIST_ENTRIES {
                self.tell(&Tell::FileList(std::mem::take(&mut part)))?;
                bytes = 0;
            }
        }
        if !part.is_empty() {
            self.tell(&Tell::FileList(part))?;
        }
        Ok(())
    }
}
