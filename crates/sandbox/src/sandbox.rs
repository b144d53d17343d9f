//! A running sandbox, to work in.

use crate::{
    Error, ExecLink, Info, SandboxId, SessionId, SessionInfo, SessionWish, ShellLink, TenantId,
    Usage, info::Once,
};
use isolet_wire::ask::{Since, What};
use std::collections::BTreeMap;

/// The longest wait of a private shell for a client that dropped, in ms.
pub const PRIVATE_LINGER_MS: u64 = 60_000;
/// Where shells, programs and relative paths begin.
pub const WORKSPACE: &str = "/workspace";

/// A handle; cheap to clone. What it names may end at any time: calls then say so.
#[derive(Clone)]
pub struct Sandbox {}

/// Which shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellName {
    /// The session's one shell; the session is made when it is not there.
    Session(SessionId),
    /// A new shell of this client's own; its id is in [`ShellLink::shell_id`].
    Private,
    /// A private shell that was left, by its id. Refused with `Why::NoShell` when it is gone.
    Resume(String),
}

/// How a client attaches to a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach {
    /// Which.
    pub shell: ShellName,
    /// Whose the command ids are; a client that comes back names the same.
    pub owner: String,
    /// See other owners' commands too.
    pub watch: bool,
    /// Where to go on; `None` from now.
    pub since: Option<Since>,
}

/// A program to start without a shell behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// What.
    pub what: What,
    /// Start directory; [`WORKSPACE`] unless told.
    pub cwd: Option<String>,
    /// Over the sandbox's (and the session's) environment; `None` unsets.
    pub env: BTreeMap<String, Option<String>>,
    /// Take cwd and environment from this session (made when it is not there).
    pub session: Option<SessionId>,
    /// Whether `Ask::Stdin` will follow.
    pub stdin: bool,
    /// Killed whole after this many ms; 0 never.
    pub timeout_ms: u64,
}

impl Sandbox {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &SandboxId {
        todo!()
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        todo!()
    }

    /// What is known of it now.
    #[must_use]
    pub fn info(&self) -> Info {
        todo!()
    }

    /// What it uses now.
    ///
    /// # Errors
    /// [`Error::Fault`] when its cgroups cannot be read.
    pub async fn usage(&self) -> Result<Usage, Error> {
        todo!()
    }

    /// Ends when this sandbox is no longer running; says why, as a call on it would.
    pub async fn ended(&self) -> Error {
        todo!()
    }

    /// A client of a shell.
    ///
    /// # Errors
    /// [`Error::Refused`] with the agent's reason, [`Error::Link`], [`Error::Failed`].
    pub async fn shell(&self, attach: Attach) -> Result<ShellLink, Error> {
        let _ = attach;
        todo!()
    }

    /// A client of a session's shell for one command after the other: from the pool when one
    /// waits there. Give it back with [`ShellLink::park`].
    ///
    /// # Errors
    /// As [`Sandbox::shell`].
    pub async fn commands(&self, session: &SessionId) -> Result<ShellLink, Error> {
        let _ = session;
        todo!()
    }

    /// Starts a program. Its frames end with `Tell::Exit`, or `Tell::Refused` when it could not start.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`].
    pub async fn exec(&self, start: Start) -> Result<ExecLink, Error> {
        let _ = start;
        todo!()
    }

    /// Ends a shell and everything it started; its session stays.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::TooLate`].
    pub async fn close(&self, shell: &ShellName) -> Result<(), Error> {
        let _ = shell;
        todo!()
    }

    /// Its sessions, sorted by id, `default` among them.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        todo!()
    }

    /// One session.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn session(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        let _ = id;
        todo!()
    }

    /// One session, made with defaults when it is not there.
    ///
    /// # Errors
    /// [`Error::TooManySessions`], and what the records refuse.
    pub async fn session_reach(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        let _ = id;
        todo!()
    }

    /// Makes a session; `true` beside it: the same idempotency key had made it before.
    ///
    /// # Errors
    /// [`Error::SessionExists`], [`Error::OtherBody`], [`Error::TooManySessions`], [`Error::BadField`].
    pub async fn session_create(
        &self,
        wish: SessionWish,
        once: Option<Once>,
    ) -> Result<(SessionInfo, bool), Error> {
        let _ = (wish, once);
        todo!()
    }

    /// Ends a session and its shell.
    ///
    /// # Errors
    /// [`Error::DefaultSession`], [`Error::NoSession`].
    pub async fn session_delete(&self, id: &SessionId) -> Result<(), Error> {
        let _ = id;
        todo!()
    }
}
