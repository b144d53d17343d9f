//! One terminal: a program, its PTY, its output, and its clients.
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

mod closing;
mod end;
mod flow;
mod input;
mod pump;
mod ring;

use crate::connection::TerminalClient;
use crate::launch;
use crate::launch::words;
use crate::reactor::poll::Source;
use crate::reactor::{ChildOwner, Reactor, SpawnRequest, environment};
use closing::Closing;
use isolet_sys::pty;
use isolet_sys::spawn::{self, Child};
use isolet_vt::{ReplyFilter, Screen};
use isolet_wire::activity::{Activity, ShellKey};
use isolet_wire::response::{Closed, RefusalReason};
use isolet_wire::terminal::{COLS_MAX, Client, Open, ROWS_MAX, Size, Terminal as Told};
use ring::Ring;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::rc::Weak;
use std::time::{Duration, Instant};

/// Clients of one terminal.
pub(crate) const CLIENTS_MAX: usize = 256;
/// What may wait until the program reads it, before its sender is no longer read.
pub(crate) const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// How long a program may take until it was executed.
const START_MAX: Duration = Duration::from_secs(30);
/// Bytes of a program's arguments that are told.
const ARGV_BYTES_TOLD: usize = 512;
/// Clients that are told in a list of terminals, of all together.
const CLIENTS_TOLD: usize = 1024;

/// What a terminal is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its program was not yet executed.
    Opening,
    /// Its program runs.
    Live,
    /// Its program could not be executed.
    Failed(RefusalReason, String),
    /// Its program has ended.
    Ended(Closed),
}

/// A snapshot that may still be on its way, and what it shows: offset, and sizes so far.
type Drawn = ((u64, u64), Weak<[u8]>);

/// A terminal, from its start until its last client has read its end.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// The id of the session whose terminal this is.
    pub(crate) session: String,
    /// What it is.
    pub(crate) state: State,
    /// Connections that are its clients.
    pub(crate) clients: Vec<u64>,
    /// Connections that wait for its end.
    pub(crate) closers: Vec<u64>,
    /// It was told to end, and nothing of it is left.
    pub(crate) over: bool,
    /// Its clients, or what others see of them, may have changed.
    pub(crate) clients_changed: bool,
    id: u64,
    run_id: String,
    last_client_number: u32,
    pid: i32,
    argv: Vec<String>,
    size: Size,
    /// Whose size it has.
    size_owner: Option<u64>,
    /// Counts the lists of clients.
    clients_version: u64,
    visible_clients: Vec<Client>,
    ring: Ring,
    screen: Screen,
    /// What the screen has seen of the output.
    fed_until: u64,
    reply_filter: ReplyFilter,
    /// Clients that may type, and so answer.
    typing_clients: usize,
    snapshots: Vec<Drawn>,
    master: Option<OwnedFd>,
    /// There may be something to read.
    readable: bool,
    input: Vec<u8>,
    opened: Instant,
    /// When its program has ended.
    pub(crate) ended: Option<Instant>,
    child: Option<Child>,
    handover: Option<OwnedFd>,
    closing: Option<Closing>,
    /// A timer is set for this moment.
    timer_at: Option<Instant>,
}

/// Why a terminal was not opened, and in words.
pub(crate) type Refusal = (RefusalReason, String);

/// A size that may be had; `None` for nothing.
#[must_use]
pub(crate) fn clamp(size: Size) -> Option<Size> {
    (size.cols > 0 && size.rows > 0)
        .then(|| Size { cols: size.cols.min(COLS_MAX), rows: size.rows.min(ROWS_MAX) })
}

