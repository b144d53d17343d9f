//! Changes of files as events of E2B.

use crate::dialects::e2b::connect::{Code, RpcError};
use crate::dialects::e2b::filesystem::entry::EntryInfo;
use isolet_wire::response::{FileChange, FileChangeKind};
use serde::Serialize;

/// An event of a watched directory.
#[derive(Debug, Serialize)]
pub(crate) struct FilesystemEvent {
    pub(super) name: String,
    #[serde(rename = "type")]
    kind: EventType,
    /// What the file is now, if the client asked for it and it still exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<EntryInfo>,
}

impl FilesystemEvent {
    /// Whether the file may still exist at this path.
    pub(super) fn has_file(&self) -> bool {
        !matches!(self.kind, EventType::Remove | EventType::Rename)
    }

    /// The memory that the event takes while it waits, in bytes, about.
    pub(super) fn held_bytes(&self) -> usize {
        /// The event itself, twice because lists grow by doubling, and what its allocations cost.
        const EVENT_BYTES: usize = 2 * size_of::<FilesystemEvent>() + 128;
        let entry = self.entry.as_ref().map_or(0, EntryInfo::text_bytes);
        EVENT_BYTES + self.name.len() + entry
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum EventType {
    #[serde(rename = "EVENT_TYPE_CREATE")]
    Create,
    #[serde(rename = "EVENT_TYPE_WRITE")]
    Write,
    #[serde(rename = "EVENT_TYPE_REMOVE")]
    Remove,
    #[serde(rename = "EVENT_TYPE_RENAME")]
    Rename,
    #[serde(rename = "EVENT_TYPE_CHMOD")]
    Chmod,
}

/// What a change means for the client.
pub(super) enum Translated {
    Events(Vec<FilesystemEvent>),
    /// Events were lost, so the client must read the directory again.
    Lost,
    /// The watch ends.
    Gone,
}

/// Translates a change. A new file may have its permissions and its content already.
pub(super) fn translate(change: &FileChange) -> Translated {
    let event = |path: &[u8], kind| FilesystemEvent {
        name: String::from_utf8_lossy(path).into_owned(),
        kind,
        entry: None,
    };
    Translated::Events(match change.kind {
        FileChangeKind::Created if change.directory => vec![event(&change.path, EventType::Create)],
        FileChangeKind::Created => [EventType::Create, EventType::Chmod, EventType::Write]
            .map(|kind| event(&change.path, kind))
            .into(),
        FileChangeKind::Modified => vec![event(&change.path, EventType::Write)],
        FileChangeKind::Deleted => vec![event(&change.path, EventType::Remove)],
        FileChangeKind::Moved => {
            let to = change.to.as_deref().map(|to| event(to, EventType::Create));
            std::iter::once(event(&change.path, EventType::Rename)).chain(to).collect()
        }
        FileChangeKind::Overflow | FileChangeKind::Unwatched => return Translated::Lost,
        FileChangeKind::Gone => return Translated::Gone,
    })
}

/// Changes that the client has not learned of.
pub(super) fn lost() -> RpcError {
    RpcError::new(Code::DataLoss, "there were too many changes; read the directory again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_a_rename_and_a_create() {
        let change = FileChange {
            kind: FileChangeKind::Moved,
            path: b"a".to_vec(),
            to: Some(b"b/c".to_vec()),
            directory: false,
        };
        let Translated::Events(events) = translate(&change) else { panic!("events") };
        assert_eq!(
            serde_json::to_string(&events).unwrap(),
            r#"[{"name":"a","type":"EVENT_TYPE_RENAME"},{"name":"b/c","type":"EVENT_TYPE_CREATE"}]"#
        );
    }
}
