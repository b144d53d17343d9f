//! Builds of images from steps, and the files that they copy.

mod recipe;
pub(crate) mod view;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::binary::Binary;
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::accepts_event_stream;
use crate::foundation::json::{StrictJson, reject_content_encoding};
use crate::foundation::query::Query;
use crate::foundation::upload_body::UploadBody;
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use isolet_build::{BuildNames, BuildState, BuildWatch, FilesName, LogEntry, Upload};
use recipe::NewBuild;
use std::ops::ControlFlow;
use view::{BuildLogView, BuildView, FilesView, LogEntryView};

/// Maximum number of entries of a log in one answer.
const ENTRIES_MAX: usize = 1000;

/// Build an image
///
/// Runs the steps in a sandbox of the tenant, and makes an image of the result. The limits, quotas and
/// the network of sandboxes apply. The results of steps are cached as snapshots, and the next build
/// with the same beginning continues after them. Answers at once; with `Accept: text/event-stream`, the
/// server reports the log as events `log`, then `done` with the build, or `error`. The build continues
/// when its client disconnects.
#[utoipa::path(
    post, path = "/v1/images/builds", operation_id = "builds_create", tag = "images",
    request_body(content = NewBuild, example = json!({"names": ["tools:1"], "from": "debian:12", "steps": [{"type": "run", "command": "apt-get update"}]})),
    responses(
        (status = 202, description = "The build has started.", body = BuildView, headers(("Location" = String, description = "The URL path of the new resource."))),
        (status = 200, description = "With `Accept: text/event-stream`, a stream of events.", content((String = "text/event-stream")))
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: StrictJson<NewBuild>,
) -> Result<Response, ApiError> {
    let (names, recipe) = body.value.into_recipe()?;
    // Before it is recorded, so that a request which is refused leaves nothing.
    app.builder.check(&caller.tenant, &recipe).await?;
    let build = app.builder.request(&caller.tenant, BuildNames::parse(names)?).await?;
    if let Err(error) = app.builder.start(&caller.tenant, &build.id, recipe).await {
        // Nothing waits for its steps.
        let _ = app.builder.cancel(&caller.tenant, &build.id).await;
        return Err(error.into());
    }
    if accepts_event_stream(&headers).is_some() {
        let watch = app.builder.follow(&caller.tenant, &build.id)?;
        let cancellation = app.cancellations.subscribe(&caller);
        let first = EventBuffer::default();
        return Ok(EventStream::new(Some(Events(watch)), first, cancellation).into_response());
    }
    let location = [(header::LOCATION, format!("/v1/images/builds/{}", build.id))];
    let view = BuildView::from(app.builder.get(&caller.tenant, &build.id)?);
    Ok((StatusCode::ACCEPTED, location, Json(view)).into_response())
}

/// The log of a build as events.
struct Events(BuildWatch);

impl EventSource for Events {
    type Item = Vec<LogEntry>;

    async fn next(&mut self) -> Result<Vec<LogEntry>, ApiError> {
        Ok(self.0.next().await)
    }

    fn write(&mut self, entries: Vec<LogEntry>, out: &mut EventBuffer) -> ControlFlow<()> {
        if !entries.is_empty() {
            for entry in entries {
                out.event(None, "log", &LogEntryView::from(entry));
            }
            return ControlFlow::Continue(());
        }
        let build = self.0.info();
        match &build.state {
            BuildState::Failed { reason, .. } => {
                let hint = "the log of the build says more";
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                let failure = ApiError::new(status, "build_failed", reason.as_str(), hint);
                self.write_error(&failure, out);
            }
            _ => out.event(None, "done", &BuildView::from(build)),
        }
        ControlFlow::Break(())
    }
}

/// List builds
///
/// Returns the builds of the tenant, the latest first. The server keeps the last 50 that have ended.
#[utoipa::path(
    get, path = "/v1/images/builds", operation_id = "builds_list", tag = "images",
    responses((status = 200, description = "The builds.", body = Vec<BuildView>))
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Json<Vec<BuildView>> {
    Json(app.builder.list(&caller.tenant).into_iter().map(BuildView::from).collect())
}

/// Get a build
#[utoipa::path(
    get, path = "/v1/images/builds/{build}", operation_id = "builds_get", tag = "images",
    params(("build" = String, Path, description = "The id of the build.")),
    responses((status = 200, description = "The build.", body = BuildView))
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(build): Path<String>,
) -> Result<Json<BuildView>, ApiError> {
    Ok(Json(app.builder.get(&caller.tenant, &build)?.into()))
}

