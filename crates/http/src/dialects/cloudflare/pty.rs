//! `GET /v1/sandbox/{id}/pty`: the terminal of a session.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::cloudflare::address::{sandbox, session};
use crate::dialects::cloudflare::error::BridgeError;
use crate::routes::terminals::socket;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use isolet_sandbox::SessionId;

/// Connect to a terminal over a WebSocket
///
/// Works like `/v1/sandboxes/{id}/terminal`, and takes the same query parameters.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/pty", operation_id = "cloudflare_terminal_connect", tag = "cloudflare",
    security(("bearer" = []), ("ticket" = [])),
    params(
        ("id" = String, Path),
        ("session" = Option<String>, Query, description = "The session of the terminal. Defaults to the session of the header, then to `default`."),
        ("cols" = Option<u32>, Query, description = "The width of the window. Defaults to 80."),
        ("rows" = Option<u32>, Query, description = "The height of the window. Defaults to 24."),
        ("shell" = Option<String>, Query, description = "The program to run instead of bash."),
        ("Session-Id" = Option<String>, Header, description = "The session, if the query names none.")
    ),
    responses(
        (status = 101, description = "The connection continues as a WebSocket.")
    )
)]
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
