//! `GET /v1/sandbox/{id}/pty`: the terminal of a session.

use crate::{
    app::App,
    auth::caller::Caller,
    dialects::cloudflare::{
        address::{sandbox, session},
        error::{BridgeError, RefusalView},
    },
    routes::terminals::socket,
};
use axum::{
    extract::{Path, Request, State},
    http::HeaderMap,
    response::Response,
};
use isolet_sandbox::SessionId;

/// The terminal of a session, as `/v1/sandboxes/{id}/terminal`.
#[utoipa::path(get, path = "/v1/sandbox/{id}/pty", tag = "cloudflare",
    params(("id" = String, Path, description = "`[a-z2-7]{1,128}`"),
        ("session" = Option<String>, Query), ("cols" = Option<u32>, Query), ("rows" = Option<u32>, Query),
        ("shell" = Option<String>, Query),
        ("Session-Id" = Option<String>, Header, description = "The session, where the query names none.")),
    responses((status = 101, description = "The connection is a WebSocket."), (status = "4XX", body = RefusalView)))]
pub(crate) async fn pty(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, BridgeError> {
    let id = sandbox(&id)?;
    let otherwise = session(&headers)?.unwrap_or_else(SessionId::default_session);
    Ok(socket::attach(app, caller, id, otherwise, request).await?)
}
