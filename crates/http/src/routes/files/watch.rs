//! Changes in a directory, as server-sent events.

use crate::{
    auth::cancellation::Cancellation,
    foundation::{error::ApiError, json_text::write_json_string},
    routes::files::{target::whole, view::text},
    stream::sse,
};
use axum::{body::Bytes, response::Response};
use futures_util::stream;
use isolet_sandbox::files::Watcher;
use isolet_wire::response::{Change, Happened};
use std::convert::Infallible;
use tokio::time::timeout;

/// A client that watches a directory.
struct DirectoryEvents {
    watcher: Watcher,
    base: Vec<u8>,
    cancellation: Cancellation,
    over: bool,
}

/// The response: events until the directory is gone. Called for more only when the client has read
/// the previous events, so that a slow client fills the kernel's queue and no memory of the server.
pub(super) fn answer(watcher: Watcher, path: &[u8], cancellation: Cancellation) -> Response {
    let first = format!("event: watching\ndata: {{\"directories\":{}}}\n\n", watcher.directories);
    let follower = DirectoryEvents { watcher, base: whole(path), cancellation, over: false };
    let events = stream::unfold((follower, first), |(mut follower, first)| async move {
        let chunk = if first.is_empty() { follower.next_chunk().await? } else { first };
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), (follower, String::new())))
    });
    sse::response(events)
}

impl DirectoryEvents {
    async fn next_chunk(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        let found = tokio::select! {
            biased;
            reason = self.cancellation.cancelled() => Err(reason.into()),
            found = timeout(sse::KEEP_ALIVE, self.watcher.next()) => match found {
                Err(_) => return Some(": alive\n\n".to_owned()),
                Ok(found) => found.map_err(ApiError::from),
            },
        };
        match found {
            Ok(Some(changes)) => {
                Some(changes.iter().map(|change| event(&self.base, change)).collect())
            }
            Ok(None) => None,
            Err(failure) => {
                self.over = true;
                let text = serde_json::to_string(&failure).unwrap_or_default();
                Some(format!("event: error\ndata: {text}\n\n"))
            }
        }
    }
}

fn event(base: &[u8], change: &Change) -> String {
    let name = match change.what {
        Happened::Created => "created",
        Happened::Modified => "modified",
        Happened::Moved => "moved",
        Happened::Deleted => "deleted",
        Happened::Overflow => "overflow",
        Happened::Unwatched => "unwatched",
        Happened::Gone => "gone",
    };
    let mut data = b"{".to_vec();
    named(&mut data, "path", base, &change.path);
    if let Some(to) = &change.to {
        data.push(b',');
        named(&mut data, "to", base, to);
    }
    let data = String::from_utf8(data).unwrap_or_default();
    format!("event: {name}\ndata: {data},\"directory\":{}}}\n\n", change.directory)
}

/// Writes a path as a JSON field, and its exact bytes as another field if it is not UTF-8.
fn named(out: &mut Vec<u8>, name: &str, base: &[u8], below: &[u8]) {
    let path = match below {
        b"" => base.to_vec(),
        below if base == b"/" => [b"/", below].concat(),
        below => [base, b"/", below].concat(),
    };
    let (readable, exact) = text(&path);
    out.extend_from_slice(format!("\"{name}\":").as_bytes());
    write_json_string(out, &readable);
    if let Some(exact) = exact {
        out.extend_from_slice(format!(",\"{name}_b64\":\"{exact}\"").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_their_bytes() {
        let change = |what, path: &[u8], to: Option<&[u8]>, directory| Change {
            what,
            path: path.to_vec(),
            to: to.map(<[u8]>::to_vec),
            directory,
        };
        assert_eq!(
            event(b"/w", &change(Happened::Moved, b"a\n\"b", Some(b"\xff"), true)),
            concat!(
                "event: moved\ndata: ",
                r#"{"path":"/w/a\n\"b","to":"/w/�","to_b64":"L3cv/w==","directory":true}"#,
                "\n\n"
            )
        );
        assert_eq!(
            event(b"/", &change(Happened::Created, b"\xff", None, false)),
            concat!(
                "event: created\ndata: ",
                r#"{"path":"/�","path_b64":"L/8=","directory":false}"#,
                "\n\n"
            )
        );
        assert_eq!(
            event(b"/w", &change(Happened::Gone, b"", None, true)),
            concat!("event: gone\ndata: ", r#"{"path":"/w","directory":true}"#, "\n\n")
        );
    }

    #[test]
    fn an_event_is_one_line_of_json_with_exact_paths() {
        let change = Change {
            what: Happened::Moved,
            path: b"a\n\"b".to_vec(),
            to: Some(b"\xff".to_vec()),
            directory: true,
        };
        let told = event(b"/workspace", &change);
        let data = told.strip_prefix("event: moved\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
        let json: serde_json::Value = serde_json::from_str(data).unwrap();
        assert!(!data.contains('\n'));
        assert_eq!(json["path"], "/workspace/a\n\"b");
        assert_eq!(json["to_b64"], "L3dvcmtzcGFjZS//");
        assert_eq!(json["directory"], true);
    }
}
