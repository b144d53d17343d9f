//! The audit log, as lines of JSON: the caller's whole log, or what was done to one sandbox.

use crate::{auth::Caller, error::Failure, input, query::Query, server::App};
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, Uri, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use isolet_sandbox::{SandboxId, audit::AuditError};
use tokio::sync::mpsc;

type Piece = Result<Vec<u8>, AuditError>;
type Pieces = mpsc::Receiver<Piece>;

/// Reads the audit log.
///
/// One entry a line, oldest first: `seq`, `ts`, `sandbox_id` (or `null`), `event`, `data` (who, from
/// where, which call, its status), `last` (the `seq` of the sandbox's entry before), `prev` (the
/// `hmac` of the entry before) and `hmac`. The oldest entries go where the log would grow over 32 MiB.
#[utoipa::path(get, path = "/v1/audit", tag = "audit",
    params(("sandbox" = Option<String>, Query, description = "What was done to this sandbox alone, also when it is gone.")),
    responses((status = 200, content_type = "application/x-ndjson", body = String), (status = "4XX", body = Failure)))]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::of(&uri, &["sandbox"])?;
    let sandbox = query.text("sandbox")?.map(SandboxId::parse).transpose();
    let sandbox = sandbox.map_err(input::bad_id)?;
    let mut pieces = open(&app, &caller, sandbox.as_ref()).await;
    let first = pieces.recv().await;
    Ok(answer(first, pieces))
}

/// What was done to one sandbox; 404 where there was never one, or its entries are no longer held.
pub(crate) async fn of_one(
    app: &App,
    caller: &Caller,
    sandbox: &SandboxId,
) -> Result<Response, Failure> {
    let mut pieces = open(app, caller, Some(sandbox)).await;
    let first = pieces.recv().await;
    if first.is_none() {
        app.service.get(&caller.tenant, sandbox).await?;
    }
    Ok(answer(first, pieces))
}

async fn open(app: &App, caller: &Caller, sandbox: Option<&SandboxId>) -> Pieces {
    let sandbox = sandbox.map(SandboxId::as_str);
    app.service.audit().read(caller.tenant.as_str(), sandbox).await
}

fn answer(first: Option<Piece>, pieces: Pieces) -> Response {
    let body = stream::unfold((first, pieces), |(first, mut pieces)| async move {
        let piece = match first {
            Some(first) => first,
            None => pieces.recv().await?,
        };
        let piece =
            piece.inspect_err(|error| tracing::error!(%error, "the audit log cannot be read"));
        Some((piece.map(Bytes::from), (None, pieces)))
    });
    let mut response = Body::from_stream(body).into_response();
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
