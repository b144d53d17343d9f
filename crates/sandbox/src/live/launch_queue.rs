//! The launcher's keeper: one thread that gives it orders, and starts another when it has died.

use crate::model::error::Error;
use isolet_jail::{Config, Launcher, SandboxHandle};
use isolet_wire::launcher::{Scope, Spec};
use rustix::io::Errno;
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, mpsc, oneshot};

/// Orders that may wait.
const QUEUE_MAX: usize = 256;
/// Launchers that one order may see: one found dead, one that dies over it, one that does it.
const TRIES: u32 = 3;
/// How long what a dead launcher has left may take to die.
const CLEAR_WAIT: Duration = Duration::from_secs(2);

/// What is to be made.
enum Job {
    /// Born in the network namespace of its link, if it has one.
    Sandbox(Spec, Option<OwnedFd>),
    /// Notified as soon as it is known that every grant can be had.
    Scope(Scope, Arc<Notify>),
}

type LaunchJob = (Job, oneshot::Sender<Result<i32, Error>>);

/// Gives orders. Clones share one launcher.
#[derive(Clone)]
pub(crate) struct Launch {
    orders: mpsc::Sender<LaunchJob>,
    missing: Arc<Mutex<Vec<String>>>,
}

struct Keeper {
    config: Config,
    launcher: Option<Launcher>,
    missing: Arc<Mutex<Vec<String>>>,
}

impl Job {
    fn name(&self) -> &str {
        match self {
            Self::Sandbox(spec, _) => &spec.name,
            Self::Scope(scope, _) => &scope.name,
        }
    }
}

impl Launch {
    /// Starts the thread and the launcher. Blocks. A machine that lacks something is no error.
    pub(crate) fn start(config: Config) -> Result<Self, String> {
        let missing = Arc::default();
        let mut keeper = Keeper { config, launcher: None, missing: Arc::clone(&missing) };
        match keeper.launcher() {
            Ok(_) | Err(isolet_jail::Error::Missing(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        let (orders, mut queue) = mpsc::channel::<LaunchJob>(QUEUE_MAX);
        let run = move || {
            while let Some((job, answer)) = queue.blocking_recv() {
                let _ = answer.send(keeper.work(&job));
            }
        };
        std::thread::Builder::new()
            .name("launch".into())
            .spawn(run)
            .map_err(|error| error.to_string())?;
        Ok(Self { orders, missing })
    }

    pub(crate) fn missing(&self) -> Vec<String> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a sandbox, perhaps in the network namespace of its link; the agent's process id.
    pub(crate) async fn launch(&self, spec: Spec, network: Option<OwnedFd>) -> Result<i32, Error> {
        self.order(Job::Sandbox(spec, network)).await
    }

    /// Starts the agent of a session's scope; notifies as soon as every grant is known to be there.
    pub(crate) async fn scope(&self, scope: Scope, granted: Arc<Notify>) -> Result<(), Error> {
        self.order(Job::Scope(scope, granted)).await.map(drop)
    }

    async fn order(&self, job: Job) -> Result<i32, Error> {
        let (answer, answered) = oneshot::channel();
        // Full means that hundreds wait already: better told at once than in a minute.
        self.orders
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
            let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
            *missing = match &started {
                Err(isolet_jail::Error::Missing(list)) => list.clone(),
                _ => Vec::new(),
            };
            self.launcher = Some(started?);
        }
        self.launcher.as_mut().ok_or_else(|| isolet_jail::Error::Gone("not started".into()))
    }

    /// One order; a launcher that was found dead, or dies over it, is replaced and asked again.
    fn work(&mut self, job: &Job) -> Result<i32, Error> {
        for _ in 0..TRIES {
            let done = self.launcher().and_then(|launcher| match job {
                Job::Sandbox(spec, network) => {
                    launcher.launch(spec, network.as_ref().map(AsFd::as_fd))
                }
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
                Err(isolet_jail::Error::Gone(why)) => {
                    tracing::warn!(sandbox = %job.name(), why, "launcher ended; starting another");
                    self.launcher = None;
                    if let Err(error) = self.clear(job) {
                        // The next launcher would only find it in its way.
                        tracing::warn!(sandbox = %job.name(), %error, "what a launcher has half made is not removed yet");
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

    /// What a dead launcher may have left of its last order.
    fn clear(&self, job: &Job) -> std::io::Result<()> {
        let spec = match job {
            Job::Sandbox(spec, _) => spec,
            Job::Scope(scope, _) => {
                let cage = SandboxHandle::open(&self.config, &scope.name);
                return cage.end_scope(&scope.session, CLEAR_WAIT);
            }
        };
        let cage = SandboxHandle::open(&self.config, &spec.name);
        let _ = cage.kill();
        let _ = cage.wait_empty(CLEAR_WAIT);
        // Files of an earlier life stay.
        if spec.kept { cage.remove_cgroups() } else { cage.remove() }
    }
}
