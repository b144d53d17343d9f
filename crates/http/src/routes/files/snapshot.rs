//! Files of a snapshot, read only. No sandbox is started.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::binary::Binary;
use crate::foundation::error::ApiError;
use crate::foundation::pagination::with_next_link;
use crate::foundation::query::{self, Query};
use crate::routes::files::content::{self, ReadConditions};
use crate::routes::files::listing::{LIST, LIST_GLOB, next_link, views, wish};
use crate::routes::files::target::{self, FileTarget, whole};
use crate::routes::files::view::FileView;
use crate::routes::snapshots::parse_id;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use isolet_sandbox::files::Opened;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// All query parameters.
const READ: [&str; 6] = ["recursive", "hidden", LIST_GLOB, "limit", "cursor", "stat"];

/// The routes of files below a snapshot.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(top))
        .routes(routes!(read))
        .route("/v1/snapshots/{snapshot}/files/", axum::routing::get(top))
}

/// Read a file or list a directory of a snapshot
///
/// Returns a file as raw bytes, or the part that a `Range` header names, and a directory as a sorted
/// JSON array of entries, as a sandbox from the snapshot would show them: with the files of its
/// image. Links are followed within the snapshot. Starts no sandbox.
#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}/files/{*path}", operation_id = "snapshots_read_file", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id or the name of the snapshot."),
        ("path" = String, Path, description = "The path, percent-encoded. A relative path starts in `/workspace`; a path that starts with a slash (`files//etc/hosts`, `files/%2Fetc/hosts`) starts at the root. Slashes may be sent as they are."),
        ("recursive" = Option<bool>, Query, description = "List all directories below."),
        ("hidden" = Option<bool>, Query, description = "Include names that begin with a dot."),
        ("glob" = Option<String>, Query, description = "Return only matching entries. A pattern without a slash (`*.rs`) matches names, one with a slash (`src/**/*.rs`) matches paths."),
        ("limit" = Option<u32>, Query, description = "The most entries in a page: 1 to 10000. Defaults to 1000."),
        ("cursor" = Option<String>, Query),
        ("stat" = Option<bool>, Query, description = "Return the entry of the path itself, as in a list. A link is not followed."),
        ("Range" = Option<String>, Header),
        ("If-None-Match" = Option<String>, Header)
    ),
    responses(
        (status = 200, description = "The bytes of a file, the entries of a directory, or with `stat` one entry.", content((Vec<FileView> = "application/json"), (inline(Binary) = "application/octet-stream")), headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one."), ("ETag" = String, description = "Changes when the file changes."))),
        (status = 206, description = "The requested part of a file.", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 304, description = "The file still has the `ETag` that was sent in `If-None-Match`."),
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
    let query = Query::of(&uri, &READ)?;
    let path = target.path()?.to_vec();
    answer(&app, &caller, &target, &method, &headers, &path, &query).await
}

/// List the workspace of a snapshot
///
/// Returns the entries of `/workspace`, or of the directory in `path`. If `path` names a file,
/// returns its bytes. Takes the same options as `GET /v1/snapshots/{snapshot}/files/{path}`.
#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}/files", operation_id = "snapshots_list_files", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "The id or the name of the snapshot."),
        ("path" = Option<String>, Query, description = "The directory or file. Defaults to `/workspace`."),
        ("recursive" = Option<bool>, Query, description = "List all directories below."),
        ("hidden" = Option<bool>, Query, description = "Include names that begin with a dot."),
        ("glob" = Option<String>, Query, description = "Return only matching entries. A pattern without a slash (`*.rs`) matches names, one with a slash (`src/**/*.rs`) matches paths."),
        ("limit" = Option<u32>, Query, description = "The most entries in a page: 1 to 10000. Defaults to 1000."),
        ("cursor" = Option<String>, Query),
        ("stat" = Option<bool>, Query, description = "Return the entry of the path itself, as in a list. A link is not followed."),
        ("Range" = Option<String>, Header),
        ("If-None-Match" = Option<String>, Header)
    ),
    responses(
        (status = 200, description = "The bytes of a file, the entries of a directory, or with `stat` one entry.", content((Vec<FileView> = "application/json"), (inline(Binary) = "application/octet-stream")), headers(("Link" = String, description = "A link with `rel=\"next\"` to the next page, if there is one."), ("ETag" = String, description = "Changes when the file changes."))),
        (status = 206, description = "The requested part of a file.", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 304, description = "The file still has the `ETag` that was sent in `If-None-Match`."),
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
    let query = Query::of(&uri, &known)?;
    let path = match query.bytes("path") {
        Some(path) => target::checked("?path", path)?,
        None => target::HOME.to_vec(),
    };
    answer(&app, &caller, &target, &method, &headers, &path, &query).await
}

async fn answer(
    app: &App,
    caller: &Caller,
    target: &FileTarget,
    method: &Method,
    headers: &HeaderMap,
    path: &[u8],
    query: &Query<'_>,
) -> Result<Response, ApiError> {
    caller.check_key()?;
    let service = &app.service;
    let tenant = &caller.tenant;
    let id = parse_id(target.parent())?;
    let path = whole(path);
    let wish = wish(query)?;
    if query.flag("stat")? {
        let found = service.snapshot_stat(tenant, &id, path.clone()).await?;
        return Ok(Json(FileView::of(&path, found)).into_response());
    }
    let asked = ReadConditions::of(headers);
    let whole_file = ReadConditions::default();
    match service.snapshot_fetch(tenant, &id, path.clone(), asked.span()).await? {
        Opened::File(_) if LIST.iter().any(|name| query.bytes(name).is_some()) => {
            Err(query::bad_parameter(
                "recursive",
                "the path is a file, but the query is for a directory",
            ))
        }
        Opened::File(reader) if asked.holds(&reader.stat) => {
            Ok(content::response(*reader, &asked, method))
        }
        // `If-Range` names another version, so the whole file is sent.
        Opened::File(_) => {
            match service.snapshot_fetch(tenant, &id, path, whole_file.span()).await? {
                Opened::File(reader) => Ok(content::response(*reader, &whole_file, method)),
                Opened::Directory(_) => Err(ApiError::bad_request("the file became a directory")),
            }
        }
        Opened::Directory(_) => {
            let page = service.snapshot_walk(tenant, &id, path.clone(), wish).await?;
            let last = page.found.last().filter(|_| page.more);
            let next = last.map(|last| next_link(target, query, &last.path));
            Ok(with_next_link(next, Json(views(&path, page))))
        }
    }
}
