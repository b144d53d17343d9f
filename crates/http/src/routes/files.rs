//! Files of a sandbox, and of its sessions.
//!
//! Contents are raw bytes, streamed both ways; metadata is JSON. Relative paths begin in
//! `/workspace`. Paths are resolved inside the sandbox.

pub(crate) mod changes;
pub(crate) mod content;
pub(crate) mod fetch;
pub(crate) mod listing;
pub(crate) mod operations;
pub(crate) mod search;
pub(crate) mod snapshot;
pub(crate) mod target;
pub(crate) mod upload;
pub(crate) mod view;
pub(crate) mod watch;
mod watch_filter;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::binary::Binary;
use crate::foundation::error::ApiError;
use crate::foundation::json::reject_content_encoding;
use crate::foundation::pagination::with_next_link;
use crate::foundation::query::{self, Query};
use crate::routes::files::changes::{CHANGES_SINCE, ChangesView};
use crate::routes::files::fetch::{Fetched, get};
use crate::routes::files::listing::{LIST_GLOB, views, wish};
use crate::routes::files::upload::{receive, save};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use isolet_wire::request::WriteOptions;
use search::FoundView;
use serde::Serialize;
use target::{CreateMode, FileTarget, mode, open_sandbox, whole};
use utoipa::ToSchema;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::{Object, Required, Type};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use view::{FileView, SavedView};
use watch_filter::{EXCLUDE, INCLUDE, WatchFilter};

/// All query parameters of the requests that read.
const READ: [&str; 14] = [
    "type",
    "recursive",
    "hidden",
    LIST_GLOB,
    "limit",
    "cursor",
    "tar",
    "watch",
    CHANGES_SINCE,
    "search",
    "literal",
    "ignore_case",
    "ignored",
    "context",
];

/// Query parameters that may be repeated.
const WATCH_LISTS: [&str; 2] = [INCLUDE, EXCLUDE];

/// What a read answers in JSON: the entries of a directory, the result of a search, or changes.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum DirectoryOrSearch {
    Directory(Vec<FileView>),
    Search(FoundView),
    Changes(ChangesView),
}

/// The routes of files, below a sandbox and below a session.
pub(crate) fn router() -> OpenApiRouter<App> {
    let mut in_session = below();
    let sid = ParameterBuilder::new()
        .name("sid")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(Object::with_type(Type::String)))
        .build();
    for item in in_session.get_openapi_mut().paths.paths.values_mut() {
        let calls = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for call in calls.into_iter().flatten() {
            call.parameters.get_or_insert_default().push(sid.clone().into());
            call.operation_id = call.operation_id.take().map(|id| format!("session_{id}"));
            call.summary = call.summary.take().map(|summary| format!("{summary}, in a session"));
        }
    }
    OpenApiRouter::new()
        .nest("/v1/sandboxes/{id}", below())
        .nest("/v1/sandboxes/{id}/sessions/{sid}", in_session)
}

fn below() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(top, operations::order))
        .routes(routes!(read, write, remove))
        .route("/files/", axum::routing::get(top))
}

