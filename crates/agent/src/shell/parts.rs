//! The parts of a shell's state, by concern.

use crate::reaction::ReactionWait;
use std::collections::VecDeque;
use std::time::Instant;

/// Retries of the report request after an interrupt.
#[derive(Debug, Clone)]
pub(super) struct Resync {
    /// The wait for the answer, after which the next request is due.
    pub(super) wait: ReactionWait,
    pub(super) tries: u32,
}

/// The steps that bash runs and reports.
#[derive(Debug, Default)]
pub(super) struct StepCounter {
    /// Number of the last step.
    pub(super) number: u64,
    /// The step whose report is awaited.
    pub(super) awaited: Option<u64>,
    /// Set after an interrupt until bash reports again.
    pub(super) resync: Option<Resync>,
    /// Start time of the command that was interrupted last, until bash reports again.
    pub(super) sweep_since: Option<u64>,
}

/// Earlier commands for `history`, which bash receives when it needs them.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) texts: VecDeque<String>,
    pub(super) bytes: usize,
}

/// Whether output is read, and how far it was sent.
#[derive(Debug)]
pub(super) struct FlowControl {
    /// The output pipes are read.
    pub(super) reading: bool,
    /// Until when a client that reads nothing is waited for.
    pub(super) stalled_until: Option<Instant>,
    /// Index of the first entry of the log that was not sent yet.
    pub(super) sent_index: u64,
}

/// What replaces a start directory that bash cannot enter.
#[derive(Debug, Default)]
pub(super) struct StartDirectory {
    /// The nearest accessible parent.
    pub(super) fallback: Option<String>,
    /// The same directory until a notice about it was written to a command's standard error.
    pub(super) notice: Option<String>,
}