impl Terminal {
    /// Starts its program.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn open(
        reactor: &mut Reactor,
        id: u64,
        session: String,
        open: Open,
        size: Size,
    ) -> Result<Self, Refusal> {
        let failed =
            |error: std::io::Error| (RefusalReason::NoProcess, format!("no terminal: {error}"));
        let argv = if open.argv.is_empty() { vec!["bash".to_owned()] } else { open.argv.clone() };
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
            .map_err(|errno| failed(errno.into()))?;
        let order = SpawnRequest { terminal: Some((theirs, size)), ..spawn_request(&open)? };
        let child = reactor.spawn(order, ChildOwner::Terminal(id)).map_err(failed)?;
        let mut terminal = Self {
            session,
            state: State::Opening,
            clients: Vec::new(),
            closers: Vec::new(),
            over: false,
            clients_changed: false,
            id,
            run_id: run_id().map_err(|errno| failed(errno.into()))?,
            last_client_number: 0,
            pid: child.pid,
            argv,
            size,
            size_owner: None,
            clients_version: 0,
            visible_clients: Vec::new(),
            ring: Ring::default(),
            screen: Screen::new(size),
            fed_until: 0,
            reply_filter: ReplyFilter::default(),
            typing_clients: 0,
            snapshots: Vec::new(),
            master: None,
            readable: false,
            input: Vec::new(),
            opened: reactor.now,
            ended: None,
            child: None,
            handover: Some(ours),
            closing: None,
            timer_at: None,
        };
        if let Err(errno) =
            reactor.poll.add(&child.started, Source::PtyExecStatus, id, EventFlags::IN)
        {
            let _ = isolet_sys::signal::send(child.pid, 9);
            return Err(no_process(&errno));
        }
        terminal.child = Some(child);
        Ok(terminal)
    }

    /// Whether its program was executed may be known.
    pub(crate) fn on_exec_status(&mut self, reactor: &mut Reactor) {
        let Some(result) = self.child.as_mut().and_then(Child::exec_result) else { return };
        self.child = None;
        reactor.pending.terminals.mark(self.id);
        let handed = self.handover.take().ok_or(Errno::AGAIN).and_then(pty::receive);
        let master = result.map_err(|failed| self.refusal(failed)).and_then(|()| {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            let master = handed.map_err(|errno| no_process(&errno))?;
            reactor
                .poll
                .add(&master, Source::Pty, self.id, flags)
                .map_err(|errno| no_process(&errno))?;
            Ok(master)
        });
        match master {
            Ok(master) => {
                self.master = Some(master);
                self.state = State::Live;
                self.readable = true;
                self.write();
                reactor.notify_watchers_now(self.id);
            }
            Err((why, message)) => {
                let _ = isolet_sys::signal::send(self.pid, 9);
                self.state = State::Failed(why, message);
            }
        }
    }

    fn refusal(&self, failed: (spawn::Stage, Errno)) -> Refusal {
        launch::refusal(self.argv.first().map_or("", String::as_str), failed)
    }

    /// Its number of a new client's.
    pub(crate) fn next_client_number(&mut self) -> u32 {
        self.last_client_number += 1;
        self.last_client_number
    }

    /// As watchers are told of it; nothing of one that never ran.
    #[must_use]
    pub(crate) fn activity(&self) -> Option<Activity> {
        let closed = match &self.state {
            State::Live => None,
            State::Ended(closed) => Some(closed.clone()),
            State::Opening | State::Failed(..) => return None,
        };
        let session = self.session.clone();
        let clients = self.visible_clients.len() as u32;
        Some(Activity::Terminal { session, pid: self.pid, clients, closed })
    }

    /// As lists tell of it, among `count`; the first of its clients where there are very many.
    #[must_use]
    pub(crate) fn describe(&self, now: Instant, count: usize) -> Told {
        let mut argv = self.argv.clone();
        let mut left = ARGV_BYTES_TOLD;
        for word in &mut argv {
            word.truncate(word.floor_char_boundary(left));
            left -= word.len();
        }
        argv.truncate(64);
        Told {
            name: ShellKey::Terminal(self.session.clone()),
            id: self.run_id.clone(),
            pid: self.pid,
            argv,
            size: self.size,
            offset: self.ring.head(),
            title: self.screen.title().to_owned(),
            clients: self
                .visible_clients
                .iter()
                .take(CLIENTS_TOLD / count.max(1))
                .cloned()
                .collect(),
            age_ms: now.duration_since(self.opened).as_millis() as u64,
        }
    }

    /// It runs, and its name leads to it.
    #[must_use]
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Opening | State::Live) && self.closing.is_none()
    }

    /// It is being ended, and something of it may be left.
    #[must_use]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some() && !self.over
    }

    /// These are its clients now.
    pub(crate) fn set_visible_clients(&mut self, reactor: &mut Reactor, seen: Vec<Client>) {
        self.clients_changed = false;
        if seen == self.visible_clients {
            return;
        }
        if seen.len() != self.visible_clients.len() && self.is_running() {
            reactor.notify_watchers(self.id);
        }
        self.visible_clients = seen;
        self.clients_version += 1;
    }

    /// Whose size it has.
    #[must_use]
    pub(crate) fn size_owner(&self) -> Option<u64> {
        self.size_owner
    }

    /// This connection has become a client.
    pub(crate) fn add_client(&mut self, reactor: &mut Reactor, conn: u64, client: &TerminalClient) {
        self.clients.push(conn);
        self.typing_clients += usize::from(client.may_type());
        self.clients_changed = true;
        reactor.pending.terminals.mark(self.id);
    }

    /// This client has gone.
    pub(crate) fn remove_client(
        &mut self,
        reactor: &mut Reactor,
        conn: u64,
        client: &TerminalClient,
    ) {
        self.clients.retain(|client| *client != conn);
        self.typing_clients -= usize::from(client.may_type());
        if self.size_owner == Some(conn) {
            self.size_owner = None;
        }
        self.clients_changed = true;
        reactor.pending.terminals.mark(self.id);
    }
}

fn no_process(errno: &Errno) -> Refusal {
    (RefusalReason::NoProcess, format!("no terminal: {errno}"))
}

/// What to start.
fn spawn_request(open: &Open) -> Result<SpawnRequest, Refusal> {
    let bad = || {
        let text = "no program, a NUL byte, or a name of the environment with `=`";
        (RefusalReason::BadAsk, text.to_owned())
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

/// 16 letters of base32, at random.
fn run_id() -> Result<String, Errno> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}
