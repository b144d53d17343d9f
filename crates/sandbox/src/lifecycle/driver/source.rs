//! Where a new sandbox comes from.

use crate::live::snapshots::PinnedSnapshot;
use crate::model::ids::SessionId;
use crate::model::record::image_sessions::ImageSessions;

/// Where a new sandbox comes from.
pub(crate) enum Source {
    /// It is created empty.
    Empty,
    /// It was taken from the warm pool and runs already.
    WarmPool,
    /// It is created empty, with the sessions of its image.
    Image(ImageSessions),
    /// It starts with the files and sessions of a snapshot.
    Snapshot(PinnedSnapshot),
}

impl Source {
    /// Ids and records of the sessions that the sandbox starts with.
    pub(crate) fn sessions(&self) -> Vec<(SessionId, String)> {
        match self {
            Self::Empty | Self::WarmPool => Vec::new(),
            Self::Image(from) => from.records.clone(),
            Self::Snapshot(from) => from.sessions(),
        }
    }
}
