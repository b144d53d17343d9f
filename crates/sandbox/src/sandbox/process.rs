//! Background processes: programs with an id and a log. The agent holds them, so they survive a
//! restart of the server. The server records only what is needed to describe a process after a
//! sleep or a crash ([`crate::live::entry::process_records`]).

mod gone;

use crate::agent_client::metering::count_output;
use crate::agent_client::wire::AgentEvent::{self, Response as Said};
use crate::agent_client::wire::{ANSWER_WAIT, Wire};
use crate::live::entry::process_records::{ProcessRecord, life};
use crate::live::entry::running_scopes::Scope;
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use crate::model::ids::ProcessId;
use crate::model::info::IdempotencyKey;
use crate::model::input::WorkingDirectory;
use crate::model::process::{ProcessInfo, ProcessSpec};
use crate::model::state::State;
use crate::sandbox::Sandbox;
use isolet_metrics::Meter;
use isolet_wire::process::{FollowMode, ProcessLogStart, ProcessRequest, StartProcess};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, RefusalReason};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of processes in a list, above what any honest agent has.
const LISTED_MAX: usize = 1024;
/// Maximum size of one input message, in bytes.
const INPUT_PART: usize = 64 * 1024;

/// A connection that reads the log of a process.
#[derive(Debug)]
pub struct ProcessConnection {
    wire: Wire,
    log: ProcessLogStart,
    meter: Arc<Meter>,
}

impl ProcessConnection {
    /// The status of the process and the first position.
    #[must_use]
    pub fn log(&self) -> &ProcessLogStart {
        &self.log
    }

    /// Waits for the next event: data, [`AgentResponse::ProcessGap`], and finally
    /// [`AgentResponse::Process`]. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn next(&mut self) -> Result<AgentEvent, AgentError> {
        let event = self.wire.next().await?;
        count_output(&self.meter, &event);
        Ok(event)
    }

    /// Returns an event that has already arrived, without waiting.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        let event = self.wire.try_next()?;
        event.iter().for_each(|event| count_output(&self.meter, event));
        Ok(event)
    }
}

