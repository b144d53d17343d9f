//! Snapshots and forks.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::{Lenient, null_as_default};
use crate::dialects::e2b::error::E2bError;
use crate::dialects::e2b::sandboxes::create::lifetime;
use crate::dialects::e2b::sandboxes::view::SandboxAccess;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::query::Query;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use isolet_build::is_cached_step;
use isolet_sandbox::{Patch, SnapshotId, SnapshotInfo, SnapshotSpec};
use serde::{Deserialize, Serialize};

/// The default lifetime of a fork, in seconds.
const FORK_TIMEOUT_S: u64 = 300;

#[derive(Debug, Serialize)]
pub(crate) struct SnapshotView {
    #[serde(rename = "snapshotID")]
    id: String,
    names: Vec<String>,
}

impl From<SnapshotInfo> for SnapshotView {
    fn from(info: SnapshotInfo) -> Self {
        Self {
            id: info.id.to_string(),
            names: info.name.iter().map(SnapshotId::to_string).collect(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SnapshotBody {
    #[serde(deserialize_with = "null_as_default")]
    name: Option<String>,
}

/// Takes a snapshot: files and shells, not processes.
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<SnapshotBody>,
) -> Result<(StatusCode, Json<SnapshotView>), E2bError> {
    let name = value.name.map(|name| SnapshotId::parse(&name)).transpose();
    let name = name.map_err(|_| {
        ApiError::bad_field("name", "at most 128 letters, digits, dots, dashes and underscores")
    })?;
    let spec = SnapshotSpec { name, ..SnapshotSpec::default() };
    let (info, _) = app.service.create_snapshot(&caller.tenant, &ids.sandbox, spec, None).await?;
    Ok((StatusCode::CREATED, Json(info.into())))
}

/// Lists all snapshots in one page, the latest first.
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<Vec<SnapshotView>>, E2bError> {
    let query = Query::of(&uri, &["sandboxID", "name", "limit", "nextToken"])?;
    let sandbox = query.text("sandboxID")?;
    let name = query.text("name")?;
    let mut all = app.service.snapshots(&caller.tenant);
    all.retain(|info| {
        let named = |name: &str| {
            info.id.as_str() == name || info.name.as_ref().is_some_and(|own| own.as_str() == name)
        };
        !is_cached_step(info)
            && sandbox.is_none_or(|id| info.sandbox.as_str() == id)
            && name.is_none_or(named)
    });
    all.sort_by_key(|info| std::cmp::Reverse(info.created_at_ms));
    Ok(Json(all.into_iter().map(SnapshotView::from).collect()))
}

/// Deletes a snapshot, which is a template for E2B.
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(snapshot): Path<String>,
) -> Result<StatusCode, E2bError> {
    let snapshot = SnapshotId::parse(&snapshot);
    let snapshot = snapshot.map_err(|_| {
        let message = "there is no such template; only snapshots can be deleted here";
        ApiError::new(StatusCode::NOT_FOUND, "no_snapshot", message, "list the snapshots")
    })?;
    app.service.delete_snapshot(&caller.tenant, &snapshot).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ForkBody {
    #[serde(deserialize_with = "null_as_default")]
    timeout: Option<u64>,
    #[serde(deserialize_with = "null_as_default")]
    count: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ForkResult {
    sandbox: SandboxAccess,
}

/// Creates copies of a sandbox: files and shells, not processes.
pub(crate) async fn fork(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Lenient { value, .. }: Lenient<ForkBody>,
) -> Result<(StatusCode, Json<Vec<ForkResult>>), E2bError> {
    let ttl_s = Some(lifetime(value.timeout.unwrap_or(FORK_TIMEOUT_S))?);
    let tenant = &caller.tenant;
    let count = value.count.unwrap_or(1);
    let (forks, _) = app.service.fork(tenant, &ids.sandbox, count, None).await?;
    let mut all = Vec::with_capacity(forks.len());
    for info in forks {
        let patch = Patch { ttl_s, ..Patch::default() };
        let info = app.service.patch(tenant, &info.id, patch).await?;
        all.push(ForkResult { sandbox: SandboxAccess::grant(&app, &caller, &info).await? });
    }
    Ok((StatusCode::CREATED, Json(all)))
}
