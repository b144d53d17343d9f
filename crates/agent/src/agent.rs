//! The agent: who is connected, which shells and programs there are, and what is done with what
//! was asked. One thread; nothing here blocks.

use crate::conn::{Client, Conn, Role};
use crate::exec::{self, Exec};
use crate::hub::{Hub, Parent, READ_BYTES, Timer};
use crate::log::View;
use crate::poll::{Ready, What};
use crate::shell::{self, Shell, State};
use isolet_wire::VERSION;
use isolet_wire::ask::{Ask, Attach};
use isolet_wire::frame::{self, Frame};
use isolet_wire::tell::{STDERR, STDOUT, Tell, Why};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Connections at once.
const CONNS_MAX: usize = 4096;
/// Shells at once, with those whose log is kept after their end.
const SHELLS_MAX: usize = 1024;
/// Programs at once.
const EXECS_MAX: usize = 1024;
/// File calls at once.
const FILES_MAX: usize = 256;
/// The longest a file call may take.
const FILE_MAX: Duration = Duration::from_secs(15 * 60);
/// How long connections wait when descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Changes of a shell within this time are told to watchers as one.
const WATCH_PAUSE: Duration = Duration::from_millis(5);
/// The news that a command began waits this long for its first output, to go out with it.
const STARTED_PAUSE: Duration = Duration::from_millis(1);
/// Frames of one connection that are done before others have their turn.
const FRAMES_MAX: usize = 64;

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Agent {
    hub: Hub,
    listen: OwnedFd,
    children: OwnedFd,
    conns: HashMap<u64, Conn>,
    shells: HashMap<u64, Shell>,
    names: HashMap<String, u64>,
    execs: HashMap<u64, Exec>,
    files: HashMap<i32, Instant>,
    watchers: Vec<u64>,
    watch_set: bool,
    again: Vec<u64>,
    lazy: Vec<u64>,
    lazy_due: Option<Instant>,
    touched: Vec<u64>,
    scratch: Vec<u8>,
}

