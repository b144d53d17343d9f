//! Processes in the background: programs under an id, whose logs stay. The agent has them, and so
//! they outlive the server; what is noted here is only what is told of one that a sleep or a crash
//! has ended ([`crate::live::entry::notes`]).

mod gone;

use crate::{
    agent_client::wire::{
        ANSWER_WAIT,
        AgentEvent::{self, Response as Said},
        Wire,
    },
    live::entry::{
        process_records::{ProcessRecord, life},
        scopes::Scope,
    },
    model::{
        agent_error::AgentError,
        error::Error,
        ids::ProcessId,
        info::IdempotencyKey,
        process::{ProcessInfo, ProcessSpec},
        state::State,
    },
    sandbox::Sandbox,
};
use isolet_wire::{
    process::{Log, ProcessRequest, Start},
    request::AgentRequest,
    response::{AgentResponse, RefusalReason},
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// More processes than any agent has: what a lying one tells beyond is not kept.
const LISTED_MAX: usize = 1024;
/// What of an input goes in one message, in bytes.
const INPUT_PART: usize = 64 * 1024;

/// A log that is being read.
#[derive(Debug)]
pub struct ProcessConnection {
    wire: Wire,
    log: Log,
}

impl ProcessConnection {
    /// What it is of, and where it begins.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What comes next: data, [`AgentResponse::ProcessGap`], and at last [`AgentResponse::Process`]. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn next(&mut self) -> Result<AgentEvent, AgentError> {
        self.wire.next().await
    }

    /// What has already arrived, without waiting; `None` when that is nothing.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        self.wire.try_next()
    }
}

