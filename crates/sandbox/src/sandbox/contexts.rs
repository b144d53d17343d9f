//! Code contexts: interpreters that keep their variables between runs. [`open`] creates them, and
//! [`run`] runs code in them.
//!
//! A context lives in its agent, which holds everything about it, so a restarted server finds it
//! again. A context of a session with a scope lives in the scope's agent. The output of its driver
//! belongs to the tenant: it is parsed within limits, and invalid output is only counted.

mod open;
mod run;

pub use run::{
    Code, ContextRunConnection, ContextRunEvent, Fault, SAID_BYTES_MAX, SaidMemory, Shown,
};

use crate::agent_client::pool::Pool;
use crate::agent_client::wire::{ANSWER_WAIT, AgentEvent};
use crate::live::entry::running_scopes::Scope;
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use crate::model::ids::{ContextId, SessionId};
use crate::model::input::{EnvironmentChange, WorkingDirectory};
use crate::model::state::State;
use crate::sandbox::Sandbox;
use isolet_wire::context::{self, Language};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, RefusalReason};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Default timeout of a run, in ms.
pub const TIMEOUT_MS: u64 = 60_000;
/// How long an interpreter may take to start, a little longer than the agent's own timeout.
pub(crate) const OPEN_WAIT: Duration = Duration::from_secs(45);
/// How long the end of a context may take.
const CLOSE_WAIT: Duration = Duration::from_secs(20);

/// Minimum memory limit, in MiB, for a Python context to use a Jupyter kernel by default. A kernel
/// needs 52 MiB, and typical libraries as much again.
pub(crate) const KERNEL_MEMORY_MIB_MIN: u64 = 256;

/// Minimum memory limit, in MiB, for a spare kernel.
pub(crate) const SPARE_MEMORY_MIB_MIN: u64 = 512;

/// Whether a Jupyter kernel runs the context.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kernel {
    /// For Python if the image has a kernel, and for languages that need one.
    #[default]
    Usual,
    /// Use the small driver, never a Jupyter kernel.
    Without,
    /// With the kernel of this name.
    Named(String),
}

/// The parameters of a new context.
#[derive(Debug, Clone)]
pub struct ContextSpec {
    /// The id; the server generates one by default.
    pub id: Option<ContextId>,
    /// The language of the code.
    pub language: Language,
    /// The choice of a kernel.
    pub kernel: Kernel,
    /// The session whose directory, environment and scope the context inherits, and with which it
    /// ends.
    pub session: Option<SessionId>,
    /// The directory in which the interpreter starts; by default the session's, or `/workspace`.
    pub cwd: Option<WorkingDirectory>,
    /// Overrides the environment of the session and the sandbox.
    pub env: EnvironmentChange,
    /// Default timeout of runs, in ms; 0 means one day. [`TIMEOUT_MS`] by default.
    pub timeout_ms: Option<u64>,
    /// Add the data of charts and tables to results, if IPython's kernel runs the context.
    pub structured: bool,
}

/// The description of a context.
///
/// More than 12 fields: one for each field of the record that clients see.
#[derive(Debug, Clone)]
pub struct ContextInfo {
    /// The id of the context.
    pub id: ContextId,
    /// The language of the code.
    pub language: Language,
    /// The Jupyter kernel that runs the context, if one does.
    pub kernel: Option<String>,
    /// The session of the context, if it has one.
    pub session: Option<SessionId>,
    /// The directory in which the interpreter starts.
    pub cwd: String,
    /// Default timeout of runs, in ms.
    pub timeout_ms: u64,
    /// Time of creation, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Process id of the interpreter inside the sandbox; `None` while there is none.
    pub pid: Option<i32>,
    /// A run is in progress.
    pub busy: bool,
    /// Number of queued runs.
    pub queued: u32,
    /// Number of runs that have started.
    pub runs: u64,
    /// Number of times that the interpreter was replaced.
    pub restarts: u64,
    once: Option<(String, [u8; 32])>,
}

/// The label with which the server stores its own data about a context in the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Label {
    session: Option<SessionId>,
    cwd: String,
    timeout_ms: u64,
    created_at_ms: i64,
    /// The Jupyter kernel that may run the context.
    kernel: Option<String>,
    /// The requested language, if a kernel may run it.
    language: Option<Language>,
    /// The idempotency key of the creation, and the hash of its request.
    once: Option<(String, [u8; 32])>,
}

