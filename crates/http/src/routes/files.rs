//! Files of a sandbox, and the same below each of its sessions.
//!
//! Contents are raw bytes, streamed both ways; what is said about files is JSON. Paths begin in
//! `/workspace`, unless they begin with a slash, and are resolved inside the sandbox.

pub(crate) mod content;
mod orders;
pub(crate) mod place;
mod search;
mod view;
mod watch;

use crate::{
    auth::Caller,
    error::{self, Failure},
    json::not_encoded,
    page::paged,
    query::{self, Query},
    server::App,
};
use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use content::Asked;
use http_body_util::BodyExt;
use isolet_sandbox::{
    Sandbox,
    files::{GLOB_BYTES_MAX, Opened, PAGE_MAX, Page, Writer},
};
use isolet_wire::{
    ask::{Save, Walk},
    tell::{Found, Stat},
};
use place::{Making, Place, enter, mode, whole};
use std::time::Duration;
use tokio::time::timeout;
use utoipa::openapi::{
    Object, Required, Type,
    path::{ParameterBuilder, ParameterIn},
};
use utoipa_axum::{router::OpenApiRouter, routes};
use view::{FileView, SavedView};

/// How long an upload may stand still.
const STILL: Duration = Duration::from_secs(60);
/// Entries of a page unless told.
const PAGE: u32 = 1000;
/// The pattern for names and paths, of lists and of searches.
const LIST_GLOB: &str = "glob";
/// What can be said of a list, and of nothing else.
const LIST: [&str; 7] = ["recursive", "hidden", LIST_GLOB, "limit", "cursor", "tar", "watch"];
/// All that can be said of a reading call.
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

/// All of them, as they stand below a sandbox and below a session.
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
        .routes(routes!(top, orders::order))
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
        (status = 416, body = Failure), (status = "4XX", body = Failure)))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let query = Query::of(&uri, &READ)?;
    let path = place.path()?.to_vec();
    answer(&app, &caller, &place, (&method, &headers), path, &query).await
}

/// Lists `/workspace`, or reads what `?path=` names.
#[utoipa::path(get, path = "/files", tag = "files",
    params(("id" = String, Path), ("path" = Option<String>, Query, description = "`/workspace` unless told."),
        ("recursive" = Option<bool>, Query), ("hidden" = Option<bool>, Query), ("glob" = Option<String>, Query),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query), ("tar" = Option<String>, Query),
        ("search" = Option<String>, Query), ("literal" = Option<bool>, Query), ("ignore_case" = Option<bool>, Query),
        ("ignored" = Option<bool>, Query), ("context" = Option<u32>, Query), ("watch" = Option<bool>, Query)),
    responses((status = 200, body = Vec<FileView>), (status = "4XX", body = Failure)))]
async fn top(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let known = [&READ[..], &["path"]].concat();
    let query = Query::of(&uri, &known)?;
    let path = match query.bytes("path") {
        Some(path) => place::checked("?path", path)?,
        None => place::HOME.to_vec(),
    };
    answer(&app, &caller, &place, (&method, &headers), path, &query).await
}

async fn answer(
    app: &App,
    caller: &Caller,
    place: &Place,
    (method, headers): (&Method, &HeaderMap),
    path: Vec<u8>,
    query: &Query<'_>,
) -> Result<Response, Failure> {
    if let Some(wish) = search::wish(query)? {
        let sandbox = enter(app, caller, place, Making::Read).await?;
        return Ok(Json(search::search(&sandbox, &path, wish).await?).into_response());
    }
    let wish = wish(query)?;
    if query.flag("watch")? {
        for name in ["hidden", LIST_GLOB, "limit", "cursor", "tar"] {
            if query.bytes(name).is_some() {
                return Err(query::bad(name, "does not stand with watch"));
            }
        }
        let sandbox = enter(app, caller, place, Making::Read).await?;
        let watcher = sandbox.file_watch(&path, wish.recursive).await?;
        return Ok(watch::answer(watcher, &path, app.leases.until(caller)));
    }
    let sandbox = enter(app, caller, place, Making::Read).await?;
    match get(&sandbox, place, (method, headers), (&path, query, wish)).await? {
        Got::Bytes(response) => Ok(response),
        Got::List(page, next) => {
            let base = whole(&path);
            let Page { found, unread, .. } = page;
            let view = |one: Found| {
                let why = unread.get(&one.path).map(|why| error::code(*why));
                FileView::below(&base, one).unread(why)
            };
            let views: Vec<_> = found.into_iter().map(view).collect();
            Ok(paged(next, Json(views)))
        }
    }
}

/// What stands under a path.
pub(crate) enum Got {
    /// A file's bytes, a directory's archive, or why they need not be sent.
    Bytes(Response),
    /// A directory's entries, and the `Link` to the next page.
    List(Page, Option<String>),
}

