//! One terminal: a program, its PTY, its output and its clients.
//!
//! Output goes into a ring, from there at once to the clients ([`pump`]), and only then to the model
//! of the screen. A client has a position in the ring and nothing else.
//!
//! - The program opens `/dev/ptmx` itself, after it became the tenant and before it executes: the
//!   node belongs to the tenant, and nothing that the tenant does to it blocks the agent. The agent
//!   receives the other side by a socket and checks it before use.
//! - Each round reads at most 64 KiB into the ring (2 MiB, 64-bit offsets).
//! - A client that fell out of the ring receives a snapshot of the model and continues behind it.
//!   Size changes are marks between bytes, so that every client sees them between the same two
//!   bytes.
//! - The program waits while the fastest client is half a ring behind. A client that reads nothing
//!   for 50 ms is ignored until it reads again.
//! - The end is reported behind the last byte. Other processes that still hold the terminal get a
//!   hang-up from the kernel, and nobody waits for them.
//! - Input waits in a buffer of 1 MiB while the program does not read. An interrupt empties it and
//!   the kernel's own buffer: otherwise an unread paste would keep Ctrl-C out.

mod close_state;
mod end;
mod flow;
mod input;
mod pump;
mod ring;
mod state;

use crate::connection::TerminalClient;
use crate::launch;
use crate::launch::words;
use crate::reactor::poll::EventSource;
use crate::reactor::{ChildOwner, Reactor, SpawnRequest, environment};
use close_state::CloseProgress;
use isolet_sys::{pty, spawn};
use isolet_vt::{ReplyFilter, Screen};
use isolet_wire::activity::{Activity, ShellKey};
use isolet_wire::response::RefusalReason;
use isolet_wire::terminal::{
    COLS_MAX, OpenTerminal, ROWS_MAX, Size, TerminalClientInfo, TerminalStatus,
};
use ring::OutputRing;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use state::StartProgress;
pub(crate) use state::TerminalState;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::rc::Weak;
use std::time::{Duration, Instant};

/// Maximum number of clients of one terminal.
pub(crate) const CLIENTS_MAX: usize = 256;
/// Unread input, in bytes, above which the sender is no longer read.
pub(crate) const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// Timeout of the program's execution.
const START_MAX: Duration = Duration::from_secs(30);
/// Maximum length of the reported arguments, in bytes.
const ARGV_BYTES_TOLD: usize = 512;
/// Maximum number of clients in a list of terminals, all terminals together.
const CLIENTS_TOLD: usize = 1024;

/// A snapshot that may still be in transit, with the offset and the number of size changes that it
/// shows.
type Drawn = ((u64, u64), Weak<[u8]>);

/// A terminal, from its start until its last client has read its end. It has many fields because
/// output, screen, input and clients all depend on the one PTY.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// The id of the session whose terminal this is.
    pub(crate) session: String,
    /// The state of the program; `enter` changes it.
    pub(crate) state: TerminalState,
    /// Whether a client requested the end of the terminal, and how far it got.
    close_progress: CloseProgress,
    /// Connections of the clients.
    pub(crate) clients: Vec<u64>,
    /// Connections that wait for the end of the terminal.
    pub(crate) closers: Vec<u64>,
    /// The clients, or what others see of them, may have changed.
    pub(crate) clients_changed: bool,
    id: u64,
    run_id: String,
    pid: i32,
    argv: Vec<String>,
    size: Size,
    roster: ClientRoster,
    ring: OutputRing,
    display: Display,
    pty: Pty,
    opened: Instant,
    /// The moment for which a timer is set.
    timer_at: Option<Instant>,
}

/// The clients of a terminal, as far as the terminal itself needs them.
#[derive(Debug, Default)]
struct ClientRoster {
    /// Number of the last client.
    last_number: u32,
    /// The client whose window determines the size.
    size_owner: Option<u64>,
    /// Number of changes of the list of visible clients.
    version: u64,
    visible: Vec<TerminalClientInfo>,
    /// Number of clients that may type and therefore answer queries.
    typing: usize,
}

/// The screen model and the snapshots that were drawn from it.
#[derive(Debug)]
struct Display {
    screen: Screen,
    /// Offset of the output that the screen has processed.
    fed_until: u64,
    reply_filter: ReplyFilter,
    snapshots: Vec<Drawn>,
}

