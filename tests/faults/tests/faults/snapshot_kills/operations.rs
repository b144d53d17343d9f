//! The operations during which processes are killed.

/// Everything that copies, uses or deletes a sandbox or a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Change,
    Snapshot,
    SnapshotAsleep,
    Create,
    Fork,
    Restore,
    Image,
    Destroy,
    DeleteSnapshot,
    DeleteCopies,
    Pause,
}

impl Operation {
    /// In an order in which each finds what it needs.
    pub(crate) const ALL: [Self; 11] = [
        Self::Change,
        Self::Snapshot,
        Self::Create,
        Self::Fork,
        Self::SnapshotAsleep,
        Self::Restore,
        Self::Image,
        Self::Pause,
        Self::Destroy,
        Self::DeleteSnapshot,
        Self::DeleteCopies,
    ];
}
