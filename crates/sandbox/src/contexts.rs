//! Code contexts: interpreters that keep their variables, and what runs in them.
//!
//! A context lives in its agent, and all that is known of it there; this server keeps nothing, and
//! so finds it again. One of a session with a scope lives in the agent of that. What its driver
//! says is the tenant's own words: it is read within bounds, and what does not read is counted.

use crate::{
    ContextId, Error, Heard, LinkError, Sandbox, SessionId,
    pool::Pool,
    record::{check_env, now_ms},
    scopes::Scope,
    state::State,
    wire::{ANSWER_WAIT, Wire},
};
use isolet_wire::{
    ask::Ask,
    context::{self, DISPLAY, Language, TIMEOUT_MS_MAX},
    frame::Data,
    tell::{Tell, Why},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::timeout;

/// How long a run may take where nobody says, in ms.
pub const TIMEOUT_MS: u64 = 60_000;
/// The longest thing that a driver may say at once, in bytes of JSON; what is longer is counted.
pub const SAID_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long an interpreter may take until it answers: a little longer than its agent gives it.
const OPEN_WAIT: Duration = Duration::from_secs(45);
/// How long the end of one may take.
const CLOSE_WAIT: Duration = Duration::from_secs(20);

/// What a client wants a context to be.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Its id; the server makes one otherwise.
    pub id: Option<ContextId>,
    /// What it speaks.
    pub language: Language,
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
}

/// What the server says of a context to its agent, to be told it later.
#[derive(Debug, Serialize, Deserialize)]
struct Label {
    session: Option<SessionId>,
    cwd: String,
    timeout_ms: u64,
    created_at_ms: i64,
}

/// Code to run.
#[derive(Debug, Clone)]
pub struct Code {
    /// Its text.
    pub code: String,
    /// What `input()` and its like read; nothing otherwise.
    pub stdin: Option<String>,
    /// Interrupted after so many ms; as the context has it unless told.
    pub timeout_ms: Option<u64>,
}

/// What came of a run.
#[derive(Debug)]
pub enum Event {
    /// It begins; `true`: in an interpreter that replaced one that had ended.
    Began(bool),
    /// Output: stream number, offset within the run, bytes.
    Output(Data),
    /// Something to show.
    Shown(Shown),
    /// The error that ended it.
    Fault(Fault),
    /// The driver said what is too long or cannot be read.
    Unread,
    /// It is over.
    End(context::End),
}

/// Something to show, by its kinds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shown {
    /// `result`: the value of the last expression; `display`: what the code has shown.
    pub kind: String,
    /// By media type: text as it is, JSON as JSON, bytes in base64.
    pub data: Map<String, Value>,
    /// What its maker says of it.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// By media type, how large what was left out is; only where something was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cut: BTreeMap<String, u64>,
}

/// The error that ended a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    /// Its class.
    pub name: String,
    /// What it says.
    pub message: String,
    /// Where it came from, line by line.
    pub traceback: Vec<String>,
}

/// One run, until its end.
#[derive(Debug)]
pub struct RunLink {
    wire: Wire,
    over: bool,
    pool: Weak<Pool>,
    said: Vec<u8>,
    long: bool,
}

