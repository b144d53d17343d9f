//! A handle for work in a running sandbox.

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
pub use shells::{PRIVATE_LINGER_MS, ProgramSpec, ShellClientOptions, ShellName};

use crate::agent_client::ca_bundle;
use crate::agent_client::wire::Wire;
use crate::live::cgroup_control::CgroupControl;
use crate::live::disk_quota::TenantSpace;
use crate::live::entry::SandboxEntry;
use crate::live::entry::running_scopes::Scope;
use crate::live::inner::Inner;
use crate::model::activity::ActivityGuard;
use crate::model::agent_error::AgentError;
use crate::model::blocking::blocking;
use crate::model::command::DriverCommand;
use crate::model::error::Error;
use crate::model::events::{EventEmitter, EventKind};
use crate::model::ids::{SandboxId, TenantId};
use crate::model::info::{Lost, SandboxInfo, Usage};
use crate::model::network::injected_credential::InjectedCredential;
use crate::model::record::{View, failed};
use crate::model::sessions::Session;
use crate::model::state::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
/// How long the driver may take to check the cgroups.
const CHECK_WAIT: Duration = Duration::from_secs(5);
/// Default environment of every shell and program.
const BASE_ENV: [(&str, &str); 6] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("USER", "root"),
    ("LOGNAME", "root"),
    ("SHELL", "/bin/bash"),
    ("LANG", "C.UTF-8"),
];

/// A handle to a sandbox, cheap to clone. The sandbox may end at any time, and calls then return an
/// error.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) inner: Arc<Inner>,
    pub(crate) entry: Arc<SandboxEntry>,
    /// Keeps the sandbox awake; `None` for a read-only handle.
    pub(crate) awake: Option<ActivityGuard>,
    /// The scope whose files are used; `None` means all files.
    pub(crate) scope: Option<Arc<Scope>>,
    /// The sandbox has failed, and the handle may only read its files.
    pub(crate) reading: bool,
}

impl Sandbox {
    pub(crate) fn new(inner: Arc<Inner>, entry: Arc<SandboxEntry>) -> Self {
        Self { inner, entry, awake: None, scope: None, reading: false }
    }

    /// A handle that keeps the sandbox awake.
    pub(crate) fn held(inner: Arc<Inner>, entry: Arc<SandboxEntry>, awake: ActivityGuard) -> Self {
        Self { inner, entry, awake: Some(awake), scope: None, reading: false }
    }

    /// A handle that may only read the files of a failed sandbox.
    pub(crate) fn reading(
        inner: Arc<Inner>,
        entry: Arc<SandboxEntry>,
        awake: ActivityGuard,
    ) -> Self {
        Self { reading: true, ..Self::held(inner, entry, awake) }
    }

    /// Takes what the last sleep lost. Only the first caller receives it.
    #[must_use]
    pub fn lost(&self) -> Option<Vec<Lost>> {
        let lost = self.entry.lost().take()?;
        // If the queue is full, the next change writes it.
        let _ = self.entry.commands.try_send(DriverCommand::LossReported);
        Some(lost)
    }

    /// The id of the sandbox.
    #[must_use]
    pub fn id(&self) -> &SandboxId {
        &self.entry.id
    }

    /// The tenant that owns the sandbox.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.entry.tenant
    }

    /// The current description of the sandbox.
    #[must_use]
    pub fn info(&self) -> SandboxInfo {
        self.entry.view.borrow().record.info()
    }

    /// The current resource usage.
    ///
    /// # Errors
    /// [`Error::Failed`] if another program removed the cgroups.
    pub async fn usage(&self) -> Result<Usage, Error> {
        let handle =
            CgroupControl { config: self.inner.jail.clone(), name: self.entry.name.clone() };
        let (usage, gone) = blocking(move || {
            let handle = handle.open();
            (handle.usage(), handle.missing_cgroup().is_some())
        })
        .await?;
        if gone && self.check().is_ok() {
            let _ = self.entry.commands.send(DriverCommand::Check).await;
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

    /// Waits until the sandbox no longer runs, and returns the error that calls get from then on.
    pub async fn ended(&self) -> Error {
        let mut seen = self.entry.view.subscribe();
        let ended = |view: &View| !matches!(view.record.state, State::Running | State::Paused);
        let _ = seen.wait_for(ended).await;
        self.check().err().unwrap_or(Error::Stopping)
    }

    /// Checks that the sandbox accepts work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let view = self.entry.view.borrow();
        match view.record.state {
            State::Running => Ok(()),
            State::Failed => Err(failed(&view.record)),
            State::Unreachable => Err(Error::Unreachable(self.entry.id.clone())),
            State::Sleeping => Err(Error::Sleeping(self.entry.id.clone())),
            State::Paused => Err(Error::Paused(self.entry.id.clone())),
            _ if view.record.body.lives_on() => {
                Err(AgentError::Departed(self.entry.id.clone()).into())
            }
            _ => Err(AgentError::Destroyed(self.entry.id.clone()).into()),
        }
    }

    /// Why nothing can be done in the sandbox once it is being deleted.
    #[must_use]
    pub fn destroyed(&self) -> Option<AgentError> {
        self.entry.destroyed()
    }

    /// A connection to the sandbox's agent, or to that of a scope; an idle one if possible.
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
        let pool = scope.map_or(&self.entry.pool, |scope| &scope.pool);
        match Wire::connect(directory, &pool.version).await {
            Ok(wire) => Ok(wire.owned(self.entry.view.subscribe())),
            // The end of the sandbox may be known by now, and explains more than a refused
            // connection.
            Err(error) => Err(self.check().err().unwrap_or(error.into())),
        }
    }

    fn emitter(&self, session: Option<Arc<str>>) -> EventEmitter {
        let log = self.inner.events.of(&self.entry.tenant);
        let incarnation = Arc::clone(&self.entry.incarnation);
        EventEmitter { log, sandbox: self.entry.id.clone(), incarnation, session }
    }

    /// The directory in which shells and programs start: the image's, or the workspace.
    pub(crate) fn start_dir(&self) -> String {
        self.entry.view.borrow().record.body.home().to_owned()
    }

    /// The environment of a new shell or program.
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
        if record.body.credentials.iter().any(InjectedCredential::within_tls) {
            env.extend(ca_bundle::env());
        }
        let own = session.iter().flat_map(|session| &session.env);
        env.extend(
            record.body.env.iter().chain(own).map(|(name, value)| (name.clone(), value.clone())),
        );
        env
    }

    /// Asks the driver for a health check because no process can be created. If the queue is full,
    /// the driver is busy anyway.
    pub(crate) fn request_health_check(&self) {
        let _ = self.entry.commands.try_send(DriverCommand::Check);
    }

    /// Publishes an event of this sandbox.
    pub(crate) fn emit(&self, kind: EventKind) {
        self.inner.events.emit(&self.entry, kind);
    }

    /// Checks of the free disk space, and of the tenant's quota.
    pub(crate) fn space(&self) -> TenantSpace {
        TenantSpace {
            space: Arc::clone(&self.inner.space),
            quotas: Arc::clone(&self.inner.quotas),
            tenant: self.entry.tenant.clone(),
        }
    }

    /// A new connection for one file operation. It ends with the operation, so the pool is not
    /// used.
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