impl Agent {
    /// Begins to listen.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn new(hub: Hub, listen: OwnedFd) -> std::io::Result<Self> {
        let children = isolet_sys::signal::children()?;
        rustix::io::ioctl_fionbio(&listen, true)?;
        hub.poll.add(&listen, What::Listen, 0, EventFlags::IN)?;
        hub.poll.add(&children, What::Children, 0, EventFlags::IN)?;
        Ok(Self {
            hub,
            listen,
            children,
            conns: HashMap::new(),
            shells: HashMap::new(),
            names: HashMap::new(),
            execs: HashMap::new(),
            files: HashMap::new(),
            watchers: Vec::new(),
            watch_set: false,
            again: Vec::new(),
            lazy: Vec::new(),
            lazy_due: None,
            touched: Vec::new(),
            scratch: vec![0; READ_BYTES],
        })
    }

    /// Serves for good.
    pub(crate) fn serve(&mut self) -> ! {
        let mut ready = Vec::new();
        loop {
            let mut limit = self.hub.wait();
            if let Some(due) = self.lazy_due {
                let lazy = due.saturating_duration_since(self.hub.now);
                limit = Some(limit.map_or(lazy, |limit| limit.min(lazy)));
            }
            if !self.again.is_empty() {
                limit = Some(Duration::ZERO);
            }
            self.hub.poll.wait(limit, &mut ready);
            self.hub.now = Instant::now();
            for event in ready.drain(..) {
                self.event(event);
            }
            while let Some((when, timer)) = self.hub.due() {
                self.timer(when, timer);
            }
            for id in std::mem::take(&mut self.again) {
                self.frames(id);
            }
            self.settle();
        }
    }

    fn event(&mut self, ready: Ready) {
        let id = ready.id;
        match ready.what {
            What::Listen => self.accept(),
            What::Children => self.reap(),
            What::Conn => self.conn(id, ready.gone),
            What::Drain => self.hub.drained(id),
            What::ExecOut | What::ExecErr | What::ExecIn | What::ExecBorn => self.exec_event(ready),
            what => {
                let Some(shell) = self.shells.get_mut(&id) else { return };
                match what {
                    What::Status => shell.status(&mut self.hub),
                    What::Out => shell.readable(&mut self.hub, STDOUT),
                    What::Err => shell.readable(&mut self.hub, STDERR),
                    What::Born => shell.born(&mut self.hub),
                    What::Control => shell.room(&mut self.hub),
                    _ => shell.feed(&mut self.hub),
                }
            }
        }
    }

    fn exec_event(&mut self, ready: Ready) {
        let Some(exec) = self.execs.get_mut(&ready.id) else { return };
        self.touched.push(ready.id);
        let conn = exec.conn.and_then(|conn| self.conns.get_mut(&conn));
        match ready.what {
            What::ExecOut => exec.readable(&mut self.hub, conn, STDOUT),
            What::ExecErr => exec.readable(&mut self.hub, conn, STDERR),
            What::ExecIn => exec.feed(&self.hub),
            _ => {
                if let Some((why, message)) = exec.born(&mut self.hub) {
                    self.exec_refused(ready.id, why, message);
                }
            }
        }
    }

    fn timer(&mut self, when: Instant, timer: Timer) {
        match timer {
            Timer::Shell(id) => {
                if let Some(shell) = self.shells.get_mut(&id) {
                    shell.tick(&mut self.hub, when);
                }
            }
            Timer::Exec(id) => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.tick(&mut self.hub);
                    self.touched.push(id);
                }
            }
            Timer::Accept => {
                self.hub.poll.modify(&self.listen, What::Listen, 0, EventFlags::IN);
                self.accept();
            }
            Timer::Watch => {
                self.watch_set = false;
                self.tell_watchers();
            }
            Timer::Files => {
                for (pid, _) in self.files.iter().filter(|(_, due)| **due <= self.hub.now) {
                    let _ = isolet_sys::signal::send(*pid, 9);
                }
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..FRAMES_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.listen, flags) {
                Ok(fd) => self.welcome(fd),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // Out of descriptors or memory: the waiting connection keeps the socket
                    // readable, so it is not looked at for a while.
                    let none = EventFlags::empty();
                    self.hub.poll.modify(&self.listen, What::Listen, 0, none);
                    self.hub.at(self.hub.now + ACCEPT_PAUSE, Timer::Accept);
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, fd: OwnedFd) {
        // A tenant is inside the process namespace, the server is not.
        let inside =
            self.hub.config.userns.is_some() && !matches!(isolet_sys::peer::pid(&fd), Ok(0));
        if inside || self.conns.len() >= CONNS_MAX {
            return;
        }
        let id = self.hub.id();
        if self.hub.poll.add(&fd, What::Conn, id, EventFlags::IN).is_ok() {
            self.conns.insert(id, Conn::new(id, fd));
        }
    }

    fn conn(&mut self, id: u64, gone: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.held {
            if gone {
                self.hang_up(id);
            } else {
                self.pump(id);
            }
            return;
        }
        if !conn.receive(&mut self.scratch) {
            self.hang_up(id);
            return;
        }
        self.frames(id);
        self.pump(id);
    }

    /// Takes the frames that have come.
    fn frames(&mut self, id: u64) {
        for _ in 0..FRAMES_MAX {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            let ask = match conn.frame() {
                Ok(None) => return,
                Ok(Some(Frame::Message(body))) => frame::decode::<Ask>(&body),
                Ok(Some(Frame::Data(_))) => Err(frame::FrameError::Body),
                Err(error) => Err(error),
            };
            match ask {
                Ok(ask) => self.ask(id, ask),
                Err(_) => self.hang_up(id),
            }
        }
        if self.conns.contains_key(&id) && !self.again.contains(&id) {
            self.again.push(id);
        }
    }

    fn tell(&mut self, id: u64, tell: &Tell) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.tell(tell);
        }
        self.pump(id);
    }

    fn refuse(&mut self, id: u64, of: Option<String>, why: Why, message: impl Into<String>) {
        self.tell(id, &Tell::Refused { id: of, why, message: message.into() });
    }

    fn ask(&mut self, id: u64, ask: Ask) {
        let new = self.conns.get(&id).is_none_or(|conn| matches!(conn.role, Role::New));
        match ask {
            Ask::Hello { version } if new => self.hello(id, version),
            _ if new => {
                self.refuse(id, None, Why::BadAsk, "hello comes first");
                self.hang_up(id);
            }
            Ask::Hello { .. } => self.refuse(id, None, Why::BadAsk, "hello comes once"),
            Ask::Ping(number) => self.tell(id, &Tell::Pong(number)),
            Ask::Watch => self.watch(id),
            Ask::Attach(attach) => self.attach(id, attach),
            Ask::Run(run) => {
                let of = Some(run.id.clone());
                let result = self.with_shell(id, |shell, hub, owner| shell.run(hub, owner, run));
                if let Some(Err((why, message))) = result {
                    self.refuse(id, of, why, message);
                } else if result.is_none() {
                    self.refuse(id, of, Why::NoShell, "no shell is attached here");
                }
            }
            Ask::Stdin { id: of, data, eof } => self.stdin(id, of, &data, eof),
            Ask::Signal { id: of, signal } => self.signal(id, of, signal),
            Ask::Cancel { id: of } => self.cancel(id, of),
            Ask::Close { shell } => self.close(id, &shell),
            Ask::Exec(exec) => self.exec(id, exec),
            Ask::File(file) => self.file(id, file),
        }
    }

    fn hello(&mut self, id: u64, version: u16) {
        if version != VERSION {
            let message = format!("this agent speaks version {VERSION}");
            self.refuse(id, None, Why::BadAsk, message);
            self.hang_up(id);
            return;
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Ready;
        }
        self.tell(id, &Tell::Hello { version: VERSION });
    }

    /// Does something with the shell that this connection is a client of.
    fn with_shell<T>(
        &mut self,
        id: u64,
        work: impl FnOnce(&mut Shell, &mut Hub, &str) -> T,
    ) -> Option<T> {
        let Role::Client(client) = &self.conns.get(&id)?.role else { return None };
        let shell = self.shells.get_mut(&client.shell)?;
        self.hub.touch(client.shell);
        Some(work(shell, &mut self.hub, &client.view.owner))
    }

    fn exec_of(&mut self, id: u64) -> Option<(&mut Exec, &mut Hub)> {
        let Role::Exec(exec) = self.conns.get(&id)?.role else { return None };
        self.touched.push(exec);
        Some((self.execs.get_mut(&exec)?, &mut self.hub))
    }

    fn stdin(&mut self, id: u64, of: String, data: &[u8], eof: bool) {
        let (held, max) = match self.exec_of(id) {
            Some((exec, hub)) => (exec.input(hub, data, eof), exec::INPUT_BYTES_MAX),
            None => {
                let held = self
                    .with_shell(id, |shell, hub, owner| shell.input(hub, (owner, &of), data, eof));
                (held.flatten(), shell::INPUT_BYTES_MAX)
            }
        };
        match held {
            Some(held) if held > max => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.held = true;
                    conn.interest(&self.hub.poll);
                }
            }
            Some(_) => {}
            // A command that has just ended is no error of its sender's.
            None => {}
        }
    }

    fn signal(&mut self, id: u64, of: String, signal: i32) {
        if !(1..=64).contains(&signal) {
            self.refuse(id, Some(of), Why::BadAsk, "signals are 1 to 64");
            return;
        }
        if let Some((exec, _)) = self.exec_of(id) {
            exec.signal(signal);
            return;
        }
        let found = self.with_shell(id, |shell, hub, owner| shell.signal(hub, owner, &of, signal));
        if found != Some(true) {
            self.refuse(id, Some(of), Why::BadAsk, "no such command is running");
        }
    }

    fn cancel(&mut self, id: u64, of: String) {
        if let Some((exec, hub)) = self.exec_of(id) {
            exec.cancel(hub);
            return;
        }
        let found = self.with_shell(id, |shell, hub, owner| shell.cancel(hub, owner, &of));
        if found != Some(true) {
            self.refuse(id, Some(of), Why::BadAsk, "no such command is running or waiting");
        }
    }

    fn close(&mut self, id: u64, name: &str) {
        let shell = self.names.get(name).and_then(|shell| self.shells.get_mut(shell));
        let Some(shell) = shell else { return self.tell(id, &Tell::Done) };
        shell.closers.push(id);
        shell.close(&mut self.hub, "closed by client");
    }

    fn attach(&mut self, id: u64, attach: Attach) {
        match self.conns.get(&id).map(|conn| &conn.role) {
            Some(Role::Ready) => {}
            Some(Role::Client(client)) => {
                let shell = client.shell;
                if self.shells.get(&shell).is_some_and(|shell| shell.state != State::Dead) {
                    let message = "this connection is a client of a shell already";
                    return self.refuse(id, None, Why::BadAsk, message);
                }
                self.detach(id, shell);
            }
            _ => return self.refuse(id, None, Why::BadAsk, "this connection has another use"),
        }
        let Some((shell_id, fresh)) = self.shell_for(id, &attach) else { return };
        let Some(shell) = self.shells.get_mut(&shell_id) else { return };
        let place = match attach.since {
            since if shell.state == State::Dead && !shell.lasting() => shell.log.last_words(since),
            Some(since) => shell.log.since(since),
            None => shell.log.now(),
        };
        shell.clients.push(id);
        self.hub.tell(shell_id);
        self.hub.touch(shell_id);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Client(Client {
                shell: shell_id,
                view: View { owner: attach.owner, watch: attach.watch },
                place,
                announced: false,
                fresh,
                moved: self.hub.now,
            });
        }
    }

    /// The shell to attach to, opened where that is asked; and whether it was. `None`: refused.
    fn shell_for(&mut self, id: u64, attach: &Attach) -> Option<(u64, bool)> {
        let named = attach.shell.strip_prefix("s/").or(attach.shell.strip_prefix("p/"));
        if named.is_none_or(str::is_empty) || attach.shell.len() + attach.owner.len() > 256 {
            self.refuse(id, None, Why::BadAsk, "a shell's name begins with s/ or p/");
            return None;
        }
        if let Some(shell_id) = self.names.get(&attach.shell).copied() {
            let shell = self.shells.get_mut(&shell_id)?;
            let dead = matches!(shell.state, State::Dead | State::Failed(..));
            let again = dead && shell.lasting();
            if again {
                if let Some(open) = &attach.open {
                    shell.open = open.clone();
                }
                shell.start(&mut self.hub);
            }
            return Some((shell_id, again));
        }
        let Some(open) = attach.open.clone() else {
            self.refuse(id, None, Why::NoShell, "there is no such shell");
            return None;
        };
        if self.shells.len() >= SHELLS_MAX && !self.forget_one() {
            self.refuse(id, None, Why::TooMany, format!("at most {SHELLS_MAX} shells"));
            return None;
        }
        let shell_id = self.hub.id();
        let mut shell = Shell::new(shell_id, attach.shell.clone(), open, self.hub.now);
        shell.start(&mut self.hub);
        self.names.insert(attach.shell.clone(), shell_id);
        self.shells.insert(shell_id, shell);
        Some((shell_id, true))
    }

    /// Lets go of a shell that has ended and has no client.
    fn forget_one(&mut self) -> bool {
        let dead = self.shells.iter().find(|(_, shell)| {
            shell.state == State::Dead && shell.clients.is_empty() && shell.pid() == 0
        });
        let Some(id) = dead.map(|(id, _)| *id) else { return false };
        self.forget(id);
        true
    }

    fn forget(&mut self, id: u64) {
        if let Some(shell) = self.shells.remove(&id)
            && self.names.get(&shell.name) == Some(&id)
        {
            self.names.remove(&shell.name);
        }
    }

    fn detach(&mut self, id: u64, shell: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Role::Client(client) = std::mem::replace(&mut conn.role, Role::Ready)
            && let Some(shell) = self.shells.get_mut(&shell)
        {
            shell.clients.retain(|client| *client != id);
            if shell.clients.is_empty() {
                shell.left = (client.place, self.hub.now);
            }
        }
        self.hub.touch(shell);
        self.hub.tell(shell);
    }

    fn exec(&mut self, id: u64, ask: isolet_wire::ask::Exec) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(id, None, Why::BadAsk, "this connection has another use");
        }
        if self.execs.len() >= EXECS_MAX {
            return self.refuse(id, None, Why::TooMany, format!("at most {EXECS_MAX} programs"));
        }
        let exec_id = self.hub.id();
        match Exec::start(&mut self.hub, exec_id, id, ask) {
            Ok(exec) => {
                self.execs.insert(exec_id, exec);
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.role = Role::Exec(exec_id);
                }
                self.count_changed();
            }
            Err((why, message)) => self.refuse(id, None, why, message),
        }
    }

    fn exec_refused(&mut self, exec: u64, why: Why, message: String) {
        let Some(exec) = self.execs.remove(&exec) else { return };
        self.count_changed();
        if let Some(id) = exec.conn {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.role = Role::Ready;
            }
            self.refuse(id, None, why, message);
        }
    }

    fn file(&mut self, id: u64, ask: isolet_wire::ask::File) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(id, None, Why::BadAsk, "this connection has another use");
        }
        if self.files.len() >= FILES_MAX {
            return self.refuse(id, None, Why::TooMany, format!("at most {FILES_MAX} file calls"));
        }
        if !matches!(self.conns.get_mut(&id).map(Conn::flush), Some(Ok(true))) {
            return self.hang_up(id);
        }
        let Some(mut conn) = self.conns.remove(&id) else { return };
        self.hub.poll.remove(&conn.fd);
        let (number, rest) = (conn.fd.as_raw_fd(), conn.rest());
        // The worker answers from here on; our copy closes with the closure.
        let work = move || crate::file::serve(conn.fd, rest, ask);
        if let Ok(pid) = self.hub.fork(number, work) {
            self.files.insert(pid, self.hub.now + FILE_MAX);
            self.hub.at(self.hub.now + FILE_MAX, Timer::Files);
        }
    }

    fn watch(&mut self, id: u64) {
        if !self.conns.get(&id).is_some_and(|conn| matches!(conn.role, Role::Ready)) {
            return self.refuse(id, None, Why::BadAsk, "this connection has another use");
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.role = Role::Watch;
        }
        self.watchers.push(id);
        // A frame holds a few hundred shells: the rest is told as changes.
        let mut all: Vec<_> = self.shells.values().map(Shell::told).collect();
        let rest = all.split_off(all.len().min(256));
        let execs = self.running();
        self.tell(id, &Tell::Census { shells: all, execs });
        for shell in rest {
            self.tell(id, &Tell::Changed { shell: Some(shell), execs });
        }
    }

    fn running(&self) -> u32 {
        self.execs.values().filter(|exec| !exec.told).count() as u32
    }

    fn count_changed(&mut self) {
        // No shell has number 0: only the count of programs is told.
        self.hub.tell(0);
    }

    fn tell_watchers(&mut self) {
        let execs = self.running();
        for id in std::mem::take(&mut self.hub.changed) {
            let shell = self.shells.get(&id).map(Shell::told);
            if shell.is_none() && id != 0 {
                continue;
            }
            let tell = Tell::Changed { shell, execs };
            for watcher in self.watchers.clone() {
                // One that does not read is told no more; its driver asks anew.
                if self.conns.get(&watcher).is_some_and(|conn| conn.waiting() > 1 << 20) {
                    self.hang_up(watcher);
                } else {
                    self.tell(watcher, &tell);
                }
            }
        }
    }

    fn reap(&mut self) {
        let mut told = [0; 512];
        while matches!(rustix::io::read(&self.children, &mut told), Ok(1..)) {}
        while let Ok(Some((pid, status))) =
            rustix::process::wait(rustix::process::WaitOptions::NOHANG)
        {
            let pid = pid.as_raw_nonzero().get();
            let (code, signal) = (status.exit_status(), status.terminating_signal());
            match self.hub.parents.remove(&pid) {
                Some(Parent::Shell(id)) => {
                    if let Some(shell) = self.shells.get_mut(&id).filter(|s| s.pid() == pid) {
                        shell.died(&mut self.hub, code, signal);
                    }
                }
                Some(Parent::Exec(id)) => self.exec_died(id, pid, code, signal),
                Some(Parent::File) => drop(self.files.remove(&pid)),
                // An orphan that came to us as to process 1.
                None => {}
            }
        }
    }

    fn exec_died(&mut self, id: u64, pid: i32, code: Option<i32>, signal: Option<i32>) {
        let Some(exec) = self.execs.get_mut(&id).filter(|exec| exec.is(pid)) else { return };
        // Whether it was executed at all is told by another descriptor, perhaps not yet read.
        if let Some((why, message)) = exec.born(&mut self.hub) {
            return self.exec_refused(id, why, message);
        }
        if exec.is(pid) {
            exec.died(code, signal);
            self.touched.push(id);
        }
    }

    /// Closes a connection. What it had asked for goes on.
    fn hang_up(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let _ = conn.flush();
        if let Role::Client(client) = &conn.role {
            let shell = client.shell;
            self.detach(id, shell);
        }
        let Some(conn) = self.conns.remove(&id) else { return };
        match conn.role {
            Role::Exec(exec) => {
                if let Some(exec) = self.execs.get_mut(&exec) {
                    exec.conn = None;
                }
                self.touched.push(exec);
            }
            Role::Watch => self.watchers.retain(|watcher| *watcher != id),
            _ => {}
        }
    }

    /// Sends what a connection has waiting.
    fn pump(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let sent = match &conn.role {
            Role::Client(client) => {
                let shell = client.shell;
                self.hub.touch(shell);
                return;
            }
            Role::Exec(exec) => {
                self.touched.push(*exec);
                conn.flush()
            }
            _ => conn.flush(),
        };
        match sent {
            Ok(_) => conn.interest(&self.hub.poll),
            Err(_) => self.hang_up(id),
        }
    }

    /// After every round: sends, reads on where there is room again, forgets what is over.
    fn settle(&mut self) {
        if self.lazy_due.is_some_and(|due| due <= self.hub.now) {
            self.lazy_due = None;
            let lazy = std::mem::take(&mut self.lazy);
            lazy.into_iter().for_each(|id| self.hub.touch(id));
        }
        while !self.hub.dirty.is_empty() || !self.touched.is_empty() {
            for id in std::mem::take(&mut self.touched) {
                self.settle_exec(id);
            }
            for id in std::mem::take(&mut self.hub.dirty) {
                self.settle_shell(id);
            }
        }
        if !self.hub.changed.is_empty() {
            if self.watchers.is_empty() {
                self.hub.changed.clear();
            } else if !self.watch_set {
                self.watch_set = true;
                self.hub.at(self.hub.now + WATCH_PAUSE, Timer::Watch);
            }
        }
    }

    fn settle_exec(&mut self, id: u64) {
        let Some(exec) = self.execs.get_mut(&id) else { return };
        let conn_id = exec.conn;
        let told = {
            let mut conn = conn_id.and_then(|conn| self.conns.get_mut(&conn));
            let told = exec.flow(&mut self.hub, conn.as_deref_mut());
            if let Some(conn) = conn {
                conn.held &= !exec.hungry();
                if let Some(told) = &told {
                    conn.tell(told);
                    conn.role = Role::Ready;
                    conn.held = false;
                }
                let _ = conn.flush();
                conn.interest(&self.hub.poll);
            }
            told
        };
        if told.is_some() {
            exec.conn = None;
            self.count_changed();
            if let Some(conn) = conn_id {
                self.again.push(conn);
            }
        }
        if self.execs.get(&id).is_some_and(Exec::over) {
            self.execs.remove(&id);
        }
    }

    fn settle_shell(&mut self, id: u64) {
        loop {
            self.announce(id);
            let gone = self.pump_clients(id);
            gone.into_iter().for_each(|conn| self.hang_up(conn));
            let Some(shell) = self.shells.get_mut(&id) else { return };
            let (mut fastest, mut moved) = shell.left;
            let mut first = true;
            for client in &shell.clients {
                let Some(Role::Client(client)) = self.conns.get(client).map(|conn| &conn.role)
                else {
                    continue;
                };
                moved = if first { client.moved } else { moved.max(client.moved) };
                if first || shell.log.behind(&client.place) < shell.log.behind(&fastest) {
                    fastest = client.place;
                }
                first = false;
            }
            shell.flow(&mut self.hub, fastest, moved);
            if !shell.more(&mut self.hub) {
                break;
            }
        }
        self.part(id);
    }

    /// Sends every client of a shell what it has not seen; gives those that have gone.
    fn pump_clients(&mut self, id: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        let Some(shell) = self.shells.get_mut(&id) else { return gone };
        let now = self.hub.now;
        let lazy = shell.quiet(now, STARTED_PAUSE) && self.lazy_due.is_none_or(|due| due > now);
        if lazy {
            self.lazy_due.get_or_insert(now + STARTED_PAUSE);
            self.lazy.push(id);
            return gone;
        }
        shell.pumping();
        for conn_id in &shell.clients {
            let Some(conn) = self.conns.get_mut(conn_id) else { continue };
            match conn.pump(&shell.log, now) {
                Ok(()) => {
                    if conn.held
                        && let Role::Client(client) = &conn.role
                    {
                        conn.held = !shell.hungry(&client.view.owner);
                        if !conn.held {
                            self.again.push(*conn_id);
                        }
                    }
                    conn.interest(&self.hub.poll);
                }
                Err(_) => gone.push(*conn_id),
            }
        }
        gone
    }

    /// Tells clients that wait for it what became of their shell.
    fn announce(&mut self, id: u64) {
        let Some(shell) = self.shells.get_mut(&id) else { return };
        if shell.state == State::Opening {
            return;
        }
        let mut refused = Vec::new();
        for conn_id in &shell.clients {
            let Some(conn) = self.conns.get_mut(conn_id) else { continue };
            let Role::Client(client) = &mut conn.role else { continue };
            if client.announced {
                continue;
            }
            if let State::Failed(why, message) = &shell.state {
                let message = message.clone();
                conn.tell(&Tell::Refused { id: None, why: *why, message });
                refused.push(*conn_id);
                continue;
            }
            client.announced = true;
            let (fresh, at) = (client.fresh, shell.log.at());
            conn.tell(&Tell::Attached { pid: shell.pid(), fresh, at });
        }
        for conn in refused {
            self.detach(conn, id);
            self.pump(conn);
        }
    }

    /// Answers who waited for a shell's end, and forgets it when nobody needs it.
    fn part(&mut self, id: u64) {
        let Some(shell) = self.shells.get_mut(&id) else { return };
        if shell.over {
            if self.names.get(&shell.name) == Some(&id) {
                self.names.remove(&shell.name);
            }
            for closer in std::mem::take(&mut shell.closers) {
                self.tell(closer, &Tell::Done);
            }
        }
        let Some(shell) = self.shells.get(&id) else { return };
        if shell.over || (shell.state == State::Dead && !shell.lasting()) {
            for client in shell.clients.clone() {
                let told = self.conns.get(&client).is_none_or(|conn| match &conn.role {
                    Role::Client(client) => {
                        client.announced && self.shells[&id].log.behind(&client.place).1 == 0
                    }
                    _ => true,
                });
                if told {
                    self.detach(client, id);
                    self.pump(client);
                }
            }
        }
        if self.shells.get(&id).is_some_and(|shell| shell.forgettable(self.hub.now)) {
            if !self.watchers.is_empty() && self.hub.changed.contains(&id) {
                self.tell_watchers();
            }
            self.forget(id);
        }
    }
}