impl Sandbox {
    /// Starts a process. Returns its description, and `true` if the same idempotency key had
    /// started it before.
    ///
    /// # Errors
    /// [`Error::Refused`] with the agent's reason (`IdInUse` for an id in use),
    /// [`Error::OtherBody`], [`Error::Link`], [`Error::Failed`].
    pub async fn process_start(
        &self,
        spec: ProcessSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(ProcessInfo, bool), Error> {
        let Some(once) = once else {
            let id = spec.id.clone().unwrap_or_else(ProcessId::random);
            return Ok((self.process_begin(id, spec, None).await?, false));
        };
        let id = spec.id.clone().unwrap_or_else(|| ProcessId::of_key(&once.key));
        let own = self.clone();
        // Runs as a task of its own, so that a caller that disconnects leaves nothing unfinished.
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
            Ok((own.process_begin(id, spec, Some(once)).await?, false))
        };
        tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))?
    }

    async fn process_begin(
        &self,
        id: ProcessId,
        spec: ProcessSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<ProcessInfo, Error> {
        let (info, scope) = self.launch(id, spec).await?;
        self.note_started(&info, scope.as_deref(), once).await;
        Ok(info)
    }

    /// Starts a process and follows its output from the beginning. Misses none of it while the
    /// connection is read at least once a minute.
    ///
    /// # Errors
    /// Those of [`Sandbox::process_start`].
    pub async fn process_run(
        &self,
        spec: ProcessSpec,
    ) -> Result<(ProcessInfo, ProcessConnection), Error> {
        let id = spec.id.clone().unwrap_or_else(ProcessId::random);
        let (info, scope) = self.launch(id, spec).await?;
        // Before the record is written, so that little output accumulates.
        let connection = self.follow_patiently(&info.id, scope.as_deref(), Some(0)).await;
        self.note_started(&info, scope.as_deref(), None).await;
        Ok((info, connection?))
    }

    /// Follows a process as [`Sandbox::process_run`] does, from a position on (`None` means only new
    /// output).
    ///
    /// # Errors
    /// Those of [`Sandbox::process_log`].
    pub async fn process_follow(
        &self,
        id: &ProcessId,
        since: Option<u64>,
    ) -> Result<ProcessConnection, Error> {
        let scope = self.process_place(id).await?;
        self.follow_patiently(id, scope.as_deref(), since).await
    }

    async fn follow_patiently(
        &self,
        id: &ProcessId,
        scope: Option<&Scope>,
        since: Option<u64>,
    ) -> Result<ProcessConnection, Error> {
        let mode = FollowMode::Patient;
        let request = ProcessRequest::Follow { id: id.to_string(), since, mode };
        self.open_log(id, scope, request).await
    }

    /// Asks the agent to start a process. Also returns the scope in which it runs.
    async fn launch(
        &self,
        id: ProcessId,
        spec: ProcessSpec,
    ) -> Result<(ProcessInfo, Option<Arc<Scope>>), Error> {
        let (session, scope) = match &spec.session {
            Some(id) => (Some(self.session_of(id).await?), self.scope(id).await?),
            None => (None, None),
        };
        let mut env = self.env(session.as_ref());
        spec.env.apply(&mut env);
        let cwd = spec.cwd.map(WorkingDirectory::into_inner);
        let cwd = cwd.or(session.map(|session| session.cwd));
        let request = ProcessRequest::Start(StartProcess {
            id: id.to_string(),
            session: spec.session.as_ref().map(ToString::to_string),
            program: spec.program.into(),
            cwd: cwd.unwrap_or_else(|| self.start_dir()),
            env,
            stdin: spec.stdin,
            timeout_ms: spec.timeout_ms,
        });
        let answer = self.request(scope.as_deref(), request, ANSWER_WAIT).await;
        if let Err(Error::Refused { reason: RefusalReason::NoProcess, .. }) = &answer {
            self.request_health_check();
        }
        Ok((one(answer?)?, scope))
    }

    /// Records a process that was started.
    async fn note_started(
        &self,
        info: &ProcessInfo,
        scope: Option<&Scope>,
        once: Option<IdempotencyKey>,
    ) {
        let directory = scope.map_or(&self.entry.directory, |scope| &scope.directory);
        let note = ProcessRecord::new(info, scope.is_some(), life(directory).await, once);
        self.entry.process_records.put(note).await;
        self.entry.background.started(self, info);
        self.entry.background.seen(self, info);
    }

    /// The description of one process.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::Link`].
    pub async fn process(&self, id: &ProcessId) -> Result<ProcessInfo, Error> {
        match self.order_of(id, ProcessRequest::Get(id.to_string()), ANSWER_WAIT).await {
            Err(Error::ProcessLost { .. }) => self.process_lost(id).await,
            response => one(response?).map(|info| self.with_denied(info)),
        }
    }

    /// Adds the network denials during the process.
    fn with_denied(&self, mut info: ProcessInfo) -> ProcessInfo {
        let end = info.process.end.as_ref().map(|end| end.at_ms);
        if !info.lost {
            info.denied = self.denied_within(info.process.started_at_ms, end);
        }
        info
    }

    /// All processes, the oldest first: running ones, ended ones, and those that were lost with a
    /// sleep or a crash.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`], [`Error::Unreachable`].
    pub async fn processes(&self) -> Result<Vec<ProcessInfo>, Error> {
        let mut all = match self.list_processes(None).await {
            Err(_) if self.entry.state() == State::Sleeping => Vec::new(),
            listed => listed?,
        };
        for (_, scope) in self.entry.scopes.all() {
            // A scope that ends in the meantime has no processes.
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
                    all.extend(some.into_iter().filter_map(ProcessInfo::from_status));
                }
                AgentResponse::Done => break,
                _ => {
                    return Err(
                        AgentError::Turn("unexpected answer to the list of processes").into()
                    );
                }
            }
        }
        scope.map_or(&self.entry.pool, |scope| &scope.pool).park(wire);
        Ok(all)
    }

    /// Opens a process's log at a position (`None` means only new output), with `follow` until the
    /// process ends. The connection keeps the sandbox awake.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::ProcessLost`], [`Error::Link`].
    pub async fn process_log(
        &self,
        id: &ProcessId,
        since: Option<u64>,
        follow: bool,
    ) -> Result<ProcessConnection, Error> {
        let scope = self.process_place(id).await?;
        let mode = if follow { FollowMode::Live } else { FollowMode::Current };
        let request = ProcessRequest::Follow { id: id.to_string(), since, mode };
        self.open_log(id, scope.as_deref(), request).await
    }

    /// Sends a request to follow a process.
    async fn open_log(
        &self,
        id: &ProcessId,
        scope: Option<&Scope>,
        request: ProcessRequest,
    ) -> Result<ProcessConnection, Error> {
        let awake = match self.stay() {
            Err(Error::Sleeping(_)) => return Err(self.lost_or_none(id).await),
            awake => awake?,
        };
        let mut wire = self.wire(scope).await?;
        wire.awake = Some(awake);
        wire.send(&AgentRequest::Process(request)).await?;
        match wire.answer().await? {
            AgentResponse::ProcessLog(log) => {
                let meter = Arc::clone(&self.entry.meter);
                Ok(ProcessConnection { wire, log, meter })
            }
            AgentResponse::Refused { reason: RefusalReason::NoSuchProcess, .. } => {
                Err(self.not_there(id).await)
            }
            AgentResponse::Refused { reason, message, .. } => {
                Err(Error::Refused { reason, message })
            }
            _ => Err(AgentError::Turn("unexpected answer to following a process").into()),
        }
    }

    /// Writes to a process's standard input and optionally closes it.
    ///
    /// # Errors
    /// [`Error::Refused`] with `QueueFull` if the process does not read, or `Ended` if it accepts
    /// no input; [`Error::NoProcess`], [`Error::ProcessLost`].
    pub async fn process_input(&self, id: &ProcessId, data: &[u8], eof: bool) -> Result<(), Error> {
        let mut parts = data.chunks(INPUT_PART).peekable();
        loop {
            let part = parts.next().unwrap_or_default();
            let last = parts.peek().is_none();
            let request =
                ProcessRequest::Input { id: id.to_string(), data: part.to_vec(), eof: eof && last };
            self.order_of(id, request, ANSWER_WAIT).await?;
            if last {
                return Ok(());
            }
        }
    }

    /// Sends a signal, 1 to 64, to the process group or, with `all`, to all descendants.
    ///
    /// # Errors
    /// [`Error::Refused`] with `Ended`, [`Error::NoProcess`], [`Error::ProcessLost`].
    pub async fn process_signal(
        &self,
        id: &ProcessId,
        signal: i32,
        all: bool,
    ) -> Result<(), Error> {
        let request = ProcessRequest::Signal { id: id.to_string(), signal, all };
        self.order_of(id, request, ANSWER_WAIT).await.map(drop)
    }

    /// Ends a process and everything that it started, first with a signal and after `grace` with
    /// SIGKILL. Returns when nothing is left. A process that has already ended is no error.
    ///
    /// # Errors
    /// [`Error::NoProcess`], or [`Error::TooLate`], in which case the agent keeps trying.
    pub async fn process_kill(
        &self,
        id: &ProcessId,
        signal: i32,
        grace: Duration,
    ) -> Result<ProcessInfo, Error> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let request = ProcessRequest::Kill { id: id.to_string(), signal, grace_ms };
        match self.order_of(id, request, ANSWER_WAIT.saturating_add(grace)).await {
            Err(Error::ProcessLost { .. }) => self.process_lost(id).await,
            response => {
                let info = one(response?)?;
                self.entry.background.seen(self, &info);
                Ok(self.with_denied(info))
            }
        }
    }

    /// Kills a process and drops its log. A missing process is no error.
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

    /// The scope whose agent holds the process; `None` means the sandbox's own agent.
    async fn process_place(&self, id: &ProcessId) -> Result<Option<Arc<Scope>>, Error> {
        let Some(note) = self.entry.process_records.get(id).await.filter(|note| note.scoped) else {
            return Ok(None);
        };
        let scope = note.session.as_ref().and_then(|session| self.entry.scopes.get(session));
        scope.map(Some).ok_or_else(|| self.process_gone(id))
    }

    /// Sends a request to the agent that holds the process.
    async fn order_of(
        &self,
        id: &ProcessId,
        request: ProcessRequest,
        wait: Duration,
    ) -> Result<AgentResponse, Error> {
        let request = async {
            let scope = self.process_place(id).await?;
            self.request(scope.as_deref(), request, wait).await
        };
        match request.await {
            Err(Error::Refused { reason: RefusalReason::NoSuchProcess, .. }) => {
                Err(self.not_there(id).await)
            }
            Err(_) if self.entry.state() == State::Sleeping => Err(self.lost_or_none(id).await),
            response => response,
        }
    }

    /// Sends one request and waits for its answer.
    async fn request(
        &self,
        scope: Option<&Scope>,
        request: ProcessRequest,
        wait: Duration,
    ) -> Result<AgentResponse, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&AgentRequest::Process(request)).await?;
        let event = wire.next_within(wait).await;
        let response = match event.map_err(|_| Error::TooLate("the process"))?? {
            Said(AgentResponse::Refused { reason, message, .. }) => {
                Err(Error::Refused { reason, message })
            }
            Said(response @ (AgentResponse::Process(_) | AgentResponse::Done)) => Ok(response),
            _ => return Err(AgentError::Turn("unexpected answer about a process").into()),
        };
        scope.map_or(&self.entry.pool, |scope| &scope.pool).park(wire);
        response
    }
}

fn one(response: AgentResponse) -> Result<ProcessInfo, Error> {
    let AgentResponse::Process(process) = response else {
        return Err(AgentError::Turn("unexpected answer about a process").into());
    };
    ProcessInfo::from_status(process)
        .ok_or_else(|| AgentError::Turn("a process without an id").into())
}
