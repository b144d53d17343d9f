//! Runs blocking file operations outside the threads that serve connections.

use crate::model::error::Error;

/// Runs blocking work on a thread that may block.
pub(crate) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Fault(error.to_string()))
}
