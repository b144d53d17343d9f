//! A TCP connection to a port of a sandbox, over a WebSocket.

use crate::{
    app::App,
    auth::{
        caller::{Caller, bad_ticket},
        tickets,
    },
    foundation::{error::ApiError, query::Query},
    routes::ports::PortPath,
    ws::{tcp, upgrade},
};
use axum::{
    extract::{Request, State},
    response::Response,
};
use isolet_sandbox::service::Access;

/// Opens a TCP connection to what listens on a port inside, over a WebSocket.
///
/// Its bytes are binary frames both ways. `{"type":"eof"}` as text is the client's end; the program's
/// closes the socket, or with `half=1` is said likewise, and the client may go on.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/tcp/{port}", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path),
        ("half" = Option<String>, Query, description = "`1`: the program's end is told, and does not close the socket."),
        ("ticket" = Option<String>, Query, description = "In place of a key.")),
    responses((status = 101, description = "The connection is a WebSocket."), (status = "4XX", body = ApiError), (status = 502, body = ApiError)))]
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
    let client = tcp::Client { sandbox, link, half_close };
    let cancellation = app.cancellations.subscribe(&caller);
    upgrade::hand_over(&mut request, tcp::MESSAGE_BYTES_MAX, async move |socket| {
        tcp::run(socket, client, cancellation).await;
    });
    Ok(upgrade::switch(accept))
}
