//! Snapshots and forks of sandboxes.

pub(crate) mod diff;
pub(crate) mod store;
pub(crate) mod view;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::creation::{created, done, idempotency_key};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::JustRestored;
use crate::foundation::input::{PathIds, bad_id};
use crate::foundation::json::{Object, SmallJson, not_null};
use crate::foundation::query::Query;
use crate::routes::sandboxes;
use crate::routes::snapshots::view::{ForksView, RestoredView, SnapshotListView, SnapshotView};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use axum::{Extension, Json};
use isolet_sandbox::{Metadata, SandboxId, SnapshotId, SnapshotSpec};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Every route of snapshots.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(list))
        .routes(routes!(get, delete))
        .routes(routes!(diff::diff))
        .merge(crate::routes::files::snapshot::router())
        .routes(routes!(fork))
        .routes(routes!(restore))
        .merge(store::router())
}

/// The settings of a new snapshot. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateSnapshot {
    /// A name that can stand for the id: `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`, unique among the
    /// caller's snapshots.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<String>, nullable = false)]
    name: Option<String>,
    /// Data of the client, returned unchanged. At most 16 KiB.
    #[schema(value_type = Object)]
    metadata: Object,
    /// The lifetime in seconds, after which the server deletes the snapshot. 0 means no limit.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
}

/// The number of copies.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Fork {
    /// How many sandboxes to create: 1 to 100.
    #[schema(minimum = 1, maximum = 100)]
    count: usize,
}

impl Fork {
    /// How many sandboxes to create.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Default for Fork {
    fn default() -> Self {
        Self { count: 1 }
    }
}

/// The snapshot to restore.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Restore {
    /// The id or the name of the snapshot.
    snapshot: String,
}

/// Parses a snapshot's id or name.
pub(crate) fn parse_id(text: &str) -> Result<SnapshotId, ApiError> {
    SnapshotId::parse(text).map_err(bad_id)
}

/// Take a snapshot
///
/// Copies the files of a running, paused or sleeping sandbox and the state of its shells at one moment.
/// While the files are copied, its processes are frozen, for `frozen_ms`. A snapshot does not contain
/// processes, terminals, code contexts and credentials; `lost` lists what was open.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/snapshots", operation_id = "snapshots_create", tag = "snapshots",
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = CreateSnapshot, example = json!({"name": "installed", "ttl_s": 86400})),
    responses(
        (status = 201, description = "The snapshot is complete.", body = SnapshotView, headers(("Location" = String, description = "The URL path of the new resource."), ("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created the resource.")))
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: SmallJson<CreateSnapshot>,
) -> Result<Response, ApiError> {
    let route = format!("POST /v1/sandboxes/{}/snapshots", ids.sandbox);
    let once = idempotency_key(&headers, &route, &body.raw)?;
    let CreateSnapshot { name, metadata, ttl_s } = body.value;
    let spec = SnapshotSpec {
        name: name
            .as_deref()
            .map(SnapshotId::parse)
            .transpose()
            .map_err(|error| ApiError::bad_field("name", &error.to_string()))?,
        metadata: Metadata::parse(metadata.0)?,
        ttl_s,
    };
    let (info, replayed) =
        app.service.create_snapshot(&caller.tenant, &ids.sandbox, spec, once).await?;
    let location = format!("/v1/snapshots/{}", info.id);
    Ok(created(&location, replayed, Json(SnapshotView::from(info))))
}

/// List snapshots
///
/// Returns the caller's snapshots, sorted by id: all of them, or those of one sandbox.
#[utoipa::path(
    get, path = "/v1/snapshots", operation_id = "snapshots_list", tag = "snapshots",
    params(
        ("sandbox" = Option<String>, Query, description = "The id that the sandbox had.")
    ),
    responses(
        (status = 200, description = "The snapshots.", body = SnapshotListView)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<SnapshotListView>, ApiError> {
    let query = Query::of(&uri, &["sandbox"])?;
    let sandbox = query.text("sandbox")?.map(SandboxId::parse);
    let sandbox = sandbox.transpose().map_err(bad_id)?;
    let all = app.service.snapshots(&caller.tenant).into_iter();
    let wanted = all.filter(|one| sandbox.as_ref().is_none_or(|id| one.sandbox == *id));
    let snapshots = wanted.map(SnapshotView::from).collect();
    Ok(Json(SnapshotListView { snapshots, unreachable_nodes: None }))
}

/// Get a snapshot
#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}", operation_id = "snapshots_get", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id or the name of the snapshot.")
    ),
    responses(
        (status = 200, description = "The snapshot.", body = SnapshotView)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(snapshot): Path<String>,
) -> Result<Json<SnapshotView>, ApiError> {
    let info = app.service.snapshot(&caller.tenant, &parse_id(&snapshot)?)?;
    Ok(Json(SnapshotView::from(info)))
}