/// Read a file or list a directory
///
/// Returns a file as raw bytes, or the part that a `Range` header names. Returns a directory as a
/// sorted JSON array of entries.
///
/// With `watch=1`, the server streams changes of a directory: `watching` once it watches, then
/// `created`, `modified`, `moved`, `deleted`, `overflow` (changes were missed; list the directory
/// again), `unwatched` and, as the last event, `gone`.
///
/// With `changes_since`, returns the paths that were created, modified or deleted since a version,
/// and the version to continue from. If the changes are not known any more, the answer is 410
/// `version_expired`: take the version `now`, then list the directory.
#[utoipa::path(
    get, path = "/files/{*path}", operation_id = "files_read", tag = "files",
    params(
        ("id" = String, Path),
        ("path" = String, Path, description = "The path, percent-encoded. A relative path starts in `/workspace`; a path that starts with a slash (`files//etc/hosts`, `files/%2Fetc/hosts`) starts at the root of the sandbox. Slashes may be sent as they are."),
        ("recursive" = Option<bool>, Query, description = "List, watch, compare or archive all directories below."),
        ("hidden" = Option<bool>, Query, description = "Include names that begin with a dot."),
        ("glob" = Option<String>, Query, description = "Return only matching entries. A pattern without a slash (`*.rs`) matches names, one with a slash (`src/**/*.rs`) matches paths."),
        ("limit" = Option<u32>, Query, description = "The most entries in a page, lines of a search, or changed paths: 1 to 10000. Defaults to 1000."),
        ("cursor" = Option<String>, Query),
        ("tar" = Option<String>, Query, description = "Return a directory as a tar archive: `1`, or `zstd` for a compressed one."),
        ("search" = Option<String>, Query, description = "Return the lines that match this regular expression, in the file or in all files below the directory."),
        ("literal" = Option<bool>, Query, description = "With `search`: search for the text itself, not for a regular expression."),
        ("ignore_case" = Option<bool>, Query, description = "With `search`: ignore case."),
        ("ignored" = Option<bool>, Query, description = "With `search`: also search files that `.gitignore` excludes."),
        ("context" = Option<u32>, Query, description = "With `search`: include 0 to 20 lines around each match."),
        ("watch" = Option<bool>, Query, description = "Stream changes of a directory as server-sent events."),
        ("changes_since" = Option<String>, Query, description = "Return what changed in a directory since this version, the `version` of an earlier answer. `now` returns the current version and no changes."),
        ("include" = Option<Vec<String>>, Query, description = "With `watch` and `changes_since`: report only changes whose path matches one of these patterns. Repeatable, at most 16 patterns of 256 bytes. A pattern without a slash (`*.rs`) matches names, one with a slash (`src/**/*.rs`) matches paths relative to the directory."),
        ("exclude" = Option<Vec<String>>, Query, description = "With `watch` and `changes_since`: do not report changes whose path, or a directory above it, matches one of these patterns. Repeatable."),
        ("type" = Option<String>, Query, description = "`file`: answer 409 `wrong_kind` if the path is a directory, instead of its entries."),
        ("Range" = Option<String>, Header),
        ("If-None-Match" = Option<String>, Header)
    ),
    responses(
        (status = 200, description = "The bytes of a file or an archive, the entries of a directory, the result of a search, changes since a version, or a stream of changes.", content((inline(DirectoryOrSearch) = "application/json"), (inline(Binary) = "application/octet-stream"), (inline(Binary) = "application/x-tar"), (inline(Binary) = "application/zstd"), (String = "text/event-stream")), headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one."), ("ETag" = String, description = "Changes when the file changes."))),
        (status = 206, description = "The requested part of a file.", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 304, description = "The file still has the `ETag` that was sent in `If-None-Match`."),
        (status = 410, description = "`version_expired`: the changes since the version are not known any more.", body = ApiError),
        (status = 416, description = "The range lies outside of the file.", body = ApiError)
    )
)]
async fn read(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = Query::with_lists(&uri, &READ, &WATCH_LISTS)?;
    let path = target.path()?.to_vec();
    answer(&app, &caller, &target, &method, &headers, path, &query).await
}

