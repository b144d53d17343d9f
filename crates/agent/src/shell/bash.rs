//! A bash process with its descriptors: how it is started, written to and read from.

use super::bash_protocol;
use crate::launch::BASH;
use crate::reactor::poll::EventSource;
use crate::reactor::{ChildOwner, Reactor, SpawnRequest, environment};
use isolet_sys::spawn::{Child, Stage};
use isolet_wire::request::OpenShell;
use isolet_wire::response::RefusalReason;
use rustix::event::epoll::EventFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

const ARGV: [&std::ffi::CStr; 5] = [c"bash", c"--norc", c"--noprofile", c"--noediting", c"-i"];
/// Maximum length of a line on the status channel, in bytes. Reports are shorter.
const LINE_BYTES_MAX: usize = 4096;
/// Amount of invalid data on the status channel, in bytes, above which the shell is killed.
const GARBAGE_BYTES_MAX: usize = 64 * 1024;

/// A running bash process.
///
/// More than 12 fields: one for each descriptor of the process and for each part of its protocol.
#[derive(Debug)]
pub(crate) struct Bash {
    /// Its process id, which is also its process group and its session.
    pub(crate) pid: i32,
    /// Standard output; `None` after its end.
    pub(crate) out: Option<OwnedFd>,
    /// Standard error; `None` after its end.
    pub(crate) err: Option<OwnedFd>,
    /// Bash has sent its first report.
    pub(crate) ready: bool,
    /// This bash replaced an ended one, and no command has run in it.
    pub(crate) fresh: bool,
    /// Exit code of the last command.
    pub(crate) last: i32,
    /// The prefix with which the agent's lines reach a builtin.
    pub(crate) prefix: &'static str,
    /// `set -x` is on.
    pub(crate) xtrace: bool,
    pub(crate) opened: Instant,
    /// Whether its output pipes are polled.
    pub(crate) listening: bool,
    /// A line that was abandoned may still write to the file of long texts.
    pub(crate) long_text_busy: bool,
    child: Option<Child>,
    control: OwnedFd,
    backlog: Vec<u8>,
    backlog_registered: bool,
    status: Option<OwnedFd>,
    stdin_reader: OwnedFd,
    long: OwnedFd,
    long_read: OwnedFd,
    lines: Vec<u8>,
    garbage: usize,
}

/// The result of reading the status channel.
#[derive(Debug)]
pub(crate) enum Status {
    Nothing,
    /// A report of the requested step.
    Report(bash_protocol::Report),
    /// No process can write to the channel any more.
    Gone,
    /// A process writes invalid data without end.
    Flood,
}

struct Pipes {
    control: (OwnedFd, OwnedFd),
    out: (OwnedFd, OwnedFd),
    err: (OwnedFd, OwnedFd),
    status: (OwnedFd, OwnedFd),
    stdin_reader: OwnedFd,
    null: OwnedFd,
    long: OwnedFd,
    long_read: OwnedFd,
}

impl Pipes {
    fn new() -> Result<Self, Errno> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let long = rustix::fs::memfd_create(c"text", rustix::fs::MemfdFlags::CLOEXEC)?;
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        let pipes = Self {
            control: pipe()?,
            out: pipe()?,
            err: pipe()?,
            status: pipe()?,
            // The writers come and go with the commands that receive input.
            stdin_reader: pipe()?.0,
            null: rustix::fs::open(c"/dev/null", read, Mode::empty())?,
            long_read: rustix::fs::open(own_path(&long), read, Mode::empty())?,
            long,
        };
        for end in [&pipes.control.1, &pipes.out.0, &pipes.err.0, &pipes.status.0] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        // `/dev/stdout` reopens the pipe with the permissions of its inode, which belongs to the
        // agent.
        for end in [&pipes.out.1, &pipes.err.1, &pipes.stdin_reader] {
            rustix::fs::fchmod(end, Mode::from_raw_mode(0o666))?;
        }
        Ok(pipes)
    }

    fn fd_mapping(&self) -> Vec<(i32, i32)> {
        let pairs = [
            (&self.control.0, 0),
            (&self.out.1, 1),
            (&self.err.1, 2),
            (&self.stdin_reader, bash_protocol::FD_STDIN),
            (&self.status.1, bash_protocol::FD_STATUS),
            (&self.null, bash_protocol::FD_NULL),
            (&self.long_read, bash_protocol::FD_TEXT),
        ];
        pairs.map(|(fd, number)| (fd.as_raw_fd(), number)).to_vec()
    }
}

fn own_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

