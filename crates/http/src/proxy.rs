//! The way to a port inside a sandbox: one request in, the same request out to what listens there,
//! and its answer back as it comes.

pub(crate) mod forward;
pub(crate) mod headers;
pub(crate) mod host_name;
pub(crate) mod port_host;
pub(crate) mod response_body;
pub(crate) mod target;
pub(crate) mod tunnel;
