//! The queue of the launcher: one thread sends it requests and restarts it after it has died.

pub(crate) mod lease_guard;
pub(crate) mod permits;

use crate::live::launch_queue::lease_guard::Guard;
use crate::model::error::Error;
use crate::model::ids::SandboxId;
use isolet_jail::{Config, GuardError, Launcher, SandboxHandle};
use isolet_metrics::Counter;
use isolet_wire::launcher::{Scope, Spec};
use isolet_wire::lease::Epoch;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// Maximum number of queued requests.
const QUEUE_MAX: usize = 256;
/// Maximum number of launchers for one request: one that is found dead, one that dies during the
/// request, and one that completes it.
const TRIES: u32 = 3;
/// How long the remains of a dead launcher's request may take to die.
const CLEAR_WAIT: Duration = Duration::from_secs(2);

/// A request for the launcher.
enum Job {
    /// A sandbox, with the network namespace of its veth pair if it has one, and what the lease guard
    /// must admit before.
    Sandbox(Spec, Option<OwnedFd>, Option<Admission>),
    /// Only the directory of a sandbox.
    Files(Spec),
    /// A scope. The caller is notified as soon as every grant is known to be available.
    Scope(Scope, Arc<Notify>),
}

/// What the lease guard is asked before a sandbox starts.
pub(crate) struct Admission {
    /// The id of the sandbox, for errors.
    pub(crate) id: SandboxId,
    /// The registration under which this node owns it.
    pub(crate) registration: Epoch,
}

type LaunchJob = (Job, oneshot::Sender<Result<i32, Error>>);

/// Sends requests to the launcher. Clones share one launcher.
#[derive(Clone)]
pub(crate) struct Launch {
    commands: mpsc::Sender<LaunchJob>,
    found: Arc<Mutex<Found>>,
}

/// What the last launcher found when it started.
#[derive(Default)]
struct Found {
    missing: Vec<String>,
    /// Why files cannot be shown under other ids than those on disk.
    unmapped_files: Option<Errno>,
}

struct Keeper {
    config: Config,
    launcher: Option<Launcher>,
    found: Arc<Mutex<Found>>,
    /// Counts launchers that ended unexpectedly.
    restarts: Counter,
    guard: Option<Arc<Guard>>,
}

impl Job {
    fn name(&self) -> &str {
        match self {
            Self::Sandbox(spec, ..) | Self::Files(spec) => &spec.name,
            Self::Scope(scope, _) => &scope.name,
        }
    }
}

impl Launch {
    /// Starts the thread and the launcher. Blocks. It is no error if the machine lacks something.
    pub(crate) fn start(
        config: Config,
        restarts: Counter,
        guard: Option<Arc<Guard>>,
    ) -> Result<Self, String> {
        let found = Arc::default();
        let launcher = None;
        let mut keeper = Keeper { config, launcher, found: Arc::clone(&found), restarts, guard };
        match keeper.launcher() {
            Ok(_) | Err(isolet_jail::Error::Missing(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        let (commands, mut queue) = mpsc::channel::<LaunchJob>(QUEUE_MAX);
        let run = move || {
            while let Some((job, answer)) = queue.blocking_recv() {
                let _ = answer.send(keeper.work(&job));
            }
        };
        std::thread::Builder::new()
            .name("launch".into())
            .spawn(run)
            .map_err(|error| error.to_string())?;
        Ok(Self { commands, found })
    }

    pub(crate) fn missing(&self) -> Vec<String> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).missing.clone()
    }

    /// The first id on disk of the files of new sandboxes; `None` means the first id of their slot.
    pub(crate) fn files_id_base(&self) -> Option<u32> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.unmapped_files.is_none().then_some(isolet_jail::FILES_ID_BASE)
    }

    /// Number of requests that wait for the launcher.
    pub(crate) fn queued(&self) -> usize {
        self.commands.max_capacity() - self.commands.capacity()
    }

    /// Creates a sandbox, optionally in a network namespace, and returns the agent's process id.
    pub(crate) async fn launch(
        &self,
        spec: Spec,
        network: Option<OwnedFd>,
        admission: Option<Admission>,
    ) -> Result<i32, Error> {
        self.request(Job::Sandbox(spec, network, admission)).await
    }

    /// Creates the directory of a sandbox, and starts nothing.
    pub(crate) async fn create_files(&self, spec: Spec) -> Result<(), Error> {
        self.request(Job::Files(spec)).await.map(drop)
    }

    /// Starts the agent of a session's scope. Notifies `granted` as soon as every grant is known to
    /// be available.
    pub(crate) async fn scope(&self, scope: Scope, granted: Arc<Notify>) -> Result<(), Error> {
        self.request(Job::Scope(scope, granted)).await.map(drop)
    }

