//! The server's side of links: find the process that owns them or start it, ask, and hear news.

use super::socket::connect;
use crate::config::Config;
use crate::kernel::packet::{receive_packet, send_packet};
use isolet_wire::lend::Credential;
use isolet_wire::links::{
    Counters, LIST_MAX, LinkAsk, LinkOrder, LinkTell, LinkTold, Settings, Standing,
};
use isolet_wire::network::{Policy, Refused};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// How long one answer may take: a link is made in milliseconds, a host under load takes longer.
const ANSWER_WAIT: Duration = Duration::from_secs(20);

/// Why there is no link, or no change of one.
#[derive(Debug, thiserror::Error)]
pub enum VethError {
    /// This machine cannot have links; what to do.
    #[error("{0}")]
    Missing(String),
    /// It was refused; nothing has changed.
    #[error("{0}")]
    Refused(String),
    /// The process has ended: every link with it. Start another.
    #[error("the process that owns links is gone: {0}")]
    Gone(String),
}

/// What comes without being asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VethEvent {
    /// A connection of this sandbox was refused.
    Refused {
        /// The server's own name of the sandbox.
        name: String,
        /// What.
        refused: Refused,
    },
    /// The namespace of this sandbox has ended, and its link with it.
    Gone {
        /// The server's own name of the sandbox.
        name: String,
        /// Its link.
        id: u32,
    },
    /// Whom this sandbox is to trust from now on, so that credentials reach hosts within TLS.
    Authority {
        /// The server's own name of the sandbox.
        name: String,
        /// The certificate, as PEM.
        certificate: String,
    },
    /// Something was changed from outside, and what was done about it.
    Repaired(String),
    /// The process has ended: every link is gone.
    Ended,
}

/// The process that owns links. It goes on without this.
#[derive(Debug)]
pub struct VethClient {
    shared: Arc<Shared>,
    /// Of its start: links of another are gone.
    pub boot: u64,
    /// Whether rules with names can be had.
    pub names: bool,
    /// What of this machine is in the way although links can be had: one sentence a thing, with what
    /// to do.
    pub warnings: Vec<String>,
    /// Where it was started here.
    child: Mutex<Option<Child>>,
}

#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    next: AtomicU64,
    gone: AtomicBool,
    waiting: Mutex<HashMap<u64, mpsc::SyncSender<Answer>>>,
}

type Answer = (LinkTell, Option<OwnedFd>);

fn gone(error: &dyn std::fmt::Display) -> VethError {
    VethError::Gone(error.to_string())
}

impl VethClient {
    /// Whether one listens, from an earlier server.
    #[must_use]
    pub fn stand(config: &Config) -> bool {
        connect(&config.data_dir).is_ok()
    }

