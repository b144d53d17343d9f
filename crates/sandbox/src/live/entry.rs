//! One sandbox, shared between its driver and its callers.

pub(crate) mod background;
pub(crate) mod denial_log;
pub(crate) mod file_journals;
pub(crate) mod process_records;
pub(crate) mod recordings;
pub(crate) mod running_copies;
pub(crate) mod running_scopes;
pub(crate) mod secret_store;
pub(crate) mod shell_states;

use crate::agent_client::agent_activity::AgentActivity;
use crate::agent_client::pool::{Pool, Watched};
use crate::live::entry::background::Background;
use crate::live::entry::denial_log::DenialLog;
use crate::live::entry::file_journals::FileJournals;
use crate::live::entry::process_records::ProcessRecords;
use crate::live::entry::recordings::Recordings;
use crate::live::entry::running_copies::RunningCopies;
use crate::live::entry::running_scopes::Scopes;
use crate::live::entry::secret_store::SecretStore;
use crate::live::entry::shell_states::ShellStates;
use crate::live::prepared::ReservedVeth;
use crate::model::activity::Activity;
use crate::model::agent_error::AgentError;
use crate::model::command::DriverCommand;
use crate::model::ids::{SandboxId, SessionId, TenantId};
use crate::model::info::Lost;
use crate::model::record::{Record, View};
use crate::model::sessions::Sessions;
use crate::model::state::State;
use isolet_metrics::{Meter, Metrics};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, mpsc, watch};

/// Maximum number of connections to ports of one sandbox at once.
pub(crate) const CONNECTIONS_MAX: usize = 512;

/// Maximum number of queued commands of one driver.
const ORDERS_MAX: usize = 64;

/// One sandbox, shared between its driver and its callers. It has many fields because each of them
/// has its own lock.
pub(crate) struct SandboxEntry {
    pub(crate) tenant: TenantId,
    pub(crate) id: SandboxId,
    pub(crate) name: String,
    /// The internal name as it appears in events. A later sandbox with the same id has another.
    pub(crate) incarnation: Arc<str>,
    pub(crate) slot: u32,
    pub(crate) directory: PathBuf,
    pub(crate) view: watch::Sender<View>,
    pub(crate) commands: mpsc::Sender<DriverCommand>,
    /// The receiver of `commands`. It is stored here so that a driver that panics loses no command.
    pub(crate) command_queue: tokio::sync::Mutex<mpsc::Receiver<DriverCommand>>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) scopes: Scopes,
    /// The listening ports that were last published.
    pub(crate) listened: Mutex<BTreeSet<u16>>,
    /// Background processes and terminals, as last published.
    pub(crate) background: Background,
    /// Limits the number of connections to ports.
    pub(crate) ports: Arc<Semaphore>,
    pub(crate) activity: Arc<Activity>,
    /// Saved states of the sessions' shells.
    pub(crate) shell_states: ShellStates,
    /// Recordings of the sessions' terminals.
    pub(crate) recordings: Recordings,
    /// Records of background processes.
    pub(crate) process_records: ProcessRecords,
    /// What the last sleep lost, until a client has received it.
    pub(crate) lost: Mutex<Option<Vec<Lost>>>,
    /// The latest network denials.
    pub(crate) refusals: DenialLog,
    /// What is known of its files, to find out what changed.
    pub(crate) file_journals: FileJournals,
    /// The veth pair, if there is one.
    pub(crate) link: Mutex<Option<ReservedVeth>>,
    /// The copies of its files that are being taken.
    pub(crate) copies: RunningCopies,
    /// The values of injected credentials.
    pub(crate) secret_store: SecretStore,
    /// Counts what the sandbox does.
    pub(crate) meter: Arc<Meter>,
    /// Another node may own the sandbox, so no request is answered and nothing of it runs.
    suspended: AtomicBool,
}

impl SandboxEntry {
    pub(crate) fn new(
        record: Record,
        sandboxes: &std::path::Path,
        sessions: Vec<(SessionId, String)>,
        watch: &Arc<Watched>,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let (commands, command_queue) = mpsc::channel(ORDERS_MAX);
        let meter = Meter::new(metrics, record.tenant.as_str());
        Arc::new(Self {
            meter,
            tenant: record.tenant.clone(),
            id: record.id.clone(),
            name: record.name.clone(),
            incarnation: Arc::from(record.name.as_str()),
            slot: record.slot,
            directory: sandboxes.join(&record.name),
            commands,
            command_queue: tokio::sync::Mutex::new(command_queue),
            sessions: Arc::new(Sessions::new(
                &record.id,
                record.body.created_at_ms,
                record.body.home(),
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
            suspended: AtomicBool::new(false),
            lost: Mutex::new(record.body.lost.clone()),
            refusals: DenialLog::default(),
            file_journals: FileJournals::default(),
            link: Mutex::default(),
            copies: RunningCopies::new(),
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

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    pub(crate) fn set_suspended(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Release);
    }

    /// Whether it lives on elsewhere once it is removed from this node.
    pub(crate) fn lives_on(&self) -> bool {
        self.view.borrow().record.body.lives_on()
    }

    /// Why nothing can be done in the sandbox once its end is decided.
    pub(crate) fn destroyed(&self) -> Option<AgentError> {
        self.view.borrow().destroyed()
    }

    pub(crate) fn lost(&self) -> MutexGuard<'_, Option<Vec<Lost>>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Option<ReservedVeth>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the veth pair, if it belongs to this run of the process.
    pub(crate) fn veth_id(&self, boot: u64) -> Option<u32> {
        self.link().filter(|link| link.boot == boot).map(|link| link.id)
    }

    /// Takes in a report of the sandbox's own agent, which had reported `seen` before.
    pub(crate) fn reported(
        &self,
        seen: &mut AgentActivity,
        shell: Option<&isolet_wire::activity::Activity>,
        execs: u32,
    ) {
        if seen.busy() {
            self.activity.touch();
        }
        seen.changed(shell, execs);
        if let Some(shell) = shell {
            self.sessions.changed(shell, true);
        }
    }

    /// Waits until the sandbox is created or its creation has failed.
    pub(crate) async fn made(&self) -> View {
        let mut seen = self.view.subscribe();
        let made = |view: &View| {
            view.end.is_some() || !matches!(view.record.state, State::Creating | State::Destroying)
        };
        let view = seen.wait_for(made).await.map(|view| view.clone());
        view.unwrap_or_else(|_| self.view())
    }

    /// Waits while the sandbox is being created or removed.
    pub(crate) async fn settled(&self) -> View {
        let mut seen = self.view.subscribe();
        let settled =
            |view: &View| !matches!(view.record.state, State::Creating | State::Destroying);
        // This entry owns the sender, so the wait cannot fail.
        let view = seen.wait_for(settled).await.map(|view| view.clone());
        view.unwrap_or_else(|_| self.view())
    }
}
