//! Files of a session, in Pokee's format.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::pokee::scope::For;
use crate::dialects::pokee::sessions::{Record, SessionPath};
use crate::foundation::binary::Binary;
use crate::foundation::error::ApiError;
use crate::foundation::pagination::with_next_link;
use crate::foundation::query::Query;
use crate::routes::files::fetch::{self, Fetched};
use crate::routes::files::target::{CreateMode, FileTarget, checked, open_sandbox};
use crate::routes::files::{listing, upload};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_sandbox::Sandbox;
use isolet_wire::request::{WalkOptions, WriteOptions};
use isolet_wire::response::{FileKind, FoundFile};
use serde::Serialize;
use utoipa::ToSchema;

/// An entry of a directory.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PokeeFile)]
pub(crate) struct PokeeFile {
    /// The name without its directory.
    name: String,
    /// The exact bytes in base64. Present only if they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    name_b64: Option<String>,
    /// `file` or `directory`. A symbolic link counts as a file.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The size in bytes.
    size: u64,
    /// When it was modified, in seconds since 1970.
    modified: f64,
}

/// A file that was written.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PokeeWrittenFile)]
pub(crate) struct Saved {
    /// The path below the workspace, as it was requested.
    path: String,
    /// The size in bytes.
    size: u64,
    /// When it was modified, in seconds since 1970.
    modified: f64,
}

impl From<FoundFile> for PokeeFile {
    fn from(found: FoundFile) -> Self {
        let name = found.path;
        let kind = if found.stat.kind == FileKind::Directory { "directory" } else { "file" };
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
    purpose: For,
) -> Result<OpenedFile, ApiError> {
    let session = app.service.session_use(&caller.tenant, &id)?;
    let target = FileTarget::in_session(uri, session.sandbox_id.clone(), id.clone())?;
    let path = match path {
        Some(path) => path,
        None => target.path()?.to_vec(),
    };
    Record::from(session).file_access.admit(id.as_str(), &path, purpose)?;
    let sandbox = open_sandbox(app, caller, &target, CreateMode::Never).await?;
    Ok(OpenedFile { sandbox, target, path })
}

/// Reads a file or lists a directory.
async fn answer(
    opened: OpenedFile,
    method: &Method,
    headers: &HeaderMap,
    query: &Query<'_>,
    wish: WalkOptions,
) -> Result<Response, ApiError> {
    // The workspace itself has an empty path.
    let OpenedFile { sandbox, target, path } = opened;
    let path = if path.is_empty() { b".".to_vec() } else { path };
    match fetch::get(&sandbox, &target, method, headers, &path, query, wish).await? {
        Fetched::Bytes(response) => Ok(response),
        Fetched::List(page, next) => Ok(with_next_link(
            next,
            Json(page.found.into_iter().map(PokeeFile::from).collect::<Vec<_>>()),
        )),
    }
}

fn all(query: &Query<'_>) -> Result<WalkOptions, ApiError> {
    Ok(WalkOptions { hidden: true, ..listing::wish(query)? })
}

/// Read a file or list a directory of a session
#[utoipa::path(
    get, path = "/v1/sessions/{sid}/files/{*path}", operation_id = "pokee_files_read", tag = "pokee",
    params(
        ("sid" = String, Path),
        ("path" = String, Path, description = "A path below the workspace, percent-encoded. Slashes may be sent as they are."),
        ("limit" = Option<u32>, Query, description = "The most entries in a page: 1 to 10000. Defaults to 1000."),
        ("cursor" = Option<String>, Query),
        ("Range" = Option<String>, Header),
        ("If-None-Match" = Option<String>, Header)
    ),
    responses(
        (status = 200, description = "The bytes of a file, or the entries of a directory.", content((Vec<PokeeFile> = "application/json"), (inline(Binary) = "application/octet-stream")), headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one."))),
        (status = 206, description = "The requested part of a file.", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 304, description = "The file still has the `ETag` that was sent in `If-None-Match`."),
        (status = 416, description = "The range lies outside of the file.", body = ApiError)
    )
)]
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

/// List the workspace of a session
#[utoipa::path(
    get, path = "/v1/sessions/{sid}/files", operation_id = "pokee_files_list", tag = "pokee",
    params(
        ("sid" = String, Path),
        ("path" = Option<String>, Query, description = "A path below the workspace. Defaults to the workspace itself."),
        ("limit" = Option<u32>, Query, description = "The most entries in a page: 1 to 10000. Defaults to 1000."),
        ("cursor" = Option<String>, Query)
    ),
    responses(
        (status = 200, description = "The bytes of a file, or the entries of a directory.", content((Vec<PokeeFile> = "application/json"), (inline(Binary) = "application/octet-stream")), headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one.")))
    )
)]
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

/// Write a file of a session
///
/// Creates missing parent directories.
#[utoipa::path(
    put, path = "/v1/sessions/{sid}/files/{*path}", operation_id = "pokee_files_write", tag = "pokee",
    params(
        ("sid" = String, Path),
        ("path" = String, Path, description = "A path below the workspace, percent-encoded. Slashes may be sent as they are.")
    ),
    request_body(content = inline(Binary), content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The file was written.", body = Saved)
    )
)]
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
    let (stat, _) = upload::save(&sandbox, &path, WriteOptions::default(), None, request).await?;
    let path = String::from_utf8_lossy(&path).into_owned();
    let saved = Saved { path, size: stat.size, modified: seconds(stat.modified_ms) };
    Ok((StatusCode::CREATED, Json(saved)).into_response())
}

/// Delete a file or directory of a session
///
/// Deletes a file, a symbolic link or an empty directory.
#[utoipa::path(
    delete, path = "/v1/sessions/{sid}/files/{*path}", operation_id = "pokee_files_delete", tag = "pokee",
    params(
        ("sid" = String, Path),
        ("path" = String, Path, description = "A path below the workspace, percent-encoded. Slashes may be sent as they are."),
        ("recursive" = Option<bool>, Query, description = "Delete a directory with everything in it.")
    ),
    responses(
        (status = 204, description = "It was deleted.")
    )
)]
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
