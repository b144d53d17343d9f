//! How an interpreter begins: its program, its descriptors, and the driver it is given.

use super::{Context, Life, Refusal, START_MAX, Spares, State};
use crate::hub::{Hub, Order, Parent, Timer, environment};
use crate::poll::What as Fd;
use crate::words;
use isolet_sys::spawn::Stage;
use isolet_wire::context::{KERNEL, Language, Open};
use isolet_wire::tell::Why;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

/// Where a driver speaks with us, and where it is read from. The lowest that are free: `node` keeps
/// those from its own children, and no higher ones.
const FD_CONTROL: i32 = 3;
const FD_DRIVER: i32 = 4;
/// Where `node` is told beside a signal that its run is interrupted.
const FD_INTERRUPT: i32 = 5;

/// Kinds of what we say to a driver.
pub(super) const RUN: u8 = 1;
pub(super) const READ: u8 = 2;
/// To what speaks with a kernel: it may begin it, in this directory.
const BEGIN: u8 = 3;

/// In one namespace of its own, so that nothing of it is the tenant's.
const PYTHON: &str = concat!(
    include_str!("frames.py"),
    include_str!("python/talk.py"),
    include_str!("python/show.py"),
    include_str!("python/session.py")
);
const NODE: &str = concat!(
    include_str!("node/talk.js"),
    include_str!("node/show.js"),
    include_str!("node/scan.js"),
    include_str!("node/watch.js"),
    include_str!("node/session.js")
);
/// Beside the kernel, which speaks its own protocol.
const JUPYTER: &str = concat!(
    include_str!("frames.py"),
    include_str!("jupyter/talk.py"),
    include_str!("jupyter/kernel.py"),
    include_str!("jupyter/client.py"),
    include_str!("jupyter/run.py"),
    include_str!("jupyter/serve.py")
);
/// Begins one of the texts behind it.
const CHOOSE: &str = include_str!("jupyter/choose.py");
/// Read from its descriptor rather than an argument, which `ps` would show in every line. Texts
/// behind a form feed are handed to the first.
const PYTHON_BEGIN: &str = "text, *others = open(4, 'rb').read().split(b'\\f')\n\
                            exec(compile(text, '<isolet>', 'exec'), \
                            {'__name__': '__main__', 'others': others})";
const NODE_BEGIN: &str = "require('vm').runInThisContext(require('fs').readFileSync(4, 'utf8'), \
                          '<isolet>')(name => import(name))";

/// A run that is ended within a callback leaves node's own books open, which it would abort for.
const NODE_ARGV: &[&str] = &["node", "--no-force-async-hooks-checks", "-e", NODE_BEGIN];

/// Its name, its arguments, and its driver: texts of which the first begins.
fn program(open: &Open) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
    let python: &[&str] = &["python3", "-c", PYTHON_BEGIN];
    match open.language {
        Language::Jupyter => ("python3", python, &[JUPYTER]),
        Language::Python if open.env.contains_key(KERNEL) => {
            ("python3", python, &[CHOOSE, JUPYTER, PYTHON])
        }
        Language::Python => ("python3", python, &[PYTHON]),
        _ => ("node", NODE_ARGV, &[NODE]),
    }
}

impl Context {
    /// Starts an interpreter; there must be none.
    pub(super) fn start(&mut self, hub: &mut Hub) -> Result<(), Refusal> {
        if self.open.language == Language::Bash {
            self.start_bash(hub);
            return Ok(());
        }
        let ready = Spares::take(hub, &self.open);
        let mut life = ready.map_or_else(|| Self::begin(hub, self.id, &self.open), Ok)?;
        self.state = State::Starting;
        life.ready_by = hub.now + START_MAX;
        hub.at(life.ready_by, Timer::Context(self.id));
        hub.parents.insert(life.pid, Parent::Context(self.id));
        if let Some(child) = &life.child {
            let _ = hub.poll.add(&child.started, Fd::ContextBorn, self.id, EventFlags::IN);
        }
        self.life = Some(life);
        self.listen(hub, true);
        if self.open.env.contains_key(KERNEL) {
            let cwd = self.open.cwd.clone().into_bytes();
            self.say(hub, BEGIN, &cwd);
        }
        Ok(())
    }

    /// Starts an interpreter's process, of whose begin and end `id` is told.
    pub(super) fn begin(hub: &mut Hub, id: u64, open: &Open) -> Result<Life, Refusal> {
        let bad = || {
            let text = "a NUL byte, or a name of the environment with `=`";
            (Why::BadAsk, text.to_owned())
        };
        let (name, argv, driver) = program(open);
        let path = open.env.get("PATH").map_or(words::PATH, String::as_str);
        let mut envp = environment(&open.env).ok_or_else(bad)?;
        if open.language == Language::TypeScript {
            envp.push(c"ISOLET_CONTEXT_TYPESCRIPT=1".to_owned());
        }
        let programs = words::programs(name, path).into_iter().map(|text| CString::new(text).ok());
        let argv = argv.iter().map(|text| CString::new(*text).ok());
        let order = Order {
            programs: programs.collect::<Option<Vec<_>>>().ok_or_else(bad)?,
            argv: argv.collect::<Option<Vec<_>>>().ok_or_else(bad)?,
            envp,
            cwd: CString::new(open.cwd.as_str()).map_err(|_| bad())?,
            fds: Vec::new(),
            uid: 0,
            terminal: None,
            group: None,
        };
        let node = matches!(open.language, Language::JavaScript | Language::TypeScript);
        Life::spawn(hub, Parent::Context(id), order, &driver.join("\x0c"), node)
            .map_err(|error| (Why::NoProcess, format!("no process: {error}")))
    }

