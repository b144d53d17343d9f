//! File operations. Each has a connection of its own, which a worker inside the sandbox serves.
//!
//! Paths are bytes, absolute or relative to `/workspace`. They are resolved inside the sandbox,
//! never on the host.

mod calls;
mod changes;
mod stored;

pub use calls::{CONTEXT_MAX, GLOB_BYTES_MAX, Opened, PAGE_MAX, PATTERN_BYTES_MAX, Page, Watcher};

pub use changes::{Admits, ChangeQuery, FileChanges};

use crate::agent_client::wire::{AgentEvent, Wire};
use crate::live::disk_quota::TenantSpace;
pub use crate::live::entry::file_journals::journal::{ChangeKind, ChangedFile, Version};
use crate::live::space::STEP_BYTES;
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use crate::sandbox::Sandbox;
use bytes::Bytes;
use isolet_metrics::{Meter, Stream};
use isolet_wire::frame::{DATA_BYTES_MAX, DataFrame};
use isolet_wire::request::{AgentRequest, FileRequest};
use isolet_wire::response::{AgentResponse, FileStat};
use std::sync::Arc;
use std::time::Duration;
pub(crate) use stored::StoredFile;

/// Maximum number of entries that a list may request.
pub const ENTRIES_MAX: u32 = 100_000;
/// Maximum length of a path, in bytes, as in the kernel.
pub const PATH_BYTES_MAX: usize = 4095;
/// Timeout between two messages of a file operation. Removing a large directory takes time, and a
/// FIFO is refused at once.
pub(crate) const STILL: Duration = Duration::from_secs(60);
/// Timeout of operations that move many bytes without a message, as in the agent.
pub(crate) const LONG: Duration = Duration::from_secs(15 * 60);

/// A file that is being read.
#[derive(Debug)]
pub struct FileReader {
    /// The metadata when the file was opened.
    pub stat: FileStat,
    source: Source,
    done: bool,
    /// Bytes that have already been received.
    ahead: Option<Bytes>,
    /// Counts the bytes from a sandbox.
    meter: Option<Arc<Meter>>,
}

/// Where the bytes of a file come from.
#[derive(Debug)]
enum Source {
    Agent(Wire),
    Snapshot(StoredFile),
}

/// A file that is being written to a temporary name. Dropping it before [`Writer::finish`] changes
/// nothing.
#[derive(Debug)]
pub struct Writer {
    wire: Wire,
    offset: u64,
    space: TenantSpace,
    /// Offset at which the free disk space is checked again.
    look: u64,
    meter: Arc<Meter>,
}

pub(crate) async fn next_event(wire: &mut Wire) -> Result<AgentEvent, Error> {
    next_event_within(wire, STILL).await
}

pub(crate) async fn next_event_within(
    wire: &mut Wire,
    wait: Duration,
) -> Result<AgentEvent, Error> {
    match wire.next_within(wait).await.map_err(|_| Error::TooLate("the file call"))?? {
        AgentEvent::Response(AgentResponse::Refused { reason, message, .. }) => {
            Err(Error::Refused { reason, message })
        }
        event => Ok(event),
    }
}

pub(crate) async fn done(wire: &mut Wire) -> Result<(), Error> {
    done_in(wire, STILL).await
}

pub(crate) async fn done_in(wire: &mut Wire, wait: Duration) -> Result<(), Error> {
    match next_event_within(wire, wait).await? {
        AgentEvent::Response(AgentResponse::Done) => Ok(()),
        _ => Err(fault("a file call")),
    }
}

pub(crate) async fn stat(wire: &mut Wire) -> Result<FileStat, Error> {
    match next_event(wire).await? {
        AgentEvent::Response(AgentResponse::FileStat(stat)) => Ok(stat),
        _ => Err(fault("a file call")),
    }
}

/// The agent sent a message that is not allowed at this point.
pub(crate) fn fault(of: &'static str) -> Error {
    tracing::warn!(of, "unexpected answer from the agent");
    AgentError::Turn("unexpected answer to a file call").into()
}

fn check(path: &[u8]) -> Result<(), Error> {
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains(&0) {
        return Err(Error::BadField {
            field: "path",
            reason: format!("1 to {PATH_BYTES_MAX} bytes without NUL"),
        });
    }
    Ok(())
}

impl FileReader {
    /// A reader of a file of a snapshot.
    pub(crate) fn stored(stat: FileStat, file: StoredFile) -> Self {
        Self { stat, source: Source::Snapshot(file), done: false, ahead: None, meter: None }
    }

