//! Files of a session, in Pokee's format.

use crate::{
    app::App,
    auth::caller::Caller,
    dialects::pokee::{
        scope::For,
        sessions::{Record, SessionPath},
    },
    foundation::{error::ApiError, pagination::with_next_link, query::Query},
    routes::files::{
        fetch::{self, Fetched},
        listing,
        target::{CreateMode, FileTarget, checked, open_sandbox},
        upload,
    },
};
use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use isolet_sandbox::Sandbox;
use isolet_wire::{
    request::{Save, Walk},
    response::{Found, Kind},
};
use serde::Serialize;
use utoipa::ToSchema;

/// One name in a directory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    name: String,
    /// The same in base64, where it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_b64: Option<String>,
    /// `file` or `directory`; a link counts as a file.
    #[serde(rename = "type")]
    kind: &'static str,
    /// In bytes.
    size: u64,
    /// In seconds since 1970.
    modified: f64,
}

/// A file that was written.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Saved {
    /// As it was asked for, below the workspace.
    path: String,
    /// In bytes.
    size: u64,
    /// In seconds since 1970.
    modified: f64,
}

impl From<Found> for Entry {
    fn from(found: Found) -> Self {
        let name = found.path;
        let kind = if found.stat.kind == Kind::Directory { "directory" } else { "file" };
        Self {
            name_b64: std::str::from_utf8(&name).is_err().then(|| STANDARD.encode(&name)),
            name: String::from_utf8_lossy(&name).into_owned(),
            kind,
            size: found.stat.size,
            modified: seconds(found.stat.modified_ms),
        }
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// A path as a session sees it.
struct OpenedFile {
    sandbox: Sandbox,
    target: FileTarget,
    path: Vec<u8>,
}

/// Finds the session of a request and checks that its scope holds the path.
async fn open(
    app: &App,
    caller: &Caller,
    SessionPath(id): SessionPath,
    uri: Uri,
    path: Option<Vec<u8>>,
    what: For,
) -> Result<OpenedFile, ApiError> {
    let session = app.service.session_use(&caller.tenant, &id)?;
    let target = FileTarget::in_session(uri, session.sandbox_id.clone(), id.clone())?;
    let path = match path {
        Some(path) => path,
        None => target.path()?.to_vec(),
    };
    Record::from(session).file_access.admit(id.as_str(), &path, what)?;
    let sandbox = open_sandbox(app, caller, &target, CreateMode::Never).await?;
    Ok(OpenedFile { sandbox, target, path })
}

/// Reads a file or lists a directory.
async fn answer(
    opened: OpenedFile,
    method: &Method,
    headers: &HeaderMap,
    query: &Query<'_>,
    wish: Walk,
) -> Result<Response, ApiError> {
    // The workspace itself has an empty path.
    let OpenedFile { sandbox, target, path } = opened;
    let path = if path.is_empty() { b".".to_vec() } else { path };
    match fetch::get(&sandbox, &target, method, headers, &path, query, wish).await? {
        Fetched::Bytes(response) => Ok(response),
        Fetched::List(page, next) => Ok(with_next_link(
            next,
            Json(page.found.into_iter().map(Entry::from).collect::<Vec<_>>()),
        )),
    }
}

fn all(query: &Query<'_>) -> Result<Walk, ApiError> {
    Ok(Walk { hidden: true, ..listing::wish(query)? })
}

/// Reads a file (also in part, by `Range`), or lists a directory.
#[utoipa::path(get, path = "/v1/sessions/{sid}/files/{*path}", tag = "pokee",
    params(("sid" = String, Path), ("path" = String, Path, description = "Below the workspace; bytes, percent-encoded."),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query),
        ("Range" = Option<String>, Header), ("If-None-Match" = Option<String>, Header)),
    responses((status = 200, body = Vec<Entry>, description = "A directory's entries; of a file its bytes."),
        (status = 206, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 403, body = ApiError), (status = 404, body = ApiError), (status = 416, body = ApiError)))]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    named: SessionPath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = Query::of(&uri, &["limit", "cursor"])?;
    let wish = all(&query)?;
    let opened = open(&app, &caller, named, uri.clone(), None, For::Reading).await?;
    answer(opened, &method, &headers, &query, wish).await
}

/// Lists the workspace, or what `?path=` names below it.
#[utoipa::path(get, path = "/v1/sessions/{sid}/files", tag = "pokee",
    params(("sid" = String, Path), ("path" = Option<String>, Query),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Vec<Entry>), (status = 403, body = ApiError), (status = 404, body = ApiError)))]
pub(crate) async fn top(
    State(app): State<App>,
    caller: Caller,
    named: SessionPath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = Query::of(&uri, &["path", "limit", "cursor"])?;
    let wish = all(&query)?;
    let path = match query.bytes("path").unwrap_or_default() {
        b"" => Vec::new(),
        path => checked("?path", path)?,
    };
    let opened = open(&app, &caller, named, uri.clone(), Some(path), For::Reading).await?;
    answer(opened, &method, &headers, &query, wish).await
}

/// Writes a whole file; its parents are made.
#[utoipa::path(put, path = "/v1/sessions/{sid}/files/{*path}", tag = "pokee",
    params(("sid" = String, Path), ("path" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = Saved), (status = 403, body = ApiError), (status = 404, body = ApiError)))]
pub(crate) async fn write(
    State(app): State<App>,
    caller: Caller,
    named: SessionPath,
    request: Request,
) -> Result<Response, ApiError> {
    let uri = request.uri().clone();
    Query::of(&uri, &[])?;
    let OpenedFile { sandbox, path, .. } =
        open(&app, &caller, named, uri, None, For::Writing).await?;
    let (stat, _) = upload::save(&sandbox, &path, Save::default(), request).await?;
    let path = String::from_utf8_lossy(&path).into_owned();
    let saved = Saved { path, size: stat.size, modified: seconds(stat.modified_ms) };
    Ok((StatusCode::CREATED, Json(saved)).into_response())
}

/// Removes a file, a link or an empty directory; with `?recursive=1` a directory with all it holds.
#[utoipa::path(delete, path = "/v1/sessions/{sid}/files/{*path}", tag = "pokee",
    params(("sid" = String, Path), ("path" = String, Path), ("recursive" = Option<bool>, Query)),
    responses((status = 204), (status = 403, body = ApiError), (status = 404, body = ApiError), (status = 409, body = ApiError)))]
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    named: SessionPath,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    let recursive = Query::of(&uri, &["recursive"])?.flag("recursive")?;
    let OpenedFile { sandbox, path, .. } =
        open(&app, &caller, named, uri.clone(), None, For::Writing).await?;
    sandbox.file_remove(&path, recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}
