//! The text frames of the terminal WebSocket, in both directions.

use crate::foundation::error::ApiError;
use crate::foundation::json::{self, not_null};
use crate::foundation::{json_text, signals};
use isolet_wire::response::Closed;
use isolet_wire::terminal::{Attached, COLS_MAX, ROWS_MAX, Size, Snapshot, TerminalClientInfo};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tokio_tungstenite::tungstenite::Message;
use utoipa::ToSchema;

/// The longest text frame, in bytes. A resize frame has about sixty.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// The length of most frames of the server, in bytes.
const FRAME_BYTES: usize = 128;
/// The number of SIGHUP.
const HUNG_UP: i32 = 1;

/// A text frame of a client. Binary frames are what its user types.
///
/// [`parse`] reads the type first and then the fields of that type, so that an error names the
/// field: the derived implementation does not.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum TerminalClientFrame {
    /// The size of the client's window.
    Resize(TerminalResize),
    /// Asks whether the connection is alive.
    Ping(TerminalPing),
}

/// The size of the client's window.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TerminalResize {
    /// 1 or more; the server takes at most 1000.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    cols: Option<i64>,
    /// 1 or more; the server takes at most 400.
    #[serde(deserialize_with = "not_null")]
    #[schema(required = true, nullable = false)]
    rows: Option<i64>,
}

/// A ping, which the server answers with `pong`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TerminalPing {}

/// A frame of a client whose fields were checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientFrame {
    /// The size of the client's window.
    Resize(Size),
    /// Asks whether the connection is alive.
    Ping,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FrameHead {
    #[serde(rename = "type")]
    kind: String,
}

/// Parses one text frame.
pub(super) fn parse(text: &str) -> Result<ClientFrame, ApiError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ApiError::bad_request(
            "a text frame has at most 4096 bytes; what is typed is binary",
        ));
    }
    let text = text.as_bytes();
    let head: FrameHead = json::parse(text)?;
    let frame = match head.kind.as_str() {
        "resize" => TerminalClientFrame::Resize(json::parse_variant(text)?),
        "ping" => TerminalClientFrame::Ping(json::parse_variant(text)?),
        _ => return Err(ApiError::bad_field("type", "must be resize or ping")),
    };
    frame.check()
}

impl TerminalClientFrame {
    fn check(self) -> Result<ClientFrame, ApiError> {
        match self {
            Self::Ping(TerminalPing {}) => Ok(ClientFrame::Ping),
            Self::Resize(TerminalResize { cols: Some(cols), rows: Some(rows) }) => {
                let size = size(cols, rows).map(ClientFrame::Resize);
                size.ok_or_else(|| ApiError::bad_field("resize", "cols and rows must be 1 or more"))
            }
            Self::Resize(_) => Err(ApiError::bad_field("resize", "cols and rows are needed")),
        }
    }
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

/// A text frame of the server. Binary frames are what the terminal shows.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum TerminalServerFrame<'a> {
    /// The program has started.
    Ready {},
    /// The answer to `ping`.
    Pong {},
    /// The server refused a frame or a part of the request.
    Error { message: &'a str },
    /// The program has ended.
    Exit(TerminalExit),
    /// The first frame of a client that asked for events.
    Attached(TerminalAttached<'a>),
    /// Binary frames with the terminal's screen follow.
    Snapshot {
        /// How many bytes follow.
        bytes: u32,
        /// How many bytes of output the snapshot stands for.
        missed: u64,
    },
    /// The offset of the next byte of output.
    At {
        /// Names this run of the terminal, for `?terminal=`.
        terminal: &'a str,
        /// For `?since=` of the next connection.
        offset: u64,
    },
    /// The terminal has another size.
    Size { cols: u16, rows: u16 },
    /// Clients were attached or detached, or another one types.
    Clients { clients: Vec<ClientView<'a>> },
}

/// How a terminal's program ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TerminalExit {
    /// 128 and the signal where a signal ended it.
    code: i32,
    /// The name of the signal that ended it, such as `SIGTERM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
}

/// The terminal that a client is attached to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TerminalAttached<'a> {
    /// Names this run of the terminal.
    terminal: &'a str,
    /// The number of the client.
    client: u32,
    /// Whether this client opened the terminal.
    fresh: bool,
    /// The width, in columns.
    cols: u16,
    /// The height, in rows.
    rows: u16,
    /// The process id of the program, inside the sandbox.
    pid: i32,
}

/// A client of a terminal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TerminalClient)]
pub(crate) struct ClientView<'a> {
    /// The number of the client, unique for the terminal.
    client: u32,
    /// The name that the client gave itself.
    name: Cow<'a, str>,
    /// The access of the client: `edit` or `view`.
    mode: &'static str,
    /// The width of its window, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cols: Option<u16>,
    /// The height of its window, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rows: Option<u16>,
    /// Whether it was the last client to type.
    typing: bool,
}