    /// Waits for the next bytes; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Refused`], or [`Error::TooLate`] if nothing arrives for a minute.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ahead.is_some() || self.done {
            return Ok(self.ahead.take());
        }
        let wire = match &mut self.source {
            Source::Agent(wire) => wire,
            Source::Snapshot(file) => return file.next().await,
        };
        match next_event(wire).await? {
            AgentEvent::Data(body) => {
                let bytes = DataFrame::parse(body).map_err(AgentError::from)?.bytes;
                if let Some(meter) = &self.meter {
                    meter.bytes(Stream::FilesOut, bytes.len());
                }
                Ok(Some(bytes))
            }
            AgentEvent::Response(AgentResponse::Done) => {
                self.done = true;
                Ok(None)
            }
            AgentEvent::Response(_) => {
                Err(AgentError::Turn("unexpected answer to a file call").into())
            }
        }
    }
}

impl Writer {
    /// Writes more bytes.
    ///
    /// # Errors
    /// [`Error::Link`], or [`Error::Refused`] if the agent has given up, for example because the
    /// disk is full.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.offset >= self.look {
            self.space.check()?;
            self.look = self.offset + STEP_BYTES;
        }
        for part in bytes.chunks(DATA_BYTES_MAX) {
            if let Err(error) = self.wire.send_data(self.offset, part).await {
                return Err(self.reason(error).await);
            }
            self.offset += part.len() as u64;
            self.meter.bytes(Stream::FilesIn, part.len());
        }
        match self.wire.try_next() {
            Ok(None) => Ok(()),
            Ok(Some(AgentEvent::Response(AgentResponse::Refused { reason, message, .. }))) => {
                Err(Error::Refused { reason, message })
            }
            Ok(Some(_)) => Err(AgentError::Turn("an answer before the end of a file").into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The agent's last message, if there is one, explains more than the closed connection.
    async fn reason(&mut self, error: AgentError) -> Error {
        match next_event(&mut self.wire).await {
            Err(refused @ Error::Refused { .. }) => refused,
            _ => error.into(),
        }
    }

    /// Completes the archive that [`Sandbox::file_unpack`] receives.
    ///
    /// # Errors
    /// See `write`.
    pub async fn finish(mut self) -> Result<(), Error> {
        self.end().await?;
        done(&mut self.wire).await
    }

    async fn end(&mut self) -> Result<(), Error> {
        match self.wire.send(&AgentRequest::File(FileRequest::End)).await {
            Err(error) => Err(self.reason(error).await),
            Ok(()) => Ok(()),
        }
    }
}

impl Sandbox {
    async fn file(&self, path: &[u8], file: FileRequest) -> Result<Wire, Error> {
        check(path)?;
        let reads = matches!(
            file,
            FileRequest::Read { .. }
                | FileRequest::Walk { .. }
                | FileRequest::Metadata { .. }
                | FileRequest::Attributes { .. }
                | FileRequest::Pack { .. }
                | FileRequest::Search { .. }
                | FileRequest::Watch { .. }
                | FileRequest::Fingerprints { .. }
        );
        let mut wire = self.file_wire(reads).await?;
        wire.send(&AgentRequest::File(file)).await?;
        Ok(wire)
    }

    /// Starts an operation that writes to the disk. Refused below the floor of free space.
    async fn put(&self, path: &[u8], file: FileRequest) -> Result<Wire, Error> {
        self.space().check()?;
        self.file(path, file).await
    }

    fn writer(&self, wire: Wire) -> Writer {
        let meter = Arc::clone(&self.entry.meter);
        Writer { wire, offset: 0, space: self.space(), look: STEP_BYTES, meter }
    }

    fn reader(&self, stat: FileStat, wire: Wire) -> FileReader {
        let meter = Some(Arc::clone(&self.entry.meter));
        FileReader { stat, source: Source::Agent(wire), done: false, ahead: None, meter }
    }

    /// Creates a directory with its parents.
    ///
    /// # Errors
    /// See `file_fetch`.
    pub async fn file_mkdir(&self, path: &[u8]) -> Result<(), Error> {
        done(&mut self.put(path, FileRequest::MakeDir { path: path.to_vec() }).await?).await
    }

    /// Removes a file or, with `recursive`, a directory with its contents.
    ///
    /// # Errors
    /// See `file_fetch`.
    pub async fn file_remove(&self, path: &[u8], recursive: bool) -> Result<(), Error> {
        let mut wire =
            self.file(path, FileRequest::Remove { path: path.to_vec(), recursive }).await?;
        done_in(&mut wire, LONG).await
    }
}
