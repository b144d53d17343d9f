//! The command that a shell runs, and how far it has come.

use super::bash_protocol::Report;
use super::escalation::Ladder;
use super::startup_noise::Complaint;
use super::stderr_filter::Strip;
use crate::connection::shell_log::Who;
use crate::process_tree::Process;
use isolet_wire::ask::Run;
use isolet_wire::tell::Why;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Between interrupts of which the first may have been lost.
pub(super) const AGAIN: Duration = Duration::from_millis(30);

/// Which step of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Before,
    Main,
    After,
}

/// The command that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) who: Rc<Who>,
    pub(super) run: Run,
    pub(super) stage: Stage,
    pub(super) began: Instant,
    /// Likewise, in the unit of process start times.
    pub(super) ticks: u64,
    pub(super) count: [u64; 2],
    pub(super) input: Vec<u8>,
    pub(super) eof: bool,
    pub(super) feeder: Option<OwnedFd>,
    /// Bytes in the pipes when its step ended; still to be read.
    pub(super) left: Option<[usize; 2]>,
    pub(super) ladder: Option<Ladder>,
    /// How far an interrupt has come.
    pub(super) press: Press,
    /// It was interrupted before.
    pub(super) pressed: bool,
    /// Children that are copies of bash for good.
    pub(super) copies: Vec<i32>,
    /// What the last interrupt was sent to.
    pub(super) interrupted: Vec<Process>,
    pub(super) timed_out: bool,
    pub(super) cancelled: bool,
    /// A signal that may have made bash drop a line was sent.
    pub(super) shaken: bool,
    /// When to ask next whether bash is back at its reader, and how far that has come.
    pub(super) probe: (Instant, Duration, u8),
    /// When an own step has taken too long.
    pub(super) guard: Option<Instant>,
    /// Bytes of the lines of its last step, and when they were written.
    pub(super) lines: usize,
    pub(super) stepped: Instant,
    pub(super) report: Option<Report>,
    pub(super) code: i32,
    pub(super) from: [u64; 2],
    pub(super) oom: u64,
    pub(super) fresh: bool,
    /// Its clients know that it began. One that is to begin elsewhere begins once it is there.
    pub(super) started: bool,
    /// Why it did not run, and in words; told in place of its exit.
    pub(super) refusal: Option<(Why, String)>,
    pub(super) complaint: Complaint,
    pub(super) strip: Strip,
    pub(super) noise: Vec<u8>,
}

impl Running {
    /// It changes directory or environment for its own time.
    pub(super) fn borrows(&self) -> bool {
        self.run.cwd.as_ref().is_some_and(|cwd| !cwd.is_empty()) || !self.run.env.is_empty()
    }

    pub(super) fn note_interrupt(&mut self) {
        self.shaken = true;
        if self.stage == Stage::Main {
            self.strip.interrupt();
        }
    }
}

/// How far an interrupt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Press {
    /// None is under way.
    Up,
    /// Bash is to come to rest, and has until then.
    Rests(Instant),
    /// Bash, waiting for a program (`true`) or doing something else, was told to stop, and has until
    /// then.
    Stops(Instant, bool),
    /// Bash was interrupted, and has until then to notice.
    Notices(Instant),
    /// Bash has noticed; if it is back at its reader, it says so until then.
    Answers(Instant),
}
