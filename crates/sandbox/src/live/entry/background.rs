//! Processes and terminals of a sandbox whose start was reported as an event.

use crate::model::ids::{ProcessId, SessionId};
use std::{collections::BTreeMap, sync::Mutex};

/// Of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Background(pub(crate) Mutex<Known>);

/// What was told to run, and not yet to have ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// What an earlier server began has been looked for.
    pub(crate) looked: bool,
    /// Processes, with their sessions, by when they were started.
    pub(crate) processes: BTreeMap<(ProcessId, i64), Option<SessionId>>,
    /// Terminals' own ids, by their sessions.
    pub(crate) terminals: BTreeMap<SessionId, String>,
}
