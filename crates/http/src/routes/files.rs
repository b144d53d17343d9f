//! Files of a sandbox, and of its sessions.
//!
//! Contents are raw bytes, streamed both ways; metadata is JSON. Relative paths begin in
//! `/workspace`. Paths are resolved inside the sandbox.

pub(crate) mod content;
pub(crate) mod fetch;
pub(crate) mod listing;
pub(crate) mod operations;
pub(crate) mod search;
pub(crate) mod target;
pub(crate) mod upload;
pub(crate) mod view;
pub(crate) mod watch;

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        error::{ApiError, agent::agent_code},
        json::reject_content_encoding,
        pagination::with_next_link,
        query::{self, Query},
    },
    routes::files::{
        fetch::{Fetched, get},
        listing::{LIST_GLOB, wish},
        upload::{receive, save},
    },
};
use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use isolet_sandbox::files::Page;
use isolet_wire::{request::Save, response::Found};
use target::{CreateMode, FileTarget, mode, open_sandbox, whole};
use utoipa::openapi::{
    Object, Required, Type,
    path::{ParameterBuilder, ParameterIn},
};
use utoipa_axum::{router::OpenApiRouter, routes};
use view::{FileView, SavedView};

/// All query parameters of the requests that read.
const READ: [&str; 12] = [
    "recursive",
    "hidden",
    LIST_GLOB,
    "limit",
    "cursor",
    "tar",
    "watch",
    "search",
    "literal",
    "ignore_case",
    "ignored",
    "context",
];

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

/// Reads a file, or lists a directory.
///
/// A file comes as raw bytes, with `ETag`, and by `Range` in part; a directory as an array, sorted,
/// with a `Link` to the next page. A path that begins with a slash (`files//etc/hosts`,
/// `files/%2Fetc/hosts`) is one of the whole sandbox.
#[utoipa::path(get, path = "/files/{*path}", tag = "files",
    params(("id" = String, Path), ("path" = String, Path, description = "Bytes, percent-encoded."),
        ("recursive" = Option<bool>, Query), ("hidden" = Option<bool>, Query, description = "Also names that begin with a dot."),
        ("glob" = Option<String>, Query, description = "`*.rs` is for names, `src/**/*.rs` for paths."),
        ("limit" = Option<u32>, Query, description = "1 to 10000; 1000 unless told."), ("cursor" = Option<String>, Query),
        ("tar" = Option<String>, Query, description = "A directory as an archive: `1`, or `zstd` compressed."),
        ("search" = Option<String>, Query, description = "A regular expression: lines of the file, or of all files below the directory, that match (`FoundView`)."),
        ("literal" = Option<bool>, Query, description = "The pattern means itself."), ("ignore_case" = Option<bool>, Query),
        ("ignored" = Option<bool>, Query, description = "Also what `.gitignore` leaves out."), ("context" = Option<u32>, Query, description = "0 to 20 lines beside each match."),
        ("watch" = Option<bool>, Query, description = "Events as they happen in the directory, as SSE: `watching`, then `created`, `modified`, `moved`, `deleted`, `overflow`, `unwatched`, and `gone` as the last."), ("Range" = Option<String>, Header), ("If-None-Match" = Option<String>, Header)),
    responses((status = 200, body = Vec<FileView>, description = "A directory's entries; of a file its bytes."),
        (status = 206, content_type = "application/octet-stream", body = Vec<u8>), (status = 304),
        (status = 416, body = ApiError), (status = "4XX", body = ApiError)))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = Query::of(&uri, &READ)?;
    let path = target.path()?.to_vec();
    answer(&app, &caller, &target, &method, &headers, path, &query).await
}

/// Lists `/workspace`, or reads what `?path=` names.
#[utoipa::path(get, path = "/files", tag = "files",
    params(("id" = String, Path), ("path" = Option<String>, Query, description = "`/workspace` unless told."),
        ("recursive" = Option<bool>, Query), ("hidden" = Option<bool>, Query), ("glob" = Option<String>, Query),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query), ("tar" = Option<String>, Query),
        ("search" = Option<String>, Query), ("literal" = Option<bool>, Query), ("ignore_case" = Option<bool>, Query),
        ("ignored" = Option<bool>, Query), ("context" = Option<u32>, Query), ("watch" = Option<bool>, Query)),
    responses((status = 200, body = Vec<FileView>), (status = "4XX", body = ApiError)))]
