//! The text frames of the terminal WebSocket, in both directions.

use crate::foundation::{
    error::ApiError,
    json::{self, not_null},
    json_text::write_json_string,
    signals,
};
use isolet_wire::{
    response::Closed,
    terminal::{Attached, COLS_MAX, Client, ROWS_MAX, Size, Snapshot},
};
use serde::Deserialize;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// The longest text frame, in bytes. A resize frame has about sixty.
const TEXT_BYTES_MAX: usize = 4 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "not_null")]
    cols: Option<i64>,
    #[serde(deserialize_with = "not_null")]
    rows: Option<i64>,
}

/// A frame of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientFrame {
    /// The size of the client's window.
    Resize(Size),
    /// Asks whether the connection is alive.
    Ping,
}

/// Parses one text frame.
pub(super) fn parse(text: &str) -> Result<ClientFrame, ApiError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ApiError::bad_request(
            "a text frame has at most 4096 bytes; what is typed is binary",
        ));
    }
    let frame: Frame = json::parse(text.as_bytes())?;
    match frame.kind.as_str() {
        "resize" => {}
        "ping" if frame.cols.or(frame.rows).is_none() => return Ok(ClientFrame::Ping),
        "ping" => return Err(ApiError::bad_field("ping", "takes no fields")),
        _ => return Err(ApiError::bad_field("type", "must be resize or ping")),
    }
    let (Some(cols), Some(rows)) = (frame.cols, frame.rows) else {
        return Err(ApiError::bad_field("resize", "cols and rows are needed"));
    };
    let size = size(cols, rows).map(ClientFrame::Resize);
    size.ok_or_else(|| ApiError::bad_field("resize", "cols and rows must be 1 or more"))
}

/// Clamps a size to the largest; `None` when a side is not positive.
pub(crate) fn size(cols: i64, rows: i64) -> Option<Size> {
    let cut = |side: i64, most: u16| match u16::try_from(side) {
        Ok(0) => None,
        Ok(side) => Some(side.min(most)),
        Err(_) => (side > 0).then_some(most),
    };
    Some(Size { cols: cut(cols, COLS_MAX)?, rows: cut(rows, ROWS_MAX)? })
}

fn quoted(value: &str) -> String {
    let mut out = Vec::with_capacity(value.len() + 2);
    write_json_string(&mut out, value);
    // Only complete characters were written.
    String::from_utf8(out).unwrap_or_default()
}

fn text(text: String) -> Message {
    Message::Text(Utf8Bytes::from(text))
}

