//! Parses what several requests contain: programs, standard input, timeouts, paths and ids.

use crate::foundation::error::ApiError;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_sandbox::{
    Argv, BadInput, CommandText, ContextId, ProcessId, Program, SandboxId, SessionId,
    WorkingDirectory,
};
use serde::{Deserialize, Deserializer};

/// The longest timeout in ms: a day.
pub(crate) const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// The longest path, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 4096;
/// The longest id of a command, in bytes: other clients see it prefixed with its owner's id.
pub(crate) const COMMAND_ID_BYTES_MAX: usize = 200;

/// Checks a timeout in ms. `None` becomes 0, which stands for no timeout.
pub(crate) fn timeout(ms: Option<u64>) -> Result<u64, ApiError> {
    match ms.unwrap_or(0) {
        ms if ms <= TIMEOUT_MS_MAX => Ok(ms),
        _ => Err(ApiError::bad_field("timeout_ms", "must be at most 86400000 (a day)")),
    }
}

/// Parses a working directory that a request may leave out.
pub(crate) fn cwd(path: Option<String>) -> Result<Option<WorkingDirectory>, BadInput> {
    path.map(WorkingDirectory::parse).transpose()
}

/// Checks a path of the files API. It consists of bytes and is resolved inside the sandbox.
pub(crate) fn path(path: Option<&[u8]>) -> Result<Vec<u8>, ApiError> {
    let path = path.ok_or_else(|| ApiError::bad_request("?path: is needed"))?;
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains(&0) {
        return Err(ApiError::bad_request("?path: 1 to 4096 bytes without NUL"));
    }
    Ok(path.to_vec())
}

/// Stands for a field that this version does not support, and records whether a request contains
/// it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NotImplemented(bool);

impl NotImplemented {
    /// Refuses the request when it contains the field.
    pub(crate) fn reject(self, name: &str, reason: &str) -> Result<(), ApiError> {
        if self.0 { Err(ApiError::field_not_implemented(name, reason)) } else { Ok(()) }
    }
}

impl<'de> Deserialize<'de> for NotImplemented {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(reader).map(|_| Self(true))
    }
}

/// The ids in the path of a request.
pub(crate) struct PathIds {
    pub(crate) sandbox: SandboxId,
    /// The session, if the path names one.
    session: Option<SessionId>,
    /// The process, if the path names one.
    process: Option<ProcessId>,
    /// The code context, if the path names one.
    context: Option<ContextId>,
}

impl PathIds {
    /// The process, or an error when the path names none.
    pub(crate) fn process(&self) -> Result<&ProcessId, ApiError> {
        self.process.as_ref().ok_or_else(|| ApiError::bad_request("process: is needed"))
    }

    /// The session, or an error when the path names none.
    pub(crate) fn session(&self) -> Result<&SessionId, ApiError> {
        self.session.as_ref().ok_or_else(|| ApiError::bad_request("session: is needed"))
    }

    /// The context, or an error when the path names none.
    pub(crate) fn context(&self) -> Result<&ContextId, ApiError> {
        self.context.as_ref().ok_or_else(|| ApiError::bad_request("context: is needed"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathIds {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let all = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::bad_request("the path contains a malformed % escape"))?;
        let find = |wanted| all.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let sandbox = SandboxId::parse(find("id").unwrap_or("")).map_err(bad_id)?;
        let session = find("sid").map(SessionId::parse).transpose().map_err(bad_id)?;
        let process = find("process").map(ProcessId::parse).transpose().map_err(bad_id)?;
        let context = find("cid").map(ContextId::parse).transpose().map_err(bad_id)?;
        Ok(Self { sandbox, session, process, context })
    }
}

/// 400: the id is malformed.
pub(crate) fn bad_id(error: isolet_sandbox::BadId) -> ApiError {
    ApiError::bad_field("id", &error.to_string())
}

/// Decodes bytes that a request contains as text or in base64.
pub(crate) fn stdin(
    name: &str,
    text: Option<String>,
    name_b64: &str,
    b64: Option<String>,
) -> Result<Option<Vec<u8>>, ApiError> {
    match (text, b64) {
        (Some(_), Some(_)) => {
            Err(ApiError::bad_field(name, &format!("give {name} or {name_b64}, not both")))
        }
        (None, Some(b64)) => STANDARD
            .decode(b64)
            .map(Some)
            .map_err(|_| ApiError::bad_field(name_b64, "must be base64 with padding")),
        (text, None) => Ok(text.map(String::into_bytes)),
    }
}

/// Parses a program: `command` or `argv`.
pub(crate) fn program(
    command: Option<String>,
    argv: Option<Vec<String>>,
) -> Result<Program, ApiError> {
    match (command, argv) {
        (Some(text), None) => Ok(Program::Command(CommandText::parse(text)?)),
        (None, Some(words)) => Ok(Program::Argv(Argv::parse(words)?)),
        _ => Err(ApiError::bad_field("command", "pass either command or argv")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_at_most_a_day() {
        assert_eq!(timeout(None).unwrap(), 0);
        assert_eq!(timeout(Some(TIMEOUT_MS_MAX)).unwrap(), TIMEOUT_MS_MAX);
        assert!(timeout(Some(TIMEOUT_MS_MAX + 1)).is_err() && timeout(Some(u64::MAX)).is_err());
    }

    #[test]
    fn an_invalid_value_is_answered_with_its_field() {
        let error = program(Some("a\0".into()), None).unwrap_err();
        assert_eq!((error.status().as_u16(), error.code), (400, "bad_field"));
        assert_eq!(error.message, "command: must not contain a NUL character");
        assert_eq!(error.hint, "change command and send the request again");
        assert_eq!(error, ApiError::from(CommandText::parse("a\0".into()).unwrap_err()));
        let error = ApiError::from(cwd(Some(String::new())).unwrap_err());
        assert_eq!((error.code, error.message.as_str()), ("bad_field", "cwd: 1 to 4095 bytes"));
        assert_eq!(cwd(None), Ok(None));
    }
}
