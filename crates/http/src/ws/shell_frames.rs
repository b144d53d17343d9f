//! The frames that the server sends over the shell WebSocket.

use crate::foundation::denied::{DeniedFields, DeniedView};
use crate::foundation::error::ApiError;
use crate::foundation::json_text::{self, OutputText};
use crate::foundation::lost::{LostFields, LostStateView};
use crate::foundation::time::Millis;
use crate::foundation::utf8_stream::TextChunk;
use crate::stream::event_stream::stream_name;
use isolet_wire::response::{Closed, CommandExit, STDOUT};
use serde::Serialize;
use tokio_tungstenite::tungstenite::Message;
use utoipa::ToSchema;

/// The longest JSON around the text of most frames.
const ENVELOPE_BYTES: usize = 96;

/// A text frame of the server.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type")]
pub(crate) enum ShellServerFrame<'a> {
    /// The first frame, if the client asked for it with `opened=1`.
    #[serde(rename = "shell_opened")]
    Opened(ShellOpened<'a>),
    /// A command has started, if the client asked for it with `starts=1`.
    #[serde(rename = "shell_start")]
    Start(ShellStart<'a>),
    /// Output of a command, or of the shell between commands.
    #[serde(rename = "shell_out")]
    Out(ShellOutput<'a>),
    /// The same of standard error.
    #[serde(rename = "shell_err")]
    Err(ShellOutput<'a>),
    /// A command has ended.
    #[serde(rename = "shell_exit")]
    Exit(ShellExit<'a>),
    /// Output that this client will not receive.
    #[serde(rename = "shell_gap")]
    Gap(ShellGap),
    /// The shell has ended.
    #[serde(rename = "shell_closed")]
    Closed(ShellClosed<'a>),
    /// The server refused a frame of the client. The socket stays open.
    #[serde(rename = "shell_error")]
    Error(ShellError<'a>),
}

/// The shell that a client is attached to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShellOpened<'a> {
    /// The shell's name for `?resume=`.
    shell: &'a str,
    /// The shell's position for `?since=`.
    at: &'a str,
}

/// The start of a command.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShellStart<'a> {
    /// The id of the command; `OWNER/ID` for a command of another client.
    id: &'a str,
    /// The text of the command.
    command: &'a str,
}

/// Output of a command.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShellOutput<'a> {
    /// The id of the command; empty for output of no command.
    id: &'a str,
    /// U+FFFD replaces invalid UTF-8.
    #[schema(value_type = String)]
    data: OutputText<'a>,
    /// The position of the first byte in its stream.
    offset: u64,
}

/// The exit of a command. Fields with their default value are absent.
#[derive(Debug, Serialize, ToSchema)]
// More than 12 fields: it has one for each member of the JSON object.
pub(crate) struct ShellExit<'a> {
    /// The id of the command; `OWNER/ID` for a command of another client.
    id: &'a str,
    /// 128 and the signal where a signal ended the shell.
    code: i32,
    /// Counts the ended commands of the shell, from 1.
    seq: u64,
    /// From its start to its end, in ms.
    #[schema(value_type = f64)]
    duration_ms: Millis,
    /// Whether it was ended at its timeout.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    timed_out: bool,
    /// Whether it was cancelled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
    /// Whether the kernel killed a process of the sandbox for memory while it ran.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    oom: bool,
    /// Whether its shell was opened in place of one that had ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    fresh: bool,
    /// The signal that ended the shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// Bytes that it wrote to standard output.
    #[serde(skip_serializing_if = "is_zero")]
    out_bytes: u64,
    /// Bytes that it wrote to standard error.
    #[serde(skip_serializing_if = "is_zero")]
    err_bytes: u64,
    /// How many of these this client did not receive.
    #[serde(skip_serializing_if = "is_zero")]
    lost_bytes: u64,
    /// Only in the first answer after the sandbox woke: what the sleep ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<&'static str>>,
    /// With `shell_state` in `lost`: the shells that do not come back as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_state: Option<Vec<LostStateView>>,
    /// Traffic that the sandbox was denied while the command ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<Vec<DeniedView>>,
    /// How much more was denied than the list holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_lost: Option<u64>,
}

/// Missing output of one stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShellGap {
    /// `stdout` or `stderr`, as in events over HTTP.
    stream: &'static str,
    /// The first missing byte.
    from: u64,
    /// The first byte that follows.
    to: u64,
}

/// The end of the shell.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShellClosed<'a> {
    /// If the shell ended with its sandbox or session: the error code of the same refusal over
    /// HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// Its exit code, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    /// The signal, if one ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// For people: why it ended.
    cause: &'a str,
}

