//! Headers besides `Authorization` in which clients send credentials of this server. None of them reaches a
//! program behind a port.

/// Holds the key in requests of the clients of E2B and SWE-ReX.
pub(crate) const API_KEY: &str = "x-api-key";
/// Holds the access token in requests of E2B's clients to a sandbox.
pub(crate) const ACCESS_TOKEN: &str = "x-access-token";
/// Holds the same token in calls of the code interpreter that name no other.
pub(crate) const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";