impl Sandbox {
    /// All contexts of this sandbox, sorted by id. A sleeping sandbox has none.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`], [`Error::Unreachable`].
    pub async fn contexts(&self) -> Result<Vec<ContextInfo>, Error> {
        match self.list_contexts().await {
            Err(_) if self.entry.state() == State::Sleeping => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn list_contexts(&self) -> Result<Vec<ContextInfo>, Error> {
        // An agent may only report its own sessions.
        let scoped = |info: &ContextInfo| {
            info.session.as_ref().is_some_and(|id| self.entry.sessions.scoped(id))
        };
        let mut all = self.contexts_at(None).await?;
        all.retain(|info| !scoped(info));
        for (id, scope) in self.entry.scopes.all() {
            // A scope that ends in the meantime has no contexts.
            let found = self.contexts_at(Some(&scope)).await.unwrap_or_default();
            all.extend(found.into_iter().filter(|info| info.session.as_ref() == Some(&id)));
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all.dedup_by(|a, b| a.id == b.id);
        Ok(all)
    }

    async fn contexts_at(&self, scope: Option<&Scope>) -> Result<Vec<ContextInfo>, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Context(context::ContextRequest::List)).await?;
        let mut all = Vec::new();
        loop {
            match wire.answer().await? {
                AgentResponse::Context(context::ContextResponse::State(status))
                    if all.len() < context::CONTEXTS_MAX =>
                {
                    all.extend(info(status).ok());
                }
                AgentResponse::Done => break,
                _ => {
                    return Err(
                        AgentError::Turn("unexpected answer to the list of contexts").into()
                    );
                }
            }
        }
        self.pool_at(scope).park(wire);
        Ok(all)
    }

    /// The description of one context.
    ///
    /// # Errors
    /// [`Error::Refused`] with `NoShell`, and the errors of [`Self::contexts`].
    pub async fn context(&self, id: &ContextId) -> Result<ContextInfo, Error> {
        let all = self.contexts().await?;
        all.into_iter().find(|info| info.id == *id).ok_or_else(|| none(id))
    }

    /// The scope whose agent holds the context; `None` means the sandbox's own agent.
    async fn home(&self, id: &ContextId) -> Result<Option<Arc<Scope>>, Error> {
        if self.entry.scopes.all().is_empty() {
            return Ok(None);
        }
        let session = self.context(id).await?.session;
        Ok(session.and_then(|session| self.entry.scopes.get(&session)))
    }

    /// Interrupts the current run of a context. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error::Refused`] with `NoShell`, [`Error::Link`].
    pub async fn context_interrupt(&self, id: &ContextId) -> Result<bool, Error> {
        let scope = self.home(id).await?;
        let request = context::ContextRequest::Interrupt(id.to_string());
        match self.ask_context(scope.as_deref(), request, ANSWER_WAIT).await? {
            context::ContextResponse::Interrupted(any) => Ok(any),
            _ => Err(AgentError::Turn("unexpected answer to an interrupt").into()),
        }
    }

    /// Replaces a context's interpreter and returns when the new one is ready.
    ///
    /// # Errors
    /// See [`Self::context_open`].
    pub async fn context_restart(&self, id: &ContextId) -> Result<ContextInfo, Error> {
        let scope = self.home(id).await?;
        let request = context::ContextRequest::Restart(id.to_string());
        match self.ask_context(scope.as_deref(), request, OPEN_WAIT).await? {
            context::ContextResponse::State(status) => info(status),
            _ => Err(AgentError::Turn("unexpected answer to a restart").into()),
        }
    }

    /// Ends a context and everything that it started. A missing context is no error.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::TooLate`].
    pub async fn context_close(&self, id: &ContextId) -> Result<(), Error> {
        let closed = async {
            let scope = match self.home(id).await {
                Err(Error::Refused { reason: RefusalReason::NoShell, .. }) => return Ok(()),
                found => found?,
            };
            let mut wire = self.wire(scope.as_deref()).await?;
            wire.send(&AgentRequest::Context(context::ContextRequest::Close(id.to_string())))
                .await?;
            let answer = wire.next_within(CLOSE_WAIT).await;
            match answer.map_err(|_| Error::TooLate("ending the context"))?? {
                AgentEvent::Response(AgentResponse::Done) => {
                    self.pool_at(scope.as_deref()).park(wire);
                    Ok(())
                }
                _ => Err(AgentError::Turn("unexpected answer to the end of a context").into()),
            }
        };
        match closed.await {
            // The context ended with the sandbox's sleep and does not come back.
            Err(_) if self.entry.state() == State::Sleeping => Ok(()),
            closed => closed,
        }
    }

    /// Ends the contexts of a session that is being deleted.
    pub(crate) async fn close_contexts(&self, session: &SessionId) -> Result<(), Error> {
        if self.entry.sessions.scoped(session) {
            // The contexts end with their agent.
            return Ok(());
        }
        for info in
            self.contexts().await?.into_iter().filter(|one| one.session.as_ref() == Some(session))
        {
            self.context_close(&info.id).await?;
        }
        Ok(())
    }

    async fn ask_context(
        &self,
        scope: Option<&Scope>,
        request: context::ContextRequest,
        wait: Duration,
    ) -> Result<context::ContextResponse, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Context(request)).await?;
        let heard = wire.next_within(wait).await.map_err(|_| AgentError::Silent)??;
        match heard {
            AgentEvent::Response(AgentResponse::Context(response)) => {
                self.pool_at(scope).park(wire);
                Ok(response)
            }
            AgentEvent::Response(AgentResponse::Refused { reason, message, .. }) => {
                if reason == RefusalReason::NoProcess {
                    self.request_health_check();
                }
                Err(Error::Refused { reason, message })
            }
            _ => Err(AgentError::Turn("unexpected answer about a context").into()),
        }
    }

    fn pool_at<'a>(&'a self, scope: Option<&'a Scope>) -> &'a Arc<Pool> {
        scope.map_or(&self.entry.pool, |scope| &scope.pool)
    }
}

fn none(id: &ContextId) -> Error {
    Error::Refused { reason: RefusalReason::NoShell, message: format!("there is no context {id}") }
}

/// Checks an agent's description of a context.
pub(crate) fn info(status: context::ContextStatus) -> Result<ContextInfo, Error> {
    let bad = || Error::from(AgentError::Turn("invalid description of a context"));
    let label: Label = serde_json::from_slice(&status.label).map_err(|_| bad())?;
    Ok(ContextInfo {
        id: ContextId::parse(&status.context).map_err(|_| bad())?,
        language: label.language.unwrap_or(status.language),
        kernel: label.kernel.filter(|_| status.language == Language::Jupyter),
        session: label.session,
        cwd: label.cwd,
        timeout_ms: label.timeout_ms,
        created_at_ms: label.created_at_ms,
        pid: Some(status.pid).filter(|pid| *pid > 0),
        busy: status.busy,
        queued: status.queued,
        runs: status.runs,
        restarts: status.restarts,
        once: label.once,
    })
}
