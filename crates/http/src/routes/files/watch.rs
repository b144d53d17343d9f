//! Changes in a directory, as server-sent events.

use crate::auth::cancellation::Cancellation;
use crate::foundation::error::ApiError;
use crate::routes::files::target::whole;
use crate::routes::files::view::text;
use crate::routes::files::watch_filter::WatchFilter;
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream};
use axum::response::Response;
use isolet_sandbox::files::Watcher;
use isolet_wire::response::{FileChange, FileChangeKind};
use serde::Serialize;
use std::ops::ControlFlow;
use utoipa::ToSchema;

/// The data of `watching`, the first event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WatchingEvent {
    /// The number of watched directories.
    directories: u32,
}

/// The data of a change.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeEvent {
    /// The path from the root of the sandbox on; U+FFFD replaces invalid UTF-8.
    path: String,
    /// The exact path in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    /// The new path, of `moved`.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// The exact new path in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_b64: Option<String>,
    /// Whether the path is a directory.
    directory: bool,
}

impl ChangeEvent {
    fn of(base: &[u8], change: &FileChange) -> Self {
        let (path, path_b64) = text(&joined(base, &change.path));
        let (to, to_b64) = change.to.as_ref().map(|to| text(&joined(base, to))).unzip();
        Self { path, path_b64, to, to_b64: to_b64.flatten(), directory: change.directory }
    }
}

/// The changes in a directory.
struct DirectoryEvents {
    watcher: Watcher,
    /// The path of the directory.
    base: Vec<u8>,
    /// The changes that the client receives.
    filter: WatchFilter,
}

/// The response: events until the directory is gone. A slow client fills the kernel's queue and no
/// memory of the server.
pub(super) fn answer(
    watcher: Watcher,
    path: &[u8],
    filter: WatchFilter,
    cancellation: Cancellation,
) -> Response {
    let mut first = EventBuffer::default();
    first.event(None, "watching", &WatchingEvent { directories: watcher.directories });
    let events = DirectoryEvents { watcher, base: whole(path), filter };
    EventStream::new(Some(events), first, cancellation).into_response()
}

impl EventSource for DirectoryEvents {
    /// `None` after the last change.
    type Item = Option<Vec<FileChange>>;

    async fn next(&mut self) -> Result<Self::Item, ApiError> {
        Ok(self.watcher.next().await?)
    }

    fn write(&mut self, changes: Self::Item, out: &mut EventBuffer) -> ControlFlow<()> {
        let Some(changes) = changes else { return ControlFlow::Break(()) };
        let wanted = changes.iter().filter(|change| self.filter.admits(change));
        wanted.for_each(|change| write_change(out, &self.base, change));
        ControlFlow::Continue(())
    }
}

fn write_change(out: &mut EventBuffer, base: &[u8], change: &FileChange) {
    let name = match change.kind {
        FileChangeKind::Created => "created",
        FileChangeKind::Modified => "modified",
        FileChangeKind::Moved => "moved",
        FileChangeKind::Deleted => "deleted",
        FileChangeKind::Overflow => "overflow",
        FileChangeKind::Unwatched => "unwatched",
        FileChangeKind::Gone => "gone",
    };
    out.event(None, name, &ChangeEvent::of(base, change));
}

pub(super) fn joined(base: &[u8], below: &[u8]) -> Vec<u8> {
    match below {
        b"" => base.to_vec(),
        below if base == b"/" => [b"/", below].concat(),
        below => [base, b"/", below].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(base: &[u8], change: &FileChange) -> String {
        let mut out = EventBuffer::default();
        write_change(&mut out, base, change);
        out.as_str().to_owned()
    }

    #[test]
    fn events_keep_their_bytes() {
        let change = |kind, path: &[u8], to: Option<&[u8]>, directory| FileChange {
            kind,
            path: path.to_vec(),
            to: to.map(<[u8]>::to_vec),
            directory,
        };
        assert_eq!(
            event(b"/w", &change(FileChangeKind::Moved, b"a\n\"b", Some(b"\xff"), true)),
            concat!(
                "event: moved\ndata: ",
                r#"{"path":"/w/a\n\"b","to":"/w/�","to_b64":"L3cv/w==","directory":true}"#,
                "\n\n"
            )
        );
        assert_eq!(
            event(b"/", &change(FileChangeKind::Created, b"\xff", None, false)),
            concat!(
                "event: created\ndata: ",
                r#"{"path":"/�","path_b64":"L/8=","directory":false}"#,
                "\n\n"
            )
        );
        assert_eq!(
            event(b"/w", &change(FileChangeKind::Gone, b"", None, true)),
            concat!("event: gone\ndata: ", r#"{"path":"/w","directory":true}"#, "\n\n")
        );
    }
}
