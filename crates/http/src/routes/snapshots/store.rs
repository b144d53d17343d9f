//! Copies of snapshots in the object store: push, pull, list, delete.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::cancellation::Cancellation;
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::accepts_event_stream;
use crate::foundation::json::{SmallJson, not_null};
use crate::routes::snapshots::parse_id;
use crate::routes::snapshots::view::{StoredSnapshotListView, StoredSnapshotView, TransferView};
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::repository::Progress;
use isolet_sandbox::{Error, SnapshotId, Transfer, TransferEnd};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::sleep;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The shortest interval of progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The routes of the store.
pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(push))
        .routes(routes!(pull))
        .routes(routes!(list))
        .routes(routes!(get, delete))
}

/// How a snapshot is pulled. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PullSnapshot {
    /// The name of the snapshot on this server, instead of the one it was pushed with.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<String>, nullable = false)]
    name: Option<String>,
}

/// Push a snapshot to the store
///
/// Copies a snapshot to the object store of the operator, in encrypted chunks. Sends only chunks
/// that no earlier push of the tenant has sent. With `Accept: text/event-stream`, the server reports
/// the progress as events: `progress` with `{phase, done, total, transferred}`, then `done` with the
/// result, or `error`. A push continues when its client disconnects. A second push of the same
/// snapshot waits for the first one, and a push after a failure continues it.
#[utoipa::path(
    post, path = "/v1/snapshots/{snapshot}/push", operation_id = "snapshots_push", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id or the name of the snapshot.")
    ),
    responses(
        (status = 200, description = "The snapshot is in the store. With `Accept: text/event-stream` a stream of progress events.", content((TransferView = "application/json"), (String = "text/event-stream"))),
        (status = 501, description = "The operator has configured no store.", body = ApiError)
    )
)]
pub(crate) async fn push(
    State(app): State<App>,
    caller: Caller,
    Path(snapshot): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let transfer = app.service.push_snapshot(&caller.tenant, &parse_id(&snapshot)?)?;
    respond(transfer, &headers, app.cancellations.subscribe(&caller)).await
}

/// Pull a snapshot from the store
///
/// Copies a snapshot from the object store to this server, where it has the same id. Another server
/// may have pushed it. The image of the snapshot must be on this server. Progress is reported as for
/// a push. A snapshot that this server has already is not pulled again.
#[utoipa::path(
    post, path = "/v1/store/snapshots/{snapshot}/pull", operation_id = "store_snapshots_pull", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id of the snapshot.")
    ),
    request_body(content = PullSnapshot, example = json!({})),
    responses(
        (status = 200, description = "The snapshot is on this server. With `Accept: text/event-stream` a stream of progress events.", content((TransferView = "application/json"), (String = "text/event-stream"))),
        (status = 501, description = "The operator has configured no store.", body = ApiError)
    )
)]
pub(crate) async fn pull(
    State(app): State<App>,
    caller: Caller,
    Path(snapshot): Path<String>,
    headers: HeaderMap,
    body: SmallJson<PullSnapshot>,
) -> Result<Response, ApiError> {
    let name = body.value.name.as_deref().map(SnapshotId::parse).transpose();
    let name = name.map_err(|error| ApiError::bad_field("name", &error.to_string()))?;
    let transfer = app.service.pull_snapshot(&caller.tenant, &parse_id(&snapshot)?, name)?;
    respond(transfer, &headers, app.cancellations.subscribe(&caller)).await
}

