//! The running terminals of a sandbox: list and hang up.

pub(crate) mod recordings;
pub(crate) mod socket;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::query::Query;
use crate::ws::terminal::frames::ClientView;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use isolet_sandbox::SessionId;
use isolet_sandbox::service::Access;
use isolet_wire::terminal::{Size, TerminalStatus};
use serde::Serialize;
use utoipa::ToSchema;

/// A terminal that is running.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TerminalStatus)]
pub(crate) struct TerminalView {
    /// The session of the terminal.
    #[schema(value_type = String)]
    session: String,
    /// The id of this terminal. A terminal that is opened again has another one.
    terminal: String,
    /// The process id of its program inside the sandbox.
    pid: i32,
    /// The program and its arguments.
    command: Vec<String>,
    /// The width in columns.
    cols: u16,
    /// The height in rows.
    rows: u16,
    /// Bytes of output so far.
    offset: u64,
    /// The title that its program set. Untrusted text.
    title: String,
    /// The clients that are attached.
    clients: Vec<ClientView<'static>>,
    /// Milliseconds since it was opened.
    age_ms: u64,
}

impl TerminalView {
    fn new(session: SessionId, terminal: TerminalStatus) -> Self {
        let Size { cols, rows } = terminal.size;
        let clients = terminal.clients.iter();
        let clients = clients.map(|client| ClientView::from(client).into_owned()).collect();
        Self {
            session: session.into(),
            terminal: terminal.id,
            pid: terminal.pid,
            command: terminal.argv,
            cols,
            rows,
            offset: terminal.offset,
            title: terminal.title,
            clients,
            age_ms: terminal.age_ms,
        }
    }
}

/// List running terminals
///
/// Returns the terminals sorted by session. A sleeping sandbox has none, and is not woken.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/terminals", operation_id = "terminals_list", tag = "terminals",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The terminals.", body = Vec<TerminalView>)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
) -> Result<Json<Vec<TerminalView>>, ApiError> {
    Query::of(&uri, &[])?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let all = sandbox.terminals().await?;
    Ok(Json(
        all.into_iter().map(|(session, terminal)| TerminalView::new(session, terminal)).collect(),
    ))
}

/// Close a terminal
///
/// Sends a hang-up to the terminal, then kills what is left of its program. Answers 404
/// `no_terminal` if none runs.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/terminals/{sid}", operation_id = "terminals_close", tag = "terminals",
    params(
        ("id" = String, Path),
        ("sid" = String, Path)
    ),
    responses(
        (status = 204, description = "The terminal was closed.")
    )
)]
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