impl Sandbox {
    /// Starts a process; `true` beside it: the same idempotency key had started it before.
    ///
    /// # Errors
    /// [`Error::Refused`] with the agent's reason (`IdInUse` for an id that is taken),
    /// [`Error::OtherBody`], [`Error::Link`], [`Error::Failed`].
    pub async fn process_start(
        &self,
        wish: ProcessSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(ProcessInfo, bool), Error> {
        let Some(once) = once else {
            let id = wish.id.clone().unwrap_or_else(ProcessId::random);
            return Ok((self.process_begin(id, wish, None).await?, false));
        };
        let id = wish.id.clone().unwrap_or_else(|| ProcessId::of_key(&once.key));
        let own = self.clone();
        // A task of its own: a caller that goes away leaves nothing half-done.
        let work = async move {
            let _turn = own.entry.process_records.turn.lock().await;
            if let Some(note) =
                own.entry.process_records.get(&id).await.filter(|note| note.of(&once.key))
            {
                if !note.same(&once) {
                    return Err(Error::OtherBody);
                }
                return Ok((own.process(&id).await?, true));
            }
            Ok((own.process_begin(id, wish, Some(once)).await?, false))
        };
        tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))?
    }

    async fn process_begin(
        &self,
        id: ProcessId,
        wish: ProcessSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<ProcessInfo, Error> {
        let (session, scope) = match &wish.session {
            Some(id) => (Some(self.session_of(id).await?), self.scope(id).await?),
            None => (None, None),
        };
        let mut env = self.env(session.as_ref());
        for (name, value) in wish.env {
            match value {
                Some(value) => env.insert(name, value),
                None => env.remove(&name),
            };
        }
        let cwd = wish.cwd.or(session.map(|session| session.cwd));
        let order = ProcessRequest::Start(Start {
            id: id.to_string(),
            session: wish.session.as_ref().map(ToString::to_string),
            what: wish.what,
            cwd: cwd.unwrap_or_else(|| self.start_dir()),
            env,
            stdin: wish.stdin,
            timeout_ms: wish.timeout_ms,
        });
        let answer = self.order(scope.as_deref(), order, ANSWER_WAIT).await;
        if let Err(Error::Refused { why: RefusalReason::NoProcess, .. }) = &answer {
            self.request_health_check();
        }
        let info = one(answer?)?;
        let directory = scope.as_ref().map_or(&self.entry.directory, |scope| &scope.directory);
        let note = ProcessRecord::new(&info, scope.is_some(), life(directory).await, once);
        self.entry.process_records.put(note).await;
        self.entry.background.started(self, &info);
        self.entry.background.seen(self, &info);
        Ok(info)
    }

    /// One process.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::Link`].
    pub async fn process(&self, id: &ProcessId) -> Result<ProcessInfo, Error> {
        match self.order_of(id, ProcessRequest::Get(id.to_string()), ANSWER_WAIT).await {
            Err(Error::ProcessLost { .. }) => self.process_lost(id).await,
            told => one(told?).map(|info| self.with_denied(info)),
        }
    }

    /// With what was refused while it ran.
    fn with_denied(&self, mut info: ProcessInfo) -> ProcessInfo {
        let end = info.process.end.as_ref().map(|end| end.at_ms);
        if !info.lost {
            info.denied = self.denied_within(info.process.started_at_ms, end);
        }
        info
    }

    /// All processes, the oldest first: those that run, those that have ended, and those that went
    /// with a sleep or a crash.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`], [`Error::Unreachable`].
    pub async fn processes(&self) -> Result<Vec<ProcessInfo>, Error> {
        let mut all = match self.list_processes(None).await {
            Err(_) if self.entry.state() == State::Sleeping => Vec::new(),
            listed => listed?,
        };
        for (_, scope) in self.entry.scopes.all() {
            // One that ends meanwhile has none.
            all.extend(self.list_processes(Some(&scope)).await.unwrap_or_default());
        }
        for note in self.entry.process_records.all().await {
            let known = all.iter().any(|info| info.id == note.id);
            if !known && self.outlived(&note).await {
                all.push(note.lost());
            }
        }
        let key = |info: &ProcessInfo| (info.process.started_at_ms, info.id.clone());
        all.sort_by_cached_key(key);
        Ok(all.into_iter().map(|info| self.with_denied(info)).collect())
    }

    async fn list_processes(&self, scope: Option<&Scope>) -> Result<Vec<ProcessInfo>, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Process(ProcessRequest::List)).await?;
        let mut all = Vec::new();
        loop {
            match wire.answer().await? {
                AgentResponse::Processes(some) if all.len() < LISTED_MAX => {
                    all.extend(some.into_iter().filter_map(ProcessInfo::told));
                }
                AgentResponse::Done => break,
                _ => return Err(AgentError::Turn("another answer to the list of processes").into()),
            }
        }
        scope.map_or(&self.entry.pool, |scope| &scope.pool).park(wire);
        Ok(all)
    }

    /// A process's log from a position on, `None` for what comes from now on; with `follow` until its
    /// end. The sandbox stays awake as long as the link is held.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::ProcessLost`], [`Error::Link`].
    pub async fn process_log(
        &self,
        id: &ProcessId,
        since: Option<u64>,
        follow: bool,
    ) -> Result<ProcessConnection, Error> {
        let awake = match self.stay() {
            Err(Error::Sleeping(_)) => return Err(self.lost_or_none(id).await),
            awake => awake?,
        };
        let scope = self.process_place(id).await?;
        let mut wire = self.wire(scope.as_deref()).await?;
        wire.awake = Some(awake);
        wire.send(&AgentRequest::Process(ProcessRequest::Follow {
            id: id.to_string(),
            since,
            follow,
        }))
        .await?;
        match wire.answer().await? {
            AgentResponse::ProcessLog(log) => Ok(ProcessConnection { wire, log }),
            AgentResponse::Refused { why: RefusalReason::NoSuchProcess, .. } => {
                Err(self.not_there(id).await)
            }
            AgentResponse::Refused { why, message, .. } => Err(Error::Refused { why, message }),
            _ => Err(AgentError::Turn("another answer to following a process").into()),
        }
    }

    /// Gives it input, and says whether more will come.
    ///
    /// # Errors
    /// [`Error::Refused`] with `QueueFull` for one that does not read, `Ended` for one that takes
    /// none; [`Error::NoProcess`], [`Error::ProcessLost`].
    pub async fn process_input(&self, id: &ProcessId, data: &[u8], eof: bool) -> Result<(), Error> {
        let mut parts = data.chunks(INPUT_PART).peekable();
        loop {
            let part = parts.next().unwrap_or_default();
            let last = parts.peek().is_none();
            let order =
                ProcessRequest::Input { id: id.to_string(), data: part.to_vec(), eof: eof && last };
            self.order_of(id, order, ANSWER_WAIT).await?;
            if last {
                return Ok(());
            }
        }
    }

    /// Sends a signal, 1 to 64, to its process group, or with `all` to everything it started.
    ///
    /// # Errors
    /// [`Error::Refused`] with `Ended`, [`Error::NoProcess`], [`Error::ProcessLost`].
    pub async fn process_signal(
        &self,
        id: &ProcessId,
        signal: i32,
        all: bool,
    ) -> Result<(), Error> {
        let order = ProcessRequest::Signal { id: id.to_string(), signal, all };
        self.order_of(id, order, ANSWER_WAIT).await.map(drop)
    }

    /// Ends it with everything it started: a signal to all, and after `grace` the end, whatever they
    /// do. Returns when nothing is left; one that has ended is no error.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::TooLate`]: it goes on being tried.
    pub async fn process_kill(
        &self,
        id: &ProcessId,
        signal: i32,
        grace: Duration,
    ) -> Result<ProcessInfo, Error> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let order = ProcessRequest::Kill { id: id.to_string(), signal, grace_ms };
        match self.order_of(id, order, ANSWER_WAIT.saturating_add(grace)).await {
            Err(Error::ProcessLost { .. }) => self.process_lost(id).await,
            told => {
                let info = one(told?)?;
                self.entry.background.seen(self, &info);
                Ok(self.with_denied(info))
            }
        }
    }

    /// Ends it at once and tells of it no more; one that is not there is no error.
    ///
    /// # Errors
    /// [`Error::TooLate`], [`Error::Link`].
    pub async fn process_forget(&self, id: &ProcessId) -> Result<(), Error> {
        match self.order_of(id, ProcessRequest::Forget(id.to_string()), ANSWER_WAIT).await {
            Ok(_) | Err(Error::ProcessLost { .. } | Error::NoProcess { .. }) => {
                self.entry.process_records.remove(id).await;
                self.entry.background.forgotten(self, id);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Which agent has it; `None`: the sandbox's own.
    async fn process_place(&self, id: &ProcessId) -> Result<Option<Arc<Scope>>, Error> {
        let Some(note) = self.entry.process_records.get(id).await.filter(|note| note.scoped) else {
            return Ok(None);
        };
        let scope = note.session.as_ref().and_then(|session| self.entry.scopes.get(session));
        scope.map(Some).ok_or_else(|| self.process_gone(id))
    }

    /// Asks the agent that has it.
    async fn order_of(
        &self,
        id: &ProcessId,
        order: ProcessRequest,
        wait: Duration,
    ) -> Result<AgentResponse, Error> {
        let ask = async {
            let scope = self.process_place(id).await?;
            self.order(scope.as_deref(), order, wait).await
        };
        match ask.await {
            Err(Error::Refused { why: RefusalReason::NoSuchProcess, .. }) => {
                Err(self.not_there(id).await)
            }
            Err(_) if self.entry.state() == State::Sleeping => Err(self.lost_or_none(id).await),
            told => told,
        }
    }

    /// One order, one answer.
    async fn order(
        &self,
        scope: Option<&Scope>,
        order: ProcessRequest,
        wait: Duration,
    ) -> Result<AgentResponse, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Process(order)).await?;
        let heard = timeout(wait, wire.next()).await;
        let told = match heard.map_err(|_| Error::TooLate("the process"))?? {
            Said(AgentResponse::Refused { why, message, .. }) => {
                Err(Error::Refused { why, message })
            }
            Said(told @ (AgentResponse::Process(_) | AgentResponse::Done)) => Ok(told),
            _ => return Err(AgentError::Turn("another answer about a process").into()),
        };
        scope.map_or(&self.entry.pool, |scope| &scope.pool).park(wire);
        told
    }
}

fn one(told: AgentResponse) -> Result<ProcessInfo, Error> {
    let AgentResponse::Process(process) = told else {
        return Err(AgentError::Turn("another answer about a process").into());
    };
    ProcessInfo::told(process).ok_or_else(|| AgentError::Turn("a process without an id").into())
}
