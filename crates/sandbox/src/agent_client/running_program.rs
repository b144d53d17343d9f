//! A program that runs in a session without its shell. The session is busy while it runs, and the
//! end of the session ends it.

use crate::model::{error::Error, ids::SessionId, sessions::Sessions};
use std::sync::Arc;
use tokio::sync::watch;

/// A program runs in a session, for as long as this is held.
pub(crate) struct RunningProgram {
    sessions: Arc<Sessions>,
    session: SessionId,
    /// Nothing is ever sent: the other end is the session's own, and goes with it.
    gone: watch::Receiver<()>,
}

impl RunningProgram {
    /// # Errors
    /// [`Error::NoSession`].
    pub(crate) fn begin(sessions: &Arc<Sessions>, session: &SessionId) -> Result<Self, Error> {
        let gone = sessions.program(session)?;
        Ok(Self { sessions: Arc::clone(sessions), session: session.clone(), gone })
    }

    /// Ends when the session does. Cancel-safe.
    pub(crate) async fn over(&mut self) {
        while self.gone.changed().await.is_ok() {}
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Its end is use of the session.
        self.sessions.touch(&self.session);
    }
}

impl std::fmt::Debug for RunningProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Working").field(&self.session).finish()
    }
}
