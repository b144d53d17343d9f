//! The command that a shell runs, and how far it has come.

use super::bash_protocol::Report;
use super::escalation::Escalation;
use super::stderr_filter::StderrFilter;
use super::tty_warning::TtyWarningFilter;
use crate::connection::shell_log::CommandKey;
use crate::process_tree::Process;
use isolet_wire::request::Run;
use isolet_wire::response::RefusalReason;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two interrupts of which the first may have been lost.
pub(super) const INTERRUPT_RETRY: Duration = Duration::from_millis(30);

/// Which step of a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The agent's own before it: directory, environment, history.
    Before,
    /// The command's text.
    Main,
    /// The agent's own after it, which restores directory and environment.
    After,
}

/// The search for a bash that is back at its reader and has not reported, because the line that
/// asks for the report was lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReaderProbe {
    /// When the next step is due.
    pub(super) due: Instant,
    /// The pause before the next look; it doubles each time. Zero: the status channel is closed.
    pub(super) pause: Duration,
    pub(super) step: ProbeStep,
}

/// The steps of a [`ReaderProbe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeStep {
    /// Write an empty line to bash.
    WriteEmptyLine,
    /// Look whether bash has read everything; if so, request the report again.
    RequestReport,
    /// Request the report by the other prefix.
    RequestByOtherPrefix,
    /// Give up, unless bash is busy again.
    GiveUp,
}

/// The command that runs.
///
/// Its first fields are the command, then come its input, its output, its interrupts, its present
/// step, and its result.
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
    /// An earlier interrupt of this command has stopped bash.
    pub(super) bash_was_stopped: bool,
    /// Children that are forks of bash and stay so.
    pub(super) known_forks: Vec<i32>,
    /// What the last interrupt was sent to.
    pub(super) interrupted_processes: Vec<Process>,
    pub(super) timed_out: bool,
    pub(super) cancelled: bool,
    /// A signal was sent that may have made bash drop a line.
    pub(super) line_may_be_lost: bool,
    /// How it is found out whether bash is back at its reader without having reported.
    pub(super) probe: ReaderProbe,
    /// When a step of the agent's own has taken too long.
    pub(super) own_step_deadline: Option<Instant>,
    /// Length of the lines that were written for its last step.
    pub(super) step_bytes: usize,
    /// When they were written.
    pub(super) step_written_at: Instant,
    pub(super) report: Option<Report>,
    pub(super) code: i32,
    pub(super) output_start: [u64; 2],
    pub(super) oom_kills_before: u64,
    pub(super) first_in_new_bash: bool,
    /// Its start was reported. A command with a directory of its own starts once it is there.
    pub(super) start_reported: bool,
    /// Why it did not run; reported in place of its exit.
    pub(super) refusal: Option<(RefusalReason, String)>,
    pub(super) tty_warning: TtyWarningFilter,
    pub(super) stderr_filter: StderrFilter,
    pub(super) own_step_stderr: Vec<u8>,
}

impl Running {
    /// Whether it runs in a directory or environment of its own.
    pub(super) fn changes_cwd_or_env(&self) -> bool {
        self.run.cwd.as_ref().is_some_and(|cwd| !cwd.is_empty()) || !self.run.env.is_empty()
    }

    pub(super) fn note_interrupt(&mut self) {
        self.line_may_be_lost = true;
        if self.stage == Stage::Main {
            self.stderr_filter.note_interrupt();
        }
    }
}

/// How far an interrupt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterruptState {
    /// None is in progress.
    Idle,
    /// Waiting until this moment for bash to sleep.
    WaitingForRest(Instant),
    /// SIGSTOP was sent to bash, which has until this moment to stop. `true`: it was waiting for a
    /// program.
    Stopping(Instant, bool),
    /// SIGINT was sent to bash, which has until this moment to handle it.
    Interrupted(Instant),
    /// Bash has handled it; if it is back at its reader, it reports before this moment.
    WaitingForReport(Instant),
}
