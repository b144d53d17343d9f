//! Errors of the server, with the sandbox that they concern and a command to continue with.

use super::output::{print_message, sanitize};
use super::to_exit_code;
use anyhow::Result;
use serde_json::Value;
use std::fmt;
use std::process::ExitCode;

/// An error response of the server.
#[derive(Debug)]
pub(crate) struct ServerError {
    /// The code for programs: `error` of the response.
    pub(crate) code: String,
    /// The message of the server.
    pub(crate) message: String,
    hint: String,
    /// The sandbox of the request; empty if it had none.
    id: String,
    /// The status of the response; 0 for an event.
    status: u16,
}

impl ServerError {
    /// The error in the body of a response or an event.
    pub(crate) fn from_event(said: &Value, id: &str) -> Self {
        let text = |name: &str| sanitize(said[name].as_str().unwrap_or_default());
        let code = text("error");
        let message = text("message");
        let hint = text("hint");
        let message = if message.is_empty() { "the request failed".to_owned() } else { message };
        Self { code, message, hint, id: id.to_owned(), status: 0 }
    }

    /// The error of a response.
    pub(crate) fn from_response(status: u16, body: &[u8], id: &str) -> Self {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut refused = Self { status, ..Self::from_event(&said, id) };
        if said["message"].is_null() {
            refused.message = format!("the server answered with status {status}");
            refused.hint = "check that ISOLET_URL is the address of an isolet server".to_owned();
        }
        refused
    }

    /// Whether a retry can succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 429 | 500..)
    }

    /// A command to continue with, if the client knows a better hint than the server.
    fn next_step(&self) -> String {
        let id = &self.id;
        match self.code.as_str() {
            "no_sandbox" => "`isolet ls` lists the sandboxes".to_owned(),
            "id_in_use" => {
                format!("`isolet kill {id} PROCESS --rm` ends a process and frees its id")
            }
            "no_such_process" => format!("`isolet ps {id}` lists its processes"),
            "no_session" => format!("`isolet info {id}` lists its sessions"),
            "no_shell" => format!("open a new shell: isolet shell {id}"),
            "sandbox_failed" => {
                format!("delete it with `isolet rm {id}`; the next call creates a new one")
            }
            "too_many_sandboxes" | "server_full" => {
                "`isolet ls` lists sandboxes, `isolet rm ID` deletes one".to_owned()
            }
            "unauthorized" => "set ISOLET_API_KEY to a key of this server, or ISOLET_DATA_DIR to \
                               its data directory; `isolet keys add` makes a key"
                .to_owned(),
            _ => self.hint.clone(),
        }
    }

    /// Whether the error concerns one sandbox and its message does not contain the id.
    fn lacks_sandbox_name(&self) -> bool {
        let general = ["unauthorized", "read_only", "too_many_sandboxes", "server_full"];
        let named = self.message.contains(&format!("sandbox {}", self.id));
        !self.id.is_empty() && !named && !general.contains(&self.code.as_str())
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lacks_sandbox_name() {
            write!(f, "sandbox {}: ", self.id)?;
        }
        f.write_str(&self.message)?;
        match self.next_step() {
            next if next.is_empty() => Ok(()),
            next => write!(f, " ({next})"),
        }
    }
}

impl std::error::Error for ServerError {}

/// The exit code of a shell for a program that could not be started: 127 not found, 126 not executable.
///
/// # Errors
/// Any other error, unchanged.
pub(crate) fn exit_code_of_unstarted(error: anyhow::Error) -> Result<ExitCode> {
    let Some(refused) = error.downcast_ref::<ServerError>() else { return Err(error) };
    let (code, hint) = match refused.code.as_str() {
        "not_found" => (127, "the sandbox looks it up in its PATH"),
        "denied" => (126, "check with ls -l in the sandbox that it is a program and executable"),
        "failed" if refused.message.starts_with("cannot execute") => {
            (126, "check that it is a program for this machine; a script must begin with #!")
        }
        _ => return Err(error),
    };
    print_message(format_args!("sandbox {}: {} ({hint})", refused.id, refused.message));
    Ok(to_exit_code(code))
}

#[cfg(test)]
mod tests {
    use super::ServerError;
    use serde_json::json;

    fn shown(code: &str, message: &str) -> String {
        let said = json!({"error": code, "message": message, "hint": "call the operator"});
        ServerError::from_event(&said, "demo").to_string()
    }

    #[test]
    fn a_refusal_names_its_sandbox_once_and_what_to_type() {
        let missing = shown("no_sandbox", "no sandbox demo");
        assert_eq!(missing, "no sandbox demo (`isolet ls` lists the sandboxes)");
        let other = shown("bad_cwd", "cannot enter");
        assert_eq!(other, "sandbox demo: cannot enter (call the operator)");
        assert!(shown("unauthorized", "no key").starts_with("no key (set ISOLET_API_KEY"));
    }

    #[test]
    fn an_answer_of_something_else_is_told_apart() {
        let other = ServerError::from_response(502, b"<html>", "").to_string();
        assert!(other.contains("502") && other.contains("ISOLET_URL"), "{other}");
    }
}
