//! The background processes and terminals of a sandbox whose start was published as an event.

use crate::model::ids::{ProcessId, SessionId};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Background processes and terminals of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Background(pub(crate) Mutex<Known>);

/// Those whose start was published and whose end was not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Whether those that the previous server started have been found.
    pub(crate) looked: bool,
    /// Processes by id and start time, with their sessions.
    pub(crate) processes: BTreeMap<(ProcessId, i64), Option<SessionId>>,
    /// Ids of terminals, by session.
    pub(crate) terminals: BTreeMap<SessionId, String>,
}
