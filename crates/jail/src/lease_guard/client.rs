//! The server's side of the lease guard: finds or starts the process, and sends it requests.

use crate::config::Config;
use crate::kernel::helper_socket::{self, HelperSocket};
use crate::kernel::packet::{receive_packet, send_packet};
use isolet_wire::launcher::encode;
use isolet_wire::lease::{Epoch, LeaseDeadline};
use isolet_wire::lease_guard::{GuardRequest, GuardResponse, GuardedSandbox, LIST_MAX};
use isolet_wire::version::{VERSION, is_agreed};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one answer may take. Freezing many sandboxes at the deadline takes up to a second, and
/// killing those that do not freeze a little more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A process that owes an answer and has not run at all for this time is killed: it was stopped, or
/// the kernel does not let it run.
const STANDS_AFTER: Duration = Duration::from_secs(3);
/// How often is looked whether a process that owes an answer runs.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Why the guard did not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The deadline has passed, was never set, or belongs to another registration.
    #[error("the lease of this node has ended")]
    Expired,
    /// The request was refused; nothing has changed.
    #[error("the lease guard refuses: {0}")]
    Refused(String),
    /// The process has ended or does not answer. Start another, and tell it the deadline and all
    /// sandboxes.
    #[error("the lease guard is gone: {0}")]
    Gone(String),
}

/// A connection to the guard, which outlives it. Its calls block, one after the other.
#[derive(Debug)]
pub struct LeaseGuard {
    socket: Mutex<OwnedFd>,
    process: GuardProcess,
    /// The deadline that the previous server has set.
    pub found_deadline: Option<LeaseDeadline>,
    /// The process, if this connection started it.
    child: Mutex<Option<Child>>,
}

fn gone(error: &dyn std::fmt::Display) -> GuardError {
    GuardError::Gone(error.to_string())
}

impl LeaseGuard {
    /// Connects to the guard that the previous server started, or starts one. A guard that stands
    /// still is killed and replaced. Blocks.
    ///
    /// # Errors
    /// [`GuardError::Gone`].
    pub fn start(config: &Config) -> Result<Self, GuardError> {
        if let Ok(socket) = HelperSocket::LEASE_GUARD.connect(&config.data_dir) {
            match Self::greet(socket, None) {
                Err(error) if HelperSocket::LEASE_GUARD.connect(&config.data_dir).is_ok() => {
                    return Err(error);
                }
                Err(_) => {}
                found => return found,
            }
        }
        let (socket, child) = spawn(config)?;
        Self::greet(socket, Some(child))
    }

    /// Forgets all sandboxes, after their processes have ended, so that the guard ends. Does nothing if
    /// none runs. Blocks.
    pub(crate) fn release_all(config: &Config) {
        let Ok(socket) = HelperSocket::LEASE_GUARD.connect(&config.data_dir) else { return };
        let Ok(guard) = Self::greet(socket, None) else { return };
        for sandbox in guard.list().unwrap_or_default() {
            let _ = guard.release(&sandbox.name);
        }
    }