/// The refusal of a frame.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShellError<'a> {
    /// The id in the refused frame, if it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    /// For programs: the error code of the same refusal over HTTP.
    error: &'a str,
    /// For people: what is wrong.
    message: &'a str,
    /// For people: what to do next.
    hint: &'a str,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn message(frame: &ShellServerFrame<'_>, capacity: usize) -> Message {
    Message::text(json_text::to_string(frame, capacity))
}

/// `shell_out` or `shell_err`, by the stream of the chunk.
pub(crate) fn output(chunk: &TextChunk<'_>) -> Message {
    let data = ShellOutput { id: &chunk.id, data: (&*chunk.text).into(), offset: chunk.offset };
    let frame = match chunk.stream {
        STDOUT => ShellServerFrame::Out(data),
        _ => ShellServerFrame::Err(data),
    };
    message(&frame, chunk.text.len() + chunk.text.len() / 8 + ENVELOPE_BYTES)
}

/// `shell_opened`: the shell's name for `?resume=`, and the shell's position.
pub(crate) fn opened(shell: &str, at: &str) -> Message {
    message(&ShellServerFrame::Opened(ShellOpened { shell, at }), ENVELOPE_BYTES)
}

/// `shell_start`: a command has started.
pub(crate) fn start(id: &str, command: &str) -> Message {
    let frame = ShellServerFrame::Start(ShellStart { id, command });
    message(&frame, command.len() + ENVELOPE_BYTES)
}

/// `shell_exit`: a command has ended.
pub(crate) fn exit(exit: &CommandExit, lost: LostFields, denied: DeniedFields) -> Message {
    let LostFields { lost, lost_state } = lost;
    let DeniedFields { denied, denied_lost } = denied;
    let frame = ShellServerFrame::Exit(ShellExit {
        id: &exit.id,
        code: exit.code,
        seq: exit.seq,
        duration_ms: Millis::from_micros(exit.micros),
        timed_out: exit.timed_out,
        cancelled: exit.cancelled,
        oom: exit.oom,
        fresh: exit.fresh,
        signal: exit.signal,
        out_bytes: exit.out,
        err_bytes: exit.err,
        lost_bytes: exit.lost,
        lost,
        lost_state,
        denied,
        denied_lost,
    });
    message(&frame, 2 * ENVELOPE_BYTES)
}

/// `shell_gap`: output that this client will not receive.
pub(crate) fn gap(stream: u8, from: u64, to: u64) -> Message {
    let stream = stream_name(stream);
    message(&ShellServerFrame::Gap(ShellGap { stream, from, to }), ENVELOPE_BYTES)
}

/// `shell_closed`: the shell has ended.
pub(crate) fn closed(closed: &Closed) -> Message {
    let Closed { code, signal, cause } = closed;
    let closed = ShellClosed { error: None, code: *code, signal: *signal, cause: cause.as_str() };
    message(&ShellServerFrame::Closed(closed), ENVELOPE_BYTES)
}

/// `shell_closed` for a shell that ended with its sandbox or session.
pub(crate) fn ended_with(failure: &ApiError) -> Message {
    let closed = ShellClosed {
        error: Some(failure.code),
        code: None,
        signal: None,
        cause: &failure.message,
    };
    message(&ShellServerFrame::Closed(closed), ENVELOPE_BYTES)
}

