//! Recordings of terminals: start, stop, list, download, delete.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::binary::Binary;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use isolet_clock::rfc3339;
use isolet_sandbox::recordings::Recording;
use serde::Serialize;
use utoipa::ToSchema;

/// A recording of a terminal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Recording)]
pub(crate) struct RecordingView {
    /// The id of the recording.
    id: String,
    /// The session of the terminal.
    #[schema(value_type = String)]
    session: String,
    /// The id of the terminal.
    terminal: String,
    /// When it was started, as in RFC 3339.
    started_at: String,
    /// When it ended, as in RFC 3339. `null` while it is in progress.
    #[schema(required = true)]
    ended_at: Option<String>,
    /// Its size, in bytes.
    size: u64,
    /// Whether its end is missing: it became too large, the disk was full, or the server was
    /// killed.
    cut: bool,
}

impl From<Recording> for RecordingView {
    fn from(recording: Recording) -> Self {
        Self {
            id: recording.id,
            session: recording.session.into(),
            terminal: recording.terminal,
            started_at: rfc3339(recording.started_at_ms),
            ended_at: recording.ended_at_ms.map(rfc3339),
            size: recording.size,
            cut: recording.cut,
        }
    }
}

/// Start recording a terminal
///
/// Records from the current screen on, in the asciicast format version 2, until the terminal ends
/// or the recording reaches 64 MiB. A terminal has one recording at a time: if one is in progress,
/// the call returns that one with status 200.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/terminals/{sid}/recording", operation_id = "recordings_start", tag = "terminals",
    params(
        ("id" = String, Path),
        ("sid" = String, Path)
    ),
    responses(
        (status = 201, description = "A recording was started.", body = RecordingView),
        (status = 200, description = "A recording was already in progress.", body = RecordingView)
    )
)]
pub(crate) async fn begin(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<(StatusCode, Json<RecordingView>), ApiError> {
    let sandbox = app.look(&caller, &ids).await?;
    let (recording, new) = sandbox.terminal_record(ids.session()?).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(recording.into())))
}

/// Stop recording a terminal
///
/// Answers 404 `no_recording` if the terminal is not being recorded.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/terminals/{sid}/recording", operation_id = "recordings_stop", tag = "terminals",
    params(
        ("id" = String, Path),
        ("sid" = String, Path)
    ),
    responses(
        (status = 204, description = "The recording was stopped.")
    )
)]
pub(crate) async fn stop(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<StatusCode, ApiError> {
    let session = ids.session()?;
    if app.look(&caller, &ids).await?.terminal_record_stop(session).await {
        return Ok(StatusCode::NO_CONTENT);
    }
    let message = format!("the terminal of session {session} is not being recorded");
    let hint = "list its recordings with GET …/recordings";
    Err(ApiError::new(StatusCode::NOT_FOUND, "no_recording", message, hint))
}

/// List recordings
///
/// Returns the recordings of a sandbox, oldest first.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/recordings", operation_id = "recordings_list", tag = "terminals",
    params(
        ("id" = String, Path)
    ),
    responses(
        (status = 200, description = "The recordings.", body = Vec<RecordingView>)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Vec<RecordingView>>, ApiError> {
    let all = app.look(&caller, &ids).await?.recordings().await?;
    Ok(Json(all.into_iter().map(RecordingView::from).collect()))
}

/// Download a recording
///
/// Any asciicast player can play it. A recording in progress is returned as far as it goes.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/recordings/{recording}", operation_id = "recordings_get", tag = "terminals",
    params(
        ("id" = String, Path),
        ("recording" = String, Path)
    ),
    responses(
        (status = 200, description = "The recording in the asciicast format version 2.", content_type = "application/x-asciicast", body = inline(Binary))
    )
)]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Path((_, recording)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let playing = app.look(&caller, &ids).await?.recording(&recording).await?;
    let name = format!("attachment; filename=\"{}.cast\"", playing.about.id);
    let size = playing.about.size;
    let bytes = stream::try_unfold(playing, |mut playing| async move {
        // An error truncates the body; the client notices by the length.
        Ok::<_, isolet_sandbox::Error>(playing.next().await?.map(|bytes| (bytes, playing)))
    });
    let mut response = Body::from_stream(bytes).into_response();
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/x-asciicast");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CONTENT_LENGTH, size.into());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(name) = HeaderValue::try_from(name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// Delete a recording
///
/// A recording in progress is stopped first.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/recordings/{recording}", operation_id = "recordings_delete", tag = "terminals",
    params(
        ("id" = String, Path),
        ("recording" = String, Path)
    ),
    responses(
        (status = 204, description = "The recording was deleted.")
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Path((_, recording)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    app.look(&caller, &ids).await?.recording_delete(&recording).await?;
    Ok(StatusCode::NO_CONTENT)
}