/// Reads a file, or lists a directory as it is wished.
pub(crate) async fn get(
    sandbox: &Sandbox,
    place: &Place,
    (method, headers): (&Method, &HeaderMap),
    (path, query, wish): (&[u8], &Query<'_>, Walk),
) -> Result<Got, Failure> {
    let asked = Asked::of(headers);
    match sandbox.file_fetch(path, asked.span()).await? {
        Opened::File(_) if LIST.iter().any(|name| query.bytes(name).is_some()) => {
            let hint = "leave recursive, hidden, glob, limit, cursor, tar and watch out";
            let message = "this is a file; the query is one for directories";
            Err(Failure::new(StatusCode::BAD_REQUEST, "bad_request", message, hint))
        }
        Opened::File(reader) if asked.holds(&reader.stat) => {
            Ok(Got::Bytes(content::response(*reader, &asked, method)))
        }
        // `If-Range` names what the file was: all of it is needed.
        Opened::File(_) => match sandbox.file_fetch(path, Asked::default().span()).await? {
            Opened::File(reader) => {
                Ok(Got::Bytes(content::response(*reader, &Asked::default(), method)))
            }
            Opened::Directory(_) => Err(Failure::bad("the file became a directory; ask again")),
        },
        Opened::Directory(_) if query.text("tar")? == Some("zstd") => {
            let reader = sandbox.file_pack(path, true).await?;
            Ok(Got::Bytes(content::archive(reader, true, method)))
        }
        Opened::Directory(_) if query.flag("tar")? => {
            let reader = sandbox.file_pack(path, false).await?;
            Ok(Got::Bytes(content::archive(reader, false, method)))
        }
        Opened::Directory(_) => {
            let page = sandbox.file_walk(path, wish).await?;
            let last = page.found.last().filter(|_| page.more);
            let next = last.map(|last| next_link(place, query, &last.path));
            Ok(Got::List(page, next))
        }
    }
}

/// How a directory is to be listed.
pub(crate) fn wish(query: &Query<'_>) -> Result<Walk, Failure> {
    let limit = match query.text("limit")? {
        None => PAGE,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=PAGE_MAX).contains(limit))
            .ok_or_else(|| query::bad("limit", "1 to 10000"))?,
    };
    let bad = || query::bad("cursor", "give back what the Link header of a page said");
    let glob = glob(query)?;
    Ok(Walk {
        recursive: query.flag("recursive")?,
        hidden: query.flag("hidden")?,
        glob,
        after: match query.bytes("cursor") {
            None => None,
            Some(cursor) => Some(URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?),
        },
        max: limit,
    })
}

fn glob(query: &Query<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let glob = query.bytes(LIST_GLOB).map(<[u8]>::to_vec);
    if glob.as_ref().is_some_and(|glob| glob.is_empty() || glob.len() > GLOB_BYTES_MAX) {
        return Err(query::bad(LIST_GLOB, "1 to 1024 bytes"));
    }
    Ok(glob)
}

/// The same call with another cursor.
fn next_link(place: &Place, query: &Query<'_>, last: &[u8]) -> String {
    let mut link = format!("<{}?", place.uri.path());
    let same = place.uri.query().unwrap_or("").split('&').filter(|pair| !pair.is_empty());
    for pair in same.filter(|pair| pair.split('=').next() != Some("cursor")) {
        link.push_str(pair);
        link.push('&');
    }
    if query.bytes("limit").is_none() {
        link.push_str(&format!("limit={PAGE}&"));
    }
    link.push_str(&format!("cursor={}>; rel=\"next\"", URL_SAFE_NO_PAD.encode(last)));
    link
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
    responses((status = 200, body = SavedView, description = "There was one of this name."), (status = 201, body = SavedView), (status = "4XX", body = Failure), (status = 507, body = Failure)))]
async fn write(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    request: Request,
) -> Result<Response, Failure> {
    let uri = request.uri().clone();
    let query = Query::of(&uri, &["mode", "append", "fsync", "untar"])?;
    let how = Save {
        mode: query.text("mode")?.map(|text| mode("?mode", text)).transpose()?,
        append: query.flag("append")?,
        sync: query.flag("fsync")?,
    };
    let path = place.path()?;
    let untar = query.flag("untar")?;
    if untar && how != Save::default() {
        return Err(query::bad("untar", "stands without mode, append and fsync"));
    }
    not_encoded(request.headers())?;
    let sandbox = enter(&app, &caller, &place, Making::Reach).await?;
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

/// Writes the body of a request to a file; what it is then, and whether its name is new.
pub(crate) async fn save(
    sandbox: &Sandbox,
    path: &[u8],
    how: Save,
    request: Request,
) -> Result<(Stat, bool), Failure> {
    not_encoded(request.headers())?;
    if request.headers().contains_key(header::CONTENT_RANGE) {
        return Err(Failure::field("Content-Range", "a file is written whole, or with ?append=1"));
    }
    let mut writer = sandbox.file_save(path, how).await?;
    receive(request.into_body(), &mut writer).await?;
    Ok(writer.save().await?)
}

/// Hands an upload on as it comes. Where it breaks off, the writer is dropped and changes nothing.
pub(crate) async fn receive(mut body: Body, writer: &mut Writer) -> Result<(), Failure> {
    loop {
        let frame = timeout(STILL, body.frame()).await.map_err(|_| {
            let status = StatusCode::REQUEST_TIMEOUT;
            Failure::new(status, "too_late", "the upload stood still for 60 s", "send it again")
        })?;
        match frame {
            None => return Ok(()),
            Some(Err(_)) => return Err(Failure::bad("the upload ended early")),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    writer.write(&bytes).await?;
                }
            }
        }
    }
}

/// Removes a file, a link or a directory.
#[utoipa::path(delete, path = "/files/{*path}", tag = "files",
    params(("id" = String, Path), ("path" = String, Path, description = "Bytes, percent-encoded."),
        ("recursive" = Option<bool>, Query, description = "A directory with all it holds.")),
    responses((status = 204), (status = 404, body = Failure), (status = 409, body = Failure)))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    place: Place,
    uri: Uri,
) -> Result<StatusCode, Failure> {
    let recursive = Query::of(&uri, &["recursive"])?.flag("recursive")?;
    let path = place.path()?;
    let sandbox = enter(&app, &caller, &place, Making::Never).await?;
    sandbox.file_remove(path, recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}
