//! The progress of a push or a pull.

use tokio::sync::watch;

/// The progress of a push or a pull.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// What the transfer does now.
    pub phase: Phase,
    /// Data of files that was read or written, in bytes.
    pub done: u64,
    /// All data of the files, in bytes.
    pub total: u64,
    /// What was sent to the store or received from it, in bytes.
    pub transferred: u64,
}

/// The phases of a transfer, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Reads the indexes of the store.
    #[default]
    Preparing,
    /// Reads files and sends what the store lacks, or fetches and writes files.
    Transferring,
    /// Records the snapshot.
    Finishing,
}

impl Phase {
    /// The name of the phase in the API.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Transferring => "transferring",
            Self::Finishing => "finishing",
        }
    }
}

/// Where a transfer reports its progress.
pub(crate) type ProgressSender = watch::Sender<Progress>;
