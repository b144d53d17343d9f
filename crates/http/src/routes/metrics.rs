//! The metrics of the server, in OpenMetrics.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::limits::kind::ConnectionKind;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use isolet_metrics::CONTENT_TYPE;
use isolet_sandbox::TenantId;

/// Read the metrics of the server
///
/// Returns all metrics in OpenMetrics, for Prometheus. They contain the totals of every tenant, so
/// only keys of the tenant `default` may read them; other keys get 403 `not_yours`. A read-only key
/// is enough.
#[utoipa::path(
    get, path = "/metrics", operation_id = "server_metrics", tag = "server",
    responses(
        (status = 200, description = "The metrics.", content_type = "application/openmetrics-text", body = String)
    )
)]
pub(crate) async fn read(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    if caller.tenant != TenantId::default_tenant() {
        let message = "the metrics contain the totals of every tenant";
        let hint = "use a key of the tenant `default`; a read-only one is enough";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "not_yours", message, hint));
    }
    answer(&app)
}

/// The answer to everyone who may read the metrics.
pub(crate) fn answer(app: &App) -> Result<Response, ApiError> {
    let metrics = app.service.metrics();
    app.service.sample_metrics();
    app.webhooks.sample_metrics();
    let count = i64::try_from(app.connections.count()).unwrap_or(i64::MAX);
    metrics.requests.connections.set(count);
    for (kind, count) in ConnectionKind::ALL.into_iter().zip(app.limiter.in_progress()) {
        metrics.requests.set_in_progress(kind.setting(), count);
    }
    let text = metrics.text().map_err(|error| {
        tracing::error!(%error, "the metrics cannot be encoded");
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        ApiError::new(status, "internal_error", "internal fault", "see the server's log")
    })?;
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    Ok(response)
}
