//! A program that runs in a session without the session's shell. The session is busy while the
//! program runs, and deleting the session ends the program.

use crate::model::error::Error;
use crate::model::ids::SessionId;
use crate::model::sessions::Sessions;
use std::sync::Arc;
use tokio::sync::watch;

/// Marks a program as running in a session until it is dropped.
pub(crate) struct RunningProgram {
    sessions: Arc<Sessions>,
    session: SessionId,
    /// The sender never sends. The session owns it, so it closes with the session.
    gone: watch::Receiver<()>,
}

impl RunningProgram {
    /// Marks a program as running in a session.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub(crate) fn begin(sessions: &Arc<Sessions>, session: &SessionId) -> Result<Self, Error> {
        let gone = sessions.program(session)?;
        Ok(Self { sessions: Arc::clone(sessions), session: session.clone(), gone })
    }

    /// Resolves when the session ends. Cancel-safe.
    pub(crate) async fn over(&mut self) {
        while self.gone.changed().await.is_ok() {}
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // The end of a program counts as use of the session.
        self.sessions.touch(&self.session);
    }
}

impl std::fmt::Debug for RunningProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Working").field(&self.session).finish()
    }
}
