//! A running sandbox, to work in.

use crate::{
    Error, ExecLink, Info, Lent, LinkError, Lost, SandboxId, SessionId, SessionInfo, SessionWish,
    ShellLink, TenantId, Usage,
    awake::Awake,
    driver::{Caged, Order, blocking},
    events::{Happened, Teller},
    ids,
    info::Once,
    link,
    network::trust,
    once::row,
    registry::Entry,
    scopes::Scope,
    service::{Inner, failed},
    sessions::{Session, Sessions},
    state::State,
    wire::Wire,
    working::Working,
};
use isolet_wire::{
    ask::{self, Open, Since, What},
    tell::Why,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a private shell waits for a client that dropped, in ms.
pub const PRIVATE_LINGER_MS: u64 = 60_000;
/// Where shells, programs and relative paths begin; shells and programs elsewhere where an image says so.
pub const WORKSPACE: &str = "/workspace";
/// How long its driver may take to look at its groups and end it.
const CHECK_WAIT: Duration = Duration::from_secs(5);
/// What every shell and program finds, unless the sandbox or the session says otherwise.
const BASE_ENV: [(&str, &str); 6] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("USER", "root"),
    ("LOGNAME", "root"),
    ("SHELL", "/bin/bash"),
    ("LANG", "C.UTF-8"),
];

/// A handle; cheap to clone. What it names may end at any time: calls then say so.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) inner: Arc<Inner>,
    pub(crate) entry: Arc<Entry>,
    /// It does not fall asleep while this is held; `None` for who only looks.
    pub(crate) awake: Option<Awake>,
    /// Whose files are meant; `None`: all of them.
    pub(crate) scope: Option<Arc<Scope>>,
    /// It has failed, and its files are read.
    pub(crate) reading: bool,
}

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
    /// Start directory; [`WORKSPACE`], or the image's own, unless told.
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

/// A session that was made, as an idempotency key keeps it.
#[derive(Serialize, Deserialize)]
struct Made {
    #[serde(flatten)]
    info: SessionInfo,
    /// In which life of its sandbox; versions before have not written it.
    #[serde(default)]
    incarnation: Option<String>,
}

/// Whether an answer is about this life of a sandbox.
fn made_in(answer: &str, name: &str) -> bool {
    let made = serde_json::from_str::<Made>(answer).ok();
    made.and_then(|made| made.incarnation).is_none_or(|incarnation| incarnation == name)
}

impl Sandbox {
    pub(crate) fn new(inner: Arc<Inner>, entry: Arc<Entry>) -> Self {
        Self { inner, entry, awake: None, scope: None, reading: false }
    }

    /// One that stays awake as long as this or a link of it is held.
    pub(crate) fn held(inner: Arc<Inner>, entry: Arc<Entry>, awake: Awake) -> Self {
        Self { inner, entry, awake: Some(awake), scope: None, reading: false }
    }

    /// One that has failed: its files are read as long as this is held, and nothing else is done.
    pub(crate) fn reading(inner: Arc<Inner>, entry: Arc<Entry>, awake: Awake) -> Self {
        Self { reading: true, ..Self::held(inner, entry, awake) }
    }

    /// What its last sleep has lost, for the first who asks; `None` for everybody else.
    #[must_use]
    pub fn lost(&self) -> Option<Vec<Lost>> {
        let lost = self.entry.lost().take()?;
        // A full queue: it is written with the next change.
        let _ = self.entry.orders.try_send(Order::Told);
        Some(lost)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &SandboxId {
        &self.entry.id
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.entry.tenant
    }

    /// What is known of it now.
    #[must_use]
    pub fn info(&self) -> Info {
        self.entry.view.borrow().record.info()
    }

    /// What it uses now.
    ///
    /// # Errors
    /// [`Error::Failed`] when its groups were removed by another.
    pub async fn usage(&self) -> Result<Usage, Error> {
        let cage = Caged { config: self.inner.jail.clone(), name: self.entry.name.clone() };
        let (usage, gone) = blocking(move || {
            let cage = cage.open();
            (cage.usage(), cage.missing().is_some())
        })
        .await?;
        if gone && self.check().is_ok() {
            let _ = self.entry.orders.send(Order::Check).await;
            return Err(timeout(CHECK_WAIT, self.ended())
                .await
                .unwrap_or(Error::TooLate("the check")));
        }
        let mut usage = self.entry.view().record.usage(usage);
        if let Some(now) = self.inner.way.traffic(&self.entry).await {
            usage.network = Some(usage.network.unwrap_or_default().and(now));
        }
        Ok(usage)
    }

    /// Ends when this sandbox is no longer running; says why, as a call on it would.
    pub async fn ended(&self) -> Error {
        let mut seen = self.entry.view.subscribe();
        let _ = seen.wait_for(|view| view.record.state != State::Running).await;
        self.check().err().unwrap_or(Error::Stopping)
    }

    /// Why no work is taken any more, if so.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let view = self.entry.view.borrow();
        match view.record.state {
            State::Running => Ok(()),
            State::Failed => Err(failed(&view.record)),
            State::Unreachable => Err(Error::Unreachable(self.entry.id.clone())),
            State::Sleeping => Err(Error::Sleeping(self.entry.id.clone())),
            _ => Err(LinkError::Destroyed(self.entry.id.clone()).into()),
        }
    }

