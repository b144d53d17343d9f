//! What commands and code say, gathered into one answer or sent as it happens.

pub(crate) mod bridge_events;
pub(crate) mod captured_output;
pub(crate) mod command;
pub(crate) mod command_events;
pub(crate) mod context_run;
pub(crate) mod context_run_events;
pub(crate) mod sse;