/// Delete a snapshot
///
/// Sandboxes that were created from it keep their files. Refused with 409 `snapshot_in_use` while
/// sandboxes are being created from it.
#[utoipa::path(
    delete, path = "/v1/snapshots/{snapshot}", operation_id = "snapshots_delete", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id or the name of the snapshot.")
    ),
    responses(
        (status = 200, description = "The deleted snapshot.", body = SnapshotView)
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(snapshot): Path<String>,
) -> Result<Json<SnapshotView>, ApiError> {
    let info = app.service.delete_snapshot(&caller.tenant, &parse_id(&snapshot)?).await?;
    Ok(Json(SnapshotView::from(info)))
}

/// Fork a sandbox
///
/// Creates copies of a sandbox with new ids: its files, sessions, shell state, settings and
/// credentials at one moment, without its processes, terminals and code contexts. Creates all of them
/// or none, also if the server is killed in between.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/fork", operation_id = "sandboxes_fork", tag = "snapshots",
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = Fork, example = json!({"count": 3})),
    responses(
        (status = 201, description = "The new sandboxes, sorted by id.", body = ForksView, headers(("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` created them.")))
    )
)]
pub(crate) async fn fork(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    body: SmallJson<Fork>,
) -> Result<Response, ApiError> {
    let route = format!("POST /v1/sandboxes/{}/fork", ids.sandbox);
    let once = idempotency_key(&headers, &route, &body.raw)?;
    let count = body.value.count();
    let (forks, replayed) = app.service.fork(&caller.tenant, &ids.sandbox, count, once).await?;
    let forks = forks.into_iter().map(|fork| sandboxes::view(&app, &caller, fork)).collect();
    Ok(done(replayed, (StatusCode::CREATED, Json(ForksView { forks }))))
}

/// Restore a snapshot in place
///
/// Replaces the files, sessions, shell state, image and environment of a running, paused or sleeping
/// sandbox by those of a snapshot, which may be one of another sandbox. The id, links, network,
/// credentials, limits, metadata and times of the sandbox stay. What runs in it is ended: `lost`
/// lists it. A sandbox that ran is running afterwards, others are asleep. If the restore fails, the
/// sandbox is as it was before.
///
/// A sandbox that a fleet cannot restore from its newest snapshot (503 `not_restored`) is restored from
/// `snapshot` instead, if that is the id of one of its other snapshots in the object store. The newer ones stay
/// in the store; `restored_from` names them.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/restore", operation_id = "sandboxes_restore", tag = "snapshots",
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header)
    ),
    request_body(content = Restore, example = json!({"snapshot": "installed"})),
    responses(
        (status = 200, description = "The sandbox, and what is lost.", body = RestoredView, headers(("Idempotency-Replayed" = String, description = "`true` when an earlier request with the same `Idempotency-Key` restored the snapshot.")))
    )
)]
pub(crate) async fn restore(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
    restored: Option<Extension<JustRestored>>,
    body: SmallJson<Restore>,
) -> Result<Response, ApiError> {
    let route = format!("POST /v1/sandboxes/{}/restore", ids.sandbox);
    let once = idempotency_key(&headers, &route, &body.raw)?;
    let snapshot = SnapshotId::parse(&body.value.snapshot)
        .map_err(|error| ApiError::bad_field("snapshot", &error.to_string()))?;
    let service = &app.service;
    if let Some(Extension(JustRestored(restored))) = restored
        && restored.snapshot == snapshot
    {
        let sandbox = service.get(&caller.tenant, &ids.sandbox).await?;
        let lost = restored.lost.map(|lost| lost.items).unwrap_or_default();
        return Ok(done(false, Json(RestoredView::new(sandbox, &lost))));
    }
    let (restored, replayed) =
        service.restore_snapshot(&caller.tenant, &ids.sandbox, &snapshot, once).await?;
    Ok(done(replayed, Json(RestoredView::from(restored))))
}