    /// Why nothing can be done in it any more, once it is being deleted.
    #[must_use]
    pub fn destroyed(&self) -> Option<LinkError> {
        self.entry.destroyed()
    }

    /// A connection to its agent, or to that of a session's scope; an idle one where there is one.
    pub(crate) async fn wire(&self, scope: Option<&Scope>) -> Result<Wire, Error> {
        self.check()?;
        let pool = scope.map_or(&self.entry.pool, |scope| &scope.pool);
        let mut wire = match pool.take() {
            Some(wire) => wire,
            None => self.connect(scope).await?,
        };
        wire.awake.clone_from(&self.awake);
        Ok(wire)
    }

    async fn connect(&self, scope: Option<&Scope>) -> Result<Wire, Error> {
        let directory = scope.map_or(&self.entry.directory, |scope| &scope.directory);
        match Wire::connect(directory).await {
            Ok(wire) => Ok(wire.owned(&self.entry)),
            // Its end may be known by now, and says more than a connection that was refused.
            Err(error) => Err(self.check().err().unwrap_or(error.into())),
        }
    }

    fn teller(&self, session: Option<Arc<str>>) -> Teller {
        let log = self.inner.events.of(&self.entry.tenant);
        let incarnation = Arc::clone(&self.entry.incarnation);
        Teller { log, sandbox: self.entry.id.clone(), incarnation, session }
    }

    /// Where shells and programs begin: where its image says, or the workspace.
    pub(crate) fn start_dir(&self) -> String {
        self.entry.view.borrow().record.body.home().to_owned()
    }

