//! Exports the audit log as lines of JSON: all of the caller's entries, or those of one sandbox.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::input;
use crate::foundation::query::Query;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use isolet_sandbox::SandboxId;
use isolet_sandbox::audit::{AuditError, Export};

/// Export the audit log
///
/// Returns one JSON object per line, oldest first. Each entry has `seq`, `ts`, `sandbox_id` (or
/// `null`), `event`, `data` (who sent which call from where, and its status), `last` (the `seq` of
/// the previous entry of the same sandbox), `prev` (the `hmac` of the previous entry) and `hmac`.
/// When a tenant's log would exceed 32 MiB, the server drops its oldest entries.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "audit_export", tag = "audit",
    params(
        ("sandbox" = Option<String>, Query, description = "Return only the entries of this sandbox. Works for deleted sandboxes too.")
    ),
    responses(
        (status = 200, description = "The entries as newline-delimited JSON.", content_type = "application/x-ndjson", body = String)
    )
)]
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
    let hint = "see the server's log";
    let message = "the audit log cannot be read";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "audit", message, hint)
}

fn answer(first: Option<Vec<u8>>, export: Export) -> Response {
    let body = stream::unfold((first, export), |(first, mut export)| async move {
        let piece = match first {
            Some(first) => Ok(first),
            None => export.next().await.transpose()?,
        };
        let failed =
            |error: &AuditError| tracing::error!(%error, "an export of the audit log failed");
        Some((piece.inspect_err(failed).map(Bytes::from), (None, export)))
    });
    let mut response = Body::from_stream(body).into_response();
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
