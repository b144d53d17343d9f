//! The messages of `Start` and `Connect`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_wire::process::ProcessEnd;
use isolet_wire::response::{Closed, STDOUT};
use serde::Serialize;

/// A message of the stream.
#[derive(Debug, Serialize)]
pub(super) struct EventMessage {
    event: Event,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Event {
    Start {
        pid: i32,
    },
    Data(Output),
    End {
        /// -1 if a signal ended the program.
        exit_code: i32,
        exited: bool,
        status: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    Keepalive {},
}

/// Bytes of a program, in base64.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Output {
    Stdout(String),
    Stderr(String),
    Pty(String),
}

impl EventMessage {
    pub(super) const KEEP_ALIVE: Self = Self { event: Event::Keepalive {} };

    pub(super) fn start(pid: i32) -> Self {
        Self { event: Event::Start { pid } }
    }

    pub(super) fn output(stream: u8, bytes: &[u8]) -> Self {
        let text = STANDARD.encode(bytes);
        let output = if stream == STDOUT { Output::Stdout(text) } else { Output::Stderr(text) };
        Self { event: Event::Data(output) }
    }

    pub(super) fn pty(bytes: &[u8]) -> Self {
        Self { event: Event::Data(Output::Pty(STANDARD.encode(bytes))) }
    }

    pub(super) fn end(end: &ProcessEnd) -> Self {
        Self::ended(Some(end.code), end.signal)
    }

    pub(super) fn closed(closed: &Closed) -> Self {
        Self::ended(closed.code, closed.signal)
    }

    fn ended(code: Option<i32>, signal: Option<i32>) -> Self {
        let event = match (signal, code) {
            (Some(signal), _) => {
                let status = format!("signal: {}", signal_name(signal));
                Event::End { exit_code: -1, exited: false, error: Some(status.clone()), status }
            }
            (None, code) => {
                let exit_code = code.unwrap_or(-1);
                let status = format!("exit status {exit_code}");
                let error = (exit_code != 0).then(|| status.clone());
                Event::End { exit_code, exited: true, status, error }
            }
        };
        Self { event }
    }
}

fn signal_name(signal: i32) -> String {
    match signal {
        1 => "hangup".to_owned(),
        2 => "interrupt".to_owned(),
        6 => "aborted".to_owned(),
        9 => "killed".to_owned(),
        11 => "segmentation fault".to_owned(),
        13 => "broken pipe".to_owned(),
        15 => "terminated".to_owned(),
        other => format!("signal {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        let text = |message: &EventMessage| serde_json::to_string(message).unwrap();
        assert_eq!(text(&EventMessage::start(7)), r#"{"event":{"start":{"pid":7}}}"#);
        let data = r#"{"event":{"data":{"stdout":"/wA="}}}"#;
        assert_eq!(text(&EventMessage::output(1, b"\xff\0")), data);
        assert_eq!(text(&EventMessage::pty(b"")), r#"{"event":{"data":{"pty":""}}}"#);
        assert_eq!(text(&EventMessage::KEEP_ALIVE), r#"{"event":{"keepalive":{}}}"#);
        assert_eq!(
            text(&EventMessage::end(&ProcessEnd::default())),
            r#"{"event":{"end":{"exitCode":0,"exited":true,"status":"exit status 0"}}}"#
        );
        let killed = ProcessEnd { code: 137, signal: Some(9), ..ProcessEnd::default() };
        assert_eq!(
            text(&EventMessage::end(&killed)),
            r#"{"event":{"end":{"exitCode":-1,"exited":false,"status":"signal: killed","error":"signal: killed"}}}"#
        );
    }
}