/// List the workspace
///
/// Returns the entries of `/workspace`, or of the directory in `path`. If `path` names a file,
/// returns its bytes. Takes the same options as `GET /files/{path}`.
#[utoipa::path(
    get, path = "/files", operation_id = "files_list", tag = "files",
    params(
        ("id" = String, Path),
        ("path" = Option<String>, Query, description = "The directory or file. Defaults to `/workspace`."),
        ("recursive" = Option<bool>, Query, description = "List, watch, compare or archive all directories below."),
        ("hidden" = Option<bool>, Query, description = "Include names that begin with a dot."),
        ("glob" = Option<String>, Query, description = "Return only matching entries. A pattern without a slash (`*.rs`) matches names, one with a slash (`src/**/*.rs`) matches paths."),
        ("limit" = Option<u32>, Query, description = "The most entries in a page, lines of a search, or changed paths: 1 to 10000. Defaults to 1000."),
        ("cursor" = Option<String>, Query),
        ("tar" = Option<String>, Query, description = "Return a directory as a tar archive: `1`, or `zstd` for a compressed one."),
        ("search" = Option<String>, Query, description = "Return the lines that match this regular expression, in the file or in all files below the directory."),
        ("literal" = Option<bool>, Query, description = "With `search`: search for the text itself, not for a regular expression."),
        ("ignore_case" = Option<bool>, Query, description = "With `search`: ignore case."),
        ("ignored" = Option<bool>, Query, description = "With `search`: also search files that `.gitignore` excludes."),
        ("context" = Option<u32>, Query, description = "With `search`: include 0 to 20 lines around each match."),
        ("watch" = Option<bool>, Query, description = "Stream changes of a directory as server-sent events."),
        ("changes_since" = Option<String>, Query, description = "Return what changed in a directory since this version, the `version` of an earlier answer. `now` returns the current version and no changes."),
        ("include" = Option<Vec<String>>, Query, description = "With `watch` and `changes_since`: report only changes whose path matches one of these patterns. Repeatable, at most 16 patterns of 256 bytes. A pattern without a slash (`*.rs`) matches names, one with a slash (`src/**/*.rs`) matches paths relative to the directory."),
        ("exclude" = Option<Vec<String>>, Query, description = "With `watch` and `changes_since`: do not report changes whose path, or a directory above it, matches one of these patterns. Repeatable."),
        ("type" = Option<String>, Query, description = "`file`: answer 409 `wrong_kind` if the path is a directory, instead of its entries."),
        ("Range" = Option<String>, Header),
        ("If-None-Match" = Option<String>, Header)
    ),
    responses(
        (status = 200, description = "The bytes of a file or an archive, the entries of a directory, the result of a search, changes since a version, or a stream of changes.", content((inline(DirectoryOrSearch) = "application/json"), (inline(Binary) = "application/octet-stream"), (inline(Binary) = "application/x-tar"), (inline(Binary) = "application/zstd"), (String = "text/event-stream")), headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one."), ("ETag" = String, description = "Changes when the file changes."))),
        (status = 206, description = "The requested part of a file.", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 304, description = "The file still has the `ETag` that was sent in `If-None-Match`."),
        (status = 410, description = "`version_expired`: the changes since the version are not known any more.", body = ApiError),
        (status = 416, description = "The range lies outside of the file.", body = ApiError)
    )
)]
async fn top(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let known = [&READ[..], &["path"]].concat();
    let query = Query::with_lists(&uri, &known, &WATCH_LISTS)?;
    let path = match query.bytes("path") {
        Some(path) => target::checked("?path", path)?,
        None => target::HOME.to_vec(),
    };
    answer(&app, &caller, &target, &method, &headers, path, &query).await
}

async fn answer(
    app: &App,
    caller: &Caller,
    target: &FileTarget,
    method: &Method,
    headers: &HeaderMap,
    path: Vec<u8>,
    query: &Query<'_>,
) -> Result<Response, ApiError> {
    if let Some(wish) = search::wish(query)? {
        let sandbox = open_sandbox(app, caller, target, CreateMode::Read).await?;
        let found = search::search(&sandbox, &path, wish).await?;
        return Ok(Json(DirectoryOrSearch::Search(found)).into_response());
    }
    let wish = wish(query)?;
    if let Some(wanted) = changes::wanted(query, &path, &wish)? {
        let filter = WatchFilter::of(query)?;
        let sandbox = open_sandbox(app, caller, target, CreateMode::Read).await?;
        let changed = changes::find(&sandbox, wanted, filter).await?;
        return Ok(Json(DirectoryOrSearch::Changes(changed)).into_response());
    }
    let watched = query.flag("watch")?;
    if let Some(name) = WATCH_LISTS.iter().find(|name| !watched && query.bytes(name).is_some()) {
        return Err(query::bad_parameter(name, "needs watch=1 or changes_since"));
    }
    if watched {
        for name in ["hidden", LIST_GLOB, "limit", "cursor", "tar", "type"] {
            if query.bytes(name).is_some() {
                return Err(query::bad_parameter(name, "cannot be combined with watch"));
            }
        }
        let filter = WatchFilter::of(query)?;
        let sandbox = open_sandbox(app, caller, target, CreateMode::Read).await?;
        let watcher = sandbox.file_watch(&path, wish.recursive).await?;
        return Ok(watch::answer(watcher, &path, filter, app.cancellations.subscribe(caller)));
    }
    let sandbox = open_sandbox(app, caller, target, CreateMode::Read).await?;
    match get(&sandbox, target, method, headers, &path, query, wish).await? {
        Fetched::Bytes(response) => Ok(response),
        Fetched::List(page, next) => {
            let views = views(&whole(&path), page);
            Ok(with_next_link(next, Json(DirectoryOrSearch::Directory(views))))
        }
    }
}