impl Bash {
    /// Starts a bash for the shell `id`.
    ///
    /// # Errors
    /// The reason, with a message.
    pub(crate) fn start(
        reactor: &mut Reactor,
        id: u64,
        open: &OpenShell,
    ) -> Result<Self, (RefusalReason, String)> {
        let bad = |subject: &str| {
            (RefusalReason::BadRequest, format!("{subject} holds a byte that it cannot hold"))
        };
        let mut envp = environment(&open.env).ok_or_else(|| bad("the environment"))?;
        // Otherwise bash would read the user's history and rewrite it at its end.
        envp.retain(|entry| !entry.as_bytes().starts_with(b"HISTFILE="));
        envp.push(c"HISTFILE=".to_owned());
        let cwd = CString::new(open.cwd.as_str()).map_err(|_| bad("the start directory"))?;
        let failed =
            |error: std::io::Error| (RefusalReason::NoProcess, format!("no shell: {error}"));
        let pipes = Pipes::new().map_err(|errno| failed(errno.into()))?;
        let request = SpawnRequest {
            programs: BASH.map(ToOwned::to_owned).to_vec(),
            argv: ARGV.map(ToOwned::to_owned).to_vec(),
            envp,
            cwd,
            fds: pipes.fd_mapping(),
            uid: 0,
            terminal: None,
            group: None,
        };
        let child = reactor.spawn(request, ChildOwner::Shell(id)).map_err(failed)?;
        let bash = Self {
            pid: child.pid,
            out: Some(pipes.out.0),
            err: Some(pipes.err.0),
            ready: false,
            fresh: false,
            last: 0,
            prefix: bash_protocol::BUILTIN,
            xtrace: false,
            opened: reactor.now,
            listening: false,
            long_text_busy: false,
            child: Some(child),
            control: pipes.control.1,
            backlog: Vec::new(),
            backlog_registered: false,
            status: Some(pipes.status.0),
            stdin_reader: pipes.stdin_reader,
            long: pipes.long,
            long_read: pipes.long_read,
            lines: Vec::new(),
            garbage: 0,
        };
        bash.register(reactor, id).map_err(|errno| failed(errno.into()))?;
        Ok(bash)
    }

    fn register(&self, reactor: &Reactor, id: u64) -> Result<(), Errno> {
        let add = |fd: Option<&OwnedFd>, source, flags| match fd {
            Some(fd) => reactor.poll.add(fd, source, id, flags),
            None => Ok(()),
        };
        add(
            self.child.as_ref().map(|child| &child.started),
            EventSource::ExecStatus,
            EventFlags::IN,
        )?;
        add(self.status.as_ref(), EventSource::Status, EventFlags::IN)
    }

    /// The exec status: `None` while it is unknown, and after it was returned once.
    pub(crate) fn exec_result(&mut self) -> Option<Result<(), (RefusalReason, String)>> {
        let result = self.child.as_mut()?.exec_result()?;
        // Closing the descriptor removes it from the poll set.
        self.child = None;
        Some(result.map_err(|(stage, errno)| match stage {
            Stage::Cwd => {
                (RefusalReason::BadCwd, format!("cannot enter the start directory: {errno}"))
            }
            Stage::Exec => (RefusalReason::NotFound, format!("cannot execute bash: {errno}")),
            Stage::Confine | Stage::Terminal => {
                (RefusalReason::NoProcess, format!("cannot confine the shell: {errno}"))
            }
        }))
    }

    /// Starts or stops polling the output pipes.
    pub(crate) fn set_listening(&mut self, reactor: &Reactor, id: u64, on: bool) {
        if self.listening == on {
            return;
        }
        self.listening = on;
        for (fd, source) in [(&self.out, EventSource::Out), (&self.err, EventSource::Err)] {
            // Removed instead of masked, because the end of a pipe is reported with any mask.
            match fd {
                Some(fd) if on => drop(reactor.poll.add(fd, source, id, EventFlags::IN)),
                Some(fd) => reactor.poll.remove(fd),
                None => {}
            }
        }
    }

    /// Writes lines to bash and queues what does not fit.
    pub(crate) fn write(&mut self, reactor: &Reactor, id: u64, lines: &[u8]) {
        self.backlog.extend_from_slice(lines);
        self.write_backlog(reactor, id);
    }

