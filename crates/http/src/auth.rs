//! Authentication: finds the caller of a request, checks that the request is meant for this server,
//! and cancels responses when the caller loses access.

pub(crate) mod authenticator;
pub(crate) mod caller;
pub(crate) mod cancellation;
pub(crate) mod credential_headers;
mod forwarded_headers;
pub(crate) mod link_token;
pub(crate) mod not_found_limiter;
pub(crate) mod origin;
pub(crate) mod port_link;
pub(crate) mod route_access;
pub(crate) mod tickets;
pub(crate) mod trusted_proxies;
