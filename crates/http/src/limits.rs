//! How much of the server each tenant may use at once: connections by kind, and memory for
//! responses.

pub(crate) mod kind;
pub(crate) mod limit_exceeded;
pub(crate) mod limiter;
pub(crate) mod permit_body;
pub(crate) mod response_memory;
pub(crate) mod settings;