impl RunLink {
    /// What comes next; [`Event::End`] is the last. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Refused`] where it was not begun, [`Error::Link`].
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            let heard = self.wire.next().await?;
            if let Some(event) = self.event(heard)? {
                return Ok(event);
            }
        }
    }

    /// What has already arrived; `None` when that is nothing.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn ready(&mut self) -> Result<Option<Event>, Error> {
        while let Some(heard) = self.wire.try_next()? {
            if let Some(event) = self.event(heard)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// It is not wanted any more: interrupted, or taken out of the queue.
    ///
    /// # Errors
    /// [`Error::Link`].
    pub fn cancel(&mut self) -> Result<(), Error> {
        Ok(self.wire.push(&Ask::Cancel { id: String::new() })?)
    }

    /// Gives the connection back after its end. Dropping it before that leaves the run alone; one
    /// that has not begun is not begun then.
    pub fn park(self) {
        if let (true, Some(pool)) = (self.over, self.pool.upgrade()) {
            pool.park(self.wire);
        }
    }

    fn event(&mut self, heard: Heard) -> Result<Option<Event>, Error> {
        let told = match heard {
            Heard::Data(body) => {
                return Ok(Some(Event::Output(Data::parse(body).map_err(LinkError::from)?)));
            }
            Heard::Tell(Tell::Context(told)) => told,
            Heard::Tell(Tell::Refused { why, message, .. }) => {
                return Err(Error::Refused { why, message });
            }
            Heard::Tell(_) => return Err(LinkError::Turn("another answer to a run").into()),
        };
        Ok(match told {
            context::Tell::Began { fresh } => Some(Event::Began(fresh)),
            context::Tell::Part { kind, bytes, last } => self.part(kind, &bytes, last),
            context::Tell::End(end) => {
                self.over = true;
                Some(Event::End(end))
            }
            _ => return Err(LinkError::Turn("another answer to a run").into()),
        })
    }

    fn part(&mut self, kind: u8, bytes: &[u8], last: bool) -> Option<Event> {
        self.long |= self.said.len() + bytes.len() > SAID_BYTES_MAX;
        if self.long {
            self.said = Vec::new();
        } else {
            self.said.extend_from_slice(bytes);
        }
        if !last {
            return None;
        }
        let (said, long) = (std::mem::take(&mut self.said), std::mem::take(&mut self.long));
        let read = match kind {
            _ if long => None,
            DISPLAY => serde_json::from_slice(&said).ok().map(Event::Shown),
            _ => serde_json::from_slice(&said).ok().map(Event::Fault),
        };
        Some(read.unwrap_or(Event::Unread))
    }
}

