//! Output of commands and code: captured in one response, or streamed as server-sent events.

pub(crate) mod bridge_events;
pub(crate) mod captured_output;
pub(crate) mod command;
pub(crate) mod command_events;
pub(crate) mod context_run;
pub(crate) mod context_run_events;
pub(crate) mod context_run_view;
pub(crate) mod event_data;
pub(crate) mod event_stream;
