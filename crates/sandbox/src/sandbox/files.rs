//! File calls: one connection each, answered by a worker inside the sandbox.
//!
//! Paths are bytes, absolute or below `/workspace`. They are resolved inside the sandbox, never
//! here.

mod calls;

pub use calls::{CONTEXT_MAX, GLOB_BYTES_MAX, Opened, PAGE_MAX, PATTERN_BYTES_MAX, Page, Watcher};

use crate::{
    agent_client::wire::{AgentEvent, Wire},
    live::space::{STEP_BYTES, Space},
    model::{agent_error::AgentError, error::Error},
    sandbox::Sandbox,
};
use bytes::Bytes;
use isolet_wire::{
    frame::{DATA_BYTES_MAX, Data},
    request::{AgentRequest, File},
    response::{AgentResponse, Entry, Stat},
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// The most entries that one list may ask for.
pub const ENTRIES_MAX: u32 = 100_000;
/// The longest path, in bytes: the kernel's own bound.
pub const PATH_BYTES_MAX: usize = 4095;
/// How long a file call may stand still: a large directory takes time to remove, a FIFO is refused at once.
pub(crate) const STILL: Duration = Duration::from_secs(60);
/// How long one may take that moves many bytes and says nothing meanwhile: the agent's own bound.
pub(crate) const LONG: Duration = Duration::from_secs(15 * 60);

/// A file being read.
#[derive(Debug)]
pub struct Reader {
    /// As it was when it was opened.
    pub stat: Stat,
    wire: Wire,
    done: bool,
    /// Bytes that are already here.
    ahead: Option<Bytes>,
}

/// A file being written under a temporary name. Dropped before [`Writer::finish`]: no change.
#[derive(Debug)]
pub struct Writer {
    wire: Wire,
    offset: u64,
    space: Arc<Space>,
    /// From this offset on the free space is looked at again.
    look: u64,
}

pub(crate) async fn hear(wire: &mut Wire) -> Result<AgentEvent, Error> {
    hear_in(wire, STILL).await
}

pub(crate) async fn hear_in(wire: &mut Wire, wait: Duration) -> Result<AgentEvent, Error> {
    match timeout(wait, wire.next()).await.map_err(|_| Error::TooLate("the file call"))?? {
        AgentEvent::Response(AgentResponse::Refused { why, message, .. }) => {
            Err(Error::Refused { why, message })
        }
        heard => Ok(heard),
    }
}

pub(crate) async fn done(wire: &mut Wire) -> Result<(), Error> {
    done_in(wire, STILL).await
}

pub(crate) async fn done_in(wire: &mut Wire, wait: Duration) -> Result<(), Error> {
    match hear_in(wire, wait).await? {
        AgentEvent::Response(AgentResponse::Done) => Ok(()),
        _ => Err(fault("a file call")),
    }
}

pub(crate) async fn stat(wire: &mut Wire) -> Result<Stat, Error> {
    match hear(wire).await? {
        AgentEvent::Response(AgentResponse::FileStat(stat)) => Ok(stat),
        _ => Err(fault("a file call")),
    }
}

/// The agent said what it may not say here.
pub(crate) fn fault(of: &'static str) -> Error {
    tracing::warn!(of, "an agent gave another answer");
    AgentError::Turn("another answer to a file call").into()
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

impl Reader {
    /// The next bytes; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Refused`], [`Error::TooLate`] when nothing comes for a minute.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ahead.is_some() || self.done {
            return Ok(self.ahead.take());
        }
        match hear(&mut self.wire).await? {
            AgentEvent::Data(body) => Ok(Some(Data::parse(body).map_err(AgentError::from)?.bytes)),
            AgentEvent::Response(AgentResponse::Done) => {
                self.done = true;
                Ok(None)
            }
            AgentEvent::Response(_) => {
                Err(AgentError::Turn("another answer to a file call").into())
            }
        }
    }
}

