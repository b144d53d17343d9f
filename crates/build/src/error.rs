//! Errors of builds. Why a build itself failed is part of its state instead.

use isolet_sandbox::image;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The tenant has no build with this id. The answer is the same if another tenant has one.
    #[error("no build {0}")]
    NoBuild(String),
    /// The steps of a build were already given.
    #[error("build {0} has already started")]
    Started(String),
    /// A part of the recipe is invalid.
    #[error("{field}: {reason}")]
    BadRecipe {
        /// The part, as in `steps[2]`.
        field: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// A step copies files that were not uploaded, or that the server has removed since.
    #[error("the files {0} are not on this server")]
    NoFiles(String),
    /// The uploaded files are no archive that can be used.
    #[error("the uploaded files cannot be used: {0}")]
    BadFiles(String),
    /// The uploaded files exceed a limit.
    #[error("the uploaded files are too large: {quantity}: more than {limit}")]
    FilesTooLarge {
        /// What is too large.
        quantity: String,
        /// The limit, with its unit.
        limit: String,
    },
    /// The tenant has too many builds that have not ended.
    #[error("too many builds of the tenant have not ended: the limit is {0}")]
    Busy(usize),
    /// The disk of the server failed.
    #[error("cannot read or write the directory of builds: {0}")]
    Disk(String),
    /// An error of the sandbox or of its images.
    #[error(transparent)]
    Sandbox(#[from] isolet_sandbox::Error),
}

impl From<std::io::Error> for Error {
    /// An error of the disk, unless it wraps one of an archive.
    fn from(error: std::io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<image::Error>()) {
            Some(error) => error.clone().into(),
            None => Self::Disk(error.to_string()),
        }
    }
}

impl From<image::Error> for Error {
    /// An error of an uploaded archive, or of the disk that it lies on.
    fn from(error: image::Error) -> Self {
        match error {
            image::Error::TooLarge { quantity, limit } => Self::FilesTooLarge { quantity, limit },
            image::Error::Bad(reason) => {
                Self::BadFiles(format!("no tar archive, plain or compressed with gzip: {reason}"))
            }
            error => Self::Sandbox(error.into()),
        }
    }
}

impl Error {
    pub(crate) fn recipe(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::BadRecipe { field: field.into(), reason: reason.into() }
    }
}
