//! Finds the caller of a request by its key or ticket. Keys are never logged, echoed or read from a
//! URL.

use crate::auth::API_KEY;
use crate::auth::caller::{Caller, SocketPurpose, bad_ticket, read_only_key, unauthorized};
use crate::auth::route_access::RouteAccess;
use crate::auth::tickets::{TicketTarget, Tickets};
use crate::dialects::{e2b, swerex};
use crate::foundation::error::ApiError;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use isolet_sandbox::{KeyDigest, Keys, TenantId};
use std::sync::Arc;

/// Looks up the keys and tickets that give access to this server.
#[derive(Clone)]
pub(crate) struct Authenticator {
    keys: Keys,
    /// The key from the environment, for the tenant `default`.
    env_key: Option<KeyDigest>,
    tickets: Arc<Tickets>,
}

impl Authenticator {
    pub(crate) fn new(keys: Keys, env_key: Option<&str>, tickets: Arc<Tickets>) -> Self {
        Self { keys, env_key: env_key.map(KeyDigest::of), tickets }
    }

    /// Returns the caller. Refuses requests that change something when the key is read-only.
    pub(crate) fn authenticate(
        &self,
        access: RouteAccess,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller, ApiError> {
        let target = TicketTarget::of(method, uri, headers);
        if let Some((target, ticket)) =
            target.as_ref().and_then(|target| Some((target, target.ticket()?)))
        {
            return self.ticket(ticket, target)?.ok_or_else(bad_ticket);
        }
        let secret = secret(uri, headers).ok_or_else(unauthorized)?;
        let caller = self.caller_of_secret(secret)?.ok_or_else(unauthorized)?;
        // A WebSocket begins with a GET, and its frames run commands.
        let reads = match target {
            Some(target) => target.purpose == SocketPurpose::Terminal && target.view,
            None => access.only_reads(method) && !headers.contains_key(header::UPGRADE),
        };
        if caller.read_only && !reads && access != RouteAccess::ChecksReadOnlyItself {
            return Err(read_only_key("use a key that was created without --read-only"));
        }
        Ok(caller)
    }

    /// Returns the caller that a ticket stands for, unless the key that made the ticket was
    /// revoked.
    fn ticket(&self, ticket: &str, target: &TicketTarget) -> Result<Option<Caller>, ApiError> {
        let Some(caller) = self.tickets.redeem(ticket, target) else { return Ok(None) };
        let holds = match &caller.key {
            Some(key) => self.keys.is_valid(key).map_err(keys_unreadable)?,
            None => true,
        };
        Ok(holds.then_some(caller))
    }

    /// Returns the caller of the request's key, or `None` when the key is not one of this server's.
    pub(crate) fn caller_of_key(&self, headers: &HeaderMap) -> Result<Option<Caller>, ApiError> {
        bearer(headers).map_or(Ok(None), |secret| self.caller_of_secret(secret))
    }

    fn caller_of_secret(&self, secret: &str) -> Result<Option<Caller>, ApiError> {
        let digest = KeyDigest::of(secret);
        if self.env_key == Some(digest) {
            return Ok(Some(Caller {
                tenant: TenantId::default_tenant(),
                read_only: false,
                key: None,
                ticket_scope: None,
                forwarded: false,
            }));
        }
        let grant = self.keys.grant_of(&digest).map_err(keys_unreadable)?;
        Ok(grant.and_then(|grant| {
            let tenant = TenantId::parse(&grant.tenant).ok()?;
            let read_only = grant.read_only;
            let key = Some(grant.key);
            Some(Caller { tenant, read_only, key, ticket_scope: None, forwarded: false })
        }))
    }
}

/// The key of a request. The clients of E2B and SWE-ReX send it in a header of their own.
fn secret<'a>(uri: &Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let own = || {
        let mut all = headers.get_all(API_KEY).iter().filter(|_| has_own_header(uri.path()));
        let one = all.next().filter(|_| all.next().is_none())?;
        one.to_str().ok().filter(|secret| !secret.is_empty())
    };
    bearer(headers).or_else(own)
}

/// Whether the clients of a path send their key in `X-API-Key`.
fn has_own_header(path: &str) -> bool {
    e2b::routes::owns(path) || swerex::routes::owns(path)
}

/// The key in `Authorization: Bearer KEY`, when there is exactly one such header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let one = all.next().filter(|_| all.next().is_none())?;
    let (scheme, secret) = one.to_str().ok()?.split_once(' ')?;
    let secret = secret.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty()).then_some(secret)
}

fn keys_unreadable(error: impl std::fmt::Display) -> ApiError {
    tracing::error!(%error, "keys cannot be read");
    let hint = "see the server's log";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "storage_error", "keys cannot be read", hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bearer_header_is_a_key() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers), None);
        for bad in ["Basic abc", "Bearer", "Bearer ", "abc"] {
            headers.insert(header::AUTHORIZATION, bad.parse().unwrap());
            assert_eq!(bearer(&headers), None, "{bad}");
        }
        headers.insert(header::AUTHORIZATION, "bearer  abc".parse().unwrap());
        assert_eq!(bearer(&headers), Some("abc"));
        headers.append(header::AUTHORIZATION, "Bearer def".parse().unwrap());
        assert_eq!(bearer(&headers), None);
    }
}
