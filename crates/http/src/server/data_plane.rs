//! Requests to the data plane of a sandbox in E2B's dialect. An access token, or the signature of a
//! URL, grants access to one sandbox, and no key is needed.

use crate::auth::caller::Caller;
use crate::auth::origin::{self, Arrival};
use crate::dialects::e2b::access_token;
use crate::dialects::e2b::address::DataPlane;
use crate::dialects::e2b::error::E2bError;
use crate::forwarding::links::LinkAnswer;
use crate::foundation::error::ApiError;
use crate::foundation::trace;
use crate::server::request::{Shared, links, refuse_reserved};
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use tower::ServiceExt;

/// Answers a request. Returns no caller: what such a client cannot find is a file or a process, and
/// counts against nobody.
pub(super) async fn answer(
    shared: &Shared,
    at: Arrival,
    plane: DataPlane,
    request: Request<Body>,
) -> (Response<Body>, Option<Caller>) {
    let answered = respond(shared, at, &plane, request).await;
    (answered.unwrap_or_else(|failure| E2bError::from(failure).into_response()), None)
}

async fn respond(
    shared: &Shared,
    at: Arrival,
    plane: &DataPlane,
    mut request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    if !plane.by_host {
        origin::check(&shared.names, at, request.uri(), request.headers())?;
    }
    plane.rewrite(&mut request)?;
    if let Some(joined) = &shared.app.fleet {
        refuse_reserved(&request)?;
        if let Some(tenant) = access_token::unverified_tenant(request.headers()) {
            let links = links(shared, joined);
            request = match links.by_token(&tenant, &plane.sandbox, request).await? {
                LinkAnswer::Here(request) => request,
                LinkAnswer::Elsewhere(response, _) => return Ok(response),
            };
        }
    }
    let service = &shared.app.service;
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let caller = access_token::authenticate(service, &plane.sandbox, method, uri, headers).await?;
    trace::record_tenant(&caller.tenant);
    request.extensions_mut().insert(caller);
    match shared.router.clone().oneshot(request).await {
        Ok(response) => Ok(response),
        Err(never) => match never {},
    }
}
