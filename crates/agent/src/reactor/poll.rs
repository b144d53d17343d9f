//! Waits until descriptors are ready, with epoll, a timer, and the meaning of each descriptor.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// The meaning of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EventSource {
    Listen,
    /// The signal descriptor for ended children.
    Children,
    /// A connection of a server.
    Conn,
    /// The status channel of a shell.
    Status,
    /// Standard output of a shell.
    Out,
    /// Standard error of a shell.
    Err,
    /// The exec status of a shell's bash.
    ExecStatus,
    /// The pipe for lines to bash.
    Control,
    /// The pipe for standard input of a shell's command.
    Stdin,
    /// Standard output of a program.
    ProgramOut,
    /// Standard error of a program.
    ProgramErr,
    /// Standard input of a program.
    ProgramStdin,
    /// The exec status of a program.
    ProgramExecStatus,
    /// A pipe that is read and discarded.
    Drain,
    /// The clock, which only wakes the loop.
    Clock,
    /// The master side of a PTY.
    Pty,
    /// The exec status of a terminal's program.
    PtyExecStatus,
    /// A connection in progress.
    Dial,
    /// Standard output of a process.
    ProcessOut,
    /// Standard error of a process.
    ProcessErr,
    /// Standard input of a process.
    ProcessStdin,
    /// The exec status of a process.
    ProcessExecStatus,
    /// The population of a process's cgroup.
    ProcessGroup,
    /// Standard output of a context's interpreter.
    ContextOut,
    /// Standard error of a context's interpreter.
    ContextErr,
    /// The socket of a context's driver.
    ContextControl,
    /// The exec status of a context's interpreter.
    ContextExecStatus,
}

const ALL: [EventSource; 27] = [
    EventSource::Listen,
    EventSource::Children,
    EventSource::Conn,
    EventSource::Status,
    EventSource::Out,
    EventSource::Err,
    EventSource::ExecStatus,
    EventSource::Control,
    EventSource::Stdin,
    EventSource::ProgramOut,
    EventSource::ProgramErr,
    EventSource::ProgramStdin,
    EventSource::ProgramExecStatus,
    EventSource::Drain,
    EventSource::Clock,
    EventSource::Pty,
    EventSource::PtyExecStatus,
    EventSource::Dial,
    EventSource::ProcessOut,
    EventSource::ProcessErr,
    EventSource::ProcessStdin,
    EventSource::ProcessExecStatus,
    EventSource::ProcessGroup,
    EventSource::ContextOut,
    EventSource::ContextErr,
    EventSource::ContextControl,
    EventSource::ContextExecStatus,
];

/// A descriptor that is ready. Ids are never reused, so a late event finds no owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// The meaning of the descriptor.
    pub(crate) source: EventSource,
    /// The id of its owner.
    pub(crate) id: u64,
    /// The other end is closed.
    pub(crate) gone: bool,
}

/// The set of descriptors.
pub(crate) struct Poll {
    epoll: OwnedFd,
    /// Set only if something is due earlier than its current setting. A limit for each wait would
    /// set a timer of the machine for every command.
    clock: OwnedFd,
    set: Option<Instant>,
    events: Vec<Event>,
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.epoll.fmt(f)
    }
}

/// Maximum number of events per wait. The others are reported again.
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
        poll.add(&poll.clock, EventSource::Clock, 0, EventFlags::IN | EventFlags::ET)?;
        Ok(poll)
    }

    /// Adds a descriptor. Closing it removes it.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOSPC`.
    pub(crate) fn add(
        &self,
        fd: impl AsFd,
        source: EventSource,
        id: u64,
        flags: EventFlags,
    ) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, data(source, id), flags)
    }

    /// Changes the events of a descriptor.
    pub(crate) fn modify(&self, fd: impl AsFd, source: EventSource, id: u64, flags: EventFlags) {
        let _ = epoll::modify(&self.epoll, fd, data(source, id), flags);
    }

    /// Removes a descriptor whose copies elsewhere stay open.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until `due` at most, and returns the ready descriptors in `into`.
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
    /// The agent's clock stood. The kernel's timer did not, so it must be set again.
    pub(crate) fn clock_continues(&mut self) {
        self.set = None;
    }

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

fn data(source: EventSource, id: u64) -> EventData {
    EventData::new_u64((source as u64) << 56 | id)
}