impl Writer {
    /// More bytes, as many as there are.
    ///
    /// # Errors
    /// [`Error::Link`]; [`Error::Refused`] when the agent has given up (disk full).
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
        }
        match self.wire.try_next() {
            Ok(None) => Ok(()),
            Ok(Some(AgentEvent::Response(AgentResponse::Refused { why, message, .. }))) => {
                Err(Error::Refused { why, message })
            }
            Ok(Some(_)) => Err(AgentError::Turn("an answer before the end of a file").into()),
            Err(error) => Err(error.into()),
        }
    }

    /// What the agent said before it closed the connection says more than that it did.
    async fn reason(&mut self, error: AgentError) -> Error {
        match hear(&mut self.wire).await {
            Err(refused @ Error::Refused { .. }) => refused,
            _ => error.into(),
        }
    }

    /// Puts the file under its name.
    ///
    /// # Errors
    /// As `write`; nothing is changed then.
    pub async fn finish(mut self) -> Result<(), Error> {
        self.end().await?;
        done(&mut self.wire).await
    }

    async fn end(&mut self) -> Result<(), Error> {
        match self.wire.send(&AgentRequest::File(File::End)).await {
            Err(error) => Err(self.reason(error).await),
            Ok(()) => Ok(()),
        }
    }
}

impl Sandbox {
    async fn file(&self, path: &[u8], file: File) -> Result<Wire, Error> {
        check(path)?;
        let reads = matches!(
            file,
            File::Read { .. }
                | File::List { .. }
                | File::Stat { .. }
                | File::Fetch { .. }
                | File::Walk { .. }
                | File::Look { .. }
                | File::Pack { .. }
                | File::PackZstd { .. }
                | File::PackBut { .. }
                | File::Search { .. }
                | File::Watch { .. }
        );
        let mut wire = self.file_wire(reads).await?;
        wire.send(&AgentRequest::File(file)).await?;
        Ok(wire)
    }

    /// A call that puts something on the disk; refused below the floor of free space.
    async fn put(&self, path: &[u8], file: File) -> Result<Wire, Error> {
        self.space().check()?;
        self.file(path, file).await
    }

    fn writer(&self, wire: Wire) -> Writer {
        Writer { wire, offset: 0, space: Arc::clone(self.space()), look: STEP_BYTES }
    }

    /// Reads a regular file from `offset`, at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::Refused`] (`NotFound`, `Denied`, `WrongKind`), [`Error::Link`].
    pub async fn file_read(
        &self,
        path: &[u8],
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Reader, Error> {
        let mut wire = self.file(path, File::Read { path: path.to_vec(), offset, limit }).await?;
        Ok(Reader { stat: stat(&mut wire).await?, wire, done: false, ahead: None })
    }

    /// Writes a whole file; parents are made, a new one gets `mode`.
    ///
    /// # Errors
    /// As `file_read`, and `NoSpace`.
    pub async fn file_write(&self, path: &[u8], mode: u32) -> Result<Writer, Error> {
        let wire = self.put(path, File::Write { path: path.to_vec(), mode: mode & 0o7777 }).await?;
        Ok(self.writer(wire))
    }

    /// Entries of a directory, at most `max` (refused with `TooLarge` when there are more).
    ///
    /// # Errors
    /// As `file_read`.
    pub async fn file_list(&self, path: &[u8], max: u32) -> Result<Vec<Entry>, Error> {
        let max = max.min(ENTRIES_MAX);
        let mut wire = self.file(path, File::List { path: path.to_vec(), max }).await?;
        let mut all = Vec::new();
        loop {
            match hear(&mut wire).await? {
                AgentEvent::Response(AgentResponse::FileList(mut part))
                    if all.len() + part.len() <= max as usize =>
                {
                    all.append(&mut part)
                }
                AgentEvent::Response(AgentResponse::Done) => return Ok(all),
                _ => return Err(fault("a list")),
            }
        }
    }

    /// What is known of one name; a symbolic link is not followed.
    ///
    /// # Errors
    /// As `file_read`.
    pub async fn file_stat(&self, path: &[u8]) -> Result<Stat, Error> {
        let mut wire = self.file(path, File::Stat { path: path.to_vec() }).await?;
        let stat = stat(&mut wire).await?;
        done(&mut wire).await?;
        Ok(stat)
    }

    /// Makes a directory and its parents.
    ///
    /// # Errors
    /// As `file_read`.
    pub async fn file_mkdir(&self, path: &[u8]) -> Result<(), Error> {
        done(&mut self.put(path, File::MakeDir { path: path.to_vec() }).await?).await
    }

    /// Removes a name; a directory with all it holds when `recursive`.
    ///
    /// # Errors
    /// As `file_read`.
    pub async fn file_remove(&self, path: &[u8], recursive: bool) -> Result<(), Error> {
        let mut wire = self.file(path, File::Remove { path: path.to_vec(), recursive }).await?;
        done_in(&mut wire, LONG).await
    }
}
