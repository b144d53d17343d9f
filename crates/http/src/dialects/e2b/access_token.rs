//! The access token of a sandbox's data plane: signed as a link to the port that stands for it, for a
//! purpose of its own, and without an end. A link to that port opens a program there and nothing of
//! the server.
//!
//! Like every link it becomes invalid when the sandbox ends, when the key that created it is revoked,
//! and when the links of the port are revoked.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::port_link::{self, Purpose, SignedLink};
use crate::auth::{ACCESS_TOKEN, TRAFFIC_TOKEN};
use crate::dialects::e2b::address::{DAEMON_PORT, gone};
use crate::dialects::e2b::file_signature;
use crate::foundation::error::ApiError;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use isolet_sandbox::{SandboxId, Service, TenantId};

/// The end of the year 9999, in seconds since 1970. The token must be the same each time, because
/// clients sign URLs with it.
const EXPIRES_S: u64 = 253_402_300_799;
/// The name of the port in the list of links.
const NAME: &str = "e2b";

/// Creates the token with which this caller reaches the data plane of a sandbox.
pub(super) async fn issue(
    app: &App,
    caller: &Caller,
    sandbox: &SandboxId,
) -> Result<String, ApiError> {
    let tenant = &caller.tenant;
    let (life, mut all) = app.service.exposed(tenant, sandbox)?;
    let exposed = match all.remove(&DAEMON_PORT) {
        Some(exposed) => exposed,
        None => {
            app.service.expose(tenant, sandbox, DAEMON_PORT, Some(NAME.to_owned()), None).await?
        }
    };
    let link = link(tenant.clone(), caller.key.clone(), sandbox);
    Ok(link.token(&exposed.secret, &life))
}

/// What the token of a key says.
pub(super) fn link(tenant: TenantId, key: Option<String>, sandbox: &SandboxId) -> SignedLink {
    let caller = Caller { tenant, read_only: false, key, ticket_scope: None, forwarded: false };
    SignedLink {
        purpose: Purpose::DataPlane,
        caller,
        sandbox: sandbox.clone(),
        port: DAEMON_PORT,
        expires_s: EXPIRES_S,
    }
}

/// The tenant that the token of a request names, before its signature is checked. It grants nothing.
pub(crate) fn unverified_tenant(headers: &HeaderMap) -> Option<TenantId> {
    let link = unverified(token(headers)?.to_str().ok()?)?;
    Some(link.caller.tenant)
}

/// What an access token says, before its signature is checked.
fn unverified(token: &str) -> Option<SignedLink> {
    SignedLink::unverified(token).filter(|link| link.purpose == Purpose::DataPlane)
}

/// The caller of a request to the data plane of a sandbox, by its token or the signature of its URL.
///
/// # Errors
/// 401 without a valid one, and 502 when the sandbox has ended.
pub(crate) async fn authenticate(
    service: &Service,
    sandbox: &SandboxId,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Caller, ApiError> {
    let Some(token) = token(headers) else {
        return file_signature::authenticate(service, sandbox, method, uri).await;
    };
    let token = token.to_str().unwrap_or_default();
    let own = unverified(token).filter(|link| link.sandbox == *sandbox && link.port == DAEMON_PORT);
    if own.is_none() {
        let hint = "connect to the sandbox to get its access token";
        return Err(refused("the access token is not one of this sandbox", hint));
    }
    // The same answer whether the sandbox exists or not.
    let link = port_link::verify_signed(service, Purpose::DataPlane, token);
    let link = link.ok_or_else(|| gone(sandbox))?;
    Ok(link.caller)
}

fn token(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(ACCESS_TOKEN).or_else(|| headers.get(TRAFFIC_TOKEN))
}

/// 401.
pub(super) fn refused(message: &str, hint: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message, hint)
}
