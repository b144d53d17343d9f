//! The running command of a shell and its progress.

use super::bash_protocol::Report;
use super::escalation::Escalation;
use super::stderr_filter::StderrFilter;
use super::tty_warning::TtyWarningFilter;
use crate::connection::shell_log::CommandKey;
use crate::process_tree::ProcessHandle;
use crate::reaction::{ReactionLimit, ReactionWait};
use isolet_wire::request::RunCommand;
use isolet_wire::response::RefusalReason;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two interrupts, of which the first may have been lost.
pub(super) const INTERRUPT_RETRY: Duration = Duration::from_millis(30);

/// The step of a command that is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The agent's setup step: directory, environment, history.
    Before,
    Main,
    /// The agent's cleanup step, which restores directory and environment.
    After,
}

/// Detects a bash that is back at its reader without having reported, because the line that
/// requests the report was lost.
#[derive(Debug, Clone)]
pub(super) struct ReaderProbe {
    /// When the next step is due.
    pub(super) due: Instant,
    /// The pause before the next check, which doubles each time. Zero means that the status channel
    /// is closed.
    pub(super) pause: Duration,
    pub(super) step: ProbeStep,
    /// The step also waits until bash has had this time for its report.
    pub(super) wait: Option<ReactionWait>,
}

/// The steps of a [`ReaderProbe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeStep {
    /// Write an empty line to bash.
    WriteEmptyLine,
    /// Check whether bash has read everything, and if so, request the report again.
    RequestReport,
    /// Request the report with the other prefix.
    RequestByOtherPrefix,
    /// Give up, unless bash is busy again.
    GiveUp,
}

#[derive(Debug)]
pub(super) struct RunningCommand {
    pub(super) key: Rc<CommandKey>,
    pub(super) run: RunCommand,
    pub(super) started_at: Instant,
    /// Start time, in the unit of process start times.
    pub(super) started_ticks: u64,
    pub(super) oom_kills_before: u64,
    pub(super) first_in_new_bash: bool,
    /// The start was reported. A command with its own directory starts when it has entered it.
    pub(super) start_reported: bool,
    pub(super) stdin: CommandInput,
    pub(super) output: CommandOutput,
    pub(super) interrupts: Interrupts,
    pub(super) step: StepProgress,
    pub(super) result: CommandResult,
}

/// The standard input of a command.
#[derive(Debug)]
pub(super) struct CommandInput {
    /// Bytes that the command has not read yet.
    pub(super) bytes: Vec<u8>,
    pub(super) eof: bool,
    pub(super) pipe: Option<OwnedFd>,
}

/// The output of a command.
#[derive(Debug)]
pub(super) struct CommandOutput {
    /// Number of bytes of each stream.
    pub(super) counts: [u64; 2],
    /// Position of the first byte of each stream in the shell's log.
    pub(super) start: [u64; 2],
    /// Number of bytes in the pipes when the step ended, which are still to be read.
    pub(super) unread: Option<[usize; 2]>,
    pub(super) tty_warning: TtyWarningFilter,
    pub(super) stderr_filter: StderrFilter,
    /// What the agent's own steps wrote to standard error.
    pub(super) own_step_stderr: Vec<u8>,
}

/// How a command is being interrupted.
#[derive(Debug)]
pub(super) struct Interrupts {
    pub(super) escalation: Option<Escalation>,
    /// The progress of the current interrupt.
    pub(super) state: InterruptState,
    /// An earlier interrupt of this command has stopped bash.
    pub(super) bash_was_stopped: bool,
    /// How often bash was let on because it had stopped while it installed a handler.
    pub(super) handler_retries: u32,
    /// Children that are forks of bash and remain so.
    pub(super) known_forks: Vec<i32>,
    /// The processes that received the last interrupt.
    pub(super) processes: Vec<ProcessHandle>,
    /// A signal was sent that may have made bash drop a line.
    pub(super) line_may_be_lost: bool,
}

/// The progress of the current step.
#[derive(Debug)]
pub(super) struct StepProgress {
    pub(super) stage: Stage,
    /// Deadline of the agent's own step.
    pub(super) own_deadline: Option<Instant>,
    /// The wait behind that deadline, until bash has had the time for the step.
    pub(super) own_wait: Option<ReactionWait>,
    /// Length of the lines of the last step.
    pub(super) bytes: usize,
    /// Time when these lines were written.
    pub(super) written_at: Instant,
    /// The check whether bash is back at its reader without having reported.
    pub(super) probe: ReaderProbe,
    pub(super) report: Option<Report>,
}

/// The result of a command, as far as it is known.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) code: i32,
    pub(super) timed_out: bool,
    pub(super) cancelled: bool,
    /// Why the command did not run; reported instead of its exit.
    pub(super) refusal: Option<(RefusalReason, String)>,
}

impl RunningCommand {
    /// Whether the command has its own directory or environment.
    pub(super) fn changes_cwd_or_env(&self) -> bool {
        self.run.cwd.as_ref().is_some_and(|cwd| !cwd.is_empty()) || !self.run.env.is_empty()
    }

    /// Whether the processes of the command have had the time for a reaction to the interrupt.
    pub(super) fn has_reached(&self, limit: ReactionLimit) -> bool {
        self.interrupts.escalation.as_ref().is_none_or(|escalation| escalation.has_reached(limit))
    }

    pub(super) fn note_interrupt(&mut self) {
        self.interrupts.line_may_be_lost = true;
        if self.step.stage == Stage::Main {
            self.output.stderr_filter.note_interrupt();
        }
    }
}

/// The progress of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterruptState {
    /// No interrupt is in progress.
    Idle,
    /// Waiting until this moment for bash to sleep.
    WaitingForRest(Instant),
    /// SIGSTOP was sent to bash, which has until this limit to stop. `true` means that bash was
    /// waiting for a program.
    Stopping(ReactionLimit, bool),
    /// SIGINT was sent to bash, which has until this limit to handle it.
    Interrupted(ReactionLimit),
    /// Bash has handled the signal. If it is back at its reader, it reports before this moment.
    WaitingForReport(Instant),
}