impl Sandbox {
    /// Makes a context; answers when its interpreter is ready.
    ///
    /// # Errors
    /// [`Error::Refused`]: `Exists`, `Unable` where the image has no interpreter, `BadCwd`,
    /// `TooMany`; [`Error::BadField`], [`Error::Link`].
    pub async fn context_open(&self, wish: Wish, reuse: bool) -> Result<Info, Error> {
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
        check_env(env.iter().map(|(name, value)| (name, value.as_str())))?;
        let own = session.map(|session| session.cwd);
        let cwd = wish.cwd.or(own).unwrap_or_else(|| crate::sandbox::WORKSPACE.to_owned());
        let timeout_ms = match wish.timeout_ms.unwrap_or(TIMEOUT_MS) {
            0 => TIMEOUT_MS_MAX,
            ms => ms.min(TIMEOUT_MS_MAX),
        };
        let label =
            Label { session: wish.session, cwd: cwd.clone(), timeout_ms, created_at_ms: now_ms() };
        let label = serde_json::to_vec(&label).map_err(|error| Error::Fault(error.to_string()))?;
        let id = wish.id.unwrap_or_else(ContextId::random);
        if let Ok(found) = self.context(&id).await {
            if reuse {
                return Ok(found);
            }
            let message = format!("context {id} exists");
            return Err(Error::Refused { why: Why::Exists, message });
        }
        let (context, language) = (id.into(), wish.language);
        let open = context::Open { context, language, cwd, env, timeout_ms, label, reuse };
        let answer = self.ask_context(scope.as_deref(), context::Ask::Open(open), OPEN_WAIT);
        match answer.await? {
            context::Tell::Is(told) => info(told),
            _ => Err(LinkError::Turn("another answer to a new context").into()),
        }
    }

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
        wire.send(&Ask::Context(context::Ask::List)).await?;
        let mut all = Vec::new();
        loop {
            match wire.answer().await? {
                Tell::Context(context::Tell::Is(told)) if all.len() < context::CONTEXTS_MAX => {
                    all.extend(info(told).ok());
                }
                Tell::Done => break,
                _ => return Err(LinkError::Turn("another answer to the list of contexts").into()),
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

    /// Runs code in a context.
    ///
    /// # Errors
    /// [`Error::Link`]; a refusal is the first thing that the link says.
    pub async fn context_run(&self, id: &ContextId, code: Code) -> Result<RunLink, Error> {
        let body = serde_json::json!({"code": code.code, "stdin": code.stdin});
        let timeout_ms = match code.timeout_ms {
            Some(0) => TIMEOUT_MS_MAX,
            Some(ms) => ms.min(TIMEOUT_MS_MAX),
            None => 0,
        };
        let context = id.to_string();
        let run = context::Run { context, body: body.to_string().into_bytes(), timeout_ms };
        let scope = self.home(id).await?;
        let mut wire = self.wire(scope.as_deref()).await?;
        wire.send(&Ask::Context(context::Ask::Run(run))).await?;
        let pool = Arc::downgrade(self.pool_at(scope.as_deref()));
        Ok(RunLink { wire, over: false, pool, said: Vec::new(), long: false })
    }

    /// Interrupts what runs in a context; whether anything did.
    ///
    /// # Errors
    /// [`Error::Refused`] with `NoShell`, [`Error::Link`].
    pub async fn context_interrupt(&self, id: &ContextId) -> Result<bool, Error> {
        let scope = self.home(id).await?;
        let ask = context::Ask::Interrupt(id.to_string());
        match self.ask_context(scope.as_deref(), ask, ANSWER_WAIT).await? {
            context::Tell::Interrupted(any) => Ok(any),
            _ => Err(LinkError::Turn("another answer to an interrupt").into()),
        }
    }

    /// Ends a context's interpreter and begins with a new one; answers when that is ready.
    ///
    /// # Errors
    /// As [`Self::context_open`].
    pub async fn context_restart(&self, id: &ContextId) -> Result<Info, Error> {
        let scope = self.home(id).await?;
        let ask = context::Ask::Restart(id.to_string());
        match self.ask_context(scope.as_deref(), ask, OPEN_WAIT).await? {
            context::Tell::Is(told) => info(told),
            _ => Err(LinkError::Turn("another answer to a restart").into()),
        }
    }

    /// Ends a context and all that it started; nothing where there is none.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::TooLate`].
    pub async fn context_close(&self, id: &ContextId) -> Result<(), Error> {
        let closed = async {
            let scope = match self.home(id).await {
                Err(Error::Refused { why: Why::NoShell, .. }) => return Ok(()),
                found => found?,
            };
            let mut wire = self.wire(scope.as_deref()).await?;
            wire.send(&Ask::Context(context::Ask::Close(id.to_string()))).await?;
            let answer = timeout(CLOSE_WAIT, wire.next()).await;
            match answer.map_err(|_| Error::TooLate("ending the context"))?? {
                Heard::Tell(Tell::Done) => {
                    self.pool_at(scope.as_deref()).park(wire);
                    Ok(())
                }
                _ => Err(LinkError::Turn("another answer to the end of a context").into()),
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
        ask: context::Ask,
        wait: Duration,
    ) -> Result<context::Tell, Error> {
        let mut wire = self.wire(scope).await?;
        wire.send(&Ask::Context(ask)).await?;
        let heard = timeout(wait, wire.next()).await.map_err(|_| LinkError::Silent)??;
        match heard {
            Heard::Tell(Tell::Context(told)) => {
                self.pool_at(scope).park(wire);
                Ok(told)
            }
            Heard::Tell(Tell::Refused { why, message, .. }) => {
                if why == Why::NoProcess {
                    self.doubt();
                }
                Err(Error::Refused { why, message })
            }
            _ => Err(LinkError::Turn("another answer about a context").into()),
        }
    }

    fn pool_at<'a>(&'a self, scope: Option<&'a Scope>) -> &'a Arc<Pool> {
        scope.map_or(&self.entry.pool, |scope| &scope.pool)
    }
}

fn none(id: &ContextId) -> Error {
    Error::Refused { why: Why::NoShell, message: format!("there is no context {id}") }
}

/// What an agent says of a context, checked.
fn info(told: context::Context) -> Result<Info, Error> {
    let bad = || Error::from(LinkError::Turn("what it says of a context does not read"));
    let label: Label = serde_json::from_slice(&told.label).map_err(|_| bad())?;
    Ok(Info {
        id: ContextId::parse(&told.context).map_err(|_| bad())?,
        language: told.language,
        session: label.session,
        cwd: label.cwd,
        timeout_ms: label.timeout_ms,
        created_at_ms: label.created_at_ms,
        pid: Some(told.pid).filter(|pid| *pid > 0),
        busy: told.busy,
        queued: told.queued,
        runs: told.runs,
        restarts: told.restarts,
    })
}
