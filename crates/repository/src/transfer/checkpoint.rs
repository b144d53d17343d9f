//! Points of a transfer at which a test makes the server fail.

use crate::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What a checkpoint does.
type Passed = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Called at named points of a transfer. An error ends the transfer.
#[derive(Clone)]
pub struct Checkpoint(Arc<dyn Fn(&'static str) -> Passed + Send + Sync>);

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checkpoint")
    }
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self::new(|_| async { Ok(()) })
    }
}

impl Checkpoint {
    /// Calls this at each point: `push.packed`, `push.indexed`, `push.uploaded`, `push.recorded`,
    /// `pull.begun` and `pull.extracted`.
    pub fn new<F>(pass: impl Fn(&'static str) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self(Arc::new(move |name| Box::pin(pass(name))))
    }

    pub(crate) async fn pass(&self, name: &'static str) -> Result<(), Error> {
        (self.0)(name).await.map_err(Error::Fault)
    }
}
