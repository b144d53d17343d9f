//! Reports about a backup or a restore while it runs.

use serde::Serialize;

/// What has happened while a backup is written, read or restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProgressEvent {
    /// The work begins. `bytes` is an estimate of the data that must be read.
    Started {
        /// How many bytes will be read.
        bytes: u64,
        /// How many sandboxes there are.
        sandboxes: usize,
    },
    /// A sandbox is copied, and runs again.
    Sandbox {
        /// The tenant that it belongs to.
        tenant: String,
        /// The id of the sandbox.
        id: String,
        /// Bytes of its files.
        bytes: u64,
        /// How long its processes were frozen, in ms; `None`: none ran.
        frozen_ms: Option<u64>,
    },
    /// A sandbox is not part of the backup.
    LeftOut {
        /// The tenant that it belongs to.
        tenant: String,
        /// The id of the sandbox.
        id: String,
        /// Why it is missing.
        reason: String,
    },
    /// A file of the backup is written, verified or restored.
    File {
        /// The file, below the backup.
        path: String,
        /// Its size, in bytes.
        bytes: u64,
    },
    /// Something that the operator must know or do.
    Note {
        /// The sentence, for a person.
        text: String,
    },
}

/// Receives what happens, on the thread that does the work.
pub trait Progress {
    /// Is called for each event, in order.
    fn event(&self, event: &ProgressEvent);

    /// More data was read, in bytes.
    fn bytes(&self, count: u64);
}
