//! The frames that a client sends over the shell WebSocket: one JSON object per text frame.

use crate::foundation::{
    error::ApiError,
    input,
    json::{self, UniqueMap, not_null},
    signals,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use isolet_wire::request::Run;
use serde::Deserialize;

/// A parsed frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientFrame {
    /// Runs a command, with its timeout and all of its standard input, if the frame contains them.
    Run { run: Box<Run>, timeout_ms: Option<u64>, stdin: Option<Vec<u8>> },
    /// More standard input.
    Stdin { id: String, data: Vec<u8>, eof: bool },
    /// A signal for the foreground process group of a command.
    Signal { id: String, signal: i32 },
    /// Cancels a command.
    Cancel { id: String },
}

/// Standard input that follows in other frames, or all of it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stdin {
    Follows(bool),
    Whole(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "not_null")]
    id: Option<String>,
    #[serde(deserialize_with = "not_null")]
    command: Option<String>,
    #[serde(deserialize_with = "not_null")]
    timeout_ms: Option<u64>,
    #[serde(deserialize_with = "not_null")]
    cwd: Option<String>,
    #[serde(deserialize_with = "not_null")]
    env: Option<UniqueMap<Option<String>>>,
    #[serde(deserialize_with = "not_null")]
    stdin: Option<Stdin>,
    #[serde(deserialize_with = "not_null")]
    merge: Option<bool>,
    #[serde(deserialize_with = "not_null")]
    data: Option<String>,
    #[serde(deserialize_with = "not_null")]
    data_b64: Option<String>,
    #[serde(deserialize_with = "not_null")]
    eof: Option<bool>,
    #[serde(deserialize_with = "not_null")]
    signal: Option<serde_json::Value>,
}

/// An error, with the id from the frame if it has one.
type FrameError = (Option<String>, ApiError);

/// Parses one text frame.
pub(crate) fn parse(text: &str) -> Result<ClientFrame, FrameError> {
    let mut frame: Frame = json::parse(text.as_bytes()).map_err(|failure| (None, failure))?;
    let id = frame.id.take();
    let said = match frame.kind.as_str() {
        "shell_run" => run(&id, frame),
        "shell_stdin" => stdin(&id, frame),
        "shell_signal" => signal(&id, frame),
        "shell_cancel" => cancel(&id, &frame),
        "" => Err(ApiError::bad_field("type", "is needed")),
        _ => Err(ApiError::bad_field(
            "type",
            "must be shell_run, shell_stdin, shell_signal or shell_cancel",
        )),
    };
    said.map_err(|failure| (id, failure))
}

fn named(id: &Option<String>) -> Result<String, ApiError> {
    let id = id.as_ref().ok_or_else(|| ApiError::bad_field("id", "is needed"))?;
    if id.is_empty() || id.len() > input::COMMAND_ID_BYTES_MAX {
        return Err(ApiError::bad_field("id", "1 to 200 bytes"));
    }
    Ok(id.clone())
}

/// Refuses fields that this type of frame does not have.
fn without(fields: &[(&str, bool)]) -> Result<(), ApiError> {
    match fields.iter().find(|(_, there)| *there) {
        None => Ok(()),
        Some((name, _)) => Err(ApiError::bad_field(name, "does not belong into this frame")),
    }
}

impl Frame {
    fn has_run(&self) -> bool {
        self.command.is_some()
            || self.timeout_ms.is_some()
            || self.cwd.is_some()
            || self.env.is_some()
            || self.stdin.is_some()
            || self.merge.is_some()
    }

    fn has_data(&self) -> bool {
        self.data.is_some() || self.data_b64.is_some() || self.eof.is_some()
    }
}

fn run(id: &Option<String>, frame: Frame) -> Result<ClientFrame, ApiError> {
    without(&[("data", frame.has_data()), ("signal", frame.signal.is_some())])?;
    let id = named(id)?;
    let text = frame.command.ok_or_else(|| ApiError::bad_field("command", "is needed"))?;
    input::command(&text)?;
    input::cwd(frame.cwd.as_deref())?;
    input::timeout(frame.timeout_ms)?;
    let (follows, stdin) = match frame.stdin {
        None | Some(Stdin::Follows(false)) => (false, None),
        Some(Stdin::Follows(true)) => (true, None),
        Some(Stdin::Whole(text)) => (true, Some(text.into_bytes())),
    };
    let env = input::env_change(frame.env.unwrap_or_default())?;
    let merge = frame.merge.unwrap_or(false);
    let run = Run { id, text, timeout_ms: 0, cwd: frame.cwd, env, stdin: follows, merge };
    Ok(ClientFrame::Run { run: Box::new(run), timeout_ms: frame.timeout_ms, stdin })
}

fn stdin(id: &Option<String>, frame: Frame) -> Result<ClientFrame, ApiError> {
    without(&[("command", frame.has_run()), ("signal", frame.signal.is_some())])?;
    let eof = frame.eof.unwrap_or(false);
    let data = match (frame.data, frame.data_b64) {
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_field("data", "give data or data_b64, not both"));
        }
        (Some(text), None) => text.into_bytes(),
        (None, Some(b64)) => STANDARD
            .decode(b64)
            .map_err(|_| ApiError::bad_field("data_b64", "must be base64 with padding"))?,
        (None, None) if eof => Vec::new(),
        (None, None) => return Err(ApiError::bad_field("data", "give data, or \"eof\":true")),
    };
    Ok(ClientFrame::Stdin { id: named(id)?, data, eof })
}

fn signal(id: &Option<String>, frame: Frame) -> Result<ClientFrame, ApiError> {
    without(&[("command", frame.has_run()), ("data", frame.has_data())])?;
    let value = frame.signal.ok_or_else(|| ApiError::bad_field("signal", "is needed"))?;
    Ok(ClientFrame::Signal { id: named(id)?, signal: signals::parse(&value)? })
}

fn cancel(id: &Option<String>, frame: &Frame) -> Result<ClientFrame, ApiError> {
    without(&[
        ("command", frame.has_run()),
        ("data", frame.has_data()),
        ("signal", frame.signal.is_some()),
    ])?;
    Ok(ClientFrame::Cancel { id: named(id)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimal_frame_is_parsed() {
        let said = parse(r#"{"type":"shell_run","id":"r1","command":"cd /tmp"}"#).unwrap();
        let run = Run { id: "r1".into(), text: "cd /tmp".into(), ..Run::default() };
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
            (r#"{"type":"shell_run","id":"a","command":"a","stdin":1}"#, None, "stdin"),
            (r#"{"type":"shell_run","id":"a","command":"a","signal":1}"#, Some("a"), "signal"),
            (r#"{"type":"shell_run","id":"a","command":"a","env":{"A=":"1"}}"#, Some("a"), "env"),
            (r#"{"type":"shell_cancel","id":"a","command":"a"}"#, Some("a"), "command"),
            (r#"{"type":"shell_stdin","id":"a"}"#, Some("a"), "data"),
            (r#"{"type":"shell_signal","id":"a","signal":65}"#, Some("a"), "signal"),
            (r#"{"type":"shell_run","id":"a","command":"a","nope":1}"#, None, "nope"),
            (r#"{"type":"shell_run","id":"a","id":"b","command":"a"}"#, None, "id"),
        ] {
            let (of, failure) = parse(text).unwrap_err();
            assert_eq!(of.as_deref(), id, "{text}");
            assert!(failure.message.contains(name), "{text}: {}", failure.message);
        }
    }
}