/// `shell_error`: the server refused a frame of the client.
pub(crate) fn error(id: Option<&str>, failure: &ApiError) -> Message {
    let ApiError { code: error, message: text, hint, .. } = failure;
    let frame = ShellServerFrame::Error(ShellError { id, error, message: text, hint });
    message(&frame, ENVELOPE_BYTES + text.len() + hint.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::activity::CloseCause;
    use std::borrow::Cow;

    fn sent(message: &Message) -> &str {
        message.to_text().unwrap()
    }

    #[test]
    fn output_frames_keep_their_bytes() {
        let mut chunk = TextChunk {
            stream: 1,
            id: Cow::Borrowed("r\"1"),
            offset: 7,
            text: Cow::Borrowed("a\n\u{1}€/\\"),
        };
        assert_eq!(
            sent(&output(&chunk)),
            r#"{"type":"shell_out","id":"r\"1","data":"a\n\u0001€/\\","offset":7}"#
        );
        chunk.stream = 2;
        chunk.id = Cow::Borrowed("");
        chunk.text = Cow::Borrowed("x");
        assert_eq!(sent(&output(&chunk)), r#"{"type":"shell_err","id":"","data":"x","offset":7}"#);
    }

    #[test]
    fn exit_frames_keep_their_bytes() {
        let plain = CommandExit { id: "r1".into(), seq: 3, micros: 1500, ..CommandExit::default() };
        assert_eq!(
            sent(&exit(&plain, LostFields::default(), DeniedFields::default())),
            r#"{"type":"shell_exit","id":"r1","code":0,"seq":3,"duration_ms":1.5}"#
        );
        let whole = CommandExit { micros: 2000, code: -1, ..plain.clone() };
        assert_eq!(
            sent(&exit(&whole, LostFields::default(), DeniedFields::default())),
            r#"{"type":"shell_exit","id":"r1","code":-1,"seq":3,"duration_ms":2}"#
        );
        let full = CommandExit {
            code: 137,
            signal: Some(9),
            timed_out: true,
            cancelled: true,
            oom: true,
            fresh: true,
            out: 5,
            err: 6,
            lost: 7,
            ..plain
        };
        let lost = LostFields { lost: Some(vec!["shells"]), lost_state: None };
        let denied = DeniedFields { denied: None, denied_lost: Some(3) };
        assert_eq!(
            sent(&exit(&full, lost, denied)),
            r#"{"type":"shell_exit","id":"r1","code":137,"seq":3,"duration_ms":1.5,"timed_out":true,"cancelled":true,"oom":true,"fresh":true,"signal":9,"out_bytes":5,"err_bytes":6,"lost_bytes":7,"lost":["shells"],"denied_lost":3}"#
        );
    }

    #[test]
    fn other_frames_keep_their_bytes() {
        assert_eq!(
            sent(&closed(&Closed {
                code: Some(3),
                signal: None,
                cause: "ex\"it".to_owned().into()
            })),
            r#"{"type":"shell_closed","code":3,"cause":"ex\"it"}"#
        );
        assert_eq!(
            sent(&closed(&Closed { code: Some(3), signal: Some(9), cause: CloseCause::Exit })),
            r#"{"type":"shell_closed","code":3,"signal":9,"cause":"exit"}"#
        );
        assert_eq!(
            sent(&gap(2, 1, 9)),
            r#"{"type":"shell_gap","stream":"stderr","from":1,"to":9}"#
        );
        assert_eq!(
            sent(&opened("s.abc", "1,2,3")),
            r#"{"type":"shell_opened","shell":"s.abc","at":"1,2,3"}"#
        );
        assert_eq!(
            sent(&start("a", "echo \"1\"\n")),
            r#"{"type":"shell_start","id":"a","command":"echo \"1\"\n"}"#
        );
        let failure = ApiError::bad_request("n\"o");
        assert_eq!(
            sent(&ended_with(&failure)),
            r#"{"type":"shell_closed","error":"bad_request","cause":"n\"o"}"#
        );
        assert_eq!(
            sent(&error(Some("a"), &failure)),
            r#"{"type":"shell_error","id":"a","error":"bad_request","message":"n\"o","hint":"see /v1/openapi.json for the fields of this call"}"#
        );
        assert_eq!(
            sent(&error(None, &failure)),
            r#"{"type":"shell_error","error":"bad_request","message":"n\"o","hint":"see /v1/openapi.json for the fields of this call"}"#
        );
    }
}
