//! One sandbox, shared between the task that owns its state and its callers.

pub(crate) mod background;
pub(crate) mod process_records;
pub(crate) mod recordings;
pub(crate) mod refused;
pub(crate) mod scopes;
pub(crate) mod secret_store;
pub(crate) mod shell_states;

use crate::{
    agent_client::pool::{Pool, Watched},
    live::{
        entry::{
            background::Background, process_records::ProcessRecords, recordings::Recordings,
            refused::Refusals, scopes::Scopes, secret_store::SecretStore,
            shell_states::ShellStates,
        },
        prepared::Linked,
    },
    model::{
        activity::Activity,
        agent_error::AgentError,
        command::DriverCommand,
        ids::{SandboxId, SessionId, TenantId},
        info::Lost,
        record::{Record, View},
        sessions::Sessions,
        state::State,
    },
};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Semaphore, mpsc, watch};

/// Connections to the ports of one sandbox at once.
pub(crate) const CONNECTIONS_MAX: usize = 512;

/// Orders that may wait for one driver.
const ORDERS_MAX: usize = 64;

/// One sandbox, shared between its driver and its callers.
pub(crate) struct Entry {
    pub(crate) tenant: TenantId,
    pub(crate) id: SandboxId,
    pub(crate) name: String,
    /// The same name, for what is told of this life of the sandbox: another one with its id has
    /// another.
    pub(crate) incarnation: Arc<str>,
    pub(crate) slot: u32,
    pub(crate) directory: PathBuf,
    pub(crate) view: watch::Sender<View>,
    pub(crate) orders: mpsc::Sender<DriverCommand>,
    /// The driver's end of `orders`. Here, so that a driver that panicked loses none.
    pub(crate) post: tokio::sync::Mutex<mpsc::Receiver<DriverCommand>>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) scopes: Scopes,
    /// Ports of which was last told that they listen.
    pub(crate) listened: Mutex<BTreeSet<u16>>,
    /// What runs by itself, as was last told.
    pub(crate) background: Background,
    /// Places for connections to its ports.
    pub(crate) ports: Arc<Semaphore>,
    pub(crate) activity: Arc<Activity>,
    /// What shells of its sessions held.
    pub(crate) shell_states: ShellStates,
    /// What terminals of its sessions have shown.
    pub(crate) recordings: Recordings,
    /// What was started in it in the background.
    pub(crate) process_records: ProcessRecords,
    /// What a sleep has lost and nobody was told yet.
    pub(crate) lost: Mutex<Option<Vec<Lost>>>,
    /// What it was refused.
    pub(crate) refusals: Refusals,
    /// Its link, if it has one.
    pub(crate) link: Mutex<Option<Linked>>,
    /// What is lent to it.
    pub(crate) secret_store: SecretStore,
}

impl Entry {
    pub(crate) fn new(
        record: Record,
        sandboxes: &std::path::Path,
        sessions: Vec<(SessionId, String)>,
        watch: &Arc<Watched>,
    ) -> Arc<Self> {
        let (orders, post) = mpsc::channel(ORDERS_MAX);
        Arc::new(Self {
            tenant: record.tenant.clone(),
            id: record.id.clone(),
            name: record.name.clone(),
            incarnation: Arc::from(record.name.as_str()),
            slot: record.slot,
            directory: sandboxes.join(&record.name),
            orders,
            post: tokio::sync::Mutex::new(post),
            sessions: Arc::new(Sessions::new(
                &record.id,
                (record.body.created_at_ms, record.body.home()),
                sessions,
            )),
            pool: Arc::new(Pool::new(Arc::clone(watch))),
            scopes: Scopes::default(),
            listened: Mutex::default(),
            background: Background::default(),
            ports: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            activity: Activity::new(),
            shell_states: ShellStates::new(&sandboxes.join(&record.name)),
            recordings: Recordings::new(&sandboxes.join(&record.name)),
            process_records: ProcessRecords::new(&sandboxes.join(&record.name)),
            lost: Mutex::new(record.body.lost.clone()),
            refusals: Refusals::default(),
            link: Mutex::default(),
            secret_store: SecretStore::new(sandboxes.parent().unwrap_or(sandboxes), &record.name),
            view: watch::Sender::new(View { record: Arc::new(record), end: None }),
        })
    }

    pub(crate) fn view(&self) -> View {
        self.view.borrow().clone()
    }

    pub(crate) fn state(&self) -> State {
        self.view.borrow().record.state
    }

    /// Why nothing can be done in it any more, once its end is decided.
    pub(crate) fn destroyed(&self) -> Option<AgentError> {
        self.view.borrow().destroyed()
    }

    pub(crate) fn lost(&self) -> MutexGuard<'_, Option<Vec<Lost>>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Option<Linked>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of its link, of this start of the process.
    pub(crate) fn linked(&self, boot: u64) -> Option<u32> {
        self.link().filter(|link| link.boot == boot).map(|link| link.id)
    }

    /// Waits until it is made, or it is known why it is not.
    pub(crate) async fn made(&self) -> View {
        let mut seen = self.view.subscribe();
        let made = |view: &View| {
            view.end.is_some() || !matches!(view.record.state, State::Creating | State::Destroying)
        };
        let view = seen.wait_for(made).await.map(|view| view.clone());
        view.unwrap_or_else(|_| self.view())
    }

    /// Waits while it is being made or removed.
    pub(crate) async fn settled(&self) -> View {
        let mut seen = self.view.subscribe();
        let settled =
            |view: &View| !matches!(view.record.state, State::Creating | State::Destroying);
        // The sender lives in this entry: the wait cannot fail.
        let view = seen.wait_for(settled).await.map(|view| view.clone());
        view.unwrap_or_else(|_| self.view())
    }
}
