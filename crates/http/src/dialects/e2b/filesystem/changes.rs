//! Changes of files as events of E2B.

use crate::dialects::e2b::connect::{Code, RpcError};
use isolet_wire::response::{FileChange, FileChangeKind};
use serde::Serialize;

/// An event of a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FilesystemEvent {
    name: String,
    #[serde(rename = "type")]
    kind: EventType,
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
}

/// What a change means for the client.
pub(super) enum Translated {
    Events(Vec<FilesystemEvent>),
    /// Events were lost, so the client must read the directory again.
    Lost,
    /// The watch ends.
    Gone,
}

/// Translates a change. A new file may have its content already, so it is also a write.
pub(super) fn translate(change: &FileChange) -> Translated {
    let event = |path: &[u8], kind| FilesystemEvent {
        name: String::from_utf8_lossy(path).into_owned(),
        kind,
    };
    Translated::Events(match change.kind {
        FileChangeKind::Created if change.directory => vec![event(&change.path, EventType::Create)],
        FileChangeKind::Created => {
            vec![event(&change.path, EventType::Create), event(&change.path, EventType::Write)]
        }
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
