//! How much of the server each tenant may use at once: connections by kind, and memory for what is
//! parsed and for responses.

pub(crate) mod body_memory;
pub(crate) mod kind;
pub(crate) mod limit_exceeded;
pub(crate) mod limiter;
pub(crate) mod memory_budget;
pub(crate) mod permit_body;
pub(crate) mod settings;
