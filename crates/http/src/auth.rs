//! Authentication: finds the caller of a request, checks that the request is meant for this server,
//! and cancels responses when the caller loses access.

pub(crate) mod authenticator;
pub(crate) mod caller;
pub(crate) mod cancellation;
mod forwarded_headers;
pub(crate) mod link_token;
pub(crate) mod not_found_limiter;
pub(crate) mod origin;
pub(crate) mod port_link;
pub(crate) mod route_access;
pub(crate) mod tickets;
pub(crate) mod trusted_proxies;

// Headers besides `Authorization` in which clients send credentials of this server. None of them reaches a
// program behind a port.
/// Holds the key in requests of the clients of E2B and SWE-ReX.
pub(crate) const API_KEY: &str = "x-api-key";
/// Holds the access token in requests of E2B's clients to a sandbox.
pub(crate) const ACCESS_TOKEN: &str = "x-access-token";
/// Holds the same token in calls of the code interpreter that name no other.
pub(crate) const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";
