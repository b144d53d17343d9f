//! Reports about a backup or a restore while it runs.

use serde::Serialize;

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The work begins. `bytes` is an estimate of the data that must be read.
    Started {
        /// Bytes to read.
        bytes: u64,
        /// Number of sandboxes.
        sandboxes: usize,
    },
    /// A sandbox is copied, and runs again.
    Sandbox {
        /// The tenant that it belongs to.
        tenant: String,
        /// Its id.
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
        /// Its id.
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
        /// The sentence.
        text: String,
    },
}

/// Receives the reports.
pub trait Progress {
    /// Something has happened.
    fn event(&self, event: &Event);

    /// More data was read, in bytes.
    fn bytes(&self, count: u64);
}