    /// Starts it in place of one that has ended.
    pub(super) fn restart_gone(&mut self, hub: &mut Hub) {
        self.restarts += 1;
        self.fresh = true;
        if let Err((why, message)) = self.start(hub) {
            self.refuse_queue(why, &message);
            let openers = std::mem::take(&mut self.openers);
            self.refusals.extend(openers.into_iter().map(|one| (one, (why, message.clone()))));
            self.state = State::Gone;
        }
    }

    /// Whether it was executed is known now.
    pub(crate) fn born(&mut self, hub: &mut Hub) {
        let name = program(&self.open).0;
        let Some(life) = &mut self.life else { return };
        let Some(verdict) = life.child.as_mut().and_then(isolet_sys::spawn::Child::verdict) else {
            return;
        };
        life.child = None;
        let Err((stage, errno)) = verdict else { return };
        let refusal = match (stage, errno) {
            (Stage::Cwd, _) => (Why::BadCwd, format!("cannot enter the start directory: {errno}")),
            (Stage::Exec, Errno::NOENT) => {
                (Why::Unable, format!("there is no {name} in the image of this sandbox"))
            }
            (Stage::Exec, _) => (Why::Failed, format!("cannot execute {name}: {errno}")),
            (Stage::Confine | Stage::Terminal, _) => {
                (Why::NoProcess, format!("cannot confine: {errno}"))
            }
        };
        self.unborn(hub, refusal);
    }

    /// It is not ready and will not be.
    pub(super) fn unborn(&mut self, hub: &mut Hub, refusal: Refusal) {
        let first = self.restarts == 0 && self.number == 0;
        self.refuse_queue(refusal.0, &refusal.1);
        let openers = std::mem::take(&mut self.openers);
        self.refusals.extend(openers.into_iter().map(|one| (one, refusal.clone())));
        if first {
            self.failed = Some(refusal);
        }
        self.kill(hub);
    }

    /// Says something to its driver.
    pub(super) fn say(&mut self, hub: &mut Hub, kind: u8, body: &[u8]) {
        if let Some(life) = &mut self.life {
            life.out.extend_from_slice(&(body.len() as u32).to_be_bytes());
            life.out.push(kind);
            life.out.extend_from_slice(body);
        }
        self.write(hub);
    }

    /// Sends what its driver takes of what waits.
    pub(crate) fn write(&mut self, hub: &mut Hub) {
        let id = self.id;
        let Some(life) = &mut self.life else { return };
        let Some(control) = &life.control else { return life.out.clear() };
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        match rustix::net::send(control, &life.out, flags) {
            Ok(count) => drop(life.out.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Its end is told by what is read.
            Err(_) => life.out.clear(),
        }
        if life.writing == life.out.is_empty() {
            life.writing = !life.out.is_empty();
            if life.listening {
                hub.poll.modify(control, Fd::ContextControl, id, life.interest());
            } else if life.writing {
                let _ = hub.poll.add(control, Fd::ContextControl, id, EventFlags::OUT);
            } else {
                hub.poll.remove(control);
            }
        }
    }
}

impl Life {
    fn spawn(
        hub: &mut Hub,
        parent: Parent,
        mut order: Order,
        driver: &str,
        node: bool,
    ) -> std::io::Result<Self> {
        let (out, err) = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        for end in [&out.0, &err.0, &ours] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        // `/dev/stdout` opens the pipe anew, by the rights of its inode, which is ours.
        for end in [&out.1, &err.1] {
            rustix::fs::fchmod(end, rustix::fs::Mode::from_raw_mode(0o666))?;
        }
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let input = rustix::fs::open(c"/dev/null", flags, rustix::fs::Mode::empty())?;
        let text = text(driver)?;
        let (told, nudge) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&nudge, true)?;
        order.fds = vec![
            (input.as_raw_fd(), 0),
            (out.1.as_raw_fd(), 1),
            (err.1.as_raw_fd(), 2),
            (theirs.as_raw_fd(), FD_CONTROL),
            (text.as_raw_fd(), FD_DRIVER),
        ];
        order.fds.extend(node.then_some((told.as_raw_fd(), FD_INTERRUPT)));
        let child = hub.spawn(order, parent)?;
        Ok(Self {
            pid: child.pid,
            child: Some(child),
            control: Some(ours),
            nudge: node.then_some(nudge),
            pipes: [Some(out.0), Some(err.0)],
            listening: false,
            ready_by: hub.now + START_MAX,
            died: None,
            held: Vec::new(),
            body: None,
            before: [0; 2],
            out: Vec::new(),
            writing: false,
        })
    }

    pub(super) fn interest(&self) -> EventFlags {
        if self.writing { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
    }
}

/// A file in memory that holds a text, to be read from its beginning.
fn text(of: &str) -> std::io::Result<OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::memfd_create(c"driver", flags)?);
    std::os::unix::fs::FileExt::write_all_at(&file, of.as_bytes(), 0)?;
    Ok(file.into())
}