/// The PTY of a terminal.
#[derive(Debug, Default)]
struct Pty {
    master: Option<OwnedFd>,
    /// The PTY may be readable.
    readable: bool,
    /// Input that the program has not read yet.
    input: Vec<u8>,
}

/// The reason why a terminal was not opened, with a message.
pub(crate) type Refusal = (RefusalReason, String);

/// Limits a size; `None` for an empty one.
#[must_use]
pub(crate) fn clamp(size: Size) -> Option<Size> {
    (size.cols > 0 && size.rows > 0)
        .then(|| Size { cols: size.cols.min(COLS_MAX), rows: size.rows.min(ROWS_MAX) })
}

impl Terminal {
    /// Starts the program.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub(crate) fn open(
        reactor: &mut Reactor,
        id: u64,
        session: String,
        open: OpenTerminal,
        size: Size,
    ) -> Result<Self, Refusal> {
        let failed =
            |error: std::io::Error| (RefusalReason::NoProcess, format!("no terminal: {error}"));
        let argv = if open.argv.is_empty() { vec!["bash".to_owned()] } else { open.argv.clone() };
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
            .map_err(|errno| failed(errno.into()))?;
        let request = SpawnRequest { terminal: Some((theirs, size)), ..spawn_request(&open)? };
        let run_id = run_id().map_err(|errno| failed(errno.into()))?;
        let child = reactor.spawn(request, ChildOwner::Terminal(id)).map_err(failed)?;
        if let Err(errno) =
            reactor.poll.add(&child.started, EventSource::PtyExecStatus, id, EventFlags::IN)
        {
            let _ = isolet_sys::signal::send(child.pid, 9);
            return Err(no_process(&errno));
        }
        Ok(Self {
            session,
            pid: child.pid,
            state: TerminalState::Opening(StartProgress { child, handover: ours }),
            close_progress: CloseProgress::NotRequested,
            clients: Vec::new(),
            closers: Vec::new(),
            clients_changed: false,
            id,
            run_id,
            argv,
            size,
            roster: ClientRoster::default(),
            ring: OutputRing::default(),
            display: Display {
                screen: Screen::new(size),
                fed_until: 0,
                reply_filter: ReplyFilter::default(),
                snapshots: Vec::new(),
            },
            pty: Pty::default(),
            opened: reactor.now,
            timer_at: None,
        })
    }

    /// The exec status of the program may be available.
    pub(crate) fn on_exec_status(&mut self, reactor: &mut Reactor) {
        let TerminalState::Opening(start) = &mut self.state else { return };
        let Some(result) = start.child.exec_result() else { return };
        reactor.pending.terminals.mark(self.id);
        let handed = pty::receive(&start.handover);
        let master = result.map_err(|failed| self.refusal(failed)).and_then(|()| {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            let master = handed.map_err(|errno| no_process(&errno))?;
            reactor
                .poll
                .add(&master, EventSource::Pty, self.id, flags)
                .map_err(|errno| no_process(&errno))?;
            Ok(master)
        });
        match master {
            Ok(master) => {
                self.pty.master = Some(master);
                self.enter(TerminalState::Live);
                self.pty.readable = true;
                self.write();
                reactor.notify_watchers_now(self.id);
            }
            Err((reason, message)) => {
                let _ = isolet_sys::signal::send(self.pid, 9);
                self.enter(TerminalState::Failed(reason, message));
            }
        }
    }

    fn refusal(&self, failed: (spawn::Stage, Errno)) -> Refusal {
        launch::refusal(self.argv.first().map_or("", String::as_str), failed.0, failed.1)
    }

    /// The number for a new client.
    pub(crate) fn next_client_number(&mut self) -> u32 {
        self.roster.last_number += 1;
        self.roster.last_number
    }

    /// The description for watchers; `None` if the program never ran.
    #[must_use]
    pub(crate) fn activity(&self) -> Option<Activity> {
        let closed = match &self.state {
            TerminalState::Live => None,
            TerminalState::Ended(ended) => Some(ended.closed.clone()),
            TerminalState::Opening(_) | TerminalState::Failed(..) => return None,
        };
        let session = self.session.clone();
        let clients = self.roster.visible.len() as u32;
        Some(Activity::Terminal { session, pid: self.pid, clients, closed })
    }

    /// The description for a list of `count` terminals. If there are many, only the first clients
    /// are included.
    #[must_use]
    pub(crate) fn describe(&self, now: Instant, count: usize) -> TerminalStatus {
        let mut argv = self.argv.clone();
        let mut left = ARGV_BYTES_TOLD;
        for word in &mut argv {
            word.truncate(word.floor_char_boundary(left));
            left -= word.len();
        }
        argv.truncate(64);
        TerminalStatus {
            name: ShellKey::Terminal(self.session.clone()),
            id: self.run_id.clone(),
            pid: self.pid,
            argv,
            size: self.size,
            offset: self.ring.head(),
            title: self.display.screen.title().to_owned(),
            clients: self
                .roster
                .visible
                .iter()
                .take(CLIENTS_TOLD / count.max(1))
                .cloned()
                .collect(),
            age_ms: now.duration_since(self.opened).as_millis() as u64,
        }
    }

    /// Whether clients can attach to the terminal.
    #[must_use]
    pub(crate) fn is_running(&self) -> bool {
        self.state.has_program() && matches!(self.close_progress, CloseProgress::NotRequested)
    }

    /// Whether the terminal is being closed and some of its processes may be left.
    #[must_use]
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.close_progress, CloseProgress::Closing(_))
    }

    /// Whether the terminal was closed and nothing of it is left.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.close_progress, CloseProgress::Done)
    }

    /// Replaces the list of visible clients.
    pub(crate) fn set_visible_clients(
        &mut self,
        reactor: &mut Reactor,
        seen: Vec<TerminalClientInfo>,
    ) {
        self.clients_changed = false;
        if seen == self.roster.visible {
            return;
        }
        if seen.len() != self.roster.visible.len() && self.is_running() {
            reactor.notify_watchers(self.id);
        }
        self.roster.visible = seen;
        self.roster.version += 1;
    }

    /// The client whose window determines the size.
    #[must_use]
    pub(crate) fn size_owner(&self) -> Option<u64> {
        self.roster.size_owner
    }

    pub(crate) fn add_client(&mut self, reactor: &mut Reactor, conn: u64, client: &TerminalClient) {
        self.clients.push(conn);
        self.roster.typing += usize::from(client.may_type());
        self.clients_changed = true;
        reactor.pending.terminals.mark(self.id);
    }

    pub(crate) fn remove_client(
        &mut self,
        reactor: &mut Reactor,
        conn: u64,
        client: &TerminalClient,
    ) {
        self.clients.retain(|client| *client != conn);
        self.roster.typing -= usize::from(client.may_type());
        if self.roster.size_owner == Some(conn) {
            self.roster.size_owner = None;
        }
        self.clients_changed = true;
        reactor.pending.terminals.mark(self.id);
    }
}

