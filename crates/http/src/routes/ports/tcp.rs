//! A TCP connection to a port of a sandbox, over a WebSocket.

use crate::app::App;
use crate::auth::caller::{Caller, bad_ticket};
use crate::auth::tickets;
use crate::foundation::error::ApiError;
use crate::foundation::query::Query;
use crate::routes::ports::PortPath;
use crate::ws::{tcp, upgrade};
use axum::extract::{Request, State};
use axum::response::Response;
use isolet_sandbox::service::Access;

/// Connect to a TCP port over a WebSocket
///
/// Binary frames carry the bytes of the connection in both directions. The client ends its
/// direction with the text frame `{"type":"eof"}`. When the program ends its direction, the server
/// closes the socket, or with `half=1` sends the same frame and keeps the other direction open.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/tcp/{port}", operation_id = "ports_connect_tcp", tag = "ports",
    security(("bearer" = []), ("ticket" = [])),
    params(
        ("id" = String, Path),
        ("port" = u16, Path),
        ("half" = Option<bool>, Query, description = "`1`: report the end of the program's direction instead of closing the socket.")
    ),
    responses(
        (status = 101, description = "The connection continues as a WebSocket.")
    )
)]
pub(crate) async fn open(
    State(app): State<App>,
    caller: Caller,
    at: PortPath,
    mut request: Request,
) -> Result<Response, ApiError> {
    let accept = upgrade::handshake(request.method(), request.headers())?;
    let half_close = Query::of(request.uri(), &["half", tickets::QUERY_NAME])?.flag("half")?;
    if caller.ticket_scope.as_ref().is_some_and(|scope| scope.port != Some(at.port)) {
        return Err(bad_ticket());
    }
    let sandbox = app.service.reach(&caller.tenant, &at.sandbox, Access::Awake).await?;
    caller.check_incarnation(&sandbox)?;
    let link = sandbox.dial(at.port).await?;
    let client = tcp::TcpClient { sandbox, link, half_close };
    let cancellation = app.cancellations.subscribe(&caller);
    upgrade::hand_over(&mut request, tcp::MESSAGE_BYTES_MAX, async move |socket| {
        tcp::run(socket, client, cancellation).await;
    });
    Ok(upgrade::switch(accept))
}