    fn greet(socket: OwnedFd, child: Option<Child>) -> Result<Self, GuardError> {
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LOOK_EVERY))
            .map_err(|errno| gone(&errno))?;
        let process = GuardProcess::find(&socket, child.as_ref()).map_err(|error| gone(&error))?;
        let mut guard = Self {
            socket: Mutex::new(socket),
            process,
            found_deadline: None,
            child: Mutex::new(child),
        };
        match guard.ask(&GuardRequest::Hello { version: VERSION })? {
            GuardResponse::Hello { version, deadline } if is_agreed(VERSION, version) => {
                guard.found_deadline = deadline;
                Ok(guard)
            }
            _ => Err(gone(&"it is of another release; restart this machine's sandboxes")),
        }
    }

    /// Tells the deadline. One of an earlier registration, and an earlier one of the same registration,
    /// change nothing. Returns the number of guarded sandboxes that are stopped.
    ///
    /// # Errors
    /// [`GuardError::Gone`].
    pub fn extend(&self, deadline: LeaseDeadline) -> Result<u32, GuardError> {
        match self.ask(&GuardRequest::Extend { deadline })? {
            GuardResponse::Extended { stopped } => Ok(stopped),
            _ => Err(unexpected()),
        }
    }

    /// Asks whether a sandbox may run, by its internal name: announces one that is about to run, and
    /// lets a stopped one continue. `registration` is the one under which its ownership was last
    /// confirmed.
    ///
    /// # Errors
    /// See [`GuardError`]. The sandbox must not be started then.
    pub fn admit(&self, name: &str, registration: Epoch) -> Result<(), GuardError> {
        self.done(&GuardRequest::Admit { name: name.to_owned(), registration })
    }

    /// Stops sandboxes now, each until it is admitted or freed: freezes their processes and drops
    /// their packets.
    ///
    /// # Errors
    /// [`GuardError::Gone`], [`GuardError::Refused`] if too many are guarded.
    pub fn stop(&self, names: &[String]) -> Result<(), GuardError> {
        for names in names.chunks(LIST_MAX) {
            self.done(&GuardRequest::Stop { names: names.to_vec() })?;
        }
        Ok(())
    }

    /// Lets a stopped sandbox continue that no other node may take over, and forgets it.
    ///
    /// # Errors
    /// [`GuardError::Gone`], [`GuardError::Refused`] if it is still stopped.
    pub fn free(&self, name: &str) -> Result<(), GuardError> {
        self.done(&GuardRequest::Free { name: name.to_owned() })
    }

    /// Forgets a sandbox that does not run any more.
    ///
    /// # Errors
    /// [`GuardError::Gone`].
    pub fn release(&self, name: &str) -> Result<(), GuardError> {
        self.done(&GuardRequest::Release { name: name.to_owned() })
    }

    /// All guarded sandboxes.
    ///
    /// # Errors
    /// [`GuardError::Gone`].
    pub fn list(&self) -> Result<Vec<GuardedSandbox>, GuardError> {
        let mut all: Vec<GuardedSandbox> = Vec::new();
        loop {
            let after = all.last().map(|last| last.name.clone()).unwrap_or_default();
            match self.ask(&GuardRequest::List { after })? {
                GuardResponse::Listed(some) if some.is_empty() => return Ok(all),
                GuardResponse::Listed(some) => all.extend(some),
                _ => return Err(unexpected()),
            }
        }
    }

    /// Ends the process, so that another one takes its place, which knows no sandbox. Blocks.
    pub fn end(&self) {
        self.process.kill();
    }

    fn done(&self, request: &GuardRequest) -> Result<(), GuardError> {
        match self.ask(request)? {
            GuardResponse::Done => Ok(()),
            GuardResponse::Expired => Err(GuardError::Expired),
            GuardResponse::Refused { reason } => Err(GuardError::Refused(reason)),
            _ => Err(unexpected()),
        }
    }

    fn ask(&self, request: &GuardRequest) -> Result<GuardResponse, GuardError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = send_packet(&socket, &encode(request), None, SendFlags::empty());
        sent.map_err(|errno| gone(&errno))?;
        let asked = Instant::now();
        let mut has_run = (self.process.activity(), asked);
        let packet = loop {
            match receive_packet(&socket, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let activity = self.process.activity();
                    if activity != has_run.0 {
                        has_run = (activity, Instant::now());
                    }
                    let stands = has_run.1.elapsed() >= STANDS_AFTER;
                    if !stands && asked.elapsed() < ANSWER_TIMEOUT {
                        continue;
                    }
                    // A late answer would be taken for that of the next request.
                    let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
                    if stands {
                        self.process.kill();
                        return Err(gone(&"it stood still and was killed"));
                    }
                    return Err(gone(&"it does not answer"));
                }
                Err(errno) => return Err(gone(&errno)),
                Ok(None) => return Err(gone(&"it closed the connection")),
                Ok(Some(packet)) => break packet,
            }
        };
        isolet_wire::frame::decode(&packet.bytes).map_err(|_| unexpected())
    }
}

/// The process at the other end.
#[derive(Debug)]
struct GuardProcess {
    id: Pid,
    process: OwnedFd,
}

impl GuardProcess {
    /// The process that this server has started, or the one that listens at the socket.
    fn find(socket: &OwnedFd, child: Option<&Child>) -> io::Result<Self> {
        let id = match child {
            Some(child) => Pid::from_child(child),
            None => {
                let peer = isolet_sys::peer::pid(socket)?;
                Pid::from_raw(peer).ok_or(io::ErrorKind::NotFound)?
            }
        };
        Ok(Self { id, process: pidfd_open(id, PidfdFlags::empty())? })
    }

    /// What the kernel has counted of it: the processor time of it and of the programs that it has
    /// started, and how often it was switched to. It changes whenever the process runs.
    fn activity(&self) -> [String; 2] {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", self.id.as_raw_nonzero());
            std::fs::read_to_string(path).unwrap_or_default()
        };
        let times = read("stat").split_whitespace().skip(13).take(4).collect::<Vec<_>>().join(" ");
        let status = read("status");
        let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
        [times, switches.collect()]
    }

    /// Ends it, and waits until it has ended, so that another one can take its place.
    fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let _ = helper_socket::ends(&self.process);
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        // Reaps a process that has ended. One that still runs serves the next server.
        if let Some(child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = child.try_wait();
        }
    }
}

fn unexpected() -> GuardError {
    GuardError::Gone("it sent an unexpected response".to_owned())
}

/// Starts the process, which is the launcher's binary.
fn spawn(config: &Config) -> Result<(OwnedFd, Child), GuardError> {
    let mut command = Command::new(&config.launcher);
    command.arg("--lease-guard").arg("--data").arg(&config.data_dir);
    command.args(["--cgroup", &config.cgroup]);
    let failed = |error| gone(&format!("{}: {error}", config.launcher.display()));
    helper_socket::spawn(&mut command).map_err(failed)
}
