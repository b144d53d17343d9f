//! A path read: the bytes of a file, the entries of a directory, or its archive.

use crate::{
    foundation::{error::Failure, query::Query},
    routes::files::{
        content::{self, Asked},
        listing::{LIST, next_link},
        place::Place,
    },
};
use axum::{
    http::{HeaderMap, Method, StatusCode},
    response::Response,
};
use isolet_sandbox::{
    Sandbox,
    files::{Opened, Page},
};
use isolet_wire::ask::Walk;

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
