//! Records of sandboxes and sessions.

use super::Store;
use super::answers::insert_answer;
use crate::error::Error;
use crate::rows::{SandboxRow, SessionRow, StoredAnswer};
use rusqlite::params;

impl Store {
    /// All sandboxes, and the errors of rows that cannot be read. Sandboxes whose removal waits for space
    /// have the state `destroying`.
    ///
    /// # Errors
    /// [`Error`] when the table cannot be read.
    pub async fn sandboxes(&self) -> Result<(Vec<SandboxRow>, Vec<String>), Error> {
        self.read(|records| {
            let mut query = records
                .connection
                .prepare("SELECT name, tenant, id, slot, state, body FROM sandboxes")?;
            let mut good = Vec::new();
            let mut bad = Vec::new();
            let rows = query.query_map([], |row| {
                Ok(SandboxRow {
                    name: row.get(0)?,
                    tenant: row.get(1)?,
                    id: row.get(2)?,
                    slot: row.get(3)?,
                    state: row.get(4)?,
                    body: row.get(5)?,
                })
            })?;
            for row in rows {
                row.map_or_else(
                    |error| bad.push(error.to_string()),
                    |row| good.push(records.with_removals_applied(row)),
                );
            }
            Ok((good, bad))
        })
        .await
    }

    /// All sessions, and the errors of rows that cannot be read; without sessions whose removal waits for
    /// space.
    ///
    /// # Errors
    /// [`Error`] when the table cannot be read.
    pub async fn sessions(&self) -> Result<(Vec<SessionRow>, Vec<String>), Error> {
        self.read(|records| {
            let mut query = records.connection.prepare("SELECT sandbox, id, body FROM sessions")?;
            let mut good = Vec::new();
            let mut bad = Vec::new();
            let rows = query.query_map([], |row| {
                Ok(SessionRow { sandbox: row.get(0)?, id: row.get(1)?, body: row.get(2)? })
            })?;
            for row in rows {
                row.map_or_else(|error| bad.push(error.to_string()), |row| good.push(row));
            }
            good.retain(|row: &SessionRow| !records.session_is_removed(&row.sandbox, &row.id));
            Ok((good, bad))
        })
        .await
    }

    /// Records a new sandbox.
    ///
    /// # Errors
    /// [`Error::Exists`] when its name, slot or (tenant, id) is taken.
    pub async fn insert(&self, sandbox: SandboxRow) -> Result<(), Error> {
        self.write(move |connection| {
            let s = &sandbox;
            connection
                .prepare_cached("INSERT INTO sandboxes VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![s.name, s.tenant, s.id, s.slot, s.state, s.body])?;
            Ok(())
        })
        .await
    }

    /// Changes a sandbox's state and body, and stores the response of an idempotency key in the same
    /// transaction.
    ///
    /// # Errors
    /// [`Error`]; neither is changed then.
    pub async fn update(
        &self,
        name: &str,
        state: &str,
        body: String,
        answer: Option<StoredAnswer>,
    ) -> Result<(), Error> {
        let name = name.to_owned();
        let state = state.to_owned();
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            let changed = transaction
                .prepare_cached("UPDATE sandboxes SET state = ?2, body = ?3 WHERE name = ?1")?
                .execute(params![name, state, body])?;
            if changed == 0 {
                return Err(Error::Bad("there is no record of that name"));
            }
            if let Some(answer) = &answer {
                insert_answer(&transaction, answer)?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Records a new session, and stores the response of an idempotency key in the same transaction.
    ///
    /// # Errors
    /// [`Error::Exists`] if the id is taken or the sandbox does not exist; neither is changed then.
    pub async fn insert_session(
        &self,
        session: SessionRow,
        answer: Option<StoredAnswer>,
    ) -> Result<(), Error> {
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            transaction
                .prepare_cached("INSERT INTO sessions VALUES (?1, ?2, ?3)")?
                .execute(params![session.sandbox, session.id, session.body])?;
            if let Some(answer) = &answer {
                insert_answer(&transaction, answer)?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Changes a sandbox's state and body and replaces all its sessions, and stores the response of an
    /// idempotency key in the same transaction.
    ///
    /// # Errors
    /// [`Error`]; nothing is changed then.
    pub async fn replace_sessions(
        &self,
        sandbox: SandboxRow,
        sessions: Vec<SessionRow>,
        answer: Option<StoredAnswer>,
    ) -> Result<(), Error> {
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            let changed = transaction
                .prepare_cached("UPDATE sandboxes SET state = ?2, body = ?3 WHERE name = ?1")?
                .execute(params![sandbox.name, sandbox.state, sandbox.body])?;
            if changed == 0 {
                return Err(Error::Bad("there is no record of that name"));
            }
            transaction
                .prepare_cached("DELETE FROM sessions WHERE sandbox = ?1")?
                .execute([&sandbox.name])?;
            for s in &sessions {
                transaction
                    .prepare_cached("INSERT INTO sessions VALUES (?1, ?2, ?3)")?
                    .execute(params![s.sandbox, s.id, s.body])?;
            }
            if let Some(answer) = &answer {
                insert_answer(&transaction, answer)?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Records a session, in place of the record that it may have.
    ///
    /// # Errors
    /// An error of SQLite; nothing is changed.
    pub async fn put_session(&self, session: SessionRow) -> Result<(), Error> {
        self.write(move |connection| {
            connection
                .prepare_cached(
                    "INSERT INTO sessions VALUES (?1, ?2, ?3)
                     ON CONFLICT (sandbox, id) DO UPDATE SET body = excluded.body",
                )?
                .execute(params![session.sandbox, session.id, session.body])?;
            Ok(())
        })
        .await
    }

    /// Updates the bodies of existing sessions.
    ///
    /// # Errors
    /// [`Error`]; none is changed then.
    pub async fn update_sessions(&self, sessions: Vec<SessionRow>) -> Result<(), Error> {
        self.write(move |connection| {
            let transaction = connection.transaction()?;
            for s in &sessions {
                transaction
                    .prepare_cached("UPDATE sessions SET body = ?3 WHERE sandbox = ?1 AND id = ?2")?
                    .execute(params![s.sandbox, s.id, s.body])?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }
}