pub(super) fn ready() -> Message {
    Message::Text(Utf8Bytes::from_static(r#"{"type":"ready"}"#))
}

pub(super) fn pong() -> Message {
    Message::Text(Utf8Bytes::from_static(r#"{"type":"pong"}"#))
}

pub(super) fn error(message: &str) -> Message {
    text(format!(r#"{{"type":"error","message":{}}}"#, quoted(message)))
}

/// `exit`: how the program ended. Without a status, hanging up ended it.
pub(super) fn exit(closed: &Closed) -> Message {
    text(match (closed.signal, closed.code) {
        (Some(signal), _) => {
            let name = signals::name(signal);
            format!(r#"{{"type":"exit","code":{},"signal":"{name}"}}"#, 128 + signal)
        }
        (None, Some(code)) => format!(r#"{{"type":"exit","code":{code}}}"#),
        (None, None) => r#"{"type":"exit","code":129,"signal":"SIGHUP"}"#.to_owned(),
    })
}

pub(super) fn attached(attached: &Attached) -> Message {
    let Attached { id, number, pid, fresh, size: Size { cols, rows }, .. } = attached;
    let id = quoted(id);
    text(format!(
        r#"{{"type":"attached","terminal":{id},"client":{number},"fresh":{fresh},"cols":{cols},"rows":{rows},"pid":{pid}}}"#
    ))
}

pub(super) fn snapshot(snapshot: Snapshot) -> Message {
    let Snapshot { bytes, missed, .. } = snapshot;
    text(format!(r#"{{"type":"snapshot","bytes":{bytes},"missed":{missed}}}"#))
}

pub(super) fn at(terminal: &str, offset: u64) -> Message {
    text(format!(r#"{{"type":"at","terminal":{},"offset":{offset}}}"#, quoted(terminal)))
}

pub(super) fn sized(Size { cols, rows }: Size) -> Message {
    text(format!(r#"{{"type":"size","cols":{cols},"rows":{rows}}}"#))
}

pub(super) fn clients(clients: &[Client]) -> Message {
    let all: Vec<String> = clients.iter().map(client).collect();
    text(format!(r#"{{"type":"clients","clients":[{}]}}"#, all.join(",")))
}

/// One client, as in frames and lists.
pub(crate) fn client(client: &Client) -> String {
    let mode = if client.view { "view" } else { "edit" };
    let size = client
        .size
        .map_or_else(String::new, |Size { cols, rows }| format!(r#","cols":{cols},"rows":{rows}"#));
    let number = client.number;
    let name = quoted(&client.name);
    let typing = client.typing;
    format!(r#"{{"client":{number},"name":{name},"mode":"{mode}"{size},"typing":{typing}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sent(message: &Message) -> &str {
        message.to_text().unwrap()
    }

    #[test]
    fn a_size_is_clamped_and_never_zero() {
        let of = |cols: i64, rows: i64| {
            let frame = json!({"type":"resize","cols":cols,"rows":rows}).to_string();
            match parse(&frame) {
                Ok(ClientFrame::Resize(size)) => Some((size.cols, size.rows)),
                _ => None,
            }
        };
        assert_eq!(of(80, 24), Some((80, 24)));
        assert_eq!(of(65_535, 65_535), Some((COLS_MAX, ROWS_MAX)));
        assert_eq!(of(i64::MAX, 1), Some((COLS_MAX, 1)));
        for (cols, rows) in [(0, 0), (0, 24), (80, 0), (-1, 24), (80, i64::MIN)] {
            assert_eq!(of(cols, rows), None, "{cols}x{rows}");
        }
    }

    #[test]
    fn an_invalid_frame_is_refused() {
        assert_eq!(parse(r#"{"type":"ping"}"#).unwrap(), ClientFrame::Ping);
        let long = format!(r#"{{"type":"resize","cols":1,"rows":1{}}}"#, " ".repeat(5000));
        for bad in [
            "",
            "[]",
            "null",
            "resize",
            r#"{"type":"ready"}"#,
            r#"{"type":"ping","cols":1}"#,
            r#"{"type":"resize"}"#,
            r#"{"type":"resize","cols":80}"#,
            r#"{"type":"resize","cols":80,"rows":24.5}"#,
            r#"{"type":"resize","cols":"80","rows":24}"#,
            r#"{"cols":80,"rows":24}"#,
            r#"{"type":"resize","cols":80,"rows":24,"x":1}"#,
            r#"{"type":"resize","cols":80,"rows":99999999999999999999}"#,
            &long,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn frames_keep_their_bytes() {
        let closed = |code, signal| Closed { code, signal, cause: String::new() };
        assert_eq!(sent(&exit(&closed(Some(3), None))), r#"{"type":"exit","code":3}"#);
        assert_eq!(
            sent(&exit(&closed(None, Some(15)))),
            r#"{"type":"exit","code":143,"signal":"SIGTERM"}"#
        );
        assert_eq!(
            sent(&exit(&closed(None, None))),
            r#"{"type":"exit","code":129,"signal":"SIGHUP"}"#
        );
        assert_eq!(sent(&ready()), r#"{"type":"ready"}"#);
        assert_eq!(sent(&pong()), r#"{"type":"pong"}"#);
        let size = Size { cols: 80, rows: 24 };
        let client = Attached {
            id: "abc".into(),
            number: 2,
            pid: 7,
            fresh: true,
            size,
            offset: 9,
            snapshot: None,
        };
        assert_eq!(
            sent(&attached(&client)),
            r#"{"type":"attached","terminal":"abc","client":2,"fresh":true,"cols":80,"rows":24,"pid":7}"#
        );
        let about = Snapshot { bytes: 5, offset: 100, missed: 3 };
        assert_eq!(sent(&snapshot(about)), r#"{"type":"snapshot","bytes":5,"missed":3}"#);
        assert_eq!(sent(&at("abc", 9)), r#"{"type":"at","terminal":"abc","offset":9}"#);
        assert_eq!(sent(&sized(size)), r#"{"type":"size","cols":80,"rows":24}"#);
        let one = Client {
            number: 1,
            name: "a\"\u{1b}".into(),
            view: false,
            size: Some(size),
            typing: true,
        };
        let two = Client { number: 2, view: true, ..Client::default() };
        assert_eq!(
            sent(&clients(&[one, two])),
            r#"{"type":"clients","clients":[{"client":1,"name":"a\"\u001b","mode":"edit","cols":80,"rows":24,"typing":true},{"client":2,"name":"","mode":"view","typing":false}]}"#
        );
        assert_eq!(sent(&clients(&[])), r#"{"type":"clients","clients":[]}"#);
        assert_eq!(sent(&error("a \"b\"")), r#"{"type":"error","message":"a \"b\""}"#);
    }
}
