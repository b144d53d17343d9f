//! Code contexts: interpreters that keep their variables. [`open`] creates one, and [`run`] runs
//! code in it.
//!
//! A context lives in the agent, with everything that is known about it. This server stores
//! nothing, and so finds it again after a restart. A context of a session with a scope lives in
//! that session's agent. Messages of its driver are the tenant's: they are read with limits, and
//! unreadable ones are counted.

mod open;
mod run;

pub use run::{Code, Event, Fault, RunLink, SAID_BYTES_MAX, Shown};

use crate::{
    agent_client::{
        pool::Pool,
        wire::{ANSWER_WAIT, AgentEvent},
    },
    live::entry::scopes::Scope,
    model::{
        agent_error::AgentError,
        error::Error,
        ids::{ContextId, SessionId},
        state::State,
    },
    sandbox::Sandbox,
};
use isolet_wire::{
    context::{self, Language},
    request::AgentRequest,
    response::{AgentResponse, RefusalReason},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a run may take where nobody says, in ms.
pub const TIMEOUT_MS: u64 = 60_000;
/// How long an interpreter may take until it answers: a little longer than its agent gives it.
pub(crate) const OPEN_WAIT: Duration = Duration::from_secs(45);
/// How long the end of one may take.
const CLOSE_WAIT: Duration = Duration::from_secs(20);

/// Below this much memory of its sandbox a context of Python has no Jupyter kernel unless it is
/// asked for, in MiB: one holds 52, and libraries that are worth it as much again.
pub(crate) const KERNEL_MEMORY_MIB_MIN: u64 = 256;

/// With less memory of its sandbox no kernel is begun ahead, in MiB.
pub(crate) const SPARE_MEMORY_MIB_MIN: u64 = 512;

/// Whether a Jupyter kernel of the image runs what a context speaks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kernel {
    /// For Python where the image has one, and for what is a kernel's alone.
    #[default]
    Usual,
    /// None.
    Without,
    /// The one of this name.
    Named(String),
}

/// What a client wants a context to be.
#[derive(Debug, Clone)]
pub struct ContextSpec {
    /// Its id; the server makes one otherwise.
    pub id: Option<ContextId>,
    /// What it speaks.
    pub language: Language,
    /// What is to run it.
    pub kernel: Kernel,
    /// Whose directory, environment and scope it has, and with which it ends.
    pub session: Option<SessionId>,
    /// Start directory; as the session has it, or `/workspace`.
    pub cwd: Option<String>,
    /// Over the sandbox's (and the session's) environment; `None` unsets.
    pub env: BTreeMap<String, Option<String>>,
    /// For runs that name none, in ms; 0 a day. [`TIMEOUT_MS`] unless told.
    pub timeout_ms: Option<u64>,
}

/// What is known of a context.
#[derive(Debug, Clone)]
pub struct Info {
    /// Its id.
    pub id: ContextId,
    /// What it speaks.
    pub language: Language,
    /// The name of the Jupyter kernel that runs it, where one does.
    pub kernel: Option<String>,
    /// Whose it is, if a session's.
    pub session: Option<SessionId>,
    /// Start directory.
    pub cwd: String,
    /// For runs that name none, in ms.
    pub timeout_ms: u64,
    /// Milliseconds since 1970.
    pub created_at_ms: i64,
    /// Process id of its interpreter, inside; `None` while there is none.
    pub pid: Option<i32>,
    /// Something runs.
    pub busy: bool,
    /// Runs that wait.
    pub queued: u32,
    /// Runs that have begun.
    pub runs: u64,
    /// How often its interpreter was started anew.
    pub restarts: u64,
    once: Option<(String, [u8; 32])>,
}

/// What the server says of a context to its agent, to be told it later.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Label {
    session: Option<SessionId>,
    cwd: String,
    timeout_ms: u64,
    created_at_ms: i64,
    /// The name of the Jupyter kernel that may run it.
    #[serde(default)]
    kernel: Option<String>,
    /// What it was made to speak, where a kernel may run it.
    #[serde(default)]
    language: Option<Language>,
    /// The idempotency key that it was made with, and what it was bound to.
    #[serde(default)]
    once: Option<(String, [u8; 32])>,
}

