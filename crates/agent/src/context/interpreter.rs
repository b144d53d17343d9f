//! One interpreter: its program, its descriptors and its driver.

use crate::launch::{Refusal, words};
use crate::reactor::{ChildOwner, Reactor, SpawnRequest, environment};
use isolet_sys::spawn::Child;
use isolet_wire::context::{InterpreterExit, KERNEL, Language, OpenContext};
use isolet_wire::response::RefusalReason;
use rustix::event::epoll::EventFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Timeout of an interpreter's start, which allows for a cold disk and large libraries.
pub(super) const START_MAX: Duration = Duration::from_secs(30);
/// The descriptors of the driver's socket and of its source text. They are the lowest free
/// descriptors, because `node` closes low descriptors in its own children, but not all higher ones.
const FD_CONTROL: i32 = 3;
const FD_DRIVER: i32 = 4;
/// The descriptor on which `node` learns of an interrupt, in addition to the signal.
const FD_INTERRUPT: i32 = 5;

/// Kind of a message to a driver: run code.
pub(super) const RUN: u8 = 1;
pub(super) const READ: u8 = 2;
/// Kind of a message to a kernel's driver: start the kernel in this directory.
pub(super) const BEGIN: u8 = 3;

/// Runs in a namespace of its own, so that the tenant's code cannot access it.
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
/// Runs beside the kernel, which has a protocol of its own.
const JUPYTER: &str = concat!(
    include_str!("frames.py"),
    include_str!("jupyter/talk.py"),
    include_str!("jupyter/kernel.py"),
    include_str!("jupyter/structured.py"),
    include_str!("jupyter/client.py"),
    include_str!("jupyter/run.py"),
    include_str!("jupyter/serve.py")
);
/// Starts one of the drivers that follow it.
const CHOOSE: &str = include_str!("jupyter/choose.py");
/// The driver is read from a descriptor and not passed as an argument, which `ps` would show.
/// Further texts, separated by form feeds, are passed to the first one.
const PYTHON_BEGIN: &str = "text, *others = open(4, 'rb').read().split(b'\\f')\n\
                            exec(compile(text, '<isolet>', 'exec'), \
                            {'__name__': '__main__', 'others': others})";
const NODE_BEGIN: &str = "require('vm').runInThisContext(require('fs').readFileSync(4, 'utf8'), \
                          '<isolet>')(name => import(name))";

/// Without this option, `node` aborts if a run ends within a callback.
const NODE_ARGV: &[&str] = &["node", "--no-force-async-hooks-checks", "-e", NODE_BEGIN];

/// The program's name, its arguments and its driver texts, of which the first one starts.
pub(super) fn program(
    open: &OpenContext,
) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
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

/// More than 12 fields: each descriptor and timer of the process is one.
#[derive(Debug)]
pub(super) struct Interpreter {
    pub(super) pid: i32,
    pub(super) child: Option<Child>,
    pub(super) control: Option<OwnedFd>,
    /// Reports an interrupt to `node`, which may not receive the signal.
    pub(super) interrupt_pipe: Option<OwnedFd>,
    pub(super) pipes: [Option<OwnedFd>; 2],
    pub(super) listening: bool,
    pub(super) ready_by: Instant,
    pub(super) died: Option<InterpreterExit>,
    /// Whether it closed its socket, or said what it may not, before it was ready.
    pub(super) never_ready: bool,
    /// Received and unhandled bytes from the driver.
    pub(super) held: Vec<u8>,
    /// The frame that is being received: its kind and the number of missing bytes.
    pub(super) body: Option<(u8, usize)>,
    /// Number of bytes in the streams when the last frame arrived, which are forwarded before it.
    pub(super) before: [usize; 2],
    /// Unsent bytes for the driver.
    pub(super) out: Vec<u8>,
    pub(super) writing: bool,
}

impl Interpreter {
    /// Starts an interpreter's process, whose events are reported for `id`.
    pub(super) fn launch(
        reactor: &mut Reactor,
        id: u64,
        open: &OpenContext,
    ) -> Result<Interpreter, Refusal> {
        let bad = || {
            let text = "a NUL byte, or a name of the environment with `=`";
            (RefusalReason::BadRequest, text.to_owned())
        };
        let (name, argv, driver) = program(open);
        let path = open.env.get("PATH").map_or(words::PATH, String::as_str);
        let mut envp = environment(&open.env).ok_or_else(bad)?;
        if open.language == Language::TypeScript {
            envp.push(c"ISOLET_CONTEXT_TYPESCRIPT=1".to_owned());
        }
        let programs = words::programs(name, path).into_iter().map(|text| CString::new(text).ok());
        let argv = argv.iter().map(|text| CString::new(*text).ok());
        let request = SpawnRequest {
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
        Interpreter::spawn(reactor, ChildOwner::Context(id), request, &driver.join("\x0c"), node)
            .map_err(|error| (RefusalReason::NoProcess, format!("no process: {error}")))
    }

    fn spawn(
        reactor: &mut Reactor,
        parent: ChildOwner,
        mut request: SpawnRequest,
        driver: &str,
        node: bool,
    ) -> std::io::Result<Self> {
        let out = pipe_with(PipeFlags::CLOEXEC)?;
        let err = pipe_with(PipeFlags::CLOEXEC)?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        for end in [&out.0, &err.0, &ours] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        // `/dev/stdout` reopens the pipe with the permissions of its inode, which belongs to the
        // agent.
        for end in [&out.1, &err.1] {
            rustix::fs::fchmod(end, rustix::fs::Mode::from_raw_mode(0o666))?;
        }
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let input = rustix::fs::open(c"/dev/null", flags, rustix::fs::Mode::empty())?;
        let text = text(driver)?;
        let (interrupt_reader, interrupt_pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&interrupt_pipe, true)?;
        request.fds = vec![
            (input.as_raw_fd(), 0),
            (out.1.as_raw_fd(), 1),
            (err.1.as_raw_fd(), 2),
            (theirs.as_raw_fd(), FD_CONTROL),
            (text.as_raw_fd(), FD_DRIVER),
        ];
        request.fds.extend(node.then_some((interrupt_reader.as_raw_fd(), FD_INTERRUPT)));
        let child = reactor.spawn(request, parent)?;
        Ok(Self {
            pid: child.pid,
            child: Some(child),
            control: Some(ours),
            interrupt_pipe: node.then_some(interrupt_pipe),
            pipes: [Some(out.0), Some(err.0)],
            listening: false,
            ready_by: reactor.now + START_MAX,
            died: None,
            never_ready: false,
            held: Vec::new(),
            body: None,
            before: [0; 2],
            out: Vec::new(),
            writing: false,
        })
    }

    /// Records that the current contents of both streams come before the frame.
    pub(super) fn count_output_before_frame(&mut self) {
        self.before = [0, 1].map(|slot: usize| {
            let fd = self.pipes[slot].as_ref();
            fd.and_then(|fd| rustix::io::ioctl_fionread(fd).ok()).map_or(0, |count| count as usize)
        });
    }

    pub(super) fn interest(&self) -> EventFlags {
        if self.writing { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
    }
}

/// A file in memory that contains a text.
fn text(of: &str) -> std::io::Result<OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::memfd_create(c"driver", flags)?);
    std::os::unix::fs::FileExt::write_all_at(&file, of.as_bytes(), 0)?;
    Ok(file.into())
}
