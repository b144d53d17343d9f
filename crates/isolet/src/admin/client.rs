//! The commands' end of the socket, or the lock of the data directory if no server runs.

use super::{AdminRequest, AdminResponse, LINE_BYTES_MAX, SOCKET};
use anyhow::{Context, Result, anyhow, bail};
use isolet_sandbox::check_format;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the server may take to answer: it saves and freezes a sandbox first.
const ANSWER_WAIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 120 });
/// How long a server that is just stopping may hold the data directory.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How a command reaches a data directory.
pub(crate) enum DataAccess {
    /// A server runs on the data directory.
    Server(AdminClient),
    /// No server runs, and none can start while this lock is held.
    Locked(File),
}

/// A connection to the running server.
pub(crate) struct AdminClient {
    stream: BufReader<UnixStream>,
    data: PathBuf,
}

/// The server did not answer in time. Its answer may still come, so the connection cannot be used any
/// more.
#[derive(Debug)]
pub(crate) struct NoAnswer;

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server did not answer within {} s", ANSWER_WAIT.as_secs())
    }
}

impl std::error::Error for NoAnswer {}

impl DataAccess {
    /// Connects to the server of a data directory, or locks the directory.
    ///
    /// # Errors
    /// When the directory has another format, or another program holds it and does not answer.
    pub(crate) fn open(data: &Path) -> Result<Self> {
        check_format(data)?;
        if let Some(client) = AdminClient::connect(data)? {
            return Ok(Self::Server(client));
        }
        match isolet_sandbox::lock(data, LOCK_WAIT) {
            Ok(lock) => Ok(Self::Locked(lock)),
            // A server that was just starting has its socket by now.
            Err(error) => AdminClient::connect(data)?
                .map(Self::Server)
                .ok_or_else(|| anyhow!("{error}, which has no admin.sock")),
        }
    }
}

impl AdminClient {
    /// Connects; `None` if no server listens.
    pub(crate) fn connect(data: &Path) -> Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(data, flags, Mode::empty())
            .with_context(|| format!("cannot open {}", data.display()))?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error).context("cannot connect to the server's admin.sock"),
        };
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Some(Self { stream: BufReader::new(stream), data: data.to_owned() }))
    }

    /// Replaces the connection, which ends what the server does for the old one.
    ///
    /// # Errors
    /// When no server listens.
    pub(crate) fn reconnect(&mut self) -> Result<()> {
        let new = Self::connect(&self.data)?;
        *self = new.ok_or_else(|| anyhow!("the server has ended"))?;
        Ok(())
    }

    /// Sends a request, and waits for the response. [`AdminResponse::Failed`] is not an error here.
    ///
    /// # Errors
    /// [`NoAnswer`]; other errors when the server ends.
    pub(crate) fn ask(&mut self, request: &AdminRequest) -> Result<AdminResponse> {
        send(self.stream.get_mut(), request).context("the server has ended")?;
        match receive(&mut self.stream) {
            Ok(Some(response)) => Ok(response),
            Ok(None) => bail!("the server has ended"),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(NoAnswer.into())
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(error).context("the server's version does not match")
            }
            Err(error) => Err(error).context("the server does not answer"),
        }
    }
}

/// Writes a message as one line.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    to.write_all(&text)?;
    to.flush()
}

/// Reads a message; `None` at the end. `InvalidData` if it cannot be parsed.
pub(crate) fn receive<M: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<M>> {
    let mut line = Vec::new();
    if from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let invalid = |error: serde_json::Error| io::Error::new(ErrorKind::InvalidData, error);
    serde_json::from_slice(&line).map(Some).map_err(invalid)
}
