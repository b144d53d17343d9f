//! The frames that the server sends over the shell WebSocket. Their JSON is written by hand,
//! because output is large and exits are frequent.

use crate::{
    foundation::{error::ApiError, json_text::write_json_string, utf8_stream::TextChunk},
    stream::captured_output::ms,
};
use isolet_wire::response::{Closed, Exit, STDOUT};
use std::fmt::Write as _;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// The longest JSON around the text of an output frame.
const ENVELOPE_BYTES: usize = 96;

fn text(bytes: Vec<u8>) -> Message {
    // Only complete characters were written.
    Message::Text(Utf8Bytes::from(String::from_utf8(bytes).unwrap_or_default()))
}

fn quoted(value: &str) -> String {
    let mut out = Vec::with_capacity(value.len() + 2);
    write_json_string(&mut out, value);
    String::from_utf8(out).unwrap_or_default()
}

/// `shell_out` or `shell_err`. The id is empty for output of no command.
pub(crate) fn output(chunk: &TextChunk<'_>) -> Message {
    let mut out = Vec::with_capacity(chunk.text.len() + chunk.text.len() / 8 + ENVELOPE_BYTES);
    out.extend_from_slice(if chunk.stream == STDOUT {
        br#"{"type":"shell_out""#
    } else {
        br#"{"type":"shell_err""#
    });
    out.extend_from_slice(br#","id":"#);
    write_json_string(&mut out, &chunk.id);
    out.extend_from_slice(br#","data":"#);
    write_json_string(&mut out, &chunk.text);
    out.extend_from_slice(br#","offset":"#);
    out.extend_from_slice(chunk.offset.to_string().as_bytes());
    out.push(b'}');
    text(out)
}

/// `shell_opened`: the shell's name for `?resume=`, and the shell's position.
pub(crate) fn opened(shell: &str, at: &str) -> Message {
    let shell = quoted(shell);
    let at = quoted(at);
    Message::Text(format!(r#"{{"type":"shell_opened","shell":{shell},"at":{at}}}"#).into())
}

/// `shell_start`: a command has started.
pub(crate) fn start(id: &str, command: &str) -> Message {
    let id = quoted(id);
    let command = quoted(command);
    Message::Text(format!(r#"{{"type":"shell_start","id":{id},"command":{command}}}"#).into())
}

/// `shell_exit`. Fields with their default value are left out. `more`: additional fields, each with
/// a comma before it.
pub(crate) fn exit(exit: &Exit, more: &str) -> Message {
    let mut out = format!(
        r#"{{"type":"shell_exit","id":{},"code":{},"seq":{},"duration_ms":{}"#,
        quoted(&exit.id),
        exit.code,
        exit.seq,
        ms(exit.micros)
    );
    let marks = [
        ("timed_out", exit.timed_out),
        ("cancelled", exit.cancelled),
        ("oom", exit.oom),
        ("fresh", exit.fresh),
    ];
    for (name, _) in marks.iter().filter(|(_, so)| *so) {
        let _ = write!(out, r#","{name}":true"#);
    }
    if let Some(signal) = exit.signal {
        let _ = write!(out, r#","signal":{signal}"#);
    }
    for (name, count) in
        [("out_bytes", exit.out), ("err_bytes", exit.err), ("lost_bytes", exit.lost)]
    {
        if count > 0 {
            let _ = write!(out, r#","{name}":{count}"#);
        }
    }
    out.push_str(more);
    out.push('}');
    Message::Text(out.into())
}

/// `shell_gap`: output that this client will not receive.
pub(crate) fn gap(stream: u8, from: u64, to: u64) -> Message {
    let stream = if stream == STDOUT { "stdout" } else { "stderr" };
    let out = format!(r#"{{"type":"shell_gap","stream":"{stream}","from":{from},"to":{to}}}"#);
    Message::Text(out.into())
}

/// `shell_closed`: the shell has ended.
pub(crate) fn closed(closed: &Closed) -> Message {
    let mut out = r#"{"type":"shell_closed""#.to_owned();
    if let Some(code) = closed.code {
        let _ = write!(out, r#","code":{code}"#);
    }
    if let Some(signal) = closed.signal {
        let _ = write!(out, r#","signal":{signal}"#);
    }
    let _ = write!(out, r#","cause":{}}}"#, quoted(&closed.cause));
    Message::Text(out.into())
}

/// `shell_closed` for a shell that ended with its sandbox or session, with the error code of the
/// same refusal over HTTP.
pub(crate) fn ended_with(failure: &ApiError) -> Message {
    let code = quoted(failure.code);
    let cause = quoted(&failure.message);
    Message::Text(format!(r#"{{"type":"shell_closed","error":{code},"cause":{cause}}}"#).into())
}

/// `shell_error`: about one frame of the client. The socket stays open.
pub(crate) fn error(id: Option<&str>, failure: &ApiError) -> Message {
    let id = id.map(|id| format!(r#","id":{}"#, quoted(id))).unwrap_or_default();
    let out = format!(
        r#"{{"type":"shell_error"{id},"error":"{}","message":{},"hint":{}}}"#,
        failure.code,
        quoted(&failure.message),
        quoted(&failure.hint)
    );
    Message::Text(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let plain = Exit { id: "r1".into(), seq: 3, micros: 1500, ..Exit::default() };
        assert_eq!(
            sent(&exit(&plain, "")),
            r#"{"type":"shell_exit","id":"r1","code":0,"seq":3,"duration_ms":1.5}"#
        );
        let whole = Exit { micros: 2000, code: -1, ..plain.clone() };
        assert_eq!(
            sent(&exit(&whole, "")),
            r#"{"type":"shell_exit","id":"r1","code":-1,"seq":3,"duration_ms":2}"#
        );
        let full = Exit {
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
        assert_eq!(
            sent(&exit(&full, r#","lost":["shells"],"denied_lost":3"#)),
            r#"{"type":"shell_exit","id":"r1","code":137,"seq":3,"duration_ms":1.5,"timed_out":true,"cancelled":true,"oom":true,"fresh":true,"signal":9,"out_bytes":5,"err_bytes":6,"lost_bytes":7,"lost":["shells"],"denied_lost":3}"#
        );
    }

    #[test]
    fn other_frames_keep_their_bytes() {
        assert_eq!(
            sent(&closed(&Closed { code: Some(3), signal: None, cause: "ex\"it".into() })),
            r#"{"type":"shell_closed","code":3,"cause":"ex\"it"}"#
        );
        assert_eq!(
            sent(&closed(&Closed { code: Some(3), signal: Some(9), cause: String::new() })),
            r#"{"type":"shell_closed","code":3,"signal":9,"cause":""}"#
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
            r#"{"type":"shell_error","id":"a","error":"bad_request","message":"n\"o","hint":"see /v1/openapi.json for what this call takes"}"#
        );
        assert_eq!(
            sent(&error(None, &failure)),
            r#"{"type":"shell_error","error":"bad_request","message":"n\"o","hint":"see /v1/openapi.json for what this call takes"}"#
        );
    }
}