    /// The environment of what is started now.
    pub(crate) fn env(&self, session: Option<&Session>) -> BTreeMap<String, String> {
        let mut env: BTreeMap<String, String> =
            BASE_ENV.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let record = Arc::clone(&self.entry.view.borrow().record);
        if let Some(root) = &record.body.root {
            let user = &root.user;
            for (name, value) in
                [("HOME", &user.home), ("USER", &user.name), ("LOGNAME", &user.name)]
            {
                env.insert(name.to_owned(), value.clone());
            }
            env.extend(root.env.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        if record.body.lent.iter().any(Lent::within_tls) {
            env.extend(trust::env());
        }
        let own = session.iter().flat_map(|session| &session.env);
        env.extend(
            record.body.env.iter().chain(own).map(|(name, value)| (name.clone(), value.clone())),
        );
        env
    }

    /// A client of a shell.
    ///
    /// # Errors
    /// [`Error::Refused`] with the agent's reason, [`Error::Link`], [`Error::Failed`].
    pub async fn shell(&self, attach: Attach) -> Result<ShellLink, Error> {
        let (mut scope, mut restored, mut told) = (None, None, None);
        let mut life = None;
        let (shell, open) = match attach.shell {
            ShellName::Session(id) => {
                let session = self.session_of(&id).await?;
                life = Some(self.entry.sessions.life(&id));
                scope = self.scope(&id).await?;
                let restore = self.entry.kept.next(&id).await;
                let again = self.entry.scopes.again(&id, scope.as_ref());
                let save = self.entry.view.borrow().record.body.persistent;
                let open = Open {
                    env: self.env(Some(&session)),
                    cwd: session.cwd,
                    linger_ms: None,
                    save,
                    restore,
                    again: told.insert(again).lost(),
                };
                let name = format!("s/{id}");
                restored = open.restore.is_some().then_some(id);
                (name, Some(open))
            }
            ShellName::Private => {
                let open = Open {
                    cwd: self.start_dir(),
                    env: self.env(None),
                    linger_ms: Some(PRIVATE_LINGER_MS),
                    ..Open::default()
                };
                (format!("p/sh_{}", ids::random()), Some(open))
            }
            ShellName::Resume(id) => (format!("p/{id}"), None),
        };
        let attach = ask::Attach {
            shell,
            open,
            owner: attach.owner,
            watch: attach.watch,
            since: attach.since,
        };
        let session = attach.shell.strip_prefix("s/").map(Arc::from);
        let scope = scope.as_deref();
        let pool = Arc::downgrade(scope.map_or(&self.entry.pool, |scope| &scope.pool));
        let link = ShellLink::open(self.wire(scope).await?, attach, pool).await;
        if let Err(Error::Refused { why: Why::NoProcess, .. }) = &link {
            self.doubt();
        }
        let link = link?;
        if let (Some(scope), Some(again)) = (scope, told) {
            scope.opened(link.name());
            again.told();
        }
        if let Some(id) = restored {
            self.entry.kept.taken(&id);
        }
        Ok(link.of_session(life).telling(self.teller(session)))
    }

    /// A client of a session's shell for one command after the other: from the pool when one
    /// waits there. Give it back with [`ShellLink::park`].
    ///
    /// # Errors
    /// As [`Sandbox::shell`].
    pub async fn commands(&self, session: &SessionId) -> Result<ShellLink, Error> {
        self.check()?;
        if let Some(mut link) = self.entry.pool_of(session).take_shell(session) {
            link.awake(self.awake.clone());
            self.entry.sessions.touch(session);
            return Ok(link);
        }
        let shell = ShellName::Session(session.clone());
        let attach =
            Attach { shell, owner: format!("h_{}", ids::random()), watch: false, since: None };
        Ok(self.shell(attach).await?.pooled())
    }

    /// Starts a program. Its frames end with `Tell::Exit`, or `Tell::Refused` when it could not start.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::Failed`].
    pub async fn exec(&self, start: Start) -> Result<ExecLink, Error> {
        let (session, scope) = match &start.session {
            Some(id) => (Some(self.session_of(id).await?), self.scope(id).await?),
            None => (None, None),
        };
        let mut env = self.env(session.as_ref());
        for (name, value) in start.env {
            match value {
                Some(value) => env.insert(name, value),
                None => env.remove(&name),
            };
        }
        let cwd =
            start.cwd.or(session.map(|session| session.cwd)).unwrap_or_else(|| self.start_dir());
        let exec = ask::Exec {
            what: start.what,
            cwd,
            env,
            stdin: start.stdin,
            timeout_ms: start.timeout_ms,
            uid: 0,
        };
        let working =
            start.session.as_ref().map(|id| Working::begin(&self.entry, id)).transpose()?;
        let scope = scope.as_deref();
        let pool = Arc::downgrade(scope.map_or(&self.entry.pool, |scope| &scope.pool));
        let link = ExecLink::open(self.wire(scope).await?, exec, pool).await?.working(working);
        let link = link.doubting(self.entry.orders.clone());
        Ok(link.telling(self.teller(start.session.map(|id| Arc::from(id.as_str())))))
    }

    /// Ends a shell and everything it started; its session stays.
    ///
    /// # Errors
    /// [`Error::Link`], [`Error::TooLate`].
    pub async fn close(&self, shell: &ShellName) -> Result<(), Error> {
        let mut scope = None;
        let name = match shell {
            ShellName::Session(id) if self.entry.sessions.scoped(id) => {
                scope = self.entry.scopes.get(id);
                if scope.is_none() {
                    return Ok(());
                }
                format!("s/{id}")
            }
            ShellName::Session(id) => format!("s/{id}"),
            ShellName::Resume(id) => format!("p/{id}"),
            ShellName::Private => return Ok(()),
        };
        let closed = async { link::close(self.wire(scope.as_deref()).await?, name).await };
        match closed.await {
            // It has ended with all others, and does not come back.
            Err(_) if self.entry.state() == State::Sleeping => Ok(()),
            closed => closed,
        }
    }

    /// No process can be made in it: its driver is to look why. A full queue: it has enough to do.
    pub(crate) fn doubt(&self) {
        let _ = self.entry.orders.try_send(Order::Check);
    }

    /// Its sessions, sorted by id, `default` among them.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.entry.sessions.list()
    }

    /// One session.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn session(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        self.entry.sessions.info(id)
    }

    /// One session, made with defaults when it is not there.
    ///
    /// # Errors
    /// [`Error::TooManySessions`], and what the records refuse.
    pub async fn session_reach(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        self.session_of(id).await?;
        self.entry.sessions.info(id)
    }

    /// What a session's shell starts with; makes the session. One that is being deleted is waited for.
    pub(crate) async fn session_of(&self, id: &SessionId) -> Result<Session, Error> {
        if let Some(session) = self.entry.sessions.touch(id) {
            return Ok(session);
        }
        let _turn = self.entry.sessions.turn.lock().await;
        if let Some(session) = self.entry.sessions.touch(id) {
            return Ok(session);
        }
        self.check()?;
        if id.is_short() {
            // It has ended: made by being named, it would be another, without its scope and its end.
            return Err(Error::NoSession { id: self.entry.id.clone(), session: id.clone() });
        }
        self.insert(id, Sessions::plain(&self.start_dir()), None).await
    }

