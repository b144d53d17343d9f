//! Forwards requests to programs that listen on ports inside sandboxes.

pub(crate) mod forward;
pub(crate) mod headers;
pub(crate) mod host_name;
mod location;
pub(crate) mod port_host;
pub(crate) mod response_body;
pub(crate) mod target;
pub(crate) mod tunnel;
