//! The server's side of veth pairs: finds or starts the process that owns them, sends it requests,
//! and receives its events.

use crate::config::Config;
use crate::kernel::helper_socket::{self, HelperSocket};
use crate::kernel::packet::{receive_packet, send_packet};
use isolet_wire::credential::Credential;
use isolet_wire::network::{NetworkDenial, Policy};
use isolet_wire::version::{OLDEST_AGENT, VERSION, is_agreed};
use isolet_wire::veth::{
    AssignedVeth, Counters, LIST_MAX, VethRequest, VethRequestBody, VethResponse, VethResponseBody,
    VethSettings,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// How long one answer may take. Creating a pair takes milliseconds, longer under load.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a veth pair was not created or changed.
#[derive(Debug, thiserror::Error)]
pub enum VethError {
    /// This machine cannot give sandboxes egress. The text says what to do.
    #[error("{0}")]
    Missing(String),
    /// The request was refused; nothing has changed.
    #[error("{0}")]
    Refused(String),
    /// The process has ended, and every pair with it. Start another.
    #[error("the process that owns the veth pairs is gone: {0}")]
    Gone(String),
}

/// What the process reports without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VethEvent {
    /// Egress of this sandbox was denied.
    Refused {
        /// The server's own name of the sandbox.
        name: String,
        /// The destination, and the rule that denied it.
        refused: NetworkDenial,
    },
    /// The namespace of this sandbox has ended, and its pair with it.
    Gone {
        /// The server's own name of the sandbox.
        name: String,
        /// The id of its pair.
        id: u32,
    },
    /// The authority that this sandbox has to trust from now on, for credentials in TLS requests.
    Authority {
        /// The server's own name of the sandbox.
        name: String,
        /// The authority's certificate, as PEM.
        certificate: String,
    },
    /// Another program changed a part of the network; the text says which, and how it was repaired.
    Repaired(String),
    /// The egress proxy has ended, and the process starts it again.
    ProxyRestarted,
    /// The process has ended, and every pair with it.
    Ended,
}

/// A connection to the process that owns the veth pairs. The process outlives it.
#[derive(Debug)]
pub struct VethClient {
    shared: Arc<ClientState>,
    /// Identifies the process: pairs of another one are gone.
    pub boot: u64,
    /// Whether rules with names are available.
    pub names: bool,
    /// Conditions of this machine that block egress although pairs can be created: one sentence
    /// each, with what to do.
    pub warnings: Vec<String>,
    /// The process, if this connection started it.
    child: Mutex<Option<Child>>,
}

#[derive(Debug)]
struct ClientState {
    socket: OwnedFd,
    next_number: AtomicU64,
    ended: AtomicBool,
    /// The receivers that wait for the answer with this number.
    waiting: Mutex<HashMap<u64, mpsc::SyncSender<VethAnswer>>>,
}

struct VethAnswer {
    body: VethResponseBody,
    fd: Option<OwnedFd>,
}

fn gone(error: &dyn std::fmt::Display) -> VethError {
    VethError::Gone(error.to_string())
}

impl VethClient {
    /// Whether the process runs, started by the previous server.
    #[must_use]
    pub fn is_running(config: &Config) -> bool {
        HelperSocket::VETH.connect(&config.data_dir).is_ok()
    }