async fn top(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let known = [&READ[..], &["path"]].concat();
    let query = Query::of(&uri, &known)?;
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
        return Ok(Json(search::search(&sandbox, &path, wish).await?).into_response());
    }
    let wish = wish(query)?;
    if query.flag("watch")? {
        for name in ["hidden", LIST_GLOB, "limit", "cursor", "tar"] {
            if query.bytes(name).is_some() {
                return Err(query::bad_parameter(name, "does not stand with watch"));
            }
        }
        let sandbox = open_sandbox(app, caller, target, CreateMode::Read).await?;
        let watcher = sandbox.file_watch(&path, wish.recursive).await?;
        return Ok(watch::answer(watcher, &path, app.cancellations.subscribe(caller)));
    }
    let sandbox = open_sandbox(app, caller, target, CreateMode::Read).await?;
    match get(&sandbox, target, method, headers, &path, query, wish).await? {
        Fetched::Bytes(response) => Ok(response),
        Fetched::List(page, next) => {
            let base = whole(&path);
            let Page { found, unread, .. } = page;
            let view = |one: Found| {
                let why = unread.get(&one.path).map(|why| agent_code(*why));
                FileView::below(&base, one).unread(why)
            };
            let views: Vec<_> = found.into_iter().map(view).collect();
            Ok(with_next_link(next, Json(views)))
        }
    }
}

/// Writes a file, whole or not at all: a reader sees the old one or the new one.
///
/// Parents are made. A file that is overwritten keeps its owner and its mode. An append is written
/// as it comes, and so is an archive.
#[utoipa::path(put, path = "/files/{*path}", tag = "files",
    params(("id" = String, Path), ("path" = String, Path, description = "Bytes, percent-encoded."),
        ("mode" = Option<String>, Query, description = "Permission bits, octal; a new file has 0644 unless told, an old one keeps its own."),
        ("append" = Option<bool>, Query), ("untar" = Option<bool>, Query, description = "The body is a tar archive, and the path a directory."), ("fsync" = Option<bool>, Query, description = "On the disk before it is answered.")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = SavedView, description = "There was one of this name."), (status = 201, body = SavedView), (status = "4XX", body = ApiError), (status = 507, body = ApiError)))]
async fn write(
    State(app): State<App>,
    caller: Caller,
    target: FileTarget,
    request: Request,
) -> Result<Response, ApiError> {
    let uri = request.uri().clone();
    let query = Query::of(&uri, &["mode", "append", "fsync", "untar"])?;
    let how = Save {
        mode: query.text("mode")?.map(|text| mode("?mode", text)).transpose()?,
        append: query.flag("append")?,
        sync: query.flag("fsync")?,
    };
    let path = target.path()?;
    let untar = query.flag("untar")?;
    if untar && how != Save::default() {
        return Err(query::bad_parameter("untar", "stands without mode, append and fsync"));
    }
    reject_content_encoding(request.headers())?;
    let sandbox = open_sandbox(&app, &caller, &target, CreateMode::Create).await?;
    if untar {
        let mut writer = sandbox.file_unpack(path).await?;
        receive(request.into_body(), &mut writer).await?;
        writer.finish().await?;
        let found = sandbox.file_look(path, true).await?;
        return Ok(Json(SavedView::of(path, &found.stat)).into_response());
    }
    let (stat, created) = save(&sandbox, path, how, request).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let response = (status, Json(SavedView::of(path, &stat))).into_response();
    Ok(content::tagged(response, &stat))
}

/// Removes a file, a link or a directory.
#[utoipa::path(delete, path = "/files/{*path}", tag = "files",
    params(("id" = String, Path), ("path" = String, Path, description = "Bytes, percent-encoded."),
        ("recursive" = Option<bool>, Query, description = "A directory with all it holds.")),
    responses((status = 204), (status = 404, body = ApiError), (status = 409, body = ApiError)))]
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