impl Sandbox {
    /// The contexts of this sandbox, sorted by id; none of one that sleeps.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`], [`Error::Unreachable`].
    pub async fn contexts(&self) -> Result<Vec<Info>, Error> {
        match self.list_contexts().await {
            Err(_) if self.entry.state() == State::Sleeping => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn list_contexts(&self) -> Result<Vec<Info>, Error> {
        // An agent speaks for its own sessions alone.
        let scoped =
            |info: &Info| info.session.as_ref().is_some_and(|id| self.entry.sessions.scoped(id));
        let mut all = self.contexts_at(None).await?;
        all.retain(|info| !scoped(info));
        for (id, scope) in self.entry.scopes.all() {
            // One that ends meanwhile has none.
            let found = self.contexts_at(Some(&scope)).await.unwrap_or_default();
            all.extend(found.into_iter().filter(|info| info.session.as_ref() == Some(&id)));
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all.dedup_by(|a, b| a.id == b.id);
        Ok(all)
    }

    async fn contexts_at(&self, scope: Option<&Scope>) -> Result<Vec<Info>, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Context(context::ContextRequest::List)).await?;
        let mut all = Vec::new();
        loop {
            match wire.answer().await? {
                AgentResponse::Context(context::ContextResponse::Is(told))
                    if all.len() < context::CONTEXTS_MAX =>
                {
                    all.extend(info(told).ok());
                }
                AgentResponse::Done => break,
                _ => return Err(AgentError::Turn("another answer to the list of contexts").into()),
            }
        }
        self.pool_at(scope).park(wire);
        Ok(all)
    }

    /// One context.
    ///
    /// # Errors
    /// [`Error::Refused`] with `NoShell`, and those of [`Self::contexts`].
    pub async fn context(&self, id: &ContextId) -> Result<Info, Error> {
        let all = self.contexts().await?;
        all.into_iter().find(|info| info.id == *id).ok_or_else(|| none(id))
    }

    /// The agent in which a context lives: of a scope where it is one of a scoped session.
    async fn home(&self, id: &ContextId) -> Result<Option<Arc<Scope>>, Error> {
        if self.entry.scopes.all().is_empty() {
            return Ok(None);
        }
        let session = self.context(id).await?.session;
        Ok(session.and_then(|session| self.entry.scopes.get(&session)))
    }

    /// Interrupts what runs in a context; whether anything did.
    ///
    /// # Errors
    /// [`Error::Refused`] with `NoShell`, [`Error::Link`].
    pub async fn context_interrupt(&self, id: &ContextId) -> Result<bool, Error> {
        let scope = self.home(id).await?;
        let ask = context::ContextRequest::Interrupt(id.to_string());
        match self.ask_context(scope.as_deref(), ask, ANSWER_WAIT).await? {
            context::ContextResponse::Interrupted(any) => Ok(any),
            _ => Err(AgentError::Turn("another answer to an interrupt").into()),
        }
    }

    /// Ends a context's interpreter and begins with a new one; answers when that is ready.
    ///
    /// # Errors
    /// As [`Self::context_open`].
    pub async fn context_restart(&self, id: &ContextId) -> Result<Info, Error> {
        let scope = self.home(id).await?;
        let ask = context::ContextRequest::Restart(id.to_string());
        match self.ask_context(scope.as_deref(), ask, OPEN_WAIT).await? {
            context::ContextResponse::Is(told) => info(told),
            _ => Err(AgentError::Turn("another answer to a restart").into()),
        }
    }

    /// Ends a context and all that it started; nothing where there is none.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::TooLate`].
    pub async fn context_close(&self, id: &ContextId) -> Result<(), Error> {
        let closed = async {
            let scope = match self.home(id).await {
                Err(Error::Refused { why: RefusalReason::NoShell, .. }) => return Ok(()),
                found => found?,
            };
            let mut wire = self.wire(scope.as_deref()).await?;
            wire.send(&AgentRequest::Context(context::ContextRequest::Close(id.to_string())))
                .await?;
            let answer = timeout(CLOSE_WAIT, wire.next()).await;
            match answer.map_err(|_| Error::TooLate("ending the context"))?? {
                AgentEvent::Response(AgentResponse::Done) => {
                    self.pool_at(scope.as_deref()).park(wire);
                    Ok(())
                }
                _ => Err(AgentError::Turn("another answer to the end of a context").into()),
            }
        };
        match closed.await {
            // It has ended with all others, and does not come back.
            Err(_) if self.entry.state() == State::Sleeping => Ok(()),
            closed => closed,
        }
    }

    /// Ends the contexts of a session that ends.
    pub(crate) async fn close_contexts(&self, session: &SessionId) -> Result<(), Error> {
        if self.entry.sessions.scoped(session) {
            // They end with their agent.
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
        ask: context::ContextRequest,
        wait: Duration,
    ) -> Result<context::ContextResponse, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Context(ask)).await?;
        let heard = timeout(wait, wire.next()).await.map_err(|_| AgentError::Silent)??;
        match heard {
            AgentEvent::Response(AgentResponse::Context(told)) => {
                self.pool_at(scope).park(wire);
                Ok(told)
            }
            AgentEvent::Response(AgentResponse::Refused { why, message, .. }) => {
                if why == RefusalReason::NoProcess {
                    self.request_health_check();
                }
                Err(Error::Refused { why, message })
            }
            _ => Err(AgentError::Turn("another answer about a context").into()),
        }
    }

    fn pool_at<'a>(&'a self, scope: Option<&'a Scope>) -> &'a Arc<Pool> {
        scope.map_or(&self.entry.pool, |scope| &scope.pool)
    }
}

fn none(id: &ContextId) -> Error {
    Error::Refused { why: RefusalReason::NoShell, message: format!("there is no context {id}") }
}

/// What an agent says of a context, checked.
pub(crate) fn info(told: context::Context) -> Result<Info, Error> {
    let bad = || Error::from(AgentError::Turn("what it says of a context does not read"));
    let label: Label = serde_json::from_slice(&told.label).map_err(|_| bad())?;
    Ok(Info {
        id: ContextId::parse(&told.context).map_err(|_| bad())?,
        language: label.language.unwrap_or(told.language),
        kernel: label.kernel.filter(|_| told.language == Language::Jupyter),
        session: label.session,
        cwd: label.cwd,
        timeout_ms: label.timeout_ms,
        created_at_ms: label.created_at_ms,
        pid: Some(told.pid).filter(|pid| *pid > 0),
        busy: told.busy,
        queued: told.queued,
        runs: told.runs,
        restarts: told.restarts,
        once: label.once,
    })
}
