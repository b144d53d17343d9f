//! The command that a shell runs, and how far it has come.

use super::bash_protocol::Report;
use super::escalation::Escalation;
use super::stderr_filter::StderrFilter;
use super::tty_warning::TtyWarningFilter;
use crate::connection::shell_log::CommandKey;
use crate::process_tree::Process;
use isolet_wire::ask::Run;
use isolet_wire::tell::Why;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two interrupts of which the first may have been lost.
pub(super) const INTERRUPT_RETRY: Duration = Duration::from_millis(30);

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
    pub(super) key: Rc<CommandKey>,
    pub(super) run: Run,
    pub(super) stage: Stage,
    pub(super) started_at: Instant,
    /// When it began, in the unit of process start times.
    pub(super) started_ticks: u64,
    pub(super) output_bytes: [u64; 2],
    pub(super) input: Vec<u8>,
    pub(super) eof: bool,
    pub(super) stdin_pipe: Option<OwnedFd>,
    /// Bytes in the pipes when its step ended; still to be read.
    pub(super) unread: Option<[usize; 2]>,
    pub(super) escalation: Option<Escalation>,
    /// How far an interrupt has come.
    pub(super) interrupt: InterruptState,
    /// It was interrupted before.
    pub(super) bash_was_stopped: bool,
    /// Children that are copies of bash for good.
    pub(super) known_forks: Vec<i32>,
    /// What the last interrupt was sent to.
    pub(super) interrupted_processes: Vec<Process>,
    pub(super) timed_out: bool,
    pub(super) cancelled: bool,
    /// A signal that may have made bash drop a line was sent.
    pub(super) line_may_be_lost: bool,
    /// When to ask next whether bash is back at its reader, and how far that has come.
    pub(super) probe: (Instant, Duration, u8),
    /// When an own step has taken too long.
    pub(super) own_step_deadline: Option<Instant>,
    /// Bytes of the lines of its last step, and when they were written.
    pub(super) step_bytes: usize,
    pub(super) step_written_at: Instant,
    pub(super) report: Option<Report>,
    pub(super) code: i32,
    pub(super) output_start: [u64; 2],
    pub(super) oom_kills_before: u64,
    pub(super) first_in_new_bash: bool,
    /// Its clients know that it began. One that is to begin elsewhere begins once it is there.
    pub(super) start_reported: bool,
    /// Why it did not run, and in words; told in place of its exit.
    pub(super) refusal: Option<(Why, String)>,
    pub(super) tty_warning: TtyWarningFilter,
    pub(super) stderr_filter: StderrFilter,
    pub(super) own_step_stderr: Vec<u8>,
}

impl Running {
    /// It changes directory or environment for its own time.
    pub(super) fn changes_cwd_or_env(&self) -> bool {
        self.run.cwd.as_ref().is_some_and(|cwd| !cwd.is_empty()) || !self.run.env.is_empty()
    }

    pub(super) fn note_interrupt(&mut self) {
        self.line_may_be_lost = true;
        if self.stage == Stage::Main {
            self.stderr_filter.interrupt();
        }
    }
}

/// How far an interrupt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterruptState {
    /// None is under way.
    Idle,
    /// Bash is to come to rest, and has until then.
    WaitingForRest(Instant),
    /// Bash, waiting for a program (`true`) or doing something else, was told to stop, and has until
    /// then.
    Stopping(Instant, bool),
    /// Bash was interrupted, and has until then to notice.
    Interrupted(Instant),
    /// Bash has noticed; if it is back at its reader, it says so until then.
    WaitingForReport(Instant),
}
