//! Requests for a sandbox that only the object store has, and that need not restore it.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::fleet::Fleet;
use crate::forwarding::errors;
use crate::foundation::error::ApiError;
use crate::foundation::query::Query;
use crate::routes::sandboxes::view::SandboxView;
use axum::Json;
use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use isolet_sandbox::SandboxId;
use isolet_sandbox::audit::AuditEntry;

/// The route of one sandbox.
const ONE: &str = "/v1/sandboxes/{id}";
/// The route that moves a sandbox.
const MOVE: &str = "/v1/sandboxes/{id}/move";

/// What became of such a request.
pub(crate) enum StoredAnswer {
    Answered(Response),
    /// It needs the sandbox.
    Restore(Request, Next),
}

/// Whether a request may be answered without restoring the sandbox.
pub(crate) fn answers(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    match route {
        Some(ONE) => [Method::GET, Method::DELETE].contains(request.method()),
        Some(MOVE) => *request.method() == Method::POST,
        _ => false,
    }
}

/// Answers a request that [`answers`] has accepted.
///
/// # Errors
/// 503 `fleet_unavailable`, `owner_moved`.
pub(crate) async fn answer(
    (app, fleet, caller): (&App, &dyn Fleet, &Caller),
    id: &SandboxId,
    request: Request,
    next: Next,
) -> Result<StoredAnswer, ApiError> {
    if *request.method() == Method::POST {
        return Ok(StoredAnswer::Answered(next.run(request).await));
    }
    let Some(away) = fleet.stored(&caller.tenant, id).await? else {
        return Err(errors::owner_moved(id));
    };
    if *request.method() == Method::GET {
        let view = SandboxView::from(away.info).in_store(away.region);
        return Ok(StoredAnswer::Answered(Json(view).into_response()));
    }
    let force = Query::of(request.uri(), &["force"])?.flag("force")?;
    if away.info.snapshots.on_destroy && !force {
        return Ok(StoredAnswer::Restore(request, next));
    }
    if !fleet.delete_stored(&caller.tenant, id, away.epoch).await? {
        return Err(errors::owner_moved(id));
    }
    let key = caller.key.as_deref().unwrap_or("ISOLET_API_KEY");
    let entry = AuditEntry::now(caller.tenant.as_str(), Some(id.as_str()), "sandbox.destroy");
    app.service.audit().put(entry.with("key", key));
    let view = SandboxView::from(away.info).in_store(away.region).destroyed();
    Ok(StoredAnswer::Answered(Json(view).into_response()))
}
