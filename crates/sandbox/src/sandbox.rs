//! A running sandbox, to work in.

mod background;
pub mod contexts;
mod denials;
mod directory;
pub mod files;
pub(crate) mod port;
pub(crate) mod process;
mod recorder;
pub mod recordings;
mod scopes;
pub(crate) mod sessions;
mod shells;
pub mod terminal;

pub use denials::Denials;
pub use shells::{Attach, PRIVATE_LINGER_MS, ShellName, Start};

use crate::{
    agent_client::{trust, wire::Wire},
    live::{
        cgroup_control::CgroupControl,
        entry::{Entry, scopes::Scope},
        inner::Inner,
    },
    model::{
        activity::ActivityGuard,
        agent_error::AgentError,
        blocking::blocking,
        command::DriverCommand,
        error::Error,
        events::{EventEmitter, Happened},
        ids::{SandboxId, TenantId},
        info::{Info, Lost, Usage},
        network::lent::InjectedCredential,
        record::failed,
        sessions::Session,
        state::State,
    },
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::timeout;
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
    pub(crate) awake: Option<ActivityGuard>,
    /// Whose files are meant; `None`: all of them.
    pub(crate) scope: Option<Arc<Scope>>,
    /// It has failed, and its files are read.
    pub(crate) reading: bool,
}

impl Sandbox {
    pub(crate) fn new(inner: Arc<Inner>, entry: Arc<Entry>) -> Self {
        Self { inner, entry, awake: None, scope: None, reading: false }
    }

    /// One that stays awake as long as this or a link of it is held.
    pub(crate) fn held(inner: Arc<Inner>, entry: Arc<Entry>, awake: ActivityGuard) -> Self {
        Self { inner, entry, awake: Some(awake), scope: None, reading: false }
    }

    /// One that has failed: its files are read as long as this is held, and nothing else is done.
    pub(crate) fn reading(inner: Arc<Inner>, entry: Arc<Entry>, awake: ActivityGuard) -> Self {
        Self { reading: true, ..Self::held(inner, entry, awake) }
    }

    /// What its last sleep has lost, for the first who asks; `None` for everybody else.
    #[must_use]
    pub fn lost(&self) -> Option<Vec<Lost>> {
        let lost = self.entry.lost().take()?;
        // A full queue: it is written with the next change.
        let _ = self.entry.orders.try_send(DriverCommand::LossReported);
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
        let cage = CgroupControl { config: self.inner.jail.clone(), name: self.entry.name.clone() };
        let (usage, gone) = blocking(move || {
            let cage = cage.open();
            (cage.usage(), cage.missing_cgroup().is_some())
        })
        .await?;
        if gone && self.check().is_ok() {
            let _ = self.entry.orders.send(DriverCommand::Check).await;
            return Err(timeout(CHECK_WAIT, self.ended())
                .await
                .unwrap_or(Error::TooLate("the check")));
        }
        let mut usage = self.entry.view().record.usage(usage);
        if let Some(now) = self.inner.egress.traffic(&self.entry).await {
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
            _ => Err(AgentError::Destroyed(self.entry.id.clone()).into()),
        }
    }

    /// Why nothing can be done in it any more, once it is being deleted.
    #[must_use]
    pub fn destroyed(&self) -> Option<AgentError> {
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
            Ok(wire) => Ok(wire.owned(self.entry.view.subscribe())),
            // Its end may be known by now, and says more than a connection that was refused.
            Err(error) => Err(self.check().err().unwrap_or(error.into())),
        }
    }

    fn teller(&self, session: Option<Arc<str>>) -> EventEmitter {
        let log = self.inner.events.of(&self.entry.tenant);
        let incarnation = Arc::clone(&self.entry.incarnation);
        EventEmitter { log, sandbox: self.entry.id.clone(), incarnation, session }
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
        if record.body.lent.iter().any(InjectedCredential::within_tls) {
            env.extend(trust::env());
        }
        let own = session.iter().flat_map(|session| &session.env);
        env.extend(
            record.body.env.iter().chain(own).map(|(name, value)| (name.clone(), value.clone())),
        );
        env
    }

    /// No process can be made in it: its driver is to look why. A full queue: it has enough to do.
    pub(crate) fn request_health_check(&self) {
        let _ = self.entry.orders.try_send(DriverCommand::Check);
    }

    /// An event of this sandbox.
    pub(crate) fn say(&self, what: Happened) {
        self.inner.events.say(&self.entry, what);
    }

    /// How much of the disk is free.
    pub(crate) fn space(&self) -> &Arc<crate::live::space::Space> {
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
