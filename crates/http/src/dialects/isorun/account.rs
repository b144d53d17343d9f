//! What an account has done and used: the audit log of a run.

use crate::{auth::Caller, error::Failure, input::Ids, routes::audit, server::App};
use axum::{extract::State, response::Response};

/// What was done to a run, also to one that has ended: one entry a line.
#[utoipa::path(get, path = "/v1/runs/{id}/audit", tag = "isorun", params(("id" = String, Path)),
    responses((status = 200, content_type = "application/x-ndjson", body = String), (status = 404, body = Failure)))]
pub(crate) async fn audit(
    State(app): State<App>,
    caller: Caller,
    ids: Ids,
) -> Result<Response, Failure> {
    audit::of_one(&app, &caller, &ids.sandbox).await
}
