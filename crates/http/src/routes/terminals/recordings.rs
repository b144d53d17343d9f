//! Recordings of terminals: start, stop, list, download, delete.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{error::ApiError, input::PathIds, time::rfc3339},
};
use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use isolet_sandbox::recordings::Recording;
use serde::Serialize;
use utoipa::ToSchema;

/// A recording.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordingView {
    /// Its id.
    id: String,
    /// Whose terminal.
    #[schema(value_type = String)]
    session: String,
    /// Which run of it.
    terminal: String,
    /// Its first event's time.
    started_at: String,
    /// `null` while it grows.
    ended_at: Option<String>,
    /// In bytes.
    size: u64,
    /// It lacks its end: it was too long, the server's disk was full, or the server was killed.
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

/// Records what a session's terminal shows, from its screen now on, as asciicast version 2.
///
/// Until it ends, or 64 MiB. One at a time: where one grows it is answered, with 200.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/terminals/{sid}/recording", tag = "terminals",
    params(("id" = String, Path), ("sid" = String, Path)),
    responses((status = 201, body = RecordingView), (status = 200, body = RecordingView), (status = "4XX", body = ApiError)))]
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

/// Ends the recording of a session's terminal; 404 where none grows.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/terminals/{sid}/recording", tag = "terminals",
    params(("id" = String, Path), ("sid" = String, Path)),
    responses((status = 204), (status = "4XX", body = ApiError)))]
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

/// Recordings of a sandbox, the oldest first.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/recordings", tag = "terminals",
    params(("id" = String, Path)),
    responses((status = 200, body = Vec<RecordingView>), (status = "4XX", body = ApiError)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Vec<RecordingView>>, ApiError> {
    let all = app.look(&caller, &ids).await?.recordings().await?;
    Ok(Json(all.into_iter().map(RecordingView::from).collect()))
}

/// A recording, for any player of asciicasts; also while it grows, as far as it is.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/recordings/{recording}", tag = "terminals",
    params(("id" = String, Path), ("recording" = String, Path)),
    responses((status = 200, content_type = "application/x-asciicast", body = Vec<u8>), (status = "4XX", body = ApiError)))]
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

/// Removes a recording; one that grows ends before.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/recordings/{recording}", tag = "terminals",
    params(("id" = String, Path), ("recording" = String, Path)),
    responses((status = 204), (status = "4XX", body = ApiError)))]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    Path((_, recording)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    app.look(&caller, &ids).await?.recording_delete(&recording).await?;
    Ok(StatusCode::NO_CONTENT)
}
