//! The frames that a client sends over the shell WebSocket: one JSON object per text frame.

use crate::foundation::error::ApiError;
use crate::foundation::json::{self, UniqueMap, not_null};
use crate::foundation::{input, signals};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_sandbox::{CommandText, EnvironmentChange, WorkingDirectory};
use isolet_wire::request::RunCommand;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A text frame of a client.
///
/// [`parse`] reads the type first and then the fields of that type, so that an error names the
/// field: the derived implementation does not.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type")]
pub(crate) enum ShellClientFrame {
    /// Runs a command in the shell.
    #[serde(rename = "shell_run")]
    Run(ShellRun),
    /// Sends standard input to a command.
    #[serde(rename = "shell_stdin")]
    Stdin(ShellStdin),
    /// Sends a signal to the foreground process group of a command.
    #[serde(rename = "shell_signal")]
    Signal(ShellSignal),
    /// Cancels a command, whether it runs or waits.
    #[serde(rename = "shell_cancel")]
    Cancel(ShellCancel),
}

/// A command for the shell.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShellRun {
    /// Chosen by the client, 1 to 200 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    id: Option<String>,
    /// At most 1 MiB.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    command: Option<String>,
    /// Interrupts the command after this time; 0 means never. The default is that of the session.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_ms: Option<u64>,
    /// The working directory of this command only.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    /// Environment variables of this command only; `null` removes one.
    #[serde(deserialize_with = "not_null")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, Option<String>>>, nullable = false)]
    env: Option<UniqueMap<Option<String>>>,
    /// `true`: standard input follows in `shell_stdin` frames. A text: all of it.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    stdin: Option<ShellRunStdin>,
    /// Whether standard error goes to standard output.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    merge: Option<bool>,
}

/// Standard input that follows in other frames, or all of it.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged, expecting = "must be true, false or a text")]
pub(crate) enum ShellRunStdin {
    Follows(bool),
    Whole(String),
}

/// Standard input: `data`, `data_b64`, or only `eof`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShellStdin {
    /// The id of the command.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    id: Option<String>,
    /// The input as text.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    data: Option<String>,
    /// The input in base64, for bytes that are not UTF-8.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    data_b64: Option<String>,
    /// Whether standard input ends here.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    eof: Option<bool>,
}

/// A signal for a command.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShellSignal {
    /// The id of the command.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    id: Option<String>,
    /// A number from 1 to 64, or a name such as `INT`.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    signal: Option<serde_json::Value>,
}

/// The cancellation of a command.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShellCancel {
    /// The id of the command.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    id: Option<String>,
}

/// A frame whose fields were checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientFrame {
    /// Runs a command, with its timeout and all of its standard input, if the frame contains them.
    Run {
        run: Box<RunCommand>,
        timeout_ms: Option<u64>,
        stdin: Option<Vec<u8>>,
    },
    Stdin {
        id: String,
        data: Vec<u8>,
        eof: bool,
    },
    /// A signal for the foreground process group of a command.
    Signal {
        id: String,
        signal: i32,
    },
    Cancel {
        id: String,
    },
}

/// The fields that all frames have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FrameHead {
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "not_null")]
    id: Option<String>,
}

/// An error, with the id from the frame if it has one.
type FrameError = (Option<String>, ApiError);

/// Parses one text frame.
pub(crate) fn parse(text: &str) -> Result<ClientFrame, FrameError> {
    let head: FrameHead = json::parse(text.as_bytes()).map_err(|failure| (None, failure))?;
    fields(&head.kind, text).and_then(ShellClientFrame::check).map_err(|failure| (head.id, failure))
}

