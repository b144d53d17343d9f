//! The running terminals of a sandbox: list and hang up.

pub(crate) mod recordings;
pub(crate) mod socket;

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{error::ApiError, input::PathIds, query::Query},
};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, Uri},
};
use isolet_sandbox::{SessionId, service::Access};
use isolet_wire::terminal::{Client, Size, Terminal};
use serde::Serialize;
use utoipa::ToSchema;

/// Somebody who is attached.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClientView {
    /// Counts the clients of the terminal.
    client: u32,
    /// As it calls itself.
    name: String,
    /// `edit` or `view`.
    mode: &'static str,
    /// Its window, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cols: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u16>,
    /// It typed last.
    typing: bool,
}

impl From<Client> for ClientView {
    fn from(client: Client) -> Self {
        Self {
            client: client.number,
            name: client.name,
            mode: if client.view { "view" } else { "edit" },
            cols: client.size.map(|size| size.cols),
            rows: client.size.map(|size| size.rows),
            typing: client.typing,
        }
    }
}

/// A terminal that runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TerminalView {
    /// Whose.
    #[schema(value_type = String)]
    session: String,
    /// Names this run of it.
    terminal: String,
    /// Its program's process id, inside.
    pid: i32,
    /// Program and arguments.
    command: Vec<String>,
    /// Its width.
    cols: u16,
    /// Its height.
    rows: u16,
    /// Bytes of output so far.
    offset: u64,
    /// As its program has set it: text of a tenant, never to be trusted.
    title: String,
    /// Who is attached.
    clients: Vec<ClientView>,
    /// Since it was opened, in ms.
    age_ms: u64,
}

impl From<(SessionId, Terminal)> for TerminalView {
    fn from((session, terminal): (SessionId, Terminal)) -> Self {
        let Size { cols, rows } = terminal.size;
        Self {
            session: session.into(),
            terminal: terminal.id,
            pid: terminal.pid,
            command: terminal.argv,
            cols,
            rows,
            offset: terminal.offset,
            title: terminal.title,
            clients: terminal.clients.into_iter().map(ClientView::from).collect(),
            age_ms: terminal.age_ms,
        }
    }
}

/// Terminals that run, sorted by session; none of a sandbox that sleeps.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/terminals", tag = "terminals",
    params(("id" = String, Path)),
    responses((status = 200, body = Vec<TerminalView>), (status = "4XX", body = ApiError)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Vec<TerminalView>>, ApiError> {
    Query::of(&uri, &[])?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let all = sandbox.terminals().await?;
    Ok(Json(all.into_iter().map(TerminalView::from).collect()))
}

/// Hangs a session's terminal up, then kills what is left of its program.
///
/// 404 where none runs.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/terminals/{sid}", tag = "terminals",
    params(("id" = String, Path), ("sid" = String, Path)),
    responses((status = 204), (status = "4XX", body = ApiError)))]
pub(crate) async fn hang_up(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<StatusCode, ApiError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let session = ids.session()?;
    if !sandbox.terminals().await?.iter().any(|(id, _)| id == session) {
        let message = format!("no terminal runs in session {session}");
        let hint = "list them with GET …/terminals";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "no_terminal", message, hint));
    }
    sandbox.terminal_close(session).await?;
    Ok(StatusCode::NO_CONTENT)
}