impl<'a> From<&'a TerminalClientInfo> for ClientView<'a> {
    fn from(client: &'a TerminalClientInfo) -> Self {
        Self {
            client: client.number,
            name: Cow::Borrowed(&client.name),
            mode: if client.view { "view" } else { "edit" },
            cols: client.size.map(|size| size.cols),
            rows: client.size.map(|size| size.rows),
            typing: client.typing,
        }
    }
}

impl ClientView<'_> {
    /// Copies what is borrowed.
    pub(crate) fn into_owned(self) -> ClientView<'static> {
        let Self { client, name, mode, cols, rows, typing } = self;
        ClientView { client, name: Cow::Owned(name.into_owned()), mode, cols, rows, typing }
    }
}

fn message(frame: &TerminalServerFrame<'_>) -> Message {
    Message::text(json_text::to_string(frame, FRAME_BYTES))
}

pub(super) fn ready() -> Message {
    message(&TerminalServerFrame::Ready {})
}

pub(super) fn pong() -> Message {
    message(&TerminalServerFrame::Pong {})
}

pub(super) fn error(text: &str) -> Message {
    message(&TerminalServerFrame::Error { message: text })
}

/// `exit`: how the program ended. Without a status, hanging up ended it.
pub(super) fn exit(closed: &Closed) -> Message {
    let by_signal =
        |signal| TerminalExit { code: 128 + signal, signal: Some(signals::name(signal)) };
    let exit = match (closed.signal, closed.code) {
        (Some(signal), _) => by_signal(signal),
        (None, Some(code)) => TerminalExit { code, signal: None },
        (None, None) => by_signal(HUNG_UP),
    };
    message(&TerminalServerFrame::Exit(exit))
}

pub(super) fn attached(attached: &Attached) -> Message {
    let Attached { id, number, pid, fresh, size: Size { cols, rows }, .. } = attached;
    message(&TerminalServerFrame::Attached(TerminalAttached {
        terminal: id,
        client: *number,
        fresh: *fresh,
        cols: *cols,
        rows: *rows,
        pid: *pid,
    }))
}

pub(super) fn snapshot(snapshot: Snapshot) -> Message {
    let Snapshot { bytes, missed, .. } = snapshot;
    message(&TerminalServerFrame::Snapshot { bytes, missed })
}

pub(super) fn at(terminal: &str, offset: u64) -> Message {
    message(&TerminalServerFrame::At { terminal, offset })
}

pub(super) fn sized(Size { cols, rows }: Size) -> Message {
    message(&TerminalServerFrame::Size { cols, rows })
}

pub(super) fn clients(clients: &[TerminalClientInfo]) -> Message {
    let clients = clients.iter().map(ClientView::from).collect();
    message(&TerminalServerFrame::Clients { clients })
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
        let closed = |code, signal| Closed { code, signal, ..Closed::default() };
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
        let one = TerminalClientInfo {
            number: 1,
            name: "a\"\u{1b}".into(),
            view: false,
            size: Some(size),
            typing: true,
        };
        let two = TerminalClientInfo { number: 2, view: true, ..TerminalClientInfo::default() };
        assert_eq!(
            sent(&clients(&[one, two])),
            r#"{"type":"clients","clients":[{"client":1,"name":"a\"\u001b","mode":"edit","cols":80,"rows":24,"typing":true},{"client":2,"name":"","mode":"view","typing":false}]}"#
        );
        assert_eq!(sent(&clients(&[])), r#"{"type":"clients","clients":[]}"#);
        assert_eq!(sent(&error("a \"b\"")), r#"{"type":"error","message":"a \"b\""}"#);
    }
}
