//! Lists, creates and deletes the sessions of a sandbox.

use crate::live::idempotency::row;
use crate::model::error::Error;
use crate::model::events::EventKind;
use crate::model::ids::SessionId;
use crate::model::info::{IdempotencyKey, SessionInfo, SessionPatch, SessionSpec};
use crate::model::sessions::{Session, Sessions};
use crate::sandbox::Sandbox;
use isolet_store::SessionRow;
use serde::{Deserialize, Serialize};

/// A new session in the stored answer of an idempotency key.
#[derive(Serialize, Deserialize)]
struct NewSession {
    #[serde(flatten)]
    info: SessionInfo,
    /// The internal name of the sandbox.
    incarnation: String,
}

/// Whether a stored answer counts for this sandbox: one about an earlier sandbox with the same id does
/// not. The answer of another call counts, so that its key is refused for this one.
fn made_in(answer: &str, name: &str) -> bool {
    let made = serde_json::from_str::<NewSession>(answer).ok();
    made.is_none_or(|made| made.incarnation == name)
}

impl Sandbox {
    /// All sessions, sorted by id, including `default`.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.entry.sessions.list()
    }

    /// The description of one session.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn session(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        self.entry.sessions.info(id)
    }

    /// The description of one session, which is created with default settings if it does not exist.
    ///
    /// # Errors
    /// [`Error::TooManySessions`], and errors of the store.
    pub async fn session_reach(&self, id: &SessionId) -> Result<SessionInfo, Error> {
        self.session_of(id).await?;
        self.entry.sessions.info(id)
    }

    /// The settings for a session's shell. Creates the session if necessary, and waits for a
    /// deletion in progress.
    pub(crate) async fn session_of(&self, id: &SessionId) -> Result<Session, Error> {
        if let Some(session) = self.entry.sessions.touch(id) {
            return Ok(session);
        }
        let _turn = self.entry.sessions.turn.lock().await;
        if let Some(session) = self.entry.sessions.touch(id) {
            return Ok(session);
        }
        self.check()?;
        if id.is_short() {
            // The session has ended. Creating it here would give another session without its scope
            // and lifetime.
            return Err(Error::NoSession { id: self.entry.id.clone(), session: id.clone() });
        }
        self.insert(id, Sessions::plain(&self.start_dir()), None).await
    }

    /// Requires the lock `turn`.
    async fn insert(
        &self,
        id: &SessionId,
        session: Session,
        once: Option<&IdempotencyKey>,
    ) -> Result<Session, Error> {
        self.entry.sessions.free(id)?;
        let Some(access) = &session.file_access else {
            return self.record(id, session, once).await;
        };
        self.new_scope(id, access.grants(id)?).await?;
        let recorded = self.record(id, session, once).await;
        if recorded.is_err() {
            self.entry.end_scope(&self.inner, id).await?;
        }
        recorded
    }

    async fn record(
        &self,
        id: &SessionId,
        session: Session,
        once: Option<&IdempotencyKey>,
    ) -> Result<Session, Error> {
        let answer = match once {
            Some(once) => Some(row(&self.entry.tenant, once, self.text(id, &session)?)),
            None => None,
        };
        let record = self.row_of(id, &session)?;
        self.inner.store.insert_session(record, answer).await?;
        self.entry.sessions.insert(id.clone(), session.clone());
        self.emit(EventKind::SessionCreated(id.clone()));
        Ok(session)
    }

    fn text(&self, id: &SessionId, session: &Session) -> Result<String, Error> {
        let info = session.info(id, &self.entry.id);
        let made = NewSession { info, incarnation: self.entry.name.clone() };
        serde_json::to_string(&made).map_err(|error| Error::Fault(error.to_string()))
    }

    /// Creates a session. Returns its description, and `true` if the same idempotency key had
    /// created it before.
    ///
    /// # Errors
    /// [`Error::SessionExists`], [`Error::OtherBody`], [`Error::TooManySessions`],
    /// [`Error::BadField`].
    pub async fn session_create(
        &self,
        spec: SessionSpec,
        once: Option<IdempotencyKey>,
    ) -> Result<(SessionInfo, bool), Error> {
        let id = spec.id.clone().unwrap_or_else(SessionId::random);
        // The paths that a scope may write are created when its agent starts.
        let named = spec.cwd.is_some() && spec.file_access.is_none();
        let session = Session::plan(spec, self.start_dir())?;
        let own = self.clone();
        let key = once.clone();
        let work = async move {
            if named {
                own.check_directory(&session.cwd).await?;
            }
            let _turn = own.entry.sessions.turn.lock().await;
            own.check()?;
            let session = own.insert(&id, session, key.as_ref()).await?;
            own.text(&id, &session)
        };
        let (text, replayed) = match &once {
            Some(once) => {
                let inner = &self.inner;
                let name = self.entry.name.clone();
                let own = move |answer: &str| made_in(answer, &name);
                inner.idempotency.run_in(&inner.store, &self.entry.tenant, once, own, work).await?
            }
            // Runs as a task of its own, so that a caller that disconnects leaves nothing
            // unfinished.
            None => {
                (tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))??, false)
            }
        };
        Ok((serde_json::from_str(&text).map_err(|_| Error::OtherBody)?, replayed))
    }

    /// Changes a session. Programs, processes, terminals and shells that start later have the new
    /// environment; an open shell keeps its variables.
    ///
    /// # Errors
    /// [`Error::NoSession`], [`Error::BadField`], and errors of the store.
    pub async fn session_change(
        &self,
        id: &SessionId,
        patch: SessionPatch,
    ) -> Result<SessionInfo, Error> {
        let own = self.clone();
        let id = id.clone();
        let work = async move {
            let _turn = own.entry.sessions.turn.lock().await;
            own.check()?;
            let new = own.entry.sessions.recorded(&id)?.patched(patch)?;
            own.inner.store.put_session(own.row_of(&id, &new)?).await?;
            own.entry.sessions.change(&id, &new);
            own.entry.sessions.info(&id)
        };
        tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))?
    }

    fn row_of(&self, id: &SessionId, session: &Session) -> Result<SessionRow, Error> {
        let body = session.json()?;
        Ok(SessionRow { sandbox: self.entry.name.clone(), id: id.to_string(), body })
    }

    /// Deletes a session with its shell and its terminal.
    ///
    /// # Errors
    /// [`Error::DefaultSession`], [`Error::NoSession`].
    pub async fn session_delete(&self, id: &SessionId) -> Result<(), Error> {
        if id.is_default() {
            return Err(Error::DefaultSession);
        }
        let own = self.clone();
        let id = id.clone();
        let work = async move {
            let _turn = own.entry.sessions.turn.lock().await;
            let known = own.entry.sessions.info(&id)?;
            own.inner.store.remove_session(&own.entry.name, id.as_str()).await?;
            // From here on the session is unknown. A call that names it again waits for the lock,
            // and so for the end of its shell.
            own.entry.sessions.end(&known.id).await;
            own.emit(EventKind::SessionDeleted(id.clone()));
            own.entry.pool_of(&id).drop_links(Some(&id));
            own.entry.shell_states.forget(&id).await;
            if known.file_access.is_some() {
                own.entry.process_records.forget_scope(&id).await;
                return own.entry.end_scope(&own.inner, &id).await;
            }
            own.close_session(&id).await
        };
        tokio::spawn(work).await.map_err(|error| Error::Fault(error.to_string()))?
    }
}