fn fields(kind: &str, text: &str) -> Result<ShellClientFrame, ApiError> {
    let text = text.as_bytes();
    match kind {
        "shell_run" => json::parse_variant(text).map(ShellClientFrame::Run),
        "shell_stdin" => json::parse_variant(text).map(ShellClientFrame::Stdin),
        "shell_signal" => json::parse_variant(text).map(ShellClientFrame::Signal),
        "shell_cancel" => json::parse_variant(text).map(ShellClientFrame::Cancel),
        "" => Err(ApiError::bad_field("type", "is required")),
        _ => Err(ApiError::bad_field(
            "type",
            "must be shell_run, shell_stdin, shell_signal or shell_cancel",
        )),
    }
}

impl ShellClientFrame {
    fn check(self) -> Result<ClientFrame, ApiError> {
        match self {
            Self::Run(frame) => frame.check(),
            Self::Stdin(frame) => frame.check(),
            Self::Signal(ShellSignal { id, signal }) => {
                let signal = signal.ok_or_else(|| ApiError::bad_field("signal", "is required"))?;
                Ok(ClientFrame::Signal { id: command_id(id)?, signal: signals::parse(&signal)? })
            }
            Self::Cancel(ShellCancel { id }) => Ok(ClientFrame::Cancel { id: command_id(id)? }),
        }
    }
}

fn command_id(id: Option<String>) -> Result<String, ApiError> {
    let id = id.ok_or_else(|| ApiError::bad_field("id", "is required"))?;
    if id.is_empty() || id.len() > input::COMMAND_ID_BYTES_MAX {
        return Err(ApiError::bad_field("id", "1 to 200 bytes"));
    }
    Ok(id)
}

impl ShellRun {
    fn check(self) -> Result<ClientFrame, ApiError> {
        let id = command_id(self.id)?;
        let text = self.command.ok_or_else(|| ApiError::bad_field("command", "is required"))?;
        let text = CommandText::parse(text)?;
        let cwd = input::cwd(self.cwd)?;
        input::timeout(self.timeout_ms)?;
        let (follows, stdin) = match self.stdin {
            None | Some(ShellRunStdin::Follows(false)) => (false, None),
            Some(ShellRunStdin::Follows(true)) => (true, None),
            Some(ShellRunStdin::Whole(text)) => (true, Some(text.into_bytes())),
        };
        let env = EnvironmentChange::parse(self.env.unwrap_or_default().0)?;
        let run = RunCommand {
            id,
            text: text.into_inner(),
            timeout_ms: 0,
            cwd: cwd.map(WorkingDirectory::into_inner),
            env: env.into_inner(),
            stdin: follows,
            merge: self.merge.unwrap_or(false),
        };
        Ok(ClientFrame::Run { run: Box::new(run), timeout_ms: self.timeout_ms, stdin })
    }
}