/// List the snapshots in the store
///
/// Returns the caller's snapshots in the object store, sorted by id, also those that other servers
/// have pushed.
#[utoipa::path(
    get, path = "/v1/store/snapshots", operation_id = "store_snapshots_list", tag = "snapshots",
    responses(
        (status = 200, description = "The snapshots.", body = StoredSnapshotListView),
        (status = 501, description = "The operator has configured no store.", body = ApiError)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<StoredSnapshotListView>, ApiError> {
    let all = app.service.stored_snapshots(&caller.tenant).await?;
    let snapshots = all.into_iter().map(StoredSnapshotView::from).collect();
    Ok(Json(StoredSnapshotListView { snapshots }))
}

/// Get a snapshot in the store
#[utoipa::path(
    get, path = "/v1/store/snapshots/{snapshot}", operation_id = "store_snapshots_get", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id of the snapshot.")
    ),
    responses(
        (status = 200, description = "The snapshot.", body = StoredSnapshotView),
        (status = 501, description = "The operator has configured no store.", body = ApiError)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(snapshot): Path<String>,
) -> Result<Json<StoredSnapshotView>, ApiError> {
    let stored = app.service.stored_snapshot(&caller.tenant, &parse_id(&snapshot)?).await?;
    Ok(Json(stored.into()))
}

/// Delete a snapshot from the store
///
/// Snapshots on servers stay. The space is freed when the operator runs `isolet store prune`.
#[utoipa::path(
    delete, path = "/v1/store/snapshots/{snapshot}", operation_id = "store_snapshots_delete", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id of the snapshot.")
    ),
    responses(
        (status = 204, description = "The snapshot was deleted."),
        (status = 501, description = "The operator has configured no store.", body = ApiError)
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(snapshot): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.service.delete_stored_snapshot(&caller.tenant, &parse_id(&snapshot)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers at the end of a transfer, or with a stream of its progress.
async fn respond(
    mut transfer: Transfer,
    headers: &HeaderMap,
    cancellation: Cancellation,
) -> Result<Response, ApiError> {
    if accepts_event_stream(headers).is_some() {
        let events = TransferEvents { transfer, is_first: true };
        let stream = EventStream::new(Some(events), EventBuffer::default(), cancellation);
        return Ok(stream.into_response());
    }
    Ok(Json(TransferView::from(transfer.ended().await?)).into_response())
}

/// The progress of a push or a pull.
struct TransferEvents {
    transfer: Transfer,
    is_first: bool,
}

/// What is reported next.
struct TransferNews {
    progress: Progress,
    end: Option<Result<TransferEnd, Error>>,
}

impl EventSource for TransferEvents {
    type Item = TransferNews;

    async fn next(&mut self) -> Result<TransferNews, ApiError> {
        if !std::mem::take(&mut self.is_first) {
            let Transfer { progress, end } = &mut self.transfer;
            tokio::select! {
                // The end: closed when the task failed, which the next call reports.
                _ = end.wait_for(Option::is_some) => {}
                () = async {
                    sleep(PROGRESS_INTERVAL).await;
                    if progress.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                } => {}
            }
        }
        let is_lost = self.transfer.end.has_changed().is_err();
        let end = self.transfer.end.borrow().clone();
        if end.is_none() && is_lost {
            return Err(Error::Fault("the task of the transfer failed".into()).into());
        }
        Ok(TransferNews { progress: *self.transfer.progress.borrow_and_update(), end })
    }

    fn write(&mut self, news: TransferNews, out: &mut EventBuffer) -> ControlFlow<()> {
        out.event(None, "progress", &TransferProgress::from(news.progress));
        match news.end {
            None => return ControlFlow::Continue(()),
            Some(Ok(end)) => out.event(None, "done", &TransferView::from(end)),
            Some(Err(error)) => self.write_error(&error.into(), out),
        }
        ControlFlow::Break(())
    }
}

/// The data of `progress`. Sizes are in bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TransferProgress {
    /// What the server is doing: `preparing`, `transferring` or `finishing`.
    phase: &'static str,
    /// Data of files that was read or written.
    done: u64,
    /// All data of the files.
    total: u64,
    /// What was sent to the store, or received from it.
    transferred: u64,
}

impl From<Progress> for TransferProgress {
    fn from(now: Progress) -> Self {
        Self {
            phase: now.phase.word(),
            done: now.done,
            total: now.total,
            transferred: now.transferred,
        }
    }
}
