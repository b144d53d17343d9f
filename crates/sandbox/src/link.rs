//! Connections to agents: frames over a unix socket, straight from the caller's task.

use bytes::Bytes;
use isolet_wire::{
    ask::{Ask, Since},
    frame::FrameError,
    tell::Tell,
};

/// Why a link cannot go on. It is to be dropped.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The agent cannot be reached, or the connection broke.
    #[error("agent: {0}")]
    Io(std::io::ErrorKind),
    /// The agent closed the connection.
    #[error("agent closed the connection")]
    Ended,
    /// The agent sent what is no frame or no message.
    #[error("agent sent a bad frame: {0}")]
    Frame(String),
    /// The agent said something that does not belong here.
    #[error("agent answered out of turn: {0}")]
    Turn(&'static str),
    /// The agent speaks another version.
    #[error("agent speaks version {theirs}, this server {ours}")]
    Version {
        /// The agent's.
        theirs: u16,
        /// This server's.
        ours: u16,
    },
    /// The agent did not answer in time.
    #[error("agent does not answer")]
    Silent,
}

impl From<FrameError> for LinkError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error.to_string())
    }
}

impl From<std::io::Error> for LinkError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.kind())
    }
}

/// What came from an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Tell(Tell),
    /// Output, laid out exactly as a binary frame of the shell WebSocket; see `isolet_wire::frame::Data`.
    Data(Bytes),
}

/// A client of one shell.
pub struct ShellLink {}

impl ShellLink {
    /// The agent's name of the shell: `s/<session>` or `p/<id>`.
    #[must_use]
    pub fn name(&self) -> &str {
        todo!()
    }

    /// The id by which a private shell is resumed; the session's id otherwise.
    #[must_use]
    pub fn shell_id(&self) -> &str {
        todo!()
    }

    /// Process id of its bash, inside.
    #[must_use]
    pub fn pid(&self) -> i32 {
        todo!()
    }

    /// The shell was opened by this attach.
    #[must_use]
    pub fn fresh(&self) -> bool {
        todo!()
    }

    /// End of each stream and number of the last exit, when attached.
    #[must_use]
    pub fn at(&self) -> Since {
        todo!()
    }

    /// Sends one message; one system call when the socket takes it. Not cancel-safe: a send that
    /// was dropped half-way leaves the link unusable ([`LinkError::Turn`] from then on).
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn send(&mut self, ask: &Ask) -> Result<(), LinkError> {
        let _ = ask;
        todo!()
    }

    /// What comes next. Cancel-safe: may stand in a `select!`.
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn next(&mut self) -> Result<Heard, LinkError> {
        todo!()
    }

    /// What has already arrived, without waiting; `None` when that is nothing.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn try_next(&mut self) -> Result<Option<Heard>, LinkError> {
        todo!()
    }

    /// After `Tell::Closed`: attaches again, to a fresh shell (a session's only).
    ///
    /// # Errors
    /// [`crate::Error::Refused`], [`crate::Error::Link`].
    pub async fn reattach(&mut self) -> Result<(), crate::Error> {
        todo!()
    }

    /// Gives a link of [`crate::Sandbox::commands`] back for the next command, when no command of
    /// its own is queued or running. Dropping it instead is always allowed.
    pub fn park(self) {
        todo!()
    }
}

/// One program without a shell.
pub struct ExecLink {}

impl ExecLink {
    /// Sends `Stdin`, `Signal` or `Cancel` with an empty id. As [`ShellLink::send`].
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn send(&mut self, ask: &Ask) -> Result<(), LinkError> {
        let _ = ask;
        todo!()
    }

    /// What comes next; `Tell::Exit` is the last. Cancel-safe.
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn next(&mut self) -> Result<Heard, LinkError> {
        todo!()
    }

    /// What has already arrived, without waiting; `None` when that is nothing.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn try_next(&mut self) -> Result<Option<Heard>, LinkError> {
        todo!()
    }

    /// Gives the connection back after `Tell::Exit`. Dropping it before that kills the program.
    pub fn park(self) {
        todo!()
    }
}
