//! Errors of the server, with the sandbox that they are about and the command to type next.

use super::{
    output::{print_message, sanitize},
    to_exit_code,
};
use anyhow::Result;
use serde_json::Value;
use std::{fmt, process::ExitCode};

/// An error response of the server.
#[derive(Debug)]
pub(crate) struct ServerError {
    /// For programs, as in `error` of the answer.
    pub(crate) code: String,
    /// What is wrong, in the server's words.
    pub(crate) message: String,
    hint: String,
    /// Which sandbox was meant; empty when none was.
    id: String,
    /// Of the answer; 0 for an event.
    status: u16,
}

impl ServerError {
    /// What an answer or an event says.
    pub(crate) fn from_event(said: &Value, id: &str) -> Self {
        let text = |name: &str| sanitize(said[name].as_str().unwrap_or_default());
        let code = text("error");
        let message = text("message");
        let hint = text("hint");
        let message = if message.is_empty() { "it failed".to_owned() } else { message };
        Self { code, message, hint, id: id.to_owned(), status: 0 }
    }

    /// What a status and a body say.
    pub(crate) fn from_response(status: u16, body: &[u8], id: &str) -> Self {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut refused = Self { status, ..Self::from_event(&said, id) };
        if said["message"].is_null() {
            refused.message = format!("the server answered with status {status}");
            refused.hint = "is this an isolet server? See ISOLET_URL".to_owned();
        }
        refused
    }

    /// Whether the same may be answered otherwise in a moment.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 429 | 500..)
    }

    /// What to type next, where that is known better here than there.
    fn next_step(&self) -> String {
        let id = &self.id;
        match self.code.as_str() {
            "no_sandbox" => "`isolet ls` shows what there is".to_owned(),
            "id_in_use" => format!("`isolet kill {id} PROCESS --rm` ends one and frees its id"),
            "no_such_process" => format!("`isolet ps {id}` shows its processes"),
            "no_session" => format!("`isolet info {id}` shows its sessions"),
            "no_shell" => format!("open a new one: isolet shell {id}"),
            "sandbox_failed" => format!("`isolet rm {id}` ends it; the next call makes a new one"),
            "too_many_sandboxes" | "server_full" => {
                "`isolet ls` shows them, `isolet rm ID` ends one".to_owned()
            }
            "unauthorized" => "set ISOLET_API_KEY to a key of this server, or ISOLET_DATA_DIR to \
                               its data directory; `isolet keys add` makes a key"
                .to_owned(),
            _ => self.hint.clone(),
        }
    }

    /// Whether it is about one sandbox, and does not say about which.
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

/// Ends as a shell does where a program could not be started: 127 not found, 126 not executed.
///
/// # Errors
/// Any other error, as it was.
pub(crate) fn exit_code_of_unstarted(error: anyhow::Error) -> Result<ExitCode> {
    let Some(refused) = error.downcast_ref::<ServerError>() else { return Err(error) };
    let (code, hint) = match refused.code.as_str() {
        "not_found" => (127, "it is looked up in the sandbox, by its PATH"),
        "denied" => (126, "is it a program, and is its x bit set? See ls -l in the sandbox"),
        "failed" if refused.message.starts_with("cannot execute") => {
            (126, "is it a program for this machine? A script begins with #!")
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
        let said = json!({"error": code, "message": message, "hint": "call somebody"});
        ServerError::from_event(&said, "demo").to_string()
    }

    #[test]
    fn a_refusal_names_its_sandbox_once_and_what_to_type() {
        let missing = shown("no_sandbox", "no sandbox demo");
        assert_eq!(missing, "no sandbox demo (`isolet ls` shows what there is)");
        let other = shown("bad_cwd", "cannot enter");
        assert_eq!(other, "sandbox demo: cannot enter (call somebody)");
        assert!(shown("unauthorized", "no key").starts_with("no key (set ISOLET_API_KEY"));
    }

    #[test]
    fn an_answer_of_something_else_is_told_apart() {
        let other = ServerError::from_response(502, b"<html>", "").to_string();
        assert!(other.contains("502") && other.contains("ISOLET_URL"), "{other}");
    }
}
