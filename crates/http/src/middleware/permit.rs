//! Acquires a permit for each request, and holds it until the response has been sent.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::connection::connections::ClientConnection;
use crate::dialects::error_response;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Forwarded;
use crate::foundation::trace;
use crate::limits::kind::ConnectionKind;
use crate::limits::limiter::SocketPermit;
use crate::limits::permit_body::with_permit;
use crate::middleware::connection_use::kind_of;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Body as _;
use std::sync::Arc;

/// Responses up to this size go to the kernel at once, so they hold neither permit nor memory.
const SHORT_BYTES: u64 = 64 * 1024;

/// Counts a request around its handler.
pub(crate) async fn count_request(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let extensions = request.extensions();
    let Some(route) = extensions.get::<MatchedPath>() else { return next.run(request).await };
    trace::record_route(request.method(), route.as_str());
    let Some(caller) = extensions.get::<Caller>() else { return next.run(request).await };
    let kind = kind_of(request.method(), route.as_str(), request.uri(), request.headers());
    let Some(kind) = kind else { return next.run(request).await };
    let connection = extensions.get::<Arc<ClientConnection>>();
    let tenant = caller.tenant.clone();
    let permit = match app.limiter.acquire(&tenant, kind, connection) {
        Ok(permit) => permit,
        Err(excess) => return error_response(ApiError::from(excess), request.uri().path()),
    };
    if kind == ConnectionKind::Socket {
        request.extensions_mut().insert(SocketPermit::new(permit));
        return next.run(request).await;
    }
    let response = next.run(request).await;
    // A streamed body has no exact size, except that of a program, which may send a
    // `Content-Length`, and that of a response of another node.
    let streamed =
        kind == ConnectionKind::Port || response.extensions().get::<Forwarded>().is_some();
    let bytes = response.body().size_hint().exact().filter(|_| !streamed);
    match bytes {
        Some(bytes) if bytes <= SHORT_BYTES => response,
        bytes => {
            let share = bytes.map(|bytes| app.response_memory.reserve(&tenant, bytes));
            with_permit(response, permit, share)
        }
    }
}
