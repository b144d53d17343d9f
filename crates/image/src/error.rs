//! Why an operation on images failed: one variant per cause, with what a client needs to know.

use crate::reference::BadReference;

/// Why an operation on images failed. Nothing incomplete is left behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text names no image.
    #[error(transparent)]
    Reference(#[from] BadReference),
    /// No image of this name is here, and none may be pulled.
    #[error("image {0} is not here")]
    NotHere(String),
    /// The registry has no such image.
    #[error("no image {image}: {registry} says {said}")]
    NotFound {
        /// The reference.
        image: String,
        /// Who was asked.
        registry: String,
        /// Its answer.
        said: String,
    },
    /// The registry requires credentials, or refuses those of this server.
    #[error("{registry} does not give {image}: {said}")]
    Denied {
        /// The reference.
        image: String,
        /// Who was asked.
        registry: String,
        /// Its answer.
        said: String,
        /// It refused an identity (403), rather than asking for one (401).
        forbidden: bool,
    },
    /// The registry is not one that this server asks.
    #[error("registry {registry} is not asked: {reason}")]
    NotAsked {
        /// Its host and port.
        registry: String,
        /// Why not.
        reason: &'static str,
    },
    /// The registry failed, could not be reached, or said what is not so.
    #[error("registry {registry}: {said}")]
    Registry {
        /// Its host and port.
        registry: String,
        /// What it said, or what became of the connection.
        said: String,
    },
    /// A limit on time was reached.
    #[error("{what} took longer than {seconds} s")]
    TooLate {
        /// What was waited for.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// A limit on size was reached.
    #[error("{what}: more than {limit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit, with its unit.
        limit: String,
    },
    /// Too much of a kind is under way.
    #[error("{what}: {limit} are under way, which is the limit")]
    Busy {
        /// What is under way.
        what: &'static str,
        /// How many may be.
        limit: usize,
    },
    /// What came is no image that can be used.
    #[error("image cannot be used: {0}")]
    Bad(String),
    /// An archive says no name, and none was given.
    #[error("the archive brings no name for its image, and the call gives none")]
    Unnamed,
    /// This machine lacks something that the image needs.
    #[error("image cannot be used here: {0}")]
    Lacks(String),
    /// Sandboxes are made of it.
    #[error("sandboxes are made of image {0}")]
    InUse(String),
    /// A layer that was unpacked is not there any more.
    #[error("a layer of image {image} is gone from this server's disk: {layer}")]
    LayerGone {
        /// Which image.
        image: String,
        /// Which of its layers, by its place below the image directory.
        layer: String,
    },
    /// The same, of an image that came with an archive: no registry is asked for it.
    #[error("a layer of imported image {image} is gone from this server's disk: {layer}")]
    ImportGone {
        /// Which image.
        image: String,
        /// Which of its layers, by its place below the image directory.
        layer: String,
    },
    /// The server's disk is full, or nearly.
    #[error("the server's disk has too little space for the image")]
    Full,
    /// The server's disk failed.
    #[error("images on disk: {0}")]
    Disk(String),
}

impl Error {
    pub(crate) fn bad(reason: impl Into<String>) -> Self {
        Self::Bad(reason.into())
    }

    pub(crate) fn large(what: impl Into<String>, limit: impl Into<String>) -> Self {
        Self::TooLarge { what: what.into(), limit: limit.into() }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            // ENOSPC and EDQUOT.
            Some(28 | 122) => Self::Full,
            _ => Self::Disk(error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        std::io::Error::from(errno).into()
    }
}