fn no_process(errno: &Errno) -> Refusal {
    (RefusalReason::NoProcess, format!("no terminal: {errno}"))
}

/// The parameters for starting the program.
fn spawn_request(open: &OpenTerminal) -> Result<SpawnRequest, Refusal> {
    let bad = || {
        let text = "no program, a NUL byte, or a name of the environment with `=`";
        (RefusalReason::BadRequest, text.to_owned())
    };
    let mut env = open.env.clone();
    env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
    env.entry("COLORTERM".to_owned()).or_insert_with(|| "truecolor".to_owned());
    let path = env.get("PATH").map_or(words::PATH, String::as_str);
    let (programs, argv) = match open.argv.first() {
        None => {
            let programs = launch::BASH.map(ToOwned::to_owned).to_vec();
            (programs, vec![c"bash".to_owned()])
        }
        Some(name) if name.is_empty() => return Err(bad()),
        Some(name) => (
            strings(&words::programs(name, path)).ok_or_else(bad)?,
            strings(&open.argv).ok_or_else(bad)?,
        ),
    };
    Ok(SpawnRequest {
        programs,
        argv,
        envp: environment(&env).ok_or_else(bad)?,
        cwd: CString::new(open.cwd.as_str()).map_err(|_| bad())?,
        fds: Vec::new(),
        uid: 0,
        terminal: None,
        group: None,
    })
}

fn strings(list: &[String]) -> Option<Vec<CString>> {
    list.iter().map(|text| CString::new(text.as_str()).ok()).collect()
}

/// 16 random letters in base32.
fn run_id() -> Result<String, Errno> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}
