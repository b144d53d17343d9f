//! The event loop of the guard. It serves one server at a time.

use super::ENFORCE_INTERVAL;
use super::guarded::{Entry, Guarded, Refusal};
use super::stop::Stopper;
use crate::config::Config;
use crate::kernel::helper_socket::HelperSocket;
use crate::kernel::packet::{receive_packet, send_packet};
use isolet_wire::launcher::encode;
use isolet_wire::lease::{BootTime, Epoch};
use isolet_wire::lease_guard::{GuardRequest, GuardResponse, GuardedState, LIST_MAX};
use isolet_wire::version;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, sockopt};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// The options of the command line.
#[derive(Debug)]
pub struct GuardOptions {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The name of the control group of all its sandboxes.
    pub cgroup: String,
}

struct EventLoop {
    guarded: Guarded,
    stopper: Stopper,
    listener: OwnedFd,
    client: Option<OwnedFd>,
}

/// Runs until no server and no sandbox needs the process. `first` is the connection of the server
/// that started it.
pub fn run(options: GuardOptions, first: OwnedFd) {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    stay_responsive();
    let config = Config {
        data_dir: options.data_dir,
        launcher: PathBuf::new(),
        agent: PathBuf::new(),
        // The guard finds control groups and network namespaces, and starts no process.
        uid_base: crate::config::UID_BASE,
        cgroup: options.cgroup,
        stall_ms: 0,
    };
    let Ok(listener) = HelperSocket::LEASE_GUARD.listen(&config.data_dir) else { return };
    let Ok(stopper) = Stopper::new(config) else { return };
    let guarded = Guarded::default();
    let mut event_loop = EventLoop { guarded, stopper, listener, client: Some(first) };
    while event_loop.client.is_some() || !event_loop.guarded.is_empty() {
        event_loop.turn();
    }
}

/// Keeps the process able to act in time on a machine that is short of memory and of processor time:
/// nothing of it is swapped out, it is not chosen when memory runs out, and it runs before normal
/// processes. Each is left out where the machine does not allow it.
fn stay_responsive() {
    let unlimited = Rlimit { current: None, maximum: None };
    // With a limit, a later allocation would fail instead of being swapped out.
    let future = match setrlimit(Resource::Memlock, unlimited) {
        Ok(()) => MlockAllFlags::FUTURE,
        Err(_) => MlockAllFlags::empty(),
    };
    let _ = mlockall(MlockAllFlags::CURRENT | future);
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let _ = isolet_sys::scheduling::become_real_time();
}

impl EventLoop {
    fn turn(&mut self) {
        let (new, request) = self.wait();
        // Before any request: what was sent too late must not count.
        self.enforce();
        if new {
            self.accept();
        }
        if request {
            self.serve();
        }
    }