    /// Within a turn.
    async fn insert(
        &self,
        id: &SessionId,
        session: Session,
        once: Option<&Once>,
    ) -> Result<Session, Error> {
        self.entry.sessions.free(id)?;
        let Some(access) = &session.file_access else {
            return self.record(id, session, once).await;
        };
        self.new_scope(id, access.grants(id)?).await?;
        let recorded = self.record(id, session, once).await;
        if recorded.is_err() {
            self.entry.end_scope(&self.inner, id).await?;
        }
        recorded
    }

    async fn record(
        &self,
        id: &SessionId,
        session: Session,
        once: Option<&Once>,
    ) -> Result<Session, Error> {
        let body = session.json()?;
        let answer = match once {
            Some(once) => Some(row(&self.entry.tenant, once, self.text(id, &session)?)),
            None => None,
        };
        let record =
            isolet_store::Session { sandbox: self.entry.name.clone(), id: id.to_string(), body };
        self.inner.store.insert_session(record, answer).await?;
        self.entry.sessions.insert(id.clone(), session.clone());
        self.say(Happened::SessionCreated(id.clone()));
        Ok(session)
    }

    /// An event of this sandbox.
    pub(crate) fn say(&self, what: Happened) {
        self.inner.events.say(&self.entry, what);
    }

    fn text(&self, id: &SessionId, session: &Session) -> Result<String, Error> {
        let info = session.info(id, &self.entry.id);
        let made = Made { info, incarnation: Some(self.entry.name.clone()) };
        serde_json::to_string(&made).map_err(|error| Error::Fault(error.to_string()))
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
        let id = wish.id.clone().unwrap_or_else(SessionId::random);
        // What a scope may write is made when its agent starts.
        let named = wish.cwd.is_some() && wish.file_access.is_none();
        let cwd = wish.cwd.or_else(|| Some(self.start_dir()));
        let session = Session::plan(SessionWish { cwd, ..wish })?;
        let (own, key) = (self.clone(), once.clone());
        let work = async move {
            if named {
                own.check_directory(&session.cwd).await?;
            }
            let _turn = own.entry.sessions.turn.lock().await;
            own.check()?;
            let session = own.insert(&id, session, key.as_ref()).await?;
            own.text(&id, &session)
        };
        let (text, replayed) = match &once {
            Some(once) => {
                let (inner, name) = (&self.inner, self.entry.name.clone());
                let own = move |answer: &str| made_in(answer, &name);
                inner.onces.run_in(&inner.store, &self.entry.tenant, (once, own), work).await?
            }
            // A task of its own: a caller that goes away leaves nothing half-done.
            None => {
                (tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))??, false)
            }
        };
        Ok((serde_json::from_str(&text).map_err(|_| Error::OtherBody)?, replayed))
    }

    /// Ends a session, its shell and its terminal.
    ///
    /// # Errors
    /// [`Error::DefaultSession`], [`Error::NoSession`].
    pub async fn session_delete(&self, id: &SessionId) -> Result<(), Error> {
        if id.is_default() {
            return Err(Error::DefaultSession);
        }
        let (own, id) = (self.clone(), id.clone());
        let work = async move {
            let _turn = own.entry.sessions.turn.lock().await;
            let known = own.entry.sessions.info(&id)?;
            own.inner.store.remove_session(&own.entry.name, id.as_str()).await?;
            // From here on it is unknown; who names it again waits for the turn, and so for the
            // end of its shell.
            own.entry.sessions.remove(&known.id);
            own.say(Happened::SessionDeleted(id.clone()));
            own.entry.pool_of(&id).drop_links(Some(&id));
            own.entry.kept.forget(&id).await;
            if known.file_access.is_some() {
                own.entry.notes.forget_scope(&id).await;
                return own.entry.end_scope(&own.inner, &id).await;
            }
            own.close_session(&id).await
        };
        tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))?
    }

    /// How much of the disk is free.
    pub(crate) fn space(&self) -> &Arc<crate::space::Space> {
        &self.inner.space
    }

    /// A fresh connection for one file call: it ends with the call, so that none from the pool is spent.
    pub(crate) async fn file_wire(&self, reads: bool) -> Result<Wire, Error> {
        let failed = self.entry.state() == State::Failed;
        if !(self.reading && reads && failed) {
            self.check()?;
        }
        let mut wire = self.connect(self.scope.as_deref()).await?;
        wire.awake.clone_from(&self.awake);
        Ok(wire)
    }
}