    async fn request(&self, job: Job) -> Result<i32, Error> {
        let (answer, answered) = oneshot::channel();
        // A full queue means that hundreds of requests are waiting, so the client is refused at
        // once instead of after a minute.
        self.commands
            .try_send((job, answer))
            .map_err(|_| Error::ServerFull("too many sandboxes are being made"))?;
        answered.await.map_err(|_| Error::Fault("the launcher's thread has ended".into()))?
    }
}

fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

impl Keeper {
    fn launcher(&mut self) -> Result<&mut Launcher, isolet_jail::Error> {
        if self.launcher.is_none() {
            let started = Launcher::start(&self.config);
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            found.missing = match &started {
                Err(isolet_jail::Error::Missing(list)) => list.clone(),
                _ => Vec::new(),
            };
            let started = started?;
            let unmapped = started.unmapped_files();
            if let Some(errno) = unmapped.filter(|_| found.unmapped_files != unmapped) {
                tracing::warn!(%errno, "the file system of the data directory cannot map ids: files of new sandboxes have the ids of their slot on disk");
            }
            found.unmapped_files = unmapped;
            self.launcher = Some(started);
        }
        self.launcher.as_mut().ok_or_else(|| isolet_jail::Error::Gone("not started".into()))
    }

    /// Carries out one request. A launcher that is dead or dies during the request is replaced, and
    /// the request is sent again.
    fn work(&mut self, job: &Job) -> Result<i32, Error> {
        for _ in 0..TRIES {
            self.admit(job)?;
            let done = self.launcher().and_then(|launcher| match job {
                Job::Sandbox(spec, network, _) => {
                    launcher.launch(spec, network.as_ref().map(AsFd::as_fd))
                }
                Job::Files(spec) => launcher.create_files(spec).map(|()| 0),
                Job::Scope(scope, granted) => {
                    launcher.start_scope(scope, || granted.notify_one()).map(|()| 0)
                }
            });
            match done {
                Ok(pid) => return Ok(pid),
                Err(isolet_jail::Error::Missing(list)) => return Err(Error::Missing(list)),
                Err(isolet_jail::Error::GrantRefused { index, errno, .. }) => {
                    if is_full(errno) {
                        return Err(Error::DiskFull { step: "granted directories".into() });
                    }
                    return Err(Error::GrantRefused { index, errno });
                }
                Err(isolet_jail::Error::Failed { step, errno, .. }) => {
                    if is_full(errno) {
                        return Err(Error::DiskFull { step });
                    }
                    let reason = std::io::Error::from(errno).to_string();
                    return Err(Error::Launch { step, reason });
                }
                Err(isolet_jail::Error::Gone(reason)) => {
                    tracing::warn!(sandbox = %job.name(), reason, "launcher ended; starting another");
                    self.launcher = None;
                    self.restarts.inc();
                    if let Err(error) = self.clear(job) {
                        // The remains would only obstruct the next launcher.
                        tracing::warn!(sandbox = %job.name(), %error, "remains of an ended launcher's request are not removed yet");
                        return Err(Error::TooLate("making the sandbox"));
                    }
                }
            }
        }
        Err(Error::Launch {
            step: "launcher".into(),
            reason: "it ended whenever this order came".into(),
        })
    }

    /// Asks the lease guard just before the start, so that no time passes between both.
    fn admit(&self, job: &Job) -> Result<(), Error> {
        let Job::Sandbox(spec, _, Some(Admission { id, registration })) = job else {
            return Ok(());
        };
        let admitted = match &self.guard {
            Some(guard) => guard.admit(&spec.name, *registration),
            None => Err(GuardError::Gone("there is none".to_owned())),
        };
        admitted.map_err(|error| Error::Suspended { id: id.clone(), reason: error.to_string() })
    }

    /// Removes what a dead launcher may have left of its last request.
    fn clear(&self, job: &Job) -> std::io::Result<()> {
        let spec = match job {
            Job::Sandbox(spec, ..) | Job::Files(spec) => spec,
            Job::Scope(scope, _) => {
                let handle = SandboxHandle::open(&self.config, &scope.name);
                return handle.end_scope(&scope.session, CLEAR_WAIT);
            }
        };
        let handle = SandboxHandle::open(&self.config, &spec.name);
        let _ = handle.kill();
        let _ = handle.wait_empty(CLEAR_WAIT);
        // Files of an earlier run stay.
        if spec.directory_exists { handle.remove_cgroups() } else { handle.remove() }
    }
}
