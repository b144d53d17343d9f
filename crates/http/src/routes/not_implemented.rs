//! Routes that are known and not implemented. Each one gives its reason, instead of 404.

/// A handler that answers 501 with the reason.
macro_rules! not_implemented {
    ($on:ident, $reason:expr) => {
        $on(|| async { $crate::foundation::error::ApiError::not_implemented($reason) })
    };
}
pub(crate) use not_implemented;
