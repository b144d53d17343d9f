//! Runs file operations outside the threads that serve connections.

use crate::model::error::Error;

/// File work, on the threads that may block.
pub(crate) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Fault(error.to_string()))
}