    /// Writes queued lines if there is room.
    pub(crate) fn write_backlog(&mut self, reactor: &Reactor, id: u64) {
        match rustix::io::write(&self.control, &self.backlog) {
            Ok(count) => {
                self.backlog.drain(..count);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Bash has closed its input and is about to exit, which another event reports.
            Err(_) => self.backlog.clear(),
        }
        let wait = !self.backlog.is_empty();
        if wait != self.backlog_registered {
            self.backlog_registered = wait;
            if wait {
                let _ = reactor.poll.add(&self.control, EventSource::Control, id, EventFlags::OUT);
            } else {
                reactor.poll.remove(&self.control);
            }
        }
    }

    /// Whether bash has read all lines.
    #[must_use]
    pub(crate) fn has_read_everything(&self) -> bool {
        self.backlog.is_empty() && rustix::io::ioctl_fionread(&self.control) == Ok(0)
    }

    /// Whether bash has not started to read the last `count` bytes.
    #[must_use]
    pub(crate) fn has_not_begun_reading(&self, count: usize) -> bool {
        !self.backlog.is_empty()
            || rustix::io::ioctl_fionread(&self.control).is_ok_and(|left| left as usize >= count)
    }

    /// Stores a long text for the next step.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOSPC`.
    pub(crate) fn write_long_text(&self, text: &[u8]) -> Result<(), Errno> {
        rustix::fs::ftruncate(&self.long, 0)?;
        let mut at = 0;
        while at < text.len() {
            at += rustix::io::pwrite(&self.long, &text[at..], at as u64)?;
        }
        rustix::fs::seek(&self.long_read, rustix::fs::SeekFrom::Start(0)).map(|_| ())
    }

    /// Takes what bash wrote to the file of long texts, at most `limit` bytes. The rest is
    /// discarded.
    pub(crate) fn take_long_text(&self, limit: usize) -> Vec<u8> {
        let size = rustix::fs::fstat(&self.long).map_or(0, |stat| stat.st_size);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0).min(limit)];
        // The file is in memory, so a read returns everything.
        let count = rustix::io::pread(&self.long, &mut bytes, 0).unwrap_or(0);
        bytes.truncate(count);
        let _ = rustix::fs::ftruncate(&self.long, 0);
        bytes
    }

    /// Reads the status channel. `number` is the step whose report is awaited.
    pub(crate) fn read_end_report(&mut self, reactor: &mut Reactor, number: Option<u64>) -> Status {
        let Some(status) = &self.status else { return Status::Nothing };
        match reactor.read(status, LINE_BYTES_MAX) {
            Ok(bytes) => self.lines.extend_from_slice(bytes),
            Err(()) => {
                self.status = None;
                return Status::Gone;
            }
        }
        let mut found = Status::Nothing;
        while let Some(end) = self.lines.iter().position(|b| *b == b'\n') {
            match bash_protocol::parse_report(&self.lines[..end]) {
                // The first report counts: after an interrupt, the request may have been sent
                // twice, and the second report is about the first one.
                Some(report)
                    if Some(report.number) == number && matches!(found, Status::Nothing) =>
                {
                    found = Status::Report(report);
                }
                _ => self.garbage += end + 1,
            }
            self.lines.drain(..=end);
        }
        if self.lines.len() > LINE_BYTES_MAX {
            self.garbage += self.lines.len();
            self.lines.clear();
        }
        if self.garbage > GARBAGE_BYTES_MAX { Status::Flood } else { found }
    }

    /// Uses the other prefix from now on, because a function may hide the builtin.
    pub(crate) fn switch_prefix(&mut self) {
        self.prefix = if self.prefix == bash_protocol::BUILTIN {
            bash_protocol::COMMAND_BUILTIN
        } else {
            bash_protocol::BUILTIN
        };
    }

    /// Resets the count of invalid data at the start of a command.
    pub(crate) fn reset_garbage(&mut self) {
        self.garbage = 0;
    }

    /// Number of unread bytes in the output pipes.
    #[must_use]
    pub(crate) fn unread_output(&self) -> [usize; 2] {
        [&self.out, &self.err].map(|fd| {
            let count = fd.as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok());
            count.map_or(0, |count| count as usize)
        })
    }

    /// Opens a new pipe end for a command's standard input.
    ///
    /// # Errors
    /// `EMFILE`, or `/proc` is missing.
    pub(crate) fn open_stdin_pipe(&self, reactor: &Reactor, id: u64) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(own_path(&self.stdin_reader), flags, Mode::empty())?;
        reactor.poll.add(&fd, EventSource::Stdin, id, EventFlags::empty())?;
        Ok(fd)
    }

    /// Discards input that a command did not read, so that the next command does not receive it.
    pub(crate) fn discard_unread_stdin(&self, reactor: &mut Reactor) {
        if !matches!(rustix::io::ioctl_fionread(&self.stdin_reader), Ok(1..)) {
            return;
        }
        // A separate open file description: the command would see a flag that is set on the shared
        // one.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::open(own_path(&self.stdin_reader), flags, Mode::empty()) else {
            return;
        };
        while matches!(reactor.read(&fd, crate::reactor::READ_BYTES), Ok(bytes) if !bytes.is_empty())
        {
        }
    }
}