    /// Finds the one that an earlier server has started, or starts one. Blocks. Every piece of
    /// news goes to `news`, on a thread of its own.
    ///
    /// # Errors
    /// [`VethError::Missing`] with what this machine lacks, [`VethError::Gone`].
    pub fn start(
        config: &Config,
        settings: Settings,
        news: impl FnMut(VethEvent) + Send + 'static,
    ) -> Result<Self, VethError> {
        let (socket, child) = match connect(&config.data_dir) {
            Ok(socket) => (socket, None),
            Err(_) => spawn(config).map(|(socket, child)| (socket, Some(child)))?,
        };
        let shared = Arc::new(Shared {
            socket,
            next: AtomicU64::new(1),
            gone: AtomicBool::new(false),
            waiting: Mutex::default(),
        });
        let reader = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("links".into())
            .spawn(move || reader.read(news))
            .map_err(|error| gone(&error))?;
        let mut links =
            Self { shared, boot: 0, names: false, warnings: Vec::new(), child: Mutex::new(child) };
        match links.ask(LinkAsk::Begin(settings), None)?.0 {
            LinkTell::Ready { boot, names, missing, warnings } if missing.is_empty() => {
                (links.boot, links.names, links.warnings) = (boot, names, warnings);
                Ok(links)
            }
            LinkTell::Ready { missing, .. } => Err(VethError::Missing(missing.join("; "))),
            _ => Err(turn()),
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn gone(&self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    /// A link that was prepared, and the network namespace that its sandbox is to be born in.
    ///
    /// # Errors
    /// As [`VethError`] says.
    pub fn take(&self, name: &str, policy: &Policy) -> Result<(Standing, OwnedFd), VethError> {
        let ask = LinkAsk::Take { name: name.to_owned(), policy: policy.clone() };
        match self.ask(ask, None)? {
            (LinkTell::Taken(standing), Some(space)) => Ok((standing, space)),
            _ => Err(turn()),
        }
    }

    /// A link for a sandbox that runs, into the network namespace behind `space`.
    ///
    /// # Errors
    /// As [`VethError`] says.
    pub fn attach(
        &self,
        name: &str,
        policy: &Policy,
        space: BorrowedFd<'_>,
    ) -> Result<Standing, VethError> {
        let ask = LinkAsk::Attach { name: name.to_owned(), policy: policy.clone() };
        match self.ask(ask, Some(space))?.0 {
            LinkTell::Taken(standing) => Ok(standing),
            _ => Err(turn()),
        }
    }

    /// Other rules for a link; they hold when this comes back, also for what runs.
    ///
    /// # Errors
    /// As [`VethError`] says.
    pub fn set(&self, id: u32, policy: &Policy) -> Result<(), VethError> {
        self.done(LinkAsk::Set { id, policy: policy.clone() })
    }

    /// Lends credentials to a link in place of those that it had; whom its sandbox is to trust, as
    /// PEM, where some are for TLS.
    ///
    /// # Errors
    /// As [`VethError`] says.
    pub fn lend(&self, id: u32, credentials: Vec<Credential>) -> Result<Option<String>, VethError> {
        match self.ask(LinkAsk::Lend { id, credentials }, None)?.0 {
            LinkTell::Lent { certificate } => Ok(certificate),
            _ => Err(turn()),
        }
    }

    /// Takes a link away; one that is gone is no error.
    ///
    /// # Errors
    /// As [`VethError`] says.
    pub fn release(&self, id: u32) -> Result<(), VethError> {
        self.done(LinkAsk::Release { id })
    }

    /// Every refusal until now is news when this comes back.
    ///
    /// # Errors
    /// As [`VethError`] says.
    pub fn settle(&self) -> Result<(), VethError> {
        self.done(LinkAsk::Settle)
    }

    /// Who has which link.
    ///
    /// # Errors
    /// As [`VethError`] says.
    pub fn list(&self) -> Result<Vec<Standing>, VethError> {
        let mut all: Vec<Standing> = Vec::new();
        loop {
            let after = all.last().map_or(0, |last| last.id);
            let LinkTell::Listed(some) = self.ask(LinkAsk::List { after }, None)?.0 else {
                return Err(turn());
            };
            let more = some.len() == LIST_MAX;
            all.extend(some);
            if !more {
                return Ok(all);
            }
        }
    }

    /// What went over a link.
    ///
    /// # Errors
    /// As [`VethError`] says.
    pub fn counters(&self, id: u32) -> Result<Counters, VethError> {
        match self.ask(LinkAsk::Counters { id }, None)?.0 {
            LinkTell::Counted(counters) => Ok(counters),
            _ => Err(turn()),
        }
    }

    /// Lets go of it: when no sandbox has a link, it ends.
    pub fn leave(&self) {
        let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
    }

    fn done(&self, ask: LinkAsk) -> Result<(), VethError> {
        match self.ask(ask, None)?.0 {
            LinkTell::Done => Ok(()),
            _ => Err(turn()),
        }
    }

    fn ask(&self, ask: LinkAsk, fd: Option<BorrowedFd<'_>>) -> Result<Answer, VethError> {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::sync_channel(1);
        self.shared.waiting().insert(number, sender);
        let packet = isolet_wire::launch::encode(&LinkOrder { number, ask });
        let asked = send_packet(&self.shared.socket, &packet, fd, SendFlags::empty());
        let told = match asked {
            Ok(()) if !self.gone() => {
                answer.recv_timeout(ANSWER_WAIT).map_err(|error| gone(&error))
            }
            Ok(()) => Err(gone(&"it ended")),
            Err(errno) => Err(gone(&errno)),
        };
        self.shared.waiting().remove(&number);
        match told? {
            (LinkTell::Failed { why }, _) => Err(VethError::Refused(why)),
            answer => Ok(answer),
        }
    }
}

impl Drop for VethClient {
    fn drop(&mut self) {
        self.leave();
        // One that has ended is waited for; one that goes on is somebody else's then.
        if let Some(child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = child.try_wait();
        }
    }
}

fn turn() -> VethError {
    VethError::Gone("it answered something else".into())
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, mpsc::SyncSender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands answers to who waits and news on, until the process is gone.
    fn read(&self, mut news: impl FnMut(VethEvent)) {
        loop {
            let packet = match receive_packet(&self.socket, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(Some(packet)) => packet,
                _ => break,
            };
            let Ok(told) = isolet_wire::frame::decode::<LinkTold>(&packet.bytes) else { break };
            if let Some(waits) = self.waiting().remove(&told.number) {
                let _ = waits.try_send((told.tell, packet.fd));
                continue;
            }
            match told.tell {
                LinkTell::Refused { name, refused } => news(VethEvent::Refused { name, refused }),
                LinkTell::Gone { name, id } => news(VethEvent::Gone { name, id }),
                LinkTell::Repaired { what } => news(VethEvent::Repaired(what)),
                LinkTell::Authority { name, certificate } => {
                    news(VethEvent::Authority { name, certificate });
                }
                _ => {}
            }
        }
        self.gone.store(true, Ordering::Release);
        // Who waits hears of it.
        self.waiting().clear();
        news(VethEvent::Ended);
    }
}

/// Starts one, in the directory of the launcher.
fn spawn(config: &Config) -> Result<(OwnedFd, Child), VethError> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| gone(&error))?;
    let edge = config.launcher.with_file_name("isolet-edge");
    let child = Command::new(&config.launcher)
        .arg("--links")
        .arg("--data")
        .arg(&config.data_dir)
        .arg("--edge")
        .arg(edge)
        .args(["--edge-user", &(config.uid_base - 1).to_string()])
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| gone(&format!("{}: {error}", config.launcher.display())))?;
    Ok((ours, child))
}
