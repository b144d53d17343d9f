//! Parses and limits what clients send about commands, paths and environments.

use crate::foundation::{
    error::ApiError,
    json::{Object, UniqueMap},
};
use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use isolet_sandbox::{
    ContextId, ProcessId, SandboxId, SessionId,
    info::{ENV_BYTES_MAX, METADATA_BYTES_MAX},
};
use isolet_wire::request::Invocation;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// The longest command, in bytes.
pub(crate) const COMMAND_BYTES_MAX: usize = 1024 * 1024;
/// The longest timeout in ms: a day.
pub(crate) const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// The longest path, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 4096;
/// The longest id of a command, in bytes: other clients see it prefixed with its owner's id.
pub(crate) const COMMAND_ID_BYTES_MAX: usize = 200;

/// Checks the text of a command.
pub(crate) fn command(text: &str) -> Result<(), ApiError> {
    if text.len() > COMMAND_BYTES_MAX {
        return Err(ApiError::bad_field(
            "command",
            "must be at most 1 MiB; write longer text to a file first",
        ));
    }
    no_nul("command", text)
}

/// Checks a timeout in ms. `None` becomes 0, which stands for no timeout.
pub(crate) fn timeout(ms: Option<u64>) -> Result<u64, ApiError> {
    match ms.unwrap_or(0) {
        ms if ms <= TIMEOUT_MS_MAX => Ok(ms),
        _ => Err(ApiError::bad_field("timeout_ms", "must be at most 86400000 (a day)")),
    }
}

/// Checks a working directory.
pub(crate) fn cwd(path: Option<&str>) -> Result<(), ApiError> {
    let Some(path) = path else { return Ok(()) };
    if path.is_empty() || path.len() > PATH_BYTES_MAX {
        return Err(ApiError::bad_field("cwd", "1 to 4096 bytes"));
    }
    no_nul("cwd", path)
}

/// Checks a path of the files API. It consists of bytes and is resolved inside the sandbox.
pub(crate) fn path(path: Option<&[u8]>) -> Result<Vec<u8>, ApiError> {
    let path = path.ok_or_else(|| ApiError::bad_request("?path: is needed"))?;
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains(&0) {
        return Err(ApiError::bad_request("?path: 1 to 4096 bytes without NUL"));
    }
    Ok(path.to_vec())
}

/// Checks the names and values of an environment.
pub(crate) fn env<'a>(
    env: impl Iterator<Item = (&'a String, Option<&'a String>)>,
) -> Result<(), ApiError> {
    let mut bytes = 0;
    for (name, value) in env {
        let value = value.map_or("", String::as_str);
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(ApiError::bad_field("env", "a name must not be empty or contain = or NUL"));
        }
        no_nul("env", value)?;
        bytes += name.len() + value.len() + 2;
    }
    if bytes > ENV_BYTES_MAX {
        return Err(ApiError::bad_field("env", "must be at most 128 KiB of names and values"));
    }
    Ok(())
}

/// Checks an environment in which `null` removes a name.
pub(crate) fn env_change(
    all: UniqueMap<Option<String>>,
) -> Result<BTreeMap<String, Option<String>>, ApiError> {
    env(all.0.iter().map(|(name, value)| (name, value.as_ref())))?;
    Ok(all.0)
}

fn no_nul(name: &str, text: &str) -> Result<(), ApiError> {
    if text.contains('\0') {
        return Err(ApiError::bad_field(name, "must not contain a NUL character"));
    }
    Ok(())
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

/// Checks the size of the client's metadata.
pub(crate) fn metadata(
    metadata: Object,
) -> Result<serde_json::Map<String, serde_json::Value>, ApiError> {
    let bytes = serde_json::to_vec(&metadata.0).map_or(usize::MAX, |text| text.len());
    if bytes > METADATA_BYTES_MAX {
        return Err(ApiError::bad_field("metadata", "must be at most 16 KiB as JSON"));
    }
    Ok(metadata.0)
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
) -> Result<Invocation, ApiError> {
    match (command, argv) {
        (Some(text), None) => {
            self::command(&text)?;
            Ok(Invocation::Command(text))
        }
        (None, Some(argv)) => {
            if argv.first().is_none_or(String::is_empty) {
                return Err(ApiError::bad_field("argv", "must begin with the name of the program"));
            }
            let bytes: usize = argv.iter().map(|word| word.len() + 1).sum();
            if bytes > COMMAND_BYTES_MAX || argv.iter().any(|word| word.contains('\0')) {
                return Err(ApiError::bad_field(
                    "argv",
                    "must be at most 1 MiB of words without NUL",
                ));
            }
            Ok(Invocation::Argv(argv))
        }
        _ => Err(ApiError::bad_field("command", "pass either command or argv")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_enforced() {
        assert_eq!(timeout(None).unwrap(), 0);
        assert_eq!(timeout(Some(TIMEOUT_MS_MAX)).unwrap(), TIMEOUT_MS_MAX);
        assert!(timeout(Some(TIMEOUT_MS_MAX + 1)).is_err() && timeout(Some(u64::MAX)).is_err());
        assert!(command("a\0b").is_err() && command(&"x".repeat(COMMAND_BYTES_MAX + 1)).is_err());
        assert!(command("").is_ok() && command(&"x".repeat(COMMAND_BYTES_MAX)).is_ok());
        assert!(cwd(Some("")).is_err() && cwd(Some("/a\0")).is_err() && cwd(Some("/a")).is_ok());
        let one = |name: &str, value: &str| {
            let name = name.to_owned();
            let value = value.to_owned();
            env([(&name, Some(&value))].into_iter()).is_ok()
        };
        assert!(one("A", "b=c\n") && !one("", "x") && !one("A=B", "x") && !one("A", "\0"));
        assert!(!one("A", &"x".repeat(ENV_BYTES_MAX)));
    }
}