    /// Connects to the process that the previous server started, or starts one. Blocks. Calls
    /// `on_event` with every event, on a thread of its own.
    ///
    /// # Errors
    /// [`VethError::Missing`] with what this machine lacks, [`VethError::Gone`].
    pub fn start(
        config: &Config,
        settings: VethSettings,
        on_event: impl FnMut(VethEvent) + Send + 'static,
    ) -> Result<Self, VethError> {
        let (socket, child) = match HelperSocket::VETH.connect(&config.data_dir) {
            Ok(socket) => (socket, None),
            Err(_) => {
                let (socket, child) = spawn(config)?;
                (socket, Some(child))
            }
        };
        if !is_agreed(VERSION, greet(&socket)?) {
            return Err(VethError::Missing(unsupported(&config.data_dir)));
        }
        let shared = Arc::new(ClientState {
            socket,
            next_number: AtomicU64::new(1),
            ended: AtomicBool::new(false),
            waiting: Mutex::default(),
        });
        let reader = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("veth".into())
            .spawn(move || reader.read(on_event))
            .map_err(|error| gone(&error))?;
        let mut client =
            Self { shared, boot: 0, names: false, warnings: Vec::new(), child: Mutex::new(child) };
        match client.ask(VethRequestBody::Begin(settings), None)?.body {
            VethResponseBody::Ready { boot, names, missing, warnings } if missing.is_empty() => {
                client.boot = boot;
                client.names = names;
                client.warnings = warnings;
                Ok(client)
            }
            VethResponseBody::Ready { missing, .. } => Err(VethError::Missing(missing.join("; "))),
            _ => Err(unexpected_answer()),
        }
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// Claims a prepared pair. Returns the pair and the network namespace to create the sandbox in.
    ///
    /// # Errors
    /// See [`VethError`].
    pub fn claim(&self, name: &str, policy: &Policy) -> Result<(AssignedVeth, OwnedFd), VethError> {
        let ask = VethRequestBody::Take { name: name.to_owned(), policy: policy.clone() };
        match self.ask(ask, None)? {
            VethAnswer { body: VethResponseBody::Taken(standing), fd: Some(netns) } => {
                Ok((standing, netns))
            }
            _ => Err(unexpected_answer()),
        }
    }

    /// Claims a pair for a running sandbox, whose network namespace is `netns`.
    ///
    /// # Errors
    /// See [`VethError`].
    pub fn attach(
        &self,
        name: &str,
        policy: &Policy,
        netns: BorrowedFd<'_>,
    ) -> Result<AssignedVeth, VethError> {
        let ask = VethRequestBody::Attach { name: name.to_owned(), policy: policy.clone() };
        match self.ask(ask, Some(netns))?.body {
            VethResponseBody::Taken(standing) => Ok(standing),
            _ => Err(unexpected_answer()),
        }
    }

    /// Changes the rules of a pair. They are in force when this returns, also for open connections.
    ///
    /// # Errors
    /// See [`VethError`].
    pub fn set_policy(&self, id: u32, policy: &Policy) -> Result<(), VethError> {
        self.done(VethRequestBody::Set { id, policy: policy.clone() })
    }

    /// Replaces the credentials that are injected into the requests of a sandbox. Returns the
    /// certificate of the authority that the sandbox has to trust, as PEM, if some are for TLS.
    ///
    /// # Errors
    /// See [`VethError`].
    pub fn set_credentials(
        &self,
        id: u32,
        credentials: Vec<Credential>,
    ) -> Result<Option<String>, VethError> {
        match self.ask(VethRequestBody::SetCredentials { id, credentials }, None)?.body {
            VethResponseBody::CredentialsSet { certificate } => Ok(certificate),
            _ => Err(unexpected_answer()),
        }
    }

    /// Removes a pair. One that does not exist is no error.
    ///
    /// # Errors
    /// See [`VethError`].
    pub fn release(&self, id: u32) -> Result<(), VethError> {
        self.done(VethRequestBody::Release { id })
    }

    /// Returns after every denial until now was reported as an event.
    ///
    /// # Errors
    /// See [`VethError`].
    pub fn settle(&self) -> Result<(), VethError> {
        self.done(VethRequestBody::Settle)
    }

    /// The pairs of all sandboxes.
    ///
    /// # Errors
    /// See [`VethError`].
    pub fn list(&self) -> Result<Vec<AssignedVeth>, VethError> {
        let mut all: Vec<AssignedVeth> = Vec::new();
        loop {
            let after = all.last().map_or(0, |last| last.id);
            let VethResponseBody::Listed(some) =
                self.ask(VethRequestBody::List { after }, None)?.body
            else {
                return Err(unexpected_answer());
            };
            let more = some.len() == LIST_MAX;
            all.extend(some);
            if !more {
                return Ok(all);
            }
        }
    }

    /// The traffic of a pair.
    ///
    /// # Errors
    /// See [`VethError`].
    pub fn counters(&self, id: u32) -> Result<Counters, VethError> {
        match self.ask(VethRequestBody::Counters { id }, None)?.body {
            VethResponseBody::Counted(counters) => Ok(counters),
            _ => Err(unexpected_answer()),
        }
    }

    /// Closes the connection. The process then ends when no sandbox has a pair.
    pub fn disconnect(&self) {
        let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
    }

    fn done(&self, ask: VethRequestBody) -> Result<(), VethError> {
        match self.ask(ask, None)?.body {
            VethResponseBody::Done => Ok(()),
            _ => Err(unexpected_answer()),
        }
    }

    fn ask(
        &self,
        ask: VethRequestBody,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<VethAnswer, VethError> {
        let number = self.shared.next_number.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::sync_channel(1);
        self.shared.waiting().insert(number, sender);
        let packet = isolet_wire::launcher::encode(&VethRequest { number, body: ask });
        let sent = send_packet(&self.shared.socket, &packet, fd, SendFlags::empty());
        let answer = match sent {
            Ok(()) if !self.has_ended() => {
                receiver.recv_timeout(ANSWER_TIMEOUT).map_err(|error| gone(&error))
            }
            Ok(()) => Err(gone(&"it ended")),
            Err(errno) => Err(gone(&errno)),
        };
        self.shared.waiting().remove(&number);
        match answer? {
            VethAnswer { body: VethResponseBody::Failed { reason }, .. } => {
                Err(VethError::Refused(reason))
            }
            answer => Ok(answer),
        }
    }
}

impl Drop for VethClient {
    fn drop(&mut self) {
        self.disconnect();
        // Reaps a process that has ended. One that still runs serves the next server.
        if let Some(child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = child.try_wait();
        }
    }
}

/// Says that the process that the previous server started is of another release.
fn unsupported(data_dir: &Path) -> String {
    format!(
        "the process that owns the veth pairs of {} supports no protocol version of this server \
         ({OLDEST_AGENT} to {VERSION}); put sandboxes with a network to sleep with the server that \
         started it, then restart this one",
        data_dir.display()
    )
}

/// The version that the process answers.
fn greet(socket: &OwnedFd) -> Result<u16, VethError> {
    let request = VethRequest { number: 1, body: VethRequestBody::Hello { version: VERSION } };
    let packet = isolet_wire::launcher::encode(&request);
    let time_limit = |limit| {
        sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, limit)
            .map_err(|error| gone(&error))
    };
    time_limit(Some(ANSWER_TIMEOUT))?;
    send_packet(socket, &packet, None, SendFlags::empty()).map_err(|errno| gone(&errno))?;
    let answer = loop {
        match receive_packet(socket, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            answer => break answer,
        }
    };
    let answer = match answer {
        Ok(Some(packet)) => packet,
        Ok(None) => return Err(gone(&"it closed the connection")),
        Err(errno) => return Err(gone(&errno)),
    };
    time_limit(None)?;
    match isolet_wire::frame::decode::<VethResponse>(&answer.bytes) {
        Ok(VethResponse { body: VethResponseBody::Hello { version }, .. }) => Ok(version),
        _ => Err(unexpected_answer()),
    }
}

fn unexpected_answer() -> VethError {
    VethError::Gone("it sent an unexpected response".into())
}

impl ClientState {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, mpsc::SyncSender<VethAnswer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forwards answers and events until the process ends.
    fn read(&self, mut on_event: impl FnMut(VethEvent)) {
        loop {
            let packet = match receive_packet(&self.socket, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(Some(packet)) => packet,
                _ => break,
            };
            let Ok(response) = isolet_wire::frame::decode::<VethResponse>(&packet.bytes) else {
                break;
            };
            if let Some(waiting) = self.waiting().remove(&response.number) {
                let _ = waiting.try_send(VethAnswer { body: response.body, fd: packet.fd });
                continue;
            }
            match response.body {
                VethResponseBody::Refused { name, refused } => {
                    on_event(VethEvent::Refused { name, refused })
                }
                VethResponseBody::Gone { name, id } => on_event(VethEvent::Gone { name, id }),
                VethResponseBody::Repaired { description } => {
                    on_event(VethEvent::Repaired(description))
                }
                VethResponseBody::Authority { name, certificate } => {
                    on_event(VethEvent::Authority { name, certificate });
                }
                VethResponseBody::ProxyRestarted => on_event(VethEvent::ProxyRestarted),
                _ => {}
            }
        }
        self.ended.store(true, Ordering::Release);
        // Waiting callers get an error.
        self.waiting().clear();
        on_event(VethEvent::Ended);
    }
}

/// Starts the process, which is the launcher's binary.
fn spawn(config: &Config) -> Result<(OwnedFd, Child), VethError> {
    let proxy = config.launcher.with_file_name("isolet-egress-proxy");
    let mut command = Command::new(&config.launcher);
    command
        .arg("--veth")
        .arg("--data")
        .arg(&config.data_dir)
        .arg("--egress-proxy")
        .arg(proxy)
        .args(["--egress-proxy-user", &(config.uid_base - 1).to_string()]);
    let failed = |error| gone(&format!("{}: {error}", config.launcher.display()));
    helper_socket::spawn(&mut command).map_err(failed)
}
