//! Exports the audit log as lines of JSON: all of the caller's entries, or those of one sandbox.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{error::ApiError, input, query::Query},
};
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use isolet_sandbox::{
    SandboxId,
    audit::{AuditError, Export},
};

/// Reads the audit log.
///
/// One entry a line, oldest first: `seq`, `ts`, `sandbox_id` (or `null`), `event`, `data` (who, from
/// where, which call, its status), `last` (the `seq` of the sandbox's entry before), `prev` (the
/// `hmac` of the entry before) and `hmac`. The oldest entries go where the log would grow over 32 MiB.
#[utoipa::path(get, path = "/v1/audit", tag = "audit",
    params(("sandbox" = Option<String>, Query, description = "What was done to this sandbox alone, also when it is gone.")),
    responses((status = 200, content_type = "application/x-ndjson", body = String), (status = "4XX", body = ApiError)))]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = Query::of(&uri, &["sandbox"])?;
    let sandbox = query.text("sandbox")?.map(SandboxId::parse).transpose();
    let sandbox = sandbox.map_err(input::bad_id)?;
    let mut export = open(&app, &caller, sandbox.as_ref()).await?;
    let first = export.next().await.map_err(unread)?;
    Ok(answer(first, export))
}

/// The entries of one sandbox; 404 when it never existed or its entries are no longer stored.
pub(crate) async fn of_one(
    app: &App,
    caller: &Caller,
    sandbox: &SandboxId,
) -> Result<Response, ApiError> {
    let mut export = open(app, caller, Some(sandbox)).await?;
    let first = export.next().await.map_err(unread)?;
    if first.is_none() {
        app.service.get(&caller.tenant, sandbox).await?;
    }
    Ok(answer(first, export))
}

async fn open(app: &App, caller: &Caller, sandbox: Option<&SandboxId>) -> Result<Export, ApiError> {
    let sandbox = sandbox.map(SandboxId::as_str);
    app.service.audit().read(caller.tenant.as_str(), sandbox).await.map_err(unread)
}

fn unread(error: AuditError) -> ApiError {
    tracing::error!(%error, "the audit log cannot be read");
    let hint = "look at the server's log";
    let what = "the audit log cannot be read";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "audit", what, hint)
}

fn answer(first: Option<Vec<u8>>, export: Export) -> Response {
    let body = stream::unfold((first, export), |(first, mut export)| async move {
        let piece = match first {
            Some(first) => Ok(first),
            None => export.next().await.transpose()?,
        };
        let failed =
            |error: &AuditError| tracing::error!(%error, "an export of the audit log ends");
        Some((piece.inspect_err(failed).map(Bytes::from), (None, export)))
    });
    let mut response = Body::from_stream(body).into_response();
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
