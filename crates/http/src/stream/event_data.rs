//! The data of server-sent events about output, of commands, code and processes.

use crate::foundation::json_text::OutputText;
use crate::foundation::utf8_stream::TextChunk;
use crate::stream::event_stream::{EventBuffer, stream_name};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use utoipa::ToSchema;

/// The data of `stdout` and `stderr`: text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TextEvent<'a> {
    /// The position of the first byte in its stream.
    offset: u64,
    /// U+FFFD replaces invalid UTF-8.
    #[schema(value_type = String)]
    data: OutputText<'a>,
}

/// The data of `stdout` and `stderr` with `encoding=base64`: exact bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BytesEvent {
    /// The position of the first byte in its stream.
    offset: u64,
    /// The bytes in base64 with padding.
    #[schema(value_type = String)]
    data_b64: OutputText<'static>,
}

/// The data of `gap`: output of one stream that is no longer available.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutputGapEvent {
    /// The stream: `stdout` or `stderr`.
    pub(crate) stream: &'static str,
    /// The first missing byte.
    pub(crate) from: u64,
    /// The first byte that is available again.
    pub(crate) to: u64,
}

/// The data of `gap` in a log or a list of events: positions or ids that are no longer available.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GapEvent {
    /// The first that is missing.
    pub(crate) from: u64,
    /// The first that is available again.
    pub(crate) to: u64,
}

/// Appends output as text. `id`: where a client that reconnects goes on.
pub(crate) fn write_text(out: &mut EventBuffer, id: Option<u64>, chunk: &TextChunk<'_>) {
    let data = TextEvent { offset: chunk.offset, data: (&*chunk.text).into() };
    out.event(id, stream_name(chunk.stream), &data);
}

/// Appends output as exact bytes. `id`: where a client that reconnects goes on.
pub(crate) fn write_bytes(
    out: &mut EventBuffer,
    id: Option<u64>,
    stream: u8,
    offset: u64,
    bytes: &[u8],
) {
    let data = BytesEvent { offset, data_b64: STANDARD.encode(bytes).into() };
    out.event(id, stream_name(stream), &data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[test]
    fn output_events_keep_their_bytes() {
        let mut out = EventBuffer::default();
        let chunk = TextChunk {
            stream: 1,
            id: Cow::Borrowed(""),
            offset: 7,
            text: Cow::Borrowed("a\n\"€"),
        };
        write_text(&mut out, None, &chunk);
        write_text(&mut out, Some(12), &chunk);
        write_bytes(&mut out, Some(3), 2, 9, b"\xff");
        out.event(None, "gap", &OutputGapEvent { stream: "stderr", from: 1, to: 2 });
        out.event(Some(2), "gap", &GapEvent { from: 1, to: 2 });
        let lines = [
            "event: stdout",
            r#"data: {"offset":7,"data":"a\n\"€"}"#,
            "",
            "id: 12",
            "event: stdout",
            r#"data: {"offset":7,"data":"a\n\"€"}"#,
            "",
            "id: 3",
            "event: stderr",
            r#"data: {"offset":9,"data_b64":"/w=="}"#,
            "",
            "event: gap",
            r#"data: {"stream":"stderr","from":1,"to":2}"#,
            "",
            "id: 2",
            "event: gap",
            r#"data: {"from":1,"to":2}"#,
            "",
            "",
        ];
        assert_eq!(out.as_str(), lines.join("\n"));
    }
}
