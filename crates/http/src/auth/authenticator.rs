//! Whose request it is, by its key. Keys are never logged, echoed or taken from an address.

use crate::{
    auth::{
        caller::{Caller, Use, bad_ticket, read_only, unknown},
        route_access::{MCP_PATH, leads_in},
        tickets::{Door, Tickets},
    },
    foundation::error::Failure,
};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use isolet_sandbox::{KeyDigest, Keys, TenantId};
use std::sync::Arc;

/// What opens this server.
#[derive(Clone)]
pub(crate) struct Doors {
    keys: Keys,
    /// The key that the environment names, for the tenant `default`.
    own: Option<KeyDigest>,
    tickets: Arc<Tickets>,
}

impl Doors {
    pub(crate) fn new(keys: Keys, own: Option<&str>, tickets: Arc<Tickets>) -> Self {
        Self { keys, own: own.map(KeyDigest::of), tickets }
    }

    /// Who calls; a call that changes something is refused to a key that may only read.
    pub(crate) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller, Failure> {
        let door = Door::of(method, uri, headers);
        if let Some((door, ticket)) = door.as_ref().and_then(|door| Some((door, door.ticket()?))) {
            return self.ticket(ticket, door)?.ok_or_else(bad_ticket);
        }
        let secret = bearer(headers).ok_or_else(unknown)?;
        let caller = self.find(secret)?.ok_or_else(unknown)?;
        // An upgrade is a GET, and what is said over it runs commands.
        let reads = match door {
            Some(door) => door.purpose == Use::Terminal && door.view,
            None => {
                matches!(*method, Method::GET | Method::HEAD)
                    && !leads_in(uri.path())
                    && !headers.contains_key(header::UPGRADE)
            }
        };
        // These look themselves: some tickets open no more than a look, and some tools only read.
        let itself =
            uri.path() == MCP_PATH || *method == Method::POST && uri.path() == "/v1/tickets";
        if caller.read_only && !reads && !itself {
            return Err(read_only("use a key that was made without --read-only"));
        }
        Ok(caller)
    }

    /// Whom a ticket lets in: nobody once the key of its maker is gone.
    fn ticket(&self, ticket: &str, door: &Door) -> Result<Option<Caller>, Failure> {
        let Some(caller) = self.tickets.take(ticket, door) else { return Ok(None) };
        let holds = match &caller.key {
            Some(key) => self.keys.holds(key).map_err(unread)?,
            None => true,
        };
        Ok(holds.then_some(caller))
    }

    /// Whose key a request carries, where that is one of ours.
    pub(crate) fn known(&self, headers: &HeaderMap) -> Result<Option<Caller>, Failure> {
        bearer(headers).map_or(Ok(None), |secret| self.find(secret))
    }

    fn find(&self, secret: &str) -> Result<Option<Caller>, Failure> {
        let digest = KeyDigest::of(secret);
        if self.own == Some(digest) {
            return Ok(Some(Caller {
                tenant: TenantId::default_tenant(),
                read_only: false,
                key: None,
                bound: None,
            }));
        }
        let grant = self.keys.check(&digest).map_err(unread)?;
        Ok(grant.and_then(|grant| {
            let tenant = TenantId::parse(&grant.tenant).ok()?;
            let (read_only, key) = (grant.read_only, Some(grant.key));
            Some(Caller { tenant, read_only, key, bound: None })
        }))
    }
}

/// The key in `Authorization: Bearer KEY`, when there is exactly one such header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let one = all.next().filter(|_| all.next().is_none())?;
    let (scheme, secret) = one.to_str().ok()?.split_once(' ')?;
    let secret = secret.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty()).then_some(secret)
}

fn unread(error: impl std::fmt::Display) -> Failure {
    tracing::error!(%error, "keys cannot be read");
    let hint = "look at the server's log";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "store", "keys cannot be read", hint)
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