    /// Waits for a server, a request, the deadline or the next check. Returns what can be read.
    fn wait(&self) -> (bool, bool) {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.client.as_ref().map(|client| PollFd::new(client, PollFlags::IN)));
        let stopped = [GuardedState::Stopped, GuardedState::Killed];
        let checks = stopped.iter().any(|state| self.guarded.of(*state).next().is_some());
        let due = self.guarded.due(BootTime::now());
        let due = due.into_iter().chain(checks.then_some(ENFORCE_INTERVAL)).min();
        let due = due.and_then(|due| Timespec::try_from(due).ok());
        if poll(&mut fds, due.as_ref()).is_err() {
            return (false, false);
        }
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        (is_ready(0), is_ready(1))
    }

    /// Stops what must not run.
    fn enforce(&mut self) {
        let names = self.guarded.must_stop(BootTime::now());
        self.stop(&names);
        for state in [GuardedState::Stopped, GuardedState::Killed] {
            let all: Vec<String> = self.guarded.of(state).cloned().collect();
            let again: Vec<String> =
                all.into_iter().filter(|name| self.stopper.runs(name)).collect();
            for (name, found) in self.stopper.stop(&again) {
                let was_paused = self.guarded.get(&name).is_some_and(|known| known.was_paused);
                let is_killed =
                    state == GuardedState::Killed || found.state == GuardedState::Killed;
                let state = if is_killed { GuardedState::Killed } else { GuardedState::Stopped };
                self.guarded.set(&name, Entry::stopped(state, was_paused));
            }
        }
    }

    fn stop(&mut self, names: &[String]) {
        for (name, entry) in self.stopper.stop(names) {
            self.guarded.set(&name, entry);
        }
    }

    /// Accepts a connection of root, which replaces that of the previous server.
    fn accept(&mut self) {
        let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) else { return };
        if sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid.is_root()) {
            self.client = Some(socket);
        }
    }

    fn serve(&mut self) {
        let Some(client) = &self.client else { return };
        let packet = match receive_packet(client, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok(Some(packet)) => packet,
            _ => {
                self.client = None;
                return;
            }
        };
        let Ok(request) = isolet_wire::frame::decode(&packet.bytes) else {
            self.client = None;
            return;
        };
        let answer = encode(&self.answer(request));
        let sent = self
            .client
            .as_ref()
            .map(|client| send_packet(client, &answer, None, SendFlags::DONTWAIT));
        if sent.is_some_and(|sent| sent.is_err()) {
            self.client = None;
        }
    }

    fn answer(&mut self, request: GuardRequest) -> GuardResponse {
        let done = match request {
            GuardRequest::Hello { version } => {
                let version = version::answer(version);
                return GuardResponse::Hello { version, deadline: self.guarded.deadline() };
            }
            GuardRequest::List { after } => {
                return GuardResponse::Listed(self.guarded.list(&after));
            }
            GuardRequest::Extend { deadline } => {
                self.guarded.extend(deadline);
                // What only an earlier registration allowed ends before the answer.
                self.enforce();
                return GuardResponse::Extended { stopped: self.guarded.stopped() };
            }
            GuardRequest::Admit { name, registration } => self.admit(name, registration),
            GuardRequest::Stop { names } if names.len() > LIST_MAX => {
                Err(Refusal::Other(format!("at most {LIST_MAX} sandboxes in one request")))
            }
            GuardRequest::Stop { names } => {
                self.guarded.begin_stop(names).map(|running| self.stop(&running))
            }
            GuardRequest::Free { name } => self.free(&name),
            GuardRequest::Release { name } => {
                // What is left of a stopped sandbox stays stopped: its server removes it.
                self.guarded.release(&name);
                Ok(())
            }
        };
        match done {
            Ok(()) => GuardResponse::Done,
            Err(Refusal::Expired) => GuardResponse::Expired,
            Err(Refusal::Other(reason)) => GuardResponse::Refused { reason },
        }
    }

    fn admit(&mut self, name: String, registration: Epoch) -> Result<(), Refusal> {
        match self.guarded.may_run(&name, registration, BootTime::now())? {
            None => {}
            Some(entry) => match entry.state {
                GuardedState::Watched => {}
                GuardedState::Stopped => self.resume(&name, entry)?,
                GuardedState::Killed if self.stopper.is_populated(&name) => {
                    let reason = "its processes were killed and have not ended yet".to_owned();
                    return Err(Refusal::Other(reason));
                }
                GuardedState::Killed => {}
            },
        }
        self.guarded.admitted(name, registration);
        Ok(())
    }

    fn free(&mut self, name: &str) -> Result<(), Refusal> {
        if let Some(entry) = self.guarded.get(name).filter(|one| one.state == GuardedState::Stopped)
        {
            self.resume(name, entry)?;
        }
        self.guarded.release(name);
        Ok(())
    }

    fn resume(&self, name: &str, entry: Entry) -> Result<(), Refusal> {
        let resumed = self.stopper.resume(name, entry.was_paused);
        resumed.map_err(|error| Refusal::Other(error.to_string()))
    }
}
