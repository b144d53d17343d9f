//! Sessions of SWE-ReX, each of which is a session of the sandbox.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::swerex::error::SwerexError;
use crate::dialects::swerex::run::{self, Finished};
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::json::{SmallJson, StrictJson};
use crate::stream::command::ShellCommand;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use isolet_sandbox::service::Access;
use isolet_sandbox::{CommandText, Sandbox, SessionId, SessionSpec, State as Stands};
use serde::{Deserialize, Serialize};

/// What the ids of these sessions begin with. Their names are those of the client, which closes all
/// of them at its end, and no others.
const PREFIX: &str = "swerex.";
/// How many files a new session may source.
const SOURCES_MAX: usize = 100;

/// Whether the sandbox can be used.
#[derive(Debug, Serialize)]
pub(super) struct Alive {
    is_alive: bool,
    message: String,
}

/// A session to create.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct CreateSession {
    startup_source: Vec<String>,
    session: String,
    startup_timeout: f64,
}

impl Default for CreateSession {
    fn default() -> Self {
        Self { startup_source: Vec::new(), session: "default".to_owned(), startup_timeout: 1.0 }
    }
}

/// A session to close.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct CloseSession {
    session: String,
}

impl Default for CloseSession {
    fn default() -> Self {
        Self { session: "default".to_owned() }
    }
}

/// The answer for a closed session.
#[derive(Debug, Serialize)]
pub(super) struct ClosedSession {
    session_type: &'static str,
}

/// The answer of a call that returns nothing.
#[derive(Debug, Serialize)]
pub(super) struct Nothing {}

/// The id of a session that the client has named.
pub(super) fn session_id(name: &str) -> Result<SessionId, SwerexError> {
    SessionId::parse(&format!("{PREFIX}{name}")).map_err(|_| {
        let reason = "must consist of at most 121 letters, digits, dots, underscores and hyphens";
        ApiError::bad_field("session", reason).into()
    })
}

/// Refuses a session that was not created.
pub(super) fn existing(sandbox: &Sandbox, name: &str) -> Result<SessionId, SwerexError> {
    let id = session_id(name)?;
    match sandbox.session(&id) {
        Ok(_) => Ok(id),
        Err(isolet_sandbox::Error::NoSession { .. }) => {
            let class_path = "swerex.exceptions.SessionDoesNotExistError";
            Err(SwerexError::raise(class_path, format!("session '{name}' does not exist")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Reports whether the next call can use the sandbox. Neither wakes nor resumes it.
pub(super) async fn is_alive(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Alive>, SwerexError> {
    let info = app.service.get(&caller.tenant, &ids.sandbox).await?;
    let is_alive = match info.state {
        Stands::Running | Stands::Creating | Stands::Sleeping => true,
        Stands::Paused => info.auto_resume,
        _ => false,
    };
    let message = match is_alive {
        true => String::new(),
        false => format!("sandbox \"{}\" cannot be used in its present state", ids.sandbox),
    };
    Ok(Json(Alive { is_alive, message }))
}

/// Creates a session and sources files in its shell.
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: StrictJson<CreateSession>,
) -> Result<Response, SwerexError> {
    let wish = body.value;
    let id = session_id(&wish.session)?;
    if wish.startup_source.len() > SOURCES_MAX {
        return Err(ApiError::bad_field("startup_source", "must have at most 100 files").into());
    }
    let sources = wish.startup_source.iter().map(|path| format!("source {path}"));
    let text = CommandText::parse(sources.collect::<Vec<_>>().join(" ; "))?;
    let timeout_ms = run::timeout_ms(Some(wish.startup_timeout))?;
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::MustExist).await?;
    let spec = SessionSpec { id: Some(id.clone()), ..SessionSpec::default() };
    match sandbox.session_create(spec, None).await {
        Ok(_) => {}
        Err(isolet_sandbox::Error::SessionExists(_)) => {
            let message = format!("session {} already exists", wish.session);
            return Err(SwerexError::raise("swerex.exceptions.SessionExistsError", message));
        }
        Err(error) => return Err(error.into()),
    }
    if wish.startup_source.is_empty() {
        return Ok(run::created(""));
    }
    let command =
        ShellCommand { text, timeout_ms: Some(timeout_ms), merge: true, ..ShellCommand::default() };
    let Finished { exit, output } = run::in_session(&app, &caller, &sandbox, &id, command).await?;
    if exit.timed_out {
        let seconds = wish.startup_timeout;
        let message = format!("timeout after {seconds} seconds while sourcing startup files");
        return Err(SwerexError::timeout(message));
    }
    let [text, _] = output.texts();
    Ok(run::created(&text.0))
}

/// Deletes a session with its shell.
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: SmallJson<CloseSession>,
) -> Result<Json<ClosedSession>, SwerexError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let session = existing(&sandbox, &body.value.session)?;
    sandbox.session_delete(&session).await?;
    Ok(Json(ClosedSession { session_type: "bash" }))
}

/// Deletes all sessions that were created by this dialect. The sandbox stays.
pub(super) async fn delete_all(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
) -> Result<Json<Nothing>, SwerexError> {
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, Access::Look).await?;
    let own = sandbox.sessions().into_iter().filter(|one| one.id.as_str().starts_with(PREFIX));
    for session in own {
        match sandbox.session_delete(&session.id).await {
            Ok(()) | Err(isolet_sandbox::Error::NoSession { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(Nothing {}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sessions_become_ids() {
        assert_eq!(session_id("default").unwrap().as_str(), "swerex.default");
        for bad in ["", "a b", "a/b", "ä", &"x".repeat(122)] {
            assert!(session_id(bad).is_err() || bad.is_empty(), "{bad}");
        }
    }
}
