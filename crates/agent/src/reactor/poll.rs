//! Waits until descriptors are ready: epoll, a timer, and what each descriptor stands for.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Source {
    /// The listening socket.
    Listen,
    /// Ended children.
    Children,
    /// A connection of a server.
    Conn,
    /// A shell's status channel.
    Status,
    /// A shell's standard output.
    Out,
    /// A shell's standard error.
    Err,
    /// Where a shell's bash tells whether it was executed.
    ExecStatus,
    /// The way in for lines to bash.
    Control,
    /// The way in for bytes to a shell's command.
    Stdin,
    /// A program's standard output.
    ProgramOut,
    /// Its standard error.
    ProgramErr,
    /// Its standard input.
    ProgramStdin,
    /// Whether it was executed.
    ProgramExecStatus,
    /// A pipe that outlived its owner's interest; read and thrown away.
    Drain,
    /// The clock: only a reason to wake.
    Clock,
    /// Our side of a terminal.
    Pty,
    /// Whether a terminal's program was executed.
    PtyExecStatus,
    /// A connection that is being made.
    Dial,
    /// A process's standard output.
    ProcessOut,
    /// Its standard error.
    ProcessErr,
    /// Its standard input.
    ProcessStdin,
    /// Whether it was executed.
    ProcessExecStatus,
    /// Whether anything is left in its group.
    ProcessGroup,
    /// What a context's interpreter writes to its standard output.
    ContextOut,
    /// What a context's interpreter writes to its standard error.
    ContextErr,
    /// Where its driver and we speak.
    ContextControl,
    /// Whether it was executed.
    ContextExecStatus,
}

const ALL: [Source; 27] = [
    Source::Listen,
    Source::Children,
    Source::Conn,
    Source::Status,
    Source::Out,
    Source::Err,
    Source::ExecStatus,
    Source::Control,
    Source::Stdin,
    Source::ProgramOut,
    Source::ProgramErr,
    Source::ProgramStdin,
    Source::ProgramExecStatus,
    Source::Drain,
    Source::Clock,
    Source::Pty,
    Source::PtyExecStatus,
    Source::Dial,
    Source::ProcessOut,
    Source::ProcessErr,
    Source::ProcessStdin,
    Source::ProcessExecStatus,
    Source::ProcessGroup,
    Source::ContextOut,
    Source::ContextErr,
    Source::ContextControl,
    Source::ContextExecStatus,
];

/// A descriptor that is ready. Ids are never reused, so a late event finds no owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// What it is.
    pub(crate) source: Source,
    /// Whose.
    pub(crate) id: u64,
    /// The other end is closed.
    pub(crate) gone: bool,
}

/// The set of descriptors.
pub(crate) struct Poll {
    epoll: OwnedFd,
    /// Set only when something is due earlier than what it is set to: a limit given to each wait
    /// would set a timer of the machine for every command.
    clock: OwnedFd,
    set: Option<Instant>,
    events: Vec<Event>,
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.epoll.fmt(f)
    }
}

/// Events taken at once; what is left over is told again.
const EVENTS_MAX: usize = 64;

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let clock = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let poll = Self { epoll, clock, set: None, events: Vec::with_capacity(EVENTS_MAX) };
        poll.add(&poll.clock, Source::Clock, 0, EventFlags::IN | EventFlags::ET)?;
        Ok(poll)
    }

    /// Adds a descriptor. Closing it takes it out.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOSPC`.
    pub(crate) fn add(
        &self,
        fd: impl AsFd,
        source: Source,
        id: u64,
        flags: EventFlags,
    ) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, data(source, id), flags)
    }

    /// Changes what is waited for.
    pub(crate) fn modify(&self, fd: impl AsFd, source: Source, id: u64, flags: EventFlags) {
        let _ = epoll::modify(&self.epoll, fd, data(source, id), flags);
    }

    /// Takes a descriptor out whose copies elsewhere stay open.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits, but not beyond `due`, and puts what is ready into `into`.
    pub(crate) fn wait(&mut self, now: Instant, due: Option<Instant>, into: &mut Vec<Ready>) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let limit = due.filter(|due| *due <= now).map(|_| zero);
        if let Some(due) = due.filter(|due| *due > now) {
            self.wake_at(now, due);
        }
        self.events.clear();
        let buffer = rustix::buffer::spare_capacity(&mut self.events);
        if epoll::wait(&self.epoll, buffer, limit.as_ref()).is_err() {
            self.events.clear();
        }
        into.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            let data = event.data;
            let raw = data.u64();
            Ready {
                source: ALL[(raw >> 56) as usize % ALL.len()],
                id: raw & (u64::MAX >> 8),
                gone: flags.intersects(EventFlags::ERR | EventFlags::HUP),
            }
        }));
    }
}

impl Poll {
    fn wake_at(&mut self, now: Instant, due: Instant) {
        if self.set.is_some_and(|set| set > now && set <= due) {
            return;
        }
        let left = due.duration_since(now);
        let value =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        if rustix::time::timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &once).is_ok() {
            self.set = Some(due);
        }
    }
}

fn data(source: Source, id: u64) -> EventData {
    EventData::new_u64((source as u64) << 56 | id)
}
