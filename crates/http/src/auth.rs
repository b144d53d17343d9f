//! Who sends a request, whether it is meant for this server, and when its right to a response ends.

pub(crate) mod authenticator;
pub(crate) mod caller;
pub(crate) mod cancellation;
pub(crate) mod not_found_limiter;
pub(crate) mod origin;
pub(crate) mod port_link;
pub(crate) mod route_access;
pub(crate) mod tickets;
