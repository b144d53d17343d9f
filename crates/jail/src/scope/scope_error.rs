//! Why the agent of a scope did not start.

use crate::child::StepError;
use rustix::io::Errno;

/// Why the agent of a scope did not start. Nothing of the scope is left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// A granted path cannot be granted.
    #[error("grant {index}: {errno}")]
    Grant {
        /// The index of the grant in the request.
        index: usize,
        /// Why opening the path failed.
        errno: Errno,
    },
    /// A step in the launcher or in a child failed.
    #[error(transparent)]
    Step(#[from] StepError),
}
