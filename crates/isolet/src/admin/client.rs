//! The commands' end of the socket, or the lock of the data directory if no server runs.

use super::{AdminRequest, AdminResponse, LINE_BYTES_MAX, SOCKET};
use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long the server may take to answer: it saves and freezes a sandbox first.
const ANSWER_WAIT: Duration = Duration::from_secs(120);
/// How long a server that is just stopping may hold the data directory.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How a command reaches a data directory.
pub(crate) enum DataAccess {
    /// A server runs.
    Server(AdminClient),
    /// No server runs, and none can start while this lock is held.
    Locked(File),
}

/// A connection to the running server.
pub(crate) struct AdminClient {
    stream: BufReader<UnixStream>,
}

impl DataAccess {
    /// Connects to the server of a data directory, or locks the directory.
    ///
    /// # Errors
    /// When another program holds the directory and does not answer.
    pub(crate) fn open(data: &Path) -> Result<Self> {
        if let Some(client) = AdminClient::connect(data)? {
            return Ok(Self::Server(client));
        }
        match isolet_sandbox::lock(data, LOCK_WAIT) {
            Ok(lock) => Ok(Self::Locked(lock)),
            // A server that was just starting has its socket by now.
            Err(error) => AdminClient::connect(data)?.map(Self::Server).ok_or_else(|| {
                anyhow!("{error}, which has no admin.sock; if it is a server of an earlier version, restart it with this one")
            }),
        }
    }
}

impl AdminClient {
    /// Connects; `None` if no server listens.
    fn connect(data: &Path) -> Result<Option<Self>> {
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
        Ok(Some(Self { stream: BufReader::new(stream) }))
    }

    /// Sends a request, and waits for the response. [`AdminResponse::Failed`] is not an error here.
    ///
    /// # Errors
    /// When the server ends or does not answer.
    pub(crate) fn ask(&mut self, request: &AdminRequest) -> Result<AdminResponse> {
        let mut text = serde_json::to_vec(request)?;
        text.push(b'\n');
        self.stream.get_mut().write_all(&text).context("the server has ended")?;
        let mut line = Vec::new();
        let read = (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.context("the server does not answer")? == 0 {
            bail!("the server has ended");
        }
        serde_json::from_slice(&line).context("the server's version does not match")
    }
}
