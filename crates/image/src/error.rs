//! Errors of operations on images. What a client can do about each is added by `isolet-http`.

use crate::reference::BadReference;

/// Why an operation on images failed. Nothing incomplete is left behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a valid image reference.
    #[error(transparent)]
    Reference(#[from] BadReference),
    /// The server has no image of this name, and pulls are disabled.
    #[error("image {0} is not on this server")]
    NotHere(String),
    /// The registry has no such image.
    #[error("registry {registry} has no image {image}: {said}")]
    NotFound {
        /// The requested reference, completed.
        image: String,
        /// Host and port of the registry or mirror.
        registry: String,
        /// Its status and message.
        said: String,
    },
    /// The registry requires credentials, or refuses those of this server.
    #[error("registry {registry} denies access to {image}: {said}")]
    Denied {
        /// The requested reference, completed.
        image: String,
        /// Host and port of the registry or mirror.
        registry: String,
        /// Its status and message.
        said: String,
        /// Whether it refused the credentials (403); otherwise it asked for some (401).
        forbidden: bool,
    },
    /// This server must not contact the registry.
    #[error("registry {registry} is not allowed: {reason}")]
    NotAsked {
        /// Its host and port.
        registry: String,
        /// Why it is not allowed.
        reason: &'static str,
    },
    /// The registry failed, could not be reached, or sent an invalid response.
    #[error("registry {registry}: {said}")]
    Registry {
        /// Its host and port.
        registry: String,
        /// Its message, or what happened to the connection.
        said: String,
    },
    /// A time limit was reached.
    #[error("{operation} took longer than {seconds} s")]
    TooLate {
        /// What took too long.
        operation: &'static str,
        /// The limit, in seconds.
        seconds: u64,
    },
    /// A size or count exceeds its limit.
    #[error("{quantity}: more than {limit}")]
    TooLarge {
        /// What is too large.
        quantity: String,
        /// The limit, with its unit.
        limit: String,
    },
    /// Too many operations of a kind run at once.
    #[error("too many {quantity}: the limit is {limit}")]
    Busy {
        /// The kind, in the plural.
        quantity: &'static str,
        /// How many may run at once.
        limit: usize,
    },
    /// The image is damaged, invalid or not supported.
    #[error("image cannot be used: {0}")]
    Bad(String),
    /// Neither the archive nor the request names the image.
    #[error("neither the archive nor the request names the image")]
    Unnamed,
    /// The host lacks something that the image needs.
    #[error("image cannot be used here: {0}")]
    Lacks(String),
    /// The tenant has as many names for the image as it may have.
    #[error("image {digest} has {limit} names, the most it may have")]
    TooManyNames {
        /// The digest of the image.
        digest: String,
        /// The largest number that is allowed.
        limit: usize,
    },
    /// Sandboxes use the image.
    #[error("image {0} is used by sandboxes")]
    InUse(String),
    /// Another node has the image, and it could not be copied from there.
    #[error("image {image} is on node \"{node}\", and could not be copied from there: {reason}")]
    NotCopied {
        /// The requested reference, completed.
        image: String,
        /// The name of the node.
        node: String,
        /// Why.
        reason: String,
    },
    /// A layer is missing on the disk.
    #[error("a layer of image {image} is missing on this server's disk: {layer}")]
    LayerGone {
        /// The image's complete reference.
        image: String,
        /// The layer's path below the image directory.
        layer: String,
    },
    /// A layer of an image that has its name from the tenant is missing on the disk. It is not
    /// pulled: a registry may have a different image of this name.
    #[error(
        "a layer of image {image} is missing on this server's disk, and its name is not from a registry: {layer}"
    )]
    ImportGone {
        /// The image's complete reference.
        image: String,
        /// The layer's path below the image directory.
        layer: String,
    },
    /// The layers of the tenant's images have reached its quota.
    #[error(
        "images of the tenant: {used_mib} MiB are used, and the image does not fit into the quota of {quota_mib} MiB"
    )]
    QuotaExceeded {
        /// The unpacked size of the tenant's layers, in MiB.
        used_mib: u64,
        /// The quota, in MiB.
        quota_mib: u64,
    },
    /// The server's disk has less free space than the configured minimum.
    #[error("the server's disk has too little free space for the image")]
    Full,
    /// The server's disk failed.
    #[error("cannot read or write the image directory: {0}")]
    Disk(String),
}

impl Error {
    pub(crate) fn bad(reason: impl Into<String>) -> Self {
        Self::Bad(reason.into())
    }

    pub(crate) fn large(quantity: impl Into<String>, limit: impl Into<String>) -> Self {
        Self::TooLarge { quantity: quantity.into(), limit: limit.into() }
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
