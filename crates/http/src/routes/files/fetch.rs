//! Reads a path: the bytes of a file, the entries of a directory, or its archive.

use crate::foundation::error::ApiError;
use crate::foundation::query::{self, Query};
use crate::routes::files::content::{self, ReadConditions};
use crate::routes::files::listing::{LIST, next_link};
use crate::routes::files::target::FileTarget;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use isolet_sandbox::Sandbox;
use isolet_sandbox::files::{Opened, Page};
use isolet_wire::request::WalkOptions;
use isolet_wire::response::RefusalReason;

pub(crate) enum Fetched {
    /// The response with a file's bytes or a directory's archive.
    Bytes(Response),
    /// The entries of a directory, and the `Link` to the next page.
    List(Page, Option<String>),
}

/// Whether the request is for a file only. Such a request names no option of directories.
fn wants_file(query: &Query<'_>) -> Result<bool, ApiError> {
    match query.text("type")? {
        None => Ok(false),
        Some("file") => match LIST.iter().find(|name| query.bytes(name).is_some()) {
            None => Ok(true),
            Some(name) => Err(query::bad_parameter(name, "cannot be combined with type=file")),
        },
        Some(_) => Err(query::bad_parameter("type", "must be file")),
    }
}

/// Reads a file, or lists a directory as the query asks.
pub(crate) async fn get(
    sandbox: &Sandbox,
    target: &FileTarget,
    method: &Method,
    headers: &HeaderMap,
    path: &[u8],
    query: &Query<'_>,
    wish: WalkOptions,
) -> Result<Fetched, ApiError> {
    let asked = ReadConditions::of(headers);
    let only_file = wants_file(query)?;
    match sandbox.file_fetch(path, asked.span()).await? {
        Opened::File(_) if LIST.iter().any(|name| query.bytes(name).is_some()) => {
            let hint = "omit recursive, hidden, glob, limit, cursor, tar and watch";
            let message = "the path is a file, but the query is for a directory";
            Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message, hint))
        }
        Opened::File(reader) if asked.holds(&reader.stat) => {
            Ok(Fetched::Bytes(content::response(*reader, &asked, method)))
        }
        // `If-Range` names another version, so the whole file is sent.
        Opened::File(_) => {
            match sandbox.file_fetch(path, ReadConditions::default().span()).await? {
                Opened::File(reader) => Ok(Fetched::Bytes(content::response(
                    *reader,
                    &ReadConditions::default(),
                    method,
                ))),
                Opened::Directory(_) => Err(ApiError::bad_request(
                    "the file became a directory; send the request again",
                )),
            }
        }
        Opened::Directory(_) if only_file => {
            let message = "the path is a directory, and the request is for a file (?type=file)";
            Err(ApiError::from_agent(RefusalReason::WrongKind, message))
        }
        Opened::Directory(_) if query.text("tar")? == Some("zstd") => {
            let reader = sandbox.file_pack(path, true).await?;
            Ok(Fetched::Bytes(content::archive(reader, true, method)))
        }
        Opened::Directory(_) if query.flag("tar")? => {
            let reader = sandbox.file_pack(path, false).await?;
            Ok(Fetched::Bytes(content::archive(reader, false, method)))
        }
        Opened::Directory(_) => {
            let page = sandbox.file_walk(path, wish).await?;
            let last = page.found.last().filter(|_| page.more);
            let next = last.map(|last| next_link(target, query, &last.path));
            Ok(Fetched::List(page, next))
        }
    }
}