/// Cancel a build
///
/// Answers when its sandbox is deleted. A build that has ended, or whose image is being made, stays as
/// it is.
#[utoipa::path(
    delete, path = "/v1/images/builds/{build}", operation_id = "builds_cancel", tag = "images",
    params(("build" = String, Path, description = "The id of the build.")),
    responses((status = 200, description = "The build.", body = BuildView))
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Path(build): Path<String>,
) -> Result<Json<BuildView>, ApiError> {
    Ok(Json(app.builder.cancel(&caller.tenant, &build).await?.into()))
}

/// Read the log of a build
#[utoipa::path(
    get, path = "/v1/images/builds/{build}/log", operation_id = "builds_log", tag = "images",
    params(
        ("build" = String, Path, description = "The id of the build."),
        ("offset" = Option<usize>, Query, description = "The number of entries to skip. Defaults to 0."),
        ("limit" = Option<usize>, Query, description = "The most entries to return, up to 1000.")
    ),
    responses((status = 200, description = "Entries of the log.", body = BuildLogView))
)]
pub(crate) async fn log(
    State(app): State<App>,
    caller: Caller,
    Path(build): Path<String>,
    uri: Uri,
) -> Result<Json<BuildLogView>, ApiError> {
    let query = Query::of(&uri, &["offset", "limit"])?;
    let number = |name: &'static str, default: usize| match query.text(name)? {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| ApiError::bad_field(name, "must be a whole number")),
    };
    let offset = number("offset", 0)?;
    let limit = number("limit", ENTRIES_MAX)?.min(ENTRIES_MAX);
    let entries = app.builder.log(&caller.tenant, &build, offset, limit).await?;
    let next_offset = offset + entries.len();
    let entries = entries.into_iter().map(LogEntryView::from).collect();
    Ok(Json(BuildLogView { entries, next_offset }))
}

fn files_name(text: &str) -> Result<FilesName, ApiError> {
    FilesName::parse(text).ok_or_else(|| ApiError::bad_field("files", "64 digits of 0-9a-f"))
}

/// Look for uploaded files
#[utoipa::path(
    get, path = "/v1/images/builds/files/{files}", operation_id = "build_files_get", tag = "images",
    params(("files" = String, Path, description = "The name of the files: 64 hexadecimal digits.")),
    responses((status = 200, description = "Whether the server has them.", body = FilesView))
)]
pub(crate) async fn look_for_files(
    State(app): State<App>,
    caller: Caller,
    Path(files): Path<String>,
) -> Result<Json<FilesView>, ApiError> {
    let found = app.builder.files(&caller.tenant, &files_name(&files)?).await?;
    Ok(Json(FilesView::from(found)))
}

/// Upload files for builds
///
/// The body is a tar archive, plain or compressed with gzip, of the files that steps copy. Its names
/// are relative. Only the tenant can use it. The server removes the oldest uploads when the tenant has
/// more than 500, or 8 GiB.
#[utoipa::path(
    put, path = "/v1/images/builds/files/{files}", operation_id = "build_files_put", tag = "images",
    params(("files" = String, Path, description = "The name of the files: 64 hexadecimal digits, such as the SHA-256 of the archive.")),
    request_body(content = inline(Binary), content_type = "application/x-tar"),
    responses((status = 200, description = "The server has the files.", body = FilesView))
)]
pub(crate) async fn put_files(
    State(app): State<App>,
    caller: Caller,
    Path(files): Path<String>,
    request: Request,
) -> Result<Json<FilesView>, ApiError> {
    let name = files_name(&files)?;
    reject_content_encoding(request.headers())?;
    let upload = app.builder.receive(&caller.tenant, name).await?;
    receive(&app, upload, request.into_body()).await.map(Json)
}

/// Receives the body of an upload.
pub(crate) async fn receive(
    app: &App,
    mut upload: Upload,
    body: Body,
) -> Result<FilesView, ApiError> {
    let mut body = UploadBody::new(body, app.service.pull_timeout());
    while let Some(bytes) = body.next().await? {
        upload.write(&bytes).await?;
    }
    Ok(FilesView::from(Some(upload.finish().await?)))
}