/// Write a file
///
/// Writes the whole file or nothing: readers see the old content or the new one. Creates missing
/// parent directories, the sandbox and the session. A file that is replaced keeps its owner and
/// mode. Appends and archives are written as they arrive, so an interrupted upload leaves what has
/// arrived.
#[utoipa::path(
    put, path = "/files/{*path}", operation_id = "files_write", tag = "files",
    params(
        ("id" = String, Path),
        ("path" = String, Path, description = "The path, percent-encoded. A relative path starts in `/workspace`; a path that starts with a slash (`files//etc/hosts`, `files/%2Fetc/hosts`) starts at the root of the sandbox. Slashes may be sent as they are."),
        ("mode" = Option<String>, Query, description = "Permission bits in octal. A new file defaults to `0644`; an existing file keeps its own."),
        ("append" = Option<bool>, Query, description = "Append to the file."),
        ("untar" = Option<bool>, Query, description = "Unpack the body, a tar archive, into the directory at `path`."),
        ("fsync" = Option<bool>, Query, description = "Answer only once the data is on the disk."),
        ("If-Match" = Option<String>, Header, description = "Replace the file only if it still has this `ETag`, or with `*`, only if it exists; otherwise answer 412 `file_changed` and write nothing.")
    ),
    request_body(content = inline(Binary), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The file was replaced, or the archive unpacked.", body = SavedView, headers(("ETag" = String, description = "Changes when the file changes."))),
        (status = 201, description = "A new file was created.", body = SavedView, headers(("ETag" = String, description = "Changes when the file changes."))),
        (status = 412, description = "The file does not have the `ETag` that was sent in `If-Match`.", body = ApiError),
        (status = 507, description = "The disk is full, by bytes or by inodes.", body = ApiError)
    )
)]
async fn write(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    request: Request,
) -> Result<Response, ApiError> {
    let uri = request.uri().clone();
    let query = Query::of(&uri, &["mode", "append", "fsync", "untar"])?;
    let how = WriteOptions {
        mode: query.text("mode")?.map(|text| mode("?mode", text)).transpose()?,
        append: query.flag("append")?,
        sync: query.flag("fsync")?,
    };
    let path = target.path()?;
    let untar = query.flag("untar")?;
    if untar && how != WriteOptions::default() {
        return Err(query::bad_parameter("untar", "cannot be combined with mode, append or fsync"));
    }
    let expected = content::expected_file(request.headers())?;
    if expected.is_some() && (untar || how.append) {
        return Err(ApiError::bad_field("If-Match", "cannot be combined with append or untar"));
    }
    reject_content_encoding(request.headers())?;
    // A write that expects a file cannot succeed in a new sandbox.
    let making = if expected.is_some() { CreateMode::Never } else { CreateMode::Create };
    let sandbox = open_sandbox(&app, &caller, &target, making).await?;
    if untar {
        let mut writer = sandbox.file_unpack(path).await?;
        receive(request.into_body(), &mut writer).await?;
        writer.finish().await?;
        let found = sandbox.file_look(path, true).await?;
        return Ok(Json(SavedView::of(path, &found.stat)).into_response());
    }
    let (stat, created) = save(&sandbox, path, how, expected, request).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let response = (status, Json(SavedView::of(path, &stat))).into_response();
    Ok(content::tagged(response, &stat))
}

/// Delete a file or directory
///
/// Deletes a file, a symbolic link or an empty directory. A directory that is not empty needs
/// `recursive=1` (otherwise 409 `not_empty`).
#[utoipa::path(
    delete, path = "/files/{*path}", operation_id = "files_delete", tag = "files",
    params(
        ("id" = String, Path),
        ("path" = String, Path, description = "The path, percent-encoded. A relative path starts in `/workspace`; a path that starts with a slash (`files//etc/hosts`, `files/%2Fetc/hosts`) starts at the root of the sandbox. Slashes may be sent as they are."),
        ("recursive" = Option<bool>, Query, description = "Delete a directory with everything in it.")
    ),
    responses(
        (status = 204, description = "It was deleted.")
    )
)]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    let recursive = Query::of(&uri, &["recursive"])?.flag("recursive")?;
    let path = target.path()?;
    let sandbox = open_sandbox(&app, &caller, &target, CreateMode::Never).await?;
    sandbox.file_remove(path, recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}