impl ShellStdin {
    fn check(self) -> Result<ClientFrame, ApiError> {
        let eof = self.eof.unwrap_or(false);
        let data = match (self.data, self.data_b64) {
            (Some(_), Some(_)) => {
                return Err(ApiError::bad_field("data", "pass data or data_b64, not both"));
            }
            (Some(text), None) => text.into_bytes(),
            (None, Some(b64)) => STANDARD
                .decode(b64)
                .map_err(|_| ApiError::bad_field("data_b64", "must be base64 with padding"))?,
            (None, None) if eof => Vec::new(),
            (None, None) => return Err(ApiError::bad_field("data", "give data, or \"eof\":true")),
        };
        Ok(ClientFrame::Stdin { id: command_id(self.id)?, data, eof })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimal_frame_is_parsed() {
        let said = parse(r#"{"type":"shell_run","id":"r1","command":"cd /tmp"}"#).unwrap();
        let run = RunCommand { id: "r1".into(), text: "cd /tmp".into(), ..RunCommand::default() };
        assert_eq!(said, ClientFrame::Run { run: Box::new(run), timeout_ms: None, stdin: None });
    }

    #[test]
    fn optional_fields_are_parsed() {
        let text = r#"{"type":"shell_run","id":"a","command":"x","timeout_ms":5,"cwd":"/tmp",
            "env":{"A":"1","B":null},"stdin":"in","merge":true}"#;
        let ClientFrame::Run { run, timeout_ms, stdin } = parse(text).unwrap() else { panic!() };
        assert_eq!((run.cwd.as_deref(), run.stdin, run.merge), (Some("/tmp"), true, true));
        assert_eq!((run.env["A"].as_deref(), run.env["B"].as_deref()), (Some("1"), None));
        assert_eq!((timeout_ms, stdin), (Some(5), Some(b"in".to_vec())));
        assert_eq!(
            parse(r#"{"type":"shell_stdin","id":"a","data_b64":"/w==","eof":true}"#).unwrap(),
            ClientFrame::Stdin { id: "a".into(), data: vec![255], eof: true }
        );
        assert_eq!(
            parse(r#"{"type":"shell_signal","id":"a","signal":"INT"}"#).unwrap(),
            ClientFrame::Signal { id: "a".into(), signal: 2 }
        );
        assert_eq!(
            parse(r#"{"type":"shell_cancel","id":"a"}"#).unwrap(),
            ClientFrame::Cancel { id: "a".into() }
        );
    }

    #[test]
    fn an_error_names_the_field_and_the_id() {
        for (text, id, name) in [
            (r#"{"id":"a"}"#, Some("a"), "type"),
            (r#"{"type":"nope","id":"a"}"#, Some("a"), "type"),
            (r#"{"type":"shell_run","id":"a"}"#, Some("a"), "command"),
            (r#"{"type":"shell_run","command":"a"}"#, None, "id"),
            (r#"{"type":"shell_run","id":"","command":"a"}"#, Some(""), "id"),
            (r#"{"type":"shell_run","id":"a","command":"a\u0000"}"#, Some("a"), "command"),
            (
                r#"{"type":"shell_run","id":"a","command":"a","timeout_ms":86400001}"#,
                Some("a"),
                "timeout_ms",
            ),
            (r#"{"type":"shell_run","id":"a","command":"a","stdin":1}"#, Some("a"), "stdin"),
            (r#"{"type":"shell_run","id":"a","command":"a","signal":1}"#, Some("a"), "signal"),
            (r#"{"type":"shell_run","id":"a","command":"a","env":{"A=":"1"}}"#, Some("a"), "env"),
            (r#"{"type":"shell_cancel","id":"a","command":"a"}"#, Some("a"), "command"),
            (r#"{"type":"shell_stdin","id":"a"}"#, Some("a"), "data"),
            (r#"{"type":"shell_signal","id":"a","signal":65}"#, Some("a"), "signal"),
            (r#"{"type":"shell_run","id":"a","command":"a","nope":1}"#, Some("a"), "nope"),
            (r#"{"type":"shell_run","type":"shell_run","id":"a","command":"a"}"#, None, "type"),
            (
                r#"{"type":"shell_run","id":"a","command":"a","timeout_ms":"1"}"#,
                Some("a"),
                "timeout_ms: must be",
            ),
            (r#"{"type":"shell_run","id":"a","command":"a","env":{"A":1}}"#, Some("a"), "env.A"),
            (r#"{"type":"shell_run","id":"a","id":"b","command":"a"}"#, None, "id"),
        ] {
            let (of, failure) = parse(text).unwrap_err();
            assert_eq!(of.as_deref(), id, "{text}");
            assert!(failure.message.contains(name), "{text}: {}", failure.message);
        }
    }

    #[test]
    fn the_documented_type_reads_the_same_frames() {
        for text in [
            r#"{"id":"a","command":"x","stdin":true,"type":"shell_run"}"#,
            r#"{"type":"shell_run","id":"a","command":"x","env":{"A":null},"merge":true}"#,
            r#"{"type":"shell_stdin","id":"a","data":"x"}"#,
            r#"{"type":"shell_signal","id":"a","signal":2}"#,
            r#"{"type":"shell_cancel","id":"a"}"#,
        ] {
            let frame: ShellClientFrame = serde_json::from_str(text).unwrap();
            assert_eq!(frame.check().unwrap(), parse(text).unwrap(), "{text}");
        }
    }
}
